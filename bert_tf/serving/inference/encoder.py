"""The encoder as a CPU likes it: from the same weights, the same outputs.

`BertEncoder` reads like the paper. Here its operations stand as TensorFlow's
kernels like them: few, and such that it fuses them. Tokens are one matrix from
block to block, because the product of two matrices is fused with the bias and
the activation. In float32, the scale and the mask are fused with the product
of the scores.

Of constants, TensorFlow computes what depends on weights alone once, when it
loads the graph. Queries, keys and values then are one product, with the kernels
side by side. In float32, blocks also use their weights in two halves, of the
heads and of the units of the feed-forward layer. TensorFlow computes the two
at the same time, each with a thread of its own: with few rows this is faster
than two threads that share each product, because they meet twice a block and
not at every operation. In bfloat16 the products take too little time for that.

Letters in tensor names: B batch, L position, Q position that is computed, K
position of a key, T position counted over the whole batch, R the same of those
that are computed, D hidden size, N heads, H size of one head, F width of the
feed-forward layer.
"""

import dataclasses
import math
from typing import Any
from typing import TypeAlias

import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.layers.attention_mask import make_attention_mask
from bert_tf.models.encoder import BertEncoder

# A dense layer's kernel and bias.
_Dense: TypeAlias = tuple[tf.Tensor, tf.Tensor]

# The fields of a configuration that the code here follows, and those that do
# not change what an encoder computes.
_KNOWN_FIELDS = frozenset(
    (
        *("model_type", "vocab_size", "hidden_size", "num_hidden_layers"),
        *("num_attention_heads", "intermediate_size", "hidden_act"),
        *("max_position_embeddings", "type_vocab_size", "layer_norm_eps"),
        *("is_decoder", "embedding_size", "num_hidden_groups", "padding_idx"),
        *("has_pooler", "initializer_range", "hidden_dropout_prob"),
        *("attention_probs_dropout_prob", "classifier_hidden_act"),
        *("drops_classifier_input", "classifier_dropout_prob"),
        "span_dropout_prob",
    )
)
_ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "linear": lambda x: x,
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
}


def is_known(config: BertConfig) -> bool:
    """Returns whether `InferenceEncoder` computes what the layers do.

    It does unless the configuration sets a field that this module was not
    written for.
    """
    return all(
        field.name in _KNOWN_FIELDS
        or getattr(config, field.name) == field.default
        for field in dataclasses.fields(config)
    )


