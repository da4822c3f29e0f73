"""The losses of distillation against NumPy, and who gets a gradient."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.models import distillation
from bert_tf.models import distiller
from bert_tf.models import lesson as lesson_lib
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.lesson import Lesson
from bert_tf.models.pretrainer import BertPretrainer
from references import distillation as oracle
from references import training as reference
from support.family_models import of_family
from support.layer_checks import randomized

TEACHER = dataclasses.replace(
    reference.tiny_config(), num_hidden_layers=4, hidden_size=12
)
# Of the same heads, and half the width.
STUDENT = dataclasses.replace(
    TEACHER, num_hidden_layers=2, hidden_size=6, intermediate_size=9
)
LENGTHS = (11, 7)


def make_batch():
    """Returns a batch of two records, one with padding that would matter."""
    batch = reference.pretraining_arrays(len(LENGTHS))
    for row, length in enumerate(LENGTHS):
        batch[features.INPUT_MASK][row] = np.arange(reference.LENGTH) < length
        batch[features.MASKED_LM_POSITIONS][row] %= length
    return batch


def make_lesson(losses, student_layers=2, **options):
    student = dataclasses.replace(STUDENT, num_hidden_layers=student_layers)
    return Lesson(losses=losses, **options).for_models(student, TEACHER)


def make_models(model_class):
    models = model_class(STUDENT), model_class(TEACHER)
    for number, model in enumerate(models):
        random = np.random.default_rng(number)
        for variable in model.weights:
            values = random.normal(0, 0.4, variable.shape)
            variable.assign(values + variable.path.endswith("gamma"))
    return models


@pytest.fixture(scope="module")
def encoders():
    return make_models(BertEncoder)


@pytest.fixture(scope="module")
def pretrainers():
    return make_models(BertPretrainer)


def terms_of(model, objective, batch):
    """Returns {name: loss} of a batch."""
    totals = objective.losses(model(batch, training=False), batch)
    terms = objective.loss_terms(totals, objective.weights(batch))
    return {name: float(value) for name, value in terms.items()}


def fitted(model, states):
    kernel, bias = map(np.array, model.projection.weights)
    return [state @ kernel + bias for state in states]


@pytest.mark.parametrize("relation_heads", [None, 2])
def test_losses_of_encoders_are_numpys(encoders, relation_heads):
    student, teacher = encoders
    names = lesson_lib.OF_ENCODERS
    weights = {name: 1.0 + number for number, name in enumerate(names)}
    lesson = make_lesson(weights, relation_heads=relation_heads)
    model = distiller.Distiller(student, teacher, lesson)
    bias = model.projection.bias
    bias.assign(np.linspace(-1, 1, bias.shape[0]))
    batch = make_batch()
    objective = distillation.encoder_objective(lesson)
    found = terms_of(model, objective, batch)

    each = {name: [] for name in names}
    for row, length in enumerate(LENGTHS):
        ids = batch[features.INPUT_IDS][row, :length]
        segments = batch[features.SEGMENT_IDS][row, :length]
        own, taught = (
            oracle.states_of(m, ids, segments, 3) for m in (student, teacher)
        )
        own_fitted = fitted(model, own)
        each["cosine"] += map(oracle.cosine, own_fitted[-1], taught[-1])
        layers = list(zip(own_fitted, (taught[0], taught[2], taught[4])))
        for token in range(length):
            each["hidden"].append(
                sum(np.mean((a[token] - b[token]) ** 2) for a, b in layers)
            )
        scores = [
            [
                oracle.products(*oracle.vectors_of(m, s, layer)[:2], 3)
                for layer in chosen
            ]
            for m, s, chosen in (
                (student, own, (0, 1)),
                (teacher, taught, (1, 3)),
            )
        ]
        each["attention"] += list(
            sum(((a - b) ** 2).mean(axis=0) for a, b in zip(*scores)).flatten()
        )
        own, taught = (
            oracle.vectors_of(m, s, m.config.num_hidden_layers - 1)
            for m, s in ((student, own), (teacher, taught))
        )
        values = [
            oracle.relation(
                (own[one], own[other]),
                (taught[one], taught[other]),
                relation_heads or 3,
            )
            for one, other in ((0, 1), (2, 2))
        ]
        each["relations"] += list(np.sum(values, axis=0))
    wanted = {f"{name}_loss": np.mean(each[name]) for name in names}
    assert found == pytest.approx(wanted, rel=2e-5)
    total = sum(weights[name] * np.mean(each[name]) for name in names)
    assert objective.loss(found) == pytest.approx(total, rel=2e-5)


def test_scores_that_are_as_low_as_masked_ones_are_0():
    query = np.float32([[[[10.0], [1.0]]]])
    key = np.float32([[[[-10.0], [-9.9]]]])
    scores = np.array(distillation.attention_scores(query, key))
    np.testing.assert_allclose(scores[0, 0], [[0, -99], [-10, -9.9]])


@pytest.mark.parametrize("positions", lesson_lib.SOFT_POSITIONS)
def test_distilberts_loss_is_its_formula(pretrainers, positions):
    student, teacher = pretrainers
    lesson = make_lesson(
        {"soft_targets": 5.0, "masked_lm": 2.0, "cosine": 1.0},
        soft_positions=positions,
    )
    model = distiller.Distiller(student, teacher, lesson)
    batch = make_batch()
    objective = distillation.pretraining_objective(lesson, False)
    found = terms_of(model, objective, batch)

    everywhere = batch | {
        features.MASKED_LM_POSITIONS: np.tile(
            np.arange(reference.LENGTH, dtype=np.int32), (len(LENGTHS), 1)
        )
    }
    own, taught = (
        np.float64(m(everywhere)["masked_lm_logits"])
        for m in (student, teacher)
    )
    masked = [
        (row, batch[features.MASKED_LM_POSITIONS][row, number], label)
        for (row, number), label in np.ndenumerate(
            batch[features.MASKED_LM_IDS]
        )
        if batch[features.MASKED_LM_WEIGHTS][row, number]
    ]
    places = [(row, place) for row, place, _ in masked]
    if positions == "all":
        places = [
            (row, place)
            for row, length in enumerate(LENGTHS)
            for place in range(length)
        ]
    soft = [
        oracle.soft_target(own[place], taught[place], 2.0) for place in places
    ]
    hard = [
        -oracle.log_softmax(own[row, place])[label]
        for row, place, label in masked
    ]
    assert found["soft_targets_loss"] == pytest.approx(np.mean(soft), 1e-5)
    assert found["masked_lm_loss"] == pytest.approx(np.mean(hard), 1e-5)
    wanted = 5 * np.mean(soft) + 2 * np.mean(hard) + found["cosine_loss"]
    assert objective.loss(found) == pytest.approx(wanted, 1e-5)
    assert set(found) == {
        "soft_targets_loss",
        "masked_lm_loss",
        "cosine_loss",
    }


def test_the_cosine_has_one_gradient_of_its_formula():
    random = np.random.default_rng(5)
    own, taught = random.normal(0, 3, (2, 4, 5, 6)).astype("float32")
    own[0, 0], taught[1, 1] = 0.0, 0.0
    own[2, 2] *= 1e-5
    up = random.normal(size=(4, 5)).astype("float32")

    @tf.function
    def gradient(own):
        with tf.GradientTape() as tape:
            tape.watch(own)
            distance = distillation.cosine_distance(own, taught)
            loss = tf.reduce_sum(distance * up) + tf.reduce_sum(own)
        return tape.gradient(loss, own), distance

    # More than two tensors, TensorFlow adds in an order that differs from run
    # to run.
    graph = gradient.get_concrete_function(tf.constant(own)).graph
    sums = [each for each in graph.get_operations() if each.type == "AddN"]
    assert [len(each.inputs) for each in sums] == [2]
    found, distance = (each.numpy() for each in gradient(tf.constant(own)))
    assert np.isfinite(found).all()
    x, y = np.float64(own), np.float64(taught)
    lengths = np.linalg.norm(x, axis=-1, keepdims=True)
    others = np.linalg.norm(y, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        x, y = x / lengths, y / others
        cosine = np.sum(x * y, axis=-1, keepdims=True)
        wanted = 1 - up[..., None] * (y - cosine * x) / lengths
    is_there = np.isfinite(wanted)
    assert is_there.sum() == (4 * 5 - 2) * 6
    np.testing.assert_allclose(found[is_there], wanted[is_there], 1e-4, 1e-5)
    is_there = np.isfinite(cosine[..., 0])
    np.testing.assert_allclose(
        distance[is_there], 1 - cosine[..., 0][is_there], 1e-5, 1e-6
    )


def test_soft_labels_are_divergences_of_yes_and_no():
    random = np.random.default_rng(3)
    own, taught = random.normal(0, 3, (2, 4, 3))
    found = distillation.soft_labels(own, taught, 1.5)
    wanted = [
        oracle.soft_target([x, 0], [y, 0], 1.5)
        for x, y in zip(own.flatten(), taught.flatten())
    ]
    np.testing.assert_allclose(np.array(found).flatten(), wanted, 1e-5, 1e-6)


def test_gradients_are_those_of_the_loss_and_do_not_reach_the_teacher(
    encoders,
):
    student, teacher = encoders
    lesson = make_lesson(dict.fromkeys(lesson_lib.OF_ENCODERS, 1.0))
    model = distiller.Distiller(student, teacher, lesson)
    objective = distillation.encoder_objective(lesson)
    batch = make_batch()

    def loss():
        return sum(
            objective.loss_terms(
                objective.losses(model(batch, training=True), batch),
                objective.weights(batch),
            ).values()
        )

    with tf.GradientTape() as tape:
        tape.watch([variable.value for variable in teacher.weights])
        value = loss()
    trained = [v for v in model.trainable_variables if "pooler" not in v.path]
    assert {id(v) for v in model.variables} == {
        id(v) for v in (*student.variables, *model.projection.variables)
    }
    gradients, of_teacher = tape.gradient(
        value,
        (
            [v.value for v in trained],
            [v.value for v in teacher.weights],
        ),
    )
    assert of_teacher == [None] * len(teacher.weights)
    # Along a direction, from both sides.
    random = np.random.default_rng(5)
    before = [np.array(v) for v in trained]
    steps = [random.normal(0, 1e-3, v.shape) for v in trained]
    ends = []
    for sign in (1, -1):
        for variable, start, step in zip(trained, before, steps):
            variable.assign(start + sign * step)
        ends.append(float(loss()))
    for variable, start in zip(trained, before):
        variable.assign(start)
    slope = sum(
        np.sum(np.float64(tf.convert_to_tensor(gradient)) * step)
        for gradient, step in zip(gradients, steps)
    )
    assert (ends[0] - ends[1]) / 2 == pytest.approx(slope, rel=1e-2)


def test_what_is_inside_is_returned_beside_the_same_output(encoders):
    _, teacher = encoders
    batch = make_batch()
    positions = batch[features.MASKED_LM_POSITIONS]
    outputs = teacher(batch, positions)
    inside = teacher(batch, positions, return_inside=True)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(inside[name], outputs[name], atol=1e-5)
    assert len(inside["encoder_outputs"]) == len(inside["heads"]) == 4
    assert inside["embedding_output"].shape == (2, reference.LENGTH, 12)
    assert not {"heads", "embedding_output"} & outputs.keys()


def test_chosen_layers_are_copied_exactly_and_are_not_shared():
    student = BertClassifier(
        dataclasses.replace(TEACHER, num_hidden_layers=2), 3
    )
    teacher = BertClassifier(TEACHER, 3)
    reference.set_weights(teacher)
    assert distiller.copy_layers(teacher, student, (3, 1)) == []
    theirs = {v.path.split("/", 1)[1]: v for v in teacher.weights}
    for variable in student.weights:
        path = variable.path.split("/", 1)[1]
        path = path.replace("layer_0/", "layer_3/")
        np.testing.assert_array_equal(variable, theirs[path])
        assert variable is not theirs[path]
    student.encoder.embeddings.word_embeddings.assign_add(
        np.ones((reference.VOCAB_SIZE, 12))
    )
    assert not np.array_equal(
        student.encoder.embeddings.word_embeddings,
        teacher.encoder.embeddings.word_embeddings,
    )
    # A head of another task is new.
    other = BertClassifier(TEACHER, 2)
    new = distiller.copy_layers(teacher, other, range(4))
    assert [path.split("/", 1)[1] for path in new] == [
        "classifier/dense/bias",
        "classifier/dense/kernel",
    ]


def test_blocks_of_other_kinds_are_copied_by_name():
    config = of_family(TEACHER, "modernbert")
    teacher = randomized(BertClassifier(config, 3))
    student = BertClassifier(
        dataclasses.replace(config, num_hidden_layers=2), 3
    )
    # The first block has one norm less, and the last one has one more.
    new = distiller.copy_layers(teacher, student, (1, 2))
    (path,) = new
    assert path.endswith("layer_1/final_layer_norm/gamma")
    theirs = {v.path.split("/", 1)[1]: v for v in teacher.weights}
    for variable in student.weights:
        if variable.path != path:
            name = variable.path.split("/", 1)[1]
            name = name.replace("layer_1/", "layer_2/")
            name = name.replace("layer_0/", "layer_1/")
            np.testing.assert_array_equal(variable, theirs[name])


@pytest.mark.parametrize(
    "losses, options, message",
    [
        (
            "hidden",
            {"student_layers": 5},
            "The student must have no more layers than its teacher for the "
            "losses hidden and attention. Received: num_hidden_layers=5 in the "
            "student, 4 in the teacher.",
        ),
        ("relations", {"relation_heads": 4}, "must divide the student's"),
        ("cosine", {"relation_heads": 2}, "given with the loss relations. Rec"),
        ("cosine", {"temperature": 0.0}, "`temperature` must be positive"),
        ("nothing", {}, "Received: 'nothing' in losses='nothing'"),
        ("hidden:1,hidden:2", {}, "different names from soft_targets, masked"),
        ("cosine:-1", {}, "positive number. Received: 'cosine:-1'"),
    ],
)
def test_what_cannot_be_learned_is_told(losses, options, message):
    with pytest.raises(ValueError) as error:
        make_lesson(
            lesson_lib.parse_losses(losses, lesson_lib.ON_RECORDS), **options
        )
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_attention_needs_as_many_heads_and_is_from_the_last_of_equal_parts():
    other = dataclasses.replace(STUDENT, num_attention_heads=2)
    lesson = Lesson(losses={"attention": 1.0})
    with pytest.raises(ValueError, match="the teacher's number of heads"):
        lesson.for_models(other, TEACHER)
    lesson.for_models(STUDENT, TEACHER)
    assert lesson_lib.taught_layers(2, 4) == [1, 3]
    assert lesson_lib.taught_layers(3, 4) == [0, 1, 3]
    decoder = dataclasses.replace(STUDENT, is_decoder=True)
    with pytest.raises(ValueError, match="left to right, or neither"):
        lesson.for_models(decoder, TEACHER)


def test_sequences_in_one_row_have_the_losses_of_their_own_rows(encoders):
    student, teacher = encoders
    lesson = make_lesson({"hidden": 1.0, "attention": 1.0, "relations": 1.0})
    model = distiller.Distiller(student, teacher, lesson)
    objective = distillation.encoder_objective(lesson)
    batch = make_batch()
    packed = reference.as_batch(
        reference.pack_rows(batch, [(0, 1)], sum(LENGTHS) + 2, 6, 2)
    )
    found = terms_of(model, objective, packed)
    assert found == pytest.approx(terms_of(model, objective, batch), rel=1e-5)
