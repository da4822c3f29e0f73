"""Fits a classifier under the backend of Keras that the environment sets.

    KERAS_BACKEND=torch python tests/support/backend_fit.py FOLDER

For each of `OPTIMIZERS`, the losses and the new weights are written to
FOLDER/BACKEND-NAME-fit.npz. TensorFlow cannot be imported, unless it is the
backend.
"""

import os
import sys

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    sys.modules["tensorflow"] = None

import pathlib

import keras
import numpy as np

from bert_tf import BertClassifier
from bert_tf import BertConfig
from bert_tf import BertOptimizer
from bert_tf import WarmupDecay
from bert_tf.optimizers.lamb import LambOptimizer

RATE = WarmupDecay(3e-3, 16, 4)
# Gradients near 0 do not decide by their sign alone.
EPSILON = 1e-3
# {name: (a function that makes it, the rows of a batch)}
OPTIMIZERS = {
    "bert": (
        lambda: BertOptimizer(RATE, epsilon=EPSILON, bias_correction=True),
        16,
    ),
    "accumulating": (
        lambda: BertOptimizer(
            RATE, epsilon=EPSILON, gradient_accumulation_steps=2
        ),
        8,
    ),
    "lamb": (lambda: LambOptimizer(RATE, epsilon=EPSILON), 16),
}


def fit(optimizer, batch_size):
    """Returns the losses of the epochs, and the new weights."""
    config = BertConfig.named(
        "tiny",
        vocab_size=50,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertClassifier(config, 2, dropout=0.0)
    random = np.random.default_rng(0)
    for variable in model.weights:
        if variable.path.endswith(("kernel", "embeddings")):
            variable.assign(random.normal(0, 0.05, variable.shape))
    labels = np.arange(64, dtype="int32") % 2
    ids = random.integers(25, size=(64, 12)) + 25 * labels[:, None]
    inputs = {
        "input_ids": ids.astype("int32"),
        "input_mask": np.ones_like(ids, "int32"),
        "segment_ids": np.zeros_like(ids, "int32"),
    }
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    model.compile(optimizer, loss)
    told = model.fit(
        inputs, labels, batch_size, epochs=4, verbose=0, shuffle=False
    )
    return told.history["loss"], model.weights


def main(folder):
    for name, (make, batch_size) in OPTIMIZERS.items():
        losses, weights = fit(make(), batch_size)
        np.savez(
            pathlib.Path(folder, f"{keras.backend.backend()}-{name}-fit.npz"),
            losses=losses,
            **{
                weight.path.partition("/")[2]: keras.ops.convert_to_numpy(
                    weight
                )
                for weight in weights
            },
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
