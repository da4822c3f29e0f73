"""Makes pre-training records of text files of any size: the whole way.

Three stages, with their files in a work folder beside the records: parts of
the text are tokenised, blocks of documents become shuffled examples, segments
of the examples become masked records. Their tasks run in one process or in
many; a run that was stopped goes on where it was. The records are a function
of the corpus and the settings alone, and what is held in memory depends on
neither.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import shutil

import tensorflow as tf

from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import plan
from bert_tf.pretraining import work_folder
from bert_tf.pretraining import workers
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.records import record_set
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.sources import text_files

# Input for which one more process is worth its start.
_BYTES_A_WORKER = 8 << 20

# Version of the files in a work folder: only the same one goes on with them.
_WORK_VERSION = 3


def build(
    input_files,
    output_files,
    tokenizer,
    settings,
    progress=None,
    num_workers=1,
    work_dir=None,
    max_bad_lines=0,
):
    """Makes records of text files, and the manifest beside them.

    The records appear when all are whole. What was there before stays if
    anything fails. A run that was killed, had no more room on the disk or met
    text that cannot be read goes on where it was when it is started again.

    Args:
        input_files: Comma-separated globs of text files; or a
            `tfds_text.TfdsText`, with the setting `input_format="tfds"`.
        output_files: Comma-separated paths, as `tfrecord.output_paths` reads
            them. Examples are dealt to them evenly, records of several
            examples only about so.
        tokenizer: A `WordpieceTokenizer`.
        settings: A `Settings`.
        progress: Called as `progress(stage, done, total)`; the stages are
            "read" (bytes), "pair" (blocks) and "write" (examples).
        num_workers: The number of processes; 0 is as many as there are cores
            and the size of the input makes worth while.
        work_dir: Where to work: a folder that is made, and removed at the
            end. None is one beside the first record file.
        max_bad_lines: How many lines may be left out, with a warning, because
            they are not UTF-8 or not in the format. Changes no record of an
            input that is read to its end.

    Returns:
        The `record_set.Counts`.

    Raises:
        ValueError: If a file is missing or empty, more lines are bad than may
            be, or there is no sentence.
        OSError: If files cannot be written.
    """
    if num_workers < 0:
        raise ValueError(
            "`num_workers` must not be negative. "
            f"Received: num_workers={num_workers}."
        )
    output_paths = tfrecord.output_paths(output_files)
    source = source_of(input_files, settings)
    parts = tuple(source.parts())
    num_workers = num_workers or _default_workers(sum(source.sizes(parts)))
    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        inputs = list(pool.map(text_files.describe, source.paths))
    manifest = record_set.make_manifest(source, inputs, tokenizer, settings)
    work = dataclasses.asdict(manifest) | {
        "version": _WORK_VERSION,
        "fast": tokenizer.fast,
        "output_paths": output_paths,
    }
    with work_folder.local(work_dir, output_paths, work, parts) as folder:
        job = plan.Job(
            source=source,
            parts=parts,
            work_dir=folder,
            vocabulary=tokenizer.vocabulary.tokens,
            do_lower_case=tokenizer.do_lower_case,
            fast=tokenizer.fast,
            settings=settings,
            max_bad_lines=max_bad_lines,
        )
        with workers.pool(plan.Stages(job), num_workers) as run:
            counts, shards = _run_stages(job, run, len(output_paths), progress)
        _publish(job, output_paths, shards, counts, manifest)
    return counts


def source_of(input_files, settings):
    """Returns what is read, of the same arguments of `build`."""
    if not isinstance(input_files, str):
        return input_files
    return text_files.TextFiles(
        paths=tuple(text_files.input_paths(input_files)),
        input_format=settings.input_format,
        text_field=settings.text_field,
    )


def _default_workers(num_bytes):
    return min(workers.num_cores(), 1 + num_bytes // _BYTES_A_WORKER)


def _run_stages(job, run, num_shards, progress):
    """Runs what is not done.

    Returns:
        The `Counts`, and for every shard the number of records of each of its
        segments.
    """

    def run_stage(method, name, sizes, shown):
        """Runs a stage's tasks; returns the numbers of all, in order."""
        results = {}
        for number in range(len(sizes)):
            told = plan.result(job.path(name, number))
            if told is not None and _is_there(job, name, number, told):
                results[number] = told
        done = sum(sizes[number] for number in results)
        left = [number for number in range(len(sizes)) if number not in results]
        for number, told in run(method, left):
            results[number] = told
            done += sizes[number]
            if progress:
                progress(shown, done, sum(sizes))
        return [results[number] for number in range(len(sizes))]

    part_sizes = job.source.sizes(job.parts)
    parts = record_set.total(run_stage("read_part", "part", part_sizes, "read"))
    record_set.check_parts(parts, job.source, job.max_bad_lines)
    num_blocks = blocks.num_blocks(parts["tokens"])
    _write_json(job, "blocks.json", num_blocks)
    of_blocks = record_set.total(
        run_stage("make_block", "block", [1] * num_blocks, "pair")
    )
    record_set.check_examples(of_blocks["examples"], job.settings)
    shards = record_set.segments_of(
        of_blocks["examples"], num_shards, record_set.SEGMENT_SIZE
    )
    segments = [segment for shard in shards for segment in shard]
    _write_json(job, "segments.json", segments)
    sizes = [stop - start for start, stop in segments]
    results = run_stage("write_segment", "segment", sizes, "write")
    counts = record_set.make_counts(
        parts, of_blocks, record_set.total(results), job.settings
    )
    num_records = iter([result["records"] for result in results])
    return counts, [[next(num_records) for _ in shard] for shard in shards]


def _is_there(job, name, number, told):
    if name != "segment":
        return True
    # A segment moves to its place when all are done.
    path = f"{job.path(name, number)}.tfrecord"
    return os.path.exists(path) and files.size(path) == told["bytes"]


def _publish(job, output_paths, shards, counts, manifest):
    """Makes the record files of the segments, and writes the manifests.

    Args:
        job: The `plan.Job`.
        output_paths: The record files.
        shards: For each of them the number of records of its segments.
        counts: The `Counts`.
        manifest: The `Manifest`, without counts and records.
    """
    paths = (*output_paths, *record_set.manifest_paths(output_paths))
    number = 0
    written = {}
    with contextlib.ExitStack() as stack:
        # On the way out each becomes the file it stands for, the last first:
        # the manifests before the records. Should only some of them get to
        # their places, then the sizes tell that the others are none of them.
        temporaries = {
            path: stack.enter_context(files.whole_file(path)) for path in paths
        }
        work_folder.note_temporaries(job.work_dir, list(temporaries.values()))
        for path, segments in zip(output_paths, shards):
            names = [
                f"{job.path('segment', number + index)}.tfrecord"
                for index in range(len(segments))
            ]
            _join_files(names, temporaries[path])
            written[path] = {
                "examples": sum(segments),
                "bytes": files.size(temporaries[path]),
            }
            number += len(segments)
        made = record_set.make_manifests(manifest, counts, written)
        for path, each in made.items():
            with tf.io.gfile.GFile(temporaries[path], "wb") as stream:
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


def _write_json(job, name, value):
    files.write_text(os.path.join(job.work_dir, name), json.dumps(value))
