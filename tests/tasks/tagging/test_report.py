import numpy as np
import pytest

from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import report as tagging_report
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.task import TaggingTask

# One type is called as what is outside of all of them.
TASK = TaggingTask(
    scheme="bio", labels=("O", "B-a", "I-a", "B-b", "I-b", "B-O", "I-O")
)
# Words, right tags, predicted tags.
SENTENCES = [
    ("u v w", "B-a I-a O", "B-a I-a O"),
    # A wrong end, and a wrong type: four errors.
    ("p *q r s", "B-a I-a O B-b", "B-a O O B-a"),
    ("x y", "O O", "B-O O"),
    ("z", "B-O", "B-O"),
]


def make_examples(sentences):
    words, tags, predicted = zip(
        *(map(str.split, sentence) for sentence in sentences)
    )
    examples = TaggingExamples(
        path="here",
        words=tuple(sum(words, [])),
        tags=tuple(sum(tags, [])),
        row_lengths=np.array([len(row) for row in words], np.int32),
        lines=(),
        line_indices=np.zeros(0, np.int32),
        separator="\t",
    )
    return examples, sum(predicted, [])


def test_types_words_and_worst_sentences():
    examples, predicted = make_examples(SENTENCES)
    sections = dict(tagging_report.sections(TASK, examples, predicted))
    assert sections["Entities"].splitlines()[2:] == [
        "| O | 1 | 2 | 0.5 | 1 | 0.6667 |",
        "| a | 2 | 3 | 0.3333 | 0.5 | 0.4 |",
        "| b | 1 | 0 | 0 | 0 | 0 |",
        "| all | 4 | 5 | 0.4 | 0.5 | 0.4444 |",
    ]
    # By words: p, u, v are right, q is left out, s is taken for an a.
    assert sections["Confusion of words"].splitlines() == [
        "|  | answered O | answered a | answered b | answered O |",
        "| --- | --- | --- | --- | --- |",
        "| is O | 1 | 0 | 0 | 0 |",
        "| is a | 0 | 3 | 0 | 1 |",
        "| is b | 0 | 1 | 0 | 0 |",
        "| is O | 1 | 0 | 0 | 3 |",
    ]
    assert sections["Worst errors"].splitlines()[2:] == [
        r"| 2 | 4 | **p \*q** r **s** | p \*q (a); s (b) | p (a); s (a) |",
        "| 3 | 1 | **x** y |  | x (O) |",
    ]


def test_table_of_types_has_the_numbers_of_entity_scores():
    generator = np.random.default_rng(3)
    tags, predicted = generator.choice(TASK.labels, [2, 40, 5])
    examples, _ = make_examples(
        [("a b c d e", " ".join(row), "O") for row in tags]
    )
    sections = dict(
        tagging_report.sections(TASK, examples, predicted.flatten().tolist())
    )
    scores = entity_scores.score_tags(predicted.tolist(), tags.tolist())
    rows = [
        line.strip("| ").split(" | ")
        for line in sections["Entities"].splitlines()[2:]
    ]
    assert [row[0] for row in rows] == ["O", "a", "b", "all"]
    for name, num_wanted, num_found, *values in rows:
        prefix = "" if name == "all" else f"{name}_"
        names = [f"{prefix}{score}" for score in ("precision", "recall", "f1")]
        assert values == [f"{scores[score]:.4g}" for score in names]
        # Both ratios are of one number of entities that were found.
        num_right = scores[names[0]] * int(num_found)
        assert num_right == pytest.approx(scores[names[1]] * int(num_wanted))
        assert num_right == pytest.approx(round(num_right))
        assert num_right > 0
    confusion = sections["Confusion of words"].splitlines()[2:]
    counts = [
        [int(count) for count in line.strip("| ").split(" | ")[1:]]
        for line in confusion
    ]
    assert np.sum(counts) == 200


def test_only_the_words_about_an_error_are_shown():
    words = [f"w{index}" for index in range(400)]
    right = ["O"] * 400
    for place in (100, 101, *range(200, 300)):
        right[place] = "B-a"
    examples, predicted = make_examples(
        [(" ".join(words), " ".join(right), " ".join(["O"] * 400))]
    )
    sections = dict(tagging_report.sections(TASK, examples, predicted))
    _, _, shown, missed, found = (
        sections["Worst errors"].splitlines()[2].strip("|").split(" | ")
    )
    # Eight on each side: 18 words, and of the others what 80 leave.
    before, after = (
        " ".join(words[start:limit]) for start, limit in ((92, 100), (102, 110))
    )
    assert shown == (
        f"… {before} **w100 w101** {after} … {' '.join(words[192:200])} "
        f"**{' '.join(words[200:254])}** …"
    )
    assert missed.startswith("w100 (a); w101 (a); w200 (a); ")
    assert missed.endswith("…")
    assert not found.strip()


def test_no_errors():
    examples, _ = make_examples(SENTENCES)
    sections = dict(tagging_report.sections(TASK, examples, examples.tags))
    assert sections["Worst errors"] == "None: every answer is right."
