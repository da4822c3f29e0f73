"""Asks a model questions in this process: strings in, plain answers out."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import backend
from bert_tf import files
from bert_tf import messages
from bert_tf import progress_bar
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import sentence_files
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import TracedModel
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import OF_ANSWERS
from bert_tf.serving.options import RERANKER
from bert_tf.serving.options import TASK
from bert_tf.serving.options import ExportOptions

# Rows that go into the graph together; it computes a few of them at a time.
_BATCH_SIZE = 32
# Kinds with plain answers.
_KINDS = (None, TASK, Embedding.KIND, FillMask.KIND, RERANKER)


def predictor(folder: files.AnyPath, **options: Any) -> "Predictor":
    """Opens a model folder to ask it questions in this process.

    Args:
        folder: A model folder of bert_tf or Hugging Face, or a model of the
            Hugging Face Hub, "hf:organisation/name@revision".
        **options: The `ExportOptions` that change answers, such as `kind`,
            `max_seq_length`, `pooling`, `top_k`.

    Returns:
        A `Predictor`, a callable: `predict(texts)`.

    Raises:
        ValueError: If it is no model folder, the model is not tuned to a task
            and no `kind` is given, an option does not fit it, or Keras has
            another backend than TensorFlow.

    Example:

        >>> import bert_tf
        >>> predict = bert_tf.predictor("tickets")
        >>> answer = predict("the bill is wrong")
        >>> sorted(answer), answer["label"] in ("law", "sales")
        (['label', 'score'], True)
        >>> len(predict(["the bill is wrong", "a good offer"]))
        2
    """
    files.check_path("folder", folder)
    backend.check_is_tensorflow("A predictor")
    others = sorted({*options} - {*OF_ANSWERS})
    if others:
        raise ValueError(
            f"The options must be among {', '.join(OF_ANSWERS)}. "
            f"Received: {', '.join(others)}."
        )
    asked = ExportOptions(**options)
    if asked.kind not in _KINDS:
        raise ValueError(
            f"`kind` must be one of {', '.join(filter(None, _KINDS))}. "
            f"Received: kind={asked.kind!r}."
        )
    top_k = None
    with reader.open_checkpoint(hub.local_path(folder)) as checkpoint:
        kind, task = opening.find_kind(checkpoint, asked)
        if kind is Encoder:
            kind = _kind_of_untuned(folder, checkpoint)
        if "top_k" not in kind.DEFAULTS:
            # Not of the graph, which gives all classes.
            top_k, asked = asked.top_k, dataclasses.replace(asked, top_k=None)
        servable = opening.open_as(kind, checkpoint, task, asked)
    return Predictor(servable, top_k)


def _kind_of_untuned(folder, checkpoint):
    """Returns the kind of a folder without a task, if it tells."""
    if sentence_files.read_modules(checkpoint.folder) is not None:
        return Embedding
    kinds = [Embedding.KIND]
    if parts.MASKED_LM in checkpoint.found_parts:
        kinds.append(FillMask.KIND)
    named = " or ".join(f'kind="{kind}"' for kind in kinds)
    raise ValueError(
        f"{folder}: must be tuned to a task, or asked with {named}. "
        f"Received: {checkpoint.architecture or 'an encoder'}, without a kind."
    )


def _check_top_k(servable, top_k):
    """Raises `ValueError` if a servable does not have so many answers."""
    if top_k is None:
        return
    if not servable.is_ranked:
        raise ValueError(
            "`top_k` must be given for labels and masks only. "
            f"Received: top_k={top_k}."
        )
    most = servable.options.top_k
    if top_k < 1 or (most is not None and top_k > most):
        raise ValueError(
            "`top_k` must be 1 or more"
            + (f", and at most the predictor's {most}" if most else "")
            + f". Received: top_k={top_k}."
        )


class _Graph:
    """What a `ServingModule` has for strings; nothing of it is saved.

    Attributes:
        model: The `TracedModel`.

    Args:
        servable: The `Servable`.
    """

    def __init__(self, servable: Servable) -> None:
        self.model = TracedModel(servable)
        self._servable = servable

    def encode(self, texts: Any) -> dict[str, tf.Tensor]:
        """Returns the model inputs of strings, as a `TextModule` does."""
        most = self._servable.options.max_text_bytes
        return self._servable.preprocess(inputs_lib.take_texts(texts, most))


class Predictor:
    """A model that takes strings and gives plain Python answers.

    The answers are those of `serving_default` of the model's export.
    `predictor` opens one.

    Attributes:
        columns: The names of the texts, in order: `("text",)`, or
            `("question", "context")`.
        model: The Keras model. Its weights are those asked: after more
            training, the answers change.

    Args:
        servable: The `Servable`.
        top_k: The default of a call's `top_k`.

    Call arguments:
        *texts: The columns, in order: each a string, or a list, tuple, NumPy
            array or pandas Series of strings. One tuple of all columns, a
            dictionary of them, a DataFrame or a `tf.data.Dataset` of strings,
            tuples or dictionaries will also do. A string beside a
            list stands for every row. Choices are a list of strings, or a list
            of such lists.
        top_k: For labels and masks: how many, the likeliest first. None for
            the label; all labels above 0.5, if there may be several; or as
            many tokens as the option `top_k` says.
        **named: The columns by name, instead of `texts`.

    Returns:
        One answer if all columns are single strings. Otherwise a list with one
        answer for each row, or an array `[N, D]` of embeddings.

    Raises:
        ValueError: If there are other columns than `columns`, they differ in
            length, or hold something else than strings.
    """

    def __init__(self, servable: Servable, top_k: int | None = None) -> None:
        _check_top_k(servable, top_k)
        self._servable = servable
        self._top_k = top_k
        self.model = servable.model
        self._specs = signatures.strings_spec(servable.text_features)
        self.columns = tuple(self._specs)
        # Traced once, for any number of rows.
        self._answer = signatures.trace_answer(
            servable, _Graph(servable), signatures.STRINGS
        )

    def __call__(
        self, *texts: Any, top_k: int | None = None, **named: Any
    ) -> Any:
        top_k = self._top_k if top_k is None else top_k
        _check_top_k(self._servable, top_k)
        rows, is_one = self._rows(self._in_order(texts, named))
        answers: list[Any] = []
        starts = range(0, len(rows), _BATCH_SIZE)
        with progress_bar.track(starts, "predict", len(starts)) as tracked:
            for start in tracked:
                batch = rows[start : start + _BATCH_SIZE]
                found = self.compute(batch)
                answers += self._servable.read_outputs(found, batch, top_k)
        if is_one:
            return answers[0]
        if isinstance(self._servable, Embedding):
            return np.reshape(answers, [-1, *(self._servable.row_shape or ())])
        return answers

    def read_file(self, path: files.AnyPath) -> list[Any]:
        """Returns the columns of a file, as a call takes them.

        Args:
            path: A .tsv or .csv with a header, a .jsonl or a .parquet that has
                the columns `columns`; a file of the model's task; or any other
                file with one text per line and tabs between several.

        Raises:
            ValueError: If it is no such file; the message names the line.
        """
        return self._to_columns(self._servable.read_texts(path))

    def parse_lines(self, lines: Iterable[str], source: str) -> list[Any]:
        """Returns the columns of lines, with tabs between several texts.

        Args:
            lines: The lines.
            source: Where they come from; errors name it.

        Raises:
            ValueError: If a line does not have as many texts as a row.
        """
        count = len(self._servable.text_features)
        return self._to_columns(texts_lib.parse_texts(lines, count, source))

    def _to_columns(self, rows):
        found: dict[str, list[list[str]]] = {name: [] for name in self.columns}
        for name, column in zip(self._servable.text_features, zip(*rows)):
            found[name].append(
                [text.decode("utf-8", "replace") for text in column]
            )
        # Choices share one name.
        return [
            list(zip(*found[name])) if spec.shape.rank > 1 else found[name][0]
            for name, spec in self._specs.items()
        ]

    def similarity(self, left: Any, right: Any) -> Any:
        """Returns the cosines of embeddings.

        Args:
            left, right: Texts, as in a call; or vectors, `[D]` or `[N, D]`.

        Returns:
            A number for two texts, `[N]` for one text and a list, `[N, M]` for
            two lists.

        Raises:
            ValueError: If the predictor gives no embeddings.
        """
        if not isinstance(self._servable, Embedding):
            raise ValueError(
                'similarity needs embeddings: predictor(..., kind="embedding").'
                f" Received: kind={self._servable.KIND!r}."
            )
        return np.inner(*map(self._directions, (left, right)))

    def _directions(self, texts):
        """Returns vectors of length 1, `[..., D]`."""
        is_vector = isinstance(texts, np.ndarray) and texts.dtype.kind == "f"
        vectors = texts if is_vector else self(texts)
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / np.maximum(norms, np.finfo(np.float32).tiny)

    def compute(self, rows: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        """Returns the export's own answers to rows: {name: array `[N, ...]`}.

        Args:
            rows: N rows of a text for each of `columns`, or of several texts
                for choices.
        """
        texts = {
            name: tf.constant(column, tf.string)
            for name, column in zip(self.columns, zip(*rows))
        }
        return {
            name: value.numpy() for name, value in self._answer(texts).items()
        }

    def _in_order(self, texts, named):
        """Returns the columns in the order of `columns`."""
        if len(texts) == 1:
            (table,) = texts
            if isinstance(table, tf.data.Dataset):
                texts = (table := _read_dataset(table),)
            # A Series has keys too, but no columns.
            if isinstance(table, Mapping) or hasattr(table, "columns"):
                found = [name for name in self.columns if name in table]
                texts, named = (), named | {name: table[name] for name in found}
            elif isinstance(table, tuple) and len(self.columns) > 1:
                texts = table
        if not texts and {*named} == {*self.columns}:
            return [named[name] for name in self.columns]
        if named or len(texts) != len(self.columns):
            received = ", ".join(named) or messages.counted(
                len(texts), "column", "columns"
            )
            raise ValueError(
                f"The texts must be {', '.join(self.columns)}: one argument "
                "for each, in this order or by name. Rows become columns by "
                f"predict(*zip(*rows)). Received: {received}."
            )
        return texts

    def _rows(self, columns):
        """Returns the rows of columns, and whether they are only one row."""
        read = [
            _read_column(name, column, [*spec.shape[1:]])
            for (name, spec), column in zip(self._specs.items(), columns)
        ]
        lengths = {len(rows) for rows, is_one in read if not is_one}
        if len(lengths) > 1:
            raise ValueError(
                f"{', '.join(self.columns)} must have one length. Received: "
                f"{', '.join(str(len(rows)) for rows, _ in read)} rows."
            )
        count = max(lengths, default=1)
        rows = zip(*(rows * count if one else rows for rows, one in read))
        return list(rows), not lengths


def _read_dataset(dataset):
    """Returns the columns of rows, or of batches of them, as these are.

    They are a list, or a tuple or dictionary of lists.
    """
    spec = dataset.element_spec
    if all(leaf.shape.rank for leaf in tf.nest.flatten(spec)):
        dataset = dataset.unbatch()
    rows = [*dataset.as_numpy_iterator()]
    if isinstance(spec, Mapping):
        return {name: [_string(row[name]) for row in rows] for name in spec}
    if isinstance(spec, tuple):
        return tuple([*map(_string, column)] for column in zip(*rows))
    return [*map(_string, rows)]


def _string(value):
    """Returns bytes, or an array of them, as strings; else what came."""
    if isinstance(value, np.ndarray):
        return [*map(_string, value)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def _read_column(
    name: str, column: Any, shape: Sequence[int]
) -> tuple[list[Any], bool]:
    """Returns the rows of a column, and whether it is a single row.

    Args:
        name: Its name.
        column: A string, or an iterable of strings; of choices, an iterable of
            strings, or of such iterables.
        shape: `[]`, or `[C]` for choices.
    """
    is_one = isinstance(column, str)
    rows = [column] if is_one else _listed(name, column)
    if not shape:
        _check_strings(name, rows)
        return rows, is_one
    is_one = bool(rows) and all(isinstance(row, str) for row in rows)
    choices = [
        tuple(_listed(name, row)) for row in ([rows] if is_one else rows)
    ]
    for row in choices:
        _check_strings(name, row)
        if len(row) != shape[0]:
            raise ValueError(
                f"`{name}` must be {shape[0]} strings for each row. "
                f"Received: {len(row)}."
            )
    return choices, is_one


def _listed(name, values):
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ValueError(
            f"`{name}` must be a list of strings. "
            f"Received: {messages.shortened(values)}."
        )
    return list(values)


def _check_strings(name, rows):
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, str):
            raise ValueError(
                f"`{name}` must hold strings. "
                f"Received: {messages.shortened(row)} in row {number}."
            )
