r"""Trains the model that two hours on two cores can give.

    python benchmarks/two_hours.py --input_file='books.txt.xz,wiki.txt.xz' \
        --glue_dir=glue --output_dir=two_hours

Goes from text (one sentence per line, a blank line between documents) to scores
on GLUE's development sets: learns a vocabulary, makes records, pre-trains,
draws the losses into curve.png, and tunes to each task from the pre-trained
weights and, with the same flags, from new ones. Every hundredth document is
held out for the curve. results/2026-11-22-pretraining.md shows how the recipe
was chosen.

Prints every command. Rerun it to resume after a stop.
"""

import concurrent.futures
import json
import os
import pathlib

import heading
import recipe
from absl import flags
from matplotlib import figure

from bert_tf import files
from bert_tf import program
from bert_tf.runs import options

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text files: globs, comma-separated.", required=True
)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with one folder per task.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for all outputs.", required=True
)
_PHASES = flags.DEFINE_string(
    "phases",
    "32:4000:64,128:3000:16,128:11000:32",
    "Length, steps and batch of each phase. The default takes 1 hour and 47 "
    "minutes on two cores.",
)
_MIXED_PRECISION = recipe.define_mixed_precision()

_VOCAB_SIZE = 8192
_MAX_SEQ_LENGTH = 128
_MASKED_LM_PROB = 0.15
_CONFIG = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": _MAX_SEQ_LENGTH,
    "type_vocab_size": 2,
}
# Such a small model cannot memorise the text in few epochs, but can a task.
_DROPOUT = {"pretrained": 0.0, "tuned": 0.1}
_HELD_OUT_EVERY = 100
_LEARNING_RATE = 5e-4
_NUM_WARMUP_STEPS = 500
_TUNING_EPOCHS = 3
# {tasks of GLUE: learning rates and seeds}, all of which are tried. The large
# task takes as long with one of each as the others with six runs.
_TUNING = {
    "SST-2": ("1e-4", "0"),
    "CoLA": ("1e-4,3e-4", "0,1,2"),
    "MRPC": ("1e-4,3e-4", "0,1,2"),
}


def make_records(folder, text, length, masking):
    """Returns records of a text with rows of this length; makes them once."""
    path = folder / f"{text.stem}-{length}.tfrecord"
    if not path.exists():
        recipe.run(
            "data/create_pretraining_data.py",
            input_file=text,
            output_file=path,
            vocab_file=folder / "vocab.txt",
            objective="full_sentences",
            masking=masking,
            masked_lm_prob=_MASKED_LM_PROB,
            max_seq_length=length,
            max_predictions_per_seq=round(_MASKED_LM_PROB * length) + 1,
            max_sequences_per_row=8,
            # Short examples fill the rows: 6 % padding instead of 12 %.
            short_seq_prob=0.5,
            dupe_factor=1,
        )
    return path


def draw(summaries, path):
    """Draws the masked-LM losses over time; returns hours of training."""
    hours = {
        step: seconds / 3600
        for step, seconds in recipe.seconds_by_step(summaries).items()
    }
    drawing = figure.Figure(figsize=(7, 3.5), layout="constrained")
    axes = drawing.subplots()
    for tag, label in (
        ("masked_lm_loss", "training"),
        (
            "eval/masked_lm_loss",
            f"held-out documents, rows of {_MAX_SEQ_LENGTH}",
        ),
    ):
        points = sorted(summaries[tag].items())
        points = [point for point in points if point[0] in hours]
        axes.plot(
            [hours[step] for step, _ in points],
            [loss for _, loss in points],
            label=label,
        )
    axes.set(xlabel="hours", ylabel="masked-LM loss, nats a token")
    axes.grid(alpha=0.3)
    axes.legend()
    drawing.savefig(path, dpi=110)
    return max(hours.values())


def write_configs(folder):
    """Returns {"pretrained", "tuned": path of its configuration}."""
    paths = {}
    for name, rate in _DROPOUT.items():
        config = {
            **_CONFIG,
            "hidden_dropout_prob": rate,
            "attention_probs_dropout_prob": rate,
        }
        paths[name] = folder / f"bert_config-{name}.json"
        paths[name].write_text(json.dumps(config, indent=2) + "\n")
    return paths


