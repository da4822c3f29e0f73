"""The task alone: its dictionary, loss and decoded entities."""

import json
import time
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks import task_folder
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging import task as tagging
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import with_weights
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import tagging as reference_tagging

TASK = TaggingTask(scheme="bio", labels=("O", "B-x", "I-x", "B-y", "I-y"))
VOCABULARY = Vocabulary(tokens=(*SPECIAL_TOKENS, "a"))
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
)


def test_task_goes_through_json():
    values = json.loads(json.dumps(TASK.to_dict()))
    assert values == {
        "family": "tagging",
        "scheme": "bio",
        "labels": ["O", "B-x", "I-x", "B-y", "I-y"],
    }
    assert TaggingTask.from_dict(values) == TASK


def test_a_named_column_of_tags_makes_the_first_line_a_header(tmp_path):
    path = tmp_path / "file.conll"
    path.write_text("word ner\na B-x\nb O\n")
    for split, tags in ((DEV, ("B-x", "O")), (TEST, None)):
        examples = TASK.read(path, split, "ner")
        assert examples.words == ("a", "b")
        assert examples.tags == tags


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "glue"}, "family='glue'"),
        ({"scheme": "iob3"}, "`scheme` must be one of bio, iob1, bioes, bilou"),
        ({"labels": ["O", "NN"]}, "`labels` must be"),
        ({"labels": ["O", "B-x", "B-x"]}, "`labels` must be"),
        ({"labels": ["B-x", "I-x"]}, "`labels` must be"),
        ({"labels": ["O"]}, "`labels` must be"),
        ({"labels": "O"}, "`labels` must be"),
        ({"other": 1}, "must have the keys"),
    ],
)
def test_bad_tasks_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TaggingTask.from_dict(TASK.to_dict() | change)


def test_both_losses_are_the_mean_over_tagged_words():
    logits = np.random.default_rng(1).normal(size=(3, 4, 5))
    logits = logits.astype(np.float32)
    labels = np.int32([[-1, 2, 0, -1], [-1, -1, -1, -1], [-1, 4, -1, 1]])
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = [
        -log_probabilities[row, place, labels[row, place]]
        for row, place in np.argwhere(labels >= 0)
    ]
    weighted = with_weights(np.maximum(labels, 0), labels >= 0)
    # As Keras makes one number of it.
    assert np.mean(TASK.loss()(weighted, logits)) == pytest.approx(
        np.mean(losses), rel=1e-5
    )

    objective = TASK.objective()
    batch = {"labels": tf.constant(weighted)}
    assert objective.weights(batch) == {"loss": 4}
    total = objective.losses(tf.constant(logits), batch)["loss"]
    assert float(total) == pytest.approx(np.sum(losses), rel=1e-5)
    hits, weight = objective.metrics(tf.constant(logits), batch)[
        "token_accuracy"
    ]
    assert weight == 4
    assert float(hits) == np.sum(logits.argmax(-1) == labels)

    batch["example_weights"] = tf.constant([1.0, 1.0, 0.0])
    assert objective.weights(batch) == {"loss": 2}
    total = objective.losses(tf.constant(logits), batch)["loss"]
    assert float(total) == pytest.approx(np.sum(losses[:2]), rel=1e-5)


def test_loss_of_a_batch_without_words_is_zero():
    labels = np.zeros([2, 3, 2], np.float32)
    logits = np.ones([2, 3, 5], np.float32)
    assert np.all(TASK.loss()(labels, logits) == 0)


def test_bilou_keeps_its_own_tags(tmp_path):
    """In a file, in the model folder and in the predictions."""
    path = tmp_path / "file.conll"
    path.write_text("a U-x\nb O\n\nc B-y\nd I-y\ne L-y\n")
    examples = tagging_files.read_columns(path)
    sentences = examples.by_sentence(examples.tags)
    scheme = entity_tags.detect_scheme(sentences)
    labels = entity_tags.make_labels(sentences, scheme)
    of_x, of_y = ([f"{letter}-{kind}" for letter in "BILU"] for kind in "xy")
    assert (scheme, labels) == ("bilou", ("O", *of_x, *of_y))
    assert entity_tags.find_entities(sentences) == [
        [("x", 0, 1)],
        [("y", 0, 3)],
    ]
    task = TaggingTask(scheme=scheme, labels=labels)
    folder = tmp_path / "tuned"
    checkpoints.save(
        folder,
        BertTokenClassifier(CONFIG, len(labels)),
        WordpieceSpec(VOCABULARY),
        7,
        task=task.to_dict(),
        label_names=labels,
    )
    assert tagging.tuned_task(folder) == task
    # As transformers writes it, whose config.json alone names the tags.
    (folder / "task.json").unlink()
    assert tagging.tuned_task(folder) == task
    tagging_files.write_predictions(path, examples, examples.tags)
    assert path.read_text().startswith("a U-x U-x\nb O O\n")


