"""A teacher, the student that learns from it, and how it does on records."""

import dataclasses
import functools
import hashlib
from typing import Any

import keras
import tensorflow as tf
from absl import logging
from keras import ops

from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints import variables
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.models import distillation
from bert_tf.models import distiller
from bert_tf.models import lesson as lesson_lib
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.lesson import Lesson
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training import pretraining_run
from bert_tf.training.objectives import Pretraining
from bert_tf.training.options import Options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teaching:
    """Who teaches what to whom.

    Args:
        teacher: The `StartingPoint` of the teacher, with a checkpoint.
        student: The `StartingPoint` of the student.
        lesson: The `Lesson`; what it does not tell the two models do.
        student_layers: The layers of the teacher that a new student begins
            with, counted from 0; None for none.
        teacher_precision: "float32" or "bfloat16", what the teacher computes
            in; None for what the student does.

    Raises:
        ValueError: If the lesson cannot be of these two models.
    """

    teacher: StartingPoint
    student: StartingPoint
    lesson: Lesson
    student_layers: tuple[int, ...] | None = None
    teacher_precision: str | None = None

    def __post_init__(self):
        lesson = self.lesson.for_models(
            self.student.config, self.teacher.config
        )
        object.__setattr__(self, "lesson", lesson)

    @property
    def has_one_tokenizer(self) -> bool:
        """Whether the same ids are the same text to both."""
        return self.teacher.tokenizer == self.student.tokenizer

    def check_tokenizers(self, exempt: tuple[str, ...] = ()) -> None:
        """Checks that the two have one tokenizer, where a loss needs that.

        Args:
            exempt: The losses here that do not.

        Raises:
            ValueError: If they have different ones.
        """
        needy = [name for name in self.lesson.losses if name not in exempt]
        if self.has_one_tokenizer or not needy:
            return
        do_without = " and ".join(exempt) or "no loss on records"
        raise ValueError(
            "Teacher and student must have one tokenizer for the loss "
            f"{needy[0]}; {do_without} can do without. Received: the tokenizer "
            f"of {self.teacher.init_checkpoint}, and another of "
            f"{self.student.init_checkpoint or 'the student'}."
        )

    def check_rematerialized(self, value: bool) -> None:
        """Checks that no loss is of what a student's blocks would forget.

        Args:
            value: Whether they are to be computed twice.

        Raises:
            ValueError: If one is.
        """
        if value and self.lesson.has(*lesson_lib.OF_HEADS):
            raise ValueError(
                "--rematerialize must not be given with the losses "
                f"{', '.join(lesson_lib.OF_HEADS)}, which need what it forgets."
            )

    def teacher_policy(self, policy: str) -> str:
        """Returns the dtype policy of the teacher, `policy` the student's."""
        if self.teacher_precision is None:
            return policy
        if self.teacher_precision == "float32":
            return "float32"
        return f"mixed_{self.teacher_precision}"

    def begin(self, teacher: keras.Model, student: keras.Model) -> None:
        """Gives a new student the teacher's layers, if it is to have them."""
        if self.student_layers is None:
            return
        new = distiller.copy_layers(teacher, student, self.student_layers)
        logging.info(
            "The student begins with the teacher's layers %s%s.",
            ", ".join(map(str, self.student_layers)),
            f"; new are {', '.join(new)}" if new else "",
        )

    def settings(self) -> dict[str, Any]:
        """Returns {name of a flag: value} of what a training must repeat."""
        values = self.lesson.to_dict()
        if self.student_layers is not None:
            values["student_layers"] = list(self.student_layers)
        return values

    def told_settings(self) -> dict[str, Any]:
        """Returns {name: value} of the same, for reports and model cards.

        Beside them may be the temperature of a calibration.
        """
        values = self.settings()
        temperature = values.pop("temperature")
        if self.lesson.has(lesson_lib.SOFT_TARGETS):
            values["soft_targets_temperature"] = temperature
        return values

    def facts(self, teacher: keras.Model) -> dict[str, Any]:
        """Returns what else it is of: which teacher, in what arithmetic.

        Args:
            teacher: The teacher, with the weights of its folder.
        """
        path = self.teacher.init_checkpoint
        assert path is not None
        with reader.open_checkpoint(path) as checkpoint:
            found = checkpoint.found_parts
        # What the folder lacks, such as a tagger's pooler, depends on the
        # run's seed, and nothing asks it.
        new = {
            variable.path
            for tensor, variable in variables.match(teacher).items()
            if tensor.part not in found
        }
        digest = hashlib.sha256()
        for variable in teacher.weights:
            if variable.path not in new:
                digest.update(ops.convert_to_numpy(variable).tobytes())
        return {
            "teacher_sha256": digest.hexdigest(),
            "teacher_precision": teacher.dtype_policy.name,
        }

    def of_origin(
        self, origin: model_card.Origin, teacher: keras.Model
    ) -> model_card.Origin:
        """Returns what the model card tells of the training."""
        losses = self.lesson.losses
        values = self.told_settings() | {
            "losses": [f"{name}:{losses[name]:g}" for name in losses],
            "teacher_precision": teacher.dtype_policy.name,
        }
        start = origin.start
        if self.student_layers is not None:
            start = self.teacher.init_checkpoint
        return dataclasses.replace(
            origin,
            method="distilled",
            start=start,
            teacher=self.teacher.init_checkpoint,
            settings={**origin.settings, **values},
        )


