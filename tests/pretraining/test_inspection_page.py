"""The page of examples: its data, and that it needs nothing else."""

import json
import re
from html.parser import HTMLParser

import numpy as np

from bert_tf.pretraining.records import inspection_page
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "</script>")
)
EXAMPLES = {
    "input_ids": np.array([[2, 5, 3, 4, 6, 3, 0], [2, 7, 3, 5, 3, 0, 0]]),
    "input_mask": np.array([[1] * 6 + [0], [1] * 5 + [0] * 2]),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0]]),
    "masked_lm_positions": np.array([[3, 4], [0, 0]]),
    "masked_lm_ids": np.array([[5, 6], [0, 0]]),
    "masked_lm_weights": np.array([[1, 1], [0, 0]], np.float32),
    "next_sentence_labels": np.array([[1], [0]]),
}
MEANINGS = ("follows", "random next")
FIRST = {
    "sequences": [
        [
            ["[CLS]", 0],
            ["a", 0],
            ["[SEP]", 0],
            ["a", 1, "[MASK]"],
            ["b", 1, "b"],
            ["[SEP]", 1],
        ]
    ],
    "padding": 1,
    "labels": ["random next"],
}


class Tags(HTMLParser):
    """Collects start tags, and checks that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.scripts = []

    def handle_starttag(self, tag, attrs):
        assert "src" not in dict(attrs)
        assert "href" not in dict(attrs)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_example_is_described():
    assert inspection_page.describe(EXAMPLES, 0, VOCABULARY, MEANINGS) == FIRST
    second = inspection_page.describe(EXAMPLES, 1, VOCABULARY, MEANINGS)
    assert second["sequences"][0][1] == ["</script>", 0]
    assert second["labels"] == ["follows"]
    unmasked = {name: EXAMPLES[name] for name in list(EXAMPLES)[:3]}
    described = inspection_page.describe(unmasked, 0, VOCABULARY, MEANINGS)
    assert described["labels"] == [None]
    assert described["sequences"][0][3] == ["[MASK]", 1]


def test_packed_row_is_described_by_sequences():
    packed = {
        "input_ids": np.array([[2, 5, 3, 2, 4, 3, 0]]),
        "input_mask": np.array([[1] * 6 + [0]]),
        "segment_ids": np.zeros((1, 7), int),
        "position_ids": np.array([[0, 1, 2, 0, 1, 2, 0]]),
        "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 0]]),
        "first_positions": np.array([[0, 3]]),
        "masked_lm_positions": np.array([[4, 0]]),
        "masked_lm_ids": np.array([[6, 0]]),
        "masked_lm_weights": np.array([[1, 0]], np.float32),
        "next_sentence_labels": np.array([[1, 0]]),
    }
    assert inspection_page.describe(packed, 0, VOCABULARY, MEANINGS) == {
        "sequences": [
            [["[CLS]", 0], ["a", 0], ["[SEP]", 0]],
            [["[CLS]", 0], ["b", 0, "[MASK]"], ["[SEP]", 0]],
        ],
        "padding": 1,
        "labels": ["random next", "follows"],
    }


def test_page_holds_the_examples_and_stands_alone():
    described = [
        inspection_page.describe(EXAMPLES, row, VOCABULARY, MEANINGS)
        for row in (0, 1)
    ]
    page = inspection_page.page(
        described,
        [("examples", "2"), ("a <b>", "3")],
        [("this <i>", 0), ("that", 5)],
        "x&y",
    )
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert json.loads(tags.scripts[0]) == described
    assert json.loads(tags.scripts[1]) == ["[CLS]", "[SEP]"]
    assert "<title>x&amp;y</title>" in page
    assert "<th>a &lt;b&gt;</th><td>3</td>" in page
    assert '<li class="holds">this &lt;i&gt;: holds</li>' in page
    assert '<li class="broken">that: broken by 5</li>' in page
    assert "http" not in page
    # Every element that the script asks for is there.
    for name in re.findall(r'getElementById\("(\w+)"\)', page):
        assert f'id="{name}"' in page
    assert not re.search("@[A-Z]+@", page)
