"""Pre-training records: found, and held against the model before it trains."""

import functools
from concurrent import futures

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import manifest
from bert_tf.training.input_pipeline import RecordSource


def pretraining_records(
    patterns,
    *,
    max_seq_length,
    max_predictions_per_seq,
    vocab_size,
    type_vocab_size=2,
    vocab_sha256=None,
    do_lower_case=None,
    seed=12345,
    flag="input_file",
):
    """Finds pre-training records and checks that they suit the model.

    Looked at are the first record of each file and the manifests; every value
    is checked when it is read.

    Args:
        patterns: Globs, separated by commas.
        max_seq_length: L of the records.
        max_predictions_per_seq: P of the records.
        vocab_size: Entries of the model's vocabulary.
        type_vocab_size: The model's number of segments.
        vocab_sha256: `manifest.text_sha256` of the vocabulary, if known; that
            of the manifests must equal it.
        do_lower_case: Whether the model's text is lower-cased, if known.
        seed: Of the order of the training examples.
        flag: Where the patterns came from, for errors.

    Returns:
        A `RecordSource`.

    Raises:
        ValueError: If there are no files, or they do not suit the model.
    """
    paths = files.expand_globs(patterns, flag)
    wanted = {
        "max_seq_length": max_seq_length,
        "max_predictions_per_seq": max_predictions_per_seq,
        "vocab_size": vocab_size,
        "vocab_sha256": vocab_sha256,
        "do_lower_case": do_lower_case,
    }
    manifests = manifest.find(paths)
    for path, told in manifests.items():
        for name, value in wanted.items():
            if value is not None and getattr(told, name) != value:
                raise ValueError(
                    f"{path}: the records were made with {name}="
                    f"{getattr(told, name)}, as their manifest tells; the "
                    f"model has {name}={value}."
                )
    source = RecordSource(
        paths=tuple(paths),
        spec=features.pretraining_record(
            max_seq_length, max_predictions_per_seq
        ),
        limits={
            features.INPUT_IDS: vocab_size,
            features.INPUT_MASK: 2,
            features.SEGMENT_IDS: type_vocab_size,
            features.MASKED_LM_POSITIONS: max_seq_length,
            features.MASKED_LM_IDS: vocab_size,
            features.NEXT_SENTENCE_LABELS: 2,
        },
        counts={
            path: told.records[path.rsplit("/", 1)[-1]]["examples"]
            for path, told in manifests.items()
        },
        seed=seed,
    )
    with futures.ThreadPoolExecutor(16) as pool:
        check = functools.partial(
            check_first_record, spec=source.spec, limits=source.limits
        )
        # The list lets the first error out.
        list(pool.map(check, paths))
    return source


def check_first_record(path, spec, limits):
    """Raises `ValueError` if the file's first record is not as wanted.

    Args:
        path: A TFRecord file.
        spec: {feature name: (dtype, shape)}.
        limits: {feature name: n}: the values must be in [0, n).
    """
    try:
        record = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
    except StopIteration:
        raise ValueError(f"{path}: there is no record in the file.") from None
    except tf.errors.OpError as error:
        raise ValueError(
            f"{path}: not a TFRecord file, or cut short: {error.message}"
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
                f"{', '.join(sorted(values))}."
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
