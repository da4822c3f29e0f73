"""Question answering as it is served, beside what run_squad answers."""

import dataclasses
import json
import random
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds import question_answering
from bert_tf.serving.kinds.question_answering import QuestionAnswering
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import squad as reference_squad
from support import serving_models

TASK = serving_models.SQUAD_TASK
WORDS = (
    *("the", "quick", "Lorem", "É", "e\u0301", "我字", "b.", "a\u200bb", "xyz"),
    *("\U0001f600", "\ufeff", "Ω", "\u2028", "n\u0303o", "NUL\x00", "ﬁ"),
)
# Where something ends, is missing, or is no text.
ROWS = [
    (b"the", b""),
    (b"", b"lorem the quick"),
    (b"", b""),
    (b"\xff?", b"a \xff\xfe b\xc3( \xed\xa0\x80 the \xe2\x82"),
    (b"the", b"\xef\xbb\xbfquick lorem"),
    (b"q" * 300, b" \t\xe3\x80\x80 "),
    ("我".encode(), "字".encode() * 40),
    (b"the quick", b"lorem the, " * 12),
    (b"x", b"y" * 250 + b" the " + b"z" * 30),
]


def random_rows(seed, count=12):
    generator = random.Random(seed)

    def text(most):
        words = generator.choices(WORDS, k=generator.randint(0, most))
        return generator.choice((" ", "", "  \t")).join(words).encode()

    return [(text(8), text(40)) for _ in range(count)]


@pytest.fixture(scope="module")
def servable():
    return serving_models.servable("squad")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"version_2_with_negative": False, "doc_stride": 90, "n_best_size": 1},
        {"null_score_diff_threshold": 3.0, "n_best_size": 40},
        {"n_best_size": 1, "max_answer_length": 1, "doc_stride": 2},
    ],
)
def test_random_questions_are_answered_as_run_squad_does(servable, changes):
    task = dataclasses.replace(TASK, **changes)
    servable = serving_models.make_servable(
        QuestionAnswering, servable.model, servable.preprocessor, task
    )
    rows = ROWS + random_rows(len(str(changes)))
    answers = question_answering._answer_strings(
        *(tf.constant(column) for column in zip(*rows)),
        WindowMaker(servable.preprocessor, task),
        servable.model,
    )
    inputs = servable.encode(rows)
    trained = servable.trained_answers(inputs, rows)
    answers = {name: value.numpy() for name, value in answers.items()}
    wanted = servable.settle_ties(rows, trained, answers, 1e-5)
    found = serving_models.difference_of(
        answers, wanted, rows, servable, "serving_default"
    )
    assert found.largest < 1e-5, found.where
    assert_chosen_by_reference(servable, rows)
    for row, (_, context) in enumerate(rows):
        context = context.decode(errors="ignore")
        for text, start, limit in zip(
            answers["nbest_answers"][row],
            answers["nbest_starts"][row],
            answers["nbest_limits"][row],
        ):
            cited = context[start:limit] if start >= 0 else ""
            assert text.decode() == cited
    has_answer = answers["starts"] >= 0
    assert 0 < has_answer.sum() < len(rows)
    assert ("null_odds" in answers) == task.version_2_with_negative


def assert_chosen_by_reference(servable, rows):
    """Checks that run_squad and servables choose as plain NumPy does."""
    questions, contexts = (
        tuple(text.decode(errors="ignore") for text in column)
        for column in zip(*rows)
    )
    names = tuple(f"q{row}" for row in range(len(rows)))
    maker = WindowMaker(servable.preprocessor, servable.task)
    source = WindowSource(
        examples=SquadExamples(
            ids=names,
            questions=questions,
            contexts=contexts,
            context_indices=np.arange(len(rows), dtype=np.int32),
            answer_starts=np.full(len(rows), -1, np.int32),
            answer_limits=np.full(len(rows), -1, np.int32),
            answers=None,
        ),
        maker=maker,
    )
    # In windows made as training's evaluation makes them.
    predict = squad_answers.stacked_outputs(
        servable.model, serving_models.MAX_SEQ_LENGTH
    )
    batches = source.evaluation_batches(7)
    logits = [predict(batch, training=False) for batch in batches]
    logits = np.concatenate(logits)[: source.num_examples]
    nbest, spans, null_odds = reference_squad.find_answers(
        servable.task, source, logits
    )
    found = squad_answers.find_answers(servable.task, source, logits)
    assert (found.nbest, found.spans, found.null_odds) == (
        *(nbest, spans),
        null_odds,
    )
    predictions = found.predictions(servable.task)
    windows = squad_answers.cut_windows(
        maker, tf.constant(questions), tf.constant(contexts)
    )
    served = question_answering._answers(servable.task, windows, logits)
    served = {key: value.numpy() for key, value in served.items()}
    for row, name in enumerate(names):
        count = len(nbest[name])
        assert served["answers"][row].decode() == predictions[name]
        assert served["nbest_answers"][row].tolist() == [
            *(entry["text"].encode() for entry in nbest[name]),
            *[b""] * (served["nbest_answers"].shape[1] - count),
        ]
        places = zip(served["nbest_starts"][row], served["nbest_limits"][row])
        assert list(places)[:count] == spans[name]
        probabilities = served["nbest_scores"][row]
        np.testing.assert_allclose(
            probabilities[:count],
            [entry["probability"] for entry in nbest[name]],
            rtol=1e-6,
        )
        assert not probabilities[count:].any()
        if null_odds:
            assert served["null_odds"][row] == np.float32(null_odds[name])


