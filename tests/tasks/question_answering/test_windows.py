"""Windows, labels and answers, against plain loops, on random texts."""

import dataclasses
import functools
import random

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.text.learners import byte_bpe
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import squad as reference_squad

TOKENS = (*SPECIAL_TOKENS, *"abc.,?", "##a", "##b", "ab", "中", "e")
VOCABULARY = Vocabulary(tokens=TOKENS)
WORDS = ("a", "AB", "ca", "É", "e\u0301", "中a", "b.", "c\u200ba", "x", "abab")
LENGTH = 16


# A maker is traced once.
@functools.cache
def maker_of(**settings):
    settings = {"doc_stride": 4, "max_query_length": 5} | settings
    return WindowMaker(
        Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=LENGTH),
        SquadTask(**settings),
    )


def random_examples(seed, count=40):
    generator = random.Random(seed)
    questions, contexts, spans = [], [], []
    for index in range(count):
        asked = generator.choices(WORDS, k=generator.randint(0, 6))
        questions.append(" ".join(asked))
        told = generator.choices(WORDS, k=generator.randint(0, 25))
        # Each text is another one: its number is what it begins with.
        context = "a" * index + "  " + generator.choice(" \t").join(told)
        contexts.append(context)
        start = generator.randrange(len(context))
        limit = generator.randint(start + 1, min(start + 9, len(context)))
        spans.append((start, limit) if generator.random() < 0.8 else (-1, -1))
    return SquadExamples(
        ids=tuple(f"q{index}" for index in range(count)),
        questions=tuple(questions),
        contexts=tuple(contexts),
        context_indices=np.arange(count, dtype=np.int32),
        answer_starts=np.array([start for start, _ in spans], np.int32),
        answer_limits=np.array([limit for _, limit in spans], np.int32),
        answers=None,
    )


def wanted_windows(examples, task):
    return [
        reference_squad.windows(
            examples.questions[index],
            examples.context(index),
            (examples.answer_starts[index], examples.answer_limits[index]),
            set(TOKENS),
            LENGTH,
            task.doc_stride,
            task.max_query_length,
        )
        for index in range(len(examples))
    ]


