"""Checks every rule of pre-training records.

The rules are google-research/bert's, so the records of its own program can be
checked as well. In packed rows the sequences must also be kept apart.
"""

import numpy as np

from bert_tf import features
from bert_tf import manifest as manifests
from bert_tf.manifest import Manifest
from bert_tf.pretraining.records import inspection
from bert_tf.text import masking
from bert_tf.text.vocabulary import Vocabulary


def rules_of(manifest: Manifest) -> masking.Rules:
    """Returns the `masking.Rules` that a manifest states."""
    return masking.Rules(
        max_predictions_per_seq=manifest.max_predictions_per_seq,
        masked_lm_prob=manifest.settings["masked_lm_prob"],
        do_whole_word_mask=manifest.settings["do_whole_word_mask"],
        # Manifests of older records lack these settings.
        do_span_mask=manifest.settings.get("do_span_mask", False),
        do_ngram_mask=manifest.settings.get("do_ngram_mask", False),
        masking_rule=manifest.settings.get(manifests.MASKING_RULE, "bert"),
    )


def check(
    examples: dict,
    vocabulary: Vocabulary,
    rules: masking.Rules | None = None,
) -> dict[str, np.ndarray]:
    """Checks every rule on every record.

    Args:
        examples: A batch as `read` yields it.
        vocabulary: The `Vocabulary`.
        rules: The `masking.Rules` of the examples, if known. Then the number
            of predictions is checked too.

    Returns:
        `{rule in words: bool [B]}`, True where the record keeps the rule.
    """
    checks = _check_records(inspection.with_masks(examples), vocabulary, rules)
    sequences, rows = examples, np.arange(len(examples[features.INPUT_IDS]))
    if features.SEQUENCE_IDS in examples:
        checks |= _check_packing(examples)
        sequences, rows = inspection.unpack(examples, vocabulary)
    for rule, holds in _check_sequences(sequences, vocabulary, rules).items():
        # All sequences of a packed row must keep the rule.
        checks[rule] = np.bincount(rows, ~_everywhere(holds)) == 0
    return {rule: _everywhere(holds) for rule, holds in checks.items()}


def _everywhere(holds):
    """Reduces bool [B] or [B, N] to bool [B]: True where all are."""
    return holds.reshape(len(holds), -1).all(axis=1)


def _check_records(examples, vocabulary, rules):
    """Checks the rules that do not depend on the number of sequences."""
    special = vocabulary.special
    ids = examples[features.INPUT_IDS]
    mask = examples[features.INPUT_MASK]
    labels = examples[features.MASKED_LM_IDS]
    positions = examples[features.MASKED_LM_POSITIONS]
    weights = examples[features.MASKED_LM_WEIGHTS]
    length = inspection.lengths(mask)
    is_token = np.arange(ids.shape[1]) < length[:, None]
    count = (weights > 0).sum(axis=1)
    is_prediction = np.arange(weights.shape[1]) < count[:, None]
    is_inside = (positions >= 0) & (positions < length[:, None])
    is_ascending = np.diff(positions, axis=1, prepend=-1) > 0
    all_ids = np.concatenate([ids, labels], axis=1)
    checks = {
        "ids are in the vocabulary": (all_ids >= 0)
        & (all_ids < len(vocabulary)),
        "the input mask is 1 on tokens, then 0": mask == is_token,
        "padding has id and segment of padding": is_token
        | ((ids == vocabulary.pad_id) & (examples[features.SEGMENT_IDS] == 0)),
        "weights are 1 on predictions, then all is 0": np.where(
            is_prediction,
            weights == 1,
            (weights == 0) & (positions == 0) & (labels == 0),
        ),
        "positions are inside and ascend": (is_inside & is_ascending)
        | ~is_prediction,
    }
    if rules is None or not rules.chooses_all:
        checks[f"{special.cls} and {special.sep} are never masked"] = (
            (labels != vocabulary.cls_id)
            & (labels != vocabulary.sep_id)
            & (positions > 0)
        ) | ~is_prediction
    if features.NEXT_SENTENCE_LABELS in examples:
        checks["the next-sentence label is 0 or 1"] = np.isin(
            examples[features.NEXT_SENTENCE_LABELS], (0, 1)
        )
    return checks


