"""What keras.io's guides do with a model, done with one of this library."""

import pydoc
import re
import subprocess
import sys
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import keras_files
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock
from support.paths import ROOT

NUM_LABELS = 3
CONFIG = bert_tf.BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
    # Steps that are to be equal have no masks.
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
GENERATOR = np.random.default_rng(20181011)
INPUTS = {
    "input_ids": GENERATOR.integers(0, 11, (12, 5)).astype("int32"),
    "input_mask": np.ones((12, 5), "int32"),
    "segment_ids": GENERATOR.integers(0, 2, (12, 5)).astype("int32"),
}
LABELS = INPUTS["input_ids"][:, 1] % NUM_LABELS
# {class: (its arguments, inputs)} of what is exported.
MODELS = {
    bert_tf.BertClassifier: ({"num_labels": NUM_LABELS}, INPUTS),
    bert_tf.BertMultipleChoice: (
        {},
        {name: ids.reshape(6, 2, 5) for name, ids in INPUTS.items()},
    ),
    bert_tf.BertPretrainer: (
        {},
        INPUTS | {"masked_lm_positions": np.ones((12, 2), "int32")},
    ),
}


def make_model(model_class=bert_tf.BertClassifier, **arguments):
    model = model_class(CONFIG, num_labels=NUM_LABELS, dropout=0.0)
    model.compile(
        bert_tf.BertOptimizer(bert_tf.WarmupDecay(0.01, 40, 2)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **arguments,
    )
    return model


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Returns (a model that `fit` trained with callbacks, history, folder)."""
    folder = tmp_path_factory.mktemp("fitted")
    keras.utils.set_random_seed(20181011)
    model = make_model()
    # Of a loss that falls, the epoch after the first is one too many.
    highest = {"monitor": "loss", "mode": "max"}
    history = model.fit(
        INPUTS,
        LABELS,
        batch_size=4,
        epochs=5,
        verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(
                folder / "best.keras", save_best_only=True, **highest
            ),
            keras.callbacks.EarlyStopping(
                patience=1, restore_best_weights=True, **highest
            ),
            keras.callbacks.CSVLogger(folder / "log.csv"),
            keras.callbacks.TerminateOnNaN(),
        ],
    )
    return model, history.history, folder


@pytest.fixture
def not_imported(monkeypatch):
    """Has Keras know the classes as after `import bert_tf` alone."""
    objects = keras.saving.get_custom_objects()
    for name in [name for name in objects if name.startswith("bert_tf>")]:
        monkeypatch.delitem(objects, name)
    keras_files.register(keras)


def check_equal_weights(left, right):
    for one, other in zip(left.weights, right.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_callbacks_stop_and_keep_the_best(fitted):
    model, history, folder = fitted
    losses = history["loss"]
    num_epochs = losses.index(max(losses)) + 1
    assert len(losses) == num_epochs + 1
    best = keras.saving.load_model(folder / "best.keras")
    check_equal_weights(model, best)
    assert int(best.optimizer.iterations) == 3 * num_epochs
    log = (folder / "log.csv").read_text().splitlines()
    assert log[0].startswith("epoch,accuracy,loss")
    found = [float(line.split(",")[2]) for line in log[1:]]
    assert found == pytest.approx(losses)


def test_tensorboard_gets_the_curves(tmp_path):
    pytest.importorskip("tensorboard")
    callback = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1)
    make_model().fit(INPUTS, LABELS, verbose=0, callbacks=[callback])
    assert [*tmp_path.glob("train/events.*")]


def test_evaluate_and_predict_are_of_the_same_weights(fitted):
    model, _, _ = fitted
    logits = model.predict(INPUTS, batch_size=5, verbose=0)
    np.testing.assert_allclose(logits, model(INPUTS), rtol=1e-5, atol=1e-6)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[range(12), LABELS]
    results = model.evaluate(INPUTS, LABELS, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    hits = logits.argmax(axis=1) == LABELS
    assert results["accuracy"] == pytest.approx(hits.mean())


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_file_needs_no_import_but_of_the_library(
    fitted, tmp_path, not_imported, wrapped
):
    model, _, _ = fitted
    if wrapped:
        keras.config.set_dtype_policy("mixed_float16")
        model = make_model()
        model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is bert_tf.BertClassifier
    check_equal_weights(again, model)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    left, right = again.optimizer.variables, model.optimizer.variables
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "imports",
    [
        # Who only looks for Keras takes nothing away.
        "import bert_tf; importlib.util.find_spec('keras'); import keras",
        "import keras; import bert_tf",
    ],
)
def test_a_file_is_read_whatever_is_imported_first(tmp_path, imports):
    make_model().save(tmp_path / "model.keras")
    code = (
        f"import importlib.util; {imports}\n"
        f"model = keras.saving.load_model({str(tmp_path / 'model.keras')!r})\n"
        "assert type(model) is bert_tf.BertClassifier\n"
        "assert type(model.optimizer) is bert_tf.BertOptimizer"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_functional_model_of_its_layers_needs_none_either(
    tmp_path, not_imported
):
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS
    }
    encoder = bert_tf.BertEncoder(CONFIG)
    outputs = bert_tf.layers.heads.ClassificationHead(CONFIG, NUM_LABELS, 0.0)(
        encoder(inputs)["pooled_output"]
    )
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))


def test_all_that_is_registered_is_in_the_table(not_imported):
    decorated = re.compile(
        r"^@keras.saving.register_keras_serializable\(.*?^class (\w+)",
        re.DOTALL | re.MULTILINE,
    )
    found = []
    for path in (ROOT / "bert_tf").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name in decorated.findall(path.read_text("utf-8")):
            found.append(f"{module}.{name}")
    assert sorted(found) == [*keras_files.CLASSES]
    names = {
        keras.saving.get_registered_name(pydoc.locate(path)) for path in found
    }
    assert names <= keras.saving.get_custom_objects().keys()


@pytest.mark.parametrize("model_class", MODELS, ids=lambda each: each.__name__)
def test_export_needs_no_call_before(tmp_path, model_class):
    arguments, inputs = MODELS[model_class]
    model = model_class(CONFIG, **arguments)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    shorter = {
        name: value[:5, ..., :4] if value.shape[-1] == 5 else value[:5]
        for name, value in inputs.items()
    }
    for batch in (inputs, shorter):
        answers = keras.tree.flatten(served.serve(batch))
        for answer, expected in zip(answers, keras.tree.flatten(model(batch))):
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


def test_export_after_fit_and_with_a_signature_of_ones_own(fitted, tmp_path):
    model, _, _ = fitted
    spec = keras.InputSpec(dtype="int32", shape=(None, 5))
    signature = [dict.fromkeys(INPUTS, spec)]
    model.export(tmp_path / "served", verbose=False, input_signature=signature)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(
        served.serve(INPUTS), model(INPUTS), rtol=1e-5, atol=1e-6
    )


def test_summary_tells_layers_and_what_is_trained(fitted):
    model = keras.models.clone_model(fitted[0])
    model.encoder.trainable = False
    lines = []
    model.summary(print_fn=lines.append, expand_nested=True)
    text = "".join(lines)
    num_head = 8 * NUM_LABELS + NUM_LABELS
    assert f"Trainable params: {num_head} " in text
    num_encoder = model.encoder.count_params()
    assert f"Non-trainable params: {num_encoder:,} " in text
    assert "layer_0 (EncoderBlock)" in text


def test_copies_have_the_weights_that_they_are_given(fitted, tmp_path):
    model, _, _ = fitted
    model.save_weights(tmp_path / "model.weights.h5")
    clone = keras.models.clone_model(model)
    assert not np.array_equal(clone(INPUTS), model(INPUTS))
    clone.set_weights(model.get_weights())
    of_config = type(model).from_config(model.get_config())
    of_config.load_weights(tmp_path / "model.weights.h5")
    for copy in (clone, of_config):
        np.testing.assert_array_equal(copy(INPUTS), model(INPUTS))


def test_a_frozen_encoder_is_not_trained():
    model = make_model()
    model.encoder.trainable = False
    before = model.get_weights()
    model.compile(bert_tf.BertOptimizer(0.01), model.loss, run_eagerly=True)
    model.train_on_batch(INPUTS, LABELS)
    names = [
        weight.path
        for weight, value in zip(model.weights, before)
        if not np.array_equal(weight, value)
    ]
    assert names == [weight.path for weight in model.trainable_weights]
    assert len(names) == 2


def test_copies_and_files_tell_what_is_frozen(tmp_path):
    model = make_model()
    model.encoder.trainable = False
    model.encoder.blocks[0].output_dense.trainable = True
    model.compile(bert_tf.BertOptimizer(0.01), model.loss, run_eagerly=True)
    model.train_on_batch(INPUTS, LABELS)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    left, right = again.optimizer.variables, model.optimizer.variables
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)
    trained = [variable.trainable for variable in model.variables]
    assert sum(trained) == 4
    for copy in (again, keras.models.clone_model(model)):
        assert [variable.trainable for variable in copy.variables] == trained


def test_a_functional_model_s_file_tells_that_its_encoder_is_frozen(tmp_path):
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS
    }
    encoder = bert_tf.BertEncoder(CONFIG)
    encoder.trainable = False
    outputs = keras.layers.Dense(2)(encoder(inputs)["pooled_output"])
    keras.Model(inputs, outputs).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(again.trainable_weights) == 2


@pytest.mark.parametrize("frozen", ["all", "a part", "all but a part"])
def test_a_functional_model_s_copies_tell_which_layers_are_frozen(
    frozen, tmp_path
):
    ids = keras.Input((None,), dtype="int32")
    mask = keras.Input((1, None), dtype="bool")
    embeddings, block = BertEmbeddings(CONFIG), EncoderBlock(CONFIG)
    outputs = block(embeddings(ids, ids), mask)
    model = keras.Model([ids, mask], outputs)
    for layer, part in (
        (embeddings, embeddings.layer_norm),
        (block, block.output_dense),
    ):
        layer.trainable = frozen == "a part"
        part.trainable = frozen == "all but a part"
    model.save(tmp_path / "model.keras")
    trained = [variable.trainable for variable in model.variables]
    again = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (again, keras.models.clone_model(model)):
        assert [variable.trainable for variable in copy.variables] == trained


@pytest.mark.filterwarnings("error")
def test_an_unused_pooler_stays_frozen_when_all_is_unfrozen():
    model = bert_tf.BertTokenClassifier(CONFIG, NUM_LABELS)
    names = [weight.path for weight in model.trainable_weights]
    model.encoder.trainable = False
    model.encoder.trainable = True
    assert [weight.path for weight in model.trainable_weights] == names
    # Keras warns of gradients that are missing.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=True)
    model.train_on_batch(INPUTS, INPUTS["input_ids"] % NUM_LABELS)


class OwnStep(bert_tf.BertClassifier):
    """The guides' step, of `fit` or by hand."""

    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            loss = self.compute_loss(y=labels, y_pred=logits)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}


