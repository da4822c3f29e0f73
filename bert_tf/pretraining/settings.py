"""The settings that pre-training records are made with."""

import dataclasses

from bert_tf import described
from bert_tf import features
from bert_tf.pretraining.sources import text_files
from bert_tf.text.masking_rules import MASKING_RULES
from bert_tf.text.masking_rules import Rules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that examples are made with.

    With the text and the vocabulary they determine the examples. Their fields
    are flags of the program that makes records.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    max_seq_length: int = described.option(
        128,
        "Tokens of an example, including special ones.",
        # [CLS] A [SEP] B [SEP], with a token in each segment. `Plan` checks the
        # longer templates.
        described.Range("at least 5", lambda value: value >= 5),
    )
    max_predictions_per_seq: int = described.option(
        20, "Most masked tokens of an example, or of a row of several."
    )
    random_seed: int = described.option(
        12345, "Seed of all random choices.", described.SEED
    )
    dupe_factor: int = described.option(
        None,
        "Passes over the text, each paired and masked anew. Default: 10, and 1 "
        "with --masking=dynamic, whose readers choose new masks themselves.",
        described.POSITIVE,
    )
    masked_lm_prob: float = described.option(
        0.15, "Share of an example's tokens that is masked."
    )
    short_seq_prob: float = described.option(
        0.1,
        "Share of documents that are cut into shorter pairs.",
        described.Range("in [0, 1]", lambda value: 0 <= value <= 1),
    )
    do_whole_word_mask: bool = described.option(
        False, "Mask all pieces of a word together."
    )
    input_format: str = described.option(
        "sentences",
        "sentences: one a line, a blank line between documents. text: a "
        "paragraph a line, a blank line between documents. jsonl: an object a "
        "line. wikiextractor: the output of WikiExtractor. tfds: what "
        "--tfds_name names.",
        choices=(*text_files.FORMATS, "tfds"),
    )
    text_field: str = described.option(
        "text",
        "The field that holds the text, for jsonl and TensorFlow Datasets.",
    )
    objective: str = described.option(
        "next_sentence",
        "next_sentence: the second segment follows the first, or is a random "
        "one. sentence_order: two segments in a row, or swapped (ALBERT). "
        "full_sentences: one segment of sentences in a row, no label "
        "(RoBERTa).",
        choices=tuple(features.SENTENCE_LABELS),
    )
    masking_mode: str = described.option(
        "static",
        "static: the masks are in the records. dynamic: they are chosen anew "
        "in each epoch by the program that reads the records.",
        choices=("static", "dynamic"),
    )
    do_span_mask: bool = described.option(
        False, "Mask spans of whole words with geometric lengths (SpanBERT)."
    )
    do_ngram_mask: bool = described.option(
        False, "Mask runs of 1 to 3 whole words, mostly short ones (ALBERT)."
    )
    masking_rule: str = described.option(
        "bert",
        "bert: of the masked tokens 80% become [MASK], 10% stay, 10% become "
        "another. roberta: the same, but special tokens may be masked too, and "
        "the number is rounded at random. electra: 85% become [MASK], 15% "
        "stay.",
        choices=tuple(MASKING_RULES),
    )
    max_sequences_per_row: int = described.option(
        1,
        "Most examples in a record. From 2 on, short examples share a row of "
        "max_seq_length tokens, with separate attention and positions, as long "
        "as their masks fit into max_predictions_per_seq.",
        described.POSITIVE,
    )

    def __post_init__(self):
        if self.dupe_factor is None:
            passes = 10 if self.masking_mode == "static" else 1
            object.__setattr__(self, "dupe_factor", passes)
        described.check(self)
        # `Rules` checks its own fields.
        _ = self.masking

    @property
    def masking(self) -> Rules:
        return Rules(
            max_predictions_per_seq=self.max_predictions_per_seq,
            masked_lm_prob=self.masked_lm_prob,
            do_whole_word_mask=self.do_whole_word_mask,
            do_span_mask=self.do_span_mask,
            do_ngram_mask=self.do_ngram_mask,
            masking_rule=self.masking_rule,
        )
