"""What stands on the encoder: pooler, masked LM, classification.

Letters in tensor names: B batch, L position, P predictions a row, N all
predictions of the batch, D hidden size, V vocabulary.
"""

import keras
from keras import ops

from bert_tf.layers.activations import apply_activation
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.gathering import gather_positions
from bert_tf.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(keras.layers.Layer):
    """A dense tanh layer over the vector of a sequence's first token.

    Args:
        init_stddev: Standard deviation of the initial kernel.

    Call arguments:
        sequence: float `[batch, length, hidden]`.
        first_positions: None for the token at 0, or int32
            `[batch, sequences]` where rows hold several sequences.

    Returns:
        float `[batch, hidden]`, or `[batch, sequences, hidden]`.
    """

    def __init__(self, init_stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.init_stddev = init_stddev

    def build(self, sequence_shape, first_positions_shape=None):
        hidden_size = sequence_shape[-1]
        self.dense = keras.layers.Dense(
            hidden_size,
            activation="tanh",
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, hidden_size))

    def call(self, sequence, first_positions=None):
        if first_positions is None:
            return self.dense(sequence[:, 0])
        return self.dense(gather_positions(sequence, first_positions))

    def get_config(self):
        return super().get_config() | {"init_stddev": self.init_stddev}


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(keras.layers.Layer):
    """Scores every word of the vocabulary at the given positions.

    Dense, activation, LayerNorm, then the product with the word embeddings,
    which it does not own, and a bias (Devlin et al. 2018, section 3.1).

    Args:
        vocab_size: Number of words.
        activation: Name of the activation, one of `config.ACTIVATIONS`.
        init_stddev: Standard deviation of the initial kernel.
        layer_norm_eps: Added to the variance in LayerNorm.

    Call arguments:
        sequence: float `[batch, length, hidden]`.
        positions: int32 `[batch, predictions]` in `[0, length)`, or None for
            all places.
        word_embeddings: float `[vocab_size, hidden]`.

    Returns:
        float32 logits `[batch, predictions, vocab_size]`.
    """

    def __init__(
        self,
        vocab_size,
        activation="gelu_new",
        init_stddev=0.02,
        layer_norm_eps=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.activation = activation
        self.init_stddev = init_stddev
        self.layer_norm_eps = layer_norm_eps

    def build(self, sequence_shape, *other_shapes):
        hidden_size = sequence_shape[-1]
        self.transform = keras.layers.Dense(
            hidden_size,
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            dtype=self.dtype_policy,
            name="transform",
        )
        self.transform.build((None, None, hidden_size))
        self.layer_norm = LayerNorm(
            epsilon=self.layer_norm_eps,
            dtype=self.dtype_policy,
            name="layer_norm",
        )
        self.layer_norm.build((None, None, hidden_size))
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,),
            initializer="zeros",
            # In 16 bits 10.03 is 10.
            autocast=False,
            name="output_bias",
        )

    def call(self, sequence, positions, word_embeddings):
        x_BPD = sequence
        if positions is not None:
            x_BPD = gather_positions(sequence, positions)
        batch_size, num_places, hidden_size = ops.shape(x_BPD)
        # TensorFlow fuses the product of two matrices with the bias.
        x_ND = ops.reshape(x_BPD, (-1, hidden_size))
        x_ND = apply_activation(self.activation, self.transform(x_ND))
        x_ND = self.layer_norm(x_ND)
        words_VD = ops.cast(word_embeddings, self.compute_dtype)
        logits_NV = ops.matmul(x_ND, ops.transpose(words_VD))
        # The loss is in float32 under every dtype policy.
        logits_NV = ops.add(
            ops.cast(logits_NV, "float32"),
            ops.cast(self.output_bias, "float32"),
        )
        return ops.reshape(logits_NV, (batch_size, num_places, self.vocab_size))

    def compute_output_spec(self, sequence, positions, word_embeddings):
        places = sequence if positions is None else positions
        return keras.KerasTensor(
            (*places.shape[:2], self.vocab_size), dtype="float32"
        )

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "activation": self.activation,
            "init_stddev": self.init_stddev,
            "layer_norm_eps": self.layer_norm_eps,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class ClassificationHead(keras.layers.Layer):
    """Dropout and a linear layer: next sentence, classes, a regression.

    Args:
        num_labels: Number of outputs.
        dropout: Fraction of the input dropped in training.
        init_stddev: Standard deviation of the initial kernel.

    Call arguments:
        inputs: float `[..., hidden]`.

    Returns:
        float32 logits `[..., num_labels]`.
    """

    def __init__(self, num_labels, dropout=0.0, init_stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        if num_labels < 1:
            raise ValueError(
                "`num_labels` must be a positive integer. "
                f"Received: num_labels={num_labels!r}."
            )
        self.num_labels = num_labels
        self.dropout = dropout
        self.init_stddev = init_stddev

    def build(self, inputs_shape):
        self.input_dropout = Dropout(
            self.dropout, dtype=self.dtype_policy, name="input_dropout"
        )
        self.dense = _DenseLogits(
            self.num_labels,
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build(inputs_shape)

    def call(self, inputs, training=None):
        return self.dense(self.input_dropout(inputs, training=training))

    def compute_output_spec(self, inputs, training=None):
        return keras.KerasTensor(
            (*inputs.shape[:-1], self.num_labels), dtype="float32"
        )

    def get_config(self):
        return super().get_config() | {
            "num_labels": self.num_labels,
            "dropout": self.dropout,
            "init_stddev": self.init_stddev,
        }


class _DenseLogits(keras.layers.Dense):
    """A linear layer that adds its bias in float32 under every dtype policy.

    The product is in the compute dtype, the outputs are float32.
    """

    def add_weight(self, *args, **kwargs):
        is_bias = kwargs.get("name") == "bias"
        return super().add_weight(*args, autocast=not is_bias, **kwargs)

    def call(self, inputs, training=None):
        # A model that is stored in 16 bits has its bias so too.
        return ops.add(
            ops.cast(ops.matmul(inputs, self.kernel), "float32"),
            ops.cast(self.bias, "float32"),
        )
