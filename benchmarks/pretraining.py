r"""Times pre-training steps, compared with other libraries'.

    python benchmarks/pretraining.py --size=mini --batch_size=32 \
        --precision=float32,bfloat16 \
        --records=padded='wiki/*.tfrecord' --records=packed='rows/*.tfrecord' \
        --vocab_file=vocab.txt \
        --peer=keras_hub=/env/keras_hub/bin/python \
        --peer=model_garden=/env/model_garden/bin/python \
        --peer=transformers=/env/transformers/bin/python \
        --peer=transformers_compiled=/env/transformers/bin/python

Every setting has its own process: bert_tf's step of `run_pretraining` on full
rows of random tokens, and on each set of records that --records names, made
with data/create_pretraining_data.py; with --jit_compile also on random rows
compiled with XLA; and each peer's step on full random rows, in the peer's
environment. The settings take turns, round after round, one at a time, with a
matrix product of 4096^3 in their precision before each turn. bert_tf's
processes keep freed memory, as its programs do; peers run with their defaults.
With --make_environments=FOLDER, the peers' environments are made there with pip
and used.

Prints a table in Markdown, with medians over the rounds:

- rows per second, and processor seconds per row, which vary less on a busy
  machine;
- real tokens per second. For random rows, also a peer's, they are the rows
  times the tokens in a row of the first named records, because there padding
  costs as much as tokens;
- the matrix products of the step in GFLOP/s, counted for every position in
  every block, and their share of the rate of 4096^3 in the same rounds
  (operations that bert_tf skips in its last block are counted);
- rows and tokens per second relative to the best peer's in the same round;
- the peak memory of the process.
"""

import statistics
import sys
import time

import heading
import sides
import tensorflow as tf
from absl import flags
from pretraining_setting import PEERS
from pretraining_setting import Setting

from bert_tf import program
from bert_tf.config import BertConfig
from bert_tf.training import health

_SIZE = flags.DEFINE_string("size", "mini", "A name of BertConfig.named.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Rows per step.", lower_bound=1
)
_PRECISION = flags.DEFINE_list(
    "precision", ["float32"], "float32, bfloat16 or both."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", 128, "Length of the random rows."
)
_MAX_PREDICTIONS_PER_SEQ = flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Predictions per random row."
)
_RECORDS = flags.DEFINE_multi_string(
    "records", [], "name=files: records to train on as well."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "Vocabulary of the records."
)
_JIT_COMPILE = flags.DEFINE_bool(
    "jit_compile",
    False,
    "Also time random rows with bert_tf's --jit_compile=true.",
)
_PEER = flags.DEFINE_multi_string(
    "peer",
    [],
    "library=python: keras_hub, model_garden, transformers or "
    "transformers_compiled, and the Python of its environment.",
)
_MAKE_ENVIRONMENTS = flags.DEFINE_string(
    "make_environments",
    None,
    "Folder in which to make all peers' environments.",
)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "Rounds over all settings.", lower_bound=1
)
_SECONDS = flags.DEFINE_float(
    "seconds", 5.0, "Approximate time of each measurement."
)

_MATRIX_SIZE = 4096


def pairs(values, flag):
    """Returns {name: value} from a flag's `name=value` items."""
    found = {}
    for told in values:
        name, separator, value = told.partition("=")
        if not separator or name in found:
            raise ValueError(
                f"--{flag} must be name=value, each name once. Received: "
                f"--{flag}={told}."
            )
        found[name] = value
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


def tokens_per_second(setting, real_share, length):
    """Returns the real tokens per second, round by round."""
    return [
        answer["rows_per_second"]
        * length
        * (real_share if setting.is_random else 1 - answer["padding"])
        for answer in setting.answers
    ]


