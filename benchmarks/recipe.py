"""Functions shared by the benchmarks that train from text to scores."""

import os
import pathlib
import shlex
import subprocess
import sys

from absl import flags

from bert_tf import atomic
from bert_tf import streams

REPOSITORY = pathlib.Path(__file__).parents[1]
# The flag defined here belongs to the programs that use it.
flags.disclaim_key_flags()


def define_mixed_precision():
    """Defines --mixed_precision and returns its flag holder."""
    return flags.DEFINE_enum(
        "mixed_precision",
        "bfloat16",
        ["float32", "bfloat16"],
        "Precision of all training. Processors without bfloat16 products "
        "(AVX2, older AVX-512) are faster in float32.",
    )


def open_output_dir(path, mixed_precision):
    """Makes the folder of all runs, which share one precision; returns it.

    Raises:
        ValueError: If it holds runs of another precision. Finished runs are
            reused, so they would be reported with the wrong one.
    """
    folder = pathlib.Path(path).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "mixed_precision.txt"
    if not record.exists():
        atomic.write_text(record, mixed_precision)
    found = record.read_text()
    if found != mixed_precision:
        raise ValueError(
            f"`mixed_precision` must be {found}, that of the runs in {folder}. "
            f"Received: mixed_precision={mixed_precision}."
        )
    return folder


def divide(paths, folder, held_out_every):
    """Writes the documents to train.txt and held_out.txt; returns both."""
    parts = folder / "train.txt", folder / "held_out.txt"
    if not all(part.exists() for part in parts):
        texts = []
        for path in paths:
            with streams.open_bytes(path) as stream:
                texts += stream.read().split(b"\n\n")
        held_out = texts[::held_out_every]
        del texts[::held_out_every]
        for part, chosen in zip(parts, (texts, held_out)):
            atomic.write_bytes(part, b"\n\n".join(chosen) + b"\n")
    return parts


def run(script, threads=None, **arguments):
    """Runs a program of bert_tf; exits with its code if it fails."""
    command = ["python", *script.split()]
    command += [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in arguments.items()
    ]
    print(f"\n$ {shlex.join(command)}", flush=True)
    environment = dict(os.environ)
    if threads is not None:
        environment["TF_NUM_INTRAOP_THREADS"] = str(threads)
    code = subprocess.run(
        [sys.executable, *command[1:]], cwd=REPOSITORY, env=environment
    ).returncode
    if code:
        sys.exit(code)


def read_summaries(folder):
    """Returns {tag: {step: value}} from a training's event files."""
    import tensorflow as tf

    found = {}
    # A resumed training has one more file, and may repeat steps.
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, {})[event.step] = number
    return found


def seconds_by_step(summaries):
    """Returns {step: seconds of training up to this step}."""
    seconds, last_step, total = {}, 0, 0.0
    for step, step_seconds in sorted(summaries["step_seconds"].items()):
        total += (step - last_step) * step_seconds
        seconds[step], last_step = total, step
    return seconds
