"""Distillation: teacher and student, and training on records."""

import dataclasses
import functools
import hashlib
import logging
from typing import Any

import keras
import tensorflow as tf
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
from bert_tf.runs import pretraining_run
from bert_tf.runs.objectives import Pretraining
from bert_tf.runs.objectives import model_options
from bert_tf.runs.options import PretrainingOptions
from bert_tf.text.tokenizers import files as tokenizer_files

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teaching:
    """Who teaches what to whom.

    Args:
        teacher: The `StartingPoint` of the teacher, with a checkpoint.
        student: The `StartingPoint` of the student.
        lesson: The `Lesson`; the two models fill in what it leaves open.
        student_layers: The layers of the teacher that a new student begins
            with, counted from 0; None for none.

    Raises:
        ValueError: If the lesson does not suit these two models.
    """

    teacher: StartingPoint
    student: StartingPoint
    lesson: Lesson
    student_layers: tuple[int, ...] | None = None

    def __post_init__(self):
        lesson = self.lesson.for_models(
            self.student.config, self.teacher.config
        )
        object.__setattr__(self, "lesson", lesson)

    @property
    def has_one_tokenizer(self) -> bool:
        """Whether the same ids mean the same text to both models."""
        return tokenizer_files.are_alike(
            self.teacher.tokenizer, self.student.tokenizer
        )

    def check_tokenizers(self, exempt: tuple[str, ...] = ()) -> None:
        """Checks that both have the same tokenizer, if a loss needs that.

        Args:
            exempt: Names of the losses that do not need it.

        Raises:
            ValueError: If a loss needs it and the tokenizers differ.
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
        """Checks that no loss needs what rematerialised blocks forget.

        Args:
            value: Whether the student's blocks are rematerialised.

        Raises:
            ValueError: If they are, and a loss needs what they forget.
        """
        if value and self.lesson.has(*lesson_lib.OF_HEADS):
            raise ValueError(
                "--rematerialize must not be given with the losses "
                f"{', '.join(lesson_lib.OF_HEADS)}, which need the activations "
                "that it drops."
            )

    def begin(self, teacher: keras.Model, student: keras.Model) -> None:
        """Copies the teacher's layers to a new student, if that is wanted."""
        if self.student_layers is None:
            return
        new = distiller.copy_layers(teacher, student, self.student_layers)
        _logger.info(
            "The student begins with the teacher's layers %s%s.",
            ", ".join(map(str, self.student_layers)),
            f"; new are {', '.join(new)}" if new else "",
        )

    def settings(self) -> dict[str, Any]:
        """Returns {name of a flag: value}; a resumed run must have the same."""
        values = self.lesson.to_dict()
        if self.lesson.has(lesson_lib.HIDDEN, lesson_lib.ATTENTION):
            # Releases that let it be chosen stored it.
            values["layer_map"] = lesson_lib.taught_layers(
                self.student.config.num_hidden_layers,
                self.teacher.config.num_hidden_layers,
            )
        if self.student_layers is not None:
            values["student_layers"] = list(self.student_layers)
        return values

    def report_settings(self) -> dict[str, Any]:
        """Returns {name: value} of `settings`, for reports and model cards.

        The temperature has another name here, because a calibration's
        temperature may stand beside it.
        """
        values = self.settings()
        temperature = values.pop("temperature")
        if self.lesson.has(lesson_lib.SOFT_TARGETS):
            values["soft_targets_temperature"] = temperature
        return values

    def facts(self, teacher: keras.Model) -> dict[str, Any]:
        """Returns the teacher's hash and precision; a resumed run must match.

        Args:
            teacher: The teacher, with the weights of its folder.
        """
        path = self.teacher.init_checkpoint
        assert path is not None
        with reader.open_checkpoint(path) as checkpoint:
            found = checkpoint.found_parts
        # Parts that the folder lacks, such as a tagger's pooler, depend on the
        # run's seed and are not used.
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
        """Returns the origin with what the distillation adds to it."""
        losses = self.lesson.losses
        values = self.report_settings() | {
            "losses": [
                # Exact, and a whole number without its ".0".
                f"{name}:{weight}".removesuffix(".0")
                for name, weight in losses.items()
            ],
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

    One of `init_checkpoint`, `student_layers` and `bert_config_file` says what
    the student begins with.

    Args:
        teacher: The teacher's `StartingPoint`. A new student gets its
            tokenizer if none is given.
        init_checkpoint: A folder to begin with.
        student_layers: Layers of the teacher, counted from 0.
        bert_config_file: A configuration for new weights. With
            `init_checkpoint`, the configuration of that folder.
        vocab_file, do_lower_case: A tokenizer.
        **options: Options of `starting_point.find`.

    Raises:
        ValueError: If none of the three is given or the teacher has no such
            layers, and as for `starting_point.find`.
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
                "`student_layers` must be of a teacher whose layers each have "
                "their own weights. Received: num_hidden_groups="
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
            "`bert_config_file` must be given: it says what the student "
            "begins with."
        )
    if init_checkpoint is None:
        _check_none(options, "bert_config_file", "there is no checkpoint")
    if init_checkpoint is None and vocab_file is None:
        assert bert_config_file is not None
        # The tokenizer is the teacher's, including its lower-casing.
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
    """Raises `ValueError` if a value is given that would have no effect."""
    for other, value in values.items():
        # allow_partial is False, not None, if it is not given.
        if value is not None and (other, value) != ("allow_partial", False):
            raise ValueError(
                f"`{other}` must not be given with `{name}`: {reason}. "
                f"Received: {other}={value}."
            )


