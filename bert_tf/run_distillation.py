r"""Distils a model: a smaller student learns from a teacher.

On pre-training records, as bert_tf.run_pretraining reads them:

    python -m bert_tf.run_distillation --teacher=uncased_L-12_H-768_A-12 \
        --student_layers=0,2,4,7,9,11 --input_file='/data/wiki.tfrecord*' \
        --output_dir=/runs/half --num_train_steps=100000

On the examples of the task that the teacher was tuned to, as in its task.json:

    python -m bert_tf.run_distillation --teacher=mrpc_output \
        --student_layers=0,2,4 --data_dir=glue/MRPC --output_dir=mrpc_small \
        --do_eval

The student begins with layers of the teacher (--student_layers), with a model
folder (--init_checkpoint) or with new weights (--bert_config_file). The losses
are given by name and weight:

    --losses=soft_targets:5,masked_lm:2,cosine:1     DistilBERT's
    --losses=hidden,attention                        TinyBERT's
    --losses=relations                               MiniLM's

--output_dir gets the student as a model folder, the state of the training in
train/, and whatever else run_pretraining or run_classifier write there. The
model card names the teacher and the losses. Rerun the same command to resume
after a stop.
"""

import dataclasses

from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.models import lesson as lesson_lib
from bert_tf.runs import stopping
from bert_tf.runs.options import PretrainingOptions

fine_tuning_flags.set_defaults(do_train=True)
_TEACHER = flags.DEFINE_string(
    "teacher",
    None,
    "The teacher: a model folder (of bert_tf or Hugging Face), a release of "
    "Google's, or hf:organisation/name@revision of the Hugging Face Hub. With "
    "a task's examples it is a folder that was tuned to the task.",
)
_STUDENT_LAYERS = flags.DEFINE_string(
    "student_layers",
    None,
    "Layers of the teacher that the student begins with, counted from 0, e.g. "
    "0,2,4. It gets the teacher's embeddings, pooler and heads, too.",
)
_LOSSES = flags.DEFINE_string(
    "losses",
    None,
    f"Losses and their weights: {', '.join(lesson_lib.ON_RECORDS)}; with a "
    f"task's examples {lesson_lib.LABELS} instead of {lesson_lib.MASKED_LM}. "
    f"Default: {lesson_lib.DEFAULT_ON_RECORDS}, or with a task's examples "
    f"{lesson_lib.DEFAULT_ON_TASKS}.",
)
_TEMPERATURE = flags.DEFINE_float(
    "temperature",
    lesson_lib.Lesson.temperature,
    "Divisor of the logits in soft targets.",
)
_SOFT_POSITIONS = flags.DEFINE_enum(
    "soft_positions",
    lesson_lib.Lesson.soft_positions,
    lesson_lib.SOFT_POSITIONS,
    "With --input_file: whether there are soft targets for all tokens, as in "
    "DistilBERT, or only for the masked ones, for a fraction of the memory and "
    "time.",
)
_RELATION_HEADS = flags.DEFINE_integer(
    "relation_heads",
    None,
    "Number of parts into which queries, keys and values are split for "
    "relations. Default: the number of the teacher's heads.",
    lower_bound=1,
)

# Flags for records.
_OF_RECORDS = program.define_flags(
    PretrainingOptions,
    only=(
        "max_predictions_per_seq",
        "optimizer",
        "max_eval_steps",
        "skip_nonfinite_steps",
    ),
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Record files: globs, comma-separated."
)
_NUM_TRAIN_STEPS = flags.DEFINE_integer(
    "num_train_steps",
    None,
    "With --input_file: number of the last step.",
    lower_bound=1,
)
_NUM_WARMUP_STEPS = flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "With --input_file: steps in which the learning rate rises. Default: a "
    "tenth of all steps.",
    lower_bound=0,
)

