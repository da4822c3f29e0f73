"""Makes pre-training records from text files of any size, on one machine.

It runs the stages of the `plan`, with their files in a work folder beside the
records. Their tasks run in one process or in many, and a stopped run can be
resumed. The records are a function of the corpus and the settings alone. The
memory in use depends on neither.
"""

import concurrent.futures
import contextlib
import functools
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable

import tensorflow as tf

from bert_tf import atomic
from bert_tf import cores
from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import plan as plan_lib
from bert_tf.pretraining import record_set
from bert_tf.pretraining import work_folder
from bert_tf.pretraining import workers
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources.tfds_text import TfdsText
from bert_tf.text.tokenizers.tokenizer import Spec

_logger = logging.getLogger(__name__)

# Bytes of input for which another process is worth its start-up time.
_BYTES_A_WORKER = 8 << 20

# Version of the files in a work folder. Other versions do not resume from them.
_WORK_VERSION = 3

# The stages' names for whoever shows the progress.
STAGES = TOKENIZE, CUT, WRITE = "tokenize", "cut", "write"

# The stages' names in file names: parts of the text, blocks of documents, and
# ranges of examples, which older releases called segments.
_PART, _BLOCK, _RANGE = "part", "block", "segment"
# Suffixes of the files that a task of each stage writes.
_SUFFIXES = {
    _PART: blocks.SUFFIXES,
    _BLOCK: example_runs.SUFFIXES,
    _RANGE: ("tfrecord",),
}


class Tasks:
    """The tasks of a plan, as methods that take the number of a task.

    A task writes its files into the work folder. Last it writes a small JSON
    file with its counts, which tells a later run that it is done. The files
    are a function of the plan and the task's number alone.

    Args:
        plan: The `plan.Plan`.
        work_dir: The work folder, on a local disk.
    """

    def __init__(self, plan: plan_lib.Plan, work_dir: str) -> None:
        self.plan = plan
        self.work_dir = work_dir

    def __getstate__(self):
        # Without the cached properties: every process makes its own.
        return {"plan": self.plan, "work_dir": self.work_dir}

    def path(self, stage: str, number: int) -> str:
        """Returns the path of a task's files, without their suffixes."""
        return os.path.join(self.work_dir, f"{stage}-{number:06d}")

    def tokenize_part(self, number: int) -> dict:
        """Tokenises the documents of a part of the text."""
        path = self.path(_PART, number)
        part = self.plan.parts[number]
        return _done(path, self.plan.tokenize_part(part, path))

    def cut_block(self, number: int) -> dict:
        """Makes the examples of a block of the documents."""
        path = self.path(_BLOCK, number)
        parts = range(len(self.plan.parts))
        block = blocks.read_block(
            [self.path(_PART, part) for part in parts],
            self.plan.dtype,
            number,
            self._num_blocks,
        )
        return _done(path, self.plan.cut_block(block, path))

    def write_records(self, number: int) -> dict:
        """Writes the records of one range of the shuffled examples."""
        path = self.path(_RANGE, number)
        _, first, last = self._ranges[number]
        examples = self._runs.read(first, last)
        return _done(
            path, self.plan.write_records(examples, f"{path}.tfrecord")
        )

    def result(self, stage: str, number: int) -> dict | None:
        """Returns the counts of a task, or None if it is not done."""
        path = self.path(stage, number)
        if not os.path.exists(f"{path}.json"):
            return None
        numbers = files.read_json(f"{path}.json")
        if stage == _RANGE:
            # The file is moved away once all tasks are done.
            path = f"{path}.tfrecord"
            if not os.path.exists(path) or files.size(path) != numbers["bytes"]:
                return None
        return numbers

    # The results of one stage that later ones need are in the work folder.

    def note(self, stage: str, value: int | list) -> None:
        """Writes the number of blocks, or the list of ranges, to a file."""
        atomic.write_text(self._note_path(stage), json.dumps(value))

    def _note_path(self, stage):
        return os.path.join(self.work_dir, f"{stage}s.json")

    @functools.cached_property
    def _num_blocks(self):
        return files.read_json(self._note_path(_BLOCK))

    @functools.cached_property
    def _ranges(self):
        return files.read_json(self._note_path(_RANGE))

    @functools.cached_property
    def _runs(self):
        numbers = range(self._num_blocks)
        return example_runs.Runs(
            [self.path(_BLOCK, number) for number in numbers], self.plan.dtype
        )


