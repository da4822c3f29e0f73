"""The scores against seqeval's default mode."""

import random
import warnings

import pytest
import seqeval.metrics

from bert_tf.tasks.tagging import entity_scores

LETTERS = {"bio": "BI", "bioes": "BIES", "bilou": "BILU"}
# No type has these letters.
AS_BIOES = str.maketrans("LU", "ES")


def random_tags(generator, letters, types, lengths):
    """Tags that follow no rule at all, of long runs of one type."""
    tags = []
    for length in lengths:
        row = []
        for _ in range(length):
            if row and row[-1] != "O" and generator.random() < 0.5:
                type_ = row[-1][2:]
            else:
                type_ = generator.choice(["", *types])
            letter = generator.choice(letters)
            row.append(f"{letter}-{type_}" if type_ else "O")
        tags.append(row)
    return tags


def seqeval_scores(predicted, wanted):
    # seqeval's default mode has no L- and U-.
    predicted, wanted = (
        [[tag.translate(AS_BIOES) for tag in tags] for tags in sentences]
        for sentences in (predicted, wanted)
    )
    with warnings.catch_warnings():
        # It warns where a ratio is not defined.
        warnings.simplefilter("ignore")
        report = seqeval.metrics.classification_report(
            wanted, predicted, output_dict=True
        )
        accuracy = seqeval.metrics.accuracy_score(wanted, predicted)
    scores = {"token_accuracy": accuracy}
    for name, values in report.items():
        if name in ("macro avg", "weighted avg"):
            continue
        prefix = "" if name == "micro avg" else f"{name}_"
        for score in ("precision", "recall"):
            scores[f"{prefix}{score}"] = values[score]
        scores[f"{prefix}f1"] = values["f1-score"]
    return scores


@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize("seed", range(20))
def test_scores_are_seqevals_on_tags_without_any_rule(letters, seed):
    generator = random.Random(seed)
    lengths = [generator.randint(1, 12) for _ in range(30)]
    wanted = random_tags(generator, letters, ["GEO", "a-b", "X"], lengths)
    predicted = [
        [
            tag if generator.random() < 0.6 else other
            for tag, other in zip(tags, others)
        ]
        for tags, others in zip(
            wanted,
            # Two types that the right ones do not have, and not all of them.
            random_tags(generator, letters, ["GEO", "X", "new"], lengths),
        )
    ]
    scores = entity_scores.score_tags(predicted, wanted)
    assert scores == pytest.approx(seqeval_scores(predicted, wanted))
    assert 0 < scores["f1"] < 1


@pytest.mark.parametrize(
    ("predicted", "wanted", "precision", "recall"),
    [
        # An I- after O is an entity as good as one with B-.
        ("O I-A I-A O", "O B-A I-A O", 1, 1),
        # An I- of another type ends the one and begins the other.
        ("B-A I-B", "B-A I-A", 0, 0),
        ("B-A I-B I-B", "S-A B-B E-B", 1, 1),
        # The end is wrong: neither found nor right.
        ("B-A I-A I-A B-B", "B-A I-A O B-B", 1 / 2, 1 / 2),
        ("B-A B-A", "B-A I-A", 0, 0),
        # conlleval joins neighbours of one type after E-: one entity, found.
        ("B-A I-A I-A E-A", "B-A E-A B-A E-A", 0, 0),
        # Nothing predicted, nothing there.
        ("O O", "B-A O", 0, 0),
        ("B-A O", "O O", 0, 0),
        ("O O", "O O", 0, 0),
    ],
)
def test_scores_by_hand(predicted, wanted, precision, recall):
    predicted, wanted = [predicted.split()], [wanted.split()]
    scores = entity_scores.score_tags(predicted, wanted)
    assert scores["precision"] == precision
    assert scores["recall"] == recall
    assert scores["f1"] == pytest.approx(precision)
    assert scores == pytest.approx(seqeval_scores(predicted, wanted))


def test_entities_end_with_their_sentence():
    predicted = [["O", "B-A"], ["I-A", "O"]]
    wanted = [["O", "B-A"], ["B-A", "O"]]
    scores = entity_scores.score_tags(predicted, wanted)
    assert scores["f1"] == 1
    assert scores["token_accuracy"] == 3 / 4
    assert scores["A_recall"] == 1


def test_sentences_must_be_as_long():
    with pytest.raises(ValueError, match="zip"):
        entity_scores.score_tags([["O"]], [["O", "O"]])
