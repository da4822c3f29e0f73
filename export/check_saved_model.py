r"""Checks an exported SavedModel, or prints its answers.

    bert_tf check --export_dir=/servables/mrpc --model_dir=/runs/mrpc

loads the newest version in a new process that imports only tensorflow and
tensorflow_text, and compares its answers to hard texts, and to those of
--eval_file, with the trained model's. If --eval_file has labels, the scores
are compared too. The check fails if a signature or an output is missing, or if
a difference exceeds 1e-5, and then names weights of the model folder that are
not those exported. An export with --precision=bfloat16 fails above 0.1, or if
more than one text in ten gets an answer that the trained model finds worse by
more than 0.1.

    bert_tf check --export_dir=/servables/mrpc \
        --text=$'First sentence.\tSecond sentence.'

prints the answers to your own texts.
"""

import dataclasses

from absl import flags

from bert_tf import program
from bert_tf.serving.kinds import texts
from bert_tf.serving.options import ExportOptions

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The servable's folder, or that of one version."
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model folder that it was exported from."
)
_TEXT = flags.DEFINE_multi_string(
    "text", None, "A text to answer; may be given several times."
)
_PYTHON = flags.DEFINE_string(
    "python",
    None,
    "Another Python to load the SavedModel in, e.g. one with the release of "
    "TensorFlow that a server links.",
)
_OPTIONS = program.define_flags(
    ExportOptions,
    only=(
        "eval_file",
        "label_column",
        "token_column",
        "max_accuracy_loss",
    ),
)


def main(_):
    program.end_at_sigterm()
    program.require(export_dir=_EXPORT_DIR.value)
    given = {name: flag.value for name, flag in _OPTIONS.items()}
    # Checks them.
    ExportOptions(**given)
    if not _MODEL_DIR.value and not _TEXT.value:
        raise ValueError("--model_dir or --text must be given.")
    if given["eval_file"] and not _MODEL_DIR.value:
        raise ValueError("--eval_file needs --model_dir to compare with.")

    from bert_tf.serving import saved_model
    from bert_tf.serving.kinds import opening
    from bert_tf.serving.proof import accuracy
    from bert_tf.serving.proof import check
    from bert_tf.serving.proof import report

    path = saved_model.newest(_EXPORT_DIR.value)
    # The export's own values were for its own check.
    options = dataclasses.replace(saved_model.read_options(path), **given)
    if _TEXT.value:
        num_strings = len(options.text_features)
        rows = texts.parse_texts(_TEXT.value, num_strings, "--text")
        answers = check.answer_texts(path, options, rows, _PYTHON.value)
        kind = opening.kind_of_export(path)
        print(report.answers_table(rows, answers, kind))
    if _MODEL_DIR.value:
        servable = check.trained_servable(options, _MODEL_DIR.value)
        dev_set = accuracy.read_dev_set(servable)
        scorer = dev_set and accuracy.Scorer(dev_set)
        version, comparisons = check.compare(
            path, servable, servable.check_texts(), _PYTHON.value, scorer
        )
        print(report.comparisons_table(version, comparisons))
        if not all(comparison.is_equal for comparison in comparisons):
            names = check.other_weights(path, servable)
            raise ValueError(
                "the SavedModel does not answer as the trained model does."
                + (
                    f" {_MODEL_DIR.value}: other weights than those exported: "
                    f"{', '.join(names)}."
                    if names
                    else ""
                )
            )
        if scorer:
            found = scorer.accuracy()
            print(found)
            if found.exceeds(options.max_accuracy_loss):
                raise ValueError(
                    f"the SavedModel loses {found.loss:.4f} of the trained "
                    f"model's {found.metric}: more than --max_accuracy_loss="
                    f"{options.max_accuracy_loss:g}."
                )


if __name__ == "__main__":
    program.run(main)
