"""BERT's optimizer against NumPy, in `fit`, in a custom step, mirrored."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers import clipping
from bert_tf.optimizers import layerwise
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training.strategy import make_strategy
from references import training as reference
from support import paths


def make_model():
    """A classifier of integers, with biases, layer_norm and an embedding."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(7, 5, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.LayerNormalization(name="layer_norm"),
            keras.layers.Dense(3, name="dense"),
        ]
    )
    # Large enough for gradients beyond the norm of 1.
    model.get_layer("dense").kernel.assign(
        np.random.default_rng(2).normal(0, 3, (5, 3))
    )
    return model


def test_what_the_page_puts_for_create_optimizer_is_adam():
    page = (paths.ROOT / "docs/from_transformers.md").read_text("utf-8")
    (code,) = re.findall(r"^\| `create_optimizer.*?` \| `(.+)` \|$", page, re.M)
    names = {"BertOptimizer": BertOptimizer, "WarmupDecay": WarmupDecay}
    ours = eval(code, names | {"rate": 0.1, "steps": 8, "warmup": 2})
    # Of transformers' create_optimizer(0.1, 8, 2): Adam without weight decay
    # and clipping, a linear warmup, then linearly to 0.
    rates = [0, 0.05, *(0.1 * (8 - step) / 6 for step in range(2, 8))]
    variable = keras.Variable([1.0, -20.0], name="kernel")
    wanted, m, v = np.array([1.0, -20.0]), np.zeros(2), np.zeros(2)
    for step, rate in enumerate(rates, 1):
        gradient = np.array([3.0, -1e-4]) / step
        ours.apply_gradients([(tf.constant(gradient, "float32"), variable)])
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        correction = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        wanted -= rate * correction * m / (np.sqrt(v) + 1e-8)
    np.testing.assert_allclose(variable, wanted, rtol=1e-4)


def test_layers_have_their_share_of_the_learning_rate():
    config = BertConfig(
        vocab_size=11,
        hidden_size=6,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=7,
        max_position_embeddings=5,
    )
    model = BertClassifier(config, 2)
    optimizer = BertOptimizer(0.1, layerwise_decay=0.5)
    optimizer = BertOptimizer.from_config(optimizer.get_config())
    shares = {
        "encoder/embeddings/word_embeddings": 1 / 16,
        "encoder/embeddings/layer_norm/gamma": 1 / 16,
        "encoder/layer_0/attention/query/kernel": 1 / 8,
        "encoder/layer_1/output/bias": 1 / 4,
        "encoder/layer_2/output_layer_norm/beta": 1 / 2,
        "encoder/pooler/dense/kernel": 1,
        "classifier/dense/bias": 1,
    }
    paths = {v.path.removeprefix("bert_classifier/"): v for v in model.weights}
    variables = [paths[path] for path in shares]
    random = np.random.default_rng(3)
    oracles = [
        reference.ReferenceOptimizer(
            [variable.numpy() for variable in variables],
            is_decayed=[
                variable.path.endswith(("kernel", "embeddings"))
                for variable in variables
            ],
        )
        for _ in variables
    ]
    optimizer.build(variables)
    for _ in range(3):
        gradients = [random.normal(size=v.shape) for v in variables]
        optimizer.apply(
            [tf.constant(gradient, "float32") for gradient in gradients],
            variables,
        )
        for oracle, share in zip(oracles, shares.values()):
            oracle.apply(gradients, 0.1 * share)
    for index, (variable, oracle) in enumerate(zip(variables, oracles)):
        np.testing.assert_allclose(
            variable,
            oracle.weights[index],
            rtol=2e-5,
            atol=2e-6,
            err_msg=variable.path,
        )
    with pytest.raises(ValueError, match="`layerwise_decay` must be above 0"):
        BertOptimizer(layerwise_decay=0)


def make_data(num_examples=24):
    random = np.random.default_rng(1)
    return (
        random.integers(0, 7, (num_examples, 4)).astype("int32"),
        random.integers(0, 3, num_examples).astype("int32"),
    )


