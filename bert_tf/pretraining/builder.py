"""Makes pre-training records of text files of any size: the whole way.

Three stages, with their files in a work folder beside the records: parts of
the text are tokenised, blocks of documents become shuffled examples, segments
of the examples become masked records. Their tasks run in one process or in
many; a run that was stopped goes on where it was. The records are a function
of the corpus and the settings alone, and what is held in memory depends on
neither.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import os
import shutil

import tensorflow as tf

from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import documents
from bert_tf.pretraining import records
from bert_tf.pretraining import sentence_pairs
from bert_tf.pretraining import stages
from bert_tf.pretraining import workers

# Examples of one task of the last stage.
_SEGMENT_SIZE = 1 << 16

# Input for which one more process is worth its start.
_BYTES_A_WORKER = 8 << 20

# Version of the files in a work folder: only the same one goes on with them.
_WORK_VERSION = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Totals of a set of records.

    Args:
        documents: Documents read.
        sentences: Their sentences.
        tokens: Their tokens.
        examples: Examples written.
        records: Records that hold them: as many, or fewer rows of several.
        example_tokens: Tokens of all examples, [CLS] and [SEP] counted.
        random_pairs: Examples whose second segment is a random one, or
            whose segments are swapped.
        predictions: Tokens that are to be predicted; none are chosen where
            the masking is dynamic.
        cut_lines: Lines that were too long, and cut.
        cut_documents: Documents that were too long, and cut.
        lone_documents: Documents with no other to draw a random next
            sentence from; their own were drawn.
        skipped_documents: Documents of one sentence, which have no example
            with the objective "sentence_order".
        padding: Share of the records' columns that is padding.
        unpacked_padding: What it would be with one example a record.
    """

    documents: int
    sentences: int
    tokens: int
    examples: int
    records: int
    example_tokens: int
    random_pairs: int
    predictions: int
    cut_lines: int
    cut_documents: int
    lone_documents: int
    skipped_documents: int
    padding: float
    unpacked_padding: float


def build(
    input_files,
    output_files,
    tokenizer,
    settings,
    progress=None,
    num_workers=1,
    work_dir=None,
):
    """Makes records of text files, and the manifest beside them.

    The records appear when all are whole. What was there before stays if
    anything fails. A run that was killed or had no more room on the disk goes
    on where it was when it is started again; input that turns out bad leaves
    nothing behind.

    Args:
        input_files: Comma-separated globs of text files; or a
            `tfds_text.TfdsText`, with the setting `input_format="tfds"`.
        output_files: Comma-separated paths, as `records.output_paths` reads
            them. Examples are dealt to them evenly, records of several
            examples only about so.
        tokenizer: A `WordpieceTokenizer`.
        settings: A `stages.Settings`.
        progress: Called as `progress(stage, done, total)`; the stages are
            "read" (bytes), "pair" (blocks) and "write" (examples).
        num_workers: The number of processes; 0 is as many as there are cores
            and the size of the input makes worth while.
        work_dir: Where to work: a folder that is made, and removed at the
            end. None is one beside the first record file.

    Returns:
        The `Counts`.

    Raises:
        ValueError: If a file is missing, empty or not in its format, or there
            is no sentence.
        OSError: If files cannot be written.
    """
    if num_workers < 0:
        raise ValueError(
            "`num_workers` must not be negative. "
            f"Received: num_workers={num_workers}."
        )
    output_paths = records.output_paths(output_files)
    source = source_of(input_files, settings)
    parts = tuple(source.parts())
    num_workers = num_workers or _default_workers(sum(source.sizes(parts)))
    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        inputs = list(pool.map(documents.describe, source.paths))
    manifest = make_manifest(source, inputs, tokenizer, settings)
    work = dataclasses.asdict(manifest) | {
        "version": _WORK_VERSION,
        "fast": tokenizer.fast,
        "output_paths": output_paths,
    }
    with _work_folder(work_dir, output_paths, work) as folder:
        job = stages.Job(
            source=source,
            parts=parts,
            work_dir=folder,
            vocabulary=tokenizer.vocabulary.tokens,
            do_lower_case=tokenizer.do_lower_case,
            fast=tokenizer.fast,
            settings=settings,
        )
        with workers.pool(stages.Stages(job), num_workers) as run:
            counts, shards = _run_stages(job, run, len(output_paths), progress)
        _publish(job, output_paths, shards, counts, manifest)
    return counts