class InferenceEncoder:
    """Computes what a `BertEncoder` does, faster on CPUs.

    Args:
        encoder: A `BertEncoder` whose configuration `is_known`. Its weights
            are read at every call; in a graph, when it is traced.
        are_constant: Whether weights are constants of the traced graph.

    Call arguments and returns: those of the `BertEncoder`, which itself
    computes if `training` is true.
    """

    def __init__(
        self, encoder: BertEncoder, are_constant: bool = False
    ) -> None:
        config = encoder.config
        num_heads = config.num_attention_heads
        self._encoder = encoder
        self._config = config
        self._dtype = encoder.compute_dtype
        self._is_float32 = self._dtype == "float32"
        self._are_constant = are_constant
        are_halved = are_constant and self._is_float32
        if num_heads % 2 or config.intermediate_size % 2:
            are_halved = False
        self._num_parts = 2 if are_halved else 1
        self._heads_of_part = num_heads // self._num_parts
        self._head_size = config.hidden_size // num_heads
        scale = self._head_size**-0.5
        #
        self._score_scale = scale if self._is_float32 else None
        self._kernel_scale = self._query_scale = None
        if not self._is_float32 and are_constant:
            self._kernel_scale = scale
        elif not self._is_float32:
            self._query_scale = scale

    def __call__(
        self,
        inputs: features.Batch,
        positions: tf.Tensor | int | None = None,
        training: bool = False,
    ) -> dict[str, Any]:
        if training:
            return self._encoder(inputs, positions=positions, training=True)
        x_BLD = self._embed(inputs)
        shape = tf.shape(x_BLD)
        bias_B1QK = _mask_bias(inputs, self._config.is_decoder)
        weights = [self._weights_of(block) for block in self._encoder.blocks]
        num_layers = self._config.num_hidden_layers
        *blocks, last = (
            weights[index * len(weights) // num_layers]
            for index in range(num_layers)
        )
        x_TD = _as_matrix(x_BLD)
        encoder_outputs = []
        for block in blocks:
            x_TD = self._call_block(block, x_TD, x_TD, bias_B1QK, shape)
            encoder_outputs.append(tf.reshape(x_TD, shape))
        pooled_at = inputs.get(features.FIRST_POSITIONS, 1)
        if positions is None:
            x_TD = self._call_block(last, x_TD, x_TD, bias_B1QK, shape)
            x_BQD = tf.reshape(x_TD, shape)
            encoder_outputs.append(x_BQD)
            first_BSD = _at(x_BQD, pooled_at)
        else:
            x_BQD, first_BSD = self._call_last_at(
                positions, pooled_at, last, x_TD, bias_B1QK, shape
            )
        if isinstance(pooled_at, int):
            first_BSD = first_BSD[:, 0]
        return {
            "sequence_output": x_BQD,
            "pooled_output": self._pool(first_BSD),
            "encoder_outputs": encoder_outputs,
        }

    def _embed(self, inputs):
        """Returns the embeddings, `[B, L, D]`, summed in float32."""
        config, layer = self._config, self._encoder.embeddings
        input_ids = inputs[features.INPUT_IDS]
        position_ids = inputs.get(features.POSITION_IDS)
        if position_ids is not None:
            position_ids += config.first_position
        elif config.padding_idx is not None:
            # RoBERTa's: padding is not counted, and shares a position.
            is_token = tf.not_equal(input_ids, config.padding_idx)
            is_token = tf.cast(is_token, tf.int32)
            position_ids = tf.cumsum(is_token, axis=1) * is_token
            position_ids += config.padding_idx
        x_BLD = _take(layer.word_embeddings, input_ids)
        if position_ids is not None:
            x_BLD += _take(layer.position_embeddings, position_ids)
        else:
            length = tf.shape(input_ids)[1]
            x_BLD += tf.cast(layer.position_embeddings, tf.float32)[:length]
        if config.type_vocab_size == 1:
            x_BLD += tf.cast(layer.segment_embeddings, tf.float32)
        elif config.type_vocab_size:
            segment_ids = inputs[features.SEGMENT_IDS]
            x_BLD += _take(layer.segment_embeddings, segment_ids)
        x_BLD = self._normalize(_norm_of(layer.layer_norm), x_BLD)
        if config.embedding_size is None:
            return x_BLD
        return _project_rows(self._dense_of(layer.projection), x_BLD)

    def _call_last_at(
        self, positions, pooled_at, block, x_TD, bias_B1QK, shape
    ):
        """Calls a block at `positions` and where the pooler reads.

        Returns:
            The outputs at `positions`, and those for the pooler.
        """
        if isinstance(positions, int) and isinstance(pooled_at, int):
            computed, starts_at = max(positions, pooled_at), 0
            num_pooled, limit = pooled_at, positions
        else:
            # The positions for the pooler come before the others.
            computed, limit = pooled_at, None
            if isinstance(pooled_at, int):
                computed = tf.zeros((shape[0], pooled_at), tf.int32)
            starts_at = num_pooled = tf.shape(computed)[1]
            if not isinstance(positions, int):
                computed = tf.concat([computed, positions], axis=1)
        queries_BQD = _at(tf.reshape(x_TD, shape), computed)
        if bias_B1QK.shape[2] != 1:
            bias_B1QK = _at(bias_B1QK[:, 0], computed)[:, tf.newaxis]
        x_RD = _as_matrix(queries_BQD)
        x_RD = self._call_block(block, x_TD, x_RD, bias_B1QK, shape)
        x_BQD = tf.reshape(x_RD, tf.shape(queries_BQD))
        return x_BQD[:, starts_at:limit], x_BQD[:, :num_pooled]

    def _call_block(self, block, x_TD, queries_RD, bias_B1QK, shape):
        """Returns a block's outputs for some of the tokens, `[R, D]`."""
        contexts_RD = [
            self._attend(heads, x_TD, queries_RD, bias_B1QK, shape)
            for heads in block.heads
        ]
        x_RD = queries_RD + _project_parts(block.merge_heads, contexts_RD)
        x_RD = self._normalize(block.attention_norm, x_RD)
        activate = _ACTIVATIONS[self._config.hidden_act]
        active_RF = [
            activate(_project(units, x_RD)) for units in block.intermediate
        ]
        x_RD += _project_parts(block.output, active_RF)
        return self._normalize(block.output_norm, x_RD)

    def _attend(self, heads, x_TD, queries_RD, bias_B1QK, shape):
        """Returns the context of a part of the heads, as a matrix."""
        batch_size, length, _ = tf.unstack(shape)
        size_of_part = self._heads_of_part, self._head_size
        if self._are_constant and queries_RD is x_TD:
            joined = [tf.concat(weights, axis=-1) for weights in zip(*heads)]
            x = _project(joined, x_TD)
            x = tf.reshape(x, (batch_size, length, 3, *size_of_part))
            query, key, value = tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))
        else:
            query, key, value = (
                tf.reshape(_project(dense, x), (batch_size, -1, *size_of_part))
                for dense, x in zip(heads, (queries_RD, x_TD, x_TD))
            )
            query, key, value = (
                tf.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)
            )
        if self._query_scale is not None:
            query *= self._query_scale
        scores = tf.matmul(query, key, transpose_b=True)
        scores = tf.cast(scores, tf.float32)
        if self._score_scale is not None:
            scores *= self._score_scale
        scores += bias_B1QK
        probs = tf.cast(tf.nn.softmax(scores), self._dtype)
        context = tf.transpose(tf.matmul(probs, value), (0, 2, 1, 3))
        return tf.reshape(context, (-1, math.prod(size_of_part)))

    def _pool(self, first):
        if not self._config.has_pooler:
            return first
        dense = self._dense_of(self._encoder.pooler.dense)
        return tf.nn.tanh(_project_rows(dense, first))

    def _normalize(self, norm, x):
        """Returns layer normalisation, computed in float32."""
        gamma, beta = norm
        x = tf.cast(x, tf.float32)
        x -= tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        x *= tf.math.rsqrt(variance + self._config.layer_norm_eps)
        return tf.cast(x * gamma + beta, self._dtype)

    def _dense_of(self, layer, factor=None):
        """Returns kernel and bias, times a factor."""
        # Where there is LoRA, `kernel` is a sum.
        weights = layer.kernel, layer.bias
        if factor is not None:
            weights = tuple(weight * factor for weight in weights)
        return tuple(tf.cast(weight, self._dtype) for weight in weights)

    def _weights_of(self, block):
        attention, num_parts = block.attention, self._num_parts
        query, key, value, intermediate = (
            _columns(dense, num_parts)
            for dense in (
                self._dense_of(attention.query, self._kernel_scale),
                self._dense_of(attention.key),
                self._dense_of(attention.value),
                self._dense_of(block.intermediate),
            )
        )
        return _Block(
            heads=list(zip(query, key, value)),
            merge_heads=_rows(self._dense_of(attention.merge_heads), num_parts),
            attention_norm=_norm_of(block.attention_layer_norm),
            intermediate=intermediate,
            output=_rows(self._dense_of(block.output_dense), num_parts),
            output_norm=_norm_of(block.output_layer_norm),
        )


