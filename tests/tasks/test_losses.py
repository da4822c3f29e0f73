"""The tasks' losses in a user's own `keras.Model.fit`."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import with_weights

CLASSES = ClassificationTask(
    name="a",
    text_features=("text",),
    labels=("x", "y", "z"),
    metrics=("accuracy",),
)
LABELS = np.int32([0, 1, 2, 0])


def fit(loss, labels, num_outputs=3, **weights):
    """Makes a step of a small model of one's own.

    Returns:
        The logged loss, and the kernel after the step.
    """
    keras.utils.set_random_seed(0)
    inputs = np.random.default_rng(1).normal(size=(4, 2)).astype("float32")
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(num_outputs)]
    )
    model.compile(keras.optimizers.SGD(0.1), loss)
    history = model.fit(inputs, labels, batch_size=4, verbose=0, **weights)
    return history.history["loss"][0], model.get_weights()[0]


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"sample_weight": np.float32([0, 0, 0, 1])},
        {"sample_weight": np.ones(4, np.float32)},
        {"sample_weight": np.float32([[2], [0], [1], [0.5]])},
        {"class_weight": {0: 1.0, 1: 0.0, 2: 3.0}},
    ],
)
def test_weights_of_fit_are_as_with_the_loss_of_keras(weights):
    loss, kernel = fit(CLASSES.loss(), LABELS, **weights)
    theirs, their_kernel = fit(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        LABELS,
        **weights,
    )
    assert loss == pytest.approx(theirs, rel=1e-5)
    np.testing.assert_allclose(kernel, their_kernel, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "logits_shape", "labels"),
    [
        (
            MultiLabelTask(name="a", text_features=("t",), labels=tuple("xyz")),
            (3, 3),
            np.int32([[0, 1, 1], [0, 0, 1], [1, 1, 1]]),
        ),
        (
            TaggingTask(scheme="bio", labels=("O", "B-x", "I-x")),
            (3, 4, 3),
            with_weights(
                [[0, 2, 0, 0], [0, 0, 0, 0], [0, 1, 2, 1]],
                [[0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 1, 1]],
            ),
        ),
    ],
    ids=["multi_label", "tagging"],
)
def test_weights_of_examples_are_those_of_their_elements(
    task, logits_shape, labels
):
    generator = np.random.default_rng(2)
    logits = generator.normal(size=logits_shape).astype("float32")
    example_weights = np.float32([2, 0, 0.5])
    weights = ops.convert_to_numpy(task.weights(labels))
    losses = ops.convert_to_numpy(
        task.losses(logits, task.label_values(labels))
    )
    losses *= weights
    expected = (losses * example_weights[:, None]).sum() / weights.sum()
    for sample_weight in (
        example_weights,
        np.broadcast_to(example_weights[:, None], weights.shape),
    ):
        loss = task.loss()(labels, logits, sample_weight=sample_weight)
        assert float(loss) == pytest.approx(expected, rel=1e-5)
    loss = task.loss()(labels, logits)
    assert float(loss) == pytest.approx(losses.sum() / weights.sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("task", "labels_shape"),
    [
        (dataclasses.replace(CLASSES, class_weights=(1.0, 2.0, 0.5)), (4,)),
        (dataclasses.replace(CLASSES, labels=(), metrics=("pearson",)), (4,)),
        (MultipleChoiceTask(num_choices=3), (4,)),
        (MultiLabelTask(name="a", text_features=("t",), labels=("x",)), (4, 1)),
        (TaggingTask(scheme="bio", labels=("O", "B-x", "I-x")), (4, 5, 2)),
        (SquadTask(doc_stride=7, version_2_with_negative=True), (4,)),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_a_compiled_model_is_saved_and_loaded_with_its_loss(
    tmp_path, task, labels_shape
):
    inputs = keras.Input((5, 2) if task.family == "tagging" else (2,))
    outputs = keras.layers.Dense(3 if task.accuracy else 1)(inputs)
    if task.outputs:
        outputs = dict.fromkeys(task.outputs, keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", task.loss())
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, labels_shape).astype(np.int32)
    if task.outputs:
        labels = dict.fromkeys(task.outputs, labels)
    data = generator.normal(size=(4, *inputs.shape[1:])).astype("float32")
    loss = model.evaluate(data, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(data, labels, verbose=0) == pytest.approx(loss)
    for loaded in keras.tree.flatten(again.loss):
        assert loaded.task == task
    again.fit(data, labels, verbose=0)


@pytest.mark.parametrize("is_regression", [True, False])
def test_labels_may_be_a_column(is_regression):
    task, labels = CLASSES, LABELS
    if is_regression:
        task = dataclasses.replace(CLASSES, labels=(), metrics=("pearson",))
        labels = np.float32([0.5, -1, 2, 0])
    num_outputs = task.num_outputs
    loss, kernel = fit(task.loss(), labels, num_outputs)
    of_column, kernel_of_column = fit(task.loss(), labels[:, None], num_outputs)
    assert of_column == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(kernel_of_column, kernel, atol=1e-7)
    with pytest.raises(Exception, match="[Rr]eshape"):
        task.loss()(np.tile(labels[:, None], 3), np.ones((4, num_outputs)))


def test_a_head_is_of_the_task_and_its_labels_whatever_its_scores():
    other = dataclasses.replace(
        CLASSES, text_features=("s", "t"), metrics=("macro_f1",)
    )
    assert CLASSES.takes_head_of(other.to_dict())
    regression = dataclasses.replace(CLASSES, labels=(), metrics=("pearson",))
    assert regression.takes_head_of(regression.to_dict())
    for task in (
        dataclasses.replace(CLASSES, labels=("x", "z", "y")),
        dataclasses.replace(CLASSES, name="b"),
    ):
        assert CLASSES.takes_head_of(task.to_dict())
    # 0 and 1 mean nothing by themselves.
    numbers = dataclasses.replace(CLASSES, labels=("0", "1"))
    assert numbers.takes_head_of(numbers.to_dict())
    assert not numbers.takes_head_of(
        dataclasses.replace(numbers, name="b").to_dict()
    )
    for task in (
        dataclasses.replace(CLASSES, labels=("x", "y", "w")),
        regression,
        MultiLabelTask(name="a", text_features=("t",), labels=CLASSES.labels),
    ):
        assert not CLASSES.takes_head_of(task.to_dict())
        assert not task.takes_head_of(CLASSES.to_dict())


def test_a_loss_of_0_2_0_is_read():
    """The fields of retrieval had other names, which files keep."""
    config = RetrievalTask(symmetric=True).get_config()
    assert (config["is_symmetric"], config["corpus"]) == (True, ())
    own = config | {"is_normalized": False, "corpus": ["a"]}
    task = RetrievalTask.from_config(own)
    assert (task.normalize, task.symmetric) == (False, True)
    assert task.corpus_file == ("a",)
