"""Makes pre-training records as an Apache Beam pipeline.

The stages are those of the `plan`, and the records are those of `run_local`,
shard by shard and byte for byte. Intermediate results go through the pipeline
instead of a work folder:

    parts of the input    -> tokenised documents, by block
    blocks of documents   -> sorted runs of examples, by bucket of their order
    buckets of all runs   -> merged, cut anew by range of the examples
    ranges of examples    -> record files, joined to shards

The numbers of tokens and examples are only known after a stage, so the next
one gets them as side inputs. All workers must be able to see the paths.
"""

import bisect
import contextlib
import itertools
import os
import shutil
import sys
import tempfile

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import DirectRunner
from apache_beam.runners.runner import PipelineState

from bert_tf import atomic
from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf.pretraining import plan as plan_lib
from bert_tf.pretraining import record_set
from bert_tf.pretraining import work_folder
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.records import example_runs
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
    overwrite: bool = False,
) -> record_set.Counts | None:
    """Runs the pipeline and waits for it to end.

    Args:
        input_files: See `run_local.build`.
        output_files: See `run_local.build`.
        tokenizer: The spec of the tokenizer.
        settings: A `Settings`.
        options: A list of the pipeline's options, e.g.
            `["--runner=DataflowRunner", "--project=..."]`.
        work_dir: Parent of the folder for unfinished record files, which is
            removed when the job is over; None for the folder of the first
            record file.
        max_bad_lines: See `run_local.build`.
        overwrite: Whether existing files may be replaced.

    Returns:
        The `record_set.Counts`; None if the runner did not wait for the job,
        or if its files are not visible from here.

    Raises:
        ValueError: If an option is unknown, the input cannot be read or is
            empty, or files exist that may not be replaced. The runner decides
            what becomes of errors in workers.
    """
    output_paths = tfrecord.output_paths(output_files)
    if not overwrite:
        # The hashes of the text are only known in the pipeline.
        record_set.find_counts(output_paths, None)
    plan = plan_lib.make_plan(input_files, tokenizer, settings, max_bad_lines)
    atomic.check_is_no_input("output_file", output_paths, plan.source.paths)
    pipeline_options = PipelineOptions(options)
    unknown = pipeline_options.get_all_options(retain_unknown_options=True)
    unknown = set(unknown) - set(pipeline_options.get_all_options())
    if unknown:
        raise ValueError(
            "`beam_option` must name options of the runner. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    pipeline = beam.Pipeline(options=pipeline_options)
    with (
        work_folder.shared(
            work_dir, output_paths[0], lambda: _is_over(pipeline)
        ) as folder,
        pipeline,
    ):
        _add_stages(pipeline, plan, folder, output_paths)
    path = next(iter(record_set.manifest_paths(output_paths)))
    if not _is_over(pipeline) or not files.exists(path):
        return None
    return record_set.Counts(**manifests.read(path).counts)


def _is_over(pipeline):
    """Returns whether the pipeline's job has ended, or never began."""
    result = getattr(pipeline, "result", None)
    if result is not None:
        return PipelineState.is_terminal(result.state)
    # There is no result if the start raised. An `Exception` ends the direct
    # runner's job. Other jobs, and interrupted ones, may still be running.
    return isinstance(pipeline.runner, DirectRunner) and isinstance(
        sys.exception(), Exception
    )


def _add_stages(pipeline, plan, folder, output_paths):
    """Adds all steps to a pipeline."""
    one = pipeline | "One" >> beam.Create([None])

    def once(name, function, *arguments):
        """Returns the function's result as a side input."""
        return beam.pvalue.AsSingleton(
            one | name >> beam.Map(function, *arguments)
        )

    def spread(name, elements):
        return (
            pipeline
            | name >> beam.Create(list(elements))
            | f"Spread{name}" >> beam.Reshuffle()
        )

    inputs = beam.pvalue.AsList(
        spread("Files", enumerate(plan.source.paths))
        | "Hash"
        >> beam.MapTuple(lambda n, path: (n, text_files.describe(path)))
    )
    texts = spread("Parts", plan.parts) | "Tokenise" >> _with_counts(
        beam.FlatMap(_tokenize, plan)
    )
    part_counts = _total_of(texts, "OfParts")
    num_blocks = once(
        "NumBlocks", _num_blocks, part_counts, plan, blocks.BLOCK_TOKENS
    )
    runs = (
        texts.main
        | "ByBlock" >> beam.Map(_with_block, num_blocks)
        | "Blocks" >> beam.GroupByKey()
        | "Cut" >> _with_counts(beam.FlatMap(_cut, plan))
    )
    block_counts = _total_of(runs, "OfBlocks")
    first_examples = beam.pvalue.AsSingleton(
        runs.main
        | "BucketSizes"
        >> beam.MapTuple(lambda bucket, piece: (bucket, len(piece[1])))
        | "AddSizes" >> beam.CombinePerKey(sum)
        | "AllSizes" >> beam.combiners.ToDict()
        | "FirstExamples" >> beam.Map(_first_examples)
    )
    shards = once(
        "Ranges",
        _ranges,
        block_counts,
        len(output_paths),
        record_set.RANGE_SIZE,
        plan.settings,
    )
    written = beam.pvalue.AsDict(
        runs.main
        | "Buckets" >> beam.GroupByKey()
        | "Merge" >> beam.FlatMap(_merge, first_examples, shards)
        | "ByRange" >> beam.GroupByKey()
        | "Write" >> beam.Map(_write, plan, folder)
    )
    manifests_written = once(
        "Manifest",
        _write_manifests,
        plan,
        output_paths,
        inputs,
        part_counts,
        block_counts,
        shards,
        written,
    )
    # After the manifests, as in the local builder.
    spread("Shards", enumerate(output_paths)) | "Join" >> beam.Map(
        _join, shards, written, manifests_written, folder
    )


def _with_counts(transform):
    return transform.with_outputs(_COUNTS, main="main")


def _total_of(outputs, name):
    """Returns the sums of all tasks' counts as a side input."""
    return beam.pvalue.AsSingleton(
        outputs[_COUNTS] | name >> beam.CombineGlobally(record_set.total)
    )


def _tokenize(part, plan):
    """Yields (block bits, (key, token ids, lengths)) of a part's documents."""
    with _scratch() as path:
        counts = plan.tokenize_part(part, path)
        for bits, *document in blocks.read_documents(path, plan.dtype):
            yield bits, tuple(document)
    yield beam.pvalue.TaggedOutput(_COUNTS, counts)


def _cut(element, plan):
    """Yields (bucket, (block, headers, token ids)) of a block's run."""
    number, found = element
    # Sorted by the keys alone, which are unique: arrays cannot be compared.
    keys, tokens, lengths = zip(*sorted(found, key=lambda each: each[0]))
    block = blocks.assemble(keys, list(tokens), list(lengths), plan.dtype)
    with _scratch() as path:
        counts = plan.cut_block(block, path)
        for bucket, *piece in example_runs.read_buckets(path, plan.dtype):
            yield bucket, (number, *piece)
    yield beam.pvalue.TaggedOutput(_COUNTS, counts)


def _write(element, plan, folder):
    """Writes the record file of a range; returns (range, counts)."""
    number, pieces = element
    with atomic.whole_file(_range_path(folder, number)) as temporary:
        return number, plan.write_records(_merged(pieces), temporary)


def _range_path(folder, number):
    return os.path.join(folder, f"range-{number:06d}.tfrecord")


@contextlib.contextmanager
def _scratch():
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "x")


