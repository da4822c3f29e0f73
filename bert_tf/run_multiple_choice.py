"""Tunes BERT to choose how a text goes on: SWAG, CODAH, and files like them.

    python -m bert_tf.run_multiple_choice --train_file=train.csv \
        --eval_file=val.csv --test_file=test.csv \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=swag_output \
        --learning_rate=2e-5 --train_batch_size=16 \
        --do_train --do_eval --do_predict

reads SWAG's .csv, CODAH's .tsv, or .jsonl of objects with `context`, `choices`
and `label` (see `tasks.multiple_choice.files`), and writes into --output_dir
the tuned model as a model folder (config.json, model.safetensors, vocab.txt,
tokenizer_config.json, task.json), the state of the training in train/, loss
and accuracy of --eval_file in eval_results.txt, a report of them in report.md,
and the choices for --test_file with all probabilities in test_results.tsv.
There are as many choices as the first row has, and every other row must have
so many.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

import os

import keras
import tensorflow as tf
from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks import task_folder
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.tasks.multiple_choice import report as multiple_choice_report
from bert_tf.tasks.multiple_choice.source import ChoiceSource
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.training import strategy as strategies
from bert_tf.tuning import fit as fine_tuning
from bert_tf.tuning import run as tuning

_TRAIN_FILE = flags.DEFINE_string(
    "train_file", None, "File to train on: .csv, .tsv or .jsonl."
)
_EVAL_FILE = flags.DEFINE_string("eval_file", None, "File for --do_eval.")
_TEST_FILE = flags.DEFINE_string(
    "test_file", None, "File for --do_predict; it needs no labels."
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    strategy = training_flags.make_strategy()
    policy = training_flags.dtype_policy(strategy)
    is_chief = strategies.is_chief(strategy)
    keras.utils.set_random_seed(config.random_seed)

    # Data.
    folder, task = fine_tuning_flags.tuned_folder(config), None
    if folder is not None:
        task = task_folder.stored_task(folder, MultipleChoiceTask)
    examples = _read(config, task)
    if task is None:
        first = next(iter(examples.values()))
        task = MultipleChoiceTask(num_choices=first.num_choices)
    start = tuning.find_start(config, folder)
    preprocessor = start.preprocessor(config.max_seq_length)
    sources = {
        flag: ChoiceSource(
            examples=examples[flag],
            preprocessor=preprocessor,
            seed=config.random_seed,
            is_trimmed=not strategies.is_tpu(strategy),
        )
        for flag in examples
    }

    # Model.
    model = fine_tuning_flags.make_model(start, task, config, strategy, policy)
    predictor = fine_tuning.Predictor(model, strategy)

    logits = None

    def evaluate():
        nonlocal logits
        source = sources[_EVAL_FILE.name]
        logits = predictor(source, config.eval_batch_size)
        return fine_tuning.evaluate(task, logits, source.examples.labels)

    results = fine_tuning_flags.tune_or_evaluate(
        model,
        task,
        sources.get(_TRAIN_FILE.name),
        config,
        start,
        strategy,
        folder,
        evaluate,
    )
    if config.do_eval and is_chief:
        fine_tuning_flags.report_results(
            config,
            task,
            folder,
            results,
            multiple_choice_report.sections(
                task, examples[_EVAL_FILE.name], logits
            ),
        )
    if config.do_predict:
        logits = predictor(sources[_TEST_FILE.name], config.predict_batch_size)
        if is_chief:
            path = os.path.join(config.output_dir, "test_results.tsv")
            answers = task.decode(tf.constant(logits))
            multiple_choice_files.write_predictions(
                path, {name: value.numpy() for name, value in answers.items()}
            )
            print(f"{len(logits)} choices in {path}")


def _read(config, task):
    """Returns {name of the flag: `ChoiceExamples`}, all of as many choices."""
    num_choices = task.num_choices if task else None
    examples = {}
    for flag, is_wanted in (
        (_TRAIN_FILE, config.do_train),
        (_EVAL_FILE, config.do_eval),
        (_TEST_FILE, config.do_predict),
    ):
        if is_wanted:
            program.require(**{flag.name: flag.value})
            examples[flag.name] = multiple_choice_files.read_choices(
                flag.value, flag is not _TEST_FILE, num_choices
            )
            num_choices = examples[flag.name].num_choices
    return examples


if __name__ == "__main__":
    program.run(main)
