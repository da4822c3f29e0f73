r"""Exports a model folder as a SavedModel for TensorFlow Serving.

    bert_tf export --model_dir=/runs/mrpc --export_dir=/servables/mrpc

writes /servables/mrpc/1, next time /servables/mrpc/2: whole or not at all.
--kind chooses what is served:

    task          the model's task: classes, scores, entities, a choice, or
                  quoted answers; the default if the model was tuned to one
    encoder       the TF Hub's encoder: all layers; the default otherwise
    embedding     one vector per text: --embedding, --normalize
    token_embeddings
                  one vector per token, and the token's place: --layer
    reranker      the score of a query with a text, by a classifier with one
                  output
    fill_mask     the likeliest --top_k tokens for each [MASK]
    preprocessor  the TF Hub's preprocessor for an encoder: no model

With --contents=ids the SavedModel takes ids only, needs no tensorflow_text, and
has no limits for texts.
"""

from absl import flags

from bert_tf import program
from bert_tf.serving import options as options_lib
from bert_tf.serving.options import ExportOptions
from bert_tf.text.tokenizers import added_tokens

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model folder, of bert_tf or Hugging Face."
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The servable's folder; versions go into it."
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", "onnx"],
    "What is written: a SavedModel; or model.onnx and model_int8.onnx, which "
    "take ids, and the tokenizer's files, for programs without TensorFlow "
    "(needs bert_tf[onnx]).",
)
_CONTENTS = flags.DEFINE_enum(
    "contents",
    options_lib.TEXT,
    options_lib.CONTENTS,
    "What clients can send: strings, ids and tf.Examples, or ids only.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longest sequence; the model folder's if not given.",
    lower_bound=3,
)
_TEXT_FEATURES = flags.DEFINE_list(
    "text_features",
    None,
    "Names of the one or two strings that clients send, comma-separated, if "
    "the model folder has no task.json.",
)
_TOKENS_IN_TEXT = flags.DEFINE_enum(
    "tokens_in_text",
    None,
    added_tokens.CHOICES,
    "Which tokens are found where a text contains them: added, those that were "
    "added to the model's vocabulary; all, also its own, such as [MASK], as in "
    "transformers; or none. If not given, what the model folder says, or "
    "added.",
)
_KIND = flags.DEFINE_enum(
    "kind",
    None,
    options_lib.KINDS,
    "What is served. If not given, task if the model was tuned to one, and "
    "encoder otherwise.",
)
_EMBEDDING = flags.DEFINE_enum(
    "embedding",
    None,
    options_lib.EMBEDDINGS,
    "With --kind=embedding: the last layer's vector of [CLS], the mean or the "
    "maximum of its tokens' vectors, or the means of each of the last four "
    "layers, concatenated. Default: that of a sentence-transformers folder, or "
    "mean.",
)
_NORMALIZE = flags.DEFINE_bool(
    "normalize",
    None,
    "With --kind=embedding: whether to divide the vector by its length. "
    "Default: that of a sentence-transformers folder, or no.",
)
_PROMPT_NAME = flags.DEFINE_string(
    "prompt_name",
    None,
    "With --kind=embedding: which prompt of a sentence-transformers folder is "
    "put before every text. Default: the folder's own default, if any.",
)
_PROMPT = flags.DEFINE_string(
    "prompt",
    None,
    "With --kind=embedding: a string put before every text, e.g. 'query: '. "
    "Empty for none, even if the folder has a default.",
)
_LAYER = flags.DEFINE_integer(
    "layer",
    None,
    "With --kind=token_embeddings: the block that the vectors come from: 0, 1, "
    "... from the first, or -1, -2, ... from the last; -1 if not given.",
)
_COUNT_TOKENS = flags.DEFINE_bool(
    "count_tokens",
    None,
    "For classifiers, regressions, rerankers and embeddings: also answer how "
    "many tokens of the strings were read, and whether there is text that was "
    "not. Default: no, as a regression or an embedding then has several "
    "outputs, and REST clients get another form of answer.",
)
_TOP_K = flags.DEFINE_integer(
    "top_k",
    None,
    "With --kind=fill_mask: tokens for each mask; 5 if not given.",
    lower_bound=1,
)
_MAX_TEXT_BYTES = flags.DEFINE_integer(
    "max_text_bytes",
    None,
    "Bytes of a text that are read; the rest is cut. If not given, 1,048,576, "
    "or 16,384 with --kind=fill_mask.",
    lower_bound=1,
)
_MAX_WINDOWS = flags.DEFINE_integer(
    "max_windows",
    None,
    "For question answering and taggers: windows of a text that are read; the "
    "rest is cut. 256 if not given.",
    lower_bound=1,
)
_MAX_MASKS = flags.DEFINE_integer(
    "max_masks",
    None,
    "With --kind=fill_mask: how many masks of a text are answered, from the "
    "first; 128 if not given.",
    lower_bound=1,
)
_SERVING_PRECISION = flags.DEFINE_enum(
    "serving_precision",
    options_lib.FLOAT32,
    options_lib.PRECISIONS,
    "Arithmetic of the layers and dtype of their weights. The cost of bfloat16 "
    "is printed: the largest difference from float32, and how many texts get "
    "another label; too many are an error.",
)
_FREEZE = flags.DEFINE_bool(
    "freeze",
    False,
    "Make the weights constants of the graph: small models answer few strings "
    "faster, but take 10 to 25 times the memory of their weights, and cannot "
    "be trained after tf.saved_model.load.",
)
_KEEP_VERSIONS = flags.DEFINE_integer(
    "keep_versions",
    None,
    "How many versions stay: the one written, and the highest of the others. "
    "All if not given.",
    lower_bound=1,
)
_CHECK = flags.DEFINE_bool(
    "check",
    True,
    "Load the SavedModel in a process of its own and compare its answers to "
    "hard texts with the trained model's, before it is published.",
)
_CHECK_FILE = flags.DEFINE_string(
    "check_file",
    None,
    "More texts to check on: the development set that the model was tuned "
    "with (dev.tsv, SQuAD's JSON, CoNLL's columns, ...); a .tsv or .csv with a "
    "header, a .jsonl or a .parquet that has the columns --text_features; or "
    "any other file, e.g. texts.txt, with one text per line and a tab between "
    "the two of a pair.",
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column",
    None,
    "Name of the column of labels in --check_file, if not the task's own. For "
    "a tagger, the column of tags by name or number, as in --tag_column of "
    "run_tagger.",
)
_TOKEN_COLUMN = flags.DEFINE_string(
    "token_column",
    None,
    "For a tagger: the column of words in --check_file, by its number from 0 "
    "or its name in the first line; 0 if not given.",
)
_MAX_ACCURACY_LOSS = flags.DEFINE_float(
    "max_accuracy_loss",
    None,
    "By how much the task's score on the labelled texts of --check_file may be "
    "lower than the trained model's, e.g. 0.01 for a point of accuracy, F1 or "
    "correlation. If it is lower, nothing is exported.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_TIMEOUT_SECONDS = flags.DEFINE_integer(
    "timeout_seconds",
    None,
    "The check's longest wait for the SavedModel to be loaded, and for each "
    f"answer; {options_lib.TIMEOUT_SECONDS} if not given.",
    lower_bound=1,
)
_WARMUP_BATCH_SIZES = flags.DEFINE_list(
    "warmup_batch_sizes",
    [],
    "Batch sizes, comma-separated, that the server warms up with before the "
    "version takes traffic; needs tensorflow-serving-api.",
)


