r"""google-research/bert's tokenizer, as TensorFlow operations.

Every step works on a whole batch of strings, so that the same graph runs
eagerly, inside tf.data and in a SavedModel:

    clean      drop invalid bytes, controls, formats and U+FFFD
    lower      lower-case, decompose (NFD), drop the accents (Mn)
    split      at white space, around punctuation and around CJK ideographs
    pieces     greedy longest match in the vocabulary

The regular expressions are RE2's, whose categories (Unicode 15) agree with
Unicode 14 on every code point that the latter assigns.
"""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.text import offsets as offsets_lib
from bert_tf.text import sharing
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import characters
from bert_tf.text.tokenizers import text_ops
from bert_tf.text.tokenizers import token_finder
from bert_tf.text.tokenizers import tokenizer_classes
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.tokenizer import Tokenizer

MAX_CHARS_PER_WORD = 200
_MAX_BYTES_PER_CHAR = 4

# Tab, newline and carriage return are white space; all other controls go.
_DROPPED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]+"
# White space beyond ASCII's: category Zs, and the line and paragraph
# separators, at which the original's str.split() splits.
_WHITE_SPACE = (
    r"[\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]"
)
IDEOGRAPHS = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}"
    r"\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}"
    r"\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)
# The original sets spaces around ideographs before it lower-cases, and around
# punctuation after. Here one pass does both: no decomposition leads into or out
# of either class.
PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"
_STANDS_ALONE = f"[{PUNCTUATION}{IDEOGRAPHS}]"

# Letters of Unicode 13 and 14, which the ICU under tf.strings.lower (Unicode
# 12) does not know: (first, last, distance to the lower-case letter).
_NEW_CAPITALS = (
    (0x2C2F, 0x2C2F, 0x30),
    (0xA7C0, 0xA7C0, 1),
    (0xA7D0, 0xA7D0, 1),
    (0xA7D6, 0xA7D6, 1),
    (0xA7D8, 0xA7D8, 1),
    (0x10570, 0x1057A, 0x27),
    (0x1057C, 0x1058A, 0x27),
    (0x1058C, 0x10592, 0x27),
    (0x10594, 0x10595, 0x27),
)
# The context of a final sigma (Unicode 14, section 3.13): letters that have
# case, and characters that are looked past. ICU's tables are too old for these,
# too.
_CASED = (
    r"[\p{Lu}\p{Ll}\p{Lt}\x{aa}\x{ba}\x{2160}-\x{217f}\x{24b6}-\x{24e9}"
    r"\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}]"
)
_CASE_IGNORABLE = (
    r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:\x{b7}\x{387}\x{55f}\x{5f4}\x{2018}"
    r"\x{2019}\x{2024}\x{2027}\x{fe13}\x{fe52}\x{fe55}\x{ff07}\x{ff0e}"
    r"\x{ff1a}]"
)
# NFD sorts each run of combining marks, in quadratic time. So the accents (Mn)
# that it moves are dropped before. Accents of combining class 0 separate the
# marks around them, and are dropped after. These ranges hold all accents of
# class 0 and no other accents.
_UNMOVED_ACCENTS = """
    34f 7a6-7b0 900-93a 941-948 955-981 9c1-9c4 9e2-9e3 a01-a02 a41-a4c a51-a82
    ac1-ac8 ae2-b01 b3f-b44 b55-bc0 c00-c04 c3e-c4c c62-c81 cbf-ccc ce2-d01
    d41-d44 d62-d81 dd2-e37 e47 e4c-eb7 ebb-ebc ecc-ece f76-f79 f7e f8d-fbc
    102d-1036 103d-1086 109d 1712-1713 1732-17d1 17d3 180b-1886 1920-1932
    1a1b-1a5e 1a62-1a74 1b00-1b03 1b36-1b42 1b80-1ba9 1bac-1bad 1be8-1c36 a802
    a80b-a826 a8c5 a8ff-a92a a947-a982 a9b6-aa7c aaec-aaed abe5-abe8 fe00-fe0f
    10a01-10a0c 10a0e 11001-11045 11073-11074 11080-110b6 110c2 11127-11132
    11180-111c9 111cb-11234 11237-112e8 11300-11301 11340 11438-1143f
    11443-11444 114b3-114c0 115b2-115bd 115dc-1163d 11640-116b5 1171d-1172a
    1182f-11837 1193b-1193c 119d4-119db 11a01-11a33 11a35-11a3e 11a51-11a98
    11c30-11c3d 11c92-11d41 11d43 11d47-11d95 11ef3-11f40 13440-13455
    16f4f-1bc9d 1cf00-1cf46 1da00-1daaf e0100-e01ef
"""
# Marks that NFD moves and that are no accents. If a run of them is too long for
# a known word, a mark of class 0 breaks it up.
_MOVED_MARKS = """
    897 1715 1734 1b44 1baa 1bf2-1bf3 302e-302f a953 a9c0 10d69-10d6d 111c0
    11235 1134d 113ce-113d0 116b6 1193d 11f41 1612f 16ff0-16ff1 1d165-1d166
    1d16d-1d172 1e5ee-1e5ef
"""


