"""The options of an export, each described once; the export records them.

A field defines its flag (`bert_tf export`, and in part `bert_tf check`), its
check, and its key in bert_tf.json.
"""

import dataclasses
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from bert_tf import described
from bert_tf.tasks.features.options import CLS
from bert_tf.tasks.features.options import MAX
from bert_tf.tasks.features.options import MEAN
from bert_tf.text.tokenizers import added_tokens

SAVED_MODEL, ONNX = "saved_model", "onnx"

# What clients can send: strings, ids and Examples, or ids alone.
TEXT = "text"
IDS = "ids"
CONTENTS = (TEXT, IDS)

# What is served: the task of the model, or a kind that needs no task.
TASK = "task"
RERANKER = "reranker"
TOKEN_EMBEDDINGS = "token_embeddings"
KINDS = (
    TASK,
    "encoder",
    "embedding",
    TOKEN_EMBEDDINGS,
    RERANKER,
    "fill_mask",
    "preprocessor",
)

# Values of the option `pooling`: how the vector is made.
LAST_FOUR = "last_four"
POOLINGS = (CLS, MEAN, MAX, LAST_FOUR)

FLOAT32, BFLOAT16 = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16)

# Options that only some kinds take: `Servable.DEFAULTS`.
OF_KINDS = (
    "pooling",
    "normalize",
    "prompt_name",
    "prompt",
    "layer",
    "count_tokens",
    "top_k",
    "max_text_bytes",
    "max_windows",
    "max_masks",
    "token_column",
)
# Options that change answers, and not files or servers: a predictor's.
OF_ANSWERS = (
    "kind",
    "max_seq_length",
    "text_features",
    "tokens_in_text",
    "pooling",
    "normalize",
    "prompt_name",
    "prompt",
    "top_k",
    "max_text_bytes",
    "max_windows",
    "max_masks",
    "precision",
)
# Those of `OF_KINDS` that are about strings.
OF_TEXTS = ("count_tokens", "max_text_bytes", "max_windows")

# Names in bert_tf.json before its version 3, which also had the `OF_KINDS` in
# two dictionaries of their own.
_FORMER = {
    "is_frozen": "freeze",
    "embedding": "pooling",
    "check_file": "eval_file",
}
_FORMER_GROUPS = ("settings", "bounds")

