"""Looks into pre-training records: prints, counts and checks examples.

Whoever made the records, google-research/bert's program included: what is
checked is what its rules say of each example.
"""

import collections
import re

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import manifest as manifests
from bert_tf.text import masking

_BATCH_SIZE = 1024


def read(paths):
    """Yields the examples of record files by batches.

    Args:
        paths: TFRecord files; all examples must have the first one's lengths.

    Yields:
        `{name: array}` as `features.pretraining_record` has them, [B, length].

    Raises:
        ValueError: If a file is no TFRecord file, is cut short, or holds
            something else than pre-training examples of one length; the
            message names the file.
    """
    parse = None
    for path in paths:
        records = tf.data.TFRecordDataset(path).batch(_BATCH_SIZE)
        try:
            for batch in records:
                if parse is None:
                    parse = _parser(batch[0].numpy())
                parsed = tf.io.parse_example(batch, parse)
                yield {name: value.numpy() for name, value in parsed.items()}
        except (tf.errors.OpError, ValueError) as error:
            # Without TensorFlow's names of nodes and operations round it.
            reason = re.sub(r"^\{\{.*?\}\} | \[Op:.*", "", str(error))
            raise ValueError(f"{path}: {reason}") from error
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
    record = features.pretraining_record(
        len(found[features.INPUT_IDS].int64_list.value),
        len(found[features.MASKED_LM_IDS].int64_list.value)
        if features.MASKED_LM_IDS in found
        else 0,
        has_labels=features.NEXT_SENTENCE_LABELS in found,
        is_masked=features.MASKED_LM_IDS in found,
    )
    return {
        name: tf.io.FixedLenFeature(shape, dtype)
        for name, (dtype, shape) in record.items()
    }


def _with_masks(examples):
    """Returns the batch; one without masks gets a slot that is empty."""
    if features.MASKED_LM_IDS in examples:
        return examples
    empty = np.zeros((len(examples[features.INPUT_IDS]), 1), np.int64)
    return examples | {
        features.MASKED_LM_POSITIONS: empty,
        features.MASKED_LM_IDS: empty,
        features.MASKED_LM_WEIGHTS: empty.astype(np.float32),
    }


def check(examples, vocabulary, rules=None):
    """Checks every rule on every example.

    Args:
        examples: A batch as `read` yields it.
        vocabulary: The `Vocabulary`.
        rules: The `masking.Rules` that the examples were made by, if known:
            then the number of predictions is checked too.

    Returns:
        `{rule in words: bool [B]}`, True where the example keeps it.
    """
    is_masked = features.MASKED_LM_IDS in examples
    has_labels = features.NEXT_SENTENCE_LABELS in examples
    examples = _with_masks(examples)
    ids = examples[features.INPUT_IDS]
    mask = examples[features.INPUT_MASK]
    labels = examples[features.MASKED_LM_IDS]
    positions = examples[features.MASKED_LM_POSITIONS]
    weights = examples[features.MASKED_LM_WEIGHTS]
    rows = np.arange(len(ids))
    column = np.arange(ids.shape[1])
    length = mask.sum(axis=1)
    count = (weights > 0).sum(axis=1)
    is_prediction = np.arange(weights.shape[1]) < count[:, None]
    is_inside = (positions >= 0) & (positions < length[:, None])
    original = restored(examples)
    is_sep = (original == vocabulary.sep_id) & (mask > 0)
    first_sep = is_sep.argmax(axis=1)
    # Without a label there is one segment, and a [SEP] between documents.
    is_b = has_labels & (column > first_sep[:, None])
    is_b &= column < length[:, None]
    steps = np.diff(np.where(is_prediction, positions, ids.shape[1]), axis=1)

    def everywhere(holds):
        return holds.all(axis=1)

    checks = {
        "ids are in the vocabulary": everywhere(
            (ids >= 0) & (ids < len(vocabulary))
        )
        & everywhere((labels >= 0) & (labels < len(vocabulary))),
        "the input mask is 1 on tokens, then 0": everywhere(
            mask == (column < length[:, None])
        ),
        "padding has id and segment of padding": everywhere(
            (column < length[:, None])
            | (
                (ids == vocabulary.pad_id)
                & (examples[features.SEGMENT_IDS] == 0)
            )
        ),
        "segments are 0 to the first [SEP], then 1": everywhere(
            (examples[features.SEGMENT_IDS] == is_b) | (mask == 0)
        ),
        "weights are 1 on predictions, then all is 0": everywhere(
            np.where(
                is_prediction,
                weights == 1,
                (weights == 0) & (positions == 0) & (labels == 0),
            )
        ),
        "positions are inside and ascend": everywhere(
            is_inside | ~is_prediction
        )
        & everywhere((steps > 0) | ~is_prediction[:, 1:]),
        "[CLS] and [SEP] are never masked": everywhere(
            (
                (labels != vocabulary.cls_id)
                & (labels != vocabulary.sep_id)
                & (positions > 0)
            )
            | ~is_prediction
        ),
    }
    if has_labels:
        checks["[CLS] A [SEP] B [SEP], no segment empty"] = (
            (original[:, 0] == vocabulary.cls_id)
            & (is_sep.sum(axis=1) == 2)
            & is_sep[rows, length - 1]
            & (first_sep > 1)
            & (length - first_sep > 2)
        )
        checks["the next-sentence label is 0 or 1"] = everywhere(
            np.isin(examples[features.NEXT_SENTENCE_LABELS], (0, 1))
        )
    else:
        checks["[CLS] A [SEP], and no [SEP] after another"] = (
            (original[:, 0] == vocabulary.cls_id)
            & is_sep[rows, length - 1]
            & (first_sep > 1)
            & ~(is_sep[:, 1:] & is_sep[:, :-1]).any(axis=1)
        )
    if rules is not None and is_masked:
        limit = rules.num_predictions(length).numpy()
        # [CLS] and [SEP] are no candidates; a word may be too long.
        expected = np.minimum(limit, length - 1 - is_sep.sum(axis=1))
        checks["there are as many predictions as the rule says"] = (
            (count <= expected)
            if rules.do_whole_word_mask
            else (count == expected)
        )
    return checks


