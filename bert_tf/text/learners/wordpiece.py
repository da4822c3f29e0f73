"""Learns a WordPiece vocabulary from text.

Pieces are learned from the bottom up as in byte-pair encoding (Sennrich et
al. 2016): beginning with characters, the most frequent pair of neighbours in
a word becomes a piece, again and again. A quarter more pieces than wanted are
learned. The tokenizer always takes the longest piece that fits; the pieces that
it then uses most are kept.

tensorflow_text has a learner too (`tools.wordpiece_vocab`), which works from
the top down. On 50 MB of Wikipedia it had not finished after ten minutes on
one core, where this one takes seconds.
"""

import codecs
import collections
import contextlib
import heapq
import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf import streams
from bert_tf.text import bad_lines
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import wordpiece

_BLOCK_BYTES = 4 * 2**20
# Memory bounds: words whose counts are kept, and words learned from.
_MAX_COUNTED_WORDS = 2_000_000
_MAX_LEARNED_WORDS = 500_000

# A character that makes up this share of the text must be in the vocabulary.
# Rarer ones are added while the characters take no more than the second share
# of the vocabulary.
_COMMON_CHARACTER_SHARE = 1e-6
_MAX_CHARACTERS_SHARE = 0.05

_SURPLUS = 1.25
# A pair that occurs once is only the spelling of one word.
_MIN_PAIR_COUNT = 2

# Longer words are unknown to the tokenizer with any vocabulary.
_MAX_WORD_BYTES = 4 * wordpiece.MAX_CHARS_PER_WORD

_logger = logging.getLogger(__name__)


def count_words(
    paths: Iterable[str],
    do_lower_case: bool,
    progress: Callable[[int], object] | None = None,
    max_bad_lines: int = 0,
) -> collections.Counter[str]:
    """Counts the words of text files, as `count_texts` does.

    Args:
        paths: The files, UTF-8, local or remote, plain or compressed.
        do_lower_case: Whether to lower-case and to drop the accents.
        progress: Called with the number of bytes done after every block.
        max_bad_lines: How many lines may be left out, with a warning, because
            they are not UTF-8.

    Returns:
        A `collections.Counter`, as from `count_texts`.

    Raises:
        ValueError: If a file is a web archive, more lines than `max_bad_lines`
            are not UTF-8 (it names file and line), or no file holds a word.
    """
    paths = [*map(str, paths)]
    lines = read_lines(paths, progress, max_bad_lines)
    return count_texts(lines, do_lower_case, paths)


def read_lines(
    paths: Iterable[str],
    progress: Callable[[int], object] | None = None,
    max_bad_lines: int = 0,
) -> Iterator[list[bytes]]:
    """Yields the lines of text files in lists, in bounded memory.

    Args:
        paths: As in `count_words`.
        progress: As in `count_words`.
        max_bad_lines: As in `count_words`.

    Raises:
        ValueError: If a file is a web archive, or more lines than
            `max_bad_lines` are not UTF-8 (it names file and line).
    """
    bad = bad_lines.BadLines(
        max_bad_lines, lambda path, line: f"{path}, line {line}"
    )
    num_bytes = 0
    for path in map(str, paths):
        for number, block in _read_blocks(path):
            yield _good_lines(path, number, block, bad)
            num_bytes += len(block)
            if progress:
                progress(num_bytes)
    if bad.count:
        _logger.warning("%s. Left out.", bad.summary())


