"""Takes training steps under the backend of Keras that the environment sets.

    KERAS_BACKEND=torch python tests/support/backend_step.py FOLDER

FOLDER has start.weights.h5 and batch.npz. For each of `WAYS`, without dropout
and with it, the loss, the gradients, their norm and the new weights go to
FOLDER/BACKEND-WAY-RATE.npz. TensorFlow cannot be imported, unless it is the
backend.
"""

import os
import sys

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    sys.modules["tensorflow"] = None

import dataclasses
import pathlib

import keras
import numpy as np

from bert_tf.config import BertConfig
from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer

# Longer than a tile of attention.
LENGTH = 160
CONFIG = BertConfig(
    vocab_size=37,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=LENGTH,
    # Places are moved by two rows, but not in the caller's tensor.
    padding_idx=1,
)
# {name: the pre-trainer's arguments}
WAYS = {
    "whole": {"attention_chunk": 0},
    "chunks": {"attention_chunk": 128},
    "rematerialized": {"attention_chunk": 128, "rematerialize": True},
}
RATES = (0.0, 0.1)


def make_model(way="whole", rate=0.0):
    # Models have the same masks of dropout.
    keras.utils.set_random_seed(1)
    config = dataclasses.replace(
        CONFIG, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    return BertPretrainer(config, name="model", **WAYS[way])


def take_step(model, optimizer, batch):
    """Changes the weights; returns the loss and the gradients."""

    def loss_of(outputs):
        totals = PRETRAINING.losses(outputs, batch)
        return PRETRAINING.loss(
            PRETRAINING.loss_terms(totals, PRETRAINING.weights(batch))
        )

    loss, gradients = _DIFFERENTIATE[keras.backend.backend()](
        model, batch, loss_of
    )
    optimizer.apply(gradients, model.trainable_variables)
    return loss, gradients


def _on_tensorflow(model, batch, loss_of):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = loss_of(model(batch, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _on_jax(model, batch, loss_of):
    import jax

    @jax.jit
    @jax.value_and_grad
    def differentiate(trainable, others):
        outputs, _ = model.stateless_call(
            trainable, others, batch, training=True
        )
        return loss_of(outputs)

    return differentiate(
        [variable.value for variable in model.trainable_variables],
        [variable.value for variable in model.non_trainable_variables],
    )


def _on_torch(model, batch, loss_of):
    import torch

    loss = loss_of(model(batch, training=True))
    values = [variable.value for variable in model.trainable_variables]
    return loss, torch.autograd.grad(loss, values)


_DIFFERENTIATE = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
    "torch": _on_torch,
}


def main(folder):
    folder = pathlib.Path(folder)
    arrays = dict(np.load(folder / "batch.npz"))
    batch = {
        name: keras.ops.convert_to_tensor(array)
        for name, array in arrays.items()
    }
    backend = keras.backend.backend()
    for rate in RATES:
        for way in WAYS:
            model = make_model(way, rate)
            model.load_weights(folder / "start.weights.h5")
            # Gradients near 0 do not decide by their sign alone.
            optimizer = BertOptimizer(
                0.01, epsilon=1e-3, layerwise_decay=0.9, bias_correction=True
            )
            loss, gradients = take_step(model, optimizer, batch)
            found = {"loss": loss, "gradient_norm": optimizer.gradient_norm}
            for variable, gradient in zip(model.trainable_variables, gradients):
                found[f"gradient {variable.path}"] = gradient
                found[f"weight {variable.path}"] = variable.value
            np.savez(
                folder / f"{backend}-{way}-{rate}.npz",
                **{
                    name: keras.ops.convert_to_numpy(value)
                    for name, value in found.items()
                },
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
