"""Saves, keeps and restores the state of a training run.

The state is the weights, the optimizer's variables, the step number and the
number of the next example. It lies in the folder `train` of the run's output
directory. The model that the run writes beside it is separate.
"""

import contextlib
import json
import logging
import re
import zlib
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf import formats
from bert_tf.training import lock
from bert_tf.training import settings as settings_lib
from bert_tf.training import strategy as strategies
from bert_tf.training.options import BEST_FOLDER
from bert_tf.training.options import FOLDER
from bert_tf.training.options import GENERATOR_FOLDER
from bert_tf.training.options import MODULE_FOLDER

_logger = logging.getLogger(__name__)

# Keys of a description.
# The tokenizer, if it is not BERT's kind.
TOKENIZER = "tokenizer"
# The examples of a fine-tuning.
EXAMPLES = "train_examples_sha256"
# The tokenizer of a fine-tuning, of any kind.
TOKENIZER_HASH = "tokenizer_sha256"
# The teacher's tokenizer, including whether it lower-cases.
TEACHER_TOKENIZER_HASH = "teacher_tokenizer_sha256"
# The development sets, if their scores decide anything.
DEV_EXAMPLES = "dev_examples_sha256"
# Only a fine-tuning has this key.
_TASK = "task"
_DESCRIPTION = "model.json"
_NAME = "state-"
_FLOAT16 = "mixed_float16"
# TensorFlow's unfinished checkpoints.
_UNFINISHED = re.compile(rf"{_NAME}\d+_temp|{_NAME}\d+\.data-.*\.tempstate\d+")
# These errors do not mean that the file is damaged. They must not make
# `restore` fall back to an older checkpoint.
_NOT_READ = (
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
)


