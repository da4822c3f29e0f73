r"""Times texts to model inputs beside other libraries, in one run.

    python benchmarks/tokenizer.py --model_dir=minilm --text_file=wiki.txt \
        --peer=transformers=/env/peers/bin/python \
        --peer=keras_hub=/env/keras_hub/bin/python

    python benchmarks/tokenizer.py --model_dir=roberta --text_file=wiki.txt \
        --threads=1 --batch_size=1024 --max_seq_length=0 \
        --peer=tokenizers=.venv/bin/python

--model_dir is a Hugging Face folder with its tokenizer's files, of WordPiece or
byte-level BPE; --text_file holds a text a line. From strings in memory to
arrays of ids, mask and segments of one length, batch by batch, each library
in the way its users do it with many texts: a tf.data set with a parallel map,
or the fast tokenizer's call. Every library is a process of its own
(tokenize_strings.py); they take turns, round after round. Prints a table in
Markdown: medians over the rounds, and in how many rows the ids are bert_tf's:
those of google-research/bert's tokenizer, or of `tokenizers`.
"""

import json
import pathlib
import statistics
import sys
import tempfile

import heading
import numpy as np
import sides as sides_lib
from absl import flags

from bert_tf import program
from bert_tf.text.tokenizers import files as tokenizer_files

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Folder of vocabulary and settings.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file", None, "A text a line, UTF-8.", required=True
)
_PEER = flags.DEFINE_multi_string(
    "peer",
    [],
    "library=python: of transformers, keras_hub and tokenizers, and the Python "
    "of an environment with it.",
)
_MAX_TEXTS = flags.DEFINE_integer(
    "max_texts", 50000, "Of the file.", lower_bound=1
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    128,
    "Of a row; 0 for the ids of the pieces alone, neither cut nor padded "
    "(bert_tf and tokenizers).",
    lower_bound=0,
)
_THREADS = flags.DEFINE_integer(
    "threads", 0, "Of bert_tf, keras_hub and tokenizers; 0 for all.", 0
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Texts made to arrays together.", lower_bound=1
)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "Of all libraries in turn.", lower_bound=1
)

# The one that the others are held to, and its quicker, less exact setting.
_OURS = "bert_tf"
_OURS_FAST = "bert_tf, fast=True"


def start_side(name, python, text_file, ids_file):
    script = pathlib.Path(__file__).with_name("tokenize_strings.py")
    job = {
        "library": name,
        "model_dir": _MODEL_DIR.value,
        "max_seq_length": _MAX_SEQ_LENGTH.value,
        "batch_size": _BATCH_SIZE.value,
        "threads": _THREADS.value,
        "text_file": text_file,
        "ids_file": ids_file,
    }
    return sides_lib.Side(name, [python, str(script), json.dumps(job)])


def read_texts():
    texts = []
    with open(_TEXT_FILE.value, encoding="utf-8", newline="\n") as stream:
        for line in stream:
            if line.strip():
                texts.append(line.strip())
            if len(texts) == _MAX_TEXTS.value:
                break
    return texts


def main(_):
    pythons = {_OURS: sys.executable}
    if tokenizer_files.is_wordpiece(_MODEL_DIR.value):
        pythons[_OURS_FAST] = sys.executable
    peers = dict(peer.split("=", 1) for peer in _PEER.value)
    pythons |= peers
    heading.show(**peers)
    texts = read_texts()
    num_bytes = sum(len(text.encode("utf-8")) for text in texts)
    with tempfile.TemporaryDirectory() as folder:
        text_file = f"{folder}/texts.json"
        pathlib.Path(text_file).write_text(json.dumps(texts))
        ids_files = {
            name: f"{folder}/{number}.npy"
            for number, name in enumerate(pythons)
        }
        sides = [
            start_side(name, pythons[name], text_file, ids_files[name])
            for name in pythons
        ]
        seconds = {name: [] for name in pythons}
        for _ in range(_ROUNDS.value):
            for side in sides:
                seconds[side.name].append(float(side.ask()))
        for side in sides:
            side.close()
        ids = {name: np.load(ids_files[name]) for name in pythons}
    print(f"{len(texts)} texts, {num_bytes / 1e6:.1f} MB")
    print("| | texts/s | MB/s | of bert_tf's speed | rows with its ids |")
    print("|---|---|---|---|---|")
    for name, values in seconds.items():
        median = statistics.median(values)
        ratio = statistics.median(np.divide(seconds[_OURS], values).tolist())
        equal = ids[name].shape == ids[_OURS].shape and np.mean(
            (ids[name] == ids[_OURS]).all(axis=1)
        )
        print(
            f"| {name} | {len(texts) / median:,.0f} "
            f"| {num_bytes / median / 1e6:.1f} | {ratio:.2f} | {equal:.2%} |"
        )


if __name__ == "__main__":
    program.run(main)
