r"""Exports a model folder as a SavedModel for TensorFlow Serving.

    bert_tf export --model_dir=/runs/mrpc --export_dir=/servables/mrpc

writes /servables/mrpc/1, next time /servables/mrpc/2: whole or not at all.
--kind chooses what is served:

    task          the model's task: classes, scores, entities, a choice, or
                  quoted answers; the default if the model was tuned to one
    encoder       the TF Hub's encoder: all layers; the default otherwise
    embedding     one vector per text: --pooling, --normalize
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
from bert_tf.serving.options import ExportOptions

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model folder, of bert_tf or Hugging Face."
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The servable's folder; versions go into it."
)
program.define_flags(ExportOptions)


def main(_):
    program.end_at_sigterm()
    program.require(model_dir=_MODEL_DIR.value, export_dir=_EXPORT_DIR.value)
    options = program.from_flags(ExportOptions)

    from bert_tf.serving import exporter

    print(exporter.export(_MODEL_DIR.value, _EXPORT_DIR.value, options))


if __name__ == "__main__":
    program.run(main)
