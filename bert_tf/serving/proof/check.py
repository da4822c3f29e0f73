"""Compares a SavedModel, in a process of its own, with the trained model.

The trained model is what training itself used: the preprocessor and the Keras
model of the model folder, every row padded to the full length.

In bfloat16, numbers may differ by more, and so may the labels, tokens or spans
that are chosen by them. Another choice is no error if the trained model scores
it as good within the tolerance. Other changes are an error if more than one
text in ten has one.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from bert_tf import features
from bert_tf import files
from bert_tf import messages
from bert_tf.serving import saved_model
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.output import LENGTH
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import FLOAT32
from bert_tf.serving.options import TEXT
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import progress as progress_lib
from bert_tf.serving.proof import requests
from bert_tf.serving.proof.accuracy import Scorer

TOLERANCE = 1e-5
# Arithmetic with 8 bits has its price; a wrong input would cost more.
BFLOAT16_TOLERANCE = 0.1
# The largest share of texts that may get a worse answer in bfloat16.
MOST_CHANGED = 0.1
# Makes two chunks to concatenate, the second one row shorter.
_BATCH_SIZE = chunks.CHUNK_SIZE + 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one signature's answers differ from the trained model's.

    Args:
        signature: Its name.
        num_texts: The number of texts, or pairs, that it was called with.
        max_difference: Largest difference of a number, relative to the trained
            model's number if that is above 1. Infinite if shapes differ or an
            output is missing and, except in bfloat16, if strings or integers
            differ.
        worst: The output and the text of that difference.
        num_changed: In bfloat16, the number of texts with another string or
            integer.
        num_wrong: How many of these the trained model scores worse, by more
            than the tolerance.
        tolerance: The largest difference that counts as equal.
    """

    signature: str
    num_texts: int
    max_difference: float
    worst: str
    num_changed: int = 0
    num_wrong: int = 0
    tolerance: float = TOLERANCE

    @property
    def is_equal(self) -> bool:
        return (
            self.max_difference <= self.tolerance
            and self.num_wrong <= MOST_CHANGED * self.num_texts
        )


def trained_servable(
    options: ExportOptions, model_dir: files.AnyPath
) -> Servable:
    """Returns the `Servable` of an export in float32, as in training.

    Args:
        options: Those of the export.
        model_dir: The model folder that it was exported from.

    Raises:
        ValueError: If the model folder does not hold such a model.
    """
    options = dataclasses.replace(options, precision=FLOAT32, freeze=False)
    return opening.open_folder(model_dir, options)


class Difference(NamedTuple):
    """How an answer to a batch differs from the trained model's.

    Attributes:
        largest: The largest difference; infinite if the two do not compare.
        where: Where it is: an output, and a text or what is wrong.
        num_wrong: How many texts have a worse answer.
        num_changed: How many texts have another answer.
    """

    largest: float
    where: str
    num_wrong: int = 0
    num_changed: int = 0


def compare(
    path: files.AnyPath,
    servable: Servable,
    texts: Sequence[Row],
    python: str | None = None,
    scorer: Scorer | None = None,
) -> tuple[str, list[Comparison]]:
    """Compares every signature with the trained model on the same texts.

    Missing and unknown signatures and outputs count as differences too.

    Args:
        path: A SavedModel of this library.
        servable: What `trained_servable` returns.
        texts: Rows of one or two strings, bytes.
        python: As in `caller.calling`.
        scorer: A `Scorer` for the answers of `serving_default`, or None.

    Returns:
        A pair: the version of TensorFlow that answered, and a list of
        `Comparison`, one per signature.

    Raises:
        ValueError: If the SavedModel cannot be loaded or called.
    """
    must_be_equal = saved_model.read_options(path).precision == FLOAT32
    tolerance = TOLERANCE if must_be_equal else BFLOAT16_TOLERANCE
    batches = make_batches(texts)
    outputs = servable.outputs
    present = saved_model.read_signatures(path).keys()
    names = sorted(present & outputs.keys())
    found: dict[str, list[Difference]] = {name: [] for name in names}
    with caller.calling(
        path,
        (
            (name, requests.make_inputs(name, servable, batch))
            for batch in _noted("Preparing the check", batches)
            for name in names
        ),
        python,
        with_text=servable.takes_text,
    ) as (version, answers):
        for batch, _, trained in trained_batches(
            "Comparing answers", servable, texts
        ):
            for name in names:
                answer = next(answers)
                if scorer is not None and name == signatures.DEFAULT:
                    scorer.add(trained, answer)
                found[name].append(
                    compare_batch(
                        servable,
                        batch,
                        trained,
                        answer,
                        outputs[name],
                        tolerance,
                        must_be_equal,
                    )
                )
    comparisons = [
        summarize(name, found[name], len(texts), tolerance) for name in names
    ]
    comparisons += [
        Comparison(
            signature=name,
            num_texts=0,
            max_difference=np.inf,
            worst="no such signature is known"
            if name in present
            else "the signature is missing",
            tolerance=tolerance,
        )
        for name in sorted(outputs.keys() ^ present)
    ]
    return version, comparisons