def source_of(input_files, settings):
    """Returns what is read, of the same arguments of `build`."""
    if not isinstance(input_files, str):
        return input_files
    return documents.TextFiles(
        paths=tuple(documents.input_paths(input_files)),
        input_format=settings.input_format,
        text_field=settings.text_field,
    )


def make_manifest(source, inputs, tokenizer, settings):
    """Returns the `Manifest` of records, as far as it is known before.

    Args:
        source: What is read.
        inputs: `documents.describe` of each of its files.
        tokenizer: The `WordpieceTokenizer`.
        settings: The `stages.Settings`.
    """
    return manifests.Manifest(
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        vocab_size=len(tokenizer.vocabulary),
        vocab_sha256=manifests.text_sha256(tokenizer.vocabulary.to_text()),
        do_lower_case=tokenizer.do_lower_case,
        settings={
            name: value
            for name, value in dataclasses.asdict(settings).items()
            if name not in ("max_seq_length", "max_predictions_per_seq")
        }
        | source.settings,
        inputs=inputs,
        counts={},
        records={},
    )


def _default_workers(num_bytes):
    cores = len(os.sched_getaffinity(0))
    return min(cores, 1 + num_bytes // _BYTES_A_WORKER)


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
            told = stages.result(job.path(name, number))
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
    parts = _total(run_stage("read_part", "part", part_sizes, "read"))
    check_tokens(parts["tokens"], job.source)
    num_blocks = sentence_pairs.num_blocks(parts["tokens"])
    _write_json(job, "blocks.json", num_blocks)
    blocks = _total(run_stage("make_block", "block", [1] * num_blocks, "pair"))
    check_examples(blocks["examples"])
    shards = segments_of(blocks["examples"], num_shards, _SEGMENT_SIZE)
    segments = [segment for shard in shards for segment in shard]
    _write_json(job, "segments.json", segments)
    sizes = [stop - start for start, stop in segments]
    results = run_stage("write_segment", "segment", sizes, "write")
    counts = make_counts(parts, blocks, _total(results), job.settings)
    num_records = iter([result["records"] for result in results])
    return counts, [[next(num_records) for _ in shard] for shard in shards]


def check_tokens(num_tokens, source):
    """Raises `ValueError` if there are none in the source."""
    if not num_tokens:
        raise ValueError(
            f"There is no sentence in the input: {', '.join(source.names)}."
        )


def check_examples(num_examples):
    """Raises `ValueError` if there are none."""
    if not num_examples:
        raise ValueError(
            "No document of the input has two sentences, which the objective "
            "`sentence_order` needs."
        )


def make_counts(parts, blocks, written, settings):
    """Returns the `Counts` of the totals of the three stages' tasks."""
    length = settings.max_seq_length
    padding, unpacked_padding = (
        1 - blocks["example_tokens"] / (number * length)
        for number in (written["records"], blocks["examples"])
    )
    return Counts(
        records=written["records"],
        predictions=written["predictions"],
        padding=round(padding, 4),
        unpacked_padding=round(unpacked_padding, 4),
        **{
            name: (parts | blocks)[name]
            for name in (
                "documents",
                "sentences",
                "tokens",
                "examples",
                "example_tokens",
                "random_pairs",
                "cut_lines",
                "cut_documents",
                "lone_documents",
                "skipped_documents",
            )
        },
    )


def _is_there(job, name, number, told):
    if name != "segment":
        return True
    # A segment moves to its place when all are done.
    path = f"{job.path(name, number)}.tfrecord"
    return os.path.exists(path) and files.size(path) == told["bytes"]


def _total(results):
    """Returns the sums of the numbers of tasks."""
    total = collections.Counter()
    for result in results:
        total.update(result)
    return dict(total)


def segments_of(num_examples, num_shards, segment_size):
    """Returns for every shard its segments: ranges of examples.

    The shards' sizes differ by one at most, and one after another they hold
    the examples in order.

    Differs from BERT: the original fills its files in turn. Of examples in a
    random order both ways give every file a random share.
    """
    shards = []
    for number in range(num_shards):
        start, stop = (
            num_examples * edge // num_shards for edge in (number, number + 1)
        )
        edges = [*range(start, stop, segment_size), stop]
        shards.append(list(zip(edges, edges[1:])) or [(start, stop)])
    return shards


def _publish(job, output_paths, shards, counts, manifest):
    """Makes the record files of the segments, and writes the manifests.

    Args:
        job: The `stages.Job`.
        output_paths: The record files.
        shards: For each of them the number of records of its segments.
        counts: The `Counts`.
        manifest: The `Manifest`, without counts and records.
    """
    number = 0
    written = {}
    with contextlib.ExitStack() as stack:
        # On the way out each becomes the file it stands for.
        for path, segments in zip(output_paths, shards):
            temporary = stack.enter_context(files.whole_file(path))
            names = [
                f"{job.path('segment', number + index)}.tfrecord"
                for index in range(len(segments))
            ]
            _join_files(names, temporary)
            written[path] = {
                "examples": sum(segments),
                "bytes": files.size(temporary),
            }
            number += len(segments)
        # Before the records: should only some of them get to their places,
        # then the sizes tell that the others are none of them.
        write_manifests(manifest, counts, written)


def write_manifests(manifest, counts, written):
    """Writes the manifest beside the records, in each of their folders.

    Args:
        manifest: As `make_manifest` returns it.
        counts: The `Counts`.
        written: `{path: {"examples", "bytes"}}` of all record files.
    """
    by_folder = {}
    for path in written:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    for paths in by_folder.values():
        manifests.write(
            dataclasses.replace(
                manifest,
                counts=dataclasses.asdict(counts),
                records={
                    path.rpartition("/")[2]: written[path] for path in paths
                },
            ),
            manifests.path_beside(paths),
        )


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


@contextlib.contextmanager
def _work_folder(work_dir, output_paths, work):
    """Yields the work folder, with what an earlier run of this work left.

    Args:
        work_dir: The folder, or None.
        output_paths: The record files.
        work: What must be equal for the earlier run to be one of this work.
    """
    output_dir, _, name = output_paths[0].rpartition("/")
    if not work_dir:
        if files.is_remote(output_dir):
            raise ValueError(
                "`work_dir` must name a folder on a local disk, as the "
                f"records do not lie on one: {output_paths[0]}."
            )
        work_dir = os.path.join(output_dir, f".{name}.work")
    is_new = bool(output_dir) and not files.exists(output_dir)
    files.make_folder(work_dir)
    told = os.path.join(work_dir, "work.json")
    try:
        with open(os.path.join(work_dir, "lock"), "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OSError(
                    f"Another process is working in {work_dir}."
                ) from error
            others = set(os.listdir(work_dir)) - {"lock"}
            if others and not os.path.exists(told):
                raise FileExistsError(
                    f"`work_dir` must be empty, or of an earlier run. "
                    f"Received: work_dir={work_dir!r}."
                )
            if others and files.read_json(told) != work:
                for other in others - {"work.json"}:
                    files.remove(os.path.join(work_dir, other))
                others = set()
            if not others:
                files.write_text(told, json.dumps(work))
            yield work_dir
        shutil.rmtree(work_dir)
    except OSError as error:
        raise OSError(
            f"{error} (Run again to go on with what is done in {work_dir}.)"
        ) from error
    except ValueError:
        shutil.rmtree(work_dir)
        if is_new and not files.is_remote(output_dir):
            with contextlib.suppress(OSError):
                os.rmdir(output_dir)
        raise
