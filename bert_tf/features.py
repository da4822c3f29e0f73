"""Names, dtypes and shapes of the records and of the model inputs.

These are google-research/bert's names, and the whole library takes them from
here. Letters: B batch, L sequence length, P predictions a sequence, S sequences
packed into one row.
"""

from collections.abc import Mapping
from typing import Any

# A tensor of any Keras backend, symbolic or not, or an array. They have no
# common class, and `layers` and `models` do not depend on a backend.
Tensor = Any
# Tensors by the names below: a batch, or the inputs of a model.
Batch = Mapping[str, Tensor]
# {name: (dtype, shape)} of a record's features.
RecordSpec = dict[str, tuple[str, tuple[int, ...]]]

INPUT_IDS = "input_ids"
INPUT_MASK = "input_mask"
SEGMENT_IDS = "segment_ids"
# The model inputs that are always there: int32 [B, L].
MODEL_INPUTS = (INPUT_IDS, INPUT_MASK, SEGMENT_IDS)

# If the inputs above are queries, these are the passages to compare them with:
# int32 [B, P, L'], P passages for each query, with a separate length L'.
PASSAGE_IDS = "passage_ids"
PASSAGE_MASK = "passage_mask"
PASSAGE_SEGMENT_IDS = "passage_segment_ids"
# In the order of MODEL_INPUTS.
PASSAGE_INPUTS = (PASSAGE_IDS, PASSAGE_MASK, PASSAGE_SEGMENT_IDS)

# Inputs of packed rows. The first two are int32 [B, L]: positions start at 0
# in every packed sequence; sequence ids are 1, 2, ... and 0 on padding, and a
# token attends only to tokens of its own sequence. The third is int32 [B, S]:
# where each packed sequence begins, for the pooler. If a row has fewer than S
# sequences, the rest are 0.
POSITION_IDS = "position_ids"
SEQUENCE_IDS = "sequence_ids"
FIRST_POSITIONS = "first_positions"

# What is predicted, [B, P]: int32 positions and ids, and float32 weights. A
# sequence may have fewer predictions than P: the rest are 0, with weight 0.
MASKED_LM_POSITIONS = "masked_lm_positions"
MASKED_LM_IDS = "masked_lm_ids"
MASKED_LM_WEIGHTS = "masked_lm_weights"
# int32 [B, 1], or [B, S] in packed rows.
NEXT_SENTENCE_LABELS = "next_sentence_labels"
# Only in batches for ELECTRA, not in records: int32 [B, P, 2] in [0, 2**23),
# the random draws that determine the samples of the predictions. Integers,
# because Keras would cast floats to 16 bits under a mixed policy.
REPLACEMENT_DRAWS = "replacement_draws"
# {objective of the records: what the labels 0 and 1 say about the second
# segment}; empty if records have no label.
SENTENCE_LABELS = {
    "next_sentence": ("follows", "random next"),
    "sentence_order": ("in order", "swapped"),
    "full_sentences": (),
}
OBJECTIVES_WITHOUT_LABELS = tuple(
    name for name, meanings in SENTENCE_LABELS.items() if not meanings
)

# For each example of a batch that was padded to full size; 0 on the padding.
EXAMPLE_WEIGHTS = "example_weights"
LABELS = "labels"


def pretraining_record(
    max_seq_length: int,
    max_predictions_per_seq: int,
    has_labels: bool = True,
    is_masked: bool = True,
    max_sequences_per_row: int = 1,
) -> RecordSpec:
    """Returns {name: (dtype, shape)} of a pre-training record.

    These are the features of the tf.train.Example, as google-research/bert
    writes them: integers are int64 there and int32 in the model.

    Args:
        max_seq_length: L.
        max_predictions_per_seq: P.
        has_labels: Whether the objective has labels (`SENTENCE_LABELS`).
        is_masked: Whether the masks are in the records; if not, the input
            pipeline chooses them (`dynamic_masking.mask_examples`).
        max_sequences_per_row: S. If it is more than 1, rows hold several
            sequences, and P is the number of predictions of a row. If a row has
            fewer than S sequences, the remaining labels and first positions are
            0. Only the row's first sequence really begins at position 0.
    """
    record: RecordSpec = {
        INPUT_IDS: ("int64", (max_seq_length,)),
        INPUT_MASK: ("int64", (max_seq_length,)),
        SEGMENT_IDS: ("int64", (max_seq_length,)),
    }
    if max_sequences_per_row > 1:
        record |= {
            POSITION_IDS: ("int64", (max_seq_length,)),
            SEQUENCE_IDS: ("int64", (max_seq_length,)),
            FIRST_POSITIONS: ("int64", (max_sequences_per_row,)),
        }
    if is_masked:
        record |= {
            MASKED_LM_POSITIONS: ("int64", (max_predictions_per_seq,)),
            MASKED_LM_IDS: ("int64", (max_predictions_per_seq,)),
            MASKED_LM_WEIGHTS: ("float32", (max_predictions_per_seq,)),
        }
    if has_labels:
        record[NEXT_SENTENCE_LABELS] = ("int64", (max_sequences_per_row,))
    return record
