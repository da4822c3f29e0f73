"""The losses of distillation in NumPy, in loops: one token, one head at a time.

Each takes arrays of one example, L tokens that are all real, and returns a
list of what is averaged.
"""

import math

import numpy as np

from references import model as reference


def log_softmax(x):
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def divergence(taught, own):
    """KL(softmax(taught) || softmax(own)) of two vectors of logits."""
    taught, own = log_softmax(taught), log_softmax(own)
    return sum(math.exp(p) * (p - q) for p, q in zip(taught, own))


def soft_target(logits, teacher_logits, temperature):
    """DistilBERT's, of one vector: t^2 KL(teacher || student)."""
    return temperature**2 * divergence(
        np.float64(teacher_logits) / temperature,
        np.float64(logits) / temperature,
    )


def cosine(state, teacher_state):
    product = state @ teacher_state
    norms = np.linalg.norm(state) * np.linalg.norm(teacher_state)
    return 1 - product / norms


def states_of(model, ids, segments, num_heads):
    """Returns the embeddings' output, then every layer's, `[L, D]` each."""
    weights = reference.weights_of(model)
    embeddings = reference.scope(weights, "embeddings")
    x = (
        embeddings["word_embeddings"][ids]
        + embeddings["position_embeddings"][: len(ids)]
        + embeddings["segment_embeddings"][segments]
    )
    x = reference.layer_norm(reference.scope(embeddings, "layer_norm"), x)
    mask = np.ones((len(ids), len(ids)), bool)
    states = [x]
    for index in range(model.config.num_hidden_layers):
        block = reference.scope(weights, f"layer_{index}")
        x = reference.encoder_block(block, x, mask, num_heads)
        states.append(x)
    return states


def vectors_of(model, states, layer):
    """Returns queries, keys and values of a layer, `[L, D]` each."""
    weights = reference.scope(
        reference.weights_of(model), f"layer_{layer}/attention"
    )
    return [
        reference.dense(reference.scope(weights, name), states[layer])
        for name in ("query", "key", "value")
    ]


def products(one, other, num_heads):
    """Returns x . y / sqrt(size) of all heads, `[N, L, L]`."""
    length, width = one.shape
    size = width // num_heads
    found = np.zeros((num_heads, length, length))
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(length):
            for j in range(length):
                found[head, i, j] = (
                    one[i, part] @ other[j, part] / math.sqrt(size)
                )
    return found


def relation(own, taught, num_heads):
    """Returns the divergence of every head and token, of pairs (X, Y)."""
    own, taught = (products(*pair, num_heads) for pair in (own, taught))
    return [
        divergence(taught[head, i], own[head, i])
        for head in range(num_heads)
        for i in range(own.shape[1])
    ]