def _code_points(ranges):
    """Returns hexadecimal ranges in the syntax of a character class."""
    return "".join(re.sub(r"\w+", r"\\x{\g<0>}", ranges).split())


_MOVED_ACCENT = rf"[^\P{{Mn}}{_code_points(_UNMOVED_ACCENTS)}]+"
_MARKS_OF_UNKNOWN = (
    rf"[{_code_points(_MOVED_MARKS)}]{{{MAX_CHARS_PER_WORD + 1}}}"
)
# Texts that match take the fast way. The others are not valid UTF-8 or, for a
# tokenizer that lower-cases, have a capital from above or a sigma.
_VALID = r"[^\x{d800}-\x{dfff}]*"
_PLAIN = r"[ -~]*"
_VALID_AND_KNOWN = (
    r"[^\x{d800}-\x{dfff}\x{3a3}"
    + "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b, _ in _NEW_CAPITALS)
    + "]*"
)


@dataclasses.dataclass(frozen=True)
class WordpieceSpec:
    """What a `WordpieceTokenizer` is made of: a `tokenizer.Spec`.

    Args:
        vocabulary: A `Vocabulary`.
        do_lower_case: Lower-case the text and drop its accents; must suit the
            vocabulary.
        fast: Use `text.FastBertTokenizer`, which is several times faster but
            differs: it case-folds by NFKC ("²" becomes "2", "ß" "ss", "…" three
            full stops), turns controls into spaces and keeps U+FFFD, and words
            of more than 100 bytes are unknown.
        added_tokens: What is looked for in texts besides the model's own five
            special tokens, and those of the five that differ from the kind's
            default (`added_tokens.default`). Their ids are the vocabulary's.
        max_chars_per_word: Longer words are unknown: 200 in
            google-research/bert, 100 in most files of Hugging Face. A `fast`
            tokenizer does not obey it.
        tokens_in_text: Which tokens are found in texts: "none", "added" (the
            added ones) or "all" (the model's own five special tokens, too).

    Raises:
        ValueError: If `do_lower_case` contradicts the vocabulary (see
            `vocabulary.check_case`).
    """

    vocabulary: vocabulary_lib.Vocabulary
    do_lower_case: bool = True
    fast: bool = False
    added_tokens: tuple[added_tokens_lib.AddedToken, ...] = ()
    max_chars_per_word: int = MAX_CHARS_PER_WORD
    tokens_in_text: str = added_tokens_lib.ADDED

    def __post_init__(self):
        vocabulary_lib.check_case(self.vocabulary, self.do_lower_case)
        tokens = added_tokens_lib.without_defaults(
            self.added_tokens, self.vocabulary.special, is_wordpiece=True
        )
        object.__setattr__(self, "added_tokens", tokens)
        added_tokens_lib.check_choice(self.tokens_in_text)

    @property
    def tokenizer_class(self) -> str:
        return tokenizer_classes.of_wordpiece(self.vocabulary.special)

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"fast": self.fast}
        if self.max_chars_per_word != MAX_CHARS_PER_WORD:
            settings["max_chars_per_word"] = self.max_chars_per_word
        return settings | added_tokens_lib.settings(
            self.added_tokens, self.tokens_in_text
        )

    @property
    def folder_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"tokenize_chinese_chars": True}
        if self.vocabulary.special.second_segment == 0:
            # Without segments, transformers gives a model zeros.
            settings["model_input_names"] = ["input_ids", "attention_mask"]
        return settings

    @property
    def vocabulary_files(self) -> dict[str, str | bytes]:
        apart = added_tokens_lib.apart(self.added_tokens)
        return {"vocab.txt": self.vocabulary.to_text(left_out=apart)}

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        apart = added_tokens_lib.apart(self.added_tokens)
        return tokenizer_json.make(
            self.vocabulary,
            self.added_tokens,
            normalizer={
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": bool(self.do_lower_case),
            },
            pre_tokenizer={"type": "BertPreTokenizer"},
            decoder={
                "type": "WordPiece",
                "prefix": vocabulary_lib.CONTINUATION,
                "cleanup": True,
            },
            model={
                "type": "WordPiece",
                "unk_token": vocabulary_lib.UNK_TOKEN,
                "continuing_subword_prefix": vocabulary_lib.CONTINUATION,
                "max_input_chars_per_word": self.max_chars_per_word,
                "vocab": {
                    token: index
                    for index, token in enumerate(self.vocabulary.tokens)
                    if token.strip() and token not in apart
                },
            },
        )

    def make(self) -> Tokenizer:
        tokenizer = WordpieceTokenizer(self)
        normalizer = token_finder.Normalizer(
            tokenizer.normalize, _PLAIN, self.do_lower_case
        )
        return token_finder.with_tokens(tokenizer, normalizer)

    @functools.cached_property
    def _starts_word(self):
        continuation = vocabulary_lib.CONTINUATION
        tokens = self.vocabulary.tokens
        added = {token.content for token in self.added_tokens}
        return np.array(
            [
                not token.startswith(continuation) or token in added
                for token in tokens
            ]
        )

    def starts_word(self, ids: tf.Tensor) -> tf.Tensor:
        # The id alone tells it: no entry both starts and continues words.
        return tf.gather(self._starts_word, ids)

    def spell(self, tokens: tf.Tensor) -> tf.Tensor:
        apart = tf.strings.regex_replace(tokens, "^", " ")
        joined = rf"^ {vocabulary_lib.CONTINUATION}(.)"
        spelled = tf.strings.regex_replace(apart, joined, r"\1")
        # No word is split into these, whatever they begin with.
        added = [
            token.content
            for token in self.added_tokens
            if token.content.startswith(vocabulary_lib.CONTINUATION)
        ]
        for token in added:
            spelled = tf.where(tf.equal(tokens, token), apart, spelled)
        return spelled


