r"""Compares small models that learn from MiniLM with ones that learn alone.

    python benchmarks/distillation.py --teacher=minilm --glue_dir=glue \
        --input_file='wikipedia.txt.xz,books.txt.xz' --minutes=45 \
        --output_dir=distillation

--teacher is the folder of all-MiniLM-L6-v2. There are two parts (--parts):

tasks: the teacher is tuned to MRPC and to SST-2, and distilled into a student
of three layers of its width, which begin as layers of the teacher. For
comparison, the same layers of the teacher before it was tuned are tuned without
a teacher. The losses and learning rates of both are chosen on a held-out slice
of the training set; the development set is used only once.

text: the teacher is distilled into four layers of 256 with its vocabulary, on
text (one sentence per line, a blank line between documents), once for each of
--recipes. For comparison, a model of that size learns masked words for the same
time. Then all are tuned to SST-2, CoLA and MRPC. First, it measures for all of
them how many steps fit into the minutes; only this part must run alone on the
machine. Text is not masked for the teacher, except for one token per row, which
no loss here reads.

Prints a page for results/. Rerun it to resume after a stop.
"""

import contextlib
import json
import math
import os
import pathlib
import statistics
import sys

import heading
import recipe
import sides
from absl import flags

from bert_tf import atomic
from bert_tf import files
from bert_tf import program

_TEACHER = flags.DEFINE_string(
    "teacher", None, "Folder of MiniLM.", required=True
)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with one folder per task.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for all outputs.", required=True
)
_PARTS = flags.DEFINE_list("parts", ["tasks", "text"], "Parts to run.")
_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text files of part text: globs, comma-separated."
)
_MINUTES = flags.DEFINE_float(
    "minutes",
    45.0,
    "Training time of each model of part text.",
    lower_bound=0.1,
)
_RECIPES = flags.DEFINE_list(
    "recipes",
    ["relations", "hidden+relations"],
    "Part text: losses of each student, joined by +.",
)
_MIXED_PRECISION = recipe.define_mixed_precision()

# To choose settings, every held_out_every-th row is held out, and every
# kept_every-th of the others is trained on. The seeds are those of the final
# runs; num_train_epochs is for all runs.
_TASKS = {
    "MRPC": {
        "held_out_every": 8,
        "kept_every": 1,
        "num_train_epochs": 3,
        "seeds": (0, 1, 2),
    },
    "SST-2": {
        "held_out_every": 40,
        "kept_every": 8,
        "num_train_epochs": 1,
        "seeds": (0,),
    },
}
_LAYERS = (1, 3, 5)
_STUDENT_LOSSES = (
    "soft_targets:1",
    "soft_targets:1,labels:1",
    "soft_targets:1,hidden:1,attention:1",
)
_RATES = ("5e-5", "1e-4")
_TEACHER_RATE = "3e-5"
_TUNING = {
    "max_seq_length": 128,
    "bucket_window_batches": 64,
}

_LENGTH = 128
_BATCH_SIZE = 32
_NUM_PROBE_STEPS = 200
_HELD_OUT_EVERY = 100
_MASKED_LM = "masked_lm"
_SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": _LENGTH,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# Divides 256 and 384.
_RELATION_HEADS = 16
# {task: learning rates and seeds} of tuning after the part text.
_GLUE = {
    "SST-2": ("1e-4", "0"),
    "CoLA": ("1e-4,3e-4", "0,1,2"),
    "MRPC": ("1e-4,3e-4", "0,1,2"),
}


def slice_rows(task, folder):
    """Writes part of the training set as train.tsv and dev.tsv, if missing."""
    settings = _TASKS[task]
    if not (folder / "dev.tsv").exists():
        folder.mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(_GLUE_DIR.value, task, "train.tsv")
        head, *rows = path.read_text("utf-8").removesuffix("\n").split("\n")
        held_out = rows[:: settings["held_out_every"]]
        del rows[:: settings["held_out_every"]]
        rows = rows[:: settings["kept_every"]]
        for name, chosen in (("train.tsv", rows), ("dev.tsv", held_out)):
            text = "\n".join([head, *chosen]) + "\n"
            atomic.write_text(folder / name, text)
    return folder


def score(task, folder):
    """Returns the score of a run, in percent."""
    from bert_tf.tasks.classification import glue_files
    from bert_tf.training import evaluation

    metric = glue_files.glue_task(task).task.main_metric
    return 100 * evaluation.read_results(folder / "eval_results.txt")[metric]