def cross_entropy(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(
        labels, logits, from_logits=True
    )


def mirrored(num_devices=2):
    return make_strategy("mirrored", num_cpu_devices=num_devices)


@pytest.mark.parametrize("bias_correction", [False, True])
def test_steps_equal_numpy_with_clipping_and_decay(bias_correction):
    model = make_model()
    optimizer = BertOptimizer(0.03, bias_correction=bias_correction)
    variables = model.trainable_variables
    oracle = reference.ReferenceOptimizer(
        [variable.numpy() for variable in variables],
        is_decayed=[True, False, False, True, False],
        bias_correction=bias_correction,
    )
    ids, labels = make_data(6)
    norms = []
    for _ in range(7):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(labels, model(ids)))
        gradients = tape.gradient(loss, variables)
        assert isinstance(gradients[0], tf.IndexedSlices)
        optimizer.apply(gradients, variables)
        dense = [tf.convert_to_tensor(g).numpy() for g in gradients]
        norms.append(oracle.apply(dense, 0.03))
        np.testing.assert_allclose(
            optimizer.gradient_norm.numpy(), norms[-1], rtol=1e-5
        )
    # Some steps were clipped, and no weight stayed behind.
    assert max(norms) > 1
    for variable, expected in zip(variables, oracle.weights):
        np.testing.assert_allclose(variable, expected, rtol=2e-5, atol=2e-6)


def test_decay_skips_biases_and_layer_norms_by_path():
    model = BertPretrainer(reference.tiny_config())
    optimizer = BertOptimizer()
    optimizer.build(model.trainable_variables)
    kept = [
        variable.path
        for variable, is_decayed in zip(
            model.trainable_variables, optimizer._is_decayed
        )
        if not is_decayed
    ]
    assert kept == [
        variable.path
        for variable in model.trainable_variables
        if "layer_norm" in variable.path or "bias" in variable.path
    ]
    assert any(path.endswith("layer_norm/gamma") for path in kept)
    assert any(path.endswith("masked_lm/output_bias") for path in kept)
    # Two tables of positions and segments, the tied words, two kernels of
    # heads, the pooler's, the transform's, and six kernels a block.
    assert len(model.trainable_variables) - len(kept) == 6 + 2 * 6


def test_what_is_computed_of_the_weights_waits_for_the_gradient():
    # What is computed before is kept beside the weights through the step.
    model = make_model()
    variables = model.trainable_variables
    optimizer = BertOptimizer(0.1, weight_decay=0.1)
    optimizer.build(variables)
    step = tf.function(lambda *grads: optimizer.apply(grads, variables))
    graph = step.get_concrete_function(
        *(tf.TensorSpec(v.shape, name="gradient") for v in variables)
    ).graph
    handles = {captured.ref(): held for captured, held in graph.captures}
    held = {
        handles[v.value.handle.ref()].ref()
        for v in [*variables, *optimizer._momentums, *optimizer._velocities]
    }
    uses = [
        use
        for operation in graph.get_operations()
        if operation.type == "ReadVariableOp"
        and operation.inputs[0].ref() in held
        for use in operation.outputs[0].consumers()
    ]
    # m and v twice each, and of five weights the two that are decayed.
    assert len(uses) == 5 * 4 + 2
    for operation in uses:
        assert any("gradient" in name for name in _ancestors(operation))


def _ancestors(operation):
    """Returns the names of all placeholders that come before an operation."""
    seen, waiting = set(), [operation]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += [tensor.op for tensor in one.inputs]
            waiting += one.control_inputs
    return [one.name for one in seen if one.type == "Placeholder"]


def test_what_is_not_decayed_can_be_named():
    model = make_model()
    optimizer = BertOptimizer(no_weight_decay=("words", "gamma$"))
    optimizer.build(model.trainable_variables)
    assert optimizer._is_decayed == [False, False, True, True, True]


def test_one_string_of_what_is_not_decayed_is_refused():
    with pytest.raises(ValueError, match="must be a list .*decay='bias'"):
        BertOptimizer(no_weight_decay="bias")


def test_what_is_no_regular_expression_is_refused():
    """It failed when the model was built."""
    with pytest.raises(ValueError, match=r"decay` must be .*'\(bias', missing"):
        BertOptimizer(no_weight_decay=["LayerNorm", "(bias"])


@pytest.mark.parametrize("patterns", [None, 3, [None], ["bias", 1]])
def test_what_is_no_list_of_strings_is_refused(patterns):
    with pytest.raises(ValueError, match=r"decay` must be .*Received: "):
        BertOptimizer(no_weight_decay=patterns)


def test_encoders_of_other_depths_have_each_their_own_rates():
    """The shallower one's top had the rate of a block below the other's."""
    shares = {
        "query/embeddings/word_embeddings": 1 / 4,
        "query/layer_0/output/kernel": 1 / 2,
        "text/embeddings/word_embeddings": 1 / 8,
        "text/layer_0/attention/query/kernel": 1 / 4,
        "text/layer_1/intermediate/bias": 1 / 2,
        # The user's own, which made the encoders nine blocks deep.
        "layer_8/kernel": 1,
        "head/layer_8/bias": 1,
    }
    assert layerwise.rate_factors(shares, 0.5) == list(shares.values())


