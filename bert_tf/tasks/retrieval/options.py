"""Options of the retrieval family, without TensorFlow."""

import dataclasses
from collections.abc import Sequence

from bert_tf import described
from bert_tf.tasks.features import options as feature_options

MULTIPLE_NEGATIVES, SIMCSE = "multiple_negatives", "simcse"
COSENT, COSINE, TRIPLET = "cosent", "cosine", "triplet"
LOSSES = (MULTIPLE_NEGATIVES, SIMCSE, COSENT, COSINE, TRIPLET)
# Losses of pairs with human scores.
SCORED = (COSENT, COSINE)
# Losses that compare all texts of the batch.
IN_BATCH = (MULTIPLE_NEGATIVES, SIMCSE, COSENT)

NO_HEAD, DENSE, TRAINING_DENSE = "none", "dense", "training_dense"
HEADS = (NO_HEAD, DENSE, TRAINING_DENSE)

CORRELATIONS = ("spearman", "pearson")
# Scores of a query, by their names.
QUERY_SCORES = (
    *("recall@1", "recall@10", "recall@100"),
    *("MRR@10", "nDCG@10", "MAP"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How vectors of texts are made, and how they are trained.

    The fields are described by the help of their flags.
    """

    loss_name: str = described.option(
        MULTIPLE_NEGATIVES,
        "multiple_negatives: find the positive among all passages of the "
        "batch. simcse: find the same text under another dropout. cosent: "
        "order scored pairs. cosine: the cosine is the score. triplet: the "
        "positive is nearer than the negative by --margin.",
        choices=LOSSES,
    )
    pooling: str | None = described.option(
        None,
        "How the vectors of tokens become one. Default: as a checkpoint of "
        "sentence-transformers says; otherwise cls with --loss_name=simcse, "
        "mean with all others.",
        choices=feature_options.POOLING[1:],
    )
    normalize: bool | None = described.option(
        None,
        "Whether vectors are divided by their length. Default: as a checkpoint "
        "of sentence-transformers says; otherwise false with "
        "--loss_name=triplet, whose margin needs room, true with all others.",
        stored_as="is_normalized",
    )
    head: str | None = described.option(
        None,
        "dense: a dense layer with tanh on the pooled vector. training_dense: "
        "the same, but left out after training. Default: as a checkpoint of "
        "sentence-transformers says; otherwise training_dense with "
        "--loss_name=simcse, none with all others.",
        choices=HEADS,
    )
    scale: float = described.option(
        20.0,
        "Factor of the cosines in multiple_negatives, simcse and cosent: the "
        "inverse of a temperature.",
        described.POSITIVE,
        only_with={"loss_name": IN_BATCH},
    )
    margin: float = described.option(
        5.0,
        "How much nearer than the negative the positive must be.",
        only_with={"loss_name": (TRIPLET,)},
    )
    matryoshka_sizes: Sequence[int] = described.option(
        (),
        "E.g. 384,256,128,64: the loss is summed over the vectors cut to each "
        "of these sizes, so that the tuned model's vectors may be cut to them, "
        "too.",
        described.POSITIVE,
    )
    truncate_dim: int | None = described.option(
        None,
        "The tuned model keeps only this many first numbers of a vector; 0: "
        "all. It is trained with all. Default: as a checkpoint of "
        "sentence-transformers says; otherwise all.",
        described.NOT_NEGATIVE,
        is_stored_if_set=True,
    )
    query_prompt: str | None = described.option(
        None,
        'Text to put before each query, e.g. "query: ", and before the first '
        "text of scored pairs. Default: the checkpoint's, otherwise none.",
    )
    passage_prompt: str | None = described.option(
        None,
        "Text to put before each passage, and before the second text of "
        "scored pairs. Default: the checkpoint's, otherwise none.",
    )
    max_score: float = described.option(
        1.0,
        "Divisor of the scores in --label_column, e.g. 5 for STS-B; "
        "--loss_name=cosine takes the result as cosines.",
        described.POSITIVE,
        may_differ=True,
    )
    text_columns: Sequence[str] = described.option(
        (),
        "Names of the columns of texts, comma-separated: query, positive, "
        "negatives. Default: query (or anchor), positive, negative...; "
        "sentence1 and sentence2; or text. For scored pairs in --eval_file and "
        "for --predict_file, the first two are used if the file has them.",
        is_stored=False,
        may_differ=True,
    )
    corpus_file: Sequence[str] = described.option(
        (),
        "Files, comma-separated, of further passages that the queries of "
        "--eval_file are compared with: SQuAD's .json, .txt, BEIR's "
        "corpus.jsonl, or a table with `text`.",
        is_stored=False,
        may_differ=True,
        only_with={"do_eval": (True,)},
        stored_as="corpus",
    )
    chunk_size: int | None = described.option(
        None,
        "Number of texts in memory at once. This allows batches of thousands, "
        "whose texts are all negatives, and costs one more forward pass.",
        described.POSITIVE,
        is_stored=False,
        only_with={"do_train": (True,)},
    )
