r"""Times how long a model folder takes to load, beside reading its file.

    python benchmarks/checkpoints.py --size=base --repetitions=7

Makes a model folder of that size in a temporary folder, then in turn reads
model.safetensors from end to end and loads it into a `BertEncoder`, each time
after the system was told to drop the file from its cache. Prints the medians
and the median of the ratios.
"""

import os
import statistics
import tempfile
import time

from absl import app
from absl import flags

from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

_SIZE = flags.DEFINE_string("size", "base", "A name of BertConfig.named.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 7, "Pairs of measurements.")


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read(path):
    buffer = bytearray(1 << 24)
    with open(path, "rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main(_):
    config = BertConfig.named(_SIZE.value)
    words = (f"word{n}" for n in range(config.vocab_size - len(SPECIAL_TOKENS)))
    vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, *words))
    reads, loads = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(
            folder,
            BertEncoder(config),
            vocabulary,
            do_lower_case=True,
            max_seq_length=config.max_position_embeddings,
        )
        path = os.path.join(folder, "model.safetensors")
        megabytes = os.path.getsize(path) / 2**20
        checkpoints.load(folder, BertEncoder)  # TensorFlow's own start.
        for _ in range(_REPETITIONS.value):
            drop_from_cache(path)
            reads.append(seconds(read, path))
            drop_from_cache(path)
            loads.append(seconds(checkpoints.load, folder, BertEncoder))
    ratios = [load / read for load, read in zip(loads, reads)]
    print(f"{_SIZE.value}: {megabytes:.0f} MiB, {_REPETITIONS.value} pairs")
    for title, values in (("read s", reads), ("load s", loads)):
        print(
            f"{title}  median {statistics.median(values):.2f}  "
            f"min {min(values):.2f}  max {max(values):.2f}"
        )
    print(f"load / read  median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    app.run(main)