@pytest.mark.parametrize("option", ["epsilon", "weight_decay"])
@pytest.mark.parametrize("value", [-0.01, float("nan")])
def test_a_negative_epsilon_or_decay_is_refused(option, value):
    """Training went on, and its weights grew or were no numbers."""
    with pytest.raises(ValueError, match=rf"`{option}` must be .*{value}"):
        BertOptimizer(**{option: value})


@pytest.mark.parametrize("option", ["beta_1", "beta_2"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 9])
def test_betas_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=rf"`{option}` must be .*{value}"):
        BertOptimizer(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("learning_rate", -1e-3),
        ("learning_rate", float("nan")),
        ("weight_decay", "none"),
        ("beta_1", "0.9"),
        ("epsilon", "1e-6"),
        ("global_clipnorm", "1"),
        ("layerwise_decay", [0.9]),
        ("beta_1", None),
        ("epsilon", None),
        ("layerwise_decay", None),
    ],
)
def test_what_is_no_number_or_climbs_is_refused(option, value):
    """Of a negative rate the weights went up the gradient."""
    expected = rf"`{option}` must be a (finite )?number"
    with pytest.raises(ValueError, match=expected):
        BertOptimizer(**{option: value})


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_makes_the_step_of_the_formula(jit_compile):
    ids, labels = make_data(6)
    expected, model = make_model(), make_model()
    optimizer = BertOptimizer(WarmupDecay(0.05, 9, 2))
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(labels, expected(ids)))
        gradients = tape.gradient(loss, expected.trainable_variables)
        optimizer.apply(gradients, expected.trainable_variables)
    model.compile(
        BertOptimizer(WarmupDecay(0.05, 9, 2)),
        loss=cross_entropy,
        jit_compile=jit_compile,
    )
    model.fit(ids, labels, batch_size=6, epochs=5, verbose=0)
    for got, wanted in zip(model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_accumulated_batches_are_one_large_batch(jit_compile):
    """Clipped is their mean: each alone has another norm."""
    ids, labels = make_data(24)
    weights, norms = [], []
    for num_parts in (1, 4):
        model = make_model()
        optimizer = BertOptimizer(
            0.05,
            bias_correction=True,
            gradient_accumulation_steps=num_parts if num_parts > 1 else None,
        )
        model.compile(optimizer, loss=cross_entropy, jit_compile=jit_compile)
        model.fit(
            ids, labels, 12 // num_parts, epochs=2, verbose=0, shuffle=False
        )
        weights.append(model.get_weights())
        norms.append(optimizer.gradient_norm.numpy())
    assert norms[0] > 1
    np.testing.assert_allclose(*norms, rtol=1e-5)
    for one, many in zip(*weights):
        np.testing.assert_allclose(one, many, rtol=0, atol=1e-6)


def test_replicas_accumulate_in_the_loop():
    with mirrored().scope():
        variable = keras.Variable([1.0], name="kernel")
        optimizer = BertOptimizer(0.5, gradient_accumulation_steps=3)
        expected = "loop .*--gradient_accumulation_steps, .*_steps=3"
        with pytest.raises(ValueError, match=expected):
            optimizer.build([variable])


def test_the_loop_s_step_does_not_accumulate_twice():
    variable = keras.Variable([1.0], name="kernel")
    optimizer = BertOptimizer(0.5, gradient_accumulation_steps=3)
    optimizer.build([variable])
    with pytest.raises(ValueError, match="is for `fit` on one device"):
        optimizer.apply_summed([tf.constant([1.0])], [variable])


@pytest.mark.parametrize(
    "num_devices", [2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_fit_is_the_same_on_mirrored_devices(num_devices):
    weights, norms = [], []
    for strategy in (tf.distribute.get_strategy(), mirrored(num_devices)):
        with strategy.scope():
            model = make_model()
            model.compile(BertOptimizer(0.05), loss=cross_entropy)
        data = tf.data.Dataset.from_tensor_slices(make_data()).batch(8)
        model.fit(data, epochs=3, verbose=0, shuffle=False)
        weights.append(model.get_weights())
        norms.append(keras.ops.convert_to_numpy(model.optimizer.gradient_norm))
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-4)
    for one, many in zip(*weights):
        np.testing.assert_allclose(one, many, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["_all_reduce_sum_gradients", "_apply_weight_decay", "_clip_gradients"],
)
def test_what_is_overridden_of_keras_is_there(name):
    """Otherwise gradients are summed or clipped, or weights decayed, twice."""
    assert callable(getattr(keras.optimizers.Optimizer, name))
    assert getattr(BertOptimizer, name) is not getattr(
        keras.optimizers.Optimizer, name
    )


def test_apply_sums_gradients_over_replicas_once_then_clips():
    # Pins Keras's private hook `_all_reduce_sum_gradients`: clipping on each
    # replica would leave 0.6 and 0.8 as they are and give a norm of 1.4, and
    # a second sum would give 2.8.
    strategy = mirrored()
    with strategy.scope():
        variable = keras.Variable([1.0], name="kernel")
        optimizer = BertOptimizer(0.5, weight_decay=0.0)
        optimizer.build([variable])

    @tf.function
    def step():
        def replica_step():
            replica = tf.distribute.get_replica_context()
            gradient = tf.gather([0.6, 0.8], replica.replica_id_in_sync_group)
            optimizer.apply([gradient[None]], [variable])

        strategy.run(replica_step)

    step()
    oracle = reference.ReferenceOptimizer([np.array([1.0])], [False])
    norm = oracle.apply([np.array([1.4])], 0.5)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(optimizer.gradient_norm), norm, rtol=1e-6
    )
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(optimizer._momentums[0]), [0.1], rtol=1e-6
    )
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(variable), oracle.weights[0], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("bytes_per_pack", "num_packs"), [(None, 1), (100, 2), (30, 3), (3, 4)]
)
def test_gradients_are_summed_in_packs(monkeypatch, bytes_per_pack, num_packs):
    if bytes_per_pack is None:
        assert clipping._BYTES_PER_PACK == 50 * 2**20
    else:
        monkeypatch.setattr(clipping, "_BYTES_PER_PACK", bytes_per_pack)
    # Collective operations, as on GPUs; they are traced, and not run.
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        # Of 4, 24, 40 and 400 bytes; the last is summed first, and a pack is
        # full when it has more than its bytes.
        variables = [
            keras.Variable(tf.zeros(size), name="kernel")
            for size in (1, 6, 10, 100)
        ]
        optimizer = BertOptimizer(0.5)
        optimizer.build(variables)

    @tf.function(autograph=False)
    def step():
        strategy.run(
            lambda: optimizer.apply([v.value * 1.0 for v in variables])
        )

    graph = step.get_concrete_function().graph
    sums = [
        operation
        for operation in graph.get_operations()
        if operation.type.startswith("CollectiveReduce")
    ]
    assert len(sums) == 2 * num_packs


