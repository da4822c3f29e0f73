"""The feed-forward layer with a gate.

Letters in tensor names: B batch, Q position that is computed, D hidden size, F
width of the feed-forward layer.
"""

import keras

from bert_tf.layers.basic import apply_activation
from bert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class GatedFeedForward(ConfiguredLayer):
    """One half of a dense layer activated, times the other half; dense.

    Shazeer 2020, GLU Variants (arXiv 2002.05202): GEGLU with "gelu".

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: float `[batch, positions, hidden]`.
        seed: Seed of the dropout between the two; None for a new one.

    Returns:
        float, of the shape of `inputs`.
    """

    def build(self, inputs_shape):
        config = self.config
        # The first half of the units is activated.
        self.intermediate = self.make_dense(
            2 * config.intermediate_size, "intermediate"
        )
        self.inner_dropout = self.make_dropout(
            config.inner_dropout_prob, "inner_dropout"
        )
        self.output_dense = self.make_dense(
            config.hidden_size,
            "output",
            num_inputs=config.intermediate_size,
            stddev=config.output_range,
        )

    def call(self, inputs, seed=None, training=None):
        size = self.config.intermediate_size
        both = self.intermediate(inputs, training=training)
        x_BQF = apply_activation(self.config.hidden_act, both[..., :size])
        x_BQF = x_BQF * both[..., size:]
        x_BQF = self.inner_dropout(x_BQF, seed, training=training)
        return self.output_dense(x_BQF, training=training)
