"""Reads and checks vocabularies, with their special tokens.

A WordPiece file holds one entry per line, in UTF-8; an entry's id is its line
number, from 0. A piece that continues a word begins with "##".
"""

import dataclasses
import functools
import logging
import re
from collections.abc import Container
from collections.abc import Sequence

from bert_tf import files
from bert_tf import messages

PAD_TOKEN = "[PAD]"
UNK_TOKEN = "[UNK]"
CLS_TOKEN = "[CLS]"
SEP_TOKEN = "[SEP]"
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)

CONTINUATION = "##"

# In a cased vocabulary, at least this share of the entries whose letters have
# case has a capital: 31 % in Google's, 9 % in one learned from novels. A user's
# words in all [unused] slots of Google's uncased vocabulary would be 3.6 %.
_MIN_CAPITALS = 0.04
# With fewer entries in Latin letters, a lack of capitals does not show that the
# vocabulary is uncased.
_MIN_LATIN_ENTRIES = 1000
# Other white space than ASCII's is left alone: Google's Chinese vocabulary
# has an entry that is a line separator, U+2028.
_ENTRY = re.compile(r"[^\0 \t\r\n]+")
# Without "##". tensorflow_text cannot look up longer entries.
MAX_ENTRY_BYTES = 256

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Names of the special tokens, and how they frame texts.

    A text becomes `cls text sep`, and a pair `cls A sep B sep`.

    Args:
        pad: Fills a sequence up to its length.
        unk: Stands for what the vocabulary cannot spell.
        cls: Begins each sequence.
        sep: Ends each text.
        mask: Replaces a token that is to be predicted.
        num_between: How many `sep` stand between A and B: 1, or 2 as in
            RoBERTa.
        second_segment: The segment of B and the `sep` behind it: 1, or 0 in
            models without segments.
    """

    pad: str = PAD_TOKEN
    unk: str = UNK_TOKEN
    cls: str = CLS_TOKEN
    sep: str = SEP_TOKEN
    mask: str = MASK_TOKEN
    num_between: int = 1
    second_segment: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The five names, in the order of the arguments."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)

    def count(self, num_segments: int) -> int:
        """Returns how many special tokens frame one text, or two."""
        return 2 if num_segments == 1 else 2 + self.num_between


# google-research/bert; fairseq's RoBERTa and XLM-R; google-research/albert;
# microsoft/MPNet, whose <unk> is no token's: [UNK] is.
BERT = SpecialTokens()
ROBERTA = SpecialTokens(
    pad="<pad>",
    unk="<unk>",
    cls="<s>",
    sep="</s>",
    mask="<mask>",
    num_between=2,
    second_segment=0,
)
ALBERT = SpecialTokens(pad="<pad>", unk="<unk>")
MPNET = dataclasses.replace(ROBERTA, unk=UNK_TOKEN)
# The entries before those of BERT.
_FIRST_OF_MPNET = ("<s>", "<pad>", "</s>", "<unk>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The entries of a vocabulary, in the order of their ids.

    Args:
        tokens: All entries, special tokens included. In a WordPiece file an
            entry may be blank, which no word matches, or be there twice: its
            id is the last one.
        path: The file that they are from, if any. Messages name it, and
            comparisons ignore it.
        special: The `SpecialTokens`.
        is_wordpiece: Whether entries obey the rules of a WordPiece file: no
            white space but spaces, no NUL, and at most 256 bytes.

    Raises:
        ValueError: If an entry breaks those rules or, in other kinds, is empty
            or occurs twice, or a special token is missing. The message names
            the line.
    """

    tokens: tuple[str, ...]
    path: str | None = dataclasses.field(default=None, compare=False)
    special: SpecialTokens = BERT
    is_wordpiece: bool = True

    def __post_init__(self):
        object.__setattr__(self, "tokens", tuple(self.tokens))
        lines: dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            fault = _fault(token, lines, self.is_wordpiece)
            if fault is not None:
                raise ValueError(f"line {line}: {fault}")
            lines[token] = line
        missing = [token for token in self.special.names if token not in lines]
        if missing:
            raise ValueError(
                "the special tokens "
                f"{', '.join(missing)} are missing from the "
                f"{len(self.tokens)} entries."
            )

    def __len__(self):
        return len(self.tokens)

    @functools.cached_property
    def _ids(self):
        return {token: index for index, token in enumerate(self.tokens)}

    def index(self, token: str) -> int:
        """Returns the id of an entry.

        Raises:
            ValueError: If there is no such entry.
        """
        if token not in self._ids:
            raise ValueError(f"The vocabulary has no entry {token!r}.")
        return self._ids[token]

    @functools.cached_property
    def unused(self) -> tuple[int, ...]:
        """The ids of entries that are blank, or that come again later."""
        return tuple(
            index
            for index, token in enumerate(self.tokens)
            if not token.strip() or self._ids[token] != index
        )

    @property
    def pad_id(self) -> int:
        return self.index(self.special.pad)

    @property
    def unk_id(self) -> int:
        return self.index(self.special.unk)

    @property
    def cls_id(self) -> int:
        return self.index(self.special.cls)

    @property
    def sep_id(self) -> int:
        return self.index(self.special.sep)

    @property
    def mask_id(self) -> int:
        return self.index(self.special.mask)

    @functools.cached_property
    def capitalized(self) -> tuple[str, ...]:
        """The entries with upper-case letters, except bracketed ones."""
        return tuple(
            token
            for token in self.tokens
            if token.lower() != token and not _is_bracketed(token)
        )

    @functools.cached_property
    def is_cased(self) -> bool:
        """Whether more than a few entries have upper-case letters."""
        num_with_case = sum(
            token.swapcase() != token and not _is_bracketed(token)
            for token in self.tokens
        )
        share = len(self.capitalized) / max(1, num_with_case)
        return share >= _MIN_CAPITALS

    def to_text(self, left_out: Container[str] = ()) -> str:
        """Returns the entries, one per line: the contents of vocab.txt.

        Args:
            left_out: Entries that are not written; behind the others.
        """
        return "".join(
            f"{token}\n" for token in self.tokens if token not in left_out
        )


