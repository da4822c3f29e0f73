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
eval_results.txt. SQuAD 2.0 wants --version_2_with_negative; then
null_odds.json tells by how much no answer beats the best one, and
--tune_null_threshold finds the odds from which the answer had better be empty.

Run again with the same flags after a stop, it goes on.
"""

import dataclasses
import os
import sys

import keras
import tensorflow as tf
from absl import flags
from absl import logging

from bert_tf import checkpoints
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks import fine_tuning
from bert_tf.tasks import squad
from bert_tf.tasks import squad_answers
from bert_tf.tasks import squad_files
from bert_tf.tasks import squad_scores
from bert_tf.tasks import starting_point
from bert_tf.tasks.squad_windows import WindowMaker
from bert_tf.tasks.squad_windows import WindowSource
from bert_tf.training import checkpointing
from bert_tf.training import loop
from bert_tf.training import strategy as strategies
from bert_tf.training.optimizer import BertOptimizer
from bert_tf.training.schedule import WarmupLinearDecay

_TRAIN_FILE = flags.DEFINE_string(
    "train_file", None, "JSON of SQuAD to train on, e.g. train-v1.1.json."
)
_PREDICT_FILE = flags.DEFINE_string(
    "predict_file",
    None,
    "JSON of SQuAD to answer, e.g. dev-v1.1.json or test-v1.1.json.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the tuned model and of the answers."
)
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint",
    None,
    "A model folder (of bert_tf or Hugging Face) or a release of Google's. "
    "Default: training starts from random weights.",
)
_BERT_CONFIG_FILE = flags.DEFINE_string(
    "bert_config_file",
    None,
    "JSON of the architecture. Default: the checkpoint's own.",
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "Vocabulary. Default: the checkpoint's own."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Whether to lower-case the text. Default: as the model folder says, or "
    "else true.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    384,
    "Longest sequence of question and text, in word pieces; longer texts are "
    "cut to windows.",
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
_DO_TRAIN = flags.DEFINE_bool("do_train", False, "Whether to train.")
_DO_PREDICT = flags.DEFINE_bool(
    "do_predict", False, "Whether to answer --predict_file."
)
_DO_EVAL = flags.DEFINE_bool(
    "do_eval",
    False,
    "Whether to score the answers to --predict_file, which must tell the "
    "right ones.",
)
_TRAIN_BATCH_SIZE = flags.DEFINE_integer(
    "train_batch_size", 32, "Windows a step, over all devices.", lower_bound=1
)
_PREDICT_BATCH_SIZE = flags.DEFINE_integer(
    "predict_batch_size",
    8,
    "The same for --do_predict and --do_eval.",
    lower_bound=1,
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", 5e-5, "Learning rate at the end of the warmup."
)
_NUM_TRAIN_EPOCHS = flags.DEFINE_float(
    "num_train_epochs",
    3.0,
    "As google-research/bert counts: so many times the number of questions, "
    "in windows.",
)
_WARMUP_PROPORTION = flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the steps in which the learning rate rises.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_BIAS_CORRECTION = flags.DEFINE_bool(
    "bias_correction",
    False,
    "Correct the bias of Adam's moments, which the original does not: the "
    "first hundreds of steps are then several times smaller, and training on "
    "few examples is steadier.",
)
_SAVE_CHECKPOINTS_STEPS = flags.DEFINE_integer(
    "save_checkpoints_steps",
    1000,
    "Steps between two checkpoints of the training state.",
    lower_bound=1,
)
_ITERATIONS_PER_LOOP = flags.DEFINE_integer(
    "iterations_per_loop",
    1000,
    "Steps between two lines of the log.",
    lower_bound=1,
)
_N_BEST_SIZE = flags.DEFINE_integer(
    "n_best_size",
    20,
    "Answers to a question in nbest_predictions.json.",
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
    "keep with the model, the threshold of the best F1 on --predict_file.",
)
_RANDOM_SEED = flags.DEFINE_integer(
    "random_seed",
    12345,
    "Seed of the new weights, the order of the windows and the dropout.",
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
    _check_flags()
    strategy = training_flags.make_strategy()
    policy = training_flags.dtype_policy(strategy)
    keras.utils.set_random_seed(_RANDOM_SEED.value)

    folder = None
    if not _DO_TRAIN.value:
        folder = starting_point.tuned_folder(
            _OUTPUT_DIR.value, _INIT_CHECKPOINT.value
        )
    task = _find_task(folder)
    answers_wanted = _DO_PREDICT.value or _DO_EVAL.value
    examples = {}
    if _DO_TRAIN.value:
        examples["train"] = _read(_TRAIN_FILE.value, task, is_training=True)
    if answers_wanted:
        examples["predict"] = _read(_PREDICT_FILE.value, task)
        if _DO_EVAL.value and examples["predict"].answers is None:
            raise ValueError(
                f"{_PREDICT_FILE.value}: has questions without answers, which "
                "--do_eval cannot score."
            )
    start = starting_point.find(
        folder or _INIT_CHECKPOINT.value,
        _BERT_CONFIG_FILE.value,
        _VOCAB_FILE.value,
        _DO_LOWER_CASE.value,
    )
    maker = WindowMaker(start.preprocessor(_MAX_SEQ_LENGTH.value), task)
    sources = {
        split: WindowSource(
            examples=examples[split],
            maker=maker,
            seed=_RANDOM_SEED.value,
            is_trimmed=not isinstance(strategy, tf.distribute.TPUStrategy),
        )
        for split in examples
    }
    is_chief = strategies.is_chief(strategy)
    with strategy.scope():
        make_model = squad.new_model if _DO_TRAIN.value else squad.tuned_model
        model = make_model(start, policy)

    if _DO_TRAIN.value:
        _train(model, start, task, sources["train"], strategy, policy)
        if is_chief:
            _save(model, start, task)
    if not answers_wanted:
        return
    predictor = fine_tuning.Predictor(
        squad_answers.stacked_outputs(model, _MAX_SEQ_LENGTH.value), strategy
    )
    logits = predictor(sources["predict"], _PREDICT_BATCH_SIZE.value)
    if not is_chief:
        return
    answers = squad_answers.find_answers(task, sources["predict"], logits)
    if _DO_EVAL.value:
        if _TUNE_NULL_THRESHOLD.value:
            threshold = squad_scores.tuned_null_threshold(
                list(answers.texts.values()),
                list(answers.null_odds.values()),
                examples["predict"].answers,
            )
            task = dataclasses.replace(
                task, null_score_diff_threshold=threshold
            )
            if _DO_TRAIN.value:
                _save(model, start, task)
        results = _evaluate(task, examples["predict"], answers)
        results["global_step"] = fine_tuning.trained_steps(
            folder or _OUTPUT_DIR.value
        )
        fine_tuning.write_results(_output("eval_results.txt"), results)
        for name in sorted(results):
            print(f"{name} = {results[name]}")
    if _DO_PREDICT.value:
        _write_answers(task, answers)


def _check_flags():
    program.require(output_dir=_OUTPUT_DIR.value)
    if _DO_TRAIN.value:
        program.require(train_file=_TRAIN_FILE.value)
    if _DO_PREDICT.value or _DO_EVAL.value:
        program.require(predict_file=_PREDICT_FILE.value)
    elif not _DO_TRAIN.value:
        raise ValueError(
            "At least one of --do_train, --do_predict and --do_eval must be "
            "given."
        )
    if _TUNE_NULL_THRESHOLD.value and not _DO_EVAL.value:
        raise ValueError("--tune_null_threshold must be given with --do_eval.")
    if _NUM_TRAIN_EPOCHS.value <= 0:
        raise ValueError(
            "--num_train_epochs must be positive. Received: "
            f"--num_train_epochs={_NUM_TRAIN_EPOCHS.value}."
        )
    if _DO_TRAIN.value:
        starting_point.check_output_dir(_OUTPUT_DIR.value)


def _output(name):
    return os.path.join(_OUTPUT_DIR.value, name)


def _find_task(folder):
    """Returns the task: of the flags, before them of a tuned model."""
    stored = None if folder is None else squad.stored_task(folder)
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


def _train(model, start, task, source, strategy, policy):
    # As google-research/bert has it: an epoch is as many windows as there
    # are questions.
    num_questions = len(source.examples)
    num_steps = fine_tuning.num_train_steps(
        num_questions, _TRAIN_BATCH_SIZE.value, _NUM_TRAIN_EPOCHS.value
    )
    with strategy.scope():
        optimizer = BertOptimizer(
            WarmupLinearDecay(
                _LEARNING_RATE.value,
                num_steps,
                int(num_steps * _WARMUP_PROPORTION.value),
            ),
            bias_correction=_BIAS_CORRECTION.value,
        )
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        state = checkpointing.TrainingState(
            model,
            optimizer,
            _OUTPUT_DIR.value,
            {
                "config": start.config.to_dict(),
                "task": task.to_dict(),
                "init_checkpoint": start.init_checkpoint,
                "max_seq_length": _MAX_SEQ_LENGTH.value,
                "do_lower_case": start.do_lower_case,
                "num_train_questions": num_questions,
                "num_train_windows": source.num_examples,
                "num_train_epochs": _NUM_TRAIN_EPOCHS.value,
                "train_batch_size": _TRAIN_BATCH_SIZE.value,
                "learning_rate": _LEARNING_RATE.value,
                "warmup_proportion": _WARMUP_PROPORTION.value,
                "bias_correction": _BIAS_CORRECTION.value,
                "random_seed": _RANDOM_SEED.value,
            },
        )
    if state.restore():
        logging.info("Going on from step %d of %d.", state.step, num_steps)
    logging.info(
        "%d questions, %d windows, %d steps of %d, %s",
        num_questions,
        source.num_examples,
        num_steps,
        _TRAIN_BATCH_SIZE.value,
        start.init_checkpoint or "from random weights",
    )
    config = loop.TrainingConfig(
        num_train_steps=num_steps,
        train_batch_size=_TRAIN_BATCH_SIZE.value,
        save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS.value,
        iterations_per_loop=_ITERATIONS_PER_LOOP.value,
        seed=_RANDOM_SEED.value,
    )
    # Where `fit` cannot go, the same task runs through the loop.
    if strategy.cluster_resolver is None:
        fine_tuning.fit(state, task, source, config, strategy)
        return
    try:
        loop.train(state, task.objective(), source, config, strategy)
    except loop.PreemptedError as stop:
        logging.info("%s", stop)
        sys.exit(loop.PREEMPTED_EXIT_CODE)


def _save(model, start, task):
    checkpoints.save(
        _OUTPUT_DIR.value,
        model,
        start.vocabulary,
        start.do_lower_case,
        _MAX_SEQ_LENGTH.value,
        task=task.to_dict(),
    )
    logging.info("The model is in %s.", _OUTPUT_DIR.value)


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


def _write_answers(task, answers):
    predictions = answers.predictions(task)
    squad_files.write_json(_output("predictions.json"), predictions)
    squad_files.write_json(_output("nbest_predictions.json"), answers.nbest)
    if task.version_2_with_negative:
        squad_files.write_json(_output("null_odds.json"), answers.null_odds)
    print(f"{len(predictions)} answers in {_output('predictions.json')}")


if __name__ == "__main__":
    program.run(main)
