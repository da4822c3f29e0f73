"""Makes pre-training records as an Apache Beam pipeline.

The stages are those of the `plan`, and the records `run_local`'s, shard
by shard and byte for byte; only what lies between the stages travels through
the pipeline instead of a work folder:

    parts of the input    -> tokenised documents, by block
    blocks of documents   -> sorted runs of examples, by bucket of their order
    buckets of all runs   -> merged, cut anew by range of the examples
    ranges of examples    -> record files, joined to shards

What is known only after a stage, how many tokens or examples there are, the
next one gets as a side input. Paths must be such that all workers see them.
"""

import contextlib
import itertools
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
from bert_tf.pretraining import plan as plan_lib
from bert_tf.pretraining import work_folder
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import record_set
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources.tfds_text import TfdsText
from bert_tf.text.tokenizers.tokenizer import Spec

_COUNTS = "counts"


def build(
    input_files: str | TfdsText,
    output_files: str,
    tokenizer: Spec,
    settings: Settings,
    options: list[str],
    work_dir: str | None = None,
    max_bad_lines: int = 0,
) -> record_set.Counts | None:
    """Runs the pipeline, and waits for its end.

    Args:
        input_files: As of `run_local.build`.
        output_files: As of `run_local.build`.
        tokenizer: The spec of the tokenizer.
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
    plan = plan_lib.make_plan(input_files, tokenizer, settings, max_bad_lines)
    pipeline_options = PipelineOptions(options)
    unknown = pipeline_options.get_all_options(retain_unknown_options=True)
    unknown = set(unknown) - set(pipeline_options.get_all_options())
    if unknown:
        raise ValueError(
            "`beam_option` must name options of the runner. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    manifest = record_set.make_manifest(plan.source, [], tokenizer, settings)
    pipeline = beam.Pipeline(options=pipeline_options)
    with (
        work_folder.shared(
            work_dir, output_paths[0], lambda: _is_over(pipeline)
        ) as folder,
        pipeline,
    ):
        _add_stages(pipeline, plan, folder, output_paths, manifest)
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


def _add_stages(pipeline, plan, folder, output_paths, manifest):
    """Adds all steps to a pipeline."""
    one = pipeline | "One" >> beam.Create([None])
    inputs = beam.pvalue.AsList(
        pipeline
        | "Files" >> beam.Create(list(enumerate(plan.source.paths)))
        | "SpreadFiles" >> beam.Reshuffle()
        | "Hash"
        >> beam.MapTuple(lambda n, path: (n, text_files.describe(path)))
    )
    texts = (
        pipeline
        | "Parts" >> beam.Create(list(plan.parts))
        | "SpreadParts" >> beam.Reshuffle()
        | "Tokenise" >> _with_counts(_tokenize, plan)
    )
    part_counts = _total_of(texts, "OfParts")
    num_blocks = beam.pvalue.AsSingleton(
        one
        | "NumBlocks"
        >> beam.Map(
            _num_blocks,
            part_counts,
            plan.source,
            plan.max_bad_lines,
            blocks.BLOCK_TOKENS,
        )
    )
    runs = (
        texts.main
        | "ByBlock" >> beam.Map(_with_block, num_blocks)
        | "Blocks" >> beam.GroupByKey()
        | "Cut" >> _with_counts(_cut, plan)
    )
    block_counts = _total_of(runs, "OfBlocks")
    first_examples = beam.pvalue.AsSingleton(
        runs.main
        | "BucketSizes" >> beam.MapTuple(_bucket_size)
        | "AddSizes" >> beam.CombinePerKey(sum)
        | "AllSizes" >> beam.combiners.ToDict()
        | "FirstExamples" >> beam.Map(_first_examples)
    )
    shards = beam.pvalue.AsSingleton(
        one
        | "Ranges"
        >> beam.Map(
            _ranges,
            block_counts,
            len(output_paths),
            record_set.RANGE_SIZE,
            plan.settings,
        )
    )
    written = beam.pvalue.AsList(
        runs.main
        | "Buckets" >> beam.GroupByKey()
        | "Merge" >> beam.FlatMap(_merge, first_examples, shards, plan.dtype)
        | "ByRange" >> beam.GroupByKey()
        | "Write" >> beam.Map(_write, plan, folder)
    )
    manifests = one | "Manifest" >> beam.Map(
        _write_manifests,
        manifest,
        inputs,
        part_counts,
        block_counts,
        shards,
        written,
        output_paths,
        plan.settings,
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
            written,
            beam.pvalue.AsSingleton(manifests),
            folder,
        )
    )


def _with_counts(function, plan):
    return beam.FlatMap(function, plan).with_outputs(_COUNTS, main="main")


def _total_of(outputs, name):
    """Returns the sums of all tasks' numbers, as a side input."""
    return beam.pvalue.AsSingleton(
        outputs[_COUNTS] | name >> beam.CombineGlobally(record_set.total)
    )


