r"""Finds added tokens in texts, and leaves what is between to a tokenizer.

    as it is      tokens that are not normalised, in the text as it is
    normalised    the others, in each part between, as the normaliser makes it
    between       what is left is tokenized, each part as a text of its own

As in Hugging Face's `tokenizers` (0.23), whose ids and offsets it gives: of the
tokens that begin first the longest one is found, and one that must stand alone
is passed over beside a letter, digit or underscore.
"""

import re
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text import offsets as offsets_lib
from bert_tf.text.tokenizers import added_tokens
from bert_tf.text.tokenizers import utf_8
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.tokenizer import Tokenizer
from bert_tf.text.tokenizers.utf_8 import END
from bert_tf.text.tokenizers.utf_8 import WHITE_SPACE

# The characters of words, in a class: Unicode's Alphabetic, marks, digits,
# connectors and joiners. The lines after the second are those of Unicode 15.1
# and 16, which `tokenizers` knows and RE2 (Unicode 15) does not.
_IN_WORD = (
    r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}"
    r"\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
    r"\x{897}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}"
    r"\x{105c0}-\x{105f3}\x{10d40}-\x{10d65}\x{10d69}-\x{10d6d}"
    r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{10efc}\x{11380}-\x{11389}"
    r"\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}-\x{113c0}\x{113c2}"
    r"\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d3}\x{113e1}-\x{113e2}"
    r"\x{116d0}-\x{116e3}\x{11bc0}-\x{11be0}\x{11bf0}-\x{11bf9}\x{11f5a}"
    r"\x{13460}-\x{143fa}\x{16100}-\x{16139}\x{16d40}-\x{16d6c}"
    r"\x{16d70}-\x{16d79}\x{18cff}\x{1ccf0}-\x{1ccf9}\x{1e5d0}-\x{1e5fa}"
    r"\x{2ebf0}-\x{2ee5d}"
)
# In `_Parts.found`: a part between tokens.
_BETWEEN = -1


class Normal(NamedTuple):
    """Normalised characters of texts.

    Attributes:
        characters: RaggedTensor int32 `[batch, (characters)]`: the texts'.
        code_points: int32 `[N]`, the normalised ones.
        rows: int64 `[N]`, the text of each.
        sources: int32 `[N]`, which of `characters.flat_values` each is from.
    """

    characters: tf.RaggedTensor
    code_points: tf.Tensor
    rows: tf.Tensor
    sources: tf.Tensor


class Normalizer(NamedTuple):
    """How a kind of tokenizer normalises texts in which tokens are found.

    Attributes:
        to_normal: A function of valid texts, string `[batch]`; returns their
            `Normal` characters.
        plain: A regular expression: texts that match are only lower-cased, if
            at all. None if there are no such texts.
        do_lower_case: Whether they are lower-cased.
    """

    to_normal: Callable[[tf.Tensor], Normal]
    plain: str | None
    do_lower_case: bool


def with_tokens(
    tokenizer: Tokenizer,
    normalizer: Normalizer | None = None,
    trim_offsets: bool = False,
) -> Tokenizer:
    """Returns a tokenizer that also finds the tokens that its spec asks for.

    Args:
        tokenizer: Tokenizes texts without such tokens.
        normalizer: Its `Normalizer`; None if it has none.
        trim_offsets: Exclude white space from the ranges of tokens.

    Returns:
        `tokenizer` itself if there is nothing to be found.
    """
    spec = tokenizer.spec
    tokens = added_tokens.looked_for(
        spec.added_tokens, spec.vocabulary, spec.tokens_in_text
    )
    if not tokens:
        return tokenizer
    finder = _Finder(tokens, spec, normalizer)
    return FindingTokenizer(tokenizer, finder, trim_offsets)


