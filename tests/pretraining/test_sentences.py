"""The sentence splitter, on what trips simple rules."""

import random
import re
import time

import pytest

from bert_tf.pretraining.sources import sentences as sentences_lib
from bert_tf.pretraining.sources.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["Dr. Smith met Mrs. Jones at St. Paul's.", "They left."],
        ["J. R. R. Tolkien wrote it.", "C. S. Lewis read it."],
        ["The U.S. Navy sailed.", "It was 3.5 miles long."],
        ["It costs $3.50.", "That is 2.5 times as much."],
        ["Use a list, e.g. [1, 2], or a tuple, i.e. (1, 2).", "Done."],
        ['"Stop!" he said.', '"Why?"', "She ran."],
        ["(See fig. 3.)", "It shows the rest."],
        ["He took vitamin C.", "It helped."],
        ["Is it true?!", "Yes."],
        ["On Jan. 5 it rained.", "See no. 7 for that."],
        ["The answer was no.", "He went home."],
        ["See example.com for more.", "The file is a.out there."],
        ["Wait... what is it?", "Nothing."],
        ["First, cf. Brown et al. 1992.", "Then, pp. 3-7."],
    ],
)
def test_sentences_are_found(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_white_space_is_folded():
    assert split_sentences("  One\n  line.\tTwo\u00a0words.\n") == [
        "One line.",
        "Two words.",
    ]
    assert split_sentences(" \n ") == []


def test_rows_of_marks_are_split_as_mark_by_mark(monkeypatch):
    generator = random.Random(1)
    texts = [
        "".join(generator.choices(["a", "Mr", "B", "3", *"..!?   '\")("], k=40))
        for _ in range(2000)
    ]
    found = [split_sentences(text) for text in texts]

    # That which tries at each mark.
    every_mark = re.compile(
        r"""(?P<mark>[.!?]+)["'”’)\]]*(?P<space>\s+)(?=["'“‘(\[]?[A-Z0-9])"""
    )
    monkeypatch.setattr(sentences_lib, "_BOUNDARY", every_mark)

    assert found == [split_sentences(text) for text in texts]
    assert sum(map(len, found)) > 3000


@pytest.mark.parametrize("row", [".", "...\"')", ". ", "a.b "])
def test_a_megabyte_of_marks_takes_no_second(row):
    text = row * (1_000_000 // len(row)) + "a"

    start = time.process_time()
    found = split_sentences(text)
    seconds = time.process_time() - start

    assert len(found) == 1
    assert seconds < 1
