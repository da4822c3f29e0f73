"""Reads, prints and counts the examples of pre-training records.

Also of records that google-research/bert's program made.
"""

import collections
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import manifest as manifests
from bert_tf.input import errors
from bert_tf.pretraining.records import tfrecord
from bert_tf.text.vocabulary import Vocabulary

_BATCH_SIZE = 1024
# For records of google-research/bert's program, and for older manifests.
_OBJECTIVE = "next_sentence"


def read(paths: list[str]) -> Iterator[dict]:
    """Yields the examples of record files in batches.

    Args:
        paths: TFRecord files. All examples must have the lengths of the first.

    Yields:
        `{name: array}`, [B, length], as in `features.pretraining_record`.

    Raises:
        ValueError: If a file is not a TFRecord file, is cut short, or holds
            anything but pre-training examples of one length. The message
            names the file.
    """
    parse = None
    for path in paths:
        records = tf.data.TFRecordDataset(path).batch(_BATCH_SIZE)
        num_records = num_bytes = 0
        try:
            for batch in records:
                num_records += len(batch)
                num_bytes += int(tf.reduce_sum(tf.strings.length(batch)))
                if parse is None:
                    parse = _parser(batch[0].numpy())
                parsed = tf.io.parse_example(batch, parse)
                yield {name: value.numpy() for name, value in parsed.items()}
        except (tf.errors.OpError, ValueError) as error:
            raise ValueError(f"{path}: {errors.reason(error)}") from error
        errors.check_end(path, num_records, num_bytes)
    if parse is None:
        raise ValueError(f"There is no record in {', '.join(paths)}.")


def _parser(record):
    try:
        found = tf.train.Example.FromString(record).features.feature
    # protobuf's DecodeError; its implementations share no public base class.
    except Exception as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    if not set(features.MODEL_INPUTS) <= set(found):
        raise ValueError(
            "not a pre-training example: it needs "
            f"{', '.join(features.MODEL_INPUTS)}. "
            f"Received: {', '.join(sorted(found))}."
        )
    record = tfrecord.spec_of(
        {name: len(each.int64_list.value) for name, each in found.items()}
    )
    return {
        name: tf.io.FixedLenFeature(shape, dtype)
        for name, (dtype, shape) in record.items()
    }


def with_masks(examples: dict) -> dict:
    """Returns the batch; without masks, one with a single empty slot."""
    if features.MASKED_LM_IDS in examples:
        return examples
    empty = np.zeros((len(examples[features.INPUT_IDS]), 1), np.int64)
    return examples | {
        features.MASKED_LM_POSITIONS: empty,
        features.MASKED_LM_IDS: empty,
        features.MASKED_LM_WEIGHTS: empty.astype(np.float32),
    }


def lengths(input_mask: np.ndarray) -> np.ndarray:
    """Returns the number of tokens of each row: int64 `[B]`.

    Args:
        input_mask: int `[B, L]`; every positive number counts as 1.
    """
    return (input_mask > 0).sum(axis=1)


def is_sequence(first_positions: np.ndarray) -> np.ndarray:
    """Returns which slots of a row hold a sequence: bool [B, S]."""
    return (first_positions > 0) | (np.arange(first_positions.shape[1]) == 0)