def starts_word(spec: Spec, starts: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns bool `[B, L]`: whether a word starts there.

    One also starts behind an added token, which may take the space before it.

    Args:
        spec: The spec of the tokenizer.
        starts: bool `[V]`: whether each entry, by itself, starts a word.
        ids: int32 `[B, L]`.
    """
    found = tf.gather(starts, ids)
    if not spec.added_tokens:
        return found
    added = {token.content for token in spec.added_tokens}
    is_added = tf.gather(
        [token in added for token in spec.vocabulary.tokens], ids
    )
    return found | tf.pad(is_added[:, :-1], [[0, 0], [1, 0]])


class FindingTokenizer(tf.Module):
    """Finds tokens, and tokenizes what is between: a `Tokenizer`.

    Args:
        tokenizer: Tokenizes what is between.
        finder: Finds the tokens.
        trim_offsets: As in `with_tokens`.
    """

    def __init__(
        self, tokenizer: Tokenizer, finder: "_Finder", trim_offsets: bool
    ) -> None:
        super().__init__(name="finding_tokenizer")
        self.spec = tokenizer.spec
        self.vocabulary = tokenizer.spec.vocabulary
        self._tokenizer: Any = tokenizer
        self._finder = finder
        self._trim_offsets = trim_offsets

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]`; a token that was
            found is a word of one piece.
        """
        texts = utf_8.valid(texts)
        parts = self._finder.find(texts)
        ids = self._tokenizer.tokenize(_between(texts, parts))
        return _joined(
            parts, ids, _of_tokens(parts, self._finder.ids), tf.size(texts)
        )

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, offsets_lib.Offsets]:
        """Returns what `tokenize` does, and where the pieces come from.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]` and `Offsets`. The
            range of a token includes the white space that it takes, unless
            offsets are trimmed.
        """
        valid = utf_8.valid(texts)
        parts = self._finder.find(valid)
        ids, offsets = self._tokenizer.tokenize_with_offsets(
            _between(valid, parts)
        )
        part = offsets.starts.merge_dims(1, 2).value_rowids()
        ranges = _trimmed(valid, parts) if self._trim_offsets else parts
        start, limit = (
            _in_characters(valid, parts.row, places)
            for places in (ranges.start, ranges.limit)
        )
        shift = tf.gather(start, part)
        first, after = (
            _joined(
                parts,
                ids.with_flat_values(values.flat_values + shift),
                of_tokens,
                tf.size(texts),
            ).flat_values
            for values, of_tokens in (
                (offsets.starts, start),
                (offsets.limits, limit),
            )
        )
        ids = _joined(
            parts, ids, _of_tokens(parts, self._finder.ids), tf.size(texts)
        )
        return ids, offsets_lib.in_bytes(ids, first, after, texts)

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the texts of ids, string `[batch]`, as the tokenizer does.

        Args:
            ids: RaggedTensor int32 `[batch, (pieces)]` or
                `[batch, (words), (pieces)]`.
        """
        return self._tokenizer.detokenize(ids)

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[batch, (words)]`."""
        texts = utf_8.valid(texts)
        parts = self._finder.find(texts)
        words = self._tokenizer.split_words(_between(texts, parts))
        return _joined(
            parts,
            words,
            _of_tokens(parts, self._finder.contents),
            tf.size(texts),
        )

    def for_words(self) -> "FindingTokenizer":
        """Returns the tokenizer of words that are given one by one.

        It finds tokens in these, too.
        """
        return FindingTokenizer(
            self._tokenizer.for_words(), self._finder, self._trim_offsets
        )


class _Parts(NamedTuple):
    """Where texts are split: tokens and what is between, in order.

    Attributes:
        row: int64 `[P]`, the text.
        start: int32 `[P]`, where in it the part begins, in bytes.
        limit: int32 `[P]`, where it ends.
        found: int32 `[P]`, the number of the token, or `_BETWEEN`.
    """

    row: tf.Tensor
    start: tf.Tensor
    limit: tf.Tensor
    found: tf.Tensor

    @property
    def is_token(self) -> tf.Tensor:
        return self.found != _BETWEEN


