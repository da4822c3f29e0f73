"""Files of corpora, queries and relevance: what is read, what is refused."""

import codecs
import gzip
import json

import pytest

from bert_tf import progress_bar
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval.corpora import Texts

CORPUS = Texts(ids=("a", "b", "c"), texts=("A a", "b", "c"))
QUERIES = Texts(ids=("1", "2"), texts=("one?", "two?"))


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_beirs_files(tmp_path):
    rows = [
        {"_id": "a", "title": "A", "text": "a", "metadata": {}},
        {"_id": "b", "title": "", "text": "b"},
        {"_id": "c", "title": None, "text": "c"},
    ]
    path = write_lines(tmp_path / "corpus.jsonl", rows)
    assert corpora.read_corpus(path) == CORPUS
    packed = tmp_path / "corpus.jsonl.gz"
    # As editors on Windows begin a file.
    marked = codecs.BOM_UTF8 + path.read_bytes() + b"\n"
    packed.write_bytes(gzip.compress(marked))
    assert corpora.read_corpus(packed) == CORPUS
    rows = [
        {"_id": name, "text": text} for name, text in zip("12", QUERIES.texts)
    ]
    queries = write_lines(tmp_path / "queries.jsonl", rows)
    assert corpora.read_queries(queries) == QUERIES
    qrels = tmp_path / "test.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\n2\tc\t1\n2\ta\t2\n1\ta\t0\n")
    found = corpora.read_relevance(qrels, QUERIES, CORPUS)
    assert found.query_rows.tolist() == [1, 1]
    assert found.corpus_rows.tolist() == [0, 2]
    assert found.grades.tolist() == [2, 1]
    assert found.queries.tolist() == [1]
    judged, left = corpora.only_judged(QUERIES, found)
    assert judged == QUERIES.take([1])
    assert left.query_rows.tolist() == [0, 0]
    (grades,) = left.by_query(left.grades)
    assert grades.tolist() == [2, 1]


def test_hashes_are_of_the_texts_and_their_order():
    others = [
        CORPUS,
        CORPUS.take([0, 2, 1]),
        Texts(ids=("aA", "b", "c"), texts=(" a", "b", "c")),
    ]
    assert len({texts.sha256 for texts in others}) == 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "there are no texts"),
        ('{"_id": "a", "text": "x"}\n[]\n', "line 2: must be an object"),
        ('{"_id": "a", "text": "x"}\n{"_id', "line 2: not JSON"),
        ('{"_id": 7, "text": "x"}\n', "line 1: must have a string `_id`.*=7"),
        ('{"_id": "a"}\n', "line 1: must have a string `text`.*None"),
        (
            '{"_id": "a", "text": "x"}\n\n{"_id": "a", "text": "y"}\n',
            "line 3: each `_id` must occur once. Received: 'a', which is also",
        ),
        (
            '{"_id": "a", "title": "", "text": " "}\n',
            "line 1: the text must not be empty. Received: _id='a'",
        ),
        ('{"_id": "a", "title": 1, "text": ""}\n', "line 1: `title` must be"),
    ],
)
def test_bad_corpora_name_file_and_line(tmp_path, text, message):
    path = tmp_path / "corpus.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"corpus.jsonl(, |: ){message}"):
        corpora.read_corpus(path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        corpora.read_corpus(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b'{"_id": "\xff"}')
    with pytest.raises(ValueError, match="line 1: not UTF-8.*0xff"):
        corpora.read_corpus(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl.gz").write_bytes(b"none")
    with pytest.raises(ValueError, match="damaged after line 0"):
        corpora.read_corpus(tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize(
    "lines, message",
    [
        ("1\td\t1", "line 2: there is no text with this id. Received: 'd'"),
        ("3\ta\t1", "line 2: there is no query with this id. Received: '3'"),
        ("1\ta\tyes", "line 2: the score must be a number. Received: 'yes'"),
        ("1\ta\t1_0", "line 2: the score must be a number. Received: '1_0'"),
        ("1\ta\t1\n1\ta\t2", "line 3: each pair must occur once.*in line 2"),
        ("1\ta\t0", "no text is relevant to any query"),
        ("1\ta", "line 2: a row must have 3 columns"),
    ],
)
def test_bad_relevance_names_file_and_line(tmp_path, lines, message):
    path = tmp_path / "test.tsv"
    path.write_text(f"query-id\tcorpus-id\tscore\n{lines}\n")
    with pytest.raises(ValueError, match=f"test.tsv(, |: ){message}"):
        corpora.read_relevance(path, QUERIES, CORPUS)


def write_squad(path, paragraphs):
    """Writes [(context, [(question, whether it has an answer)])]."""
    entries = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{path.stem} {question}",
                    "question": question,
                    "is_impossible": not has_answer,
                    "answers": [{"text": context[:1], "answer_start": 0}]
                    * has_answer,
                }
                for question, has_answer in questions
            ],
        }
        for context, questions in paragraphs
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": entries}]}))
    return path


def test_squads_questions_look_for_paragraphs_of_all_files(tmp_path):
    first = write_squad(
        tmp_path / "dev.json",
        [
            ("x", [("q1", True), ("q2", False)]),
            ("y", []),
            ("z", [("q3", True)]),
        ],
    )
    second = write_squad(
        tmp_path / "train.json", [("z", [("q4", True)]), ("w", [])]
    )
    queries, corpus, relevance = corpora.read_squad([first, second])
    assert queries.texts == ("q1", "q2", "q3")
    assert queries.ids[0] == "dev q1"
    assert corpus == Texts(ids=("0", "1", "2", "3"), texts=("x", "y", "z", "w"))
    assert relevance.query_rows.tolist() == [0, 2]
    assert relevance.corpus_rows.tolist() == [0, 2]
    empty = write_squad(tmp_path / "e.json", [(" ", [("q", False)])])
    with pytest.raises(ValueError, match="e.json: a paragraph must not be"):
        corpora.read_squad([first, empty])
    empty = write_squad(tmp_path / "e.json", [("x", [(" ", True)])])
    with pytest.raises(ValueError, match="e.json: a question must not be"):
        corpora.read_squad([empty])


def test_a_long_reading_is_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress_bar, "SECONDS_PER_LINE", 0.0)
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"_id": "a", "text": "b"}\n{"_id": "c", "text": "d"}\n')
    with caplog.at_level("INFO", logger="bert_tf"):
        assert corpora.read_corpus(path).ids == ("a", "c")
    assert f"read {path}: 1line" in caplog.text
