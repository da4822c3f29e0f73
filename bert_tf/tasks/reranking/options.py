"""Options of the reranking family, without TensorFlow."""

import dataclasses

from bert_tf import described

POINTWISE, SOFTMAX = "pointwise", "softmax"
_MOST_NEGATIVES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingOptions:
    """How a reranker is trained; the help of the flags describes the fields."""

    loss_name: str = described.option(
        POINTWISE,
        "pointwise: binary cross-entropy of every text's label. softmax: "
        "cross-entropy of finding a text that answers its query among "
        "--num_negatives texts of that query that do not.",
        choices=(POINTWISE, SOFTMAX),
        only_with={"do_train": (True,)},
    )
    num_negatives: int = described.option(
        7,
        "Number of texts beside each one that answers. They are drawn from the "
        "texts of its query that do not answer; if there are fewer, all are "
        "used. They are drawn once and stay the same in every epoch.",
        described.Range(
            f"from 1 to {_MOST_NEGATIVES:,}",
            lambda value: 1 <= value <= _MOST_NEGATIVES,
        ),
        only_with={"loss_name": (SOFTMAX,)},
    )
