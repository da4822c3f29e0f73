"""Windows, labels and predictions, against plain loops, on random sentences."""

import dataclasses
import functools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks.tagging import windows as tagging_windows
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.tagging.windows import TaggingSource
from bert_tf.tasks.tagging.windows import WindowMaker
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.strategy import make_strategy
from bert_tf.tuning.predictor import Predictor
from references import tagging as reference_tagging
from support import keras_fit

TOKENS = (*SPECIAL_TOKENS, *"abc.,'", "##a", "##b", "ab", "e", "x")
VOCABULARY = Vocabulary(tokens=TOKENS)
# Words of one piece, of many, of several parts, of none, and unknown ones.
WORDS = ("a", "AB", "É", "b.a.", "aa'b", "\u200b", "zz", "abab" * 4, "x")
LABELS = ("O", "B-x", "I-x", "B-y", "I-y")
TASK = TaggingTask(scheme="bio", labels=LABELS)


# A maker is traced once.
@functools.cache
def maker_of(length):
    return WindowMaker(
        Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=length)
    )


def examples_of(sentences, tags=None):
    words = [word for sentence in sentences for word in sentence]
    return TaggingExamples(
        path="file",
        words=tuple(words),
        tags=tags,
        row_lengths=np.array([len(row) for row in sentences], np.int32),
        lines=tuple(words),
        line_indices=np.arange(len(words), dtype=np.int32),
        separator=" ",
    )


def random_examples(seed, count=30):
    generator = random.Random(seed)
    sentences = [
        generator.choices(WORDS, k=generator.randint(1, 14))
        for _ in range(count)
    ]
    # One without any piece.
    sentences[3] = ["\u200b", "\u200b"]
    num_words = sum(map(len, sentences))
    return examples_of(sentences, tuple(generator.choices(LABELS, k=num_words)))


def wanted_windows(examples, length):
    words = examples.by_sentence(examples.words)
    tags = examples.by_sentence(examples.tags)
    return [
        reference_tagging.windows(*sentence, set(TOKENS), length)
        for sentence in zip(words, tags)
    ]


def source_of(examples, length=9, **settings):
    return TaggingSource(
        examples=examples, labels=LABELS, maker=maker_of(length), **settings
    )


