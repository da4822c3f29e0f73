"""Options of searches and of mining negatives, without TensorFlow."""

import dataclasses
import math

from bert_tf import described
from bert_tf import files

COSINE, DOT = "cosine", "dot"
SIMILARITIES = (COSINE, DOT)
PRECISIONS = ("float32", "bfloat16")
# What a search writes.
HITS_FILE = "search.jsonl"
RESULTS_FILE = "eval_results.txt"
REPORT_FILE = "report.md"
QUERIES_FILE = "query_scores.tsv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Which texts are negatives of a query and a relevant text.

    Args:
        num_negatives: Most negatives; the highest that the rules allow.
        range_min: How many of the highest-ranked texts are skipped.
        range_max: How many of the highest-ranked texts are considered,
            including the skipped ones.
        absolute_margin: How far a negative must score below the relevant text;
            None for no limit.
        relative_margin: The same as a share of the relevant text's score, in
            [0, 1); None for no limit.
        max_score: Highest score of a negative; None for no limit.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    num_negatives: int = described.option(
        1, "Most negatives for a query and a relevant text."
    )
    range_min: int = described.option(
        0, "How many of the highest-ranked texts to skip."
    )
    range_max: int = described.option(
        100,
        "How many of the highest-ranked texts to consider, including those "
        "that --range_min skips.",
    )
    absolute_margin: float | None = described.option(
        None,
        "How far the score of a negative must be below that of the relevant "
        "text.",
    )
    relative_margin: float | None = described.option(
        None,
        "The same as --absolute_margin, as a share of the relevant text's "
        "score, below 1.",
    )
    max_score: float | None = described.option(
        None, "The highest score of a negative."
    )

    def __post_init__(self):
        if self.num_negatives < 1:
            raise ValueError(
                "`num_negatives` must be 1 or more. "
                f"Received: num_negatives={self.num_negatives}."
            )
        if not 0 <= self.range_min < self.range_max:
            raise ValueError(
                "`range_min` must be 0 or more and below `range_max`. "
                f"Received: range_min={self.range_min}, "
                f"range_max={self.range_max}."
            )
        if self.absolute_margin is not None and not (
            0 <= self.absolute_margin < math.inf
        ):
            raise ValueError(
                "`absolute_margin` must be a finite number, 0 or more. "
                f"Received: absolute_margin={self.absolute_margin}."
            )
        if self.max_score is not None and not math.isfinite(self.max_score):
            raise ValueError(
                "`max_score` must be a finite number. "
                f"Received: max_score={self.max_score}."
            )
        if self.relative_margin is not None and not (
            0 <= self.relative_margin < 1
        ):
            raise ValueError(
                "`relative_margin` must be in [0, 1). "
                f"Received: relative_margin={self.relative_margin}."
            )

    def highest(self, positive: float) -> float:
        """Returns the highest score that a negative may have.

        Args:
            positive: The score of the relevant text.
        """
        highest = math.inf if self.max_score is None else self.max_score
        if self.absolute_margin is not None:
            highest = min(highest, positive - self.absolute_margin)
        if self.relative_margin is not None:
            # Of the absolute value: a negative score is also undercut.
            margin = self.relative_margin * abs(positive)
            highest = min(highest, positive - margin)
        return highest


def check_triplets_file(path: files.AnyPath) -> None:
    """Raises `ValueError` if triplets cannot be written to such a file."""
    if not str(path).endswith((".jsonl", ".tsv")):
        raise ValueError(
            "The file of triplets must end with .jsonl or .tsv. "
            f"Received: {path}."
        )
