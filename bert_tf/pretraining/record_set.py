"""A whole set of records: its counts, its ranges, its manifests.

The local builder and the Beam pipeline share this module and the stages.
"""

import collections
import dataclasses
import itertools
import logging
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf import messages
from bert_tf.pretraining.objectives.table import OBJECTIVES
from bert_tf.pretraining.plan import Plan
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import sentences
from bert_tf.pretraining.sources import text_files
from bert_tf.text import bad_lines
from bert_tf.text.tokenizers import files as tokenizer_files

_logger = logging.getLogger(__name__)

# Examples of one task of the last stage.
RANGE_SIZE = 1 << 16

# Above these shares, lines read as sentences are probably paragraphs. In prose
# (docstrings) at most 42 % of the documents have a single sentence, and 3 % of
# the tokens are in long ones. With a paragraph a line, at least 35 % are.
_MAX_ONE_SENTENCE = 0.5
_MAX_LONG = 0.2

# RoBERTa's rule may also leave an example of six tokens or fewer unmasked, but
# few examples are that short.
_MAX_UNMASKED = 0.1

# From this share of unknown tokens on, the vocabulary is not the text's own.
# In text of a vocabulary's language it is far below 1 %.
_MAX_UNKNOWN = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """Totals of a set of records.

    Args:
        documents: Documents read.
        sentences: Their sentences.
        tokens: Their tokens.
        unknown_tokens: Those that the vocabulary cannot spell.
        examples: Examples written.
        records: Records written; fewer than examples if rows are packed.
        example_tokens: Tokens of all examples, including [CLS] and [SEP].
        random_pairs: Examples whose second segment is random, or whose
            segments are swapped.
        predictions: Tokens to be predicted; 0 with dynamic masking.
        unmasked_examples: Examples without a token to predict; 0 with dynamic
            masking.
        cut_lines: Cuts of lines that were too long.
        cut_documents: Cuts of documents that were too long.
        lone_documents: Documents alone in their block; their random next
            sentences come from the document itself.
        skipped_documents: Documents of one sentence, which yield no example
            with the objective "sentence_order".
        bad_lines: Unreadable lines that were left out.
        one_sentence_documents: Documents of one sentence.
        long_sentence_tokens: Tokens in sentences that are too long for an
            example, and longer than sentences of English prose.
        padding: Share of the records' columns that is padding.
        unpacked_padding: The same share with one example a record.
    """

    documents: int
    sentences: int
    tokens: int
    unknown_tokens: int
    examples: int
    records: int
    example_tokens: int
    random_pairs: int
    predictions: int
    unmasked_examples: int
    cut_lines: int
    cut_documents: int
    lone_documents: int
    skipped_documents: int
    bad_lines: int
    one_sentence_documents: int
    long_sentence_tokens: int
    padding: float
    unpacked_padding: float


def total(results: Iterable[dict]) -> dict:
    """Returns the sums of the tasks' counts, and the first bad places."""
    sums: collections.Counter[str] = collections.Counter()
    places = []
    for result in results:
        numbers = dict(result)
        places += numbers.pop("bad_places", [])
        sums.update(numbers)
    return dict(sums) | {"bad_places": sorted(places)[: bad_lines.NUM_REPORTED]}


def check_parts(parts: dict, plan: Plan) -> None:
    """Checks what was read, and warns once about lines that were left out.

    Args:
        parts: The `total` of the first stage.
        plan: The `Plan`.

    Raises:
        ValueError: If too many lines were left out (a `BadTextError`), or
            there is no token.
    """
    # Parts of the previous release lack this count: they left out no line.
    num_bad = parts.get("bad_lines", 0)
    if num_bad:
        summary = bad_lines.summarize(
            num_bad, parts["bad_places"], plan.source.place
        )
        if num_bad > plan.max_bad_lines:
            raise bad_lines.BadTextError(
                bad_lines.refusal(summary, plan.max_bad_lines)
            )
        _logger.warning("%s. Left out.", summary)
    if not parts["tokens"]:
        raise ValueError(
            "There is no sentence in the input: "
            f"{', '.join(plan.source.names)}."
        )


def check_examples(num_examples: int, settings: Settings) -> None:
    """Raises `ValueError` if there are no examples."""
    if not num_examples:
        raise ValueError(
            "No document of the input has two sentences, which the objective "
            f"`{settings.objective}` needs."
        )


def make_counts(
    parts: dict, blocks: dict, written: dict, settings: Settings
) -> Counts:
    """Returns the `Counts` from the totals of the three stages."""
    length = settings.max_seq_length
    padding, unpacked_padding = (
        1 - blocks["example_tokens"] / (number * length)
        for number in (written["records"], blocks["examples"])
    )
    # Tasks in work folders of older releases did not count all of these.
    counted = collections.Counter(parts | blocks | written)
    counted["padding"] = round(padding, 4)
    counted["unpacked_padding"] = round(unpacked_padding, 4)
    names = [field.name for field in dataclasses.fields(Counts)]
    return Counts(**{name: counted[name] for name in names})


