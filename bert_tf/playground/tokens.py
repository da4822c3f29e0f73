"""Texts as a model reads them: pieces, their places, and what was changed.

The steps of normalisation are inferred from its result. If a piece is spelled
differently from the characters that it was made from, the fewest usual steps
are found that lead from them to it. So this works for every kind of tokenizer.
"""

import dataclasses
import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.text import packing
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.tokenizer import Tokenizer


def _without_marks(text):
    return "".join(
        character
        for character in unicodedata.normalize("NFD", text)
        if not unicodedata.category(character).startswith("M")
    )


# In the order in which tokenizers apply them.
_STEPS = (
    ("composed (NFC)", lambda text: unicodedata.normalize("NFC", text)),
    ("decomposed (NFD)", lambda text: unicodedata.normalize("NFD", text)),
    ("compatibility form (NFKC)", lambda t: unicodedata.normalize("NFKC", t)),
    ("accents dropped", _without_marks),
    ("lower case", str.lower),
)
OTHER_CHANGE = "other characters"


def find_changes(was: str, now: str) -> list[str]:
    """Returns the steps of normalisation that lead from one string to another.

    Args:
        was: The characters of the text.
        now: What the pieces made from them spell.

    Returns:
        Names of steps; empty for equal strings, and `OTHER_CHANGE` if no three
        of the steps or fewer lead there.
    """
    if was == now:
        return []
    for number in range(1, 4):
        for steps in itertools.combinations(_STEPS, number):
            text = was
            for _, step in steps:
                text = step(text)
            if text == now:
                return [name for name, _ in steps]
    return [OTHER_CHANGE]