@pytest.mark.parametrize("scheme", entity_tags.SCHEMES)
def test_decoded_entities_are_those_of_the_likeliest_tags(scheme):
    labels = entity_tags.make_labels([["B-x", "B-long-name"]], scheme)
    # In an order of its own, as transformers' may be.
    task = TaggingTask(scheme=scheme, labels=labels[::-1])
    generator = np.random.default_rng(2)
    lengths = [6, 0, 1, 9, 30, 0, 4]
    rows = [generator.normal(size=(n, len(labels))) for n in lengths]
    logits = tf.RaggedTensor.from_row_lengths(
        np.concatenate(rows).astype(np.float32), lengths
    )

    decoded = {
        name: value.numpy()
        for name, value in task.find_entities(logits).items()
    }

    most = 0
    for row, row_logits in enumerate(rows):
        probabilities = np.exp(row_logits)
        probabilities /= probabilities.sum(-1, keepdims=True)
        tags = [task.labels[label] for label in row_logits.argmax(-1)]
        entities = [
            entity_tags.Entity(*entity)
            for entity in reference_tagging.find_entities(tags)
        ]
        most = max(most, len(entities))
        count = decoded["num_entities"][row]
        assert count == len(entities)
        for name, beyond in (
            ("labels", b""),
            ("first_words", -1),
            ("last_words", -1),
            ("scores", 0),
        ):
            assert np.all(decoded[name][row, count:] == beyond)
        for index, entity in enumerate(entities):
            assert decoded["labels"][row, index].decode() == entity.type
            assert decoded["first_words"][row, index] == entity.start
            assert decoded["last_words"][row, index] == entity.limit - 1
            likeliest = probabilities.max(-1)[entity.start : entity.limit]
            assert decoded["scores"][row, index] == pytest.approx(
                likeliest.min(), rel=1e-5
            )
    assert decoded["labels"].shape == (len(lengths), most)


def test_many_tags_are_decoded_in_little_time_and_memory():
    types = [[f"B-{index}"] for index in range(4000)]
    task = TaggingTask(
        scheme="bio", labels=entity_tags.make_labels(types, "bio")
    )
    tags = [task.labels.index(tag) for tag in ("B-7", "I-7", "I-8", "O")]
    logits = np.zeros([4, len(task.labels)], np.float32)
    logits[range(4), tags] = 1
    tracemalloc.start()
    start = time.process_time()
    try:
        decoded = task.find_entities(
            tf.RaggedTensor.from_row_lengths(logits, [4])
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decoded["labels"].numpy().tolist() == [[b"7", b"8"]]
    # All pairs of tags took 7 seconds and gigabytes.
    assert time.process_time() - start < 2
    assert peak < 1 << 24


@pytest.mark.parametrize("lengths", [[], [0, 0], [2]])
def test_decoding_where_there_is_nothing(lengths):
    logits = np.zeros([sum(lengths), 5], np.float32)
    decoded = TASK.find_entities(
        tf.RaggedTensor.from_row_lengths(logits, lengths)
    )
    assert decoded["num_entities"].numpy().tolist() == [0] * len(lengths)
    for name in ("labels", "first_words", "last_words", "scores"):
        assert decoded[name].shape == (len(lengths), 0)


def test_tuned_folder_gives_task_and_head_back(tmp_path):
    folder = tmp_path / "tuned"
    model = BertTokenClassifier(CONFIG, 5)
    checkpoints.save(
        folder,
        model,
        WordpieceSpec(VOCABULARY),
        7,
        task=TASK.to_dict(),
        label_names=TASK.labels,
    )
    assert tagging.tuned_task(folder) == TASK
    start = starting_point.find(folder)
    for again in (
        task_folder.tuned_model(start, TASK),
        task_folder.new_model(start, TASK),
    ):
        np.testing.assert_array_equal(
            again.classification_head.weights[0],
            model.classification_head.weights[0],
        )
    # Another task gets another head.
    other = TaggingTask(scheme="bio", labels=("O", "B-z", "I-z", "B-y", "I-y"))
    head = task_folder.new_model(start, other).classification_head.weights[0]
    assert np.abs(head - model.classification_head.weights[0]).max() > 1e-3

    # transformers names the tags in config.json, and tells no scheme.
    (folder / "task.json").unlink()
    assert tagging.tuned_task(folder) == TASK


def test_folder_without_a_tagger_is_refused(tmp_path):
    folder = tmp_path / "encoder"
    checkpoints.save(folder, BertEncoder(CONFIG), WordpieceSpec(VOCABULARY), 7)
    with pytest.raises(
        ValueError, match="config.json, id2label: `labels` must be"
    ):
        tagging.tuned_task(folder)
    with pytest.raises(
        ValueError, match="is not tuned to a task of the family 'tagging'"
    ):
        task_folder.tuned_model(starting_point.find(folder), TASK)
