"""Compares a SavedModel, in a process of its own, with the trained model.

The trained model is what training itself used: the preprocessor and the Keras
model of the model folder, every row padded to the full length.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.serving import caller
from bert_tf.serving import requests
from bert_tf.serving import saved_model
from bert_tf.serving import signatures
from bert_tf.serving import source as source_lib
from bert_tf.serving import texts as texts_lib

TOLERANCE = 1e-5
_BATCH_SIZE = 8
# Outputs with an axis of positions, which is cut to the longest text; values
# at padding mean nothing. The number is that of the axis.
_POSITION_AXES = {"sequence_output": 1, "encoder_outputs": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one signature's answers differ from the trained model's.

    Args:
        signature: Its name.
        num_texts: How many texts, or pairs, it was asked.
        max_difference: Largest difference of a number, in units of the
            trained model's where that is above 1; infinite where strings or
            shapes differ.
        worst: The output and the text of that difference.
    """

    signature: str
    num_texts: int
    max_difference: float
    worst: str

    @property
    def is_equal(self):
        return self.max_difference <= TOLERANCE


def source_of(path, model_dir):
    """Returns the `Source` of a SavedModel, read as its exporter did.

    Args:
        path: The SavedModel.
        model_dir: The model folder that it was exported from.

    Raises:
        ValueError: If the SavedModel is not of this library, or the model
            folder is no such model's.
    """
    settings = saved_model.read_settings(path)
    return source_lib.read(
        model_dir, settings["max_seq_length"], settings["text_features"]
    )


def compare(path, source, texts=None, python=None):
    """Compares every signature with the trained model on the same texts.

    Args:
        path: A SavedModel of this library.
        source: The `Source` that it was exported from.
        texts: Rows of one or two strings, bytes; the hard ones if None.
        python: As of `caller.call`.

    Returns:
        A pair: the version of TensorFlow that answered, and a list of
        `Comparison`, one a signature.

    Raises:
        ValueError: If the SavedModel cannot be loaded or called.
    """
    settings = saved_model.read_settings(path)
    has_text = settings["contents"] == saved_model.TEXT
    texts = texts or texts_lib.hard_texts(len(source.text_features))
    batches = [
        texts[start : start + _BATCH_SIZE]
        for start in range(0, len(texts), _BATCH_SIZE)
    ]
    names = sorted(saved_model.read_signatures(path))
    version, answers = caller.call(
        path,
        [
            (name, requests.make_inputs(name, source, batch, has_text))
            for name in names
            for batch in batches
        ],
        python,
        with_text=has_text,
    )
    expected = [_trained_answers(source, batch) for batch in batches]
    comparisons = []
    for index, name in enumerate(names):
        start = index * len(batches)
        difference, worst = max(
            _difference(answer, wanted, batch)
            for answer, wanted, batch in zip(
                answers[start : start + len(batches)], expected, batches
            )
        )
        comparisons.append(
            Comparison(
                signature=name,
                num_texts=len(texts),
                max_difference=difference,
                worst=worst,
            )
        )
    return version, comparisons


def answer_texts(path, texts, python=None):
    """Returns the answers of `serving_default` to texts: {output: array}.

    Args:
        path, python: As of `compare`.
        texts: Rows of one or two strings, bytes.

    Raises:
        ValueError: If it takes no text, or cannot be loaded and called.
    """
    settings = saved_model.read_settings(path)
    if settings["contents"] != saved_model.TEXT:
        raise ValueError(f"{path}: takes ids only, no text.")
    _, answers = caller.call(
        path,
        [
            (
                signatures.DEFAULT,
                requests.strings(settings["text_features"], texts),
            )
        ],
        python,
    )
    return answers[0]


def num_strings(path):
    """Returns how many strings a SavedModel of this library is given."""
    return len(saved_model.read_settings(path)["text_features"])


def _trained_answers(source, batch):
    """Returns what the signatures must answer, by the name of the output."""
    inputs = requests.model_inputs(source, batch)
    if source.task is None:
        encoder = getattr(source.model, "encoder", source.model)
        answers = dict(encoder(inputs))
        answers["default"] = answers["pooled_output"]
        answers["encoder_outputs"] = tf.stack(
            answers["encoder_outputs"], axis=1
        )
        answers[features.INPUT_MASK] = inputs[features.INPUT_MASK]
        return {name: value.numpy() for name, value in answers.items()}
    answers = {
        name: value.numpy()
        for name, value in source.task.decode(source.model(inputs)).items()
    }
    if not source.task.labels:
        return answers | {"outputs": answers["scores"]}
    names = [label.encode("utf-8") for label in source.task.labels]
    return answers | {
        "classes": np.array([names] * len(answers["labels"]), object),
        "scores": answers["probabilities"],
    }


def _difference(answer, expected, batch):
    """Returns the largest difference, and a line that says where it is."""
    largest, where = -1.0, ""
    for name, value in answer.items():
        wanted = expected[name]
        if name in _POSITION_AXES or name == features.INPUT_MASK:
            value, wanted = _without_padding(name, value, wanted, expected)
        if value.shape != wanted.shape:
            return np.inf, f"{name}: {value.shape} for {wanted.shape}"
        if value.dtype == object:
            rows = np.where(value == wanted, 0.0, np.inf)
        else:
            rows = np.abs(value.astype(np.float64) - wanted)
            rows /= np.maximum(np.abs(wanted), 1.0)
            # NaN would compare as no difference at all.
            rows = np.where(np.isnan(rows), np.inf, rows)
        rows = rows.reshape(len(batch), -1).max(axis=1)
        row = int(rows.argmax())
        if rows[row] > largest:
            largest = float(rows[row])
            where = f"{name} of {_shorten(batch[row])}"
    return largest, where


def _without_padding(name, value, wanted, expected):
    """Returns both with the positions cut to the longest text."""
    mask = expected[features.INPUT_MASK]
    longest = mask.sum(axis=1).max()
    if name == features.INPUT_MASK:
        return value[:, :longest], wanted[:, :longest]
    axis = _POSITION_AXES[name]
    mask = mask[:, :longest]
    mask = np.expand_dims(mask, (1, 3) if axis == 2 else 2)
    cut = (slice(None),) * axis + (slice(longest),)
    return value[cut] * mask, wanted[cut] * mask


def _shorten(row, length=40):
    text = b"\t".join(row)
    return repr(text if len(text) <= length else text[:length] + b"...")
