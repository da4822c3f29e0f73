"""SentencePiece's model files: protocol buffers, read and written.

They have only the fields of sentencepiece_model.proto (google/sentencepiece)
that determine how a text is tokenized; a file's other fields are not kept.
"""

import functools
import struct
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message
from google.protobuf import message_factory

from bert_tf import messages

# `SentencePiece.Type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# `TrainerSpec.ModelType`.
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

# A charsmap without keys. Of none at all, the kernel logs a line at each use.
_NO_KEYS = struct.pack("<I", 1024) + bytes(1024 + 1)

# Stands before each word in entries, instead of a space.
SPACE = "\u2581"


class Piece(NamedTuple):
    """An entry: its text, its log probability, and its type."""

    text: str
    score: float
    type: int = NORMAL


class Model(NamedTuple):
    """A unigram model.

    Attributes:
        pieces: In the order of their ids.
        charsmap: How characters are normalised first, as a compiled trie; b""
            if they are not.
    """

    pieces: tuple[Piece, ...]
    charsmap: bytes


# {message: {field: (number, type, repeated)}}
_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, dict[str, tuple[int, Any, bool]]] = {
    "Piece": {
        "piece": (1, _FIELD.TYPE_STRING, False),
        "score": (2, _FIELD.TYPE_FLOAT, False),
        "type": (3, _FIELD.TYPE_INT32, False),
    },
    "TrainerSpec": {
        "model_type": (3, _FIELD.TYPE_INT32, False),
        "byte_fallback": (35, _FIELD.TYPE_BOOL, False),
    },
    "NormalizerSpec": {
        "precompiled_charsmap": (2, _FIELD.TYPE_BYTES, False),
        "add_dummy_prefix": (3, _FIELD.TYPE_BOOL, False),
        "remove_extra_whitespaces": (4, _FIELD.TYPE_BOOL, False),
        "escape_whitespaces": (5, _FIELD.TYPE_BOOL, False),
    },
    "Model": {
        "pieces": (1, "Piece", True),
        "trainer_spec": (2, "TrainerSpec", False),
        "normalizer_spec": (3, "NormalizerSpec", False),
    },
}


@functools.cache
def _messages() -> Mapping[str, type]:
    package = "bert_tf.sentencepiece"
    described = descriptor_pb2.FileDescriptorProto(
        name="bert_tf/sentencepiece_model.proto", package=package
    )
    for name, fields in _MESSAGES.items():
        its = described.message_type.add(name=name)
        for field, (number, kind, is_repeated) in fields.items():
            its.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_REPEATED
                if is_repeated
                else _FIELD.LABEL_OPTIONAL,
                **(
                    {
                        "type": _FIELD.TYPE_MESSAGE,
                        "type_name": f".{package}.{kind}",
                    }
                    if isinstance(kind, str)
                    else {"type": kind}
                ),
            )
    # A pool of its own: sentencepiece may declare its messages in the default.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{name}")
        )
        for name in _MESSAGES
    }


def parse(contents: bytes) -> Model:
    """Reads the contents of a file.

    Raises:
        ValueError: If they are not a model, or the model is not a unigram model
            without byte fallback.
    """
    model = _messages()["Model"]()
    try:
        model.ParseFromString(contents)
    except message.DecodeError as error:
        raise ValueError(f"not a SentencePiece model: {error}") from error
    if not model.pieces:
        raise ValueError("not a SentencePiece model: it has no piece.")
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    # Fields that are not written have SentencePiece's defaults.
    kind = trainer.model_type if trainer.HasField("model_type") else 1
    for name, expected, received in (
        ("model_type", "unigram", _MODEL_TYPES.get(kind, kind)),
        ("byte_fallback", False, trainer.byte_fallback),
        *(
            (name, True, getattr(normalizer, name))
            for name in ("add_dummy_prefix", "escape_whitespaces")
            if normalizer.HasField(name)
        ),
    ):
        if received != expected:
            raise ValueError(
                f"a SentencePiece model's `{name}` must be {expected}. "
                f"Received: {received}."
            )
    return Model(
        pieces=tuple(
            Piece(
                piece.piece,
                piece.score,
                piece.type if piece.HasField("type") else NORMAL,
            )
            for piece in model.pieces
        ),
        charsmap=normalizer.precompiled_charsmap,
    )


