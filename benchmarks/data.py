r"""Times making records and learning a vocabulary from text files.

    python benchmarks/data.py --vocab_file=vocab.txt --input_file=wiki.txt
    python benchmarks/data.py --vocab_file=vocab.txt --input_file=wiki.txt \
        --what=vocabulary --held_out_file=books.txt

--what=records makes records of the first --megabytes with
create_pretraining_data.py's defaults and dupe_factor 5. It does so in new
processes, in turns with one worker and with two. It prints the medians of wall
time after start-up (with two workers, the second one's start-up is included),
of CPU time, and of the time of each stage; with one worker, also of the parts
of a stage. A few megabytes are a single task: give more to see how two workers
share them.

--what=memory makes records of --input_file, repeated to --megabytes, with two
workers. It prints the peak memory of all its processes together, counting every
page once (PSS), and once for each process that maps it (RSS).

--what=vocabulary learns a vocabulary from the whole text and compares it with
--vocab_file: pieces per word and unknown words on --held_out_file.
"""

import collections
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import heading
from absl import flags

from bert_tf import program

_WHAT = flags.DEFINE_enum(
    "what",
    "records",
    ["records", "memory", "vocabulary"],
    "What to measure.",
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text, one sentence per line.", required=True
)
_HELD_OUT_FILE = flags.DEFINE_string(
    "held_out_file", None, "Held-out text to measure the vocabulary on."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "An uncased vocabulary.", required=True
)
_MEGABYTES = flags.DEFINE_float(
    "megabytes", 5, "How much of the text to use.", lower_bound=0.1
)
_REPETITIONS = flags.DEFINE_integer(
    "repetitions", 3, "Runs of each setting.", lower_bound=1
)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30522, "Entries to learn.")


