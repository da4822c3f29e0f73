r"""Measures training of sentence embeddings: speed, memory and scores.

    python benchmarks/retrieval.py --model_dir=minilm --start_dir=mini \
        --squad_dir=squad --text_file=wiki.txt --minutes=20 \
        --peer_python=/env/peers/bin/python --output_dir=retrieval_benchmark

--model_dir, a folder of sentence-transformers, is timed. --start_dir, a
pre-trained model that has seen no such pairs, is trained. --what chooses from
four parts:

- throughput: steps with the loss multiple_negatives on SQuAD's questions with
  their paragraphs, including tokenization, compared with sentence-transformers
  on the same pairs in the same batches, with AdamW and clipping at norm 1. The
  sides take turns, round after round.
- memory: the peak memory of a process for a step of --large_batch pairs in
  chunks of --batch_size texts, and for a step of --batch_size pairs.
- squad: recall, MRR@10, nDCG@10 and MAP of SQuAD's dev questions over all
  paragraphs of train and dev, before and after an epoch on the training
  questions.
- simcse: the same before and after --minutes of unsupervised SimCSE on the
  sentences of --text_file. The number of sentences that fit is measured first.

Finished parts are kept in --output_dir and not repeated. Prints a page in
Markdown.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import heading
from absl import flags

from bert_tf import atomic
from bert_tf import program
from bert_tf import streams

_PARTS = ("throughput", "memory", "squad", "simcse")
_WHAT = flags.DEFINE_list(
    "what", [*_PARTS], f"Parts, from {', '.join(_PARTS)}."
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model that is timed.", required=True
)
_START_DIR = flags.DEFINE_string(
    "start_dir", None, "The model that learns. Default: --model_dir."
)
_SQUAD_DIR = flags.DEFINE_string(
    "squad_dir",
    None,
    "Folder of train-v1.1.json, dev-v1.1.json.",
    required=True,
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file",
    None,
    "One sentence per line; also .xz, .gz and .bz2.",
    required=True,
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "A Python with sentence-transformers.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the runs.", required=True
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Pairs per step.")
_LARGE_BATCH = flags.DEFINE_integer(
    "large_batch", 2048, "Pairs per step of memory."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length", 128, "Most tokens of a text."
)
_PRECISION = flags.DEFINE_list(
    "precision", ["float32", "bfloat16"], "Precisions of throughput."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds of both sides.")
_SECONDS = flags.DEFINE_float(
    "seconds", 20.0, "Approximate time of each measurement."
)
_MINUTES = flags.DEFINE_float("minutes", 20.0, "Time of SimCSE's training.")

_FOLDER = pathlib.Path(__file__).parent
# For a small encoder, as --start_dir may be.
_LEARNING_RATE = 1e-4
_SIMCSE_FLAGS = (
    "--loss_name=simcse",
    # Vectors are computed in the same way before and after.
    *("--pooling=mean", "--learning_rate=3e-5", "--max_seq_length=32"),
)
# Sentences from which the speed is measured.
_NUM_CALIBRATION = 6400
_SCORES = ("recall@1", "recall@10", "recall@100", "MRR@10", "nDCG@10", "MAP")


class Worker:
    """A process that runs steps; see pretraining_worker.py."""

    def __init__(self, name, python, script, job):
        self.name = name
        self._process = subprocess.Popen(
            [python, str(_FOLDER / script), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"},
        )
        self._read("ready")

    def measure(self, seconds):
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return json.loads(self._read("{"))

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def _read(self, beginning):
        # Libraries print their own lines too.
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        raise RuntimeError(f"{self.name} has ended; its errors stand above.")


def write_pairs(path):
    """Writes SQuAD's training pairs, with different paragraphs in a batch."""
    squad = json.loads(
        pathlib.Path(_SQUAD_DIR.value, "train-v1.1.json").read_text("utf-8")
    )
    paragraphs = [
        (
            paragraph["context"],
            [question["question"] for question in paragraph["qas"]],
        )
        for article in squad["data"]
        for paragraph in article["paragraphs"]
    ]
    # Each round has one question per paragraph, so no batch has one twice.
    pairs = [
        (questions[number], context)
        for number in range(max(len(each) for _, each in paragraphs))
        for context, questions in paragraphs
        if number < len(questions)
    ]
    atomic.write_text(str(path), json.dumps(pairs))


