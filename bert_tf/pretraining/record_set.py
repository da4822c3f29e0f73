"""A whole set of records: what it counts, its segments, its manifests.

What the local builder and the Beam pipeline have in common, besides the
stages.
"""

import collections
import dataclasses

from bert_tf import manifest as manifests

# Examples of one task of the last stage.
SEGMENT_SIZE = 1 << 16


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


def total(results):
    """Returns the sums of the numbers of tasks."""
    sums = collections.Counter()
    for result in results:
        sums.update(result)
    return dict(sums)


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