def make_records(text, vocab_file, folder, num_workers):
    """Makes records in this process; returns {what: seconds or number}."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    from bert_tf.pretraining import plan
    from bert_tf.pretraining import run_local
    from bert_tf.pretraining.corpus import blocks
    from bert_tf.pretraining.records import tfrecord
    from bert_tf.pretraining.settings import Settings
    from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
    from bert_tf.text.vocabulary import load_vocabulary

    seconds = collections.Counter()

    def timed(function, name):
        def call(*arguments):
            start = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                seconds[name] += time.perf_counter() - start

        return call

    if num_workers == 1:
        make_tokenize = blocks.make_tokenize
        blocks.make_tokenize = lambda tokenizer: timed(
            make_tokenize(tokenizer), "  tokenise"
        )
        plan.Plan.record_features = timed(
            plan.Plan.record_features, "  pack and mask"
        )
        tfrecord.serialize = timed(tfrecord.serialize, "  serialise")
    tokenizer = WordpieceSpec(load_vocabulary(vocab_file))
    ends = {}
    cpu_start = cpu_seconds()
    start = time.perf_counter()
    counts = run_local.build(
        text,
        os.path.join(folder, "x"),
        tokenizer,
        Settings(dupe_factor=5),
        lambda stage, done, total: ends.update({stage: time.perf_counter()}),
        num_workers,
        overwrite=True,
    )
    end = time.perf_counter()
    before = start
    for stage in run_local.STAGES:
        seconds[stage] = ends[stage] - before
        before = ends[stage]
    return {
        "examples": counts.examples,
        "seconds": end - start,
        "CPU seconds": cpu_seconds() - cpu_start,
        **seconds,
    }


def cpu_seconds():
    """Returns the CPU seconds of this process and its finished children."""
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(each.ru_utime + each.ru_stime for each in used)


def in_new_process(function, *arguments):
    """Returns what the function returns in a new process."""
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=send, args=(sender, function, *arguments)
    )
    process.start()
    sender.close()
    answer = json.loads(receiver.recv())
    process.join()
    return answer


def send(sender, function, *arguments):
    sender.send(json.dumps(function(*arguments)))


def time_records():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with (
            open(_INPUT_FILE.value, "rb") as source,
            open(text, "wb") as target,
        ):
            data = source.read(int(_MEGABYTES.value * 1e6))
            # Drop a character that was cut in half.
            target.write(data.decode("utf-8", "ignore").encode("utf-8"))
        found = {1: [], 2: []}
        for _ in range(_REPETITIONS.value):
            for num_workers, runs in found.items():
                runs.append(
                    in_new_process(
                        make_records,
                        text,
                        _VOCAB_FILE.value,
                        folder,
                        num_workers,
                    )
                )
    names = ["examples", "examples/s", "seconds", "CPU seconds"]
    names += ["tokenize", "  tokenise", "cut", "write", "  pack and mask"]
    names += ["  serialise"]
    print(f"{'':16}" + "".join(f"{n:>9} worker(s)" for n in found))
    for name in names:
        cells = []
        for runs in found.values():
            values = [
                run["examples"] / run["seconds"]
                if name == "examples/s"
                else run.get(name)
                for run in runs
            ]
            if None in values:
                cells.append("")
            elif name.startswith("examples"):
                cells.append(f"{statistics.median(values):,.0f}")
            else:
                cells.append(f"{statistics.median(values):.2f}")
        print(f"{name:16}" + "".join(f"{cell:>19}" for cell in cells))


def process_tree(process):
    """Yields a process and all its descendants."""
    yield process
    try:
        tasks = os.listdir(f"/proc/{process}/task")
        for task in tasks:
            path = f"/proc/{process}/task/{task}/children"
            with open(path) as children:
                for child in children.read().split():
                    yield from process_tree(int(child))
    except OSError:
        # The process has ended meanwhile.
        return


def resident_megabytes(process):
    """Returns {"PSS": MB, "RSS": MB} of a process and its descendants."""
    sums = collections.Counter()
    for each in process_tree(process):
        try:
            with open(f"/proc/{each}/smaps_rollup") as lines:
                for line in lines:
                    name, _, value = line.partition(":")
                    if name in ("Pss", "Rss"):
                        sums[name.upper()] += int(value.split()[0]) * 1024e-6
        except OSError:
            # The process has ended meanwhile.
            continue
    return sums


def measure_memory():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(_INPUT_FILE.value, "rb") as source:
            data = source.read()
        with open(text, "wb") as target:
            while target.tell() < _MEGABYTES.value * 1e6:
                target.write(data.rstrip(b"\n") + b"\n\n")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bert_tf.data.create_pretraining_data"),
                f"--input_file={text}",
                f"--output_file={folder}/x@8",
                f"--vocab_file={_VOCAB_FILE.value}",
                *("--dupe_factor=5", "--num_workers=2"),
            ]
        )
        most = {"PSS": 0, "RSS": 0}
        while process.poll() is None:
            now = resident_megabytes(process.pid)
            most = {name: max(most[name], now[name]) for name in most}
            time.sleep(0.5)
        if process.returncode:
            raise RuntimeError("The program failed.")
    for name, megabytes in most.items():
        print(f"most {name:13}{megabytes:8,.0f} MB")


def learn(path, vocab_size, held_out, vocab_file):
    """Learns a vocabulary; returns the numbers of it and of another one."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    from bert_tf.text.learners import wordpiece
    from bert_tf.text.vocabulary import load_vocabulary

    def peak_megabytes():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

    before = peak_megabytes()
    start = time.perf_counter()
    cpu_start = cpu_seconds()
    counts = wordpiece.count_words([path], do_lower_case=True)
    ours = wordpiece.learn_vocabulary(counts, vocab_size)
    row = {
        "seconds": time.perf_counter() - start,
        "CPU seconds": cpu_seconds() - cpu_start,
        "peak MB": peak_megabytes(),
        "MB at start": before,
    }
    del counts
    words = wordpiece.count_words([held_out], do_lower_case=True)
    rows = {}
    for name, vocabulary, numbers in (
        ("learned", ours, row),
        ("given", load_vocabulary(vocab_file), {}),
    ):
        pieces, unknown = wordpiece.measure(vocabulary, words)
        rows[name] = numbers | {
            "entries": len(vocabulary),
            "pieces a word": pieces,
            "unknown words": unknown,
        }
    return rows


def time_vocabulary():
    if not _HELD_OUT_FILE.value:
        raise ValueError("--what=vocabulary needs --held_out_file.")
    runs = [
        in_new_process(
            learn,
            _INPUT_FILE.value,
            _VOCAB_SIZE.value,
            _HELD_OUT_FILE.value,
            _VOCAB_FILE.value,
        )
        for _ in range(_REPETITIONS.value)
    ]
    print(f"{'':16}{'learned':>12}{'given':>12}")
    for name, form in (
        ("entries", ",.0f"),
        ("pieces a word", ".3f"),
        ("unknown words", ".4%"),
        ("seconds", ".1f"),
        ("CPU seconds", ".1f"),
        ("peak MB", ",.0f"),
        ("MB at start", ",.0f"),
    ):
        cells = []
        for column in ("learned", "given"):
            values = [run[column].get(name) for run in runs]
            cells.append(
                ""
                if None in values
                else format(statistics.median(values), form)
            )
        print(f"{name:16}" + "".join(f"{cell:>12}" for cell in cells))


def main(_):
    heading.show()
    {
        "records": time_records,
        "memory": measure_memory,
        "vocabulary": time_vocabulary,
    }[_WHAT.value]()


if __name__ == "__main__":
    program.run(main)
