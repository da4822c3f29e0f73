"""Where a fine-tuned model begins: files found, checked against each other."""

import dataclasses
import os

from absl import logging
from keras import ops

from bert_tf import files
from bert_tf.checkpoints import families
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.config import BertConfig
from bert_tf.tasks import class_names
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.training import checkpointing


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """A checkpoint or none, its architecture and its tokenizer.

    Args:
        init_checkpoint: A model folder of bert_tf or Hugging Face, or a
            release of Google's; None for newly made weights.
        config: The `BertConfig`.
        tokenizer: The spec of the tokenizer.
        allow_partial: Whether the checkpoint may lack weights, or have some
            too many or of another shape.
        extend_positions: Whether the configuration may have more positions
            than the checkpoint.

    Raises:
        ValueError: If configuration and vocabulary are not of one size.
    """

    init_checkpoint: str | None
    config: BertConfig
    tokenizer: Spec
    allow_partial: bool = False
    extend_positions: bool = False

    def __post_init__(self):
        num_entries = len(self.tokenizer.vocabulary)
        if num_entries != self.config.vocab_size:
            raise ValueError(
                "The vocabulary must have as many entries as the "
                f"configuration's vocab_size={self.config.vocab_size}. "
                f"Received: {num_entries} entries."
            )

    def preprocessor(self, max_seq_length):
        """Returns the `Preprocessor` for sequences of this length.

        Raises:
            ValueError: If the model has no positions for it.
        """
        if max_seq_length > self.config.max_position_embeddings:
            raise ValueError(
                "`max_seq_length` must be at most the model's "
                "max_position_embeddings="
                f"{self.config.max_position_embeddings}. Received: "
                f"max_seq_length={max_seq_length}."
            )
        return Preprocessor(self.tokenizer, max_seq_length)

    def new_model(self, task, dtype=None):
        """Makes a model to be tuned.

        The head is newly made, unless the checkpoint is a model folder that
        was tuned to a task whose head this one takes.

        Args:
            task: A task; see `tasks.tuning`.
            dtype: The Keras dtype policy, or its name.
        """
        model = task.make_model(self.config, dtype)
        if self.init_checkpoint is not None:
            stored = model_folder.read_task(self.init_checkpoint)
            has_head = stored is not None and task.takes_head_of(stored)
            loading.load_weights(
                self.init_checkpoint,
                model if has_head else model.encoder,
                allow_partial=self.allow_partial,
                extend_positions=self.extend_positions,
            )
        return model

    def tuned_model(self, task, dtype=None):
        """Makes a model with all of the checkpoint's weights, head included.

        Its outputs are in the order of the task's labels: those of a folder
        that names its classes in another order are put in this one. Where it
        does not name them they are taken to be in it, with a warning.

        Raises:
            ValueError: If the checkpoint has no such head, or it is one of
                other classes.
        """
        model = task.make_model(self.config, dtype)
        coverage = loading.load_weights(
            self.init_checkpoint, model, allow_partial=self.allow_partial
        )
        # A pooler that takes no part is not trained, and files have none.
        used = {variable.path for variable in model.trainable_variables}
        missing = [name for name in coverage.names(report.NEW) if name in used]
        if missing:
            raise ValueError(
                f"{self.init_checkpoint}: is not tuned to a task of the "
                f"family {task.family!r}; it has no {', '.join(missing)}."
            )
        order = output_order(self.init_checkpoint, task)
        names = ", ".join(task.labels)
        if order is None and task.labels:
            logging.warning(
                "%s: does not name its classes; they are taken to be, in this "
                "order, %s.",
                self.init_checkpoint,
                names,
            )
        elif order is not None and list(order) != sorted(order):
            logging.info(
                "%s: its outputs were put in the order %s.",
                self.init_checkpoint,
                names,
            )
            for variable in model.classification_head.weights:
                variable.assign(ops.take(variable, order, axis=-1))
        return model


