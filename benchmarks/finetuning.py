r"""Compares fine-tuning with transformers': dev scores and speed.

    python benchmarks/finetuning.py --init_checkpoint=minilm --data_dir=data \
        --tasks=MRPC,CoLA --seeds=0,1,2 --peer_python=/env/peers/bin/python \
        --output_dir=finetuning_benchmark

For every task and seed, runs a program of bert_tf, with --bias_correction and
--nolearning_rate_drop, and then finetune_transformers.py. Both use the same
rows and hyper-parameters, and each runs alone on the machine. --data_dir has
glue/<task>/, ner/wnut17/ and squad/. The same code scores the predictions of
both sides. Finished runs are kept in --output_dir and not repeated; other
settings need another folder. Prints a table in Markdown: the mean dev scores
over the seeds, and the median training examples (rows, sentences, windows) per
second, including tracing and compiling. With
--peers=transformers,transformers_compiled, transformers runs twice: eagerly,
and under `torch.compile`.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

import heading
from absl import flags

from bert_tf import atomic
from bert_tf import program
from bert_tf.tasks import metrics
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import files as tagging_files

_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "A model folder.", required=True
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of all data sets.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the runs.", required=True
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python",
    None,
    "A Python with transformers and torch.",
    required=True,
)
# {GLUE task: names of its scores}
_GLUE_SCORES = {
    "MRPC": ("accuracy", "f1"),
    "CoLA": ("matthews_correlation",),
    "SST-2": ("accuracy",),
}
_TASK_NAMES = (*_GLUE_SCORES, "WNUT17", "SQuAD")
_TASKS = flags.DEFINE_list(
    "tasks", ["MRPC", "CoLA"], f"Tasks, from {', '.join(_TASK_NAMES)}."
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of the runs.")
_NUM_TRAIN_EPOCHS = flags.DEFINE_float(
    "num_train_epochs", 3, "Epochs of each run."
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", 5e-5, "Peak rate of each run."
)
_MIXED_PRECISION = flags.DEFINE_enum(
    "mixed_precision",
    "float32",
    ["float32", "bfloat16"],
    "Precision of both sides.",
)
_PEERS = flags.DEFINE_list(
    "peers",
    ["transformers"],
    "transformers, or transformers_compiled, which uses torch.compile.",
)
_OPTIONS = flags.DEFINE_list(
    "options", [], "More flags for bert_tf's programs."
)

_BATCH_SIZE = 32
_MAX_TRAIN_ROWS = {"SST-2": 20000, "SQuAD": 3000}


class Glue:
    """A task of single texts or pairs."""

    program = "bert_tf.run_classifier"
    max_seq_length = 128

    def __init__(self, name):
        self.name = name
        self.folder = pathlib.Path(_DATA_DIR.value, "glue", name)
        self.dev_file = self.folder / "dev.tsv"
        self.score_names = _GLUE_SCORES[name]

    def prepare(self, folder):
        """Writes the rows to train on; returns the file."""
        lines = (self.folder / "train.tsv").read_bytes().split(b"\n")
        has_header = self.name != "CoLA"
        limit = _MAX_TRAIN_ROWS.get(self.name, len(lines))
        (folder / "train.tsv").write_bytes(
            b"\n".join(lines[: limit + has_header]).rstrip(b"\n") + b"\n"
        )
        (folder / "dev.tsv").write_bytes(self.dev_file.read_bytes())
        return folder / "train.tsv"

    def num_rows(self, train_file):
        return train_file.read_bytes().count(b"\n") - (self.name != "CoLA")

    def flags(self, train_file):
        return [f"--task_name={self.name}", f"--data_dir={train_file.parent}"]

    def scores(self, predictions):
        task_files = glue_files.glue_task(self.name)
        labels = task_files.read(self.folder, glue_files.DEV).labels
        return {
            name: getattr(metrics, name)(predictions, labels)
            for name in self.score_names
        }


class Tagging:
    """WNUT17's entities."""

    program = "bert_tf.run_tagger"
    max_seq_length = 128
    score_names = ("f1",)

    def __init__(self):
        folder = pathlib.Path(_DATA_DIR.value, "ner", "wnut17")
        self.train_file, self.dev_file = (
            pathlib.Path(tagging_files.find_file(str(folder), split))
            for split in (TRAIN, DEV)
        )

    def prepare(self, folder):
        return self.train_file

    def num_rows(self, train_file):
        return len(tagging_files.read_columns(str(train_file)))

    def flags(self, train_file):
        return [f"--train_file={train_file}", f"--eval_file={self.dev_file}"]

    def scores(self, predictions):
        dev = tagging_files.read_columns(str(self.dev_file))
        tags = iter(dev.tags)
        wanted = [[next(tags) for _ in range(n)] for n in dev.row_lengths]
        return {"f1": entity_scores.score_tags(predictions, wanted)["f1"]}


