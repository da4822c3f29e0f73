r"""SentencePiece's unigram tokenizer, of ALBERT and XLM-RoBERTa.

    fold      ALBERT alone: join quotes, decompose (NFKD), drop marks (M),
              lower-case
    split     at white space
    pieces    normalised by the model's own table of characters, then the
              likeliest pieces of each word, by tensorflow_text's kernel

The ids are those of Hugging Face's `tokenizers`, except for

- a special token written in the text, which is text like any other here;
- marks and compatibility letters that are newer than its Unicode tables (some
  380 in Unicode 14), which it does not fold for ALBERT;
- a mark after a character that the model's table replaces ("ﬁ" with an
  accent): it is lost there, and kept here, as by SentencePiece.

Bytes that are not UTF-8 are dropped.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.text import offsets as offsets_lib
from bert_tf.text import sharing
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import characters
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import token_finder
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers import words as words_lib
from bert_tf.text.tokenizers.sentencepiece_model import SPACE
from bert_tf.text.tokenizers.tokenizer import Tokenizer
from bert_tf.text.vocabulary import Vocabulary

# Unicode's property White_Space.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_PLAIN = r"[ -~]*"
_NO_QUOTES = "(?:[`']?[ -&(-_a-~])*[`']?"
# Scores are rounded to multiples of 1 / this: sums up to 256 fit in 24 bits.
_EXACT = 2**16
_LARGEST_SCORE = float(np.finfo(np.float32).max)
# ALBERT's pieces of letters and these marks, except a mark alone.
_CONTINUES_WORD = re.compile(
    r"[a-zA-Z]|[a-zA-Z!-&(-/:;?@\[-`{-~]{2,}", re.ASCII
)
_QUOTES = "``|''"
# The ranges of characters that folding may change; a test checks the rest.
_FOLDED = (range(0xD800), range(0xE000, 0x32000), range(0xE0100, 0xE01F0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnigramSpec:
    """What a `UnigramTokenizer` is made of: a `tokenizer.Spec`.

    Args:
        vocabulary: A `Vocabulary` that is not a WordPiece file's.
        model: A SentencePiece model whose pieces are the vocabulary, in its
            order: what `sentencepiece_model.serialize` returns.
        tokenizer_class: "AlbertTokenizer" or "XLMRobertaTokenizer".
        do_lower_case: Whether texts are lower-cased; False for XLM-RoBERTa.
        keep_accents: Whether accents are kept, and characters not decomposed;
            True for XLM-RoBERTa.
        added_tokens: What is looked for in texts besides the model's own five
            special tokens, and those of the five that differ from the kind's
            default (`added_tokens.default`). Their ids are the vocabulary's.
        tokens_in_text: Which tokens are found in texts: "none", "added" (the
            added ones) or "all" (the model's own five special tokens, too).

    Raises:
        ValueError: If XLM-RoBERTa's texts are to be folded.
    """

    vocabulary: Vocabulary
    model: bytes
    tokenizer_class: str = unigram_files.ALBERT_CLASS
    do_lower_case: bool = True
    keep_accents: bool = False
    added_tokens: tuple[added_tokens_lib.AddedToken, ...] = ()
    tokens_in_text: str = added_tokens_lib.ADDED

    def __post_init__(self):
        is_folded = self.do_lower_case or not self.keep_accents
        if is_folded and not self.joins_quotes:
            raise ValueError(
                "`do_lower_case` must be False and `keep_accents` True with "
                f"{self.tokenizer_class}. Received: "
                f"do_lower_case={self.do_lower_case}, "
                f"keep_accents={self.keep_accents}."
            )
        tokens = added_tokens_lib.without_defaults(
            self.added_tokens, self.vocabulary.special, is_wordpiece=False
        )
        object.__setattr__(self, "added_tokens", tokens)
        added_tokens_lib.check_choice(self.tokens_in_text)

    @property
    def joins_quotes(self) -> bool:
        """Whether `` and '' become one character, as in ALBERT."""
        return self.tokenizer_class == unigram_files.ALBERT_CLASS

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "model_sha256": hashlib.sha256(self.model).hexdigest(),
            "keep_accents": self.keep_accents,
            **added_tokens_lib.settings(self.added_tokens, self.tokens_in_text),
        }

    @property
    def folder_settings(self) -> dict[str, Any]:
        if not self.joins_quotes:
            return {}
        return {"keep_accents": self.keep_accents}

    @property
    def vocabulary_files(self) -> dict[str, str | bytes]:
        return unigram_files.vocabulary_files(self.tokenizer_class, self.model)

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        return unigram_files.make_json(
            self.vocabulary,
            sentencepiece_model.parse(self.model),
            joins_quotes=self.joins_quotes,
            keep_accents=self.keep_accents,
            do_lower_case=self.do_lower_case,
            added_tokens=self.added_tokens,
        )

    def make(self) -> Tokenizer:
        tokenizer = UnigramTokenizer(self)
        normalizer = token_finder.Normalizer(
            tokenizer.normalize, tokenizer.plain, self.do_lower_case
        )
        return token_finder.with_tokens(tokenizer, normalizer)

    @functools.cached_property
    def _has_mark(self):
        tokens = self.vocabulary.tokens
        return np.array([token.startswith(SPACE) for token in tokens])

    @functools.cached_property
    def _starts_word(self):
        tokens = self.vocabulary.tokens
        added = {token.content for token in self.added_tokens}
        starts = self._has_mark | [token in added for token in tokens]
        if self.tokenizer_class != unigram_files.ALBERT_CLASS:
            return starts
        return starts | [not _CONTINUES_WORD.fullmatch(each) for each in tokens]

    def has_mark(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns bool, of the shape of ids: whether a space precedes them."""
        return tf.gather(self._has_mark, ids)

    def starts_word(self, ids: tf.Tensor) -> tf.Tensor:
        # The id alone tells it. In ALBERT (google-research/albert) punctuation
        # marks and numbers are words of their own, so what is masked together
        # is smaller than a word of the text.
        return tf.gather(self._starts_word, ids)

    def spell(self, tokens: tf.Tensor) -> tf.Tensor:
        spelled = tf.strings.regex_replace(tokens, SPACE, " ")
        for token in added_tokens_lib.apart(self.added_tokens):
            if SPACE in token:
                spelled = tf.where(tf.equal(tokens, token), tokens, spelled)
        return spelled


class UnigramTokenizer(tf.Module):
    """Strings to the ids of SentencePiece's unigram model.

    Args:
        spec: The `UnigramSpec`.
    """

    def __init__(self, spec: UnigramSpec) -> None:
        super().__init__(name="unigram_tokenizer")
        self.spec = spec
        self.vocabulary = spec.vocabulary
        model = sentencepiece_model.parse(spec.model)
        self._model = sentencepiece_model.serialize(_with_exact_sums(model))
        self._charsmap = model.charsmap
        self._num_bytes = np.array(
            [len(token.encode()) for token in spec.vocabulary.tokens], np.int32
        )
        self._fold = make_fold(
            do_lower_case=spec.do_lower_case,
            keep_accents=spec.keep_accents,
            joins_quotes=spec.joins_quotes,
            # The model drops these, so they do not separate words.
            dropped_spaces="".join(
                space
                for space in _WHITE_SPACE
                if not sentencepiece_model.normalized(model.charsmap, space)
            ),
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]`; for a flat list
            of pieces, `.merge_dims(1, 2)`.
        """
        words = self.split_words(texts)
        return self._by_words(words, self._kernel().tokenize(words.flat_values))

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, offsets_lib.Offsets]:
        """Returns what `tokenize` does, and where the pieces come from.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]` and `Offsets`. A
            piece that is only the mark of a word's beginning has the range of
            the word's first character.
        """
        words = self.split_words(texts)
        pieces, starts, limits = self._kernel().tokenize_with_offsets(
            words.flat_values
        )
        length = tf.gather(
            tf.strings.length(words.flat_values), pieces.value_rowids()
        )
        start = tf.cast(starts.flat_values, tf.int32)
        limit = tf.cast(limits.flat_values, tf.int32)
        # Without accents, the folding has expanded all that the model would.
        if self.spec.keep_accents:
            limit += self._num_bytes_beyond(words, pieces, start, limit)
        start = tf.minimum(start, length - 1)
        limit = tf.clip_by_value(limit, start + 1, length)

        def in_words(values):
            return words.with_flat_values(pieces.with_flat_values(values))

        located = offsets_lib.locate(
            texts,
            words,
            in_words(start),
            in_words(limit),
            self._fold,
            self._joins if self.spec.joins_quotes else None,
        )
        ids = self._by_words(words, pieces)
        return ids, offsets_lib.Offsets(
            *(ids.with_flat_values(values.flat_values) for values in located)
        )

    def _num_bytes_beyond(self, words, pieces, start, limit):
        """Returns by how many bytes the kernel's limits are too early.

        Where the model makes several characters of one and a piece ends among
        them, the kernel ends the piece before that character.

        Args:
            words: RaggedTensor string `[batch, (words)]`.
            pieces: RaggedTensor int32 `[words, (pieces)]`.
            start, limit: int32, the kernel's bytes in the words, of all pieces.

        Returns:
            int32, of the shape of `limit`: the bytes of that character, or 0.
        """
        code_points = tf.strings.unicode_decode(
            words.flat_values, "UTF-8"
        ).flat_values
        num_bytes = offsets_lib.utf_8_length(code_points)
        unique, index = tf.unique(code_points)
        alone = tf.strings.unicode_encode(unique[:, tf.newaxis], "UTF-8")
        normal = _normal_forms(self._charsmap).replace(alone)
        num_normal = tf.gather(tf.strings.length(normal), index)

        # At each byte of all words: that character's bytes, and the bytes of
        # the normal form before it.
        normal_ends = tf.cumsum(num_normal)
        num_bytes_at = tf.concat([tf.repeat(num_bytes, num_bytes), [0]], axis=0)
        normal_at = tf.concat(
            [
                tf.repeat(normal_ends - num_normal, num_bytes),
                tf.reduce_sum(num_normal)[tf.newaxis],
            ],
            axis=0,
        )
        word_starts = tf.cumsum(
            tf.strings.length(words.flat_values), exclusive=True
        )
        word = tf.cast(pieces.value_rowids(), tf.int32)
        word_start = tf.gather(word_starts, word)
        span = tf.gather(normal_at, word_start + limit) - tf.gather(
            normal_at, word_start + start
        )

        # How far each piece goes beyond its range, given how far the one
        # before did. An unknown piece may have any length. It is taken to end
        # with a character, and so is what is before a word.
        ids = pieces.flat_values
        is_unknown = ids == self.vocabulary.unk_id
        is_first = tf.concat([[True], word[1:] != word[:-1]], axis=0)
        is_first = is_first[: tf.size(ids)]
        # The kernel puts a mark before each word.
        length = tf.gather(self._num_bytes, ids) - tf.where(
            is_first, len(SPACE.encode()), 0
        )
        excess = tf.where(is_unknown, 0, length - span)
        chain = tf.cumsum(tf.cast(is_first | is_unknown, tf.int32)) - 1
        sums = tf.cumsum(excess)
        before = tf.boolean_mask(sums - excess, is_first | is_unknown)
        is_beyond = sums - tf.gather(before, chain) > 0
        return tf.where(
            is_beyond, tf.gather(num_bytes_at, word_start + limit), 0
        )

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns texts of the pieces: words with single spaces between.

        Folding loses information: to cite a text, use the offsets.

        Args:
            ids: RaggedTensor int32 `[batch, (pieces)]` or
                `[batch, (words), (pieces)]`.

        Returns:
            string `[batch]`.
        """
        if ids.shape.rank == 3:
            ids = ids.merge_dims(1, 2)
        spelled = self.spec.spell(tf.constant(self.vocabulary.tokens))
        pieces = ids.with_flat_values(tf.gather(spelled, ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.regex_replace(texts, "^ ", "")

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[batch, (words)]`.

        They are folded, but not normalised by the model's own table.
        """
        return tf.strings.split(self._fold(texts))

    @property
    def plain(self) -> str | None:
        """As in `token_finder.Normalizer`."""
        if any(
            character.isascii() and character.isprintable()
            for character in sentencepiece_model.changed_characters(
                self._charsmap
            )
        ):
            return None
        return _NO_QUOTES if self.spec.joins_quotes else _PLAIN

    def normalize(self, texts: tf.Tensor) -> token_finder.Normal:
        """Returns the characters of valid texts in which tokens are found.

        Args:
            texts: string `[batch]`.
        """
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        code_points, rows = decoded.flat_values, decoded.value_rowids()
        sources = tf.range(tf.size(code_points))
        if self.spec.joins_quotes:
            is_second = self._joins(code_points, decoded.row_splits)
            is_first = tf.concat([is_second[1:], [False]], axis=0)
            is_first = is_first[: tf.size(code_points)]
            code_points = tf.where(is_first, ord('"'), code_points)
            code_points, rows, sources = (
                tf.boolean_mask(values, ~is_second)
                for values in (code_points, rows, sources)
            )
        for replacer in _replacers(
            self._charsmap, self.spec.do_lower_case, self.spec.keep_accents
        ):
            code_points, places = replacer.replace(code_points, rows)
            rows, sources = tf.gather(rows, places), tf.gather(sources, places)
        return token_finder.Normal(decoded, code_points, rows, sources)

    def for_words(self) -> words_lib.WordTokenizer:
        """Returns the tokenizer of words given one by one.

        Each begins with the mark, as in transformers with
        `is_split_into_words`.
        """
        return words_lib.WordTokenizer(self.spec, self)

    def _kernel(self):
        """Returns tensorflow_text's tokenizer, made anew for each use.

        The parsed model belongs to the operation that made it. Made only once,
        it would be gone as soon as TensorFlow drops the operations that ran
        eagerly, as `keras.utils.clear_session` does. In a graph the operation
        is part of the graph, and eagerly TensorFlow keeps it.
        """
        # Imported here because it takes long to load.
        import tensorflow_text as tf_text

        # It only runs on the CPU.
        with tf.device("CPU:0"):
            return tf_text.SentencepieceTokenizer(
                self._model, out_type=tf.int32
            )

    def _by_words(self, words, pieces):
        """Returns ids `[batch, (words), (pieces)]` of the pieces of words.

        A word of which nothing is left has no pieces and is dropped. A word in
        which the model's table finds a space becomes several.
        """
        ids = pieces.flat_values
        word = pieces.value_rowids()
        is_first = tf.concat([[True], word[1:] != word[:-1]], axis=0)
        is_first = is_first[: tf.size(ids)] | self.spec.has_mark(ids)
        starts = tf.where(is_first)[:, 0]
        rows = tf.gather(words.value_rowids(), tf.gather(word, starts))
        return tf.RaggedTensor.from_value_rowids(
            tf.RaggedTensor.from_row_starts(ids, starts, validate=False),
            rows,
            nrows=words.nrows(),
            validate=False,
        )

    def _joins(self, code_points, row_splits):
        """Returns bool [N]: the second of two quotes that become one."""
        before = tf.concat([[0], code_points[:-1]], axis=0)
        is_begin = code_points != before[: tf.size(code_points)]
        # A text's first character has no character before it.
        firsts = tf.cast(row_splits[:-1], tf.int32)
        firsts = firsts[firsts < tf.size(code_points)]
        is_begin = tf.tensor_scatter_nd_update(
            is_begin, firsts[:, tf.newaxis], tf.ones_like(firsts, tf.bool)
        )
        place = tf.range(tf.size(code_points))
        begin = tf.gather(
            tf.cast(tf.where(is_begin)[:, 0], tf.int32),
            tf.cumsum(tf.cast(is_begin, tf.int32)) - 1,
        )
        is_quote = (code_points == ord("`")) | (code_points == ord("'"))
        return is_quote & ((place - begin) % 2 == 1)


def _with_exact_sums(model):
    """Returns the model with scores that the kernel can add exactly.

    It adds float32, where `tokenizers` adds float64. Of two splits with the
    same pieces in another order ("33 3", "3 33") the first one found is taken;
    with rounded sums it could be either.
    """
    return model._replace(
        pieces=tuple(
            piece._replace(score=round(piece.score * _EXACT) / _EXACT)
            for piece in model.pieces
        )
    )


def make_fold(
    *,
    do_lower_case: bool,
    keep_accents: bool,
    joins_quotes: bool = True,
    dropped_spaces: str = "",
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that folds strings `[N]`, for the kernel.

    Args:
        do_lower_case: As in `UnigramSpec`.
        keep_accents: Likewise.
        joins_quotes: Likewise.
        dropped_spaces: White space that is dropped; the rest becomes spaces.
    """
    table = _table(do_lower_case, keep_accents, dropped_spaces)

    def fold(texts):
        texts = words_lib.valid(texts)
        if joins_quotes:
            texts = tf.strings.regex_replace(texts, _QUOTES, '"')
        return tf.cond(
            tf.reduce_all(tf.strings.regex_full_match(texts, _PLAIN)),
            lambda: tf.strings.lower(texts) if do_lower_case else texts,
            lambda: table.replace(texts),
        )

    return sharing.shared(fold)


class _Table:
    """Replaces characters, with graph operations.

    Args:
        replaced: {code point: code points}; all others stay.
    """

    def __init__(self, replaced: dict[int, tuple[int, ...]]) -> None:
        # Entry 0 is for the characters that stay.
        sequences = list(dict.fromkeys(replaced.values()))
        entries = {found: n for n, found in enumerate(sequences, start=1)}
        self._lengths = np.array([1, *map(len, sequences)], np.int32)
        self._starts = np.cumsum([0, 0, *map(len, sequences)], dtype=np.int32)
        self._sequences = np.array([*itertools.chain(*sequences), 0], np.int32)
        # In pages of 256 code points, most of which are equal.
        flat = np.zeros(0x110000, np.int32)
        flat[list(replaced)] = [entries[to] for to in replaced.values()]
        self._pages, page = np.unique(
            flat.reshape(-1, 256), axis=0, return_inverse=True
        )
        self._page = page.reshape(-1).astype(np.int32)

    def replace(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns strings `[N]` of valid UTF-8 with characters replaced."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        code_points = decoded.flat_values
        page = tf.gather(self._page, code_points // 256)
        entry = tf.gather(
            self._pages.reshape(-1), page * 256 + code_points % 256
        )
        length = tf.gather(self._lengths, entry)
        ends = tf.cumsum(length)
        source = tf.repeat(tf.range(tf.size(length)), length)
        nth = tf.range(tf.size(source)) - tf.gather(ends - length, source)
        its = tf.gather(entry, source)
        replaced = tf.where(
            its == 0,
            tf.gather(code_points, source),
            tf.gather(self._sequences, tf.gather(self._starts, its) + nth),
        )
        splits = tf.gather(
            tf.concat([[0], ends], axis=0),
            tf.cast(decoded.row_splits, tf.int32),
        )
        return tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(
                replaced, tf.cast(splits, tf.int64), validate=False
            ),
            "UTF-8",
        )


@functools.cache
def _normal_forms(charsmap: bytes) -> _Table:
    """Returns the `_Table` of a model's charsmap, with marks for spaces."""
    changed = sentencepiece_model.changed_characters(charsmap)
    return _Table(
        {
            ord(character): tuple(map(ord, form.replace(" ", SPACE)))
            for character, form in changed.items()
        }
    )


@functools.cache
def _table(
    do_lower_case: bool, keep_accents: bool, dropped_spaces: str
) -> _Table:
    """Returns the `_Table` of a folding; arguments as in `make_fold`."""
    spaces = {
        ord(space): "" if space in dropped_spaces else " "
        for space in _WHITE_SPACE
    }
    replaced = {}
    for code_point in itertools.chain(*_FOLDED):
        character = chr(code_point)
        folded = character
        if not keep_accents:
            folded = "".join(
                each
                for each in unicodedata.normalize("NFKD", character)
                if not unicodedata.category(each).startswith("M")
            )
        if do_lower_case:
            # One by one, so that a sigma never counts as a final one.
            folded = "".join(map(str.lower, folded))
        folded = folded.translate(spaces)
        if folded != character:
            replaced[code_point] = tuple(map(ord, folded))
    return _Table(replaced)


@functools.cache
def _replacers(charsmap, do_lower_case, keep_accents):
    """Returns what normalises characters, in order."""
    folded = {}
    for code_point in itertools.chain(*_FOLDED):
        normal = chr(code_point)
        if not keep_accents:
            normal = "".join(
                each
                for each in unicodedata.normalize("NFKD", normal)
                if not unicodedata.category(each).startswith("M")
            )
        if do_lower_case:
            normal = "".join(map(str.lower, normal))
        if normal != chr(code_point):
            folded[chr(code_point)] = normal
    changed = sentencepiece_model.changed_characters(charsmap)
    return characters.Replacer(folded), characters.Replacer(changed)


def read(folder: str, settings: dict[str, Any]) -> UnigramSpec:
    """Reads the tokenizer of a folder.

    Args:
        folder: The folder.
        settings: The contents of its tokenizer_config.json.

    Raises:
        ValueError: If a file is missing, damaged, or asks for what is not
            supported; the message names the file.
    """
    found = unigram_files.read(folder, settings)
    with files.errors_named(found.path):
        return from_model(
            found.model,
            found.tokenizer_class,
            do_lower_case=found.do_lower_case,
            keep_accents=found.keep_accents,
            path=found.path,
        )


def from_model(
    model: sentencepiece_model.Model,
    tokenizer_class: str,
    *,
    do_lower_case: bool,
    keep_accents: bool,
    path: str | None = None,
) -> UnigramSpec:
    """Returns the spec of a tokenizer.

    Args:
        model: The pieces in the order of their ids.
        tokenizer_class: As in `UnigramSpec`.
        do_lower_case: Likewise.
        keep_accents: Likewise.
        path: The file of the pieces, if any.

    Raises:
        ValueError: If the pieces make no vocabulary, or a score is not a
            finite float32.
    """
    for piece in model.pieces:
        # In this form the check also refuses NaN.
        if not abs(piece.score) <= _LARGEST_SCORE:
            raise ValueError(
                f"the score of {files.shortened(piece.text)} must be a finite "
                f"32-bit number. Received: {piece.score}."
            )
    special = unigram_files.SPECIAL[tokenizer_class]
    model = unigram_files.typed(model, special)
    vocabulary = Vocabulary(
        tokens=tuple(piece.text for piece in model.pieces),
        path=path,
        special=special,
        is_wordpiece=False,
    )
    return UnigramSpec(
        vocabulary=vocabulary,
        model=sentencepiece_model.serialize(model),
        tokenizer_class=tokenizer_class,
        do_lower_case=do_lower_case,
        keep_accents=keep_accents,
    )
