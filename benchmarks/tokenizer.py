r"""Times texts to model inputs, compared with other libraries.

    python benchmarks/tokenizer.py --model_dir=minilm --text_file=wiki.txt \
        --peer=transformers=/env/peers/bin/python \
        --peer=keras_hub=/env/keras_hub/bin/python

    python benchmarks/tokenizer.py --model_dir=roberta --text_file=wiki.txt \
        --threads=1 --batch_size=1024 --max_seq_length=0 \
        --peer=tokenizers=.venv/bin/python

--model_dir is a Hugging Face folder with a WordPiece or byte-level BPE
tokenizer; --text_file has one text per line. The time is from strings in memory
to arrays of ids, mask and segments of one length, batch by batch. Each library
works as its users would process many texts: a tf.data set with a parallel map,
or a call of the fast tokenizer. Every library has its own process
(tokenize_strings.py); they take turns, round after round. Prints a table in
Markdown: medians over the rounds, and the share of rows whose ids equal
bert_tf's, which are those of google-research/bert's tokenizer, or of
`tokenizers`.
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
    "model_dir", None, "Folder with vocabulary and settings.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file", None, "One text per line, UTF-8.", required=True
)
_PEER = flags.DEFINE_multi_string(
    "peer",
    [],
    "library=python: transformers, keras_hub or tokenizers, and the Python of "
    "its environment.",
)
_MAX_TEXTS = flags.DEFINE_integer(
    "max_texts", 50000, "Texts to read from the file.", lower_bound=1
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    128,
    "Length of a row; 0 for only the pieces' ids, neither cut nor padded "
    "(bert_tf and tokenizers).",
    lower_bound=0,
)
_THREADS = flags.DEFINE_integer(
    "threads", 0, "Threads of bert_tf, keras_hub and tokenizers; 0 for all.", 0
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Texts per batch.", lower_bound=1
)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "Rounds over all libraries.", lower_bound=1
)

# The reference for the others, and its faster, less exact setting.
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
