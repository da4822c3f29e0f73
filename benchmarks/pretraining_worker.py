"""Runs steps on request, in every process of benchmarks/pretraining.py.

Imported by each library's process, in its own environment, so it uses only the
standard library. The process gets one argument, a job in JSON; see `read_job`.
It prints one line "ready". Then it answers each line of its standard input, a
number of seconds, with a line of JSON: what it did in about that time.
"""

import json
import resource
import sys
import time


def read_job():
    """Returns the job of this process, a dictionary.

    Its entries are library; precision, "float32" or "bfloat16"; batch_size,
    rows per step; length and num_predictions of a row; config, the fields of a
    `BertConfig`; for bert_tf also files (None for random rows) and vocab_file,
    num_sequences in a random row, and jit_compile. Only the benchmarks on GPUs
    add device, "gpu" or "cpu", and tf32, and gpu_layers.py attention; see
    pretraining_jax.py.
    """
    return {
        "num_sequences": 1,
        "jit_compile": False,
        "device": "cpu",
        "tf32": True,
    } | json.loads(sys.argv[1])


def serve(make_steps, batch_size, device_peak=lambda: None):
    """Answers requests until the standard input ends.

    Args:
        make_steps: Function that runs a given number of steps and waits for the
            last one. Returns None, or the number of padding positions and of
            all positions.
        batch_size: Rows per step.
        device_peak: Returns an accelerator's peak memory in bytes, or None.
    """
    # The first steps trace and compile.
    make_steps(2)
    make_steps(1)
    start = time.perf_counter()
    make_steps(2)
    step_seconds = (time.perf_counter() - start) / 2
    print("ready", flush=True)
    for line in sys.stdin:
        count = max(1, round(float(line) / step_seconds))
        start, start_cpu = time.perf_counter(), time.process_time()
        places = make_steps(count)
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - start_cpu
        num_padding, num_places = places or (0, 1)
        answer = {
            "rows_per_second": count * batch_size / seconds,
            # Of all threads. It varies less than the rate on a busy machine.
            "cpu_seconds_per_row": cpu_seconds / (count * batch_size),
            "padding": num_padding / num_places,
            # ru_maxrss is the peak so far, in kilobytes on Linux.
            "peak_bytes": 1024
            * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "device_peak_bytes": device_peak(),
        }
        print(json.dumps(answer), flush=True)
