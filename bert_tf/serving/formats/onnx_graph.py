"""Writes a model as an ONNX graph from its layers' weights.

A converter would carry over operations that only TensorFlow's graph needs.
Here ONNX Runtime can fuse every operation, and the graph reads like the model.
All model families are supported: they differ only in their `BertConfig`.

Inputs are int64 `[batch, length]` under Hugging Face's names, which other
programs know: `input_ids`, `attention_mask`, `token_type_ids`. For multiple
choice they are `[batch, choices, length]`.

Letters: B batch, C choices, L length, D hidden size.
"""

import functools
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.layers import relative_positions
from bert_tf.models.encoder import BertEncoder

# The first with LayerNormalization; ONNX Runtime supports it since 1.13.
OPSET = 17
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BATCH, LENGTH, CHOICES = "batch", "length", "choices"
_MASKED = -1e9


class OnnxGraph:
    """A graph under construction: nodes in order, and constants.

    All methods but `to_model` return the name of a tensor.
    """

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        # {name: array}; shared weights are there once.
        self._constants: dict[str, np.ndarray] = {}

    def apply(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operation with one output."""
        from onnx import helper

        name = f"{operation}_{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(
                operation, list(inputs), [name], name=name, **attributes
            )
        )
        return name

    def cast(self, x: str, dtype: str) -> str:
        """Adds a cast to a type, given by its ONNX name, e.g. "FLOAT"."""
        from onnx import TensorProto

        return self.apply("Cast", x, to=TensorProto.DataType.Value(dtype))

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """Adds a constant unless its name exists, with an equal value."""
        array = np.asarray(value, dtype)
        known = self._constants.setdefault(name, array)
        # Weights of a damaged model may be NaN.
        assert known is array or (
            known.dtype == array.dtype
            and np.array_equal(known, array, equal_nan=True)
        ), f"There are two constants {name}."
        return name

    def integers(self, *values: int) -> str:
        name = f"integers_{'_'.join(map(str, values))}"
        return self.constant(name, values, np.int64)

    def weight(self, variable: Any, factor: float = 1.0) -> str:
        """Adds a variable's value times a factor, unless it exists."""
        return self.constant(variable.path, variable.numpy() * factor)

    def dense(self, layer: Any, x: str, factor: float = 1.0) -> str:
        product = self.apply("MatMul", x, self.weight(layer.kernel, factor))
        if layer.bias is None:
            return product
        return self.apply("Add", product, self.weight(layer.bias, factor))

    def parts(self, layer: Any, x: str, number: int) -> list[str]:
        """Adds a dense layer in so many parts of equal width."""
        outputs = []
        kernels = np.split(layer.kernel.numpy(), number, axis=-1)
        for index, kernel in enumerate(kernels):
            name = f"{layer.path}/part_{index}"
            part = self.apply("MatMul", x, self.constant(name, kernel))
            if layer.bias is not None:
                bias = np.split(layer.bias.numpy(), number)[index]
                bias_name = self.constant(f"{name}_bias", bias)
                part = self.apply("Add", part, bias_name)
            outputs.append(part)
        return outputs

    def layer_norm(self, layer: Any, x: str) -> str:
        return self.apply(
            "LayerNormalization",
            x,
            self.weight(layer.gamma),
            *([] if layer.beta is None else [self.weight(layer.beta)]),
            axis=-1,
            epsilon=layer.epsilon,
        )

    def activation(self, name: str, x: str) -> str:
        if name == "linear":
            return x
        if name in ("relu", "tanh"):
            return self.apply(name.capitalize(), x)
        if name in ("quick_gelu", "silu"):
            inner = x
            if name == "quick_gelu":
                inner = self.apply("Mul", x, self.constant("slope", 1.702))
            return self.apply("Mul", x, self.apply("Sigmoid", inner))
        half = self.constant("half", 0.5)
        if name == "gelu":
            root = self.constant("root", math.sqrt(2.0))
            inner = self.apply("Erf", self.apply("Div", x, root))
        else:
            assert name == "gelu_new", name
            cube = self.apply("Mul", self.apply("Mul", x, x), x)
            cube = self.apply("Mul", cube, self.constant("cube", 0.044715))
            scale = self.constant("tanh_scale", math.sqrt(2 / math.pi))
            inner = self.apply(
                "Tanh", self.apply("Mul", self.apply("Add", x, cube), scale)
            )
        inner = self.apply("Add", inner, self.constant("one", 1.0))
        return self.apply("Mul", self.apply("Mul", x, inner), half)

    def to_model(
        self,
        outputs: Mapping[str, tuple[str, Sequence[Any]]],
        input_axes: Sequence[str] = (LENGTH,),
    ) -> Any:
        """Returns the ModelProto.

        Args:
            outputs: {name of an output: (tensor, axes)}, float32. The axes
                are names or sizes and follow that of the batch.
            input_axes: Names of the inputs' axes after that of the batch.
        """
        from onnx import TensorProto
        from onnx import helper
        from onnx import numpy_helper

        self._nodes += [
            helper.make_node("Identity", [tensor], [name], name=name)
            for name, (tensor, _) in outputs.items()
        ]
        graph = helper.make_graph(
            self._nodes,
            "bert_tf",
            [
                helper.make_tensor_value_info(
                    each, TensorProto.INT64, [_BATCH, *input_axes]
                )
                for each in INPUTS
            ],
            [
                helper.make_tensor_value_info(
                    name, TensorProto.FLOAT, [_BATCH, *axes]
                )
                for name, (_, axes) in outputs.items()
            ],
            [
                numpy_helper.from_array(value, each)
                for each, value in self._constants.items()
            ],
        )
        return helper.make_model(
            graph,
            producer_name="bert_tf",
            ir_version=8,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )


def add_encoder(
    graph: OnnxGraph, encoder: BertEncoder, inputs: Sequence[str] = INPUTS
) -> list[str]:
    """Adds an encoder without its pooler.

    Args:
        graph: The graph.
        encoder: The encoder.
        inputs: The ids, mask and segments, int64 `[B, L]`.

    Returns:
        Every block's output, float32 `[B, L, D]`.
    """
    config = encoder.config
    ids, mask, segments = inputs
    x = _add_embeddings(graph, encoder.embeddings, ids, segments)
    mask = graph.cast(mask, "FLOAT")
    mask = graph.apply("Sub", graph.constant("one", 1.0), mask)
    mask = graph.apply("Mul", mask, graph.constant("masked", _MASKED))
    mask = graph.apply("Unsqueeze", mask, graph.integers(1, 2))
    if config.has_relative_bias:
        bias = _add_relative_bias(graph, encoder.embeddings.relative_bias, ids)
        mask = graph.apply("Add", mask, bias)
    add_block = functools.partial(_add_block, mask=mask)
    if config.norm_first:
        add_block = functools.partial(
            _add_pre_norm_block,
            masks=_add_masks(graph, config, ids, mask),
            turns=_add_turns(graph, encoder, ids),
        )
    outputs = []
    for index in range(config.num_hidden_layers):
        # ALBERT's layers share blocks; elsewhere each has its own.
        block = encoder.blocks[
            index * len(encoder.blocks) // config.num_hidden_layers
        ]
        x = add_block(graph, block, x)
        outputs.append(x)
    return outputs


def add_flat_choices(graph: OnnxGraph) -> tuple[list[str], str]:
    """Reshapes the inputs `[B, C, L]` to `[B * C, L]`, for `add_encoder`.

    Returns:
        The reshaped inputs, and the shape `[B, C]`, int64 `[2]`.
    """
    length = graph.apply("Shape", INPUTS[0], start=2, end=3)
    rows = graph.apply("Concat", graph.integers(-1), length, axis=0)
    flat = [graph.apply("Reshape", each, rows) for each in INPUTS]
    return flat, graph.apply("Shape", INPUTS[0], start=0, end=2)


def add_pooled(graph: OnnxGraph, encoder: BertEncoder, sequence: str) -> str:
    """Adds the pooler: float32 `[B, D]` from the first token."""
    first = graph.apply(
        "Gather", sequence, graph.constant("first", 0, np.int64), axis=1
    )
    if not encoder.config.has_pooler:
        return first
    return graph.apply("Tanh", graph.dense(encoder.pooler.dense, first))


def _add_embeddings(graph, embeddings, ids, segment_ids):
    config = embeddings.config
    x = graph.apply("Gather", graph.weight(embeddings.word_embeddings), ids)
    if config.rotary_theta is None:
        x = graph.apply("Add", x, _add_places(graph, embeddings, ids))
    if config.type_vocab_size:
        segments = graph.weight(embeddings.segment_embeddings)
        if config.type_vocab_size > 1:
            segments = graph.apply("Gather", segments, segment_ids)
        x = graph.apply("Add", x, segments)
    x = graph.layer_norm(embeddings.layer_norm, x)
    if config.embedding_size is None:
        return x
    return graph.dense(embeddings.projection, x)


def _add_places(graph, embeddings, ids):
    """Adds the position embeddings."""
    config = embeddings.config
    places = graph.weight(embeddings.position_embeddings)
    if config.padding_idx is None:
        length = graph.apply("Shape", ids, start=1, end=2)
        places = graph.apply(
            "Slice", places, graph.integers(0), length, graph.integers(0)
        )
    else:
        padding = graph.constant("padding", config.padding_idx, np.int64)
        is_padding = graph.apply("Equal", ids, padding)
        is_token = graph.cast(graph.apply("Not", is_padding), "INT64")
        count = graph.apply(
            "CumSum", is_token, graph.constant("axis", 1, np.int64)
        )
        count = graph.apply("Mul", count, is_token)
        places = graph.apply(
            "Gather", places, graph.apply("Add", count, padding)
        )
    return places


def _add_relative_bias(graph, table, ids):
    """Adds what `relative_positions.bias_of_table` returns: `[N, L, L]`."""
    distances = _add_distances(graph, ids)
    farthest = graph.constant("farthest", relative_positions.FARTHEST, np.int64)
    nearest = graph.apply("Neg", farthest)
    distances = graph.apply("Clip", distances, nearest, farthest)
    bias = np.asarray(relative_positions.by_distance(table))
    return graph.apply(
        "Gather",
        graph.constant(table.path, bias),
        graph.apply("Add", distances, farthest),
        axis=1,
    )


def _add_range(graph, ids):
    """Adds the places in a row, int64 `[L]`."""
    length = graph.apply("Shape", ids, start=1, end=2)
    zero, one = (graph.constant(f"int_{n}", n, np.int64) for n in (0, 1))
    return graph.apply("Range", zero, graph.apply("Squeeze", length), one)


def _add_distances(graph, ids):
    """Adds how far each key is behind each query, int64 `[L, L]`."""
    places = _add_range(graph, ids)
    column = graph.apply("Unsqueeze", places, graph.integers(1))
    return graph.apply("Sub", places, column)


def _add_block(graph, block, x, mask):
    config, attention = block.config, block.attention
    num_heads = config.num_attention_heads
    head_size = config.hidden_size // num_heads
    heads = graph.integers(0, 0, num_heads, head_size)

    def project(layer, permutation, factor=1.0):
        rows = graph.apply("Reshape", graph.dense(layer, x, factor), heads)
        return graph.apply("Transpose", rows, perm=permutation)

    query = project(attention.query, [0, 2, 1, 3], head_size**-0.5)
    key = project(attention.key, [0, 2, 3, 1])
    value = project(attention.value, [0, 2, 1, 3])
    context = _add_context(graph, config, query, key, value, mask)
    attended = graph.layer_norm(
        block.attention_layer_norm,
        graph.apply("Add", x, graph.dense(attention.merge_heads, context)),
    )
    inner = graph.activation(
        config.hidden_act, graph.dense(block.intermediate, attended)
    )
    return graph.layer_norm(
        block.output_layer_norm,
        graph.apply("Add", attended, graph.dense(block.output_dense, inner)),
    )


def _add_context(graph, config, query, key, value, mask):
    """Adds what queries get of values, `[B, L, D]`.

    Queries `[B, N, L, H]` are scaled, and keys are `[B, N, H, L]`.
    """
    scores = graph.apply("Add", graph.apply("MatMul", query, key), mask)
    context = graph.apply(
        "MatMul", graph.apply("Softmax", scores, axis=-1), value
    )
    context = graph.apply("Transpose", context, perm=[0, 2, 1, 3])
    return graph.apply(
        "Reshape", context, graph.integers(0, 0, config.hidden_size)
    )


def _add_masks(graph, config, ids, mask):
    """Adds the blocks' masks by `is_local`; a window is one of all pairs."""
    if config.attention_window is None:
        return {False: mask}
    distance = graph.apply("Abs", _add_distances(graph, ids))
    window = graph.constant("window", config.attention_window, np.int64)
    far = graph.cast(graph.apply("Greater", distance, window), "FLOAT")
    far = graph.apply("Mul", far, graph.constant("masked", _MASKED))
    return {False: mask, True: graph.apply("Min", mask, far)}


def _add_turns(graph, encoder, ids):
    """Adds {theta: (cosines, sines)} of all angles, float32 `[L, H / 2]`."""
    size = encoder.config.hidden_size // encoder.config.num_attention_heads
    place = graph.cast(_add_range(graph, ids), "FLOAT")
    place = graph.apply("Unsqueeze", place, graph.integers(1))
    turns = {}
    for theta in sorted({block.attention.theta for block in encoder.blocks}):
        speeds = 1 / theta ** (np.arange(0, size, 2, dtype="float32") / size)
        speeds = graph.constant(f"speeds_{theta}", speeds)
        angle = graph.apply("Mul", place, speeds)
        turns[theta] = graph.apply("Cos", angle), graph.apply("Sin", angle)
    return turns


def _add_pre_norm_block(graph, block, x, masks, turns):
    """Adds a `PreNormBlock`.

    Args:
        graph, block, x: The graph, the block and its inputs.
        masks: What `_add_masks` returned.
        turns: What `_add_turns` returned.
    """
    config, attention = block.config, block.attention
    num_heads = config.num_attention_heads
    size = config.hidden_size // num_heads
    normal = x
    if not block.is_first:
        normal = graph.layer_norm(block.attention_layer_norm, x)
    query, key, value = (
        graph.apply(
            "Transpose",
            graph.apply("Reshape", each, graph.integers(0, 0, num_heads, size)),
            perm=[0, 2, 1, 3],
        )
        for each in graph.parts(attention.query_key_value, normal, 3)
    )
    cos, sin = turns[attention.theta]
    query, key = (
        _add_rotation(graph, each, cos, sin, size) for each in (query, key)
    )
    query = graph.apply("Mul", query, graph.constant("scale", size**-0.5))
    key = graph.apply("Transpose", key, perm=[0, 1, 3, 2])
    mask = masks[block.is_local]
    context = _add_context(graph, config, query, key, value, mask)
    x = graph.apply("Add", x, graph.dense(attention.merge_heads, context))
    feed_forward = block.feed_forward
    active, gate = graph.parts(
        feed_forward.intermediate,
        graph.layer_norm(block.feed_forward_layer_norm, x),
        2,
    )
    inner = graph.apply(
        "Mul", graph.activation(config.hidden_act, active), gate
    )
    x = graph.apply("Add", x, graph.dense(feed_forward.output_dense, inner))
    return graph.layer_norm(block.final_layer_norm, x) if block.is_last else x


def _add_rotation(graph, x, cos, sin, size):
    """Adds what `layers.rotary.rotate` computes, for `[B, N, L, H]`."""
    first, second = (
        graph.apply(
            "Slice",
            x,
            graph.integers(start),
            graph.integers(start + size // 2),
            graph.integers(3),
        )
        for start in (0, size // 2)
    )
    turned = (
        graph.apply(
            "Sub",
            graph.apply("Mul", first, cos),
            graph.apply("Mul", second, sin),
        ),
        graph.apply(
            "Add",
            graph.apply("Mul", second, cos),
            graph.apply("Mul", first, sin),
        ),
    )
    return graph.apply("Concat", *turned, axis=-1)
