"""The pieces of reports that all tasks share."""

import math

import numpy as np
import pytest
from matplotlib import axes

from bert_tf.tasks import tables
from bert_tf.tasks.classification import report as classification_report
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.tsv import Examples
from bert_tf.tuning import report as run_report
from bert_tf.tuning.record import EpochRecord


def test_report_shows_the_chosen_scores_with_steps_and_losses(tmp_path):
    record = EpochRecord(tmp_path / "train", "f1", math.inf)
    record.training = [{"step": 3, "loss": 0.5}]
    record.evaluations = [
        {"epoch": 1, "global_step": 3, "f1": 0.25, "a_f1": 0.5, "total": 8},
        # One that a later epoch has not is no reason to fail.
        {"epoch": 2, "global_step": 6, "f1": 0.75, "total": 8},
    ]
    results = {"f1": 0.75, "global_step": 6, "eval_loss": 1.5, "total": 8}
    run_report.write(
        tmp_path,
        "a title",
        results,
        record,
        {"seed": 3},
        [("What", "of it")],
        scores=("f1", "exact"),
    )
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert lines[:9] == [
        "# a title",
        "",
        "| result | value |",
        "| --- | --- |",
        "| eval\\_loss | 1.5 |",
        "| f1 | 0.75 |",
        "| global\\_step | 6 |",
        "",
        "## Training",
    ]
    assert "| epoch | step | f1 |" in lines
    assert "| 2 | 6 | 0.75 |" in lines
    assert lines[lines.index("## What") + 2] == "of it"
    assert "| seed | 3 |" in lines
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

    # All of them, where none are chosen; no curves without a training.
    (tmp_path / "curves.png").unlink()
    record.training = []
    run_report.write(tmp_path, "a title", results, record, {}, [])
    report = (tmp_path / "report.md").read_text()
    assert "| total | 8 |" in report
    assert "## Training" not in report
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize("scores", [[0.5, math.nan], [math.nan, 0.5]])
def test_a_score_that_is_not_defined_is_a_gap(tmp_path, monkeypatch, scores):
    drawn, plot = [], axes.Axes.plot

    def note(self, x, y, **options):
        drawn.append((x, y))
        return plot(self, x, y, **options)

    monkeypatch.setattr(axes.Axes, "plot", note)
    record = EpochRecord(tmp_path / "train", "eval_pearson", math.inf)
    record.training = [{"step": 2, "loss": 0.5}]
    record.evaluations = [
        {"epoch": n, "global_step": n, "eval_pearson": score}
        for n, score in enumerate(scores, start=1)
    ]
    run_report.write(tmp_path, "a title", {}, record, {}, [])
    assert drawn[1:] == [([1, 2], scores)]


def test_the_log_names_the_report(tmp_path, monkeypatch):
    """A folder that ends with a slash gave two."""
    record = EpochRecord(tmp_path / "train", "f1", math.inf)
    told = []
    monkeypatch.setattr(
        run_report.logging, "info", lambda text, *args: told.append(text % args)
    )
    run_report.write(f"{tmp_path}/", "a title", {}, record, {}, [])
    assert told == [f"A report is in {tmp_path}/report.md."]


def test_cells_show_texts_as_they_are():
    rows = [("a|b *c* <d> &lt; $x$ ~~e~~\n`f`", tables.Markdown("**g**\nh"))]
    assert tables.table(("", "i_j"), rows).splitlines() == [
        r"|  | i\_j |",
        "| --- | --- |",
        r"| a\|b \*c\* \<d\> \&lt; \$x\$ \~\~e\~\~ \`f\` | **g** h |",
    ]

    assert tables.quote("*" * 401) == "\\*" * 399 + "…"


def test_worst_are_wrong_ones_the_worst_first():
    badness = np.array([1.0, 3.0, 2.0, 3.0, 9.0])
    is_wrong = np.array([True, True, True, True, False])
    assert tables.worst(badness, is_wrong).tolist() == [1, 3, 2, 0]
    many = np.arange(100)
    assert tables.worst(many, many % 2 == 0).tolist() == [*range(98, 58, -2)]


def test_confusion_counts_answers_by_the_right_class():
    counts = tables.confusion_matrix([0, 1, 1, 1], [0, 0, 1, 0], 3)
    assert counts.tolist() == [[1, 2, 0], [0, 1, 0], [0, 0, 0]]
    assert tables.confusion_table("abc", counts).splitlines() == [
        "|  | answered a | answered b | answered c |",
        "| --- | --- | --- | --- |",
        "| is a | 1 | 2 | 0 |",
        "| is b | 0 | 1 | 0 |",
        "| is c | 0 | 0 | 0 |",
    ]


def test_of_many_classes_the_commonest_confusions_are_told():
    names = [f"c{number}" for number in range(100_000)]
    labels = np.array([7, 7, 99_999, 5, 5, 5])
    predictions = np.array([8, 8, 0, 5, 5, 4])
    assert tables.confusions(names, predictions, labels).splitlines() == [
        "| is | answered | number |",
        "| --- | --- | --- |",
        "| c7 | c8 | 2 |",
        "| c5 | c4 | 1 |",
        "| c99999 | c0 | 1 |",
    ]
    assert tables.confusions(names, labels, labels).startswith("None:")
    # Of few it is the matrix.
    few = tables.confusions("abc", [0, 1, 1, 1], [0, 0, 1, 0])
    assert "| is a | 1 | 2 | 0 |" in few.splitlines()


def test_report_of_many_classes_has_their_scores():
    names = tuple(f"c{number}" for number in range(100_000))
    task = ClassificationTask(
        name="many",
        text_features=("text",),
        labels=names,
        metrics=("accuracy",),
    )
    logits = np.zeros([3, 100_000], np.float32)
    logits[[0, 1, 2], [3, 3, 4]] = 1.0
    examples = Examples(
        texts=(["x", "y", "z"],), labels=np.array([3, 4, 4], np.int32)
    )
    sections = dict(classification_report.sections(task, examples, logits))
    classes = sections["Classes"].splitlines()
    assert classes[2 + 3] == "| c3 | 1 | 0.5 | 1 | 0.6667 |"
    assert classes[2 + 4] == "| c4 | 2 | 1 | 0.5 | 0.6667 |"
    assert sections["Confusion"].splitlines()[2:] == ["| c4 | c3 | 1 |"]
