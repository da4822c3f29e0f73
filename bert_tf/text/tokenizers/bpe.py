r"""Byte-level BPE, the tokenizer of GPT-2 and RoBERTa as TensorFlow operations.

    split    into words, numbers and punctuation, each with a space before it;
             every character of the text, even white space, is in some word
    bytes    every byte of a word is an entry of the vocabulary
    merge    among the pairs of neighbours in a word, the one that was learned
             first, everywhere in the word; again, until none is left

Follows Radford et al. 2019, section 2.2; ids and offsets are those of Hugging
Face's `tokenizers` (0.23). Every step works on all words of a batch at once and
keeps nothing between calls.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import messages
from bert_tf.text import offsets as offsets_lib
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers import nfc as nfc_lib
from bert_tf.text.tokenizers import token_finder
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers import words as words_lib
from bert_tf.text.tokenizers.tokenizer import Tokenizer
from bert_tf.text.tokenizers.words import END
from bert_tf.text.tokenizers.words import WHITE_SPACE
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY_FILE = bpe_files.VOCABULARY_FILE
MERGES_FILE = bpe_files.MERGES_FILE

# Letters and numbers of Unicode 15.1 and 16, which `tokenizers` knows and RE2
# (Unicode 15) does not.
_LETTER = (
    r"\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}"
    r"\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}\x{10d6f}-\x{10d85}"
    r"\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}\x{1138b}\x{1138e}"
    r"\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}"
    r"\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}"
    r"\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
_NUMBER = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}"
    r"\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}"
    r"\x{1e5f1}-\x{1e5fa}"
)
# GPT-2's expression looks ahead to leave the last white space before a word to
# that word. RE2 cannot look ahead, so the place is marked first.
_LAST_WHITE_SPACE = rf"([{WHITE_SPACE}])([{WHITE_SPACE}][^{WHITE_SPACE}])"
_WORD = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTER}]+| ?[{_NUMBER}]+"
    rf"| ?[^{WHITE_SPACE}{_LETTER}{_NUMBER}]+|[{WHITE_SPACE}]+"
)
# Words of more bytes are merged separately: they take many rounds.
_MAX_SHORT = 32
# Marks a symbol that was merged with the one before it.
_GONE = np.int64(-1)
# More than there are places in a batch.
_ORDERS = 1 << 32
# The most hash values that TensorFlow's operation takes.
_HASHES = (1 << 63) - 1


@dataclasses.dataclass(frozen=True)
class BpeSpec:
    """What a `BpeTokenizer` is made of: a `tokenizer.Spec`.

    Args:
        vocabulary: A `Vocabulary` with an entry for each of the 256 bytes, as
            GPT-2 writes them ("Ġ" is a space), and for every result of a
            merge.
        merges: Pairs of entries, in the order in which they were learned.
        add_prefix_space: Put a space before a text that does not begin with
            one, so that its first word is spelled like any other.
        trim_offsets: Exclude the spaces at both ends of pieces from their
            offsets.
        added_tokens: What is looked for in texts besides the model's own five
            special tokens, and those of the five that differ from the kind's
            default (`added_tokens.default`). Their ids are the vocabulary's.
        tokens_in_text: Which tokens are found in texts: "none", "added" (the
            added ones) or "all" (the model's own five special tokens, too).
        nfc: Bring texts into Unicode's NFC first, as in ModernBERT.

    Raises:
        ValueError: If an entry is missing.
    """

    vocabulary: Vocabulary
    merges: tuple[tuple[str, str], ...]
    add_prefix_space: bool = False
    trim_offsets: bool = True
    added_tokens: tuple[added_tokens_lib.AddedToken, ...] = ()
    tokens_in_text: str = added_tokens_lib.ADDED
    nfc: bool = False

    do_lower_case = False
    tokenizer_class = "RobertaTokenizer"

    def __post_init__(self):
        bpe_files.check(self.vocabulary, self.merges)
        tokens = added_tokens_lib.without_defaults(
            self.added_tokens, self.vocabulary.special, is_wordpiece=False
        )
        object.__setattr__(self, "added_tokens", tokens)
        added_tokens_lib.check_choice(self.tokens_in_text)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        text = bpe_files.merges_to_text(self.merges)
        return {
            "merges": hashlib.sha256(text.encode("utf-8")).hexdigest(),
            "add_prefix_space": self.add_prefix_space,
            **({"nfc": True} if self.nfc else {}),
            **added_tokens_lib.settings(self.added_tokens, self.tokens_in_text),
        }

    @property
    def _is_roberta(self):
        """Whether transformers' class makes it of vocab.json and merges.txt."""
        return self.vocabulary.special == ROBERTA and not self.nfc

    @property
    def folder_settings(self) -> dict[str, Any]:
        if self._is_roberta:
            return self._spaces
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
        }

    @property
    def _spaces(self):
        return {
            "add_prefix_space": self.add_prefix_space,
            "trim_offsets": self.trim_offsets,
        }

    @property
    def vocabulary_files(self) -> dict[str, str | bytes]:
        if not self._is_roberta:
            return {}
        ids = bpe_files.ids_of(self.vocabulary, self.added_tokens)
        return {
            VOCABULARY_FILE: json.dumps(ids, ensure_ascii=False) + "\n",
            MERGES_FILE: bpe_files.merges_to_text(self.merges),
        }

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        special = self.vocabulary.special
        splits = {"type": "ByteLevel", **self._spaces, "use_regex": True}
        frames = {
            "type": "RobertaProcessing",
            "sep": [special.sep, self.vocabulary.sep_id],
            "cls": [special.cls, self.vocabulary.cls_id],
            **self._spaces,
        }
        return tokenizer_json.make(
            self.vocabulary,
            self.added_tokens,
            normalizer={"type": "NFC"} if self.nfc else None,
            pre_tokenizer=splits,
            post_processor=frames if special == ROBERTA else None,
            decoder=splits,
            model={
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": bpe_files.ids_of(self.vocabulary, self.added_tokens),
                "merges": list(map(" ".join, self.merges)),
            },
        )

    def make(self) -> Tokenizer:
        normalizer = None
        if self.nfc:
            normalizer = token_finder.Normalizer(
                nfc_lib.normalize, nfc_lib.PLAIN, do_lower_case=False
            )
        return token_finder.with_tokens(
            BpeTokenizer(self), normalizer, self.trim_offsets
        )

    def __reduce__(self):
        # Without the cached properties: they hold tensors.
        values = [
            getattr(self, field.name) for field in dataclasses.fields(self)
        ]
        return type(self), tuple(values)

    @functools.cached_property
    def spellings(self) -> tuple[bytes, ...]:
        """What each entry adds to a text; special tokens are as they are."""
        apart = added_tokens_lib.apart(self.added_tokens)
        return tuple(
            token.encode() if token in apart else bpe_files.to_bytes(token)
            for token in self.vocabulary.tokens
        )

    @functools.cached_property
    def _tables(self):
        return _Tables(self)

    @functools.cached_property
    def _starts_word(self):
        added = {token.content for token in self.added_tokens}
        return np.array(
            [
                text.startswith(b" ") or token in added
                for text, token in zip(self.spellings, self.vocabulary.tokens)
            ]
        )

    def starts_word(self, ids: tf.Tensor) -> tf.Tensor:
        # As in fairseq: an entry that begins with a space. The first word of a
        # sequence follows a special token.
        return token_finder.starts_word(self, self._starts_word, ids)

    def spell(self, tokens: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(tokens, [-1])
        characters = tf.strings.unicode_decode(flat, "UTF-8")
        code_points = characters.flat_values
        bytes_of = np.full(max(map(ord, bpe_files.BYTES)) + 1, -1, np.int32)
        for character, byte in bpe_files.BYTES.items():
            bytes_of[ord(character)] = byte
        last = len(bytes_of) - 1
        found = tf.where(
            code_points > last,
            -1,
            tf.gather(bytes_of, tf.minimum(code_points, last)),
        )
        is_spelled = tf.reduce_min(characters.with_flat_values(found), axis=1)
        strings = tf.constant([bytes([byte]) for byte in range(256)])
        spelled = tf.strings.reduce_join(
            characters.with_flat_values(
                tf.gather(strings, tf.maximum(found, 0))
            ),
            axis=1,
        )
        is_bytes = is_spelled >= 0
        for token in added_tokens_lib.apart(self.added_tokens):
            # Others are as they are, anyway.
            if bpe_files.to_bytes(token) != token.encode():
                is_bytes &= tf.not_equal(flat, token)
        return tf.reshape(tf.where(is_bytes, spelled, flat), tf.shape(tokens))


class _Tables:
    """The merges as tensors. There are R merges and V entries.

    Attributes:
        num_entries: V.
        no_rank: R, the rank of a pair that is not merged.
        symbols: int64 `[256]`: the ids of bytes; V for the one that ends words.
        byte_ranks: int32 `[65536]`: the rank of the bytes first and second, at
            `256 * first + second`.
        pairs: int64 `[R + 1]`, sorted: `(V + 1) * first + second` of the ids of
            each merge, and the largest number.
        ranks: int32 `[R + 1]`: the ranks of these pairs, which are their places
            in the order of learning.
        results: int64 `[R + 1]`, by rank: the entry that a merge makes.
        is_early: bool `[R + 1]`, by rank: whether an earlier merge uses what
            this one makes, which happens where two merges make the same entry.
            None if this never happens.
        block_size: Twice the bytes of the longest entry that a merge makes.
        hashes: int64 `[K]`, sorted: the hashes of words that become one entry.
        words: string `[K]`, in that order.
        word_ids: int64 `[K]`: their ids.
        lengths: int32 `[V]`: the bytes of every entry.
        spaces_before, spaces_behind: int32 `[V]`: the spaces at their ends.
    """

    def __init__(self, spec):
        ids = bpe_files.ids_of(spec.vocabulary)
        self.num_entries, self.no_rank = len(ids), len(spec.merges)
        symbols = np.zeros(256, np.int64)
        for character, byte in bpe_files.BYTES.items():
            symbols[byte] = ids[character]
        symbols[END[0]] = self.num_entries
        merges = np.array(
            [(ids[a], ids[b], ids[a + b]) for a, b in spec.merges], np.int64
        )
        # If a pair occurs twice, the later one counts.
        pairs = (self.num_entries + 1) * merges[::-1, 0] + merges[::-1, 1]
        pairs, places = np.unique(pairs, return_index=True)
        ranks = self.no_rank - 1 - places
        first_use = np.full(self.num_entries, self.no_rank)
        for side in (0, 1):
            np.minimum.at(first_use, merges[ranks, side], ranks)
        is_early = first_use[merges[:, 2]] < np.arange(self.no_rank)
        pairs = np.append(pairs, np.iinfo(np.int64).max)
        ranks = np.append(ranks, self.no_rank).astype(np.int32)

        byte_pairs = (self.num_entries + 1) * symbols[:, np.newaxis] + symbols
        byte_pairs = byte_pairs.ravel()
        places = np.searchsorted(pairs, byte_pairs)
        byte_ranks = np.where(
            pairs[places] == byte_pairs, ranks[places], self.no_rank
        )
        texts = spec.spellings
        lengths = np.array([len(text) for text in texts], np.int32)
        self.block_size = 2 * int(lengths[merges[:, 2]].max())

        # Not in a graph, and on the CPU: the operations only run there.
        with tf.init_scope(), tf.device("CPU:0"):
            self.symbols = tf.constant(symbols)
            self.pairs = tf.constant(pairs)
            self.ranks = tf.constant(ranks)
            self.byte_ranks = tf.constant(byte_ranks, tf.int32)
            self.results = tf.constant(np.append(merges[:, 2], 0))
            self.is_early = None
            if is_early.any():
                self.is_early = tf.constant(np.append(is_early, False))
            self.lengths = tf.constant(lengths)
            self.spaces_before, self.spaces_behind = (
                tf.constant(
                    lengths - [len(cut(text, b" ")) for text in texts],
                    tf.int32,
                )
                for cut in (bytes.lstrip, bytes.rstrip)
            )

            word_ids = np.unique(merges[:, 2])
            words = tf.constant(np.array(texts, object)[word_ids], tf.string)
            pieces = _merge(words, self, is_long=True)
            is_one = pieces.row_lengths().numpy() == 1
            # Of words with the same hash only the first is here; the others are
            # merged whenever they come.
            hashes, places = np.unique(
                _hash(words).numpy()[is_one], return_index=True
            )
            places = np.where(is_one)[0][places]
            self.hashes = tf.constant(hashes)
            self.words = tf.gather(words, places)
            self.word_ids = tf.constant(word_ids[places])


class BpeTokenizer(tf.Module):
    """Strings to byte-level BPE ids.

    Special and added tokens written in the text ("</s>") are text like any
    other: a `FindingTokenizer` finds them before. Bytes that are not UTF-8 are
    dropped.

    Args:
        spec: The `BpeSpec`.
    """

    def __init__(self, spec: BpeSpec) -> None:
        super().__init__(name="bpe_tokenizer")
        self.spec = spec
        self.vocabulary = spec.vocabulary

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]`; for a flat list
            of pieces, `.merge_dims(1, 2)`.
        """
        return self._tokenize(self._clean(self._composed(texts)))

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, offsets_lib.Offsets]:
        """Returns what `tokenize` does, and where the pieces come from.

        A piece that is part of a character has the range of the character. A
        piece of only spaces has an empty range after them if offsets are
        trimmed.

        Args:
            texts: string `[batch]`, UTF-8.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]` and `Offsets`.
        """
        composed = self._composed(texts)
        cleaned = self._clean(composed)
        ids = self._tokenize(cleaned)
        offsets = self._offsets(composed, cleaned, ids)
        if self.spec.nfc:
            normal = nfc_lib.normalize(words_lib.valid(texts))
            offsets = nfc_lib.in_source(ids, offsets, normal, texts)
        return ids, offsets

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the texts that ids spell.

        They are the texts that were tokenized, with the space before them that
        `add_prefix_space` adds. Incomplete characters become U+FFFD.

        Args:
            ids: RaggedTensor int32 `[batch, (pieces)]` or
                `[batch, (words), (pieces)]`.

        Returns:
            string `[batch]`.
        """
        if ids.shape.rank == 3:
            ids = ids.merge_dims(1, 2)
        spellings = tf.constant(self.spec.spellings, tf.string)
        pieces = ids.with_flat_values(tf.gather(spellings, ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=-1)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[batch, (words)]`.

        They make up the whole text: the space before a word is part of it.
        """
        return _split(self._clean(self._composed(texts)))

    def _composed(self, texts):
        if not self.spec.nfc:
            return texts
        return nfc_lib.compose(words_lib.valid(texts))

    def _clean(self, texts):
        """Drops invalid bytes, and adds the prefix space if there is one."""
        texts = words_lib.valid(texts)
        if self.spec.add_prefix_space:
            texts = tf.strings.regex_replace(texts, r"^([^ ])", r" \1")
        return texts

    def _tokenize(self, cleaned):
        with tf.device("CPU:0"):
            words = _split(cleaned)
            pieces = _to_pieces(words.flat_values, self.spec._tables)
            return words.with_values(tf.cast(pieces, tf.int32))

    def _offsets(self, texts, cleaned, ids):
        tables = self.spec._tables
        characters = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        char_lengths = offsets_lib.utf_8_length(characters.flat_values)
        # The character that each of the remaining bytes belongs to.
        sources = tf.repeat(tf.range(tf.size(char_lengths)), char_lengths)

        # The places of pieces among the remaining bytes of all texts.
        pieces = ids.merge_dims(1, 2)
        row = tf.cast(pieces.value_rowids(), tf.int32)
        flat = pieces.flat_values
        lengths = tf.gather(tables.lengths, flat)
        limits = tf.cumsum(lengths)
        starts = limits - lengths
        num_left = tf.reduce_sum(
            characters.with_flat_values(char_lengths), axis=1
        )
        num_added = tf.strings.length(cleaned) - num_left
        num_before = tf.cumsum(num_added, exclusive=True)
        row_start_byte = tf.gather(tf.cumsum(num_left, exclusive=True), row)
        starts -= tf.gather(num_before, row)
        limits -= tf.gather(num_before + num_added, row)
        starts -= tf.where(
            starts > row_start_byte, tf.gather(num_added, row), 0
        )
        is_added = limits <= row_start_byte

        # In characters of their text. A piece that is only the added space has
        # the range of the first character.
        row_start = tf.gather(tf.cast(characters.row_starts(), tf.int32), row)
        sources = tf.concat([sources, [0]], axis=0)
        first = tf.gather(sources, starts) - row_start
        last = tf.gather(sources, tf.maximum(limits - 1, 0)) - row_start
        first = tf.where(is_added, 0, first)
        limit = tf.where(is_added, 1, last + 1)
        if self.spec.trim_offsets:
            before = tf.gather(tables.spaces_before, flat)
            if self.spec.add_prefix_space:
                # A space at the very beginning is taken for the added one.
                is_added = tf.equal(first, 0) & tf.equal(before, 1)
                before = tf.where(is_added, 0, before)
            behind = tf.gather(tables.spaces_behind, flat)
            first = tf.minimum(first + before, limit)
            limit = tf.maximum(limit - behind, first)

        return offsets_lib.in_bytes(ids, first, limit, texts)

    def for_words(self) -> words_lib.WordTokenizer:
        """Returns the tokenizer of words given one by one, each after a space.

        transformers does the same with `is_split_into_words`, for which it
        requires `add_prefix_space`.
        """
        spelled = dataclasses.replace(
            self.spec, add_prefix_space=True, trim_offsets=True
        )
        return words_lib.WordTokenizer(self.spec, BpeTokenizer(spelled))


def _split(texts):
    """Returns the words of valid texts, string `[batch, (words)]`."""
    texts = tf.strings.regex_replace(
        texts, _LAST_WHITE_SPACE, rb"\1" + END + rb"\2"
    )
    texts = tf.strings.regex_replace(texts, _WORD, rb"\0" + END)
    parts = tf.strings.split(texts, END)
    is_word = tf.not_equal(parts.flat_values, "")
    words_before = tf.concat(
        [[0], tf.cumsum(tf.cast(is_word, tf.int64))], axis=0
    )
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(parts.flat_values, is_word),
        tf.gather(words_before, parts.row_splits),
        validate=False,
    )


def _to_pieces(words, tables):
    """Returns the ids of words.

    Args:
        words: string `[N]`, none of them empty.
        tables: `_Tables`.

    Returns:
        RaggedTensor int64 `[N, (pieces)]`.
    """
    different, index = tf.unique(words)
    # Most words become one entry.
    place = tf.searchsorted(tables.hashes, _hash(different))
    place = tf.minimum(place, tf.size(tables.hashes) - 1)
    is_entry = tf.equal(tf.gather(tables.words, place), different)
    is_long = ~is_entry & (tf.strings.length(different) > _MAX_SHORT)
    entries, short, long = (
        tf.where(which)[:, 0]
        for which in (is_entry, ~(is_entry | is_long), is_long)
    )
    ids = tf.gather(tables.word_ids, tf.gather(place, entries))
    pieces = tf.concat(
        [
            tf.RaggedTensor.from_tensor(ids[:, tf.newaxis]),
            _merge(tf.gather(different, short), tables, is_long=False),
            _merge(tf.gather(different, long), tables, is_long=True),
        ],
        axis=0,
    )
    order = tf.math.invert_permutation(tf.concat([entries, short, long], 0))
    return tf.gather(pieces, tf.gather(order, index))


def _hash(words):
    return tf.strings.to_hash_bucket_fast(words, _HASHES)


def _merge(words, tables, is_long):
    """Returns the ids of words, int64 `[W, (pieces)]`.

    A round merges, in every word, all occurrences of the pair that was learned
    first. With `is_long`, words are cut into blocks of twice the longest entry.
    Then a pair is merged if none in its block and the blocks on both sides was
    learned before it. Pairs from beyond them cannot reach it earlier: that
    would take an entry longer than any there is.

    Everything is in one flat list, with a symbol of its own around words.
    """
    no_rank = tables.no_rank
    text = tf.strings.reduce_join(words, separator=END)
    text = tf.io.decode_raw(tf.strings.join([END, text, END]), tf.uint8)
    text = tf.cast(text, tf.int32)
    symbols = tf.gather(tables.symbols, text)
    ranks = tf.gather(tables.byte_ranks, 256 * text[:-1] + text[1:])
    ranks = tf.concat([ranks, [no_rank]], axis=0)
    is_end = tf.equal(text, END[0])
    blocks = word = tf.cumsum(tf.cast(is_end, tf.int32)) - 1
    word_of_block = None
    if is_long:
        places = tf.range(tf.size(text))
        places -= tf.gather(places[is_end], word)
        begins = tf.equal(places % tables.block_size, 0)
        blocks = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        word_of_block = word[begins]
    num_blocks = blocks[-1] + 1

    def is_left(symbols, blocks, ranks):
        return tf.reduce_min(ranks) < no_rank

    def merge_once(symbols, blocks, ranks):
        return _merge_once(
            symbols, blocks, ranks, num_blocks, word_of_block, tables
        )

    vector = tf.TensorShape([None])
    symbols, _, _ = tf.while_loop(
        is_left,
        merge_once,
        (symbols, blocks, ranks),
        shape_invariants=(vector,) * 3,
        # Each round needs the one before it.
        parallel_iterations=1,
    )
    is_end = tf.equal(symbols, tables.num_entries)
    ends = tf.where(is_end)[:, 0][: tf.size(words) + 1]
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(symbols, ~is_end),
        ends - tf.range(tf.size(ends, tf.int64)),
        validate=False,
    )


def _merge_once(symbols, blocks, ranks, num_blocks, word_of_block, tables):
    """Merges, in every word, the pair that was learned first.

    The time is spent on the overhead of operations, so there are as few as
    possible, on int64 where `tf.where` leads to it.

    Args:
        symbols: int64 `[N]`, ids.
        blocks: int32 `[N]`, ascending: the block of each symbol.
        ranks: int32 `[N]`: the rank of each symbol and the next one.
        num_blocks: int32.
        word_of_block: int32 `[num_blocks]`; None if words are blocks.
        tables: `_Tables`.

    Returns:
        The first three arguments, after the merge.
    """
    order, no_order = ranks, tables.no_rank
    if tables.is_early is not None:
        # After such a merge, another merge may come before its next occurrence
        # in the word: merge one occurrence at a time, from the left.
        place = tf.where(
            tf.gather(tables.is_early, ranks), tf.range(tf.size(ranks)), 0
        )
        order = _ORDERS * tf.cast(ranks, tf.int64) + tf.cast(place, tf.int64)
        no_order *= _ORDERS
    first = tf.math.unsorted_segment_min(order, blocks, num_blocks)
    if word_of_block is not None:
        first = _first_around(first, word_of_block)
    is_first = tf.equal(order, tf.gather(first, blocks)) & (order < no_order)
    merges = tf.squeeze(tf.where(is_first), 1)
    # Pairs overlap in a run of one symbol: merge every second one. Within a run
    # the difference between the place of a pair and its number is constant.
    numbers = tf.range(tf.size(merges, tf.int64))
    distances = merges - numbers
    run_starts = _lower_bound(distances[tf.newaxis], distances)
    is_merged = tf.equal(tf.bitwise.bitwise_and(numbers - run_starts, 1), 0)
    if word_of_block is not None:
        # The run may begin in a block that has to wait.
        run_starts = tf.gather(merges, run_starts)
        is_merged &= tf.not_equal(
            tf.gather(ranks, run_starts - 1), tf.gather(ranks, run_starts)
        )
    merges = tf.gather_nd(merges, tf.where(is_merged))

    results = tf.gather(tables.results, tf.gather(ranks, merges))
    symbols = tf.tensor_scatter_nd_update(
        symbols,
        tf.expand_dims(tf.concat([merges, merges + 1], axis=0), 1),
        tf.concat([results, tf.fill(tf.shape(results), _GONE)], axis=0),
    )
    left = tf.where(symbols >= 0)
    symbols = tf.gather_nd(symbols, left)
    blocks = tf.gather_nd(blocks, left)
    ranks = tf.gather_nd(ranks, left)

    # The pairs on both sides of what was merged.
    merges -= tf.range(tf.size(merges, tf.int64))
    pairs = tf.concat([merges, merges - 1], axis=0)
    keys = (tables.num_entries + 1) * tf.gather(symbols, pairs)
    keys += tf.gather(symbols, pairs + 1)
    places = _lower_bound(tables.pairs[tf.newaxis], keys)
    is_pair = tf.equal(tf.gather(tables.pairs, places), keys)
    ranks = tf.tensor_scatter_nd_update(
        ranks,
        tf.expand_dims(pairs, 1),
        tf.where(is_pair, tf.gather(tables.ranks, places), tables.no_rank),
    )
    return symbols, blocks, ranks


def _lower_bound(row, values):
    """Returns `tf.searchsorted` of int64 `[1, N]` and `[M]`: int64 `[M]`."""
    found = tf.raw_ops.LowerBound(
        sorted_inputs=row, values=tf.expand_dims(values, 0), out_type=tf.int64
    )
    return tf.squeeze(found, 0)


def _first_around(first, word_of_block):
    """Returns the minimum over every block and its neighbours in a word."""
    is_next = tf.equal(word_of_block[1:], word_of_block[:-1])
    none = [first.dtype.max]
    behind = tf.where(is_next, first[1:], none)
    before = tf.where(is_next, first[:-1], none)
    behind = tf.concat([behind, none], axis=0)
    before = tf.concat([none, before], axis=0)
    return tf.minimum(first, tf.minimum(behind, before))


def read(folder: str, settings: dict[str, Any]) -> BpeSpec:
    """Reads the tokenizer of a folder.

    Args:
        folder: Holds tokenizer.json, or vocab.json and merges.txt.
        settings: The contents of its tokenizer_config.json.

    Raises:
        ValueError: If a file is missing, damaged, or asks for what this
            tokenizer does not support; the message names the file.
    """
    found = bpe_files.read(folder, settings)
    with messages.errors_named(found.path):
        return BpeSpec(
            Vocabulary(
                tokens=found.tokens,
                path=found.path,
                special=found.special,
                is_wordpiece=False,
            ),
            found.merges,
            found.add_prefix_space,
            found.trim_offsets,
            found.added_tokens,
            nfc=found.nfc,
        )
