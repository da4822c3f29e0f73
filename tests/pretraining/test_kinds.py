"""Every kind of records, from text to the evaluation of a resumed run."""

import dataclasses
import random
import shutil

import keras
import numpy as np
import pytest

from bert_tf.input import pretraining
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.pretraining import run_local
from bert_tf.pretraining.settings import Settings
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.training import evaluation
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference

# What is not in plain records, in few sets.
KINDS = {
    "sentence_order, dynamic, packed": {
        "objective": "sentence_order",
        "masking_mode": "dynamic",
        "do_whole_word_mask": True,
        "max_sequences_per_row": 4,
    },
    "full_sentences": {"objective": "full_sentences"},
}
# Variables that the loss does not depend on without labels of pairs.
PAIR_VARIABLES = ("pooler", "next_sentence")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    rng = random.Random(3)
    words = reference.vocabulary().tokens[5:]
    documents = [
        "\n".join(
            " ".join(rng.choices(words, k=rng.randint(1, 3)))
            for _ in range(rng.randint(2, 4))
        )
        for _ in range(30)
    ]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents))
    return str(path)


def make_state(folder):
    config = dataclasses.replace(
        reference.tiny_config(0.1), num_hidden_layers=1
    )
    model = BertPretrainer(config)
    reference.set_weights(model)
    return TrainingState(model, BertOptimizer(0.01), folder, config.to_dict())


def weights_of(state):
    return {
        variable.path.split("/", 1)[1]: keras.ops.convert_to_numpy(variable)
        for variable in state.model.weights
    }


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=[pytest.mark.slow] * (kind == "full_sentences")
        )
        for kind in KINDS
    ],
)
def test_a_resumed_run_on_records_of_a_kind_equals_an_unbroken_one(
    tmp_path, text, kind
):
    settings = Settings(
        max_seq_length=15,
        max_predictions_per_seq=3,
        dupe_factor=1,
        short_seq_prob=0.9,
        **KINDS[kind],
    )
    records = str(tmp_path / "a.tfrecord")
    counts = run_local.build(
        text,
        records,
        WordpieceSpec(reference.vocabulary(), fast=True),
        settings,
    )
    # Lengths come from the manifest.
    source = pretraining.pretraining_records(
        records, reference.tiny_config(), WordpieceSpec(reference.vocabulary())
    )
    # Three steps go beyond the first epoch.
    batch_size = source.num_examples // 2
    if settings.max_sequences_per_row > 1:
        assert source.num_examples < counts.examples
    strategy = make_strategy()
    config = loop.TrainingConfig(
        num_train_steps=3,
        train_batch_size=batch_size,
        options=LoopOptions(save_checkpoints_steps=2, iterations_per_loop=1),
    )

    state = make_state(tmp_path / "unbroken")
    before = weights_of(state)

    def keep_step_2():
        if state.step == 2:
            shutil.copytree(tmp_path / "unbroken", tmp_path / "broken")

    objective = reference.pretraining_objective()
    history = loop.train(
        state, objective, source, config, strategy, on_save=keep_step_2
    )
    resumed = make_state(tmp_path / "broken")
    assert resumed.restore()
    assert resumed.step == 2
    rest = loop.train(resumed, objective, source, config, strategy)
    for name in ("loss", "gradient_norm", "padding"):
        assert rest[0][name] == history[2][name], name
    after = weights_of(state)
    for path, value in weights_of(resumed).items():
        np.testing.assert_array_equal(value, after[path], err_msg=path)

    has_labels = settings.objective != "full_sentences"
    for path, value in after.items():
        is_of_pairs = any(name in path for name in PAIR_VARIABLES)
        is_as_before = np.array_equal(value, before[path])
        assert is_as_before == (is_of_pairs and not has_labels), path

    results = evaluation.make_evaluation(
        state.model, objective, source, 4, strategy
    )()
    names = {"loss", "masked_lm_loss", "masked_lm_accuracy"}
    if has_labels:
        names |= {"next_sentence_loss", "next_sentence_accuracy"}
    assert set(results) == names
    assert 1 < results["masked_lm_loss"] < 6