def pretrain(folder, records, eval_records, config_file):
    """Trains all phases; returns the folder of the model and summaries."""
    pretrained = folder / "pretrained"
    recipe.run(
        "-m bert_tf.run_pretraining",
        input_file=";".join(map(str, records)),
        eval_file=eval_records,
        bert_config_file=config_file,
        vocab_file=folder / "vocab.txt",
        output_dir=pretrained,
        do_train=True,
        do_eval=True,
        keep_best=True,
        mixed_precision=_MIXED_PRECISION.value,
        eval_batch_size=32,
        max_eval_steps=50,
        learning_rate=_LEARNING_RATE,
        phases=_PHASES.value,
        num_warmup_steps=_NUM_WARMUP_STEPS,
        learning_rate_drop=False,
        iterations_per_loop=100,
        save_checkpoints_steps=1000,
    )
    return pretrained


def tune(folder, config_file, **weights):
    """Tunes to all tasks; returns {(task, score): text} on their dev sets."""
    scores = {}
    for task, (learning_rates, seeds) in _TUNING.items():
        recipe.run(
            "-m bert_tf.run_glue",
            # Runs beside the other tuning: two with one core each are a third
            # faster than one with both.
            threads=1,
            data_dir=pathlib.Path(_GLUE_DIR.value).absolute(),
            task_name=task,
            output_dir=folder / task,
            bert_config_file=config_file,
            learning_rate=learning_rates,
            random_seed=seeds,
            num_train_epochs=_TUNING_EPOCHS,
            max_seq_length=_MAX_SEQ_LENGTH,
            mixed_precision=_MIXED_PRECISION.value,
            bucket_window_batches=64,
            **weights,
        )
        rows = json.loads((folder / task / "table.json").read_text())["table"]
        for row in rows:
            scores[task, row["score"]] = (
                f"{row['median']:.1f} ({row['best']:.1f})"
            )
    return scores


def main(_):
    from bert_tf.tasks.classification import glue_files

    # Report missing and wrong flags now, not after hours.
    parsed_phases = options.parse_phases(_PHASES.value)
    for task in _TUNING:
        glue_files.glue_task(task).check(
            os.path.join(_GLUE_DIR.value, task),
            (glue_files.TRAIN, glue_files.DEV),
        )
    paths = files.expand_globs(_INPUT_FILE.value)
    folder = recipe.open_output_dir(_OUTPUT_DIR.value, _MIXED_PRECISION.value)
    heading.show()
    train, held_out = recipe.divide(paths, folder, _HELD_OUT_EVERY)
    vocab_file = folder / "vocab.txt"
    if not vocab_file.exists():
        recipe.run(
            "data/learn_vocabulary.py",
            input_file=train,
            output_file=vocab_file,
            vocab_size=_VOCAB_SIZE,
        )
    records = [
        make_records(folder, train, phase.max_seq_length, "dynamic")
        for phase in parsed_phases
    ]
    eval_records = make_records(folder, held_out, _MAX_SEQ_LENGTH, "static")
    configs = write_configs(folder)
    pretrained = pretrain(folder, records, eval_records, configs["pretrained"])
    hours = draw(
        recipe.read_summaries(pretrained / "train"), folder / "curve.png"
    )
    print(f"\n{hours:.2f} hours of training.", flush=True)
    sides = {
        "pre-trained": {"init_checkpoint": pretrained},
        "new": {"vocab_file": vocab_file},
    }
    with concurrent.futures.ThreadPoolExecutor() as executor:
        tunings = {
            name: executor.submit(
                tune, folder / "tuned" / name, configs["tuned"], **weights
            )
            for name, weights in sides.items()
        }
    tables = {name: tuning.result() for name, tuning in tunings.items()}
    print("\nMedian of the seeds at the best rate (the best run):")
    print("| task | score |", " | ".join(tables), "|")
    print("|---|---|" + "---|" * len(tables))
    for task, score in tables["pre-trained"]:
        cells = (table[task, score] for table in tables.values())
        print(f"| {task} | {score} |", " | ".join(cells), "|")


if __name__ == "__main__":
    program.run(main)