def main(_):
    program.end_at_sigterm()
    program.require(model_dir=_MODEL_DIR.value, export_dir=_EXPORT_DIR.value)
    settings, bounds = (
        {flag.name: flag.value for flag in group if flag.value is not None}
        for group in (
            (
                _EMBEDDING,
                _NORMALIZE,
                _PROMPT_NAME,
                _PROMPT,
                _LAYER,
                _COUNT_TOKENS,
                _TOP_K,
            ),
            (_MAX_TEXT_BYTES, _MAX_WINDOWS, _MAX_MASKS),
        )
    )
    options = ExportOptions(
        contents=_CONTENTS.value,
        kind=_KIND.value,
        settings=settings,
        bounds=bounds,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        text_features=_TEXT_FEATURES.value or (),
        tokens_in_text=_TOKENS_IN_TEXT.value,
        precision=_SERVING_PRECISION.value,
        is_frozen=_FREEZE.value,
        is_checked=_CHECK.value,
        check_file=_CHECK_FILE.value,
        label_column=_LABEL_COLUMN.value,
        token_column=_TOKEN_COLUMN.value,
        max_accuracy_loss=_MAX_ACCURACY_LOSS.value,
        timeout_seconds=_TIMEOUT_SECONDS.value,
        warmup_batch_sizes=program.numbers(_WARMUP_BATCH_SIZES),
        keep_versions=_KEEP_VERSIONS.value,
    )

    if _FORMAT.value == "onnx":
        from bert_tf.serving import onnx_exporter

        print(
            onnx_exporter.export(_MODEL_DIR.value, _EXPORT_DIR.value, options)
        )
        return

    from bert_tf.serving import exporter

    print(exporter.export(_MODEL_DIR.value, _EXPORT_DIR.value, options))


if __name__ == "__main__":
    program.run(main)