class Spelling:
    """The entries of a vocabulary, in readable form.

    Args:
        spec: The spec of the tokenizer.
    """

    def __init__(self, spec: Spec) -> None:
        self._vocabulary = spec.vocabulary
        self.tokens = spec.vocabulary.tokens
        self._spelled = spec.spell(tf.constant(self.tokens)).numpy()
        self._special = {
            spec.vocabulary.index(name)
            for name in spec.vocabulary.special.names
            if name != spec.vocabulary.special.unk
        }

    def spelled(self, index: int) -> bytes:
        """Returns what an entry adds to a text, with a space before a word."""
        return self._spelled[index]

    def describe(self, index: int) -> dict[str, Any]:
        """Returns the description of an entry, ready for JSON."""
        is_special = index in self._special
        token = self.tokens[index]
        text = self._spelled[index].decode("utf-8", "replace")
        return {
            "id": int(index),
            "token": token,
            "text": token if is_special else text.removeprefix(" "),
            "is_special": is_special,
            "is_unknown": index == self._vocabulary.unk_id,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """One or two texts as a model reads them.

    Attributes:
        inputs: The model inputs, int32 `[1, L]`, without padding.
        texts: The pieces of each text, ready for JSON.
        sequence: The token at each position, likewise.
        is_cut: Whether there are pieces that are not read.
    """

    inputs: dict[str, tf.Tensor]
    texts: list[dict[str, Any]]
    sequence: list[dict[str, Any]]
    is_cut: bool


class Reader:
    """Reads texts as a model's `Preprocessor` does, and describes the result.

    Args:
        tokenizer: The tokenizer.
        max_seq_length: The length of the longest sequence.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int) -> None:
        self.max_seq_length = max_seq_length
        self.spelling = Spelling(tokenizer.spec)
        self._vocabulary = tokenizer.spec.vocabulary

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
        )
        def tokenize(texts):
            ids, offsets = tokenizer.tokenize_with_offsets(texts)
            return ids, offsets.starts, offsets.limits

        self._tokenize = tokenize

    def read(
        self, texts: Sequence[str], max_seq_length: int | None = None
    ) -> Read:
        """Reads one or two texts.

        Args:
            texts: Strings.
            max_seq_length: The longest sequence, if less than the model's.
        """
        length = min(max_seq_length or self.max_seq_length, self.max_seq_length)
        found, segments, number = [], [], 0
        first_number = len(self._vocabulary)
        for text in texts:
            # One after the other, so that rare characters of one text do not
            # change how the other is read.
            ids, starts, limits = self._tokenize(tf.constant([text]))
            pieces = _Pieces(
                ids=ids.flat_values.numpy(),
                words=ids.values.value_rowids().numpy(),
                starts=starts.flat_values.numpy(),
                limits=limits.flat_values.numpy(),
            )
            found.append(pieces)
            count = len(pieces.ids)
            # Number the pieces, beyond all ids, to find them after packing.
            numbers = tf.range(count) + first_number + number
            segments.append(
                tf.RaggedTensor.from_row_splits(numbers, [0, count])
            )
            number += count
        packed = packing.trim_padding(
            packing.pack(segments, length, self._vocabulary)
        )
        places = packed[features.INPUT_IDS].numpy()[0] - first_number
        ids = np.concatenate([pieces.ids for pieces in found])
        is_piece = places >= 0
        input_ids = np.where(is_piece, 0, places + first_number)
        input_ids[is_piece] = ids[places[is_piece]]
        kept = np.zeros(number, bool)
        kept[places[is_piece]] = True
        inputs = packed | {
            features.INPUT_IDS: tf.constant(input_ids[np.newaxis], tf.int32)
        }

        described, first = [], 0
        owners: list[tuple[int, int]] = []
        for index, (text, pieces) in enumerate(zip(texts, found)):
            count = len(pieces.ids)
            described.append(
                self._describe(text, pieces, kept[first : first + count])
            )
            owners += [(index, piece) for piece in range(count)]
            first += count
        segment_ids = packed[features.SEGMENT_IDS].numpy()[0]
        sequence = []
        for position, index in enumerate(input_ids.tolist()):
            entry = self.spelling.describe(index)
            entry["is_special"] = not is_piece[position]
            entry["segment"] = int(segment_ids[position])
            entry["text_number"], entry["piece"] = (
                owners[places[position]] if is_piece[position] else (None, None)
            )
            sequence.append(entry)
        return Read(
            inputs=inputs,
            texts=described,
            sequence=sequence,
            is_cut=not kept.all(),
        )

    def _describe(self, text, pieces, kept):
        """Returns the description of a text, ready for JSON."""
        described = []
        for index, word, start, limit, is_kept in zip(
            *(values.tolist() for values in dataclasses.astuple(pieces)),
            kept.tolist(),
        ):
            described.append(
                self.spelling.describe(index)
                | {
                    "is_special": False,
                    "word": word,
                    "start": start,
                    "limit": limit,
                    "is_read": is_kept,
                    "changes": [],
                }
            )
        for group in _overlapping(pieces):
            was = text[pieces.starts[group[0]] : pieces.limits[group].max()]
            spelled = b"".join(
                self.spelling.spelled(pieces.ids[place]) for place in group
            ).decode("utf-8", "replace")
            if any(described[place]["is_unknown"] for place in group):
                continue
            for place in group:
                described[place]["changes"] = find_changes(
                    was.strip(), spelled.strip()
                )
        return {
            "text": text,
            "pieces": described,
            "dropped": _dropped(text, pieces),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pieces:
    """The pieces of a text: int arrays `[N]`; places count characters."""

    ids: np.ndarray
    words: np.ndarray
    starts: np.ndarray
    limits: np.ndarray


def _overlapping(pieces):
    """Yields lists of neighbours that have characters in common."""
    group: list[int] = []
    limit = 0
    for place, start in enumerate(pieces.starts):
        if group and start >= limit:
            yield group
            group = []
        group.append(place)
        limit = max(limit, pieces.limits[place])
    if group:
        yield group


def _dropped(text, pieces):
    """Returns characters that are in no piece, except white space."""
    is_read = np.zeros(len(text), bool)
    for start, limit in zip(pieces.starts, pieces.limits):
        is_read[start:limit] = True
    return [
        {
            "start": place,
            "code_point": f"U+{ord(text[place]):04X}",
            "name": unicodedata.name(text[place], ""),
        }
        for place in np.flatnonzero(~is_read).tolist()
        if not text[place].isspace()
    ]
