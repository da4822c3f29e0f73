"""tokenizer.json as `tokenizers` of Hugging Face reads it, and our own ids."""

import json
import unicodedata

import numpy as np
import pytest
import tokenizers

from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import CASES
from support.tokenizer_texts import GOLDEN
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.tokenizer_texts import vocabulary_of

# Of the golden lines, what the module says is different.
DIFFERENT = ("[CLS] [SEP]", "\ue000")
FINAL_SIGMA = "\u03a3\u0391\u03a3"
# Of another category in a later Unicode than theirs.
MOVED = "\u166d\u1734\u1885\u1886"


@pytest.fixture(scope="module", params=CASES)
def both(request):
    """(ours, theirs)"""
    spec = WordpieceSpec(
        vocabulary_of(request.param), request.param == "uncased"
    )
    text = json.dumps(spec.tokenizer_json)
    return spec.make(), tokenizers.Tokenizer.from_str(text)


def test_ids_of_hard_lines_are_equal(both):
    ours, theirs = both
    different = (*DIFFERENT, *[FINAL_SIGMA] * ours.spec.do_lower_case)
    texts = [
        line["text"]
        for line in GOLDEN["lines"]
        if not any(part in line["text"] for part in different)
    ]
    assert len(texts) == len(GOLDEN["lines"]) - len(different)
    texts.append("x" * 201)
    ids = ours.tokenize(encode(texts)).merge_dims(1, 2)
    encodings = theirs.encode_batch(texts, add_special_tokens=False)
    assert to_lists(ids) == [encoding.ids for encoding in encodings]


def test_words_round_every_character_of_unicode_3_2_are_equal(both):
    ours, theirs = both
    unicode_3_2 = unicodedata.ucd_3_2_0
    words = [
        f"a{character}b"
        for character in ASSIGNED
        if unicode_3_2.category(character) not in ("Cn", "Co")
        and character not in MOVED
    ]
    assert len(words) == 95_217
    texts = [" ".join(words[i : i + 100]) for i in range(0, len(words), 100)]
    normalize = theirs.normalizer.normalize_str
    split = theirs.pre_tokenizer.pre_tokenize_str
    for text, row in zip(
        texts, to_lists(ours.split_words(encode(texts))), strict=True
    ):
        expected = [word for word, _ in split(normalize(text))]
        assert [word.decode() for word in row] == expected


def test_pairs_are_packed_alike(both):
    ours, theirs = both
    packed = Preprocessor(ours.spec, 24)((["embedding is"], ["ing."]))
    encoding = theirs.encode("embedding is", "ing.")
    length = len(encoding.ids)
    for name, expected in (
        ("input_ids", encoding.ids),
        ("segment_ids", encoding.type_ids),
        ("input_mask", [1] * length),
    ):
        row = np.array(packed[name])[0]
        assert row[:length].tolist() == expected
        assert not row[length:].any()
