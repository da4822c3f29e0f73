"""Compares a SavedModel, in a process of its own, with the trained model.

The trained model is what training itself used: the preprocessor and the Keras
model of the model folder, every row padded to the full length.

In bfloat16 numbers may differ by more, and with them what is chosen by them:
labels, tokens, spans. What the trained model itself finds as good within the
tolerance is no error; other changes are, of more than one text in ten.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import features
from bert_tf import files
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
from bert_tf.serving.options import TIMEOUT_SECONDS
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import progress as progress_lib
from bert_tf.serving.proof import requests
from bert_tf.serving.proof.accuracy import Scorer

TOLERANCE = 1e-5
# An arithmetic of 8 bits has its price; a wrong input would cost more.
BFLOAT16_TOLERANCE = 0.1
# Of texts that get another answer in bfloat16, though it is none as good.
MOST_CHANGED = 0.1
# It makes two chunks, which are put together again, the second a row shorter.
_BATCH_SIZE = chunks.CHUNK_SIZE + 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How one signature's answers differ from the trained model's.

    Args:
        signature: Its name.
        num_texts: How many texts, or pairs, it was asked.
        max_difference: Largest difference of a number, in units of the
            trained model's where that is above 1; infinite where shapes
            differ, or an output is missing, and, but in bfloat16, where
            strings and integers differ.
        worst: The output and the text of that difference.
        num_changed: In bfloat16, how many texts have another string or
            integer.
        num_wrong: How many of these the trained model finds worse, by more
            than the tolerance.
        tolerance: The largest difference that is none.
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


def trained_servable(path: files.AnyPath, model_dir: files.AnyPath) -> Servable:
    """Returns the `Servable` of a SavedModel, as in training: in float32.

    Args:
        path: The SavedModel.
        model_dir: The model folder that it was exported from.

    Raises:
        ValueError: If the SavedModel is not of this library, or the model
            folder is no such model's.
    """
    options = dataclasses.replace(
        saved_model.read_options(path), precision=FLOAT32, is_frozen=False
    )
    return opening.open_folder(model_dir, options)


def compare(
    path: files.AnyPath,
    servable: Servable,
    texts: Sequence[Row] | None = None,
    python: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    scorer: Scorer | None = None,
) -> tuple[str, list[Comparison]]:
    """Compares every signature with the trained model on the same texts.

    The signatures and outputs are those that an export must have; others are
    a difference too.

    Args:
        path: A SavedModel of this library.
        servable: What `trained_servable` returns.
        texts: Rows of one or two strings, bytes; the hard ones if None.
        python, timeout_seconds: As of `caller.calling`.
        scorer: A `Scorer`, which is given the answers of `serving_default`,
            or None.

    Returns:
        A pair: the version of TensorFlow that answered, and a list of
        `Comparison`, one a signature.

    Raises:
        ValueError: If the SavedModel cannot be loaded or called.
    """
    is_exact = saved_model.read_options(path).precision == FLOAT32
    tolerance = TOLERANCE if is_exact else BFLOAT16_TOLERANCE
    texts = texts or servable.hard_texts()
    batches = make_batches(texts)
    outputs = servable.outputs
    present = saved_model.read_signatures(path).keys()
    names = sorted(present & outputs.keys())
    found: dict[str, list[Any]] = {name: [] for name in names}
    with caller.calling(
        path,
        (
            (name, requests.make_inputs(name, servable, batch))
            for batch in _noted("Preparing the check", batches)
            for name in names
        ),
        python,
        with_text=servable.takes_text,
        timeout_seconds=timeout_seconds,
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
    """Returns which files of weights are not those exported, sorted names.

    None of an export of an older release, which has no hashes.

    Args:
        path, servable: As of `compare`.
    """
    stored = saved_model.read_settings(path).get("weights_sha256")
    if stored is None:
        return []
    found = servable.weights_sha256
    names = stored.keys() | found.keys()
    return sorted(name for name in names if stored.get(name) != found.get(name))


def trained_batches(
    message: str, servable: Servable, texts: Sequence[Row]
) -> Iterator[tuple[Sequence[Row], dict[str, Any], dict[str, np.ndarray]]]:
    """Yields what is compared at once, and logs how far it is.

    Args:
        message: What is done, for the log.
        servable: What `trained_servable` returns.
        texts: Rows of one or two strings, bytes.

    Yields:
        Some of the texts, their model inputs, and the answers that they must
        have, `input_mask` among them.
    """
    for batch in _noted(message, make_batches(texts)):
        inputs = servable.encode(batch)
        trained = servable.trained_answers(inputs, batch)
        trained[features.INPUT_MASK] = inputs[features.INPUT_MASK].numpy()
        yield batch, inputs, trained


def make_batches(texts: Sequence[Row]) -> list[Sequence[Row]]:
    """Returns lists of rows of strings: what is compared at once."""
    return [
        texts[start : start + _BATCH_SIZE]
        for start in range(0, len(texts), _BATCH_SIZE)
    ]


def _noted(message, batches):
    """Yields batches; where they take long it logs how far they are."""
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
) -> tuple[float, str, int, int]:
    """Compares one answer; see `summarize`.

    Args:
        servable, batch, trained: As of `trained_batches`.
        answer: {name of an output: array}.
        outputs: The outputs that it must have.
        tolerance: The largest difference of numbers; with `TOLERANCE` all else
            must be equal.

    Returns:
        The largest difference, where it is, in how many texts another answer
        is not as good, and in how many there is another one.
    """
    declared = {output.name: output for output in outputs}
    missing = sorted(declared.keys() - answer.keys())
    if missing:
        return np.inf, f"{', '.join(missing)}: missing", 0, 0
    expected = servable.settle_ties(batch, trained, answer, tolerance)
    is_exact = tolerance == TOLERANCE
    found = _difference(answer, expected, batch, declared, is_exact)
    num_changed = found[-1]
    if expected is not trained and not is_exact:
        unsettled = _difference(answer, trained, batch, declared, is_exact)
        num_changed = max(num_changed, unsettled[-1])
    return *found, num_changed


def summarize(
    name: str,
    found: Sequence[tuple[float, str, int, int]],
    num_texts: int,
    tolerance: float,
) -> Comparison:
    """Returns the `Comparison` of a signature from those of its batches.

    Args:
        name: The signature.
        found: What `compare_batch` returned of each batch.
        num_texts: How many they have together.
        tolerance: As of `compare_batch`.
    """
    difference, worst, _, _ = max(found)
    num_wrong = sum(wrong for _, _, wrong, _ in found)
    if difference <= tolerance and num_wrong > MOST_CHANGED * num_texts:
        worst = f"{num_wrong} texts with an answer that is not as good"
    return Comparison(
        signature=name,
        num_texts=num_texts,
        max_difference=difference,
        worst=worst,
        num_changed=sum(changed for _, _, _, changed in found),
        num_wrong=num_wrong,
        tolerance=tolerance,
    )


def answer_texts(
    path: files.AnyPath,
    texts: Sequence[Row],
    python: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> dict[str, np.ndarray]:
    """Returns the answers of `serving_default` to texts: {output: array}.

    Args:
        path, python, timeout_seconds: As of `compare`.
        texts: Rows of one or two strings, bytes.

    Raises:
        ValueError: If it takes no text, or cannot be loaded and called.
    """
    options = saved_model.read_options(path)
    if options.contents != TEXT:
        raise ValueError(f"{path}: takes ids only, no text.")
    inputs = requests.strings(options.text_features, texts)
    with caller.calling(
        path,
        [(signatures.DEFAULT, inputs)],
        python,
        timeout_seconds=timeout_seconds,
    ) as (_, answers):
        return next(answers)


def num_strings(path: files.AnyPath) -> int:
    """Returns how many strings a SavedModel of this library is given."""
    return len(saved_model.read_options(path).text_features)


def _difference(answer, expected, batch, declared, is_exact=True):
    """Returns what differs: the most, a line that says where, changed texts.

    Args:
        answer: A signature's, {output: array}.
        expected: The trained model's.
        batch: Rows of one or two strings, bytes.
        declared: {output: its `Output`} of the signature.
        is_exact: Whether another string or integer is an infinite
            difference, or only counted. Where it is counted, numbers that
            belong to it are not compared.
    """
    unknown = sorted(answer.keys() - declared.keys())
    if unknown:
        return np.inf, f"{unknown[0]}: no such output is known", 0
    largest, where = -1.0, ""
    is_changed = np.zeros(len(batch), bool)
    # Strings and integers first: numbers may belong to them.
    for name in sorted(answer, key=lambda name: not declared[name].is_exact):
        output, value, wanted = declared[name], answer[name], expected[name]
        # Of no strings at all the dtype is S.
        dtype = "string" if value.dtype.kind in "OS" else value.dtype.name
        if dtype != output.dtype:
            return np.inf, f"{name}: {dtype} for {output.dtype}", 0
        if LENGTH in output.axes.split():
            mask = expected[features.INPUT_MASK]
            value, wanted = (
                _without_padding(output, array, mask)
                for array in (value, wanted)
            )
        if value.shape != wanted.shape:
            return np.inf, f"{name}: {value.shape} for {wanted.shape}", 0
        if output.is_exact:
            differs = (value != wanted).reshape(len(batch), -1).any(axis=1)
            is_changed |= differs
            rows = np.where(differs & is_exact, np.inf, 0.0)
        else:
            rows = np.abs(value.astype(np.float64) - wanted)
            rows /= np.maximum(np.abs(wanted), 1.0)
            # NaN would compare as no difference at all.
            rows = np.where(np.isnan(rows), np.inf, rows)
        rows = rows.reshape(len(batch), -1)
        if output.is_of_choice and not is_exact:
            rows = np.where(is_changed[:, np.newaxis], 0.0, rows)
        # Of no entities there are no numbers.
        rows = rows.max(axis=1, initial=0.0)
        row = int(rows.argmax())
        if rows[row] > largest:
            largest = float(rows[row])
            where = f"{name} of {_shorten(batch[row])}"
    return largest, where, 0 if is_exact else int(is_changed.sum())


def _without_padding(output, values, mask):
    """Returns values cut to the longest text, numbers at padding as 0."""
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