def warnings(counts: Counts, settings: Settings) -> list[str]:
    """Returns what a user should know about the text, as sentences.

    Args:
        counts: The `Counts`.
        settings: The `Settings`.
    """
    found = [
        *_warnings_of_documents(counts),
        *warnings_of_unknown(counts.unknown_tokens, counts.tokens),
        *settings.masking.warnings(settings.max_seq_length),
        *_warnings_of_unmasked(counts, settings),
    ]
    if OBJECTIVES[settings.objective].needs_sentences:
        found += _warnings_of_sentences(counts, settings)
    return found


def _warnings_of_documents(counts):
    """Returns warnings of lines and documents that are not read as they are."""
    line, document = (
        f"{size >> 20} MiB"
        for size in (text_files.MAX_LINE_BYTES, text_files.MAX_DOCUMENT_BYTES)
    )
    alone = (
        "had no other document to draw random next sentences from, so these "
        "come from the document itself"
    )
    return [
        f"{messages.counted(number, one, more, separator=',')}."
        for number, one, more in (
            (
                counts.cut_lines,
                f"cut of a line longer than {line}",
                f"cuts of lines longer than {line}",
            ),
            (
                counts.cut_documents,
                f"cut of a document longer than {document}",
                f"cuts of documents longer than {document}",
            ),
            (
                counts.lone_documents,
                f"document {alone}",
                f"documents {alone}",
            ),
            (
                counts.skipped_documents,
                "document of one sentence was left out",
                "documents of one sentence were left out",
            ),
        )
        if number
    ]


def warnings_of_unknown(num_unknown: int, num_tokens: int) -> list[str]:
    """Returns the warning of many unknown tokens, if there are many."""
    # Records that break every rule may have no token.
    share = num_unknown / max(1, num_tokens)
    if share < _MAX_UNKNOWN:
        return []
    return [
        f"{share:.1%} of the tokens ({num_unknown:,} of {num_tokens:,}) are "
        "unknown: the vocabulary cannot spell them. Take a vocabulary of the "
        "text's language, and --do_lower_case as the vocabulary was made."
    ]


def _warnings_of_unmasked(counts, settings):
    """Returns the warning of examples without a prediction, if any."""
    unmasked = counts.unmasked_examples / counts.examples
    if unmasked <= _MAX_UNMASKED:
        return []
    reason = ""
    if settings.do_whole_word_mask or settings.do_ngram_mask:
        reason = (
            ": their words have more tokens than may be masked. With "
            "byte-level BPE and XLM-RoBERTa's tokenizer, a word is the "
            "text between two spaces, so a sentence of Chinese, Japanese "
            "or Thai is a single word. Leave out --do_whole_word_mask and "
            "--do_ngram_mask for such text"
        )
    return [
        f"{counts.unmasked_examples:,} of {counts.examples:,} examples "
        f"({unmasked:.0%}) have no token to predict{reason}."
    ]


def _warnings_of_sentences(counts, settings):
    """Returns warnings of sentences that make poor pairs."""
    found = []
    lone = counts.one_sentence_documents / counts.documents
    long = counts.long_sentence_tokens / counts.tokens
    is_split = settings.input_format != "sentences"
    if not is_split:
        advice = "If a line is a paragraph, use --input_format=text."
    else:
        advice = "--objective=full_sentences needs no sentences."
    # With split prose even one document gets a warning: the splitter may not
    # know its script.
    if lone > _MAX_ONE_SENTENCE or (is_split and lone):
        found.append(
            f"{counts.one_sentence_documents:,} of {counts.documents:,} "
            f"documents ({lone:.0%}) {'stayed' if is_split else 'have'} one "
            "sentence, so no second sentence can follow it. "
            f"{advice}"
        )
    if long > _MAX_LONG:
        found.append(
            f"{long:.0%} of the tokens are in sentences too long for an "
            f"example, which lose their ends. {advice}"
        )
    return found


class Range(NamedTuple):
    """The examples [first, last) that one task writes.

    `number` counts the ranges of all shards.
    """

    number: int
    first: int
    last: int


def ranges_of(
    num_examples: int, num_shards: int, range_size: int
) -> list[list[Range]]:
    """Returns the ranges of examples of every shard.

    The shards hold the examples in order; their sizes differ by one at most.

    Differs from BERT: the original fills its files in turn. The examples are
    shuffled, so both ways give every file a random share.
    """
    if num_examples < num_shards:
        _logger.warning(
            "`output_file` names %d files for %d examples: %d of them are "
            "empty, and readers skip them.",
            num_shards,
            num_examples,
            num_shards - num_examples,
        )
    numbers = itertools.count()
    shards = []
    for shard in range(num_shards):
        first, last = (
            num_examples * edge // num_shards for edge in (shard, shard + 1)
        )
        shards.append(
            [
                Range(next(numbers), start, min(start + range_size, last))
                for start in range(first, last, range_size) or [first]
            ]
        )
    return shards


