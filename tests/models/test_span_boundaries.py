"""SpanBERT: which spans there are, and their predictions, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.layers.span_boundary_head import SpanBoundaryHead
from bert_tf.models import objectives
from bert_tf.models.span_boundaries import SPAN_BOUNDARIES
from bert_tf.models.span_boundaries import SpanBoundaryPretrainer
from bert_tf.models.span_boundaries import span_boundaries
from references import model as reference_model
from references import training as reference
from support.layer_checks import check_layer

CONFIG = dataclasses.replace(
    reference.tiny_config(), num_hidden_layers=1, hidden_act="gelu"
)


def make_masks(num_rows, length, num_slots, seed):
    """Returns random rows: {input_mask, positions and weights}, int32."""
    generator = np.random.default_rng(seed)
    mask = np.zeros((num_rows, length), "int32")
    positions = np.zeros((num_rows, num_slots), "int32")
    weights = np.zeros((num_rows, num_slots), "float32")
    for row in range(num_rows):
        size = generator.integers(4, length + 1)
        mask[row, :size] = 1
        # From none to all, so that runs are long and reach both ends.
        chosen = np.flatnonzero(generator.random(size) < generator.random())
        chosen = chosen[:num_slots]
        positions[row, : len(chosen)] = chosen
        weights[row, : len(chosen)] = 1
    return {
        features.INPUT_MASK: mask,
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_WEIGHTS: weights,
    }


def spans_of(batch, row):
    """Yields (slot, before, after, place) of what has a prediction."""
    positions = batch[features.MASKED_LM_POSITIONS][row]
    chosen = positions[batch[features.MASKED_LM_WEIGHTS][row] > 0].tolist()
    mask = batch[features.INPUT_MASK][row]
    sequence = batch.get(features.SEQUENCE_IDS, batch[features.INPUT_MASK])[row]
    for slot, position in enumerate(chosen):
        first = last = position
        while first - 1 in chosen:
            first -= 1
        while last + 1 in chosen:
            last += 1
        if first == 0 or last + 1 == len(mask) or not mask[last + 1]:
            continue
        around = {sequence[first - 1], sequence[position], sequence[last + 1]}
        if len(around) == 1 and position - first < 15:
            yield slot, first - 1, last + 1, position - first


def check_spans(batch):
    found = {
        name: value.numpy()
        for name, value in span_boundaries(
            {name: tf.constant(value) for name, value in batch.items()}
        ).items()
    }
    weights = np.zeros_like(found["weights"])
    for row in range(len(weights)):
        for slot, before, after, place in spans_of(batch, row):
            weights[row, slot] = 1
            assert found["before"][row, slot] == before
            assert found["after"][row, slot] == after
            assert found["place"][row, slot] == place
    np.testing.assert_array_equal(found["weights"], weights)
    length = batch[features.INPUT_MASK].shape[1]
    for name, limit in (("before", length), ("after", length), ("place", 15)):
        assert 0 <= found[name].min() <= found[name].max() < limit
    return weights


def test_spans_are_runs_of_masks_with_a_token_on_either_side():
    batch = make_masks(200, 40, 30, seed=1)
    weights = check_spans(batch)
    left_out = batch[features.MASKED_LM_WEIGHTS].sum() - weights.sum()
    assert weights.sum() > 1000
    assert left_out > 300


def test_spans_end_with_their_sequence_of_a_packed_row():
    batch = make_masks(200, 40, 30, seed=2)
    numbers = np.random.default_rng(3).random((200, 40)) < 0.1
    batch[features.SEQUENCE_IDS] = (
        (1 + numbers.cumsum(axis=1)) * batch[features.INPUT_MASK]
    ).astype("int32")
    assert check_spans(batch).sum() > 500


@pytest.fixture(scope="module")
def computed():
    arrays = reference.pretraining_arrays(8)
    arrays |= {
        name: value.astype("int64") if value.dtype == np.int32 else value
        for name, value in make_masks(8, reference.LENGTH, 5, seed=4).items()
    }
    labels = np.random.default_rng(5).integers(1, 37, (8, 5))
    arrays[features.MASKED_LM_IDS] = labels
    batch = reference.as_batch(arrays)
    model = SpanBoundaryPretrainer(CONFIG)
    reference.set_weights(model)
    return model, arrays, batch, model(batch)


def test_logits_equal_numpys(computed):
    model, arrays, batch, outputs = computed
    weights = {
        variable.path.split("span_boundary/")[1]: variable.numpy()
        for variable in model.span_boundary_head.weights
    }
    assert weights["place_embeddings"].shape == (15, 200)
    words = model.pretrainer.encoder.embeddings.word_embeddings.numpy()
    states = model.pretrainer.encoder(batch)["sequence_output"].numpy()
    num_checked = 0
    for row in range(8):
        for slot, before, after, place in spans_of(arrays, row):
            x = np.concatenate(
                [
                    states[row, before],
                    states[row, after],
                    weights["place_embeddings"][place],
                ]
            )
            for number in (1, 2):
                x = reference_model.dense(
                    reference_model.scope(weights, f"dense_{number}"), x
                )
                x = reference_model.layer_norm(
                    reference_model.scope(weights, f"layer_norm_{number}"),
                    reference_model.gelu_erf(x),
                )
            np.testing.assert_allclose(
                outputs["span_boundary_logits"][row, slot],
                words @ x + weights["output_bias"],
                atol=1e-4,
            )
            num_checked += 1
    assert num_checked > 8
    # The others are those of the model without the objective.
    usual = model.pretrainer(batch)
    for name, value in usual.items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-5)


def test_loss_is_the_sum_over_one_more_than_the_count(computed):
    _, arrays, batch, outputs = computed
    logits = outputs["span_boundary_logits"].numpy().astype("float64")
    losses = [
        reference_model.cross_entropy(
            logits[row, slot], arrays[features.MASKED_LM_IDS][row, slot]
        )
        for row in range(8)
        for slot, *_ in spans_of(arrays, row)
    ]
    objective = SPAN_BOUNDARIES
    terms = objective.loss_terms(
        objective.losses(outputs, batch), objective.weights(batch)
    )
    np.testing.assert_allclose(
        terms.pop("span_boundary_loss"),
        sum(losses) / (len(losses) + 1),
        rtol=1e-5,
    )
    usual = objectives.PRETRAINING
    expected = usual.loss_terms(
        usual.losses(outputs, batch), usual.weights(batch)
    )
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(terms[name], value, rtol=1e-6)
    # Of what an evaluation adds to fill a batch, nothing counts.
    none = batch | {features.EXAMPLE_WEIGHTS: tf.zeros(8)}
    assert not any(float(value) for value in objective.weights(none).values())
    total, weight = objective.metrics(outputs, batch)["span_boundary_accuracy"]
    assert float(weight) == len(losses)
    assert 0 <= float(total) < len(losses)


def test_the_head_is_as_in_spanberts_code():
    assert (SpanBoundaryHead.NUM_PLACES, SpanBoundaryHead.PLACE_WIDTH) == (
        15,
        200,
    )


def test_the_model_keeps_the_contract(tmp_path):
    batch = reference.as_batch(reference.pretraining_arrays(3))
    names = (*features.MODEL_INPUTS, features.MASKED_LM_POSITIONS)
    inputs = {name: batch[name].numpy() for name in names}
    inputs[features.MASKED_LM_WEIGHTS] = batch[
        features.MASKED_LM_WEIGHTS
    ].numpy()
    check_layer(
        lambda **kwargs: SpanBoundaryPretrainer(CONFIG, **kwargs),
        [inputs],
        tmp_path,
    )
