r"""Tunes BERT to choose one of several texts: SWAG, CODAH, RACE and the like.

    python -m bert_tf.run_multiple_choice --train_file=train.csv \
        --eval_file=val.csv --test_file=test.csv \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=swag_output \
        --learning_rate=2e-5 --train_batch_size=16 \
        --do_train --do_eval --do_predict

reads SWAG's .csv, CODAH's .tsv, RACE's folders (--train_file=RACE/train), or
.jsonl and .parquet files with `context`, `choices` and `label` (see
`tasks.multiple_choice.files`), and writes into --output_dir the tuned model as
a model folder (config.json, model.safetensors, vocab.txt,
tokenizer_config.json, task.json), the state of the training in train/, loss
and accuracy of --eval_file in eval_results.txt, a report of them in report.md,
and the choices for --test_file with all probabilities in test_results.tsv.
All rows must have the same number of choices.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags

_TRAIN_FILE = flags.DEFINE_string(
    "train_file",
    None,
    "File to train on: .csv, .tsv, .jsonl or .parquet; or a folder of RACE.",
)
_EVAL_FILE = flags.DEFINE_string("eval_file", None, "File for --do_eval.")
_TEST_FILE = flags.DEFINE_string(
    "test_file", None, "File for --do_predict; it needs no labels."
)
# The files of the training, development and test sets.
_FILES = (_TRAIN_FILE, _EVAL_FILE, _TEST_FILE)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    fine_tuning_flags.require_files(config, *_FILES)

    from bert_tf.tasks import task_folder
    from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    folder, task = tuning_run.tuned_folder(config), None
    if folder is not None:
        task = task_folder.stored_task(folder, MultipleChoiceTask)
    examples = _read(config, task)
    if task is None:
        first = next(iter(examples.values()))
        task = MultipleChoiceTask(num_choices=first.num_choices)
    fine_tuning_flags.execute(config, task, examples, strategy)


def _read(config, task):
    """Returns {split: `ChoiceExamples`}, all with equally many choices."""
    from bert_tf.tasks import source
    from bert_tf.tasks.multiple_choice import files as multiple_choice_files

    num_choices = task.num_choices if task else None
    examples = {}
    wanted = fine_tuning_flags.wanted_files(config, *_FILES)
    for split, path in wanted.items():
        examples[split] = multiple_choice_files.read_choices(
            path, split != source.TEST, num_choices
        )
        num_choices = examples[split].num_choices
    return examples


if __name__ == "__main__":
    program.run(main)
