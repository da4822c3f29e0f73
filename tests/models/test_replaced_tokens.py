"""ELECTRA: what is sampled, what is replaced, losses and gradients."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from bert_tf import features
from bert_tf.layers.sampling import sample_classes
from bert_tf.models.replaced_tokens import ReplacedTokensPretrainer
from bert_tf.models.replaced_tokens import generator_config
from bert_tf.models.replaced_tokens import replace_tokens
from bert_tf.models.replaced_tokens import replaced_tokens
from bert_tf.text import dynamic_masking
from references import training as reference
from support.family_models import of_family
from support.layer_checks import check_layer

CONFIG = dataclasses.replace(
    of_family(reference.tiny_config(), "electra"), num_hidden_layers=1
)


def make_model(**kwargs):
    model = ReplacedTokensPretrainer(
        CONFIG, generator_config(CONFIG, 0.5), **kwargs
    )
    reference.set_weights(model)
    # So that it tells some tokens to be replaced, and not others.
    last = model.discriminator.discriminator_head.dense
    last.kernel.assign(30 * last.kernel)
    last.bias.assign([0.0])
    return model


def make_batch(num_examples=9):
    batch = reference.as_batch(reference.pretraining_arrays(num_examples))
    seeds = dynamic_masking.example_seeds(3, tf.range(num_examples))
    return dynamic_masking.draw_replacements(batch, seeds)


@pytest.mark.parametrize("num_classes", [3, 128, 300])
def test_samples_follow_the_softmax(num_classes):
    generator = np.random.default_rng(num_classes)
    logits = generator.normal(0, 1.5, num_classes).astype("float32")
    num_draws = 40_000
    draws = generator.integers(0, 2**23, (num_draws, 2), "int32")
    found = sample_classes(np.tile(logits, (num_draws, 1)), draws)
    assert found.dtype == tf.int32
    shares = np.exp(logits.astype("float64"))
    expected = num_draws * shares / shares.sum()
    counts = np.bincount(found, minlength=num_classes)
    # Rare ones together: the test is of counts that are not small.
    is_rare = expected < 8
    if is_rare.any():
        counts = np.append(counts[~is_rare], counts[is_rare].sum())
        expected = np.append(expected[~is_rare], expected[is_rare].sum())
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3


def test_draws_of_examples_give_the_samples_of_the_softmax():
    # From seeds to tokens, over the slots of many examples.
    logits = np.log([0.5, 0.25, 0.15, 0.1]).astype("float32")
    examples = {features.MASKED_LM_POSITIONS: tf.zeros((3000, 5), tf.int32)}
    seeds = dynamic_masking.example_seeds(11, tf.range(3000))
    draws = dynamic_masking.draw_replacements(examples, seeds)[
        features.REPLACEMENT_DRAWS
    ].numpy()
    assert draws.shape == (3000, 5, 2)
    assert draws.min() >= 0
    assert draws.max() < 2**23
    assert draws.max() > 2**23 - 2000
    found = sample_classes(np.tile(logits, (3000, 5, 1)), draws)
    counts = np.bincount(np.ravel(found), minlength=4)
    expected = 15_000 * np.exp(logits.astype("float64"))
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3
    # No two slots, nor two examples, draw the same.
    assert len({tuple(draw) for draw in draws.reshape(-1, 2).tolist()}) > 14_990


def test_the_largest_and_smallest_draws_choose_classes_that_there_are():
    logits = np.full((2, 131), -1e9, "float32")
    logits[:, [2, 129]] = 0.0
    draws = np.array([[0, 0], [2**23 - 1, 2**23 - 1]], "int32")
    np.testing.assert_array_equal(sample_classes(logits, draws), [2, 129])


def test_only_masked_places_are_replaced_and_only_others_are_labelled():
    batch = make_batch()
    sampled = np.random.default_rng(4).integers(0, 37, (9, 3)).astype("int32")
    # Two that are what the text has.
    sampled[:2, 0] = batch[features.MASKED_LM_IDS].numpy()[:2, 0]
    ids, replaced = replace_tokens(batch, sampled)
    expected = batch[features.INPUT_IDS].numpy()
    labels = np.zeros_like(expected)
    for row, slot in np.argwhere(batch[features.MASKED_LM_WEIGHTS].numpy()):
        position = batch[features.MASKED_LM_POSITIONS].numpy()[row, slot]
        expected[row, position] = sampled[row, slot]
        original = batch[features.MASKED_LM_IDS].numpy()[row, slot]
        labels[row, position] = sampled[row, slot] != original
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(replaced, labels)
    assert (
        labels[:2].sum() < batch[features.MASKED_LM_WEIGHTS].numpy()[:2].sum()
    )


@pytest.fixture(scope="module")
def trained():
    """A model, a batch, what it computes, and gradients of either loss."""
    model, batch = make_model(), make_batch()
    objective = replaced_tokens(50.0)
    with tf.GradientTape(persistent=True) as tape:
        outputs = model(batch, training=True)
        totals = objective.losses(outputs, batch)
    variables = [each.value for each in model.trainable_variables]
    gradients = {
        name: tape.gradient(total, variables) for name, total in totals.items()
    }
    return model, batch, outputs, objective, totals, gradients


def test_rows_beyond_the_vocabulary_replace_no_token():
    batch = make_batch()
    is_slot = np.array(batch["masked_lm_weights"]) > 0
    last = CONFIG.vocab_size - 1
    for num_words, expected in ((None, last), (last, 3)):
        model = make_model(num_words=num_words)
        bias = np.zeros(CONFIG.vocab_size)
        # The likeliest words, far before all others.
        bias[[3, last]] = 500, 1000
        model.generator.masked_lm_head.output_bias.assign(bias)
        is_other = np.array(batch["masked_lm_ids"]) != expected
        found = np.sum(model(batch)["replaced"])
        assert found == np.sum(is_slot & is_other)


def test_losses_and_metrics_equal_numpys(trained):
    model, batch, outputs, objective, totals, _ = trained
    arrays = {name: value.numpy() for name, value in batch.items()}
    logits = outputs["masked_lm_logits"].numpy().astype("float64")
    # What the generator sees is the records'.
    np.testing.assert_allclose(
        logits, model.generator(batch)["masked_lm_logits"], atol=1e-5
    )
    log_shares = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    picked = np.take_along_axis(
        log_shares, arrays[features.MASKED_LM_IDS][..., None], axis=-1
    )[..., 0]
    masked_lm = -(arrays[features.MASKED_LM_WEIGHTS] * picked).sum()

    # What the discriminator sees has the samples.
    sampled = sample_classes(
        outputs["masked_lm_logits"], arrays[features.REPLACEMENT_DRAWS]
    )
    ids, replaced = replace_tokens(batch, sampled)
    seen = batch | {features.INPUT_IDS: ids}
    found = outputs["discriminator_logits"].numpy()
    np.testing.assert_allclose(found, model.discriminator(seen), atol=1e-5)
    np.testing.assert_array_equal(outputs["replaced"], replaced)
    is_token = arrays[features.INPUT_MASK] == 1
    x, y = found[is_token].astype("float64"), replaced.numpy()[is_token]
    shares = 1 / (1 + np.exp(-x))
    losses = -(y * np.log(shares) + (1 - y) * np.log(1 - shares))
    num_tokens = is_token.sum()
    np.testing.assert_allclose(totals["masked_lm_loss"], masked_lm, rtol=1e-5)
    np.testing.assert_allclose(
        totals["discriminator_loss"], losses.sum(), rtol=1e-5
    )
    weights = objective.weights(batch)
    assert float(weights["discriminator_loss"]) == num_tokens
    assert objective.loss(
        {"masked_lm_loss": 7.0, "discriminator_loss": 3.0}
    ) == (7.0 + 50 * 3.0)
    metrics = {
        name: tuple(map(float, value))
        for name, value in objective.metrics(outputs, batch).items()
    }
    told = x > 0
    assert 0 < told.sum() < num_tokens
    hits = (told & (y == 1)).sum()
    assert metrics.pop("masked_lm_accuracy")[1] == weights["masked_lm_loss"]
    assert metrics == {
        "discriminator_accuracy": ((told == (y == 1)).sum(), num_tokens),
        "discriminator_precision": (hits, told.sum()),
        "discriminator_recall": (hits, y.sum()),
        "replaced_share": (y.sum(), num_tokens),
    }


def test_examples_that_only_fill_a_batch_do_not_count(trained):
    model, batch, _, objective, _, _ = trained
    some = {name: value[:4] for name, value in batch.items()}
    weights = tf.constant([1.0] * 4 + [0.0] * 5)
    filled = batch | {features.EXAMPLE_WEIGHTS: weights}
    for function in (
        lambda batch: objective.weights(batch),
        lambda batch: objective.losses(model(batch), batch),
        lambda batch: objective.metrics(model(batch), batch),
    ):
        tf.nest.map_structure(
            lambda left, right: np.testing.assert_allclose(
                left, right, rtol=2e-5
            ),
            function(some),
            function(filled),
        )


def test_gradients_go_to_the_own_net_and_to_the_shared_embeddings(trained):
    model, *_, gradients = trained
    shared = {id(each) for each in model.generator.weights} & {
        id(each) for each in model.discriminator.weights
    }
    # Three tables and the LayerNorm.
    assert len(shared) == 5
    for number, variable in enumerate(model.trainable_variables):
        of_generator = gradients["masked_lm_loss"][number]
        of_discriminator = gradients["discriminator_loss"][number]
        if id(variable) in shared:
            assert of_generator is not None
            assert of_discriminator is not None
        elif any(variable is each for each in model.generator.weights):
            assert of_discriminator is None
            assert np.abs(of_generator).max() > 0
        else:
            assert of_generator is None


def test_published_generators_have_their_sizes():
    from bert_tf.config import BertConfig

    for size, share in (("small", 0.25), ("base", 1 / 3), ("large", 0.25)):
        named = BertConfig.named(f"electra-{size}-generator")
        config = BertConfig.named(f"electra-{size}")
        assert generator_config(config, share) == named
    # 2 heads do not divide 129.
    config = BertConfig.named(
        "electra-small", hidden_size=258, num_attention_heads=2
    )
    assert generator_config(config, 0.5).num_attention_heads == 1
    with pytest.raises(ValueError, match="generator_size=1.5"):
        generator_config(config, 1.5)


def test_the_two_must_have_embeddings_of_one_form():
    other = dataclasses.replace(generator_config(CONFIG, 0.5), vocab_size=38)
    with pytest.raises(ValueError, match="vocab_size=38 of the generator"):
        ReplacedTokensPretrainer(CONFIG, other)


def test_a_copy_by_its_config_computes_the_same():
    model, batch = make_model(), make_batch(2)
    copy = ReplacedTokensPretrainer.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    for name, value in model(batch).items():
        np.testing.assert_array_equal(copy(batch)[name], value)


def test_the_model_keeps_the_contract(tmp_path):
    inputs = {name: value.numpy() for name, value in make_batch(3).items()}
    check_layer(
        lambda **kwargs: ReplacedTokensPretrainer(
            CONFIG, generator_config(CONFIG, 0.5), **kwargs
        ),
        [inputs],
        tmp_path,
    )
