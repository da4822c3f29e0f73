"""Temperatures and calibration errors, beside loops; tasks that have one."""

import json

import numpy as np
import pytest

from bert_tf import ClassificationTask
from bert_tf import MultiLabelTask
from bert_tf import MultipleChoiceTask
from bert_tf import RerankingTask
from bert_tf.checkpoints import model_folder
from bert_tf.tasks import calibration
from references import calibration as reference

TASKS = {
    "softmax": ClassificationTask(
        name="t", text_features=("text",), labels=("a", "b"), metrics=("f1",)
    ),
    "sigmoid": MultiLabelTask(
        name="t", text_features=("text",), labels=("a", "b")
    ),
    "choice": MultipleChoiceTask(num_choices=2),
}


def make_logits(scale, seed=3, shape=(150, 3)):
    """Logits that are too large by a scale, and labels that they draw."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=shape) * 1.5
    noise = generator.gumbel(size=shape)
    return np.float32(logits * scale), (logits + noise).argmax(axis=1)


def make_binary(scale):
    generator = np.random.default_rng(4)
    logits = generator.normal(size=(60, 3)) * 2
    labels = generator.random(logits.shape) < 1 / (1 + np.exp(-logits))
    return np.float32(logits * scale), labels.astype(np.int32)


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0])
def test_the_temperature_is_that_of_the_least_loss(scale):
    logits, labels = make_logits(scale)
    found = calibration.fit_temperature(logits, labels)
    # As many digits as a flat minimum tells.
    wanted = reference.best_temperature(
        lambda t: reference.loss(logits.tolist(), labels, t)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    # Logits of another scale have the temperature of that scale, exactly.
    others = calibration.fit_temperature(1.5 * logits, labels)
    np.testing.assert_allclose(others, 1.5 * found, rtol=1e-6)
    # The same is added to all logits of a row: no probability is another.
    shifted = np.float64(logits) + 1000.0 * np.arange(len(logits))[:, None]
    moved = calibration.fit_temperature(shifted, labels)
    np.testing.assert_allclose(moved, found, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_several_labels_have_one_temperature(scale):
    logits, labels = make_binary(scale)
    found = calibration.fit_temperature(logits, labels)
    wanted = reference.best_temperature(
        lambda t: reference.binary_loss(logits.tolist(), labels.tolist(), t)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_error_and_the_loss_are_the_loops(temperature):
    logits, labels = make_logits(3.0)
    found = calibration.measure(logits, labels, temperature)
    rows = [
        reference.probabilities(row, temperature) for row in logits.tolist()
    ]
    answers = [
        (max(row), int(np.argmax(row) == label))
        for row, label in zip(rows, labels)
    ]
    np.testing.assert_allclose(
        found.error, reference.calibration_error(answers), atol=1e-12
    )
    np.testing.assert_allclose(
        found.loss,
        reference.loss(logits.tolist(), labels, temperature),
        rtol=1e-9,
    )
    assert found.counts.sum() == len(labels)

    logits, labels = make_binary(3.0)
    found = calibration.measure(logits, labels, temperature)
    answers = [
        (reference.probabilities([0.0, logit], temperature)[1], int(label))
        for logit, label in zip(logits.ravel().tolist(), labels.ravel())
    ]
    np.testing.assert_allclose(
        found.error, reference.calibration_error(answers), atol=1e-12
    )
    np.testing.assert_allclose(
        found.loss,
        reference.binary_loss(logits.tolist(), labels.tolist(), temperature),
    )


def test_a_calibrated_set_has_a_smaller_error():
    logits, labels = make_logits(4.0, shape=(600, 3))
    temperature = calibration.fit_temperature(logits, labels)
    before = calibration.measure(logits, labels)
    after = calibration.measure(logits, labels, temperature)
    assert before.error > 3 * after.error
    assert before.loss > after.loss


def test_bins_are_without_their_lower_ends():
    # Probabilities of 3/5 and 1, the upper ends of the bins 9 and 15.
    logits = np.log([[0.6, 0.4], [1.0, 1e-300]])
    found = calibration.measure(logits, np.array([1, 0]))
    assert found.counts[8:].tolist() == [1, 0, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(found.error, 0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("few", "it has 49 examples, and at least 50 are needed"),
        ("one_class", "all of its labels are the same"),
        ("right", "its answers are right, .* is below 0.05"),
        # Many are wrong, of a model that has hardly been trained.
        ("unsure", "right far more often than their probabilities say"),
        ("wrong", "no better than chance: .* is above 20"),
        ("flat", "no better than chance: .* is above 20"),
        ("nan", "some of its logits are not finite"),
    ],
)
@pytest.mark.parametrize("is_binary", [False, True])
def test_what_tells_no_temperature(change, message, is_binary):
    logits, labels = make_binary(1.0) if is_binary else make_logits(1.0)
    if change == "few":
        logits, labels = logits[:49], labels[:49]
    elif change == "one_class":
        labels = np.ones_like(labels)
    elif change == "flat":
        logits = np.zeros_like(logits)
    elif change == "unsure":
        logits = logits / 100
    elif change == "nan":
        logits[7, 1] = np.nan
    elif is_binary:
        labels = np.int32((logits > 0) == (change == "right"))
    else:
        choose = np.argmax if change == "right" else np.argmin
        labels = choose(logits, axis=1)
    with pytest.raises(calibration.CalibrationError, match=message):
        calibration.fit_temperature(logits, labels)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_its_temperature_in_its_file_where_it_is_not_1(
    name, tmp_path
):
    task = TASKS[name]
    assert "temperature" not in task.to_dict()
    warm = task.with_temperature(2.0)
    assert warm.to_dict() == task.to_dict() | {"temperature": 2.0}
    for each in (task, warm):
        assert type(task).from_dict(each.to_dict()) == each
        assert type(task).from_config(each.get_config()) == each
    # Earlier releases read what has none, and refuse what has one by name.
    path = tmp_path / "task.json"
    for each, version in ((task, 1), (warm, 2)):
        model_folder.write_task(str(tmp_path), each.to_dict())
        assert json.loads(path.read_text())["format_version"] == version
        assert model_folder.read_task(tmp_path) == each.to_dict()
    logits = np.float32([[2.0, -1.0], [0.5, 3.0]])
    cold, found = task.decode_tensors(logits), warm.decode_tensors(logits)
    halves = task.decode_tensors(logits / 2)
    np.testing.assert_array_equal(
        found["probabilities"], halves["probabilities"]
    )
    for key in found.keys() - {"probabilities"}:
        np.testing.assert_array_equal(found[key], cold[key])


@pytest.mark.parametrize(
    "logits",
    [np.zeros((2, 3), "float32"), np.zeros(2, "float32"), [[1.0, 2.0]], None],
)
def test_what_are_no_logits_of_the_task(logits):
    """Of three, two classes had three probabilities."""
    for task in (TASKS["softmax"], TASKS["sigmoid"], RerankingTask()):
        with pytest.raises(ValueError, match=r"`logits` must .* \[B, [12]\]"):
            task.decode(logits)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "2"])
def test_what_is_no_temperature(value):
    for task in TASKS.values():
        with pytest.raises(ValueError, match="`temperature` must be a posit"):
            task.with_temperature(value)
        values = task.to_dict() | {"temperature": value}
        with pytest.raises(ValueError, match="`temperature` must be a posit"):
            type(task).from_dict(values)


def test_a_regression_has_none():
    with pytest.raises(ValueError, match="`temperature` must be 1 for a regr"):
        ClassificationTask(
            name="t",
            text_features=("text",),
            metrics=("pearson",),
            temperature=2.0,
        )
