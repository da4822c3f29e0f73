"""Unigrams against `tokenizers` and transformers, on much text.

    BERT_TF_TEXT_FILES=wiki.txt.xz:books.txt.xz \
        python -m pytest -m peers tests/text/test_unigram_peers.py

Texts are the first 5 MB of each file, a text a line; without, the project's
own documents.
"""

import json
import os
import re
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf
import tokenizers

from bert_tf import streams
from bert_tf.text.learners import unigram as learner
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from references import auto_tokenizer as peer
from support import peers
from support.paths import ROOT
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.unigrams import FIRST

TEXT_FILES = [
    path for path in os.environ.get("BERT_TF_TEXT_FILES", "").split(":") if path
]
_NUM_BYTES = 5_000_000
_BATCH_SIZE = 1024
_CONTROL = re.compile(r"<(s|/s|pad|unk|mask)>|\[(CLS|SEP|MASK)\]")

pytestmark = pytest.mark.peers


def read_lines(path):
    lines, size = [], 0
    with streams.open_bytes(path) as stream:
        for line in stream:
            size += len(line)
            text = line.decode().rstrip("\n")
            # A model's control pieces are none of a text, as in SentencePiece;
            # tokenizers finds them there.
            if not _CONTROL.search(text):
                lines.append(text)
            if size > _NUM_BYTES:
                break
    return lines


@pytest.fixture(scope="module")
def texts():
    """{name: lines}, of the project's documents where no text is named."""
    paths = TEXT_FILES or sorted((ROOT / "docs").glob("*.md"))
    return {str(path): read_lines(path) for path in paths}


@pytest.fixture(scope="module", params=unigram_files.SPECIAL)
def both(request, texts):
    """(ours, theirs)"""
    is_albert = request.param == unigram_files.ALBERT_CLASS
    size = 8000 if TEXT_FILES else 800
    lines = [line for each in texts.values() for line in each[:20_000]]
    spec = learner.learn([lines], size, is_albert, [])
    if not is_albert:
        pieces, charsmap = sentencepiece_model.parse(spec.model)
        pieces = (
            *(Piece(token, 0.0) for token in FIRST[request.param]),
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
    # As text, as here.
    theirs.encode_special_tokens = True
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


def google_s_pieces(processor, text):
    """Returns the ids of google-research/albert's rules (tokenization.py)."""
    text = " ".join(text.strip().split())
    text = text.replace("``", '"').replace("''", '"')
    text = "".join(
        character
        for character in unicodedata.normalize("NFKD", text)
        if not unicodedata.combining(character)
    )
    pieces = []
    for piece in processor.encode(text.lower(), out_type=str):
        if not (len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()):
            pieces.append(piece)
            continue
        # The number anew, without the mark of a word that it had not.
        number = processor.encode(
            piece[:-1].replace("\u2581", ""), out_type=str
        )
        if piece[0] != "\u2581" and number[0][0] == "\u2581":
            number[:1] = [number[0][1:]] if len(number[0]) > 1 else []
        pieces += [*number, ","]
    return [processor.piece_to_id(piece) for piece in pieces]


# The rules are ALBERT's alone.
@pytest.mark.parametrize("both", [unigram_files.ALBERT_CLASS], indirect=True)
def test_text_by_google_s_rules(both, texts):
    ours, _ = both
    (contents,) = ours.spec.vocabulary_files.values()
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    different = total = 0
    for lines in texts.values():
        for first in range(0, len(lines), _BATCH_SIZE):
            batch = lines[first : first + _BATCH_SIZE]
            ids = to_lists(ours.tokenize(encode(batch)).merge_dims(1, 2))
            total += len(batch)
            different += sum(
                its != google_s_pieces(processor, line)
                for its, line in zip(ids, batch)
            )
    # Sums of float32, and signs that "combine" and are no marks, or are and
    # do not. Of few pieces, more sums are alike.
    share = 1 / 5000 if TEXT_FILES else 1 / 1000
    assert different <= total * share, f"{different} of {total}"


@pytest.mark.parametrize("context", ["a{}b", "{}", " {} x", "-{}1"])
def test_every_character(both, context):
    lines = [context.format(character) for character in ASSIGNED]
    found = [
        line.removeprefix(context.partition("{")[0])[0]
        for line in differing(both, lines)
    ]
    if both[0].spec.keep_accents:
        assert found == []
    # Marks, and letters that decompose, which are younger than its tables.
    assert len(found) <= 400
    for character in found:
        assert unicodedata.ucd_3_2_0.category(character) == "Cn"


@pytest.mark.parametrize("left_out", [(), ("tokenizer.json",)])
def test_transformers_reads_our_folders(both, tmp_path, left_out):
    ours, _ = both
    spec = ours.spec
    folder = tmp_path / "folder"
    tokenizer_files.write(str(folder), spec)
    for name in left_out:
        (folder / name).unlink()
    texts = ["The cat's  in 1,234, naïve cafés", "", "U.S. -- ``x'' 日本語 ½"]
    (tmp_path / "texts.json").write_text(json.dumps(texts), "utf-8")
    found = json.loads(
        peers.run(peer.__file__, folder, tmp_path / "texts.json")
    )
    assert found["class"] == spec.tokenizer_class
    inputs = Preprocessor(spec, 64)(tf.constant(texts))
    for row, want in enumerate(found["ids"]):
        length = len(want)
        assert inputs["input_ids"][row, :length].numpy().tolist() == want
        assert inputs["input_mask"][row].numpy().sum() == length