class TrainingState:
    """A run's model, optimizer and position, and their checkpoints.

    A checkpoint exists once its index does, which TensorFlow writes last. Its
    contents have checksums. If the newest checkpoint is damaged, the one
    before it is restored.

    Args:
        model: A built `keras.Model`.
        optimizer: A `keras.optimizers.Optimizer`. If it is not built yet, it
            is built here on the model's trainable variables. Make the model,
            the optimizer and this state in the strategy's scope.
        output_dir: The run's output folder.
        description: A JSON-able dictionary that says what the model is.
            `restore` and `hold` refuse the directory of a different model.
        keep_checkpoint_max: Number of newest checkpoints to keep.
        settings: A JSON-able dictionary of whatever else determines the
            weights; these settings may change when the run is resumed.
        may_differ: Names in the description whose values may differ from the
            directory's; the next checkpoint then writes the new description.

    Attributes:
        settings: The `settings.RunSettings` made of `settings`.
        step: Number of steps that the run has made.
        example: Number of examples that those steps consumed.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        output_dir: files.AnyPath,
        description: Mapping[str, Any],
        keep_checkpoint_max: int = 5,
        settings: Mapping[str, Any] | None = None,
        may_differ: Collection[str] = (),
    ) -> None:
        if keep_checkpoint_max < 1:
            raise ValueError(
                "`keep_checkpoint_max` must be positive. Received: "
                f"keep_checkpoint_max={keep_checkpoint_max}."
            )
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        self.output_dir = str(output_dir).rstrip("/")
        self.folder = f"{self.output_dir}/{FOLDER}"
        self.description = json.loads(json.dumps(description))
        self._may_differ = may_differ
        self.settings = settings_lib.RunSettings(self.folder, settings or {})
        self._keep_checkpoint_max = keep_checkpoint_max
        self._check_lock: Callable[[], None] | None = None
        self._workers_agree = False
        # The steps that `restore` found without the lock; None once it is held.
        self._found_steps: list[int] | None = None
        self.step = 0
        self.example = 0

    @contextlib.contextmanager
    def hold(self, is_chief: bool = True) -> Iterator[None]:
        """Keeps other programs out of the output folder in the block.

        It removes what a killed program left there half-written. Inside
        another `hold` of this state it does nothing.

        Args:
            is_chief: Whether this host writes; other hosts do nothing.

        Raises:
            lock.HeldError: A `ValueError`, if another program trains there.
            ValueError: If one has trained there since this state was restored,
                or it belongs to another model.
        """
        if not is_chief or self._check_lock is not None:
            yield
            return
        with lock.hold(self.folder) as self._check_lock:
            try:
                if self._found_steps not in (None, self.saved_steps()):
                    raise ValueError(
                        f"{self.output_dir}: another program trained there "
                        "while this one started. Run this one again."
                    )
                self._check_description()
                self._found_steps = None
                self._remove_leftovers()
                yield
            finally:
                self._check_lock = None

    def restore(self) -> bool:
        """Restores the newest undamaged checkpoint, if there is one.

        Returns:
            Whether there was one.

        Raises:
            ValueError: If the folder belongs to another model, if there are
                checkpoints but none can be restored, or if either they or this
                run, but not both, use float16.
        """
        self._check_description()
        self._check_precision()
        checkpoint = self._checkpoint()
        failures = []
        found = self.saved_steps()
        if self._check_lock is None:
            self._found_steps = found
        for step in reversed(found):
            path = self._path(step)
            try:
                checkpoint.read(path).assert_existing_objects_matched()
            except _NOT_READ:
                raise
            # TensorFlow raises many kinds of errors for damaged files,
            # including IndexError.
            except Exception as error:
                failures.append((path, str(error).strip().split("\n")[0]))
                continue
            for damaged, reason in failures:
                _logger.warning(
                    "%s cannot be restored and is skipped; training resumes "
                    "from %s. The reason given: %s",
                    damaged,
                    path,
                    reason,
                )
            self.step = int(checkpoint.step)
            self.example = int(checkpoint.example)
            self._workers_agree = False
            self.settings.find(self.step)
            return True
        if failures:
            path, reason = failures[0]
            raise ValueError(
                f"{path} cannot be restored, nor can an earlier one: it is "
                "damaged, or of another model or optimizer. The reason given: "
                f"{reason}"
            )
        return False

    def log_changes(self) -> None:
        """Logs which settings have changed since the run was saved."""
        changes = self.settings.changes()
        if changes:
            is_meant = settings_lib.are_meant(changes)
            (_logger.info if is_meant else _logger.warning)(
                "%s", settings_lib.describe(changes, self.step, self.example)
            )

    def check_workers(self, strategy: tf.distribute.Strategy) -> None:
        """Checks that all workers of a run begin with the same state.

        Each worker restores what it finds by itself. All of them must call
        this method. After one successful check, it does nothing until another
        state is restored.

        Args:
            strategy: The `tf.distribute.Strategy`.

        Raises:
            ValueError: On all workers, if their states differ.
        """
        if self._workers_agree or not strategies.is_multi_host(strategy):
            return
        checksum = zlib.crc32(str(self.example).encode())
        for variable in (
            *self.model.trainable_variables,
            *self.optimizer.variables,
        ):
            values = tf.convert_to_tensor(variable).numpy()
            checksum = zlib.crc32(values, checksum)
        gather = strategies.make_gather(strategy)
        workers: dict[tuple[int, ...], list[str]] = {}
        for worker, numbers in enumerate(gather((self.step, checksum))):
            workers.setdefault(numbers, []).append(str(worker))
        if len(workers) > 1:
            states = "; ".join(
                f"step {step} (state {state:08x}) at worker {', '.join(places)}"
                for (step, state), places in workers.items()
            )
            raise ValueError(
                "All workers must begin with the same state. `output_dir` "
                "must be a folder that they share, e.g. on NFS or gs://, and "
                "an initial checkpoint must be the same for all. "
                f"Received: {states}."
            )
        self._workers_agree = True

    def save(self) -> str:
        """Saves a checkpoint of this step and returns its path.

        Raises:
            OSError: If it cannot be written, e.g. because the disk is full;
                earlier checkpoints are left intact.
            lock.HeldError: If another program has taken the directory.
        """
        if self._check_lock is not None:
            self._check_lock()
        if read_description(self.output_dir) != self.description:
            values = formats.stamped(
                self.description, _version_of(self.description)
            )
            text = json.dumps(values, indent=2) + "\n"
            atomic.write_text(f"{self.folder}/{_DESCRIPTION}", text)
        self.settings.write()
        path = self._path(self.step)
        with self._clear_write_errors():
            try:
                self._checkpoint().write(path)
            except tf.errors.OpError:
                # TensorFlow leaves the folder that it wrote in.
                with contextlib.suppress(OSError, tf.errors.OpError):
                    files.remove(f"{path}_temp")
                raise
            self._keep_newest()
        return path

    def _clear_write_errors(self):
        return atomic.clear_write_errors(
            f"{self.folder}: the checkpoint of step {self.step}"
        )

    def saved_steps(self) -> list[int]:
        """Returns the steps of the checkpoints, in order."""
        return _saved_steps(self.folder)

    def _steps_so_far(self):
        # A damaged checkpoint of a later step stays until it is overwritten.
        return [step for step in self.saved_steps() if step <= self.step]

    def _keep_newest(self):
        """Lists the newest checkpoints and removes the older ones."""
        steps = self._steps_so_far()
        num_old = max(0, len(steps) - self._keep_checkpoint_max)
        # The list is for other programs: a `CheckpointState` as text. A public
        # function writes one, but in `tf.compat.v1`, with a warning.
        lines = [f'model_checkpoint_path: "{_NAME}{self.step}"\n'] + [
            f'all_model_checkpoint_paths: "{_NAME}{step}"\n'
            for step in steps[num_old:]
        ]
        atomic.write_text(f"{self.folder}/checkpoint", "".join(lines))
        for step in steps[:num_old]:
            # The index first: if the program is killed in between, shards
            # without an index remain, which the next run removes. An index
            # without shards would look like a checkpoint.
            names = tf.io.gfile.glob(f"{self._path(step)}.*")
            for name in sorted(
                names, key=lambda name: not name.endswith(".index")
            ):
                files.remove(name)

    def _checkpoint(self):
        """Returns the object to save, with the current step and example."""
        return tf.train.Checkpoint(
            model=self.model,
            optimizer=self.optimizer,
            step=tf.Variable(self.step, dtype=tf.int64),
            example=tf.Variable(self.example, dtype=tf.int64),
        )

    def _path(self, step):
        return f"{self.folder}/{_NAME}{step}"

    def _remove_leftovers(self):
        best = f"{self.output_dir}/{BEST_FOLDER}"
        models = self.output_dir, best
        generators = [f"{folder}/{GENERATOR_FOLDER}" for folder in models]
        modules = [
            f"{folder}/{name}"
            for folder in models
            for name in files.list_folder(folder)
            if MODULE_FOLDER.fullmatch(name)
        ]
        for folder in (*models, *generators, *modules, self.folder):
            for name in files.list_folder(folder):
                if _is_leftover(name):
                    files.remove(f"{folder}/{name}")
        # Shards whose index was never written.
        whole = {f"{_NAME}{step}" for step in self.saved_steps()}
        for name in files.list_folder(self.folder):
            match = re.fullmatch(rf"({_NAME}\d+)\.data-.*", name)
            if match and match[1] not in whole:
                files.remove(f"{self.folder}/{name}")

    def _check_precision(self):
        """Raises `ValueError` if only one of the optimizers scales the loss."""
        steps = self.saved_steps()
        if not steps:
            return
        self.settings.find(steps[-1])
        old, new = self.settings.changes().get("mixed_precision", ("", ""))
        if old != new and _FLOAT16 in (old, new):
            raise ValueError(
                f"--mixed_precision must stay as it was, {old}: float16 needs "
                f"a different optimizer. Received: {new}. To continue in it, "
                "begin in another folder with "
                f"--init_checkpoint={self.output_dir}."
            )

    def _check_description(self):
        found = read_description(self.output_dir)
        if found is None:
            return
        check_kind(self.output_dir, found, self.description)
        differences = settings_lib.differences(
            found, self.description, exempt=self._may_differ
        )
        if differences:
            raise ValueError(
                f"{self.folder} holds the training of another model: "
                f"{'; '.join(differences)}. Choose another output folder."
            )


def _version_of(description):
    """Returns the first version of the format that has all these keys."""
    if TOKENIZER_HASH in description:
        return formats.TRAINING
    if EXAMPLES in description:
        return 3
    return 2 if TOKENIZER in description else 1


def check_kind(
    output_dir: files.AnyPath,
    found: Collection[str],
    description: Collection[str],
) -> None:
    """Checks that a directory holds the kind of training that begins now.

    Descriptions of the two kinds have hardly a name in common, so comparing
    them name by name would tell the user little.

    Args:
        output_dir: The directory.
        found: The names in its description.
        description: The names in the description of the training that begins.

    Raises:
        ValueError: If one is a fine-tuning and the other is not.
    """
    there, here = (
        "a fine-tuning" if _TASK in names else "a training on records"
        for names in (found, description)
    )
    if there != here:
        raise ValueError(
            f"{output_dir} holds {there}, and this is {here}. Choose another "
            "output folder, and give this one as --init_checkpoint to begin "
            "with its model."
        )


def read_description(output_dir: files.AnyPath) -> dict[str, Any] | None:
    """Returns the description of a directory's training, or None.

    Raises:
        ValueError: If the file is damaged or from a later version.
    """
    path = f"{str(output_dir).rstrip('/')}/{FOLDER}/{_DESCRIPTION}"
    if not files.exists(path):
        return None
    return formats.unstamped(path, files.read_object(path), formats.TRAINING)


def _is_leftover(name):
    """Returns whether a killed program has left this file or folder."""
    return bool(_UNFINISHED.fullmatch(name)) or atomic.is_temporary(
        name, folders=(BEST_FOLDER, GENERATOR_FOLDER)
    )


def trained_steps(output_dir: files.AnyPath) -> int:
    """Returns the steps of the newest checkpoint in a run's folder, or 0."""
    folder = f"{str(output_dir).rstrip('/')}/{FOLDER}"
    return max(_saved_steps(folder), default=0)


def _saved_steps(folder):
    """Returns the steps of a folder's checkpoints, in order.

    They are found by their files. TensorFlow's list, the file `checkpoint`, is
    for other programs, and it has full paths if an older release wrote it.
    """
    names = files.list_folder(folder)
    found = (re.fullmatch(rf"{_NAME}(\d+)\.index", name) for name in names)
    return sorted(int(match[1]) for match in found if match)
