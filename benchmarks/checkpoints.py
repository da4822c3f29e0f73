r"""Times loading a model folder, compared with reading its file.

    python benchmarks/checkpoints.py --size=base --repetitions=7

Makes a model folder of that size in a temporary folder. Then, in turns, reads
model.safetensors from end to end and loads it into a `BertEncoder`, first with
the file dropped from the system's cache, so that both include the disk, then
with the file in the cache. "read" puts the bytes into new memory, as loading a
model does; "stream" reads them through one reused buffer. "build" is Keras
creating the variables before they have values. Prints medians, the median of
the ratios, and the peak memory of a load, including TensorFlow's own start.
Linux only.
"""

import multiprocessing
import os
import statistics
import tempfile
import threading
import time

import heading
from absl import flags
from absl import logging

from bert_tf import checkpoints
from bert_tf import program
from bert_tf.checkpoints import families
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

_SIZE = flags.DEFINE_string("size", "base", "A name of BertConfig.named.")
_REPETITIONS = flags.DEFINE_integer(
    "repetitions", 7, "Repetitions of each measurement.", lower_bound=1
)

_SAMPLE_SECONDS = 0.002


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read(path):
    with open(path, "rb", buffering=0) as stream:
        return stream.read()


def stream(path):
    buffer = bytearray(1 << 24)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def build(folder):
    """Makes the model and its variables, without values."""
    with loading.without_random_values():
        return BertEncoder(families.read_config(f"{folder}/config.json"))


def seconds(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    elapsed = time.perf_counter() - start
    del result  # Freeing the memory is not timed.
    return elapsed


def bytes_from_disk():
    """Returns how many bytes the system has read from disk for this process."""
    return int(_value_of("/proc/self/io", "read_bytes"))


def memory():
    """Returns this process's anonymous memory in MiB."""
    return int(_value_of("/proc/self/status", "RssAnon").split()[0]) / 2**10


def peak_memory(folder):
    """Returns the peak memory of a load in MiB, above the memory before it."""
    samples = [before := memory()]
    is_done = threading.Event()

    def sample():
        while not is_done.wait(_SAMPLE_SECONDS):
            samples.append(memory())

    thread = threading.Thread(target=sample)
    thread.start()
    model = checkpoints.load(folder, BertEncoder)
    is_done.set()
    thread.join()
    del model
    return max(samples) - before


def _value_of(path, key):
    with open(path) as file:
        return dict(line.split(":", 1) for line in file)[key].strip()


def measure(folder, path, is_dropped):
    """Prints the times with the file in the system's cache or not."""
    calls = {
        "read": (read, path),
        "stream": (stream, path),
        "load": (checkpoints.load, folder, BertEncoder),
        "  build": (build, folder),
    }
    times = {name: [] for name in calls}
    from_disk = []
    for _ in range(_REPETITIONS.value):
        for name, call in calls.items():
            if is_dropped:
                drop_from_cache(path)
            before = bytes_from_disk()
            times[name].append(seconds(*call))
            if name == "read":
                from_disk.append((bytes_from_disk() - before) / 2**20)
    print(
        f"file {'dropped from' if is_dropped else 'in'} the cache: "
        f"{statistics.median(from_disk):.0f} MiB of a read from the disk"
    )
    for name, values in times.items():
        print(
            f"  {name:8} s  median {statistics.median(values):.3f}  "
            f"min {min(values):.3f}  max {max(values):.3f}"
        )
    for name in ("read", "stream"):
        ratios = [a / b for a, b in zip(times["load"], times[name])]
        print(f"  load / {name}  median {statistics.median(ratios):.2f}")


def main(_):
    heading.show()
    logging.set_verbosity(logging.WARNING)  # No report for every load.
    config = BertConfig.named(_SIZE.value)
    words = (f"word{n}" for n in range(config.vocab_size - len(SPECIAL_TOKENS)))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(
            folder,
            BertEncoder(config),
            WordpieceSpec(Vocabulary(tokens=(*SPECIAL_TOKENS, *words))),
            max_seq_length=config.max_position_embeddings,
        )
        path = os.path.join(folder, model_folder.WEIGHTS_FILE)
        print(f"{_SIZE.value}: {os.path.getsize(path) / 2**20:.0f} MiB")
        checkpoints.load(folder, BertEncoder)  # TensorFlow's own start.
        for is_dropped in (True, False):
            measure(folder, path, is_dropped)
        # In a new process, which cannot reuse memory of earlier models.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peak = pool.apply(peak_memory, (folder,))
        print(f"memory of a load: at most {peak:.0f} MiB")


if __name__ == "__main__":
    program.run(main)