@pytest.mark.parametrize("length", [3, 4, 9, 16])
def test_windows_and_labels_are_those_of_plain_loops(length):
    examples = random_examples(length)
    source = source_of(examples, length, is_trimmed=True)
    wanted = wanted_windows(examples, length)

    assert source.num_windows.tolist() == [len(own) for own in wanted]
    assert max(source.num_windows) > 4
    flat = [window for own in wanted for window in own]
    assert source.num_examples == len(flat)
    batches = list(source.evaluation_batches(7).as_numpy_iterator())
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    assert weights.tolist() == [1] * len(flat) + [0] * (-len(flat) % 7)
    num_labels = 0
    for row, window in enumerate(flat):
        batch, index = batches[row // 7], row % 7
        tokens = window["tokens"]
        ids = batch["input_ids"][index]
        assert [TOKENS[i] for i in ids[: len(tokens)]] == tokens
        assert ids[len(tokens) :].tolist() == [0] * (len(ids) - len(tokens))
        assert batch["input_mask"][index].sum() == len(tokens)
        labels = batch[features.LABELS][index]
        num_labels += len(window["labels"])
        assert window["labels"] == {
            place: LABELS[int(label)]
            for place, (label, weight) in enumerate(labels)
            if weight
        }
    # Every word once, but those that vanish.
    vanishing = examples.words.count("\u200b")
    assert vanishing > 2
    assert num_labels == len(examples.words) - vanishing
    for batch in batches:
        longest = batch["input_mask"].sum(axis=1).max()
        assert batch["input_ids"].shape == (7, longest)
        assert batch[features.LABELS].shape == (7, longest, 2)


@pytest.mark.parametrize("length", [4, 9, 16])
def test_windows_of_their_own_words_are_those_of_the_whole_sentences(length):
    examples = random_examples(length + 1)
    source = source_of(examples, length)
    count = source.num_examples
    (batch,) = source.evaluation_batches(count).as_numpy_iterator()
    # No more words than the room has pieces, and those without any between.
    room = length - 2
    most = room + examples.words.count("\u200b")
    first_words, limits = source.word_ranges
    assert 1 <= max(limits - first_words) <= most

    sentences = source.arrays["sentence"]
    pieces = maker_of(length).tokenizer.tokenize(examples.words)
    num_pieces = np.int32(
        [
            sum(row)
            for row in examples.by_sentence(
                pieces.merge_dims(1, 2).row_lengths().numpy()
            )
        ]
    )
    words, labels = (
        tf.gather(
            tf.RaggedTensor.from_row_lengths(
                values, examples.row_lengths.astype(np.int64)
            ),
            sentences,
        )
        for values in (examples.words, source.word_labels)
    )
    whole = maker_of(length)(
        words,
        labels,
        source.arrays["window"],
        np.zeros(count, np.int32),
        num_pieces[sentences],
    )
    for name, values in whole.items():
        np.testing.assert_array_equal(batch[name], values, err_msg=name)


def test_many_windows_of_a_sentence_tokenize_a_word_about_twice():
    source = source_of(examples_of([["a"] * 20_000], ("O",) * 20_000))
    # 7 pieces, each window 4 further.
    assert source.num_windows.tolist() == [5000]
    first_words, limits = source.word_ranges
    assert (limits - first_words).sum() == 4999 * 7 + 4
    batch = next(source.evaluation_batches(4).as_numpy_iterator())
    assert batch["input_mask"].sum() == 4 * 9


def test_every_word_is_predicted_once_and_where_it_was_learned():
    examples = random_examples(5)
    source = source_of(examples)
    (batch,) = source.evaluation_batches(
        source.num_examples
    ).as_numpy_iterator()
    labels, weights = np.moveaxis(batch[features.LABELS], -1, 0)
    # Right where the label is, and all the same wrong elsewhere.
    ids = np.where(weights, labels, 4).astype(int)
    logits = np.eye(5, dtype=np.float32)[ids]

    kept = source.kept(logits, 0)
    predicted = source.predict(kept)

    for word, tag, wanted in zip(examples.words, predicted.tags, examples.tags):
        assert tag == ("O" if word == "\u200b" else wanted)
    is_seen = np.array(predicted.tags) == examples.tags
    np.testing.assert_allclose(
        predicted.scores[is_seen], np.e / (np.e + 4), rtol=1e-6
    )
    loss = np.log(np.e + 4) - 1
    assert source.loss(kept) == pytest.approx(loss, rel=1e-5)
    assert source.loss(source.kept(-logits, 0)) > loss
    # Of each word three numbers, whatever the batches and the number of tags.
    assert kept.shape == (len(examples.words), 3) == (source.num_kept, 3)
    batches = [
        source.kept(logits[start : start + 3], start)
        for start in range(0, len(logits), 3)
    ]
    np.testing.assert_array_equal(np.concatenate(batches), kept)


def test_word_longer_than_the_window_is_carried_over():
    # 40 pieces, with 7 to a window.
    examples = examples_of([["a", "ab" * 20, "b", "c"]], ("O", "B-x", "O", "O"))
    source = source_of(examples)
    (wanted,) = wanted_windows(examples, 9)
    assert source.num_windows.tolist() == [len(wanted)]
    assert len(wanted) > 8
    labels = [list(window["labels"].values()) for window in wanted]
    assert labels[0] == ["O", "B-x"]
    assert labels[1:-2] == [[]] * (len(labels) - 3)
    assert sum(labels[-2:], []) == ["O", "O"]


def test_windows_of_training_are_a_function_of_seed_and_place():
    source = source_of(random_examples(2, 9))
    count = source.num_examples
    rows = [
        (*ids, *labels.flatten())
        for batch in source.training_batches(4).take(count).as_numpy_iterator()
        for ids, labels in zip(batch["input_ids"], batch[features.LABELS])
    ]
    later = next(source.training_batches(4, 8).as_numpy_iterator())

    assert sorted(rows[:count]) == sorted(rows[count : 2 * count])
    assert rows[:count] != rows[count : 2 * count]
    assert [tuple(ids) for ids in later["input_ids"]] == [
        row[:9] for row in rows[8:12]
    ]


def test_batches_of_one_length_hold_the_same_windows():
    source = source_of(random_examples(2), length=40, is_trimmed=True)
    sorted_source = dataclasses.replace(source, window_batches=8)
    rows, num_tokens = [], []
    for each in (source, sorted_source):
        # Two of the windows in which batches are sorted.
        batches = list(each.training_batches(4).take(16).as_numpy_iterator())
        rows.append(
            sorted(
                tuple(ids[ids > 0]) for b in batches for ids in b["input_ids"]
            )
        )
        num_tokens.append(sum(batch["input_ids"].size for batch in batches))
    assert rows[0] == rows[1]
    assert num_tokens[1] < 0.95 * num_tokens[0]


def test_sentences_without_tags_are_predicted():
    source = source_of(examples_of([["a", "\u200b"], ["b"] * 12]))
    batch = next(source.evaluation_batches(2).as_numpy_iterator())
    assert features.LABELS not in batch
    logits = np.zeros((source.num_examples, 9, 5), np.float32)
    logits[:, :, 1] = 1
    kept = source.kept(logits, 0)
    assert source.predict(kept).tags == ["B-x", "O", *["B-x"] * 12]


def test_unknown_tag_is_told_at_once():
    with pytest.raises(ValueError, match="file, line 2: the tag"):
        source_of(examples_of([["a", "b"]], ("O", "B-z")))


def test_no_room_for_a_piece_is_an_error():
    with pytest.raises(ValueError, match="at least 3"):
        WindowMaker(Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=2))


def test_fit_and_loop_make_the_same_steps_and_trimming_changes_none(tmp_path):
    config = BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=9,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    examples = random_examples(7)
    training = loop.TrainingConfig(num_train_steps=12, train_batch_size=6)
    one_device = tf.distribute.OneDeviceStrategy("/cpu:0")
    strategies = {
        "fit": one_device,
        "loop": one_device,
        # On each of the two there is another number of words.
        "mirrored": make_strategy("mirrored", num_cpu_devices=2),
    }
    states = []
    for name, strategy in strategies.items():
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = BertTokenClassifier(config, 5, dropout=0.0)
            state = TrainingState(
                model, BertOptimizer(1e-3), tmp_path / name, {}
            )
        states.append(state)
        source = source_of(examples, is_trimmed=name == "fit")
        if name == "fit":
            keras_fit.fit(state, TASK, source, training)
        else:
            loop.train(state, TASK.objective(), source, training, strategy)
    for variables in zip(*(state.model.weights for state in states)):
        fitted, *others = map(keras.ops.convert_to_numpy, variables)
        for other in others:
            np.testing.assert_allclose(
                other, fitted, atol=5e-6, err_msg=variables[0].path
            )

    # And so does evaluation: shorter batches are filled up.
    predicted = [
        source.predict(
            Predictor(
                tagging_windows.padded_outputs(states[0].model, 9), one_device
            )(source, 8)
        ).tags
        for source in (
            source_of(examples),
            source_of(examples, is_trimmed=True),
        )
    ]
    assert predicted[0] == predicted[1]
    assert len(predicted[0]) == len(examples.words)