class _Finder:
    """Finds tokens in two passes; numbers them by their places.

    Args:
        tokens: The tokens.
        spec: The spec of the tokenizer.
        normalizer: As in `with_tokens`.

    Attributes:
        ids: int32 `[tokens]`: the ids.
        contents: string `[tokens]`.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        spec: Spec,
        normalizer: Normalizer | None,
    ) -> None:
        self.contents = np.array(
            [token.content.encode() for token in tokens], object
        )
        self.ids = np.array(
            [spec.vocabulary.index(token.content) for token in tokens], np.int32
        )
        self._normalizer = normalizer
        self._passes = {}
        for is_normalized in (False, True):
            numbers = [
                number
                for number, token in enumerate(tokens)
                if token.normalized == is_normalized
            ]
            patterns = self.contents[numbers]
            if is_normalized and normalizer is not None and numbers:
                # Not in a graph.
                with tf.init_scope():
                    contents = tf.constant(patterns, tf.string)
                    normal = normalizer.to_normal(contents)
                    patterns = _encoded(normal, len(numbers)).numpy()
            self._passes[is_normalized] = _Pass(
                [tokens[number] for number in numbers],
                numbers,
                patterns.tolist(),
            )

    def find(self, texts: tf.Tensor) -> _Parts:
        """Returns the `_Parts` of valid texts, string `[batch]`."""
        as_it_is, normalized = self._passes[False], self._passes[True]
        parts = as_it_is.find(texts)
        if normalized.has_tokens:
            inner = self._find_normalized(_between(texts, parts))
            outer = _Parts(*(tf.gather(each, inner.row) for each in parts))
            parts = _Parts(
                row=outer.row,
                start=tf.where(
                    outer.is_token, outer.start, outer.start + inner.start
                ),
                limit=tf.where(
                    outer.is_token, outer.limit, outer.start + inner.limit
                ),
                found=tf.where(outer.is_token, outer.found, inner.found),
            )
        is_left = parts.is_token | (parts.start < parts.limit)
        return _Parts(*(tf.boolean_mask(each, is_left) for each in parts))

    def _find_normalized(self, texts):
        """Returns the `_Parts` by the tokens that are normalised."""
        normalizer = self._normalizer
        if normalizer is None:
            return self._passes[True].find(texts)

        def find():
            normal = normalizer.to_normal(texts)
            normal_texts = _encoded(normal, tf.size(texts))
            return _in_source(self._passes[True].find(normal_texts), normal)

        def find_plain():
            is_lower = normalizer.do_lower_case
            return self._passes[True].find(
                tf.strings.lower(texts) if is_lower else texts
            )

        if normalizer.plain is None:
            return find()
        is_plain = tf.strings.regex_full_match(texts, normalizer.plain)
        return tf.cond(tf.reduce_all(is_plain), find_plain, find)


class _Pass:
    """Finds tokens in strings, as they are.

    Args:
        tokens: The tokens.
        numbers: Their numbers.
        patterns: What is looked for, UTF-8: the contents, or their normal
            forms. Empty ones are not found.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        numbers: Sequence[int],
        patterns: Sequence[bytes],
    ) -> None:
        self.has_tokens = bool(tokens)
        self._numbers = np.array(numbers, np.int32)
        self._patterns = np.array(patterns, object)
        # Of alternatives, RE2 takes the first that matches.
        longest_first = sorted({*patterns} - {b""}, key=len, reverse=True)
        self._expression = b"|".join(map(re.escape, longest_first)).decode()
        _check_expression(self._expression, len(longest_first))
        size = max(numbers, default=0) + 1
        self._flags = {}
        for name in ("single_word", "lstrip", "rstrip"):
            flags = np.zeros(size, bool)
            flags[self._numbers] = [getattr(token, name) for token in tokens]
            if flags.any():
                self._flags[name] = flags

    def find(self, texts: tf.Tensor) -> _Parts:
        """Returns the parts of strings `[N]`, one at least of each.

        Between two tokens, and at both ends of a string, is a part that may be
        empty.
        """
        if not self._expression:
            return _Parts(
                row=tf.range(tf.size(texts, tf.int64)),
                start=tf.zeros_like(tf.strings.length(texts)),
                limit=tf.strings.length(texts),
                found=tf.fill(tf.shape(texts), _BETWEEN),
            )
        marked = tf.strings.regex_replace(
            texts, self._expression, END + rb"\0" + END
        )
        ragged = tf.strings.split(marked, END)
        parts = ragged.flat_values
        row = ragged.value_rowids()
        ends = tf.cumsum(tf.strings.length(parts))
        lengths = tf.strings.length(texts)
        limit = ends - tf.gather(tf.cumsum(lengths, exclusive=True), row)
        found = self._numbers_of(ragged)
        return self._stripped(texts, self._kept(parts, found, row, limit))

    def _numbers_of(self, ragged):
        """Returns the tokens of parts: int32 `[P]`."""
        place = tf.range(tf.size(ragged.flat_values))
        place -= tf.gather(
            tf.cast(ragged.row_starts(), tf.int32), ragged.value_rowids()
        )
        is_match = tf.equal(place % 2, 1)
        unique, index = tf.unique(tf.boolean_mask(ragged.flat_values, is_match))
        is_same = tf.equal(unique[:, tf.newaxis], self._patterns)
        number = tf.gather(
            self._numbers, tf.argmax(is_same, axis=1, output_type=tf.int32)
        )
        # The matches so far.
        match = tf.cumsum(tf.cast(is_match, tf.int32)) - 1
        numbers = tf.concat([tf.gather(number, index), [_BETWEEN]], axis=0)
        return tf.where(
            is_match, tf.gather(numbers, tf.maximum(match, 0)), _BETWEEN
        )

    def _kept(self, parts, found, row, limit):
        """Returns the `_Parts`, without tokens that must stand alone."""
        is_first = row != _before(row, -1)
        if "single_word" in self._flags:
            length = tf.strings.length(parts)
            begins, ends = (
                tf.strings.regex_full_match(parts, f"(?s){expression}")
                for expression in (f"[{_IN_WORD}].*", f".*[{_IN_WORD}]")
            )
            # If the part between is empty, what is beyond it counts.
            ends |= tf.equal(length, 0) & ~is_first & _before(ends, False)
            is_last = row != _after(row, -1)
            begins |= tf.equal(length, 0) & ~is_last & _after(begins, False)
            is_beside = _before(ends, False) | _after(begins, False)
            is_dropped = is_beside & self._is_set("single_word", found)
            found = tf.where(is_dropped, _BETWEEN, found)
        is_token = found != _BETWEEN
        # What is dropped becomes one with the parts beside it.
        is_start = is_token | _before(is_token, True) | is_first
        is_limit = _after(is_start, True)
        start = tf.where(is_first, 0, _before(limit, 0))
        return _Parts(
            row=tf.boolean_mask(row, is_start),
            start=tf.boolean_mask(start, is_start),
            limit=tf.boolean_mask(limit, is_limit),
            found=tf.boolean_mask(found, is_start),
        )

    def _stripped(self, texts, parts):
        """Returns the `_Parts`, in which tokens have white space beside."""
        row, start, limit, found = parts
        for name, expression in (
            ("rstrip", f"^[{WHITE_SPACE}]+"),
            ("lstrip", f"[{WHITE_SPACE}]+$"),
        ):
            if name not in self._flags:
                continue
            takes = self._is_set(name, found)
            shift, back = _before, _after
            if name == "lstrip":
                shift, back = back, shift
            # What is beside a token is between tokens, and of the same text.
            is_taken = shift(takes, False)
            between = _between(texts, _Parts(row, start, limit, found))
            between = tf.where(is_taken, between, "")
            length = tf.strings.length(between) - tf.strings.length(
                tf.strings.regex_replace(between, expression, "")
            )
            if name == "rstrip":
                start += length
                limit += back(length, 0)
            else:
                limit -= length
                start -= back(length, 0)
        return _Parts(row, start, limit, found)

    def _is_set(self, name, found):
        is_set = tf.gather(self._flags[name], tf.maximum(found, 0))
        return is_set & (found != _BETWEEN)


