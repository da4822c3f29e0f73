r"""Measures the layers under JAX on one GPU, with transformers beside them.

    python benchmarks/gpu_layers.py

It takes less than 8 minutes on one H100 or H200 and needs JAX for that GPU; for
transformers, PyTorch and transformers, here or in --peer_python; and Keras and
absl-py, but neither TensorFlow nor a network. What is missing can be brought
along as wheels:

    pip download --dest wheels keras            # where there is a network
    pip install --no-index --no-deps --target site wheels/keras-*.whl
    PYTHONPATH=.:site python benchmarks/gpu_layers.py

Keras also needs namex, optree and h5py. Without a GPU the program says so and
exits with code 1; with --allow_cpu it runs on the CPU, which you can try with
--size=tiny --batch_size=2 --rounds=1 --seconds=0.1.

Every setting is a process that has the GPU to itself. It compiles its step,
makes five steps, and is then measured --rounds times for --seconds. The steps
of bert_tf are masked LM and next sentence on full rows of several sequences,
with Keras's AdamW. Attention is computed whole, in chunks of queries, or by
`jax.nn.dot_product_attention`, which has no dropout.

Prints a page in Markdown for benchmarks/results/, with medians over the rounds.
MFU (arXiv 2204.02311, appendix B) is the step's matrix products, counted for
every position in every block, as a share of --peak_tflops.
"""

import dataclasses
import importlib.util
import statistics
import subprocess
import sys
import time

import heading
from absl import app
from absl import flags
from pretraining_setting import answers_of

from bert_tf.config import BertConfig
from bert_tf.training import health

_SIZE = flags.DEFINE_string("size", "base", "A name of BertConfig.named.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Rows per step.", lower_bound=1
)
_LENGTH = flags.DEFINE_integer("length", 512, "Tokens per row.", lower_bound=16)
_PRECISION = flags.DEFINE_enum(
    "precision", "bfloat16", ["float32", "bfloat16"], "Of the activations."
)
_PEAK_TFLOPS = flags.DEFINE_float(
    "peak_tflops",
    989.0,
    "The GPU's peak for dense matrices by its documentation, in 10**12 "
    "operations per second. Default: H100's and H200's in bfloat16.",
)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Measurements.", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds", 1.0, "Approximate time of each measurement."
)
_LAST_START = flags.DEFINE_float(
    "last_start", 330.0, "Seconds after which no setting is begun."
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python",
    None,
    "The Python of an environment with PyTorch and transformers. Default: this "
    "Python, if it has them.",
)
_ALLOW_CPU = flags.DEFINE_bool(
    "allow_cpu", False, "Run on the CPU if there is no GPU."
)

_CHUNK = 256
_TOKENS_PER_SEQUENCE = 64
_HEAD = (
    "| attention | dropout of probabilities | ms/step | tokens/s | TFLOP/s "
    "| MFU | peak GiB |"
)


def find_gpu():
    """Returns the first GPU's name, or None if there is none."""
    # Not by JAX, which would take the GPU's memory.
    try:
        process = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return (process.stdout.splitlines() or [None])[0]