def test_config_round_trip():
    optimizer = BertOptimizer(
        WarmupDecay(1e-3, 10, 3),
        weight_decay=0.02,
        beta_1=0.8,
        beta_2=0.99,
        epsilon=1e-5,
        global_clipnorm=None,
        no_weight_decay=("gamma$",),
        bias_correction=True,
    )
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    assert isinstance(again, BertOptimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["no_weight_decay"] == ["gamma$"]


def test_compiled_model_goes_on_from_its_file(tmp_path):
    ids, labels = make_data()
    model = make_model()
    model.compile(
        BertOptimizer(WarmupDecay(0.05, 20, 2)),
        loss="sparse_categorical_crossentropy",
    )
    model.fit(ids, labels, batch_size=8, verbose=0, shuffle=False)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 3
    for each in (model, again):
        each.fit(ids, labels, batch_size=8, verbose=0, shuffle=False)
    for got, wanted in zip(again.get_weights(), model.get_weights()):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_not_a_number_is_not_hidden_by_clipping():
    variable = keras.Variable([1.0, 2.0], name="kernel")
    optimizer = BertOptimizer(0.1)
    optimizer.apply([tf.constant([np.inf, 1.0])], [variable])
    assert not np.isfinite(optimizer.gradient_norm.numpy())
    assert not np.isfinite(variable.numpy()).all()


def test_a_step_that_is_not_finite_can_be_skipped():
    variables = [keras.Variable([1.0, 2.0], name="kernel") for _ in range(2)]
    kept = BertOptimizer(0.1, skip_nonfinite=True)
    plain = BertOptimizer(0.1)
    good = [tf.constant([0.5, -0.25])]
    for optimizer, variable in zip((kept, plain), variables):
        optimizer.apply(good, [variable])
    kept.apply([tf.constant([np.nan, 1.0])], variables[:1])
    assert np.isnan(kept.gradient_norm.numpy())
    assert int(kept.iterations) == 2
    for got, wanted in zip(kept.variables[2:4], plain.variables[2:4]):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(*variables)
    # And the next step is made.
    for optimizer, variable in zip((kept, plain), variables):
        optimizer.apply(good, [variable])
    np.testing.assert_array_equal(*variables)


@pytest.mark.parametrize("make_optimizer", [BertOptimizer, LambOptimizer])
@pytest.mark.parametrize("num_devices", [1, 2])
def test_the_norm_of_the_update_is_that_of_the_change(
    num_devices, make_optimizer
):
    strategy = mirrored() if num_devices == 2 else make_strategy()
    with strategy.scope():
        variables = [
            keras.Variable(np.arange(4.0) + n, name=f"w{n}") for n in range(4)
        ]
        optimizer = make_optimizer(1e-3)
        optimizer.build(variables)

    def replica_step():
        # The loss does not depend on the last one, which stays as it is.
        optimizer.apply(
            [tf.constant([0.5, -0.25, 1.0, 0.0])] * 3, variables[:3]
        )

    @tf.function
    def step():
        strategy.run(replica_step)

    for _ in range(2):
        before = [keras.ops.convert_to_numpy(v) for v in variables]
        step()
        after = [keras.ops.convert_to_numpy(v) for v in variables]
        np.testing.assert_allclose(
            optimizer.update_norm(1e-3),
            np.linalg.norm(np.subtract(after, before)),
            rtol=1e-5 if make_optimizer is BertOptimizer else 1e-3,
        )


def test_every_update_outside_of_apply_has_its_own_rate():
    first, second = (keras.Variable([1.0]) for _ in range(2))
    optimizer = BertOptimizer(0.1, weight_decay=0.5)
    optimizer.build([first, second])
    optimizer.update_step(tf.ones(1), first.value, 0.1)
    optimizer.update_step(tf.ones(1), second.value, 0.0)
    assert float(first[0]) < 1
    assert float(second[0]) == 1


@pytest.mark.parametrize("make_optimizer", [BertOptimizer, LambOptimizer])
def test_a_step_is_saved_and_goes_on(make_optimizer, tmp_path):
    module = tf.Module()
    module.weight = keras.Variable([1.0, 2.0])
    module.optimizer = make_optimizer(0.1)
    module.optimizer.build([module.weight])

    @tf.function(input_signature=[tf.TensorSpec([2])], autograph=False)
    def step(gradient):
        module.optimizer.apply([gradient], [module.weight])
        return tf.identity(module.weight.value)

    module.step = step
    tf.saved_model.save(module, str(tmp_path))
    saved = tf.saved_model.load(str(tmp_path))
    for gradient in ([1.0, -2.0], [3.0, 1.0]):
        gradient = tf.constant(gradient)
        np.testing.assert_array_equal(saved.step(gradient), step(gradient))


@pytest.mark.parametrize(
    "option",
    [{"clipnorm": 1.0}, {"clipvalue": 1.0}, {"loss_scale_factor": 2.0}],
)
def test_options_that_act_at_another_place_are_refused(option):
    with pytest.raises(ValueError, match=f"`{next(iter(option))}` is not"):
        BertOptimizer(**option)


@pytest.mark.parametrize("make_optimizer", [BertOptimizer, LambOptimizer])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_16_bits_are_refused(make_optimizer, dtype):
    # In bfloat16 a beta_2 of 0.999 is 1: the updates had no bound.
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, dtype=dtype, name="dense")]
    )
    model.compile(make_optimizer(0.1), "mse", run_eagerly=True)
    message = f"must have float32 weights.*Received: .*kernel of {dtype}"
    with pytest.raises(ValueError, match=message):
        model.train_on_batch(np.ones((2, 2)), np.ones((2, 1)))


def test_a_variable_without_gradient_stays_as_it_is():
    model = make_model()
    optimizer = BertOptimizer(0.03, weight_decay=0.5)
    variables = model.trainable_variables
    optimizer.build(variables)
    before = [variable.numpy() for variable in variables]
    gradients = [None] + [tf.ones_like(v) for v in before[1:]]
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply(gradients, variables)
    np.testing.assert_array_equal(variables[0], before[0])
    for variable, value in zip(variables[1:], before[1:]):
        assert not np.array_equal(variable, value)
    norm = np.sqrt(sum(value.size for value in before[1:]))
    np.testing.assert_allclose(optimizer.gradient_norm, norm, rtol=1e-6)
