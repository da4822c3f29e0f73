"""Reads text into documents of sentences; any part can be read by itself.

In google-research/bert's input, a line is a sentence, and a blank line ends a
document but the end of a file does not. Raw text comes in three more formats,
in which `sentences.split_sentences` finds the sentences and every file begins
a document. Memory use does not grow with the text.
"""

import dataclasses
import html
import json
import logging
import math
import re
import reprlib
import threading
from collections import abc
from typing import Any

from bert_tf import files
from bert_tf import streams
from bert_tf.pretraining.sources.sentences import split_sentences
from bert_tf.pretraining.sources.sentences import split_text
from bert_tf.text import bad_lines

FORMATS = ("sentences", "text", "jsonl", "wikiextractor")

# Size of a part, the text that one process reads in one go.
PART_BYTES = 16 << 20
# Longer documents are cut into several.
MAX_DOCUMENT_BYTES = 4 << 20
# Longer lines are cut into several.
MAX_LINE_BYTES = 1 << 20
# Longer lines of JSON are bad: they cannot be cut.
_MAX_JSON_BYTES = 64 << 20

# Number of bits of a document's 64-bit key that hold the offset in the file.
OFFSET_BITS = 44

_logger = logging.getLogger(__name__)

_DOC_START = re.compile(r"<doc\s[^>]*>\s*$", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A byte range of one file. It has the documents that begin in it.

    Args:
        file_number: Index in the list of files.
        start: Offset of the first byte.
        end: Offset after the last byte, None for the end of the file.
    """

    file_number: int
    start: int = 0
    end: int | None = None


def cut_in_parts(number: int, first: int, last: int, size: int) -> list[Part]:
    """Cuts the range [first, last) of file `number` into parts of a size."""
    return [
        Part(file_number=number, start=start, end=min(last, start + size))
        for start in range(first, last, size)
    ]


def input_paths(patterns: str) -> list[str]:
    """Returns the files that comma-separated globs match, in order.

    The order matters, because documents continue into the next file. Globs
    keep the given order, and the files of each glob are sorted by name. A file
    that two globs match is read twice.

    Raises:
        ValueError: If there is no glob, a glob matches no file, or all files
            are empty.
    """
    names = [name for name in patterns.split(",") if name.strip()]
    paths = [
        path for name in names or [""] for path in files.expand_globs(name)
    ]
    return without_empty(paths)


def without_empty(paths: abc.Sequence[str]) -> list[str]:
    """Returns the files that have text; warns once about those that are empty.

    Raises:
        ValueError: If all are empty.
    """
    found = [path for path in paths if files.size(path)]
    if not found:
        raise ValueError(f"{paths[0]} is empty.")
    if num_empty := len(paths) - len(found):
        first = next(path for path in paths if path not in found)
        _logger.warning(
            "%s is empty%s. Left out.",
            first,
            f", and {num_empty - 1} more of {len(paths)} files"
            if num_empty > 1
            else "",
        )
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Text files, as input of the builder.

    Args:
        paths: The files, in order (`input_paths`).
        input_format: "sentences": a sentence a line, a blank line between
            documents.
            "text": a paragraph a line, a blank line between documents.
            "jsonl": a JSON object a line, with the text in `text_field`.
            "wikiextractor": `<doc ...>` and `</doc>` lines around a title and
            paragraphs.
        text_field: The field of "jsonl".
    """

    paths: tuple
    input_format: str = "sentences"
    text_field: str = "text"

    @property
    def settings(self) -> dict:
        """What a manifest records besides the files."""
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
            if streams.is_compressed(path):
                parts.append(Part(file_number=number))
                continue
            parts += cut_in_parts(number, 0, files.size(path), PART_BYTES)
        return parts

    def sizes(self, parts: abc.Iterable[Part]) -> list[int]:
        """Returns the approximate number of bytes of text in each part."""
        return [
            # Text is about four times as long as its compressed file.
            4 * files.size(self.paths[part.file_number])
            if part.end is None
            else part.end - part.start
            for part in parts
        ]

    def place(self, file_number: int, offset: int) -> str:
        """Returns the file and the line of an offset in words."""
        path = self.paths[file_number]
        line = 1
        with streams.open_bytes(path) as stream:
            while offset > 0 and (block := stream.read(min(offset, 1 << 20))):
                line += block.count(b"\n")
                offset -= len(block)
        return f"{path}, line {line}"

    def sentences(
        self, part: Part, reader: "Reader"
    ) -> abc.Iterator[tuple[int, int, str]]:
        """Yields (number of the file, offset in it, sentence) of a part.

        The file and the offset are where the document's first line begins.

        Args:
            part: The `Part`.
            reader: The `Reader`, which counts what is cut or left out.
        """
        reader.last_file = part.file_number
        read = {"jsonl": self._jsonl, "wikiextractor": self._wikiextractor}
        try:
            yield from read.get(self.input_format, self._documents)(
                part, reader
            )
        except streams.DAMAGE_ERRORS as error:
            raise bad_lines.BadTextError(
                f"{self.paths[reader.last_file]}: the compressed file is "
                f"damaged or cut short: {error}"
            ) from error

    def _documents(self, part, reader):
        """Reads documents with blank lines between them.

        A document begins at the very beginning or after a blank line. It
        belongs to the part in which the blank line begins. With "sentences" it
        continues in the next file; with "text" every file begins a document.
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
            # Even in a bad line, or its document would be lost.
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
                    # A character reference may have thousands of digits.
                    reader.bad_lines.add(number, offset, reason=str(error))
                    continue
                # The first line repeats the title, which is no sentence.
                if text and text != title:
                    for sentence in split_sentences(text):
                        yield number, document, sentence
                title = None if text else title

    def _lines(self, part, reader, number, max_bytes=None):
        """Yields the lines of a file that begin at a part's start or after.

        Lines longer than `MAX_LINE_BYTES` come in pieces. With `max_bytes`,
        longer lines are bad instead.

        Args:
            part: The `Part`.
            reader: The `Reader`.
            number: Number of the file: the part's, or one after it.
            max_bytes: See above.

        Yields:
            Whether the line begins in the part, its offset, the line, and
            whether it is bad. A bad line holds only what could be read. Bad
            lines and cuts are counted if the line begins in the part.
        """
        limit = max_bytes or MAX_LINE_BYTES
        is_first = number == part.file_number
        part_end = math.inf if part.end is None else part.end
        offset = 0
        with streams.open_bytes(self.paths[number]) as stream:
            if is_first and part.start:
                # A line that begins earlier belongs to the previous part.
                offset = part.start - 1
                stream.seek(offset)
                offset += _skip_line(stream, limit, part_end - offset)
                if offset >= part_end:
                    # No line begins here. Reading on would take quadratic time
                    # in a file of one line, where this holds for all parts.
                    yield False, offset, "", False
                    return
            # Where the line begins; its pieces have offsets of their own.
            begin = offset
            # Where the last bad line began. Its bad pieces count once.
            last_bad = None
            rest = b""
            while line := rest + stream.readline(limit - len(rest)):
                if not offset:
                    _check_first_line(self.paths[number], line)
                is_within = is_first and begin < part_end
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
                        # The part before may read this line too.
                        reader.num_cut_lines += is_within
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    reason = reason or bad_lines.not_utf_8(error)
                    text = line.decode("utf-8", "ignore")
                if not offset:
                    # A byte order mark is not text, and hides a <doc> or a {.
                    text = text.removeprefix("\ufeff")
                if reason and is_within and begin != last_bad:
                    reader.bad_lines.add(number, offset, reason=reason)
                    last_bad = begin
                yield is_within, offset, text, reason is not None
                offset += len(line) + num_skipped
                if num_skipped or line.endswith(b"\n"):
                    begin = offset


def describe(path: str, stop: threading.Event | None = None) -> dict:
    """Returns `{"name", "bytes", "sha256"}` of a file as it is stored.

    Args:
        path: The file.
        stop: As for `files.sha256`.
    """
    return {
        "name": path.rsplit("/", 1)[-1],
        "bytes": files.size(path),
        "sha256": streams.sha256(path, stop),
    }


class Reader:
    """Reads the sentences of parts, and counts what it had to cut.

    Args:
        source: A `TextFiles` or a `tfds_text.TfdsText`. Its `sentences(part,
            reader)` yields (number of the file, place in it, sentence). The
            number and the place are the document's, and ascend. It counts in
            the reader what it cuts and what it leaves out.
        max_bad_lines: How many lines may be left out because they are not
            UTF-8 or not in the format.

    Attributes:
        num_cut_lines: Cuts of lines longer than `MAX_LINE_BYTES`. A line counts
            in the part in which it begins.
        num_cut_documents: Cuts of documents at `MAX_DOCUMENT_BYTES`.
        bad_lines: The `BadLines` left out. A line counts in the part in which
            it begins. Places are (file number, place in the file).
        last_file: The number of the last file that the last part read depends
            on. It is the number of files if the part would continue in one
            more, and None if the source does not say.
    """

    def __init__(self, source: Any, max_bad_lines: int = 0) -> None:
        self._source = source
        self.num_cut_lines = 0
        self.num_cut_documents = 0
        self.bad_lines = bad_lines.BadLines(max_bad_lines, source.place)
        self.last_file: int | None = None

    def read(self, part: Part) -> abc.Iterator[tuple[int, str]]:
        """Yields (key, sentence) of the documents that begin in a part.

        The key, an integer below 2**64, determines all randomness of a
        document. It combines the number of the file and the document's place
        in it, so the keys of a part are known without reading what comes
        before. (The text would not do as a key: a corpus repeats documents,
        and each copy must get its own pairs and masks.)

        Args:
            part: A `Part`.

        Yields:
            The key of the document, ascending, and one of its sentences as
            str, which is not blank.

        Raises:
            BadTextError: If a compressed file is damaged, a file is a web
                archive, its lines end with CR alone, or more than
                `max_bad_lines` lines are not UTF-8 or not in the format. The
                message names the file and the line.
        """
        document, key, size = None, -1, 0
        for file_number, place, sentence in self._source.sentences(part, self):
            if (file_number, place) != document:
                document = file_number, place
                key, size = file_number << OFFSET_BITS | place, 0
            elif size > MAX_DOCUMENT_BYTES:
                # A document has more bytes than cuts, so this key cannot be
                # another document's.
                key, size = key + 1, 0
                self.num_cut_documents += 1
            size += len(sentence)
            yield key, sentence


def _json_text(line, field):
    """Returns the text in a field of a JSON object.

    Raises:
        ValueError: If there is no text; the message says why.
    """
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        found = sorted(value) if isinstance(value, dict) else value
        raise ValueError(
            f"the field {field!r} must hold a text. "
            f"Received: {reprlib.repr(found)}"
        )
    # JSON can write half a surrogate pair, which UTF-8 cannot.
    return text.encode("utf-8", "ignore").decode("utf-8")


def _title(line):
    """Returns the title in a `<doc>` line, or None."""
    _, _, rest = line.rstrip().partition('title="')
    if not rest.endswith('">'):
        return None
    try:
        return html.unescape(rest[:-2])
    except ValueError:
        # A character reference may have thousands of digits.
        return None


def _skip_line(stream, limit, most=math.inf):
    """Reads to the end of a line, in pieces; returns the number of bytes.

    After `most` bytes it reads no further piece.
    """
    num_bytes = 0
    while num_bytes < most and (piece := stream.readline(limit)):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes


def _is_blank(line):
    # A line is blank if Python's `strip` leaves nothing, as in the original. A
    # lone no-break space so also ends a document.
    return not line.strip()


def _check_first_line(path, line):
    """Raises `BadTextError` if a file's first line shows that it is no text.

    If it ends with CR alone, the whole file would be one line: one sentence,
    one document.
    """
    bad_lines.check_is_no_archive(path, line)
    if not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise bad_lines.BadTextError(
            f"{path}: lines must end with \\n or \\r\\n. Received: \\r alone, "
            "as old Macs wrote. Replace it, e.g. with tr '\\r' '\\n'."
        )


def _cut(line):
    """Returns where to cut a line: after a space, or between characters."""
    end = line.rfind(b" ") + 1
    if not end:
        end = len(line)
        while end > 1 and line[end - 1] & 0xC0 == 0x80:
            end -= 1
        # The lead byte of a character goes with the bytes that follow it.
        if line[end - 1] >= 0x80:
            end -= 1
    return end or len(line)
