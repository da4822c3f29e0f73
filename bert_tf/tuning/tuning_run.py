"""Tunes a model: epochs, evaluations, and what is kept of them.

All fine-tuning goes through a `Run`. A `Task` defines what its family of tasks
does differently.
"""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import sentence_model
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.models.objectives import Objective
from bert_tf.runs import output_folder
from bert_tf.runs.options import attention_masks
from bert_tf.tasks import calibration
from bert_tf.tasks import task_folder
from bert_tf.tasks.calibration import Calibrated
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import is_dev
from bert_tf.tasks.task import Task
from bert_tf.training import checkpointing
from bert_tf.training import devices
from bert_tf.training import progress
from bert_tf.training import strategy as strategies
from bert_tf.training.settings import ATTENTION_MASKS
from bert_tf.tuning import callbacks as callbacks_lib
from bert_tf.tuning import encoder_layers
from bert_tf.tuning import epochs as epochs_lib
from bert_tf.tuning import identity
from bert_tf.tuning import record as record_lib
from bert_tf.tuning import temperatures
from bert_tf.tuning import trainer
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.predictor import Predictor
from bert_tf.tuning.record import EpochRecord
from bert_tf.tuning.reporter import Reporter

# Called with the name of a set and the answers to it.
OnPredictions: TypeAlias = Callable[[str, Any], None]
# Most different lengths of training batches if XLA compiles the step.
_NUM_LENGTHS = 4


class Evaluation(NamedTuple):
    """What an evaluation on the development sets finds.

    Args:
        results: {name: float}. Results on the sets after the first have the
            set's name in theirs.
        answers: {split: the task's answers}.
    """

    results: dict[str, float]
    answers: dict[str, Any]


