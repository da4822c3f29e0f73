r"""Tunes BERT for classification or regression of one or two sentences.

    python -m bert_tf.run_classifier --task_name=MRPC --data_dir=glue/MRPC \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
        --output_dir=mrpc_output --do_train --do_eval --do_predict

writes into --output_dir the tuned model as a model folder (config.json,
model.safetensors, vocab.txt, tokenizer_config.json, task.json), the state of
the training in train/, the development set's scores in eval_results.txt, a
report of them in report.md, the test set's probabilities in test_results.tsv
and the file for GLUE's leaderboard, MRPC.tsv. MNLI gives all of this for its
mismatched sets too; a model tuned to it answers --task_name=AX with
--do_predict. XNLI reads multinli/multinli.train.zh.tsv, xnli.dev.tsv and
xnli.test.tsv; XNLI-de is the same task in German, and evaluates a model that
was tuned in another language. If --init_checkpoint is a model folder or a
release's folder, its own configuration and vocabulary are used. Any TSV or CSV
files with a header will do (only a .csv has quoting):

    python -m bert_tf.run_classifier --task_name=tsv --data_dir=tickets \
        --text_columns=subject,body --label_column=team ...

and so will any prepared set of TensorFlow Datasets, one of GLUE or with those
two flags:

    python -m bert_tf.run_classifier --tfds_name=glue/mrpc ...

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

import dataclasses

from absl import flags

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags

_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder with the task's train.tsv, dev.tsv, test.tsv; with "
    "--task_name=tsv any of them may be a .csv. No other files are read.",
)
_TASK_NAME = flags.DEFINE_string(
    "task_name",
    None,
    "CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX, XNLI (Chinese; "
    "XNLI-de, XNLI-en and so on for other languages), or tsv for TSV or CSV "
    "files with a header. Default: that of --tfds_name.",
)
_TFDS_NAME = flags.DEFINE_string(
    "tfds_name",
    None,
    "Set of TensorFlow Datasets to use instead of --data_dir, e.g. glue/mrpc. "
    "It is looked for in TFDS_DATA_DIR of the environment, or in "
    "~/tensorflow_datasets.",
)
_TEXT_COLUMNS = flags.DEFINE_list(
    "text_columns", None, "With tsv: names of one or two columns of text."
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column", None, "With tsv: name of the column of labels."
)
_REGRESSION = flags.DEFINE_bool(
    "regression", False, "With tsv: the labels are numbers to predict."
)
_CLASS_WEIGHTS = flags.DEFINE_string(
    "class_weights",
    None,
    "With --do_train: weights of the classes in the loss, e.g. yes:2,no:1; "
    "put a class with a comma in quotation marks. auto: as if all classes had "
    "the same number of examples. Default: all weights are 1.",
)


def main(argv):
    del argv
    config = fine_tuning_flags.make_config()
    builder = _find_data_set()

    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    task_files = _find_task(config, tuning_run.tuned_folder(config), builder)
    examples = {
        split: _read(task_files, split, builder)
        for split in _wanted_splits(config, task_files)
    }
    task = _weighted(task_files.task, config, examples)
    fine_tuning_flags.execute(
        config,
        task,
        examples,
        strategy,
        task_files.submission_writer(task, config.output_dir),
        dataset=_TFDS_NAME.value,
    )


def _find_data_set():
    """Returns the builder of --tfds_name, or None; checks the data flags."""
    builder = fine_tuning_flags.open_data_set(
        _TFDS_NAME.value, data_dir=_DATA_DIR.value
    )
    if builder is None:
        program.require(data_dir=_DATA_DIR.value, task_name=_TASK_NAME.value)
    elif not _TFDS_NAME.value.startswith("glue/"):
        program.require(task_name=_TASK_NAME.value)
    return builder


def _task_name():
    if _TASK_NAME.value is not None:
        return _TASK_NAME.value
    # E.g. glue/mrpc or glue/mrpc:2.0.0.
    return _TFDS_NAME.value.split("/")[1].split(":")[0]


def _wanted_splits(config, task_files):
    from bert_tf.tasks.classification import glue_files

    groups = (
        ("do_train", (glue_files.TRAIN,)),
        ("do_eval", glue_files.DEVELOPMENT),
        ("do_predict", glue_files.TESTS),
    )
    wanted = []
    for flag, splits in groups:
        found = [split for split in splits if split in task_files.splits]
        if getattr(config, flag):
            if not found:
                raise ValueError(
                    f"--{flag} must not be given with "
                    f"--task_name={_task_name()}, which has no such examples."
                )
            wanted += found
    return wanted


def _read(task_files, split, builder):
    if builder is None:
        return task_files.read(_DATA_DIR.value, split)

    from bert_tf.tasks.classification import tfds_examples

    label = _LABEL_COLUMN.value or "label"
    return tfds_examples.read(
        builder, split, task_files.task, label, _TEXT_COLUMNS.value
    )


def _weighted(task, config, examples):
    """Returns the task with the weights of --class_weights, if given."""
    from bert_tf.tasks.classification import class_weights
    from bert_tf.tasks.classification import glue_files

    if _CLASS_WEIGHTS.value is None:
        return task
    if not config.do_train:
        raise ValueError("--class_weights must be given with --do_train.")
    weights = class_weights.parse(
        _CLASS_WEIGHTS.value, task.labels, examples[glue_files.TRAIN].labels
    )
    return dataclasses.replace(task, class_weights=weights)


def _find_task(config, folder, builder):
    """Returns the `TaskFiles`; their task is the folder's, if one is given."""
    from bert_tf.tasks.classification import glue_files
    from bert_tf.tasks.classification import task as classification

    if _task_name().lower() != "tsv":
        for flag in (_TEXT_COLUMNS, _LABEL_COLUMN, _REGRESSION):
            if flag.present:
                raise ValueError(
                    f"--{flag.name} must be given only with "
                    f"--task_name=tsv. Received: --task_name={_task_name()}."
                )
        found = glue_files.glue_task(_task_name())
        if folder is None:
            return found
        task = classification.tuned_task(folder, found.task)
        return dataclasses.replace(found, task=task)

    if config.do_train or config.do_eval:
        program.require(label_column=_LABEL_COLUMN.value)
    if folder is not None:
        task = classification.tuned_task(folder)
        _check_is_of(task)
        return glue_files.TaskFiles(
            task=task,
            splits=glue_files.named_columns(
                _TEXT_COLUMNS.value or task.text_features, _LABEL_COLUMN.value
            ),
        )
    program.require(text_columns=",".join(_TEXT_COLUMNS.value or ()))
    labels = ()
    if not _REGRESSION.value:
        labels = _find_labels(builder)
    return glue_files.tsv_task(_TEXT_COLUMNS.value, _LABEL_COLUMN.value, labels)


def _check_is_of(task):
    """Raises `ValueError` if a flag contradicts the tuned model's task."""
    names = _TEXT_COLUMNS.value or ()
    num_texts = len(task.text_features)
    # The columns may have other names than in training.
    program.check_as_tuned(
        _TEXT_COLUMNS,
        len(names) == num_texts,
        f"{num_texts} name{'s' * (num_texts > 1)}",
        ",".join(names),
    )
    is_regression = not task.labels
    program.check_as_tuned(
        _REGRESSION,
        _REGRESSION.value == is_regression,
        str(is_regression).lower(),
        str(_REGRESSION.value).lower(),
    )


def _find_labels(builder):
    if builder is not None:
        from bert_tf.tasks.classification import tfds_examples

        return tfds_examples.label_names(builder, _LABEL_COLUMN.value)
    from bert_tf.tasks.classification import glue_files
    from bert_tf.tasks.classification import task as classification

    columns = glue_files.named_columns(
        _TEXT_COLUMNS.value, _LABEL_COLUMN.value
    )[glue_files.TRAIN]
    path = glue_files.existing_path(_DATA_DIR.value, columns)
    return classification.find_labels(path, _LABEL_COLUMN.value)


if __name__ == "__main__":
    program.run(main)
