r"""Tunes BERT to order the texts that a search finds for a query.

    python -m bert_tf.run_reranker --train_file=train.jsonl \
        --eval_file=dev.tsv --predict_file=test.tsv \
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
scores and ranks of --predict_file in test_results.tsv.

With --loss_name=softmax an example is a text that answers its query, together
with --num_negatives texts of that query that do not.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf.tasks.reranking.options import RerankingOptions

fine_tuning_flags.define_files()
program.define_flags(RerankingOptions)


def main(argv):
    del argv
    config = fine_tuning_flags.make_config(RerankingOptions)
    paths = fine_tuning_flags.wanted_files(config)

    from bert_tf.tasks.reranking.task import RerankingTask

    fine_tuning_flags.tune(config, RerankingTask, paths)


if __name__ == "__main__":
    program.run(main)