def _done(path, numbers):
    # The files must be on disk before the one that says so. Listing the folder
    # would be slow: it holds the files of all tasks, perhaps thousands.
    stage, _, _ = os.path.basename(path).rpartition("-")
    for suffix in _SUFFIXES[stage]:
        with open(f"{path}.{suffix}", "rb") as stream:
            os.fsync(stream.fileno())
    atomic.write_text(f"{path}.json", json.dumps(numbers))
    return numbers


def build(
    input_files: str | TfdsText,
    output_files: str,
    tokenizer: Spec,
    settings: Settings,
    progress: Callable | None = None,
    num_workers: int = 1,
    work_dir: str | None = None,
    max_bad_lines: int = 0,
    overwrite: bool = False,
) -> record_set.Counts:
    """Makes records from text files, and the manifest beside them.

    The records appear once all of them are complete. Existing files are
    replaced only with `overwrite`, and stay if anything fails. If equal records
    exist, none are made and a warning says so. Run it again to resume a run
    that was killed, filled the disk or met text that cannot be read.

    Args:
        input_files: Comma-separated globs of text files; or a
            `tfds_text.TfdsText`, with the setting `input_format="tfds"`.
        output_files: Comma-separated paths; see `tfrecord.output_paths`. They
            get equal numbers of examples, so with several examples a record
            only roughly equal numbers of records.
        tokenizer: The spec of the tokenizer.
        settings: A `Settings`.
        progress: Called as `progress(stage, done, total)`, before the first
            task of a stage and after each; the stages are
            "tokenize" (bytes), "cut" (blocks) and "write" (examples).
        num_workers: The number of processes; 0 for one per core, or fewer if
            the input is small.
        work_dir: The work folder, which is created, and removed at the end.
            None for one beside the first record file.
        max_bad_lines: How many lines may be left out, with a warning, because
            they are not UTF-8 or not in the format. It does not change the
            records of an input that is read to its end.
        overwrite: Whether existing files of these names are replaced.

    Returns:
        The `record_set.Counts`.

    Raises:
        ValueError: If a file is missing or empty, too many lines are bad,
            there is no sentence, or other records exist.
        OSError: If files cannot be written.
    """
    if num_workers < 0:
        raise ValueError(
            "`num_workers` must not be negative. "
            f"Received: num_workers={num_workers}."
        )
    output_paths = tfrecord.output_paths(output_files)
    plan = plan_lib.make_plan(input_files, tokenizer, settings, max_bad_lines)
    source = plan.source
    atomic.check_is_no_input("output_file", output_paths, source.paths)
    num_workers = num_workers or min(
        cores.num_cores(),
        1 + sum(source.sizes(plan.parts)) // _BYTES_A_WORKER,
    )
    inputs = _describe(source.paths, num_workers)
    manifest = record_set.make_manifest(plan, inputs)
    # The manifest omits the setting `fast`, which may change the token ids.
    work = tokenizer.settings | record_set.identity(manifest)
    work |= {"version": _WORK_VERSION, "output_paths": output_paths}
    work_dir = work_folder.place(work_dir, output_paths[0])
    # A run that was killed while it moved the files is resumed instead.
    if not overwrite and not work_folder.is_publishing(work_dir, work):
        counts = record_set.find_counts(output_paths, manifest)
        if counts is not None:
            _logger.warning(
                "The records already exist, made from this text with these "
                "settings. Nothing was done; --overwrite makes them again."
            )
            return counts
    with work_folder.local(work_dir, work, plan.parts) as folder:
        tasks = Tasks(plan, folder)
        with workers.pool(tasks, num_workers) as run:
            counts, shards, written = _run_stages(
                tasks, run, len(output_paths), progress
            )
        made = record_set.make_manifests(
            manifest, counts, output_paths, shards, written
        )
        _publish(tasks, output_paths, shards, made)
    return counts


