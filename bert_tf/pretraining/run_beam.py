"""Makes pre-training records as an Apache Beam pipeline.

The stages are the local builder's (`stages`), and so are the records, shard
by shard and byte for byte; only what lies between the stages travels through
the pipeline instead of a work folder:

    parts of the input    -> tokenised documents, by block
    blocks of documents   -> sorted runs of examples, by bucket of their order
    buckets of all runs   -> merged, cut anew by segment
    segments of examples  -> record files, joined to shards

What is known only after a stage, how many tokens or examples there are, the
next one gets as a side input. Paths must be such that all workers see them.
"""

import contextlib
import os
import sys
import tempfile

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import DirectRunner
from apache_beam.runners.runner import PipelineState

from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import plan
from bert_tf.pretraining import run_local
from bert_tf.pretraining import work_folder
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import record_set
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.sources import text_files

_COUNTS = "counts"


def build(
    input_files,
    output_files,
    tokenizer,
    settings,
    options,
    work_dir=None,
    max_bad_lines=0,
):
    """Runs the pipeline, and waits for its end.

    Args:
        input_files: As of `run_local.build`.
        output_files: As of `run_local.build`.
        tokenizer: A `WordpieceTokenizer`.
        settings: A `Settings`.
        options: A list of the pipeline's options, e.g.
            `["--runner=DataflowRunner", "--project=..."]`.
        work_dir: A folder in which one is made for record files that are not
            whole yet, and removed when the job is over; None is that of the
            first record file.
        max_bad_lines: As of `run_local.build`.

    Returns:
        The `record_set.Counts`; None if the job has not been waited for, or
        its files cannot be seen from here.

    Raises:
        ValueError: If an option is unknown, or the input cannot be read or
            is empty. Of what workers raise, the runner decides.
    """
    output_paths = tfrecord.output_paths(output_files)
    source = run_local.source_of(input_files, settings)
    pipeline_options = PipelineOptions(options)
    unknown = pipeline_options.get_all_options(retain_unknown_options=True)
    unknown = set(unknown) - set(pipeline_options.get_all_options())
    if unknown:
        raise ValueError(
            "`beam_option` must name options of the runner. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    manifest = record_set.make_manifest(source, [], tokenizer, settings)
    parts = tuple(source.parts())
    pipeline = beam.Pipeline(options=pipeline_options)
    with work_folder.shared(
        work_dir, output_paths[0], lambda: _is_over(pipeline)
    ) as folder:
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
        with pipeline:
            _add_stages(pipeline, job, output_paths, manifest)
    path = next(iter(record_set.manifest_paths(output_paths)))
    if not _is_over(pipeline) or not files.exists(path):
        return None
    return record_set.Counts(**manifests.read(path).counts)


def _is_over(pipeline):
    """Returns whether the pipeline's job has ended, or never began."""
    result = getattr(pipeline, "result", None)
    if result is not None:
        return PipelineState.is_terminal(result.state)
    # It was being started. What the direct runner raises ends its job; of
    # others, and where somebody interrupts, there is no telling.
    return isinstance(pipeline.runner, DirectRunner) and isinstance(
        sys.exception(), Exception
    )


def _add_stages(pipeline, job, output_paths, manifest):
    """Adds all steps to a pipeline."""
    one = pipeline | "One" >> beam.Create([None])
    inputs = _list_of(
        pipeline
        | "Files" >> beam.Create(list(enumerate(job.source.paths)))
        | "SpreadFiles" >> beam.Reshuffle()
        | "Hash"
        >> beam.MapTuple(lambda n, path: (n, text_files.describe(path)))
    )
    texts = (
        pipeline
        | "Parts" >> beam.Create(list(job.parts))
        | "SpreadParts" >> beam.Reshuffle()
        | "Tokenise" >> _with_counts(_Tokenise(job))
    )
    part_counts = _total_of(texts, "OfParts")
    num_blocks = beam.pvalue.AsSingleton(
        one
        | "NumBlocks"
        >> beam.Map(
            _num_blocks,
            part_counts,
            job.source,
            job.max_bad_lines,
            blocks.BLOCK_TOKENS,
        )
    )
    runs = (
        texts.main
        | "ByBlock" >> beam.Map(_with_block, num_blocks)
        | "Blocks" >> beam.GroupByKey()
        | "Pair" >> _with_counts(_Pair(job))
    )
    block_counts = _total_of(runs, "OfBlocks")
    bucket_starts = beam.pvalue.AsSingleton(
        runs.main
        | "BucketSizes" >> beam.MapTuple(_bucket_size)
        | "AddSizes" >> beam.CombinePerKey(sum)
        | "AllSizes" >> beam.combiners.ToDict()
        | "BucketStarts" >> beam.Map(_starts)
    )
    shards = beam.pvalue.AsSingleton(
        one
        | "Segments"
        >> beam.Map(
            _segments,
            block_counts,
            len(output_paths),
            record_set.SEGMENT_SIZE,
            job.settings,
        )
    )
    written = (
        runs.main
        | "Buckets" >> beam.GroupByKey()
        | "Merge" >> beam.FlatMap(_merge, bucket_starts, shards, _dtype(job))
        | "Segment" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(_Write(job))
    )
    segments = _list_of(written)
    manifests = one | "Manifest" >> beam.Map(
        _write_manifests,
        manifest,
        inputs,
        part_counts,
        block_counts,
        shards,
        segments,
        output_paths,
        job.settings,
    )
    # After the manifests, as the local builder does.
    (
        pipeline
        | "Shards" >> beam.Create(list(enumerate(output_paths)))
        | "SpreadShards" >> beam.Reshuffle()
        | "Join"
        >> beam.Map(
            _join,
            shards,
            segments,
            beam.pvalue.AsSingleton(manifests),
            job.work_dir,
        )
    )


def _with_counts(function):
    return beam.ParDo(function).with_outputs(_COUNTS, main="main")


def _total_of(outputs, name):
    """Returns the sums of all tasks' numbers, as a side input."""
    return beam.pvalue.AsSingleton(
        outputs[_COUNTS] | name >> beam.CombineGlobally(record_set.total)
    )


def _list_of(collection):
    return beam.pvalue.AsList(collection)


def _dtype(job):
    return blocks.token_dtype(len(job.vocabulary))


class _Task(beam.DoFn):
    """What works with the `Stages` of a job."""

    def __init__(self, job):
        super().__init__()
        self._job = job

    def setup(self):
        self._stages = plan.Stages(self._job)


class _Tokenise(_Task):
    """Parts to documents: (block bits, (key, token ids, lengths))."""

    def process(self, part):
        with _scratch() as path:
            counts = self._stages.tokenize_part(part, path)
            for bits, *document in blocks.read_documents(
                path, self._stages.dtype
            ):
                yield bits, tuple(document)
        yield beam.pvalue.TaggedOutput(_COUNTS, counts)


class _Pair(_Task):
    """Blocks to runs: (bucket, (block, rows, token ids))."""

    def process(self, element):
        block, found = element
        # By their keys, which are unique; the arrays have no order.
        found = sorted(found, key=lambda document: document[0])
        keys, tokens, lengths = zip(*found)
        text, cuts, counts = self._stages.cut(
            blocks.assemble(
                keys, list(tokens), list(lengths), self._stages.dtype
            )
        )
        with _scratch() as path:
            written = example_runs.write_run(
                text, cuts, self._stages.dtype, path
            )
            for bucket, rows, ids in example_runs.read_chunks(
                path, self._stages.dtype
            ):
                yield bucket, (block, rows, ids)
        yield beam.pvalue.TaggedOutput(_COUNTS, counts | written)


class _Write(_Task):
    """Segments of examples to record files: (segment, numbers)."""

    def process(self, element):
        segment, chunks = element
        path = _segment_path(self._job.work_dir, segment)
        rows, tokens = _arrays(chunks, self._stages.dtype)
        with files.whole_file(path) as temporary:
            numbers = self._stages.write_records(
                example_runs.merge(rows, tokens), temporary
            )
        yield segment, numbers


def _segment_path(work_dir, segment):
    return os.path.join(work_dir, f"segment-{segment:06d}.tfrecord")


@contextlib.contextmanager
def _scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "x")