def _check_packing(examples):
    """Checks the features that keep the sequences of a row apart."""
    mask = examples[features.INPUT_MASK]
    numbers = examples[features.SEQUENCE_IDS]
    first = examples[features.FIRST_POSITIONS]
    exists = inspection.is_sequence(first)
    count = exists.sum(axis=1)
    column = np.arange(mask.shape[1])
    # How many sequences have begun at each column.
    begins = exists[:, None, :] & (column[:, None] == first[:, None, :])
    expected = np.cumsum(begins.sum(axis=2), axis=1) * (mask > 0)
    start = np.maximum.accumulate(
        np.where(begins.any(axis=2), column, 0), axis=1
    )
    checks = {
        "first positions ascend from 0, then all is 0": (first[:, :1] == 0)
        & (exists == (np.arange(first.shape[1]) < count[:, None]))
        & ((np.diff(first, axis=1, prepend=-1) > 0) | ~exists)
        & (first < inspection.lengths(mask)[:, None]),
        "sequences are numbered from 1, padding is 0": numbers == expected,
        "positions restart in each sequence": examples[features.POSITION_IDS]
        == (column - start) * (mask > 0),
    }
    if features.NEXT_SENTENCE_LABELS in examples:
        checks["labels of sequences that are not there are 0"] = exists | (
            examples[features.NEXT_SENTENCE_LABELS] == 0
        )
    return checks


def _check_sequences(examples, vocabulary, rules):
    """Checks the rules for each sequence; `rules` may be None."""
    special = vocabulary.special
    cls, sep = special.cls, special.sep
    between = special.num_between
    is_masked = features.MASKED_LM_IDS in examples
    has_labels = features.NEXT_SENTENCE_LABELS in examples
    examples = inspection.with_masks(examples)
    mask = examples[features.INPUT_MASK]
    rows = np.arange(len(mask))
    column = np.arange(mask.shape[1])
    length = inspection.lengths(mask)
    original = inspection.restored(examples)
    is_sep = (original == vocabulary.sep_id) & (mask > 0)
    first_sep = is_sep.argmax(axis=1)
    # Without a label there is one segment, with a [SEP] between documents.
    is_b = has_labels & (column >= first_sep[:, None] + between)
    is_b &= column < length[:, None]
    rule = "segments are 0"
    if special.second_segment:
        rule = f"segments are 0 to the first {sep}, then 1"
    checks = {
        rule: (examples[features.SEGMENT_IDS] == is_b * special.second_segment)
        | (mask == 0)
    }
    if has_labels:
        last_between = np.minimum(first_sep + between, mask.shape[1]) - 1
        checks[f"{cls} A {sep * between} B {sep}, no segment empty"] = (
            (original[:, 0] == vocabulary.cls_id)
            & (is_sep.sum(axis=1) == between + 1)
            & is_sep[rows, last_between]
            & is_sep[rows, length - 1]
            & (first_sep > 1)
            & (length - last_between > 2)
        )
    else:
        checks[f"{cls} A {sep}, and no {sep} after another"] = (
            (original[:, 0] == vocabulary.cls_id)
            & is_sep[rows, length - 1]
            & (first_sep > 1)
            & ~(is_sep[:, 1:] & is_sep[:, :-1]).any(axis=1)
        )
    if rules is not None and is_masked:
        count = (examples[features.MASKED_LM_WEIGHTS] > 0).sum(axis=1)
        limit = rules.num_predictions(length).numpy()
        # [CLS] and [SEP] are no candidates. There may be fewer predictions if
        # a word is too long, or if the remaining words lie between n-grams.
        expected = np.minimum(limit, length - 1 - is_sep.sum(axis=1))
        if rules.chooses_all:
            # The limit, or by chance one fewer.
            holds = (count == limit) | (count == limit - 1)
        elif rules.do_whole_word_mask or rules.do_ngram_mask:
            holds = count <= expected
        else:
            holds = count == expected
        checks["there are as many predictions as the rule says"] = holds
    return checks