def _describe(paths, num_threads):
    """Returns `text_files.describe` of each file, made in threads.

    An error, such as that of a signal, ends all threads: they are waited for.
    """
    stop = threading.Event()
    describe = functools.partial(text_files.describe, stop=stop)
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        try:
            return list(pool.map(describe, paths))
        except BaseException:
            stop.set()
            raise


def _run_stages(tasks, run, num_shards, progress):
    """Runs the tasks that are not done.

    Returns:
        The `Counts`, the shards' ranges, and {number of a range: counts}.
    """
    plan = tasks.plan

    def run_stage(method, stage, sizes, shown):
        """Runs a stage's tasks; returns the counts of all, in order."""
        results = [tasks.result(stage, number) for number in range(len(sizes))]
        left = [
            number for number, numbers in enumerate(results) if numbers is None
        ]
        done = sum(sizes) - sum(sizes[number] for number in left)
        if progress and left:
            # Show the stage at once: its first task may take minutes.
            progress(shown, done, sum(sizes))
        for number, numbers in run(method, left):
            results[number] = numbers
            done += sizes[number]
            if progress:
                progress(shown, done, sum(sizes))
        return results

    sizes = plan.source.sizes(plan.parts)
    of_parts = record_set.total(
        run_stage("tokenize_part", _PART, sizes, TOKENIZE)
    )
    record_set.check_parts(of_parts, plan)
    num_blocks = blocks.num_blocks(of_parts["tokens"])
    tasks.note(_BLOCK, num_blocks)
    of_blocks = record_set.total(
        run_stage("cut_block", _BLOCK, [1] * num_blocks, CUT)
    )
    record_set.check_examples(of_blocks["examples"], plan.settings)
    shards = record_set.ranges_of(
        of_blocks["examples"], num_shards, record_set.RANGE_SIZE
    )
    ranges = [each for shard in shards for each in shard]
    tasks.note(_RANGE, ranges)
    sizes = [each.last - each.first for each in ranges]
    results = run_stage("write_records", _RANGE, sizes, WRITE)
    counts = record_set.make_counts(
        of_parts, of_blocks, record_set.total(results), plan.settings
    )
    return counts, shards, dict(enumerate(results))


def _publish(tasks, output_paths, shards, made):
    """Makes the record files from the ranges, and writes the manifests.

    Args:
        tasks: The `Tasks`.
        output_paths: The record files.
        shards: The `record_set.Range`s of each.
        made: {path: `Manifest`}.
    """
    with contextlib.ExitStack() as stack:
        # At the exit each temporary file is renamed, the last one first, so
        # manifests come before records. If only some are renamed, the sizes in
        # the manifests expose record files that are not of this set.
        temporaries = {
            path: stack.enter_context(atomic.whole_file(path))
            for path in (*output_paths, *made)
        }
        work_folder.note_temporaries(tasks.work_dir, list(temporaries.values()))
        for path, shard in zip(output_paths, shards):
            names = [
                f"{tasks.path(_RANGE, each.number)}.tfrecord" for each in shard
            ]
            _join_files(names, temporaries[path])
        for path, each in made.items():
            with (
                atomic.clear_write_errors(path),
                tf.io.gfile.GFile(temporaries[path], "wb") as stream,
            ):
                stream.write(manifests.to_text(each).encode("utf-8"))


def _join_files(names, path):
    """Moves files into one: concatenated TFRecord files are a TFRecord file."""
    if files.is_remote(path):
        stream = tf.io.gfile.GFile(path, "wb")
    else:
        shutil.move(names[0], path)
        names = names[1:]
        stream = open(path, "ab")  # noqa: SIM115
    with stream:
        for name in names:
            with open(name, "rb") as source:
                shutil.copyfileobj(source, stream, 1 << 20)
            os.remove(name)