def unpack(examples: dict, vocabulary: Vocabulary) -> tuple[dict, np.ndarray]:
    """Returns the sequences of packed rows, one per row.

    Args:
        examples: A batch as `read` yields it, of packed rows.
        vocabulary: A `Vocabulary`.

    Returns:
        `{name: [N, ...]}` as in `features.pretraining_record` with one
        sequence a record; and int64 [N], the row that each was in.
    """
    mask = examples[features.INPUT_MASK]
    numbers = examples[features.SEQUENCE_IDS] * (mask > 0)
    rows, sequence = np.nonzero(is_sequence(examples[features.FIRST_POSITIONS]))
    is_own = numbers[rows] == sequence[:, None] + 1
    # A sequence's own columns come first, in order.
    order = np.argsort(~is_own, axis=1, kind="stable")
    is_token = np.arange(mask.shape[1]) < is_own.sum(axis=1)[:, None]
    padding = {features.INPUT_IDS: vocabulary.pad_id}
    found = {
        name: np.where(
            is_token,
            np.take_along_axis(examples[name][rows], order, axis=1),
            padding.get(name, 0),
        )
        for name in features.MODEL_INPUTS
    }
    if features.NEXT_SENTENCE_LABELS in examples:
        found[features.NEXT_SENTENCE_LABELS] = examples[
            features.NEXT_SENTENCE_LABELS
        ][rows, sequence][:, None]
    if features.MASKED_LM_IDS in examples:
        positions = np.clip(
            examples[features.MASKED_LM_POSITIONS][rows], 0, mask.shape[1] - 1
        )
        weights = examples[features.MASKED_LM_WEIGHTS][rows]
        is_own = (weights > 0) & np.take_along_axis(is_own, positions, axis=1)
        slots = np.argsort(~is_own, axis=1, kind="stable")
        is_own = np.take_along_axis(is_own, slots, axis=1)
        # Position 0 is the sequence's own first column.
        positions = positions - order[:, :1]
        for name, values in (
            (features.MASKED_LM_POSITIONS, positions),
            (features.MASKED_LM_IDS, examples[features.MASKED_LM_IDS][rows]),
            (features.MASKED_LM_WEIGHTS, weights),
        ):
            values = np.take_along_axis(values, slots, axis=1)
            found[name] = np.where(is_own, values, 0)
    return found, rows


def restored(examples: dict) -> np.ndarray:
    """Returns the ids before masking: int64 [B, L]."""
    examples = with_masks(examples)
    ids = examples[features.INPUT_IDS].copy()
    positions = examples[features.MASKED_LM_POSITIONS]
    is_prediction = (
        (examples[features.MASKED_LM_WEIGHTS] > 0)
        & (positions >= 0)
        & (positions < ids.shape[1])
    )
    rows, slots = np.nonzero(is_prediction)
    ids[rows, positions[rows, slots]] = examples[features.MASKED_LM_IDS][
        rows, slots
    ]
    return ids


def count(examples: dict, vocabulary: Vocabulary) -> collections.Counter:
    """Returns the totals of a batch; totals of several batches add up.

    Returns:
        A `collections.Counter` of records and their columns, examples, tokens,
        unknown tokens, tokens of segment B (including [SEP]), random pairs and
        predictions; and of the predictions that became [MASK], stayed, or
        became another token. In records that break a rule, every positive
        number in the mask or the segments counts as 1, and only the label 1
        as a random pair.
    """
    examples = with_masks(examples)
    ids = examples[features.INPUT_IDS]
    labels = examples[features.MASKED_LM_IDS]
    is_prediction = examples[features.MASKED_LM_WEIGHTS] > 0
    positions = np.clip(
        examples[features.MASKED_LM_POSITIONS], 0, ids.shape[1] - 1
    )
    now = np.take_along_axis(ids, positions, axis=1)
    is_mask = now == vocabulary.mask_id
    is_kept = now == labels
    totals = {
        "records": np.array(len(ids)),
        "columns": np.array(ids.size),
        "examples": is_sequence(
            examples.get(features.FIRST_POSITIONS, np.zeros((len(ids), 1)))
        ),
        "tokens": lengths(examples[features.INPUT_MASK]),
        "unknown": (restored(examples) == vocabulary.unk_id)
        & (examples[features.INPUT_MASK] > 0),
        "tokens of B": examples[features.SEGMENT_IDS] > 0,
        "random pairs": examples.get(
            features.NEXT_SENTENCE_LABELS, np.zeros(1, int)
        )
        == 1,
        "predictions": is_prediction,
        "masked": is_prediction & is_mask,
        "kept": is_prediction & is_kept & ~is_mask,
        "replaced": is_prediction & ~is_kept & ~is_mask,
    }
    return collections.Counter(
        {name: int(values.sum()) for name, values in totals.items()}
    )