def other_weights(path: files.AnyPath, servable: Servable) -> list[str]:
    """Returns the sorted names of weight files that differ from the export's.

    Empty for an export of an older release, which has no hashes.

    Args:
        path, servable: As in `compare`.
    """
    stored = saved_model.read_settings(path).get("weights_sha256")
    if stored is None:
        return []
    found = servable.source.weights_sha256
    names = stored.keys() | found.keys()
    return sorted(name for name in names if stored.get(name) != found.get(name))


def trained_batches(
    message: str, servable: Servable, texts: Sequence[Row]
) -> Iterator[tuple[Sequence[Row], dict[str, Any], dict[str, np.ndarray]]]:
    """Yields batches to compare, and logs the progress.

    Args:
        message: What is being done, for the log.
        servable: What `trained_servable` returns.
        texts: Rows of one or two strings, bytes.

    Yields:
        Some of the texts, their model inputs, and the answers expected for
        them, with `input_mask`.
    """
    for batch in _noted(message, make_batches(texts)):
        inputs = servable.encode(batch)
        trained = servable.trained_answers(inputs, batch)
        trained[features.INPUT_MASK] = inputs[features.INPUT_MASK].numpy()
        yield batch, inputs, trained


def make_batches(texts: Sequence[Row]) -> list[Sequence[Row]]:
    """Returns the rows of strings in batches."""
    return [
        texts[start : start + _BATCH_SIZE]
        for start in range(0, len(texts), _BATCH_SIZE)
    ]


def _noted(message, batches):
    """Yields batches, and logs the progress if they take long."""
    progress = progress_lib.Progress()
    num_texts, num_done = sum(map(len, batches)), 0
    for batch in batches:
        yield batch
        num_done += len(batch)
        progress.note(f"{message}: text %d of %d", num_done, num_texts)


def compare_batch(
    servable: Servable,
    batch: Sequence[Row],
    trained: dict[str, np.ndarray],
    answer: dict[str, np.ndarray],
    outputs: Sequence[Output],
    tolerance: float,
    must_be_equal: bool,
) -> Difference:
    """Compares one answer; see `summarize`.

    Args:
        servable, batch, trained: As in `trained_batches`.
        answer: {name of an output: array}.
        outputs: The outputs that it must have.
        tolerance: The largest difference of scores that is a tie.
        must_be_equal: Whether another string or integer is an infinite
            difference. Otherwise it is only counted, and the numbers that
            belong to it are not compared.
    """
    declared = {output.name: output for output in outputs}
    missing = sorted(declared.keys() - answer.keys())
    if missing:
        return Difference(np.inf, f"{', '.join(missing)}: missing")
    expected = servable.settle_ties(batch, trained, answer, tolerance)
    found = _difference(answer, expected, batch, declared, must_be_equal)
    num_changed = found.num_changed
    if expected is not trained and not must_be_equal:
        unsettled = _difference(answer, trained, batch, declared, must_be_equal)
        num_changed = max(num_changed, unsettled.num_changed)
    return found._replace(num_wrong=found.num_changed, num_changed=num_changed)


