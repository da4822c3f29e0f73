r"""Times training steps of pre-training beside the machine's matrix products.

    python benchmarks/pretraining.py --size=mini --batch_size=32 \
        --precision=float32,bfloat16 \
        --records=padded='wiki/*.tfrecord' --records=packed='rows/*.tfrecord' \
        --vocab_file=vocab.txt

Runs the step of `run_pretraining` on full examples of random tokens, and on
each set of records that is named, made with data/create_pretraining_data.py.
The settings take turns, round after round, with a matrix product of 4096^3 in
their precision between them. Prints a table in Markdown of medians over the
rounds: rows and real tokens a second, the share of padding, the matrix
products of the step in GFLOP/s (padding counted), what share that is of the
4096^3 product's rate in the same rounds, and the real tokens a second beside
those of the first setting of that precision in the same round.
"""

import os
import statistics
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.models import pretrainer
from bert_tf.text.vocabulary import load_vocabulary
from bert_tf.training import health
from bert_tf.training import input_pipeline
from bert_tf.training import loop
from bert_tf.training import pretraining_input
from bert_tf.training import randomness
from bert_tf.training.objective import Objective
from bert_tf.training.optimizer import BertOptimizer

_SIZE = flags.DEFINE_string("size", "mini", "A name of BertConfig.named.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Rows a step.")
_PRECISION = flags.DEFINE_list(
    "precision", ["float32"], "Of float32 and bfloat16."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", 128, "Of the random examples."
)
_MAX_PREDICTIONS_PER_SEQ = flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Of the random examples."
)
_RECORDS = flags.DEFINE_multi_string(
    "records", [], "name=files: records to train on, too."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "Vocabulary of the records."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Of all settings in turn.")
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Of one measurement, about.")

_MATRIX_SIZE = 4096


class Setting:
    """Training steps in one precision on one kind of input.

    Args:
        name: What the input is called.
        precision: "float32" or "bfloat16".
        config: The `BertConfig`.
        source: A source of batches; see `input_pipeline`.
    """

    def __init__(self, name, precision, config, source):
        self.name = name
        self.precision = precision
        self.rows_per_second = []
        self.tokens_per_second = []
        self.padding = []
        dtype = "float32" if precision == "float32" else f"mixed_{precision}"
        model = pretrainer.BertPretrainer(config, dtype=dtype)
        optimizer = BertOptimizer(1e-4)
        optimizer.build(model.trainable_variables)
        objective = Objective(
            weights=pretrainer.pretraining_weights,
            losses=pretrainer.pretraining_losses,
            metrics=pretrainer.pretraining_metrics,
            weight_epsilon=1e-5,
        )
        states = randomness.seed_states(model)
        batches = source.training_batches(_BATCH_SIZE.value)
        shapes = batches.element_spec
        self.flops_per_row = health.flops_per_example(
            config,
            shapes[features.INPUT_IDS].shape[1],
            shapes[features.MASKED_LM_POSITIONS].shape[1],
        )
        self._iterator = iter(batches)
        self._step = 0

        # As in the loop: many steps a call.
        @tf.function
        def run(iterator, first_step, count):
            sums = tf.zeros([2])
            for index in tf.range(count):
                randomness.set_seeds(states, 12345, first_step + index)
                results = loop.train_step(
                    model, objective, optimizer, next(iterator)
                )
                sums += tf.stack(results["metrics"]["padding"])
            return sums

        self._run = run
        # The first call traces; the second tells how many steps to make.
        self._make_steps(1)
        seconds, _ = self._make_steps(2)
        self._count = max(1, round(_SECONDS.value * 2 / seconds))

    def measure(self):
        seconds, (num_padding, num_places) = self._make_steps(self._count)
        rows = self._count * _BATCH_SIZE.value
        self.rows_per_second.append(rows / seconds)
        self.tokens_per_second.append((num_places - num_padding) / seconds)
        self.padding.append(num_padding / num_places)

    def _make_steps(self, count):
        start = time.perf_counter()
        sums = self._run(
            self._iterator,
            tf.constant(self._step, tf.int64),
            tf.constant(count, tf.int64),
        ).numpy()
        self._step += count
        return time.perf_counter() - start, sums


def random_examples(config):
    """Returns a source of full examples."""
    random = np.random.default_rng(1)
    length = _MAX_SEQ_LENGTH.value
    record = features.pretraining_record(length, _MAX_PREDICTIONS_PER_SEQ.value)
    limits = {
        features.INPUT_IDS: config.vocab_size,
        features.SEGMENT_IDS: 2,
        features.MASKED_LM_POSITIONS: length,
        features.MASKED_LM_IDS: config.vocab_size,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    arrays = {}
    for name, (dtype, shape) in record.items():
        shape = (4 * _BATCH_SIZE.value, *shape)
        if name in limits:
            arrays[name] = random.integers(limits[name], size=shape)
        else:
            arrays[name] = np.ones(shape)
        arrays[name] = arrays[name].astype(dtype.replace("int64", "int32"))
    return input_pipeline.ArraySource(arrays=arrays)


def sources(config):
    """Returns {name: source}."""
    found = {"random": random_examples(config)}
    for told in _RECORDS.value:
        name, separator, files = told.partition("=")
        if not separator or name in found:
            raise app.UsageError(
                "--records must be name=files, each name once. Received: "
                f"--records={told}."
            )
        found[name] = pretraining_input.pretraining_records(
            files, config, load_vocabulary(_VOCAB_FILE.value), flag="records"
        )
    return found


@tf.function
def multiply(a, b):
    return tf.matmul(a, b)


def flops_per_second(precision):
    """Returns the rate of one product of 4096^3."""
    shape = (_MATRIX_SIZE, _MATRIX_SIZE)
    a = tf.ones(shape, precision)
    multiply(a, a)
    start = time.perf_counter()
    multiply(a, a).numpy()
    return 2 * _MATRIX_SIZE**3 / (time.perf_counter() - start)


def report(settings, rates):
    """Prints the table."""
    print(
        "| precision | input | rows/s | tokens/s | padding | GFLOP/s "
        "| of 4096^3 | tokens/s, ratio |\n|---|---|---|---|---|---|---|---|"
    )
    first = {}
    for setting in settings:
        base = first.setdefault(setting.precision, setting)
        flops = [r * setting.flops_per_row for r in setting.rows_per_second]
        shares = [a / b for a, b in zip(flops, rates[setting.precision])]
        ratios = [
            a / b
            for a, b in zip(setting.tokens_per_second, base.tokens_per_second)
        ]
        print(
            f"| {setting.precision} | {setting.name} "
            f"| {statistics.median(setting.rows_per_second):.1f} "
            f"({min(setting.rows_per_second):.1f} to "
            f"{max(setting.rows_per_second):.1f}) "
            f"| {statistics.median(setting.tokens_per_second):,.0f} "
            f"| {statistics.mean(setting.padding):.1%} "
            f"| {statistics.median(flops) / 1e9:.0f} "
            f"| {statistics.median(shares):.0%} "
            f"| {statistics.median(ratios):.2f} |"
        )
    for precision, values in rates.items():
        print(
            f"\n4096^3 in {precision}: {statistics.median(values) / 1e9:.0f} "
            f"GFLOP/s ({min(values) / 1e9:.0f} to {max(values) / 1e9:.0f})."
        )


def main(_):
    config = BertConfig.named(_SIZE.value)
    inputs = sources(config)
    settings = []
    for precision in _PRECISION.value:
        if precision not in ("float32", "bfloat16"):
            raise app.UsageError(
                "--precision must be of float32 and bfloat16. Received: "
                f"--precision={precision}."
            )
        for name, source in inputs.items():
            keras.utils.set_random_seed(1)
            settings.append(Setting(name, precision, config, source))
    rates = {precision: [] for precision in _PRECISION.value}
    for _ in range(_ROUNDS.value):
        for precision in rates:
            rates[precision].append(flops_per_second(precision))
            for setting in settings:
                if setting.precision == precision:
                    setting.measure()
    cores = len(os.sched_getaffinity(0))
    print(
        f"{_SIZE.value}, {_BATCH_SIZE.value} rows a step, {cores} cores, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, load at the "
        f"end {os.getloadavg()[0]:.1f}\n"
    )
    report(settings, rates)


if __name__ == "__main__":
    app.run(main)
