r"""Tunes sentence embeddings: search, similarity, SimCSE.

    python -m bert_tf.run_retrieval --train_file=squad/train-v1.1.json \
        --eval_file=squad/dev-v1.1.json --corpus_file=squad/train-v1.1.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=embeddings \
        --train_batch_size=64 --learning_rate=2e-5 --num_train_epochs=1 \
        --do_train --do_eval

reads pairs of a query and its positive (perhaps with hard negatives), scored
pairs, NLI, SQuAD's questions or single texts, from .tsv, .csv, .jsonl,
.parquet, .json and .txt files (see `tasks.retrieval.files`). It writes into
--output_dir the tuned model as a model folder that sentence-transformers reads
too (modules.json and 1_Pooling beside config.json, model.safetensors and the
tokenizer), the state of the training in train/, the scores of --eval_file in
eval_results.txt, and a report with the worst queries in report.md. For scored
pairs, the scores are Spearman's and Pearson's correlations; otherwise recall,
MRR@10, nDCG@10 and MAP over all passages of --eval_file and --corpus_file. The
cosines of the pairs of --predict_file are written to test_results.tsv.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf.tasks.retrieval import options

fine_tuning_flags.define_files()
program.define_flags(options.RetrievalOptions)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column", "score", "Name of the column of human scores."
)


def main(argv):
    del argv
    config = fine_tuning_flags.make_config(options.RetrievalOptions)
    paths = fine_tuning_flags.wanted_files(config)

    from bert_tf.tasks.retrieval import files
    from bert_tf.tasks.retrieval.task import RetrievalTask

    given = {}
    is_scored = config.do_eval and files.has_scores(
        paths["dev"], _LABEL_COLUMN.value
    )
    if config.do_eval:
        given["metric"] = "spearman" if is_scored else "nDCG@10"
    _check_scores_are_read(config, is_scored)
    fine_tuning_flags.tune(
        config, RetrievalTask, paths, _LABEL_COLUMN.value, **given
    )


def _check_scores_are_read(config, is_scored):
    """Raises `ValueError` if a flag describes scores that nothing reads."""
    names = ("label_column", "max_score")
    given = [name for name in names if flags.FLAGS[name].present]
    trains = config.do_train and flags.FLAGS.loss_name in options.SCORED
    if not given or trains or is_scored:
        return
    raise ValueError(
        f"--{given[0]} must be given with --do_train and --loss_name="
        f"{' or '.join(options.SCORED)}, or with --do_eval and an --eval_file "
        f"that has the column {_LABEL_COLUMN.value!r}."
    )


if __name__ == "__main__":
    program.run(main)
