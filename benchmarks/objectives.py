r"""Compares ELECTRA with masked LM: the same size, text and time, then tuned.

    python benchmarks/objectives.py --input_file=wikipedia.txt.xz --minutes=30 \
        --glue_dir=glue --output_dir=objectives

An encoder of ELECTRA's form, 4 layers of 256 with embeddings of 128, is
pre-trained from the same text twice: on masked tokens (BERT's 80/10/10), and as
a discriminator with a generator. Both have new masks in each epoch and the same
minutes on this machine; ELECTRA's steps take longer, so it makes fewer of them.
Each is trained with every seed, then tuned to SST-2 and CoLA. The text has one
sentence per line and a blank line between documents; every hundredth document
is held out.

First measures for both how many steps fit into the minutes; only this part must
run alone on the machine. The minutes on the page are the steps times the
seconds per step measured then. Prints a page for results/. Rerun it to resume
after a stop.
"""

import dataclasses
import json
import os
import pathlib
import statistics

import heading
import recipe
from absl import flags

from bert_tf import files
from bert_tf import program

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text files: globs, comma-separated.", required=True
)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with one folder per task.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for all outputs.", required=True
)
_MINUTES = flags.DEFINE_float(
    "minutes",
    30.0,
    "Training time for each objective and seed.",
    lower_bound=0.1,
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1"], "Seeds of pre-training.")
_TASKS = flags.DEFINE_list("tasks", ["SST-2", "CoLA"], "Tasks to tune to.")
_TUNING_SEEDS = flags.DEFINE_list(
    "tuning_seeds",
    ["0", "1", "2"],
    "Of the fine-tunings, whose median is told: what is tuned is small and "
    "the tasks are noisy.",
)
for _name in ("seeds", "tuning_seeds"):
    flags.register_validator(
        _name,
        lambda seeds: seeds and all(seed.isdecimal() for seed in seeds),
        "must be integers from 0 on, comma-separated.",
    )
_GENERATOR_SIZE = flags.DEFINE_float(
    "generator_size",
    0.25,
    "Width of the generator, as a share of the discriminator's.",
)
_MIXED_PRECISION = recipe.define_mixed_precision()

_HELD_OUT_EVERY = 100
_LENGTH = 64
_BATCH_SIZE = 32
_VOCAB_SIZE = 8192
_NUM_PROBE_STEPS = 300
_CONFIG = {
    "model_type": "electra",
    "vocab_size": _VOCAB_SIZE,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
}
# {objective: (masking rule, more flags for its training)}
_OBJECTIVES = {
    "masked_tokens": ("bert", {}),
    "replaced_tokens": ("electra", {"objective": "replaced_tokens"}),
}
# {objective: what is printed for the held-out text besides the loss}
_HELD_OUT = {
    "masked_tokens": "masked_lm_accuracy",
    "replaced_tokens": "discriminator_recall",
}


def make_records(folder, text, vocabulary, rule, **more):
    path = folder / f"{rule}-{text.stem}.tfrecord"
    if not path.exists():
        recipe.run(
            "data/create_pretraining_data.py",
            input_file=text,
            output_file=path,
            vocab_file=vocabulary,
            objective="full_sentences",
            masking_rule=rule,
            max_seq_length=_LENGTH,
            max_predictions_per_seq=round(0.15 * _LENGTH) + 1,
            dupe_factor=1,
            **more,
        )
    return path


def pretrain(folder, plan, num_steps, seed, **more):
    """Trains; returns the summaries."""
    recipe.run(
        "-m bert_tf.run_pretraining",
        input_file=plan.records,
        bert_config_file=plan.config,
        vocab_file=plan.vocabulary,
        output_dir=folder,
        do_train=True,
        mixed_precision=_MIXED_PRECISION.value,
        train_batch_size=_BATCH_SIZE,
        learning_rate=5e-4,
        num_train_steps=num_steps,
        num_warmup_steps=num_steps // 10,
        iterations_per_loop=100,
        random_seed=seed,
        **plan.arguments,
        **more,
    )
    return recipe.read_summaries(folder / "train")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The data and configuration of an objective's training.

    Args:
        records, held_out: TFRecords to train and to evaluate on.
        vocabulary: The vocabulary file.
        config: The path of config.json.
        arguments: Flags for its training.
    """

    records: pathlib.Path
    held_out: pathlib.Path
    vocabulary: pathlib.Path
    config: pathlib.Path
    arguments: dict


def make_plan(objective, folder, train, held_out, vocabulary):
    rule, arguments = _OBJECTIVES[objective]
    if arguments:
        arguments = arguments | {"generator_size": _GENERATOR_SIZE.value}
    return Plan(
        records=make_records(
            folder, train, vocabulary, rule, masking="dynamic"
        ),
        # Held-out masks are the same in every evaluation.
        held_out=make_records(folder, held_out, vocabulary, rule),
        vocabulary=vocabulary,
        config=folder / "config.json",
        arguments=arguments,
    )


def measure(folder, plan):
    """Returns (steps that fit the minutes, seconds per step), measured once."""
    path = folder / "steps.json"
    if not path.exists():
        probe = pretrain(folder / "probe", plan, _NUM_PROBE_STEPS, seed=0)
        # The first also includes tracing; the minimum leaves it out.
        seconds = min(probe["step_seconds"].values())
        num_steps = int(60 * _MINUTES.value / seconds) // 100 * 100
        path.write_text(json.dumps([max(100, num_steps), seconds]))
    return json.loads(path.read_text())


def train_and_tune(folder, plan, num_steps, seed):
    """Returns {task: median score} and the last evaluation, {name: float}."""
    pretrain(
        folder / "pretrained",
        plan,
        num_steps,
        seed,
        do_eval=True,
        eval_file=plan.held_out,
        eval_batch_size=_BATCH_SIZE,
        max_eval_steps=50,
    )
    recipe.run(
        "-m bert_tf.run_glue",
        data_dir=pathlib.Path(_GLUE_DIR.value).absolute(),
        task_name=",".join(_TASKS.value),
        output_dir=folder / "tuned",
        init_checkpoint=folder / "pretrained",
        learning_rate="1e-4",
        random_seed=",".join(_TUNING_SEEDS.value),
        num_train_epochs=3,
        max_seq_length=_LENGTH,
        mixed_precision=_MIXED_PRECISION.value,
        bucket_window_batches=64,
    )
    table = json.loads((folder / "tuned" / "table.json").read_text())["table"]
    # The first score of a task is its main one.
    medians = {row["task"]: row["median"] for row in reversed(table)}
    by_name = {name.replace("-", ""): medians[name] for name in medians}
    scores = {
        task: by_name[task.lower().replace("-", "")] for task in _TASKS.value
    }
    lines = (folder / "pretrained" / "eval_results.txt").read_text()
    pairs = (line.split(" = ") for line in lines.splitlines())
    return scores, {name: float(value) for name, value in pairs}


def main(_):
    from bert_tf.tasks.classification import glue_files

    for task in _TASKS.value:
        glue_files.glue_task(task).check(
            os.path.join(_GLUE_DIR.value, task),
            (glue_files.TRAIN, glue_files.DEV),
        )
    paths = files.expand_globs(_INPUT_FILE.value)
    folder = recipe.open_output_dir(_OUTPUT_DIR.value, _MIXED_PRECISION.value)
    heading.show()
    train, held_out = recipe.divide(paths, folder, _HELD_OUT_EVERY)
    vocabulary = folder / "vocab.txt"
    if not vocabulary.exists():
        recipe.run(
            "data/learn_vocabulary.py",
            input_file=train,
            output_file=vocabulary,
            vocab_size=_VOCAB_SIZE,
        )
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=2) + "\n")
    plans = {
        objective: make_plan(objective, folder, train, held_out, vocabulary)
        for objective in _OBJECTIVES
    }
    measured = {}
    for objective, plan in plans.items():
        (folder / objective).mkdir(exist_ok=True)
        measured[objective] = measure(folder / objective, plan)
    print("\nMeasured. From here on, other work on the machine does no harm.")
    rows, scores = [], {}
    for objective, plan in plans.items():
        num_steps, seconds = measured[objective]
        for seed in _SEEDS.value:
            found, last = train_and_tune(
                folder / objective / f"seed-{seed}", plan, num_steps, seed
            )
            scores.setdefault(objective, []).append(found)
            name = _HELD_OUT[objective]
            rows.append(
                (
                    objective,
                    seed,
                    f"{num_steps * seconds / 60:.1f}",
                    f"{num_steps:,}",
                    f"{last['masked_lm_loss']:.3f}",
                    f"{name} {last[name]:.1%}",
                    *(f"{found[task]:.1f}" for task in _TASKS.value),
                )
            )
    tasks = [f"{task} dev" for task in _TASKS.value]
    print(
        f"\nScores are medians of {len(_TUNING_SEEDS.value)} fine-tunings. The "
        "masked-LM loss of ELECTRA is its generator's.\n"
    )
    names = (
        *("objective", "seed", "minutes", "steps"),
        *("held-out masked-LM loss", "held out", *tasks),
    )
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()
    for objective, found in scores.items():
        means = ", ".join(
            f"{task} {statistics.mean(each[task] for each in found):.1f}"
            for task in _TASKS.value
        )
        print(f"- Mean of the seeds, {objective}: {means}")


if __name__ == "__main__":
    program.run(main)
