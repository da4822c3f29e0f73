"""Finds pre-training records and checks them against the model."""

import functools
import hashlib
import logging
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import manifest as manifest_lib
from bert_tf.config import BertConfig
from bert_tf.input import errors
from bert_tf.input.record_source import RecordSource
from bert_tf.text import dynamic_masking
from bert_tf.text import masking
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec

# Settings of a manifest that tell the kind of its records, with the values of
# records without a manifest: google-research/bert's.
_KIND: dict[str, Any] = {
    "objective": "next_sentence",
    "masking_mode": "static",
    "max_sequences_per_row": 1,
}
# Settings for masks that are still to be chosen, with the values of records
# that are older than the setting.
_MASKING_RULES: dict[str, Any] = {
    "masked_lm_prob": False,
    "do_whole_word_mask": False,
    "do_span_mask": False,
    "do_ngram_mask": False,
    manifest_lib.MASKING_RULE: "bert",
}
# google-research/bert's, if neither a flag nor a manifest sets them.
_LENGTHS = {"max_seq_length": 128, "max_predictions_per_seq": 20}

_logger = logging.getLogger(__name__)


def pretraining_records(
    patterns: str,
    config: BertConfig,
    tokenizer: Spec,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    seed: int = 12345,
    num_shares: int | None = None,
    services: tuple[str, ...] = (),
    draws_replacements: bool = False,
    teacher_positions: int | None = None,
    flag: str = "input_file",
) -> RecordSource:
    """Finds pre-training records and checks that they suit the model.

    Manifests tell which objective the records are for, whether rows hold
    several sequences, and whether the records hold masks. Missing masks are
    chosen here, by the rules of the manifest. Records without a manifest are
    taken for google-research/bert's.

    For a left-to-right model, masks of any kind are undone, labels of pairs are
    left out, and every next token is predicted.

    This function checks the manifests and the first record of each file. Every
    value is checked when it is read.

    Args:
        patterns: Globs, separated by commas.
        config: The model's `BertConfig`.
        tokenizer: The spec of the model's tokenizer.
        max_seq_length: L of the records; None for the manifest's value, or 128.
        max_predictions_per_seq: P of the records, for a whole row; None for the
            manifest's value, or 20.
        seed: Seed of the order of the training examples, and of the masks that
            are chosen here; in [0, 2**32).
        num_shares, services: As in `RecordSource`.
        draws_replacements: Whether the batches have `replacement_draws`, for
            ELECTRA.
        teacher_positions: `max_position_embeddings` of a teacher that also sees
            the records; None if there is none.
        flag: The flag that gave the patterns, for error messages.

    Returns:
        A `RecordSource`.

    Raises:
        ValueError: If there are no files, they are of different kinds, or
            they do not suit the model.
    """
    paths, manifests = manifest_lib.find_records(patterns, flag).filled()
    kind = _LENGTHS | _common_kind(paths, manifests)
    length = max_seq_length or kind["max_seq_length"]
    num_predictions = max_predictions_per_seq or kind["max_predictions_per_seq"]
    _check_manifests(
        manifests,
        tokenizer,
        {
            "max_seq_length": length,
            "max_predictions_per_seq": num_predictions,
            "vocab_size": len(tokenizer.vocabulary),
            "do_lower_case": tokenizer.do_lower_case,
            "tokenizer": tokenizer_files.describe(tokenizer),
        },
    )
    num_positions = _num_positions(
        length,
        config.max_position_embeddings,
        teacher_positions,
        is_packed=kind["max_sequences_per_row"] > 1,
    )
    spec = features.pretraining_record(
        length,
        num_predictions,
        has_labels=kind["objective"] not in features.OBJECTIVES_WITHOUT_LABELS
        and config.is_trained_on_pairs
        and not config.is_decoder,
        is_masked=kind["masking_mode"] == "static",
        max_sequences_per_row=kind["max_sequences_per_row"],
    )
    limits = {
        features.INPUT_IDS: config.vocab_size,
        features.INPUT_MASK: 2,
        # A model with fewer segments ignores them.
        features.SEGMENT_IDS: max(2, config.type_vocab_size),
        features.POSITION_IDS: num_positions,
        features.SEQUENCE_IDS: kind["max_sequences_per_row"] + 1,
        features.FIRST_POSITIONS: length,
        features.MASKED_LM_POSITIONS: length,
        features.MASKED_LM_IDS: config.vocab_size,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    limits = {name: limits[name] for name in spec if name in limits}
    digest = _check_records(paths, spec, limits)
    return RecordSource(
        paths=tuple(paths),
        spec=spec,
        limits=limits,
        counts={
            path: manifest.records[path.rsplit("/", 1)[-1]]["examples"]
            for path, manifest in manifests.items()
        },
        mask=_mask(
            kind, config, tokenizer, num_predictions, draws_replacements
        ),
        seed=seed,
        num_shares=num_shares,
        services=services,
        digest=digest,
        # Several files share a manifest.
        manifests=tuple(
            {id(manifest): manifest for manifest in manifests.values()}.values()
        ),
    )


def _check_manifests(manifests, tokenizer, wanted):
    """Checks that all manifests match the tokenizer and {name: value}."""
    vocabulary = tokenizer.vocabulary
    text = vocabulary.to_text()
    for path, manifest in manifests.items():
        manifest.check_vocabulary(path, text, vocabulary.path or "one")
        for name, value in wanted.items():
            if getattr(manifest, name) != value:
                raise ValueError(
                    f"{path}: the records were made with {name}="
                    f"{getattr(manifest, name)}, as their manifest tells; this "
                    f"run has {name}={value}."
                )


def _num_positions(length, own_positions, teacher_positions, *, is_packed):
    """Returns how long sequences may be, and checks that rows are no longer.

    Packed rows may be longer, but not the sequences in them.
    """
    if teacher_positions is None:
        teacher_positions = own_positions
    for owner, positions in (
        ("model", own_positions),
        ("teacher", teacher_positions),
    ):
        if length > positions and not is_packed:
            raise ValueError(
                f"`max_seq_length` must be at most the {owner}'s "
                f"max_position_embeddings={positions}. "
                f"Received: max_seq_length={length}. "
                "--max_position_embeddings gives more: to a new model in "
                "bert_tf pretrain, to a checkpoint in bert_tf convert."
            )
    num_positions = min(own_positions, teacher_positions)
    if num_positions < own_positions and num_positions < length:
        _logger.info(
            "Sequences of packed rows must have at most %d tokens: the "
            "teacher has max_position_embeddings=%d.",
            num_positions,
            num_positions,
        )
    return num_positions


def _check_records(paths, spec, limits):
    """Checks the first record of each file; returns a digest of all files."""

    def check(path):
        return check_first_record(path, spec, limits)

    with futures.ThreadPoolExecutor(16) as pool:
        # Making the list raises the first error.
        records = list(pool.map(check, paths))
        sizes = list(pool.map(files.size, paths))
    digest = hashlib.sha256()
    for path, size, record in zip(paths, sizes, records):
        name = path.rsplit("/", 1)[-1]
        digest.update(f"{name} {size} {len(record)} ".encode() + record)
    return digest.hexdigest()


def _mask(kind, config, tokenizer, max_predictions_per_seq, draws_replacements):
    """Returns the `mask` of a `RecordSource`."""
    if config.is_decoder:
        return lambda examples, seeds: dynamic_masking.predict_next_tokens(
            examples
        )
    mask_examples = None
    if kind["masking_mode"] != "static":
        rules = masking.Rules(
            max_predictions_per_seq=max_predictions_per_seq,
            **{name: kind[name] for name in _MASKING_RULES},
        )
        for warning in rules.warnings(kind["max_seq_length"]):
            _logger.warning("%s", warning)
        mask_examples = functools.partial(
            dynamic_masking.mask_examples, tokenizer=tokenizer, rules=rules
        )
    if not draws_replacements:
        return mask_examples
    if mask_examples is None:
        return dynamic_masking.draw_replacements

    def mask_and_draw(examples, seeds):
        masked = mask_examples(examples, seeds)
        return dynamic_masking.draw_replacements(masked, seeds)

    return mask_and_draw


def _common_kind(paths, manifests):
    """Returns the kind of all records; raises `ValueError` if they differ."""
    # A file with a manifest, if there is one, because its kind is complete.
    first = next(iter(manifests), paths[0])
    common = _kind(manifests.get(first))
    for path in paths:
        kind = _kind(manifests.get(path))
        differences = [
            f"{name} is {common[name]!r} in the one and {kind[name]!r} in the "
            "other"
            for name in sorted(common.keys() & kind.keys())
            if common[name] != kind[name]
        ]
        if differences:
            raise ValueError(
                f"{first} and {path} hold records of different kinds: "
                f"{'; '.join(differences)}. Train on one kind at a time."
            )
    return common


def _kind(manifest):
    """Returns the kind of a manifest's records; None is for no manifest."""
    if manifest is None:
        return _KIND
    kind = {name: manifest.settings.get(name, _KIND[name]) for name in _KIND}
    kind |= {name: getattr(manifest, name) for name in _LENGTHS}
    if kind["masking_mode"] == "dynamic":
        kind |= {
            name: manifest.settings.get(name, default)
            for name, default in _MASKING_RULES.items()
        }
    return kind


def check_first_record(
    path: str, spec: features.RecordSpec, limits: Mapping[str, int]
) -> bytes:
    """Returns the file's first record after checking it.

    Args:
        path: A TFRecord file.
        spec: {feature name: (dtype, shape)}.
        limits: {feature name: n}: the values must be in [0, n).

    Raises:
        ValueError: If it does not fit, or there is none.
    """
    try:
        record = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
    except StopIteration:
        raise ValueError(f"{path}: the file has no records.") from None
    except tf.errors.OpError as error:
        raise ValueError(
            f"{path}: not a TFRecord file, or cut short: {errors.reason(error)}"
        ) from error
    try:
        values = tf.train.Example.FromString(record).features.feature
    except Exception as error:
        # protobuf's DecodeError, which has moved between modules.
        raise ValueError(
            f"{path}: the first record is not a tf.train.Example."
        ) from error
    for name, (dtype, shape) in spec.items():
        if name not in values:
            raise ValueError(
                f"{path}: the records have no feature `{name}`. They have: "
                f"{', '.join(sorted(values))}. (The manifest, which must lie "
                "beside the records, tells their kind.)"
            )
        kind = "float_list" if dtype == "float32" else "int64_list"
        given = getattr(values[name], kind).value
        if len(given) != np.prod(shape):
            raise ValueError(
                f"{path}: `{name}` must have {np.prod(shape)} {dtype} values "
                f"in each record. Received: {len(given)}."
            )
        limit = limits.get(name)
        if limit is not None and not 0 <= min(given) <= max(given) < limit:
            raise ValueError(
                f"{path}: `{name}` must be in [0, {limit}). Received values "
                f"from {min(given)} to {max(given)}."
            )
    return record
