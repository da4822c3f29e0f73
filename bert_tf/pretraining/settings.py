"""What pre-training records are a function of, besides text and vocabulary."""

import dataclasses

from bert_tf import features
from bert_tf.pretraining.sources import text_files
from bert_tf.text.masking import Rules

INPUT_FORMATS = (*text_files.FORMATS, "tfds")
MASKING_MODES = ("static", "dynamic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What the examples are a function of, besides text and vocabulary.

    Args:
        max_seq_length: L, tokens of an example, [CLS] and [SEP]s counted; at
            least 5.
        max_predictions_per_seq: P, the most masked tokens of an example, and
            of a row that holds several.
        random_seed: In [0, 2**32).
        dupe_factor: Passes over the text, each with other examples and masks.
        masked_lm_prob: Share of an example's tokens that is masked.
        short_seq_prob: Share of documents, drawn anew in each pass, that are
            cut for a random shorter length; in [0, 1].
        do_whole_word_mask: Whether all pieces of a word are masked together.
        input_format: One of `INPUT_FORMATS`: how files are read, or that it
            is a set of TensorFlow Datasets.
        text_field: The field of the text, for the formats "jsonl" and "tfds".
        objective: One of `objectives.table.OBJECTIVES`.
        masking_mode: One of `MASKING_MODES`: whether the masks are in the
            records, or are chosen anew in each epoch by who reads them.
        do_span_mask: Whether spans of words are masked (`masking.Rules`).
        max_sequences_per_row: S, the most examples in a record, a row of L
            tokens. With 1, records are the original's.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    random_seed: int = 12345
    dupe_factor: int = 10
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False
    input_format: str = "sentences"
    text_field: str = "text"
    objective: str = "next_sentence"
    masking_mode: str = "static"
    do_span_mask: bool = False
    max_sequences_per_row: int = 1

    def __post_init__(self):
        checks = {
            # [CLS] A [SEP] B [SEP], each segment with a token.
            "max_seq_length": (self.max_seq_length >= 5, "at least 5"),
            "short_seq_prob": (0 <= self.short_seq_prob <= 1, "in [0, 1]"),
            "dupe_factor": (self.dupe_factor >= 1, "positive"),
            "random_seed": (0 <= self.random_seed < 2**32, "in [0, 2**32)"),
            "max_sequences_per_row": (
                self.max_sequences_per_row >= 1,
                "positive",
            ),
        }
        for name, known in (
            ("objective", features.SENTENCE_LABELS),
            ("input_format", INPUT_FORMATS),
            ("masking_mode", MASKING_MODES),
        ):
            is_known = getattr(self, name) in known
            checks[name] = is_known, f"one of {', '.join(known)}"
        for name, (is_valid, expected) in checks.items():
            if not is_valid:
                raise ValueError(
                    f"`{name}` must be {expected}. "
                    f"Received: {name}={getattr(self, name)!r}."
                )
        # It checks its part.
        _ = self.masking

    @property
    def masking(self) -> Rules:
        return Rules(
            max_predictions_per_seq=self.max_predictions_per_seq,
            masked_lm_prob=self.masked_lm_prob,
            do_whole_word_mask=self.do_whole_word_mask,
            do_span_mask=self.do_span_mask,
        )
