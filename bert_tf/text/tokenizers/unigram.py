r"""SentencePiece's unigram tokenizer, of ALBERT and XLM-RoBERTa.

    fold      ALBERT alone: join quotes, decompose (NFKD), drop marks (M),
              lower-case
    normalise by the model's own table of characters
    split     at white space, and before each mark of a word's beginning
    pieces    the likeliest of each word, by tensorflow_text's kernel

The ids are those of Hugging Face's `tokenizers`, except for

- a special token written in the text, which is text like any other here;
- marks and compatibility letters that are newer than its Unicode tables (some
  380 in Unicode 14), which it does not fold for ALBERT.

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

from bert_tf import messages
from bert_tf.text import offsets as offsets_lib
from bert_tf.text import sharing
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import characters
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import text_ops
from bert_tf.text.tokenizers import token_finder
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers import words as words_lib
from bert_tf.text.tokenizers.sentencepiece_model import SPACE
from bert_tf.text.tokenizers.tokenizer import Tokenizer
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

# Unicode's property White_Space.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_NUM_MARK_BYTES = len(SPACE.encode())
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
# {step of `unigram_files.CLEANUP`: what it replaces, and by what}
_CLEANUP = {
    "strip": (f"[{words_lib.WHITE_SPACE}]+$", ""),
    "join": (" {2,}", " "),
    "mark": (" {2,}", SPACE),
}
# The ranges of characters that folding may change; a test checks the rest.
_FOLDED = (range(0xD800), range(0xE000, 0x32000), range(0xE0100, 0xE01F0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnigramSpec:
    """What a `UnigramTokenizer` is made of: a `tokenizer.Spec`.

    Args:
        vocabulary: A `Vocabulary` that is not a WordPiece file's.
        model: A SentencePiece model whose pieces are the vocabulary, in its
            order: what `sentencepiece_model.serialize` returns.
        tokenizer_class: "AlbertTokenizer", "CamembertTokenizer", or for all
            other tokenizers "XLMRobertaTokenizer".
        do_lower_case: Whether texts are lower-cased; False for XLM-RoBERTa.
        keep_accents: Whether accents are kept, and characters not decomposed;
            True for XLM-RoBERTa.
        splits_at_white_space: Whether all white space separates words;
            otherwise only spaces do, and of each but the first of several
            remains a piece.
        cleanup: What is done to spaces before: see `unigram_files.CLEANUP`.
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
    splits_at_white_space: bool = True
    cleanup: tuple[str, ...] = ()
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
        special = self.vocabulary.special
        # Those of released models are not named, as in older manifests.
        others = {
            "splits_at_white_space": (self.splits_at_white_space, True),
            "cleanup": (list(self.cleanup), []),
            "special": (
                dataclasses.asdict(special),
                dataclasses.asdict(unigram_files.SPECIAL[self.tokenizer_class]),
            ),
        }
        return {
            "model_sha256": hashlib.sha256(self.model).hexdigest(),
            "keep_accents": self.keep_accents,
            **{
                name: value
                for name, (value, default) in others.items()
                if value != default
            },
            **added_tokens_lib.settings(self.added_tokens, self.tokens_in_text),
        }

    @property
    def folder_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        is_standard = self.splits_at_white_space and not self.cleanup
        if not is_standard or not unigram_files.is_standard(
            self.tokenizer_class, self.vocabulary
        ):
            # transformers would make the class's own tokenizer of the pieces.
            settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        if self.joins_quotes:
            settings["keep_accents"] = self.keep_accents
        return settings

    @property
    def vocabulary_files(self) -> dict[str, str | bytes]:
        if not unigram_files.is_standard(self.tokenizer_class, self.vocabulary):
            return {}
        return unigram_files.vocabulary_files(self.tokenizer_class, self.model)

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        space = {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "always",
            "split": True,
        }
        splits = [{"type": "WhitespaceSplit"}] * self.splits_at_white_space
        pieces, charsmap = sentencepiece_model.parse(self.model)
        steps = unigram_files.normalizer_steps(
            joins_quotes=self.joins_quotes,
            keep_accents=self.keep_accents,
            do_lower_case=self.do_lower_case,
            charsmap=charsmap,
            cleanup=self.cleanup,
        )
        apart = added_tokens_lib.apart(self.added_tokens)
        return tokenizer_json.make(
            self.vocabulary,
            self.added_tokens,
            normalizer={"type": "Sequence", "normalizers": steps},
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [*splits, space],
            },
            decoder=space,
            model={
                "type": "Unigram",
                "unk_id": self.vocabulary.unk_id,
                "vocab": [
                    [piece.text, piece.score]
                    for piece in pieces
                    if piece.text not in apart
                ],
                "byte_fallback": False,
            },
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
        return token_finder.starts_word(self, self._starts_word, ids)

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
        self._model = sentencepiece_model.serialize(
            _with_exact_sums(model), is_normalized=True
        )
        # Words are split at the marks of a text if it may have some.
        replaced = sentencepiece_model.replacements(
            model.charsmap, characters.MAX_CLUSTER_BYTES
        )
        normal = {SPACE: SPACE} | replaced
        self._has_marks = bool(spec.cleanup) or SPACE in "".join(
            normal.values()
        )
        self._has_marks |= not spec.splits_at_white_space
        joins = spec.splits_at_white_space and not self._has_marks
        self._replacers = [_normalization(model.charsmap, joins)]
        if spec.do_lower_case or not spec.keep_accents:
            folding = _folding(spec.do_lower_case, spec.keep_accents)
            self._replacers.insert(0, folding)
        # What is no part of a word: a mark begins one.
        spaces = _WHITE_SPACE if spec.splits_at_white_space else " "
        self._spaces = np.array([ord(SPACE), *map(ord, spaces)], np.int32)
        self._has_plain = not any(
            character.isascii() and character.isprintable()
            for character in replaced
        )
        self._normal = sharing.shared(self._normalized)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]`; for a flat list
            of pieces, `.merge_dims(1, 2)`.
        """
        words = self._words(texts)
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
        words = self._words(texts)
        pieces, starts, limits = self._kernel().tokenize_with_offsets(
            words.flat_values
        )
        normal = self.normalize(texts)
        first, last = self._sources(
            normal, words, pieces, starts.flat_values, limits.flat_values
        )
        row_splits = tf.cast(normal.characters.row_splits, tf.int32)
        row = tf.gather(words.value_rowids(), pieces.value_rowids())
        text_start = tf.gather(row_splits, row)
        limit = tf.minimum(
            tf.gather(offsets_lib.next_unmarked(_is_dropped(normal)), last),
            tf.gather(row_splits, row + 1),
        )
        ids = self._by_words(words, pieces)
        return ids, offsets_lib.in_bytes(
            ids, first - text_start, limit - text_start, texts
        )

    def _sources(self, normal, words, pieces, starts, limits):
        """Returns the first and the last character that each piece is from.

        Args:
            normal: The texts as `Normal`.
            words: RaggedTensor string `[batch, (words)]`, with their marks.
            pieces: RaggedTensor `[words, (pieces)]`.
            starts: Where each piece begins, in bytes of its word.
            limits: Where it ends.

        Returns:
            int32 each, indices of `normal.characters.flat_values`.
        """
        # The character of each byte of all words, without spaces and marks.
        is_word = ~tf.reduce_any(
            normal.code_points[:, tf.newaxis] == self._spaces, axis=1
        )
        num_bytes = offsets_lib.utf_8_length(
            tf.boolean_mask(normal.code_points, is_word)
        )
        sources = tf.repeat(tf.boolean_mask(normal.sources, is_word), num_bytes)
        num_in_row = tf.math.unsorted_segment_sum(
            num_bytes, tf.boolean_mask(normal.rows, is_word), words.nrows()
        )

        # Where each word is among them. More may follow the last word of a
        # text: white space that has been stripped.
        length = tf.strings.length(words.flat_values) - _NUM_MARK_BYTES
        num_before = tf.cumsum(tf.concat([length, [0]], axis=0), exclusive=True)
        row_starts = tf.cumsum(num_in_row, exclusive=True)
        skipped = row_starts - tf.gather(num_before, words.row_starts())
        word = pieces.value_rowids()
        row = tf.gather(words.value_rowids(), word)
        place = tf.gather(num_before, word) + tf.gather(skipped, row)

        # A word that is only its mark is the space behind the word before.
        row_splits = tf.cast(normal.characters.row_splits, tf.int32)
        before = tf.gather(tf.concat([[-1], sources], axis=0), place)
        space = tf.clip_by_value(
            before + 1,
            tf.gather(row_splits, row),
            tf.gather(row_splits, row + 1) - 1,
        )
        # The mark of another word is its first character.
        is_space = tf.gather(length, word) == 0
        start = tf.maximum(tf.cast(starts, tf.int32) - _NUM_MARK_BYTES, 0)
        end = tf.cast(limits, tf.int32) - _NUM_MARK_BYTES - 1
        sources = tf.concat([sources, [0]], axis=0)
        first, last = (
            tf.where(is_space, space, tf.gather(sources, place + where))
            for where in (start, tf.where(is_space, 0, tf.maximum(end, start)))
        )
        return first, last

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

        They are folded and normalised.
        """
        words = self._words(texts)
        return words.with_flat_values(
            tf.strings.regex_replace(words.flat_values, f"^{SPACE}", "")
        )

    def _words(self, texts):
        """Returns the words, which begin with marks: `[batch, (words)]`."""
        texts = self._normal(texts)
        if not self._has_marks:
            words = tf.strings.split(texts)
            return words.with_flat_values(
                tf.strings.join([SPACE, words.flat_values])
            )
        if self.spec.splits_at_white_space:
            texts = tf.strings.regex_replace(
                texts, f"[{words_lib.WHITE_SPACE}]+", " "
            )
            texts = tf.strings.strip(texts)
            texts = tf.strings.regex_replace(texts, "^(.)", r" \1")
            # Words that begin with a mark get no other.
            texts = tf.strings.regex_replace(texts, f" {SPACE}?", SPACE)
        else:
            texts = tf.strings.regex_replace(texts, " ", SPACE)
            texts = tf.strings.regex_replace(
                texts, f"(?s)^([^{SPACE}])", rf"{SPACE}\1"
            )
        texts = tf.strings.regex_replace(
            texts, SPACE, words_lib.END + SPACE.encode()
        )
        return tf.strings.split(texts, words_lib.END)[:, 1:]

    def _normalized(self, texts):
        """Returns the texts folded and normalised."""
        texts = words_lib.valid(texts)
        normal = functools.partial(self._normal_texts, texts)
        if not self._has_plain:
            texts = normal()
        else:
            texts = tf.cond(
                tf.reduce_all(tf.strings.regex_full_match(texts, _PLAIN)),
                functools.partial(self._plain_texts, texts),
                normal,
            )
        for step in self.spec.cleanup:
            texts = tf.strings.regex_replace(texts, *_CLEANUP[step])
        return texts

    def _plain_texts(self, texts):
        """Returns texts of printable ASCII normalised."""
        if self.spec.joins_quotes:
            texts = tf.strings.regex_replace(texts, _QUOTES, '"')
        return tf.strings.lower(texts) if self.spec.do_lower_case else texts

    def _normal_texts(self, texts):
        normal = self.normalize(texts)
        return _encoded(normal.code_points, normal.rows, tf.size(texts))

    def normalize(self, texts: tf.Tensor) -> token_finder.Normal:
        """Returns the characters of texts, folded and normalised.

        Args:
            texts: string `[batch]`, UTF-8.
        """
        decoded = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        code_points, rows = decoded.flat_values, decoded.value_rowids()
        sources = tf.range(tf.size(code_points))
        if self.spec.joins_quotes:
            is_second = _is_second_quote(code_points, rows)
            is_first = tf.concat([is_second[1:], [False]], axis=0)
            is_first = is_first[: tf.size(code_points)]
            code_points = tf.where(is_first, ord('"'), code_points)
            code_points, rows, sources = (
                tf.boolean_mask(values, ~is_second)
                for values in (code_points, rows, sources)
            )
        for replacer in self._replacers:
            code_points, places = replacer.replace(code_points, rows)
            rows, sources = tf.gather(rows, places), tf.gather(sources, places)
        return token_finder.Normal(decoded, code_points, rows, sources)

    @property
    def plain(self) -> str | None:
        """As in `token_finder.Normalizer`."""
        if not self._has_plain:
            return None
        return _NO_QUOTES if self.spec.joins_quotes else _PLAIN

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
        tf_text = text_ops.tensorflow_text()
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


def _encoded(code_points, rows, num_rows):
    """Returns strings `[N]` of the characters of all texts."""
    ragged = tf.RaggedTensor.from_value_rowids(
        code_points, rows, tf.cast(num_rows, tf.int64), validate=False
    )
    return tf.strings.unicode_encode(ragged, "UTF-8")


def _is_dropped(normal):
    """Returns bool: marks and quotes of texts that the one before contains."""
    texts = normal.characters.flat_values
    num_left = tf.scatter_nd(
        normal.sources[:, tf.newaxis],
        tf.ones_like(normal.sources),
        tf.shape(texts),
    )
    return (num_left == 0) & (characters.is_mark(texts) | _is_quote(texts))


def _is_second_quote(code_points, rows):
    """Returns bool [N]: the second of two quotes that become one."""
    size = tf.size(code_points)
    before = tf.concat([[0], code_points], axis=0)[:size]
    is_in_row = tf.concat([[False], rows[1:] == rows[:-1]], axis=0)[:size]
    is_begin = (code_points != before) | ~is_in_row
    begin = tf.gather(
        tf.cast(tf.where(is_begin)[:, 0], tf.int32),
        tf.cumsum(tf.cast(is_begin, tf.int32)) - 1,
    )
    return _is_quote(code_points) & ((tf.range(size) - begin) % 2 == 1)


def _is_quote(code_points):
    return (code_points == ord("`")) | (code_points == ord("'"))


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
    *, do_lower_case: bool, keep_accents: bool
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that folds strings `[N]` as ALBERT does.

    Args:
        do_lower_case: As in `UnigramSpec`.
        keep_accents: Likewise.
    """
    folding = _folding(do_lower_case, keep_accents)

    def fold(texts):
        texts = words_lib.valid(texts)
        texts = tf.strings.regex_replace(texts, _QUOTES, '"')
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        rows = decoded.value_rowids()
        code_points, places = folding.replace(decoded.flat_values, rows)
        return _encoded(code_points, tf.gather(rows, places), tf.size(texts))

    return fold


@functools.cache
def _normalization(charsmap: bytes, joins: bool) -> characters.Replacer:
    """Returns what replaces characters by a model's own table.

    Args:
        charsmap: As in `sentencepiece_model.Model`.
        joins: Whether all white space that is left becomes a space.
    """
    replaced = sentencepiece_model.replacements(
        charsmap, characters.MAX_CLUSTER_BYTES
    )
    if not joins:
        return characters.Replacer(replaced)
    spaces = str.maketrans(dict.fromkeys(_WHITE_SPACE, " "))
    replaced = {key: text.translate(spaces) for key, text in replaced.items()}
    return characters.Replacer(replaced, _WHITE_SPACE)


@functools.cache
def _folding(do_lower_case: bool, keep_accents: bool) -> characters.Replacer:
    """Returns what replaces characters; arguments as in `make_fold`."""
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
        if folded != character:
            replaced[character] = folded
    return characters.Replacer(replaced)


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
    with messages.errors_named(found.path):
        return from_model(**found._asdict())


def from_model(
    model: sentencepiece_model.Model,
    tokenizer_class: str,
    *,
    do_lower_case: bool,
    keep_accents: bool,
    special: SpecialTokens | None = None,
    splits_at_white_space: bool = True,
    cleanup: tuple[str, ...] = (),
    added_tokens: tuple[added_tokens_lib.AddedToken, ...] = (),
    path: str | None = None,
) -> UnigramSpec:
    """Returns the spec of a tokenizer.

    Args:
        model: The pieces in the order of their ids.
        tokenizer_class: As in `UnigramSpec`.
        do_lower_case: Likewise.
        keep_accents: Likewise.
        special: The `SpecialTokens`; None for those of the class.
        splits_at_white_space: As in `UnigramSpec`.
        cleanup: Likewise.
        added_tokens: Likewise.
        path: The file of the pieces, if any.

    Raises:
        ValueError: If the pieces make no vocabulary, or a score is not a
            finite float32.
    """
    for piece in model.pieces:
        # In this form the check also refuses NaN.
        if not abs(piece.score) <= _LARGEST_SCORE:
            raise ValueError(
                f"the score of {messages.shortened(piece.text)} must be a "
                f"finite 32-bit number. Received: {piece.score}."
            )
    special = special or unigram_files.SPECIAL[tokenizer_class]
    model = unigram_files.typed(model, special, added_tokens)
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
        splits_at_white_space=splits_at_white_space,
        cleanup=cleanup,
        added_tokens=added_tokens,
    )
