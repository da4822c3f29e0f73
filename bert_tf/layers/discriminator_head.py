"""ELECTRA's head."""

import keras

from bert_tf.layers.basic import apply_activation
from bert_tf.layers.configured import ConfiguredLayer
from bert_tf.layers.heads import DenseLogits


@keras.saving.register_keras_serializable(package="bert_tf")
class DiscriminatorHead(ConfiguredLayer):
    """Predicts which tokens were replaced: dense, activation, dense.

    Clark et al. 2020 (ELECTRA, arXiv 2003.10555), section 2.

    Args:
        config: A `BertConfig`.

    Call arguments:
        sequence: float `[batch, length, hidden]`.

    Returns:
        float32 logits `[batch, length]`, above 0 where a token was replaced.
    """

    def build(self, sequence_shape):
        self.transform = self.make_dense(self.config.hidden_size, "transform")
        self.dense = self.make_dense(1, "dense", DenseLogits)

    def call(self, sequence, training=None):
        x_BLD = apply_activation(
            self.config.hidden_act, self.transform(sequence, training=training)
        )
        return self.dense(x_BLD)[..., 0]

    def compute_output_spec(self, sequence, training=None):
        return keras.KerasTensor(sequence.shape[:-1], dtype="float32")
