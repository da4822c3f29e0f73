r"""Times a training step with freed memory kept and not kept.

    python benchmarks/freed_memory.py --size=mini --batch_size=32

Two processes run the step of `run_pretraining` on full rows of random tokens,
in turns, round after round: one with the C library's allocator, and one with
`program.ALLOCATOR`, as in training programs. Prints a page for results/:
medians over the rounds of rows per second and of processor seconds per row, the
medians of their ratios within a round, and the peak memory of each process.

With TF_ENABLE_ONEDNN_OPTS=1 in the environment, or on a CPU where that is the
default, TensorFlow uses its own allocator, and the two differ less.
"""

import statistics
import sys

import heading
from absl import flags
from pretraining_setting import Setting

from bert_tf import program
from bert_tf.config import BertConfig

_SIZE = flags.DEFINE_string("size", "mini", "A name of BertConfig.named.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Rows per step.", lower_bound=1
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", 128, "Length of the rows."
)
_PRECISION = flags.DEFINE_multi_enum(
    "precision",
    ["float32"],
    ["float32", "bfloat16"],
    "Precision of the layers.",
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds of turns.", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds", 10.0, "Approximate time of each measurement."
)

_SIDES = {
    "as glibc has it": {},
    "kept by TensorFlow": program.ALLOCATOR,
}


def main(_):
    config = BertConfig.named(_SIZE.value)
    heading.show()
    print(
        f"{_SIZE.value}, {_BATCH_SIZE.value} rows of {_MAX_SEQ_LENGTH.value} "
        "a step\n\n| precision | freed memory | rows/s | of the first "
        "| CPU ms/row | of the first | MiB |\n|---|---|---|---|---|---|---|"
    )
    for precision in _PRECISION.value:
        job = {
            "library": "bert_tf",
            "files": None,
            "precision": precision,
            "batch_size": _BATCH_SIZE.value,
            "length": _MAX_SEQ_LENGTH.value,
            "num_predictions": round(0.15 * _MAX_SEQ_LENGTH.value),
            "config": config.to_dict(),
        }
        settings = [
            Setting(name, sys.executable, job, environment)
            for name, environment in _SIDES.items()
        ]
        for _ in range(_ROUNDS.value):
            for setting in settings:
                setting.measure(_SECONDS.value)
        for setting in settings:
            setting.stop()
            print(
                f"| {precision} | {setting.name} "
                f"| {setting.median('rows_per_second'):.1f} "
                f"| {ratio(setting, settings[0], 'rows_per_second')} "
                f"| {1e3 * setting.median('cpu_seconds_per_row'):.1f} "
                f"| {ratio(setting, settings[0], 'cpu_seconds_per_row')} "
                f"| {setting.median('peak_bytes') / 2**20:.0f} |",
                flush=True,
            )


def ratio(setting, first, name):
    """Returns the median over the rounds of the ratio to the first setting."""
    pairs = zip(setting.answers, first.answers)
    ratios = [ours[name] / its[name] for ours, its in pairs]
    return f"{statistics.median(ratios):.2f}"


if __name__ == "__main__":
    program.run(main)