def report(settings, rates, config):
    """Prints the table of the settings of one precision."""
    length = _MAX_SEQ_LENGTH.value
    flops_per_row = health.flops_per_example(
        config, length, _MAX_PREDICTIONS_PER_SEQ.value
    )
    named = [setting for setting in settings if not setting.is_random]
    real_share = 1 - named[0].median("padding") if named else 1.0
    tokens = {
        setting.name: tokens_per_second(setting, real_share, length)
        for setting in settings
    }
    rows = {
        setting.name: [a["rows_per_second"] for a in setting.answers]
        for setting in settings
    }
    peers = [setting.name for setting in settings if setting.is_peer]

    def beside_best(name, values):
        if not peers:
            return "-"
        ratios = [
            values[name][index] / max(values[peer][index] for peer in peers)
            for index in range(len(values[name]))
        ]
        return f"{statistics.median(ratios):.2f}"

    for setting in settings:
        name = setting.name
        shares = [r * flops_per_row / b for r, b in zip(rows[name], rates)]
        flops = statistics.median(rows[name]) * flops_per_row
        print(
            f"| {setting.precision} | {name} "
            f"| {statistics.median(rows[name]):.1f} "
            f"({min(rows[name]):.1f} to {max(rows[name]):.1f}) "
            f"| {1e3 * setting.median('cpu_seconds_per_row'):.1f} "
            f"| {statistics.median(tokens[name]):,.0f} "
            f"| {flops / 1e9:.0f} | {statistics.median(shares):.0%} "
            f"| {beside_best(name, rows)} | {beside_best(name, tokens)} "
            f"| {setting.median('peak_bytes') / 2**20:.0f} |"
        )


def main(_):
    config = BertConfig.named(_SIZE.value)
    files = {"random": None} | pairs(_RECORDS.value, "records")
    if len(files) > 1 and _VOCAB_FILE.value is None:
        raise ValueError("--vocab_file must be given with --records.")
    peers = pairs(_PEER.value, "peer")
    if _MAKE_ENVIRONMENTS.value:
        pythons = sides.make_environments(_MAKE_ENVIRONMENTS.value)
        peers = {peer: pythons[PEERS[peer]] for peer in PEERS} | peers
    for peer in peers:
        if peer not in PEERS:
            raise ValueError(
                f"--peer must be one of {', '.join(PEERS)}. Received: "
                f"--peer={peer}={peers[peer]}."
            )
    for precision in _PRECISION.value:
        if precision not in ("float32", "bfloat16"):
            raise ValueError(
                "--precision must be float32 or bfloat16. Received: "
                f"--precision={precision}."
            )
    heading.show(**peers)
    print(
        f"{_SIZE.value}, {_BATCH_SIZE.value} rows a step\n\n"
        "| precision | input or library | rows/s | CPU ms/row | tokens/s "
        "| GFLOP/s | of 4096^3 | rows/s, best peer = 1 "
        "| tokens/s, best peer = 1 | MiB |\n"
        "|---|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    medians = []
    # One precision after the other, so that not all processes take memory at
    # once.
    for precision in _PRECISION.value:
        job = {
            "precision": precision,
            "batch_size": _BATCH_SIZE.value,
            "length": _MAX_SEQ_LENGTH.value,
            "num_predictions": _MAX_PREDICTIONS_PER_SEQ.value,
            "config": config.to_dict(),
        }
        ours = [(name, value, False) for name, value in files.items()]
        if _JIT_COMPILE.value:
            ours.append(("random, jit", None, True))
        settings = [
            Setting(
                name,
                sys.executable,
                job
                | {
                    "library": "bert_tf",
                    "files": value,
                    "vocab_file": _VOCAB_FILE.value,
                    "jit_compile": jit_compile,
                },
            )
            for name, value, jit_compile in ours
        ] + [
            Setting(name, python, job | {"library": name})
            for name, python in peers.items()
        ]
        rates = []
        for _ in range(_ROUNDS.value):
            rates.append(flops_per_second(precision))
            for setting in settings:
                setting.measure(_SECONDS.value)
        for setting in settings:
            setting.stop()
        report(settings, rates, config)
        medians.append(
            f"4096^3 in {precision}: {statistics.median(rates) / 1e9:.0f} "
            f"GFLOP/s ({min(rates) / 1e9:.0f} to {max(rates) / 1e9:.0f})."
        )
    print("\n" + "\n".join(medians))


if __name__ == "__main__":
    program.run(main)