def _check_expression(expression, num_tokens):
    """Raises `ValueError` if TensorFlow cannot look for so many tokens."""
    try:
        # Not in a graph, where it would fail only when it runs.
        with tf.init_scope():
            tf.strings.regex_full_match("", expression)
    except tf.errors.InvalidArgumentError:
        # Its message has all of them.
        raise ValueError(
            f"there are too many added tokens to look for, {num_tokens:,}. "
            'With `"tokens_in_text": "none"` in tokenizer_config.json none is '
            "found in texts."
        ) from None


def _before(values, first):
    """Returns for each value the one before it."""
    return tf.concat([[first], values], axis=0)[: tf.size(values)]


def _after(values, last):
    """Returns for each value the one behind it."""
    return tf.concat([values, [last]], axis=0)[1:]


def _between(texts, parts):
    """Returns the parts, string `[P]`; tokens are empty."""
    return tf.strings.substr(
        tf.gather(texts, parts.row),
        parts.start,
        tf.where(parts.is_token, 0, parts.limit - parts.start),
    )


def _trimmed(texts, parts):
    """Returns the `_Parts`, in which tokens have no white space at the ends."""
    tokens = tf.strings.substr(
        tf.gather(texts, parts.row),
        parts.start,
        tf.where(parts.is_token, parts.limit - parts.start, 0),
    )
    behind = tf.strings.regex_replace(tokens, f"^[{WHITE_SPACE}]+", "")
    inside = tf.strings.regex_replace(behind, f"[{WHITE_SPACE}]+$", "")
    return parts._replace(
        start=parts.start
        + tf.strings.length(tokens)
        - tf.strings.length(behind),
        limit=parts.limit
        - tf.strings.length(behind)
        + tf.strings.length(inside),
    )


