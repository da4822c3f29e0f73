"""The losses of a student that learns from a teacher.

Letters in tensor names: B batch, L position, D hidden size, N heads, Q query,
K key or class, S the student's, T the teacher's.

    soft_targets    t^2 KL(softmax(T / t) || softmax(S / t)) of logits at the
                    temperature t (Hinton et al. 2015; DistilBERT, Sanh et al.
                    2019, with t = 2 and the mean over all tokens)
    cosine          1 - cos(S, T) of the last layer's states (DistilBERT)
    hidden          mean squares of W S + b - T, summed over the embeddings'
                    output and the layers (TinyBERT, Jiao et al. 2020)
    attention       mean squares of S - T of the scores before the softmax,
                    where scores up to -100 count as 0, summed over the layers
                    (TinyBERT)
    relations       KL(T || S) of softmax(Q K^T / sqrt(d)), the attention, and
                    of softmax(V V^T / sqrt(d)), the values' relations, in the
                    last layer (MiniLM, Wang et al. 2020)

Means are over real tokens, then over heads and widths. For relations the real
tokens are the queries; for attention, pairs of real tokens count. So padding
changes no loss, and one device and several compute the same.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf import features
from bert_tf.backend import custom_gradient
from bert_tf.backend import traced_once
from bert_tf.features import Batch
from bert_tf.features import Tensor
from bert_tf.layers.attention import make_attention_mask
from bert_tf.layers.basic import gather_positions
from bert_tf.models import lesson as lesson_lib
from bert_tf.models import objectives
from bert_tf.models.lesson import Lesson
from bert_tf.models.objectives import Objective

# Shorter vectors are divided by the root of this, as in Keras's `normalize`.
_LEAST_SQUARES = 1e-14
# TinyBERT takes scores up to this for masked ones.
_LOWEST_SCORE = -100.0


def _of_the_same_words(logits, teacher_logits):
    """Returns both without the rows beyond the vocabulary that one has more."""
    size = min(logits.shape[-1], teacher_logits.shape[-1])
    return logits[..., :size], teacher_logits[..., :size]


def soft_targets(
    logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Returns t^2 KL(teacher || student) of every element, float32 `[...]`.

    Args:
        logits, teacher_logits: float `[..., K]`.
        temperature: t.
    """
    student = _float32(logits) / temperature
    teacher = _float32(teacher_logits) / temperature
    return temperature**2 * _divergence(student, teacher)


