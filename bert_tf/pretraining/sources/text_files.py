"""Reads text into documents of sentences, any part of the input by itself.

In google-research/bert's input, one sentence a line, a blank line ends a
document, and a new file does not. Raw text comes in three more forms, where
sentences are found by `sentences.split_sentences` and every file begins a
document. What is held in memory does not grow with the text.
"""

import dataclasses
import html
import json
import math
import re
import reprlib
from collections import abc
from typing import Any

from bert_tf import files
from bert_tf.pretraining.sources.sentences import split_sentences
from bert_tf.pretraining.sources.sentences import split_text
from bert_tf.text import bad_lines

FORMATS = ("sentences", "text", "jsonl", "wikiextractor")

# Text of a part: what is read in one go by one process.
PART_BYTES = 16 << 20
# Longer documents are cut in several.
MAX_DOCUMENT_BYTES = 4 << 20
# Longer lines are cut in several.
MAX_LINE_BYTES = 1 << 20
# Longer lines of JSON are bad: they cannot be cut.
_MAX_JSON_BYTES = 64 << 20

# Of a document's 64-bit key, the bits that hold the offset in the file.
OFFSET_BITS = 44

_DOC_START = re.compile(r"<doc\s[^>]*>\s*$", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A range of bytes of one file; its documents are those begun in it.

    Args:
        file_number: Of the list of files.
        start: Offset of the first byte.
        end: Offset after the last byte, None for the end of the file.
    """

    file_number: int
    start: int = 0
    end: int | None = None


def cut_in_parts(number: int, first: int, last: int, size: int) -> list[Part]:
    """Returns parts of a size, of places of file `number` before `last`."""
    return [
        Part(file_number=number, start=start, end=min(last, start + size))
        for start in range(first, last, size)
    ]


def input_paths(patterns: str) -> list[str]:
    """Returns the files that comma-separated globs name, in that order.

    The order matters, because a document goes on into the next file: globs
    come in the order given, and the files of each glob sorted by name.

    Raises:
        ValueError: If a glob matches no file, or there is none, or one is
            empty.
    """
    names = [name for name in patterns.split(",") if name.strip()]
    # Keys of a dictionary: each file once, in order.
    paths: dict[str, None] = {}
    for name in names or [""]:
        paths |= dict.fromkeys(files.expand_globs(name))
    for path in paths:
        if not files.size(path):
            raise ValueError(f"{path} is empty.")
    return list(paths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Text files, as input of the builder.

    Args:
        paths: The files, in order (`input_paths`).
        input_format: "sentences": one a line, documents apart by blank lines.
            "text": a paragraph a line, documents apart by blank lines.
            "jsonl": a JSON object a line, its text in `text_field`.
            "wikiextractor": `<doc ...>` and `</doc>` lines round a title and
            paragraphs.
        text_field: The field of "jsonl".
    """

    paths: tuple
    input_format: str = "sentences"
    text_field: str = "text"

    @property
    def settings(self) -> dict:
        """What a manifest tells, besides the files."""
        return {}

    @property
    def names(self) -> tuple[str, ...]:
        return self.paths

    def parts(self) -> list[Part]:
        """Returns the `Part`s of the files: ranges of `PART_BYTES`.

        A compressed file is one part.
        """
        parts = []
        for number, path in enumerate(self.paths):
            if files.is_compressed(path):
                parts.append(Part(file_number=number))
                continue
            parts += cut_in_parts(number, 0, files.size(path), PART_BYTES)
        return parts

    def sizes(self, parts: abc.Iterable[Part]) -> list[int]:
        """Returns about how many bytes of text the parts have."""
        return [
            # Compressed text is four times as long, or so.
            4 * files.size(self.paths[part.file_number])
            if part.end is None
            else part.end - part.start
            for part in parts
        ]

    def place(self, file_number: int, offset: int) -> str:
        """Returns a file and a line in words."""
        path = self.paths[file_number]
        line = 1
        with files.open_bytes(path) as stream:
            while offset > 0 and (block := stream.read(min(offset, 1 << 20))):
                line += block.count(b"\n")
                offset -= len(block)
        return f"{path}, line {line}"

    def sentences(
        self, part: Part, reader: "Reader"
    ) -> abc.Iterator[tuple[int, int, str]]:
        """Yields (number of the file, offset in it, sentence) of a part.

        The first two are those of the document: its first line's.

        Args:
            part: The `Part`.
            reader: Who counts what is cut or left out.
        """
        reader.last_file = part.file_number
        read = {"jsonl": self._jsonl, "wikiextractor": self._wikiextractor}
        try:
            yield from read.get(self.input_format, self._documents)(
                part, reader
            )
        except files.DAMAGE_ERRORS as error:
            raise bad_lines.BadTextError(
                f"{self.paths[reader.last_file]}: the compressed file is "
                f"damaged or cut short: {error}"
            ) from error

    def _documents(self, part, reader):
        """Reads documents with blank lines between them.

        A document begins after a blank line, and belongs to the part that the
        blank line begins in; or at the very beginning. Of "sentences" one goes
        on in the next file, of "text" every file begins one.
        """
        is_prose = self.input_format == "text"
        is_ours = part.start == 0 and (is_prose or part.file_number == 0)
        end = part.file_number + 1 if is_prose else len(self.paths)
        document = None
        for number in range(part.file_number, end):
            reader.last_file = number
            for is_within, offset, line, is_bad in self._lines(
                part, reader, number
            ):
                if is_bad:
                    continue
                if _is_blank(line):
                    if not is_within:
                        return
                    is_ours = True
                    document = None
                elif is_ours:
                    document = document or (number, offset)
                    for sentence in (
                        split_sentences(line) if is_prose else [line]
                    ):
                        yield *document, sentence
                elif not is_within:
                    return
        if not is_prose:
            reader.last_file = end

    def _jsonl(self, part, reader):
        number = part.file_number
        for is_within, offset, line, is_bad in self._lines(
            part, reader, number, _MAX_JSON_BYTES
        ):
            if not is_within:
                return
            if is_bad or _is_blank(line):
                continue
            try:
                text = _json_text(line, self.text_field)
            except ValueError as error:
                reader.bad_lines.add(number, offset, reason=str(error))
                continue
            for sentence in split_text(text):
                yield number, offset, sentence

    def _wikiextractor(self, part, reader):
        number = part.file_number
        document = title = None
        for is_within, offset, line, is_bad in self._lines(
            part, reader, number
        ):
            # Also of a bad line, or its document would be lost.
            if _DOC_START.match(line):
                if not is_within:
                    return
                document, title = offset, _title(line)
            elif is_bad:
                continue
            elif line.strip() == "</doc>":
                document = None
            elif document is None:
                if not is_within:
                    return
            else:
                try:
                    text = html.unescape(line).strip()
                except ValueError as error:
                    # The number of a character has thousands of digits.
                    reader.bad_lines.add(number, offset, reason=str(error))
                    continue
                # The title stands on the first line again: no sentence.
                if text and text != title:
                    for sentence in split_sentences(text):
                        yield number, document, sentence
                title = None if text else title

    def _lines(self, part, reader, number, max_bytes=None):
        """Yields the lines of a file that begin at a part's start or after.

        Lines longer than `MAX_LINE_BYTES` come in pieces; or, with
        `max_bytes`, longer ones than that are bad.

        Args:
            part: The `Part`.
            reader: The `Reader`.
            number: Of the file: the part's, or one after it.
            max_bytes: See above.

        Yields:
            Whether the line begins in the part, its offset, the line, and
            whether it is bad, which has been counted: what can be read of it.
        """
        limit = max_bytes or MAX_LINE_BYTES
        is_first = number == part.file_number
        offset = 0
        with files.open_bytes(self.paths[number]) as stream:
            if is_first and part.start:
                # The line that begins before belongs to the part before.
                stream.seek(part.start - 1)
                offset = part.start - 1 + _skip_line(stream, limit)
            # Of the line, whose pieces have offsets of their own.
            begin = offset
            # Where the last bad line began: one of many bad pieces is one.
            last_bad = None
            rest = b""
            while line := rest + stream.readline(limit - len(rest)):
                rest = b""
                reason = None
                num_skipped = 0
                if len(line) >= limit and not line.endswith(b"\n"):
                    if max_bytes:
                        reason = f"the line is longer than {limit >> 20} MiB"
                        num_skipped = _skip_line(stream, limit)
                    else:
                        end = _cut(line)
                        line, rest = line[:end], line[end:]
                        reader.num_cut_lines += 1
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    reason = reason or bad_lines.not_utf_8(error)
                    text = line.decode("utf-8", "ignore")
                if not offset:
                    # A byte order mark is no text, and hides a <doc> or a {.
                    text = text.removeprefix("\ufeff")
                is_within = is_first and begin < (part.end or math.inf)
                if reason and is_within and begin != last_bad:
                    reader.bad_lines.add(number, offset, reason=reason)
                    last_bad = begin
                yield is_within, offset, text, reason is not None
                offset += len(line) + num_skipped
                if num_skipped or line.endswith(b"\n"):
                    begin = offset


def describe(path: str) -> dict:
    """Returns `{"name", "bytes", "sha256"}` of a file as it lies there."""
    return {
        "name": path.rsplit("/", 1)[-1],
        "bytes": files.size(path),
        "sha256": files.sha256(path),
    }


class Reader:
    """Reads the sentences of parts, and counts what it had to cut.

    Args:
        source: A `TextFiles` or a `tfds_text.TfdsText`. Its `sentences(part,
            reader)` yields (number of the file, place in it, sentence), the
            first two those of the document, ascending; it counts in the
            reader what it cuts, and what it leaves out.
        max_bad_lines: How many lines may be left out because they are not
            UTF-8 or not in the format.

    Attributes:
        num_cut_lines: Lines cut, for they were longer than `MAX_LINE_BYTES`.
        num_cut_documents: Documents cut at `MAX_DOCUMENT_BYTES`: each cut
            counts.
        bad_lines: The `BadLines` left out: of those that begin in the parts,
            each is in one part. Their places are (file number, place in it).
        last_file: The number of the last file that the part last read is a
            function of; as many as there are files if it would go on in one
            more; None where the source does not tell.
    """

    def __init__(self, source: Any, max_bad_lines: int = 0) -> None:
        self._source = source
        self.num_cut_lines = 0
        self.num_cut_documents = 0
        self.bad_lines = bad_lines.BadLines(max_bad_lines, source.place)
        self.last_file: int | None = None

    def read(self, part: Part) -> abc.Iterator[tuple[int, str]]:
        """Yields (key, sentence) of the documents that begin in a part.

        The key, an integer below 2**64, is what all randomness of a document
        is a function of: the number of the file, and the document's place in
        it. So whoever reads a part of one file knows the keys of its documents
        without having read what comes before. (The text itself would be no
        good key: a corpus repeats documents, and each copy must get its own
        pairs and masks.)

        Args:
            part: A `Part`.

        Yields:
            The key of the document, ascending, and a sentence of it as str;
            a sentence is not blank.

        Raises:
            BadTextError: If a compressed file is damaged, or more lines than
                `max_bad_lines` are not UTF-8 or have not the form of the
                format; the message names the file and the line.
        """
        document, key, size = None, -1, 0
        for file_number, place, sentence in self._source.sentences(part, self):
            if (file_number, place) != document:
                document = file_number, place
                key, size = file_number << OFFSET_BITS | place, 0
            elif size > MAX_DOCUMENT_BYTES:
                # A document is longer than one byte for each of its cuts, so
                # this is no other one's key.
                key, size = key + 1, 0
                self.num_cut_documents += 1
            size += len(sentence)
            yield key, sentence


def _json_text(line, field):
    """Returns the text in a field of a JSON object.

    Raises:
        ValueError: If there is none; it tells why.
    """
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        found = sorted(value) if isinstance(value, dict) else value
        raise ValueError(
            f"there must be a text in the field {field!r}. "
            f"Received: {reprlib.repr(found)}"
        )
    # JSON can write half a surrogate pair, which UTF-8 cannot.
    return text.encode("utf-8", "ignore").decode("utf-8")


def _title(line):
    """Returns the title in a line that begins a document, or None."""
    _, _, rest = line.rstrip().partition('title="')
    if not rest.endswith('">'):
        return None
    try:
        return html.unescape(rest[:-2])
    except ValueError:
        # The number of a character has thousands of digits.
        return None


def _skip_line(stream, limit):
    """Reads to the end of a line, in pieces; returns the number of bytes."""
    num_bytes = 0
    while piece := stream.readline(limit):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes


def _is_blank(line):
    # Blank is what Python's `strip` makes empty, as in the original: a lone
    # no-break space also ends a document.
    return not line.strip()


def _cut(line):
    """Returns where to cut a line: after a space, or before a character."""
    end = line.rfind(b" ") + 1
    if not end:
        end = len(line)
        while end > 1 and line[end - 1] & 0xC0 == 0x80:
            end -= 1
        # The first byte of a character, which its others follow.
        if line[end - 1] >= 0x80:
            end -= 1
    return end or len(line)
