"""The task, its files and its batches."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.multiple_choice.source import ChoiceSource
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.tuning.predictor import Predictor
from support import keras_fit

TASK = MultipleChoiceTask(num_choices=3)
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh")
VOCABULARY = Vocabulary(tokens=TOKENS)
SWAG = (
    ",video-id,sent1,sent2,gold-source,ending0,ending1,ending2,label\n"
    '0,v,"He looks, and sees.",She,gold,"runs, ""fast""",sits,"is\nup",2\n'
    "1,v,It is late.,,gold,He sleeps.,He wakes.,Both.,0\n"
)
CODAH = 'o\tI am hungry. I\teat.\tam "sick.\trun.\t0\r\n\nn\tBe\ta\tb\tc\t2\n'
JSON_LINES = (
    '{"context": "A", "choices": ["b", "c", "d"], "label": 1}\n'
    '{"choices": ["", "é", "x"], "context": "", "label": 0, "id": 7}\n'
)


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8"))
    return path


@pytest.mark.parametrize(
    ("name", "text", "contexts", "choices", "labels"),
    [
        (
            "train.csv",
            SWAG,
            ("He looks, and sees.", "It is late."),
            (
                ('She runs, "fast"', "She sits", "She is\nup"),
                ("He sleeps.", "He wakes.", "Both."),
            ),
            [2, 0],
        ),
        (
            "codah.tsv",
            CODAH,
            ("I am hungry. I", "Be"),
            (("eat.", 'am "sick.', "run."), ("a", "b", "c")),
            [0, 2],
        ),
        (
            "dev.jsonl",
            JSON_LINES,
            ("A", ""),
            (("b", "c", "d"), ("", "é", "x")),
            [1, 0],
        ),
    ],
)
def test_every_form_is_read(tmp_path, name, text, contexts, choices, labels):
    path = write(tmp_path, name, text)
    examples = multiple_choice_files.read_choices(path)
    assert examples.contexts == contexts
    assert examples.choices == choices
    assert examples.labels.tolist() == labels
    assert len(examples) == 2
    assert examples.num_choices == 3
    unlabelled = multiple_choice_files.read_choices(path, has_labels=False)
    assert unlabelled.labels is None
    assert unlabelled.choices == choices


def test_files_without_labels_are_read_where_none_are_wanted(tmp_path):
    for name, text in (
        ("a.csv", "sent1,sent2,ending0,ending1\na,b,c,d\n"),
        ("a.tsv", "o\ta\tb c\tb d\t\n"),
        ("a.jsonl", '{"context": "a", "choices": ["b c", "b d"]}'),
    ):
        path = write(tmp_path, name, text)
        examples = multiple_choice_files.read_choices(path, has_labels=False)
        assert examples.contexts == ("a",)
        assert examples.choices == (("b c", "b d"),)
        with pytest.raises(ValueError, match="label"):
            multiple_choice_files.read_choices(path)


def write_race(folder, **passages):
    for name, passage in passages.items():
        path = folder / name / "1.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(passage), "utf-8")
    return folder


PASSAGE = {
    "id": "high1.txt",
    "article": "Ann ran.\nShe é fell.",
    "questions": ["Ann _ .", "Who ran?"],
    "options": [["ran", "sat", "a_b"], ["Ann", "Bob", "Cy"]],
    "answers": ["A", "C"],
}


def test_a_folder_of_race_is_read(tmp_path):
    other = {
        "article": "x",
        "questions": ["y"],
        "options": [["z", "w", ""]],
        "answers": ["B"],
    }
    folder = write_race(tmp_path / "dev", middle=other, high=PASSAGE)
    (folder / ".DS_Store").write_bytes(b"\xff")
    examples = multiple_choice_files.read_choices(folder)
    assert examples.contexts == ("Ann ran.\nShe é fell.",) * 2 + ("x",)
    assert examples.choices == (
        ("Ann ran .", "Ann sat .", "Ann a_b ."),
        ("Who ran? Ann", "Who ran? Bob", "Who ran? Cy"),
        ("y z", "y w", "y "),
    )
    assert examples.labels.tolist() == [0, 2, 1]
    # One of its folders alone, and without answers.
    del other["answers"]
    middle = write_race(folder, middle=other) / "middle"
    examples = multiple_choice_files.read_choices(middle, has_labels=False)
    assert examples.contexts == ("x",)
    assert examples.labels is None
    # All of RACE is no set to train on.
    write_race(tmp_path / "train", high=PASSAGE)
    with pytest.raises(ValueError, match="must be one of RACE's sets.*/train"):
        multiple_choice_files.read_choices(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"article": 1}, "1.txt: must be an object with a string `article`"),
        ({"answers": ["A"]}, "lists of one length: questions, options, ans"),
        ({"answers": None}, "lists of one length: questions, options, ans"),
        ({"answers": ["A", "D"]}, "question 2: .* one of A, B, C. .*'D'"),
        ({"answers": ["A", ["B"]]}, "question 2: the answer must be one of"),
        ({"questions": [3, "x"]}, "question 1: `questions` must be a string"),
        ({"options": [["a", "b"], "ab"]}, "question 2: `options` must be a"),
        ({"options": [["a"] * 2, ["a"] * 3]}, "question 2: .* 2 choices.* 3"),
    ],
)
def test_bad_passages_are_told_by_question(tmp_path, change, message):
    folder = write_race(tmp_path / "dev", high=PASSAGE | change)
    with pytest.raises(ValueError, match=message) as error:
        multiple_choice_files.read_choices(folder)
    assert str(error.value).startswith(f"{folder}/high/1.txt")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="empty: there are no examples"):
        multiple_choice_files.read_choices(empty)


