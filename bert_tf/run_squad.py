r"""Tunes BERT to find the answers to questions in texts: SQuAD 1.1 and 2.0.

    python -m bert_tf.run_squad --train_file=train-v1.1.json \
        --predict_file=dev-v1.1.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 \
        --learning_rate=3e-5 --train_batch_size=12 --num_train_epochs=2 \
        --output_dir=squad_output --do_train --do_predict --do_eval

writes into --output_dir the tuned model as a model folder (config.json,
model.safetensors, vocab.txt, tokenizer_config.json, task.json), the state of
the training in train/, the answers in predictions.json and
nbest_predictions.json and, with --do_eval, their official scores in
eval_results.txt and a report of them in report.md. SQuAD 2.0 needs
--version_2_with_negative. null_odds.json then holds, for each question, the
empty answer's score minus the best span's, and --tune_null_threshold finds the
difference above which the empty answer is better.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags

fine_tuning_flags.set_defaults(max_seq_length=384)
_TRAIN_FILE = flags.DEFINE_string(
    "train_file",
    None,
    "SQuAD's JSON to train on, e.g. train-v1.1.json; or a .jsonl or .parquet "
    "file with the columns of Hugging Face's set.",
)
_PREDICT_FILE = flags.DEFINE_string(
    "predict_file",
    None,
    "File to answer: SQuAD's JSON, e.g. dev-v1.1.json; or a .jsonl or .parquet "
    "file, as for --train_file.",
)
_DOC_STRIDE = flags.DEFINE_integer(
    "doc_stride",
    128,
    "Pieces from the beginning of one window to the beginning of the next.",
    lower_bound=1,
)
_MAX_QUERY_LENGTH = flags.DEFINE_integer(
    "max_query_length",
    64,
    "Most pieces of a question; longer ones are cut.",
    lower_bound=1,
)
_N_BEST_SIZE = flags.DEFINE_integer(
    "n_best_size",
    20,
    "Most answers to a question in nbest_predictions.json; at most 1,000.",
    lower_bound=1,
)
_MAX_ANSWER_LENGTH = flags.DEFINE_integer(
    "max_answer_length", 30, "Pieces of the longest answer.", lower_bound=1
)
_VERBOSE_LOGGING = flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Whether to warn of each question that is left out. Otherwise only the "
    "first few and their number are logged.",
)
_VERSION_2_WITH_NEGATIVE = flags.DEFINE_bool(
    "version_2_with_negative",
    False,
    "Whether questions may have no answer, as in SQuAD 2.0.",
)
_NULL_SCORE_DIFF_THRESHOLD = flags.DEFINE_float(
    "null_score_diff_threshold",
    0.0,
    "With --version_2_with_negative: predict the empty answer if its score "
    "exceeds the best span's by more than this.",
)
_TUNE_NULL_THRESHOLD = flags.DEFINE_bool(
    "tune_null_threshold",
    False,
    "With --version_2_with_negative and --do_eval: use the threshold that "
    "gives the best F1 on --predict_file, and after --do_train keep it with "
    "the model. Epochs are compared by their F1, each at its best threshold.",
)
# The flags that become fields of the task. Without --do_train, those that are
# not given are taken from the tuned model's task.json.
_TASK_FLAGS = (
    _TUNE_NULL_THRESHOLD,
    _VERSION_2_WITH_NEGATIVE,
    _DOC_STRIDE,
    _MAX_QUERY_LENGTH,
    _N_BEST_SIZE,
    _MAX_ANSWER_LENGTH,
    _NULL_SCORE_DIFF_THRESHOLD,
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    _check_flags(config)

    from bert_tf.tasks import source
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    task = _find_task(tuning_run.tuned_folder(config))
    examples = {}
    if config.do_train:
        examples[source.TRAIN] = _read(_TRAIN_FILE.value, task, True, True)
    if config.do_predict or config.do_eval:
        examples[source.DEV] = _read(
            _PREDICT_FILE.value, task, False, config.do_eval
        )
        if config.do_eval:
            examples[source.DEV].check_scorable(
                _PREDICT_FILE.value, task.version_2_with_negative
            )
    fine_tuning_flags.execute(config, task, examples, strategy)


def _check_flags(config):
    if config.do_train:
        program.require(train_file=_TRAIN_FILE.value)
    if config.do_predict or config.do_eval:
        program.require(predict_file=_PREDICT_FILE.value)
    if _TUNE_NULL_THRESHOLD.value and not config.do_eval:
        raise ValueError("--tune_null_threshold must be given with --do_eval.")


def _find_task(folder):
    """Returns the task: a tuned model's, changed by the flags, or a new one."""
    from bert_tf.tasks import task_folder
    from bert_tf.tasks.question_answering.task import SquadTask

    stored = (
        None if folder is None else task_folder.stored_task(folder, SquadTask)
    )
    fields = (stored or SquadTask()).get_config() | {
        flag.name: flag.value
        for flag in _TASK_FLAGS
        if stored is None or flag.present
    }
    if _TUNE_NULL_THRESHOLD.value and not fields[_VERSION_2_WITH_NEGATIVE.name]:
        raise ValueError(
            "--tune_null_threshold must be given with "
            "--version_2_with_negative."
        )
    return SquadTask(**fields)


def _read(path, task, is_training, needs_answers):
    from bert_tf.tasks.question_answering import files as squad_files

    return squad_files.read_squad(
        path,
        task.version_2_with_negative,
        is_training,
        _VERBOSE_LOGGING.value,
        "answers" if needs_answers else None,
    )


if __name__ == "__main__":
    program.run(main)
