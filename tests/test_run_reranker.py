"""run_reranker from files to files, as a subprocess."""

import json

import numpy as np
import pytest

from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases

PROGRAM = "bert_tf.run_reranker"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh?.")


def write(path, num_queries, has_labels=True):
    rows = ["query\ttext" + "\tlabel" * has_labels]
    for number in range(num_queries):
        for label, text in enumerate(("d e", "f. g", "h")):
            query = "a b c"[: number % 5 + 1] + "?" * number
            rows.append(f"{query}\t{text}" + f"\t{label % 2}" * has_labels)
    path.write_text("\n".join(rows) + "\n")
    return path


def test_groups_are_learned_scored_and_predicted(tmp_path, run_program):
    output = tmp_path / "output"
    flags = (
        *releases.write_flags(tmp_path, TOKENS),
        f"--output_dir={output}",
        "--max_seq_length=12",
    )
    test_file = write(tmp_path / "test.tsv", 3, has_labels=False)
    done = run_program(
        PROGRAM,
        *flags,
        f"--train_file={write(tmp_path / 'train.tsv', 6)}",
        f"--eval_file={write(tmp_path / 'dev.tsv', 4)}",
        f"--predict_file={test_file}",
        "--loss_name=softmax",
        "--num_negatives=2",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--train_batch_size=3",
        "--num_train_epochs=1",
    )
    results = releases.read_results(output)
    assert list(results) == [
        *("eval_MRR@10", "eval_loss", "eval_nDCG@10", "global_step"),
    ]
    # Six groups, each of one text that answers, in batches of three.
    assert results["global_step"] == 2
    assert results["eval_loss"] == pytest.approx(np.log(3), abs=0.3)
    assert f"eval_MRR@10 = {results['eval_MRR@10']}" in done.stdout
    assert (
        (output / "report.md")
        .read_text()
        .startswith(f"# reranking: eval_MRR@10 {results['eval_MRR@10']:.4g}\n")
    )
    assert json.loads((output / "task.json").read_text()) == {
        "format_version": 1,
        "family": "reranking",
        "loss_name": "softmax",
        "num_negatives": 2,
    }
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert len(config["id2label"]) == 1
    table = np.loadtxt(output / "test_results.tsv", skiprows=1)
    assert table.shape == (9, 3)
    for scores, _, ranks in table.reshape(3, 3, 3).transpose(0, 2, 1):
        assert sorted(ranks) == [1, 2, 3]
        assert (np.argsort(-scores, kind="stable") == np.argsort(ranks)).all()