def _num_blocks(_, counts, source, max_bad_lines, block_tokens):
    record_set.check_parts(counts, source, max_bad_lines)
    return blocks.num_blocks(counts["tokens"], block_tokens)


def _with_block(element, num_blocks):
    bits, document = element
    return blocks.block_of(bits, num_blocks), document


def _bucket_size(bucket, chunk):
    _, rows, _ = chunk
    return bucket, example_runs.num_rows(rows)


def _starts(sizes):
    """Returns {bucket: the number of its first example}."""
    starts, start = {}, 0
    for bucket in sorted(sizes):
        starts[bucket] = start
        start += sizes[bucket]
    return starts


def _segments(_, counts, num_shards, segment_size, settings):
    record_set.check_examples(counts["examples"], settings)
    return record_set.segments_of(counts["examples"], num_shards, segment_size)


def _arrays(chunks, dtype):
    """Returns rows and tokens of chunks, in the order of their numbers."""
    arrays = [
        example_runs.from_bytes(rows, ids, dtype)
        for _, rows, ids in sorted(chunks, key=lambda chunk: chunk[0])
    ]
    return [rows for rows, _ in arrays], [ids for _, ids in arrays]


def _merge(element, starts, shards, dtype):
    """Yields (segment, (bucket, rows, token ids)) of a bucket's runs."""
    bucket, chunks = element
    rows, tokens = _arrays(chunks, dtype)
    start = starts[bucket]
    stop = start + sum(map(len, rows))
    # Segments stand in a row; only empty ones begin where another does.
    firsts = np.array([first for shard in shards for first, _ in shard])
    first = np.searchsorted(firsts, start, side="right") - 1
    last = np.searchsorted(firsts, stop)
    numbers = range(first, last)
    edges = [max(start, firsts[number]) for number in numbers]
    edges = [int(edge) - start for edge in (*edges, stop)]
    pieces = example_runs.split(rows, tokens, edges)
    for number, size, piece in zip(numbers, np.diff(edges), pieces):
        if size:
            yield int(number), (bucket, *piece)