class Squad:
    """Questions of SQuAD 1.1."""

    program = "bert_tf.run_squad"
    max_seq_length = 256
    score_names = ("exact_match", "f1")

    def __init__(self):
        self.folder = pathlib.Path(_DATA_DIR.value, "squad")
        self.dev_file = self.folder / "dev-v1.1.json"

    def prepare(self, folder):
        """Writes the first questions of the training set."""
        squad = json.loads((self.folder / "train-v1.1.json").read_text("utf-8"))
        left = _MAX_TRAIN_ROWS["SQuAD"]
        for article in squad["data"]:
            for paragraph in article["paragraphs"]:
                del paragraph["qas"][left:]
                left -= len(paragraph["qas"])
        path = folder / "train.json"
        path.write_text(json.dumps(squad), "utf-8")
        return path

    def num_rows(self, train_file):
        return _MAX_TRAIN_ROWS["SQuAD"]

    def flags(self, train_file):
        return [
            f"--train_file={train_file}",
            f"--predict_file={self.dev_file}",
            "--do_predict",
        ]

    def scores(self, predictions):
        dev = squad_files.read_squad(
            str(self.dev_file), version_2_with_negative=False, is_training=False
        )
        return squad_scores.scores_1_1(
            [predictions[name] for name in dev.ids], dev.answers
        )


def find_task(name):
    return {"WNUT17": Tagging, "SQuAD": Squad}.get(name, lambda: Glue(name))()


def run(command, log):
    with log.open("w") as stream:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stream, text=True
        )
    if process.returncode != 0:
        raise RuntimeError(f"{command} failed; see {log}.")
    return process.stdout


def run_bert_tf(name, seed, path):
    task = find_task(name)
    train_file = task.prepare(path)
    output = run(
        [
            *(sys.executable, "-m", task.program),
            *task.flags(train_file),
            f"--init_checkpoint={_INIT_CHECKPOINT.value}",
            f"--output_dir={path / 'output'}",
            f"--max_seq_length={task.max_seq_length}",
            f"--num_train_epochs={_NUM_TRAIN_EPOCHS.value}",
            f"--learning_rate={_LEARNING_RATE.value}",
            f"--mixed_precision={_MIXED_PRECISION.value}",
            f"--random_seed={seed}",
            # One log line per epoch, with the mean speed.
            "--iterations_per_loop=1000000",
            "--save_checkpoints_steps=1000000",
            # As in transformers.
            *("--bias_correction", "--nolearning_rate_drop"),
            *("--do_train", "--do_eval"),
            *(f"--{option}" for option in _OPTIONS.value),
        ],
        path / "log",
    )
    scores = dict(re.findall(r"^(?:eval_)?(\w+) = (\S+)$", output, re.M))
    # "step 114/343  loss 0.61  ...  24.3 examples/s"
    lines = re.findall(
        r"step (\d+)/.* ([\d.]+) (?:examples|windows)/s",
        (path / "log").read_text(),
    )
    seconds, previous = 0.0, 0
    for step, speed in lines:
        seconds += _BATCH_SIZE * (int(step) - previous) / float(speed)
        previous = int(step)
    num_examples = task.num_rows(train_file) * _NUM_TRAIN_EPOCHS.value
    return {
        **{name: float(scores[name]) for name in task.score_names},
        "examples_per_second": num_examples / seconds,
    }


