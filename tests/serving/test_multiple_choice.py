"""Multiple choice as it is served: the likeliest of several strings."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import saved_model
from bert_tf.serving.kinds import texts
from bert_tf.serving.proof import requests
from support import serving_models

CONTEXTS = [b"the quick", b"lorem ipsum, dolor sit amet " * 3]
CHOICES = [[b"fox.", b"", b"jumps over"], [b"a", b"x" * 90, b"\xff?"]]


@pytest.fixture(scope="module")
def servable():
    return serving_models.servable("choice")


def test_answers_are_those_of_training_on_hard_strings(servable):
    hard = servable.hard_texts()
    found = serving_models.differences("choice", servable, hard)
    assert set(found) == {
        *("examples", "ids", "ids_examples", "serving_default"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where


def test_every_signature_chooses_as_the_model_does(servable):
    signatures = serving_models.loaded("choice").signatures
    pairs = servable.preprocessor(
        (np.repeat(CONTEXTS, 3), np.array(CHOICES).reshape(-1))
    )
    inputs = {
        name: tf.reshape(value, [2, 3, -1]) for name, value in pairs.items()
    }
    logits = servable.model(inputs) / servable.task.temperature
    probabilities = tf.nn.softmax(logits).numpy()

    examples = []
    for context, choices in zip(CONTEXTS, CHOICES):
        example = tf.train.Example()
        feature = example.features.feature
        feature["context"].bytes_list.value.append(context)
        feature["choices"].bytes_list.value.extend(choices)
        examples.append(example.SerializeToString())
    for answer in (
        signatures["serving_default"](
            context=tf.constant(CONTEXTS), choices=tf.constant(CHOICES)
        ),
        signatures["ids"](**inputs),
        signatures["examples"](examples=tf.constant(examples)),
    ):
        np.testing.assert_allclose(
            answer["probabilities"], probabilities, atol=1e-5
        )
        np.testing.assert_array_equal(
            answer["choice"], probabilities.argmax(-1)
        )
    nothing = signatures["serving_default"](
        context=tf.zeros([0], tf.string), choices=tf.zeros([0, 3], tf.string)
    )
    assert nothing["probabilities"].shape == (0, 3)


def test_texts_of_a_line_are_a_context_and_its_choices(servable):
    path = serving_models.exported("choice", "text")
    assert len(saved_model.read_options(path).text_features) == 4
    (row,) = texts.parse_texts(["a b\tc\t\td"], 4, "--text")
    strings = requests.strings(servable.text_features, [row])
    assert strings["context"].tolist() == [b"a b"]
    assert strings["choices"].tolist() == [[b"c", b"", b"d"]]
    with pytest.raises(ValueError, match="--text, line 1: must be 4 strings"):
        texts.parse_texts(["a\tb"], 4, "--text")


@pytest.mark.parametrize(
    "name, text",
    [
        (
            "val.csv",
            'sent1,sent2,ending0,ending1,ending2,label\n"A, é.",B,c,d,e,0\n',
        ),
        ("dev.tsv", 'o\t"A, é."\tB c\tB d\tB e\t1\n'),
        (
            "dev.jsonl",
            '{"context": "A, é.", "choices": ["B c", "B d", "B e"]}\n',
        ),
    ],
)
def test_files_of_the_task_are_read_as_training_reads_them(
    servable, tmp_path, name, text
):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    context = '"A, é."' if name == "dev.tsv" else "A, é."
    assert servable.read_texts(path) == [
        (context.encode(), b"B c", b"B d", b"B e")
    ]


def test_a_folder_of_race_is_read(servable, tmp_path):
    (tmp_path / "1.txt").write_text(
        '{"article": "a", "questions": ["b"], "options": [["c", "d", "e"]]}'
    )
    assert servable.read_texts(tmp_path) == [(b"a", b"b c", b"b d", b"b e")]


def test_a_column_of_choices_is_not_taken_for_all(servable, tmp_path):
    path = tmp_path / "dev.csv"
    path.write_text("context,choices\na,b\n")
    with pytest.raises(ValueError, match="line 1: .* a column 'sent1'"):
        servable.read_texts(path)
    path = tmp_path / "dev.TSV"
    path.write_text("context\tchoices\na\tb\n")
    with pytest.raises(ValueError, match="TSV, line 1: .* have a category"):
        servable.read_texts(path)
    path = tmp_path / "lines"
    path.write_text("a\tb\tc\td\n")
    assert servable.read_texts(path) == [(b"a", b"b", b"c", b"d")]


def test_labels_are_those_of_the_column_that_is_named(tmp_path, servable):
    path = tmp_path / "dev.csv"
    header = "sent1,sent2,ending0,ending1,ending2,label,gold\n"
    path.write_text(f"{header}a,b,x,y,z,0,2\nc,d,x,y,z,0,1\n")
    answers = {"choice": [2, 2]}
    assert servable.read_dev_set(path).score(answers) == 0.0
    assert servable.read_dev_set(path, "gold").score(answers) == 0.5
    with pytest.raises(ValueError, match="must have a column 'wrong'"):
        servable.read_dev_set(path, "wrong")


def test_a_column_is_refused_where_columns_have_no_names(tmp_path, servable):
    path = tmp_path / "codah.tsv"
    path.write_text("o\ta\tx\ty\tz\t2\n")
    assert servable.read_dev_set(path).score({"choice": [2]}) == 1.0
    folder = tmp_path / "race"
    folder.mkdir()
    (folder / "1.txt").write_text(
        json.dumps(
            {
                "article": "a",
                "questions": ["b"],
                "options": [["x", "y", "z"]],
                "answers": ["C"],
            }
        )
    )
    assert servable.read_dev_set(folder).score({"choice": [2]}) == 1.0
    for each in (path, folder):
        with pytest.raises(ValueError, match="says itself where the labels"):
            servable.read_dev_set(each, "gold")
