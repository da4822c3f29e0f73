r"""Tunes BERT to choose one of several texts: SWAG, CODAH, RACE and the like.

    python -m bert_tf.run_multiple_choice --train_file=train.csv \
        --eval_file=val.csv --predict_file=test.csv \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=swag_output \
        --learning_rate=2e-5 --train_batch_size=16 \
        --do_train --do_eval --do_predict

reads SWAG's .csv, CODAH's .tsv, RACE's folders (--train_file=RACE/train), or
.jsonl and .parquet files with `context`, `choices` and `label` (see
`tasks.multiple_choice.files`), and writes into --output_dir the tuned model as
a model folder (config.json, model.safetensors, vocab.txt,
tokenizer_config.json, task.json), the state of the training in train/, loss
and accuracy of --eval_file in eval_results.txt, a report of them in report.md,
and the choices for --predict_file with all probabilities in test_results.tsv.
All rows must have the same number of choices.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags

fine_tuning_flags.define_files()


def main(argv):
    del argv
    config = fine_tuning_flags.make_config()
    paths = fine_tuning_flags.wanted_files(config)

    from bert_tf.tasks import source
    from bert_tf.tasks import task_folder
    from bert_tf.tasks.multiple_choice import files as choice_files
    from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    folder = tuning_run.tuned_folder(config)
    stored = folder and task_folder.stored_task(folder, MultipleChoiceTask)
    num_choices = stored.num_choices if stored else None
    examples = {}
    for split, path in paths.items():
        examples[split] = choice_files.read_choices(
            path, split != source.TEST, num_choices
        )
        num_choices = examples[split].num_choices
    task = stored or MultipleChoiceTask(num_choices=num_choices)
    fine_tuning_flags.execute(config, task, examples, strategy)


if __name__ == "__main__":
    program.run(main)
