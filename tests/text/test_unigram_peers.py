"""Unigrams of megabytes of text, and of every character, against `tokenizers`.

BERT_TF_TEXTS names the text: files, comma-separated, a sentence a line; 5 MB of
each are read.
"""

import json
import os
import unicodedata

import pytest
import tokenizers

from bert_tf import files
from bert_tf.text.learners import unigram as learner
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from support.paths import ROOT
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists

_NUM_BYTES = 5_000_000
_BATCH_SIZE = 1024

pytestmark = pytest.mark.peers


def read_lines(path):
    lines, size = [], 0
    with files.open_bytes(path) as stream:
        for line in stream:
            lines.append(line.decode().rstrip("\n"))
            size += len(line)
            if size > _NUM_BYTES:
                break
    return lines


@pytest.fixture(scope="module")
def texts():
    """{name: lines}, of the project's documents where no text is named."""
    named = os.environ.get("BERT_TF_TEXTS")
    paths = named.split(",") if named else sorted((ROOT / "docs").glob("*.md"))
    return {str(path): read_lines(path) for path in paths}


@pytest.fixture(scope="module", params=unigram_files.SPECIAL)
def both(request, texts):
    """(ours, theirs)"""
    is_albert = request.param == unigram_files.ALBERT_CLASS
    size = 8000 if os.environ.get("BERT_TF_TEXTS") else 800
    lines = [line for each in texts.values() for line in each[:20_000]]
    spec = learner.learn([lines], size, is_albert, [])
    if not is_albert:
        pieces, charsmap = sentencepiece_model.parse(spec.model)
        first = ("<s>", "<pad>", "</s>", "<unk>")
        pieces = (
            *(Piece(token, 0.0) for token in first),
            *pieces[5:],
            Piece("<mask>", 0.0),
        )
        spec = unigram.from_model(
            Model(pieces, charsmap),
            request.param,
            do_lower_case=False,
            keep_accents=True,
        )
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    return spec.make(), theirs


def differing(both, lines):
    """Returns the lines whose ids are not the same."""
    ours, theirs = both
    found = []
    for first in range(0, len(lines), _BATCH_SIZE):
        batch = lines[first : first + _BATCH_SIZE]
        ids = to_lists(ours.tokenize(encode(batch)).merge_dims(1, 2))
        encodings = theirs.encode_batch(batch, add_special_tokens=False)
        found += [
            line
            for line, its, encoding in zip(batch, ids, encodings)
            if its != encoding.ids
        ]
    return found


def test_text(both, texts):
    for path, lines in texts.items():
        assert len(lines) > 10, path
        assert differing(both, lines) == [], path


@pytest.mark.parametrize("context", ["a{}b", "{}", " {} x", "-{}1"])
def test_every_character(both, context):
    lines = [context.format(character) for character in ASSIGNED]
    found = [
        line.removeprefix(context.partition("{")[0])[0]
        for line in differing(both, lines)
    ]
    if both[0].spec.keep_accents:
        assert found == []
    # Marks younger than its tables.
    assert len(found) <= 319
    for character in found:
        # Of two it knows another category.
        assert character in "\u1cf2\u1cf3" or (
            unicodedata.category(character).startswith("M")
        )
        assert unicodedata.ucd_3_2_0.category(character) == "Cn"
