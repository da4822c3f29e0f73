r"""Checks an exported SavedModel, or prints its answers.

    bert_tf check --export_dir=/servables/mrpc --model_dir=/runs/mrpc

loads the newest version in a new process that imports only tensorflow and
tensorflow_text, and compares its answers to hard texts (or to --input_file's)
with the trained model's. If --input_file has labels, the scores are compared
too. The check fails if a signature or an output is missing, or if a difference
exceeds 1e-5, and then names weights of the model folder that are not those
exported. An export with --serving_precision=bfloat16 fails above 0.1, or if
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
from bert_tf.serving.options import TIMEOUT_SECONDS

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "The servable's folder, or that of one version."
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "The model folder that it was exported from."
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Texts to compare on: the development set of the model's task (dev.tsv, "
    "SQuAD's JSON, CoNLL's columns, ...); a .tsv or .csv with a header, a "
    ".jsonl or a .parquet that names the model's strings; or any other file, "
    "e.g. texts.txt, with one text per line and a tab between the two of a "
    "pair. Built-in hard texts if not given.",
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column",
    None,
    "Name of the column of labels in --input_file, if not the task's own. For "
    "a tagger, the column of tags by name or number, as in --tag_column of "
    "run_tagger.",
)
_TOKEN_COLUMN = flags.DEFINE_string(
    "token_column",
    None,
    "For a tagger: the column of words in --input_file, by its number from 0 "
    "or its name in the first line; 0 if not given.",
)
_MAX_ACCURACY_LOSS = flags.DEFINE_float(
    "max_accuracy_loss",
    None,
    "Fail if the task's score on the labelled texts of --input_file is lower "
    "than the trained model's by more than this, e.g. 0.01.",
    lower_bound=0.0,
    upper_bound=1.0,
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

_TIMEOUT_SECONDS = flags.DEFINE_integer(
    "timeout_seconds",
    TIMEOUT_SECONDS,
    "Longest wait for the SavedModel to be loaded, and for each answer.",
    lower_bound=1,
)


def main(_):
    program.end_at_sigterm()
    program.require(export_dir=_EXPORT_DIR.value)
    if not _MODEL_DIR.value and not _TEXT.value:
        raise ValueError("--model_dir or --text must be given.")
    if _INPUT_FILE.value and not _MODEL_DIR.value:
        raise ValueError("--input_file needs --model_dir to compare with.")

    for flag in (_LABEL_COLUMN, _TOKEN_COLUMN, _MAX_ACCURACY_LOSS):
        if flag.value is not None and not _INPUT_FILE.value:
            raise ValueError(f"--{flag.name} needs --input_file.")

    from bert_tf.serving import saved_model
    from bert_tf.serving.proof import accuracy
    from bert_tf.serving.proof import check
    from bert_tf.serving.proof import report

    path = saved_model.newest(_EXPORT_DIR.value)
    if _TEXT.value:
        num_strings = check.num_strings(path)
        rows = texts.parse_texts(_TEXT.value, num_strings, "--text")
        answers = check.answer_texts(
            path, rows, _PYTHON.value, _TIMEOUT_SECONDS.value
        )
        print(report.answers_table(rows, answers))
    if _MODEL_DIR.value:
        rows = scorer = None
        servable = check.trained_servable(path, _MODEL_DIR.value)
        if _INPUT_FILE.value:
            # The export's own values were for its --check_file.
            options = dataclasses.replace(
                servable.options,
                is_checked=True,
                check_file=_INPUT_FILE.value,
                label_column=_LABEL_COLUMN.value,
                token_column=_TOKEN_COLUMN.value,
                max_accuracy_loss=_MAX_ACCURACY_LOSS.value,
            )
            servable.options = servable.resolve(options, servable.task)
            rows = servable.read_texts(_INPUT_FILE.value)
            dev_set = accuracy.read_dev_set(servable, options)
            scorer = dev_set and accuracy.Scorer(dev_set)
        version, comparisons = check.compare(
            path,
            servable,
            rows,
            _PYTHON.value,
            _TIMEOUT_SECONDS.value,
            scorer,
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
            if found.exceeds(_MAX_ACCURACY_LOSS.value):
                raise ValueError(
                    f"the SavedModel loses {found.loss:.4f} of the trained "
                    f"model's {found.metric}: more than --max_accuracy_loss="
                    f"{_MAX_ACCURACY_LOSS.value:g}."
                )


if __name__ == "__main__":
    program.run(main)
