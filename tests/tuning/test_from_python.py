"""`tuning.run`: data in all their forms, and the same as the program."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pandas
import pyarrow
import pytest
import tensorflow as tf
from absl import logging
from pyarrow import parquet

import bert_tf
from bert_tf import checkpoints
from bert_tf import tuning
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks import columns
from bert_tf.tasks import tsv
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.tuning import callbacks
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig
from references import glue as reference
from support import releases

WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
TOKENS = (*SPECIAL_TOKENS, *WORDS)
CONFIG = releases.tiny_config(len(TOKENS))
TEAMS = ("it", "law", "sales")
TASK = ClassificationTask(
    name="tsv",
    text_features=("subject",),
    labels=TEAMS,
    metrics=("accuracy",),
)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """An architecture and a vocabulary, as `FineTuningConfig` takes them."""
    folder = tmp_path_factory.mktemp("release")
    return {
        **releases.write(folder, TOKENS),
        "max_seq_length": 12,
        "train_batch_size": 4,
        "num_train_epochs": 2.0,
        # A line a step, whatever the clock asks for.
        "iterations_per_loop": 1,
    }


def make_table(count, seed):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=4)) for _ in range(count)]
    return {
        "subject": texts,
        "label": [TEAMS[index % 3] for index in range(count)],
    }


def write(path, table):
    rows = list(zip(*table.values()))
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(table, row))) for row in rows]
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(table), path)
        return path
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        lines = [separator.join(row) for row in [table, *rows]]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_files_are_read_by_their_names(tmp_path, suffix):
    table = make_table(5, seed=1)
    path = write(tmp_path / f"train{suffix}", table)
    examples = TASK.read(path, "train")
    assert examples.texts == (table["subject"],)
    assert examples.labels.tolist() == [0, 1, 2, 0, 1]
    assert TASK.read(str(path), "test").labels is None
    rows = list(columns.read(path, ["label", "subject"]))
    assert rows[1] == (rows[1][0], ("law", table["subject"][1]))
    assert rows[1][0].startswith(str(path))


def test_tables_in_memory_are_read():
    table = make_table(5, seed=1)
    data_set = tf.data.Dataset.from_tensor_slices(table)
    for data in (table, data_set):
        examples = TASK.read(data, "train")
        assert examples.texts == (table["subject"],)
        assert examples.labels.tolist() == [0, 1, 2, 0, 1]
    numbers = table | {"label": np.int64([2, 0, 1, 1, 0])}
    assert TASK.read(numbers, "train").labels.tolist() == [2, 0, 1, 1, 0]
    # A number that is a class's name is that.
    task = ClassificationTask(
        name="a", text_features=("subject",), labels=("1", "0"), metrics=("f1",)
    )
    numbers = table | {"label": [1, 0, 0, 1, 1]}
    assert task.read(numbers, "train").labels.tolist() == [0, 1, 1, 0, 0]
    # So it is with all numbers, or none: 0 is no class here.
    stars = dataclasses.replace(task, labels=("1", "2", "3", "4", "5"))
    with pytest.raises(ValueError, match="row 1: the label must be one of 1,"):
        stars.read(table | {"label": [0, 1, 2, 3, 4]}, "train")
    numbers = table | {"label": [1, 2, 3, 4, 5]}
    assert stars.read(numbers, "train").labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["dict", ".tsv", ".jsonl"])
def test_classes_have_synonyms_in_every_table(tmp_path, form):
    task = dataclasses.replace(
        glue_files.glue_task("MRPC").task, text_features=("subject",)
    )
    table = make_table(3, seed=1) | {
        "label": ["equivalent", "not_equivalent", "1"]
    }
    if form != "dict":
        table = write(tmp_path / f"train{form}", table)
    assert task.read(table, "train").labels.tolist() == [1, 0, 1]
    # A name before a synonym.
    task = dataclasses.replace(task, label_synonyms=("1", "0"))
    table = {"subject": ["a", "b"], "label": ["0", 1]}
    assert task.read(table, "train").labels.tolist() == [0, 1]


@pytest.mark.parametrize("value", [None, float("nan"), 1.0, ["x"]])
def test_a_label_that_is_missing_is_no_class(value):
    task = dataclasses.replace(TASK, labels=("None", "nan", "1.0", "x"))
    table = {"subject": ["a", "b"], "label": ["x", value]}
    with pytest.raises(ValueError, match="row 2: the label must be a name or"):
        task.read(table, "train")


@pytest.mark.parametrize(
    ("values", "labels", "ids"),
    [
        (["law", "it", " law"], ("it", "law"), [1, 0, 1]),
        ([10, 9, 10], ("9", "10"), [1, 0, 1]),
        (["10", "9", "-1"], ("-1", "9", "10"), [2, 1, 0]),
        ([True, False, True], ("0", "1"), [1, 0, 1]),
        (np.array([2, 0, 1]), ("0", "1", "2"), [2, 0, 1]),
        (["10", "9", "x"], ("10", "9", "x"), [0, 1, 2]),
    ],
)
def test_classes_are_found_in_the_data(caplog, values, labels, ids):
    table = {"text": ["a", "b", "c"], "label": values}
    task = ClassificationTask(name="a", text_features=("text",))
    with caplog.at_level("INFO", logger="absl"):
        found, examples = task.read_training(table)
    assert (found.labels, found.metrics) == (labels, ("accuracy",))
    assert examples.labels.tolist() == ids
    assert f"the data: found the labels {', '.join(labels)}." in caplog.text
    # Given ones stay, and so does their order.
    given = dataclasses.replace(found, labels=labels[::-1])
    assert given.read_training(table)[0] == given


def test_scores_are_no_classes():
    task = ClassificationTask(name="a", text_features=("text",))
    table = {"text": ["a", "b"], "label": [0.5, 1.5]}
    with pytest.raises(ValueError, match="1: .* give regression=True. .*: 0.5"):
        task.read_training(table)
    regression = dataclasses.replace(task, metrics=(), regression=True)
    assert regression.metrics == ("pearson", "spearman")
    assert regression.kind == "regression"
    found, examples = regression.read_training(table)
    assert found == regression == ClassificationTask.from_dict(found.to_dict())
    assert examples.labels.tolist() == [0.5, 1.5]
    with pytest.raises(ValueError, match="`labels` must not be given for a"):
        dataclasses.replace(regression, labels=("a", "b"))


@pytest.mark.parametrize(
    "task",
    [
        ClassificationTask(name="a", text_features=("text",)),
        MultiLabelTask(name="a", text_features=("text",)),
        TaggingTask(),
    ],
)
def test_a_task_whose_labels_are_not_known_makes_no_model(task):
    assert task.lacks_labels
    with pytest.raises(ValueError, match="`labels` must be given here"):
        task.make_model(CONFIG)
    with pytest.raises(ValueError, match="must be a"):
        type(task).from_dict(task.to_dict() | {"labels": [0]})
    with pytest.raises(ValueError, match="`labels` must be"):
        type(task).from_dict(task.to_dict())


def test_several_labels_and_tags_are_found_in_the_data():
    task = MultiLabelTask(name="a", text_features=("text",))
    table = {"text": ["a", "b", "c"], "labels": ["y|x", "", "x | z"]}
    found, examples = task.read_training(table)
    assert found.labels == ("x", "y", "z")
    assert examples.labels.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 1]]
    with pytest.raises(ValueError, match="the data: no example has a label"):
        task.read_training(table | {"labels": [[], [], []]})

    table = {
        "words": [["a", "b"], ["c", "d", "e"]],
        "tags": [["O", "S-PER"], ["B-LOC", "E-LOC", "O"]],
    }
    found, examples = TaggingTask().read_training(table)
    assert (found.scheme, found.labels[:2]) == ("bioes", ("O", "B-LOC"))
    assert set(examples.tags) < set(found.labels)
    assert TaggingTask(labels=found.labels) == found
    bio = ("O", "B-X", "I-X")
    assert TaggingTask(labels=bio).scheme == "bio"
    with pytest.raises(ValueError, match="the data: there is no entity in it"):
        TaggingTask().read_training({"words": [["a"]], "tags": [["O"]]})


def test_a_run_finds_the_classes_and_an_evaluation_takes_the_folders(
    tmp_path, release
):
    task = ClassificationTask(name="tsv", text_features=("subject",))
    run = tuning.run(
        task,
        train=make_table(8, seed=1),
        dev=make_table(6, seed=2),
        output_dir=tmp_path / "tuned",
        **release,
    )
    assert run.task == TASK
    again = tuning.run(
        task,
        dev=make_table(6, seed=2),
        output_dir=tmp_path / "again",
        start=tmp_path / "tuned",
        max_seq_length=12,
    )
    assert again.task == TASK
    assert again.results == run.results
    # transformers' folder names them in config.json.
    (tmp_path / "tuned/task.json").unlink()
    foreign = tuning.run(
        task,
        dev=make_table(6, seed=2),
        output_dir=tmp_path / "foreign",
        start=tmp_path / "tuned",
        max_seq_length=12,
    )
    assert foreign.task == TASK


def test_a_data_frame_is_a_table():
    table = make_table(5, seed=1)
    examples = TASK.read(pandas.DataFrame(table), "train")
    assert examples.texts == (table["subject"],)
    assert examples.labels.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("train.txt", "must end with .csv, .tsv, .jsonl or .parquet"),
        ({"subject": ["a"]}, "must have a column 'label'"),
        ([("a", "it")], "must be a path, a DataFrame, .* Received: list"),
        (
            {"subject": [3], "label": ["it"]},
            "row 1: `subject` must be a",
        ),
        ({"subject": ["a"], "label": ["hr"]}, "row 1: the label must be one"),
        ({"subject": ["a"], "label": [3]}, "row 1: the label must be one"),
        ({"subject": {"a", "b"}, "label": ["it", "it"]}, "'subject' must be a"),
        ({"subject": {"a": "b"}, "label": ["it"]}, "'subject' must be a list"),
        ({"subject": [], "label": []}, "no examples"),
        (
            pandas.DataFrame(
                [["a", "it", "law"]], columns=["subject", "label", "label"]
            ),
            "must have a column 'label', once",
        ),
        (
            tf.data.Dataset.from_tensor_slices(
                {"subject": ["a"], "label": ["it"]}
            ).repeat(),
            "must have an end",
        ),
        (
            tf.data.Dataset.from_tensor_slices(
                {"subject": ["a", b"\xff"], "label": ["it", "it"]}
            ),
            "row 2: is not UTF-8",
        ),
        (
            {"subject": ["a", "half \ud800"], "label": ["it", "it"]},
            "row 2: is not UTF-8",
        ),
        (
            tf.data.Dataset.from_tensor_slices({"text": ["a"]}),
            "row 1: must be an object with subject, label",
        ),
    ],
)
def test_bad_data_are_told(data, message):
    with pytest.raises(ValueError, match=message):
        TASK.read(data, "train")


# Full batches of training examples, as the program has other steps for a last
# batch that is smaller.
TABLES = {
    split: make_table(8 if split == "train" else 9, seed)
    for seed, split in enumerate(("train", "dev", "test"))
}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, release):
    """The folder of a run over `TABLES`."""
    folder = tmp_path_factory.mktemp("tuned")
    tuning.run(TASK, **TABLES, output_dir=folder, **release)
    return folder


def test_it_does_what_the_program_does(tmp_path, release, tuned, run_program):
    data, output = tmp_path / "data", tmp_path / "python"
    data.mkdir()
    paths = {
        split: write(data / f"{split}.csv", table)
        for split, table in TABLES.items()
    }
    run_program(
        "bert_tf.run_classifier",
        "--task_name=tsv",
        "--text_columns=subject",
        "--label_column=label",
        f"--data_dir={data}",
        f"--output_dir={tmp_path / 'program'}",
        *(f"--{name}={value}" for name, value in release.items()),
        "--do_train",
        "--do_eval",
        "--do_predict",
    )

    def assert_equal_files():
        for name in (
            "config.json",
            "model.safetensors",
            "task.json",
            "vocab.txt",
            "eval_results.txt",
            "test_results.tsv",
            "train/epochs.json",
        ):
            theirs = (tmp_path / "program" / name).read_bytes()
            assert (output / name).read_bytes() == theirs, name
        assert (output / "report.md").exists()

    shutil.copytree(tuned, output)
    assert_equal_files()
    # The second time it is over, and all is as it was.
    run = tuning.run(TASK, **paths, output_dir=output, **release)
    assert_equal_files()
    answers = run.answers["test"]
    shares = np.loadtxt(output / "test_results.tsv")
    assert shares.shape == (9, 3)
    assert answers == [
        {"label": TEAMS[row.argmax()], "score": pytest.approx(row.max())}
        for row in shares
    ]
    inputs = Preprocessor.from_folder(output, 12)(TABLES["test"]["subject"])
    assert run.task.decode(run.model.predict(inputs)) == [
        answer | {"score": pytest.approx(answer["score"], abs=1e-5)}
        for answer in answers
    ]
    assert f"eval_loss = {run.results['eval_loss']}\n" in (
        output / "eval_results.txt"
    ).read_text("utf-8")


def test_the_last_batch_of_an_epoch_is_trained_and_a_run_goes_on_as_begun(
    tmp_path, release, caplog
):
    logging.set_verbosity(logging.INFO)
    options = release | {"train_batch_size": 16}
    train, dev = make_table(24, seed=1), make_table(6, seed=2)

    def tune(folder, num_epochs):
        run = tuning.run(
            TASK,
            train=train,
            dev=dev,
            output_dir=folder,
            **options | {"num_train_epochs": num_epochs},
        )
        record = json.loads((folder / "train/epochs.json").read_text())
        steps = [results["global_step"] for results in record["evaluations"]]
        assert run.results["global_step"] == steps[-1]
        return steps

    with caplog.at_level("INFO"):
        assert tune(tmp_path / "python", 2.0) == [2, 4]
    assert "24 examples, 24 an epoch, 4 steps of 16" in caplog.text
    # Google's: int(24 / 16 * 2). Batches run on from epoch to epoch.
    config = FineTuningConfig(
        output_dir=str(tmp_path / "program"),
        do_train=True,
        do_eval=True,
        **options,
    )
    examples = {
        "train": TASK.read(train, "train"),
        "dev": TASK.read(dev, "dev"),
    }
    program = tuning_run.Run(
        config, TASK, examples, tf.distribute.get_strategy()
    )
    program.tune()
    assert program.results["global_step"] == 3
    with caplog.at_level("INFO"):
        assert tune(tmp_path / "program", 4.0) == [1, 3, 4, 6]
    assert "goes on with as many steps an epoch as it was" in caplog.text


class Seen(keras.callbacks.Callback):
    """Notes what is called."""

    def __init__(self):
        super().__init__()
        self.calls, self.logs = [], []

    def on_train_begin(self, logs=None):
        self.calls.append(("begin", self.params["epochs"]))

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(epoch)
        self.logs.append(logs)

    def on_train_end(self, logs=None):
        self.calls.append(("end", int(self.model.optimizer.iterations)))


def test_callbacks_see_epochs_and_may_stop_the_training(tmp_path, release):
    def tune():
        seen = Seen()
        run = tuning.run(
            TASK,
            train=make_table(9, seed=1),
            dev=make_table(6, seed=2),
            output_dir=tmp_path,
            callbacks=[
                seen,
                # What the second epoch gains is too little.
                keras.callbacks.EarlyStopping(
                    "val_accuracy", min_delta=2, patience=1, mode="max"
                ),
            ],
            **release | {"num_train_epochs": 4.0},
        )
        return run, seen

    run, seen = tune()
    assert run.results["global_step"] == 6
    assert seen.calls == [("begin", 4), 0, 0, 1, 1, ("end", 6)]
    record = json.loads((tmp_path / "train/epochs.json").read_text())
    assert [report["step"] for report in record["training"]] == [*range(1, 7)]
    for epoch, logs in enumerate(seen.logs):
        reports = record["training"][3 * epoch : 3 * epoch + 3]
        for name in ("loss", "accuracy"):
            mean = np.mean([report[name] for report in reports])
            assert logs[name] == pytest.approx(mean)
        found = record["evaluations"][epoch]
        for name in ("loss", "accuracy"):
            assert logs[f"val_{name}"] == found[f"eval_{name}"]
    weights = run.model.get_weights()

    # It stays stopped.
    run, seen = tune()
    assert run.results["global_step"] == 6
    assert seen.calls == [("begin", 4), 1, 1, ("end", 6)]
    for ours, theirs in zip(run.model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_stopped_training_without_a_dev_set_stays_stopped(tmp_path, release):
    """Without callbacks, it went on to its end."""

    def tune(*callbacks):
        run = tuning.run(
            TASK,
            train=make_table(9, seed=1),
            output_dir=tmp_path,
            callbacks=callbacks,
            **release | {"num_train_epochs": 4.0},
        )
        return run.model.get_weights()

    # The loss falls by less.
    stopped = tune(keras.callbacks.EarlyStopping("loss", min_delta=9))
    for ours, theirs in zip(tune(), stopped, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (keras.callbacks.TerminateOnNaN(), "not on_batch_end.*: TerminateOn"),
        (keras.callbacks.TensorBoard(), "on_train_batch_end.*: TensorBoard"),
        (keras.callbacks.ReduceLROnPlateau(), "follows its schedule"),
        (
            keras.callbacks.LambdaCallback(on_train_batch_end=print),
            "not on_train_batch_end",
        ),
        (
            keras.callbacks.EarlyStopping(restore_best_weights=True),
            "`keep_best=True` replaces restore_best_weights",
        ),
        (
            keras.callbacks.EarlyStopping("val_accuracy"),
            "monitor='val_accuracy' needs mode='max' or mode='min'",
        ),
        (print, "must be Keras callbacks"),
    ],
)
def test_callbacks_that_cannot_work_are_refused(callback, message):
    allowed = keras.callbacks.LambdaCallback(on_epoch_end=print)
    callbacks.check([allowed, keras.callbacks.CSVLogger("a.csv")])
    with pytest.raises(ValueError, match=message):
        callbacks.check([allowed, callback])


def test_what_a_user_saved_there_is_not_replaced(tmp_path, release, tuned):
    folder = shutil.copytree(tuned, tmp_path / "output")
    model, preprocessor, task = bert_tf.load(folder)
    # Refused, it is not noted.
    with pytest.raises(ValueError, match="`task` must be given"):
        bert_tf.save(folder, model, preprocessor)
    tuning.run(TASK, **TABLES, output_dir=folder, **release)

    for weight in model.trainable_weights:
        weight.assign(weight + 1.0)
    bert_tf.save(folder, model, preprocessor, task)
    saved = (folder / "model.safetensors").read_bytes()
    with pytest.raises(
        ValueError,
        match=f"{folder} holds a model that was saved there after the "
        "training. .* remove .*/train/model_saved.txt to resume",
    ):
        tuning.run(TASK, **TABLES, output_dir=folder, **release)
    assert (folder / "model.safetensors").read_bytes() == saved
    # It may be evaluated, and saved again.
    run = tuning.run(
        TASK, dev=TABLES["dev"], output_dir=folder, max_seq_length=12
    )
    np.testing.assert_array_equal(
        run.model.get_weights()[0], model.get_weights()[0]
    )
    bert_tf.save(folder, model, preprocessor, task)

    (folder / "train/model_saved.txt").unlink()
    tuning.run(TASK, **TABLES, output_dir=folder, **release)
    assert (folder / "model.safetensors").read_bytes() == (
        tuned / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_a_folder_that_cannot_be_written_is_told_first(
    tmp_path, monkeypatch, tuned, name
):
    """Evaluations and predictions write only at their end."""

    def begin(self, *others):
        pytest.fail("The work has begun.")

    path = tmp_path / "file"
    path.write_text("mine", "utf-8")
    monkeypatch.setattr(tuning_run.Run, "__init__", begin)
    with pytest.raises(ValueError, match="output must be a folder, but a file"):
        tuning.run(
            TASK,
            **{name: make_table(6, seed=1)},
            start=tuned,
            output_dir=path / "output",
        )


def test_any_score_tells_the_best_epoch(tmp_path, release, caplog):
    run = tuning.run(
        TASK,
        train=make_table(9, seed=1),
        dev=make_table(9, seed=2),
        # The same, so that the answers give the scores once more.
        test=make_table(9, seed=2),
        output_dir=tmp_path / "output",
        metrics=("macro_f1", "auc", "f1_sales"),
        keep_best=True,
        **release,
    )
    assert "nothing was trained" not in caplog.text
    # Of our lines and none of TensorFlow's, of sharded checkpoints.
    assert "Saved " in caplog.text
    assert "Sharding" not in caplog.text
    record = json.loads((tmp_path / "output/train/epochs.json").read_text())
    scores = [epoch["eval_macro_f1"] for epoch in record["evaluations"]]
    assert run.results["eval_macro_f1"] == max(scores)
    card = (tmp_path / "output" / "README.md").read_text()
    assert f"\n- `steps`: {run.results['global_step']}\n" in card
    assert f"\n- `eval_macro_f1`: {max(scores):.4g}\n" in card
    labels = np.array([answer["label"] for answer in run.answers["test"]])
    found = labels == "sales"
    wanted = np.arange(9) % 3 == TEAMS.index("sales")
    assert run.results["eval_f1_sales"] == pytest.approx(
        reference.f1(found, wanted)
    )
    assert 0 < run.results["eval_auc"] < 1
    task = json.loads((tmp_path / "output" / "task.json").read_text())
    assert task["metrics"] == ["macro_f1", "auc", "f1_sales"]
    # Scores on other examples are not compared with these.
    with pytest.raises(ValueError, match="begun .*: dev_examples_sha256 was"):
        tuning.run(
            run.task,
            train=make_table(9, seed=1),
            dev=make_table(9, seed=3),
            output_dir=tmp_path / "output",
            keep_best=True,
            **release,
        )
    with pytest.raises(ValueError, match="--keep_best was True and is False"):
        tuning.run(
            run.task,
            train=make_table(9, seed=1),
            output_dir=tmp_path / "output",
            **release,
        )


def test_texts_with_several_labels(tmp_path, release):
    task = MultiLabelTask(
        name="animals", text_features=("text",), labels=("cat", "red", "cow")
    )
    assert MultiLabelTask.from_dict(task.to_dict()) == task
    texts = make_table(512, seed=3)["subject"]
    labels = [
        "|".join(name for name in task.labels if name in text.split())
        for text in texts
    ]
    output = tmp_path / "output"
    tuning.run(
        task,
        train=write(tmp_path / "train.tsv", {"text": texts, "labels": labels}),
        test={"text": ["red cat dog", "hen hen"]},
        output_dir=output,
        **release
        | {
            "num_train_epochs": 8.0,
            "learning_rate": 1e-2,
            "train_batch_size": 16,
        },
    )
    predictions = (output / "test_results.tsv").read_text()
    header, *rows = predictions.splitlines()
    assert header == "cat\tred\tcow"
    assert np.float32(rows[0].split("\t")).argmin() == 2
    # As transformers takes several labels from one.
    config = json.loads((output / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    logits = np.float32([[2.0, -1.0, 0.5], [-2.0, -1.0, -0.5]])
    answers = task.decode(logits)
    assert [[each["label"] for each in row] for row in answers] == [
        ["cat", "cow"],
        [],
    ]
    assert answers[0][0]["score"] == pytest.approx(1 / (1 + np.exp(-2)))
    assert [len(row) for row in task.decode(logits, top_k=2)] == [2, 2]

    # Without training, by the folder alone.
    run = tuning.run(
        task,
        dev={"text": texts, "labels": [names.split("|") for names in labels]},
        output_dir=tmp_path / "again",
        start=output,
        metrics=("macro_f1", "micro_f1", "subset_accuracy", "auc"),
        max_seq_length=12,
        eval_batch_size=64,
    )
    assert run.results["eval_auc"] > 0.8
    assert run.results["eval_macro_f1"] > 0.7
    report = (tmp_path / "again" / "report.md").read_text()
    assert "| cow | " in report
    # A folder that is read alone is not written.
    assert not (tmp_path / "again" / "README.md").exists()
    assert "not been evaluated." in (output / "README.md").read_text()


def test_losses_of_labels_by_hand():
    task = MultiLabelTask(name="a", text_features=("b",), labels=("x", "y"))
    logits = np.float32([[1, -2], [0, 3], [-1, 0.5]])
    labels = np.int32([[1, 0], [1, 1], [0, 0]])
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    losses = -np.where(labels == 1, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(task.losses(logits, labels), losses, rtol=1e-5)
    assert float(task.loss()(labels, logits)) == pytest.approx(losses.mean())
    batch = {"labels": labels, "example_weights": np.float32([1, 1, 0])}
    objective = task.objective()
    assert float(objective.weights(batch)["loss"]) == 4
    assert float(objective.losses(logits, batch)["loss"]) == pytest.approx(
        losses[:2].sum(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ("a|b",)}, "`labels` must be names without"),
        ({"metrics": ("f1",)}, "`metrics` must be among micro_f1"),
        ({"name": ""}, "`name` must be a non-empty string"),
    ],
)
def test_bad_tasks_of_several_labels(change, message):
    values = {"name": "a", "text_features": ("b",), "labels": ("x", "y")}
    with pytest.raises(ValueError, match=message):
        MultiLabelTask(**values | change)


@pytest.mark.parametrize(
    "value", [None, float("nan"), 3, [0, 1, 1], np.int64([1, 0, 1]), ["0", 1]]
)
def test_labels_that_are_no_names_are_told(value):
    task = MultiLabelTask(name="a", text_features=("b",), labels=tuple("012"))
    table = {"b": ["x", "y"], "labels": [["2"], value]}
    with pytest.raises(ValueError, match="row 2: the labels must be a list"):
        task.read(table, "train")
    table["labels"] = [["2", "0"], []]
    labels = task.read(table, "train").labels
    assert labels.tolist() == [[1, 0, 1], [0, 0, 0]]


def test_area_leaves_out_labels_that_all_have_or_none():
    task = MultiLabelTask(
        name="a", text_features=("b",), labels=tuple("xyz"), metrics=("auc",)
    )
    labels = np.int32([[1, 0, 1], [0, 0, 1], [0, 0, 1]])
    logits = np.float32([[2, 1, 0], [3, 1, 0], [1, 1, 0]])
    assert task.scores(logits, labels) == {"auc": 0.5}
    assert task.scores(logits[:1], labels[:1]) == {"auc": 0.0}
    examples = tsv.Examples(texts=([*"def"],), labels=labels)
    report = dict(task.report_sections(examples, logits, {}))["Labels"]
    assert report.splitlines()[2:] == [
        "| x | 1 | 3 | 0.5 | 0.5 |",
        "| y | 0 | 3 | 0 | - |",
        "| z | 3 | 0 | 0 | - |",
    ]


def test_questions_without_answers_are_no_development_set(tmp_path):
    paragraph = {"context": "red cat", "qas": [{"id": "a", "question": "b"}]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    with pytest.raises(ValueError, match="has questions without answers"):
        SquadTask().read(path, "dev")
    assert SquadTask().read(path, "test").answers is None


def test_questions_that_have_no_answer_are_of_squad_2_0(tmp_path):
    questions = [
        {
            "id": "a",
            "question": "b",
            "answers": [{"text": "red", "answer_start": 0}],
        },
        {"id": "c", "question": "d", "answers": [], "is_impossible": True},
    ]
    paragraph = {"context": "red cat", "qas": questions}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    with pytest.raises(
        ValueError,
        match="dev.json: 1 of 2 questions have no answer; the first .*'c'.*"
        "--version_2_with_negative must be given",
    ):
        SquadTask().read(path, "dev")
    assert SquadTask().read(path, "test").answers == (("red",), ())
    task = SquadTask(version_2_with_negative=True)
    assert task.read(path, "dev").answers == (("red",), ())


def test_no_threshold_is_tuned_where_every_question_has_an_answer():
    with pytest.raises(ValueError, match="--tune_null_threshold must be"):
        SquadTask(tune_null_threshold=True)


def test_other_columns_of_a_parquet_file_are_not_read(tmp_path, monkeypatch):
    table = make_table(5, seed=1)
    path = write(tmp_path / "a.parquet", table | {"other": [b"x"] * 5})
    iter_batches, columns_read = parquet.ParquetFile.iter_batches, []

    def noting_batches(file, *arguments, columns=None):
        columns_read.append(columns)
        return iter_batches(file, *arguments, columns=columns)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", noting_batches)
    assert TASK.read(path, "train").texts == (table["subject"],)
    assert [sorted(each) for each in columns_read] == [["label", "subject"]]
    with pytest.raises(ValueError, match="a.parquet must have a column 'c'"):
        TASK.read(path, "train", label_column="c")


def save_tuned(folder, model, task):
    """Writes a model folder, as the end of a training does."""
    checkpoints.save(
        folder,
        model,
        WordpieceSpec(Vocabulary(tokens=TOKENS)),
        12,
        task=task.to_dict(),
        label_names=task.labels or None,
    )


@pytest.mark.parametrize(
    "stored",
    [
        RetrievalTask(pooling="cls", normalize=False, metric="MAP"),
        RetrievalTask(head="dense", dense_size=8),
        RetrievalTask(loss_name="simcse", pooling="mean", head="none"),
    ],
    ids=lambda task: f"{task.loss_name}-{task.head}",
)
def test_defaults_that_depend_on_the_loss_are_as_the_folder_has_them(
    tmp_path, stored
):
    """They were the defaults of the new task, and the vectors others."""
    preprocessor = Preprocessor(
        WordpieceSpec(Vocabulary(tokens=TOKENS)), max_seq_length=12
    )
    model = stored.make_model(CONFIG)
    bert_tf.save(tmp_path / "tuned", model, preprocessor, stored)
    pairs = {"query": ["a b", "b"], "positive": ["b a", "a"]}
    run = tuning.run(
        RetrievalTask(metric="MAP"),
        dev=pairs,
        start=tmp_path / "tuned",
        output_dir=tmp_path / "output",
        max_seq_length=12,
    )
    fields = ("loss_name", "pooling", "normalize", "head", "dense_size")
    for field in fields:
        assert getattr(run.task, field) == getattr(stored, field)
    inputs = preprocessor(["a b", "b"])
    np.testing.assert_allclose(run.model(inputs), model(inputs), atol=1e-6)


def test_words_are_tagged_from_tables(tmp_path):
    table = {
        "words": [text.split() for text in make_table(9, seed=4)["subject"]],
        "tags": [["O", "B-x", "O", "O"]] * 9,
    }
    task = TaggingTask(scheme="bio", labels=("O", "B-x"))
    save_tuned(tmp_path / "tuned", BertTokenClassifier(CONFIG, 2), task)
    run = tuning.run(
        task,
        dev=pandas.DataFrame(table),
        test={"words": table["words"]},
        output_dir=tmp_path / "output",
        start=tmp_path / "tuned",
        max_seq_length=12,
    )
    answers = run.answers["dev"]
    found = [
        (row, entity["text"])
        for row, entities in enumerate(answers)
        for entity in entities
    ]
    wanted = [(row, words[1]) for row, words in enumerate(table["words"])]
    hits = sum(
        entity["start"] == len(table["words"][row][0]) + 1
        for row, entities in enumerate(answers)
        for entity in entities
    )
    assert len({*found} & {*wanted}) >= hits > 0
    assert run.results["eval_f1"] == pytest.approx(2 * hits / (9 + len(found)))
    # They are those to strings of these words.
    texts = [" ".join(words) for words in table["words"]]
    predict = bert_tf.predictor(tmp_path / "tuned", max_seq_length=12)
    assert predict(texts) == [
        [
            entity | {"score": pytest.approx(entity["score"], abs=1e-6)}
            for entity in entities
        ]
        for entities in answers
    ]
    with pytest.raises(ValueError, match="need the texts too: .*predictor"):
        task.decode(np.zeros((1, 12, 2), "float32"))
    lines = (tmp_path / "output" / "test_predictions.txt").read_text()
    rows = [line.split("\t") for line in lines.split("\n") if line]
    assert [word for word, _ in rows] == sum(table["words"], [])
    num_tags = sum(tag == "B-x" for _, tag in rows)
    assert num_tags == sum(map(len, run.answers["test"]))
    assert (tmp_path / "output" / "report.md").exists()


def test_rows_without_words_are_left_out_and_it_is_logged(caplog):
    task = TaggingTask(scheme="bio", labels=("O", "B-x"))
    rows = {"words": [["a"], [], ["b"], []]}
    assert len(task.read(rows, "test")) == 2
    assert "left out 2 rows without words, the first row 2." in caplog.text


def test_without_training_the_task_must_be_the_folders(tmp_path):
    save_tuned(tmp_path / "tuned", BertClassifier(CONFIG, 3), TASK)
    table = make_table(6, seed=1)

    def evaluate(task, table=table):
        return tuning.run(
            task,
            dev=table,
            output_dir=tmp_path / "output",
            start=tmp_path / "tuned",
            max_seq_length=12,
        ).results

    several = MultiLabelTask(
        name="tsv", text_features=("subject",), labels=TEAMS
    )
    with pytest.raises(ValueError, match="family='glue'.* family='multi_lab"):
        evaluate(several, {"subject": ["cat"], "labels": ["it|law"]})
    with pytest.raises(ValueError, match="name='tsv'.* name='tickets'"):
        evaluate(dataclasses.replace(TASK, name="tickets"))
    with pytest.raises(ValueError, match="must be hr, law, .* it, law, sales"):
        evaluate(dataclasses.replace(TASK, labels=("hr", "law", "sales")))
    with pytest.raises(ValueError, match="kind='classif.* kind='regression'"):
        evaluate(dataclasses.replace(TASK, labels=(), metrics=("pearson",)))


def test_classes_of_another_order_are_put_right_and_it_is_logged(
    tmp_path, caplog
):
    model = BertClassifier(CONFIG, 3)
    save_tuned(tmp_path / "tuned", model, TASK)
    table = make_table(6, seed=1)
    # The columns may have other names, too, and the scores be others.
    other = ClassificationTask(
        name="tsv",
        text_features=("text",),
        labels=TEAMS[::-1],
        metrics=("macro_f1",),
    )
    renamed = {"text": table["subject"], "label": table["label"]}
    preprocessor = Preprocessor(
        WordpieceSpec(Vocabulary(tokens=TOKENS)), max_seq_length=12
    )
    logits = model(preprocessor([table["subject"]])).numpy()
    wanted = TASK.results(logits, TASK.read(table, "dev").labels)

    def log_of_evaluation():
        caplog.clear()
        results = tuning.run(
            other,
            dev=renamed,
            output_dir=tmp_path / "output",
            start=tmp_path / "tuned",
            max_seq_length=12,
        ).results
        assert "eval_macro_f1" in results
        assert results["eval_loss"] == pytest.approx(
            wanted["eval_loss"], rel=1e-5
        )
        return caplog.text

    for _ in range(2):
        assert "its outputs were put in the order" in log_of_evaluation()
        assert logging.get_verbosity() == logging.WARNING
    # Not if the verbosity was set.
    logging.set_verbosity(logging.WARNING)
    assert "its outputs" not in log_of_evaluation()


def test_without_training_squad_is_as_the_folder_has_it(tmp_path, monkeypatch):
    stored = SquadTask(
        version_2_with_negative=True,
        doc_stride=3,
        max_query_length=5,
        null_score_diff_threshold=-2.5,
    )
    save_tuned(tmp_path / "tuned", BertSpanPredictor(CONFIG), stored)
    question = {
        "id": "1",
        "question": "red cat",
        "is_impossible": False,
        "answers": [{"text": "cow", "answer_start": 4}],
    }
    paragraph = {"context": "cat cow dog hen red", "qas": [question]}
    path = tmp_path / "dev.json"
    data = [{"title": "a", "paragraphs": [paragraph]}]
    path.write_text(json.dumps({"version": "2.0", "data": data}))
    # That its threshold counts is in the tests of the task.
    monkeypatch.setattr(tuning_run.Run, "execute", lambda self: None)
    run = tuning.run(
        SquadTask(max_query_length=4),
        dev=path,
        output_dir=tmp_path / "output",
        start=tmp_path / "tuned",
        max_seq_length=12,
    )
    assert run.task == dataclasses.replace(stored, max_query_length=4)


def test_other_examples_are_another_training(tmp_path, release, tuned, caplog):
    table = TABLES["train"]
    output = shutil.copytree(tuned, tmp_path / "output")

    def tune(table):
        caplog.clear()
        tuning.run(TASK, train=table, output_dir=output, **release)
        return caplog.text

    path = output / "train/model.json"
    description = json.loads(path.read_text())
    assert description["format_version"] == 4
    # From a file they are the same examples.
    assert "nothing was trained" in tune(write(tmp_path / "t.csv", table))
    corrected = table | {"label": ["law", *table["label"][1:]]}
    reordered = {name: values[::-1] for name, values in table.items()}
    for other in (corrected, reordered):
        with pytest.raises(ValueError, match="train_examples_sha256 was"):
            tune(other)
    # A folder of an older release does not tell.
    del description["train_examples_sha256"], description["format_version"]
    del description["tokenizer_sha256"]
    path.write_text(json.dumps(description))
    assert "nothing was trained" in tune(corrected)
    assert json.loads(path.read_text()) == description


def test_another_vocabulary_is_another_training(tmp_path, release, tuned):
    output = shutil.copytree(tuned, tmp_path / "output")
    # Killed before it wrote its first model.
    for path in output.iterdir():
        if path.is_file():
            path.unlink()
    other = releases.write(tmp_path, (*SPECIAL_TOKENS, *WORDS[::-1]))
    before = sorted(output.rglob("*"))
    with pytest.raises(ValueError, match="begun with .*tokenizer_sha256 was"):
        tuning.run(
            TASK,
            train=TABLES["train"],
            output_dir=output,
            **(release | {"num_train_epochs": 3.0} | other),
        )
    assert sorted(output.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_dir": None}, "`output_dir` must be a path.*: NoneType"),
        ({"start": 5}, "`start` must be a path.*: int"),
        ({"metrics": "accuracy"}, "must have each name once.*'a', 'c', 'c'"),
        ({"num_train_epochs": "3"}, "epochs must be a number.*='3'"),
        ({"train_batch_size": 4.5}, "size must be an integer.*=4.5"),
        ({"max_seq_length": None}, "length must be an integer.*=None"),
        ({"keep_best": "false"}, "best must be true or false.*='false'"),
        ({"do_lower_case": 0}, "case must be true, false or None.*=0"),
        ({"bert_config_file": 5}, "file must be a string, path or None.*=5"),
        ({"vocab_file": b"a"}, "file must be a string, path or None.*=b'a'"),
        ({"random_seed": -1}, r"seed must be in \[0, 2\*\*32\).*=-1"),
        ({"label_column": 0}, "must have a column 0, once"),
    ],
)
def test_arguments_of_another_type_are_named(
    tmp_path, monkeypatch, arguments, message
):
    """Of `output_dir=None` came a model in a folder called None."""
    monkeypatch.chdir(tmp_path)
    arguments = {"task": TASK, "output_dir": tmp_path / "output"} | arguments
    with pytest.raises(ValueError, match=message):
        tuning.run(arguments.pop("task"), train=make_table(6, 1), **arguments)
    assert not [*tmp_path.iterdir()]


def keep_config(self, config, *others, **_):
    self.config = config


def test_numbers_of_numpy_are_those_of_python(tmp_path, monkeypatch, release):
    """The settings of a training could not be written with them."""
    numbers = {"train_batch_size": np.int64(4), "learning_rate": np.float32(1)}
    monkeypatch.setattr(tuning_run.Run, "__init__", keep_config)
    monkeypatch.setattr(tuning_run.Run, "execute", lambda self: None)
    run = tuning.run(
        TASK, train=make_table(6, 1), output_dir=tmp_path, **release | numbers
    )
    settings = json.loads(json.dumps(run.config.training_settings()))
    assert (settings["train_batch_size"], settings["learning_rate"]) == (4, 1)


def test_parts_of_a_run_are_called_alone(tmp_path, release):
    config = FineTuningConfig(
        output_dir=str(tmp_path / "output"),
        do_train=True,
        do_predict=True,
        learning_rate=1e-2,
        **release,
    )
    table = make_table(9, seed=1)
    examples = {
        split: TASK.read(table, split) for split in ("train", "dev", "test")
    }
    examples["test_mismatched"] = examples["test"]
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    run = tuning_run.Run(config, TASK, examples, strategy)
    run.predict()
    before = run.answers["test"][0]["score"]
    run.tune()
    assert not run.answers
    written = []

    def on_predictions(split, answers):
        assert TASK.decode(answers) == run.answers[split]
        written.append(len(list((tmp_path / "output").glob("*_results.tsv"))))

    for path in (tmp_path / "output").glob("*_results.tsv"):
        path.unlink()
    run.predict(on_predictions)
    # After those of each set, and not of all.
    assert written == [1, 2]
    assert abs(run.answers["test"][0]["score"] - before) > 1e-4
    # Not made anew for each entry that is looked at.
    assert run.answers["test"] is run.answers["test"]
    evaluation = run.evaluate()
    assert run.results is None
    assert not any(split in run.answers for split in evaluation.answers)
    run.report(evaluation)
    assert f"eval_loss = {evaluation.results['eval_loss']}\n" in (
        tmp_path / "output" / "eval_results.txt"
    ).read_text("utf-8")
