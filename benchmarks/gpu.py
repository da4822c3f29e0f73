r"""Times pre-training steps on a GPU, compared with transformers'.

    python benchmarks/gpu.py --peak_tflops=float32=494,bfloat16=989

Every setting is a process that has the GPU to itself: bert_tf's step on full
rows of random tokens, and on rows of several sequences, plain and compiled with
XLA; and transformers' step, eager and under torch.compile, if this environment,
or that of --peer_python, has PyTorch and transformers. Batches have the same
number of tokens at all lengths. Without a GPU the program says so and exits
with code 1; with --allow_cpu it runs on the CPU, which you can try with
--sizes=tiny.

Prints a table in Markdown, with medians over the rounds:

- rows and tokens per second;
- the step's matrix products in TFLOP/s, counted for every position in every
  block; their share of the rate of one product of 8192^3; and their share of
  the GPU's peak in --peak_tflops, which is the model FLOPs utilisation (arXiv
  2204.02311, appendix B);
- rows per second relative to transformers' best of the same size;
- the GPU's peak memory in use. PyTorch does not count the memory of its
  libraries.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import time

import heading
import tensorflow as tf
from absl import flags
from pretraining_setting import answers_of

from bert_tf import program
from bert_tf.config import BertConfig
from bert_tf.training import health

_SIZES = flags.DEFINE_list(
    "sizes", ["base", "large"], "Names of BertConfig.named."
)
_LENGTHS = flags.DEFINE_list("lengths", ["128", "512"], "Tokens per row.")
_TOKENS = flags.DEFINE_integer(
    "tokens", 8192, "Tokens per step, in all its rows.", lower_bound=1
)
_PRECISION = flags.DEFINE_list(
    "precision", ["float32", "bfloat16"], "float32, bfloat16 or both."
)
_TF32 = flags.DEFINE_bool(
    "tf32", True, "Whether float32 matrices are multiplied in TF32."
)
_JIT_COMPILE = flags.DEFINE_bool(
    "jit_compile", True, "Whether to time steps compiled with XLA too."
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python",
    None,
    "The Python of an environment with PyTorch and transformers. Default: this "
    "Python, if it has them.",
)
_PEAK_TFLOPS = flags.DEFINE_list(
    "peak_tflops",
    [],
    "precision=number: the GPU's peak for dense matrices by its documentation, "
    "in 10**12 operations per second.",
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements.", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds", 5.0, "Approximate time of each measurement."
)
_ALLOW_CPU = flags.DEFINE_bool(
    "allow_cpu", False, "Run on the CPU if there is no GPU."
)
_PRODUCT = flags.DEFINE_string(
    "product",
    None,
    "precision,size: only print the rate of one matrix product of this size.",
)

# As in the paper's records: 77 predictions in a row of 512 tokens.
_PREDICTIONS_PER_TOKEN = 0.15
_TOKENS_PER_SEQUENCE = 64
_NUM_PRODUCTS = 20


def find_gpu(allows_cpu):
    """Returns the first GPU's name, or None to run on the CPU.

    Raises:
        SystemExit: If there is no GPU, and the CPU is not allowed.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        return details.get("device_name", "GPU")
    if allows_cpu:
        return None
    # With a string, the exit status is 1.
    sys.exit("benchmarks/gpu.py: TensorFlow finds no GPU on this machine.")


