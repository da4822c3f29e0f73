"""What a SavedModel holds beside its signatures, after loading."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import saved_model
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds.hub import HubEncoder
from bert_tf.text import packing
from support import serving_models

TEXTS = tf.constant([b"the quick", b"a longer one, lorem"])


@pytest.fixture(scope="module")
def pair_servable():
    return serving_models.servable("pair")


@pytest.fixture(scope="module")
def pretrainer_servable():
    return serving_models.servable("pretrainer")


def hub_inputs(servable):
    inputs = servable.preprocessor(TEXTS)
    return {
        "input_word_ids": inputs["input_ids"],
        "input_mask": inputs["input_mask"],
        "input_type_ids": inputs["segment_ids"],
    }


def test_loaded_object_has_the_variables_and_the_vocabulary(pair_servable):
    module = serving_models.loaded("pair")
    trainable = pair_servable.model.trainable_variables
    assert len(module.trainable_variables) == len(trainable)
    for ours, kept in zip(trainable, module.trainable_variables):
        np.testing.assert_array_equal(ours.value, kept)
    assert len(module.variables) == len(pair_servable.model.variables)
    assert list(module.regularization_losses) == []
    assert bool(module.do_lower_case)
    text = tf.io.read_file(module.vocab_file).numpy().decode("utf-8")
    assert text == serving_models.VOCABULARY.to_text()


def test_loaded_object_is_called_as_the_keras_model(pair_servable):
    module = serving_models.loaded("pair")
    inputs = pair_servable.preprocessor((TEXTS, TEXTS[::-1]))
    wanted = pair_servable.model(inputs)
    np.testing.assert_allclose(module(inputs), wanted, atol=1e-5)
    np.testing.assert_allclose(
        module(inputs, training=False), wanted, atol=1e-5
    )
    # Dropout: never twice the same.
    first = module(inputs, training=True)
    assert np.abs(first - module(inputs, training=True)).max() > 1e-3
    assert np.abs(first - module.training_call(inputs)).max() > 1e-3


def test_loaded_preprocessor_is_the_trained_one(pair_servable):
    module = serving_models.loaded("pair")
    for texts in (TEXTS, [TEXTS, TEXTS[::-1]]):
        kept = module.preprocessor(texts)
        for name, value in pair_servable.preprocessor(texts).items():
            np.testing.assert_array_equal(kept[name], value)


def test_loaded_object_can_be_trained_further(pair_servable):
    # Of its own: the variables change.
    module = tf.saved_model.load(serving_models.exported("pair"))
    inputs = pair_servable.preprocessor((TEXTS, TEXTS[::-1]))
    labels = tf.constant([2, 0])

    def loss(training):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, module(inputs, training=training)
            )
        )

    before = loss(training=False)
    with tf.GradientTape() as tape:
        value = loss(training=True)
    gradients = tape.gradient(value, module.trainable_variables)
    assert all(gradient is not None for gradient in gradients)
    for _ in range(5):
        with tf.GradientTape() as tape:
            value = loss(training=False)
        gradients = tape.gradient(value, module.trainable_variables)
        for variable, gradient in zip(module.trainable_variables, gradients):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
    assert loss(training=False) < before - 0.01
    # The signatures answer with the same variables.
    answer = module.signatures["ids"](**inputs)
    np.testing.assert_allclose(
        answer["probabilities"],
        tf.nn.softmax(module(inputs) / pair_servable.task.temperature),
        atol=1e-6,
    )


def test_keras_layer_over_the_saved_model_can_be_trained(pair_servable):
    layer = keras.layers.TFSMLayer(
        serving_models.exported("pair"),
        call_endpoint="__call__",
        call_training_endpoint="training_call",
    )
    inputs = pair_servable.preprocessor((TEXTS, TEXTS[::-1]))
    np.testing.assert_allclose(
        layer(inputs), pair_servable.model(inputs), atol=1e-5
    )
    assert len(layer.trainable_weights) == len(
        pair_servable.model.trainable_variables
    )
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(inputs, training=True) ** 2)
    weights = [weight.value for weight in layer.trainable_weights]
    assert None not in tape.gradient(value, weights)


def test_hub_encoder_answers_under_the_hubs_names(pretrainer_servable):
    module = serving_models.loaded("pretrainer")
    inputs = hub_inputs(pretrainer_servable)
    wanted = pretrainer_servable.model.encoder(
        pretrainer_servable.preprocessor(TEXTS)
    )
    outputs = module(inputs)
    assert set(outputs) == {
        "default",
        "encoder_outputs",
        "pooled_output",
        "sequence_output",
    }
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(outputs[name], wanted[name], atol=1e-5)
    assert len(outputs["encoder_outputs"]) == 2
    for kept, ours in zip(
        outputs["encoder_outputs"], wanted["encoder_outputs"]
    ):
        np.testing.assert_allclose(kept, ours, atol=1e-5)


def test_masked_lm_of_the_hub_encoder(pretrainer_servable):
    module = serving_models.loaded("pretrainer")
    positions = tf.constant([[1, 2, 0], [3, 1, 1]])
    inputs = pretrainer_servable.preprocessor(TEXTS)
    wanted = pretrainer_servable.model(
        inputs | {"masked_lm_positions": positions}
    )
    outputs = module.mlm(
        hub_inputs(pretrainer_servable) | {"masked_lm_positions": positions}
    )
    np.testing.assert_allclose(
        outputs["mlm_logits"], wanted["masked_lm_logits"], atol=1e-4
    )
    assert "pooled_output" in outputs
    encoder = pretrainer_servable.model.encoder
    head = pretrainer_servable.model.masked_lm_head
    assert len(module.trainable_variables) == len(encoder.trainable_variables)
    assert len(module.mlm.trainable_variables) == len(
        encoder.trainable_variables + head.trainable_variables
    )


@pytest.mark.parametrize(
    "positions, message",
    [
        # That of the next row, or of the row before.
        ([[19], [0]], "must be at least 0 and less than the number of ids"),
        ([[0], [-1]], "must be at least 0 and less than the number of ids"),
        # Both rows would get the same.
        ([[3]], "must have the batch size of the ids"),
    ],
)
def test_positions_of_other_rows_are_refused(
    pretrainer_servable, positions, message
):
    inputs = hub_inputs(pretrainer_servable)
    assert inputs["input_mask"].shape == (2, 19)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        serving_models.loaded("pretrainer").mlm(
            inputs | {"masked_lm_positions": tf.constant(positions)}
        )


def test_encoder_without_head_has_no_masked_lm():
    assert not hasattr(serving_models.loaded("encoder"), "mlm")


def test_padding_is_trimmed_to_the_longest_row():
    inputs = {
        "input_ids": tf.constant([[5, 6, 7, 0], [8, 9, 0, 0]]),
        "input_mask": tf.constant([[1, 1, 1, 0], [1, 1, 0, 0]]),
        "segment_ids": tf.constant([[0, 0, 1, 0], [0, 1, 0, 0]]),
    }
    trimmed = packing.trim_padding(inputs)
    for name, value in inputs.items():
        np.testing.assert_array_equal(trimmed[name], value[:, :3])
    empty = packing.trim_padding(
        {name: value[:0] for name, value in inputs.items()}
    )
    assert empty["input_ids"].shape == (0, 1)
    # Of multiple choice: the longest of all choices.
    choices = {name: value[:, None] for name, value in inputs.items()}
    trimmed = packing.trim_padding(choices)
    for name, value in choices.items():
        np.testing.assert_array_equal(trimmed[name], value[..., :3])
    empty = packing.trim_padding(
        {name: value[:0] for name, value in choices.items()}
    )
    assert empty["input_ids"].shape == (0, 1, 1)


def test_the_graph_holds_each_way_of_calling_once():
    graph = saved_model._read(serving_models.exported("pair")).meta_graphs[0]
    called = [
        function.signature.name
        for function in graph.graph_def.library.function
        if function.signature.name.startswith("__inference___call__")
    ]
    # The model as in training and not, the preprocessor of texts and of pairs.
    assert len(called) == 4


@pytest.mark.parametrize("module_class", [ServingModule, HubEncoder])
def test_module_without_text_has_no_preprocessor(module_class, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("x\n")
    module = module_class(
        serving_models.servable("pretrainer", contents="ids"), str(path)
    )
    assert module.preprocessor is None