class Run:
    """Tunes a model to a task, evaluates it and predicts with it.

    Args:
        config: A `FineTuningConfig`.
        task: The `Task`.
        examples: {split: what the task's source takes}. The splits are
            `TRAIN`, `DEV` and further development sets whose names begin with
            `DEV`. Sets to predict have any other name; without one, the
            development set is predicted.
        strategy: The `tf.distribute.Strategy`.
        dtype_policy: Name of the Keras dtype policy.
        dataset: Name of the TensorFlow Datasets set that the examples come
            from, for the model card; None if they come from elsewhere.
        start: The `StartingPoint`; None for that of the settings.
        whole_epochs: Whether a new training has whole epochs: each trains every
            row once, its last batch filled up with rows of weight 0. If not,
            or if a loss compares the rows of a batch, epochs and steps are
            google-research/bert's. A training is resumed as it was begun.
        callbacks: Keras callbacks for the training; see `from_python.run`.

    Attributes:
        start: The `StartingPoint`.
        sources: {split: `Source`}.
        model: The `keras.Model`.
        results: {name: float} of the last evaluation; None before the first.

    Raises:
        ValueError: If the files that a model is made from are missing or
            contradict each other, or the settings do not suit it.
    """

    def __init__(
        self,
        config: FineTuningConfig,
        task: Task,
        examples: Mapping[str, Any],
        strategy: tf.distribute.Strategy,
        dtype_policy: str = "float32",
        dataset: str | None = None,
        *,
        start: StartingPoint | None = None,
        whole_epochs: bool = False,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        callbacks_lib.check(callbacks)
        _check_settings(config, task, strategy)
        if config.do_train:
            # The task's temperature belongs to a teacher or to old weights.
            task = calibration.uncalibrated(task)
        keras.utils.set_random_seed(config.random_seed)
        devices.log(strategy)
        self.config = config
        self.task = task
        self.strategy = strategy
        self.is_chief = strategies.is_chief(strategy)
        folder = tuned_folder(config)
        self.start = find_start(config, folder) if start is None else start
        # The folder of the training that the model comes from.
        self._folder = folder or config.output_dir
        self._whole_epochs = _has_whole_epochs(
            config, whole_epochs and not task.is_in_batch
        )
        self.sources = _make_sources(
            config, task, examples, self.start, strategy, self._whole_epochs
        )
        self._reporter = Reporter(config, self._folder, dataset)
        with strategy.scope():
            self.model = _make_model(config, task, self.start, dtype_policy)
        # The model whose weights a training's state holds. It may be one that
        # holds `model`.
        self._trained = self.model
        # What is trained for; None for the task's own objective.
        self._objective: Objective | None = None
        # {split: the task's answers} from the last evaluation or prediction.
        self._answers: dict[str, Any] = {}
        # {split: (the task, these answers, the same as plain values)}.
        self._plain: dict[str, tuple[Task, Any, Any]] = {}
        self.results: dict[str, float] | None = None
        self._predict = Predictor(
            task.prediction_model(self.model, config.max_seq_length), strategy
        )
        # What a resumed training must also have in common, beside settings.
        # Google's epochs have no entry, as in older releases.
        self._facts: dict[str, Any] = (
            {identity.WHOLE_EPOCHS: True} if self._whole_epochs else {}
        )
        self._callbacks = keras.callbacks.CallbackList(
            list(callbacks), model=self.model
        )
        # The step of the weights to save.
        self._step = 0
        self._resumed_at: int | None = None
        self._settings = task.training_settings(config.compares_epochs)

    @property
    def answers(self) -> dict[str, Any]:
        """{split: its answers} from the last evaluation or prediction.

        They are plain Python values, one for every example, as
        `bert_tf.predictor` gives them.
        """
        for split, found in self._answers.items():
            task, known, _ = self._plain.get(split, (None, None, None))
            if task is not self.task or known is not found:
                examples = self.sources[split].examples
                plain = self.task.read_answers(examples, found)
                self._plain[split] = self.task, found, plain
        return {split: self._plain[split][-1] for split in self._answers}

    def _begin_anew(self):
        """Sets weights of a new training that no checkpoint provides."""

    def _describe_start(self):
        """Returns what the log calls the starting point of the model."""
        return self.start.init_checkpoint or "from random weights"

    def _shown_settings(self):
        """Returns the settings, by names that are clear to a reader."""
        return self._settings

    def _other_hashes(self):
        """Returns more `identity.Hashes`."""
        return {}

    def execute(self, on_predictions: OnPredictions | None = None) -> None:
        """Trains, evaluates and predicts, as the config says.

        Args:
            on_predictions: As for `predict`.
        """
        if self.config.do_train:
            self.tune()
        elif self.config.do_eval:
            step = record_lib.step_of_model(self._folder, self.task)
            self._evaluate_step(step)
        if self.config.do_eval and self.is_chief:
            self.report()
        if self.config.do_predict:
            self.predict(on_predictions)

    def tune(self) -> dict[str, float] | None:
        """Tunes the model, or resumes tuning, and saves it.

        The output folder gets the weights of the last step, as in
        google-research/bert. With `keep_best`, the folder and finally the model
        have the weights of the epoch with the highest `main_metric`, the first
        of equal ones. With `do_eval` the model is evaluated after every epoch.

        A training must be resumed with the settings that it was begun with.
        Only `num_train_epochs` may be raised: from the step at which the
        training is resumed, the learning rate then follows the schedule of the
        new number of steps. The weights are not those of a training that was
        begun with so many epochs, and a warning says so.

        Returns:
            The results of evaluating the model's final weights, with their
            `global_step`; None if they were not evaluated.

        Raises:
            training.preemption.PreemptedError: After SIGTERM or Ctrl-C, when
                the state has been saved.
            ValueError: If the output folder holds a training with other
                settings (the message names them), if it has lost scores that
                the next epochs must be compared with, or if the examples make
                no batch.
        """
        # These belong to the old weights.
        self._answers, self.results = {}, None
        config, task = self.config, self.task
        ends = epochs_lib.epoch_ends(
            task.num_epoch_examples(self.sources[TRAIN]),
            config.train_batch_size,
            config.num_train_epochs,
            self.sources[TRAIN].unit,
            whole_epochs=self._whole_epochs,
        )
        state = self._begin(ends[-1])
        old_temperature = temperatures.stored(config.output_dir, task)
        with state.hold(self.is_chief):
            record = EpochRecord(state.folder, task.main_metric, state.step)
            if config.compares_epochs:
                record.check_evaluated(ends, state.step)
            self._train_epochs(ends, state, record)
            if config.keep_best:
                self._take_best(state.step, record)
            else:
                self._save_last(state.step, record)
            self._take_temperature(old_temperature)
        if config.keep_best:
            self.results = record.best
            _log_results(f"best by {task.main_metric}", record.best)
        else:
            self.results = record.results_at(state.step)
        return self.results

    def _train_epochs(self, ends, state, record):
        """Trains epoch by epoch, evaluates them and keeps the best.

        Args:
            ends: The steps at which epochs end.
            state: The `TrainingState`.
            record: The `EpochRecord`, which gets reports and results.
        """
        first_step = state.step
        train_to = trainer.make_trainer(
            self.config,
            self._objective or self.task.objective(),
            self.sources[TRAIN],
            state,
            record,
            ends[-1],
            self.strategy,
        )
        callbacks = self._callbacks
        sees_epochs = (
            self.config.do_eval or callbacks.callbacks or record.stopped
        )
        self.model.stop_training = False
        callbacks.set_params({"epochs": len(ends)})
        callbacks.on_train_begin()
        for epoch, (start, end) in enumerate(zip([0, *ends], ends), start=1):
            if state.step > end or not (sees_epochs or end == ends[-1]):
                continue
            callbacks.on_epoch_begin(epoch - 1)
            train_to(end=end)
            results: dict[str, float] = {}
            if self.config.do_eval:
                results = self._evaluate_step(state.step)
                record.add(epoch, results)
                _log_results(f"epoch {epoch}/{len(ends)}", results)
                # Saved before the record is written: a run that is killed in
                # between does both again.
                if self.config.keep_best and not record.num_without_gain:
                    self._step = state.step
                    self.save()
            callbacks.on_epoch_end(
                epoch - 1,
                callbacks_lib.epoch_logs(record.training, start, end, results),
            )
            if self.model.stop_training and end < ends[-1]:
                record.stopped = [end, ends[-1]]
            if self.is_chief:
                record.write()
            if self._stops_early(record, end, ends[-1]):
                break
        callbacks.on_train_end()
        if state.step == first_step:
            logging.warning(
                "%s: nothing was trained. The training there had ended at step "
                "%d.",
                self.config.output_dir,
                first_step,
            )

    def _stops_early(self, record, step, num_train_steps):
        """Returns whether a callback says so or the scores no longer rise."""
        if record.stopped == [step, num_train_steps]:
            logging.info("Stopped by a callback at step %d.", step)
            return True
        patience = self.config.early_stopping_epochs
        if not patience or record.num_without_gain < patience:
            return False
        logging.info(
            "Stopped early: %s has not risen in %d epochs.",
            self.task.main_metric,
            record.num_without_gain,
        )
        return True

    def _save_last(self, step, record):
        """Saves the model of the last step, and notes the step."""
        self._step = step
        self.save()
        record.model_step = step
        if self.is_chief:
            record.write()

    def _take_best(self, step, record):
        """Gives the model the weights of the best epoch.

        Args:
            step: The step of the weights that it has.
            record: The `EpochRecord`.
        """
        self._step = int(record.best["global_step"])
        if self._step == step:
            return
        folder = self.config.output_dir
        checkpoints.load_weights(folder, self.model)
        sentence_model.load_dense(self.model, folder, may_be_new=False)
        # The answers must come from the same weights as the model.
        self._answers = self.evaluate().answers

    def _evaluate_step(self, step):
        """Evaluates the weights of a step; keeps and returns the results."""
        results, self._answers = self.evaluate()
        self.results = results | {"global_step": step}
        return self.results

    def evaluate(self) -> Evaluation:
        """Evaluates the model on the development sets.

        It changes nothing. `report` can be given what it returns.
        """
        results: dict[str, float] = {}
        answers: dict[str, Any] = {}
        for split, source in self.sources.items():
            if not is_dev(split):
                continue
            logits = self._predict(source, self.config.eval_batch_size)
            answers[split] = self.task.answers(source, logits)
            found = self.task.evaluate(source, logits, answers[split])
            results |= _named_after(split, found)
        return Evaluation(results, answers)

    def report(self, evaluation: Evaluation | None = None) -> None:
        """Writes and prints the results of an evaluation, and its report.

        Values that the task chooses on the development set are saved with the
        model if it was tuned in this run.

        Args:
            evaluation: The `Evaluation`; None for the last one of `execute` or
                `tune`.

        Raises:
            ValueError: If there are no results yet.
        """
        if evaluation is not None:
            self.results, self._answers = evaluation
        if self.results is None:
            raise ValueError(
                "`report` must come after `execute` or `tune` with do_eval, or "
                "be given what `evaluate` returned."
            )
        temperature_note = self._calibrate()
        self.results = self._reporter.write(
            self.task,
            self.sources[DEV],
            self._answers[DEV],
            self.results,
            self._shown_settings(),
            temperature_note,
        )

    def _calibrate(self):
        """Gives the task what it chooses on the development set.

        Returns:
            A sentence about the temperature; "" if none was to be fitted.
        """
        config, answers = self.config, self._answers[DEV]
        examples = self.sources[DEV].examples
        task, note = self.task.calibrate(examples, answers), ""
        if config.calibrate:
            task, note = temperatures.fit(task, answers, examples.labels)
        if task != self.task:
            self.task = task
            if config.do_train:
                # The log already says where it is.
                self._write_model()
            elif config.calibrate:
                temperatures.keep(
                    self._folder,
                    config.output_dir,
                    calibration.temperature_of(task),
                )
        return note

    def _take_temperature(self, old):
        """Takes the temperature that belongs to the final weights.

        They have one if they are those of an earlier run, because no epoch was
        better. Otherwise a warning says that the temperature of the earlier
        weights, `old`, is lost.
        """
        if not isinstance(self.task, Calibrated):
            return
        self.task = self.task.with_temperature(
            temperatures.stored(self.config.output_dir, self.task)
        )
        if self.task.temperature != old and not self.config.calibrate:
            logging.warning(
                "%s: the model there had the temperature %.4g, which is not "
                "kept. --calibrate fits it again.",
                self.config.output_dir,
                old,
            )

    def predict(self, on_predictions: OnPredictions | None = None) -> None:
        """Writes the answers to all sets that are not for training or scores.

        Without such a set, it writes the answers to the development set.

        Args:
            on_predictions: `on_predictions(split, answers)`, called on the
                chief when the answers to a set have been written.
        """
        splits = [
            split
            for split in self.sources
            if split != TRAIN and not is_dev(split)
        ]
        for split in splits or [DEV]:
            source = self.sources[split]
            if split not in self._answers:
                logits = self._predict(source, self.config.predict_batch_size)
                self._answers[split] = self.task.answers(source, logits)
            if self.is_chief:
                line = self.task.write_predictions(
                    self.config.output_dir,
                    split,
                    source.examples,
                    self._answers[split],
                )
                print(line)
                if on_predictions is not None:
                    on_predictions(split, self._answers[split])

    def save(self) -> None:
        """Writes the model folder completely or not at all, on the chief."""
        if self.is_chief:
            self._write_model()
            logging.info("The model is in %s.", self.config.output_dir)

    def _write_model(self):
        if not self.is_chief:
            return
        checkpoints.save(
            self.config.output_dir,
            self.model,
            self.start.tokenizer,
            self.config.max_seq_length,
            task=self.task.to_dict(),
            label_names=self.task.labels or None,
            problem_type=self.task.problem_type,
            vectors=sentence_model.vectors_of(
                self.model, self.task.query_prompt, self.task.passage_prompt
            ),
            origin=self._origin() if self.config.do_train else None,
        )
        self._reporter.read_card()

    def _origin(self):
        """Returns the training's `Origin`, for the model card."""
        return self._reporter.make_origin(
            self.task,
            self.start.init_checkpoint,
            self.sources[TRAIN],
            {
                "steps": self._step,
                # There may have been fewer epochs before this step.
                "resumed_at_step": self._resumed_at,
                **self.config.training_settings(),
                **self._shown_settings(),
                "mixed_precision": self.model.dtype_policy.name,
                **devices.arithmetic(self.strategy),
                "versions": model_card.versions(),
            },
        )

    def _begin(self, num_train_steps):
        """Returns the `TrainingState`, new or restored."""
        config = self.config
        found = checkpointing.read_description(config.output_dir)
        description = self._identity().describe(config.output_dir, found)
        encoder_layers.freeze_lower_layers(
            self.model.encoder, config.freeze_lower_layers
        )
        with self.strategy.scope():
            state = checkpointing.TrainingState(
                self._trained,
                trainer.make_optimizer(
                    config, num_train_steps, self.model.compute_dtype
                ),
                config.output_dir,
                description,
                settings={
                    "mixed_precision": self.model.dtype_policy.name,
                    ATTENTION_MASKS: attention_masks(
                        config.max_seq_length,
                        self.model.config.attention_probs_dropout_prob,
                    ),
                },
                may_differ=(identity.EPOCHS,),
            )
        if state.restore():
            self._resume(state, found, num_train_steps)
        else:
            with self.strategy.scope():
                self._begin_anew()
                encoder_layers.reinit_top_layers(
                    self.model.encoder, config.reinit_top_layers
                )
        if self._trained is self.model:
            with self.strategy.scope():
                # So that a user can go on with `fit` and `evaluate`.
                self.model.compile(
                    state.optimizer,
                    self.task.loss(),
                    metrics=self.task.fit_metrics,
                )
        source = self.sources[TRAIN]
        logging.info(
            "%s: %d %s, %d an epoch, %d steps of %d, %s",
            self.task.title,
            source.num_examples,
            source.unit,
            self.task.num_epoch_examples(source),
            num_train_steps,
            config.train_batch_size,
            self._describe_start(),
        )
        if self.is_chief:
            progress.log_curves(state.folder)
        return state

    def _identity(self):
        """Returns the `TrainingIdentity` of this training."""
        return identity.identify(
            self.config,
            self.start,
            self.task,
            self.sources,
            settings=self._settings,
            facts=self._facts,
            hashes=self._other_hashes(),
        )

    def _resume(self, state, found, num_train_steps):
        """Notes where a training is resumed, and logs what is different.

        Args:
            state: The `TrainingState`, restored.
            found: What the training was begun with; None if that is lost.
            num_train_steps: Number of the last step.
        """
        self._resumed_at = state.step
        logging.info("Resumed at step %d of %d.", state.step, num_train_steps)
        if state.step < num_train_steps:
            state.log_changes()
        if found:
            identity.warn_of_more_epochs(
                found[identity.EPOCHS],
                self.config.num_train_epochs,
                state.step,
                num_train_steps,
            )


def _named_after(split, results):
    """Returns a development set's results; all but the first's have its name.

    Args:
        split: Name of the set.
        results: {name: float}, with names such as eval_loss.
    """
    if split == DEV:
        return results
    prefix = f"eval{split.removeprefix(DEV)}"
    return {
        f"{prefix}{name.removeprefix('eval')}": results[name]
        for name in results
        if name.startswith("eval")
    }


def _check_settings(config, task, strategy):
    """Raises `ValueError` if the settings do not suit the task or devices."""
    if (
        config.do_train
        and config.bucket_window_batches
        and strategies.is_tpu(strategy)
    ):
        raise ValueError(
            "--bucket_window_batches must not be given on a TPU, where all "
            "batches have one length."
        )
    if config.calibrate and not calibration.has_temperature(task):
        # A family with both says by its kind which one it is.
        kind = getattr(task, "kind", task.family)
        raise ValueError(
            "--calibrate must be given with a classification, several "
            "labels or a multiple choice. "
            f"Received: --calibrate=true with a task of the kind {kind!r}."
        )


def _has_whole_epochs(config, is_wanted):
    """Returns whether a training has whole epochs: as it was begun, if it was.

    Args:
        config: The `FineTuningConfig`.
        is_wanted: Whether a new training has them.
    """
    found = checkpointing.read_description(config.output_dir)
    if not config.do_train or found is None:
        return is_wanted
    was_begun_so = bool(found.get(identity.WHOLE_EPOCHS))
    if was_begun_so != is_wanted:
        logging.info(
            "%s: the training goes on with as many steps an epoch as it was "
            "begun with.",
            config.output_dir,
        )
    return was_begun_so


def _make_sources(config, task, examples, start, strategy, whole_epochs):
    """Returns {split: `Source`}; checks that the first one can be trained on.

    Raises:
        ValueError: If sequences are too short for the examples' texts, or
            training does not suit the examples.
    """
    jit_compile = strategies.compiles_step(config.jit_compile, strategy)
    preprocessor = start.preprocessor(config.max_seq_length)
    sources = task.make_sources(
        examples,
        preprocessor,
        seed=config.random_seed,
        is_trimmed=not strategies.is_tpu(strategy),
        window_batches=config.bucket_window_batches,
        whole_epochs=whole_epochs,
    )
    for source in sources.values():
        preprocessor.check_has_room(source.num_texts)
    if not config.do_train:
        return sources
    if jit_compile:
        # XLA compiles every length separately.
        sources[TRAIN] = dataclasses.replace(
            sources[TRAIN],
            trim_multiple=math.ceil(config.max_seq_length / _NUM_LENGTHS),
        )
    task.check_training(
        sources[TRAIN], config, strategy.num_replicas_in_sync, jit_compile
    )
    return sources


def _make_model(config, task, start, dtype_policy):
    """Returns the model of a run; call it in the strategy's scope."""
    computing = {
        "dtype": dtype_policy,
        "attention_chunk": config.attention_chunk,
    }
    if not config.do_train:
        return task_folder.tuned_model(start, task, **computing)
    return task_folder.new_model(
        start, task, rematerialize=config.rematerialize, **computing
    )


def tuned_folder(config: FineTuningConfig) -> str | None:
    """Returns the folder of the tuned model, None if one is to be trained.

    Raises:
        ValueError: If there is no tuned model.
    """
    if config.do_train:
        return None
    return output_folder.trained_model(
        config.output_dir, config.init_checkpoint
    )


def checkpoint(config: FineTuningConfig) -> str | None:
    """Returns the local folder of the model to begin with; None without one.

    Raises:
        ValueError: As for `tuned_folder`.
    """
    folder = tuned_folder(config) or config.init_checkpoint
    return None if folder is None else hub.local_path(folder)


def find_start(config: FineTuningConfig, folder: str | None) -> StartingPoint:
    """Returns the `StartingPoint` of these settings.

    Args:
        config: The settings.
        folder: What `tuned_folder` returned for them.

    Raises:
        ValueError: As for `starting_point.find`, and as for
            `encoder_layers.check`.
    """
    start = starting_point.find(
        folder or config.init_checkpoint,
        config.bert_config_file,
        config.vocab_file,
        config.do_lower_case,
        allow_partial=config.allow_partial,
        max_position_embeddings=config.max_position_embeddings,
        is_trained=config.do_train,
    )
    if config.do_train:
        encoder_layers.check(
            start.config.num_blocks,
            config.freeze_lower_layers,
            config.reinit_top_layers,
        )
    return start


def _log_results(title, results):
    """Logs {name: float} in one line."""
    logging.info(
        "%s  %s",
        title,
        "  ".join(f"{name} {results[name]:.4g}" for name in sorted(results)),
    )
