"""Tunes BERT to a classification or regression of one or two sentences.

    python -m bert_tf.run_classifier --task_name=MRPC --data_dir=glue/MRPC \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
        --output_dir=mrpc_output --do_train --do_eval --do_predict

writes into --output_dir the tuned model as a model folder (config.json,
model.safetensors, vocab.txt, tokenizer_config.json, task.json), the state of
the training in train/, the development set's scores in eval_results.txt and
the test set's probabilities in test_results.tsv. Where --init_checkpoint is a
model folder, or a release's folder, its own configuration and vocabulary are
taken. Any TSV files with a header will do:

    python -m bert_tf.run_classifier --task_name=tsv --data_dir=tickets \
        --text_columns=subject,body --label_column=team ...

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
from bert_tf.tasks import glue_files
from bert_tf.tasks import starting_point
from bert_tf.tasks import tsv
from bert_tf.tasks.text_source import TextSource
from bert_tf.training import checkpointing
from bert_tf.training import loop
from bert_tf.training import strategy as strategies
from bert_tf.training.optimizer import BertOptimizer
from bert_tf.training.schedule import WarmupLinearDecay

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder with the task's train.tsv, dev.tsv, test.tsv."
)
_TASK_NAME = flags.DEFINE_string(
    "task_name",
    None,
    "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, or tsv for files "
    "with a header.",
)
_TEXT_COLUMNS = flags.DEFINE_list(
    "text_columns", None, "With tsv: names of one or two columns of text."
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column", None, "With tsv: name of the column of labels."
)
_LABELS = flags.DEFINE_list(
    "labels",
    None,
    "With tsv: names of the classes. Default: all in train.tsv, sorted.",
)
_REGRESSION = flags.DEFINE_bool(
    "regression", False, "With tsv: the labels are numbers to predict."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the tuned model and of the results."
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
    128,
    "Longest sequence, in word pieces; longer ones are truncated.",
    lower_bound=3,
)
_DO_TRAIN = flags.DEFINE_bool("do_train", False, "Whether to train.")
_DO_EVAL = flags.DEFINE_bool(
    "do_eval",
    False,
    "Whether to evaluate on the development set: with --do_train after every "
    "epoch.",
)
_DO_PREDICT = flags.DEFINE_bool(
    "do_predict", False, "Whether to predict the test set."
)
_TRAIN_BATCH_SIZE = flags.DEFINE_integer(
    "train_batch_size", 32, "Examples a step, over all devices.", lower_bound=1
)
_EVAL_BATCH_SIZE = flags.DEFINE_integer(
    "eval_batch_size", 8, "The same for --do_eval.", lower_bound=1
)
_PREDICT_BATCH_SIZE = flags.DEFINE_integer(
    "predict_batch_size", 8, "The same for --do_predict.", lower_bound=1
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", 5e-5, "Learning rate at the end of the warmup."
)
_NUM_TRAIN_EPOCHS = flags.DEFINE_float(
    "num_train_epochs", 3.0, "Times that the training set is gone through."
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
_RANDOM_SEED = flags.DEFINE_integer(
    "random_seed",
    12345,
    "Seed of the new weights, the order of the examples and the dropout.",
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
    task_files = _find_task(folder)
    examples = {
        split: task_files.read(_DATA_DIR.value, split)
        for split in _wanted_splits()
    }
    start = starting_point.find(
        folder or _INIT_CHECKPOINT.value,
        _BERT_CONFIG_FILE.value,
        _VOCAB_FILE.value,
        _DO_LOWER_CASE.value,
    )
    preprocessor = start.preprocessor(_MAX_SEQ_LENGTH.value)
    sources = {
        split: TextSource(
            examples=examples[split],
            preprocessor=preprocessor,
            seed=_RANDOM_SEED.value,
            is_trimmed=not isinstance(strategy, tf.distribute.TPUStrategy),
        )
        for split in examples
    }
    is_chief = strategies.is_chief(strategy)
    with strategy.scope():
        if _DO_TRAIN.value:
            model = start.new_classifier(task_files.task, policy)
        else:
            model = start.tuned_classifier(task_files.task, policy)
    predictor = fine_tuning.Predictor(model, strategy)

    results = None
    if _DO_TRAIN.value:
        results = _train(
            model, start, task_files.task, sources, predictor, strategy, policy
        )
        if is_chief:
            checkpoints.save(
                _OUTPUT_DIR.value,
                model,
                start.vocabulary,
                start.do_lower_case,
                _MAX_SEQ_LENGTH.value,
                task=task_files.task.to_dict(),
                label_names=task_files.task.labels or None,
            )
            logging.info("The model is in %s.", _OUTPUT_DIR.value)
    if _DO_EVAL.value:
        if results is None:
            results = _evaluate(
                task_files.task,
                sources,
                predictor,
                fine_tuning.trained_steps(folder or _OUTPUT_DIR.value),
            )
        if is_chief:
            fine_tuning.write_results(_output("eval_results.txt"), results)
            for name in sorted(results):
                print(f"{name} = {results[name]}")
    if _DO_PREDICT.value:
        logits = predictor(sources[glue_files.TEST], _PREDICT_BATCH_SIZE.value)
        if is_chief:
            fine_tuning.write_predictions(
                _output("test_results.tsv"), task_files.task, logits
            )
            print(f"{len(logits)} predictions in {_output('test_results.tsv')}")


def _check_flags():
    program.require(
        data_dir=_DATA_DIR.value,
        task_name=_TASK_NAME.value,
        output_dir=_OUTPUT_DIR.value,
    )
    if not _wanted_splits():
        raise ValueError(
            "At least one of --do_train, --do_eval and --do_predict must be "
            "given."
        )
    if _NUM_TRAIN_EPOCHS.value <= 0:
        raise ValueError(
            "--num_train_epochs must be positive. Received: "
            f"--num_train_epochs={_NUM_TRAIN_EPOCHS.value}."
        )
    if _DO_TRAIN.value:
        starting_point.check_output_dir(_OUTPUT_DIR.value)


def _wanted_splits():
    wanted = {
        glue_files.TRAIN: _DO_TRAIN.value,
        glue_files.DEV: _DO_EVAL.value,
        glue_files.TEST: _DO_PREDICT.value,
    }
    return [split for split in wanted if wanted[split]]


def _output(name):
    return os.path.join(_OUTPUT_DIR.value, name)


def _find_task(folder):
    """Returns the `TaskFiles`, with the task as `folder` has it, if given."""
    if _TASK_NAME.value.lower() != "tsv":
        for flag in (_TEXT_COLUMNS, _LABEL_COLUMN, _LABELS, _REGRESSION):
            if flag.present:
                raise ValueError(
                    f"--{flag.name} must not be given but with "
                    f"--task_name=tsv. Received: "
                    f"--task_name={_TASK_NAME.value}."
                )
        found = glue_files.glue_task(_TASK_NAME.value)
        if folder is None:
            return found
        task = starting_point.tuned_task(folder, found.task)
        return dataclasses.replace(found, task=task)

    if _DO_TRAIN.value or _DO_EVAL.value:
        program.require(label_column=_LABEL_COLUMN.value)
    if folder is not None:
        task = starting_point.tuned_task(folder)
        return glue_files.TaskFiles(
            task=task,
            splits=glue_files.named_columns(
                _TEXT_COLUMNS.value or task.text_features, _LABEL_COLUMN.value
            ),
        )
    program.require(text_columns=",".join(_TEXT_COLUMNS.value or ()))
    labels = _LABELS.value or ()
    if not labels and not _REGRESSION.value:
        columns = glue_files.named_columns(
            _TEXT_COLUMNS.value, _LABEL_COLUMN.value
        )[glue_files.TRAIN]
        labels = tsv.find_labels(
            os.path.join(_DATA_DIR.value, columns.name), columns
        )
        logging.info("Labels: %s.", ", ".join(labels))
    return glue_files.tsv_task(
        _TEXT_COLUMNS.value, _LABEL_COLUMN.value, labels, _REGRESSION.value
    )


def _train(model, start, task, sources, predictor, strategy, policy):
    """Trains the model; returns the last evaluation's results, or None."""
    source = sources[glue_files.TRAIN]
    ends = fine_tuning.epoch_ends(
        source.num_examples, _TRAIN_BATCH_SIZE.value, _NUM_TRAIN_EPOCHS.value
    )
    with strategy.scope():
        optimizer = BertOptimizer(
            WarmupLinearDecay(
                _LEARNING_RATE.value,
                ends[-1],
                int(ends[-1] * _WARMUP_PROPORTION.value),
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
                "num_train_examples": source.num_examples,
                "num_train_epochs": _NUM_TRAIN_EPOCHS.value,
                "train_batch_size": _TRAIN_BATCH_SIZE.value,
                "learning_rate": _LEARNING_RATE.value,
                "warmup_proportion": _WARMUP_PROPORTION.value,
                "bias_correction": _BIAS_CORRECTION.value,
                "random_seed": _RANDOM_SEED.value,
            },
        )
    if state.restore():
        logging.info("Going on from step %d of %d.", state.step, ends[-1])
    logging.info(
        "%s: %d examples, %d steps of %d, %s",
        task.name,
        source.num_examples,
        ends[-1],
        _TRAIN_BATCH_SIZE.value,
        start.init_checkpoint or "from random weights",
    )
    # Where `fit` cannot go, the same task runs through the loop.
    fits = strategy.cluster_resolver is None
    results = None
    for epoch, end in enumerate(ends, start=1):
        if state.step >= end and end != ends[-1]:
            continue
        config = loop.TrainingConfig(
            num_train_steps=end,
            train_batch_size=_TRAIN_BATCH_SIZE.value,
            save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS.value,
            iterations_per_loop=_ITERATIONS_PER_LOOP.value,
            seed=_RANDOM_SEED.value,
        )
        if fits:
            fine_tuning.fit(state, task, source, config, strategy)
        else:
            try:
                loop.train(state, task.objective(), source, config, strategy)
            except loop.PreemptedError as stop:
                logging.info("%s", stop)
                sys.exit(loop.PREEMPTED_EXIT_CODE)
        if _DO_EVAL.value:
            results = _evaluate(task, sources, predictor, state.step)
            logging.info(
                "epoch %d/%d  %s",
                epoch,
                len(ends),
                "  ".join(
                    f"{name} {results[name]:.4g}"
                    for name in sorted(results)
                    if name.startswith("eval_")
                ),
            )
    return results


def _evaluate(task, sources, predictor, step):
    """Returns the results under google-research/bert's names, and others."""
    source = sources[glue_files.DEV]
    logits = predictor(source, _EVAL_BATCH_SIZE.value)
    results = fine_tuning.evaluate(task, logits, source.examples.labels)
    return results | {"global_step": step, "loss": results["eval_loss"]}


if __name__ == "__main__":
    program.run(main)
