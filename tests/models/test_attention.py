"""Attention probabilities of every family, against NumPy."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import families
from bert_tf.models import attention
from bert_tf.models.encoder import BertEncoder
from references import families as peer
from references import model as reference

GENERATOR = np.random.default_rng(20170612)
INPUTS = {
    name: np.array(values, "int32") for name, values in peer.INPUTS.items()
}
LENGTH = INPUTS["input_mask"].shape[1]


def config_of(case):
    return families.parse_config(
        peer.config_values(case, peer.classes(case)[0])
    )


def rotary_probs(weights, layer, states, mask_LL, config):
    """Returns the probabilities of a layer of ModernBERT, in float64."""
    if layer:
        norm = reference.scope(weights, "attention_layer_norm")["gamma"]
        states = states - states.mean(-1, keepdims=True)
        variance = np.mean(states**2, -1, keepdims=True)
        states = norm * states / np.sqrt(variance + config.layer_norm_eps)
    kernel = reference.scope(weights, "attention/query_key_value")["kernel"]
    theta = config.rotary_theta
    if config.is_local(layer):
        theta = config.local_rotary_theta
    size = config.hidden_size // config.num_attention_heads
    angles = np.arange(LENGTH)[:, None] * theta ** (
        -np.arange(0, size, 2) / size
    )
    turned = []
    for part in np.split(states @ kernel, 3, axis=-1)[:2]:
        heads = part.reshape(LENGTH, config.num_attention_heads, size)
        points = heads[..., : size // 2] + 1j * heads[..., size // 2 :]
        turned.append(points * np.exp(1j * angles)[:, None])
    # The real part of z times the conjugate of w is the product of vectors.
    scores = np.einsum("qnh,knh->nqk", turned[0], turned[1].conj()).real
    scores = np.where(mask_LL, scores / size**0.5, -np.inf)
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def bucket(distance):
    return distance + 16 if distance > 0 else -distance


def check(config):
    """Checks an encoder's probabilities, layer by layer, row by row."""
    encoder = BertEncoder(config)
    for variable in encoder.weights:
        variable.assign(GENERATOR.normal(scale=0.8, size=variable.shape))
    probs = np.array(attention.attention_probs(encoder, INPUTS))
    num_layers, num_heads = config.num_hidden_layers, config.num_attention_heads
    assert probs.shape == (5, num_layers, num_heads, LENGTH, LENGTH)
    np.testing.assert_allclose(probs.sum(-1), 1.0, atol=1e-5)

    embedded = encoder.embeddings(INPUTS["input_ids"], INPUTS["segment_ids"])
    states = [embedded, *encoder(INPUTS)["encoder_outputs"]]
    weights = reference.weights_of(encoder)
    table = weights.get("embeddings/relative_bias")
    for layer in range(num_layers):
        block = layer * len(encoder.blocks) // num_layers
        for row, mask in enumerate(INPUTS["input_mask"]):
            mask_LL = np.tile(mask.astype(bool), (LENGTH, 1))
            if config.is_decoder:
                mask_LL &= np.tril(np.ones((LENGTH, LENGTH), bool))
            if config.is_local(layer):
                places = np.arange(LENGTH)
                distance = np.abs(places[:, None] - places)
                mask_LL &= distance <= config.attention_window
            # Behind padding that is in front, nothing is there to be looked at.
            is_real = mask_LL.any(axis=1)
            mask_LL |= ~is_real[:, None]
            vectors = np.array(states[layer][row], "float64")
            if config.norm_first:
                own = reference.scope(weights, f"layer_{block}")
                wanted = rotary_probs(own, layer, vectors, mask_LL, config)
            else:
                wanted = reference.attention_probs(
                    reference.scope(weights, f"layer_{block}/attention"),
                    vectors,
                    mask_LL,
                    num_heads,
                    # MPNet's. Each distance of these texts has a bucket.
                    (lambda distance, head: table[bucket(distance), head])
                    if config.has_relative_bias
                    else None,
                )
            np.testing.assert_allclose(
                probs[row, layer][:, is_real], wanted[:, is_real], atol=2e-5
            )
    return probs


@pytest.mark.parametrize("case", peer.CASES)
def test_probabilities_equal_the_formula_in_every_family(case):
    probs = check(config_of(case))
    # Not all alike, or anything would be equal.
    assert np.std(probs[0]) > 0.1
    # Layers that share their weights look elsewhere all the same.
    assert np.abs(probs[:, 0] - probs[:, 1]).max() > 0.1


def test_from_left_to_right_nothing_looks_ahead():
    probs = check(dataclasses.replace(config_of("bert"), is_decoder=True))
    assert np.triu(probs[0, 0, 0], 1).max() == 0
