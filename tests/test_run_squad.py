"""run_squad from files to files, as a subprocess."""

import json

import pytest

from bert_tf import checkpoints
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from support import releases

PROGRAM = "bert_tf.run_squad"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh?.")
CONTEXT = "A b, C d e f g h. b C d e?"


@pytest.fixture
def flags(tmp_path):
    return (
        *releases.write_flags(tmp_path, TOKENS),
        f"--output_dir={tmp_path / 'output'}",
        "--max_seq_length=14",
        "--max_query_length=4",
        "--doc_stride=5",
    )


def write_squad(path, num_questions):
    questions = [
        {
            "id": f"q{i}",
            "question": "A b?",
            "answers": [{"text": CONTEXT[i : i + 4], "answer_start": i}]
            if i % 3
            else [],
            "is_impossible": i % 3 == 0,
        }
        for i in range(num_questions)
    ]
    content = {"data": [{"paragraphs": [{"context": CONTEXT}]}]}
    content["data"][0]["paragraphs"][0]["qas"] = questions
    path.write_text(json.dumps(content))
    return path


def test_questions_are_learned_answered_and_scored(
    tmp_path, flags, run_program
):
    output = tmp_path / "output"
    predict_file = write_squad(tmp_path / "dev.json", 8)
    done = run_program(
        PROGRAM,
        *flags,
        f"--train_file={write_squad(tmp_path / 'train.json', 12)}",
        f"--predict_file={predict_file}",
        "--version_2_with_negative",
        "--do_train",
        "--do_predict",
        "--do_eval",
        "--tune_null_threshold",
        "--keep_best",
        "--train_batch_size=5",
        "--num_train_epochs=2",
        "--iterations_per_loop=2",
        "--n_best_size=3",
    )
    # int(12 / 5 * 2)
    assert "step 4/4" in done.stderr
    assert "36 windows, 12 an epoch" in done.stderr
    assert " windows/s " in done.stderr
    assert "examples/s" not in done.stderr
    card = (output / "README.md").read_text()
    assert "- Windows: 36\n" in card
    assert "On development set, 24 windows:" in card
    results = releases.read_results(output)
    # The best epoch is that of the best F1 at its own threshold.
    record = json.loads((output / "train" / "epochs.json").read_text())
    assert [epoch["global_step"] for epoch in record["evaluations"]] == [2, 4]
    best = max(record["evaluations"], key=lambda epoch: epoch["f1"])
    # Not once more with its threshold.
    num_kept = 1 if best == record["evaluations"][0] else 2
    assert done.stderr.count("The model is in ") == num_kept
    for name in ("global_step", "f1", "null_score_diff_threshold"):
        assert results[name] == best[name]
    for epoch in record["evaluations"]:
        assert epoch["null_score_diff_threshold"] != 0
        assert epoch["f1"] >= 100 * 3 / 8
    assert results["total"] == 8
    assert results["NoAns_total"] == 3
    threshold = results["null_score_diff_threshold"]
    # The best that a threshold can give is no worse than no answer at all.
    assert results["f1"] >= 100 * 3 / 8
    assert f"f1 = {results['f1']}" in done.stdout
    task = json.loads((output / "task.json").read_text())
    assert task["null_score_diff_threshold"] == threshold
    assert task["doc_stride"] == 5
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["BertForQuestionAnswering"]

    report = (output / "report.md").read_text()
    assert report.startswith(f"# squad: f1 {results['f1']:.4g}\n")
    assert f"| HasAns\\_f1 | {results['HasAns_f1']:.4g} |" in report
    assert f"| used | {threshold:.4g} | {results['exact']:.4g} |" in report
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")

    names = [f"q{i}" for i in range(8)]
    predictions = json.loads((output / "predictions.json").read_text())
    nbest = json.loads((output / "nbest_predictions.json").read_text())
    null_odds = json.loads((output / "null_odds.json").read_text())
    assert list(predictions) == list(nbest) == list(null_odds) == names
    for name in names:
        assert predictions[name] in CONTEXT
        assert (predictions[name] == "") == (null_odds[name] > threshold)
        texts = [entry["text"] for entry in nbest[name]]
        assert "" in texts
        assert len(texts) in (3, 4)
        assert sum(
            entry["probability"] for entry in nbest[name]
        ) == pytest.approx(1)
    # Three questions have no answer: the first, the fourth and the seventh.
    num_answered = sum(predictions[name] != "" for name in names[::3])
    assert f"| has no answer | {num_answered} | {3 - num_answered} |" in report


@pytest.mark.slow
def test_tuned_folder_knows_its_task(tmp_path, run_program):
    folder, output = tmp_path / "tuned", tmp_path / "output"
    task = SquadTask(
        version_2_with_negative=True,
        doc_stride=5,
        max_query_length=4,
        n_best_size=14,
        null_score_diff_threshold=1e6,
    )
    checkpoints.save(
        folder,
        BertSpanPredictor(releases.tiny_config(len(TOKENS))),
        WordpieceSpec(Vocabulary(tokens=TOKENS)),
        14,
        task=task.to_dict(),
    )
    flags = (
        f"--init_checkpoint={folder}",
        f"--output_dir={output}",
        f"--predict_file={write_squad(tmp_path / 'dev.json', 4)}",
        "--max_seq_length=14",
        "--do_predict",
    )

    run_program(PROGRAM, *flags)
    answers = json.loads((output / "predictions.json").read_text())
    run_program(PROGRAM, *flags, "--null_score_diff_threshold=-1e6")
    nothing = json.loads((output / "predictions.json").read_text())

    # As the folder says, unless a flag says otherwise.
    assert all(answers.values())
    assert list(nothing.values()) == [""] * 4
    nbest = json.loads((output / "nbest_predictions.json").read_text())
    assert {len(entries) for entries in nbest.values()} <= {14, 15}
    assert not (output / "eval_results.txt").exists()
    assert not (output / "config.json").exists()
