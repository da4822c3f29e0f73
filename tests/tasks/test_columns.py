"""Tables in all their forms, which are read as the families' own files are."""

import decimal
import json

import numpy as np
import pandas
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from bert_tf.tasks import columns
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.retrieval import files as retrieval_files
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tuning import identity

TAGGING = TaggingTask(scheme="bio", labels=("O", "B-x"))
CHOICE = MultipleChoiceTask(num_choices=2)
SQUAD = SquadTask(version_2_with_negative=True)
SCORE = ClassificationTask(
    name="score", text_features=("text",), metrics=("pearson",)
)
TABLES = {
    TAGGING: {
        "words": [["EU", "says"], ["So"]],
        "tags": [["B-x", "O"], ["O"]],
    },
    CHOICE: {
        "context": ["a", "é"],
        "choices": [["b", "c d"], ["e", "f"]],
        "label": [1, 0],
    },
    SQUAD: {
        "id": ["0", "1", "2"],
        "title": ["t", "t", "u"],
        "context": ["Paris is a city.", "Paris is a city.", "One."],
        "question": ["What is it?", "Why?", "Who?"],
        "answers": [
            {"text": ["a city", "city"], "answer_start": [9, 11]},
            {"text": [], "answer_start": []},
            {"text": ["One"], "answer_start": [0]},
        ],
    },
}
# Where their examples have the labels.
LABELS = {TAGGING: "tags", CHOICE: "labels", SQUAD: "answers"}


def squad_json():
    """The table of SQuAD as its JSON has it."""
    rows = zip(*(TABLES[SQUAD].values()))
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": name,
                    "question": question,
                    "is_impossible": not answers["text"],
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in zip(*answers.values())
                    ],
                }
            ],
        }
        for name, _, context, question, answers in rows
    ]
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


FILES = {
    TAGGING: ("train.conll", "EU B-x\nsays O\n\nSo O\n"),
    CHOICE: ("train.tsv", "o\ta\tb\tc d\t1\no\té\te\tf\t0\n"),
    SQUAD: ("train.json", squad_json()),
}


def as_form(form, table, folder):
    """Returns a table, given as {name: list}, in another form."""
    rows = [dict(zip(table, row)) for row in zip(*table.values())]
    path = folder / f"table{form}"
    if form == "frame":
        # As of Hugging Face's sets: lists are arrays.
        return pandas.DataFrame(table).map(as_arrays)
    if form == "tf.data":
        return tf.data.Dataset.from_tensor_slices(
            {name: as_tensors(values) for name, values in table.items()}
        )
    if form == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    if form == ".parquet":
        parquet.write_table(pyarrow.table(table), path)
        return str(path)
    return table


def as_arrays(value):
    if isinstance(value, dict):
        return {name: as_arrays(item) for name, item in value.items()}
    if isinstance(value, list):
        return np.array(value)
    return value


def as_tensors(values):
    if isinstance(values[0], dict):
        return {
            name: as_tensors([value[name] for value in values])
            for name in values[0]
        }
    return tf.ragged.constant(values)


@pytest.mark.parametrize("task", TABLES, ids=lambda task: task.family)
@pytest.mark.parametrize(
    "form", ["lists", "frame", "tf.data", ".jsonl", ".parquet"]
)
def test_tables_are_read_as_files_are(tmp_path, task, form):
    name, text = FILES[task]
    (tmp_path / name).write_text(text, "utf-8")
    data = as_form(form, TABLES[task], tmp_path)
    for split in ("train", "dev"):
        assert identity.examples_hash(
            task.read(data, split)
        ) == identity.examples_hash(task.read(tmp_path / name, split))
    labels = list(TABLES[task])[-1]
    renamed = {
        "gold" if name == labels else name: values
        for name, values in TABLES[task].items()
    }
    data = as_form(form, renamed, tmp_path)
    assert identity.examples_hash(
        task.read(data, "train", label_column="gold")
    ) == identity.examples_hash(task.read(tmp_path / name, "train"))
    # What is to be predicted needs no labels.
    del renamed["gold"]
    test = task.read(as_form(form, renamed, tmp_path), "test")
    assert len(test) == len(renamed[next(iter(renamed))])
    assert getattr(test, LABELS[task]) is None