@pytest.mark.parametrize("doc_stride", [1, 4])
def test_windows_and_labels_are_those_of_plain_loops(doc_stride):
    maker = maker_of(doc_stride=doc_stride)
    examples = random_examples(1)
    source = WindowSource(examples=examples, maker=maker, is_trimmed=True)
    wanted = wanted_windows(examples, maker.task)

    assert source.num_windows.tolist() == [len(own) for own in wanted]
    assert max(source.num_windows) > 5
    flat = [window for own in wanted for window in own]
    assert source.num_examples == len(flat)
    contexts = [examples.context(index) for index in range(len(examples))]
    windows = squad_answers.cut_windows(
        maker, tf.constant(examples.questions), tf.constant(contexts)
    )
    places = list(zip(*reference_squad.places(windows)))
    assert len(places) == len(flat)
    batches = list(source.evaluation_batches(6).as_numpy_iterator())
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    assert weights.tolist() == [1] * len(flat) + [0] * (-len(flat) % 6)
    assert any(window["label"] != (0, 0) for window in flat)
    for row, window in enumerate(flat):
        batch, index = batches[row // 6], row % 6
        tokens = window["tokens"]
        ids = batch["input_ids"][index]
        assert [TOKENS[i] for i in ids[: len(tokens)]] == tokens
        assert ids[len(tokens) :].tolist() == [0] * (len(ids) - len(tokens))
        assert batch["input_mask"][index].sum() == len(tokens)
        first = tokens.index("[SEP]") + 1
        assert batch["segment_ids"][index].tolist() == [0] * first + [1] * (
            len(tokens) - first
        ) + [0] * (len(ids) - len(tokens))
        label = batch[features.LABELS]
        assert window["label"] == (
            label["start_logits"][index],
            label["end_logits"][index],
        )
        starts, limits, best = (values.tolist() for values in places[row])
        for place in range(LENGTH):
            want = window["places"].get(place, (-1, -1))
            assert (starts[place], limits[place]) == want
            assert best[place] == window["is_max_context"].get(place, False)
    for batch in batches:
        longest = batch["input_mask"].sum(axis=1).max()
        assert batch["input_ids"].shape == (6, longest)


def test_a_short_stride_takes_no_more_memory():
    maker = maker_of(doc_stride=1)
    pack = tf.function(maker.pack, autograph=False).get_concrete_function(
        *[tf.RaggedTensorSpec([None, None], tf.int32)] * 2,
        *[tf.TensorSpec([None], tf.int32)] * 2,
    )
    outputs = [
        value
        for operation in pack.graph.get_operations()
        for value in operation.outputs
    ]
    assert not [value for value in outputs if (value.shape.rank or 0) > 2]


def test_long_texts_are_not_tokenized_for_each_window(monkeypatch):
    # Of its own: what it traces counts.
    maker = maker_of(max_query_length=3)
    num_bytes = 0

    def counted(tokenize):
        def count(texts):
            nonlocal num_bytes
            num_bytes += sum(map(len, texts))
            return texts

        def call(texts):
            same = tf.numpy_function(count, [texts], tf.string)
            return tokenize(tf.ensure_shape(same, [None]))

        return call

    for name in ("tokenize", "tokenize_with_offsets"):
        tokenize = getattr(maker.tokenizer, name)
        monkeypatch.setattr(maker.tokenizer, name, counted(tokenize))
    context = "ab, " * 200
    source = WindowSource(
        examples=SquadExamples(
            ids=("q",),
            questions=("a?",),
            contexts=(context,),
            context_indices=np.array([0], np.int32),
            answer_starts=np.array([4], np.int32),
            answer_limits=np.array([6], np.int32),
            answers=None,
        ),
        maker=maker,
    )

    batches = source.evaluation_batches(10).as_numpy_iterator()
    starts = [batch[features.LABELS]["start_logits"] for batch in batches]

    assert np.concatenate(starts).tolist()[:3] == [6, 0, 0]
    assert source.num_examples > 50
    assert num_bytes < 3 * len(context)


def test_windows_of_training_are_a_function_of_seed_and_place():
    source = WindowSource(examples=random_examples(2, 9), maker=maker_of())
    count = source.num_examples

    whole = source.training_batches(4).take(count).as_numpy_iterator()
    rows = [
        (tuple(ids), start)
        for batch in whole
        for ids, start in zip(
            batch["input_ids"], batch[features.LABELS]["start_logits"]
        )
    ]
    later = next(source.training_batches(4, 8).as_numpy_iterator())

    assert sorted(rows[:count]) == sorted(rows[count : 2 * count])
    assert rows[:count] != rows[count : 2 * count]
    assert [tuple(ids) for ids in later["input_ids"]] == [
        ids for ids, _ in rows[8:12]
    ]


@pytest.fixture(scope="module")
def drawn():
    """A source of random examples, and their windows by plain loops."""
    maker = maker_of()
    examples = random_examples(3)
    source = WindowSource(examples=examples, maker=maker)
    return source, wanted_windows(examples, maker.task)


def choosing(maker, **changes):
    """Returns the maker's task, of few answers: what chooses is traced once."""
    return dataclasses.replace(
        maker.task, n_best_size=4, max_answer_length=3, **changes
    )


@pytest.mark.parametrize("version_2", [False, True])
def test_answers_are_those_of_plain_loops(version_2, drawn):
    source, wanted = drawn
    examples = source.examples
    task = choosing(source.maker, version_2_with_negative=version_2)
    generator = np.random.default_rng(3)
    # Of few values, so that there are ties.
    logits = generator.integers(-9, 9, (source.num_examples, LENGTH, 2)) / 4
    logits = logits.astype(np.float32)

    answers = squad_answers.find_answers(task, source, logits)

    nbest, spans, odds = reference_squad.find_answers(task, source, logits)
    assert answers.nbest == nbest
    assert answers.spans == spans
    assert answers.null_odds == odds
    row = 0
    for index, shown in enumerate(wanted):
        own = logits[row : row + len(shown)]
        row += len(shown)
        entries, odds = reference_squad.nbest(
            examples.context(index),
            shown,
            own[:, :, 0].tolist(),
            own[:, :, 1].tolist(),
            n_best=4,
            max_length=3,
            version_2=version_2,
        )
        name = examples.ids[index]
        got = answers.nbest[name]
        assert [tuple(entry.values()) for entry in got] == [
            (text, pytest.approx(probability), start, end)
            for text, probability, start, end in entries
        ]
        best = next((text for text, *_ in entries if text), "")
        assert answers.texts[name] == best
        assert answers.null_odds.get(name) == odds
        want = "" if version_2 and odds > 0 else best
        assert answers.predictions(task)[name] == want
    assert 0 < sum(map(bool, answers.texts.values())) < len(examples)


def test_logits_that_are_not_finite_spoil_their_own_questions_alone(
    drawn, monkeypatch
):
    source, _ = drawn
    task = choosing(source.maker, version_2_with_negative=True)
    shape = (source.num_examples, LENGTH, 2)
    logits = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    wanted = squad_answers.find_answers(task, source, logits)
    limits = np.cumsum([0, *source.num_windows])
    spoiled = {}
    for index, value in enumerate((np.nan, np.inf, -np.inf)):
        spoiled[source.examples.ids[index]] = value
        logits[limits[index] : limits[index + 1]] = value

    # Another threshold needs no other graph: it is chosen for each evaluation.
    other = dataclasses.replace(task, null_score_diff_threshold=1.0)
    with monkeypatch.context() as patch:
        patch.delattr(squad_answers, "choose")
        answers = squad_answers.find_answers(other, source, logits)

    assert answers.nbest.keys() == wanted.nbest.keys()
    for name, entries in wanted.nbest.items():
        if name in spoiled:
            # One at least: predictions are written for all questions.
            assert answers.nbest[name]
        else:
            assert answers.nbest[name] == entries
            assert answers.null_odds[name] == wanted.null_odds[name]


def test_answers_are_cited_character_for_character():
    context = "The  Café\u0301, (in É.中)"
    none = np.array([-1, -1], np.int32)
    examples = SquadExamples(
        ids=("q1", "q2"),
        questions=("a", "a"),
        contexts=(context,),
        context_indices=np.array([0, 0], np.int32),
        answer_starts=none,
        answer_limits=none,
        answers=None,
    )
    maker = maker_of()
    source = WindowSource(examples=examples, maker=maker)
    # [CLS] a [SEP] the cafe , ( in e . 中 ) [SEP]
    logits = np.zeros((2, LENGTH, 2), np.float32)
    logits[0, 3, 0] = logits[0, 4, 1] = 1
    logits[1, 8, 0] = logits[1, 10, 1] = 1

    answers = squad_answers.find_answers(maker.task, source, logits)

    assert answers.texts == {"q1": "The  Café\u0301", "q2": "É.中"}


@pytest.mark.parametrize("version_2", [False, True])
def test_pieces_of_no_character_are_no_answer(version_2):
    context = "a  b"
    tokenizer = byte_bpe.learn([["aa aa"]], 262, ["here"])
    task = SquadTask(
        doc_stride=4,
        max_query_length=5,
        max_answer_length=2,
        version_2_with_negative=version_2,
        null_score_diff_threshold=-9.0,
    )
    maker = WindowMaker(Preprocessor(tokenizer, LENGTH), task)
    windows = squad_answers.cut_windows(
        maker, tf.constant(["a"]), tf.constant([context])
    )
    # <s> a </s> </s> a, two spaces, b. The spaces have no character.
    starts, limits = windows.offsets.starts, windows.offsets.limits
    assert starts.to_list() == [[0, 2, 3, 3]]
    assert limits.to_list() == [[1, 2, 3, 4]]
    logits = np.zeros((1, LENGTH, 2), np.float32)
    logits[0, 0] = 1
    logits[0, 5:7] = 2

    found = squad_answers.choose(task, windows, logits)

    texts = found["texts"].numpy()[0, : int(found["num_entries"][0])].tolist()
    assert texts[int(found["best"][0])].strip() != b""
    # No answer, which is told by no place, and not by another's.
    assert texts.count(b"") == version_2
    for text, start in zip(texts, found["starts"].numpy()[0].tolist()):
        assert (text.strip() == b"") == (start == -1)


def test_over_long_questions_are_cut_and_counted(monkeypatch):
    told = []
    monkeypatch.setattr(
        logging, "warning", lambda text, *values: told.append(text % values)
    )
    source = WindowSource(examples=random_examples(1), maker=maker_of())

    assert source.num_examples > 0
    assert len(told) == 1
    assert "questions have more than max_query_length=5 pieces" in told[0]


def test_window_must_have_room_for_the_text():
    with pytest.raises(ValueError, match="greater than max_query_length"):
        maker_of(max_query_length=13)