def make_job(folder, precision, batch_size, chunk_size=None):
    path = folder / "pairs.json"
    if not path.exists():
        write_pairs(path)
    return {
        "model_dir": os.path.abspath(_MODEL_DIR.value),
        "pairs": str(path),
        "precision": precision,
        "batch_size": batch_size,
        "chunk_size": chunk_size,
        "length": _MAX_SEQ_LENGTH.value,
    }


def throughput(folder):
    """Returns {precision: {side: answers, round by round}}."""
    found = {}
    for precision in _PRECISION.value:
        job = make_job(folder, precision, _BATCH_SIZE.value)
        workers = [
            Worker(
                *("bert_tf", sys.executable, "retrieval_bert_tf.py", job),
            ),
            Worker(
                "sentence-transformers",
                _PEER_PYTHON.value,
                "retrieval_peer.py",
                job,
            ),
        ]
        answers = {worker.name: [] for worker in workers}
        for _ in range(_ROUNDS.value):
            for worker in workers:
                answers[worker.name].append(worker.measure(_SECONDS.value))
        for worker in workers:
            worker.close()
        found[precision] = answers
    return found


def memory(folder):
    """Returns {title: the worker's answer for one step}."""
    found = {}
    for batch_size, chunk_size in (
        (_BATCH_SIZE.value, None),
        (_LARGE_BATCH.value, _BATCH_SIZE.value),
    ):
        job = make_job(folder, "float32", batch_size, chunk_size)
        worker = Worker(
            "bert_tf",
            sys.executable,
            "retrieval_bert_tf.py",
            job | {"is_one_step": True},
        )
        title = f"{batch_size:,} pairs"
        if chunk_size:
            title += f" in chunks of {chunk_size} texts"
        found[title] = worker.measure(0)
        worker.close()
    return found


def run_program(output_dir, *options):
    """Runs `run_retrieval`; returns its log."""
    output_dir.mkdir(parents=True, exist_ok=True)
    log = output_dir.with_suffix(".log")
    with log.open("a") as stream:
        process = subprocess.run(
            [
                *(sys.executable, "-m", "bert_tf.run_retrieval"),
                f"--output_dir={output_dir}",
                f"--train_batch_size={_BATCH_SIZE.value}",
                *options,
            ],
            stdout=stream,
            stderr=stream,
        )
    if process.returncode:
        raise RuntimeError(f"run_retrieval failed; see {log}.")
    return log.read_text()


def train(output_dir, train_file, *options):
    """Trains for an epoch from --start_dir, in bfloat16; returns the log."""
    return run_program(
        output_dir,
        f"--init_checkpoint={start_dir()}",
        f"--train_file={train_file}",
        *("--do_train", "--num_train_epochs=1", "--mixed_precision=bfloat16"),
        # As in transformers.
        *("--bias_correction", "--nolearning_rate_drop"),
        *options,
    )


def evaluate(output_dir, checkpoint):
    """Returns the scores of a model on SQuAD's dev questions."""
    squad = pathlib.Path(_SQUAD_DIR.value)
    run_program(
        output_dir,
        f"--init_checkpoint={checkpoint}",
        f"--eval_file={squad / 'dev-v1.1.json'}",
        f"--corpus_file={squad / 'train-v1.1.json'}",
        f"--max_seq_length={_MAX_SEQ_LENGTH.value}",
        *("--do_eval", "--eval_batch_size=32"),
    )
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    return {name: float(results[f"eval_{name}"]) for name in _SCORES}


def start_dir():
    return os.path.abspath(_START_DIR.value or _MODEL_DIR.value)


def squad(folder):
    """Returns {when: scores}."""
    before = evaluate(folder / "before", start_dir())
    tuned = folder / "squad"
    train(
        tuned,
        f"{_SQUAD_DIR.value}/train-v1.1.json",
        f"--max_seq_length={_MAX_SEQ_LENGTH.value}",
        f"--learning_rate={_LEARNING_RATE}",
    )
    return {
        "before": before,
        "after an epoch": evaluate(folder / "squad_scores", tuned),
    }


