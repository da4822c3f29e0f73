"""The base class of all kinds of exports.

The class of each kind is in a module beside this one (`classification`, `hub`,
...); `opening` chooses one for a model folder. The exporter, the warm-up, the
check and its tables use only the interface defined here.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving import options as options_lib
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import ExportOptions
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import utf_8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What an export takes from a model folder beside model and preprocessor.

    Args:
        weights_sha256: {name of a file of weights: its SHA-256}.
        config: The values in config.json; empty without one.
        vectors: What `Servable.read_vectors` returned.
    """

    weights_sha256: dict[str, str] = dataclasses.field(default_factory=dict)
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    vectors: SentenceVectors | None = None


_NO_SOURCE = Source()


class Servable:
    """A trained model, and one kind of answers to texts.

    Attributes of a kind:
        KIND: Its name in the options of an export.
        outputs_of_strings, outputs_of_ids: The `Output`s of the answers to
            strings and to ids.
        outputs_of_methods: {signature of a method: its `Output`s}.
        MODEL: The class of its Keras model; None without one.
        DEFAULTS: {option: default} of those in `options.OF_KINDS` that it
            takes.
        FIXED: {option: the only value that it takes}.
        TAKES_PAIRS: Whether the input may be a pair of strings.
        MODULE: The class of the SavedModel's root object.
        input_names: The clients' names for the model inputs, {name in
            `features.MODEL_INPUTS`: other name}.

    Args:
        model: The Keras model; None where there is only text to preprocess.
        preprocessor: The `Preprocessor` that it was trained with.
        task: The task that the model was tuned to, or None.
        options: The `ExportOptions`, as `resolve` returned them.
        source: The `Source`.
    """

    KIND = options_lib.TASK
    outputs_of_strings: tuple[Output, ...] = ()
    outputs_of_ids: tuple[Output, ...] = ()
    outputs_of_methods: dict[str, tuple[Output, ...]] = {}
    MODEL: Any = None
    DEFAULTS: dict[str, Any] = {"max_text_bytes": utf_8.MAX_TEXT_BYTES}
    TAKES_PAIRS = True
    MODULE: Any = ServingModule
    FIXED: dict[str, Any] = {}
    input_names = {name: name for name in features.MODEL_INPUTS}

    def __init__(
        self,
        model: Any,
        preprocessor: Preprocessor,
        task: Any,
        options: ExportOptions,
        source: Source = _NO_SOURCE,
    ) -> None:
        self.model = model
        self.preprocessor = preprocessor
        self.task = task
        # Whatever the kind takes has a value, though the type says otherwise.
        self.options: Any = options
        self.source = source

    @classmethod
    def read_vectors(cls, model_dir: files.AnyPath) -> SentenceVectors | None:
        """Returns how a model folder makes vectors; None for other kinds.

        Raises:
            ValueError: If the folder asks for what the kind does not do.
        """
        del model_dir
        return None

    @classmethod
    def resolve(
        cls,
        options: ExportOptions,
        task: Any,
        vectors: SentenceVectors | None = None,
    ) -> ExportOptions:
        """Returns the options, completed with the kind's defaults.

        Args:
            options: As they were given.
            task: The task that the model was tuned to, or None.
            vectors: What `read_vectors` returned.

        Raises:
            ValueError: If the kind does not take an option, or its value.
        """
        del vectors
        for name in options_lib.OF_KINDS:
            value, default = getattr(options, name), cls.DEFAULTS.get(name)
            is_taken = name in cls.DEFAULTS and (
                options.contents == options_lib.TEXT
                or name not in options_lib.OF_TEXTS
            )
            # Not `in`: for Python, 0 is False.
            is_given = value is not None and value is not False
            if not is_taken and is_given and value != default:
                raise ValueError(
                    f"--{name} must not be given with --kind={cls.KIND} and "
                    f"--contents={options.contents}. "
                    f"Received: --{name}={value}."
                )
        for name, wanted in cls.FIXED.items():
            value = getattr(options, name)
            if value != wanted:
                raise ValueError(
                    f"--{name} must be {wanted} with --kind={cls.KIND}. "
                    f"Received: --{name}={value}."
                )
        return dataclasses.replace(
            options,
            kind=cls.KIND,
            text_features=cls._find_text_features(options.text_features, task),
            **{
                name: default
                for name, default in cls.DEFAULTS.items()
                if getattr(options, name) is None
            },
        )

    @classmethod
    def _find_text_features(cls, given, task):
        own = cls.text_features_of(task)
        if not cls.TAKES_PAIRS and len(given) > 1:
            raise ValueError(
                "--text_features must be one name: the input is one string. "
                f"Received: --text_features={','.join(given)}."
            )
        if own is None:
            if len({*given}) != len(given) or given[2:] or "" in given:
                raise ValueError(
                    "--text_features must be one or two different names, "
                    "neither of them empty. "
                    f"Received: --text_features={','.join(given)}."
                )
            return given or texts_lib.DEFAULT_FEATURES
        if given not in ((), own):
            raise ValueError(
                "--text_features must be those of the model, "
                f"{','.join(own)}. "
                f"Received: --text_features={','.join(given)}."
            )
        return own

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        """Returns the names of a task's input strings.

        None if the exporter's user names them.
        """
        del task
        return None

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        """Returns the Keras model of a model folder.

        Args:
            checkpoint: What `reader.open_checkpoint` yielded.
            task: The task that it was tuned to, or None.
            options: As `resolve` returned them.

        Raises:
            ValueError: If it cannot be loaded, or does not fit the kind.
        """
        return checkpoints.load_open(
            checkpoint,
            cls.MODEL,
            dtype=options.dtype,
            **cls.model_arguments(task),
        )

    @classmethod
    def model_arguments(cls, task: Any) -> dict[str, Any]:
        """Returns the arguments of the model's class beside the config."""
        return {} if task is None else task.model_arguments()

    @property
    def family(self) -> str | None:
        """The family of the task that the model was tuned to, or None."""
        return self.task.family if self.task else None

    @property
    def text_features(self) -> tuple[str, ...]:
        """Names of the input strings."""
        return tuple(self.options.text_features)

    @property
    def takes_text(self) -> bool:
        """Whether its signatures take strings, or ids only."""
        return self.options.contents == options_lib.TEXT

    @property
    def num_choices(self) -> int | None:
        """C where a row of ids is `[C, L]`, None where it is `[L]`."""
        return None

    @property
    def row_shape(self) -> list[int] | None:
        """Shape of a row of what `call_model` returns.

        If it is known, rows are computed a few at a time. None if there are
        several tensors, or an axis whose size varies.
        """
        return None

    @property
    def is_ranked(self) -> bool:
        """Whether a row may have several answers, the likeliest first."""
        return False

    @property
    def encoder(self) -> BertEncoder:
        """The model's encoder, or the model itself if it is one."""
        return getattr(self.model, "encoder", self.model)

    @property
    def kept_model(self) -> Any:
        """The Keras model whose weights the SavedModel keeps."""
        return self.model

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        """The Keras layers whose weights can be trained in the SavedModel."""
        return (self.kept_model,)

    @property
    def forms(self) -> dict[str, signatures.Form]:
        """{signature: its `Form`}."""
        return signatures.make_forms(self.takes_text)

    @property
    def outputs(self) -> dict[str, tuple[Output, ...]]:
        """{signature: its `Output`s}."""
        declared = self.outputs_of_methods | {
            signatures.STRINGS: self.outputs_of_strings,
            signatures.IDS: self.outputs_of_ids,
        }
        return {
            name: tuple(
                output
                for output in declared.get(name, declared[form.of])
                if (output.of_task is None or output.of_task(self.task))
                and (
                    output.of_option is None
                    or getattr(self.options, output.of_option)
                )
            )
            for name, form in self.forms.items()
        }

    def complete(self, texts: Any) -> Any:
        """Returns texts, string `[B]` or a list of two, with any prompt."""
        return texts

    def preprocess(self, texts: Any) -> dict[str, tf.Tensor]:
        """Returns the model inputs for string `[B]`, or for a list of two."""
        return self.preprocessor(self.complete(texts))

    def call_model(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool,
        encoder: Callable[..., Any] | None = None,
    ) -> Any:
        """Returns what the SavedModel computes when it is called with ids.

        Args:
            inputs: The model inputs, int32 `[B, L]`.
            training: Whether there is dropout.
            encoder: What is called instead of the model's own encoder; None
                for that.
        """
        return self.model(inputs, encoder=encoder, training=training)

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the answers, {name: tensor}, from `call_model`'s output."""
        return outputs

    def decode_rows(
        self, inputs: dict[str, tf.Tensor], outputs: Any
    ) -> dict[str, tf.Tensor]:
        """Returns the answers to ids, for kinds that also need the ids.

        Args:
            inputs: The model inputs.
            outputs: What `call_model` returned for them.
        """
        del inputs
        return self.decode(outputs)

    def read_outputs(
        self,
        found: dict[str, np.ndarray],
        rows: Sequence[Any],
        top_k: int | None,
    ) -> list[Any]:
        """Returns the answers to strings as plain Python values.

        Args:
            found, rows, top_k: As in `Task.read_outputs`.
        """
        return self.task.read_outputs(found, rows, top_k)

    def answer_ids(
        self, inputs: dict[str, tf.Tensor], model: Any
    ) -> dict[str, tf.Tensor]:
        """Returns the answers to ids, {name: tensor [B, ...]}.

        Args:
            inputs: The model inputs.
            model: The `TracedModel`.
        """
        outputs = chunks.compute_in_order(inputs, model, self.num_choices or 1)
        return self.decode_rows(inputs, outputs)

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        """Returns the answers to strings, {name: tensor [B, ...]}.

        Args:
            texts: {name of a text feature: string [B]}.
            encode: A function from strings to the model inputs, as
                `preprocess`.
            model: The `TracedModel`.
        """
        columns = [texts[name] for name in self.text_features]
        counted: dict[str, tf.Tensor] = {}
        if self.options.count_tokens:
            inputs, counted = self._encode_and_count(columns)
        else:
            inputs = encode(_one_or_all(columns))
        if self.row_shape is None:
            inputs = packing.trim_padding(inputs)
            return counted | self.answer_ids(inputs, model)
        outputs = chunks.compute_in_chunks(inputs, model, self.row_shape)
        return counted | self.decode(outputs)

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        """Returns the answers that the signatures must give.

        Args:
            inputs: What `encode` returned.
            texts: Rows of one or two strings, bytes.

        Returns:
            {name: array} of all outputs that any signature has.
        """
        answers = self.decode(self.call_model(inputs, training=False))
        if self.options.count_tokens:
            columns = [tf.constant(column) for column in zip(*texts)]
            answers |= self._encode_and_count(columns)[1]
        return {name: value.numpy() for name, value in answers.items()}

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        """Returns trained answers with ties settled as in `answers`.

        Args:
            texts: As in `trained_answers`.
            trained: What `trained_answers` returned.
            answers: What a signature answered, {name: array}.
            tolerance: The largest difference that is a tie.
        """
        return trained

    def encode(self, texts: Sequence[Row]) -> dict[str, tf.Tensor]:
        """Returns the model inputs: {name: int32 tensor [B, L]}.

        Args:
            texts: Rows of one or two strings, bytes.
        """
        return self.preprocess(_one_or_all(self.columns(texts)))

    def _encode_and_count(self, columns):
        """Returns the model inputs of strings, and the outputs `COUNTED`."""
        kept, are_long = zip(*map(self.cut, columns))
        inputs, is_cut = self.preprocessor.encode_with_is_cut(
            self.complete(_one_or_all(list(kept)))
        )
        for is_long in are_long:
            is_cut |= is_long
        return inputs, {
            "num_tokens": tf.reduce_sum(inputs[features.INPUT_MASK], axis=1),
            "is_cut": is_cut,
        }

    def columns(self, texts: Sequence[Row]) -> list[tf.Tensor]:
        """Returns the columns of rows of strings, cut: string `[B]` each."""
        return [self.cut(tf.constant(column))[0] for column in zip(*texts)]

    def cut(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns strings cut to `max_text_bytes`, and which were cut."""
        return utf_8.cut_texts(texts, self.options.max_text_bytes)

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        """Reads the texts of a development set, as training read them.

        Args:
            path: A file of the model's task: SQuAD's JSON, CoNLL's columns, a
                file of GLUE's or of `multiple_choice_files`; or a .tsv or .csv
                with a header, a .jsonl or a .parquet that has the text
                features. Any other file (for question answering, only a .txt)
                has one text per line, with tabs between several strings.

        Returns:
            Rows of one or two strings, bytes.

        Raises:
            ValueError: If it is no such file, or a table in which the columns
                of texts are not found; the message names file and line.
        """
        return texts_lib.read_texts(path, self.text_features)

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        """Reads the labels of the texts that `read_texts` reads.

        Args:
            path: As in `read_texts`.
            label_column: Name of the label column in a table; the family's
                own if None. `read_texts` takes it from `options` instead.

        Returns:
            A `DevSet`; None if the kind has no score, or the file no labels.

        Raises:
            ValueError: If a label is not one of the task's; the message names
                file and line.
        """
        del path, label_column
        return None

    def hard_texts(self) -> list[Row]:
        """Returns rows of strings that are likely to show a difference."""
        return texts_lib.hard_texts(len(self.text_features))

    def check_texts(self) -> list[Row]:
        """Returns the texts of an export's check.

        They are the hard texts, and after them those of `eval_file`.

        Raises:
            ValueError: As in `read_texts`.
        """
        texts = self.hard_texts()
        if self.options.eval_file is None:
            return texts
        return texts + self.read_texts(self.options.eval_file)

    def row_of_words(self, num_words: int) -> Row:
        """Returns strings with so many words; the first of two is the longer.

        A server that is warmed up with them has run every part of the kind.
        """
        num_strings = len(self.text_features)
        return tuple(
            b"the " * ((num_words + num_strings - 1 - place) // num_strings)
            for place in range(num_strings)
        )


def repeat_names(names: Sequence[str], outputs: tf.Tensor) -> tf.Tensor:
    """Returns names once for each row of outputs: string `[B, names]`."""
    return tf.tile(tf.constant(names)[tf.newaxis], [tf.shape(outputs)[0], 1])


def are_as_good(
    chosen: np.ndarray, scores: np.ndarray, tolerance: float
) -> np.ndarray:
    """Returns whether each row's choice has its best score: bool `[B]`.

    Args:
        chosen: int `[B]`; a number out of range is never as good.
        scores: `[B, C]`.
        tolerance: As in `Servable.settle_ties`.
    """
    num_choices = scores.shape[1]
    rows = np.arange(len(chosen))
    found = scores[rows, np.clip(chosen, 0, num_choices - 1)]
    is_choice = (chosen >= 0) & (chosen < num_choices)
    return is_choice & (scores.max(axis=1) - found <= tolerance)


def _one_or_all(columns):
    """Returns what a preprocessor takes: one string `[B]`, or a list."""
    return columns[0] if len(columns) == 1 else columns
