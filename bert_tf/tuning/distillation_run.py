"""Tunes a student to a task with a teacher that was tuned to it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf import manifest
from bert_tf.input.batch_source import Context
from bert_tf.models import distillation
from bert_tf.models import distiller
from bert_tf.models import lesson as lesson_lib
from bert_tf.models.lesson import Lesson
from bert_tf.models.objectives import Objective
from bert_tf.runs.distillation import Teaching
from bert_tf.tasks import task_folder
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.task import Task
from bert_tf.tasks.text_source import TextSource
from bert_tf.training import checkpointing
from bert_tf.tuning import encoder_layers
from bert_tf.tuning import identity
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import COMPARING_EPOCHS
from bert_tf.tuning.config import FineTuningConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoTokenizers:
    """Training batches of texts, with separate model inputs for a teacher.

    Both sources have the same examples in the same order, which depends only
    on seed and epoch.

    Args:
        student, teacher: The sources, each with its own preprocessor.
    """

    student: TextSource
    teacher: TextSource

    @property
    def examples(self) -> Any:
        return self.student.examples

    @property
    def num_examples(self) -> int:
        return self.student.num_examples

    @property
    def unit(self) -> str:
        return self.student.unit

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches; see `BatchSource`."""
        batches = [
            source.training_batches(batch_size, start_example, context)
            for source in (self.student, self.teacher)
        ]
        return tf.data.Dataset.zip(tuple(batches)).map(
            lambda own, taught: own | distiller.teacher_inputs(taught)
        )


class DistillationRun(tuning_run.Run):
    """A `Run` whose model learns from a teacher.

    It runs through `training.loop`. The model that is evaluated, saved and
    kept is the student.

    Args:
        config: A `FineTuningConfig`, with `do_train`.
        task: The `Task` to which the teacher is tuned.
        examples, strategy, dtype_policy, dataset: As for `Run`.
        teaching: The `Teaching`.

    Raises:
        ValueError: Also if a loss needs one tokenizer and the two models have
            different ones, if the teacher has no head for the task, if no
            student can learn the task, if a loss needs what the student's
            rematerialised blocks forget, or if epochs are to be compared and
            no loss reaches the head.
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
        teaching: Teaching,
    ) -> None:
        task = _check_teaching(teaching, task, config)
        super().__init__(
            config,
            # Values chosen on a development set suit only the teacher's
            # weights.
            task.for_student(),
            examples,
            strategy,
            dtype_policy,
            dataset,
            start=teaching.student,
        )
        self._teaching = teaching
        with strategy.scope():
            self._teacher = task_folder.tuned_model(
                teaching.teacher,
                self.task,
                dtype=dtype_policy,
            )
            self._trained = distiller.Distiller(
                self.model, self._teacher, teaching.lesson
            )
        self._objective = objective_of(
            task.for_student(),
            teaching.lesson,
            teaching.student.config.is_decoder,
        )
        self._settings |= teaching.settings()
        self._facts |= teaching.facts(self._teacher)
        if teaching.lesson.asks_teacher:
            self._give_texts_to_teacher()

    def _give_texts_to_teacher(self):
        """Gives a teacher with another tokenizer inputs of its own."""
        teaching, max_seq_length = self._teaching, self.config.max_seq_length
        # This also checks the length against the teacher's.
        preprocessor = teaching.teacher.preprocessor(max_seq_length)
        preprocessor.check_has_room(self.sources[TRAIN].num_texts)
        if teaching.has_one_tokenizer:
            return
        if self.config.bucket_window_batches:
            raise ValueError(
                "--bucket_window_batches must not be given if teacher and "
                "student have different tokenizers: they would sort the "
                "examples differently."
            )
        source = self.sources[TRAIN]
        assert isinstance(source, TextSource)
        self.sources[TRAIN] = TwoTokenizers(
            student=source,
            teacher=dataclasses.replace(source, preprocessor=preprocessor),
        )

    def _other_hashes(self):
        tokenizer = self._teaching.teacher.tokenizer

        def teacher_hash():
            parts = (
                tokenizer.do_lower_case,
                identity.tokenizer_hash(tokenizer),
            )
            return manifest.text_sha256(json.dumps(parts))

        # If the two differ, the student's hash does not cover the teacher's.
        return {checkpointing.TEACHER_TOKENIZER_HASH: teacher_hash}

    def _begin_anew(self):
        self._teaching.begin(self._teacher, self.model)

    def _describe_start(self):
        if self._teaching.student_layers is None:
            return super()._describe_start()
        return f"from layers of {self._teaching.teacher.init_checkpoint}"

    def _shown_settings(self):
        names = self._teaching.settings()
        others = {
            name: value
            for name, value in self._settings.items()
            if name not in names
        }
        return others | self._teaching.report_settings()

    def _origin(self):
        return self._teaching.of_origin(super()._origin(), self._teacher)


def _check_teaching(
    teaching: Teaching, task: Task, config: FineTuningConfig
) -> Distillable:
    """Returns the task; raises `ValueError` if no student learns it so."""
    if not (isinstance(task, Distillable) and task.can_be_distilled):
        raise ValueError(
            "The teacher must be of another task: a student learns neither "
            "vectors of texts nor rerankings with the loss softmax. "
            f"Received: a teacher of {task.family!r}."
        )
    exempt: tuple[str, ...] = (lesson_lib.LABELS,)
    if issubclass(task.source_class, TextSource):
        exempt = (lesson_lib.SOFT_TARGETS, lesson_lib.LABELS)
    teaching.check_tokenizers(exempt)
    teaching.check_rematerialized(config.rematerialize)
    _check_head(teaching.lesson, config)
    encoder_layers.check(
        teaching.student.config.num_blocks,
        config.freeze_lower_layers,
        config.reinit_top_layers,
    )
    return task


def _check_head(lesson, config):
    """Warns of a head that is not trained; refuses to compare epochs by it."""
    if lesson.has(lesson_lib.SOFT_TARGETS, lesson_lib.LABELS):
        return
    for name in COMPARING_EPOCHS:
        if getattr(config, name):
            raise ValueError(
                f"--{name} must be given with one of the losses "
                f"{lesson_lib.SOFT_TARGETS}, {lesson_lib.LABELS}: the others "
                "do not train the head, so no score tells which epoch is "
                f"better. Received: losses={', '.join(lesson.losses)}."
            )
    logging.warning(
        "The head is not trained: none of the losses %s reaches it. Scores "
        "mean little. Train it next, from this student's folder, with the "
        "losses %s or %s.",
        ", ".join(lesson.losses),
        lesson_lib.SOFT_TARGETS,
        lesson_lib.LABELS,
    )


def objective_of(
    task: Distillable, lesson: Lesson, left_to_right: bool = False
) -> Objective:
    """Returns the losses of a lesson on a task's examples.

    Args:
        task: The task.
        lesson: The `Lesson`, made for the two models. The outputs are those of
            their `Distiller`.
        left_to_right: Whether the two models read from left to right.
    """

    def soft_losses(logits, teacher_logits, batch):
        each = keras.tree.map_structure(
            lambda own, taught: task.soft_losses(
                task.compared_logits(own, batch),
                task.compared_logits(taught, batch),
                lesson.temperature,
            ),
            logits,
            teacher_logits,
        )
        weights = task.element_weights(batch)
        return keras.ops.sum(weights * sum(keras.tree.flatten(each)))

    return distillation.task_objective(
        lesson, task.objective(), soft_losses, left_to_right
    )
