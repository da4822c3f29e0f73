"""The pooler and the heads of the encoder: masked LM, classification.

Letters in tensor names: B batch, L position, P predictions per row, N all
predictions of the batch, D hidden size, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.arguments import fraction
from bert_tf.arguments import whole_number
from bert_tf.features import Tensor
from bert_tf.layers.basic import apply_activation
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(ConfiguredLayer):
    """A dense tanh layer over the vector of a sequence's first token.

    If the configuration has no pooler, it returns that vector itself.

    Args:
        config: A `BertConfig`.

    Call arguments:
        sequence: float `[batch, length, hidden]`.
        first_positions: None for the token at 0, or int32
            `[batch, sequences]` if rows hold several sequences.

    Returns:
        float `[batch, hidden]`, or `[batch, sequences, hidden]`.

    Attributes:
        trainable: As in Keras, but always False after `leave_out`.
    """

    _is_left_out = False

    @property
    def trainable(self) -> bool:
        return super().trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        is_trained = value and not self._is_left_out
        keras.layers.Layer.trainable.fset(self, is_trained)

    def leave_out(self) -> None:
        """Marks the pooler as unused by its model.

        It then stays untrainable when the model is frozen and unfrozen, so that
        no gradient is missing.
        """
        self._is_left_out = True
        self.trainable = False

    def build(self, sequence_shape, first_positions_shape=None):
        if self.config.has_pooler:
            self.dense = self.make_dense(
                self.config.hidden_size, "dense", activation="tanh"
            )

    def call(self, sequence, first_positions=None):
        if first_positions is None:
            first = sequence[:, 0]
        else:
            first = gather_positions(sequence, first_positions)
        return self.dense(first) if self.config.has_pooler else first


@keras.saving.register_keras_serializable(package="bert_tf")
class Transform(ConfiguredLayer):
    """Dense, activation, LayerNorm: what the masked-LM head begins with.

    In some families other heads do, too, with the same weights at first: see
    `BertConfig.shared_head`. The outputs are as wide as the embeddings.

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: float `[..., hidden]`.

    Returns:
        float `[..., width of the embeddings]`.
    """

    def build(self, inputs_shape, *other_shapes):
        width = self.config.embedding_width
        self.transform = self.make_dense(
            width, "transform", stddev=self.config.output_range
        )
        self.layer_norm = self.make_layer_norm("layer_norm", width)

    def call(self, inputs, training=None):
        x = self.transform(inputs)
        return self.layer_norm(apply_activation(self.config.masked_lm_act, x))


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(Transform):
    """Scores every word of the vocabulary at the given positions.

    `Transform`, then the product with the word embeddings, which it does not
    own, plus a bias (Devlin et al. 2018, section 3.1).

    Args:
        config: A `BertConfig`.

    Call arguments:
        sequence: float `[batch, length, hidden]`.
        positions: int32 `[batch, predictions]` in `[0, length)`, or None for
            all positions.
        word_embeddings: float `[vocab_size, width of the embeddings]`.

    Returns:
        float32 logits `[batch, predictions, vocab_size]`.
    """

    def build(self, sequence_shape, *other_shapes):
        super().build(sequence_shape)
        self.output_bias = add_output_bias(self)

    def call(  # type: ignore[override]
        self, sequence, positions, word_embeddings, training=None
    ):
        x_BPD = sequence
        if positions is not None:
            x_BPD = gather_positions(sequence, positions)
        batch_size, num_predictions, hidden_size = ops.shape(x_BPD)
        # TensorFlow fuses the product of two matrices with the bias.
        x_ND = super().call(ops.reshape(x_BPD, (-1, hidden_size)))
        logits_NV = score_words(x_ND, word_embeddings, self.output_bias)
        return ops.reshape(
            logits_NV, (batch_size, num_predictions, self.config.vocab_size)
        )

    def compute_output_spec(
        self, sequence, positions, word_embeddings, training=None
    ):
        at = sequence if positions is None else positions
        return keras.KerasTensor(
            (*at.shape[:2], self.config.vocab_size), dtype="float32"
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class HiddenLayer(ConfiguredLayer):
    """The hidden layer of a classifier: dropout, dense, activation.

    For models without a pre-trained pooler.

    Args:
        config: A `BertConfig`.
        activation: One of `config.ACTIVATIONS`.
        dropout: Fraction of the input dropped in training.

    Call arguments:
        inputs: float `[..., hidden]`.

    Returns:
        float `[..., hidden]`.
    """

    def __init__(
        self,
        config: AnyConfig,
        activation: str,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.activation = activation
        self.dropout = fraction("dropout", dropout)

    def build(self, inputs_shape):
        self.input_dropout = self.make_dropout(self.dropout, "input_dropout")
        self.dense = self.make_dense(self.config.hidden_size, "dense")

    def call(self, inputs, training=None):
        x = self.dense(self.input_dropout(inputs, training=training))
        return apply_activation(self.activation, x)

    def get_config(self):
        return super().get_config() | {
            "activation": self.activation,
            "dropout": self.dropout,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class ClassificationHead(ConfiguredLayer):
    """Dropout and a linear layer: next sentence, classes, a regression.

    Args:
        config: A `BertConfig`.
        num_labels: Number of outputs.
        dropout: Fraction of the input dropped in training.

    Call arguments:
        inputs: float `[..., hidden]`.

    Returns:
        float32 logits `[..., num_labels]`.
    """

    def __init__(
        self,
        config: AnyConfig,
        num_labels: int,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        num_labels = whole_number("num_labels", num_labels)
        if num_labels < 1:
            raise ValueError(
                "`num_labels` must be a positive integer. "
                f"Received: num_labels={num_labels!r}."
            )
        self.num_labels = num_labels
        self.dropout = fraction("dropout", dropout)

    def build(self, inputs_shape):
        self.input_dropout = self.make_dropout(self.dropout, "input_dropout")
        config = self.config
        # As in ModernBERT, if the input is normalised.
        self.dense = self.make_dense(
            self.num_labels,
            "dense",
            DenseLogits,
            stddev=config.hidden_size**-0.5 if config.shared_head else None,
            use_bias=True,
        )

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
        }


def add_output_bias(layer: ConfiguredLayer) -> keras.Variable:
    """Returns a new bias, one number for every word."""
    return layer.add_weight(
        shape=(layer.config.vocab_size,),
        initializer="zeros",
        # In bfloat16, 10.03 is 10.
        autocast=False,
        name="output_bias",
    )


def score_words(x_ND: Tensor, word_embeddings: Tensor, bias: Tensor) -> Tensor:
    """Returns float32 `[N, V]`: the products with the words, plus a bias."""
    words_VD = ops.cast(word_embeddings, x_ND.dtype)
    # TensorFlow would compute the gradient of a transposed matrix transposed.
    logits_NV = ops.einsum("ND,VD->NV", x_ND, words_VD)
    # The loss is in float32 under every dtype policy.
    return ops.cast(logits_NV, "float32") + ops.cast(bias, "float32")


class DenseLogits(keras.layers.Dense):
    """A linear layer that adds its bias in float32 under every dtype policy.

    The product is in the compute dtype, the outputs are float32.
    """

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        is_bias = kwargs.get("name") == "bias"
        return super().add_weight(*args, autocast=not is_bias, **kwargs)

    def call(self, inputs, training=None):
        # In a model that is stored in 16 bits, so is the bias.
        return ops.add(
            ops.cast(ops.matmul(inputs, self.kernel), "float32"),
            ops.cast(self.bias, "float32"),
        )
