"""Batches, chunks and devices: the same steps, and the same gradients."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf import features
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.tasks.retrieval import source as source_lib
from bert_tf.tasks.retrieval.source import distinct_order
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from bert_tf.tuning.config import FineTuningConfig
from references import sentences
from support import keras_fit
from support import releases

WORDS = tuple("abcdefghij")
VOCABULARY = Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS))
NO_DROPOUT = dataclasses.replace(
    releases.tiny_config(len(VOCABULARY)),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TASK = RetrievalTask(head="dense", query_prompt="j ")


def make_table(count=40, num_words=5):
    generator = np.random.default_rng(2)
    names = ("query", "positive", "negative")
    return {
        name: [
            " ".join(generator.choice(WORDS, size=generator.integers(2, 8)))
            for _ in range(count)
        ]
        for name in names
    }


def make_source(task=TASK, table=None, split="train", **options):
    examples = task.read(table or make_table(), split)
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), 12)
    options = {"seed": 3, "is_trimmed": True} | options
    return task.make_sources({split: examples}, preprocessor, **options)[split]


def make_state(task, folder, strategy):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = task.make_model(NO_DROPOUT)
        optimizer = BertOptimizer(WarmupDecay(1e-2, 30, 3))
        return TrainingState(model, optimizer, folder, {})


CONFIG = loop.TrainingConfig(
    num_train_steps=6,
    train_batch_size=8,
    options=LoopOptions(random_seed=9, iterations_per_loop=1),
)


def weights_of(state):
    return [
        keras.ops.convert_to_numpy(variable)
        for variable in state.model.trainable_variables
    ]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The weights before and after `fit` on one device, and its losses."""
    folder = tmp_path_factory.mktemp("fit")
    state = make_state(TASK, folder, make_strategy())
    before = weights_of(state)
    losses = keras_fit.fit(state, TASK, make_source(), CONFIG)
    return before, weights_of(state), losses


def losses_of(history):
    return [report["loss"] for report in history]


def assert_same_training(fitted, state, history):
    before, after, losses = fitted
    assert losses_of(history) == pytest.approx(losses, abs=1e-5)
    found = weights_of(state)
    for ours, theirs in zip(found, after, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert (
        max(np.abs(new - old).max() for new, old in zip(found, before)) > 1e-2
    )


def test_the_loop_makes_the_steps_of_fit(tmp_path, fitted):
    strategy = make_strategy()
    state = make_state(TASK, tmp_path, strategy)
    history = loop.train(
        state, TASK.objective(), make_source(), CONFIG, strategy
    )
    assert_same_training(fitted, state, history)
    assert 0 < history[0]["padding"] < 0.8


# Of two devices each has half of the queries: all passages are to be found.
# A chunk is of two texts.
@pytest.mark.survival
def test_two_devices_in_chunks_make_the_steps_of_one(tmp_path, fitted):
    task = dataclasses.replace(TASK, chunk_size=2)
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    state = make_state(task, tmp_path, strategy)
    history = loop.train(
        state, task.objective(), make_source(), CONFIG, strategy
    )
    assert_same_training(fitted, state, history)


@pytest.mark.parametrize("loss_name", ["multiple_negatives", "cosent"])
def test_losses_over_two_devices_have_the_gradients_of_one(loss_name):
    task = RetrievalTask(
        loss_name=loss_name,
        symmetric=loss_name != "cosent",
        matryoshka_sizes=(6, 3),
    )
    num_texts = 2 if loss_name == "cosent" else 3
    vectors = np.random.default_rng(1).normal(size=(8, num_texts, 6))
    vectors = vectors.astype("float32")
    labels = np.float32([0, 0.5, 0.2, 1, 0.7, 0.5, 0.3, 0.9])
    strategy = make_strategy("mirrored", num_cpu_devices=2)

    def gradient_of(values, own_labels):
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_sum(task.losses(values, own_labels)) / 8
        return loss, tape.gradient(loss, values)

    expected_loss, expected = gradient_of(tf.constant(vectors), labels)

    @tf.function(autograph=False)
    def run(values, labels):
        return strategy.run(gradient_of, args=(values, labels))

    def shared(array):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                np.split(array, 2)[context.replica_id_in_sync_group]
            )
        )

    found_losses, found = run(shared(vectors), shared(labels))
    found = np.concatenate(strategy.experimental_local_results(found))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    total = sum(strategy.experimental_local_results(found_losses))
    np.testing.assert_allclose(total, expected_loss, rtol=1e-5)


def reset(model, seed):
    for state in backend.seed_states(model):
        state.assign([seed, 1])


