r"""ELECTRA beside masked LM: the same size, text and time, then tuned.

    python benchmarks/objectives.py --input_file=wikipedia.txt.xz --minutes=30 \
        --glue_dir=glue --output_dir=objectives

An encoder of ELECTRA's form, 4 layers of 256 with embeddings of 128, is
pre-trained from the same text twice: by its masked tokens (BERT's 80/10/10),
and as a discriminator beside a generator. Both have new masks in each epoch and
the same minutes on this machine, in which ELECTRA, of dearer steps, makes fewer
of them. Each is done with every seed,
and tuned to SST-2 and CoLA. The text holds a sentence a line and a blank line
between documents; every hundredth document is held out.

How many steps the minutes hold is measured first, for both: only that must be
alone on the machine. The minutes of the page are steps times the seconds of a
step measured then. Prints a page for results/. Run again after a stop, it
resumes.
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
    "glue_dir", None, "Folder with the folders of the tasks.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of all that is made.", required=True
)
_MINUTES = flags.DEFINE_float(
    "minutes",
    30.0,
    "Of training, for each objective and seed.",
    lower_bound=0.1,
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1"], "Of the pre-trainings.")
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
    "generator_size", 0.25, "Width of the generator, as a share."
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
# {objective: (rule of its masks, more flags of its training)}
_OBJECTIVES = {
    "masked_tokens": ("bert", {}),
    "replaced_tokens": ("electra", {"objective": "replaced_tokens"}),
}
# {objective: what is told of the held-out text beside the loss}
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
    """What an objective is trained with.

    Args:
        records, held_out: TFRecords to train and to evaluate on.
        vocabulary: Its file.
        config: Its config.json.
        arguments: Flags of its training.
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
        # The masks of what is held out are the same at every evaluation.
        held_out=make_records(folder, held_out, vocabulary, rule),
        vocabulary=vocabulary,
        config=folder / "config.json",
        arguments=arguments,
    )


def measure(folder, plan):
    """Returns (steps that the minutes hold, seconds of a step); once."""
    path = folder / "steps.json"
    if not path.exists():
        probe = pretrain(folder / "probe", plan, _NUM_PROBE_STEPS, seed=0)
        # The first of them waited for the graph.
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
        eval_input_file=plan.held_out,
        eval_batch_size=_BATCH_SIZE,
        max_eval_steps=50,
    )
    recipe.run(
        "-m bert_tf.run_glue",
        glue_dir=pathlib.Path(_GLUE_DIR.value).absolute(),
        tasks=",".join(_TASKS.value),
        output_dir=folder / "tuned",
        init_checkpoint=folder / "pretrained",
        learning_rates="1e-4",
        seeds=",".join(_TUNING_SEEDS.value),
        num_train_epochs=3,
        max_seq_length=_LENGTH,
        mixed_precision=_MIXED_PRECISION.value,
        bucket_window_batches=64,
    )
    table = json.loads((folder / "tuned" / "table.json").read_text())["table"]
    # The first score of a task is what it is known by.
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
    print(
        "\nMeasured: from here on, other work on the machine changes nothing."
    )
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
