"""Low-rank updates of a frozen encoder, against kernels that hold the sums."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import training as reference
from support import layer_checks
from support.family_models import of_family

RANK, ALPHA = 2, 6.0
INPUTS = layer_checks.MODEL_INPUTS
LABELS = np.array([2, 0])


def make_model(config=None):
    model = BertClassifier(
        config or reference.tiny_config(dropout=0.0), num_labels=3, dropout=0.0
    )
    layer_checks.randomized(model)
    return model


def with_updates(model):
    """Returns the model, with updates that are not 0."""
    model.encoder.enable_lora(RANK, ALPHA)
    generator = np.random.default_rng(0)
    for variable in model.weights:
        if "lora" in variable.path:
            variable.assign(generator.normal(size=variable.shape) / 5)
    return model


def gradients(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                LABELS, model(INPUTS, training=True)
            )
        )
    found = tape.gradient(loss, model.trainable_variables)
    return {
        variable.path.partition("/")[2]: tf.convert_to_tensor(gradient).numpy()
        for variable, gradient in zip(
            model.trainable_variables, found, strict=True
        )
    }


def layers_of(model):
    return [
        getattr(block.attention, name)
        for block in model.encoder.blocks
        for name in block.attention.adapted
    ]


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_only_updates_and_head_are_trained_with_their_gradients(family):
    config = reference.tiny_config(dropout=0.0)
    if family != "bert":
        config = of_family(config, family)
    model, whole = make_model(config), make_model(config)
    before = model(INPUTS)
    with_updates(model)
    assert not np.allclose(model(INPUTS), before, atol=1e-3)
    found = gradients(model)
    expected = {
        variable.path.partition("/")[2]: variable.numpy()
        for variable in model.trainable_variables
    }
    for ours, theirs in zip(layers_of(model), layers_of(whole), strict=True):
        theirs.kernel.assign(
            theirs.kernel
            + ALPHA / RANK * ours.lora_kernel_a.numpy() @ ours.lora_kernel_b
        )
    np.testing.assert_allclose(whole(INPUTS), model(INPUTS), atol=1e-5)
    of_whole = gradients(whole)
    factors = [name for name in found if "lora" in name]
    assert len(factors) == 2 * len(layers_of(model))
    assert all("encoder" not in name for name in found.keys() - {*factors})
    for name, gradient in found.items():
        place, _, last = name.rpartition("/")
        if last in ("lora_kernel_a", "lora_kernel_b"):
            a, b = (
                expected[f"{place}/lora_kernel_{letter}"] for letter in "ab"
            )
            of_kernel = of_whole[f"{place}/kernel"] * ALPHA / RANK
            wanted = a.T @ of_kernel if last[-1] == "b" else of_kernel @ b.T
        else:
            wanted = of_whole[name]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5)


def test_nothing_changes_until_it_is_trained():
    model = make_model()
    before = model(INPUTS)
    model.encoder.enable_lora(rank=RANK)
    np.testing.assert_array_equal(model(INPUTS), before)


def test_fit_leaves_all_other_weights_alone_and_files_hold_the_sums(tmp_path):
    texts = ["w1 w2", "w2 w1 w3", "w3"] * 4
    preprocessor = bert_tf.Preprocessor(
        WordpieceSpec(reference.vocabulary()), max_seq_length=reference.LENGTH
    )
    inputs, labels = preprocessor(texts), np.array([0, 1, 2] * 4)
    model = make_model()
    plain_size = model.count_params()
    model.encoder.enable_lora(RANK, ALPHA)
    before = {
        variable.path: variable.numpy()
        for variable in model.non_trainable_variables
        if "seed" not in variable.path
    }
    model.compile(
        bert_tf.BertOptimizer(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(inputs, labels, epochs=3, verbose=0)
    for variable in model.non_trainable_variables:
        if variable.path in before:
            np.testing.assert_array_equal(variable, before[variable.path])
    assert all(np.any(layer.lora_kernel_b) for layer in layers_of(model))
    expected = model.predict(inputs, verbose=0)

    bert_tf.save(tmp_path / "model", model, preprocessor)
    loaded = bert_tf.load(tmp_path / "model", BertClassifier, num_labels=3)
    found = loaded.model.predict(inputs, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert loaded.model.count_params() == plain_size
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert f"{plain_size:,}" in card

    path = tmp_path / "model.keras"
    model.save(path)
    with pytest.warns(UserWarning, match="Skipping variable loading for opt"):
        keras_model = keras.saving.load_model(path)
    found = keras_model.predict(inputs, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_updates_are_trained_again_after_weights_are_loaded(tmp_path):
    """Both factors were 0, as Keras sets them, so no gradient reached them."""
    path = tmp_path / "model.weights.h5"
    model = with_updates(make_model())
    model.save_weights(path)
    again = make_model()
    again.encoder.enable_lora(RANK, ALPHA)
    again.load_weights(path)
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-5)
    found = gradients(again)
    of_b = [name for name in found if name.endswith("lora_kernel_b")]
    assert len(of_b) == 2 * len(model.encoder.blocks)
    assert all(np.abs(found[name]).max() > 1e-4 for name in of_b)
    # Layers that are alike do not begin alike.
    first, second, *_ = (layer.lora_kernel_a for layer in layers_of(again))
    assert not np.array_equal(first, second)


def test_what_cannot_be_enabled_is_refused():
    encoder = BertEncoder(reference.tiny_config())
    with pytest.raises(ValueError, match="`rank` must be 1 or more.*rank=0"):
        encoder.enable_lora(0)
    with pytest.raises(ValueError, match="`rank` must be an integer"):
        encoder.enable_lora(0.5)
    assert encoder.blocks[0].attention.query.kernel.trainable
    encoder.enable_lora(1)
    with pytest.raises(ValueError, match="can be called once"):
        encoder.enable_lora(1)
