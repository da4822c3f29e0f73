"""One HTML page on which a person sees pre-training examples at a glance.

The page needs nothing but itself: its data is JSON inside it, and a few lines
of script step through the examples.
"""

import html
import json
import pathlib

from bert_tf import features
from bert_tf.pretraining.records import inspection
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

_PAGE = pathlib.Path(__file__).with_suffix(".html")


def describe(
    examples: dict, row: int, vocabulary: Vocabulary, meanings: tuple[str, ...]
) -> dict:
    """Returns one record as the page has it: JSON-able.

    Args:
        examples: A batch as `inspection.read` yields it.
        row: The number of the record in it.
        vocabulary: A `Vocabulary`.
        meanings: Of `inspection.label_meanings`.

    Returns:
        `{"sequences", "padding", "labels"}`: a sequence, of which a packed
        row has several, is a list of tokens: `[what it was, segment]`, at a
        prediction `[what it was, segment, what stands there now]`; padding is
        a number; a label for each sequence is what it says, or None.
    """
    one = {name: values[row : row + 1] for name, values in examples.items()}
    padding = int((one[features.INPUT_MASK] == 0).sum())
    if features.SEQUENCE_IDS in one:
        one, _ = inspection.unpack(one, vocabulary)
    labels = one.get(features.NEXT_SENTENCE_LABELS)
    sequences = []
    for number in range(len(one[features.INPUT_IDS])):
        tokens = inspection.tokens_of(one, number, vocabulary)
        sequences.append(
            [
                [was, segment] if now is None else [was, segment, now]
                for was, segment, now in tokens
            ]
        )
    return {
        "sequences": sequences,
        "padding": padding,
        "labels": [None] * len(sequences)
        if labels is None
        else [meanings[bool(label)] for label in labels[:, 0]],
    }


def page(
    described: list[dict],
    totals: list[tuple[str, str]],
    rules: list[tuple[str, int]],
    title: str,
    special: SpecialTokens = BERT,
) -> str:
    """Returns the page as text.

    Args:
        described: Records, as `describe` returns them; one at least.
        totals: (name, value) pairs, text both.
        rules: (rule, number of examples that break it) pairs.
        title: What the examples are of.
        special: The `SpecialTokens`, which are shown paler.
    """
    # "<" could end the element that holds the data.
    data = json.dumps(described).replace("<", "\\u003c")
    frame = json.dumps([special.cls, special.sep]).replace("<", "\\u003c")
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in totals
    )
    checks = "".join(
        f'<li class="{"broken" if number else "holds"}">{html.escape(rule)}: '
        f"{f'broken by {number:,}' if number else 'holds'}</li>"
        for rule, number in rules
    )
    return (
        _PAGE.read_text("utf-8")
        .replace("@TITLE@", html.escape(title))
        .replace("@TOTALS@", rows)
        .replace("@RULES@", checks)
        .replace("@SPECIAL@", frame)
        .replace("@DATA@", data)
    )
