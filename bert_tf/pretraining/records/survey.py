"""Reads record files once, for their totals and the rules that they break."""

import collections
import dataclasses
from collections.abc import Callable

from bert_tf import manifest as manifests
from bert_tf import progress_bar
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Survey:
    """The totals of records, and the rules that they break.

    Attributes:
        num_files: The number of files.
        manifest: The `Manifest` of the first file, if all files have one. All
            files share its objective and rules.
        totals: The sums of `inspection.count`.
        broken: {rule: number of examples that break it}.
        is_one_set: Whether the builder made all files from the same texts,
            with the same settings.
    """

    num_files: int
    manifest: manifests.Manifest | None
    totals: collections.Counter
    broken: dict[str, int]
    is_one_set: bool = True

    def rows(self, special: SpecialTokens) -> list[tuple[str, str]]:
        """Returns the totals as a table, (name, value) pairs.

        Args:
            special: The special tokens of the records' vocabulary.
        """
        totals = self.totals
        examples, predictions = totals["examples"], totals["predictions"]
        *_, label = "labelled", *inspection.label_meanings(self.manifest)
        # Counted by segment ids, which not every model has.
        length_of_b = f"{totals['tokens of B'] / examples:.1f}"
        return [
            ("files", f"{self.num_files:,}"),
            ("records", f"{totals['records']:,}"),
            ("examples", f"{examples:,}"),
            ("padding", f"{1 - totals['tokens'] / totals['columns']:.1%}"),
            ("mean length", f"{totals['tokens'] / examples:.1f}"),
            (
                "unknown tokens",
                f"{totals['unknown'] / max(1, totals['tokens']):.1%}",
            ),
            *[("mean length of B", length_of_b)][: special.second_segment],
            (label, f"{totals['random pairs'] / examples:.1%}"),
            ("predictions/example", f"{predictions / examples:.1f}"),
            (
                "predicted tokens",
                f"{predictions / max(1, totals['tokens']):.1%}",
            ),
            (
                f"  as {special.mask}",
                f"{totals['masked'] / max(1, predictions):.1%}",
            ),
            ("  kept", f"{totals['kept'] / max(1, predictions):.1%}"),
            ("  replaced", f"{totals['replaced'] / max(1, predictions):.1%}"),
        ]


def make(
    records: manifests.Records,
    vocabulary: Vocabulary,
    look: Callable[[dict, manifests.Manifest | None], None],
) -> Survey:
    """Returns the `Survey` of record files.

    Args:
        records: TFRecord files.
        vocabulary: The `Vocabulary` that they were made with.
        look: Called with each batch, as `inspection.read` yields it, and the
            `Manifest` of its file, or None.

    Raises:
        ValueError: See `inspection.read`. Also if a manifest names another
            vocabulary, or if the manifests differ in the objective or a
            masking rule.
    """
    paths, by_path = records.filled()
    _check_alike(paths, by_path)
    totals: collections.Counter = collections.Counter()
    broken: collections.Counter = collections.Counter()
    for path in paths:
        manifest = by_path.get(path)
        rules = None
        if manifest is not None:
            inspection.check_vocabulary(path, manifest, vocabulary)
            rules = record_rules.rules_of(manifest)
        with progress_bar.track(
            inspection.read([path]), f"read {path}"
        ) as batches:
            for examples in batches:
                look(examples, manifest)
                totals += inspection.count(examples, vocabulary)
                checks = record_rules.check(examples, vocabulary, rules)
                for rule, holds in checks.items():
                    broken[rule] += int((~holds).sum())
    first = by_path.get(paths[0])
    is_whole = len(by_path) == len({*paths})
    return Survey(
        len(paths),
        first if is_whole else None,
        totals,
        dict(broken),
        is_one_set=all(_is_one_set(first, by_path.get(path)) for path in paths),
    )


def _check_alike(paths, by_path):
    """Raises `ValueError` if files cannot be counted together.

    Args:
        paths: See `make`.
        by_path: {path: `Manifest`} of the files that have one.
    """
    seen: dict[str, tuple[object, str]] = {}
    for path in paths:
        manifest = by_path.get(path)
        values = {"objective": inspection.objective_of(manifest)}
        if manifest is not None:
            values |= dataclasses.asdict(record_rules.rules_of(manifest))
        for name, value in values.items():
            first, where = seen.setdefault(name, (value, path))
            if value != first:
                raise ValueError(
                    f"{where} and {path}: records must have the same {name} to "
                    f"be inspected together. Received: {first} and {value}."
                )


def _is_one_set(one, other):
    if one is None or other is None:
        return one is other
    names = ("settings", "inputs", "counts")
    return all(getattr(one, name) == getattr(other, name) for name in names)
