"""bert_tf's process of benchmarks/pretraining.py; see pretraining_worker.py."""

import keras
import numpy as np
import pretraining_worker
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.input import array_source
from bert_tf.input import pretraining
from bert_tf.models import objectives
from bert_tf.models import pretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import load_vocabulary
from bert_tf.training import compilation
from bert_tf.training import randomness
from bert_tf.training import step as step_lib


def random_rows(job, config):
    """Returns a source of full rows of random tokens."""
    random = np.random.default_rng(1)
    length = job["length"]
    num_sequences = job["num_sequences"]
    record = features.pretraining_record(
        length,
        job["num_predictions"],
        max_sequences_per_row=num_sequences,
    )
    limits = {
        features.INPUT_IDS: config.vocab_size,
        features.SEGMENT_IDS: 2,
        features.MASKED_LM_POSITIONS: length,
        features.MASKED_LM_IDS: config.vocab_size,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    # All sequences of a row have the same length.
    places = np.arange(length)
    size = -(-length // num_sequences)
    packed = {
        features.POSITION_IDS: places % size,
        features.SEQUENCE_IDS: places // size + 1,
        features.FIRST_POSITIONS: np.arange(num_sequences) * size,
    }
    arrays = {}
    for name, (dtype, shape) in record.items():
        shape = (4 * job["batch_size"], *shape)
        if name in limits:
            arrays[name] = random.integers(limits[name], size=shape)
        else:
            arrays[name] = np.broadcast_to(packed.get(name, 1), shape)
        arrays[name] = arrays[name].astype(dtype.replace("int64", "int32"))
    return array_source.ArraySource(arrays=arrays)


def prepare(job):
    """Returns a function that runs a given number of steps."""
    config = BertConfig(**job["config"])
    if job["files"] is None:
        source = random_rows(job, config)
    else:
        vocabulary = load_vocabulary(job["vocab_file"])
        source = pretraining.pretraining_records(
            job["files"],
            config,
            WordpieceSpec(vocabulary, not vocabulary.is_cased),
            flag="records",
        )
    keras.utils.set_random_seed(1)
    is_float32 = job["precision"] == "float32"
    model = pretrainer.BertPretrainer(
        config, dtype="float32" if is_float32 else f"mixed_{job['precision']}"
    )
    optimizer = BertOptimizer(1e-4)
    optimizer.build(model.trainable_variables)
    objective = objectives.PRETRAINING
    states = randomness.seed_states(model)
    batches = iter(source.training_batches(job["batch_size"]))

    def make_step(batch, is_last):
        return step_lib.train_step(
            model, objective, optimizer, batch, measures_update=is_last
        )

    if job["jit_compile"]:
        make_step = compilation.jit(make_step)

    # As in the loop of `run_pretraining`, a call runs many steps.
    @tf.function
    def run(batches, first_step, count):
        sums = tf.zeros([2])
        for index in tf.range(count):
            randomness.set_seeds(states, 12345, first_step + index)
            results = make_step(next(batches), index == count - 1)
            sums += tf.stack(results["metrics"]["padding"])
        return sums

    num_made = 0

    def make_steps(count):
        nonlocal num_made
        sums = run(
            batches,
            tf.constant(num_made, tf.int64),
            tf.constant(count, tf.int64),
        )
        num_made += count
        # A GPU may still be working when the function returns.
        tf.test.experimental.sync_devices()
        return sums.numpy().tolist()

    return make_steps


def main():
    job = pretraining_worker.read_job()
    tf.config.experimental.enable_tensor_float_32_execution(job["tf32"])
    pretraining_worker.serve(
        prepare(job),
        job["batch_size"],
        lambda: (
            tf.config.experimental.get_memory_info("GPU:0")["peak"]
            if job["device"] == "gpu"
            else None
        ),
    )


if __name__ == "__main__":
    main()