def _written(shards, segments):
    """Yields for every shard the numbers of its segments, {segment: ...}."""
    found = dict(segments)
    number = 0
    for shard in shards:
        numbers = range(number, number + len(shard))
        # An empty segment is none.
        yield {each: found[each] for each in numbers if each in found}
        number += len(shard)


def _write_manifests(
    _,
    manifest,
    inputs,
    part_counts,
    block_counts,
    shards,
    segments,
    output_paths,
    settings,
):
    manifest.inputs.extend(described for _, described in sorted(inputs))
    total = record_set.total(numbers for _, numbers in segments)
    by_shard = [
        record_set.total(each.values()) for each in _written(shards, segments)
    ]
    made = record_set.make_manifests(
        manifest,
        record_set.make_counts(part_counts, block_counts, total, settings),
        {
            path: {
                "examples": numbers.get("records", 0),
                "bytes": numbers.get("bytes", 0),
            }
            for path, numbers in zip(output_paths, by_shard)
        },
    )
    for path, each in made.items():
        manifests.write(each, path)


def _join(element, shards, segments, manifests, work_dir):
    """Writes one record file from its segments."""
    del manifests  # Only waited for.
    number, path = element
    with (
        files.whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as stream,
    ):
        # Without it there would be no file of an empty shard.
        stream.write(b"")
        for segment in list(_written(shards, segments))[number]:
            with tf.io.gfile.GFile(
                _segment_path(work_dir, segment), "rb"
            ) as source:
                while block := source.read(1 << 20):
                    stream.write(block)