def gradients_of(model, task, batch):
    reset(model, 0)
    with tf.GradientTape() as tape:
        vectors = model(batch, training=True)
        labels = tf.zeros(vectors.shape[0])
        loss = tf.reduce_mean(task.losses(vectors, labels))
    gradients = tape.gradient(loss, model.trainable_variables)
    return float(loss), [tf.convert_to_tensor(each) for each in gradients]


@pytest.mark.parametrize("chunk_size", [2, 8])
def test_gradients_of_chunks_are_those_of_the_batch(chunk_size):
    # One chunk has the masks of the whole: there dropout may be on.
    dropout = 0.3 if chunk_size == 8 else 0.0
    config = dataclasses.replace(
        NO_DROPOUT,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    table = make_table()
    del table["negative"]
    (batch,) = make_source(table=table).training_batches(8).take(1)
    keras.utils.set_random_seed(5)
    whole = TASK.make_model(config)
    task = dataclasses.replace(TASK, chunk_size=chunk_size)
    chunked = task.make_model(config)
    chunked.set_weights(whole.get_weights())
    loss, expected = gradients_of(whole, TASK, batch)
    again, found = gradients_of(chunked, task, batch)
    assert again == pytest.approx(loss, abs=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert max(np.abs(each).max() for each in found) > 0.1


def test_chunks_have_the_same_dropout_twice_and_others_each():
    config = dataclasses.replace(NO_DROPOUT, hidden_dropout_prob=0.3)
    # Without a length to divide by, which would bend the slope.
    task = dataclasses.replace(TASK, chunk_size=2, normalize=False)
    keras.utils.set_random_seed(5)
    model = task.make_model(config)
    row = np.tile(np.int32([[2, 5, 6, 7, 3]]), (8, 1))
    inputs = {
        features.INPUT_IDS: row,
        features.INPUT_MASK: np.ones_like(row),
        features.SEGMENT_IDS: np.zeros_like(row),
    }
    bias = model.dense.bias
    reset(model, 4)
    factors = tf.constant(np.random.default_rng(0).normal(size=(8, 8)))
    factors = tf.cast(factors, tf.float32)

    def objective():
        reset(model, 4)
        return tf.reduce_sum(factors * model(inputs, training=True))

    vectors = model(inputs, training=True).numpy()
    assert len({tuple(vector) for vector in vectors}) == 8
    with tf.GradientTape() as tape:
        loss = objective()
    gradient = tape.gradient(loss, [bias])[0].numpy()
    # The same masks in both passes: else the slope would be another.
    step = np.zeros(8, "float32")
    step[3] = 1e-2
    bias.assign_add(step)
    after = objective()
    bias.assign_sub(2 * step)
    slope = (after - objective()) / 2e-2
    assert float(slope) == pytest.approx(gradient[3], abs=2e-3)


def test_no_text_is_twice_in_a_batch():
    generator = np.random.default_rng(8)
    # Of 30 passages each is in about seven rows.
    texts = np.stack([np.arange(200), 200 + generator.integers(0, 30, 200)], 1)
    order = generator.permutation(200).tolist()
    rows = distinct_order(order, texts.tolist(), 16)
    assert len(rows) == 12 * 16
    for batch in np.reshape(rows, (12, 16)):
        assert len({*texts[batch].flatten()}) == 32
    # Few rows are there twice, because others had no place.
    assert len({*rows}) > 180
    # Where nothing is twice the order stays.
    assert (
        distinct_order(order, [[row] for row in range(200)], 16)
        == (order[:192])
    )
    with pytest.raises(ValueError, match="no batch of 31, but one of about 30"):
        distinct_order(order, texts.tolist(), 31)


def test_a_text_of_half_the_rows_is_in_every_batch_and_no_row_in_many():
    # Each second row has the text 0: of 5,000 rows 78 can have a place.
    rows = [[number, 0] if number % 2 else [number] for number in range(10_000)]
    order = np.random.default_rng(0).permutation(10_000).tolist()
    found = distinct_order(order, rows, 64)
    assert len(found) == 156 * 64
    for batch in np.reshape(found, (156, 64)):
        assert sum(row % 2 for row in batch) == 1
    assert len({*found}) > 5100
    assert np.bincount(found).max() == 2


def test_examples_without_a_place_are_told(caplog):
    table = make_table()
    table["positive"][:30] = ["a b c"] * 30
    with caplog.at_level("WARNING", logger="absl"):
        make_source(table=table).check_distinct(2, 1.0)
        assert "10 of 40 examples are left out of an epoch" in caplog.text


def make_chain():
    """Returns a source whose second row goes with no other."""
    table = {"query": ["a", "b", "c"], "positive": ["b", "c", "a b"]}
    return make_source(RetrievalTask(), table, is_trimmed=False)


def test_an_order_that_makes_no_batch_is_changed():
    """Of [1, 0, 2] comes none of two, in one epoch or another."""
    rows = make_chain().examples.rows.tolist()
    with pytest.raises(ValueError, match="no batch of 2, but one of about 1"):
        distinct_order([1, 0, 2], rows, 2)
    source = make_chain()
    source.check_distinct(2, 20.0)
    batches = [*source.training_batches(2).take(30)]
    found = [
        {
            tuple(text)
            for name in (features.INPUT_IDS, features.PASSAGE_IDS)
            for text in np.reshape(batch[name], (2, -1)).tolist()
        }
        for batch in batches
    ]
    assert [len(texts) for texts in found] == [4] * 30


def test_an_epoch_without_batches_is_refused_before_the_training(monkeypatch):
    monkeypatch.setattr(source_lib, "_NUM_ORDERS", 1)
    with pytest.raises(ValueError, match="train_batch_size=2"):
        make_chain().check_distinct(2, 20.0)


def rows_of(batches, count):
    return [
        batch[features.PASSAGE_IDS].numpy().tolist()
        for batch in batches.take(count)
    ]


def test_batches_are_a_function_of_seed_and_epoch():
    table = make_table()
    table["positive"][:12] = ["a b c"] * 12
    source = make_source(table=table, is_trimmed=False)
    batches = rows_of(source.training_batches(9), 9)
    # 40 rows make 4 batches of 9 in an epoch: one resumes anywhere.
    assert rows_of(source.training_batches(9, 5 * 9), 4) == batches[5:]
    assert batches[:4] != batches[4:8]
    for batch in batches:
        positives = [tuple(passages[0]) for passages in batch]
        assert len({*positives}) == 9
    other = make_source(table=table, is_trimmed=False, seed=4)
    assert rows_of(other.training_batches(9), 9) != batches


def test_each_side_of_a_batch_has_its_own_length():
    table = {"query": ["a b"] * 3, "positive": ["a b c d e"] * 3}
    task = RetrievalTask(loss_name="triplet", query_prompt="j ")
    table["negative"] = ["f"] * 3
    (batch,) = make_source(task, table).training_batches(3).take(1)
    assert batch[features.INPUT_IDS].shape == (3, 5)
    assert batch[features.PASSAGE_IDS].shape == (3, 2, 7)
    words = [VOCABULARY.tokens[i] for i in batch[features.INPUT_IDS][0].numpy()]
    assert words == ["[CLS]", "j", "a", "b", "[SEP]"]


@pytest.mark.parametrize("name", ["query_prompt", "passage_prompt"])
def test_a_prompt_that_leaves_no_place_for_a_text_is_refused(name):
    # Ten words, [CLS] and [SEP]: one word less leaves a place.
    make_source(RetrievalTask(**{name: "j " * 9}))
    with pytest.raises(ValueError, match="leave room .* 12 .* one of 10,"):
        make_source(RetrievalTask(**{name: "j " * 10}))


def test_batches_by_length_go_by_the_longest_of_query_and_passages():
    table = {
        "query": ["a b", "a b c d e f", "a", "c"],
        "positive": ["a b c d e", "a", "b", "d"],
        "negative": ["f", "a b", "a b c", "a b c d e f g"],
    }
    task = RetrievalTask(loss_name="triplet", query_prompt="j ")
    source = make_source(task, table, window_batches=2)
    assert source.lengths.tolist() == [7, 9, 5, 9]
    longest = sorted(
        max(
            batch[features.INPUT_IDS].shape[-1],
            batch[features.PASSAGE_IDS].shape[-1],
        )
        for batch in source.training_batches(2).take(2)
    )
    assert longest == [7, 9]


@pytest.mark.parametrize(
    ("fields", "flags", "message"),
    [
        (
            {},
            {"gradient_accumulation_steps": 2},
            "accumulation_steps must be 1 .*--chunk_size saves memory",
        ),
        ({}, {"bucket_window_batches": 2}, "--bucket_window_batches must not"),
        ({}, {"train_batch_size": 41}, "must make one batch or more"),
        ({"chunk_size": 3}, {}, "--chunk_size must divide .*, 8. Received"),
        ({"loss_name": "cosine", "chunk_size": 3}, {}, "--chunk_size must"),
        ({"hard_negative_weight": 1.0}, {}, "`hard_negative_weight` must be 0"),
    ],
)
def test_trainings_that_cannot_be_are_refused(fields, flags, message):
    task = RetrievalTask(**fields)
    table = make_table()
    if task.loss_name == "cosine":
        table = {
            "sentence1": ["a"],
            "sentence2": ["b"],
            "score": [1.0],
        }
    if task.hard_negative_weight:
        del table["negative"]
    values = {"output_dir": "a", "do_train": True, "train_batch_size": 8}
    config = FineTuningConfig(**values | flags)
    source = make_source(task, table)
    with pytest.raises(ValueError, match=message):
        task.check_training(source, config, 1, False)


def test_scores_are_those_of_the_vectors():
    table = {
        "query": ["a b", "c d", "a b"],
        "positive": ["a", "b", "c"],
    }
    source = make_source(TASK, table, "dev")
    assert source.num_examples == 5
    texts = [
        source.examples.texts[text] for text in source.arrays["texts"].tolist()
    ]
    assert texts[:2] == ["a b", "c d"]
    places = {text: number for number, text in enumerate(texts)}
    vectors = np.zeros((5, 2), "float32")
    for text, vector in {
        "a b": (1, 0),
        "c d": (0, 1),
        "a": (1, 0.1),
        "b": (1, 0.9),
        "c": (0, 1),
    }.items():
        vectors[places[text]] = vector
    answers = TASK.answers(source, vectors)
    # To "a b" the passages are a, b, c in this order; to "c d" c, b, a.
    assert answers.ranks.tolist() == [1, 3, 2]
    assert answers.best_ranks.tolist() == [1, 2]
    results = TASK.evaluate(source, vectors, answers)
    assert results["eval_recall@1"] == pytest.approx((0.5 + 0) / 2)
    assert results["eval_MRR@10"] == pytest.approx((1 + 0.5) / 2)
    sections = dict(TASK.report_sections(source.examples, answers, results))
    # The cosine of (0, 1) and (1, 0.9), and of (0, 1) and (0, 1).
    assert "| c d | 2 | b | 0.669 | c | 1 |" in sections["Worst queries"]

    task = RetrievalTask(loss_name="cosent")
    table = {
        "sentence1": ["a b", "a b", "c d"],
        "sentence2": ["a", "c", "c"],
        "score": [1.0, 0.5, 0.0],
    }
    source = make_source(task, table, "dev")
    texts = [
        (source.examples.texts[text], query)
        for text, query in zip(*source.arrays.values())
    ]
    vectors = np.stack([[len(text), 3.0 + query] for text, query in texts])
    answers = task.answers(source, vectors)
    own = dict(zip(texts, vectors))
    expected = [
        sentences.cosine(own[first, True], own[second, False])
        for first, second in zip(table["sentence1"], table["sentence2"])
    ]
    np.testing.assert_allclose(answers, expected)
    results = task.evaluate(source, vectors, answers)
    assert {*results} == {"eval_spearman", "eval_pearson"}
    assert "Worst pairs" in dict(
        task.report_sections(source.examples, answers, results)
    )


def test_one_passage_is_refused_before_a_training():
    """Its rank is 1, whatever the model."""
    table = {"query": ["a b", "c"], "positive": ["a", "a"]}
    make_source(TASK, table, "train")
    with pytest.raises(ValueError) as error:
        make_source(TASK, table, "dev")
    assert str(error.value) == (
        "The passages of dev: must be two or more, to score their ranking. "
        "Received: 1."
    )


def test_one_scored_pair_is_refused_before_a_training():
    task = RetrievalTask(loss_name="cosent")
    table = {"sentence1": ["a b"], "sentence2": ["a"], "score": [1.0]}
    for split in ("train", "test"):
        make_source(task, table, split)
    with pytest.raises(ValueError) as error:
        make_source(task, table, "dev")
    assert str(error.value) == (
        "The pairs of dev: must be two or more, to correlate their scores. "
        "Received: 1."
    )


def test_pairs_of_equal_scores_may_have_any_order():
    table = {
        "sentence1": [f"a {n}" for n in range(6)],
        "sentence2": [f"b {n}" for n in range(6)],
        "score": [1, 1, 1, 0, 0, 0],
    }
    task = RetrievalTask(loss_name="cosent")
    examples = task.read(table, "dev")

    def worst(cosines):
        sections = task.report_sections(examples, np.array(cosines), {})
        return dict(sections)["Worst pairs"]

    assert worst([0.9, 0.7, 0.8, 0.3, 0.1, 0.2]).startswith("None: every")
    # The third and the fourth have changed places.
    *_, one, other = worst([0.9, 0.7, 0.5, 0.6, 0.1, 0.2]).splitlines()
    assert one.startswith("| a 2 | b 2 | 1 | 0.5 | 60% and 40%")
    assert other.startswith("| a 3 | b 3 | 0 | 0.6 | 40% and 60%")