# A sequence has at least [CLS], a piece and [SEP].
_LENGTH = described.Range("3 or more", lambda value: value >= 3)
# Places in a text are int32.
_BOUND = described.Range(
    "positive and less than 2^31 - 1", lambda value: 0 < value < 2**31 - 1
)
_SHARE = described.Range("from 0 to 1", lambda value: 0 <= value <= 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a model folder becomes a version of a servable.

    Args:
        **options: The options of `bert_tf export`, by the names of their flags;
            `bert_tf export --help` describes them.

    Raises:
        ValueError: If a value has the wrong type, is out of range, or
            conflicts with another.

    Example:

        >>> from bert_tf import ExportOptions
        >>> options = ExportOptions(
        ...     kind="embedding", normalize=True, keep_versions=3
        ... )
        >>> options.contents, options.precision
        ('text', 'float32')
    """

    format: str = described.option(
        SAVED_MODEL,
        "What is written: a SavedModel; or model.onnx and model_int8.onnx, "
        "which take ids, and the tokenizer's files, for programs without "
        "TensorFlow (needs bert_tf[onnx]).",
        choices=(SAVED_MODEL, ONNX),
    )
    contents: str = described.option(
        TEXT,
        "What clients can send: strings, ids and tf.Examples, or ids only, "
        "which needs no tensorflow_text.",
        choices=CONTENTS,
    )
    kind: str | None = described.option(
        None,
        "What is served. Default: task if the model was tuned to one, and "
        "encoder otherwise.",
        choices=KINDS,
    )
    max_seq_length: int | None = described.option(
        None, "Longest sequence. Default: the model folder's.", _LENGTH
    )
    text_features: Sequence[str] = described.option(
        (),
        "Names of the one or two strings that clients send, comma-separated, "
        "if the model folder has no task.json. Default: text.",
    )
    tokens_in_text: str | None = described.option(
        None,
        "Which tokens are found where a text contains them: added, those that "
        "were added to the model's vocabulary; all, also its own, such as "
        "[MASK], as in transformers; or none. Default: what the model folder "
        "says, or added.",
        choices=added_tokens.CHOICES,
    )
    pooling: str | None = described.option(
        None,
        "With --kind=embedding: the last layer's vector of [CLS], the mean or "
        "the maximum of its tokens' vectors, or the means of each of the last "
        "four layers, concatenated. Default: that of a sentence-transformers "
        "folder, or mean.",
        choices=POOLINGS,
    )
    normalize: bool | None = described.option(
        None,
        "With --kind=embedding: whether to divide the vector by its length. "
        "Default: that of a sentence-transformers folder, or no.",
    )
    prompt_name: str | None = described.option(
        None,
        "With --kind=embedding: which prompt of a sentence-transformers folder "
        "is put before every text. Default: the folder's own default, if any.",
    )
    prompt: str | None = described.option(
        None,
        "With --kind=embedding: a string put before every text, e.g. "
        "'query: '. Empty for none, even if the folder has a default.",
    )
    layer: int | None = described.option(
        None,
        "With --kind=token_embeddings: the block that the vectors come from: "
        "0, 1, ... from the first, or -1, -2, ... from the last. Default: -1.",
    )
    count_tokens: bool | None = described.option(
        None,
        "For classifiers, regressions, rerankers and embeddings: also answer "
        "how many tokens of the strings were read, and whether there is text "
        "that was not. Default: no, as a regression or an embedding then has "
        "several outputs, and REST clients get another form of answer.",
    )
    top_k: int | None = described.option(
        None,
        "With --kind=fill_mask: tokens for each mask. Default: 5.",
        described.POSITIVE,
    )
    max_text_bytes: int | None = described.option(
        None,
        "Bytes of a text that are read; the rest is cut. Default: 1,048,576, "
        "or 16,384 with --kind=fill_mask.",
        _BOUND,
    )
    max_windows: int | None = described.option(
        None,
        "For question answering and taggers: windows of a text that are read; "
        "the rest is cut. Default: 256.",
        _BOUND,
    )
    max_masks: int | None = described.option(
        None,
        "With --kind=fill_mask: how many masks of a text are answered, from "
        "the first. Default: 128.",
        _BOUND,
    )
    precision: str = described.option(
        FLOAT32,
        "Arithmetic of the layers and dtype of their weights. The cost of "
        "bfloat16 is printed: the largest difference from float32, and how "
        "many texts get another label; too many are an error.",
        choices=PRECISIONS,
    )
    freeze: bool = described.option(
        False,
        "Make the weights constants of the graph: small models answer few "
        "strings faster, but take 10 to 25 times the memory of their weights, "
        "and cannot be trained after tf.saved_model.load.",
    )
    keep_versions: int | None = described.option(
        None,
        "How many versions stay: the one written, and the highest of the "
        "others. Default: all.",
        described.POSITIVE,
    )
    check: bool = described.option(
        True,
        "Load the SavedModel in a process of its own and compare its answers "
        "to hard texts with the trained model's, before it is published.",
    )
    eval_file: str | None = described.option(
        None,
        "More texts to check on: the development set that the model was tuned "
        "with (dev.tsv, SQuAD's JSON, CoNLL's columns, ...); a .tsv or .csv "
        "with a header, a .jsonl or a .parquet that has the columns "
        "--text_features; or any other file, e.g. texts.txt, with one text per "
        "line and a tab between the two of a pair.",
    )
    label_column: str | None = described.option(
        None,
        "Name of the column of labels in --eval_file, if not the task's own. "
        "For a tagger, the column of tags by name or number, as in run_tagger.",
    )
    token_column: str | None = described.option(
        None,
        "For a tagger: the column of words in --eval_file, by its number from "
        "0 or its name in the first line. Default: 0.",
    )
    max_accuracy_loss: float | None = described.option(
        None,
        "By how much the task's score on the labelled texts of --eval_file "
        "may be lower than the trained model's, e.g. 0.01 for a point of "
        "accuracy, F1 or correlation. If it is lower, the check fails, and "
        "nothing is exported.",
        _SHARE,
    )
    warmup_batch_sizes: Sequence[int] = described.option(
        (),
        "Batch sizes, comma-separated, that the server warms up with before "
        "the version takes traffic; needs tensorflow-serving-api.",
        described.POSITIVE,
    )

    def __post_init__(self) -> None:
        if isinstance(self.eval_file, os.PathLike):
            object.__setattr__(self, "eval_file", os.fspath(self.eval_file))
        described.check(self)
        if self.eval_file is not None and not self.check:
            raise ValueError("--eval_file must not be given with --nocheck.")
        for name in ("label_column", "token_column", "max_accuracy_loss"):
            value = getattr(self, name)
            if value is not None and self.eval_file is None:
                raise ValueError(
                    f"--{name} must be given with --eval_file. "
                    f"Received: --{name}={value}."
                )

    @property
    def dtype(self) -> str | None:
        """The Keras dtype policy of the model; None for its own."""
        return None if self.precision == FLOAT32 else self.precision

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ExportOptions":
        """Returns the options that an export was made with.

        Args:
            values: The export's bert_tf.json; those of older releases lack some
                fields, or have them under other names.
        """
        values = dict(values)
        for group in _FORMER_GROUPS:
            values |= values.pop(group, {})
        for former, name in _FORMER.items():
            if former in values:
                values[name] = values.pop(former)
        names = {field.name for field in dataclasses.fields(cls)}
        # The file has the results of the check under that name.
        names.remove("check")
        return cls(
            **{
                name: value
                for name, value in values.items()
                if name in names and value is not None
            }
        )