def find_teacher(path: str, do_lower_case: bool | None = None) -> StartingPoint:
    """Returns the `StartingPoint` of a teacher.

    Args:
        path: A model folder, or what else `starting_point.find` takes.
        do_lower_case: Whether its tokenizer lower-cases, of a release whose
            files do not tell; None for what they tell, or else True.

    Raises:
        ValueError: As of `starting_point.find`.
    """
    return starting_point.find(path, do_lower_case=do_lower_case)


def find_student(
    teacher: StartingPoint,
    init_checkpoint: str | None = None,
    student_layers: tuple[int, ...] | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    **options: Any,
) -> StartingPoint:
    """Returns the `StartingPoint` of a student.

    Args:
        teacher: That of its teacher, whose tokenizer a new student has if
            none is given.
        init_checkpoint: A folder to begin with; or
        student_layers: layers of the teacher, counted from 0; or
        bert_config_file: a configuration of new weights. Of a folder, its own
            may be given too.
        vocab_file, do_lower_case: A tokenizer.
        **options: Of `starting_point.find`.

    Raises:
        ValueError: If not one of the three is given, or the teacher has not
            such layers, and as of `starting_point.find`.
    """
    others = {
        "do_lower_case": do_lower_case,
        "vocab_file": vocab_file,
        **options,
    }
    if student_layers is not None:
        others |= {
            "init_checkpoint": init_checkpoint,
            "bert_config_file": bert_config_file,
        }
        _check_none(others, "student_layers")
        config = teacher.config
        lesson_lib.check_layers("student_layers", student_layers, config)
        if config.num_hidden_groups is not None:
            raise ValueError(
                "`student_layers` must be of a teacher whose layers have each "
                "weights of their own. Received: num_hidden_groups="
                f"{config.num_hidden_groups} in {teacher.init_checkpoint}."
            )
        config = dataclasses.replace(
            config, num_hidden_layers=len(student_layers)
        )
        return StartingPoint(
            init_checkpoint=None, config=config, tokenizer=teacher.tokenizer
        )
    if init_checkpoint is None and bert_config_file is None:
        raise ValueError(
            "One of `student_layers`, `init_checkpoint` and "
            "`bert_config_file` must be given: they tell what the student "
            "begins with."
        )
    if init_checkpoint is None:
        _check_none(options, "bert_config_file", "there is no checkpoint")
    if init_checkpoint is None and vocab_file is None:
        assert bert_config_file is not None
        # The tokenizer is the teacher's, with its case.
        _check_none(others, "bert_config_file")
        tokenizer = teacher.tokenizer
        return StartingPoint(
            init_checkpoint=None,
            config=starting_point.read_config(
                bert_config_file, tokenizer.vocabulary
            ),
            tokenizer=tokenizer,
        )
    return starting_point.find(
        init_checkpoint, bert_config_file, vocab_file, do_lower_case, **options
    )