def run_transformers(name, seed, path, *options):
    task = find_task(name)
    train_file = task.prepare(path)
    run(
        [
            _PEER_PYTHON.value,
            str(pathlib.Path(__file__).with_name("finetune_transformers.py")),
            f"--task={name}",
            f"--train_file={train_file}",
            f"--dev_file={task.dev_file}",
            f"--model={_INIT_CHECKPOINT.value}",
            f"--seed={seed}",
            f"--epochs={_NUM_TRAIN_EPOCHS.value}",
            f"--learning_rate={_LEARNING_RATE.value}",
            f"--max_length={task.max_seq_length}",
            f"--output_file={path / 'output.json'}",
            *(["--bfloat16"] * (_MIXED_PRECISION.value == "bfloat16")),
            *options,
        ],
        path / "log",
    )
    results = json.loads((path / "output.json").read_text())
    return {
        **task.scores(results["predictions"]),
        "examples_per_second": results["examples"] / results["seconds"],
    }


def run_compiled(name, seed, path):
    return run_transformers(name, seed, path, "--compile")


_RUN_PEERS = {
    "transformers": run_transformers,
    "transformers_compiled": run_compiled,
}


def settings():
    """Returns what results depend on besides task, seed and side."""
    return {
        flag.name: flag.value
        for flag in (
            _INIT_CHECKPOINT,
            _DATA_DIR,
            _NUM_TRAIN_EPOCHS,
            _LEARNING_RATE,
            _MIXED_PRECISION,
            _OPTIONS,
        )
    }


def read_results(path):
    """Returns the results of a finished run, which must have these settings."""
    stored = json.loads(path.read_text("utf-8"))
    for name, value in settings().items():
        # Older files have no settings.
        known = stored.get("settings", {}).get(name)
        if known != value:
            raise ValueError(
                f"{path} was made with --{name}={known}. "
                f"Received: --{name}={value}."
            )
    return stored["results"]


def main(_):
    for name in _TASKS.value:
        if name not in _TASK_NAMES:
            raise ValueError(
                f"--tasks must be from {', '.join(_TASK_NAMES)}. "
                f"Received: --tasks={','.join(_TASKS.value)}."
            )
    sides = {"bert_tf": run_bert_tf}
    for peer in _PEERS.value:
        if peer not in _RUN_PEERS:
            raise ValueError(
                f"--peers must be from {', '.join(_RUN_PEERS)}. "
                f"Received: --peers={','.join(_PEERS.value)}."
            )
        sides[peer] = _RUN_PEERS[peer]
    heading.show(transformers=_PEER_PYTHON.value)
    output_dir = pathlib.Path(_OUTPUT_DIR.value).absolute()
    found = {}
    for task in _TASKS.value:
        for seed in _SEEDS.value:
            for side, run_side in sides.items():
                path = output_dir / f"{task}-{seed}-{side}"
                results_file = path / "results.json"
                if not results_file.exists():
                    path.mkdir(parents=True, exist_ok=True)
                    results = run_side(task, seed, path)
                    stored = {"settings": settings(), "results": results}
                    atomic.write_text(str(results_file), json.dumps(stored))
                results = read_results(results_file)
                print(path.name, results, flush=True)
                found.setdefault((task, side), []).append(results)

    print("| | | scores on dev, mean of seeds | examples/s |")
    print("|---|---|---|---|")
    for (task, side), runs in found.items():
        means = {
            name: statistics.mean(run[name] for run in runs) for name in runs[0]
        }
        speed = statistics.median(run["examples_per_second"] for run in runs)
        del means["examples_per_second"]
        # SQuAD's scores are already in percent.
        cells = [
            f"{name} {mean * (1 if task == 'SQuAD' else 100):.1f}"
            for name, mean in means.items()
        ]
        print(f"| {task} | {side} | {', '.join(cells)} | {speed:.1f} |")


if __name__ == "__main__":
    program.run(main)
