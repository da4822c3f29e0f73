r"""Pre-trains small models of three families from text by their recipes.

    python benchmarks/families.py --input_file=wikipedia.txt.xz --minutes=20 \
        --glue_dir=glue --output_dir=families

BERT (WordPiece, next sentence), RoBERTa (byte-level BPE, full sentences, new
masks in each epoch) and ALBERT (unigram, sentence order, n-grams) each have 4
layers of 256 and their own vocabulary from the same text. Each is trained for
the same time on this machine, then tuned to SST-2. The text has one sentence
per line and a blank line between documents; every hundredth document is held
out.

First measures for all families how many steps fit into the minutes; only this
part must run alone on the machine. The minutes on the page are the steps times
the seconds per step measured then. Draws the losses into curves.png and prints
a page for results/. Rerun it to resume after a stop.
"""

import dataclasses
import json
import math
import os
import pathlib

import heading
import recipe
from absl import flags
from matplotlib import figure

from bert_tf import files
from bert_tf import program

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text files: globs, comma-separated.", required=True
)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder that has the folder SST-2.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for all outputs.", required=True
)
_MINUTES = flags.DEFINE_float(
    "minutes", 20.0, "Training time of each family.", lower_bound=0.1
)
_FAMILIES = flags.DEFINE_list(
    "families", ["bert", "roberta", "albert"], "Families to train."
)
_MIXED_PRECISION = recipe.define_mixed_precision()

