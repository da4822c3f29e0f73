r"""From text to the predictions of a reloaded SavedModel.

    make demo            at most 8 minutes on two cores
    make demo QUICK=1    at most 2 minutes, with less training

Every stage is one of the programs that users run. Its command line is printed,
so you can repeat it. The text is the English documentation inside the installed
Python. A small BERT is pre-trained on it, then tuned to answer: which library
does this docstring come from?
"""

import argparse
import csv
import dataclasses
import json
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent
PREDICTED_TEXTS = (
    "Return the sum of array elements over the given axis.",
    "A layer that randomly sets input units to 0 while training.",
    "Creates a variable that is mirrored on all replicas of the strategy.",
    "Open a file and return a stream; raise OSError upon failure.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of the model and of its training."""

    vocab_size: int
    num_layers: int
    hidden_size: int
    dupe_factor: int
    num_train_steps: int
    num_train_epochs: float


FULL = Scale(
    vocab_size=8000,
    num_layers=2,
    hidden_size=128,
    dupe_factor=3,
    num_train_steps=2000,
    num_train_epochs=4,
)
QUICK = Scale(
    vocab_size=4000,
    num_layers=2,
    hidden_size=64,
    dupe_factor=1,
    num_train_steps=200,
    num_train_epochs=1.5,
)


class Stages:
    """Runs programs one by one and remembers how long each took."""

    def __init__(self):
        self.seconds = {}

    def run(self, title, program, **flags):
        arguments = []
        for name, value in flags.items():
            if value is True:
                arguments.append(f"--{name}")
            elif isinstance(value, tuple):
                arguments += [f"--{name}={one}" for one in value]
            else:
                arguments.append(f"--{name}={value}")
        shown = " \\\n        ".join(map(shlex.quote, arguments))
        print(f"\n=== {len(self.seconds) + 1}. {title}", flush=True)
        print(f"    python {program} \\\n        {shown}\n", flush=True)
        start = time.monotonic()
        done = subprocess.run([sys.executable, str(ROOT / program), *arguments])
        if done.returncode:
            sys.exit(f"{program} failed with exit code {done.returncode}.")
        self.seconds[title] = time.monotonic() - start


def read_results(path):
    lines = path.read_text("utf-8").splitlines()
    return {
        name: float(value)
        for name, value in (line.split(" = ") for line in lines)
    }


def majority_share(path):
    with open(path, encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        labels = [row["library"] for row in rows]
    return max(map(labels.count, set(labels))) / len(labels)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="Train less, in less time."
    )
    parser.add_argument(
        "--output_dir",
        default="demo_output",
        type=pathlib.Path,
        help="An empty or a new folder. Default: %(default)s.",
    )
    arguments = parser.parse_args()
    out = arguments.output_dir
    if out.exists() and any(out.iterdir()):
        sys.exit(
            f"{out} already exists. Remove it, or give another --output_dir."
        )
    out.mkdir(parents=True, exist_ok=True)
    scale = QUICK if arguments.quick else FULL
    stages = Stages()

    text = out / "text"
    stages.run(
        "Collect English text",
        "data/collect_documentation.py",
        output_dir=text,
    )
    stages.run(
        "Learn a WordPiece vocabulary",
        "data/learn_vocabulary.py",
        input_file=text / "corpus_train.txt",
        output_file=out / "vocab.txt",
        vocab_size=scale.vocab_size,
    )
    records = {}
    for part, dupe_factor in (("train", scale.dupe_factor), ("dev", 1)):
        records[part] = out / "records" / f"{part}.tfrecord"
        stages.run(
            f"Make masked-LM records: {part}",
            "data/create_pretraining_data.py",
            input_file=text / f"corpus_{part}.txt",
            output_file=records[part],
            vocab_file=out / "vocab.txt",
            max_seq_length=64,
            max_predictions_per_seq=10,
            dupe_factor=dupe_factor,
        )
    stages.run(
        "Look at the records",
        "data/inspect_records.py",
        input_file=records["dev"],
        vocab_file=out / "vocab.txt",
        output_file=out / "records.html",
    )
    (out / "bert_config.json").write_text(
        json.dumps(
            {
                # The vocabulary may have fewer entries than requested.
                "vocab_size": len((out / "vocab.txt").read_bytes().split()),
                "hidden_size": scale.hidden_size,
                "num_hidden_layers": scale.num_layers,
                "num_attention_heads": scale.hidden_size // 32,
                "intermediate_size": 4 * scale.hidden_size,
                "max_position_embeddings": 64,
                "type_vocab_size": 2,
                # No dropout: so small a model cannot overfit in this time.
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            },
            indent=2,
        )
        + "\n"
    )
    pretraining = {
        "bert_config_file": out / "bert_config.json",
        "vocab_file": out / "vocab.txt",
        "output_dir": out / "pretrained",
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
    }
    stages.run(
        "Pre-train",
        "bert_tf/run_pretraining.py",
        do_train=True,
        input_file=records["train"],
        learning_rate=5e-4,
        num_train_steps=scale.num_train_steps,
        num_warmup_steps=scale.num_train_steps // 10,
        iterations_per_loop=scale.num_train_steps // 10,
        save_checkpoints_steps=scale.num_train_steps,
        **pretraining,
    )
    stages.run(
        "Evaluate on held-out text",
        "bert_tf/run_pretraining.py",
        do_eval=True,
        input_file=records["dev"],
        eval_batch_size=32,
        **pretraining,
    )
    stages.run(
        "Fine-tune: which library?",
        "bert_tf/run_classifier.py",
        do_train=True,
        do_eval=True,
        do_predict=True,
        task_name="tsv",
        data_dir=text,
        text_columns="text",
        label_column="library",
        init_checkpoint=out / "pretrained",
        output_dir=out / "classifier",
        max_seq_length=64,
        learning_rate=3e-4,
        num_train_epochs=scale.num_train_epochs,
    )
    stages.run(
        "Export a SavedModel",
        "export/export_saved_model.py",
        model_dir=out / "classifier",
        export_dir=out / "servable",
    )
    stages.run(
        "Reload it, compare, predict",
        "export/check_saved_model.py",
        export_dir=out / "servable",
        model_dir=out / "classifier",
        text=PREDICTED_TEXTS,
    )

    report(out, text, stages)


def report(out, text, stages):
    pretrained = read_results(out / "pretrained" / "eval_results.txt")
    tuned = read_results(out / "classifier" / "eval_results.txt")
    majority = majority_share(text / "dev.tsv")
    print("\n=== Done")
    for title, seconds in stages.seconds.items():
        print(f"    {title:<38}{seconds:6.0f} s")
    print(f"    {'all':<38}{sum(stages.seconds.values()):6.0f} s\n")
    for title, value in (
        ("masked-LM loss on held-out text", pretrained["masked_lm_loss"]),
        ("masked-LM accuracy", pretrained["masked_lm_accuracy"]),
        ("which library? accuracy on dev", tuned["eval_accuracy"]),
        ("... of the most frequent library", majority),
    ):
        print(f"    {title:<38}{value:8.3f}")
    if tuned["eval_accuracy"] <= majority:
        sys.exit("The classifier has learned nothing.")
    print("\nFiles to look at:")
    for title, path in (
        ("the playground, in a browser", out / "records.html"),
        ("the report of the fine-tuning", out / "classifier" / "report.md"),
        ("the model card", out / "classifier" / "README.md"),
    ):
        print(f"    {title:<38}{path}")
    print("\nThree things to try next:")
    for title, program, arguments in next_commands(out):
        command = [shown(sys.executable), shown(ROOT / program), *arguments]
        print(f"\n  {title}\n    {shlex.join(command)}")


def next_commands(out):
    """Returns tuples of a title, a program and its arguments."""
    return (
        (
            "Ask the tuned model about a sentence of your own:",
            "bert_tf/run_predict.py",
            [
                f"--model_dir={out}/classifier",
                "--text=Your own sentence.",
            ],
        ),
        (
            "Let the pre-trained model fill in a word:",
            "bert_tf/run_predict.py",
            [
                f"--model_dir={out}/pretrained",
                "--kind=fill_mask",
                "--text=Returns the [MASK] of the array.",
            ],
        ),
        (
            "Fine-tune on a table of your own (train.csv and dev.csv in "
            "--data_dir):",
            "bert_tf/run_classifier.py",
            [
                "--task_name=tsv",
                f"--data_dir={out}/text",
                "--text_columns=text",
                "--label_column=library",
                f"--init_checkpoint={out}/pretrained",
                f"--output_dir={out}/tuned",
                "--max_seq_length=64",
                "--do_train",
                "--do_eval",
            ],
        ),
    )


def shown(path):
    """Returns a path as one would type it in the current folder."""
    # Not resolved: the Python of a virtual environment is a link.
    here = f"{pathlib.Path.cwd()}/"
    return str(path).removeprefix(here)


if __name__ == "__main__":
    main()
