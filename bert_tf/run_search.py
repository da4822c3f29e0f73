r"""Searches a corpus by text vectors: scores, hits, and hard negatives.

    python -m bert_tf.run_search --model_dir=model --work_dir=vectors \
        --corpus_file=corpus.jsonl --queries_file=queries.jsonl \
        --relevance_file=qrels/test.tsv --do_eval

embeds corpus and queries (BEIR's files) into --work_dir, compares every query
with every text, and prints recall@1, 10 and 100, MRR@10, nDCG@10 and MAP. They
go into eval_results.txt, the scores of every query into query_scores.tsv, and
the worst queries into report.md. With --squad_files=dev.json,train.json, the
paragraph of each question in the first file is searched for among the
paragraphs of all files.

--do_search writes the --top_k texts of every query as lines of JSON. --do_mine
writes triplets to train on: a query, its text, and a text that the model
mistakes for one. --num_negatives, --range_min and
--relative_margin say which texts these are.

The vectors are computed only once: a run that was stopped resumes where it was,
and later runs reuse them.
"""

from absl import flags
from absl import logging

from bert_tf import program
from bert_tf.tasks.retrieval.search_options import SearchOptions

program.define_flags(SearchOptions)


def main(argv):
    del argv
    program.end_at_sigterm()
    logging.set_verbosity(logging.INFO)
    program.require(model_dir=flags.FLAGS.model_dir)
    program.check_used(SearchOptions)
    options = program.from_flags(SearchOptions)

    from bert_tf.tasks.retrieval import searching

    searching.run(options)


if __name__ == "__main__":
    program.run(main)
