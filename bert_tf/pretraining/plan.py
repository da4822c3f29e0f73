"""The three stages of making records, each by tasks that any process can do.

A part of the text becomes tokenised documents; a block of the documents
becomes a sorted run of examples; a segment of the examples becomes masked
records. A task writes its files into the work folder, and last a small JSON
file with its numbers, by which a later run knows that it is done. What it
writes is a function of the job and its own number alone.
"""

import dataclasses
import functools
import glob
import json
import os

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.objectives.table import OBJECTIVES
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import row_packing
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.settings import Settings
from bert_tf.text import masking
from bert_tf.text.tokenizers.wordpiece import WordpieceTokenizer
from bert_tf.text.vocabulary import Vocabulary

# Examples packed, masked and serialized together.
_BATCH_SIZE = 2048

# Tokens that hardly a sentence of prose exceeds, and many a paragraph.
_LONG_SENTENCE = 125


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """All that a task needs to know; it can be pickled.

    Args:
        source: What is read: `text_files.TextFiles` or `tfds_text.TfdsText`.
        parts: Its `text_files.Part`s.
        work_dir: The work folder, on a local disk.
        vocabulary: The vocabulary's tokens.
        do_lower_case: Of the tokenizer.
        fast: Of the tokenizer.
        settings: The `Settings`.
        max_bad_lines: How many lines may be left out, as they cannot be read.
    """

    source: object
    parts: tuple
    work_dir: str
    vocabulary: tuple
    do_lower_case: bool
    fast: bool
    settings: Settings
    max_bad_lines: int = 0

    def path(self, stage, number):
        """Returns where a task writes: a name for suffixes."""
        return os.path.join(self.work_dir, f"{stage}-{number:06d}")


