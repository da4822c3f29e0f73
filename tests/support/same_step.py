"""Runs 50 steps of the training loop in one way, for test_survival.py.

    python tests/same_step.py records.tfrecord history.json strategy \
        num_devices parts

Every way must make the same steps: the gradient is clipped, weights are
decayed, and the numbers of masked tokens are uneven.
"""

import json
import sys
import tempfile

import tensorflow as tf

from bert_tf.input import pretraining
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference

NUM_STEPS = 50
NAMES = ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm")


def main(records, history_path, name, num_devices, parts):
    strategy = make_strategy(
        name, num_cpu_devices=int(num_devices) if name == "mirrored" else None
    )
    source = pretraining.pretraining_records(
        records,
        reference.tiny_config(),
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
        # As many as there are workers, so that all ways have their batches.
        num_shares=2,
    )
    with strategy.scope():
        model = BertPretrainer(reference.tiny_config())
        reference.set_weights(model)
        state = TrainingState(
            model,
            BertOptimizer(WarmupDecay(0.01, NUM_STEPS, 5)),
            tempfile.mkdtemp(),
            {},
        )
    history = loop.train(
        state,
        reference.pretraining_objective(),
        source,
        loop.TrainingConfig(
            num_train_steps=NUM_STEPS,
            train_batch_size=24,
            options=LoopOptions(
                iterations_per_loop=1, gradient_accumulation_steps=int(parts)
            ),
        ),
        strategy,
    )
    with tf.io.gfile.GFile(history_path, "w") as stream:
        json.dump([[step[name] for name in NAMES] for step in history], stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