def special_of(entries: Sequence[str]) -> SpecialTokens:
    """Returns the special tokens of a WordPiece vocabulary: BERT's or MPNet's.

    Args:
        entries: In the order of their ids.
    """
    is_mpnet = tuple(entries[: len(_FIRST_OF_MPNET)]) == _FIRST_OF_MPNET
    return MPNET if is_mpnet else BERT


def load_vocabulary(path: str) -> Vocabulary:
    """Reads a vocabulary file and checks it.

    As in google-research/bert, white space at the ends of lines does not count.
    A warning tells what else is passed over: a byte order mark, and entries
    that are blank or that come again, which keep their ids.

    Raises:
        ValueError: If the file is missing, larger than
            `files.MAX_FOLDER_TEXT` or not UTF-8, or its entries make no
            `Vocabulary`. The message names the file and the line.
    """
    text = files.read_text(path, files.MAX_FOLDER_TEXT)
    # Not splitlines(): it would also split at U+2028, which is an entry.
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise ValueError(f"{path}: the vocabulary is empty.")
    # A line of white space alone stays as it is, to be written again.
    entries = [line.rstrip() or line.removesuffix("\r") for line in lines]
    try:
        vocabulary = Vocabulary(
            tokens=tuple(entries), path=str(path), special=special_of(entries)
        )
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    _warn_of_skipped(str(path), text.startswith("\ufeff"), vocabulary.unused)
    return vocabulary


# Cached to warn once per process.
@functools.cache
def _warn_of_skipped(path, has_mark, unused):
    skipped = [f"line {index + 1}" for index in unused]
    if skipped or has_mark:
        _logger.warning(
            "%s: passed over %s.",
            path,
            " and ".join(
                [
                    *["a byte order mark"] * has_mark,
                    *[
                        "entries that are blank or come again, whose ids no "
                        f"text gets: {messages.shortened(skipped)}"
                    ]
                    * bool(skipped),
                ]
            ),
        )


def check_case(vocabulary: Vocabulary, do_lower_case: bool) -> None:
    """Checks that lower-casing suits the vocabulary.

    If the entries cannot tell (a Chinese vocabulary, a small one that happens
    to have no capitals, an uncased one to which a user has added some), both
    settings pass. A warning lists entries that are never used.

    Raises:
        ValueError: If text is lower-cased but the vocabulary is cased, or if
            it is not but the vocabulary is large enough and has no capitals.
    """
    if do_lower_case and vocabulary.is_cased:
        raise ValueError(
            "`do_lower_case` must be False with a cased vocabulary: its "
            "entries with capitals would never be used. Received: "
            "do_lower_case=True."
        )
    if do_lower_case and vocabulary.capitalized:
        _warn_of_capitals(vocabulary.capitalized)
    if not do_lower_case and not vocabulary.capitalized:
        entries = [
            token for token in vocabulary.tokens if not _is_bracketed(token)
        ]
        num_latin = sum(bool(re.search("[a-z]", token)) for token in entries)
        # Chinese models are published with both settings.
        if num_latin >= max(_MIN_LATIN_ENTRIES, len(entries) / 2):
            raise ValueError(
                "`do_lower_case` must be True with an uncased vocabulary: "
                f"none of its {num_latin} entries in Latin letters has a "
                "capital. Received: do_lower_case=False."
            )


# Cached to warn once per process, however many tokenizers there are.
@functools.cache
def _warn_of_capitals(tokens):
    _logger.warning(
        "The vocabulary has %s with capitals, never used, as text is "
        "lower-cased: %s. Write them in lower case.",
        messages.counted(len(tokens), "entry", "entries"),
        messages.shortened(list(tokens)),
    )


def _fault(token, lines, is_wordpiece):
    """Returns what is wrong with an entry, or None.

    Args:
        token: The entry.
        lines: {entry: its line} of the entries before it.
        is_wordpiece: Whether the rules of a WordPiece file hold.
    """
    if not isinstance(token, str):
        return (
            f"an entry must be a string. Received: {messages.shortened(token)}."
        )
    if is_wordpiece:
        return _wordpiece_fault(token)
    if not token:
        return "the entry is blank."
    if token in lines:
        return (
            f"the entry {messages.shortened(token)} is there already, in line "
            f"{lines[token]}."
        )
    return None


def _wordpiece_fault(token):
    # No word matches a space, but an added token may have one.
    if token.strip() and not _ENTRY.fullmatch(token.replace(" ", "")):
        return (
            f"the entry {messages.shortened(token)} holds white space or NUL."
        )
    piece = token.removeprefix(CONTINUATION)
    if len(piece.encode("utf-8", "surrogatepass")) > MAX_ENTRY_BYTES:
        return (
            f"an entry must have at most {MAX_ENTRY_BYTES} bytes. "
            f"Received: {messages.shortened(token)}."
        )
    return None


def _is_bracketed(token):
    return token.startswith("[") and token.endswith("]")
