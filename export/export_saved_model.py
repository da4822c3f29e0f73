r"""Exports a model folder as a SavedModel for TensorFlow Serving.

    python export/export_saved_model.py \
        --model_dir=/runs/mrpc --export_dir=/servables/mrpc

writes /servables/mrpc/1, next time /servables/mrpc/2: whole or not at all. A
fine-tuned model answers as its task says, any other gives its embeddings.
With --contents=ids it takes ids only, and needs no tensorflow_text.
"""

from absl import flags

from bert_tf import program
from bert_tf.serving import exporter
from bert_tf.serving import saved_model

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model folder, of bert_tf or Hugging Face."
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The servable's folder; versions go into it."
)
_VERSION = flags.DEFINE_integer(
    "version",
    None,
    "Number of the version; the one after the highest there if not given.",
    lower_bound=0,
)
_CONTENTS = flags.DEFINE_enum(
    "contents",
    saved_model.TEXT,
    saved_model.CONTENTS,
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
_CHECK = flags.DEFINE_bool(
    "check",
    True,
    "Load the SavedModel in a process of its own and compare its answers to "
    "hard texts with the trained model's, before it gets its place.",
)
_WARMUP_BATCH_SIZES = flags.DEFINE_list(
    "warmup_batch_sizes",
    [],
    "Batch sizes, comma-separated, that the server tries out before the "
    "version takes traffic; needs tensorflow-serving-api.",
)


def main(_):
    program.require(model_dir=_MODEL_DIR.value, export_dir=_EXPORT_DIR.value)
    print(
        exporter.export(
            _MODEL_DIR.value,
            _EXPORT_DIR.value,
            contents=_CONTENTS.value,
            version=_VERSION.value,
            max_seq_length=_MAX_SEQ_LENGTH.value,
            text_features=_TEXT_FEATURES.value,
            is_checked=_CHECK.value,
            warmup_batch_sizes=[
                int(size) for size in _WARMUP_BATCH_SIZES.value
            ],
        )
    )


if __name__ == "__main__":
    program.run(main)