def restored(examples):
    """Returns the ids before masking: int64 [B, L]."""
    examples = _with_masks(examples)
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


def count(examples, vocabulary):
    """Returns the totals of a batch; those of several batches add up.

    Returns:
        A `collections.Counter`: examples, tokens, random pairs, tokens of
        segment B ([SEP] counted), predictions, and of these how many became
        [MASK], stayed, or became something else.
    """
    examples = _with_masks(examples)
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
        "examples": np.array(len(ids)),
        "tokens": examples[features.INPUT_MASK],
        "tokens of B": examples[features.SEGMENT_IDS],
        "random pairs": examples.get(
            features.NEXT_SENTENCE_LABELS, np.zeros(1, int)
        ),
        "predictions": is_prediction,
        "masked": is_prediction & is_mask,
        "kept": is_prediction & is_kept & ~is_mask,
        "replaced": is_prediction & ~is_kept & ~is_mask,
    }
    return collections.Counter(
        {name: int(values.sum()) for name, values in totals.items()}
    )


def table(examples, row, vocabulary):
    """Returns one example as a table, a line for each token.

    The columns: index, token of the text, segment, position (the index again:
    each record holds one sequence), and at a prediction what the token was
    masked as, and the label.
    """
    examples = _with_masks(examples)
    ids = examples[features.INPUT_IDS][row]
    mask = examples[features.INPUT_MASK][row]
    segments = examples[features.SEGMENT_IDS][row]
    original = restored(examples)[row]
    weights = examples[features.MASKED_LM_WEIGHTS][row]
    chosen = set(
        examples[features.MASKED_LM_POSITIONS][row][weights > 0].tolist()
    )

    def name(index):
        if 0 <= index < len(vocabulary):
            return vocabulary.tokens[index]
        return f"<{index}>"

    lines = [
        f"{'index':>5}  {'token':20} {'segment':>7}  {'masked as':20} label"
    ]
    for place in range(int(mask.sum())):
        line = (
            f"{place:5}  {name(original[place]):20} {segments[place]:7} "
            f"{place:8}"
        )
        if place in chosen:
            line += f"  {name(ids[place]):10} {name(original[place])}"
        lines.append(line)
    line = (
        f"{int(mask.sum())} tokens, {len(ids) - int(mask.sum())} of padding, "
        f"{len(chosen)} predictions"
    )
    if features.NEXT_SENTENCE_LABELS in examples:
        is_random = examples[features.NEXT_SENTENCE_LABELS][row, 0]
        line += f"; next sentence: {'random' if is_random else 'the true one'}"
    lines.append(line)
    return "\n".join(lines)


def rules_of(manifest):
    """Returns the `masking.Rules` that a manifest tells."""
    return masking.Rules(
        max_predictions_per_seq=manifest.max_predictions_per_seq,
        masked_lm_prob=manifest.settings["masked_lm_prob"],
        do_whole_word_mask=manifest.settings["do_whole_word_mask"],
        # Records made before there were spans do not tell.
        do_span_mask=manifest.settings.get("do_span_mask", False),
    )


def check_vocabulary(path, manifest, vocabulary):
    """Checks that records were made with this vocabulary.

    Args:
        path: The record file, for the error.
        manifest: The `Manifest` that tells of it.
        vocabulary: A `Vocabulary`.

    Raises:
        ValueError: If they were made with another one.
    """
    if manifest.vocab_sha256 != manifests.text_sha256(vocabulary.to_text()):
        raise ValueError(
            f"The vocabulary must be the one that {path} was made with, of "
            f"{manifest.vocab_size} entries. Received: another one, of "
            f"{len(vocabulary)} entries."
        )
