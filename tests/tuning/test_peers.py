"""Fine-tuning against transformers and PyTorch, step by step.

    python -m pytest -m peers tests/tuning/test_peers.py

On the same batches, without dropout, the losses of all steps are equal: so are
then the models, their gradients, the optimizers and the schedules. Dropout
makes as much noise. What the two sides do not share are the random numbers.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import families
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import task as tagging
from bert_tf.tasks.task import with_weights
from bert_tf.tasks.tsv import Examples
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.record import EpochRecord
from references import checkpoints as peer
from support import paths
from support import peers
from support.family_models import of_family

pytestmark = pytest.mark.peers

PROGRAM = paths.TESTS / "references/tuning.py"
NUM_STEPS, BATCH_SIZE, LENGTH = 120, 8, 9
LEARNING_RATE = 1e-2
CONFIG = families.parse_config(
    peer.CONFIG
    | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
)
KIND_TASK = ClassificationTask(
    name="kind",
    text_features=("text",),
    labels=("a", "b", "c"),
    metrics=("accuracy",),
)
# {class of transformers: (the task, its model)}. Without dropout: a task's own
# `make_model` has some before the head, whatever the configuration says.
TASKS = {
    **{
        f"{prefix}ForSequenceClassification": (
            KIND_TASK,
            lambda family=family: BertClassifier(
                of_family(CONFIG, family), 3, dropout=0.0
            ),
        )
        for prefix, family in (
            ("Bert", "bert"),
            ("Roberta", "roberta"),
            ("Albert", "albert"),
        )
    },
    "BertForTokenClassification": (
        tagging.TaggingTask(scheme="bio", labels=("O", "B-x", "I-x")),
        lambda: BertTokenClassifier(CONFIG, 3, dropout=0.0),
    ),
    "BertForQuestionAnswering": (
        squad.SquadTask(max_query_length=4),
        lambda: BertSpanPredictor(CONFIG),
    ),
}


class GivenBatches:
    """A source of batches that are there already."""

    unit = "examples"
    num_examples = NUM_STEPS * BATCH_SIZE
    num_texts = 1
    examples = Examples(texts=([""] * num_examples,), labels=None)

    def __init__(self, batches):
        self._batches = batches

    def training_batches(self, batch_size, start_example=0, context=None):
        assert (batch_size, start_example) == (BATCH_SIZE, 0)
        assert context is None or context.num_replicas_in_sync == 1
        return tf.data.Dataset.from_tensor_slices(self._batches)


def make_inputs(generator, lengths, ids):
    """Returns two segments of random ids, and padding, of the given lengths.

    Args:
        generator: Of NumPy.
        lengths: int array `[...]`; the inputs are `[..., max(lengths)]`.
        ids: The lowest id, and the one after the highest.
    """
    positions, lengths = np.arange(lengths.max()), lengths[..., None]
    input_mask = (positions < lengths).astype("int32")
    input_ids = generator.integers(*ids, input_mask.shape, "int32")
    return {
        features.INPUT_IDS: input_ids * input_mask,
        features.INPUT_MASK: input_mask,
        features.SEGMENT_IDS: (positions > lengths // 2) * input_mask,
    }


def save_for_peers(path, inputs, **labels):
    """Writes inputs under transformers' names."""
    np.savez(
        path,
        input_ids=inputs[features.INPUT_IDS],
        attention_mask=inputs[features.INPUT_MASK],
        token_type_ids=inputs[features.SEGMENT_IDS],
        **labels,
    )


def make_labels(architecture, inputs):
    """Returns labels that follow from the ids: ours, and transformers'."""
    ids = inputs[features.INPUT_IDS]
    if architecture.endswith("ForSequenceClassification"):
        labels = ids[..., 0] % 3
        return labels, {"labels": labels}
    if architecture == "BertForTokenClassification":
        labels, is_word = ids % 3, ids > 4
        return (
            with_weights(labels, is_word),
            {"labels": np.where(is_word, labels, -100)},
        )
    # From the first to the last place of the largest id.
    starts, ends = ids.argmax(-1), LENGTH - 1 - ids[..., ::-1].argmax(-1)
    places = {squad.START_LOGITS: starts, squad.END_LOGITS: ends}
    return (
        {name: place.astype("int32") for name, place in places.items()},
        {"start_positions": starts, "end_positions": ends},
    )


