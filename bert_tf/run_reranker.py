r"""Tunes BERT to order the texts that a search finds for a query.

    python -m bert_tf.run_reranker --train_file=train.jsonl \
        --eval_file=dev.tsv --test_file=test.tsv \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=reranker \
        --learning_rate=2e-5 --train_batch_size=32 \
        --do_train --do_eval --do_predict

reads .tsv and .csv files with a header, .jsonl or .parquet, with `query`,
`text` and `label` (1 if the text answers the query, otherwise 0), or `query`,
`positive` and `negatives` (see `tasks.reranking.files`). It writes into
--output_dir the tuned model as a model folder (config.json, model.safetensors,
vocab.txt, tokenizer_config.json, task.json), which sentence-transformers'
CrossEncoder loads, the state of the training in train/, MRR@10 and nDCG@10 of
--eval_file in eval_results.txt, a report of its queries in report.md, and the
scores and ranks of --test_file in test_results.tsv.

With --loss=softmax an example is a text that answers its query, together with
--num_negatives texts of that query that do not.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks.reranking import options

_TRAIN_FILE = flags.DEFINE_string(
    "train_file",
    None,
    "File to train on: .tsv, .csv, .jsonl or .parquet.",
)
_EVAL_FILE = flags.DEFINE_string("eval_file", None, "File for --do_eval.")
_TEST_FILE = flags.DEFINE_string(
    "test_file", None, "File for --do_predict; it needs no labels."
)
# The files of the training, development and test sets.
_FILES = (_TRAIN_FILE, _EVAL_FILE, _TEST_FILE)
_LOSS = flags.DEFINE_enum(
    "loss",
    options.POINTWISE,
    options.LOSSES,
    "With --do_train. pointwise: binary cross-entropy of every text's label. "
    "softmax: cross-entropy of finding a text that answers its query among "
    "--num_negatives texts of that query that do not.",
)
_NUM_NEGATIVES = flags.DEFINE_integer(
    "num_negatives",
    options.NUM_NEGATIVES,
    "With --loss=softmax: number of texts beside each one that answers. They "
    "are drawn from the texts of its query that do not answer; if there are "
    "fewer, all are used. They are drawn once and stay the same in every "
    "epoch.",
    lower_bound=1,
    upper_bound=options.MOST_NEGATIVES,
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    _check_flags(config)

    from bert_tf.tasks import task_folder
    from bert_tf.tasks.reranking.task import RerankingTask
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    folder, task = tuning_run.tuned_folder(config), None
    if folder is not None:
        task = task_folder.stored_task(folder, RerankingTask)
    if task is None:
        task = RerankingTask(
            loss_name=_LOSS.value, num_negatives=_NUM_NEGATIVES.value
        )
    examples = {
        split: task.read(path, split)
        for split, path in fine_tuning_flags.wanted_files(
            config, *_FILES
        ).items()
    }
    fine_tuning_flags.execute(config, task, examples, strategy)


def _check_flags(config):
    fine_tuning_flags.require_files(config, *_FILES)
    for flag in (_LOSS, _NUM_NEGATIVES):
        if flag.present and not config.do_train:
            raise ValueError(f"--{flag.name} must be given with --do_train.")
    if _NUM_NEGATIVES.present and _LOSS.value != options.SOFTMAX:
        raise ValueError(
            "--num_negatives must be given with --loss=softmax. "
            f"Received: --loss={_LOSS.value}."
        )


if __name__ == "__main__":
    program.run(main)
