import numpy as np
import pytest
from absl import logging

from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import files as tagging_files


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "file.conll"
        path.write_bytes(text.encode("utf-8"))
        return path

    return write


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
"""


def test_conll_2003_is_read_and_predictions_are_appended(write, tmp_path):
    examples = tagging_files.read_columns(write(CONLL_2003))
    assert examples.words == ("EU", "rejects", "Peter")
    assert examples.tags == ("I-ORG", "O", "I-PER")
    assert examples.row_lengths.tolist() == [2, 1]
    assert len(examples) == 2
    assert examples.by_sentence(examples.tags) == [["I-ORG", "O"], ["I-PER"]]

    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["O", "I-LOC", "I-PER"])
    assert path.read_text() == (
        "-DOCSTART- -X- -X- O O\n\n"
        "EU NNP I-NP I-ORG O\nrejects VBZ I-VP O I-LOC\n\n"
        "Peter NNP I-NP I-PER I-PER\n"
    )


def test_tabs_odd_blank_lines_and_comments(write, tmp_path):
    text = (
        "\ufeff# a comment O\n# another\n#\tO\n#tag\tB-x\r\n\t\n \n"
        "a\u00a0b\tO\n\u2028\tI-x\n-DOCSTART-\nc d\tO"
    )
    examples = tagging_files.read_columns(write(text))
    assert examples.words == ("#", "#tag", "a\u00a0b", "\u2028", "c d")
    assert examples.tags == ("O", "B-x", "O", "I-x", "O")
    assert examples.row_lengths.tolist() == [2, 2, 1]
    assert examples.line_indices.tolist() == [2, 3, 6, 7, 9]

    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["1", "2", "3", "4", "5"])
    assert path.read_bytes().decode("utf-8") == (
        "# a comment O\n# another\n#\tO\t1\n#tag\tB-x\t2\n\t\n \n"
        "a\u00a0b\tO\t3\n\u2028\tI-x\t4\n-DOCSTART-\tO\nc d\tO\t5\n"
    )


@pytest.mark.parametrize(
    ("text", "columns", "predictions"),
    [
        (
            "id tag word\n1  O  a\n2 \t B-x b \n\n1 O c\n",
            ("word", "tag"),
            "id tag word predicted\n1  O  a P\n2 \t B-x b P\n\n1 O c P\n",
        ),
        (
            "# global.columns = ID TAG FORM\n1\tO\ta\n2\tB-x\tb\n\n1\tO\tc\n",
            ("FORM", "TAG"),
            "# global.columns = ID TAG FORM predicted\n"
            "1\tO\ta\tP\n2\tB-x\tb\tP\n\n1\tO\tc\tP\n",
        ),
        (
            "a 1 O e\nb 2 B-x f\n\nc 3 O g\n",
            (-4, 2),
            "a 1 O e P\nb 2 B-x f P\n\nc 3 O g P\n",
        ),
    ],
)
def test_columns_by_name_and_number(
    write, tmp_path, text, columns, predictions
):
    examples = tagging_files.read_columns(write(text), *columns)
    assert examples.words == ("a", "b", "c")
    assert examples.tags == ("O", "B-x", "O")
    assert examples.row_lengths.tolist() == [2, 1]
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["P", "P", "P"])
    assert path.read_text() == predictions


def test_words_without_tags(write, tmp_path):
    examples = tagging_files.read_columns(
        write("a\n#\n# not a word\n\nb\n"), has_tags=False
    )
    assert examples.words == ("a", "#", "b")
    assert examples.tags is None
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["O", "O", "B-x"])
    assert path.read_text() == "a O\n# O\n# not a word\n\nb B-x\n"


@pytest.mark.parametrize(
    ("tag_column", "header", "tags"),
    [
        (-1, "", ("O", "B-PER", "O")),
        # MultiCoNER's test sets.
        (-1, "", ("_", "_", "_")),
        ("ner", "word pos chunk ner\n", ("O", "B-PER", "O")),
    ],
)
def test_a_comment_with_as_many_columns_as_rows_is_no_word(
    write, tmp_path, tag_column, header, tags
):
    text = (
        f"{header}# id 1a-2b\tdomain=en\neli _ _ {tags[0]}\n"
        f"hart _ _ {tags[1]}\n\n# id 3c-4d\tdomain=en\n# _ _ {tags[2]}\n"
    )
    examples = tagging_files.read_columns(write(text), 0, tag_column, False)
    assert examples.words == ("eli", "hart", "#")
    assert examples.row_lengths.tolist() == [2, 1]
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["1", "2", "3"])
    name = "word pos chunk ner predicted\n" if header else ""
    assert path.read_text() == (
        f"{name}# id 1a-2b\tdomain=en\neli _ _ {tags[0]} 1\n"
        f"hart _ _ {tags[1]} 2\n\n# id 3c-4d\tdomain=en\n# _ _ {tags[2]} 3\n"
    )


def test_a_hash_sign_is_a_word_where_other_columns_are_not_tags(write):
    # The last column is a part of speech.
    examples = tagging_files.read_columns(
        write("the DT\n# NN\n1 CD\n"), has_tags=False
    )
    assert examples.words == ("the", "#", "1")


@pytest.mark.parametrize(
    ("text", "predictions"),
    [
        ("word ner\na O\n\nb B-x\n", "word ner predicted\na O P\n\nb B-x P\n"),
        # A set to predict may have no column of tags.
        ("word\na\n\nb\n", "word predicted\na P\n\nb P\n"),
        (
            "# global.columns = FORM\na\n\nb\n",
            "# global.columns = FORM predicted\na P\n\nb P\n",
        ),
    ],
)
def test_a_name_of_the_tags_tells_of_a_header_where_none_are_read(
    write, tmp_path, text, predictions
):
    examples = tagging_files.read_columns(write(text), 0, "ner", False)
    assert examples.words == ("a", "b")
    assert examples.tags is None
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["P", "P"])
    assert path.read_text() == predictions


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", (), "there are no sentences in the file"),
        ("\n\t\n# nothing\n-DOCSTART- O\n", (), "there are no sentences"),
        (
            "a b O\nc O\n",
            (),
            "line 2: a row must have 3 columns. Received: 2",
        ),
        ("a\tO\nb c O\n", (), "line 2: a row must have 2 columns. Received: 1"),
        ("a O\n\nb NN\n", (), "line 3: the tag must be O, .* Received: 'NN'"),
        ("a\tO\n\tO\n", (), "line 2: the word is empty"),
        ("a\n", (), "columns of tags and of words must be different.* 'a'"),
        ("a O\n", (0, 2), "must have a column 2. Received: 2 columns"),
        (
            "a O\n",
            ("word", "tag"),
            "line 1: .* column 'word', once.* .*'a', 'O'",
        ),
        ("", ("word", "tag"), "line 1: the header must have a column 'word'"),
    ],
)
def test_bad_files_are_told_by_line(write, text, columns, message):
    path = write(text)
    with pytest.raises(ValueError, match=message) as error:
        tagging_files.read_columns(path, *columns)
    assert str(error.value).startswith(str(path))


def test_a_tables_word_that_begins_as_a_document_gets_one_tag(tmp_path):
    words = ["-DOCSTART-", "a", "-DOCSTART-x"]
    for tags, predictions in (
        (
            ["O", "B-x", "O"],
            "-DOCSTART-\tO\tO\na\tB-x\tB-y\n-DOCSTART-x\tO\tO\n\n",
        ),
        (None, "-DOCSTART-\tO\na\tB-y\n-DOCSTART-x\tO\n\n"),
    ):
        examples = tagging_files.from_rows("table", [("row 1", words, tags)])
        path = tmp_path / "predictions.txt"
        tagging_files.write_predictions(path, examples, ["O", "B-y", "O"])
        assert path.read_text() == predictions


def test_blanks_around_tags_are_taken_off_and_counted(write, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        examples = tagging_files.read_columns(
            write("a\tB-x \nb\t O\nc\tB-x\nd\tB-x y\n")
        )
    assert examples.tags == ("B-x", "O", "B-x", "B-x y")
    assert (
        "file.conll: stripped the blanks around 2 of the labels" in caplog.text
    )


def test_tags_never_seen_are_told_by_line(write):
    examples = tagging_files.read_columns(write("a O\n\nb I-x\nc B-y\n"))
    labels = ("O", "B-x", "I-x")
    with pytest.raises(ValueError, match="line 4: .* in training.* 'B-y'"):
        examples.tag_ids(labels)
    np.testing.assert_array_equal(
        examples.tag_ids((*labels, "B-y")), np.int32([0, 2, 3])
    )


def test_breaches_are_counted_in_a_warning(write, monkeypatch):
    told = []
    monkeypatch.setattr(
        logging, "warning", lambda text, *values: told.append(text % values)
    )
    examples = tagging_files.read_columns(
        write("a O\nb B-x\n\nc B-x\nd I-y\ne I-y\nf O\ng I-x\n")
    )
    examples.warn_of_breaches("bio")
    examples.warn_of_breaches("iob1")
    assert len(told) == 2
    assert "2 tags break the bio scheme, first in" in told[0]
    assert "line 5: I-y" in told[0]
    assert "2 tags break the iob1 scheme, first in" in told[1]
    assert "line 2: B-x" in told[1]


def test_files_of_a_folder_are_found(tmp_path):
    (tmp_path / "train.conll").write_text("a O\n")
    (tmp_path / "dev").write_text("a O\n")
    (tmp_path / "dev.txt").write_text("a O\n")
    path = tagging_files.find_file(tmp_path, TRAIN)
    assert path == str(tmp_path / "train.conll")
    for split, received in (("dev", "dev.txt, dev"), ("test", "none of them")):
        with pytest.raises(ValueError, match=f"Received: {received}"):
            tagging_files.find_file(tmp_path, split)
    # CoNLL-2003's own names, and those of its copies.
    for split, name in (
        ("test", "eng.testb"),
        ("test", "testb.txt"),
        ("test", "test"),
        ("dev", "eng.testa"),
        ("dev", "testa"),
        ("dev", "valid.txt"),
    ):
        (tmp_path / name).write_text("a O\n")
        (tmp_path / "dev").unlink(missing_ok=True)
        (tmp_path / "dev.txt").unlink(missing_ok=True)
        path = tagging_files.find_file(tmp_path, split)
        assert path == str(tmp_path / name)