def tune(task, data, folder, start, rate, seed=0):
    """Tunes without a teacher; returns the score."""
    if not (folder / "eval_results.txt").exists():
        recipe.run(
            "-m bert_tf.run_classifier",
            task_name=task,
            data_dir=data,
            output_dir=folder,
            init_checkpoint=start,
            do_train=True,
            do_eval=True,
            learning_rate=rate,
            random_seed=seed,
            num_train_epochs=_TASKS[task]["num_train_epochs"],
            mixed_precision=_MIXED_PRECISION.value,
            **_TUNING,
        )
    return score(task, folder)


def distil(task, data, folder, teacher, losses, rate, seed=0):
    """Tunes with a teacher; returns the score."""
    if not (folder / "eval_results.txt").exists():
        recipe.run(
            "-m bert_tf.run_distillation",
            teacher=teacher,
            student_layers=",".join(map(str, _LAYERS)),
            data_dir=data,
            output_dir=folder,
            do_eval=True,
            losses=losses,
            learning_rate=rate,
            random_seed=seed,
            num_train_epochs=_TASKS[task]["num_train_epochs"],
            mixed_precision=_MIXED_PRECISION.value,
            **_TUNING,
        )
    return score(task, folder)


def shallow(folder):
    """Writes a model folder of the chosen layers of the untuned teacher."""
    from bert_tf import checkpoints
    from bert_tf.checkpoints import starting_point
    from bert_tf.models import distiller
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.runs import distillation

    if not (folder / "README.md").exists():
        teacher = starting_point.find(_TEACHER.value)
        start = distillation.find_student(teacher, student_layers=_LAYERS)
        student = BertEncoder(start.config)
        taught = checkpoints.load(_TEACHER.value, BertEncoder)
        distiller.copy_layers(taught, student, _LAYERS)
        checkpoints.save(
            str(folder),
            student,
            start.tokenizer,
            start.config.max_position_embeddings,
        )
    return folder


def choose(task, folder, start):
    """Returns the best (losses, rate) with a teacher, and rate without."""
    data = slice_rows(task, folder / "slice" / task)
    teacher = folder / "teacher"
    taught_by = tune(task, data, teacher, _TEACHER.value, _TEACHER_RATE)
    taught = {
        (losses, rate): distil(
            task,
            data,
            folder / f"{losses.replace(':', '_').replace(',', '-')}-{rate}",
            teacher,
            losses,
            rate,
        )
        for losses in _STUDENT_LOSSES
        for rate in _RATES
    }
    alone = {
        rate: tune(task, data, folder / f"alone-{rate}", start, rate)
        for rate in _RATES
    }
    print(f"\n{task}, on the slice of its training set:\n")
    print("| losses | learning rate | score |\n|---|---|---|")
    rows = [("the teacher", _TEACHER_RATE, taught_by)]
    rows += [(*setting, value) for setting, value in taught.items()]
    rows += [("no teacher", rate, value) for rate, value in alone.items()]
    for losses, rate, value in rows:
        print(f"| {losses} | {rate} | {value:.1f} |", flush=True)
    return max(taught, key=taught.get), max(alone, key=alone.get)


def count_parameters(folder):
    from bert_tf.checkpoints import reader

    with reader.open_checkpoint(str(folder)) as checkpoint:
        return sum(map(math.prod, checkpoint.container.shapes.values()))


def strings_per_second(models, texts, batch_size=8, rounds=5):
    """Returns {name: strings per second} of exports, which take turns."""
    from bert_tf.serving import exporter

    script = pathlib.Path(__file__).with_name("answer_strings.py")
    batches = [
        json.dumps([[text] for text in texts[start : start + batch_size]])
        for start in range(0, len(texts) - batch_size + 1, batch_size)
    ]
    seconds = dict.fromkeys(models, 0.0)
    with contextlib.ExitStack() as stack:
        asked = {}
        for name, folder in models.items():
            export_dir = folder / "servable"
            path = export_dir / "1"
            if not path.exists():
                exporter.export(str(folder), str(export_dir))
            command = [sys.executable, str(script), "saved_model", "classes"]
            asked[name] = sides.Side(name, [*command, str(path), "1"])
            stack.callback(asked[name].close)
        # The first round is not counted.
        for number in range(rounds + 1):
            for name, side in asked.items():
                for batch in batches:
                    taken, _ = json.loads(side.ask(batch))
                    seconds[name] += taken if number else 0.0
    num_strings = rounds * batch_size * len(batches)
    return {name: num_strings / seconds[name] for name in models}