def make_jobs(size, length, precision, *, tokens, jit_compile, has_peer):
    """Returns {name: job} for settings of one size, length and precision."""
    job = {
        "library": "bert_tf",
        "precision": precision,
        "batch_size": max(1, tokens // length),
        "length": length,
        "num_predictions": round(length * _PREDICTIONS_PER_TOKEN),
        "config": BertConfig.named(
            size, max_position_embeddings=max(512, length)
        ).to_dict(),
        "files": None,
    }
    packed = {"num_sequences": max(2, length // _TOKENS_PER_SEQUENCE)}
    jit = {"jit_compile": True}
    jobs = {"bert_tf": job, "bert_tf, packed": job | packed}
    if jit_compile:
        jobs |= {
            "bert_tf, XLA": job | jit,
            "bert_tf, packed, XLA": job | packed | jit,
        }
    if has_peer:
        for library in ("transformers", "transformers_compiled"):
            jobs[library] = job | {"library": library}
    return jobs


def table_lines(jobs, answers, product_flops, peak_flops):
    """Returns the table's lines for the settings of one size and length.

    Args:
        jobs: From `make_jobs`.
        answers: {name: the answers of its process, round by round}; empty for a
            setting that did not run.
        product_flops: Operations per second of one large product.
        peak_flops: The GPU's peak in operations per second, or None.
    """
    rates = {
        name: statistics.median(each["rows_per_second"] for each in told)
        for name, told in answers.items()
        if told
    }
    best_peer = max(
        (rates[name] for name in rates if jobs[name]["library"] != "bert_tf"),
        default=None,
    )
    lines = []
    for name, job in jobs.items():
        head = f"| {job['precision']} | {job['length']} | {name} | "
        if name not in rates:
            lines.append(f"{head}does not run |" + " |" * 7)
            continue
        rows = [each["rows_per_second"] for each in answers[name]]
        flops = rates[name] * health.flops_per_example(
            BertConfig(**job["config"]), job["length"], job["num_predictions"]
        )
        peak_bytes = answers[name][-1]["device_peak_bytes"]
        cells = (
            f"{rates[name]:.1f} ({min(rows):.1f} to {max(rows):.1f})",
            f"{rates[name] * job['length']:,.0f}",
            f"{flops / 1e12:.3g}",
            f"{flops / product_flops:.0%}",
            "-" if peak_flops is None else f"{flops / peak_flops:.0%}",
            "-" if best_peer is None else f"{rates[name] / best_peer:.2f}",
            "-" if peak_bytes is None else f"{peak_bytes / 2**30:.1f}",
        )
        lines.append(f"{head}{job['batch_size']} | {' | '.join(cells)} |")
    return lines


def print_product(precision, size):
    """Prints the operations per second of a product of two matrices."""
    tf.config.experimental.enable_tensor_float_32_execution(_TF32.value)
    a = tf.ones((size, size), precision)
    tf.matmul(a, a)
    tf.test.experimental.sync_devices()
    start = time.perf_counter()
    for _ in range(_NUM_PRODUCTS):
        tf.matmul(a, a)
    tf.test.experimental.sync_devices()
    seconds = (time.perf_counter() - start) / _NUM_PRODUCTS
    print(2 * size**3 / seconds)


def measure_product(precision, size):
    """Returns what `print_product` prints when it runs in a new process."""
    process = subprocess.run(
        [
            sys.executable,
            __file__,
            f"--product={precision},{size}",
            f"--tf32={_TF32.value}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return float(process.stdout.split()[-1])


def peaks(values):
    """Returns {precision: operations per second} from --peak_tflops."""
    found = {}
    for told in values:
        precision, _, number = told.partition("=")
        try:
            found[precision] = float(number) * 1e12
        except ValueError:
            raise ValueError(
                "--peak_tflops must be precision=number, comma-separated. "
                f"Received: --peak_tflops={told}."
            ) from None
    return found


def main(_):
    if _PRODUCT.value is not None:
        precision, size = _PRODUCT.value.split(",")
        print_product(precision, int(size))
        return
    gpu = find_gpu(_ALLOW_CPU.value)
    peak_flops = peaks(_PEAK_TFLOPS.value)
    peer_python = _PEER_PYTHON.value
    if peer_python is None and all(
        map(importlib.util.find_spec, ("torch", "transformers"))
    ):
        peer_python = sys.executable
    heading.show(**({"transformers": peer_python} if peer_python else {}))
    print(
        f"On {gpu or 'the CPU, to try the program'}; TF32 "
        f"{'on' if _TF32.value else 'off'}."
    )
    products = {
        precision: measure_product(precision, 8192 if gpu else 1024)
        for precision in _PRECISION.value
    }
    for size in _SIZES.value:
        print(
            f"\n{size}\n\n"
            "| precision | length | library | rows a step | rows/s | tokens/s "
            "| TFLOP/s | of a product | MFU | best transformers = 1 "
            "| GPU GiB |\n|" + "---|" * 11,
            flush=True,
        )
        for length in map(int, _LENGTHS.value):
            for precision in _PRECISION.value:
                jobs = make_jobs(
                    size,
                    length,
                    precision,
                    tokens=_TOKENS.value,
                    jit_compile=_JIT_COMPILE.value,
                    has_peer=peer_python is not None,
                )
                device = {
                    "device": "gpu" if gpu else "cpu",
                    "tf32": _TF32.value,
                }
                answers = {
                    name: answers_of(
                        name,
                        sys.executable
                        if job["library"] == "bert_tf"
                        else peer_python,
                        job | device,
                        _ROUNDS.value,
                        _SECONDS.value,
                    )
                    for name, job in jobs.items()
                }
                for line in table_lines(
                    jobs,
                    answers,
                    products[precision],
                    peak_flops.get(precision),
                ):
                    print(line, flush=True)
    told = (
        f"{precision} {flops / 1e12:.3g} TFLOP/s"
        for precision, flops in products.items()
    )
    print(f"\nThe product: {', '.join(told)}.")


if __name__ == "__main__":
    program.run(main)
