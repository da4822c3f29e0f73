"""Fine-tuning: `fit` in a notebook, `fit` beside the loop, evaluation."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.tasks import task_folder
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification import task as glue
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.text_source import TextSource
from bert_tf.tasks.tsv import Examples
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import evaluation
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from bert_tf.tuning import epochs
from bert_tf.tuning.predictor import Predictor
from support import keras_fit

WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
VOCABULARY = Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS, "##s"))
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
)
NO_DROPOUT = dataclasses.replace(
    CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
COLOUR = ClassificationTask(
    name="colour",
    text_features=("first", "second"),
    labels=("no", "yes", "perhaps"),
    metrics=("accuracy",),
)
WEIGHTED = dataclasses.replace(
    COLOUR, name="weighted", class_weights=(0.5, 3.0, 1.0)
)
WARMTH = ClassificationTask(
    name="warmth", text_features=("text",), metrics=("pearson", "spearman")
)


def make_examples(task, num_examples):
    generator = np.random.default_rng(7)
    texts = tuple(
        [
            " ".join(generator.choice(WORDS, size=generator.integers(1, 8)))
            for _ in range(num_examples)
        ]
        for _ in task.text_features
    )
    if task.labels:
        labels = generator.integers(0, 3, num_examples).astype(np.int32)
    else:
        labels = generator.normal(size=num_examples).astype(np.float32)
    return Examples(texts=texts, labels=labels)


def make_source(task, num_examples=23, seed=5):
    return TextSource(
        examples=make_examples(task, num_examples),
        preprocessor=Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11),
        seed=seed,
    )


def make_state(task, folder, strategy, config=NO_DROPOUT):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        dropout = config.hidden_dropout_prob
        model = BertClassifier(config, task.num_outputs, dropout=dropout)
        optimizer = BertOptimizer(WarmupDecay(1e-3, 30, 3))
        return TrainingState(model, optimizer, folder, {})


def make_config(num_train_steps=20, **options):
    return loop.TrainingConfig(
        num_train_steps=num_train_steps,
        train_batch_size=6,
        options=LoopOptions(random_seed=9, **options),
    )


def one_device():
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def assert_equal_weights(state, other, atol=1e-6):
    for ours, theirs in zip(
        state.model.trainable_variables, other.model.trainable_variables
    ):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(ours),
            keras.ops.convert_to_numpy(theirs),
            atol=atol,
            err_msg=ours.path,
        )


@pytest.fixture
def untuned_folder(tmp_path):
    folder = tmp_path / "encoder"
    checkpoints.save(folder, BertEncoder(CONFIG), WordpieceSpec(VOCABULARY), 11)
    return folder


# Keras says so of every dataset, unless told `shuffle=False`.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_six_lines_of_a_notebook_learn_a_separable_problem(untuned_folder):
    folder = untuned_folder
    generator = np.random.default_rng(1)
    labels = np.arange(160, dtype=np.int32) % 2
    # Animals are 0 and colours 1, as in a sentence of either.
    texts = [
        " ".join(generator.choice(WORDS[4 * label : 4 * label + 4], size=5))
        for label in labels
    ]

    preprocess = Preprocessor.from_folder(folder, max_seq_length=9)
    model = checkpoints.load(folder, BertClassifier, num_labels=2)
    model.compile(
        BertOptimizer(WarmupDecay(1e-2, 40, 4)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        tf.data.Dataset.from_tensor_slices((texts, labels))
        .batch(16)
        .map(lambda texts, labels: (preprocess(texts), labels)),
        epochs=4,
        verbose=0,
    )
    logits = model.predict(
        tf.data.Dataset.from_tensor_slices(["cow dogs hens", "red grey green"])
        .batch(2)
        .map(preprocess),
        verbose=0,
    )
    assert logits.argmax(axis=-1).tolist() == [0, 1]
    loss, accuracy = model.evaluate(preprocess(texts), labels, verbose=0)
    assert accuracy > 0.95
    assert loss < 0.2


@pytest.mark.slow
def test_keras_fit_compiles_the_models(untuned_folder):
    generator = np.random.default_rng(2)
    batches = [
        (
            {
                name: generator.integers(0, 2, (6, length), np.int32)
                for name in features.MODEL_INPUTS
            },
            generator.integers(0, 2, 6, np.int32),
        )
        # Each length is compiled by itself.
        for length in (7, 11, 7)
    ]
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(3)
        model = checkpoints.load(untuned_folder, BertClassifier, num_labels=2)
        model.compile(
            BertOptimizer(1e-2),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=jit_compile,
        )
        # Dropout is on.
        each = (batch for batch in batches)
        history = model.fit(each, steps_per_epoch=3, shuffle=False, verbose=0)
        results.append((history.history["loss"], model.get_weights()))
    (losses, weights), (compiled_losses, compiled_weights) = results
    np.testing.assert_allclose(compiled_losses, losses, atol=1e-5)
    for ours, theirs in zip(compiled_weights, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "num_parts"), [(WARMTH, 1), (WEIGHTED, 3)], ids=["one", "parts"]
)
def test_fit_and_loop_give_equal_weights(tmp_path, task, num_parts):
    config = make_config(
        iterations_per_loop=1, gradient_accumulation_steps=num_parts
    )
    fitted = make_state(task, tmp_path / "fit", one_device())
    before = [variable.numpy() for variable in fitted.model.variables]
    losses = keras_fit.fit(fitted, task, make_source(task), config)
    looped = make_state(task, tmp_path / "loop", one_device())
    history = loop.train(
        looped, task.objective(), make_source(task), config, one_device()
    )
    assert_equal_weights(fitted, looped)
    assert [report["loss"] for report in history] == pytest.approx(
        losses, abs=1e-5
    )
    assert (looped.step, looped.example) == (20, 120)
    moved = max(
        np.abs(variable.numpy() - old).max()
        for variable, old in zip(looped.model.variables, before)
    )
    assert moved > 1e-3


def test_two_mirrored_devices_make_the_steps_of_one(tmp_path):
    states, histories = [], []
    source = make_source(WEIGHTED)
    two_devices = make_strategy("mirrored", num_cpu_devices=2)
    for strategy in (one_device(), two_devices):
        folder = tmp_path / str(strategy.num_replicas_in_sync)
        states.append(make_state(WEIGHTED, folder, strategy))
        histories.append(
            loop.train(
                states[-1],
                WEIGHTED.objective(),
                source,
                make_config(iterations_per_loop=1),
                strategy,
            )
        )
    assert_equal_weights(*states, atol=1e-5)
    ones, twos = ([report["loss"] for report in each] for each in histories)
    np.testing.assert_allclose(twos, ones, rtol=1e-4)
    one, two = states
    np.testing.assert_allclose(
        Predictor(two.model, two_devices)(source, 4),
        Predictor(one.model, one_device())(source, 4),
        atol=1e-4,
    )


def test_every_epoch_has_every_example_once_in_its_own_order():
    source = make_source(WARMTH, num_examples=10)
    batches = list(source.training_batches(4).take(10).as_numpy_iterator())
    assert {name: array.shape for name, array in batches[0].items()} == {
        "input_ids": (4, 11),
        "input_mask": (4, 11),
        "segment_ids": (4, 11),
        "labels": (4,),
    }
    labels = np.concatenate([batch["labels"] for batch in batches])
    epochs = labels.reshape(4, 10)
    expected = np.sort(source.examples.labels)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), expected)
    assert len({tuple(epoch) for epoch in epochs}) == 4

    later = source.training_batches(4, start_example=24).take(4)
    np.testing.assert_array_equal(
        np.concatenate([b["labels"] for b in later.as_numpy_iterator()]),
        labels[24:],
    )
    other = dataclasses.replace(source, seed=6).training_batches(10).take(1)
    assert list(next(other.as_numpy_iterator())["labels"]) != list(epochs[0])


@pytest.mark.parametrize("window_batches", [0, 2, 9])
def test_every_whole_epoch_has_every_example_once_in_batches_of_its_own(
    window_batches,
):
    source = dataclasses.replace(
        make_source(WARMTH, num_examples=10),
        whole_epochs=True,
        window_batches=window_batches,
    )
    batches = [*source.training_batches(4).take(18).as_numpy_iterator()]
    assert {len(batch["labels"]) for batch in batches} == {4}
    expected = np.sort(source.examples.labels)
    for first in range(0, 18, 3):
        epoch = batches[first : first + 3]
        labels = [
            batch["labels"][batch["example_weights"] == 1] for batch in epoch
        ]
        np.testing.assert_array_equal(np.sort(np.concatenate(labels)), expected)
        sums = [batch["example_weights"].sum() for batch in epoch]
        assert sorted(sums) == [2, 4, 4]
    # It may be resumed at any batch.
    for number in range(1, 6):
        (later,) = source.training_batches(4, 4 * number).take(1)
        for name, value in batches[number].items():
            np.testing.assert_array_equal(later[name], value)


@pytest.mark.parametrize(("num_devices", "num_parts"), [(1, 1), (1, 2), (2, 1)])
def test_a_batch_that_is_filled_up_makes_the_step_of_the_rest(
    tmp_path, num_devices, num_parts
):
    source = make_source(WEIGHTED, num_examples=5)
    padded = dataclasses.replace(source, whole_epochs=True)
    devices = one_device()
    if num_devices == 2:
        devices = make_strategy("mirrored", num_cpu_devices=2)
    states, reports = [], []
    for each, strategy, batch_size, parts in (
        (source, one_device(), 5, 1),
        (padded, devices, 8, num_parts),
    ):
        states.append(
            make_state(WEIGHTED, tmp_path / str(batch_size), strategy)
        )
        config = loop.TrainingConfig(
            num_train_steps=2,  # The learning rate of the first is 0.
            train_batch_size=batch_size,
            options=LoopOptions(gradient_accumulation_steps=parts),
        )
        before = [np.array(variable) for variable in states[-1].model.weights]
        reports += loop.train(
            states[-1], WEIGHTED.objective(), each, config, strategy
        )
    assert_equal_weights(*states)
    for name in ("loss", "accuracy", "gradient_norm"):
        assert reports[1][name] == pytest.approx(reports[0][name], rel=1e-5)
    moved = [
        np.abs(np.array(variable) - old).max()
        for variable, old in zip(states[1].model.weights, before)
    ]
    assert max(moved) > 1e-4


def test_trimmed_batches_have_the_same_gradients():
    source = make_source(WARMTH)
    trimmed = dataclasses.replace(source, is_trimmed=True)
    model = BertClassifier(NO_DROPOUT, 1, dropout=0.0)
    loss = WARMTH.loss()

    def gradients(batch):
        inputs = {name: batch[name] for name in features.MODEL_INPUTS}
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            value = loss(batch[features.LABELS], logits)
        return tape.gradient(value, model.trainable_variables)

    lengths = set()
    for number, (ours, theirs) in enumerate(
        zip(
            trimmed.training_batches(2).take(9).as_numpy_iterator(),
            source.training_batches(2).as_numpy_iterator(),
        )
    ):
        length = theirs["input_mask"].sum(axis=1).max()
        lengths.add(length)
        for name in ("input_ids", "input_mask", "segment_ids"):
            np.testing.assert_array_equal(ours[name], theirs[name][:, :length])
        if number < 3:
            for a, b in zip(gradients(ours), gradients(theirs), strict=True):
                np.testing.assert_allclose(
                    tf.convert_to_tensor(a), tf.convert_to_tensor(b), atol=1e-6
                )
    assert len(lengths) > 1
    predictor = Predictor(model, one_device())
    np.testing.assert_allclose(
        predictor(source, 4), predictor(trimmed, 4), atol=1e-6
    )


def test_batches_hold_the_texts_of_their_labels():
    source = make_source(COLOUR, num_examples=5)
    (batch,) = source.training_batches(5).take(1).as_numpy_iterator()
    expected = source.preprocessor(source.examples.texts)
    rows = {
        (*row, label)
        for row, label in zip(
            expected["input_ids"].numpy().tolist(), source.examples.labels
        )
    }
    assert rows == {
        (*row, label)
        for row, label in zip(batch["input_ids"].tolist(), batch["labels"])
    }


def test_inputs_are_traced_once_for_all_epochs():
    source = make_source(COLOUR, num_examples=7)
    preprocess, traces = source.preprocessor, []

    def noting_preprocessor(texts):
        traces.append(texts)
        return preprocess(texts)

    source = dataclasses.replace(source, preprocessor=noting_preprocessor)
    for start_example in (0, 7, 14):
        batches = source.training_batches(4, start_example)
        # It would keep the end of each epoch waiting, up to a minute.
        assert batches.options().autotune.enabled is False
    assert len(traces) == 1


def test_evaluation_sees_every_example_once_in_order():
    source = make_source(COLOUR, num_examples=7)
    batches = list(source.evaluation_batches(3).as_numpy_iterator())
    assert len(batches) == 3
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    assert weights.tolist() == [1] * 7 + [0] * 2
    ids = np.concatenate([batch["input_ids"] for batch in batches])
    expected = source.preprocessor(source.examples.texts)["input_ids"]
    np.testing.assert_array_equal(ids[:7], expected)


def test_predictor_leaves_out_what_fills_the_batch():
    source = make_source(COLOUR, num_examples=7)
    unlabelled = dataclasses.replace(
        source,
        examples=dataclasses.replace(source.examples, labels=None),
    )
    model = BertClassifier(CONFIG, 3)
    logits = Predictor(model, tf.distribute.get_strategy())(unlabelled, 3)
    expected = model(source.preprocessor(source.examples.texts))
    assert logits.shape == (7, 3)
    np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_results_of_an_evaluation():
    logits = np.log(np.float32([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]]))
    results = COLOUR.results(logits, np.int32([0, 1]))
    assert results == pytest.approx(
        {
            "eval_loss": -(np.log(0.7) + np.log(0.3)) / 2,
            "eval_accuracy": 0.5,
        }
    )
    results = WARMTH.results(np.float32([[1], [2], [4]]), np.float32([1, 2, 3]))
    assert results["eval_loss"] == pytest.approx(1 / 3)
    assert sorted(results) == ["eval_loss", "eval_pearson", "eval_spearman"]


def test_one_score_is_refused_before_a_training():
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11)
    one = Examples(texts=(["a"],), labels=np.float32([1]))
    WARMTH.make_sources({"train": one, "test": one}, preprocessor)
    two = Examples(texts=(["a", "b"],), labels=np.float32([1, 2]))
    with pytest.raises(ValueError) as error:
        WARMTH.make_sources({"dev": two, "dev_other": one}, preprocessor)
    assert str(error.value) == (
        "The examples of dev_other: must be two or more, to correlate their "
        "scores. Received: 1."
    )
    COLOUR.make_sources({"dev": one}, preprocessor)


def test_result_and_prediction_files(tmp_path):
    path = tmp_path / "results.txt"
    evaluation.write_results(path, {"loss": 0.5, "global_step": 7})
    assert path.read_text() == "global_step = 7\nloss = 0.5\n"
    logits = np.log(np.float32([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]]))
    COLOUR.write_predictions(tmp_path, "test", None, logits)
    path = tmp_path / "test_results.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    np.testing.assert_allclose(
        np.array(rows, np.float32), np.exp(logits), rtol=1e-6
    )
    logits = np.float32([[1.5], [-2]])
    line = WARMTH.write_predictions(tmp_path, "test", None, logits)
    assert line == f"2 predictions in {path}"
    assert path.read_text() == "1.5\n-2.0\n"


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_epochs", "ends"),
    [
        # MRPC: google-research/bert makes int(3668 / 32 * 3.0) = 343 steps.
        (3668, 32, 3.0, [114, 229, 343]),
        (10, 4, 2.5, [2, 5, 6]),
        (10, 4, 0.5, [1]),
        (3, 8, 6.0, [1, 2]),
        (8, 8, 2.0, [1, 2]),
    ],
)
def test_epochs_end_at_steps(num_examples, batch_size, num_epochs, ends):
    assert epochs.epoch_ends(num_examples, batch_size, num_epochs) == ends


@pytest.mark.parametrize(
    ("num_examples", "batch_size", "num_epochs", "ends"),
    [
        (24, 16, 3.0, [2, 4, 6]),
        (3668, 32, 3.0, [115, 230, 345]),
        (10, 4, 2.5, [3, 6, 8]),
        (10, 4, 0.1, [1]),
        (3, 8, 2.0, [1, 2]),
        (8, 8, 2.0, [1, 2]),
    ],
)
def test_whole_epochs_end_at_steps(num_examples, batch_size, num_epochs, ends):
    found = epochs.epoch_ends(
        num_examples, batch_size, num_epochs, whole_epochs=True
    )
    assert found == ends


def test_less_than_a_batch_is_an_error():
    with pytest.raises(ValueError, match="one batch or more"):
        epochs.epoch_ends(3, 8, 2.0)
    with pytest.raises(ValueError, match="training windows .*: 1 window, "):
        epochs.epoch_ends(1, 8, 2.0, "windows")


def test_starting_point_is_the_folders(untuned_folder):
    start = starting_point.find(untuned_folder)
    assert start.config == CONFIG
    assert start.tokenizer.vocabulary == VOCABULARY
    assert start.tokenizer.do_lower_case
    assert start.preprocessor(10).max_seq_length == 10
    model = task_folder.new_model(start, COLOUR)
    original = checkpoints.load(untuned_folder, BertEncoder)
    for ours, theirs in zip(model.encoder.weights, original.weights):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="not tuned to a task"):
        task_folder.tuned_model(start, COLOUR)
    with pytest.raises(ValueError, match="no task.json"):
        glue.tuned_task(untuned_folder)


def test_starting_point_of_a_tuned_model(tmp_path):
    model = BertClassifier(CONFIG, 3)
    checkpoints.save(
        tmp_path / "tuned",
        model,
        WordpieceSpec(VOCABULARY),
        11,
        task=COLOUR.to_dict(),
        label_names=COLOUR.labels,
    )
    folder = tmp_path / "tuned"
    assert glue.tuned_task(folder) == COLOUR
    assert glue.tuned_task(folder, COLOUR) == COLOUR
    with pytest.raises(ValueError, match="tuned to the task 'colour'"):
        glue.tuned_task(folder, WARMTH)
    start = starting_point.find(folder)
    for again in (
        task_folder.tuned_model(start, COLOUR),
        task_folder.new_model(start, COLOUR),
    ):
        for ours, theirs in zip(again.weights, model.weights):
            np.testing.assert_array_equal(ours, theirs)
    # A task with the same classes goes on with the head, in its own order.
    labels = COLOUR.labels[1:] + COLOUR.labels[:1]
    other = dataclasses.replace(COLOUR, name="other", labels=labels)
    again = task_folder.new_model(start, other).classification_head
    for ours, theirs in zip(again.weights, model.classification_head.weights):
        np.testing.assert_array_equal(ours, np.roll(theirs, -1, axis=-1))
    # Another task gets another head, though the number of labels is equal.
    other = dataclasses.replace(COLOUR, labels=("x", "y", "z"))
    head = task_folder.new_model(start, other).classification_head.weights[0]
    assert np.abs(head - model.classification_head.weights[0]).max() > 1e-3


def test_a_calibrated_folder_is_of_a_task_whose_classes_have_synonyms(tmp_path):
    mrpc = glue_files.glue_task("MRPC")
    calibrated = dataclasses.replace(mrpc.task, temperature=1.5)
    checkpoints.save(
        tmp_path / "tuned",
        BertClassifier(CONFIG, 2),
        WordpieceSpec(VOCABULARY),
        11,
        task=calibrated.to_dict(),
        label_names=calibrated.labels,
    )
    task = glue.tuned_task(tmp_path / "tuned", mrpc.task)
    assert task == calibrated
    assert task.label_synonyms == ("not_equivalent", "equivalent")
    (tmp_path / "dev.tsv").write_text(
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        "equivalent\t1\t2\tcat\tdog\nnot_equivalent\t3\t4\tcow\then\n"
    )
    examples = dataclasses.replace(mrpc, task=task).read(tmp_path, "dev")
    assert examples.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("names", "problem_type", "reason"),
    [
        (("NO", "YES", "PERHAPS"), None, None),
        (None, None, "nothing names"),
        (("a", "b", "c"), None, "has other classes"),
        (
            ("no", "yes", "perhaps"),
            "multi_label_classification",
            "another kind of",
        ),
        (("no", "yes"), None, "another number of classes"),
        (("0", "-1", "1"), None, "what the outputs of its head mean"),
    ],
)
def test_a_head_of_hugging_faces_goes_on_where_the_classes_are_the_same(
    tmp_path, caplog, names, problem_type, reason
):
    model = BertClassifier(CONFIG, len(names or "123"))
    checkpoints.save(
        tmp_path / "f",
        model,
        WordpieceSpec(VOCABULARY),
        11,
        label_names=names,
        problem_type=problem_type,
    )
    task = dataclasses.replace(COLOUR, labels=("no", "perhaps", "yes"))
    with caplog.at_level("INFO", "absl"):
        again = task_folder.new_model(starting_point.find(tmp_path / "f"), task)
    for ours, theirs in zip(again.encoder.weights, model.encoder.weights):
        np.testing.assert_array_equal(ours, theirs)
    loaded, head = (record.getMessage() for record in caplog.records)
    found = again.classification_head.weights
    wanted = model.classification_head.weights
    if reason is None:
        assert "loaded 25 tensors; 0 initialised; 0 unused" in loaded
        assert "starting with the checkpoint's head" in head
        for ours, theirs in zip(found, wanted):
            np.testing.assert_array_equal(
                ours, np.take(theirs, (0, 2, 1), axis=-1)
            )
        return
    assert "2 initialised (classifier head); 2 unused (classifier" in loaded
    assert "starting with a new head" in head and reason in head
    assert {record.levelname for record in caplog.records} == {"INFO"}


@pytest.mark.parametrize(
    ("names", "labels", "synonyms", "order"),
    [
        (("NO", "YES", "PERHAPS"), ("no", "perhaps", "yes"), (), (0, 2, 1)),
        (("c", "a", "b"), ("1", "2", "3"), ("b", "c", "a"), (2, 0, 1)),
        # What tells no classes: in the order of the task's, with a warning.
        (None, ("no", "perhaps", "yes"), (), (0, 1, 2)),
    ],
)
def test_outputs_of_a_hugging_face_folder_are_the_classes_of_the_task(
    tmp_path, caplog, names, labels, synonyms, order
):
    model = BertClassifier(CONFIG, 3)
    head = model.classification_head
    for variable in head.weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    checkpoints.save(
        tmp_path / "tuned",
        model,
        WordpieceSpec(VOCABULARY),
        11,
        label_names=names,
    )
    task = dataclasses.replace(COLOUR, labels=labels, label_synonyms=synonyms)
    assert glue.tuned_task(tmp_path / "tuned", task) is task
    with caplog.at_level("WARNING", logger="absl"):
        again = task_folder.tuned_model(
            starting_point.find(tmp_path / "tuned"), task
        )
    inputs = {name: np.ones([2, 5], np.int32) for name in features.MODEL_INPUTS}
    np.testing.assert_allclose(
        again(inputs), model(inputs).numpy()[:, order], rtol=1e-6
    )
    warning = "does not name its classes; they are assumed to be"
    assert (warning in caplog.text) == (names is None)


def test_folder_of_other_classes_is_refused(tmp_path):
    checkpoints.save(
        tmp_path / "tuned",
        BertClassifier(CONFIG, 3),
        WordpieceSpec(VOCABULARY),
        11,
        label_names=("POSITIVE", "NEUTRAL", "NEGATIVE"),
    )
    message = (
        "config.json: the classes must be no, yes, perhaps, in any order. "
        "Received: POSITIVE, NEUTRAL, NEGATIVE."
    )
    with pytest.raises(ValueError, match=message):
        glue.tuned_task(tmp_path / "tuned", COLOUR)
    start = starting_point.find(tmp_path / "tuned")
    with pytest.raises(ValueError, match=message):
        task_folder.tuned_model(start, COLOUR)


def test_starting_point_must_fit_together(tmp_path, untuned_folder):
    with pytest.raises(ValueError, match="`bert_config_file` must be given"):
        starting_point.find(vocab_file=untuned_folder / "vocab.txt")
    with pytest.raises(ValueError, match="`vocab_file` must be given"):
        starting_point.find(bert_config_file=untuned_folder / "config.json")
    with pytest.raises(ValueError, match="`do_lower_case` must be True"):
        starting_point.find(untuned_folder, do_lower_case=False)
    with pytest.raises(ValueError, match="max_position_embeddings=11"):
        starting_point.find(untuned_folder).preprocessor(12)
    path = tmp_path / "vocab.txt"
    path.write_text(VOCABULARY.to_text() + "more\n")
    with pytest.raises(
        ValueError, match=r"as many entries as .*, 14\. .*, with 15"
    ):
        starting_point.find(untuned_folder, vocab_file=path)
    path.write_text(VOCABULARY.to_text().replace("cow", "Cow"))
    with pytest.raises(ValueError, match="`do_lower_case` must be False"):
        starting_point.find(
            bert_config_file=untuned_folder / "config.json", vocab_file=path
        )