# Flags for a task.
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder with the files of the GLUE task named in task.json, or of a task "
    "that was tuned from train.tsv, dev.tsv and test.tsv with a header.",
)
_TRAIN_FILE = flags.DEFINE_string(
    "train_file",
    None,
    "Instead of --data_dir: a table of examples, .csv, .tsv, .jsonl or "
    ".parquet, or another file that the task's program takes: a column file of "
    "tags, SQuAD's JSON.",
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file",
    None,
    "With --train_file or --input_file: the file, or the record files, for "
    "--do_eval.",
)
_PREDICT_FILE = flags.DEFINE_string(
    "predict_file", None, "With --train_file: the file for --do_predict."
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column", None, "Name of the column of labels, if not the task's."
)
_TUNE_NULL_THRESHOLD = flags.DEFINE_bool(
    "tune_null_threshold",
    False,
    "With a teacher of SQuAD 2.0 and --do_eval: keep with the student the "
    "threshold of no answer that gives the best F1 on --eval_file. Otherwise "
    "it is 0. Epochs are compared by their F1, each at its best threshold.",
)
# Fine-tuning flags that only apply to tasks.
_OF_TASKS = (
    "num_train_epochs",
    "warmup_proportion",
    "reinit_top_layers",
    "freeze_lower_layers",
    "early_stopping_epochs",
    "calibrate",
    "bucket_window_batches",
    "do_predict",
    "predict_batch_size",
    "max_position_embeddings",
    "allow_partial",
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    program.require(teacher=_TEACHER.value, output_dir=flags.FLAGS.output_dir)
    if not flags.FLAGS.do_train:
        raise ValueError(
            "--do_train must be true. To evaluate a student without training, "
            "use the program of its task, or run_pretraining."
        )
    given = [
        holder.name
        for holder in (_INPUT_FILE, _DATA_DIR, _TRAIN_FILE)
        if holder.value is not None
    ]
    if len(given) != 1:
        raise ValueError(
            "One of --input_file, --data_dir and --train_file must be given. "
            f"Received: {' '.join(f'--{name}' for name in given) or 'none'}."
        )
    if _INPUT_FILE.value is not None:
        _refuse(_OF_TASKS, "--input_file")
        others = (
            _PREDICT_FILE,
            _LABEL_COLUMN,
            _TUNE_NULL_THRESHOLD,
        )
        _refuse((holder.name for holder in others), "--input_file")
        _distil_on_records()
    else:
        of_records = (
            *_OF_RECORDS.values(),
            _NUM_TRAIN_STEPS,
            _NUM_WARMUP_STEPS,
            _SOFT_POSITIONS,
        )
        _refuse((holder.name for holder in of_records), f"--{given[0]}")
        _distil_on_task()


def _refuse(names, other):
    for name in names:
        if flags.FLAGS[name].present:
            raise ValueError(f"--{name} must not be given with {other}.")


def _lesson(known, default):
    losses = lesson_lib.parse_losses(_LOSSES.value or default, known)
    if lesson_lib.SOFT_TARGETS not in losses:
        _refuse(
            (_TEMPERATURE.name, _SOFT_POSITIONS.name),
            f"--losses={_LOSSES.value}, without {lesson_lib.SOFT_TARGETS}",
        )
    return lesson_lib.Lesson(
        losses=losses,
        temperature=_TEMPERATURE.value,
        soft_positions=_SOFT_POSITIONS.value,
        relation_heads=_RELATION_HEADS.value,
    )


def _teaching(lesson, **options):
    """Returns the `Teaching` that the flags ask for."""
    from bert_tf.checkpoints import starting_point
    from bert_tf.runs import distillation

    values = flags.FLAGS
    layers = None
    if _STUDENT_LAYERS.value is not None:
        layers = lesson_lib.parse_layers(
            _STUDENT_LAYERS.value, "student_layers"
        )
    case = values.do_lower_case
    is_teachers = layers is not None or (
        values.init_checkpoint is None and values.vocab_file is None
    )
    # On records the two must have one tokenizer, wherever its files come from.
    is_common = is_teachers or _INPUT_FILE.value is not None
    teacher = starting_point.find(
        _TEACHER.value, do_lower_case=case if is_common else None
    )
    student = distillation.find_student(
        teacher,
        values.init_checkpoint,
        layers,
        values.bert_config_file,
        values.vocab_file,
        None if is_teachers else case,
        **options,
    )
    return distillation.Teaching(
        teacher=teacher,
        student=student,
        lesson=lesson,
        student_layers=layers,
    )


def _distil_on_records():
    lesson = _lesson(lesson_lib.ON_RECORDS, lesson_lib.DEFAULT_ON_RECORDS)
    program.require(num_train_steps=_NUM_TRAIN_STEPS.value)
    num_warmup_steps = _NUM_WARMUP_STEPS.value
    if num_warmup_steps is None:
        num_warmup_steps = _NUM_TRAIN_STEPS.value // 10
    length = flags.FLAGS["max_seq_length"]
    options = program.from_flags(
        PretrainingOptions,
        max_seq_length=length.value if length.present else None,
        num_warmup_steps=num_warmup_steps,
    )
    options.check_places()
    from bert_tf.runs import distillation

    strategy = training_flags.make_strategy()
    with stopping.exits_when_told():
        results = distillation.run_on_records(
            options,
            _teaching(lesson),
            strategy,
            training_flags.dtype_policy(strategy),
        )
    for name in sorted(results or ()):
        print(f"{name} = {results[name]}")


def _distil_on_task():
    lesson = _lesson(lesson_lib.ON_TASKS, lesson_lib.DEFAULT_ON_TASKS)
    config = fine_tuning_flags.make_config()
    if _TUNE_NULL_THRESHOLD.value and not config.do_eval:
        raise ValueError("--tune_null_threshold must be given with --do_eval.")

    from bert_tf.tuning import distillation_run

    strategy = training_flags.make_strategy()
    with stopping.exits_when_told():
        teaching = _teaching(
            lesson,
            allow_partial=config.allow_partial,
            max_position_embeddings=config.max_position_embeddings,
        )
        task, examples, on_predictions = _read_examples(
            config, teaching.teacher
        )
        run = distillation_run.DistillationRun(
            config,
            task,
            examples,
            strategy,
            training_flags.dtype_policy(strategy),
            teaching=teaching,
        )
        run.execute(on_predictions)


def _read_examples(config, teacher):
    """Returns the task, {split: examples}, and a callback of `Run.predict`."""
    from bert_tf.checkpoints import reader
    from bert_tf.tasks import families

    with reader.open_checkpoint(teacher.init_checkpoint) as checkpoint:
        task = families.find_task(checkpoint)
    if task is None:
        raise ValueError(
            f"{teacher.init_checkpoint}: the teacher must be tuned to a task; "
            "it has no task.json."
        )
    task = _with_flags(task)
    if _DATA_DIR.value is not None:
        return _read_folder(config, task)

    from bert_tf.tasks import source

    options = {}
    if _LABEL_COLUMN.value is not None:
        options["label_column"] = _LABEL_COLUMN.value
    program.require(
        **({"eval_file": _EVAL_FILE.value} if config.do_eval else {}),
        **({"predict_file": _PREDICT_FILE.value} if config.do_predict else {}),
    )
    paths = {
        source.TRAIN: _TRAIN_FILE.value,
        source.DEV: _EVAL_FILE.value if config.do_eval else None,
        source.TEST: _PREDICT_FILE.value if config.do_predict else None,
    }
    examples = {
        split: task.read(path, split, **options)
        for split, path in paths.items()
        if path is not None
    }
    return task, examples, None


def _with_flags(task):
    """Returns the task, changed by the flags that only its family has."""
    from bert_tf.tasks.classification.task import ClassificationTask
    from bert_tf.tasks.question_answering.task import SquadTask

    if isinstance(task, ClassificationTask) and not task.labels:
        _refuse((_TEMPERATURE.name,), "a regression, whose scores have none")
    if not _TUNE_NULL_THRESHOLD.value:
        return task
    if not (isinstance(task, SquadTask) and task.version_2_with_negative):
        raise ValueError(
            "--tune_null_threshold must be given with a teacher of SQuAD 2.0. "
            f"Received: a teacher of {task.title!r}."
        )
    return dataclasses.replace(task, tune_null_threshold=True)


def _read_folder(config, task):
    """Returns the same as `_read_examples`, from --data_dir."""
    from bert_tf.tasks.classification import glue_files
    from bert_tf.tasks.classification.task import ClassificationTask

    _refuse((_EVAL_FILE.name, _PREDICT_FILE.name), "--data_dir")
    if not isinstance(task, ClassificationTask):
        raise ValueError(
            "--data_dir must be given with a classification or a regression of "
            "texts; --train_file works for any task. Received: a teacher of "
            f"{task.family!r}."
        )
    if task.name in glue_files.GLUE_TASKS:
        _refuse((_LABEL_COLUMN.name,), f"a teacher of {task.name}")
        found = glue_files.GLUE_TASKS[task.name]
        # The teacher's classes may be in another order.
        if set(found.task.labels) == set(task.labels):
            task = found.task
        task_files = dataclasses.replace(found, task=task)
    else:
        program.require(label_column=_LABEL_COLUMN.value)
        task_files = glue_files.TaskFiles(
            task=task,
            splits=glue_files.named_columns(
                task.text_features, _LABEL_COLUMN.value
            ),
        )
    wanted = [glue_files.TRAIN]
    wanted += glue_files.DEVELOPMENT if config.do_eval else []
    wanted += glue_files.TESTS if config.do_predict else []
    wanted = [split for split in wanted if split in task_files.splits]
    task_files.check(_DATA_DIR.value, wanted)
    examples = {
        split: task_files.read(_DATA_DIR.value, split) for split in wanted
    }
    writer = task_files.submission_writer(task, config.output_dir)
    return task, examples, writer


if __name__ == "__main__":
    program.run(main)