def summarize(
    name: str,
    found: Sequence[Difference],
    num_texts: int,
    tolerance: float,
) -> Comparison:
    """Returns the `Comparison` of a signature from those of its batches.

    Args:
        name: The signature.
        found: What `compare_batch` returned for each batch.
        num_texts: The number of texts in all batches.
        tolerance: The largest difference that counts as equal.
    """
    largest, worst, *_ = max(found, key=lambda each: each.largest)
    num_wrong = sum(each.num_wrong for each in found)
    if largest <= tolerance and num_wrong > MOST_CHANGED * num_texts:
        wrong = messages.counted(num_wrong, "text", "texts")
        worst = f"{wrong} with an answer that is not as good"
    return Comparison(
        signature=name,
        num_texts=num_texts,
        max_difference=largest,
        worst=worst,
        num_changed=sum(each.num_changed for each in found),
        num_wrong=num_wrong,
        tolerance=tolerance,
    )


def answer_texts(
    path: files.AnyPath,
    options: ExportOptions,
    texts: Sequence[Row],
    python: str | None = None,
) -> dict[str, np.ndarray]:
    """Returns the answers of `serving_default` to texts: {output: array}.

    Args:
        path, python: As in `compare`.
        options: Those of the export.
        texts: Rows of one or two strings, bytes.

    Raises:
        ValueError: If the SavedModel takes no text, or cannot be loaded and
            called.
    """
    if options.contents != TEXT:
        raise ValueError(f"{path}: takes ids only, no text.")
    inputs = requests.strings(options.text_features, texts)
    with caller.calling(
        path,
        [(signatures.DEFAULT, inputs)],
        python,
    ) as (_, answers):
        return next(answers)


def _difference(answer, expected, batch, declared, must_be_equal):
    """Returns the `Difference` of an answer, with `num_changed` of its texts.

    Args:
        answer: A signature's answer, {output: array}.
        expected: The trained model's answer.
        batch: Rows of one or two strings, bytes.
        declared: {output: its `Output`} of the signature.
        must_be_equal: As in `compare_batch`.
    """
    unknown = sorted(answer.keys() - declared.keys())
    if unknown:
        return Difference(np.inf, f"{unknown[0]}: no such output is known")
    largest, where = -1.0, ""
    is_changed = np.zeros(len(batch), bool)
    # Strings and integers first: numbers may belong to them.
    for name in sorted(answer, key=lambda name: not declared[name].is_exact):
        output, value, wanted = declared[name], answer[name], expected[name]
        # An empty array of strings has the dtype S.
        dtype = "string" if value.dtype.kind in "OS" else value.dtype.name
        if dtype != output.dtype:
            return Difference(np.inf, f"{name}: {dtype} for {output.dtype}")
        if LENGTH in output.axes.split():
            mask = expected[features.INPUT_MASK]
            value, wanted = (
                _without_padding(output, array, mask)
                for array in (value, wanted)
            )
        if value.shape != wanted.shape:
            where = f"{name}: {value.shape} for {wanted.shape}"
            return Difference(np.inf, where)
        if output.is_exact:
            differs = (value != wanted).reshape(len(batch), -1).any(axis=1)
            is_changed |= differs
            rows = np.where(differs & must_be_equal, np.inf, 0.0)
        else:
            rows = np.abs(value.astype(np.float64) - wanted)
            rows /= np.maximum(np.abs(wanted), 1.0)
            # NaN would compare as no difference at all.
            rows = np.where(np.isnan(rows), np.inf, rows)
        rows = rows.reshape(len(batch), -1)
        if output.is_of_choice and not must_be_equal:
            rows = np.where(is_changed[:, np.newaxis], 0.0, rows)
        # Without entities there are no numbers.
        rows = rows.max(axis=1, initial=0.0)
        row = int(rows.argmax())
        if rows[row] > largest:
            largest = float(rows[row])
            where = f"{name} of {_shorten(batch[row])}"
    num_changed = 0 if must_be_equal else int(is_changed.sum())
    return Difference(largest, where, num_changed=num_changed)


def _without_padding(output, values, mask):
    """Returns values cut to the longest text, with numbers at padding as 0."""
    mask = mask[:, : mask.sum(axis=1).max()]
    axis = 1 + output.axes.split().index(LENGTH)
    values = values[(slice(None),) * axis + (slice(mask.shape[1]),)]
    if output.is_exact:
        return values
    others = set(range(1, values.ndim)) - {axis}
    return values * np.expand_dims(mask, sorted(others))


def _shorten(row, length=40):
    text = b"\t".join(row)
    return repr(text if len(text) <= length else text[:length] + b"...")