def on_records(teaching: Teaching) -> pretraining_run.Maker:
    """Returns a function that makes a student and its teacher for records.

    The student is a pre-trainer if a loss is on words, otherwise an encoder.

    Args:
        teaching: The `Teaching`.

    Raises:
        ValueError: If the two have different tokenizers, or if there are soft
            targets and the teacher predicts no words, or only one of the two
            reads from left to right.
    """
    teaching.check_tokenizers()
    lesson = teaching.lesson
    if lesson.has(lesson_lib.SOFT_TARGETS):
        # A left-to-right model sees the tokens that are masked for the other.
        lesson_lib.check_direction(
            teaching.student.config, teaching.teacher.config
        )
    has_words = lesson.has(lesson_lib.SOFT_TARGETS, lesson_lib.MASKED_LM)
    path = teaching.teacher.init_checkpoint
    assert path is not None
    with reader.open_checkpoint(path) as checkpoint:
        found = checkpoint.found_parts
    predicts_words = parts.MASKED_LM in found
    # No loss uses these parts, so the teacher may lack them.
    new_parts = {parts.NEXT_SENTENCE, parts.POOLER} - set(found)
    if lesson.has(lesson_lib.SOFT_TARGETS) and not predicts_words:
        raise ValueError(
            f"{path}: the teacher must have a masked-LM head for the loss "
            f"{lesson_lib.SOFT_TARGETS}; the other losses do not need it."
        )

    def make(options, start, policy):
        teacher_class, student_class = (
            BertPretrainer if is_pretrainer else BertEncoder
            for is_pretrainer in (has_words and predicts_words, has_words)
        )
        student = student_class(start.config, **model_options(options, policy))
        teacher = teacher_class(teaching.teacher.config, dtype=policy)
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
            # The teacher's operations are not counted anywhere.
            flops_per_example=None,
            begin=None if teaching.student_layers is None else begin,
            of_origin=lambda origin: teaching.of_origin(origin, teacher),
        )

    return make


def run_on_records(
    options: PretrainingOptions,
    teaching: Teaching,
    strategy: tf.distribute.Strategy,
    policy: str,
) -> dict | None:
    """Distils on pre-training records; see `pretraining_run.run`.

    Args:
        options: The `PretrainingOptions`, with `do_train`.
        teaching: The `Teaching`.
        strategy, policy: As for `pretraining_run.run`.

    Raises:
        ValueError: Also as for `on_records`, and if blocks are rematerialised
            although a loss needs what they forget.
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
