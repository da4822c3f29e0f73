"""Added tokens are found in texts as `tokenizers` finds them, and saved."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert_tf.serving import saved_model
from bert_tf.serving.graph import allowed_ops
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import added_tokens
from bert_tf.text.tokenizers import bpe
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import token_finder
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import wordpiece
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.sentencepiece_model import CONTROL
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import peers
from support import tokenizer_families
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.tokenizer_texts import vocabulary_of

SPECS = {
    "uncased": WordpieceSpec(vocabulary_of("uncased"), True),
    "cased": WordpieceSpec(vocabulary_of("cased"), False),
    "bpe": tokenizer_families.BPE,
    "bpe with prefix": dataclasses.replace(
        tokenizer_families.BPE, add_prefix_space=True
    ),
    "albert": tokenizer_families.UNIGRAM,
    "xlm-roberta": tokenizer_families.as_xlm_roberta(
        tokenizer_families.UNIGRAM
    ),
}
CLASSES = (
    wordpiece.WordpieceTokenizer,
    bpe.BpeTokenizer,
    unigram.UnigramTokenizer,
)
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
CONTENTS = ("[E1]", "[E1]s", "E1", "ö", "New York", "新冠", "한국", "##x")
BESIDE = ("", " ", " \t", "\u3000", "_", "1", "the", "É", "新", "(", "\u200b")
INVALID = b"\xe9"


def with_added(spec, tokens, tokens_in_text="added"):
    """Returns a spec with tokens, new ones behind its vocabulary."""
    vocabulary = spec.vocabulary
    new = [
        token.content
        for token in tokens
        if token.content not in vocabulary.tokens
    ]
    changed = {
        "vocabulary": dataclasses.replace(
            vocabulary, tokens=(*vocabulary.tokens, *new)
        ),
        "added_tokens": tuple(
            dataclasses.replace(token, is_piece=token.content not in new)
            for token in tokens
        ),
        "tokens_in_text": tokens_in_text,
    }
    if isinstance(spec, unigram.UnigramSpec):
        model = sentencepiece_model.parse(spec.model)
        pieces = (*model.pieces, *(Piece(text, 0.0, CONTROL) for text in new))
        changed["model"] = sentencepiece_model.serialize(
            model._replace(pieces=pieces)
        )
    return dataclasses.replace(spec, **changed)


def peer_of(spec):
    return tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))


def tokens_of(spec, texts):
    ids = spec.make().tokenize(encode(texts)).merge_dims(1, 2)
    entries = np.array(spec.vocabulary.tokens, object)
    return [list(entries[row]) for row in to_lists(ids)]


@pytest.mark.parametrize("name", SPECS)
def test_ids_and_offsets_are_those_of_tokenizers(name):
    combinations = list(itertools.product((False, True), repeat=len(FLAGS)))
    lines = [
        f"the fox{a}{content}{b}{content.upper()}{b}{other}{a}x"
        for content, other in zip(CONTENTS, CONTENTS[1:] + CONTENTS[:1])
        for a, b in zip(BESIDE, BESIDE[3:] + BESIDE[:3])
    ]
    lines += ["", " ", *CONTENTS, "".join(CONTENTS), "no token"]
    for turn in range(4):
        tokens = [
            AddedToken(
                content=content,
                **dict(zip(FLAGS, combinations[(5 * n + 4 * turn + n) % 16])),
            )
            for n, content in enumerate(CONTENTS)
        ]
        spec = with_added(SPECS[name], tokens)
        expected = peer_of(spec).encode_batch(lines, add_special_tokens=False)
        ids, offsets = spec.make().tokenize_with_offsets(encode(lines))
        rows = to_lists(ids.merge_dims(1, 2))
        assert rows == [encoding.ids for encoding in expected]
        found = [spec.vocabulary.index(content) for content in CONTENTS]
        starts, limits = (
            to_lists(values.merge_dims(1, 2))
            for values in (offsets.starts, offsets.limits)
        )
        for row, first, after, encoding in zip(rows, starts, limits, expected):
            ours, theirs = (
                [pair for index, pair in zip(row, pairs) if index in found]
                for pairs in (zip(first, after), encoding.offsets)
            )
            assert ours == theirs


@pytest.mark.parametrize("name", SPECS)
def test_the_five_special_tokens_are_found_if_asked_for(name):
    spec = dataclasses.replace(SPECS[name], tokens_in_text="all")
    special = spec.vocabulary.special.names
    lines = [f"the {a} fox{b}{b} {a}" for a in special for b in special]
    expected = peer_of(spec).encode_batch(lines, add_special_tokens=False)
    ids = to_lists(spec.make().tokenize(encode(lines)).merge_dims(1, 2))
    assert ids == [encoding.ids for encoding in expected]

    # The same text without the choice has other ids.
    plain = SPECS[name].make().tokenize(encode(lines)).merge_dims(1, 2)
    mask = spec.vocabulary.mask_id
    assert not any(mask in row for row in to_lists(plain))


def test_a_choice_says_what_is_found():
    tokens = [
        AddedToken(content="[E1]"),
        AddedToken(content="[MASK]", rstrip=True, special=True),
    ]
    found = {
        choice: tokens_of(
            with_added(SPECS["uncased"], tokens, choice), ["[E1] [MASK] [SEP]"]
        )[0]
        for choice in added_tokens.CHOICES
    }
    assert found["all"] == ["[E1]", "[MASK]", "[SEP]"]
    assert found["added"][0] == "[E1]"
    assert not {"[MASK]", "[SEP]"} & {*found["added"]}
    assert not {"[E1]", "[MASK]", "[SEP]"} & {*found["none"]}
    with pytest.raises(ValueError, match="`tokens_in_text` must be one of"):
        dataclasses.replace(SPECS["bpe"], tokens_in_text="special")


@pytest.mark.parametrize("name", SPECS)
def test_a_tokenizer_without_tokens_is_as_before(name):
    assert isinstance(SPECS[name].make(), CLASSES)
    spec = with_added(SPECS[name], [AddedToken(content="[E1]")])
    assert not isinstance(spec.make(), CLASSES)
    none = dataclasses.replace(spec, tokens_in_text="none")
    assert isinstance(none.make(), CLASSES)


@pytest.mark.parametrize("is_normalized", [False, True])
def test_offsets_are_places_in_the_text_as_it_came(is_normalized):
    token = AddedToken(content="[é1]", normalized=is_normalized)
    spec = with_added(SPECS["uncased"], [token])
    # The first text has a byte that is not UTF-8 in the middle of the token.
    texts = [b"the [\xc3\xa9" + INVALID + b"1]", "ß[é1]x".encode()]
    ids, offsets = spec.make().tokenize_with_offsets(tf.constant(texts))
    index = spec.vocabulary.index("[é1]")
    found = ids.merge_dims(1, 2).flat_values.numpy() == index
    places = [values.flat_values.numpy()[found].tolist() for values in offsets]
    assert places == [[4, 1], [8, 5], [4, 2], [10, 7]]


def test_a_normal_form_is_found_however_it_is_written():
    tokens = [AddedToken(content="Café 新", normalized=True)]
    spec = with_added(SPECS["uncased"], tokens)
    texts = ["CAFÉ 新", "cafe\u0301\u200b 新!", "cafe\t新s", "cafes 新"]
    found = ["Café 新" in row for row in tokens_of(spec, texts)]
    assert found == [True, True, True, False]


def test_characters_of_words_are_those_of_tokenizers():
    characters = [each for each in ASSIGNED if each != "\n"]
    tokens = [AddedToken(content="[E1]", single_word=True)]
    spec = with_added(SPECS["bpe"], tokens)
    index = spec.vocabulary.index("[E1]")
    texts = [f"{each}[E1]" for each in characters]
    encodings = peer_of(spec).encode_batch(texts, add_special_tokens=False)
    expected = [index in encoding.ids for encoding in encodings]
    ids = spec.make().tokenize(encode(texts)).merge_dims(1, 2)
    assert [index in row for row in to_lists(ids)] == expected


@pytest.mark.parametrize("fast", [False, True])
def test_no_word_is_split_into_what_is_no_piece(fast):
    spec = dataclasses.replace(SPECS["uncased"], fast=fast)
    texts = ["xqz", "qz xqzz"]
    expected = tokens_of(spec, texts)
    tokens = [
        AddedToken(content=each, single_word=True) for each in ("xqz", "##qz")
    ]
    spec = with_added(spec, tokens)
    rows = tokens_of(spec, [f"{text}z" for text in texts])
    assert not {"xqz", "##qz"} & {*itertools.chain(*rows)}
    assert tokens_of(spec, texts) == [["xqz"], expected[1]]


@pytest.mark.parametrize("name", SPECS)
def test_words_and_spellings(name):
    contents = ("[E1]", "##E2", "Ġé", "\u2581x")
    spec = with_added(
        SPECS[name], [AddedToken(content=each) for each in contents]
    )
    ids = tf.constant([[spec.vocabulary.index(each) for each in contents]])
    assert spec.starts_word(ids).numpy().tolist() == [[True] * 4]
    spelled = spec.spell(tf.constant(contents)).numpy()
    assert [each.decode().strip() for each in spelled] == [*contents]
    tokenizer = spec.make()
    text = tokenizer.detokenize(tf.RaggedTensor.from_tensor(ids)).numpy()[0]
    assert (
        text.decode().split()
        == "".join(each.decode() for each in spelled).split()
    )

    texts = encode(["the[E1] fox ##E2"])
    assert b"[E1]" in to_lists(tokenizer.split_words(texts))[0]
    words = tokenizer.for_words()
    assert to_lists(words.split_words(texts)) == [
        [b"the", b"[E1]", b"fox", b"##E2"]
    ]
    by_words, offsets = words.tokenize_with_offsets(texts)
    assert to_lists(offsets.starts[:, :, :1].merge_dims(1, 2)) == [
        [0, 3, 8, 12]
    ]
    given = words.tokenize(encode(["the", "[E1]", "fox", "##E2"]))
    assert to_lists(given.merge_dims(1, 2)) == to_lists(by_words)[0]


def test_what_follows_an_added_token_is_another_word():
    # The token takes the space before the piece behind it.
    spec = with_added(SPECS["bpe"], [AddedToken(content="<ent/>", rstrip=True)])
    ids = spec.make().tokenize(tf.constant(["<ent/> dog"])).merge_dims(1, 2)

    found = spec.starts_word(ids.to_tensor()).numpy()[0].tolist()
    assert found[:2] == [True, True]


@pytest.mark.parametrize("name", ["uncased", "bpe", "xlm-roberta"])
def test_in_a_data_set_and_saved(name, tmp_path):
    tokens = [
        AddedToken(content="[E1]", lstrip=True, single_word=True),
        AddedToken(content="ö", rstrip=True, normalized=True),
    ]
    spec = with_added(SPECS[name], tokens, "all")
    mask = spec.vocabulary.special.mask
    texts = encode(["", "[E1]", f"the {mask} Ö fox", "x [E1][E1] ö\u3000y"])
    tokenizer = spec.make()
    expected = to_lists(tokenizer.tokenize(texts))
    preprocessor = Preprocessor(spec, 16)
    inputs = preprocessor(texts)["input_ids"].numpy()

    data = tf.data.Dataset.from_tensor_slices(texts).batch(3)
    found = np.concatenate(
        [batch["input_ids"].numpy() for batch in data.map(preprocessor)]
    )
    np.testing.assert_array_equal(found, inputs)
    np.testing.assert_array_equal(
        preprocessor(texts[2])["input_ids"], inputs[2]
    )

    module = tf.Module()
    module.tokenizer = tokenizer
    module.tokenize = tf.function(
        tokenizer.tokenize,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    text_ops, core_ops = saved_model.read_ops(str(tmp_path))
    assert {*text_ops} <= allowed_ops.TEXT_OPS
    assert {*core_ops} <= allowed_ops.CORE_OPS
    loaded = tf.saved_model.load(str(tmp_path))
    assert to_lists(loaded.tokenize(texts)) == expected
    assert loaded.tokenize(encode([])).nrows() == 0


def test_a_description_tells_what_changes_ids():
    tokens = [AddedToken(content="[E1]", lstrip=True)]
    for spec in SPECS.values():
        told = [
            tokenizer_files.describe(each)
            for each in (
                spec,
                with_added(spec, tokens),
                dataclasses.replace(spec, tokens_in_text="all"),
            )
        ]
        assert json.loads(json.dumps(told)) == told
        plain, added, found = (
            {} if each is None else each["settings"] for each in told
        )
        assert added["added_tokens"][0]["lstrip"] is True
        assert found == plain | {"tokens_in_text": "all"}
    assert tokenizer_files.describe(SPECS["uncased"]) is None


def test_more_tokens_than_can_be_found_are_one_line():
    tokens = [AddedToken(content=f"{n:04}" * 50) for n in range(5_000)]
    spec = with_added(SPECS["uncased"], tokens)
    with pytest.raises(ValueError, match="too many added tokens") as caught:
        spec.make()
    assert len(str(caught.value)) < 200
    dataclasses.replace(spec, tokens_in_text="none").make()


def test_a_description_does_not_tell_what_changes_no_ids():
    # Records, and runs, of releases that did not know added tokens fit.
    for spec in SPECS.values():
        own = [
            AddedToken(content=name) for name in spec.vocabulary.special.names
        ]
        own = [dataclasses.replace(token, is_piece=True) for token in own]
        told = tokenizer_files.describe(with_added(spec, own))
        assert told == tokenizer_files.describe(spec)
        found = dataclasses.replace(with_added(spec, own), tokens_in_text="all")
        plain = dataclasses.replace(spec, tokens_in_text="all")
        assert tokenizer_files.describe(found) != tokenizer_files.describe(
            plain
        )


@pytest.mark.parametrize("choice", added_tokens.CHOICES)
def test_a_folder_keeps_the_choice(choice, tmp_path):
    spec = dataclasses.replace(SPECS["uncased"], tokens_in_text=choice)
    folder = str(tmp_path / "folder")
    tokenizer_files.write(folder, spec)
    assert tokenizer_files.read(folder).tokens_in_text == choice
    found = Preprocessor.from_folder(folder, 9).tokenizer.spec
    assert found.tokens_in_text == choice
    found = Preprocessor.from_folder(folder, 9, "none").tokenizer.spec
    assert found.tokens_in_text == "none"


@pytest.mark.parametrize("name", ["uncased", "bpe"])
def test_files_have_the_tokens_apart_from_the_pieces(name):
    tokens = [
        AddedToken(content="[E1]", rstrip=True, special=True),
        AddedToken(content="New York", normalized=True),
        AddedToken(content="the", single_word=True),
    ]
    spec = with_added(SPECS[name], tokens)
    written = spec.tokenizer_json
    names = [*spec.vocabulary.special.names, "[E1]", "New York", "the"]
    assert sorted(token["content"] for token in written["added_tokens"]) == (
        sorted(names)
    )
    assert not {"[E1]", "New York"} & written["model"]["vocab"].keys()
    for text in spec.vocabulary_files.values():
        assert "[E1]" not in text
    peer = peer_of(spec)
    for token in names:
        assert peer.token_to_id(token) == spec.vocabulary.index(token)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["uncased", "cased", "bpe", "albert"])
def test_transformers_reads_the_tokens(name, tmp_path):
    tokens = [
        AddedToken(content="[E1]", lstrip=True, special=True),
        AddedToken(content="New York", single_word=True, normalized=True),
    ]
    spec = with_added(SPECS[name], tokens, "all")
    folder = str(tmp_path / "folder")
    tokenizer_files.write(folder, spec)
    mask = spec.vocabulary.special.mask
    texts = ["the [E1][E1] fox", f"New York, new york {mask} s", "NewYork"]
    found = peers.run(
        "-c",
        "import json, sys, transformers\n"
        "folder, *texts = sys.argv[1:]\n"
        "tokenizer = transformers.AutoTokenizer.from_pretrained(folder)\n"
        "print(json.dumps(tokenizer(texts, add_special_tokens=False)"
        "['input_ids']))",
        folder,
        *texts,
    )
    ids = spec.make().tokenize(encode(texts)).merge_dims(1, 2)
    assert json.loads(found.splitlines()[-1]) == to_lists(ids)


def test_tokens_are_looked_for_by_their_numbers():
    # Of two that normalise alike, the special one is found, as the first.
    # `tokenizers` finds either, by chance.
    tokens = [
        AddedToken(content="[e1]", normalized=True),
        AddedToken(content="[E1]", normalized=True, special=True),
    ]
    spec = with_added(SPECS["uncased"], tokens)
    assert tokens_of(spec, ["[E1] [e1]"]) == [["[E1]", "[E1]"]]
    assert isinstance(spec.make(), token_finder.FindingTokenizer)
