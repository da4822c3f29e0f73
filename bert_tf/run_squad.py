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

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf.tasks.question_answering.options import SquadOptions

fine_tuning_flags.set_defaults(max_seq_length=384)
fine_tuning_flags.define_files("train_file", "predict_file")
program.define_flags(SquadOptions)


def main(argv):
    del argv
    config = fine_tuning_flags.make_config(SquadOptions)
    paths = fine_tuning_flags.wanted_files(config)
    if config.do_eval:
        # The scored file is the one that is answered.
        paths.pop("test", None)

    from bert_tf.tasks.question_answering.task import SquadTask

    fine_tuning_flags.tune(config, SquadTask, paths)


if __name__ == "__main__":
    program.run(main)
