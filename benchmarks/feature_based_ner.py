r"""Tags named entities from BERT's features, with BERT's weights frozen.

    python benchmarks/feature_based_ner.py --data_dir=wnut17 \
        --init_checkpoint=uncased_L-12_H-768_A-12

The feature-based approach of Devlin et al. 2018, section 5.3: the last four
layers of each word's first piece are concatenated, and a BiLSTM of two layers
maps them to a tag. This is a worked example of bert_tf.extract_features, which
makes the features only once; fine-tuning would run the encoder in every epoch.
The model of the best epoch on dev is scored on test by entity, as conlleval
does.
"""

import subprocess
import sys
import tempfile
import time

import heading
import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import program
from bert_tf.checkpoints import starting_point
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import files as tagging_files

_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder of column files of words and tags: train, dev and test.",
)
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "A model folder, or one of Google's releases."
)
_LSTM_UNITS = flags.DEFINE_integer(
    "lstm_units",
    768,
    "Size of each direction of each layer; 768 in the paper.",
    lower_bound=1,
)
_NUM_EPOCHS = flags.DEFINE_integer(
    "num_epochs", 10, "Passes over train.", lower_bound=1
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Sentences per step.", lower_bound=1
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", 1e-3, "Adam's learning rate.", lower_bound=0.0
)
_DROPOUT = flags.DEFINE_float(
    "dropout",
    0.5,
    "Dropout rate before each layer.",
    lower_bound=0.0,
    upper_bound=0.99,
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of weights, order and dropout.")

_MAX_SEQ_LENGTH = 128
_SPLITS = (TRAIN, DEV, TEST)


def main(_):
    program.require(
        data_dir=_DATA_DIR.value, init_checkpoint=_INIT_CHECKPOINT.value
    )
    heading.show()
    keras.utils.set_random_seed(_SEED.value)
    examples = {
        split: tagging_files.read_columns(
            tagging_files.find_file(_DATA_DIR.value, split)
        )
        for split in _SPLITS
    }
    labels = sorted(set(examples[TRAIN].tags))
    start = time.monotonic()
    features = {split: extract(examples[split]) for split in _SPLITS}
    print(f"features: {time.monotonic() - start:.0f} s")

    model = build(len(labels))
    model.compile(
        keras.optimizers.Adam(_LEARNING_RATE.value),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    train = batches(
        features[TRAIN],
        examples[TRAIN],
        labels,
        is_training=True,
    )
    best, best_weights = -1.0, None
    for epoch in range(_NUM_EPOCHS.value):
        start = time.monotonic()
        loss = model.fit(train, shuffle=False, verbose=0).history["loss"][0]
        seconds = time.monotonic() - start
        f1 = score(model, features, examples, labels, DEV)["f1"]
        print(
            f"epoch {epoch + 1}  loss {loss:.4f}  dev F1 {100 * f1:.2f}  "
            f"{seconds:.0f} s",
            flush=True,
        )
        if f1 > best:
            best, best_weights = f1, model.get_weights()
    model.set_weights(best_weights)
    for split in _SPLITS[1:]:
        scores = score(model, features, examples, labels, split)
        print(
            f"{split}: "
            + ", ".join(
                f"{name} {100 * scores[name]:.2f}"
                for name in ("precision", "recall", "f1")
            )
        )


def extract(examples):
    """Returns the words' features, float16 [W, 4 D] for each sentence."""
    start = starting_point.find(_INIT_CHECKPOINT.value)
    sentences = examples.by_sentence(examples.words)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w", encoding="utf-8") as stream:
            stream.writelines(f"{' '.join(words)}\n" for words in sentences)
        subprocess.run(
            [
                *(sys.executable, "-m", "bert_tf.extract_features"),
                f"--input_file={folder}/text",
                f"--output_file={folder}/features.npz",
                f"--init_checkpoint={_INIT_CHECKPOINT.value}",
                "--format=npz",
                f"--max_seq_length={_MAX_SEQ_LENGTH}",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with np.load(f"{folder}/features.npz") as arrays:
            vectors, splits = arrays["vectors"], arrays["row_splits"]
    # The layers of a token one after the other.
    vectors = vectors.reshape(len(vectors), -1)
    # Tokenizing word by word gives the same pieces as the whole sentence.
    tokenizer = start.preprocessor(_MAX_SEQ_LENGTH).tokenizer
    pieces = tokenizer.tokenize(tf.constant(examples.words))
    num_pieces = examples.by_sentence(
        pieces.merge_dims(1, 2).row_lengths().numpy()
    )
    return [
        first_pieces(vectors[first:limit], np.array(counts))
        for first, limit, counts in zip(splits, splits[1:], num_pieces)
    ]


def first_pieces(vectors, num_pieces):
    """Returns each word's first vector, or zeros if it has none.

    Args:
        vectors: float [T, D] of [CLS], the pieces and [SEP].
        num_pieces: int [W], the pieces of each word; the end may be cut off.
    """
    assert len(vectors) == min(num_pieces.sum() + 2, _MAX_SEQ_LENGTH)
    places = 1 + np.cumsum(num_pieces) - num_pieces
    is_there = (num_pieces > 0) & (places < len(vectors) - 1)
    found = vectors[np.where(is_there, places, 0)]
    return np.where(is_there[:, np.newaxis], found, 0)


def build(num_labels):
    """Returns the BiLSTM, float [B, W, 4 D] to logits [B, W, num_labels]."""

    def bilstm():
        return keras.layers.Bidirectional(
            keras.layers.LSTM(_LSTM_UNITS.value, return_sequences=True)
        )

    return keras.Sequential(
        [
            # Keeps the backward direction from starting in the padding.
            keras.layers.Masking(),
            keras.layers.Dropout(_DROPOUT.value),
            bilstm(),
            keras.layers.Dropout(_DROPOUT.value),
            bilstm(),
            keras.layers.Dropout(_DROPOUT.value),
            keras.layers.Dense(num_labels),
        ]
    )


def batches(features, examples, labels, is_training=False):
    """Returns a `tf.data.Dataset` of padded (vectors, tag ids, weights)."""
    ids = {label: index for index, label in enumerate(labels)}
    # Tags that train lacks cannot be predicted, so any id will do.
    tag_ids = examples.by_sentence([ids.get(tag, 0) for tag in examples.tags])

    def generate():
        order = np.arange(len(features))
        if is_training:
            np.random.shuffle(order)
        for index in order:
            tags = np.array(tag_ids[index], "int32")
            yield features[index], tags, np.ones(len(tags), "float32")

    size = features[0].shape[1]
    return (
        tf.data.Dataset.from_generator(
            generate,
            output_signature=(
                tf.TensorSpec([None, size], tf.float16),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.float32),
            ),
        )
        .apply(tf.data.experimental.assert_cardinality(len(features)))
        .padded_batch(_BATCH_SIZE.value)
        .map(lambda vectors, *rest: (tf.cast(vectors, tf.float32), *rest))
        .prefetch(2)
    )


def score(model, features, examples, labels, split):
    """Returns `entity_scores.score_tags` of a split."""
    predicted = []
    for vectors, _, weights in batches(
        features[split], examples[split], labels
    ):
        ids = model.predict_on_batch(vectors).argmax(axis=-1)
        for row, length in zip(ids, weights.numpy().sum(axis=1).astype(int)):
            predicted.append([labels[index] for index in row[:length]])
    return entity_scores.score_tags(
        predicted, examples[split].by_sentence(examples[split].tags)
    )


if __name__ == "__main__":
    program.run(main)
