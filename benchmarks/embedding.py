r"""Times embedding, compared with sentence-transformers and ONNX Runtime.

    python benchmarks/embedding.py --model_dir=minilm --text_file=wiki.txt \
        --peer_python=/env/sentence_transformers/bin/python \
        --onnxruntime_python=/env/onnxruntime/bin/python \
        --export_python=/env/transformers/bin/python

--model_dir is a folder of sentence-transformers with mean pooling and
normalisation, such as all-MiniLM-L6-v2; --text_file has one sentence per line.
Every side embeds --sentences of them, drawn at random, in its own process:
bert_tf and sentence-transformers in float32 and bfloat16, and ONNX Runtime in
float32, with the model that torch.onnx exports from transformers. The sides
take turns of --turn sentences, which each sorts by length; while one answers,
the others wait. Prints a table in Markdown with the medians over the turns, and
checks that the vectors of all sides agree.
"""

import base64
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import heading
import numpy as np
import sides as sides_lib
from absl import flags

from bert_tf import program
from bert_tf import streams

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "A folder of sentence-transformers.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file",
    None,
    "Text, one sentence per line; also .gz, .xz and .bz2.",
    required=True,
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "A Python with sentence-transformers.", required=True
)
_ONNXRUNTIME_PYTHON = flags.DEFINE_string(
    "onnxruntime_python",
    None,
    "A Python with onnxruntime and tokenizers. Default: skip this side.",
)
_EXPORT_PYTHON = flags.DEFINE_string(
    "export_python",
    None,
    "A Python with transformers, torch, onnx and onnxscript, for that side. "
    "Default: --peer_python.",
)
_SENTENCES = flags.DEFINE_integer("sentences", 10_000, "Sentences to embed.")
_TURN = flags.DEFINE_integer("turn", 2_000, "Sentences per turn.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 3, "Rounds over all turns.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Sentences per step.")

_OURS = "bert_tf"
_TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}


def read_sentences():
    with streams.open_bytes(_TEXT_FILE.value) as stream:
        lines = stream.read().decode("utf-8").splitlines()
    lines = [line for line in lines if line.strip()]
    if len(lines) < _SENTENCES.value:
        raise ValueError(
            f"--text_file must have {_SENTENCES.value} sentences. "
            f"Received: {len(lines)}."
        )
    return random.Random(0).sample(lines, _SENTENCES.value)


def start_sides(model_dir):
    """Returns {(library, precision): `Side`}."""
    script = str(pathlib.Path(__file__).with_name("embed_strings.py"))
    peer = _PEER_PYTHON.value
    pythons = {
        (_OURS, "float32"): sys.executable,
        ("sentence_transformers", "float32"): peer,
        (_OURS, "bfloat16"): sys.executable,
        ("sentence_transformers", "bfloat16"): peer,
    }
    if _ONNXRUNTIME_PYTHON.value is not None:
        pythons["onnxruntime", "float32"] = _ONNXRUNTIME_PYTHON.value
        export = pathlib.Path(__file__).with_name("export_onnx.py")
        subprocess.run(
            [
                *(_EXPORT_PYTHON.value or peer, str(export)),
                *(model_dir, "encoder"),
            ],
            check=True,
            capture_output=True,
        )
    return {
        (name, precision): sides_lib.Side(
            f"{name} {precision}",
            [
                *(python, script, name, precision),
                *(str(_BATCH_SIZE.value), model_dir),
            ],
        )
        for (name, precision), python in pythons.items()
    }


def ask(side, texts):
    """Returns (seconds, vectors)."""
    seconds, data = json.loads(side.ask(json.dumps(texts)))
    vectors = np.frombuffer(base64.b64decode(data), np.float32)
    return seconds, vectors.reshape(len(texts), -1)


def measure(sides, texts):
    """Returns {side: sentences per second of each turn}."""
    turns = [
        texts[start : start + _TURN.value]
        for start in range(0, len(texts), _TURN.value)
    ]
    for side in sides.values():  # The first batches are not counted.
        ask(side, texts[: 8 * _BATCH_SIZE.value])
    rates = {key: [] for key in sides}
    for _ in range(_REPETITIONS.value):
        for turn in turns:
            first = None
            for key, side in sides.items():
                seconds, vectors = ask(side, turn)
                rates[key].append(len(turn) / seconds)
                first = vectors if first is None else first
                difference = np.abs(vectors - first).max()
                if difference > _TOLERANCES[key[1]]:
                    raise RuntimeError(
                        f"The vectors of {side.name} differ by {difference}."
                    )
    return rates


def main(_):
    pythons = {"sentence_transformers": _PEER_PYTHON.value}
    if _ONNXRUNTIME_PYTHON.value is not None:
        pythons["onnxruntime"] = _ONNXRUNTIME_PYTHON.value
    heading.show(**pythons)
    texts = read_sentences()
    with tempfile.TemporaryDirectory() as folder:
        # model.onnx is written into it.
        model_dir = f"{folder}/model"
        shutil.copytree(_MODEL_DIR.value, model_dir)
        sides = start_sides(model_dir)
        rates = measure(sides, texts)
        for side in sides.values():
            side.close()
    characters = statistics.mean(map(len, texts))
    print(
        f"{len(texts):,} sentences of {characters:.0f} characters in the mean, "
        f"turns of {_TURN.value:,}, {_REPETITIONS.value} rounds, batches of "
        f"{_BATCH_SIZE.value}.\n"
    )
    print("| | precision | sentences/s | least, most | bert_tf / it |")
    print("|---|---|---|---|---|")
    medians = {key: statistics.median(rates[key]) for key in rates}
    for (name, precision), median in medians.items():
        found = rates[name, precision]
        ratio = medians[_OURS, precision] / median
        print(
            f"| {name} | {precision} | {median:.0f} "
            f"| {min(found):.0f}, {max(found):.0f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    program.run(main)
