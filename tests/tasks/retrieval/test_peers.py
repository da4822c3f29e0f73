"""Losses of 60 steps beside sentence-transformers, and folders for it."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import sentence_model
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.task_folder import new_model
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from support import peers
from support.paths import ROOT

NUM_STEPS = 60
BATCH_SIZE = 8
MAX_LENGTH = 16
# At ten times as much, 60 steps blow rounding errors up to tenths.
LEARNING_RATE = 0.005
CHUNK_SIZE = 4
LOSSES = ("multiple_negatives", "cached", "cosent")
WORDS = (
    *("the", "river", "bank", "opens", "late", "engineers", "measure"),
    *("steam", "pressure", "while", "students", "read", "old", "maps", "of"),
    *("northern", "ports", "and", "42", "ships", "carry", "coal"),
)
SPEC = WordpieceSpec(Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS)))
CONFIG = BertConfig(
    vocab_size=len(SPEC.vocabulary),
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=MAX_LENGTH,
    # In both libraries.
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TASK = RetrievalTask()


def save(folder, task):
    model = task.make_model(CONFIG)
    generator = np.random.default_rng(3)
    for variable in model.weights:
        # Not the biases, which all texts would have in common.
        if variable.path.endswith(("kernel", "embeddings")):
            variable.assign(generator.normal(0, 0.3, variable.shape))
    checkpoints.save(
        str(folder),
        model,
        SPEC,
        MAX_LENGTH,
        task=task.to_dict(),
        vectors=sentence_model.vectors_of(
            model, task.query_prompt, task.passage_prompt
        ),
    )
    return str(folder)


def make_run(loss):
    generator = np.random.default_rng(6)
    columns = [
        [
            " ".join(generator.choice(WORDS, size=generator.integers(2, 18)))
            for _ in range(NUM_STEPS * BATCH_SIZE)
        ]
        for _ in range(2 if loss == "cosent" else 3)
    ]
    # What belongs together has words in common, so that it can be learned.
    columns[1] = [
        f"{text} {other}" for text, other in zip(columns[0], columns[1])
    ]
    labels = generator.integers(0, 6, len(columns[0])) / 5
    starts = range(0, len(columns[0]), BATCH_SIZE)
    return {
        "loss": loss,
        "chunk_size": CHUNK_SIZE,
        "learning_rate": LEARNING_RATE,
        "max_length": MAX_LENGTH,
        "batches": [
            {
                "texts": [
                    column[start : start + BATCH_SIZE] for column in columns
                ],
                "labels": labels[start : start + BATCH_SIZE].tolist(),
            }
            for start in starts
        ],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("start") / "model", TASK)


@pytest.fixture(scope="module")
def their_losses(tmp_path_factory, folder):
    path = tmp_path_factory.mktemp("losses")
    runs = [make_run(loss) for loss in LOSSES]
    (path / "runs.json").write_text(json.dumps(runs), "utf-8")
    peers.run(
        ROOT / "tests/references/sentence_losses_peer.py",
        folder,
        path / "runs.json",
        path / "losses.json",
    )
    return dict(zip(LOSSES, json.loads((path / "losses.json").read_text())))


@pytest.mark.peers
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_of_sentence_transformers(folder, their_losses, loss):
    task = dataclasses.replace(
        TASK,
        loss_name="cosent" if loss == "cosent" else "multiple_negatives",
        chunk_size=CHUNK_SIZE if loss == "cached" else None,
    )
    run = make_run(loss)
    columns = [
        [text for batch in run["batches"] for text in batch["texts"][number]]
        for number in range(len(run["batches"][0]["texts"]))
    ]
    labels = np.concatenate([batch["labels"] for batch in run["batches"]])
    table = dict(zip(("query", "positive", "negative"), columns))
    if loss == "cosent":
        table["score"] = labels
    examples = task.read(table, "train")
    source = task.make_sources(
        {"train": examples}, Preprocessor.from_folder(folder, MAX_LENGTH)
    )["train"]
    model = new_model(starting_point.find(folder), task)
    optimizer = keras.optimizers.SGD(LEARNING_RATE)
    optimizer.build(model.trainable_variables)
    make_inputs = source.input_maker()

    @tf.function(autograph=False)
    def run_step(rows, labels):
        batch = make_inputs({"rows": rows})
        with tf.GradientTape() as tape:
            vectors = model(batch, training=True)
            value = tf.reduce_mean(task.losses(vectors, labels))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return value

    found = [
        float(run_step(tf.constant(rows), tf.constant(part, tf.float32)))
        for rows, part in zip(
            np.split(examples.rows, NUM_STEPS), np.split(labels, NUM_STEPS)
        )
    ]
    expected = their_losses[loss]
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    # The weights have moved: else equal losses would prove little.
    if loss != "cosent":
        assert np.mean(found[-9:]) < np.mean(found[:9]) - 0.1
    assert np.std(found) > 0.05


@pytest.mark.peers
def test_sentence_transformers_reads_a_tuned_folder(tmp_path):
    task = RetrievalTask(
        pooling="cls", head="dense", dense_size=7, query_prompt="the old "
    )
    folder = save(tmp_path / "tuned", task)
    texts = ["steam pressure", "the old maps of the ports", "42"]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    printed = peers.run(
        "-c",
        "import json, sys, sentence_transformers as st; "
        "model = st.SentenceTransformer(sys.argv[1], device='cpu'); "
        "texts = json.load(open(sys.argv[2])); "
        "print(json.dumps([model.encode_query(texts).tolist(), "
        "model.encode_document(texts).tolist()]))",
        folder,
        tmp_path / "texts.json",
    )
    preprocessor = Preprocessor.from_folder(folder)
    again = new_model(starting_point.find(folder), task)
    for prompt, expected in zip(
        ("the old ", ""), json.loads(printed.splitlines()[-1])
    ):
        found = again(preprocessor([prompt + text for text in texts]))
        assert found.shape == (3, 7)
        np.testing.assert_allclose(found, expected, atol=1e-5)