def soft_labels(
    logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Returns `soft_targets` of yes or no, float32 of the logits' shape.

    Args:
        logits, teacher_logits: float, of the same shape: the logits of a yes.
        temperature: t.
    """
    student = _float32(logits) / temperature
    teacher = _float32(teacher_logits) / temperature
    share = ops.sigmoid(teacher)
    # The difference of the cross-entropies, softplus(x) - p x each.
    divergence = (
        ops.softplus(student)
        - ops.softplus(teacher)
        - share * (student - teacher)
    )
    return temperature**2 * divergence


def cosine_distance(states: Tensor, teacher_states: Tensor) -> Tensor:
    """Returns 1 - cos of vectors `[..., D]`, float32 `[...]`.

    The gradient of `states` is one tensor. TensorFlow's would be two. Together
    with the logits' gradient it would then add three tensors, in an order that
    differs from run to run.
    """
    teacher = ops.normalize(_float32(teacher_states), axis=-1)
    return _cosine_distance(_float32(states), teacher)


@traced_once
def _cosine_distance(student, teacher):
    @custom_gradient
    def compute(student):
        squares = ops.sum(ops.square(student), axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.maximum(squares, _LEAST_SQUARES))
        normal = student * scale
        cosine = ops.sum(normal * teacher, axis=-1)

        def gradient(up):
            turned = normal * cosine[..., None] - teacher
            return turned * (scale * up[..., None])

        return 1.0 - cosine, gradient

    return compute(student)


def attention_scores(query_BNLH: Tensor, key_BNLH: Tensor) -> Tensor:
    """Returns the scores before mask and softmax, float32 `[B, N, Q, K]`.

    Args:
        query_BNLH: float.
        key_BNLH: float.
    """
    query_BNLH = query_BNLH * query_BNLH.shape[-1] ** -0.5
    scores = _float32(
        ops.matmul(query_BNLH, ops.transpose(key_BNLH, (0, 1, 3, 2)))
    )
    return ops.where(scores <= _LOWEST_SCORE, 0.0, scores)


def relation(one_BNLH: Tensor, other_BNLH: Tensor, num_heads: int) -> Tensor:
    """Returns X Y^T / sqrt(size of a head), float32 `[B, num_heads, L, L]`.

    Args:
        one_BNLH, other_BNLH: float, X and Y, split into the model's own heads.
        num_heads: How many parts the concatenated vectors of all heads are
            split into (Wang et al. 2021, section 3.1).
    """
    one_BRLH, other_BRLH = (
        _split_heads_again(x, num_heads) for x in (one_BNLH, other_BNLH)
    )
    product = ops.matmul(one_BRLH, ops.transpose(other_BRLH, (0, 1, 3, 2)))
    return _float32(product) * one_BRLH.shape[-1] ** -0.5


def _split_heads_again(x_BNLH, num_heads):
    own_heads, head_size = x_BNLH.shape[1], x_BNLH.shape[3]
    if own_heads == num_heads:
        return x_BNLH
    batch_size, length = ops.shape(x_BNLH)[0], ops.shape(x_BNLH)[2]
    x_BLD = ops.reshape(
        ops.transpose(x_BNLH, (0, 2, 1, 3)),
        (batch_size, length, num_heads, own_heads * head_size // num_heads),
    )
    return ops.transpose(x_BLD, (0, 2, 1, 3))


@traced_once
def _divergence(student, teacher):
    """Returns KL(softmax(teacher) || softmax(student)) over the last axis.

    Over a vocabulary each pass takes time and memory. The gradient,
    softmax(student) - softmax(teacher), therefore reuses the exponentials of
    the forward pass. `teacher` gets no gradient.
    """
    teacher_probs, teacher_log_sum, teacher = _softmax(teacher)

    @custom_gradient
    def compute(student):
        probs, log_sum, student = _softmax(student)
        difference = ops.sum(teacher_probs * (teacher - student), axis=-1)

        def gradient(up):
            return (probs - teacher_probs) * up[..., None]

        return difference - (teacher_log_sum - log_sum), gradient

    return compute(student)


def _softmax(x):
    """Returns softmax(x), the log of its divisor, and x minus its maximum."""
    x = x - ops.max(x, axis=-1, keepdims=True)
    exps = ops.exp(x)
    divisor = ops.sum(exps, axis=-1, keepdims=True)
    return exps / divisor, ops.log(divisor)[..., 0], x


def _float32(x):
    return ops.cast(x, "float32")


def encoder_objective(lesson: Lesson, left_to_right: bool = False) -> Objective:
    """Returns the losses on what the two encoders compute inside.

    The outputs are a `Distiller`'s. Without such losses there are no terms.

    Args:
        lesson: A `Lesson` for these models (`for_models`).
        left_to_right: Whether the two models go from left to right.
    """
    names = [name for name in lesson_lib.OF_ENCODERS if lesson.has(name)]
    makers: dict[str, Callable] = {
        lesson_lib.COSINE: _cosine,
        lesson_lib.HIDDEN: _hidden,
        lesson_lib.ATTENTION: _attention,
        lesson_lib.RELATIONS: _relations,
    }

    def masks_by_name(batch):
        tokens_BL, pairs_BQK = _masks(batch, left_to_right)
        return dict.fromkeys(names, tokens_BL) | {
            lesson_lib.ATTENTION: pairs_BQK
        }

    def weights(batch):
        masks = masks_by_name(batch)
        return {f"{name}_loss": ops.sum(masks[name]) for name in names}

    def losses(outputs, batch):
        masks = masks_by_name(batch)
        return {
            f"{name}_loss": ops.sum(
                masks[name]
                * makers[name](outputs, lesson, batch, left_to_right)
            )
            for name in names
        }

    return Objective(
        weights=weights,
        losses=losses,
        metrics=lambda outputs, batch: {},
        loss_weights=_loss_weights(lesson),
    )


def _loss_weights(lesson):
    return {f"{name}_loss": weight for name, weight in lesson.losses.items()}


def _masks(batch, left_to_right):
    """Returns float32 weights of tokens `[B, L]` and of pairs `[B, L, L]`."""
    tokens_BL = token_weights(batch)
    pairs_BQK = tokens_BL[:, :, None] * _float32(
        _may_look(batch, left_to_right)
    )
    return tokens_BL, pairs_BQK


def _may_look(batch, left_to_right):
    rows = _rows(batch)
    return make_attention_mask(
        rows[features.INPUT_MASK],
        rows.get(features.SEQUENCE_IDS),
        left_to_right,
    )


def _rows(batch):
    """Returns the batch's masks as `[rows, L]`; examples may have several."""
    names = (features.INPUT_MASK, features.SEQUENCE_IDS)
    return {
        name: ops.reshape(batch[name], (-1, ops.shape(batch[name])[-1]))
        for name in names
        if name in batch
    }


def token_weights(batch: Batch) -> Tensor:
    """Returns float32 `[B, L]`: 1 for real tokens of examples that count.

    Args:
        batch: Has `input_mask` `[B, L]`, or `[B / C, C, L]` if an example has C
            rows, and perhaps `example_weights`.
    """
    mask = objectives.by_example(_float32(batch[features.INPUT_MASK]), batch)
    return ops.reshape(mask, (-1, ops.shape(mask)[-1]))


# Each returns a loss for every token `[B, L]`, or for every pair `[B, Q, K]`.


def _cosine(outputs, lesson, batch, left_to_right):
    return cosine_distance(outputs["states"][-1], outputs["teacher_states"][-1])


def _hidden(outputs, lesson, batch, left_to_right):
    # The first states are the embeddings' output.
    own, teacher = outputs["states"], outputs["teacher_states"]
    layers = lesson_lib.taught_layers(len(own) - 1, len(teacher) - 1)
    chosen = [teacher[0], *(teacher[layer + 1] for layer in layers)]
    return sum(
        ops.mean(ops.square(_float32(student) - _float32(other)), axis=-1)
        for student, other in zip(own, chosen, strict=True)
    )


def _attention(outputs, lesson, batch, left_to_right):
    own, teacher = outputs["heads"], outputs["teacher_heads"]
    layers = lesson_lib.taught_layers(len(own), len(teacher))
    chosen = [teacher[layer] for layer in layers]
    return sum(
        ops.mean(
            ops.square(
                attention_scores(*student[:2]) - attention_scores(*other[:2])
            ),
            axis=1,
        )
        for student, other in zip(own, chosen, strict=True)
    )


def _relations(outputs, lesson, batch, left_to_right):
    """Adds up the divergences of the attention and of the values' relations."""
    # Finite, as in `attend`, because some rows are nothing but padding.
    bias_BQK = ops.where(_may_look(batch, left_to_right), 0.0, -1e9)
    student, teacher = outputs["heads"][-1], outputs["teacher_heads"][-1]
    return sum(
        ops.mean(
            _divergence(
                *(
                    relation(heads[one], heads[other], lesson.relation_heads)
                    + bias_BQK[:, None]
                    for heads in (student, teacher)
                )
            ),
            axis=1,
        )
        for one, other in ((0, 1), (2, 2))
    )


def pretraining_objective(lesson: Lesson, left_to_right: bool) -> Objective:
    """Returns the losses of `lesson` on pre-training records.

    The outputs are a `Distiller`'s, and the batch is one of pre-training.

    Args:
        lesson, left_to_right: As in `encoder_objective`.
    """
    of_encoders = encoder_objective(lesson, left_to_right)
    everywhere = is_everywhere(lesson)

    def masked_weights(batch):
        return objectives.by_example(batch[features.MASKED_LM_WEIGHTS], batch)

    def soft_weights(batch):
        return token_weights(batch) if everywhere else masked_weights(batch)

    def masked_logits(logits, batch):
        if not everywhere:
            return logits
        return gather_positions(logits, batch[features.MASKED_LM_POSITIONS])

    def weights(batch):
        found = {}
        if lesson.has(lesson_lib.SOFT_TARGETS):
            found["soft_targets_loss"] = ops.sum(soft_weights(batch))
        if lesson.has(lesson_lib.MASKED_LM):
            found["masked_lm_loss"] = ops.sum(masked_weights(batch))
        return found | of_encoders.weights(batch)

    def losses(outputs, batch):
        found = {}
        if lesson.has(lesson_lib.SOFT_TARGETS):
            logits, teacher_logits = _of_the_same_words(
                outputs["logits"], outputs["teacher_logits"]
            )
            each = soft_targets(logits, teacher_logits, lesson.temperature)
            found["soft_targets_loss"] = ops.sum(soft_weights(batch) * each)
        if lesson.has(lesson_lib.MASKED_LM):
            each = objectives.cross_entropy(
                masked_logits(outputs["logits"], batch),
                batch[features.MASKED_LM_IDS],
            )
            found["masked_lm_loss"] = ops.sum(masked_weights(batch) * each)
        return found | of_encoders.losses(outputs, batch)

    def metrics(outputs, batch):
        found = {}
        if lesson.has(lesson_lib.MASKED_LM, lesson_lib.SOFT_TARGETS):
            found["masked_lm_accuracy"] = objectives.hits(
                masked_logits(outputs["logits"], batch),
                batch[features.MASKED_LM_IDS],
                masked_weights(batch),
            )
        return found

    return Objective(
        weights=weights,
        losses=losses,
        metrics=metrics,
        loss_weights=_loss_weights(lesson),
    )


def is_everywhere(lesson: Lesson) -> bool:
    """Returns whether words are predicted at all positions of records."""
    return (
        lesson.has(lesson_lib.SOFT_TARGETS) and lesson.soft_positions == "all"
    )


def task_objective(
    lesson: Lesson,
    of_labels: Objective,
    soft_losses: Callable[[Any, Any, float], Any],
    left_to_right: bool = False,
) -> Objective:
    """Returns the losses of `lesson` on a task's examples.

    Args:
        lesson, left_to_right: As in `encoder_objective`.
        of_labels: A task's objective, with a single loss, over weighted
            elements.
        soft_losses: `soft_losses(logits, teacher_logits, batch)` -> the sum
            over the elements, with the same weights.
    """
    of_encoders = encoder_objective(lesson, left_to_right)

    def weights(batch):
        (weight,) = of_labels.weights(batch).values()
        found = {
            f"{name}_loss": weight
            for name in (lesson_lib.SOFT_TARGETS, lesson_lib.LABELS)
            if lesson.has(name)
        }
        return found | of_encoders.weights(batch)

    def losses(outputs, batch):
        found = {}
        if lesson.has(lesson_lib.SOFT_TARGETS):
            found["soft_targets_loss"] = soft_losses(
                outputs["logits"], outputs["teacher_logits"], batch
            )
        if lesson.has(lesson_lib.LABELS):
            (found["labels_loss"],) = of_labels.losses(
                outputs["logits"], batch
            ).values()
        return found | of_encoders.losses(outputs, batch)

    def metrics(outputs, batch):
        return of_labels.metrics(outputs["logits"], batch)

    return Objective(
        weights=weights,
        losses=losses,
        metrics=metrics,
        loss_weights=_loss_weights(lesson),
    )