def run_tasks(folder):
    """Runs the part tasks: chooses settings, tunes, and prints the table."""
    start = shallow(folder / "shallow")
    rows, served = [], {}
    for task, settings in _TASKS.items():
        here = folder / task
        (losses, rate), alone_rate = choose(task, here / "chosen", start)
        data = pathlib.Path(_GLUE_DIR.value, task).absolute()
        scores = {"teacher": [], "student": [], "alone": []}
        for seed in settings["seeds"]:
            paths = {name: here / f"{name}-{seed}" for name in scores}
            scores["teacher"].append(
                tune(
                    *(task, data, paths["teacher"], _TEACHER.value),
                    _TEACHER_RATE,
                    seed,
                )
            )
            scores["student"].append(
                distil(
                    *(task, data, paths["student"], paths["teacher"]),
                    *(losses, rate, seed),
                )
            )
            scores["alone"].append(
                tune(task, data, paths["alone"], start, alone_rate, seed)
            )
        served = {name: paths[name] for name in ("teacher", "student")}
        rows.append((task, losses, rate, alone_rate, scores, served))
    lines = pathlib.Path(_GLUE_DIR.value, "SST-2", "dev.tsv")
    texts = [
        line.split("\t")[0]
        for line in lines.read_text("utf-8").splitlines()[1:]
    ]
    # Speed is measured on the last task, whose examples are single texts.
    speeds = strings_per_second(served, texts)
    print(
        "\n| task | losses | rate with, without | teacher | student | share "
        "| no teacher |\n|---|---|---|---|---|---|---|"
    )
    for task, losses, rate, alone_rate, scores, _ in rows:
        means = {name: statistics.fmean(scores[name]) for name in scores}
        cells = (
            *(task, losses, f"{rate}, {alone_rate}"),
            _told(scores["teacher"]),
            _told(scores["student"]),
            f"{means['student'] / means['teacher']:.1%}",
            _told(scores["alone"]),
        )
        print(f"| {' | '.join(cells)} |")
    print("\n| | parameters | strings/s, 8 in flight |\n|---|---|---|")
    for name, path in served.items():
        parameters = count_parameters(path)
        print(f"| {name} | {parameters:,} | {speeds[name]:.0f} |")


def _told(scores):
    """Returns the mean as text, followed by all scores if there are several."""
    text = f"{statistics.fmean(scores):.1f}"
    if len(scores) > 1:
        text += f" ({', '.join(f'{score:.1f}' for score in scores)})"
    return text


def make_records(folder, text, vocabulary, name, **masking):
    path = folder / f"{text.stem}-{name}.tfrecord"
    if not path.exists():
        recipe.run(
            "data/create_pretraining_data.py",
            input_file=text,
            output_file=path,
            vocab_file=vocabulary,
            objective="full_sentences",
            masking="dynamic",
            max_seq_length=_LENGTH,
            dupe_factor=1,
            **masking,
        )
    return path


def pretrain(recipe_name, folder, records, vocabulary, config, num_steps):
    """Trains a model with a recipe; returns the seconds per step."""
    common = {
        "output_dir": folder,
        "bert_config_file": config,
        "mixed_precision": _MIXED_PRECISION.value,
        "train_batch_size": _BATCH_SIZE,
        "learning_rate": 5e-4,
        "learning_rate_drop": "false",
        "num_train_steps": num_steps,
        "num_warmup_steps": num_steps // 10,
        "iterations_per_loop": 100,
    }
    if recipe_name == _MASKED_LM:
        recipe.run(
            "-m bert_tf.run_pretraining",
            input_file=records[_MASKED_LM],
            vocab_file=vocabulary,
            do_train=True,
            **common,
        )
    else:
        recipe.run(
            "-m bert_tf.run_distillation",
            teacher=pathlib.Path(_TEACHER.value).absolute(),
            input_file=records["unmasked"],
            losses=recipe_name.replace("+", ","),
            relation_heads=_RELATION_HEADS,
            **common,
        )
    summaries = recipe.read_summaries(folder / "train")
    # The first also includes tracing; the minimum leaves it out.
    return min(summaries["step_seconds"].values())