class Stages:
    """The tasks of a job, as methods of their numbers.

    Args:
        job: The `Job`.
    """

    def __init__(self, job):
        self.job = job

    def __getstate__(self):
        # Not what the cached properties hold: every process makes its own.
        return {"job": self.job}

    @functools.cached_property
    def _vocabulary(self):
        return Vocabulary(tokens=self.job.vocabulary)

    @property
    def _objective(self):
        return OBJECTIVES[self.job.settings.objective]

    @functools.cached_property
    def dtype(self):
        """Of token ids in files."""
        return blocks.token_dtype(len(self.job.vocabulary))

    @functools.cached_property
    def _tokenize(self):
        return blocks.make_tokenize(
            WordpieceTokenizer(
                self._vocabulary, self.job.do_lower_case, self.job.fast
            )
        )

    @functools.cached_property
    def _mask_tokens(self):
        length = self.job.settings.max_seq_length
        vocabulary, rules = self._vocabulary, self.job.settings.masking

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, length], tf.int32),
                tf.TensorSpec([None, length], tf.int32),
                tf.TensorSpec([None, 2], tf.int64),
            ],
            # Nothing in it is Python control flow: converting it takes long.
            autograph=False,
        )
        def mask_tokens(input_ids, input_mask, seeds):
            return masking.mask_tokens(
                input_ids, input_mask, seeds, vocabulary, rules
            )

        return mask_tokens

    def read_part(self, number):
        """Tokenises the documents of a part of the text."""
        path = self.job.path("part", number)
        return _done(path, self.tokenize_part(self.job.parts[number], path))

    def tokenize_part(self, part, path):
        """Writes the tokenised documents of a part (`blocks.write_part`).

        Beside them stands of what they are a function: the part, and the last
        file that was read for it.

        Returns:
            Numbers: of documents, sentences, tokens, of what was cut and what
            left out; and the first places of that.
        """
        reader = self.job.source.reader(self.job.max_bad_lines)
        counts = blocks.write_part(
            reader.read(part), self._tokenize, self.dtype, path
        )
        origin = dataclasses.asdict(part) | {"last_file": reader.last_file}
        files.write_text(f"{path}.origin", json.dumps(origin))
        return counts | {
            "cut_lines": reader.num_cut_lines,
            "cut_documents": reader.num_cut_documents,
            "bad_lines": reader.bad_lines.count,
            "bad_places": reader.bad_lines.places,
        }

    def make_block(self, number):
        """Makes the examples of a block of the documents."""
        path = self.job.path("block", number)
        block = blocks.read_block(
            [
                self.job.path("part", part)
                for part in range(len(self.job.parts))
            ],
            self.dtype,
            number,
            self._num_blocks,
        )
        block, cuts, counts = self.cut(block)
        written = example_runs.write_run(block, cuts, self.dtype, path)
        return _done(path, written | counts)

    def cut(self, block):
        """Cuts a block of documents into examples.

        Args:
            block: A `blocks.Corpus`.

        Returns:
            The `Corpus` that they point into, `cuts.Cuts` in the
            order of the records, and numbers: `{"lone_documents",
            "skipped_documents", "one_sentence_documents",
            "long_sentence_tokens"}`.
        """
        settings = self.job.settings
        num_sentences = np.diff(block.document_starts)
        lengths = np.diff(block.sentence_starts)
        longest = max(_LONG_SENTENCE, settings.max_seq_length - 3)
        is_lone = self._objective.needs_documents and block.num_documents == 1
        counts = {
            "lone_documents": int(is_lone),
            "skipped_documents": int(
                (num_sentences < self._objective.min_sentences).sum()
            ),
            "one_sentence_documents": int((num_sentences == 1).sum()),
            "long_sentence_tokens": int(lengths[lengths > longest].sum()),
        }
        block, cuts = self._objective.cut(
            block, settings, self._vocabulary.sep_id
        )
        return block, cuts.shuffled(), counts

    def write_segment(self, number):
        """Writes the records of one segment of the shuffled examples."""
        path = self.job.path("segment", number)
        segment = self._runs.read(*self._segments[number])
        return _done(path, self.write_records(segment, f"{path}.tfrecord"))

    def write_records(self, segment, path):
        """Writes the records of `Examples` to a file.

        Returns:
            `{"records", "predictions", "bytes"}`, numbers.
        """
        num_predictions = 0

        def serialized():
            nonlocal num_predictions
            for batch in self._record_batches(segment):
                weights = batch.get(features.MASKED_LM_WEIGHTS, np.zeros(1))
                num_predictions += int(weights.sum())
                yield tfrecord.serialize(batch)

        num_records = tfrecord.write(path, serialized())
        return {
            "records": num_records,
            "predictions": num_predictions,
            "bytes": files.size(path),
        }

    def _record_batches(self, segment):
        """Yields the records of `Examples` by batches: {name: [B, length]}."""
        settings = self.job.settings
        if settings.max_sequences_per_row == 1:
            for first in range(0, len(segment), _BATCH_SIZE):
                yield self.record_features(
                    segment.take(slice(first, first + _BATCH_SIZE))
                )
            return
        lengths = segment.lengths
        rows = row_packing.assign_rows(
            lengths,
            settings.masking.num_predictions(lengths).numpy(),
            max_seq_length=settings.max_seq_length,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            max_sequences_per_row=settings.max_sequences_per_row,
        )
        order = np.argsort(rows, kind="stable")
        rows, segment = rows[order], segment.take(order)
        # Some examples at a time, but whole rows.
        edges = np.unique(np.searchsorted(rows, rows[::_BATCH_SIZE]))
        for first, last in zip(edges, [*edges[1:], len(rows)]):
            yield row_packing.join_rows(
                self.record_features(segment.take(slice(first, last))),
                rows[first:last] - rows[first],
                settings.max_sequences_per_row,
                self._vocabulary.pad_id,
            )

    def record_features(self, unmasked):
        """Returns `Examples` as records of one each: {name: [B, length]}."""
        settings = self.job.settings
        record = example_runs.pack(
            unmasked, settings.max_seq_length, self._vocabulary
        )
        if settings.masking_mode == "static":
            with tf.device("CPU:0"):
                masked = self._mask_tokens(
                    record[features.INPUT_IDS],
                    record[features.INPUT_MASK],
                    unmasked.seeds,
                )
            record |= {name: value.numpy() for name, value in masked.items()}
        if self._objective.label_meanings:
            record[features.NEXT_SENTENCE_LABELS] = unmasked.label[
                :, None
            ].astype(np.int32)
        return record

    # What is known only after an earlier stage lies in the work folder.

    @functools.cached_property
    def _num_blocks(self):
        return files.read_json(os.path.join(self.job.work_dir, "blocks.json"))

    @functools.cached_property
    def _segments(self):
        return files.read_json(os.path.join(self.job.work_dir, "segments.json"))

    @functools.cached_property
    def _runs(self):
        return example_runs.Runs(
            [
                self.job.path("block", block)
                for block in range(self._num_blocks)
            ],
            self.dtype,
        )


def result(path):
    """Returns the numbers of a task, or None if it is not done."""
    if not os.path.exists(f"{path}.json"):
        return None
    return files.read_json(f"{path}.json")


def _done(path, numbers):
    # On the disk before the file that says so.
    for name in glob.glob(f"{glob.escape(path)}.*"):
        with open(name, "rb") as stream:
            os.fsync(stream.fileno())
    files.write_text(f"{path}.json", json.dumps(numbers))
    return numbers
