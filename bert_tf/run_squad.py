"""Tunes BERT to find the answers to questions in texts: SQuAD 1.1 and 2.0.

    python -m bert_tf.run_squad --train_file=train-v1.1.json \
        --predict_file=dev-v1.1.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 \
        --learning_rate=3e-5 --train_batch_size=12 --num_train_epochs=2 \
        --output_dir=squad_output --do_train --do_predict --do_eval

writes into --output_dir the tuned model as a model folder (config.json,
model.safetensors, vocab.txt, tokenizer_config.json, task.json), the state of
the training in train/, the answers in predictions.json and
nbest_predictions.json and, with --do_eval, their official scores in
eval_results.txt and a report of them in report.md. SQuAD 2.0 wants
--version_2_with_negative; then null_odds.json tells by how much no answer beats
the best one, and --tune_null_threshold finds the odds from which the answer had
better be empty.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

import dataclasses
import os

import keras
from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks import task_folder
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import report as squad_report
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.training import checkpointing
from bert_tf.training import strategy as strategies
from bert_tf.tuning import fit as fine_tuning
from bert_tf.tuning import run as tuning

fine_tuning_flags.set_defaults(max_seq_length=384)
_TRAIN_FILE = flags.DEFINE_string(
    "train_file", None, "JSON of SQuAD to train on, e.g. train-v1.1.json."
)
_PREDICT_FILE = flags.DEFINE_string(
    "predict_file",
    None,
    "JSON of SQuAD to answer, e.g. dev-v1.1.json or test-v1.1.json.",
)
_DOC_STRIDE = flags.DEFINE_integer(
    "doc_stride",
    128,
    "Pieces from the beginning of one window to that of the next.",
    lower_bound=1,
)
_MAX_QUERY_LENGTH = flags.DEFINE_integer(
    "max_query_length",
    64,
    "Pieces of a question; longer ones are cut off.",
    lower_bound=1,
)
_N_BEST_SIZE = flags.DEFINE_integer(
    "n_best_size",
    20,
    "Answers to a question in nbest_predictions.json, 1,000 at most.",
    lower_bound=1,
)
_MAX_ANSWER_LENGTH = flags.DEFINE_integer(
    "max_answer_length", 30, "Pieces of the longest answer.", lower_bound=1
)
_VERBOSE_LOGGING = flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Whether to warn of each question that is left out, and not only of the "
    "first few and of their number.",
)
_VERSION_2_WITH_NEGATIVE = flags.DEFINE_bool(
    "version_2_with_negative",
    False,
    "Whether questions may have no answer, as in SQuAD 2.0.",
)
_NULL_SCORE_DIFF_THRESHOLD = flags.DEFINE_float(
    "null_score_diff_threshold",
    0.0,
    "With --version_2_with_negative: the answer is empty where no answer "
    "scores higher than the best by more than this.",
)
_TUNE_NULL_THRESHOLD = flags.DEFINE_bool(
    "tune_null_threshold",
    False,
    "With --version_2_with_negative and --do_eval: use, and after --do_train "
    "keep with the model, the threshold of the best F1 on --predict_file. "
    "Epochs are compared by their F1 at their own such threshold.",
)
# The flags that a tuned model's task.json holds.
_TASK_FLAGS = (
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
    strategy = training_flags.make_strategy()
    policy = training_flags.dtype_policy(strategy)
    is_chief = strategies.is_chief(strategy)
    keras.utils.set_random_seed(config.random_seed)

    # Data.
    folder = fine_tuning_flags.tuned_folder(config)
    task = _find_task(folder)
    examples = {}
    if config.do_train:
        examples["train"] = _read(_TRAIN_FILE.value, task, is_training=True)
    if config.do_predict or config.do_eval:
        examples["predict"] = _read(_PREDICT_FILE.value, task)
        if config.do_eval and examples["predict"].answers is None:
            raise ValueError(
                f"{_PREDICT_FILE.value}: has questions without answers, which "
                "--do_eval cannot score."
            )
    start = tuning.find_start(config, folder)
    maker = WindowMaker(start.preprocessor(config.max_seq_length), task)
    sources = {
        split: WindowSource(
            examples=examples[split],
            maker=maker,
            seed=config.random_seed,
            is_trimmed=not strategies.is_tpu(strategy),
        )
        for split in examples
    }

    # Model.
    model = fine_tuning_flags.make_model(start, task, config, strategy, policy)
    predictor = fine_tuning.Predictor(
        squad_answers.stacked_outputs(model, config.max_seq_length), strategy
    )

    def find_answers(batch_size):
        logits = predictor(sources["predict"], batch_size)
        return squad_answers.find_answers(task, sources["predict"], logits)

    answers = None

    def evaluate():
        nonlocal answers
        answers = find_answers(config.eval_batch_size)
        return _evaluate(
            _with_threshold(task, examples["predict"], answers),
            examples["predict"],
            answers,
        )

    settings = {}
    if _TUNE_NULL_THRESHOLD.value and (
        config.keep_best or config.early_stopping_epochs
    ):
        # Epochs are then compared by other scores.
        settings[_TUNE_NULL_THRESHOLD.name] = True
    results = None
    if config.do_train:
        results = fine_tuning_flags.tune(
            model,
            task,
            sources["train"],
            config,
            start,
            strategy,
            evaluate if config.do_eval else None,
            # As google-research/bert has it: an epoch is as many windows as
            # there are questions.
            epoch_examples=len(examples["train"]),
            settings=settings,
        )
    if not (config.do_predict or config.do_eval):
        return
    if answers is None:
        answers = find_answers(config.predict_batch_size)
    if not is_chief:
        return
    if config.do_eval:
        # The model's, whatever the thresholds of other epochs were.
        task = _with_threshold(task, examples["predict"], answers)
        if _TUNE_NULL_THRESHOLD.value and config.do_train:
            tuning.save_model(model, task, config, start)
        step = (
            results["global_step"]
            if results
            else checkpointing.trained_steps(folder)
        )
        results = _evaluate(task, examples["predict"], answers)
        results["global_step"] = step
        fine_tuning_flags.report_results(
            config,
            task,
            folder,
            results,
            squad_report.sections(task, examples["predict"], answers, results),
            scores=squad_report.SCORES,
        )
    if config.do_predict:
        _write_answers(config, task, answers)


def _check_flags(config):
    if config.do_train:
        program.require(train_file=_TRAIN_FILE.value)
    if config.do_predict or config.do_eval:
        program.require(predict_file=_PREDICT_FILE.value)
    if _TUNE_NULL_THRESHOLD.value and not config.do_eval:
        raise ValueError("--tune_null_threshold must be given with --do_eval.")


def _output(config, name):
    return os.path.join(config.output_dir, name)


def _find_task(folder):
    """Returns the task: of the flags, before them of a tuned model."""
    stored = (
        None
        if folder is None
        else task_folder.stored_task(folder, squad.SquadTask)
    )
    task = dataclasses.replace(
        stored or squad.SquadTask(),
        **{
            flag.name: flag.value
            for flag in _TASK_FLAGS
            if stored is None or flag.present
        },
    )
    if _TUNE_NULL_THRESHOLD.value and not task.version_2_with_negative:
        raise ValueError(
            "--tune_null_threshold must be given with "
            "--version_2_with_negative."
        )
    return task


def _read(path, task, is_training=False):
    return squad_files.read_squad(
        path,
        task.version_2_with_negative,
        is_training,
        _VERBOSE_LOGGING.value,
    )


def _with_threshold(task, examples, answers):
    """Returns the task, with --tune_null_threshold that of the best F1."""
    if not _TUNE_NULL_THRESHOLD.value:
        return task
    threshold = squad_scores.tuned_null_threshold(
        list(answers.texts.values()),
        list(answers.null_odds.values()),
        examples.answers,
    )
    return dataclasses.replace(task, null_score_diff_threshold=threshold)


def _evaluate(task, examples, answers):
    """Returns the official scores, under their official names."""
    predictions = list(answers.predictions(task).values())
    if not task.version_2_with_negative:
        return squad_scores.scores_1_1(predictions, examples.answers)
    return {
        **squad_scores.scores_2_0(predictions, examples.answers),
        **squad_scores.best_thresholds(
            list(answers.texts.values()),
            list(answers.null_odds.values()),
            examples.answers,
        ),
        "null_score_diff_threshold": task.null_score_diff_threshold,
    }


def _write_answers(config, task, answers):
    predictions = answers.predictions(task)
    squad_files.write_json(_output(config, "predictions.json"), predictions)
    squad_files.write_json(
        _output(config, "nbest_predictions.json"), answers.nbest
    )
    if task.version_2_with_negative:
        squad_files.write_json(
            _output(config, "null_odds.json"), answers.null_odds
        )
    print(
        f"{len(predictions)} answers in {_output(config, 'predictions.json')}"
    )


if __name__ == "__main__":
    program.run(main)