@dataclasses.dataclass(frozen=True)
class _Block:
    """The weights of a block, in the parts that they are used in.

    Args:
        heads: Of each part of the heads: queries, keys and values.
        merge_heads, output: Each part of the kernel's rows, and the bias.
        intermediate: Each part of the units.
        attention_norm, output_norm: Scale and offset.
    """

    heads: list[tuple[_Dense, _Dense, _Dense]]
    merge_heads: tuple[list[tf.Tensor], tf.Tensor]
    attention_norm: tuple[tf.Tensor, tf.Tensor]
    intermediate: list[_Dense]
    output: tuple[list[tf.Tensor], tf.Tensor]
    output_norm: tuple[tf.Tensor, tf.Tensor]


def _norm_of(layer):
    return tuple(
        tf.cast(weight, tf.float32) for weight in (layer.gamma, layer.beta)
    )


def _columns(dense, num_parts):
    """Returns a dense layer as several that compute a part of the outputs."""
    kernel, bias = dense
    if num_parts == 1:
        return [dense]
    size = bias.shape[0] // num_parts
    return [
        (kernel[:, start : start + size], bias[start : start + size])
        for start in range(0, size * num_parts, size)
    ]


def _rows(dense, num_parts):
    """Returns a kernel in parts, one for each part of the inputs, and the bias."""
    kernel, bias = dense
    if num_parts == 1:
        return [kernel], bias
    size = kernel.shape[0] // num_parts
    starts = range(0, size * num_parts, size)
    return [kernel[start : start + size] for start in starts], bias


def _project(dense, x_TD):
    kernel, bias = dense
    return tf.nn.bias_add(tf.matmul(x_TD, kernel), bias)


def _project_parts(dense, parts):
    (kernel, *kernels), bias = dense
    part, *others = parts
    x = _project((kernel, bias), part)
    return sum(map(tf.matmul, others, kernels), x)


def _project_rows(dense, x):
    """Returns the outputs of a dense layer for `[..., D]`."""
    _, bias = dense
    shape = tf.concat([tf.shape(x)[:-1], bias.shape], axis=0)
    return tf.reshape(_project(dense, _as_matrix(x)), shape)


def _as_matrix(x):
    return tf.reshape(x, (-1, x.shape[-1]))


def _take(table, ids):
    """Returns rows of a table, in float32."""
    return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), tf.float32)


def _at(x_BLD, positions):
    """Returns the vectors at positions `[B, Q]`, or the first so many."""
    if isinstance(positions, int):
        return x_BLD[:, :positions]
    return tf.gather(x_BLD, positions, batch_dims=1)


def _mask_bias(inputs, left_to_right):
    """Returns what is added to the scores, float32 `[B, 1, 1 or L, L]`."""
    mask_BQK = make_attention_mask(
        inputs[features.INPUT_MASK],
        inputs.get(features.SEQUENCE_IDS),
        left_to_right,
    )
    # Finite, because -inf would turn a row that is all padding into NaN.
    return tf.where(mask_BQK, 0.0, -1e9)[:, tf.newaxis]
