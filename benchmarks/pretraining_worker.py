"""What every process of benchmarks/pretraining.py does: steps on request.

Imported by each library's process, in its own environment: standard library
only. The process gets one argument, JSON of a `Job`; see `read_job`. It prints
one line "ready", and then answers each line of its standard input, a number of
seconds, with a line of JSON: what it made in about so many seconds.
"""

import json
import resource
import sys
import time


def read_job():
    """Returns the job of this process, a dictionary.

    Its entries: library; precision, "float32" or "bfloat16"; batch_size, rows
    a step; length and num_predictions of a row; config, the fields of a
    `BertConfig`; of bert_tf also files (None for random rows) and vocab_file,
    num_sequences in a random row, and jit_compile. Those of benchmarks/gpu.py
    alone: device, "gpu" or "cpu"; tf32.
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
        make_steps: Function of a number of steps. Makes them, waits for the
            last one, and returns None, or the numbers of places without a
            token and of all places.
        batch_size: Rows a step.
        device_peak: Returns the most bytes of an accelerator's memory that
            were in use, or None.
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
            # Of all threads: on a busy machine steadier than the rate.
            "cpu_seconds_per_row": cpu_seconds / (count * batch_size),
            "padding": num_padding / num_places,
            # Kilobytes on Linux, the largest so far.
            "peak_bytes": 1024
            * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "device_peak_bytes": device_peak(),
        }
        print(json.dumps(answer), flush=True)