def _num_blocks(_, counts, plan, block_tokens):
    record_set.check_parts(counts, plan)
    return blocks.num_blocks(counts["tokens"], block_tokens)


def _with_block(element, num_blocks):
    bits, document = element
    return blocks.block_of(bits, num_blocks), document


def _first_examples(sizes):
    """Returns {bucket: the number of its first example}."""
    buckets = sorted(sizes)
    before = itertools.accumulate(map(sizes.get, buckets), initial=0)
    return dict(zip(buckets, before))


def _ranges(_, counts, num_shards, range_size, settings):
    record_set.check_examples(counts["examples"], settings)
    return record_set.ranges_of(counts["examples"], num_shards, range_size)


def _merged(pieces):
    """Returns the examples of pieces, in the order of their numbers."""
    pieces = sorted(pieces, key=lambda piece: piece[0])
    _, headers, tokens = zip(*pieces)
    return example_runs.merge(headers, tokens)


def _merge(element, first_examples, shards):
    """Yields (range, (bucket, headers, token ids)) of a bucket's runs."""
    bucket, pieces = element
    examples = _merged(pieces)
    before = first_examples[bucket]
    end = before + len(examples)
    # Ranges are in the order of examples. A binary search finds the first,
    # because there may be many ranges and many buckets.
    ranges = [*itertools.chain.from_iterable(shards)]
    start = bisect.bisect_right(ranges, before, key=lambda each: each.last)
    for number, first, last in itertools.islice(ranges, start, None):
        if first >= end:
            break
        first, last = max(first, before) - before, min(last, end) - before
        if first == last:
            # There are more files than examples.
            continue
        piece = examples.take(slice(first, last))
        yield number, (bucket, piece.headers, piece.own_tokens())


def _write_manifests(
    _, plan, output_paths, inputs, part_counts, block_counts, shards, written
):
    total = record_set.total(written.values())
    counts = record_set.make_counts(
        part_counts, block_counts, total, plan.settings
    )
    manifest = record_set.make_manifest(
        plan, [described for _, described in sorted(inputs)]
    )
    made = record_set.make_manifests(
        manifest, counts, output_paths, shards, written
    )
    for path, each in made.items():
        manifests.write(each, path)


def _join(element, shards, written, manifests_written, folder):
    """Writes one record file from its ranges."""
    del manifests_written  # It is an argument so that this step waits for it.
    number, path = element
    with (
        atomic.whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as stream,
    ):
        # Creates the file, even for an empty shard.
        stream.write(b"")
        for each in shards[number]:
            if each.number in written:
                name = _range_path(folder, each.number)
                with tf.io.gfile.GFile(name, "rb") as source:
                    shutil.copyfileobj(source, stream, 1 << 20)
