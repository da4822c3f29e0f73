"""Makes what the playground's page shows of pre-training records.

This is a sample of all records, always the same one; counts over all records;
and the vocabulary and the rules that masks are drawn by.
"""

import collections
import heapq
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import manifest as manifests
from bert_tf.manifest import Records
from bert_tf.philox import philox
from bert_tf.playground import build_page
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import survey
from bert_tf.pretraining.settings import Settings
from bert_tf.text import masking
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.vocabulary import Vocabulary

# The key of the sample, so that it shares no bits with other draws.
_SAMPLE_KEY = 0x5A3B1E
# Limits that keep a page below a few MB: the tokens of the sample, and the size
# of a vocabulary that the page contains completely.
_MAX_TOKENS = 150_000
_MAX_ENTRIES = 60_000
_TOGETHER = {
    "do_whole_word_mask": "words",
    "do_span_mask": "spans",
    "do_ngram_mask": "ngrams",
}


class RecordData:
    """Gathers what the page shows, batch by batch.

    Args:
        tokenizer: The `Spec` of the records' tokenizer.
        num_records: The most records in the sample. There are fewer if rows
            are long, so that the page stays small.
    """

    def __init__(self, tokenizer: Spec, num_records: int) -> None:
        self._tokenizer = tokenizer
        self._num_records = num_records
        self._num_seen = 0
        # A heap of (-draw, number, record): the largest draw comes first.
        self._sample: list[tuple[int, int, dict[str, Any]]] = []
        self._counts: dict[str, collections.Counter] = collections.defaultdict(
            collections.Counter
        )

    def add(self, examples: dict) -> None:
        """Adds a batch as `inspection.read` yields it."""
        vocabulary = self._tokenizer.vocabulary
        numbers = self._num_seen + np.arange(len(examples[features.INPUT_IDS]))
        self._num_seen += len(numbers)
        words = numbers.astype(np.uint64)
        zero = np.uint64(0)
        draws = philox(
            (words & np.uint64(0xFFFFFFFF), words >> np.uint64(32), zero, zero),
            (np.uint64(0), np.uint64(_SAMPLE_KEY)),
        )[0].astype(np.int64)
        length = examples[features.INPUT_IDS].shape[1]
        most = max(1, min(self._num_records, _MAX_TOKENS // length))
        for row, (draw, number) in enumerate(
            zip(draws.tolist(), numbers.tolist())
        ):
            if len(self._sample) < most:
                record = describe(examples, row, number, vocabulary)
                heapq.heappush(self._sample, (-draw, number, record))
            elif -draw > self._sample[0][0]:
                record = describe(examples, row, number, vocabulary)
                heapq.heapreplace(self._sample, (-draw, number, record))
        self._count(examples, vocabulary)

    def _count(self, examples, vocabulary):
        if features.SEQUENCE_IDS in examples:
            examples, _ = inspection.unpack(examples, vocabulary)
        is_unknown = inspection.restored(examples) == vocabulary.unk_id
        counted = {
            "length": inspection.lengths(examples[features.INPUT_MASK]),
            "unknown": is_unknown.sum(axis=1),
        }
        if features.MASKED_LM_WEIGHTS in examples:
            counted["predictions"] = (
                examples[features.MASKED_LM_WEIGHTS] > 0
            ).sum(axis=1)
        if features.NEXT_SENTENCE_LABELS in examples:
            counted["label"] = examples[features.NEXT_SENTENCE_LABELS][:, 0]
        for name, values in counted.items():
            self._counts[name].update(values.tolist())

    def data(self, found: survey.Survey) -> dict[str, Any]:
        """Returns the data for `build_page.build`, ready for JSON.

        Args:
            found: The survey's result; all of its batches were added here.
        """
        manifest = found.manifest
        builder = _describe_builder(manifest) if found.is_one_set else None
        rows = found.rows(self._tokenizer.vocabulary.special)
        records = [
            record
            for _, _, record in sorted(self._sample, key=lambda each: each[1])
        ]
        used = {
            index
            for record in records
            for sequence in record["sequences"]
            for index in (
                *sequence["ids"],
                *(now for _, now in sequence["masks"] or ()),
            )
        }
        return {
            "vocabulary": describe_vocabulary(self._tokenizer, used),
            "rules": describe_rules(manifest),
            "builder": builder,
            "objective": inspection.objective_of(manifest),
            "meanings": list(inspection.label_meanings(manifest)),
            "records": records,
            "numRecords": self._num_seen,
            "counts": {
                name: sorted(counter.items())
                for name, counter in self._counts.items()
            },
            "totals": [list(row) for row in rows],
            "checks": [list(row) for row in found.broken.items()],
        }


def read(records: Records, tokenizer: Spec) -> dict[str, Any]:
    """Returns the data for `build_page.build` from record files.

    Args:
        records: TFRecord files.
        tokenizer: The `Spec` of the records' tokenizer.

    Raises:
        ValueError: As in `survey.make`.
    """
    data = RecordData(tokenizer, build_page.NUM_RECORDS)
    found = survey.make(
        records, tokenizer.vocabulary, lambda examples, _: data.add(examples)
    )
    return data.data(found)


def describe(
    examples: dict, row: int, number: int, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Returns one record in the form of the page, ready for JSON.

    Args:
        examples: A batch as `inspection.read` yields it.
        row: The record's row in the batch.
        number: The record's number among all.
        vocabulary: A `Vocabulary`.

    Returns:
        `{"number", "columns", "isPacked", "sequences"}`. A sequence, of which
        a packed row has several, is `{"ids", "segments", "masks", "label"}`.
        The ids are those before masking, without padding. The masks are
        [position, id after masking], None if records have no masks. The label
        is 0 or 1, None if there is none, or another number if the record
        breaks the rule.
    """
    one = {name: values[row : row + 1] for name, values in examples.items()}
    columns = one[features.INPUT_IDS].shape[1]
    is_packed = features.SEQUENCE_IDS in one
    if is_packed:
        one, _ = inspection.unpack(one, vocabulary)
    was = inspection.restored(one)
    is_masked = features.MASKED_LM_WEIGHTS in one
    labels = one.get(features.NEXT_SENTENCE_LABELS)
    sequences = []
    for place in range(len(was)):
        length = int(inspection.lengths(one[features.INPUT_MASK])[place])
        masks = None
        if is_masked:
            is_prediction = one[features.MASKED_LM_WEIGHTS][place] > 0
            positions = one[features.MASKED_LM_POSITIONS][place][is_prediction]
            # Records of other programs may have positions out of range.
            positions = positions[(positions >= 0) & (positions < length)]
            now = one[features.INPUT_IDS][place][positions]
            masks = np.stack([positions, now], axis=1).tolist()
        sequences.append(
            {
                "ids": was[place, :length].tolist(),
                "segments": one[features.SEGMENT_IDS][place, :length].tolist(),
                "masks": masks,
                "label": None if labels is None else int(labels[place, 0]),
            }
        )
    return {
        "number": number,
        "columns": columns,
        "isPacked": is_packed,
        "sequences": sequences,
    }


def describe_vocabulary(tokenizer: Spec, used: set[int]) -> dict[str, Any]:
    """Returns a vocabulary in the form of the page, ready for JSON.

    Args:
        tokenizer: The `Spec`.
        used: The ids that a page shows. Of a large vocabulary, it gets only
            these and the special tokens.

    Returns:
        `{"size", "ids", "names", "spelled", "starts", "special",
        "firstEntry", "numBetween", "secondSegment"}`: among them the ids of
        the entries, None if all are included; their names, and what they add
        to a text; "1" for entries that begin a word and "0" for others;
        `{name: id}` of the special tokens; and the first id that masking may
        put in.
    """
    vocabulary = tokenizer.vocabulary
    ids = list(range(len(vocabulary)))
    is_whole = len(ids) <= _MAX_ENTRIES
    if not is_whole:
        special = {*map(vocabulary.index, vocabulary.special.names)}
        ids = sorted((special | used) & {*ids})
    names = [vocabulary.tokens[index] for index in ids]
    starts = tokenizer.starts_word(tf.constant([ids], tf.int32)).numpy()[0]
    return {
        "size": len(vocabulary),
        "ids": None if is_whole else ids,
        "names": names,
        "spelled": [
            text.decode("utf-8", "replace")
            for text in tokenizer.spell(tf.constant(names)).numpy()
        ],
        "starts": "".join("01"[bool(each)] for each in starts),
        "special": {
            name: getattr(vocabulary, f"{name}_id")
            for name in ("pad", "unk", "cls", "sep", "mask")
        },
        "firstEntry": masking.first_entry(vocabulary),
        "numBetween": vocabulary.special.num_between,
        "secondSegment": vocabulary.special.second_segment,
    }


def describe_rules(manifest: manifests.Manifest | None) -> dict[str, Any]:
    """Returns the rules of masking in the form of the page, ready for JSON.

    They are those of the manifest; without one, the builder's defaults.
    """
    settings = {} if manifest is None else manifest.settings
    if manifest is not None:
        settings = settings | {
            "max_predictions_per_seq": manifest.max_predictions_per_seq
        }
    names = vars(Settings())
    settings = Settings(
        **{name: value for name, value in settings.items() if name in names}
    )
    rules = settings.masking
    masked, kept = masking.MASKING_RULES[rules.masking_rule]
    together = [_TOGETHER[name] for name in _TOGETHER if getattr(rules, name)]
    return {
        "isTold": manifest is not None,
        "maskedLmProb": rules.masked_lm_prob,
        "maxPredictions": rules.max_predictions_per_seq,
        "together": together[0] if together else "tokens",
        "rule": rules.masking_rule,
        "masked": masked,
        "kept": kept,
    }


def _describe_builder(manifest):
    """Returns what determines the builder's seeds, None without a manifest."""
    if manifest is None:
        return None
    settings = manifest.settings
    return {
        "seed": settings.get("random_seed"),
        "passes": settings.get("dupe_factor"),
        "isDynamic": settings.get("masking_mode") == "dynamic",
        "isText": settings.get("input_format") != "tfds",
        "isCompressed": any(
            each["name"].endswith((".gz", ".bz2", ".xz"))
            for each in manifest.inputs
        ),
        "inputs": [
            [each["name"], each.get("bytes", 0)] for each in manifest.inputs
        ],
        "examples": manifest.counts.get("examples"),
        "documents": manifest.counts.get("documents"),
    }
