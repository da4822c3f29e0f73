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

import keras
import tensorflow as tf
from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks import class_weights
from bert_tf.tasks import fine_tuning
from bert_tf.tasks import glue
from bert_tf.tasks import glue_files
from bert_tf.tasks import starting_point
from bert_tf.tasks import tsv
from bert_tf.tasks import tuning
from bert_tf.tasks.text_source import TextSource
from bert_tf.training import strategy as strategies

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
_CLASS_WEIGHTS = flags.DEFINE_string(
    "class_weights",
    None,
    "With --do_train: weights of the classes in the loss, e.g. yes:2,no:1; "
    "auto: as if all had the same number of examples. Default: all weigh 1.",
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    program.require(data_dir=_DATA_DIR.value, task_name=_TASK_NAME.value)
    strategy = training_flags.make_strategy()
    policy = training_flags.dtype_policy(strategy)
    is_chief = strategies.is_chief(strategy)
    keras.utils.set_random_seed(config.random_seed)

    # Data.
    folder = None
    if not config.do_train:
        folder = starting_point.tuned_folder(
            config.output_dir, config.init_checkpoint
        )
    task_files = _find_task(config, folder)
    task = task_files.task
    wanted = {
        glue_files.TRAIN: config.do_train,
        glue_files.DEV: config.do_eval,
        glue_files.TEST: config.do_predict,
    }
    examples = {
        split: task_files.read(_DATA_DIR.value, split)
        for split in wanted
        if wanted[split]
    }
    settings = {}
    if _CLASS_WEIGHTS.value is not None:
        if not config.do_train:
            raise ValueError("--class_weights must be given with --do_train.")
        weights = class_weights.parse(
            _CLASS_WEIGHTS.value, task.labels, examples[glue_files.TRAIN].labels
        )
        task = dataclasses.replace(task, class_weights=weights)
        settings["class_weights"] = weights
    start = tuning.find_start(config, folder)
    preprocessor = start.preprocessor(config.max_seq_length)
    sources = {
        split: TextSource(
            examples=examples[split],
            preprocessor=preprocessor,
            seed=config.random_seed,
            is_trimmed=not isinstance(strategy, tf.distribute.TPUStrategy),
        )
        for split in examples
    }

    # Model.
    with strategy.scope():
        if config.do_train:
            model = start.new_model(task, policy)
        else:
            model = start.tuned_model(task, policy)
    predictor = fine_tuning.Predictor(model, strategy)

    def evaluate():
        """Returns results under google-research/bert's names, and others."""
        source = sources[glue_files.DEV]
        logits = predictor(source, config.eval_batch_size)
        results = fine_tuning.evaluate(task, logits, source.examples.labels)
        return results | {"loss": results["eval_loss"]}

    results = None
    if config.do_train:
        results = fine_tuning_flags.tune(
            model,
            task,
            sources[glue_files.TRAIN],
            config,
            start,
            strategy,
            evaluate if config.do_eval else None,
            settings=settings,
        )
    elif config.do_eval:
        step = fine_tuning.trained_steps(folder)
        results = evaluate() | {"global_step": step}
    if config.do_eval and is_chief:
        fine_tuning.write_results(_output(config, "eval_results.txt"), results)
        for name in sorted(results):
            print(f"{name} = {results[name]}")
    if config.do_predict:
        logits = predictor(sources[glue_files.TEST], config.predict_batch_size)
        if is_chief:
            path = _output(config, "test_results.tsv")
            fine_tuning.write_predictions(path, task, logits)
            print(f"{len(logits)} predictions in {path}")


def _output(config, name):
    return os.path.join(config.output_dir, name)


def _find_task(config, folder):
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
        task = glue.tuned_task(folder, found.task)
        return dataclasses.replace(found, task=task)

    if config.do_train or config.do_eval:
        program.require(label_column=_LABEL_COLUMN.value)
    if folder is not None:
        task = glue.tuned_task(folder)
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


if __name__ == "__main__":
    program.run(main)