def _check_none(values, name, reason="the student has the teacher's"):
    """Raises `ValueError` if one is given that a new student has no use for."""
    for other, value in values.items():
        # allow_partial is no flag of three values.
        if value is not None and (other, value) != ("allow_partial", False):
            raise ValueError(
                f"`{other}` must not be given with `{name}`: {reason}. "
                f"Received: {other}={value}."
            )


def on_records(teaching: Teaching) -> pretraining_run.Maker:
    """Returns what makes a student and its teacher, to learn on records.

    The student is a pre-trainer where a loss is of words, and else an encoder.

    Args:
        teaching: The `Teaching`.

    Raises:
        ValueError: If the two have different tokenizers, or soft targets are
            wanted of a teacher that predicts no words, or goes from left to
            right where the student does not, or the reverse.
    """
    teaching.check_tokenizers()
    lesson = teaching.lesson
    if lesson.has(lesson_lib.SOFT_TARGETS):
        # What is masked for the one is shown to the other.
        lesson_lib.check_direction(
            teaching.student.config, teaching.teacher.config
        )
    has_words = lesson.has(lesson_lib.SOFT_TARGETS, lesson_lib.MASKED_LM)
    path = teaching.teacher.init_checkpoint
    assert path is not None
    with reader.open_checkpoint(path) as checkpoint:
        found = checkpoint.found_parts
    predicts_words = parts.MASKED_LM in found
    # What it lacks of these is not asked.
    new_parts = {parts.NEXT_SENTENCE, parts.POOLER} - set(found)
    if lesson.has(lesson_lib.SOFT_TARGETS) and not predicts_words:
        raise ValueError(
            f"{path}: the teacher must have a masked-LM head for the loss "
            f"{lesson_lib.SOFT_TARGETS}; the others do without."
        )

    def make(options, start, policy):
        del options
        teacher_class, student_class = (
            BertPretrainer if is_pretrainer else BertEncoder
            for is_pretrainer in (has_words and predicts_words, has_words)
        )
        student = student_class(start.config, dtype=policy)
        teacher = teacher_class(
            teaching.teacher.config, dtype=teaching.teacher_policy(policy)
        )
        loading.load_weights(path, teacher, new_parts=new_parts)
        begin = functools.partial(teaching.begin, teacher, student)
        return Pretraining(
            model=distiller.Distiller(student, teacher, lesson),
            objective=distillation.pretraining_objective(
                lesson, start.config.is_decoder
            ),
            saved={"": student},
            description=teaching.settings() | teaching.facts(teacher),
            settings={},
            # The teacher's are counted nowhere.
            flops_per_example=None,
            begin=None if teaching.student_layers is None else begin,
            of_origin=lambda origin: teaching.of_origin(origin, teacher),
        )

    return make


def run_on_records(
    options: Options,
    teaching: Teaching,
    strategy: tf.distribute.Strategy,
    policy: str,
) -> dict | None:
    """Distils on pre-training records; see `pretraining_run.run`.

    Args:
        options: The `Options`, with `do_train`.
        teaching: The `Teaching`.
        strategy, policy: As of `pretraining_run.run`.

    Raises:
        ValueError: Also as of `on_records`, and if blocks are to be computed
            twice of whose inside a loss is made.
    """
    teaching.check_rematerialized(options.rematerialize)
    positions = teaching.teacher.config.max_position_embeddings
    return pretraining_run.run(
        options,
        teaching.student,
        strategy,
        policy,
        on_records(teaching),
        positions if teaching.lesson.asks_teacher else None,
    )
