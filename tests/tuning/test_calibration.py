"""`--calibrate`: what a run fits, keeps, reports and predicts with."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import SquadTask
from bert_tf import checkpoints
from bert_tf import tuning
from bert_tf.checkpoints import model_folder
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.kinds import opening
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig
from references import calibration as reference
from support import releases

WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
TOKENS = (*SPECIAL_TOKENS, *WORDS)
TASK = ClassificationTask(
    name="animals",
    text_features=("text",),
    labels=("cat", "dog", "hen"),
    metrics=("accuracy",),
)
TEST = {"text": ["red cat dog", "hen", ""]}


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    """A model's folder, texts, its logits of them, and labels they draw.

    The labels are drawn at the temperature 2: the model is too sure.
    """
    folder = tmp_path_factory.mktemp("untuned")
    model = BertClassifier(releases.tiny_config(len(TOKENS)), num_labels=3)
    generator = np.random.default_rng(5)
    for variable in model.trainable_variables:
        noise = generator.normal(size=variable.shape)
        variable.assign(variable.value + 0.7 * noise)
    checkpoints.save(
        folder,
        model,
        WordpieceSpec(Vocabulary(tokens=TOKENS)),
        12,
        task=TASK.to_dict(),
        label_names=TASK.labels,
    )
    texts = [" ".join(generator.choice(WORDS, size=4)) for _ in range(150)]
    preprocessor = Preprocessor.from_folder(folder)
    logits = np.asarray(model.predict(preprocessor(texts), verbose=0))
    noise = generator.gumbel(size=logits.shape)
    labels = (logits / 2 + noise).argmax(axis=1)
    assert {*labels} == {0, 1, 2}
    table = {"text": texts, "label": [TASK.labels[k] for k in labels]}
    return str(folder), table, logits, labels


def wanted_temperature(logits, labels):
    rows = logits.tolist()
    return reference.best_temperature(
        lambda temperature: reference.loss(rows, labels, temperature)
    )


def test_a_training_keeps_the_temperature_of_its_development_set(
    untuned, tmp_path, capsys
):
    folder, table, logits, labels = untuned
    output = tmp_path / "output"
    run = tuning.run(
        TASK,
        train={name: values[:8] for name, values in table.items()},
        dev=table,
        test=TEST,
        start=folder,
        output_dir=output,
        # The weights stay, and so do the logits.
        learning_rate=0.0,
        num_train_epochs=1.0,
        train_batch_size=8,
        eval_batch_size=50,
        max_seq_length=12,
        calibrate=True,
    )
    found = run.evaluate().answers["dev"]
    np.testing.assert_allclose(found, logits, atol=1e-5)
    wanted = wanted_temperature(logits, labels)
    assert 1.3 < wanted < 3
    task = json.loads((output / "task.json").read_text())
    np.testing.assert_allclose(task["temperature"], wanted, rtol=1e-4)
    assert run.task.temperature == task["temperature"]
    assert opening.open_folder(output).task == run.task

    # Labels and losses are those of the logits as they are.
    right = np.mean(logits.argmax(axis=1) == labels)
    assert run.results["eval_accuracy"] == right
    np.testing.assert_allclose(
        run.results["eval_loss"],
        reference.loss(logits.tolist(), labels, 1.0),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        run.results["eval_loss_calibrated"],
        reference.loss(logits.tolist(), labels, wanted),
        rtol=1e-5,
    )
    rows = [reference.probabilities(row, wanted) for row in logits.tolist()]
    answers = [
        (max(row), int(np.argmax(row) == label))
        for row, label in zip(rows, labels)
    ]
    np.testing.assert_allclose(
        run.results["eval_calibration_error"],
        reference.calibration_error(answers),
        atol=1e-3,
    )
    assert (
        run.results["eval_calibration_error"]
        < run.results["eval_calibration_error_uncalibrated"]
    )
    printed = capsys.readouterr().out
    assert f"temperature = {task['temperature']}\n" in printed
    report = (output / "report.md").read_text()
    assert "## Calibration\n\nThe temperature is fitted on this set (150" in (
        report
    )
    assert "| expected calibration error | 0." in report
    # What is predicted has it.
    predicted = np.loadtxt(output / "test_results.tsv")
    expected = [
        reference.probabilities(row, task["temperature"])
        for row in run.model.predict(
            Preprocessor.from_folder(output)(TEST["text"]), verbose=0
        ).tolist()
    ]
    np.testing.assert_allclose(predicted, expected, atol=1e-6)
    assert [answer["score"] for answer in run.answers["test"]] == (
        pytest.approx(predicted.max(axis=1).tolist())
    )


def test_a_tuned_model_is_calibrated_without_a_training(
    untuned, tmp_path, caplog
):
    folder, table, logits, labels = untuned
    output = tmp_path / "output"
    shutil.copytree(folder, output)
    weights = (output / "model.safetensors").read_bytes()
    settings = {"max_seq_length": 12, "eval_batch_size": 50}
    tuning.run(TASK, dev=table, output_dir=output, calibrate=True, **settings)
    assert (output / "model.safetensors").read_bytes() == weights
    stored = json.loads((output / "task.json").read_text())
    np.testing.assert_allclose(
        stored["temperature"], wanted_temperature(logits, labels), rtol=1e-4
    )
    assert stored["format_version"] == 2

    # Of another folder's model the results are here, and nothing is kept. The
    # first 40 examples tell no temperature: it is as that folder has it.
    few = {name: values[:40] for name, values in table.items()}
    run = tuning.run(
        TASK,
        dev=few,
        start=output,
        output_dir=tmp_path / "again",
        calibrate=True,
        **settings,
    )
    assert "fitted on the development set: it has 40" in caplog.text
    assert run.results["temperature"] == stored["temperature"]
    report = (tmp_path / "again" / "report.md").read_text()
    assert "**No temperature can be fitted on this set: it has 40" in report
    assert not (tmp_path / "again" / "task.json").exists()


@pytest.mark.slow
def test_a_training_that_had_ended_does_not_lose_it_silently(
    untuned, tmp_path, caplog
):
    folder, table, _, _ = untuned

    def run(calibrate):
        return tuning.run(
            TASK,
            train={name: values[:8] for name, values in table.items()},
            dev=table,
            start=folder,
            output_dir=tmp_path,
            learning_rate=0.0,
            num_train_epochs=2.0,
            train_batch_size=8,
            max_seq_length=12,
            keep_best=True,
            calibrate=calibrate,
        )

    def stored():
        values = json.loads((tmp_path / "task.json").read_text())
        return values.get("temperature", 1.0)

    temperature = run(calibrate=True).task.temperature
    assert temperature == stored() > 1.3
    # The second epoch is as good: the first one's weights stay.
    again = run(calibrate=False)
    assert again.task.temperature == temperature == stored()
    assert "which is not kept" not in caplog.text
    # As where others are written.
    model_folder.write_task(str(tmp_path), TASK.to_dict())
    again._take_temperature(temperature)
    assert again.task.temperature == 1.0
    assert "which is not kept. --calibrate fits it again" in caplog.text
    model_folder.write_task(
        str(tmp_path), TASK.to_dict() | {"temperature": None}
    )
    with pytest.raises(ValueError, match="task.json: `temperature` must be a"):
        again._take_temperature(temperature)


@pytest.mark.parametrize(
    ("task", "received"),
    [
        (SquadTask(), "'squad'"),
        (
            ClassificationTask(
                name="sts", text_features=("text",), metrics=("pearson",)
            ),
            "'regression'",
        ),
    ],
)
def test_what_has_no_probabilities_is_refused(task, received, tmp_path):
    config = FineTuningConfig(
        output_dir=str(tmp_path), do_eval=True, do_train=True, calibrate=True
    )
    message = (
        "^--calibrate must be given with a classification, several labels or "
        "a multiple choice. Received: --calibrate=true with a task of the kind "
        f"{received}.$"
    )
    with pytest.raises(ValueError, match=message):
        tuning_run.Run(config, task, {}, tf.distribute.get_strategy())