def _of_tokens(parts, values):
    """Returns for each part the value of its token, given by number."""
    return tf.gather(values, tf.maximum(parts.found, 0))


def _joined(parts, values, of_tokens, num_texts):
    """Returns the words of texts, with one for each token.

    Args:
        parts: The `_Parts` of texts.
        values: RaggedTensor `[P, (words), ...]`, of what is between.
        of_tokens: `[P]`, of tokens.
        num_texts: The number of texts.

    Returns:
        RaggedTensor `[batch, (words), ...]`.
    """
    words = tf.boolean_mask(of_tokens, parts.is_token)
    if values.shape.rank == 3:
        words = tf.RaggedTensor.from_tensor(words[:, tf.newaxis])
    words = tf.RaggedTensor.from_row_lengths(
        words, tf.cast(parts.is_token, tf.int64), validate=False
    )
    rows = tf.RaggedTensor.from_value_rowids(
        tf.concat([values, words], axis=1),
        parts.row,
        nrows=tf.cast(num_texts, tf.int64),
        validate=False,
    )
    return rows.merge_dims(1, 2)


def _in_characters(texts, row, places):
    """Returns places in valid texts, given in bytes, in characters."""
    characters, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    text_start = tf.cumsum(
        tf.cast(tf.strings.length(texts), tf.int64), exclusive=True
    )
    starts = starts.flat_values + tf.gather(text_start, starts.value_rowids())
    places = tf.cast(places, tf.int64) + tf.gather(text_start, row)
    first = tf.cast(characters.row_starts(), tf.int32)
    return tf.searchsorted(starts, places) - tf.gather(first, row)


def _encoded(normal, num_texts):
    """Returns the strings `[batch]` of a `Normal`."""
    characters = tf.RaggedTensor.from_value_rowids(
        normal.code_points,
        normal.rows,
        nrows=tf.cast(num_texts, tf.int64),
        validate=False,
    )
    return tf.strings.unicode_encode(characters, "UTF-8")


def _in_source(parts, normal):
    """Returns the `_Parts` of normalised texts as those of the texts."""
    row, start, limit, found = parts
    # Of the characters of the texts, and of a last one that is empty.
    num_bytes = offsets_lib.utf_8_length(normal.characters.flat_values)
    ends = tf.cumsum(tf.concat([num_bytes, [0]], axis=0))
    starts = ends - tf.concat([num_bytes, [0]], axis=0)
    text_splits = tf.gather(starts, normal.characters.row_splits)
    text_start = tf.gather(text_splits, row)
    length = tf.gather(text_splits, row + 1) - text_start

    # The character that each normalised byte is from.
    num_bytes = offsets_lib.utf_8_length(normal.code_points)
    sources = tf.repeat(normal.sources, num_bytes)
    sources = tf.concat([sources, [tf.size(starts) - 1]], axis=0)
    in_texts = tf.math.unsorted_segment_sum(
        num_bytes, normal.rows, normal.characters.nrows()
    )
    base = tf.gather(tf.cumsum(in_texts, exclusive=True), row)
    first = tf.gather(sources, base + start)
    last = tf.gather(sources, tf.maximum(base + limit - 1, 0))

    is_empty = tf.equal(start, limit)
    start = tf.minimum(tf.gather(starts, first) - text_start, length)
    limit = tf.gather(ends, last) - text_start
    # What is dropped behind a part between tokens belongs to it.
    is_last = row != _after(row, -1)
    up_to_next = tf.where(is_last, length, _after(start, 0))
    is_between = tf.equal(found, _BETWEEN)
    limit = tf.where(is_between, tf.maximum(limit, up_to_next), limit)
    return _Parts(row, start, tf.where(is_empty, start, limit), found)
