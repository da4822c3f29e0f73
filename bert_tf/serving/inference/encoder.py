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
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.layers import relative_positions
from bert_tf.layers.attention import LONG
from bert_tf.layers.attention import make_attention_mask
from bert_tf.models.encoder import BertEncoder

# The fields of a configuration that the code here follows, and those that do
# not change what an encoder computes.
_KNOWN_FIELDS = frozenset(
    (
        *("model_type", "vocab_size", "hidden_size", "num_hidden_layers"),
        *("num_attention_heads", "intermediate_size", "hidden_act"),
        *("max_position_embeddings", "type_vocab_size", "layer_norm_eps"),
        *("is_decoder", "embedding_size", "num_hidden_groups", "padding_idx"),
        *("has_relative_bias", "has_pooler", "initializer_range"),
        "hidden_dropout_prob",
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
    written for. Long sequences are left to the layers, whose attention needs
    less memory.
    """
    has_known_fields = all(
        field.name in _KNOWN_FIELDS
        or getattr(config, field.name) == field.default
        for field in dataclasses.fields(config)
    )
    return (
        has_known_fields
        and config.hidden_act in _ACTIVATIONS
        and config.max_position_embeddings <= LONG
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
        self._encoder = encoder
        self._config = config
        self._dtype = encoder.compute_dtype
        self._is_float32 = self._dtype == "float32"
        self._are_constant = are_constant
        sizes = config.num_attention_heads, config.intermediate_size
        are_even = not any(size % 2 for size in sizes)
        self._num_parts = 1
        if are_constant and self._is_float32 and are_even:
            self._num_parts = 2
        self._num_heads = config.num_attention_heads // self._num_parts
        self._head_size = config.hidden_size // config.num_attention_heads
        self._scale = self._head_size**-0.5

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
        biases = [_mask_bias(inputs, self._config.is_decoder)]
        if self._config.has_relative_bias:
            table = self._encoder.embeddings.relative_bias
            biases.append(relative_positions.bias_of_table(table, shape[1]))
        num_layers = self._config.num_hidden_layers
        own_blocks = self._encoder.blocks
        *blocks, last = (
            own_blocks[index * len(own_blocks) // num_layers]
            for index in range(num_layers)
        )
        x_TD = _as_matrix(x_BLD)
        encoder_outputs = []
        for block in blocks:
            x_TD = self._call_block(block, x_TD, x_TD, biases, shape)
            encoder_outputs.append(tf.reshape(x_TD, shape))
        pooled_at = inputs.get(features.FIRST_POSITIONS, 1)
        if positions is None:
            x_TD = self._call_block(last, x_TD, x_TD, biases, shape)
            x_BQD = tf.reshape(x_TD, shape)
            encoder_outputs.append(x_BQD)
            first_BSD = _at(x_BQD, pooled_at)
        else:
            x_BQD, first_BSD = self._call_last_at(
                positions, pooled_at, last, x_TD, biases, shape
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
        x_BLD = self._normalize(layer.layer_norm, x_BLD)
        if config.embedding_size is None:
            return x_BLD
        return self._project_rows(layer.projection, x_BLD)

    def _call_last_at(self, positions, pooled_at, block, x_TD, biases, shape):
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
        biases = [_bias_at(bias, computed) for bias in biases]
        x_RD = _as_matrix(queries_BQD)
        x_RD = self._call_block(block, x_TD, x_RD, biases, shape)
        x_BQD = tf.reshape(x_RD, tf.shape(queries_BQD))
        return x_BQD[:, starts_at:limit], x_BQD[:, :num_pooled]

    def _call_block(self, block, x_TD, queries_RD, biases, shape):
        """Returns a block's outputs for some of the tokens, `[R, D]`."""
        # As layers name their operations, for profiles.
        with tf.name_scope(block.name):
            layer = block.attention
            projections = (layer.query, layer.key, layer.value)
            parts = zip(*(self._bias_parts(bias) for bias in biases))
            heads = zip(*map(self._parts_of, projections))
            contexts_RD = [
                self._attend(*part, x_TD, queries_RD, shape)
                for part in zip(heads, parts)
            ]
            x_RD = queries_RD + self._join(layer.merge_heads, contexts_RD)
            x_RD = self._normalize(block.attention_layer_norm, x_RD)
            activate = _ACTIVATIONS[self._config.hidden_act]
            active_RF = [
                activate(_project(x_RD, units))
                for units in self._parts_of(block.intermediate)
            ]
            x_RD += self._join(block.output_dense, active_RF)
            return self._normalize(block.output_layer_norm, x_RD)

    def _attend(self, projections, biases, x_TD, queries_RD, shape):
        """Returns the context of a part of the heads, as a matrix."""
        query, key, value = self._heads_of(projections, x_TD, queries_RD, shape)
        scores = tf.matmul(query, key, transpose_b=True)
        if self._is_float32:
            scores *= self._scale
        scores = tf.cast(scores, tf.float32)
        # One by one: TensorFlow 2.21 would fuse their sum, and be wrong.
        for bias in biases:
            scores += bias
        probs = tf.cast(tf.nn.softmax(scores), self._dtype)
        context = tf.transpose(tf.matmul(probs, value), (0, 2, 1, 3))
        return tf.reshape(context, (-1, self._num_heads * self._head_size))

    def _heads_of(self, projections, x_TD, queries_RD, shape):
        """Returns queries, keys and values, `[B, N, Q or K, H]`.

        But in float32, the queries are scaled: there are fewer than scores.
        """
        batch_size, length, _ = tf.unstack(shape)
        sizes = self._num_heads, self._head_size
        if self._are_constant and queries_RD is x_TD:
            query, *others = projections
            if not self._is_float32:
                query = [weight * self._scale for weight in query]
            joined = [tf.concat(each, -1) for each in zip(query, *others)]
            x = tf.reshape(
                _project(x_TD, joined), (batch_size, length, 3, *sizes)
            )
            return tf.unstack(tf.transpose(x, (2, 0, 3, 1, 4)))
        query, key, value = (
            tf.transpose(
                tf.reshape(_project(x, dense), (batch_size, -1, *sizes)),
                (0, 2, 1, 3),
            )
            for x, dense in zip((queries_RD, x_TD, x_TD), projections)
        )
        if not self._is_float32:
            query *= self._scale
        return query, key, value

    def _pool(self, first):
        if not self._config.has_pooler:
            return first
        return tf.nn.tanh(self._project_rows(self._encoder.pooler.dense, first))

    def _normalize(self, layer, x):
        """Returns layer normalisation, computed in float32."""
        x = tf.cast(x, tf.float32)
        x -= tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        x *= tf.math.rsqrt(variance + self._config.layer_norm_eps)
        x *= tf.cast(layer.gamma, tf.float32)
        return tf.cast(x + tf.cast(layer.beta, tf.float32), self._dtype)

    def _weights_of(self, layer):
        # With LoRA, `kernel` is a sum and no variable.
        return (
            tf.cast(layer.kernel, self._dtype),
            tf.cast(layer.bias, self._dtype),
        )

    def _parts_of(self, layer):
        """Returns kernel and bias for each part of a layer's outputs."""
        cut = (
            _cut(each, -1, self._num_parts) for each in self._weights_of(layer)
        )
        return list(zip(*cut))

    def _bias_parts(self, bias):
        """Returns a bias of scores for each part of the heads."""
        if bias.shape[1] == 1:
            return [bias] * self._num_parts
        heads = [
            slice(self._num_heads * n, None) for n in range(self._num_parts)
        ]
        return [bias[:, each][:, : self._num_heads] for each in heads]

    def _join(self, layer, parts):
        """Returns the outputs of a layer whose inputs are in parts."""
        kernel, bias = self._weights_of(layer)
        kernel, *kernels = _cut(kernel, 0, self._num_parts)
        part, *others = parts
        x = _project(part, (kernel, bias))
        return sum(map(tf.matmul, others, kernels), x)

    def _project_rows(self, layer, x):
        """Returns the outputs of a layer for `[..., D]`."""
        shape = tf.concat([tf.shape(x)[:-1], layer.bias.shape], axis=0)
        x_TD = _project(_as_matrix(x), self._weights_of(layer))
        return tf.reshape(x_TD, shape)


def _project(x_TD, weights):
    kernel, bias = weights
    return tf.nn.bias_add(tf.matmul(x_TD, kernel), bias)


def _cut(weight, axis, num_parts):
    """Returns a weight in parts along its first axis, 0, or its last, -1."""
    if num_parts == 1:
        return [weight]
    size = weight.shape[axis] // num_parts
    parts = [
        slice(start, start + size) for start in range(0, size * num_parts, size)
    ]
    return [weight[part] if axis == 0 else weight[..., part] for part in parts]


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


def _bias_at(bias, positions):
    """Returns the bias of only the queries at positions, as in `_at`."""
    if bias.shape[2] == 1:
        return bias
    if bias.shape[0] == 1 and not isinstance(positions, int):
        return relative_positions.gather_queries(bias, positions)
    bias_BQNK = _at(tf.transpose(bias, (0, 2, 1, 3)), positions)
    return tf.transpose(bias_BQNK, (0, 2, 1, 3))


def _mask_bias(inputs, left_to_right):
    """Returns what is added to the scores, float32 `[B, 1, 1 or L, L]`."""
    mask_BQK = make_attention_mask(
        inputs[features.INPUT_MASK],
        inputs.get(features.SEQUENCE_IDS),
        left_to_right,
    )
    # Finite, because -inf would turn a row that is all padding into NaN.
    return tf.where(mask_BQK, 0.0, -1e9)[:, tf.newaxis]
