r"""Times raw strings to labels beside transformers and ONNX Runtime.

    python benchmarks/serving.py --init_checkpoint=minilm \
        --text_file=glue/SST-2/dev.tsv --peer_python=/env/peers/bin/python \
        --onnxruntime_python=/env/onnxruntime/bin/python

--init_checkpoint is a model folder; it gets a new classification head of two
classes, and the one resulting folder is exported for the one side and read by
transformers on the other, whose Python is --peer_python. With
--onnxruntime_python there is a third: ONNX Runtime and `tokenizers`, with the
model that torch.onnx makes of transformers'. Each side is a process of its own;
they take turns of 96 strings, and while one answers the others wait. (Where
they change after every call, each finds the caches full of the others' weights
and its own threads asleep, which no server does.) A call holds 1, 8 or 32
strings, as a server that batches the requests in flight would make it. Prints a
table in Markdown; the probabilities of all sides are compared on the way.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import heading
import numpy as np
import sides as sides_lib
from absl import app
from absl import flags

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving import exporter
from bert_tf.serving import options
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.classification.task import ClassificationTask

_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "A model folder.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file",
    None,
    "TSV with a header, whose first column is the text.",
    required=True,
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "A Python with transformers and torch.", required=True
)
_ONNXRUNTIME_PYTHON = flags.DEFINE_string(
    "onnxruntime_python",
    None,
    "A Python with onnxruntime and tokenizers; --peer_python's must have onnx "
    "and onnxscript then. Default: no such side.",
)
_STRINGS = flags.DEFINE_integer(
    "strings", 960, "Strings to answer for each number in flight."
)
_PRECISION = flags.DEFINE_enum(
    "serving_precision",
    options.FLOAT32,
    options.PRECISIONS,
    "Arithmetic of this library's side; the others' is float32.",
)
_FREEZE = flags.DEFINE_bool(
    "freeze", False, "Whether this library's weights are constants."
)
_IN_FLIGHT = flags.DEFINE_list("in_flight", ["1", "8", "32"], "Batch sizes.")

_TASK = ClassificationTask(
    name="sst-2",
    text_features=("sentence",),
    labels=("negative", "positive"),
    metrics=("accuracy",),
)
_MAX_SEQ_LENGTH = 128
_STRINGS_A_TURN = 96
_TOLERANCES = {options.FLOAT32: 1e-4, options.BFLOAT16: 0.1}


def start_side(name, python, path):
    script = pathlib.Path(__file__).with_name("answer_strings.py")
    return sides_lib.Side(name, [python, str(script), name, path])


def make_folders(folder):
    """Makes the model folder, and its export; returns the two paths."""
    start = starting_point.find(_INIT_CHECKPOINT.value)
    model = BertClassifier(start.config, num_labels=2)
    checkpoints.load_weights(_INIT_CHECKPOINT.value, model.encoder)
    model_dir = f"{folder}/model"
    checkpoints.save(
        model_dir,
        model,
        start.tokenizer,
        _MAX_SEQ_LENGTH,
        task=_TASK.to_dict(),
        label_names=_TASK.labels,
    )
    exported = exporter.export(
        model_dir,
        f"{folder}/servable",
        ExportOptions(precision=_PRECISION.value, is_frozen=_FREEZE.value),
    )
    return model_dir, exported.path


def measure(sides, texts, batch_size):
    """Returns {side: seconds of each call}; the sides take turns."""
    seconds = {side.name: [] for side in sides}
    batches = [
        texts[start : start + batch_size]
        for start in range(0, len(texts) - batch_size + 1, batch_size)
    ]
    for side in sides:  # Not counted: the first call of a size.
        for batch in batches[:3]:
            side.ask(json.dumps(batch))
    calls_a_turn = max(1, _STRINGS_A_TURN // batch_size)
    for start in range(0, len(batches), calls_a_turn):
        answers = []
        for side in sides:
            answered = []
            for batch in batches[start : start + calls_a_turn]:
                time, probabilities = json.loads(side.ask(json.dumps(batch)))
                seconds[side.name].append(time)
                answered += probabilities
            answers.append(answered)
        difference = np.abs(np.subtract(answers[1:], answers[0])).max()
        if difference > _TOLERANCES[_PRECISION.value]:
            raise RuntimeError(f"The answers differ by {difference}.")
    return seconds


def main(_):
    pythons = {"transformers": _PEER_PYTHON.value}
    if _ONNXRUNTIME_PYTHON.value is not None:
        pythons["onnxruntime"] = _ONNXRUNTIME_PYTHON.value
    heading.show(**pythons)
    lines = pathlib.Path(_TEXT_FILE.value).read_text("utf-8").splitlines()[1:]
    texts = [line.split("\t")[0] for line in lines]
    random.Random(0).shuffle(texts)
    texts = (texts * (_STRINGS.value // len(texts) + 1))[: _STRINGS.value]
    with tempfile.TemporaryDirectory() as folder:
        model_dir, servable = make_folders(folder)
        sides = [
            start_side("bert_tf", sys.executable, servable),
            start_side("transformers", _PEER_PYTHON.value, model_dir),
        ]
        if _ONNXRUNTIME_PYTHON.value is not None:
            script = pathlib.Path(__file__).with_name("export_onnx.py")
            subprocess.run(
                [_PEER_PYTHON.value, str(script), model_dir],
                check=True,
                capture_output=True,
            )
            sides.append(
                start_side("onnxruntime", _ONNXRUNTIME_PYTHON.value, model_dir)
            )
        print("| in flight | | p50 ms | p95 ms | p99 ms | strings/s |")
        print("|---|---|---|---|---|---|", flush=True)
        for batch_size in map(int, _IN_FLIGHT.value):
            seconds = measure(sides, texts, batch_size)
            rows = {}
            for name, values in seconds.items():
                p50, p95, p99 = np.percentile(values, (50, 95, 99)) * 1000
                rate = batch_size * len(values) / sum(values)
                rows[name] = p50, p95, p99, rate
                print(
                    f"| {batch_size} | {name} | {p50:.1f} | {p95:.1f} "
                    f"| {p99:.1f} | {rate:.0f} |"
                )
            ours = rows.pop("bert_tf")
            for name, row in rows.items():
                cells = " | ".join(f"{r:.2f}" for r in np.divide(ours, row))
                print(f"| {batch_size} | bert_tf / {name} | {cells} |")
        for side in sides:
            side.close()


if __name__ == "__main__":
    app.run(main)