_HELD_OUT_EVERY = 100
_LENGTH = 64
_BATCH_SIZE = 32
_NUM_PROBE_STEPS = 300
_SIZES = {
    "vocab_size": 8192,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# {family: (config.json, kind of the vocabulary, flags of its records)}
_RECIPES = {
    "bert": (
        {"max_position_embeddings": 128, "type_vocab_size": 2},
        "wordpiece",
        {"objective": "next_sentence", "dupe_factor": 2},
    ),
    "roberta": (
        {
            "max_position_embeddings": 130,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "pad_token_id": 1,
        },
        "byte_bpe",
        {"objective": "full_sentences", "masking": "dynamic", "dupe_factor": 1},
    ),
    "albert": (
        {
            "max_position_embeddings": 128,
            "type_vocab_size": 2,
            "embedding_size": 128,
            "num_hidden_groups": 1,
            "hidden_act": "gelu_new",
        },
        "unigram",
        {
            "objective": "sentence_order",
            "do_ngram_mask": True,
            "dupe_factor": 2,
        },
    ),
}


def learn(folder, text, kind):
    """Returns the vocabulary, a file or folder; learns it if it is missing."""
    name = "vocab.txt" if kind == "wordpiece" else "tokenizer"
    path = folder / name
    if not path.exists():
        recipe.run(
            "data/learn_vocabulary.py",
            model=kind,
            input_file=text,
            output_file=path,
            vocab_size=_SIZES["vocab_size"],
        )
    return path


def make_records(folder, text, vocabulary, arguments):
    path = folder / f"{text.stem}.tfrecord"
    if not path.exists():
        recipe.run(
            "data/create_pretraining_data.py",
            input_file=text,
            output_file=path,
            vocab_file=vocabulary,
            max_seq_length=_LENGTH,
            max_predictions_per_seq=round(0.15 * _LENGTH) + 1,
            **arguments,
        )
    return path


def pretrain(folder, records, vocabulary, config, num_steps, **more):
    """Trains; returns the summaries."""
    recipe.run(
        "-m bert_tf.run_pretraining",
        input_file=records,
        bert_config_file=config,
        vocab_file=vocabulary,
        output_dir=folder,
        do_train=True,
        mixed_precision=_MIXED_PRECISION.value,
        train_batch_size=_BATCH_SIZE,
        learning_rate=5e-4,
        num_train_steps=num_steps,
        num_warmup_steps=num_steps // 10,
        iterations_per_loop=100,
        **more,
    )
    return recipe.read_summaries(folder / "train")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The data, configuration and length of a family's training.

    Args:
        records, held_out: TFRecords to train and to evaluate on.
        vocabulary: The file or folder of the vocabulary.
        config: The path of config.json.
        num_steps: Steps that fit into the minutes.
        step_seconds: Seconds of one step, alone on the machine.
    """

    records: pathlib.Path
    held_out: pathlib.Path
    vocabulary: pathlib.Path
    config: pathlib.Path
    num_steps: int
    step_seconds: float


def make_plan(family, folder, train, held_out):
    """Makes a family's vocabulary and records, and times some steps."""
    values, kind, arguments = _RECIPES[family]
    folder.mkdir(exist_ok=True)
    config = folder / "config.json"
    values = {"model_type": family, **_SIZES, **values}
    config.write_text(json.dumps(values, indent=2) + "\n")
    vocabulary = learn(folder, train, kind)
    records = make_records(folder, train, vocabulary, arguments)
    # Held-out masks are the same in every evaluation.
    static = arguments | {"masking": "static", "dupe_factor": 1}
    eval_records = make_records(folder, held_out, vocabulary, static)
    measured = folder / "steps.json"
    if not measured.exists():
        probe = pretrain(
            folder / "probe", records, vocabulary, config, _NUM_PROBE_STEPS
        )
        # The first also includes tracing; the minimum leaves it out.
        seconds = min(probe["step_seconds"].values())
        num_steps = int(60 * _MINUTES.value / seconds) // 100 * 100
        values = {"num_steps": max(100, num_steps), "step_seconds": seconds}
        measured.write_text(json.dumps(values))
    return Plan(
        records=records,
        held_out=eval_records,
        vocabulary=vocabulary,
        config=config,
        **json.loads(measured.read_text()),
    )


def train_family(folder, plan):
    """Trains and tunes a family; returns (summaries, score on SST-2)."""
    summaries = pretrain(
        folder / "pretrained",
        plan.records,
        plan.vocabulary,
        plan.config,
        plan.num_steps,
        do_eval=True,
        # With this flag, an evaluation follows each save.
        keep_best=True,
        eval_file=plan.held_out,
        eval_batch_size=_BATCH_SIZE,
        max_eval_steps=50,
        save_checkpoints_steps=max(100, plan.num_steps // 1000 * 100),
    )
    recipe.run(
        "-m bert_tf.run_glue",
        data_dir=pathlib.Path(_GLUE_DIR.value).absolute(),
        task_name="SST-2",
        output_dir=folder / "tuned",
        init_checkpoint=folder / "pretrained",
        learning_rate="1e-4",
        random_seed="0",
        num_train_epochs=1,
        max_seq_length=_LENGTH,
        mixed_precision=_MIXED_PRECISION.value,
        bucket_window_batches=64,
    )
    table = json.loads((folder / "tuned" / "table.json").read_text())["table"]
    return summaries, table[0]["median"]


def draw(plans, found, path):
    """Draws the losses on held-out documents over minutes of training."""
    drawing = figure.Figure(figsize=(7, 3.5), layout="constrained")
    axes = drawing.subplots()
    for family, (summaries, _) in found.items():
        points = sorted(summaries["eval/masked_lm_loss"].items())
        axes.plot(
            [step * plans[family].step_seconds / 60 for step, _ in points],
            [loss for _, loss in points],
            label=family,
        )
    axes.set(xlabel="minutes", ylabel="masked-LM loss, nats a token")
    axes.grid(alpha=0.3)
    axes.legend()
    drawing.savefig(path, dpi=110)


def main(_):
    from bert_tf.checkpoints import reader
    from bert_tf.tasks.classification import glue_files

    glue_files.glue_task("SST-2").check(
        os.path.join(_GLUE_DIR.value, "SST-2"),
        (glue_files.TRAIN, glue_files.DEV),
    )
    paths = files.expand_globs(_INPUT_FILE.value)
    folder = recipe.open_output_dir(_OUTPUT_DIR.value, _MIXED_PRECISION.value)
    heading.show()
    train, held_out = recipe.divide(paths, folder, _HELD_OUT_EVERY)
    plans = {
        family: make_plan(family, folder / family, train, held_out)
        for family in _FAMILIES.value
    }
    print("\nMeasured. From here on, other work on the machine does no harm.")
    found = {
        family: train_family(folder / family, plan)
        for family, plan in plans.items()
    }
    draw(plans, found, folder / "curves.png")
    print(
        "\n| family | parameters | minutes | steps | held-out masked-LM loss "
        "| accuracy | accuracy of pairs | SST-2 dev |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for family, (_, score) in found.items():
        plan = plans[family]
        result = folder / family / "pretrained" / "eval_results.txt"
        lines = (line.split(" = ") for line in result.read_text().splitlines())
        last = {name: float(value) for name, value in lines}
        pairs = last.get("next_sentence_accuracy")
        with reader.open_checkpoint(
            str(folder / family / "pretrained")
        ) as checkpoint:
            shapes = checkpoint.container.shapes.values()
        cells = (
            family,
            f"{sum(map(math.prod, shapes)):,}",
            f"{plan.num_steps * plan.step_seconds / 60:.1f}",
            f"{plan.num_steps:,}",
            f"{last['masked_lm_loss']:.3f}",
            f"{last['masked_lm_accuracy']:.1%}",
            "" if pairs is None else f"{pairs:.1%}",
            f"{score:.1f}",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    program.run(main)