def deviations(draws, is_token):
    """Returns how far outputs are from their means, float64 `[blocks]`.

    Args:
        draws: Outputs of all blocks, `[draws, blocks, B, L, D]`.
        is_token: bool `[B, L]`, False at what is left out.
    """
    values = np.asarray(draws, "float64")[:, :, is_token]
    return np.sqrt(values.var(axis=0).mean(axis=(1, 2)))


@pytest.mark.parametrize("architecture", TASKS)
def test_every_step_has_the_same_loss(tmp_path, monkeypatch, architecture):
    task, make_model = TASKS[architecture]
    model = make_model()
    checkpoints.save(
        tmp_path / "start",
        model,
        WordpieceSpec(Vocabulary(tokens=peer.TOKENS)),
        LENGTH,
        task=task.to_dict(),
        label_names=task.labels or None,
    )
    # transformers does not train the embedding of [PAD], google-research/bert
    # and this library do. It shows in no output but that of [PAD] itself, which
    # the softmax over all places looks at: there is no padding there.
    is_over_places = architecture == "BertForQuestionAnswering"
    shortest = LENGTH if is_over_places else 3
    generator = np.random.default_rng(3)
    inputs = make_inputs(
        generator,
        generator.integers(shortest, LENGTH + 1, (NUM_STEPS, BATCH_SIZE)),
        ids=(4, CONFIG.vocab_size),
    )
    labels, their_labels = make_labels(architecture, inputs)

    their_inputs = inputs
    if model.config.type_vocab_size == 1:
        zeros = np.zeros_like(inputs[features.SEGMENT_IDS])
        their_inputs = inputs | {features.SEGMENT_IDS: zeros}
    save_for_peers(tmp_path / "batches.npz", their_inputs, **their_labels)
    peers.run(
        PROGRAM,
        "losses",
        architecture,
        tmp_path / "start",
        tmp_path / "batches.npz",
        tmp_path / "losses.npz",
        LEARNING_RATE,
    )
    theirs = np.load(tmp_path / "losses.npz")["losses"]

    config = FineTuningConfig(
        output_dir=str(tmp_path / "tuned"),
        init_checkpoint=str(tmp_path / "start"),
        max_seq_length=LENGTH,
        do_train=True,
        train_batch_size=BATCH_SIZE,
        num_train_epochs=1.0,
        learning_rate=LEARNING_RATE,
        learning_rate_drop=False,
        bias_correction=True,
        iterations_per_loop=1,
    )
    sources = {TRAIN: GivenBatches({**inputs, features.LABELS: labels})}
    monkeypatch.setattr(type(task), "make_sources", lambda *_, **__: sources)
    run = tuning_run.Run(config, task, {}, tf.distribute.get_strategy())
    # What is trained is the model itself.
    run.model = run._trained = model
    run.tune()
    record = EpochRecord(
        f"{config.output_dir}/train", task.main_metric, NUM_STEPS
    )
    ours = [report["loss"] for report in record.training]

    print(f"{architecture}: {np.abs(ours - theirs).max()}")
    # It has learned something, so that a step left out would show.
    assert np.mean(theirs[-20:]) < 0.7 * np.mean(theirs[:20])
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_dropout_makes_as_much_noise(tmp_path):
    num_draws = 300
    inputs = make_inputs(
        np.random.default_rng(4), np.array([40, 12, 33]), ids=(999, 30522)
    )
    is_token = inputs[features.INPUT_MASK] == 1
    save_for_peers(tmp_path / "batch.npz", inputs)
    noise_file = tmp_path / "noise.npz"
    peers.run(
        PROGRAM,
        "noise",
        peers.minilm(),
        tmp_path / "batch.npz",
        noise_file,
        num_draws,
    )
    theirs = deviations(np.load(noise_file)["draws"], is_token)

    model = checkpoints.load(peers.minilm(), BertEncoder)
    draws = [
        np.array(model(inputs, training=True)["encoder_outputs"])
        for _ in range(num_draws)
    ]
    ours = deviations(draws, is_token)

    print(f"noise of the blocks: {ours}, {theirs}")
    # A dropout of 0.11 in place of 0.1 would make a twentieth more.
    np.testing.assert_allclose(ours, theirs, rtol=0.02)
