"""Reads documents from a text set of TensorFlow Datasets.

The set must be prepared on disk; nothing is downloaded. Every example is a
document, its lines are paragraphs, and `sentences.split_sentences` finds the
sentences. Parts are ranges of examples; only the shards that hold them are
read.
"""

import dataclasses
import functools
from collections import abc

import tensorflow as tf

from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources.sentences import split_text
from bert_tf.text import bad_lines

# Low bits of a document's place (`text_files.OFFSET_BITS`), left free to number
# the documents that a long one is cut into.
_CUT_BITS = 14


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsText:
    """A text set of TensorFlow Datasets, as input of the builder.

    Args:
        name: E.g. "wikipedia/20230601.en" for the newest version on disk;
            "...:1.0.0" for a given version.
        data_dir: Where sets are prepared; None for `~/tensorflow_datasets`.
        split: E.g. "train", or "train[:10%]+validation".
        text_field: The feature that holds the text.

    Raises:
        ValueError: If there is no such set, split or feature, or the set is
            not prepared.
    """

    name: str
    data_dir: str | None = None
    split: str = "train"
    text_field: str = "text"

    def __post_init__(self):
        features = dict(self._builder.info.features.items())
        feature = features.get(self.text_field)
        if feature is None or (feature.tf_dtype, feature.shape) != (
            tf.string,
            (),
        ):
            raise ValueError(
                f"`text_field` must name a text of the set {self.name}, which "
                f"has: {', '.join(sorted(features))}. "
                f"Received: text_field={self.text_field!r}."
            )
        if not self._ranges or not any(last > a for _, a, last in self._ranges):
            raise ValueError(
                f"`tfds_split` must hold an example. Received: {self.split!r}."
            )

    @property
    def _builder(self):
        return _open(self.name, self.data_dir)

    @property
    def _ranges(self):
        """(split, first, last) of each consecutive range of examples."""
        import tensorflow_datasets as tfds

        splits = self._builder.info.splits
        try:
            wanted = tfds.core.ReadInstruction.from_spec(self.split)
            absolute = wanted.to_absolute(splits)
        except (ValueError, KeyError, AssertionError) as error:
            raise ValueError(
                f"`tfds_split` must name a split of {self.name}, which has: "
                f"{', '.join(sorted(splits))}. "
                f"Received: tfds_split={self.split!r}."
            ) from error
        return [
            (
                each.splitname,
                each.from_ or 0,
                splits[each.splitname].num_examples
                if each.to is None
                else each.to,
            )
            for each in absolute
        ]

    @property
    def settings(self) -> dict:
        """What a manifest records besides the files."""
        return {
            "tfds_name": self._builder.info.full_name,
            "tfds_split": self.split,
        }

    @property
    def names(self) -> list[str]:
        return [f"{self._builder.info.full_name}, {self.split}"]

    @property
    def paths(self) -> list[str]:
        """The files of the set that are read, in order."""
        splits = self._builder.info.splits
        # Keys of a dictionary: each file once, in order.
        return list(
            dict.fromkeys(
                str(path)
                for name, first, last in self._ranges
                if last > first
                for path in splits[f"{name}[{first}:{last}]"].filepaths
            )
        )

    def parts(self) -> list[text_files.Part]:
        """Returns `text_files.Part`s, which are ranges of example numbers."""
        parts = []
        for number, (name, first, last) in enumerate(self._ranges):
            size = max(1, int(text_files.PART_BYTES // self._mean_bytes(name)))
            parts += text_files.cut_in_parts(number, first, last, size)
        return parts

    def sizes(self, parts: abc.Iterable[text_files.Part]) -> list[int]:
        """Returns the approximate number of bytes in each part."""
        means = [self._mean_bytes(name) for name, _, _ in self._ranges]
        ends = [last for _, _, last in self._ranges]
        return [
            round(
                ((part.end or ends[part.file_number]) - part.start)
                * means[part.file_number]
            )
            for part in parts
        ]

    def _mean_bytes(self, name):
        split = self._builder.info.splits[name]
        return max(1, split.num_bytes / max(1, split.num_examples))

    def place(self, _: int, number: int) -> str:
        """Returns the name of an example in words."""
        return f"{self.names[0]}, example {number}"

    def sentences(
        self, part: text_files.Part, reader: text_files.Reader
    ) -> abc.Iterator[tuple[int, int, str]]:
        """Yields (number of the split, place in it, sentence) of a part.

        Args:
            part: The `text_files.Part`.
            reader: The `text_files.Reader`, which counts the examples that
                are left out.
        """
        for number, text in self.texts(part):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError as error:
                reader.bad_lines.add(
                    part.file_number, number, reason=bad_lines.not_utf_8(error)
                )
                continue
            for sentence in split_text(text):
                yield part.file_number, number << _CUT_BITS, sentence

    def texts(self, part: text_files.Part) -> abc.Iterator[tuple[int, bytes]]:
        """Yields (number of the example, its text) of a part."""
        import tensorflow_datasets as tfds

        name, _, _ = self._ranges[part.file_number]
        data = self._builder.as_dataset(
            split=tfds.core.ReadInstruction(
                name, from_=part.start, to=part.end, unit="abs"
            ),
            shuffle_files=False,
            # Read one file at a time, in order, and cache nothing.
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        )
        try:
            texts = data.map(lambda example: example[self.text_field])
            for number, text in enumerate(texts.as_numpy_iterator()):
                yield part.start + number, text
        except tf.errors.OpError as error:
            raise bad_lines.BadTextError(
                f"{self.names[0]}: a file of the set is missing, damaged or "
                f"cut short: {error.message}"
            ) from error


@functools.cache
def _open(name, data_dir):
    # Imported here because it is slow, and only needed for these sets.
    from bert_tf.input import prepared_sets

    return prepared_sets.open_builder(name, data_dir)