def serialize(model: Model, is_normalized: bool = False) -> bytes:
    """Returns the contents of a file; equal models give equal contents.

    Args:
        model: The `Model`.
        is_normalized: Whether the texts will be words that begin with `SPACE`
            and are normalised already.
    """
    written = _messages()["Model"]()
    for piece in model.pieces:
        its = written.pieces.add(piece=piece.text, score=piece.score)
        if piece.type != NORMAL:
            its.type = piece.type
    written.trainer_spec.model_type = 1
    normalizer = written.normalizer_spec
    normalizer.precompiled_charsmap = (
        _NO_KEYS if is_normalized else model.charsmap
    )
    normalizer.add_dummy_prefix = not is_normalized
    normalizer.remove_extra_whitespaces = not is_normalized
    normalizer.escape_whitespaces = True
    return written.SerializeToString(deterministic=True)


def check_charsmap(charsmap: bytes) -> None:
    """Raises `ValueError` if the trie points outside itself or its texts.

    SentencePiece follows it unchecked. `replacements` describes the trie.
    """
    if not charsmap:
        return
    size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) > 4 else 0
    is_whole = 0 < size < len(charsmap) - 4 and not size % 4
    if is_whole:
        units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
        texts = charsmap[4 + size :]
        # The highest bit marks a value, which is not a node.
        (nodes,) = np.where(units < 1 << 31)
        children = nodes ^ _offset(units[nodes])
        leaves = children[(units[nodes] & 0x100) > 0]
        # A node may have a child for any byte.
        is_whole = texts.endswith(b"\0") and (children | 0xFF).max() < len(
            units
        )
        is_whole = is_whole and (
            (units[leaves] & 0x7FFFFFFF).max(initial=0) < len(texts)
        )
    if not is_whole:
        raise ValueError(
            "`precompiled_charsmap` must hold its size, a trie and texts. "
            f"Received: {messages.shortened(charsmap.hex())}."
        )


def _offset(unit):
    return (unit >> 10) << ((unit & 0x200) >> 6)


def replacements(charsmap: bytes, max_bytes: int) -> dict[str, str]:
    """Returns {characters: what a charsmap makes of them}, of all its keys.

    The trie is a double array (darts-clone): a node's unit holds the offset
    of its children, the label that led to it, and whether it ends a key.

    Args:
        charsmap: As in `Model`, checked by `check_charsmap`.
        max_bytes: The length of the longest key, in UTF-8.
    """
    if not charsmap:
        return {}
    (size,) = struct.unpack_from("<I", charsmap)
    texts = charsmap[4 + size :]
    units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
    found = {}
    # All beginnings of keys of one length, and where their children are.
    keys = np.zeros((1, 0), np.uint8)
    places = _offset(units[:1])
    for _ in range(max_bytes):
        children = places[:, np.newaxis] ^ np.arange(256)
        units_there = units[np.minimum(children, len(units) - 1)]
        is_node = (units_there & 0x800000FF) == np.arange(256)
        parents, labels = np.where(is_node & (children < len(units)))
        nodes = units_there[parents, labels]
        keys = np.column_stack([keys[parents], labels.astype(np.uint8)])
        places = children[parents, labels] ^ _offset(nodes)
        is_key = (nodes & 0x100) > 0
        for key, value in zip(keys[is_key], units[places[is_key]]):
            start = value & 0x7FFFFFFF
            text = texts[start : texts.index(b"\0", start)]
            try:
                found[key.tobytes().decode()] = text.decode("utf-8", "replace")
            except UnicodeDecodeError:
                # No text has such a key.
                continue
    return found
