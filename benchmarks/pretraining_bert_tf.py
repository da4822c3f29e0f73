"""bert_tf's process of benchmarks/pretraining.py; see pretraining_worker.py."""

import keras
import pretraining_rows
import pretraining_worker
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.input import array_source
from bert_tf.input import pretraining
from bert_tf.models import objectives
from bert_tf.models import pretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import load_vocabulary
from bert_tf.training import randomness
from bert_tf.training import step as step_lib


def prepare(job):
    """Returns a function that runs a given number of steps."""
    config = BertConfig(**job["config"])
    if job["files"] is None:
        rows = pretraining_rows.random_rows(job, 4 * job["batch_size"])
        source = array_source.ArraySource(arrays=rows)
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

    def make_step(batch):
        return step_lib.train_step(model, objective, optimizer, batch)

    if job["jit_compile"]:
        make_step = tf.function(make_step, autograph=False, jit_compile=True)

    # As in the loop of `run_pretraining`, a call runs many steps.
    @tf.function
    def run(batches, first_step, count):
        sums = tf.zeros([2])
        for index in tf.range(count):
            randomness.set_seeds(states, 12345, first_step + index)
            results = make_step(next(batches))
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
