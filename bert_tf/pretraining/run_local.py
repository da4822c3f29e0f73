"""Makes pre-training records of text files of any size, on one machine.

The stages of the `plan`, with their files in a work folder beside the records.
Their tasks run in one process or in many; a run that was stopped goes on where
it was. The records are a function of the corpus and the settings alone, and
what is held in memory depends on neither.
"""

import concurrent.futures
import contextlib
import functools
import json
import logging
import os
import shutil
from collections.abc import Callable

import tensorflow as tf

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

# Input for which one more process is worth its start.
_BYTES_A_WORKER = 8 << 20

# Version of the files in a work folder: only the same one goes on with them.
_WORK_VERSION = 3

# The stages, as the names of their files have them: parts of the text, blocks
# of documents, and ranges of examples, of which older releases said segments.
_PART, _BLOCK, _RANGE = "part", "block", "segment"
# Of the files that a task of each writes.
_SUFFIXES = {
    _PART: blocks.SUFFIXES,
    _BLOCK: example_runs.SUFFIXES,
    _RANGE: ("tfrecord",),
}


class Tasks:
    """The tasks of a plan, as methods of their numbers.

    A task writes its files into the work folder, and last a small JSON file
    with its numbers, by which a later run knows that it is done. What it
    writes is a function of the plan and its own number alone.

    Args:
        plan: The `plan.Plan`.
        work_dir: The work folder, on a local disk.
    """

    def __init__(self, plan: plan_lib.Plan, work_dir: str) -> None:
        self.plan = plan
        self.work_dir = work_dir

    def __getstate__(self):
        # Not what the cached properties hold: every process makes its own.
        return {"plan": self.plan, "work_dir": self.work_dir}

    def path(self, stage: str, number: int) -> str:
        """Returns where a task writes: a name for suffixes."""
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
        """Returns the numbers of a task, or None if it is not done."""
        path = self.path(stage, number)
        if not os.path.exists(f"{path}.json"):
            return None
        told = files.read_json(f"{path}.json")
        if stage == _RANGE:
            # It moves to its place when all are done.
            path = f"{path}.tfrecord"
            if not os.path.exists(path) or files.size(path) != told["bytes"]:
                return None
        return told

    # What is known only after an earlier stage lies in the work folder.

    def note(self, stage: str, value: int | list) -> None:
        """Writes there how many blocks there are, or the list of ranges."""
        files.write_text(self._note_path(stage), json.dumps(value))

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
    # On the disk before the file that says so. The folder is not searched: it
    # has the files of all tasks, and a corpus may have thousands of files.
    stage, _, _ = os.path.basename(path).rpartition("-")
    for suffix in _SUFFIXES[stage]:
        with open(f"{path}.{suffix}", "rb") as stream:
            os.fsync(stream.fileno())
    files.write_text(f"{path}.json", json.dumps(numbers))
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
    """Makes records of text files, and the manifest beside them.

    The records appear when all are whole. What was there before is replaced
    only if it may be, and stays if anything fails; of equal records that are
    there already nothing is made, and a warning says so. A run that was killed,
    had no more room on the disk or met text that cannot be read goes on where
    it was when it is started again.

    Args:
        input_files: Comma-separated globs of text files; or a
            `tfds_text.TfdsText`, with the setting `input_format="tfds"`.
        output_files: Comma-separated paths, as `tfrecord.output_paths` reads
            them. Examples are dealt to them evenly, records of several
            examples only about so.
        tokenizer: The spec of the tokenizer.
        settings: A `Settings`.
        progress: Called as `progress(stage, done, total)`, before the first
            task of a stage and after each; the stages are
            "tokenize" (bytes), "cut" (blocks) and "write" (examples).
        num_workers: The number of processes; 0 is as many as there are cores
            and the size of the input makes worth while.
        work_dir: Where to work: a folder that is made, and removed at the
            end. None is one beside the first record file.
        max_bad_lines: How many lines may be left out, with a warning, because
            they are not UTF-8 or not in the format. Changes no record of an
            input that is read to its end.
        overwrite: Whether files of these names that are there are replaced.

    Returns:
        The `record_set.Counts`.

    Raises:
        ValueError: If a file is missing or empty, more lines are bad than may
            be, there is no sentence, or other records are there already.
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
    files.check_is_no_input("output_file", output_paths, source.paths)
    num_workers = num_workers or min(
        cores.num_cores(),
        1 + sum(source.sizes(plan.parts)) // _BYTES_A_WORKER,
    )
    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        inputs = list(pool.map(text_files.describe, source.paths))
    manifest = record_set.make_manifest(plan, inputs)
    # No model's concern, but other text: whether a tokenizer is fast.
    work = tokenizer.settings | record_set.identity(manifest)
    work |= {"version": _WORK_VERSION, "output_paths": output_paths}
    work_dir = work_folder.place(work_dir, output_paths[0])
    # A run that was killed as it moved them to their places goes on.
    if not overwrite and not work_folder.is_publishing(work_dir, work):
        counts = record_set.find_counts(output_paths, manifest)
        if counts is not None:
            _logger.warning(
                "The records are there already, made of this text with these "
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


def _run_stages(tasks, run, num_shards, progress):
    """Runs what is not done.

    Returns:
        The `Counts`, the shards' ranges, and {number of a range: numbers}.
    """
    plan = tasks.plan

    def run_stage(method, stage, sizes, shown):
        """Runs a stage's tasks; returns the numbers of all, in order."""
        results = [tasks.result(stage, number) for number in range(len(sizes))]
        left = [number for number, told in enumerate(results) if told is None]
        done = sum(sizes) - sum(sizes[number] for number in left)
        if progress and left:
            # A task may take minutes.
            progress(shown, done, sum(sizes))
        for number, told in run(method, left):
            results[number] = told
            done += sizes[number]
            if progress:
                progress(shown, done, sum(sizes))
        return results

    sizes = plan.source.sizes(plan.parts)
    of_parts = record_set.total(
        run_stage("tokenize_part", _PART, sizes, "tokenize")
    )
    record_set.check_parts(of_parts, plan)
    num_blocks = blocks.num_blocks(of_parts["tokens"])
    tasks.note(_BLOCK, num_blocks)
    of_blocks = record_set.total(
        run_stage("cut_block", _BLOCK, [1] * num_blocks, "cut")
    )
    record_set.check_examples(of_blocks["examples"], plan.settings)
    shards = record_set.ranges_of(
        of_blocks["examples"], num_shards, record_set.RANGE_SIZE
    )
    ranges = [each for shard in shards for each in shard]
    tasks.note(_RANGE, ranges)
    sizes = [each.last - each.first for each in ranges]
    results = run_stage("write_records", _RANGE, sizes, "write")
    counts = record_set.make_counts(
        of_parts, of_blocks, record_set.total(results), plan.settings
    )
    return counts, shards, dict(enumerate(results))


def _publish(tasks, output_paths, shards, made):
    """Makes the record files of the ranges, and writes the manifests.

    Args:
        tasks: The `Tasks`.
        output_paths: The record files.
        shards: The `record_set.Range`s of each.
        made: {path: `Manifest`}.
    """
    with contextlib.ExitStack() as stack:
        # On the way out each becomes the file it stands for, the last first:
        # the manifests before the records. Should only some of them get to
        # their places, then the sizes tell that the others are none of them.
        temporaries = {
            path: stack.enter_context(files.whole_file(path))
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
                files.failed_writes_told(path),
                tf.io.gfile.GFile(temporaries[path], "wb") as stream,
            ):
                stream.write(manifests.to_text(each).encode("utf-8"))


def _join_files(names, path):
    """Moves files into one; TFRecord files in a row are a TFRecord file."""
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