def run_text(folder):
    """Runs the part text: trains with all recipes, tunes, prints the table."""
    from bert_tf.checkpoints import starting_point

    paths = files.expand_globs(_INPUT_FILE.value)
    train, _ = recipe.divide(paths, folder, _HELD_OUT_EVERY)
    start = starting_point.find(_TEACHER.value)
    vocabulary = pathlib.Path(_TEACHER.value, "vocab.txt").absolute()
    config = folder / "config.json"
    values = {
        "model_type": "bert",
        "vocab_size": start.config.vocab_size,
        **_SIZES,
    }
    config.write_text(json.dumps(values, indent=2) + "\n")
    records = {
        _MASKED_LM: make_records(
            folder,
            train,
            vocabulary,
            _MASKED_LM,
            max_predictions_per_seq=round(0.15 * _LENGTH) + 1,
        ),
        "unmasked": make_records(
            folder,
            train,
            vocabulary,
            "unmasked",
            masked_lm_prob=1e-3,
            max_predictions_per_seq=1,
        ),
    }
    arguments = records, vocabulary, config
    plans = {}
    for name in (_MASKED_LM, *_RECIPES.value):
        here = folder / name
        here.mkdir(exist_ok=True)
        measured = here / "steps.json"
        if not measured.exists():
            seconds = pretrain(
                name, here / "probe", *arguments, _NUM_PROBE_STEPS
            )
            steps = int(60 * _MINUTES.value / seconds) // 100 * 100
            plan = {"steps": max(100, steps), "step_seconds": seconds}
            atomic.write_text(measured, json.dumps(plan))
        plans[name] = json.loads(measured.read_text())
    print(
        "\nMeasured. From here on, other work on the machine does no harm.",
        flush=True,
    )
    tables = {}
    for name, plan in plans.items():
        here = folder / name
        pretrain(name, here / "pretrained", *arguments, plan["steps"])
        tables[name] = tune_all(here)
    print(
        "\n| recipe | minutes | steps | "
        + " | ".join(f"{task} {metric}" for task, metric in tables[_MASKED_LM])
        + " |"
    )
    print("|---|---|---|" + "---|" * len(tables[_MASKED_LM]))
    for name, plan in plans.items():
        cells = (
            *(name, f"{plan['steps'] * plan['step_seconds'] / 60:.1f}"),
            f"{plan['steps']:,}",
            *(f"{value:.1f}" for value in tables[name].values()),
        )
        print(f"| {' | '.join(cells)} |")
    print("\nMedians of the seeds, at the best learning rate.")
    student = folder / _RECIPES.value[0] / "pretrained"
    print(f"\n{count_parameters(student):,} parameters, without heads.")


def tune_all(folder):
    """Returns {(task, score): median over the seeds} of a trained model."""
    medians = {}
    for task, (rates, seeds) in _GLUE.items():
        recipe.run(
            "-m bert_tf.run_glue",
            data_dir=pathlib.Path(_GLUE_DIR.value).absolute(),
            task_name=task,
            output_dir=folder / "tuned" / task,
            init_checkpoint=folder / "pretrained",
            learning_rate=rates,
            random_seed=seeds,
            num_train_epochs=3,
            mixed_precision=_MIXED_PRECISION.value,
            **_TUNING,
        )
        table = json.loads(
            (folder / "tuned" / task / "table.json").read_text()
        )["table"]
        for row in table:
            medians[task, row["score"]] = row["median"]
    return medians


def main(_):
    # Report missing files and flags now, not after hours.
    parts = {"tasks": run_tasks, "text": run_text}
    for name in _PARTS.value:
        if name not in parts:
            raise ValueError(
                f"--parts must be from {', '.join(parts)}. Received: {name!r}."
            )
    if "text" in _PARTS.value:
        program.require(input_file=_INPUT_FILE.value)
    from bert_tf.tasks.classification import glue_files

    tasks = {*(_TASKS if "tasks" in _PARTS.value else ())}
    tasks |= {*(_GLUE if "text" in _PARTS.value else ())}
    for task in sorted(tasks):
        glue_files.glue_task(task).check(
            os.path.join(_GLUE_DIR.value, task),
            (glue_files.TRAIN, glue_files.DEV),
        )
    output_dir = recipe.open_output_dir(
        _OUTPUT_DIR.value, _MIXED_PRECISION.value
    )
    heading.show()
    for name in _PARTS.value:
        folder = output_dir / name
        folder.mkdir(exist_ok=True)
        parts[name](folder)


if __name__ == "__main__":
    program.run(main)
