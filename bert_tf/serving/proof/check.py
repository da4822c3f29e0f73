"""Compares a SavedModel, in a process of its own, with the trained model.

The trained model is what training itself used: the preprocessor and the Keras
model of the model folder, every row padded to the full length.

In bfloat16 numbers may differ by more, and with them what is chosen by them:
labels, tokens, spans. What the trained model itself finds as good within the
tolerance is no error; other changes are, of more than one text in ten.
"""

import dataclasses

import numpy as np

from bert_tf import features
from bert_tf import files
from bert_tf.serving import saved_model
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import source as source_lib
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import progress as progress_lib
from bert_tf.serving.proof import requests
from bert_tf.tasks import tsv
from bert_tf.tasks.classification import glue_files

TOLERANCE = 1e-5
# An arithmetic of 8 bits has its price; a wrong input would cost more.
BFLOAT16_TOLERANCE = 0.1
# Of texts that get another answer in bfloat16, though it is none as good.
MOST_CHANGED = 0.1
# More than a chunk, and no multiple: what is computed in chunks is put together
# again, the last one being shorter.
_BATCH_SIZE = chunks.CHUNK_SIZE + 4
# Tasks of GLUE whose files have a header that calls the texts otherwise.
_UNNAMED = ("mrpc", "mnli")
# Outputs with an axis of positions, which is cut to the longest text; values
# at padding mean nothing. The number is that of the axis.
_POSITION_AXES = {
    "sequence_output": 1,
    "encoder_outputs": 2,
    "token_probabilities": 1,
    "start_logits": 1,
    "end_logits": 1,
}


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
    def is_equal(self):
        return (
            self.max_difference <= self.tolerance
            and self.num_wrong <= MOST_CHANGED * self.num_texts
        )


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
        model_dir,
        settings["max_seq_length"],
        settings["text_features"],
        source_lib.make_servable(settings["kind"], settings["settings"]),
        # Exports of older releases have none.
        bounds=settings.get("bounds"),
    )


def compare(
    path,
    source,
    texts=None,
    python=None,
    timeout_seconds=caller.TIMEOUT_SECONDS,
):
    """Compares every signature with the trained model on the same texts.

    The signatures and outputs are those that an export must have; what it has
    beyond them is compared too.

    Args:
        path: A SavedModel of this library.
        source: The `Source`, in float32, that it was exported from.
        texts: Rows of one or two strings, bytes; the hard ones if None.
        python, timeout_seconds: As of `caller.calling`.

    Returns:
        A pair: the version of TensorFlow that answered, and a list of
        `Comparison`, one a signature.

    Raises:
        ValueError: If the SavedModel cannot be loaded or called.
    """
    settings = saved_model.read_settings(path)
    has_text = settings["contents"] == saved_model.TEXT
    is_exact = settings["precision"] == source_lib.FLOAT32
    tolerance = TOLERANCE if is_exact else BFLOAT16_TOLERANCE
    texts = texts or source.servable.hard_texts(len(source.text_features))
    batches = make_batches(texts)
    names = sorted(saved_model.read_signatures(path))
    outputs = source.servable.outputs(has_text)
    found = {name: [] for name in names}
    with caller.calling(
        path,
        (
            (name, requests.make_inputs(name, source, batch, has_text))
            for batch in _noted("Preparing the check", batches)
            for name in names
        ),
        python,
        with_text=has_text,
        timeout_seconds=timeout_seconds,
    ) as (version, answers):
        for batch in _noted("Comparing answers", batches):
            inputs = source.servable.encode(source.preprocessor, batch)
            trained = source.servable.trained_answers(source, inputs, batch)
            trained[features.INPUT_MASK] = inputs[features.INPUT_MASK].numpy()
            for name in names:
                answer = next(answers)
                found[name].append(
                    _compare_batch(
                        source,
                        batch,
                        trained,
                        answer,
                        outputs.get(name, ()),
                        tolerance,
                    )
                )
    comparisons = [
        _summarize(name, found[name], len(texts), tolerance) for name in names
    ]
    comparisons += [
        Comparison(
            signature=name,
            num_texts=0,
            max_difference=np.inf,
            worst="the signature is missing",
            tolerance=tolerance,
        )
        for name in sorted(outputs.keys() - found.keys())
    ]
    return version, comparisons


def make_batches(texts):
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


def _compare_batch(source, batch, trained, answer, outputs, tolerance):
    """Returns `_difference`'s of one answer, and how many texts changed."""
    missing = sorted({*outputs} - answer.keys())
    if missing:
        return np.inf, f"{', '.join(missing)}: missing", 0, 0
    expected = source.servable.settle_ties(
        source, batch, trained, answer, tolerance
    )
    is_exact = tolerance == TOLERANCE
    of_choices = () if is_exact else source.servable.SCORES_OF_CHOICES
    found = _difference(answer, expected, batch, is_exact, of_choices)
    num_changed = found[-1]
    if expected is not trained and not is_exact:
        unsettled = _difference(answer, trained, batch, is_exact)[-1]
        num_changed = max(num_changed, unsettled)
    return *found, num_changed


def _summarize(name, found, num_texts, tolerance):
    """Returns the `Comparison` of a signature from those of its batches."""
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


