"""A student and its teacher, called with the same batch."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.layers.basic import Dense
from bert_tf.models import distillation
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.lesson import OF_ENCODERS
from bert_tf.models.lesson import OF_HEADS
from bert_tf.models.lesson import OF_STATES
from bert_tf.models.lesson import Lesson

# Prefix of the teacher's outputs, and of its own model inputs, which it has if
# its tokenizer differs from the student's.
TEACHER = "teacher_"


class Distiller(keras.Model):
    """A student, its projection to the teacher's width, and the teacher.

    Its variables are the student's and the projection's. The teacher's are
    neither trained nor saved.

    Args:
        student: A model that is an encoder or has one.
        teacher: Likewise. It is made untrainable.
        lesson: The `Lesson` for these two.

    Call arguments:
        inputs: A batch as `student` takes it, and perhaps the teacher's own
            model inputs, with the prefix `TEACHER`.

    Returns:
        A dictionary of what the losses are made of: `logits`, what the models
        return; `states`, the encoder's `embedding_output` and
        `encoder_outputs`, the student's projected; and its `heads`. The
        teacher's entries have the prefix `TEACHER` and no gradient.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        lesson: Lesson,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": student.dtype_policy} | kwargs)
        teacher.trainable = False
        student_config = encoder_of(student).config
        teacher_config = encoder_of(teacher).config
        self.student = student
        self.lesson = lesson.for_models(student_config, teacher_config)
        self.projection = None
        if lesson.has_projection(student_config, teacher_config):
            self.projection = Dense(
                teacher_config.hidden_size,
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=student_config.initializer_range
                ),
                dtype=student.dtype_policy,
                name="projection",
            )
            self.projection.build((None, None, student_config.hidden_size))
        # A function, so that Keras does not track the teacher.
        self.teacher = lambda: teacher
        self.built = True

    def call(self, inputs, training=None):
        lesson = self.lesson
        student_inputs = {
            name: value
            for name, value in inputs.items()
            if not name.startswith(TEACHER)
        }
        if distillation.is_everywhere(lesson) and (
            features.MASKED_LM_POSITIONS in student_inputs
        ):
            ids = student_inputs[features.INPUT_IDS]
            student_inputs[features.MASKED_LM_POSITIONS] = ops.broadcast_to(
                ops.arange(ops.shape(ids)[1], dtype="int32"), ops.shape(ids)
            )
        inputs_of_teacher = student_inputs | {
            name.removeprefix(TEACHER): value
            for name, value in inputs.items()
            if name.startswith(TEACHER)
        }
        outputs = self._outputs(self.student, student_inputs, training)
        if "states" in outputs and self.projection is not None:
            outputs["states"] = [
                self.projection(state) for state in outputs["states"]
            ]
        if lesson.asks_teacher:
            teacher_outputs = self._outputs(
                self.teacher(), inputs_of_teacher, False
            )
            outputs |= {
                f"{TEACHER}{name}": keras.tree.map_structure(
                    ops.stop_gradient, value
                )
                for name, value in teacher_outputs.items()
            }
        return outputs

    def _outputs(self, model, inputs, training):
        """Returns what the losses need from a model, by name."""
        lesson = self.lesson
        if not lesson.has(*OF_ENCODERS):
            return {"logits": _logits(model(inputs, training=training))}
        encoder, inside = encoder_of(model), {}

        def encode(*args, **kwargs):
            outputs = encoder(*args, return_inside=True, **kwargs)
            inside.update(outputs)
            return outputs

        outputs = {}
        if model is encoder:
            encode(inputs, training=training)
        else:
            logits = model(inputs, encoder=encode, training=training)
            outputs["logits"] = _logits(logits)
        if lesson.has(*OF_STATES):
            outputs["states"] = [
                inside["embedding_output"],
                *inside["encoder_outputs"],
            ]
        if lesson.has(*OF_HEADS):
            outputs["heads"] = inside["heads"]
        return outputs


def _logits(outputs):
    """Returns a model's outputs; of a pre-trainer, its masked-LM logits."""
    if isinstance(outputs, dict) and "masked_lm_logits" in outputs:
        return outputs["masked_lm_logits"]
    return outputs


def encoder_of(model: keras.Model) -> BertEncoder:
    """Returns a model's encoder, which may be the model itself."""
    return model if isinstance(model, BertEncoder) else model.encoder


def copy_layers(
    teacher: keras.Model, student: keras.Model, layers: Sequence[int]
) -> list[str]:
    """Gives a new student the weights of chosen layers of its teacher.

    Copies the embeddings, these blocks in this order, the pooler, and the heads
    that both models have. The models do not share variables.

    Args:
        teacher: A model whose blocks do not share weights.
        student: A model of the same widths, with as many blocks as `layers`.
        layers: Numbers of the teacher's blocks, from 0.

    Returns:
        The paths of the student's variables that the teacher does not have.
    """
    old, new = encoder_of(teacher), encoder_of(student)
    pairs = [(new.embeddings, old.embeddings), (new.pooler, old.pooler)]
    pairs += zip(
        new.blocks, (old.blocks[number] for number in layers), strict=True
    )
    if new is not student and old is not teacher:
        heads = {layer.name: layer for layer in teacher.layers}
        pairs += [
            (layer, heads[layer.name])
            for layer in student.layers
            if layer is not new and layer.name in heads
        ]
    initialized = {variable.path for variable in student.weights}
    for to, source in pairs:
        # By name: the first and the last block may have other norms.
        values = {_name_in(source, each): each for each in source.weights}
        for variable in to.weights:
            value = values.get(_name_in(to, variable))
            if value is not None and variable.shape == value.shape:
                variable.assign(ops.convert_to_numpy(value))
                initialized.discard(variable.path)
    return sorted(initialized)


def _name_in(layer, variable):
    """Returns a variable's path within a layer."""
    return f"/{variable.path}".partition(f"/{layer.name}/")[2]


def teacher_inputs(batch: Batch) -> Batch:
    """Returns a batch's model inputs, named as a teacher's own."""
    return {f"{TEACHER}{name}": batch[name] for name in features.MODEL_INPUTS}