def make_jobs(size, length, batch_size, precision, device, has_peer):
    """Returns {name: job}, what matters most first."""
    config = BertConfig.named(size, max_position_embeddings=max(512, length))
    without = dataclasses.replace(config, attention_probs_dropout_prob=0.0)
    job = {
        "library": "bert_tf_jax",
        "precision": precision,
        "batch_size": batch_size,
        "length": length,
        # 0.15 of the tokens. cuDNN's attention wants an even number of queries.
        "num_predictions": 2 * round(length * 0.15 / 2),
        "num_sequences": 2 * max(1, length // (2 * _TOKENS_PER_SEQUENCE)),
        "config": config.to_dict(),
        "files": None,
        "device": device,
    }
    dry = job | {"config": without.to_dict()}
    whole, chunks = {"attention": 0}, {"attention": _CHUNK}
    jobs = {"whole": job | whole, f"in chunks of {_CHUNK}": job | chunks}
    if device == "gpu":
        jobs["JAX's own, cuDNN"] = dry | {"attention": "cudnn"}
    if has_peer:
        jobs |= {
            "transformers, SDPA": job | {"library": "transformers"},
            "transformers, SDPA, torch.compile": job
            | {"library": "transformers_compiled"},
        }
    return jobs | {
        "whole, none dropped": dry | whole,
        f"in chunks of {_CHUNK}, none dropped": dry | chunks,
        "JAX's own, XLA": dry | {"attention": "xla"},
    }


def table_line(name, job, answers, peak_tflops):
    """Returns a setting's line of the table.

    Args:
        name: The setting's.
        job: From `make_jobs`.
        answers: Those of its process, round by round; none if it does not run;
            None if there was no time.
        peak_tflops: As the flag.
    """
    config = BertConfig(**job["config"])
    head = f"| {name} | {config.attention_probs_dropout_prob:g} | "
    if not answers:
        told = "no time" if answers is None else "does not run"
        return f"{head}{told}" + " |" * 5
    rates = [answer["rows_per_second"] for answer in answers]
    milliseconds = [1e3 * job["batch_size"] / rate for rate in rates]
    rate = statistics.median(rates)
    tflops = (
        1e-12
        * rate
        * health.flops_per_example(
            config, job["length"], job["num_predictions"]
        )
    )
    peak_bytes = answers[-1]["device_peak_bytes"]
    cells = (
        f"{statistics.median(milliseconds):.1f} "
        f"({min(milliseconds):.1f} to {max(milliseconds):.1f})",
        f"{rate * job['length']:,.0f}",
        f"{tflops:.3g}",
        f"{tflops / peak_tflops:.1%}",
        "-" if peak_bytes is None else f"{peak_bytes / 2**30:.1f}",
    )
    return f"{head}{' | '.join(cells)} |"


def main(_):
    start = time.monotonic()
    gpu = find_gpu()
    if gpu is None and not _ALLOW_CPU.value:
        # With a string, the exit status is 1.
        sys.exit("benchmarks/gpu_layers.py: nvidia-smi finds no GPU.")
    peer_python = _PEER_PYTHON.value
    if peer_python is None and all(
        map(importlib.util.find_spec, ("torch", "transformers"))
    ):
        peer_python = sys.executable
    jobs = make_jobs(
        _SIZE.value,
        _LENGTH.value,
        _BATCH_SIZE.value,
        _PRECISION.value,
        "cpu" if gpu is None else "gpu",
        has_peer=peer_python is not None,
    )
    job = next(iter(jobs.values()))
    print("# The layers under JAX on a GPU\n")
    heading.show(**({"transformers": peer_python} if peer_python else {}))
    print(
        f"{_SIZE.value} in {_PRECISION.value} on "
        f"{gpu or 'the CPU, to try the program'}: {job['batch_size']} rows of "
        f"{job['length']} random tokens a step, with {job['num_predictions']} "
        f"predictions a row. bert_tf's rows hold {job['num_sequences']} "
        "sequences, transformers' one. "
        '`jax.nn.dot_product_attention` has no dropout; "none dropped" is '
        "bert_tf's own attention without it. bert_tf computes the last block "
        "only where it is read, which MFU does not leave out. Its optimizer is "
        "Keras's AdamW.\n\n"
        f"{_HEAD}\n|{'---|' * 7}",
        flush=True,
    )
    for name, job in jobs.items():
        is_peer = job["library"] != "bert_tf_jax"
        python = peer_python if is_peer else sys.executable
        is_late = time.monotonic() - start > _LAST_START.value
        answers = None
        if not is_late:
            # Peers and JAX allocate as they do by default.
            answers = answers_of(
                name,
                python,
                job,
                _ROUNDS.value,
                _SECONDS.value,
                environment={},
            )
        print(table_line(name, job, answers, _PEAK_TFLOPS.value), flush=True)
    print(
        f"\nMFU is of {_PEAK_TFLOPS.value:g} TFLOP/s. PyTorch does not "
        "count the memory of its libraries. All of it took "
        f"{time.monotonic() - start:.0f} s."
    )


if __name__ == "__main__":
    app.run(main)