def count_texts(
    batches: Iterable[list[str] | list[bytes]],
    do_lower_case: bool,
    names: Iterable[str],
) -> collections.Counter[str]:
    """Counts the words of texts, in bounded memory.

    If there are more different words than fit, the rare ones are dropped from
    time to time.

    Args:
        batches: Lists of texts, which are split together.
        do_lower_case: Whether to lower-case and to drop the accents.
        names: The sources of the texts, for error messages.

    Returns:
        `collections.Counter` of words. Words that are too long for the
        tokenizer are left out.

    Raises:
        ValueError: If there is no word, or each is too long.
    """
    split = tf.function(
        lambda texts: wordpiece.split_words(texts, do_lower_case).flat_values,
        autograph=False,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    counts: collections.Counter[bytes] = collections.Counter()
    for batch in batches:
        texts = tf.constant(batch, tf.string)
        counts.update(split(texts).numpy().tolist())
        if len(counts) > _MAX_COUNTED_WORDS:
            most_common = counts.most_common(_MAX_COUNTED_WORDS // 2)
            counts = collections.Counter(dict(most_common))
    words = {word.decode("utf-8"): count for word, count in counts.items()}
    longest = wordpiece.MAX_CHARS_PER_WORD
    known = {
        word: count for word, count in words.items() if len(word) <= longest
    }
    if not known:
        form = f" of at most {longest} characters" if words else ""
        raise ValueError(f"There is no word{form} in {', '.join(names)}.")
    return collections.Counter(known)


def learn_vocabulary(
    word_counts: Mapping[str, int], vocab_size: int
) -> vocabulary_lib.Vocabulary:
    """Learns a vocabulary from counted words.

    The same counts give the same vocabulary. The special tokens come first,
    then the characters, each alone and (where it was seen so) continuing a
    word, then the other pieces, the most used first.

    Args:
        word_counts: Dictionary from words to their counts.
        vocab_size: Number of entries. There are fewer if the text is too
            short.

    Returns:
        A `Vocabulary`.

    Raises:
        ValueError: If `vocab_size` has no room for the special tokens and the
            common characters.
    """
    words = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
    room = vocab_size - len(vocabulary_lib.SPECIAL_TOKENS)
    characters = _choose_characters(words, room)
    known = {piece for piece in characters if len(piece) == 1}
    words = [(word, count) for word, count in words if known.issuperset(word)]
    words = words[:_MAX_LEARNED_WORDS]

    room -= len(characters)
    learned = _learn_pieces(words, characters, int(room * _SURPLUS))
    if len(learned) > room:
        used, _, _ = _use(words, [*characters, *learned])
        # The sort is stable: equals stay in the order learned.
        learned.sort(key=lambda piece: -used[piece])
        learned = learned[:room]
    return vocabulary_lib.Vocabulary(
        tokens=(*vocabulary_lib.SPECIAL_TOKENS, *characters, *learned)
    )


def measure(
    vocabulary: vocabulary_lib.Vocabulary, word_counts: Mapping[str, int]
) -> tuple[float, float]:
    """Returns (pieces per word, share of unknown words) over counted words."""
    _, num_pieces, num_unknown = _use(word_counts.items(), vocabulary.tokens)
    num_words = sum(word_counts.values())
    return num_pieces / num_words, num_unknown / num_words


def _read_blocks(path):
    """Yields (number of its first line, block) for the blocks of a file.

    A block ends with a line. In a text without line ends it ends with a word;
    without white space, with a character, once it is too long for a word.
    """
    line = 1
    rest = b""
    is_first = True
    with contextlib.closing(streams.open_bytes(path)) as stream:
        while read := _read(stream, path):
            if is_first:
                bad_lines.check_is_no_archive(path, read)
                # Not text, but byte-level BPE would take it for a character.
                read = read.removeprefix(codecs.BOM_UTF8)
            is_first = False
            block = rest + read
            end = (
                block.rfind(b"\n") + 1
                or max(map(block.rfind, (b" ", b"\t", b"\r"))) + 1
                or _last_character(block)
            )
            rest = block[end:]
            yield line, block[:end]
            line += block.count(b"\n", 0, end)
    yield line, rest


def _last_character(block):
    """Returns where the last character begins; 0 if it may be in a word."""
    if len(block) <= _MAX_WORD_BYTES:
        return 0
    # Its other bytes begin with the bits 10; four of them are not UTF-8.
    for end in range(len(block) - 1, len(block) - 5, -1):
        if block[end] & 0xC0 != 0x80:
            return end
    return len(block)


def _read(stream, path):
    try:
        return stream.read(_BLOCK_BYTES)
    except streams.DAMAGE_ERRORS as error:
        raise ValueError(
            f"{path}: the compressed file is damaged or cut short: {error}"
        ) from error


def _good_lines(path, first_line, block, bad):
    """Returns the lines of a block that are UTF-8; the others are counted."""
    good = []
    for number, line in enumerate(block.split(b"\n"), first_line):
        try:
            line.decode("utf-8")
            good.append(line)
        except UnicodeDecodeError as error:
            bad.add(path, number, reason=bad_lines.not_utf_8(error))
    return good


def _choose_characters(words, room):
    """Returns the pieces of one character, the commonest characters first."""
    counts: collections.Counter[str] = collections.Counter()
    continuing = set()
    for word, count in words:
        for character in word:
            counts[character] += count
        continuing.update(word[1:])
    common = sum(counts.values()) * _COMMON_CHARACTER_SHARE
    pieces: list[str] = []
    for character, count in sorted(
        counts.items(), key=lambda item: (-item[1], item[0])
    ):
        forms = [character]
        # Marks and ideographs always stand alone.
        if character in continuing:
            forms.append(vocabulary_lib.CONTINUATION + character)
        fits = len(pieces) + len(forms) <= room * _MAX_CHARACTERS_SHARE
        if count < common and not fits:
            break
        pieces += forms
    if len(pieces) > room:
        needed = len(pieces) + len(vocabulary_lib.SPECIAL_TOKENS)
        received = room + len(vocabulary_lib.SPECIAL_TOKENS)
        raise ValueError(
            f"`vocab_size` must be at least {needed}, for the special tokens "
            "and the characters of the text. "
            f"Received: vocab_size={received}."
        )
    return pieces


def _learn_pieces(words, characters, num_pieces):
    """Returns pieces of two and more characters, in the order learned.

    Args:
        words: List of (word, count), their characters all known.
        characters: The pieces to begin with.
        num_pieces: How many to learn at most.
    """
    tokens = list(characters)
    ids = {token: index for index, token in enumerate(tokens)}
    continuation = vocabulary_lib.CONTINUATION
    spelled = [
        [ids[word[0]], *(ids[continuation + letter] for letter in word[1:])]
        for word, _ in words
    ]
    # A pair of pieces is (left << 32 | right): integers hash fastest.
    counts: dict[int, int] = collections.defaultdict(int)
    words_with = collections.defaultdict(list)
    for index, (_, count) in enumerate(words):
        for left, right in zip(spelled[index], spelled[index][1:]):
            counts[left << 32 | right] += count
            words_with[left << 32 | right].append(index)

    def entry(pair):
        # Of pairs with the same count, the first in code point order is merged.
        left, right = tokens[pair >> 32], tokens[pair & 0xFFFFFFFF]
        return -counts[pair], left, right, pair

    queue = [entry(pair) for pair in counts]
    heapq.heapify(queue)
    while queue and len(tokens) < len(characters) + num_pieces:
        negative_count, left_token, right_token, pair = heapq.heappop(queue)
        if counts[pair] < _MIN_PAIR_COUNT:
            continue
        # The queue is not searched when a count changes. If it rose, the pair
        # is in the queue again; if it fell, the pair is put back now.
        if counts[pair] != -negative_count:
            if counts[pair] < -negative_count:
                heapq.heappush(queue, entry(pair))
            continue
        token = left_token + right_token.removeprefix(continuation)
        size = len(token.removeprefix(continuation).encode("utf-8"))
        if size > vocabulary_lib.MAX_ENTRY_BYTES:
            continue
        # Two different pairs may spell the same piece.
        if token not in ids:
            ids[token] = len(tokens)
            tokens.append(token)
        changes = _merge(pair, ids[token], words, spelled, words_with)
        for changed, change in changes.items():
            counts[changed] += change
            if change > 0:
                heapq.heappush(queue, entry(changed))
        del counts[pair]
    return tokens[len(characters) :]


def _merge(pair, merged, words, spelled, words_with):
    """Replaces the pair in all words; returns the changes of the counts."""
    left, right = pair >> 32, pair & 0xFFFFFFFF
    changes: dict[int, int] = collections.defaultdict(int)
    for index in words_with.pop(pair):
        pieces = spelled[index]
        count = words[index][1]
        position = 0
        while position < len(pieces) - 1:
            if pieces[position] == left and pieces[position + 1] == right:
                if position > 0:
                    before = pieces[position - 1] << 32
                    changes[before | left] -= count
                    changes[before | merged] += count
                    words_with[before | merged].append(index)
                if position + 2 < len(pieces):
                    after = pieces[position + 2]
                    changes[right << 32 | after] -= count
                    changes[merged << 32 | after] += count
                    words_with[merged << 32 | after].append(index)
                pieces[position : position + 2] = [merged]
            position += 1
    return changes


def _use(words, pieces):
    """Splits words by the longest pieces.

    Args:
        words: List of (word, count).
        pieces: The entries of the vocabulary.

    Returns:
        {piece: number of uses}, number of all pieces, number of unknown words;
        an unknown word is one piece.
    """
    texts, counts = zip(*words)
    ids = wordpiece.make_splitter(pieces).tokenize(tf.constant(texts))
    counts = np.repeat(counts, ids.row_lengths())
    entries = wordpiece.unknown_last(pieces)
    # The sums are integers, which float64 holds exactly.
    uses = np.bincount(ids.flat_values, counts, minlength=len(entries))
    return dict(zip(entries, uses)), counts.sum(), uses[-1]