def test_tags_of_a_table_are_written_as_lines(tmp_path):
    path = tmp_path / "predictions.txt"
    for split, expected in (
        ("dev", "EU\tB-x\tO\nsays\tO\tO\n\nSo\tO\tB-x\n\n"),
        ("test", "EU\tO\nsays\tO\n\nSo\tB-x\n\n"),
    ):
        examples = TAGGING.read(TABLES[TAGGING], split)
        tagging_files.write_predictions(path, examples, ["O", "O", "B-x"])
        assert path.read_text() == expected


def test_choices_begin_with_their_question():
    table = dict(TABLES[CHOICE])
    examples = CHOICE.read(table | {"question": ["What?", "Why_?"]}, "train")
    assert examples.contexts == ("a", "é")
    assert examples.choices == (
        ("What? b", "What? c d"),
        ("Why_? e", "Why_? f"),
    )
    table["question"] = table.pop("context")
    examples = CHOICE.read(table, "train")
    assert examples.contexts == ("a", "é")
    assert examples.choices == (("b", "c d"), ("e", "f"))


@pytest.mark.parametrize(
    ("task", "column", "value", "message"),
    [
        (TAGGING, "words", "So", "row 2: `words` must be a list of strings"),
        (TAGGING, "words", ["a", "b"], "row 2: .* Received: 2 words, 1 tag\\."),
        (TAGGING, "words", ["EU", ""], "row 2: the word 2 is empty"),
        (TAGGING, "tags", [1], "row 2: `tags` must be a list of strings"),
        (TAGGING, "tags", ["B-y"], "row 2: a tag must be one of O, B-x. .*B-y"),
        (CHOICE, "context", None, "row 2: `context` must be a string; .*None"),
        (CHOICE, "choices", "ef", "row 2: `choices` must be a list of str"),
        (CHOICE, "choices", ["e"], "row 2: a row must have 2 choices.* 1"),
        (CHOICE, "label", 2, "row 2: the label must be .* 0 to 1. Received: 2"),
        (CHOICE, "label", None, "row 2: the label must be .* Received: None"),
        (SQUAD, "id", 7, "row 2: `id` must be a string"),
        (SQUAD, "id", "0", "the data: row 2.id must be unique"),
        (SQUAD, "context", ["a"], "row 2: `context` must be a string"),
        (SQUAD, "question", float("nan"), "row 2: `question` must be a str"),
        (SQUAD, "answers", ["a"], "row 2: `answers` must be an object with"),
        (
            SQUAD,
            "answers",
            {"text": ["a"], "answer_start": [1, 2]},
            "row 2: `answers` must be an object with lists .* of one length",
        ),
        (
            SQUAD,
            "answers",
            {"text": ["Paris"], "answer_start": ["0"]},
            r"row 2.answers\[0\].answer_start must be an integer",
        ),
    ],
)
def test_bad_rows_are_told_by_number_and_column(task, column, value, message):
    values = list(TABLES[task][column])
    values[1] = value
    with pytest.raises(ValueError, match=message):
        task.read(TABLES[task] | {column: values}, "train")


@pytest.mark.parametrize("task", TABLES, ids=lambda task: task.family)
def test_missing_columns_are_told(task, tmp_path):
    table = TABLES[task]
    for column in set(table) - {"title"}:
        rest = {name: table[name] for name in table if name != column}
        message = f"The data must have a column '{column}', once"
        with pytest.raises(ValueError, match=message):
            task.read(rest, "dev")
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match="no examples in .*empty.jsonl"):
        task.read(path, "train")
    with pytest.raises(ValueError, match="must be a path, .* Received: list"):
        task.read([1], "train")


def test_labels_that_are_read_as_texts_are_refused():
    """A model learned them by heart, and was always right."""
    message = "of labels must be none of the texts'. Received: 'label' for both"
    task = ClassificationTask(
        name="a",
        text_features=("label",),
        labels=("x", "y"),
        metrics=("accuracy",),
    )
    with pytest.raises(ValueError, match=message):
        task.read({"label": ["x", "y"]}, "train")
    assert task.read({"label": ["x"]}, "test").texts == (["x"],)
    with pytest.raises(ValueError, match=message):
        glue_files.named_columns(("text", "label"), "label")