def find(
    init_checkpoint=None,
    bert_config_file=None,
    vocab_file=None,
    do_lower_case=None,
    *,
    allow_partial=False,
    max_position_embeddings=None,
):
    """Finds what belongs to a checkpoint.

    Args:
        init_checkpoint: A model folder, a release's folder, or the prefix of
            its files (".../bert_model.ckpt"); None for newly made weights.
        bert_config_file: The configuration; the checkpoint's own if None.
        vocab_file: The vocabulary; the one beside the checkpoint if None.
        do_lower_case: Whether texts are lower-cased; if None what the
            checkpoint's tokenizer_config.json says, or else True.
        allow_partial: As of `checkpoints.load`.
        max_position_embeddings: None, or the positions of a new model, where
            more than the checkpoint's; see `checkpoints.load`.

    Returns:
        A `StartingPoint`.

    Raises:
        ValueError: If a file is missing, or two contradict each other.
    """
    config, folder, settings = None, None, {}
    if init_checkpoint is not None:
        init_checkpoint = str(init_checkpoint).rstrip("/")
        with reader.open_checkpoint(
            init_checkpoint, allow_partial
        ) as checkpoint:
            config = checkpoint.config
        folder = init_checkpoint
        if not files.is_folder(folder):
            folder = os.path.dirname(folder) or "."
        settings = model_folder.read_tokenizer_config(folder)
    if bert_config_file is not None:
        config = families.read_config(bert_config_file)
    if config is None:
        raise ValueError(
            "`bert_config_file` must be given where no checkpoint tells it. "
            f"Received: init_checkpoint={init_checkpoint}."
        )
    if max_position_embeddings is not None:
        config = loading.longer_config(config, max_position_embeddings)
    if vocab_file is None and folder is None:
        raise ValueError(
            "`vocab_file` must be given without a checkpoint. "
            "Received: init_checkpoint=None."
        )
    if do_lower_case is None:
        do_lower_case = settings.get("do_lower_case", True)
    elif settings.get("do_lower_case", do_lower_case) != do_lower_case:
        raise ValueError(
            f"`do_lower_case` must be {settings['do_lower_case']}, as the "
            f"tokenizer_config.json of {init_checkpoint} says. Received: "
            f"do_lower_case={do_lower_case}."
        )
    if folder is None:
        tokenizer = tokenizer_files.from_vocabulary_file(
            vocab_file, do_lower_case
        )
    else:
        vocabulary = None
        if vocab_file is not None:
            vocabulary = vocabulary_lib.load_vocabulary(vocab_file)
        tokenizer = tokenizer_files.read(folder, vocabulary, do_lower_case)
    return StartingPoint(
        init_checkpoint=init_checkpoint,
        config=config,
        tokenizer=tokenizer,
        allow_partial=allow_partial,
        extend_positions=max_position_embeddings is not None,
    )


def check_output_dir(output_dir):
    """Raises `ValueError` if training there would lose another's model."""
    if files.exists(
        os.path.join(output_dir, model_folder.CONFIG_FILE)
    ) and not files.exists(os.path.join(output_dir, checkpointing.FOLDER)):
        raise ValueError(
            f"--output_dir={output_dir} holds a model that was not trained "
            "there. Give another folder."
        )


def tuned_folder(output_dir, init_checkpoint):
    """Returns the folder of the model to evaluate or to predict with.

    Raises:
        ValueError: If there is neither a model in the output folder nor a
            checkpoint.
    """
    if files.exists(os.path.join(output_dir, model_folder.CONFIG_FILE)):
        return output_dir
    if init_checkpoint is None:
        raise ValueError(
            "Without --do_train there must be a tuned model in --output_dir "
            f"or --init_checkpoint. Received: --output_dir={output_dir}."
        )
    return init_checkpoint


def check_task(values, family, keys):
    """Checks what task.json holds, before a task is made of it.

    Args:
        values: Its content.
        family: What `family` must be in it.
        keys: Names of all other values.

    Raises:
        ValueError: If a key is missing or unknown, or the family another.
    """
    keys = ("family", *keys)
    if not isinstance(values, dict) or set(values) != set(keys):
        raise ValueError(
            f"A task must have the keys {', '.join(keys)}. "
            f"Received: {files.shortened(values)}."
        )
    for key, value in values.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, (dict, list)) for item in items):
            raise ValueError(
                f"`{key}` must be one value or a list of them. "
                f"Received: {key}={files.shortened(value)}."
            )
    if values["family"] != family:
        raise ValueError(
            f"`family` must be {family!r}. "
            f"Received: family={files.shortened(values['family'])}."
        )


def output_order(folder, task):
    """Finds the outputs of a tuned model that are a task's classes.

    The classes' names are those of task.json, and where there is none those
    of config.json.

    Args:
        folder: A model folder.
        task: The task.

    Returns:
        A tuple of ints: of each of the task's labels the number of the
        model's output. None of a task without labels, and where the folder
        does not name its classes.

    Raises:
        ValueError: If the folder names other classes.
    """
    path = f"{folder}/{model_folder.CONFIG_FILE}"
    if not task.labels or not files.exists(path):
        return None
    stored = model_folder.read_task(folder)
    if stored is not None:
        path = f"{folder}/{model_folder.TASK_FILE}"
        names = stored.get("labels") if isinstance(stored, dict) else None
    else:
        names = model_folder.read_label_names(folder)
    if not names:
        return None
    try:
        return class_names.match(
            names, task.labels, getattr(task, "label_synonyms", ())
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def stored_task(folder, task_class):
    """Returns the task that a model folder was tuned to.

    Args:
        folder: A model folder.
        task_class: The class of tasks that it must be of, e.g. `GlueTask`.

    Returns:
        A `task_class`; None where there is no task.json, as in folders that
        transformers wrote.

    Raises:
        ValueError: If it was tuned to a task of another class.
    """
    values = model_folder.read_task(folder)
    if values is None:
        return None
    try:
        return task_class.from_dict(values)
    except ValueError as error:
        path = f"{folder}/{model_folder.TASK_FILE}"
        raise ValueError(f"{path}: {error}") from error
