"""Taggers as they are served: entities of strings, probabilities of ids."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving.kinds import texts
from bert_tf.tasks.tagging import entity_tags
from support import serving_models

TASK = serving_models.TAGGING_TASK


@pytest.fixture(scope="module")
def servable():
    return serving_models.servable("tagger")


# A window has 17 pieces: these are some windows, or one of few.
HARD = [(text[:150],) for (text,) in texts.hard_texts(1)]


def test_answers_are_those_of_training_on_hard_strings(servable):
    found = serving_models.differences("tagger", servable, HARD)
    assert set(found) == {
        *("examples", "ids", "ids_examples", "serving_default"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where


def test_offsets_are_of_the_given_string(servable):
    # Of 17 pieces to a window there is one; bytes and letters differ.
    text = "Ïé  the.\u200b 我quick"
    words = ["Ïé", "the", ".", "我", "quick"]
    answers = serving_models.loaded("tagger").signatures["serving_default"](
        text=tf.constant([text, "", text])
    )
    answers = {name: value.numpy() for name, value in answers.items()}

    inputs = servable.preprocessor([text])
    pieces = [
        len(row) for row in servable.preprocessor.tokenizer.tokenize([text])[0]
    ]
    firsts = 1 + np.cumsum(pieces) - pieces
    probabilities = tf.nn.softmax(servable.model(inputs))[0].numpy()[firsts]
    tags = [TASK.labels[label] for label in probabilities.argmax(-1)]
    (wanted,) = entity_tags.find_entities([tags])
    assert wanted
    assert answers["num_entities"].tolist() == [len(wanted), 0, len(wanted)]
    for row in (0, 2):
        for index, entity in enumerate(wanted):
            start = text.index(words[entity.start])
            last = words[entity.limit - 1]
            assert answers["labels"][row, index].decode() == entity.type
            assert answers["starts"][row, index] == start
            assert answers["limits"][row, index] == text.index(last) + len(last)
            likeliest = probabilities.max(-1)[entity.start : entity.limit]
            assert answers["scores"][row, index] == pytest.approx(
                likeliest.min(), rel=1e-5
            )
    assert np.all(answers["labels"][1] == b"")
    assert np.all(answers["starts"][1] == -1)
    assert np.all(answers["scores"][1] == 0)


def test_long_strings_are_not_cut():
    answer = serving_models.loaded("tagger").signatures["serving_default"]
    text = "quick lorem x the b. " * 40
    answers = answer(text=tf.constant([text, "x"]))
    limits = answers["limits"].numpy()[0]
    count = int(answers["num_entities"][0])
    # The words repeat themselves, and so do tags far from both ends.
    assert count > 20
    assert limits[count - 1] > len(text) - 30
    starts = answers["starts"].numpy()[0, :count]
    assert np.all(starts < limits[:count])
    assert np.all(starts[1:] >= limits[: count - 1])


def test_neighbours_and_empty_batches_change_nothing():
    answer = serving_models.loaded("tagger").signatures["serving_default"]
    strings = [b"the quick b", b"\xff\xfe \xc3(", b"x" * 500, b"lorem, the."]
    together = answer(text=tf.constant(strings))
    for row, text in enumerate(strings):
        alone = answer(text=tf.constant([text]))
        count = int(alone["num_entities"][0])
        assert together["num_entities"][row] == count
        for name in ("labels", "starts", "limits"):
            np.testing.assert_array_equal(
                together[name][row, :count], alone[name][0]
            )
        np.testing.assert_allclose(
            together["scores"][row, :count], alone["scores"][0], atol=1e-6
        )
    nothing = answer(text=tf.zeros([0], tf.string))
    assert nothing["num_entities"].shape == (0,)
    assert nothing["labels"].shape == (0, 0)


def test_two_strings_are_refused():
    with pytest.raises(ValueError, match="must be one name"):
        serving_models.servable("tagger", text_features=("a", "b"))


def test_sentences_of_a_column_file_are_the_texts(servable, tmp_path):
    path = tmp_path / "dev.txt"
    path.write_text(
        "-DOCSTART- -X- O\n\n"
        "Ïé NNP B-x\nsaid VBD O\n. . O\n\n# a comment\nthe DT O\n",
        "utf-8",
    )
    assert servable.read_texts(path) == [
        ("Ïé said .".encode(),),
        (b"the",),
    ]
    path = tmp_path / "dev.tsv"
    path.write_text("a b\tO\r\nc\tB-x\r\n")
    assert servable.read_texts(path) == [(b"a b c",)]
    path.write_text("a\tO\nb\tO\nc\n")
    with pytest.raises(ValueError, match=r"dev\.tsv, line 3: a row must have"):
        servable.read_texts(path)


@pytest.mark.parametrize(
    "texts",
    [
        [b"He lacks vitamin B-12", b"\xff and\tmore."],
        [b"O", b"B-x", b"one"],
        [b"# a b", b"", b"-DOCSTART- was there"],
    ],
)
def test_other_files_have_a_text_a_line(servable, tmp_path, texts):
    path = tmp_path / "dev.txt"
    path.write_bytes(b"\n".join(texts) + b"\n")
    assert servable.read_texts(path) == [(text,) for text in texts]


@pytest.mark.parametrize(
    "columns, content",
    [
        # GermEval's: a number, the word, its tag, and that of what is inside.
        (
            {"token_column": "1", "label_column": "2"},
            "# of a page\n1\tthe\tB-x\tO\n2\tquick\tI-x\tO\n\n1\ta\tO\tB-x\n",
        ),
        (
            {"token_column": "FORM", "label_column": "NE"},
            "# global.columns = ID FORM NE MISC\n"
            "1\tthe\tB-x\t_\n2\tquick\tI-x\t_\n\n1\ta\tO\t_\n",
        ),
        ({"label_column": "1"}, "the B-x DT\nquick I-x JJ\n\na O DT\n"),
    ],
)
def test_words_and_tags_are_those_of_the_named_columns(
    tmp_path, columns, content
):
    path = tmp_path / "dev.tsv"
    path.write_text(content)
    servable = serving_models.servable("tagger", eval_file=path, **columns)
    assert servable.read_texts(path) == [(b"the quick",), (b"a",)]
    dev_set = servable.read_dev_set(path, columns["label_column"])
    answers = {
        "labels": [[b"x"], [b""]],
        "starts": [[0], [-1]],
        "limits": [[9], [-1]],
    }
    assert dev_set.score(answers) == 1.0


def test_only_taggers_have_a_column_of_words():
    with pytest.raises(ValueError, match="--token_column must not be given"):
        serving_models.servable("pair", eval_file="a", token_column="1")
