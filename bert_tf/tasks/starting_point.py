"""Where a fine-tuned model begins: files found, checked against each other."""

import dataclasses
import os

from bert_tf import files
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.tasks.glue import GlueTask
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.training import checkpointing


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """A checkpoint or none, its architecture and its vocabulary.

    Args:
        init_checkpoint: A model folder of bert_tf or Hugging Face, or a
            release of Google's; None for newly made weights.
        config: The `BertConfig`.
        vocabulary: The `Vocabulary`.
        do_lower_case: Whether texts are lower-cased.

    Raises:
        ValueError: If configuration and vocabulary are not of one size.
    """

    init_checkpoint: str | None
    config: BertConfig
    vocabulary: vocabulary_lib.Vocabulary
    do_lower_case: bool

    def __post_init__(self):
        if len(self.vocabulary) != self.config.vocab_size:
            raise ValueError(
                "The vocabulary must have as many entries as the "
                f"configuration's vocab_size={self.config.vocab_size}. "
                f"Received: {len(self.vocabulary)} entries."
            )

    def preprocessor(self, max_seq_length):
        """Returns the `Preprocessor` for sequences of this length.

        Raises:
            ValueError: If the model has no positions for it, or
                `do_lower_case` contradicts the vocabulary.
        """
        if max_seq_length > self.config.max_position_embeddings:
            raise ValueError(
                "`max_seq_length` must be at most the model's "
                "max_position_embeddings="
                f"{self.config.max_position_embeddings}. Received: "
                f"max_seq_length={max_seq_length}."
            )
        return Preprocessor(
            self.vocabulary,
            do_lower_case=self.do_lower_case,
            max_seq_length=max_seq_length,
        )

    def new_classifier(self, task, dtype=None):
        """Makes a model to be tuned.

        The head is newly made, unless the checkpoint is a model folder that
        was tuned to the same task.

        Args:
            task: A `GlueTask`.
            dtype: The Keras dtype policy, or its name.
        """
        model = BertClassifier(self.config, task.num_outputs, dtype=dtype)
        if self.init_checkpoint is not None:
            is_same_task = (
                model_folder.read_task(self.init_checkpoint) == task.to_dict()
            )
            loading.load_weights(
                self.init_checkpoint, model if is_same_task else model.encoder
            )
        return model

    def tuned_classifier(self, task, dtype=None):
        """Makes a model with all of the checkpoint's weights, head included.

        Raises:
            ValueError: If the checkpoint has no head of that size.
        """
        model = BertClassifier(self.config, task.num_outputs, dtype=dtype)
        coverage = loading.load_weights(self.init_checkpoint, model)
        if coverage.names(report.NEW):
            raise ValueError(
                f"{self.init_checkpoint}: is not tuned to a task; it has no "
                f"{', '.join(coverage.names(report.NEW))}."
            )
        return model


def find(
    init_checkpoint=None,
    bert_config_file=None,
    vocab_file=None,
    do_lower_case=None,
):
    """Finds what belongs to a checkpoint.

    Args:
        init_checkpoint: A model folder, a release's folder, or the prefix of
            its files (".../bert_model.ckpt"); None for newly made weights.
        bert_config_file: The configuration; the checkpoint's own if None.
        vocab_file: The vocabulary; vocab.txt beside the checkpoint if None.
        do_lower_case: Whether texts are lower-cased; if None what the
            checkpoint's tokenizer_config.json says, or else True.

    Returns:
        A `StartingPoint`.

    Raises:
        ValueError: If a file is missing, or two contradict each other.
    """
    config = None
    stored_do_lower_case = None
    if init_checkpoint is not None:
        init_checkpoint = str(init_checkpoint).rstrip("/")
        with reader.open_checkpoint(init_checkpoint) as checkpoint:
            config = checkpoint.config
        folder = init_checkpoint
        if not files.is_folder(folder):
            folder = os.path.dirname(folder) or "."
        if vocab_file is None:
            vocab_file = f"{folder}/{model_folder.VOCABULARY_FILE}"
        stored_do_lower_case = _stored_do_lower_case(folder)
    if bert_config_file is not None:
        config = BertConfig.from_json(bert_config_file)
    if config is None:
        raise ValueError(
            "`bert_config_file` must be given where no checkpoint tells it. "
            f"Received: init_checkpoint={init_checkpoint}."
        )
    if vocab_file is None:
        raise ValueError(
            "`vocab_file` must be given without a checkpoint. "
            "Received: init_checkpoint=None."
        )
    if do_lower_case is None:
        do_lower_case = (
            True if stored_do_lower_case is None else stored_do_lower_case
        )
    elif stored_do_lower_case not in (None, do_lower_case):
        raise ValueError(
            f"`do_lower_case` must be {stored_do_lower_case}, as the "
            f"tokenizer_config.json of {init_checkpoint} says. Received: "
            f"do_lower_case={do_lower_case}."
        )
    return StartingPoint(
        init_checkpoint=init_checkpoint,
        config=config,
        vocabulary=vocabulary_lib.load_vocabulary(vocab_file),
        do_lower_case=do_lower_case,
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


def tuned_task(folder, task=None):
    """Returns the task that the model in a folder was tuned to.

    Args:
        folder: A model folder.
        task: What it must be. A folder of Hugging Face's has no task.json;
            it is then taken to be of this task, with the classes in the order
            of config.json if that names them.

    Raises:
        ValueError: If the folder tells no task, or another one.
    """
    values = model_folder.read_task(folder)
    if values is None:
        if task is None:
            raise ValueError(
                f"{folder}: has no {model_folder.TASK_FILE}; it is not tuned "
                "to a task."
            )
        names = model_folder.read_label_names(folder)
        if names is not None and set(names) == set(task.labels):
            task = dataclasses.replace(task, labels=names)
        return task
    try:
        found = GlueTask.from_dict(values)
    except ValueError as error:
        path = f"{folder}/{model_folder.TASK_FILE}"
        raise ValueError(f"{path}: {error}") from error
    if task is not None and found.name != task.name:
        raise ValueError(
            f"{folder}: is tuned to the task {found.name!r}. "
            f"Received: task_name={task.name!r}."
        )
    return found


def _stored_do_lower_case(folder):
    path = f"{folder}/{model_folder.TOKENIZER_FILE}"
    if not files.exists(path):
        return None
    return files.read_json(path).get("do_lower_case")