def _tokenize(part, plan):
    """Part to documents: (block bits, (key, token ids, lengths))."""
    with _scratch() as path:
        counts = plan.tokenize_part(part, path)
        for bits, *document in blocks.read_documents(path, plan.dtype):
            yield bits, tuple(document)
    yield beam.pvalue.TaggedOutput(_COUNTS, counts)


def _cut(element, plan):
    """Block to a run: (bucket, (block, headers, token ids))."""
    number, found = element
    # By their keys, which are unique; the arrays have no order.
    keys, tokens, lengths = zip(*sorted(found, key=lambda each: each[0]))
    block = blocks.assemble(keys, list(tokens), list(lengths), plan.dtype)
    with _scratch() as path:
        counts = plan.cut_block(block, path)
        for bucket, *piece in example_runs.read_buckets(path, plan.dtype):
            yield bucket, (number, *piece)
    yield beam.pvalue.TaggedOutput(_COUNTS, counts)


def _write(element, plan, folder):
    """Range of examples to a record file: (range, numbers)."""
    number, pieces = element
    examples = example_runs.merge(*_arrays(pieces, plan.dtype))
    with files.whole_file(_range_path(folder, number)) as temporary:
        return number, plan.write_records(examples, temporary)


def _range_path(folder, number):
    return os.path.join(folder, f"range-{number:06d}.tfrecord")


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


def _bucket_size(bucket, piece):
    return bucket, example_runs.num_examples(piece[1])


def _first_examples(sizes):
    """Returns {bucket: the number of its first example}."""
    buckets = sorted(sizes)
    before = itertools.accumulate(map(sizes.get, buckets), initial=0)
    return dict(zip(buckets, before))


def _ranges(_, counts, num_shards, range_size, settings):
    record_set.check_examples(counts["examples"], settings)
    return record_set.ranges_of(counts["examples"], num_shards, range_size)


def _arrays(pieces, dtype):
    """Returns headers and tokens of pieces, in the order of their numbers."""
    pieces = sorted(pieces, key=lambda piece: piece[0])
    return zip(
        *(
            example_runs.from_bytes(headers, tokens, dtype)
            for _, headers, tokens in pieces
        )
    )


def _merge(element, first_examples, shards, dtype):
    """Yields (range, (bucket, headers, token ids)) of a bucket's runs."""
    bucket, pieces = element
    headers, tokens = _arrays(pieces, dtype)
    start = first_examples[bucket]
    stop = start + sum(map(len, headers))
    # The ranges follow each other; only empty ones begin where another does.
    firsts = np.array([first for shard in shards for first, _ in shard])
    first = np.searchsorted(firsts, start, side="right") - 1
    last = np.searchsorted(firsts, stop)
    numbers = range(first, last)
    edges = [max(start, firsts[number]) for number in numbers]
    edges = [int(edge) - start for edge in (*edges, stop)]
    pieces = example_runs.split(headers, tokens, edges)
    for number, size, piece in zip(numbers, np.diff(edges), pieces):
        if size:
            yield int(number), (bucket, *piece)


def _write_manifests(
    _,
    manifest,
    inputs,
    part_counts,
    block_counts,
    shards,
    written,
    output_paths,
    settings,
):
    manifest.inputs.extend(described for _, described in sorted(inputs))
    total = record_set.total(numbers for _, numbers in written)
    counts = record_set.make_counts(part_counts, block_counts, total, settings)
    made = record_set.make_manifests(
        manifest,
        counts,
        output_paths,
        record_set.by_shard(shards, dict(written)),
    )
    for path, each in made.items():
        manifests.write(each, path)


def _join(element, shards, written, manifests, folder):
    """Writes one record file from its ranges."""
    del manifests  # Only waited for.
    number, path = element
    with (
        files.whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as stream,
    ):
        # Without it there would be no file of an empty shard.
        stream.write(b"")
        for each in record_set.by_shard(shards, dict(written))[number]:
            with tf.io.gfile.GFile(_range_path(folder, each), "rb") as source:
                while block := source.read(1 << 20):
                    stream.write(block)
