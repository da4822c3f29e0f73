"""Rules for how many tokens masked language modelling predicts, and which."""

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

# {rule: (share of the chosen tokens that become [MASK], share that stay)}; the
# rest become random entries.
MASKING_RULES = {
    "bert": (0.8, 0.1),
    "roberta": (0.8, 0.1),
    "electra": (0.85, 0.15),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How many tokens are chosen, and which are chosen together.

    Args:
        max_predictions_per_seq: P, the most tokens chosen in a sequence.
        masked_lm_prob: The share of a sequence's tokens, [CLS] and [SEP]
            counted, that is chosen; in (0, 1].
        do_whole_word_mask: Whether the pieces of a word are chosen together.
        do_span_mask: Whether spans of whole words are chosen (SpanBERT, Joshi
            et al. 2020, section 3.1). Their lengths in words are geometric
            with p = 0.2, at most 10. What the tokens become is drawn once for
            the whole span.
        do_ngram_mask: Whether n-grams of whole words are chosen (ALBERT, Lan
            et al. 2020, section 3.1): n is 1, 2 or 3, with shares in
            proportion to 1 / n.
        masking_rule: One of `MASKING_RULES`. "roberta" is fairseq's rule for
            RoBERTa: [CLS] and [SEP] are candidates; of n tokens,
            floor(n * masked_lm_prob + U) are chosen with U uniform in [0, 1),
            which may be none; and the vocabulary's first 4 entries are never
            random entries. "electra" is google-research/electra's: a chosen
            token becomes [MASK] or stays.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    do_whole_word_mask: bool = False
    do_span_mask: bool = False
    do_ngram_mask: bool = False
    masking_rule: str = "bert"

    def __post_init__(self):
        if self.max_predictions_per_seq < 1:
            raise ValueError(
                "`max_predictions_per_seq` must be positive. Received: "
                f"max_predictions_per_seq={self.max_predictions_per_seq}."
            )
        if not 0 < self.masked_lm_prob <= 1:
            raise ValueError(
                "`masked_lm_prob` must be in (0, 1]. Received: "
                f"masked_lm_prob={self.masked_lm_prob}."
            )
        if self.masking_rule not in MASKING_RULES:
            raise ValueError(
                f"`masking_rule` must be one of {', '.join(MASKING_RULES)}. "
                f"Received: masking_rule={self.masking_rule!r}."
            )
        chosen = [
            name
            for name in ("do_whole_word_mask", "do_span_mask", "do_ngram_mask")
            if getattr(self, name)
        ]
        if len(chosen) > 1:
            raise ValueError(
                f"`{chosen[1]}` must not come with `{chosen[0]}`: each says "
                "which words are masked together, and all three take whole "
                "words. Received: both."
            )
        if chosen and self.chooses_all:
            raise ValueError(
                f"`{chosen[0]}` must not come with masking_rule='roberta', "
                "which chooses single tokens. Received: both."
            )

    @property
    def chooses_all(self) -> bool:
        """Whether [CLS] and [SEP] are candidates."""
        return self.masking_rule == "roberta"

    def warnings(self, length: int) -> list[str]:
        """Returns a warning if P keeps the rate below `masked_lm_prob`.

        Args:
            length: Tokens of the longest sequences.
        """
        # Rounded, as 0.1 * 30 is above 3.
        needed = math.ceil(round(length * self.masked_lm_prob, 6))
        # Some rules round down.
        if self.max_predictions_per_seq >= needed - 1:
            return []
        return [
            f"max_predictions_per_seq={self.max_predictions_per_seq} is "
            f"{self.max_predictions_per_seq / length:.1%} of {length} tokens: "
            f"masked_lm_prob={self.masked_lm_prob} needs "
            f"max_predictions_per_seq={needed}."
        ]

    def num_predictions(self, lengths: "tf.Tensor") -> "tf.Tensor":
        """Returns the largest number of tokens that is chosen per sequence.

        Args:
            lengths: int [B], tokens in a sequence, special tokens counted.

        Returns:
            int32 [B]: `min(P, max(1, round(length * masked_lm_prob)))`, where
            a half is rounded to the even neighbour, as Python's `round` does.
            With RoBERTa's rule `min(P, ceil(length * masked_lm_prob))`.
        """
        # Imported here: flags are built from the rules without TensorFlow.
        import tensorflow as tf

        share = tf.cast(lengths, tf.float64) * self.masked_lm_prob
        if self.chooses_all:
            most = tf.cast(tf.math.ceil(share), tf.int32)
            return tf.minimum(most, self.max_predictions_per_seq)
        count = tf.cast(tf.round(share), tf.int32)
        return tf.clip_by_value(count, 1, self.max_predictions_per_seq)