def read_texts(path, source):
    """Reads the texts of a development set, as training read them.

    Args:
        path: A file of the model's task: SQuAD's JSON, CoNLL's columns, those
            of `multiple_choice_files`, GLUE's; or a .tsv or .csv with a header
            that has the text features. A file of any other name has a text a
            line, the strings of several separated by tabs.
        source: The model's `Source`.

    Returns:
        Rows of one or two strings, bytes.

    Raises:
        ValueError: If it is no such file, or by its name a TSV or CSV whose
            columns of texts are not known; the message names file and line.
    """
    path = str(path)
    texts = source.servable.read_texts(path)
    if texts is not None:
        return texts
    tsv_file = _tsv_file(path, source)
    if tsv_file is None:
        return texts_lib.read_texts(path, len(source.text_features))
    columns = tsv.read_tsv(path, tsv_file, source.task).texts
    return [tuple(text.encode() for text in row) for row in zip(*columns)]


def _tsv_file(path, source):
    """Returns where the file has the texts, None if it is a text a line."""
    is_table = path.lower().endswith((".tsv", ".csv"))
    task_name = getattr(source.task, "name", None)
    dev = None
    if task_name in glue_files.GLUE_TASKS:
        dev = glue_files.glue_task(task_name).splits[glue_files.DEV]
    if not is_table and dev is None:
        return None
    names = _first_row(path, tsv.is_csv(path))
    text_features = source.text_features
    if {*text_features} <= {*names} and (is_table or len(names) > 1):
        return tsv.TsvFile(
            name=path,
            text_columns=text_features,
            skip_bad_rows=dev is not None and dev.skip_bad_rows,
        )
    if (
        len(names) == dev.num_columns
        if dev and dev.num_columns
        else task_name in _UNNAMED and len(names) > max(dev.text_columns)
    ):
        return dataclasses.replace(dev, label_column=None)
    if is_table:
        columns = ", ".join(dict.fromkeys(text_features))
        raise ValueError(
            f"{path}, line 1: the header must have the columns {columns}: so "
            "the strings of the model are called, which --text_features of the "
            "export names where its task does not. (A file of a text a line "
            "must not be called .tsv or .csv.) "
            f"Received: {', '.join(names)[:100]}."
        )
    return None


def _first_row(path, is_csv):
    if is_csv:
        _, fields = next(tsv.csv_rows(path), (1, []))
        return fields
    # Texts need not be valid UTF-8.
    line = files.read_bytes(path).split(b"\n", 1)[0].decode(errors="replace")
    return line.removeprefix("\ufeff").removesuffix("\r").split("\t")


def answer_texts(
    path, texts, python=None, timeout_seconds=caller.TIMEOUT_SECONDS
):
    """Returns the answers of `serving_default` to texts: {output: array}.

    Args:
        path, python, timeout_seconds: As of `compare`.
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
        timeout_seconds=timeout_seconds,
    )
    return answers[0]


def num_strings(path):
    """Returns how many strings a SavedModel of this library is given."""
    return len(saved_model.read_settings(path)["text_features"])


def _difference(answer, expected, batch, is_exact=True, of_choices=()):
    """Returns what differs: the most, a line that says where, changed texts.

    Args:
        answer: A signature's, {output: array}.
        expected: The trained model's.
        batch: Rows of one or two strings, bytes.
        is_exact: Whether another string or integer is an infinite
            difference, or only counted.
        of_choices: Outputs whose numbers are not compared where what is only
            counted differs.
    """
    largest, where = -1.0, ""
    is_changed = np.zeros(len(batch), bool)
    # Strings and integers first: numbers may belong to them.
    for name, value in sorted(
        answer.items(), key=lambda item: item[1].dtype.kind == "f"
    ):
        if name not in expected:
            return np.inf, f"{name}: no such output is known", 0
        wanted = expected[name]
        if name in _POSITION_AXES or name == features.INPUT_MASK:
            value, wanted = _without_padding(name, value, wanted, expected)
        if value.shape != wanted.shape:
            return np.inf, f"{name}: {value.shape} for {wanted.shape}", 0
        if (value.dtype == object) != (wanted.dtype == object):
            return np.inf, f"{name}: {value.dtype} for {wanted.dtype}", 0
        if value.dtype.kind != "f":
            differs = (value != wanted).reshape(len(batch), -1).any(axis=1)
            is_changed |= differs
            rows = np.where(differs & is_exact, np.inf, 0.0)
        else:
            rows = np.abs(value.astype(np.float64) - wanted)
            rows /= np.maximum(np.abs(wanted), 1.0)
            # NaN would compare as no difference at all.
            rows = np.where(np.isnan(rows), np.inf, rows)
        rows = rows.reshape(len(batch), -1)
        if name in of_choices:
            rows = np.where(is_changed[:, np.newaxis], 0.0, rows)
        # Of no entities there are no numbers.
        rows = rows.max(axis=1, initial=0.0)
        row = int(rows.argmax())
        if rows[row] > largest:
            largest = float(rows[row])
            where = f"{name} of {_shorten(batch[row])}"
    return largest, where, 0 if is_exact else int(is_changed.sum())


def _without_padding(name, value, wanted, expected):
    """Returns both with the positions cut to the longest text."""
    mask = expected[features.INPUT_MASK]
    longest = mask.sum(axis=1).max()
    if name == features.INPUT_MASK:
        return value[:, :longest], wanted[:, :longest]
    axis = _POSITION_AXES[name]
    mask = mask[:, :longest]
    others = set(range(1, value.ndim)) - {axis}
    mask = np.expand_dims(mask, sorted(others))
    cut = (slice(None),) * axis + (slice(longest),)
    return value[cut] * mask, wanted[cut] * mask


def _shorten(row, length=40):
    text = b"\t".join(row)
    return repr(text if len(text) <= length else text[:length] + b"...")
