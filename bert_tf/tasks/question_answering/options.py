"""Options of SQuAD's family, without TensorFlow."""

import dataclasses

from bert_tf import described

# An exported model reserves room for this many answers, and in every window
# combines as many starts with as many ends.
MOST_ANSWERS = 1000
_SIZE = described.Range(
    "a positive integer of 32 bits", lambda value: 1 <= value < 2**31
)


def _option(default, text, values=None, **metadata):
    """Describes an option; a tuned model may be given another value."""
    return described.option(default, text, values, may_differ=True, **metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions:
    """How texts are cut into windows and answers chosen from the logits.

    The fields are google-research/bert's flags and described by their help.
    """

    version_2_with_negative: bool = _option(
        False, "Whether questions may have no answer, as in SQuAD 2.0."
    )
    doc_stride: int = _option(
        128,
        "Pieces from the beginning of one window to the beginning of the next.",
        _SIZE,
    )
    max_query_length: int = _option(
        64, "Most pieces of a question; longer ones are cut.", _SIZE
    )
    n_best_size: int = _option(
        20,
        "Most answers to a question in nbest_predictions.json, and most "
        "candidates for their starts and ends.",
        described.Range(
            f"from 1 to {MOST_ANSWERS:,}",
            lambda value: 1 <= value <= MOST_ANSWERS,
        ),
    )
    max_answer_length: int = _option(30, "Pieces of the longest answer.", _SIZE)
    null_score_diff_threshold: float = _option(
        0.0,
        "With --version_2_with_negative: predict the empty answer if its score "
        "exceeds the best span's by more than this.",
    )
    tune_null_threshold: bool = _option(
        False,
        "With --version_2_with_negative: use the threshold that gives the best "
        "F1 on --predict_file, and after --do_train keep it with the model. "
        "Epochs are compared by their F1, each at its best threshold.",
        is_stored=False,
        only_with={"do_eval": (True,)},
    )
    verbose_logging: bool = _option(
        False,
        "Whether to warn of each question that is left out. Otherwise only the "
        "first few and their number are logged.",
        is_stored=False,
    )