def test_blanks_around_labels_are_taken_off_and_counted(tmp_path, caplog):
    path = write(tmp_path, "a.tsv", "o\ta\tb\tc\t1 \no\ta\tb\tc\t0\n")
    with caplog.at_level("WARNING", logger="absl"):
        examples = multiple_choice_files.read_choices(path)
    assert examples.labels.tolist() == [1, 0]
    assert "a.tsv: stripped the blanks around 1 of the labels" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "must end with .csv, .tsv, .jsonl"),
        ("a.tsv", "\n", "there are no examples"),
        ("a.csv", "", "line 1: the header must have a column 'sent1'"),
        ("a.csv", SWAG.replace("ending0", "x"), "line 1: .* 'ending0'"),
        (
            "a.csv",
            SWAG.replace("ending1", "ending3"),
            "line 1: .* 'ending1', once",
        ),
        ("a.csv", SWAG.replace("ending2", "ending1"), ".* 'ending1', once"),
        ("a.csv", SWAG.replace("video-id", "sent2"), ".* 'sent2', once"),
        ("a.csv", SWAG.replace("video-id", "label"), ".* 'label', once"),
        ("a.csv", SWAG + "1,2\n", "line 5: a row must have 9 columns. .* 2"),
        ("a.csv", SWAG + '1,"2"3\n', "line 5: .*quotation mark must end"),
        ("a.tsv", CODAH + "o\ta\tb\tc\t1\n", "line 4: .* 3 choices.* 2"),
        ("a.tsv", "o\ta\tb\t0\n", "line 1: .* two or more choices.* 1"),
        ("a.tsv", "o\ta\n", "line 1: .* Received: 2 columns"),
        ("a.tsv", CODAH + "o\ta\tb\tc\td\t3\n", "line 4: .* 0 to 2.* '3'"),
        ("a.tsv", CODAH + "o\ta\tb\tc\td\tx\n", "line 4: .* 0 to 2.* 'x'"),
        ("a.jsonl", JSON_LINES + "{", "line 3: not JSON"),
        ("a.jsonl", JSON_LINES + '["a"]', "line 3: must be an object"),
        (
            "a.jsonl",
            JSON_LINES + '{"context": "a", "choices": "bcd", "label": 0}',
            "line 3: `choices` must be a list of strings",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"], "label": true}',
            "line 1: the label .* True",
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"], "label": Infinity}',
            "line 1: the label .* inf",
        ),
        ("a.jsonl", JSON_LINES + "[" * 9999, "line 3: .* nested too deeply"),
    ],
)
def test_bad_files_are_told_by_line(tmp_path, name, text, message):
    path = write(tmp_path, name, text)
    with pytest.raises(ValueError, match=message) as error:
        multiple_choice_files.read_choices(path)
    assert str(error.value).startswith(str(path))


def test_number_of_choices_may_be_prescribed(tmp_path):
    path = write(tmp_path, "a.tsv", CODAH)
    with pytest.raises(ValueError, match="line 1: .* 4 choices. Received: 3"):
        multiple_choice_files.read_choices(path, num_choices=4)


def test_task_goes_through_json():
    values = json.loads(json.dumps(TASK.to_dict()))
    assert values == {"family": "multiple_choice", "num_choices": 3}
    assert MultipleChoiceTask.from_dict(values) == TASK
    for change, message in (
        ({"family": "glue"}, "family='glue'"),
        ({"num_choices": 1}, "num_choices=1"),
        ({"num_choices": "3"}, "num_choices='3'"),
        ({"other": 1}, "must have the keys"),
    ):
        with pytest.raises(ValueError, match=message):
            MultipleChoiceTask.from_dict(values | change)


