"""The models: the contract, numbers, parameter counts, Keras habits."""

import dataclasses
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.reranker import BertReranker
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from references import model as reference
from references import training as reference_training
from support.family_models import OWN_LAYERS
from support.family_models import of_family
from support.layer_checks import check_layer
from support.layer_checks import randomized

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
)
GENERATOR = np.random.default_rng(20181011)
INPUTS = {
    "input_ids": GENERATOR.integers(0, 11, (3, 5)).astype("int32"),
    "input_mask": np.array(
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "int32"
    ),
    "segment_ids": GENERATOR.integers(0, 2, (3, 5)).astype("int32"),
}
PRETRAINER_INPUTS = INPUTS | {
    "masked_lm_positions": np.array([[1, 4], [2, 0], [0, 0]], "int32"),
}
BATCH = PRETRAINER_INPUTS | {
    "masked_lm_ids": np.array([[3, 10], [7, 0], [0, 0]], "int32"),
    "masked_lm_weights": np.array([[1, 1], [1, 0], [0, 0]], "float32"),
    "next_sentence_labels": np.array([[0], [1], [1]], "int32"),
}
MODELS = {
    "encoder": (lambda **kwargs: BertEncoder(CONFIG, **kwargs), INPUTS),
    "pretrainer": (
        lambda **kwargs: BertPretrainer(CONFIG, **kwargs),
        PRETRAINER_INPUTS,
    ),
    "classifier": (
        lambda **kwargs: BertClassifier(CONFIG, 3, **kwargs),
        INPUTS,
    ),
    "discriminator": (
        lambda **kwargs: BertDiscriminator(
            of_family(CONFIG, "electra"), **kwargs
        ),
        INPUTS,
    ),
}
# Its classifier has all that a family's encoder has, and its hidden layer.
FAMILIES = {
    family: lambda family=family, **kwargs: BertClassifier(
        of_family(CONFIG, family), 3, **kwargs
    )
    for family in OWN_LAYERS
}


@pytest.mark.parametrize(
    "values",
    [
        # Google's: its "gelu" is another function, and it has 16 segments.
        {"vocab_size": 11, "hidden_size": 8, "hidden_act": "gelu"},
        # Hugging Face's, whole.
        CONFIG.to_dict() | {"architectures": ["BertModel"]},
        "tiny",
    ],
)
def test_no_other_dictionary_is_taken_for_a_config(values):
    with pytest.raises(ValueError, match="`config` must be .*parse_config"):
        BertEncoder(values)
    assert BertEncoder(CONFIG.to_dict()).config == CONFIG


