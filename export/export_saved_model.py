r"""Exports a model folder as a SavedModel for TensorFlow Serving.

    bert_tf export --model_dir=/runs/mrpc --export_dir=/servables/mrpc

writes /servables/mrpc/1, next time /servables/mrpc/2: whole or not at all.
What is served is --kind:

    task          what the model was tuned to: classes, scores, entities, a
                  choice or cited answers; the default if it was
    encoder       the TF Hub's encoder: all layers; the default if it was not
    embedding     one vector a text: --embedding, --normalize
    token_embeddings
                  one vector a token, and where it stands: --layer
    fill_mask     the likeliest --top_k tokens for each [MASK]
    preprocessor  the TF Hub's preprocessor for an encoder: no model

With --contents=ids it takes ids only, needs no tensorflow_text, and has none of
the bounds of texts.
"""

from absl import flags

from bert_tf import program
from bert_tf.serving import options as options_lib
from bert_tf.serving.options import ExportOptions

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
    "take ids, with the tokenizer's files beside, for programs outside of "
    "TensorFlow (needs bert_tf[onnx]).",
)
_VERSION = flags.DEFINE_integer(
    "version",
    None,
    "Number of the version; the one after the highest there if not given.",
    lower_bound=0,
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
    "Names of the one or two strings that clients send, comma-separated, "
    "where the model folder has no task.json.",
)
_KIND = flags.DEFINE_enum(
    "kind",
    None,
    options_lib.KINDS,
    "What is served; task if the model was tuned to one, else encoder.",
)
_EMBEDDING = flags.DEFINE_enum(
    "embedding",
    None,
    options_lib.EMBEDDINGS,
    "With --kind=embedding: the last layer's [CLS], the mean of its tokens, "
    "the largest of each number, or the mean of those of the last four layers, "
    "concatenated. Default: as a folder of sentence-transformers says, or "
    "mean.",
)
_NORMALIZE = flags.DEFINE_bool(
    "normalize",
    None,
    "With --kind=embedding: whether to divide the vector by its length. "
    "Default: as a folder of sentence-transformers says, or not.",
)
_PROMPT_NAME = flags.DEFINE_string(
    "prompt_name",
    None,
    "With --kind=embedding: which prompt of a folder of sentence-transformers "
    "is put before every text. Default: the folder's own default, if any.",
)
_PROMPT = flags.DEFINE_string(
    "prompt",
    None,
    "With --kind=embedding: what is put before every text, as it stands, e.g. "
    "'query: '. Empty for nothing, whatever the folder says.",
)
_LAYER = flags.DEFINE_integer(
    "layer",
    None,
    "With --kind=token_embeddings: the block whose vectors they are, from 0, "
    "or from the last one on as -1, -2, ...; the last one if not given.",
)
_COUNT_TOKENS = flags.DEFINE_bool(
    "count_tokens",
    None,
    "Of classifiers, regressions, rerankers and embeddings: also answer to "
    "strings how many tokens were read, and whether there is text that was "
    "not. Default: not, as the answer of a regression or an embedding is no "
    "single output then, which REST's clients see.",
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
    "Bytes of a text that are read, the rest is cut; if not given 1,048,576, "
    "and 16,384 with --kind=fill_mask.",
    lower_bound=1,
)
_MAX_WINDOWS = flags.DEFINE_integer(
    "max_windows",
    None,
    "Of question answering and taggers: windows of a text that are read, the "
    "rest is cut; 256 if not given.",
    lower_bound=1,
)
_MAX_MASKS = flags.DEFINE_integer(
    "max_masks",
    None,
    "With --kind=fill_mask: masks of a text that are answered, its first; 128 "
    "if not given.",
    lower_bound=1,
)
_SERVING_PRECISION = flags.DEFINE_enum(
    "serving_precision",
    options_lib.FLOAT32,
    options_lib.PRECISIONS,
    "Arithmetic of the layers and form of their weights. What bfloat16 costs "
    "is printed: the largest difference from float32 and how many texts get "
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
    "Remove all but so many versions, the newest; all stay if not given.",
    lower_bound=1,
)
_CHECK = flags.DEFINE_bool(
    "check",
    True,
    "Load the SavedModel in a process of its own and compare its answers to "
    "hard texts with the trained model's, before it gets its place.",
)
_CHECK_FILE = flags.DEFINE_string(
    "check_file",
    None,
    "Texts to check on as well: the development set that the model was tuned "
    "with (dev.tsv, SQuAD's JSON, CoNLL's columns, ...); a .tsv or .csv with a "
    "header, a .jsonl or a .parquet that has the columns --text_features; or, "
    "under another name such as texts.txt, a text a line, the two of a pair "
    "separated by a tab.",
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column",
    None,
    "Name of the column of labels in --check_file, if not the task's own. Of a "
    "tagger the column of tags, by its name or its number: --tag_column of the "
    "tuning.",
)
_TOKEN_COLUMN = flags.DEFINE_string(
    "token_column",
    None,
    "Of a tagger: the column of words in --check_file, by its number from 0 or "
    "its name in the first line; 0 if not given.",
)
_MAX_ACCURACY_LOSS = flags.DEFINE_float(
    "max_accuracy_loss",
    None,
    "How much lower the task's score on the labelled texts of --check_file may "
    "be than the trained model's, e.g. 0.01 for a point of accuracy, F1 or "
    "correlation; if it is more, nothing is exported.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_TIMEOUT_SECONDS = flags.DEFINE_integer(
    "timeout_seconds",
    None,
    "Of the check: longest wait for the SavedModel to be loaded, and for each "
    f"answer; {options_lib.TIMEOUT_SECONDS} if not given.",
    lower_bound=1,
)
_JIT = flags.DEFINE_bool(
    "jit",
    False,
    "Compile the model with XLA. The server must have been started with "
    "--xla_cpu_compilation_enabled: without it every request fails. Needs "
    "tensorflow-serving-api, for requests that compile it before the version "
    "takes traffic.",
)
_JIT_LENGTHS = flags.DEFINE_list(
    "jit_lengths",
    [],
    "With --jit: lengths that sequences are filled up to, comma-separated; "
    f"{','.join(map(str, options_lib.JIT_LENGTHS))} if not given, and "
    "--max_seq_length in any case.",
)
_JIT_BATCH_SIZES = flags.DEFINE_list(
    "jit_batch_sizes",
    [],
    "With --jit: numbers of texts that batches are filled up to; larger ones "
    "are cut. "
    f"{','.join(map(str, options_lib.JIT_BATCH_SIZES))} if not given.",
)
_WARMUP_BATCH_SIZES = flags.DEFINE_list(
    "warmup_batch_sizes",
    [],
    "Batch sizes, comma-separated, that the server tries out before the "
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
        precision=_SERVING_PRECISION.value,
        is_frozen=_FREEZE.value,
        is_checked=_CHECK.value,
        check_file=_CHECK_FILE.value,
        label_column=_LABEL_COLUMN.value,
        token_column=_TOKEN_COLUMN.value,
        max_accuracy_loss=_MAX_ACCURACY_LOSS.value,
        timeout_seconds=_TIMEOUT_SECONDS.value,
        warmup_batch_sizes=program.numbers(_WARMUP_BATCH_SIZES),
        is_jit_compiled=_JIT.value,
        jit_lengths=program.numbers(_JIT_LENGTHS),
        jit_batch_sizes=program.numbers(_JIT_BATCH_SIZES),
        version=_VERSION.value,
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
