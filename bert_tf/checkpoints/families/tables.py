"""The table of a family: the variables of its models, and their names.

The configuration tells which variables there are, the family their names.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import TypeAlias

from bert_tf.checkpoints import parts
from bert_tf.checkpoints.containers import GOOGLE
from bert_tf.checkpoints.containers import HUGGING_FACE
from bert_tf.checkpoints.families.family import Stored
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.transforms import IDENTITY
from bert_tf.checkpoints.transforms import TRANSPOSE
from bert_tf.config import RELATIVE_BUCKETS
from bert_tf.config import BertConfig

_POSITION_EMBEDDINGS = "embeddings/position_embeddings"

# {variable or layer: its name in files}. "*" stands for the number of a block
# in both. To a layer's name each of its variables adds an ending from below.
Names: TypeAlias = Mapping[str, str | Stored]

_LEAVES = {
    HUGGING_FACE: {
        "kernel": (".weight", TRANSPOSE),
        "bias": (".bias", IDENTITY),
        "gamma": (".weight", IDENTITY),
        "beta": (".bias", IDENTITY),
    },
    GOOGLE: {
        leaf: (f"/{leaf}", IDENTITY)
        for leaf in ("kernel", "bias", "gamma", "beta")
    },
}


def make(
    config: BertConfig,
    num_labels: int,
    hugging_face: Names,
    google: Names | None = None,
) -> Iterator[Tensor]:
    """Yields the table of a family.

    Args:
        config: The `BertConfig` that gives the shapes.
        num_labels: Outputs of the (token) classifier.
        hugging_face: The names in Hugging Face's files. A variable without a
            name is in no model of the family.
        google: The names in a TF1 checkpoint; None if the family has none.
    """
    for part, keras, shape in _variables(config, num_labels):
        stored = _stored(keras, hugging_face, HUGGING_FACE)
        if stored is None:
            continue
        is_position = keras == _POSITION_EMBEDDINGS
        yield Tensor(
            part=part,
            keras=keras,
            shape=shape,
            hugging_face=stored,
            google=None if google is None else _stored(keras, google, GOOGLE),
            first_row=config.first_position if is_position else None,
        )


def google_logits(layer: str, scope: str = "") -> Names:
    """Returns the names of an output layer, which is stored `[out, in]`."""
    return {
        f"{layer}/kernel": Stored(f"{scope}output_weights", TRANSPOSE),
        f"{layer}/bias": Stored(f"{scope}output_bias"),
    }


def _variables(config, num_labels):
    """Yields (part, name, shape) of every variable of every model."""
    hidden, width = config.hidden_size, config.embedding_width
    num_positions = config.first_position + config.max_position_embeddings
    for name, rows in (
        ("embeddings/word_embeddings", config.vocab_size),
        (_POSITION_EMBEDDINGS, num_positions * (config.rotary_theta is None)),
        ("embeddings/segment_embeddings", config.type_vocab_size),
    ):
        if rows:
            yield parts.ENCODER, name, (rows, width)
    if config.has_relative_bias:
        shape = (RELATIVE_BUCKETS, config.num_attention_heads)
        yield parts.ENCODER, "embeddings/relative_bias", shape
    norm = "embeddings/layer_norm"
    yield from _layer(parts.ENCODER, norm, width, config=config)
    if config.embedding_size is not None:
        yield from _layer(parts.ENCODER, "embeddings/projection", width, hidden)
    for index in range(config.num_blocks):
        for name, *sizes in _of_block(config, index):
            name = f"layer_{index}/{name}"
            yield from _layer(parts.ENCODER, name, *sizes, config=config)
    if config.has_pooler:
        yield from _layer(parts.POOLER, "pooler/dense", hidden, hidden)
    part = parts.TRANSFORM if config.shared_head else parts.MASKED_LM
    for name, *sizes in (("transform", hidden, width), ("layer_norm", width)):
        yield from _layer(part, f"masked_lm/{name}", *sizes, config=config)
    yield parts.MASKED_LM, "masked_lm/output_bias", (config.vocab_size,)
    for part, units, hidden_layer in (
        (parts.NEXT_SENTENCE, 2, None),
        (parts.CLASSIFIER, num_labels, "classifier_hidden/dense"),
        (parts.TOKEN_CLASSIFIER, num_labels, None),
        (parts.SPAN, 2, None),
        (parts.MULTIPLE_CHOICE, 1, "multiple_choice_hidden/dense"),
        (parts.DISCRIMINATOR, 1, "discriminator/transform"),
    ):
        if hidden_layer is not None:
            yield from _layer(part, hidden_layer, hidden, hidden)
        yield from _layer(part, f"{part}/dense", hidden, units)


def _of_block(config, index):
    """Yields the name of every layer of a block, and its sizes."""
    hidden, inner = config.hidden_size, config.intermediate_size
    if not config.norm_first:
        yield from (
            ("attention/query", hidden, hidden),
            ("attention/key", hidden, hidden),
            ("attention/value", hidden, hidden),
            ("attention/merge_heads", hidden, hidden),
            ("attention_layer_norm", hidden),
            ("intermediate", hidden, inner),
            ("output", inner, hidden),
            ("output_layer_norm", hidden),
        )
        return
    if index:
        yield "attention_layer_norm", hidden
    yield "attention/query_key_value", hidden, 3 * hidden
    yield "attention/merge_heads", hidden, hidden
    yield "feed_forward_layer_norm", hidden
    yield "feed_forward/intermediate", hidden, 2 * inner
    yield "feed_forward/output", inner, hidden
    if index == config.num_blocks - 1:
        yield "final_layer_norm", hidden


def _layer(part, name, *sizes, config=None):
    """Yields the variables of a dense layer, or of a LayerNorm.

    There are biases unless a configuration is given that has none.
    """
    leaves = ("gamma", "beta") if len(sizes) == 1 else ("kernel", "bias")
    if config is not None and not config.has_biases:
        leaves = leaves[:1]
    for leaf, shape in zip(leaves, (sizes, sizes[-1:])):
        yield part, f"{name}/{leaf}", shape


def _stored(keras, names, file_format):
    """Returns the `Stored` of a variable, None if it has no name."""
    block, _, rest = keras.partition("/")
    number = block.removeprefix("layer_")
    if number != block:
        keras = f"layer_*/{rest}"
    layer, _, leaf = keras.rpartition("/")
    if keras in names:
        stored = names[keras]
        return Stored(stored) if isinstance(stored, str) else stored
    if layer not in names:
        return None
    ending, transform = _LEAVES[file_format][leaf]
    return Stored(names[layer].replace("*", number) + ending, transform)
