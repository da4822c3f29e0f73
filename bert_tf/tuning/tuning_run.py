"""Tunes a model: epochs, evaluations, and what is kept of them.

All fine-tuning goes through a `Run`. A `Task` defines what its family of tasks
does differently.
"""

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

import keras
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf import manifest
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.tasks import task_folder
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.task import Task
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.training import loop
from bert_tf.training import output_folder
from bert_tf.training import progress
from bert_tf.training import randomness
from bert_tf.training import rematerialization
from bert_tf.training import step as step_lib
from bert_tf.training import strategy as strategies
from bert_tf.training.compilation import Compilation
from bert_tf.tuning import encoder_layers
from bert_tf.tuning import fit as fine_tuning
from bert_tf.tuning import identity
from bert_tf.tuning import report
from bert_tf.tuning import temperatures
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.predictor import Predictor
from bert_tf.tuning.record import EpochRecord

# Called with the name of a set and the answers to it.
OnPredictions: TypeAlias = Callable[[str, Any], None]
# Most different lengths of training batches if XLA compiles the step.
_NUM_LENGTHS = 4


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

    Attributes:
        start: The `StartingPoint`.
        sources: {split: `Source`}.
        model: The `keras.Model`.
        answers: {split: the task's answers} from the last evaluation or
            prediction.
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
    ) -> None:
        is_tpu = strategies.is_tpu(strategy)
        if config.do_train and config.bucket_window_batches and is_tpu:
            raise ValueError(
                "--bucket_window_batches must not be given on a TPU, where all "
                "batches have one length."
            )
        if config.calibrate and not task.has_temperature:
            raise ValueError(
                "--calibrate must be given with a classification, several "
                "labels or a multiple choice. "
                f"Received: a task of {task.title!r}."
            )
        if config.do_train:
            # The task's temperature belongs to a teacher or to old weights.
            task = task.with_temperature(1.0)
        keras.utils.set_random_seed(config.random_seed)
        strategies.log_devices(strategy)
        self._compilation = strategies.choose_compilation(
            config.jit_compile, strategy
        )
        is_compiled = self._compilation is Compilation.STEP
        self.config = config
        self.task = task
        self.strategy = strategy
        self.is_chief = strategies.is_chief(strategy)
        folder = tuned_folder(config)
        self.start = self._find_start(folder)
        # The folder of the training that the model comes from.
        self._folder = folder or config.output_dir
        self.sources: dict[str, Any] = task.make_sources(
            examples,
            self.start.preprocessor(config.max_seq_length),
            seed=config.random_seed,
            is_trimmed=not is_tpu,
            window_batches=config.bucket_window_batches,
        )
        if is_compiled and config.do_train:
            # XLA compiles every length separately.
            self.sources[TRAIN] = dataclasses.replace(
                self.sources[TRAIN],
                trim_multiple=math.ceil(config.max_seq_length / _NUM_LENGTHS),
            )
        if config.do_train:
            task.check_training(
                self.sources[TRAIN],
                config,
                strategy.num_replicas_in_sync,
                is_compiled,
            )
        # Read the card before the weights.
        self._card = model_folder.read_card(self._folder)
        with strategy.scope():
            self.model = self._make_model(dtype_policy)
            if config.do_train and config.rematerialize:
                rematerialization.rematerialize(self.model.encoder)
            # The model whose weights a training's state holds.
            self._trained = self._make_trained(dtype_policy)
        self.answers: dict[str, Any] = {}
        self.results: dict[str, float] | None = None
        self._predict = Predictor(
            task.prediction_model(self.model, config.max_seq_length), strategy
        )
        self._dataset = dataset
        # The step of the weights to save.
        self._step = 0
        self._resumed_at: int | None = None
        # What a resumed training must also have in common, beside settings.
        self._facts: dict[str, Any] = {}
        self._compares_epochs = bool(
            config.keep_best or config.early_stopping_epochs
        )
        self._settings = task.training_settings(self._compares_epochs)

    def _find_start(self, folder):
        return find_start(self.config, folder)

    def _make_model(self, dtype_policy):
        """Returns the model of the run; called in the strategy's scope."""
        make_model = (
            task_folder.new_model
            if self.config.do_train
            else task_folder.tuned_model
        )
        return make_model(self.start, self.task, dtype_policy)

    def _make_trained(self, dtype_policy):
        """Returns the model to train, which may be one that holds `model`."""
        del dtype_policy
        return self.model

    def _begin_anew(self):
        """Sets weights of a new training that no checkpoint provides."""

    def _told_start(self):
        """Returns what the log calls the starting point of the model."""
        return self.start.init_checkpoint or "from random weights"

    def _told_settings(self):
        """Returns the settings, by names that are clear to a reader."""
        return self._settings

    def _objective(self):
        """Returns the `Objective` of the training."""
        return self.task.objective()

    def execute(self, on_predictions: OnPredictions | None = None) -> None:
        """Trains, evaluates and predicts, as the config says.

        Args:
            on_predictions: As for `predict`.
        """
        if self.config.do_train:
            self.tune()
        elif self.config.do_eval:
            step = self._tuned_steps()
            self.results = self.evaluate() | {"global_step": step}
        if self.config.do_eval and self.is_chief:
            self.report()
        if self.config.do_predict:
            self.predict(on_predictions)

    def _tuned_steps(self):
        """Returns the step of the model in the folder."""
        begun_with = checkpointing.read_description(self._folder) or {}
        task = self.task
        if begun_with.get("keep_best"):
            # Its metrics may differ from those of this evaluation.
            task = task.from_dict(begun_with["task"])
        folder = f"{self._folder}/{checkpointing.FOLDER}"
        record = EpochRecord(folder, task.main_metric, math.inf)
        if begun_with.get("keep_best") and record.evaluations:
            return int(record.best["global_step"])
        if record.model_step is not None:
            return record.model_step
        return checkpointing.trained_steps(self._folder)

    def tune(self) -> dict[str, float] | None:
        """Tunes the model, or resumes tuning, and saves it.

        It runs through `fine_tuning.fit`, or through `training.loop` where
        `fit` does not work. Both make the same steps and keep the same state.
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
        self.answers, self.results = {}, None
        config, task = self.config, self.task
        ends = fine_tuning.epoch_ends(
            task.num_epoch_examples(self.sources[TRAIN]),
            config.train_batch_size,
            config.num_train_epochs,
        )
        state = self._begin(ends[-1])
        first_step = state.step
        old_temperature = temperatures.stored(config.output_dir, task)
        with state.hold(self.is_chief):
            record = EpochRecord(state.folder, task.main_metric, state.step)
            if self._compares_epochs:
                record.check_evaluated(ends, state.step)
            train_to = self._make_trainer(ends[-1], state, record)
            for epoch, end in enumerate(ends, start=1):
                is_last = end == ends[-1]
                if state.step > end or not (config.do_eval or is_last):
                    continue
                train_to(end=end)
                if config.do_eval:
                    results = self.evaluate() | {"global_step": state.step}
                    record.add(epoch, results)
                    _log_results(f"epoch {epoch}/{len(ends)}", results)
                    # Saved before the record is written: a run that is killed
                    # in between does both again.
                    if config.keep_best and not record.num_without_gain:
                        self._step = state.step
                        self.save()
                if self.is_chief:
                    record.write()
                patience = config.early_stopping_epochs
                if patience and record.num_without_gain >= patience:
                    logging.info(
                        "Stopped early: %s has not risen in %d epochs.",
                        task.main_metric,
                        record.num_without_gain,
                    )
                    break
            if state.step == first_step:
                logging.warning(
                    "%s: nothing was trained. The training there had ended at "
                    "step %d.",
                    config.output_dir,
                    first_step,
                )
            if not config.keep_best:
                self._step = state.step
                self.save()
                record.model_step = state.step
                if self.is_chief:
                    record.write()
                self._take_temperature(old_temperature)
                self.results = record.results_at(state.step)
                return self.results
        best = record.best
        self._step = int(best["global_step"])
        if best["global_step"] != state.step:
            # The answers must come from the same weights as the model.
            checkpoints.load_weights(config.output_dir, self.model)
            task.load_elsewhere(self.model, config.output_dir, may_be_new=False)
            self.evaluate()
        self._take_temperature(old_temperature)
        _log_results(f"best by {task.main_metric}", best)
        self.results = best
        return best

    def evaluate(self) -> dict[str, float]:
        """Returns the results on the development sets, {name: float}.

        Results on the sets after the first have the set's name in theirs.
        """
        results: dict[str, float] = {}
        for split, source in self.sources.items():
            if not split.startswith(DEV):
                continue
            logits = self._predict(source, self.config.eval_batch_size)
            answers = self.task.answers(source, logits)
            self.answers[split] = answers
            new = self.task.evaluate(source, logits, answers)
            if split != DEV:
                prefix = f"eval{split.removeprefix(DEV)}"
                new = {
                    f"{prefix}{name.removeprefix('eval')}": new[name]
                    for name in new
                    if name.startswith("eval")
                }
            results |= new
        self.results = results
        return results

    def report(self) -> None:
        """Writes and prints the results of an evaluation, and its report.

        Values that the task chooses on the development set are saved with the
        model if it was tuned in this run.
        """
        config, results = self.config, self.results
        assert results is not None, "There was no evaluation."
        examples = self.sources[DEV].examples
        task = self.task.calibrate(examples, self.answers[DEV])
        told = ""
        if config.calibrate:
            task, told = temperatures.fit(
                task, self.answers[DEV], examples.labels
            )
        if task != self.task:
            self.task = task
            if config.do_train:
                # Where it is has been told.
                self._write_model()
            elif config.calibrate:
                temperatures.keep(
                    self._folder, config.output_dir, task.temperature
                )
        sections = task.report_sections(examples, self.answers[DEV], results)
        if config.calibrate or task.temperature != 1:
            calibrated, section = temperatures.tell(
                self.answers[DEV], examples.labels, task.temperature, told
            )
            sections = [*sections, section]
            self.results = results = results | calibrated
        path = os.path.join(config.output_dir, "eval_results.txt")
        evaluation.write_results(path, results)
        for name in sorted(results):
            print(f"{name} = {results[name]}")
        report.write(
            config.output_dir,
            f"{task.title}: {task.main_metric} {results[task.main_metric]:.4g}",
            results,
            EpochRecord(
                f"{self._folder}/{checkpointing.FOLDER}",
                task.main_metric,
                math.inf,
            ),
            dataclasses.asdict(config) | task.to_dict() | self._told_settings(),
            sections,
            task.report_scores,
        )
        # If the model is in another folder, only the results are written here.
        if self._folder == config.output_dir:
            # Not all families of tasks have names, and not all examples come
            # from a file, which may differ from the last time.
            name = str(getattr(task, "name", "development set"))
            if (path := getattr(examples, "path", None)) is not None:
                name = f"{name}, {os.path.basename(path)}"
            name = f"{name}, {self.sources[DEV].num_examples:,} examples"
            model_folder.write_results(
                self._folder,
                self._card,
                task.title,
                self._dataset or name,
                report.shown_results(results, task.report_scores),
            )

    def _take_temperature(self, old):
        """Takes the temperature that belongs to the final weights.

        They have one if they are those of an earlier run, because no epoch was
        better. Otherwise a warning says that the temperature of the earlier
        weights, `old`, is lost.
        """
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
            if split != TRAIN and not split.startswith(DEV)
        ]
        for split in splits or [DEV]:
            source = self.sources[split]
            if split not in self.answers:
                logits = self._predict(source, self.config.predict_batch_size)
                self.answers[split] = self.task.answers(source, logits)
            if self.is_chief:
                line = self.task.write_predictions(
                    self.config.output_dir,
                    split,
                    source.examples,
                    self.answers[split],
                )
                print(line)
                if on_predictions is not None:
                    on_predictions(split, self.answers[split])

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
            vectors=self.task.sentence_vectors(self.model),
            origin=self._origin() if self.config.do_train else None,
        )
        self._card = model_folder.read_card(self.config.output_dir)

    def _origin(self):
        """Returns the training's `Origin`, for the model card."""
        return model_card.Origin(
            name=self.task.title,
            method="fine-tuned",
            start=self.start.init_checkpoint,
            data={
                "Training set": {
                    "TensorFlow Datasets": self._dataset,
                    "Examples": f"{self.sources[TRAIN].num_examples:,}",
                }
            },
            datasets=(self._dataset,) if self._dataset else (),
            settings={
                "steps": self._step,
                # There may have been fewer epochs before this step.
                "resumed_at_step": self._resumed_at,
                **self.config.of_training(),
                **self._told_settings(),
                "mixed_precision": self.model.dtype_policy.name,
                **strategies.arithmetic(self.strategy),
                "versions": model_card.versions(),
            },
        )

    def _begin(self, num_train_steps):
        """Returns the `TrainingState`, new or restored."""
        config, source = self.config, self.sources[TRAIN]
        begun_with = checkpointing.read_description(config.output_dir)
        flags, others = self._describe(begun_with)
        if begun_with is not None:
            identity.check_same(config.output_dir, begun_with, flags, others)
        encoder_layers.freeze_lower_layers(
            self.model.encoder, config.freeze_lower_layers
        )
        with self.strategy.scope():
            state = checkpointing.TrainingState(
                self._trained,
                _make_optimizer(
                    config, num_train_steps, self.model.compute_dtype
                ),
                config.output_dir,
                flags | others,
                settings={"mixed_precision": self.model.dtype_policy.name},
                may_differ=(identity.EPOCHS,),
            )
        if state.restore():
            self._resumed_at = state.step
            logging.info(
                "Resumed at step %d of %d.", state.step, num_train_steps
            )
            if state.step < num_train_steps:
                state.tell_changes()
            if begun_with:
                self._tell_more_epochs(begun_with, state.step, num_train_steps)
        else:
            with self.strategy.scope():
                self._begin_anew()
                encoder_layers.reinit_top_layers(
                    self.model.encoder, config.reinit_top_layers
                )
        logging.info(
            "%s: %d examples, %d an epoch, %d steps of %d, %s",
            self.task.title,
            source.num_examples,
            self.task.num_epoch_examples(source),
            num_train_steps,
            config.train_batch_size,
            self._told_start(),
        )
        if self.is_chief:
            progress.tell_curves(state.folder)
        return state

    def _describe(self, begun_with):
        """Returns two dictionaries, {name: JSON-able value}.

        The first has values of flags, the second everything else that a
        resumed training must have in common.

        Args:
            begun_with: What the training in the output folder was begun with;
                None if there is none.
        """
        config, source = self.config, self.sources[TRAIN]
        flags = {
            "init_checkpoint": self.start.init_checkpoint,
            "do_lower_case": self.start.tokenizer.do_lower_case,
            **config.of_training(),
            **self._settings,
        }
        others = {
            "config": self.start.config.to_dict(),
            "task": self.task.to_dict(),
            "num_train_examples": source.num_examples,
            "num_epoch_examples": self.task.num_epoch_examples(source),
            **self._facts,
        }
        hashes = {
            checkpointing.EXAMPLES: lambda: identity.examples_hash(
                source.examples
            ),
            checkpointing.TOKENIZER_HASH: lambda: identity.tokenizer_hash(
                self.start.tokenizer
            ),
            **self._other_hashes(),
        }
        # Scores on different examples cannot be compared.
        if begun_with is not None or self._compares_epochs:
            hashes[checkpointing.DEV_EXAMPLES] = self._dev_hash
        # Older releases did not write these; then they are not compared.
        told = hashes if begun_with is None else begun_with
        others |= {
            name: make() for name, make in hashes.items() if name in told
        }
        return flags, others

    def _tell_more_epochs(self, begun_with, step, num_train_steps):
        """Warns if a resumed training has more epochs than it began with."""
        before, now = begun_with[identity.EPOCHS], self.config.num_train_epochs
        if before != now:
            logging.warning(
                "--num_train_epochs was %g before and is %g now: from step %d "
                "on, the learning rate follows the schedule of %d steps. The "
                "weights will not be those of a training begun with %g epochs.",
                before,
                now,
                step,
                num_train_steps,
                now,
            )

    def _other_hashes(self):
        """Returns {name: function that returns a hash}, for `_describe`."""
        return {}

    def _dev_hash(self):
        """Returns the SHA-256 of the development sets, hexadecimal."""
        hashes = {
            split: identity.examples_hash(source.examples)
            for split, source in self.sources.items()
            if split.startswith(DEV)
        }
        return manifest.text_sha256(json.dumps(hashes, sort_keys=True))

    def _make_trainer(self, num_train_steps, state, record):
        """Returns a function that trains to a step, `train_to(end=...)`.

        The steps are traced once for all epochs. The training's reports go
        into the record, which is written with every checkpoint.
        """
        config, source = self.config, self.sources[TRAIN]
        loop_config = loop.TrainingConfig(
            num_train_steps=num_train_steps,
            train_batch_size=config.train_batch_size,
            save_checkpoints_steps=config.save_checkpoints_steps,
            iterations_per_loop=config.iterations_per_loop,
            seed=config.random_seed,
            gradient_accumulation_steps=config.gradient_accumulation_steps,
            compilation=self._compilation,
        )
        # Where `fit` does not work, the loop trains the same task. For one,
        # `fit` cannot compile for mirrored devices, and does not say so.
        is_of_loop = (
            self.strategy.cluster_resolver is not None
            or config.gradient_accumulation_steps > 1
            or self._compilation is Compilation.STEP
            or self._trained is not self.model
        )
        if not is_of_loop:
            return functools.partial(
                fine_tuning.fit,
                state,
                self.task,
                source,
                loop_config,
                self.strategy,
                record.write,
                history=record.training,
                set_seeds=randomness.compile_set_seeds(
                    self.model, config.random_seed, self.strategy
                ),
            )
        objective = self._objective()
        return functools.partial(
            loop.train,
            state,
            objective,
            source,
            loop_config,
            self.strategy,
            record.write,
            history=record.training,
            compiled=step_lib.compile_steps(
                self._trained,
                objective,
                state.optimizer,
                config.gradient_accumulation_steps,
                config.random_seed,
                self._compilation,
            ),
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


def _make_optimizer(config, num_train_steps, compute_dtype):
    optimizer = BertOptimizer(
        WarmupDecay(
            config.learning_rate,
            num_train_steps,
            int(num_train_steps * config.warmup_proportion),
            drop=config.learning_rate_drop,
        ),
        bias_correction=config.bias_correction,
        layerwise_decay=config.layerwise_learning_rate_decay,
    )
    if compute_dtype == "float16":
        optimizer = LossScaleOptimizer(optimizer)
    return optimizer


def _log_results(title, results):
    """Logs {name: float} in one line."""
    logging.info(
        "%s  %s",
        title,
        "  ".join(f"{name} {results[name]:.4g}" for name in sorted(results)),
    )
