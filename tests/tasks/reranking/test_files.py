"""Files and tables of queries with texts."""

import json

import numpy as np
import pytest

from bert_tf.tasks.reranking import files

TSV = (
    "label\tquery\ttext\n"
    "1\twho ran\tAnn ran.\n"
    '0\twhat is it\ta "quote\n'
    "0\twho ran\tBob sat.\n"
    "1\twhat is it\té\n"
)
ROWS = {
    "query": ["who ran", "what is it", "who ran", "what is it"],
    "text": ["Ann ran.", 'a "quote', "Bob sat.", "é"],
    "label": [1, 0, 0, 1],
}
CSV = (
    "query,positive,negative_1,negative_2\n"
    'who ran,Ann ran.,Bob sat.,"a, b"\n'
    "what is it,é,Bob sat.,c\n"
    # As files of triplets have it.
    "who ran,Ann ran.,Bob sat.,d\n"
)
JSON_LINES = (
    '{"query": "who ran", "positive": "Ann ran.", "negatives": ["Bob sat."]}\n'
    '{"query": "what is it", "positive": "é", "negatives": []}\n'
)


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_labelled_texts_stay_in_their_order(tmp_path):
    for data in (write(tmp_path, "a.tsv", TSV), ROWS):
        groups = files.read_groups(data)
        assert groups.queries == ("who ran", "what is it")
        assert groups.texts == tuple(ROWS["text"])
        assert groups.group_ids.tolist() == [0, 1, 0, 1]
        assert groups.labels.tolist() == [1, 0, 0, 1]
        assert [rows.tolist() for rows in groups.rows] == [[0, 2], [1, 3]]
        unlabelled = files.read_groups(data, has_labels=False)
        assert unlabelled.labels is None
        assert unlabelled.texts == groups.texts


def test_positives_and_negatives_become_groups(tmp_path):
    groups = files.read_groups(write(tmp_path, "a.csv", CSV))
    assert groups.texts == (
        *("Ann ran.", "Bob sat.", "a, b"),
        *("é", "Bob sat.", "c"),
        "d",
    )
    assert groups.group_ids.tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert groups.labels.tolist() == [1, 0, 0, 1, 0, 0, 0]
    # Predictions are of every row: nothing is left out.
    rows = files.read_groups(tmp_path / "a.csv", has_labels=False)
    assert rows.texts == (
        *("Ann ran.", "Bob sat.", "a, b"),
        *("é", "Bob sat.", "c"),
        *("Ann ran.", "Bob sat.", "d"),
    )
    assert rows.group_ids.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    groups = files.read_groups(write(tmp_path, "a.jsonl", JSON_LINES))
    assert groups.texts == ("Ann ran.", "Bob sat.", "é")
    assert groups.group_ids.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="label 0.*'what is it'"):
        files.read_groups(tmp_path / "a.jsonl", needs_negatives=True)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"query": "  "}, "line 2: `query` must not be empty. Received: '  '"),
        ({"text": ""}, "line 2: `text` must not be empty"),
        ({"text": None}, "line 2: `text` must be a string"),
        ({"label": 2}, "line 2: the label must be 1 .* 0. Received: 2"),
        ({"label": "yes"}, "line 2: the label must be 1 .*'yes'"),
        ({"text": "c", "label": 1}, "line 2: a text of a query must have one"),
        (
            {"query": "other"},
            r"a.jsonl: every query must have a text with label 1.*'other'",
        ),
    ],
)
def test_bad_rows_are_refused(tmp_path, change, message):
    rows = [
        {"query": "a", "text": "b", "label": 1},
        {"query": "a", "text": "c", "label": 0},
    ]
    rows[1].update(change)
    if "label" in change and "text" in change:
        rows[0]["text"], rows[0]["label"] = "c", 0
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=message):
        files.read_groups(path, needs_positives=True)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must have a column 'query'"):
        files.read_groups(write(tmp_path, "a.tsv", "a\tb\nc\td\n"))
    with pytest.raises(ValueError, match="must end with .csv, .tsv, .jsonl"):
        files.read_groups(write(tmp_path, "a.txt", "a\tb\nc\td\n"))
    with pytest.raises(ValueError, match="line 1: `negatives` must be a list"):
        files.read_groups(
            write(
                tmp_path,
                "a.jsonl",
                '{"query": "a", "positive": "b", "negatives": "c"}',
            )
        )


def test_labels_may_be_of_any_type():
    labels = [True, 0.0, np.float32(0), "1"]
    assert files.read_groups(ROWS | {"label": labels}).labels.tolist() == [
        *(1, 0, 0, 1),
    ]


@pytest.mark.parametrize("name", ["negative", "negative1", "negative-1"])
def test_negatives_are_found_by_their_names(name):
    table = {"query": ["a"], "positive": ["b"], name: ["c"]}
    groups = files.read_groups(table)
    assert groups.texts == ("b", "c")
    assert groups.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    "name",
    ["hard_negative", "Negative", "negative_score", "negatives_1", "negative "],
)
def test_what_may_be_a_negative_is_not_left_out(name):
    table = {"query": ["a"], "positive": ["b"], "negative": ["c"], name: ["d"]}
    with pytest.raises(ValueError, match="columns of negatives must be called"):
        files.read_groups(table)


def test_positives_alone_are_refused_where_labels_are_read(tmp_path):
    path = write(tmp_path, "a.tsv", "query\tpositive\na\tb\nc\td\n")
    with pytest.raises(ValueError, match="a.tsv: there must be a negative"):
        files.read_groups(path)
    assert files.read_groups(path, has_labels=False).texts == ("b", "d")
    path = write(tmp_path, "a.jsonl", JSON_LINES.splitlines()[1])
    with pytest.raises(ValueError, match="there must be a negative"):
        files.read_groups(path)