def make_manifest(plan: Plan, inputs: list[dict]) -> manifests.Manifest:
    """Returns the `Manifest` of records, before their counts are known.

    Args:
        plan: The `Plan`.
        inputs: `text_files.describe` of each file of its source.
    """
    settings = dataclasses.asdict(plan.settings) | plan.source.settings
    if plan.settings.input_format != "sentences":
        # Other rules make other records from the same text. Manifests of
        # older releases, with rules for English only, have no version.
        settings["sentence_rules"] = sentences.VERSION
    vocabulary = plan.tokenizer.vocabulary
    if vocabulary.path is not None:
        # Only the end of the path: the rest differs between machines.
        parts = vocabulary.path.split("/")[-2:]
        settings[manifests.VOCAB_FILE] = "/".join(parts)
    return manifests.Manifest(
        max_seq_length=settings.pop("max_seq_length"),
        max_predictions_per_seq=settings.pop("max_predictions_per_seq"),
        vocab_size=len(vocabulary),
        vocab_sha256=manifests.text_sha256(vocabulary.to_text()),
        do_lower_case=plan.tokenizer.do_lower_case,
        tokenizer=tokenizer_files.describe(plan.tokenizer),
        settings=settings,
        inputs=inputs,
        counts={},
        records={},
    )


def identity(manifest: manifests.Manifest) -> dict[str, Any]:
    """Returns what equal records share, whatever their files are called.

    Args:
        manifest: As `make_manifest` returns it, or as it was written.
    """
    settings = dict(manifest.settings)
    settings.pop(manifests.VOCAB_FILE, None)
    return manifest.to_dict() | {
        "settings": settings,
        "counts": {},
        "records": {},
    }


def find_counts(
    output_paths: list[str], manifest: manifests.Manifest | None
) -> Counts | None:
    """Returns the `Counts` of existing records; None if there is nothing.

    Args:
        output_paths: The record files.
        manifest: As `make_manifest` returns it; None if it is not known yet.

    Raises:
        ValueError: If a record file or a manifest exists, unless all of them
            do, whole and made as this manifest says.
    """
    made = manifest_paths(output_paths)
    there = [path for path in (*output_paths, *made) if files.exists(path)]
    if not there:
        return None
    is_whole = len(there) == len(output_paths) + len(made)
    if is_whole:
        try:
            found = [_flat(manifests.read(path)) for path in made]
            is_whole = len(manifests.find(output_paths)) == len(output_paths)
        except ValueError:
            is_whole = False
    if not is_whole:
        what = "in an incomplete set of records"
    elif manifest is None:
        what = "perhaps made from other text or with other flags"
    else:
        wanted = _flat(manifest)
        differences = {
            name
            for settings in found
            for name in wanted.keys() | settings.keys()
            if wanted.get(name) != settings.get(name)
        }
        if not differences:
            counts = manifests.read(next(iter(made))).counts
            names = [field.name for field in dataclasses.fields(Counts)]
            return Counts(**{name: counts.get(name, 0) for name in names})
        what = f"made with other {', '.join(sorted(differences))}"
    raise ValueError(
        f"{there[0]} already exists, {what}. To replace it, give --overwrite "
        "(in Python, overwrite=True)."
    )


def _flat(manifest):
    """Returns `identity` as a flat dictionary with names for messages."""
    values = identity(manifest)
    del values["vocab_size"]
    values["vocabulary"] = values.pop("vocab_sha256")
    return values.pop("settings") | values


def manifest_paths(output_paths: Iterable[str]) -> dict[str, list[str]]:
    """Returns {path of the manifest: its record files}, one per folder."""
    by_folder: dict[str, list[str]] = {}
    for path in output_paths:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    return {manifests.path_beside(paths): paths for paths in by_folder.values()}


def make_manifests(
    manifest: manifests.Manifest,
    counts: Counts,
    output_paths: list[str],
    shards: list[list[Range]],
    written: dict[int, dict],
) -> dict[str, manifests.Manifest]:
    """Returns the manifests of the record files, {path: `Manifest`}.

    Args:
        manifest: As `make_manifest` returns it.
        counts: The `Counts`.
        output_paths: All record files.
        shards: As `ranges_of` returns them.
        written: {number of a range: the counts of its task}.
    """
    records = {}
    for path, shard in zip(output_paths, shards):
        numbers = total(
            written[each.number] for each in shard if each.number in written
        )
        records[path] = {
            "examples": numbers.get("records", 0),
            "bytes": numbers.get("bytes", 0),
        }
    return {
        path: dataclasses.replace(
            manifest,
            counts=dataclasses.asdict(counts),
            records={name.rpartition("/")[2]: records[name] for name in names},
        )
        for path, names in manifest_paths(output_paths).items()
    }