def tokens_of(
    examples: dict, row: int, vocabulary: Vocabulary
) -> list[tuple[str, int, str | None]]:
    """Returns the tokens of a record, without its padding.

    Returns:
        (original token, segment, token in the input) for each. The last is
        None where there is no prediction.
    """
    one = with_masks(
        {name: values[row : row + 1] for name, values in examples.items()}
    )
    chosen = one[features.MASKED_LM_POSITIONS][
        one[features.MASKED_LM_WEIGHTS] > 0
    ]
    (was,), (now,) = restored(one), one[features.INPUT_IDS]
    segments = one[features.SEGMENT_IDS][0].tolist()

    def name(index):
        if 0 <= index < len(vocabulary):
            return vocabulary.tokens[index]
        return f"<{index}>"

    return [
        (
            name(was[place]),
            segments[place],
            name(now[place]) if place in chosen else None,
        )
        for place in range(lengths(one[features.INPUT_MASK])[0])
    ]


def objective_of(manifest: manifests.Manifest | None) -> str:
    """Returns the objective of records, a key of `features.SENTENCE_LABELS`.

    Args:
        manifest: The `Manifest` of the records, or None.
    """
    settings = {} if manifest is None else manifest.settings
    return settings.get("objective", _OBJECTIVE)


def label_meanings(manifest: manifests.Manifest | None) -> tuple[str, ...]:
    """Returns the meanings of the labels 0 and 1; () if there are no labels.

    Args:
        manifest: The `Manifest` of the records, or None.
    """
    return features.SENTENCE_LABELS[objective_of(manifest)]


def meaning_of(label: int, meanings: tuple[str, ...]) -> str:
    """Returns the meaning of a label, such as "label 2" for an unknown one."""
    if 0 <= label < len(meanings):
        return meanings[label]
    return f"label {label}"


def table(
    examples: dict,
    row: int,
    vocabulary: Vocabulary,
    meanings: tuple[str, ...] = features.SENTENCE_LABELS[_OBJECTIVE],
) -> str:
    """Returns one record as a table with a line for each token.

    Columns: index, original token, number of the sequence (in packed rows),
    segment, position in the sequence; for predictions also the token in the
    input, and the label. `meanings` is what `label_meanings` returns.
    """
    is_packed = features.SEQUENCE_IDS in examples
    tokens = tokens_of(examples, row, vocabulary)
    lines = [
        f"{'index':>5}  {'token':20} "
        f"{'sequence ' if is_packed else ''}{'segment':>7} position  "
        f"{'masked as':10} label"
    ]
    for place, (was, segment, now) in enumerate(tokens):
        number, position = "", place
        if is_packed:
            number = f"{examples[features.SEQUENCE_IDS][row, place]:8} "
            position = examples[features.POSITION_IDS][row, place]
        line = f"{place:5}  {was:20} {number}{segment:7} {position:8}"
        if now is not None:
            line += f"  {now:10} {was}"
        lines.append(line)
    line = (
        f"{len(tokens)} tokens, "
        f"{examples[features.INPUT_IDS].shape[1] - len(tokens)} of padding, "
        f"{sum(now is not None for _, _, now in tokens)} predictions"
    )
    exists = np.ones(1, bool)
    if is_packed:
        exists = is_sequence(examples[features.FIRST_POSITIONS])[row]
        line = f"{exists.sum()} sequences, {line}"
    if features.NEXT_SENTENCE_LABELS in examples:
        labels = examples[features.NEXT_SENTENCE_LABELS][row][exists]
        line += "; " + ", ".join(
            meaning_of(label, meanings) for label in labels.tolist()
        )
    lines.append(line)
    return "\n".join(lines)


def check_vocabulary(
    path: str, manifest: manifests.Manifest, vocabulary: Vocabulary
) -> None:
    """Checks that records were made with this vocabulary.

    Args:
        path: The record file, for the error message.
        manifest: Its `Manifest`.
        vocabulary: A `Vocabulary`.

    Raises:
        ValueError: If they were made with another vocabulary.
    """
    manifest.check_vocabulary(
        path, vocabulary.to_text(), vocabulary.path or "one"
    )