class WordpieceTokenizer(tf.Module):
    """Strings to WordPiece ids, equal to google-research/bert's tokenizer.

    Special tokens written in the text ("[SEP]") are text like any other, as
    in the original, and so are added ones, which a `FindingTokenizer` finds
    before. Bytes that are not UTF-8 are dropped.

    Args:
        spec: The `WordpieceSpec`.

    Raises:
        ValueError: If `fast` is set and no entry of the vocabulary can be a
            piece of a text.
    """

    def __init__(self, spec: WordpieceSpec) -> None:
        super().__init__(name="wordpiece_tokenizer")
        self.spec = spec
        self.vocabulary = spec.vocabulary
        # The operations only run on the CPU: keep their model there.
        with tf.device("CPU:0"):
            if spec.fast:
                self._bert_tokenizer = _make_fast(spec)
            else:
                self._word_tokenizer = make_splitter(_pieces(spec))

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]`; for a flat list
            of pieces, `.merge_dims(1, 2)`.
        """
        if self.spec.fast:
            return self._tokenize_fast(texts)
        words = self._without_long(self.split_words(texts))
        pieces = self._word_tokenizer.tokenize(words)
        return pieces.with_flat_values(self._vocabulary_ids(pieces.flat_values))

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, offsets_lib.Offsets]:
        """Returns what `tokenize` does, and where the pieces come from.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]` and `Offsets`. An
            unknown word is one piece with the range of the word.

        Raises:
            ValueError: If the tokenizer is `fast`.
        """
        if self.spec.fast:
            raise ValueError(
                "`fast` must be False for a tokenizer that returns offsets. "
                "Received: fast=True."
            )
        words = self.split_words(texts)
        pieces, starts, limits = self._word_tokenizer.tokenize_with_offsets(
            self._without_long(words)
        )
        is_unknown = self._is_unknown(pieces.flat_values)
        word_limits = tf.gather(
            tf.cast(tf.strings.length(words.flat_values), limits.dtype),
            pieces.values.value_rowids(),
        )
        limits = limits.with_flat_values(
            tf.where(is_unknown, word_limits, limits.flat_values)
        )
        offsets = offsets_lib.locate(
            texts,
            words,
            starts,
            limits,
            _normalizer(self.spec.do_lower_case),
        )
        ids = pieces.with_flat_values(self._vocabulary_ids(pieces.flat_values))
        return ids, offsets

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns texts of the pieces: words with single spaces between.

        Case, accents and spacing of the original text are lost: to cite it, use
        the offsets.

        Args:
            ids: RaggedTensor int32 `[batch, (pieces)]` or
                `[batch, (words), (pieces)]`.

        Returns:
            string `[batch]`.
        """
        if ids.shape.rank == 3:
            ids = ids.merge_dims(1, 2)
        tokens = tf.constant(self.vocabulary.tokens)
        # The mark alone adds nothing to a word. (`spell` keeps it: as a
        # prediction for a mask it is shown as it is.)
        is_mark = tf.equal(tokens, vocabulary_lib.CONTINUATION)
        spelled = tf.where(is_mark, "", self.spec.spell(tokens))
        pieces = ids.with_flat_values(tf.gather(spelled, ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.regex_replace(texts, "^ ", "")

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[batch, (words)]`."""
        return split_words(texts, self.spec.do_lower_case)

    def for_words(self) -> "WordpieceTokenizer":
        """Returns this tokenizer: it spells a word alike wherever it stands."""
        return self

    def normalize(self, texts: tf.Tensor) -> token_finder.Normal:
        """Returns the characters of valid texts in which tokens are found.

        They are normalised as by `tokenizers`, which separates punctuation
        afterwards.

        Args:
            texts: string `[batch]`.
        """
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        rows = decoded.value_rowids()
        code_points, sources = _replacer(self.spec.do_lower_case).replace(
            decoded.flat_values, rows
        )
        return token_finder.Normal(
            decoded, code_points, tf.gather(rows, sources), sources
        )

    def _tokenize_fast(self, texts):
        pieces = self._bert_tokenizer.tokenize(texts)
        ids = self._vocabulary_ids(pieces.flat_values)
        starts_word = self.spec.starts_word(ids)
        words = tf.RaggedTensor.from_row_starts(
            ids, tf.where(starts_word)[:, 0], validate=False
        )
        num_words = tf.cumsum(tf.cast(starts_word, tf.int64))
        num_words = tf.concat([[0], num_words], axis=0)
        return tf.RaggedTensor.from_row_splits(
            words, tf.gather(num_words, pieces.row_splits), validate=False
        )

    def _without_long(self, words):
        """Replaces words of too many characters by the unknown token."""
        is_long = (
            tf.strings.length(words.flat_values, unit="UTF8_CHAR")
            > self.spec.max_chars_per_word
        )
        # No word of text is "[UNK]", since brackets stand alone.
        return words.with_flat_values(
            tf.where(is_long, vocabulary_lib.UNK_TOKEN, words.flat_values)
        )

    def _vocabulary_ids(self, ids):
        unk_id = self.vocabulary.unk_id
        ids_after_unk = ids + tf.cast(ids >= unk_id, ids.dtype)
        return tf.where(self._is_unknown(ids), unk_id, ids_after_unk)

    def _is_unknown(self, ids):
        return tf.equal(ids, len(self.vocabulary) - 1)


def make_splitter(tokens: Iterable[str]) -> Any:
    """Returns a `FastWordpieceTokenizer`: words to int32, by longest pieces.

    Args:
        tokens: The entries. The ids are their places in `unknown_last`.
    """
    return text_ops.tensorflow_text().FastWordpieceTokenizer(
        unknown_last(tokens),
        token_out_type=tf.int32,
        no_pretokenization=True,
        max_bytes_per_word=MAX_CHARS_PER_WORD * _MAX_BYTES_PER_CHAR,
    )


def _pieces(spec):
    """Returns the entries, with others for those that no word is to match.

    tensorflow_text takes no entries that are blank or there twice. Of the
    latter, the last one counts, as in google-research/bert.
    """
    tokens = spec.vocabulary.tokens
    apart = added_tokens_lib.apart(spec.added_tokens)
    last = {token: index for index, token in enumerate(tokens)}
    # No word has a space.
    return [
        token
        if token.strip() and last[token] == index and token not in apart
        else f" {index}"
        for index, token in enumerate(tokens)
    ]


def unknown_last(tokens: Iterable[str]) -> list[str]:
    """Returns the entries in order, but with the unknown token at the end.

    The builder of tensorflow_text 2.20.0 finds it only there (tensorflow/text
    issue 1462). `WordpieceTokenizer._vocabulary_ids` undoes the shift.
    """
    unknown = vocabulary_lib.UNK_TOKEN
    return [*(token for token in tokens if token != unknown), unknown]


def _make_fast(spec):
    tf_text = text_ops.tensorflow_text()
    tokens = unknown_last(_pieces(spec))
    try:
        return tf_text.FastBertTokenizer(
            tokens,
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=spec.do_lower_case,
        )
    except RuntimeError as error:
        raise ValueError(
            "`vocabulary` must have an entry that is a word or a piece of one, "
            "beside special tokens, for a tokenizer that is fast. "
            f"Received: {len(tokens)} entries ({error})"
        ) from error


def split_words(texts: tf.Tensor, do_lower_case: bool) -> tf.RaggedTensor:
    """Normalises texts and splits them into words.

    Args:
        texts: string `[batch]`, UTF-8.
        do_lower_case: Whether to lower-case and to drop the accents.

    Returns:
        RaggedTensor string `[batch, (words)]`: words, punctuation marks and
        ideographs, none of them empty.
    """
    return tf.strings.split(_normalizer(do_lower_case)(texts))


@functools.cache
def _normalizer(do_lower_case):
    """Returns `_normalize` as a function of texts that graphs share."""
    return sharing.shared(lambda texts: _normalize(texts, do_lower_case))


def _normalize(texts, do_lower_case):
    """Cleans the texts and puts spaces where words are to be split."""
    ordinary = tf.reduce_all(
        tf.strings.regex_full_match(
            texts, _VALID_AND_KNOWN if do_lower_case else _VALID
        )
    )
    texts = tf.cond(
        ordinary, lambda: texts, lambda: _normalize_rare(texts, do_lower_case)
    )
    texts = tf.strings.regex_replace(texts, _DROPPED, "")
    texts = tf.strings.regex_replace(texts, _WHITE_SPACE, " ")
    if do_lower_case:
        # ASCII first: ICU lower-cases by the machine's locale, and in a Turkish
        # one "I" becomes a letter without a dot. Its other rules by locale only
        # concern accents, which are dropped.
        texts = tf.strings.lower(texts)
        texts = tf.strings.lower(texts, encoding="utf-8")
        texts = tf.strings.regex_replace(texts, _MOVED_ACCENT, "")
        texts = tf.strings.regex_replace(texts, _MARKS_OF_UNKNOWN, "\\0\u034f")
        texts = text_ops.tensorflow_text().normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}+", "")
    return tf.strings.regex_replace(texts, _STANDS_ALONE, r" \0 ")


# Beyond are no characters that are replaced.
_REPLACED = (range(0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE01F0))
_IDEOGRAPH = re.compile(
    re.sub(
        r"\\x{(.*?)}", lambda found: chr(int(found[1], 16)), f"[{IDEOGRAPHS}]"
    )
)


@functools.cache
def _replacer(do_lower_case):
    """Returns what normalises characters, each alone."""
    replaced = {}
    for code_point in itertools.chain(*_REPLACED):
        character = chr(code_point)
        normal = _normal_form(character, do_lower_case)
        if normal != character:
            replaced[character] = normal
    return characters.Replacer(replaced)


def _normal_form(character, do_lower_case):
    category = unicodedata.category(character)
    if character in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    if category in ("Cc", "Cf") or character == "\ufffd":
        return ""
    normal = character
    if do_lower_case:
        decomposed = unicodedata.normalize("NFD", character)
        normal = "".join(
            each.lower()
            for each in decomposed
            if unicodedata.category(each) != "Mn"
        )
    is_ideograph = _IDEOGRAPH.fullmatch(character)
    return f" {normal} " if is_ideograph else normal


def _normalize_rare(texts, do_lower_case):
    """Drops invalid bytes, and lower-cases what ICU would get wrong."""
    if not do_lower_case:
        return tf.strings.unicode_transcode(
            texts, "UTF-8", "UTF-8", errors="ignore"
        )
    code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
    flat = code_points.flat_values
    for first, last, distance in _NEW_CAPITALS:
        is_capital = (flat >= first) & (flat <= last)
        flat = tf.where(is_capital, flat + distance, flat)
    texts = tf.strings.unicode_encode(
        code_points.with_flat_values(flat), "UTF-8"
    )
    # What is dropped later must not separate a sigma from its context now.
    texts = tf.strings.regex_replace(texts, _DROPPED, "")
    return _lower_sigma(texts)


def _lower_sigma(texts):
    """Lower-cases Σ: ς after a cased letter and before none, otherwise σ."""
    # A match takes the letter that follows, which may be a Σ too: the second
    # pass finds those.
    for _ in range(2):
        texts = tf.strings.regex_replace(
            texts, f"Σ({_CASE_IGNORABLE}*{_CASED})", r"σ\1"
        )
    texts = tf.strings.regex_replace(
        texts, f"({_CASED}{_CASE_IGNORABLE}*)Σ", r"\1ς"
    )
    return tf.strings.regex_replace(texts, "Σ", "σ")
