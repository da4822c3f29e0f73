r"""Tunes to tasks of GLUE beside transformers: dev scores and speed.

    python benchmarks/finetuning.py --init_checkpoint=minilm --glue_dir=glue \
        --tasks=MRPC,CoLA --seeds=0,1,2 --peer_python=/env/peers/bin/python \
        --output_dir=finetuning_benchmark

For every task and seed, `run_classifier --bias_correction` and
finetune_transformers.py are run one after the other on the same rows with the
same hyper-parameters, each alone on the machine. What is finished is in
--output_dir and is not run again. Prints a table in Markdown: the mean of
the dev scores over the seeds, and the training examples a second.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

from absl import app
from absl import flags

_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "A model folder.", required=True
)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with a folder for each task.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the runs.", required=True
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python",
    None,
    "A Python with transformers, torch and scikit-learn.",
    required=True,
)
_TASKS = flags.DEFINE_list("tasks", ["MRPC", "CoLA"], "Names of tasks.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of the runs.")
_MAX_TRAIN_ROWS = flags.DEFINE_integer(
    "max_train_rows", None, "Take the first rows of larger training sets."
)
_OPTIONS = flags.DEFINE_list(
    "options",
    [],
    "Further flags of run_classifier, e.g. mixed_precision=bfloat16.",
)
_WITH_PEER = flags.DEFINE_bool("with_peer", True, "Run transformers too.")


def data_dir(task):
    """Returns the task's folder, or a copy of it with fewer rows."""
    source = pathlib.Path(_GLUE_DIR.value, task)
    if _MAX_TRAIN_ROWS.value is None:
        return source
    copy = pathlib.Path(_OUTPUT_DIR.value, f"{task}-{_MAX_TRAIN_ROWS.value}")
    copy.mkdir(parents=True, exist_ok=True)
    lines = (source / "train.tsv").read_bytes().split(b"\n")
    has_header = task != "CoLA"
    rows = lines[: _MAX_TRAIN_ROWS.value + has_header]
    (copy / "train.tsv").write_bytes(b"\n".join(rows) + b"\n")
    (copy / "dev.tsv").write_bytes((source / "dev.tsv").read_bytes())
    return copy


def run(command, log):
    with log.open("w") as stream:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stream, text=True
        )
    if process.returncode != 0:
        raise RuntimeError(f"{command} failed; see {log}.")
    return process.stdout


def run_bert_tf(task, seed, folder):
    log = folder.with_suffix(".log")
    output = run(
        [
            *(sys.executable, "-m", "bert_tf.run_classifier"),
            f"--task_name={task}",
            f"--data_dir={data_dir(task)}",
            f"--init_checkpoint={_INIT_CHECKPOINT.value}",
            f"--output_dir={folder}",
            f"--random_seed={seed}",
            # One line of the log an epoch, with its mean speed.
            "--iterations_per_loop=1000000",
            "--save_checkpoints_steps=1000000",
            *("--bias_correction", "--do_train", "--do_eval"),
            *(f"--{option}" for option in _OPTIONS.value),
        ],
        log,
    )
    scores = dict(re.findall(r"^eval_(\w+) = (\S+)$", output, re.M))
    # "step 114/343  loss 0.61  ...  24.3 examples/s"
    lines = re.findall(r"step (\d+)/.* ([\d.]+) examples/s", log.read_text())
    seconds, previous = 0.0, 0
    for step, speed in lines:
        seconds += (int(step) - previous) / float(speed)
        previous = int(step)
    return {
        **{name: float(value) for name, value in scores.items()},
        "examples_per_second": previous / seconds,
    }


def run_transformers(task, seed, folder):
    output = run(
        [
            _PEER_PYTHON.value,
            str(pathlib.Path(__file__).with_name("finetune_transformers.py")),
            f"--task={task}",
            f"--data_dir={data_dir(task)}",
            f"--model={_INIT_CHECKPOINT.value}",
            f"--seed={seed}",
        ],
        folder.with_suffix(".log"),
    )
    return json.loads(output.splitlines()[-1])


def main(_):
    sides = {"bert_tf": run_bert_tf}
    if _WITH_PEER.value:
        sides["transformers"] = run_transformers
    output_dir = pathlib.Path(_OUTPUT_DIR.value)
    output_dir.mkdir(parents=True, exist_ok=True)
    found = {}
    for task in _TASKS.value:
        for seed in _SEEDS.value:
            for side, run_side in sides.items():
                path = output_dir / f"{task}-{seed}-{side}.json"
                if not path.exists():
                    results = run_side(task, seed, path.with_suffix(""))
                    path.write_text(json.dumps(results))
                results = json.loads(path.read_text())
                print(path.stem, results, flush=True)
                found.setdefault((task, side), []).append(results)

    print("| | | scores on dev, mean of seeds | examples/s |")
    print("|---|---|---|---|")
    names = ("accuracy", "f1", "matthews_correlation")
    for (task, side), runs in found.items():
        cells = [
            f"{name} {100 * statistics.mean(run[name] for run in runs):.1f}"
            for name in names
            if name in runs[0]
        ]
        speed = statistics.median(run["examples_per_second"] for run in runs)
        print(f"| {task} | {side} | {', '.join(cells)} | {speed:.1f} |")


if __name__ == "__main__":
    app.run(main)