def test_every_signature_answers_as_run_squad_does(servable):
    rows = ROWS + random_rows(7, 4)
    found = serving_models.differences("squad", servable, rows)
    assert set(found) == {
        *("examples", "ids", "ids_examples", "serving_default"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where
    nothing = serving_models.loaded("squad").signatures["serving_default"](
        question=tf.zeros([0], tf.string), context=tf.zeros([0], tf.string)
    )
    assert nothing["answers"].shape == nothing["null_odds"].shape == (0,)
    assert nothing["nbest_answers"].shape == (0, 5)


def test_a_bad_string_leaves_the_other_answers_alone():
    answer = serving_models.loaded("squad").signatures["serving_default"]
    good = random_rows(11, 5)
    questions, contexts = zip(*good)
    alone = answer(
        question=tf.constant(questions), context=tf.constant(contexts)
    )
    bad = b"\xff\x00\xc3 lorem " * 30
    among = answer(
        question=tf.constant([bad, *questions]),
        context=tf.constant([bad, *contexts]),
    )
    for name, value in alone.items():
        if value.dtype == tf.float32:
            np.testing.assert_allclose(among[name][1:], value, atol=1e-5)
        else:
            np.testing.assert_array_equal(among[name][1:], value)


def test_answers_are_cited_character_for_character():
    preprocessor = Preprocessor(
        WordpieceSpec(serving_models.VOCABULARY),
        max_seq_length=serving_models.MAX_SEQ_LENGTH,
    )
    asked = serving_models.VOCABULARY.index("quick")

    def model(inputs):
        # The answer is from the first "quick" to what follows it.
        is_asked = tf.cast(tf.equal(inputs["input_ids"], asked), tf.float32)
        is_asked *= tf.cast(inputs["segment_ids"], tf.float32)
        return {
            "start_logits": 9 * is_asked,
            "end_logits": 9 * tf.roll(is_asked, 1, axis=1),
        }

    context = "\ufeffÉ \U0001f600 " * 9 + "QUÍCK, (\u200bthe 我)" + " a" * 30
    answers = question_answering._answer_strings(
        tf.constant(["the?", "我"]),
        tf.constant([context, context[:-60]]),
        WindowMaker(preprocessor, TASK),
        model,
    )
    assert [text.decode() for text in answers["answers"].numpy()] == [
        "QUÍCK,"
    ] * 2
    start = context.index("Q")
    assert answers["starts"].numpy().tolist() == [start] * 2
    assert answers["limits"].numpy().tolist() == [start + 6] * 2
    np.testing.assert_allclose(answers["null_odds"], [-18, -18])


@pytest.mark.parametrize("num_rows", [0, 1, 3, 8])
def test_chunks_are_the_whole(num_rows):
    lengths = np.array([4, 1, 6, 2, 2, 5, 1, 3])[:num_rows]
    mask = (np.arange(7) < lengths[:, np.newaxis]).astype(np.int32)
    ids = np.arange(num_rows * 7, dtype=np.int32).reshape(num_rows, 7) * mask
    seen = []

    def compute(inputs):
        seen.append(inputs["input_ids"].shape)
        total = tf.reduce_sum(inputs["input_ids"], axis=1)
        return tf.cast(tf.stack([total, -total], axis=1), tf.float32)

    answers = chunks.compute_in_chunks(
        {"input_ids": ids, "input_mask": mask, "segment_ids": mask},
        compute,
        [2],
    )
    total = ids.sum(axis=1)
    np.testing.assert_array_equal(answers, np.stack([total, -total], 1))
    # The short rows first, each chunk as long as its longest.
    wanted = {
        0: [(0, 1)],
        1: [(1, 4)],
        3: [(3, 6)],
        8: [(4, 2), (4, 6)],
    }
    assert seen == wanted[num_rows]


@pytest.mark.parametrize(
    "num_rows, sizes",
    [
        (0, [0]),
        (1, [1]),
        (5, [5]),
        (7, [7]),
        (8, [4, 4]),
        (11, [6, 5]),
        (15, [8, 7]),
        (16, [8, 8]),
        (20, [8, 8, 4]),
    ],
)
def test_batches_are_cut_by_their_size(num_rows, sizes):
    ids = np.arange(num_rows * 2, dtype=np.int32).reshape(num_rows, 2)
    mask = np.ones_like(ids)
    seen = []

    def compute(inputs):
        seen.append(len(inputs["input_ids"]))
        return tf.cast(inputs["input_ids"][:, :1], tf.float32)

    answers = chunks.compute_in_chunks(
        {"input_ids": ids, "input_mask": mask, "segment_ids": mask},
        compute,
        [1],
    )
    np.testing.assert_array_equal(answers, ids[:, :1])
    assert seen == sizes


class Doubled:
    """A model whose outputs have several tensors, and remembers its calls."""

    outputs = {
        "all": [tf.TensorSpec([None, None, None], tf.int32)],
        "first": tf.TensorSpec([None], tf.int32),
    }

    def __init__(self):
        self.sizes = []

    def __call__(self, inputs):
        ids = inputs["input_ids"]
        self.sizes.append(len(ids))
        return {"all": [2 * ids], "first": ids[:, 0, 0]}


@pytest.mark.parametrize(
    "num_rows, num_choices, sizes",
    [(0, 1, [0]), (5, 1, [5]), (20, 1, [8, 8, 4]), (20, 3, [2] * 10)],
)
def test_rows_of_ids_are_computed_in_their_order(num_rows, num_choices, sizes):
    count = num_rows * num_choices * 2
    ids = np.arange(count, dtype=np.int32).reshape(num_rows, num_choices, 2)
    model = Doubled()
    # A mask may have its 1s anywhere.
    inputs = {"input_ids": ids, "input_mask": ids % 2, "segment_ids": ids}
    found = chunks.compute_in_order(inputs, model, num_choices)
    np.testing.assert_array_equal(found["all"][0], 2 * ids)
    np.testing.assert_array_equal(found["first"], ids[:, 0, 0])
    assert model.sizes == sizes


def test_chunks_run_at_once_and_keep_their_places():
    both = threading.Barrier(2, timeout=60)

    def compute_row(start):
        # None ends before another has begun; the first of two ends last.
        both.wait()
        time.sleep(0 if start % 2 else 0.01)
        return np.array([start], np.int32)

    def compute(start):
        (row,) = tf.numpy_function(
            compute_row, [start], [tf.int32], stateful=False
        )
        return [tf.ensure_shape(row, [1])]

    run = tf.function(
        lambda count: chunks.concat_chunks(
            compute, count, 1, [tf.TensorSpec([None], tf.int32)]
        )
    )
    (rows,) = run(tf.constant(20))
    np.testing.assert_array_equal(rows, np.arange(20))


def test_texts_of_a_development_set(servable, tmp_path):
    path = tmp_path / "dev.json"
    questions = [
        {"id": "1", "question": "Wér?", "answers": []},
        {"id": "2", "question": "wo?"},
    ]
    paragraph = {"context": "Ein Text.", "qas": questions}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    assert servable.read_texts(str(path)) == [
        ("Wér?".encode(), b"Ein Text."),
        (b"wo?", b"Ein Text."),
    ]
    path.write_text('{"data": 1}')
    with pytest.raises(ValueError, match=r"dev\.json: data must be a list"):
        servable.read_texts(str(path))


def test_a_folder_without_a_task_is_served_by_run_squads_defaults(tmp_path):
    model = BertSpanPredictor(serving_models.CONFIG)
    checkpoints.save(
        tmp_path,
        model,
        WordpieceSpec(serving_models.VOCABULARY),
        serving_models.MAX_SEQ_LENGTH,
    )
    servable = opening.open_folder(tmp_path)
    assert isinstance(servable, QuestionAnswering)
    assert servable.task.doc_stride == 128


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", "who?\tthe quick, fox\n\tlorem\n"),
        ("a.tsv", "question\tcontext\nwho?\tthe quick, fox\n\tlorem\n"),
        ("a.CSV", 'context,question\n"the quick, fox",who?\nlorem,\n'),
    ],
)
def test_pairs_are_read_from_tables_and_lines_too(
    tmp_path, servable, name, content
):
    path = tmp_path / name
    path.write_text(content)
    assert servable.read_texts(path) == [
        (b"who?", b"the quick, fox"),
        (b"", b"lorem"),
    ]
    # They have no answers.
    assert servable.read_dev_set(path) is None
    with pytest.raises(ValueError, match="--label_column must not be given"):
        servable.read_dev_set(path, "answers")
