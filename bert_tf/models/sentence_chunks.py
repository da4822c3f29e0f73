"""Training steps of thousands of texts, with the memory of a few.

Gao et al. 2021 (GradCache, arXiv 2101.06983): texts are embedded a chunk at a
time, and nothing is kept of a chunk but its vectors. For the gradient each
chunk is embedded again, with the same dropout. The step equals that of the
whole batch, at the cost of one more forward pass.
"""

import functools
import json
from typing import Any

import keras
from keras import ops

from bert_tf.backend import all_after
from bert_tf.backend import map_one_by_one
from bert_tf.backend import remat
from bert_tf.backend import seed_states
from bert_tf.backend import traced_once
from bert_tf.backend import without_values
from bert_tf.features import Batch
from bert_tf.features import Tensor
from bert_tf.layers.rematerialization import weights_of_block


def embed_in_chunks(model: Any, inputs: Batch) -> Tensor:
    """Returns what `model.embed` returns in training.

    Args:
        model: A `BertSentenceEncoder` with a `chunk_size`.
        inputs: int32 `[N, L]` each.

    Returns:
        float32 `[N, D]`.

    Raises:
        ValueError: If N is not known, or `chunk_size` does not divide it.
    """
    chunk_size = model.chunk_size
    num_texts = next(iter(inputs.values())).shape[0]
    if num_texts is None or num_texts % chunk_size:
        raise ValueError(
            f"`chunk_size` must divide the {num_texts} texts of a replica's "
            f"share of the batch. Received: chunk_size={chunk_size}."
        )
    num_chunks = num_texts // chunk_size
    chunks = {
        name: ops.reshape(values, (num_chunks, chunk_size, -1))
        for name, values in inputs.items()
    }
    model_class: Any = type(model)
    run = _runner(model_class, json.dumps(model.get_config() | {"name": None}))
    weights = [ops.copy(weight) for weight in _weights(model)]
    states = seed_states(model)
    seeds = [ops.copy(state) for state in states]

    def embed_chunk(numbered):
        number, chunk = numbered
        # The second number of a state counts calls. The first one gets the
        # number of the chunk added.
        return run(
            weights,
            [
                seed + ops.cast(ops.stack([number, 0]), seed.dtype)
                for seed in seeds
            ],
            chunk,
        )

    vectors = map_one_by_one(embed_chunk, (ops.arange(num_chunks), chunks))
    # Blocks that layers share (ALBERT) are called as often as there are layers.
    for state in states:
        state.assign(state + [0, model.config.num_hidden_layers])
    return ops.reshape(vectors, (num_texts, -1))


@functools.cache
def _runner(model_class, config):
    """Returns the function that all models of a configuration share.

    It takes the weights as arguments. As a function of one model, it would keep
    that model alive: see `traced_once`.
    """
    like = without_values(lambda: model_class.from_config(json.loads(config)))

    @traced_once
    def run(weights, seeds, inputs):
        def embed(*weights):
            values = [
                *zip(_weights(like), weights),
                *zip(seed_states(like), all_after(weights[0], seeds)),
            ]
            with keras.StatelessScope(values, initialize_variables=False):
                return like.embed(inputs, training=True)

        return remat(embed)(*weights)

    return run


def _weights(model):
    """Returns all weights: small ones first, which `remat` adds a zero to."""
    embeddings = model.encoder.embeddings.weights
    return [
        *(weight for weight in embeddings if len(weight.shape) == 1),
        *(weight for weight in embeddings if len(weight.shape) > 1),
        *(
            weight
            for block in model.encoder.blocks
            for weight in weights_of_block(block)
        ),
        *model.encoder.pooler.weights,
        *model.extra_weights,
    ]
