r"""Measures seconds from a program's start to the end of its first step.

    python benchmarks/start.py --input_file=text.txt --other=/path/to/checkout

run_pretraining and run_classifier train a model of two layers of 128 for one
step, with a vocabulary and records made from the first documents of
--input_file (one sentence per line, a blank line between documents). --other is
another checkout of this repository, e.g. of an older commit, whose programs
take turns with these in the same environment. The first round, which warms the
file cache, is not counted.

Prints a table in Markdown: medians of the seconds to the end of the step, of
the processor seconds of the whole program, and of the parts: until the log
names the devices (imports), until training begins (data and model), and the
rest (tracing and the step itself).
"""

import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import heading
import recipe
from absl import flags

from bert_tf import program
from bert_tf import streams

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "A text file.", required=True
)
_OTHER = flags.DEFINE_string("other", None, "Another checkout.")
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "Turns of each program.", lower_bound=1
)

_NUM_BYTES = 300_000
_BATCH_SIZE, _LENGTH = 8, 64
_CONFIG = {
    "vocab_size": 4000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}
# What the log says at the end of each part.
_IMPORTED = "device"
_BEGUN = {
    "run_pretraining": "Beginning with new weights",
    "run_classifier": "from random weights",
}
_STEP = "step 1/1"


def make_data(folder):
    """Writes the programs' input; returns {program: its flags}."""
    with streams.open_bytes(_INPUT_FILE.value) as stream:
        text, separator, _ = stream.read(_NUM_BYTES).rpartition(b"\n\n")
    if not separator:
        raise ValueError(
            f"--input_file must have a blank line in its first {_NUM_BYTES:,} "
            f"bytes, behind a document. Received: {_INPUT_FILE.value}."
        )
    (folder / "text.txt").write_bytes(text)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    vocabulary, records = folder / "vocab.txt", folder / "records.tfrecord"
    recipe.run(
        "data/learn_vocabulary.py",
        input_file=folder / "text.txt",
        output_file=vocabulary,
        vocab_size=_CONFIG["vocab_size"],
    )
    recipe.run(
        "data/create_pretraining_data.py",
        input_file=folder / "text.txt",
        output_file=records,
        vocab_file=vocabulary,
        max_seq_length=_LENGTH,
        max_predictions_per_seq=10,
        dupe_factor=1,
    )
    sentences = [line for line in text.decode().split("\n") if line]
    rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    rows += [
        f"{row % 2}\t{row}\t{row}\t{sentences[row]}\t{sentences[row + 1]}"
        for row in range(_BATCH_SIZE)
    ]
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    common = [
        f"--bert_config_file={folder / 'config.json'}",
        f"--vocab_file={vocabulary}",
        "--do_train",
        f"--train_batch_size={_BATCH_SIZE}",
        f"--max_seq_length={_LENGTH}",
    ]
    return {
        "run_pretraining": [
            *common,
            f"--input_file={records}",
            "--max_predictions_per_seq=10",
            "--num_train_steps=1",
            "--num_warmup_steps=0",
        ],
        "run_classifier": [
            *common,
            "--task_name=MRPC",
            f"--data_dir={folder}",
            "--num_train_epochs=1",
        ],
    }


def measure(script, arguments, checkout, output_dir):
    """Returns seconds to the step's end, of the processor, and of the parts."""
    shutil.rmtree(output_dir, ignore_errors=True)
    marks = [_IMPORTED, _BEGUN[script], _STEP]
    reached, lines = [], []
    before = _processor_seconds()
    start = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", f"bert_tf.{script}"),
            *(*arguments, f"--output_dir={output_dir}"),
        ],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with contextlib.closing(process.stdout):
        for line in process.stdout:
            lines.append(line)
            if len(reached) < len(marks) and marks[len(reached)] in line:
                reached.append(time.perf_counter() - start)
    if process.wait() or len(reached) < len(marks):
        sys.exit(f"{script} of {checkout} made no step:\n{''.join(lines)}")
    imports, begun, end = reached
    processor = _processor_seconds() - before
    return end, processor, imports, begun - imports, end - begun


def _processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(_):
    checkouts = {"this": recipe.REPOSITORY}
    if _OTHER.value:
        checkouts["other"] = pathlib.Path(_OTHER.value).absolute()
        if not (checkouts["other"] / "bert_tf" / "run_pretraining.py").exists():
            raise ValueError(
                "--other must be a checkout of this repository. Received: "
                f"{_OTHER.value}."
            )
    heading.show()
    if _OTHER.value:
        print(f"The other checkout: {heading.commit(checkouts['other'])}.")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs = make_data(folder)
        print(
            "\n| program | checkout | first step, s | of other | processor, s "
            "| of other | imports | data, model | tracing, step |"
        )
        print("|---" * 9 + "|")
        for script, arguments in programs.items():
            found = {checkout: [] for checkout in checkouts}
            for number in range(_ROUNDS.value + 1):
                for checkout, path in checkouts.items():
                    seconds = measure(script, arguments, path, folder / "out")
                    if number:
                        found[checkout].append(seconds)
            medians = {
                checkout: [statistics.median(each) for each in zip(*seconds)]
                for checkout, seconds in found.items()
            }
            for checkout, (end, processor, *parts) in medians.items():
                other = medians.get("other")
                shares = (
                    (f"{end / other[0]:.2f}", f"{processor / other[1]:.2f}")
                    if other
                    else ("", "")
                )
                cells = (
                    *(script, checkout, f"{end:.2f}", shares[0]),
                    *(f"{processor:.2f}", shares[1]),
                    *(f"{part:.2f}" for part in parts),
                )
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    program.run(main)