def simcse(folder):
    """Returns {when: scores}; the last key has the number of sentences."""
    before = evaluate(folder / "before", start_dir())
    calibration, sentences = folder / "speed.txt", folder / "sentences.txt"
    if not sentences.exists():
        write_sentences(calibration, _NUM_CALIBRATION)
        log = train(
            *(folder / "speed", calibration, *_SIMCSE_FLAGS),
            "--iterations_per_loop=20",
        )
        speeds = re.findall(r"([\d.]+) examples/s", log)
        # The first steps include tracing.
        speed = statistics.median(map(float, speeds[2:] or speeds))
        write_sentences(sentences, round(speed * 60 * _MINUTES.value))
    tuned = folder / "simcse"
    train(tuned, sentences, *_SIMCSE_FLAGS)
    count = sentences.read_text("utf-8").count("\n")
    return {
        "before": before,
        f"after {_MINUTES.value:g} minutes, {count:,} sentences": evaluate(
            folder / "simcse_scores", tuned
        ),
    }


def write_sentences(path, count):
    """Writes the text's first distinct sentences of 6 to 60 words."""
    found = {}
    with streams.open_bytes(_TEXT_FILE.value) as stream:
        for line in stream:
            text = " ".join(line.decode("utf-8").split())
            if 5 <= text.count(" ") < 60:
                found[text] = None
            if len(found) == count:
                break
    atomic.write_text(str(path), "".join(f"{text}\n" for text in found))


def show_throughput(found):
    print(
        f"{_BATCH_SIZE.value} pairs a step, up to {_MAX_SEQ_LENGTH.value} "
        "tokens\n"
    )
    print("| precision | library | pairs/s | CPU ms/pair | beside the peer |")
    print("|---|---|---|---|---|")
    for precision, answers in found.items():
        rates = {
            side: [answer["rows_per_second"] for answer in each]
            for side, each in answers.items()
        }
        _, peer = rates
        for side, each in rates.items():
            ratio = statistics.median(
                own / other for own, other in zip(each, rates[peer])
            )
            cpu = statistics.median(
                answer["cpu_seconds_per_row"] for answer in answers[side]
            )
            print(
                f"| {precision} | {side} | {statistics.median(each):.1f} "
                f"({min(each):.1f} to {max(each):.1f}) | {1e3 * cpu:.1f} "
                f"| {ratio:.2f} |"
            )


def show_memory(found):
    first = next(iter(found.values()))
    print("| step | MiB at most | beside the first |")
    print("|---|---|---|")
    for title, answer in found.items():
        ratio = answer["peak_bytes"] / first["peak_bytes"]
        print(
            f"| {title} | {answer['peak_bytes'] / 2**20:,.0f} | {ratio:.2f} |"
        )


def show_scores(found):
    print(f"| | {' | '.join(_SCORES)} |")
    print("|---" * (1 + len(_SCORES)) + "|")
    for when, scores in found.items():
        cells = " | ".join(f"{100 * scores[name]:.1f}" for name in _SCORES)
        print(f"| {when} | {cells} |")


_RUN = {
    "throughput": (throughput, show_throughput),
    "memory": (memory, show_memory),
    "squad": (squad, show_scores),
    "simcse": (simcse, show_scores),
}


def settings():
    """Returns the settings that results depend on."""
    return {
        flag.name: flag.value
        for flag in (
            *(_MODEL_DIR, _START_DIR, _SQUAD_DIR, _TEXT_FILE, _BATCH_SIZE),
            *(_LARGE_BATCH, _MAX_SEQ_LENGTH, _PRECISION, _ROUNDS, _SECONDS),
            _MINUTES,
        )
    }


def main(_):
    for part in _WHAT.value:
        if part not in _PARTS:
            raise ValueError(
                f"--what must be from {', '.join(_PARTS)}. "
                f"Received: --what={','.join(_WHAT.value)}."
            )
    heading.show(**{"sentence-transformers": _PEER_PYTHON.value})
    folder = pathlib.Path(_OUTPUT_DIR.value).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for part in _WHAT.value:
        run, show = _RUN[part]
        path = folder / f"{part}.json"
        if not path.exists():
            stored = {"settings": settings(), "results": run(folder)}
            atomic.write_text(str(path), json.dumps(stored))
        stored = json.loads(path.read_text("utf-8"))
        for name, value in settings().items():
            if stored["settings"].get(name) != value:
                raise ValueError(
                    f"{path} was made with "
                    f"--{name}={stored['settings'].get(name)}. "
                    f"Received: --{name}={value}."
                )
        print(f"## {part}\n")
        show(stored["results"])
        print(flush=True)


if __name__ == "__main__":
    program.run(main)
