"""The stages of making records; each depends only on the stage before.

A part of the text becomes tokenised documents. A block of the documents
becomes a sorted run of examples. A range of the shuffled examples becomes
masked records. Processes (`run_local`) or Beam (`run_beam`) run the stages.
"""

import dataclasses
import functools
import json
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf import atomic
from bert_tf import features
from bert_tf import files
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.objectives.table import OBJECTIVES
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import row_packing
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources.tfds_text import TfdsText
from bert_tf.text import masking
from bert_tf.text.tokenizers.tokenizer import Spec

# Examples packed, masked and serialized together.
_BATCH_SIZE = 2048

# Few sentences of prose have more tokens; many paragraphs do.
_LONG_SENTENCE = 125


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The stages and all that they need to know; can be pickled.

    Args:
        source: The input: `text_files.TextFiles` or `tfds_text.TfdsText`.
        parts: Its `text_files.Part`s.
        tokenizer: The spec of the tokenizer.
        settings: The `Settings`.
        max_bad_lines: How many unreadable lines may be left out.

    Raises:
        ValueError: If sequences are too short for the special tokens.
    """

    source: text_files.TextFiles | TfdsText
    parts: tuple
    tokenizer: Spec
    settings: Settings
    max_bad_lines: int = 0

    def __post_init__(self):
        # `Settings` only knows BERT's template.
        special = self.tokenizer.vocabulary.special
        shortest = special.count(2) + 2
        if (
            self._objective.label_meanings
            and self.settings.max_seq_length < shortest
        ):
            raise ValueError(
                f"`max_seq_length` must be at least {shortest} for "
                f"{special.cls} A {special.sep * special.num_between} B "
                f"{special.sep}, each segment with a token. Received: "
                f"max_seq_length={self.settings.max_seq_length}."
            )

    def __getstate__(self):
        # Without the cached properties: every process makes its own.
        return vars(dataclasses.replace(self))

    @property
    def _objective(self):
        return OBJECTIVES[self.settings.objective]

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """The dtype of token ids in files."""
        return blocks.token_dtype(len(self.tokenizer.vocabulary))

    def tokenize_part(self, part: text_files.Part, path: str) -> dict:
        """Writes the tokenised documents of a part (`blocks.write_part`).

        A file beside them records their origin: the part, and the last file
        that was read for it.

        Returns:
            The counts of documents, sentences and tokens, and of what was cut
            or left out; and the first places of lines left out.
        """
        reader = text_files.Reader(self.source, self.max_bad_lines)
        counts = blocks.write_part(
            reader.read(part), _make_tokenize(self.tokenizer), self.dtype, path
        )
        origin = dataclasses.asdict(part) | {"last_file": reader.last_file}
        atomic.write_text(f"{path}.origin", json.dumps(origin))
        return counts | {
            "cut_lines": reader.num_cut_lines,
            "cut_documents": reader.num_cut_documents,
            "bad_lines": reader.bad_lines.count,
            "bad_places": reader.bad_lines.places,
        }

    def cut_block(self, block: blocks.Corpus, path: str) -> dict:
        """Writes the examples of a block of documents as a sorted run.

        Returns:
            The counts of `example_runs.write_run`, and `{"lone_documents",
            "skipped_documents", "one_sentence_documents", "unknown_tokens",
            "long_sentence_tokens"}`.
        """
        num_sentences = np.diff(block.document_starts)
        lengths = np.diff(block.sentence_starts)
        vocabulary = self.tokenizer.vocabulary
        room = self.settings.max_seq_length - vocabulary.special.count(2)
        longest = max(_LONG_SENTENCE, room)
        is_lone = self._objective.needs_documents and block.num_documents == 1
        counts = {
            "lone_documents": int(is_lone),
            "skipped_documents": int(
                (num_sentences < self._objective.min_sentences).sum()
            ),
            "one_sentence_documents": int((num_sentences == 1).sum()),
            "unknown_tokens": int((block.tokens == vocabulary.unk_id).sum()),
            "long_sentence_tokens": int(lengths[lengths > longest].sum()),
        }
        text, cuts = self._objective.cut(block, self.settings, vocabulary)
        written = example_runs.write_run(
            text, cuts.shuffled(), self.dtype, path, vocabulary.special
        )
        return written | counts

    def write_records(self, examples: example_runs.Examples, path: str) -> dict:
        """Writes the records of examples to a file.

        Returns:
            The counts `{"records", "predictions", "unmasked_examples",
            "bytes"}`.
        """
        numbers = {"predictions": 0, "unmasked_examples": 0}
        batches = self._record_batches(examples, numbers)
        num_records = tfrecord.write(path, map(tfrecord.serialize, batches))
        return numbers | {"records": num_records, "bytes": files.size(path)}

    def _record_batches(self, examples, numbers):
        """Yields the records of `Examples` in batches: {name: [B, length]}.

        Adds the counts of the masking to `numbers`.
        """

        def make(examples):
            records = self.record_features(examples)
            if features.MASKED_LM_WEIGHTS in records:
                chosen = records[features.MASKED_LM_WEIGHTS].sum(axis=1)
                numbers["predictions"] += int(chosen.sum())
                numbers["unmasked_examples"] += int((chosen == 0).sum())
            return records

        settings = self.settings
        if settings.max_sequences_per_row == 1:
            for first in range(0, len(examples), _BATCH_SIZE):
                yield make(examples.take(slice(first, first + _BATCH_SIZE)))
            return
        lengths = examples.lengths(self.tokenizer.vocabulary.special)
        rows = row_packing.assign_rows(
            lengths,
            settings.masking.num_predictions(lengths).numpy(),
            max_seq_length=settings.max_seq_length,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            max_sequences_per_row=settings.max_sequences_per_row,
        )
        order = np.argsort(rows, kind="stable")
        rows, examples = rows[order], examples.take(order)
        # Batches of about this many examples, but of whole rows.
        edges = np.unique(np.searchsorted(rows, rows[::_BATCH_SIZE]))
        for first, last in zip(edges, [*edges[1:], len(rows)]):
            yield row_packing.join_rows(
                make(examples.take(slice(first, last))),
                rows[first:last] - rows[first],
                settings.max_sequences_per_row,
                self.tokenizer.vocabulary.pad_id,
            )

    def record_features(self, examples: example_runs.Examples) -> dict:
        """Returns one record per example: {name: [B, length]}."""
        record = example_runs.pack(
            examples, self.settings.max_seq_length, self.tokenizer.vocabulary
        )
        if self.settings.masking_mode == "static":
            mask_tokens = _make_mask_tokens(
                self.settings.max_seq_length,
                self.tokenizer,
                self.settings.masking,
            )
            with tf.device("CPU:0"):
                masked = mask_tokens(
                    record[features.INPUT_IDS],
                    record[features.INPUT_MASK],
                    examples.headers["seeds"].astype(np.int64),
                )
            record |= {name: value.numpy() for name, value in masked.items()}
        if self._objective.label_meanings:
            record[features.NEXT_SENTENCE_LABELS] = examples.headers["label"][
                :, None
            ].astype(np.int32)
        return record


# A process traces a graph once, however many plans share it.
@functools.lru_cache(maxsize=8)
def _make_tokenize(tokenizer: Spec) -> Callable:
    return blocks.make_tokenize(tokenizer.make())


@functools.lru_cache(maxsize=8)
def _make_mask_tokens(
    length: int, tokenizer: Spec, rules: masking.Rules
) -> Callable:
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, length], tf.int32),
            tf.TensorSpec([None, length], tf.int32),
            tf.TensorSpec([None, 2], tf.int64),
        ],
        # There is no Python control flow to convert, and converting is slow.
        autograph=False,
    )
    def mask_tokens(input_ids, input_mask, seeds):
        return masking.mask_tokens(
            input_ids, input_mask, seeds, tokenizer, rules
        )

    return mask_tokens


def make_plan(
    input_files: str | TfdsText,
    tokenizer: Spec,
    settings: Settings,
    max_bad_lines: int = 0,
) -> Plan:
    """Returns the `Plan` for the arguments of `run_local.build`.

    Raises:
        ValueError: If a file is missing or empty.
    """
    if isinstance(input_files, str):
        source: text_files.TextFiles | TfdsText = text_files.TextFiles(
            paths=tuple(text_files.input_paths(input_files)),
            input_format=settings.input_format,
            text_field=settings.text_field,
        )
    else:
        source = input_files
    return Plan(
        source=source,
        parts=tuple(source.parts()),
        tokenizer=tokenizer,
        settings=settings,
        max_bad_lines=max_bad_lines,
    )
