"""Makes pre-training records of text files: the whole way.

Documents are read and tokenised, cut into pairs, shuffled; then each record
file is written in turn, its examples packed, masked and serialized by batches.
Pairs are a few numbers each until then. A record file is a function of the
corpus, the settings and its own number alone.
"""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import documents
from bert_tf.pretraining import records
from bert_tf.pretraining import sentence_pairs
from bert_tf.text import masking

# Examples packed, masked and serialized together.
_BATCH_SIZE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What the examples are a function of, besides text and vocabulary.

    Args:
        max_seq_length: L, at least 5.
        max_predictions_per_seq: P, the most masked tokens of an example.
        random_seed: In [0, 2**32).
        dupe_factor: Passes over the text, each with other pairs and masks.
        masked_lm_prob: Share of an example's tokens that is masked.
        short_seq_prob: Share of documents cut for a random shorter length.
        do_whole_word_mask: Whether all pieces of a word are masked together.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    random_seed: int = 12345
    dupe_factor: int = 10
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False

    def __post_init__(self):
        # Each checks its part.
        _ = self.pairs, self.masking

    @property
    def pairs(self):
        return sentence_pairs.PairSettings(
            max_seq_length=self.max_seq_length,
            short_seq_prob=self.short_seq_prob,
            dupe_factor=self.dupe_factor,
            random_seed=self.random_seed,
        )

    @property
    def masking(self):
        return masking.Rules(
            max_predictions_per_seq=self.max_predictions_per_seq,
            masked_lm_prob=self.masked_lm_prob,
            do_whole_word_mask=self.do_whole_word_mask,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Totals of a set of records.

    Args:
        documents: Documents read.
        sentences: Their sentences.
        tokens: Their tokens.
        examples: Examples written.
        example_tokens: Tokens of all examples, [CLS] and [SEP] counted.
        random_pairs: Examples whose second segment is a random one.
        predictions: Tokens that are to be predicted.
    """

    documents: int
    sentences: int
    tokens: int
    examples: int
    example_tokens: int
    random_pairs: int
    predictions: int


def build(input_files, output_files, tokenizer, settings, progress=None):
    """Makes records of text files, and the manifest beside them.

    All files appear when all are whole: if anything fails, nothing is left
    and what was there stays.

    Args:
        input_files: Comma-separated globs of text files: one sentence a line,
            a blank line between documents.
        output_files: Comma-separated paths, as `records.output_paths` reads
            them. Examples go to them in turn.
        tokenizer: A `WordpieceTokenizer`.
        settings: A `Settings`.
        progress: Called as `progress(stage, done, total)`; the stages are
            "read" (bytes) and "write" (examples).

    Returns:
        The `Counts`.

    Raises:
        ValueError: If a file is missing, empty or not UTF-8, or there is no
            sentence.
        OSError: If the records cannot be written.
    """
    output_paths = records.output_paths(output_files)
    input_paths = documents.input_paths(input_files)
    num_bytes = sum(files.size(path) for path in input_paths)
    with contextlib.ExitStack() as stack:
        # On the way out each becomes the file it stands for, or is removed.
        # Entered first: it makes the folders, and should fail early.
        temporaries = [
            stack.enter_context(files.whole_file(path)) for path in output_paths
        ]
        corpus = documents.read(
            input_paths, tokenizer, _stage(progress, "read", num_bytes)
        )
        pairs = pairs_of(corpus, num_bytes, settings.pairs)
        writer = _Writer(corpus, pairs, tokenizer.vocabulary, settings)
        report = _stage(progress, "write", len(pairs))
        written = {}
        for number, path in enumerate(output_paths):
            indices = np.arange(number, len(pairs), len(output_paths))
            count = writer.write(temporaries[number], indices, report)
            written[path] = {
                "examples": count,
                "bytes": files.size(temporaries[number]),
            }
    counts = Counts(
        documents=corpus.num_documents,
        sentences=corpus.num_sentences,
        tokens=len(corpus.tokens),
        examples=len(pairs),
        example_tokens=int((pairs.a_length + pairs.b_length + 3).sum()),
        random_pairs=int(pairs.is_random.sum()),
        predictions=writer.num_predictions,
    )
    _write_manifests(written, corpus, counts, tokenizer, settings)
    return counts


def pairs_of(corpus, num_bytes, settings):
    """Returns the `Pairs` of all blocks of a corpus, shuffled.

    Args:
        corpus: A `Corpus`.
        num_bytes: The size of its text, which sets the number of blocks.
        settings: A `PairSettings`.
    """
    blocks = sentence_pairs.blocks_of(corpus.document_keys, num_bytes)
    parts = [
        sentence_pairs.make_pairs(
            corpus, np.flatnonzero(blocks == block), settings
        )
        for block in np.unique(blocks)
    ]
    return sentence_pairs.concatenate(parts).shuffled()


def pack(corpus, pairs, max_seq_length, vocabulary):
    """Returns pairs as model inputs: [CLS] A [SEP] B [SEP] and padding.

    Args:
        corpus: A `Corpus`.
        pairs: `Pairs` of at most `max_seq_length - 3` tokens.
        max_seq_length: L.
        vocabulary: A `Vocabulary`.

    Returns:
        `{input_ids, input_mask, segment_ids}`, int32 [pairs, L].
    """
    column = np.arange(max_seq_length)
    first_sep = pairs.a_length[:, None] + 1
    last_sep = first_sep + pairs.b_length[:, None] + 1
    is_b = column > first_sep
    source = np.where(
        is_b,
        pairs.b_start[:, None] + column - first_sep - 1,
        pairs.a_start[:, None] + column - 1,
    )
    # The columns that are no tokens look up anything, and are written over.
    input_ids = corpus.tokens.take(source, mode="clip")
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[(column == first_sep) | (column == last_sep)] = vocabulary.sep_id
    is_padding = column > last_sep
    input_ids[is_padding] = vocabulary.pad_id
    return {
        features.INPUT_IDS: input_ids,
        features.INPUT_MASK: (~is_padding).astype(np.int32),
        features.SEGMENT_IDS: (is_b & ~is_padding).astype(np.int32),
    }


class _Writer:
    """Writes record files, and counts the predictions in them."""

    def __init__(self, corpus, pairs, vocabulary, settings):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, settings.max_seq_length], tf.int32),
                tf.TensorSpec([None, settings.max_seq_length], tf.int32),
                tf.TensorSpec([None, 2], tf.int64),
            ]
        )
        def mask_tokens(input_ids, input_mask, seeds):
            return masking.mask_tokens(
                input_ids, input_mask, seeds, vocabulary, settings.masking
            )

        self._mask_tokens = mask_tokens
        self._corpus = corpus
        self._pairs = pairs
        self._vocabulary = vocabulary
        self._max_seq_length = settings.max_seq_length
        self._num_written = 0
        self.num_predictions = 0

    def write(self, path, indices, report):
        """Writes the examples of the pairs at `indices`."""
        return records.write(path, self._batches(indices, report))

    def _batches(self, indices, report):
        for start in range(0, len(indices), _BATCH_SIZE):
            batch = self._pairs.take(indices[start : start + _BATCH_SIZE])
            yield records.serialize(self._examples(batch))
            self._num_written += len(batch)
            if report:
                report(self._num_written)

    def _examples(self, pairs):
        inputs = pack(
            self._corpus, pairs, self._max_seq_length, self._vocabulary
        )
        masked = self._mask_tokens(
            inputs[features.INPUT_IDS],
            inputs[features.INPUT_MASK],
            pairs.seeds,
        )
        masked = {name: value.numpy() for name, value in masked.items()}
        self.num_predictions += int(masked[features.MASKED_LM_WEIGHTS].sum())
        labels = pairs.is_random[:, None].astype(np.int32)
        return inputs | masked | {features.NEXT_SENTENCE_LABELS: labels}


def _stage(progress, stage, total):
    if progress is None:
        return None
    return lambda done: progress(stage, done, total)


def _write_manifests(written, corpus, counts, tokenizer, settings):
    by_folder = {}
    for path in written:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    values = dataclasses.asdict(settings)
    max_seq_length = values.pop("max_seq_length")
    max_predictions_per_seq = values.pop("max_predictions_per_seq")
    for paths in by_folder.values():
        manifests.write(
            manifests.Manifest(
                max_seq_length=max_seq_length,
                max_predictions_per_seq=max_predictions_per_seq,
                vocab_size=len(tokenizer.vocabulary),
                vocab_sha256=manifests.text_sha256(
                    tokenizer.vocabulary.to_text()
                ),
                do_lower_case=tokenizer.do_lower_case,
                settings=values,
                inputs=corpus.inputs,
                counts=dataclasses.asdict(counts),
                records={
                    path.rpartition("/")[2]: written[path] for path in paths
                },
            ),
            manifests.path_beside(paths),
        )