@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_contract(name, tmp_path):
    make_model, inputs = MODELS[name]
    check_layer(make_model, [inputs], tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_the_contract(family, tmp_path):
    check_layer(FAMILIES[family], [INPUTS], tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_model_saves_itself_with_its_weights(name, tmp_path):
    make_model, inputs = MODELS[name]
    model = randomized(make_model())
    model(inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(model.weights)
    for left, right in zip(model.weights, loaded.weights):
        assert left.path == right.path
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_encoder_equals_loops(hidden_act):
    config = BertConfig(**(vars(CONFIG) | {"hidden_act": hidden_act}))
    model = randomized(BertEncoder(config))
    weights = reference.weights_of(model)
    outputs = model(INPUTS)
    for row in range(3):
        mask_LL = np.tile(INPUTS["input_mask"][row] == 1, (5, 1))
        expected = reference.encoder(
            weights,
            config,
            INPUTS["input_ids"][row],
            mask_LL,
            INPUTS["segment_ids"][row],
        )
        assert len(outputs["encoder_outputs"]) == len(expected) == 2
        for layer_output, expected_LD in zip(
            outputs["encoder_outputs"], expected
        ):
            np.testing.assert_allclose(
                layer_output[row], expected_LD, atol=2e-4
            )
        np.testing.assert_allclose(
            outputs["sequence_output"][row], expected[-1], atol=2e-4
        )
        np.testing.assert_allclose(
            outputs["pooled_output"][row],
            reference.pooled(weights, expected[-1][0]),
            atol=2e-4,
        )


def test_padding_changes_nothing():
    model = randomized(BertEncoder(CONFIG))
    padded = model(INPUTS)
    short = model({name: value[1:2, :3] for name, value in INPUTS.items()})
    np.testing.assert_allclose(
        padded["sequence_output"][1, :3], short["sequence_output"][0], atol=1e-5
    )
    np.testing.assert_allclose(
        padded["pooled_output"][1], short["pooled_output"][0], atol=1e-5
    )


def test_left_to_right_encoder_equals_loops():
    config = dataclasses.replace(CONFIG, is_decoder=True)
    model = randomized(BertEncoder(config))
    outputs = model(INPUTS)
    for row in range(3):
        mask_LL = np.tril(np.tile(INPUTS["input_mask"][row] == 1, (5, 1)))
        expected = reference.encoder(
            reference.weights_of(model),
            config,
            INPUTS["input_ids"][row],
            mask_LL,
            INPUTS["segment_ids"][row],
        )
        np.testing.assert_allclose(
            outputs["sequence_output"][row], expected[-1], atol=2e-4
        )
    copy = BertEncoder.from_config(model.get_config())
    assert copy.config == config


@pytest.mark.parametrize("model", [BertClassifier, BertMultipleChoice])
def test_what_is_pooled_must_see_the_sequence(model):
    config = dataclasses.replace(CONFIG, is_decoder=True)
    with pytest.raises(ValueError, match="`is_decoder` must be False"):
        model(config)


GROUPS = [[2, 0, 4], [1], [3, 5]]
# Row and number of example 0, 1, ...
PLACES = [(0, 1), (1, 0), (0, 0), (2, 0), (0, 2), (2, 1)]


def own_and_packed():
    """Returns a batch of six sequences, and the same in three rows."""
    arrays = reference_training.pretraining_arrays(6)
    packed = reference_training.pack_rows(arrays, GROUPS, 34, 9, 3)
    return [
        {
            name: value.astype("int32") if value.dtype == np.int64 else value
            for name, value in batch.items()
        }
        for batch in (arrays, packed)
    ]


def check_packed_outputs(outputs, packed_outputs, batch, packed):
    """Checks that each sequence of the packed rows has its own outputs."""
    slots = np.zeros(3, int)
    for example in sum(GROUPS, []):
        row, number = PLACES[example]
        first = packed["first_positions"][row, number]
        size = batch["input_mask"][example].sum()
        count = int(batch["masked_lm_weights"][example].sum())
        places = slice(slots[row], slots[row] + count)
        slots[row] += count
        for name, own, others in (
            ("masked_lm_logits", (example, slice(count)), (row, places)),
            ("next_sentence_logits", example, (row, number)),
            ("pooled_output", example, (row, number)),
            (
                "sequence_output",
                (example, slice(size)),
                (row, slice(first, first + size)),
            ),
        ):
            if name in outputs:
                np.testing.assert_allclose(
                    np.array(packed_outputs[name])[others],
                    np.array(outputs[name])[own],
                    atol=1e-5,
                    err_msg=name,
                )


def test_packed_rows_equal_rows_of_their_own():
    batch, packed = own_and_packed()
    model = BertPretrainer(reference_training.tiny_config())
    reference_training.set_weights(model)
    outputs = {**model(batch), **model.encoder(batch)}
    packed_outputs = {**model(packed), **model.encoder(packed)}
    check_packed_outputs(outputs, packed_outputs, batch, packed)

    for function in (PRETRAINING.weights, PRETRAINING.losses):
        arguments = () if function is PRETRAINING.weights else (outputs,)
        packed_arguments = arguments and (packed_outputs,)
        expected = function(*arguments, batch)
        assert set(expected) == {"masked_lm_loss", "next_sentence_loss"}
        for name, value in function(*packed_arguments, packed).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5)
    assert PRETRAINING.weights(packed)["next_sentence_loss"] == 6
    expected = PRETRAINING.metrics(outputs, batch)
    for name, (total, weight) in PRETRAINING.metrics(
        packed_outputs, packed
    ).items():
        assert (total, weight) == expected[name]
    # The last row only fills the batch.
    filled = packed | {"example_weights": np.array([1, 1, 0], "float32")}
    assert PRETRAINING.weights(filled)["next_sentence_loss"] == 4


def test_without_labels_there_is_no_next_sentence_loss(pretraining_numbers):
    batch = {k: v for k, v in BATCH.items() if k != "next_sentence_labels"}
    _, weights, losses, metrics = _pretraining_numbers(batch)
    _, *expected = pretraining_numbers
    for got, wanted, name in zip(
        (weights, losses, metrics),
        expected,
        ("masked_lm_loss", "masked_lm_loss", "masked_lm_accuracy"),
    ):
        assert got == {name: wanted[name]}


def test_pretrainer_equals_loops():
    model = randomized(BertPretrainer(CONFIG))
    outputs = model(PRETRAINER_INPUTS)
    encoder_outputs = model.encoder(INPUTS)
    weights = {
        variable.path.split("/", 1)[1]: np.array(variable, "float64")
        for variable in model.weights
    }
    sequence = np.array(encoder_outputs["sequence_output"], "float64")
    for row in range(3):
        np.testing.assert_allclose(
            outputs["masked_lm_logits"][row],
            reference.masked_lm_logits(
                reference.scope(weights, "masked_lm"),
                sequence[row][PRETRAINER_INPUTS["masked_lm_positions"][row]],
                weights["embeddings/word_embeddings"],
            ),
            atol=2e-4,
        )
        np.testing.assert_allclose(
            outputs["next_sentence_logits"][row],
            reference.dense(
                reference.scope(weights, "next_sentence/dense"),
                np.array(encoder_outputs["pooled_output"][row]),
            ),
            atol=2e-4,
        )


def _pretraining_numbers(batch):
    model = randomized(BertPretrainer(CONFIG))
    outputs = model(PRETRAINER_INPUTS)
    to_floats = lambda sums: {k: float(v) for k, v in sums.items()}  # noqa: E731
    return (
        {name: np.array(value) for name, value in outputs.items()},
        to_floats(PRETRAINING.weights(batch)),
        to_floats(PRETRAINING.losses(outputs, batch)),
        {
            name: (float(total), float(weight))
            for name, (total, weight) in PRETRAINING.metrics(
                outputs, batch
            ).items()
        },
    )


@pytest.fixture(scope="module")
def pretraining_numbers():
    return _pretraining_numbers(BATCH)


def test_pretraining_losses_equal_loops(pretraining_numbers):
    outputs, weights, losses, metrics = pretraining_numbers
    masked = [
        (outputs["masked_lm_logits"][row, index], label)
        for row, index, label in [(0, 0, 3), (0, 1, 10), (1, 0, 7)]
    ]
    pairs = list(zip(outputs["next_sentence_logits"], [0, 1, 1]))
    assert weights == {"masked_lm_loss": 3, "next_sentence_loss": 3}
    assert losses["masked_lm_loss"] == pytest.approx(
        sum(reference.cross_entropy(*pair) for pair in masked), rel=1e-5
    )
    assert losses["next_sentence_loss"] == pytest.approx(
        sum(reference.cross_entropy(*pair) for pair in pairs), rel=1e-5
    )
    assert metrics == {
        "masked_lm_accuracy": (
            sum(logits.argmax() == label for logits, label in masked),
            3,
        ),
        "next_sentence_accuracy": (
            sum(logits.argmax() == label for logits, label in pairs),
            3,
        ),
    }


def test_the_gradient_of_the_losses_is_softmax_less_the_label(
    pretraining_numbers,
):
    logits = {
        name: tf.constant(value)
        for name, value in pretraining_numbers[0].items()
    }
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = sum(PRETRAINING.losses(logits, BATCH).values())
    gradients = tape.gradient(loss, logits)
    for name, labels, weights in (
        ("masked_lm_logits", "masked_lm_ids", BATCH["masked_lm_weights"]),
        ("next_sentence_logits", "next_sentence_labels", np.ones((3, 1))),
    ):
        values = np.array(logits[name], "float64")
        values = values.reshape(3, -1, values.shape[-1])
        powers = np.exp(values - values.max(-1, keepdims=True))
        slopes = powers / powers.sum(-1, keepdims=True)
        slopes -= np.eye(values.shape[-1])[BATCH[labels]]
        np.testing.assert_allclose(
            np.array(gradients[name]).reshape(values.shape),
            slopes * weights[..., None],
            atol=1e-6,
        )


def test_of_equal_logits_the_first_class_is_predicted():
    logits = {
        "masked_lm_logits": np.zeros((3, 2, 11), "float32"),
        "next_sentence_logits": np.zeros((3, 2), "float32"),
    }
    labels = BATCH["next_sentence_labels"][:, 0]
    assert 0 < np.sum(labels == 0) < 3
    total, weight = PRETRAINING.metrics(logits, BATCH)["next_sentence_accuracy"]
    assert (float(total), float(weight)) == (np.sum(labels == 0), 3)
    logits["next_sentence_logits"][np.arange(3), labels] = 1e-3
    total, _ = PRETRAINING.metrics(logits, BATCH)["next_sentence_accuracy"]
    assert float(total) == 3


@pytest.mark.parametrize("positions", [0, 1, 3])
def test_the_last_block_at_the_first_positions_alone(positions):
    model = randomized(BertEncoder(CONFIG))
    whole = model(INPUTS)
    part = model(INPUTS, positions=positions)
    np.testing.assert_allclose(
        part["sequence_output"],
        whole["sequence_output"][:, :positions],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        part["pooled_output"], whole["pooled_output"], atol=1e-5
    )


def test_numbers_of_positions_that_cannot_be_are_refused():
    model = BertEncoder(CONFIG)
    packed = INPUTS | {"first_positions": np.zeros((3, 1), "int32")}
    for inputs, positions in ((INPUTS, -1), (packed, 3)):
        with pytest.raises(ValueError, match=f"positions={positions}"):
            model(inputs, positions=positions)


@pytest.mark.parametrize("first", [None, [[0, 3], [0, 2], [0, 0]]])
def test_the_last_block_at_positions_alone(first):
    model = randomized(BertEncoder(CONFIG))
    inputs = dict(INPUTS)
    if first is not None:
        inputs["first_positions"] = np.array(first, "int32")
        inputs["sequence_ids"] = np.array(
            [[1, 1, 1, 2, 2], [1, 1, 2, 0, 0], [1, 0, 0, 0, 0]], "int32"
        )
        inputs["position_ids"] = np.array(
            [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], "int32"
        )
    positions = PRETRAINER_INPUTS["masked_lm_positions"]
    whole = model(inputs)
    part = model(inputs, positions)
    np.testing.assert_allclose(
        part["sequence_output"],
        np.take_along_axis(
            np.array(whole["sequence_output"]), positions[..., None], axis=1
        ),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        part["pooled_output"], whole["pooled_output"], atol=1e-5
    )
    assert len(part["encoder_outputs"]) == 1
    np.testing.assert_array_equal(
        part["encoder_outputs"][0], whole["encoder_outputs"][0]
    )


def test_examples_that_fill_the_batch_weigh_nothing():
    batch = BATCH | {"example_weights": np.array([1, 0, 0], "float32")}
    outputs, weights, losses, metrics = _pretraining_numbers(batch)
    assert weights == {"masked_lm_loss": 2, "next_sentence_loss": 1}
    assert losses["next_sentence_loss"] == pytest.approx(
        reference.cross_entropy(outputs["next_sentence_logits"][0], 0), rel=1e-5
    )
    assert metrics["masked_lm_accuracy"][1] == 2


def test_classifier_gives_one_logit_a_label():
    model = randomized(BertClassifier(CONFIG, num_labels=3))
    logits = np.array(model(INPUTS))
    pooled = np.array(model.encoder(INPUTS)["pooled_output"])
    head = model.classification_head.dense
    np.testing.assert_allclose(
        logits, pooled @ np.array(head.kernel) + np.array(head.bias), atol=1e-5
    )
    assert BertClassifier(CONFIG, num_labels=1)(INPUTS).shape == (3, 1)


@pytest.mark.parametrize(
    "model, num_axes, message",
    [
        (BertEncoder(CONFIG), 1, r"shape \[B, L\].* shape \[5\]"),
        (BertClassifier(CONFIG, 3), 3, r"shape \[B, L\].* shape \[1, 3, 5\]"),
        (BertMultipleChoice(CONFIG), 2, r"\[B, C, L\].* shape \[3, 5\]"),
        (BertReranker(CONFIG), 2, r"\[B, C, L\].* shape \[3, 5\]"),
    ],
)
def test_inputs_of_other_axes_are_refused(model, num_axes, message):
    places = {1: 0, 2: ..., 3: None}
    inputs = {name: ids[places[num_axes]] for name, ids in INPUTS.items()}
    with pytest.raises(ValueError, match=f"`input_ids` must be .*{message}"):
        model(inputs)


@pytest.mark.parametrize(
    "make",
    [BertEncoder, BertClassifier, BertMultipleChoice, BertSentenceEncoder],
)
def test_missing_inputs_are_named(make):
    """They ended in a KeyError, which named the first alone."""
    model = make(CONFIG)
    ids = INPUTS["input_ids"]
    with pytest.raises(ValueError, match="dictionary with .*segment_ids"):
        model(ids)
    some = {"input_ids": ids, "other": ids}
    with pytest.raises(
        ValueError,
        match="must have input_mask, segment_ids. Received: input_ids, other.",
    ):
        model(some)
    elsewhere = {"attention_mask": ids, "token_type_ids": ids}
    with pytest.raises(
        ValueError,
        match="; attention_mask is called input_mask here; token_type_ids is "
        "called segment_ids here. Received: input_ids, attention_mask, ",
    ):
        model({"input_ids": ids} | elsewhere)
    with pytest.raises(ValueError, match="must have segment_ids. Received: "):
        model(INPUTS | {"segment_ids": None})


def test_positions_may_be_floats():
    """A keras.Input without a dtype makes them so."""
    model = BertEncoder(CONFIG)
    positions = np.tile([4, 3, 2, 1, 0], (len(INPUTS["input_ids"]), 1))
    found, expected = (
        model(INPUTS | {"position_ids": positions.astype(dtype)})
        for dtype in ("float32", "int32")
    )
    np.testing.assert_array_equal(
        found["sequence_output"], expected["sequence_output"]
    )


@pytest.mark.parametrize(
    ("make", "axes"),
    [(BertEncoder, 2), (BertMultipleChoice, 3), (BertSentenceEncoder, 2)],
)
def test_inputs_of_other_shapes_are_refused(make, axes):
    """A mask with its axes swapped was another, without a word."""
    model = make(CONFIG)
    inputs = {
        name: ids if axes == 2 else ids[None] for name, ids in INPUTS.items()
    }
    turned = {"input_mask": np.swapaxes(inputs["input_mask"], -1, -2)}
    message = r"`input_mask` must be of the shape of `input_ids`, \[.*3, 5\]\. "
    with pytest.raises(ValueError, match=message + r".*\[.*5, 3\]"):
        model(inputs | turned)
    with pytest.raises(ValueError, match="`segment_ids` must be of the shape"):
        model(inputs | {"segment_ids": inputs["segment_ids"][..., :1]})


@pytest.mark.parametrize("make", [BertEncoder, BertSentenceEncoder])
def test_ids_that_are_floats_stay_the_same_in_16_bits(make):
    """In bfloat16, 515 is 516."""
    config = dataclasses.replace(CONFIG, vocab_size=600)
    model = make(config, dtype="mixed_bfloat16")
    inputs = INPUTS | {"input_ids": INPUTS["input_ids"] + 513}
    floats = {name: ids.astype("float32") for name, ids in inputs.items()}
    for expected, found in zip(
        keras.tree.flatten(model(inputs)), keras.tree.flatten(model(floats))
    ):
        np.testing.assert_array_equal(
            keras.ops.cast(found, "float32"),
            keras.ops.cast(expected, "float32"),
        )


def test_pretrainer_names_missing_positions():
    with pytest.raises(ValueError, match="must have masked_lm_positions. Rec"):
        BertPretrainer(CONFIG)(dict(INPUTS))


def test_classifier_refuses_no_labels():
    with pytest.raises(ValueError, match="num_labels=0"):
        BertClassifier(CONFIG, num_labels=0)


@pytest.mark.parametrize("value", ["2", 2.0, None, True])
def test_a_number_of_labels_that_is_none_is_named(value):
    with pytest.raises(ValueError, match=f"`num_labels` .*{value!r}"):
        BertClassifier(CONFIG, num_labels=value)


@pytest.mark.parametrize("value", ["0.1", 1.0, float("nan"), True])
def test_a_dropout_that_is_no_share_is_named(value):
    with pytest.raises(ValueError, match=r"`dropout` must be a number in"):
        BertClassifier(CONFIG, num_labels=2, dropout=value)


def test_numbers_of_numpy_are_those_of_python():
    """Of `labels.max() + 1` there was no model, and of float32 no file."""
    labels = np.array([0, 2, 1])
    model = BertClassifier(
        CONFIG, num_labels=labels.max() + 1, dropout=np.float32(0.25)
    )
    assert model(INPUTS).shape == (3, 3)
    values = json.loads(json.dumps(model.get_config()))
    assert (values["num_labels"], values["dropout"]) == (3, 0.25)


@pytest.mark.parametrize(
    "name, expected",
    [
        # google-research/bert's releases, counted over their variables
        # (encoder and pooler); the same numbers as Hugging Face's BertModel.
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_parameter_counts_equal_the_published_models(name, expected):
    assert _formula(BertConfig.named(name)) == expected
    if name in ("tiny", "mini"):
        assert BertEncoder(BertConfig.named(name)).count_params() == expected


def test_the_formula_of_parameters_is_the_model_s():
    # Other depths and widths are above.
    config = BertConfig.named("L-4_H-128")
    assert BertEncoder(config).count_params() == _formula(config)


def _formula(config):
    hidden, inner = config.hidden_size, config.intermediate_size
    dense = lambda inputs, outputs: (inputs + 1) * outputs  # noqa: E731
    rows = (
        config.vocab_size
        + config.max_position_embeddings
        + config.type_vocab_size
    )
    block = (
        4 * dense(hidden, hidden)
        + dense(hidden, inner)
        + dense(inner, hidden)
        + 4 * hidden
    )
    return (
        rows * hidden
        + 2 * hidden
        + config.num_hidden_layers * block
        + dense(hidden, hidden)
    )


def test_encoder_within_the_functional_api_trains(tmp_path):
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS
    }
    encoder = BertEncoder(dataclasses.replace(CONFIG, num_hidden_layers=1))
    outputs = encoder(inputs)
    x = keras.layers.GlobalAveragePooling1D()(outputs["sequence_output"])
    x = keras.layers.Concatenate()([x, outputs["pooled_output"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse")
    before = np.array(encoder.embeddings.word_embeddings)
    model.fit(INPUTS, np.array([[0.0], [1.0], [2.0]]), verbose=0)
    assert not np.array_equal(before, encoder.embeddings.word_embeddings)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(INPUTS), loaded(INPUTS))


def test_summary_counts_without_a_first_call():
    lines = []
    model = BertClassifier(CONFIG, 3)
    model.summary(print_fn=lines.append)
    # 2 dense layers of 8 by 12, 4 of 8 by 8 and 4 vectors of LayerNorm a block.
    block = 2 * 8 * 12 + 12 + 8 + 4 * (8 * 8 + 8) + 4 * 8
    embeddings = (11 + 7 + 2) * 8 + 2 * 8
    heads = (8 * 8 + 8) + (8 * 3 + 3)
    total = embeddings + 2 * block + heads
    assert model.count_params() == total
    assert f"{total:,}" in "".join(lines)


def test_pretrainer_on_jax_without_tensorflow_gives_the_same_numbers(tmp_path):
    # A block is compiled as the next is.
    config = dataclasses.replace(
        reference_training.tiny_config(), num_hidden_layers=1
    )
    model = BertPretrainer(config)
    reference_training.set_weights(model)
    model.save(tmp_path / "model.keras")
    # One block of each is enough, but ALBERT's second one shares weights, and
    # ModernBERT's has a window.
    of_families = {
        family: randomized(
            BertClassifier(
                dataclasses.replace(
                    of_family(CONFIG, family),
                    num_hidden_layers=(
                        2 if family in ("albert", "modernbert") else 1
                    ),
                ),
                3,
                name=family,
            )
        )
        for family in OWN_LAYERS
    }
    for family, each in of_families.items():
        each.save(tmp_path / f"{family}.family.keras")
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    batches = dict(zip(("own", "packed"), own_and_packed()))
    for name, batch in batches.items():
        np.savez(tmp_path / f"{name}.npz", **batch)
    script = (
        "import pathlib\n"
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        # Keras wraps it, and imports it slowly.
        "sys.modules['sklearn'] = None\n"
        "import jax\n"
        "import numpy as np\n"
        "import bert_tf\n"
        "import keras\n"
        "assert 'bert_tf.models' not in sys.modules\n"
        "model = keras.saving.load_model('model.keras')\n"
        "from bert_tf import BertClassifier, BertEncoder, BertMultipleChoice\n"
        "from bert_tf import BertSpanPredictor, BertTokenClassifier\n"
        "from bert_tf.models import objectives\n"
        "@jax.jit\n"
        "def run(batch):\n"
        "    outputs = model(batch)\n"
        "    return outputs | objectives.PRETRAINING.losses(outputs, batch)\n"
        "for name in ('own', 'packed'):\n"
        "    outputs = run(dict(np.load(f'{name}.npz')))\n"
        "    np.savez(f'{name}-outputs.npz', **outputs)\n"
        "inputs = dict(np.load('inputs.npz'))\n"
        "logits = {}\n"
        "for path in pathlib.Path().glob('*.family.keras'):\n"
        "    each = keras.saving.load_model(path)\n"
        "    logits[each.name] = jax.jit(each)(inputs)\n"
        # As in a functional model, whose lengths are not known.
        "    symbols = {\n"
        "        name: keras.Input((None,), dtype='int32', name=name)\n"
        "        for name in inputs\n"
        "    }\n"
        "    assert each(symbols, training=True).shape == (None, 3)\n"
        "np.savez('logits.npz', **logits)\n"
        # Traced alone: a state that is changed inside would be an error.
        "model.encoder.rematerialize = True\n"
        "batch = dict(np.load('own.npz'))\n"
        "def loss(trainable, rest):\n"
        "    call = model.stateless_call\n"
        "    outputs, rest = call(trainable, rest, batch, training=True)\n"
        "    return outputs['masked_lm_logits'].sum(), rest\n"
        "values = [\n"
        "    [variable.value for variable in variables]\n"
        "    for variables in\n"
        "    (model.trainable_variables, model.non_trainable_variables)\n"
        "]\n"
        "jax.eval_shape(jax.grad(loss, has_aux=True), *values)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    outputs = {
        name: dict(np.load(tmp_path / f"{name}-outputs.npz"))
        for name in batches
    }
    check_packed_outputs(*outputs.values(), *batches.values())
    for name, batch in batches.items():
        expected = model(batch)
        expected |= PRETRAINING.losses(expected, batch)
        for key, value in expected.items():
            np.testing.assert_allclose(
                outputs[name][key], value, rtol=1e-5, atol=5e-5
            )
    logits = np.load(tmp_path / "logits.npz")
    assert {*logits} == {*OWN_LAYERS}
    for family, each in of_families.items():
        np.testing.assert_allclose(logits[family], each(INPUTS), atol=5e-5)