@pytest.mark.parametrize(
    "read",
    [
        lambda path: SCORE.read(path, "train", "s"),
        lambda path: retrieval_files.read_scored(path, ("text", "b"), "s"),
    ],
)
def test_scores_are_numbers_in_any_form(tmp_path, read):
    scores = [decimal.Decimal(score) for score in ("1", "2.5", "-3")]
    texts = ["x", "y", "z"]
    path = as_form(
        ".parquet", {"text": texts, "b": texts, "s": scores}, tmp_path
    )
    assert read(path).labels.tolist() == [1.0, 2.5, -3.0]
    path = tmp_path / "a.jsonl"
    for score, shown in (("null", "None"), ("true", "True"), ("[1]", "[1]")):
        path.write_text(f'{{"text": "x", "b": "y", "s": {score}}}')
        with pytest.raises(ValueError) as caught:
            read(path)
        assert str(caught.value) == (
            f"{path}, line 1: the score must be a number. Received: {shown}."
        )


def test_questions_without_answers_are_of_version_2():
    table = TABLES[SQUAD]
    examples = SQUAD.read(table, "train")
    assert examples.answers == (("a city", "city"), (), ("One",))
    assert examples.answer_starts.tolist() == [9, -1, 0]
    assert examples.answer_limits.tolist() == [15, -1, 3]
    assert examples.context_indices.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="row 2.answers must have an answer"):
        SquadTask().read(table, "train")


def test_answers_that_are_not_in_a_tables_text_are_counted(tmp_path, caplog):
    path = as_form(".jsonl", TABLES[SQUAD], tmp_path)
    path.write_text(path.read_text().replace("One.", "Two."))
    with caplog.at_level("WARNING", logger="absl"):
        assert SQUAD.read(path, "train").ids == ("0", "1")
    assert f"{path}: line 3 (id '2'): could not find" in caplog.text
    assert f"{path}: left out 1 of the questions" in caplog.text


def test_a_question_that_only_some_lines_have_is_no_silence(tmp_path):
    path = tmp_path / "choices.jsonl"
    rows = [
        {"context": "a", "choices": ["b", "c"], "label": 0},
        {"context": "a", "choices": ["b", "c"], "label": 1, "question": "Why?"},
    ]
    for lines, number in ((rows, 1), (rows[::-1], 2)):
        path.write_text("\n".join(map(json.dumps, lines)))
        with pytest.raises(ValueError, match=f"line {number}.*question"):
            multiple_choice_files.read_choices(path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": "xy"}, "column 'a' must be a list. Received: .*xy"),
        ({"a": 3}, "column 'a' must be a list"),
        ({"a": ["x"], "b": ["y", "z"]}, "of one length. Received: {'a': 1, "),
    ],
)
def test_what_is_no_column_is_told(table, message):
    with pytest.raises(ValueError, match=message):
        list(columns.read(table, list(table)))


def test_a_bad_parquet_is_named(tmp_path):
    path = tmp_path / "bad.parquet"
    table = pyarrow.table({"a": ["words of some length"] * 9})
    parquet.write_table(table, path, compression="none")
    data = path.read_bytes()
    # The end is whole, and with it the names.
    start = data.index(b"words")
    (tmp_path / "values.parquet").write_bytes(
        data[:4] + b"\xff" * start + data[4 + start :]
    )
    path.write_bytes(data[:-20])
    (tmp_path / "folder.parquet").mkdir()
    for name, message in (
        ("bad", "damaged, or not Parquet: "),
        ("values", "damaged, or not Parquet: "),
        ("folder", "must be a file, and no folder, pipe or device."),
    ):
        path = tmp_path / f"{name}.parquet"
        for read in (
            lambda path: list(columns.read(path, ["a"])),
            columns.names_in,
        ):
            if (name, read) == ("values", columns.names_in):
                assert read(path) == ["a"]
                continue
            with pytest.raises(ValueError) as caught:
                read(path)
            assert str(caught.value).startswith(f"{path}: {message}")
            assert "\n" not in str(caught.value)