def test_losses_scores_and_answers(tmp_path):
    probabilities = np.float32([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]])
    logits, labels = np.log(probabilities) + 2, np.int32([0, 2])
    losses = -np.log([0.7, 0.1])
    np.testing.assert_allclose(
        TASK.example_losses(logits, labels), losses, rtol=1e-5
    )
    assert float(TASK.loss()(labels, logits)) == pytest.approx(losses.mean())
    assert TASK.results(logits, labels) == pytest.approx(
        {"eval_loss": losses.mean(), "eval_accuracy": 0.5}
    )
    objective = TASK.objective()
    batch = {"labels": labels, "example_weights": np.float32([1, 0])}
    assert float(objective.weights(batch)["loss"]) == 1
    total = objective.losses(logits, batch)["loss"]
    assert float(total) == pytest.approx(losses[0])
    hits, weight = objective.metrics(logits, batch)["accuracy"]
    assert (float(hits), float(weight)) == (1, 1)

    answers = TASK.decode_tensors(logits)
    answers = {name: value.numpy() for name, value in answers.items()}
    assert answers["choice"].tolist() == [0, 1]
    path = tmp_path / "test_results.tsv"
    told = TASK.write_predictions(tmp_path, "test", None, logits)
    assert told == f"2 choices in {path}"
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert rows[0] == [
        "choice",
        "probability_0",
        "probability_1",
        "probability_2",
    ]
    assert [row[0] for row in rows[1:]] == ["0", "1"]
    np.testing.assert_allclose(
        np.float32([row[1:] for row in rows[1:]]), probabilities, rtol=1e-5
    )


def make_examples(count, seed=1):
    generator = np.random.default_rng(seed)

    def texts(*shape):
        return [
            " ".join(generator.choice(list("abcdefgh"), size=size))
            for size in generator.integers(1, 9, shape).flatten()
        ]

    return ChoiceExamples(
        contexts=tuple(texts(count)),
        choices=tuple(tuple(texts(3)) for _ in range(count)),
        labels=generator.integers(0, 3, count).astype(np.int32),
    )


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_batches_hold_every_choice_with_its_context(is_trimmed):
    examples = make_examples(7)
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11)
    source = ChoiceSource(
        examples=examples, preprocessor=preprocessor, is_trimmed=is_trimmed
    )
    batches = list(source.evaluation_batches(4).as_numpy_iterator())
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    assert weights.tolist() == [1] * 7 + [0]
    for index in range(7):
        batch, row = batches[index // 4], index % 4
        assert batch["labels"][row] == examples.labels[index]
        length = 11
        if is_trimmed:
            length = batch["input_mask"].sum(axis=-1).max()
        assert batch["input_ids"].shape == (4, 3, length)
        for choice in range(3):
            # The longer of the two is cut first.
            a = examples.contexts[index].split()
            b = examples.choices[index][choice].split()
            while len(a) + len(b) > 8:
                (a if len(a) > len(b) else b).pop()
            tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
            ids = batch["input_ids"][row, choice]
            assert [TOKENS[i] for i in ids[: len(tokens)]] == tokens
            assert batch["input_mask"][row, choice].sum() == len(tokens)
            segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            padding = [0] * (length - len(tokens))
            assert (
                batch["segment_ids"][row, choice].tolist() == segments + padding
            )


def test_training_is_a_function_of_seed_and_place():
    source = ChoiceSource(
        examples=make_examples(5),
        preprocessor=Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11),
    )
    batches = list(source.training_batches(2).take(5).as_numpy_iterator())
    rows = [
        (*ids.flatten(), label)
        for batch in batches
        for ids, label in zip(batch["input_ids"], batch["labels"])
    ]
    assert sorted(rows[:5]) == sorted(rows[5:])
    assert rows[:5] != rows[5:]
    later = next(source.training_batches(2, 6).as_numpy_iterator())
    np.testing.assert_array_equal(later["input_ids"], batches[3]["input_ids"])


def test_batches_of_one_length_hold_the_same_examples():
    source = ChoiceSource(
        examples=make_examples(40),
        preprocessor=Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=19),
        is_trimmed=True,
    )
    sorted_source = dataclasses.replace(source, window_batches=10)
    rows, num_tokens = [], []
    for each in (source, sorted_source):
        batches = list(each.training_batches(4).take(10).as_numpy_iterator())
        rows.append(
            sorted(
                tuple(ids[ids > 0]) for b in batches for ids in b["input_ids"]
            )
        )
        num_tokens.append(sum(batch["input_ids"].size for batch in batches))
    assert rows[0] == rows[1]
    assert num_tokens[1] < 0.95 * num_tokens[0]


def test_fit_and_loop_give_equal_weights(tmp_path):
    config = BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=11,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    source = ChoiceSource(
        examples=make_examples(13),
        preprocessor=Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11),
    )
    training = loop.TrainingConfig(num_train_steps=7, train_batch_size=4)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    states = []
    for name in ("fit", "loop"):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = BertMultipleChoice(config, dropout=0.0)
            state = TrainingState(
                model, BertOptimizer(1e-3), tmp_path / name, {}
            )
        states.append(state)
        if name == "fit":
            keras_fit.fit(state, TASK, source, training)
        else:
            loop.train(state, TASK.objective(), source, training, strategy)
    for ours, theirs in zip(*(state.model.weights for state in states)):
        # All choices share it: its gradient is rounding alone.
        if ours.path.endswith("multiple_choice/dense/bias"):
            continue
        np.testing.assert_allclose(
            np.array(ours), np.array(theirs), atol=5e-6, err_msg=ours.path
        )
    logits = Predictor(states[0].model, strategy)(source, 5)
    assert logits.shape == (13, 3)