class OwnMetric(bert_tf.BertClassifier):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="tracked")


def test_a_subclass_has_metrics_of_its_own():
    model = OwnMetric(CONFIG)
    assert model.metrics == [model.tracker]
    # In a file, a layer that is not built would silently lose its weights.
    with pytest.raises(ValueError, match="already built"):
        model.layer = keras.layers.Dense(2)


def test_a_resumed_fit_is_an_unbroken_one_with_seeds_by_epoch(tmp_path):
    page = (ROOT / "docs/python_api.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n([^`]*SeedsByEpoch.*?)```", page, re.S)
    exec(program, names := {})

    def fit(num_epochs, *callbacks):
        keras.utils.set_random_seed(20181011)
        model = bert_tf.BertClassifier(CONFIG, NUM_LABELS, dropout=0.5)
        model.compile(
            bert_tf.BertOptimizer(bert_tf.WarmupDecay(0.01, 40, 2)),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(
            INPUTS,
            LABELS,
            batch_size=6,
            epochs=num_epochs,
            shuffle=False,
            verbose=0,
            callbacks=[names["SeedsByEpoch"](), *callbacks],
        )
        return model.get_weights()

    def backup():
        return keras.callbacks.BackupAndRestore(
            tmp_path / "backup", delete_checkpoint=False
        )

    class Seen(keras.callbacks.Callback):
        seeds: ClassVar[list[int]] = []

        def on_train_batch_end(self, batch, logs=None):
            for variable in self.model.variables:
                if variable.name == "seed_generator_state":
                    seed, _ = variable.numpy().tolist()
                    self.seeds.append(seed)

    unbroken = fit(2, Seen())
    # Each layer draws from a sequence of its own: Keras counts the second
    # number up.
    num_batches = -(-len(LABELS) // 6)
    assert len(Seen.seeds) > num_batches
    assert len({*Seen.seeds}) == len(Seen.seeds) / num_batches
    fit(1, backup())
    for resumed, wanted in zip(fit(2, backup()), unbroken, strict=True):
        np.testing.assert_array_equal(resumed, wanted)


def test_steps_of_ones_own_are_those_of_fit():
    # A step of `fit`'s own is traced in other tests.
    models = [
        make_model(run_eagerly=True),
        make_model(OwnStep),
        make_model(OwnStep, run_eagerly=True),
    ]
    for model in models[1:]:
        model.set_weights(models[0].get_weights())
    for model in models[:2]:
        model.fit(INPUTS, LABELS, batch_size=4, shuffle=False, verbose=0)
    for start in range(0, len(LABELS), 4):
        rows = slice(start, start + 4)
        batch = {name: ids[rows] for name, ids in INPUTS.items()}
        models[2].train_step((batch, LABELS[rows]))
    first, *others = (model.get_weights() for model in models)
    for weights in others:
        for value, expected in zip(weights, first):
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "policy",
    [
        "mixed_bfloat16",
        pytest.param("mixed_float16", marks=pytest.mark.slow),
    ],
)
def test_mixed_precision_is_set_globally(policy):
    exact = make_model(run_eagerly=True)
    keras.config.set_dtype_policy(policy)
    model = make_model(run_eagerly=policy == "mixed_bfloat16")
    model.set_weights(exact.get_weights())
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert model(INPUTS).dtype == tf.float32
    losses = []
    for each in (exact, model):
        for _ in range(4):
            loss, _ = each.train_on_batch(INPUTS, LABELS)
        losses.append(loss)
    # The mean of four, of which the last are lower.
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)
    if policy == "mixed_bfloat16":
        return
    optimizer = model.optimizer
    assert type(optimizer) is keras.optimizers.LossScaleOptimizer
    assert int(optimizer.inner_optimizer.iterations) == 4
    # More than float16 has: a step that is passed over.
    optimizer.dynamic_scale.assign(2.0**127)
    before = model.get_weights()
    model.train_on_batch(INPUTS, LABELS)
    for value, expected in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, expected)
    assert float(optimizer.dynamic_scale) == 2.0**126


@pytest.mark.parametrize("floatx", ["float64", "float16"])
def test_floatx_may_be_another(floatx):
    task = bert_tf.ClassificationTask(
        name="t", text_features=("a",), labels=("x", "y"), metrics=("f1",)
    )
    model = make_model()
    inputs = {name: np.array(value) for name, value in INPUTS.items()}
    # A row that is all padding, where a bias of -inf would make NaN.
    inputs["input_mask"][0] = 0
    logits = model(inputs)
    assert np.isfinite(logits).all()
    loss = task.loss()(LABELS % 2, logits[:, :2])
    keras.config.set_floatx(floatx)
    try:
        again = model(inputs)
        loss_again = task.loss()(LABELS % 2, again[:, :2])
    finally:
        keras.config.set_floatx("float32")
    np.testing.assert_array_equal(again, logits)
    assert float(loss_again) == float(loss)
