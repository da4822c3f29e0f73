"""SentencePiece's unigrams against `tokenizers`, and by their properties.

The pieces are learned from pages of the project's own documentation. Texts of
megabytes and every code point: tests/text/test_unigram_peers.py.
"""

import base64
import dataclasses
import json
import math
import pickle
import re
import unicodedata

import keras
import pytest
import sentencepiece
import tensorflow as tf

from bert_tf.checkpoints import model_folder
from bert_tf.text.learners import unigram as learner
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.unigrams import HARD
from support.unigrams import learn
from support.unigrams import make_spec
from support.unigrams import theirs_of

CLASSES = tuple(unigram_files.SPECIAL)


@pytest.fixture(params=CLASSES)
def spec(request):
    return make_spec(request.param)


def test_ids_are_those_of_tokenizers(spec):
    encodings = theirs_of(spec).encode_batch(HARD, add_special_tokens=False)
    ids = spec.make().tokenize(encode(HARD)).merge_dims(1, 2)
    assert to_lists(ids) == [encoding.ids for encoding in encodings]


def test_every_white_space_parts_words_as_in_tokenizers(spec):
    texts = [f"a{chr(c)}b" for c in range(0x110000) if chr(c).isspace()]
    encodings = theirs_of(spec).encode_batch(texts, add_special_tokens=False)
    ids = spec.make().tokenize(encode(texts)).merge_dims(1, 2)
    assert to_lists(ids) == [encoding.ids for encoding in encodings]


@pytest.mark.parametrize("name", CLASSES)
def test_pairs_are_framed_as_in_tokenizers(name):
    spec = make_spec(name)
    encoding = theirs_of(spec).encode("the model", "a token")
    inputs = Preprocessor(spec, len(encoding.ids))(
        (tf.constant(["the model"]), tf.constant(["a token"]))
    )
    assert inputs["input_ids"][0].numpy().tolist() == encoding.ids
    assert inputs["segment_ids"][0].numpy().tolist() == encoding.type_ids


@pytest.mark.parametrize("name", CLASSES)
def test_marks_and_numbers_are_masked_alone_in_albert_only(name):
    alone = (".", "'", "7", "é", "'s", "7b", "<a", "=b")
    pieces = {
        piece.text: piece
        for piece in sentencepiece_model.parse(make_spec(name).model).pieces
    } | {text: Piece(text, -9.0) for text in ("▁a", "b", "b.", "..", *alone)}
    model = Model(tuple(pieces.values()), b"")
    spec = unigram.from_model(
        model, name, do_lower_case=False, keep_accents=True
    )
    ids = [spec.vocabulary.index(text) for text in pieces]
    starts = dict(zip(pieces, spec.starts_word(tf.constant(ids)).numpy()))
    assert starts["▁a"]
    assert not any(starts[text] for text in ("b", "b.", ".."))
    is_albert = name == unigram_files.ALBERT_CLASS
    assert [starts[text] for text in alone] == [is_albert] * len(alone)


def test_special_tokens_in_texts_are_text(spec):
    names = spec.vocabulary.special.names
    ids = spec.make().tokenize(encode([" ".join(names)])).flat_values
    special = {spec.vocabulary.index(name) for name in names}
    assert not special - {spec.vocabulary.unk_id} & set(ids.numpy().tolist())


def test_offsets_are_where_pieces_come_from(spec):
    texts = [*HARD, "ends in ``", "`` begins"]
    tokenizer = spec.make()
    ids, offsets = tokenizer.tokenize_with_offsets(encode(texts))
    assert to_lists(ids) == to_lists(tokenizer.tokenize(encode(texts)))
    starts, limits, byte_starts, byte_limits = (
        to_lists(values.merge_dims(1, 2)) for values in offsets
    )
    tokens = spec.vocabulary.tokens
    for row, text in enumerate(texts):
        pieces = to_lists(ids.merge_dims(1, 2))[row]
        assert starts[row] == sorted(starts[row])
        for place, piece in enumerate(pieces):
            start, limit = starts[row][place], limits[row][place]
            assert 0 <= start < limit <= len(text)
            assert (
                text.encode()[byte_starts[row][place] : byte_limits[row][place]]
                == text[start:limit].encode()
            )
            token = tokens[piece].removeprefix("\u2581")
            if token and token.isascii() and text[start:limit].isascii():
                cited = text[start:limit]
                if spec.do_lower_case:
                    cited = cited.lower()
                if spec.joins_quotes:
                    cited = cited.replace("``", '"').replace("''", '"')
                # With what is dropped after it.
                cited = re.sub("[\0-\x1f]+$", "", cited)
                if piece != spec.vocabulary.unk_id:
                    assert cited == token


def test_offsets_are_those_of_tokenizers(spec):
    text = (
        "the tokenizer of 1,234 models, written in Python."
        # Pieces end within what one character becomes, with an unknown one
        # before: "this", "is" and "Python".
        " \ufb01\xbd thi\ufb06his \ufb01\ufb06okenizer\u2026 i\ufb06he "
        "x\u2202Pytho\u338brom"
    )
    _, offsets = spec.make().tokenize_with_offsets(encode([text]))
    found = zip(
        offsets.starts.flat_values.numpy().tolist(),
        offsets.limits.flat_values.numpy().tolist(),
    )
    encoding = theirs_of(spec).encode(text, add_special_tokens=False)
    assert [*found] == encoding.offsets


def test_words_begin_with_the_mark(spec):
    tokenizer = spec.make()
    words = tokenizer.tokenize(encode(["the tokenizer  of", "", "日本 x"]))
    assert words.nrows() == 3
    tokens = spec.vocabulary.tokens
    spelled = [
        ["".join(tokens[i] for i in word) for word in text]
        for text in words.to_list()
    ]
    assert spelled[0] == ["\u2581the", "\u2581tokenizer", "\u2581of"]
    assert spelled[1] == []
    flat = words.merge_dims(1, 2)
    starts = spec.has_mark(flat.flat_values).numpy()
    assert starts.sum() == len(words.flat_values) - (
        len(starts) - sum(map(len, spelled))
    )


def test_texts_are_spelled_again(spec):
    texts = ["the tokenizer of the model", "a token", ""]
    tokenizer = spec.make()
    ids = tokenizer.tokenize(encode(texts))
    expected = [text.encode() for text in texts]
    assert tokenizer.detokenize(ids).numpy().tolist() == expected
    merged = ids.merge_dims(1, 2)
    assert tokenizer.detokenize(merged).numpy().tolist() == expected


def test_no_text_at_all(spec):
    tokenizer = spec.make()
    none = tf.constant([], tf.string)
    assert tokenizer.tokenize(none).shape[0] == 0
    ids, offsets = tokenizer.tokenize_with_offsets(none)
    assert ids.nrows() == offsets.starts.nrows() == 0


def test_bytes_that_are_not_utf_8_are_dropped(spec):
    tokenizer = spec.make()
    found = tokenizer.tokenize(tf.constant([b"a\xff b\xc3", b"a b"])).to_list()
    assert found[0] == found[1]


def test_a_long_word_costs_what_it_is_long(spec):
    ids = spec.make().tokenize(encode(["ab" * 50_000]))
    assert 0 < len(ids.flat_values) <= 100_001


def test_spec_is_hashed_and_pickled(spec):
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.settings == spec.settings
    other = dataclasses.replace(learn(vocab_size=400))
    assert other.settings != spec.settings


def test_servables_and_pipelines_hold_it(spec, tmp_path):
    tokenizer = spec.make()
    texts = encode(HARD)
    expected = to_lists(tokenizer.tokenize(texts).merge_dims(1, 2))
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(5)
    found = [
        row
        for batch in dataset.map(lambda texts: tokenizer.tokenize(texts))
        for row in to_lists(batch.merge_dims(1, 2))
    ]
    assert found == expected
    module = tf.Module()
    module.tokenizer = tokenizer
    module.call = tf.function(
        lambda texts: tokenizer.tokenize(texts).merge_dims(1, 2).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    rows = loaded.call(texts).numpy().tolist()
    assert [[i for i in row if i >= 0] for row in rows] == expected


def test_folders_give_the_spec_again(spec, tmp_path):
    name = unigram_files.MODEL_FILES[spec.tokenizer_class]
    written = spec.vocabulary_files
    assert [*written] == [name]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_bytes(written[name])
    (tmp_path / "json").mkdir()
    text = json.dumps(spec.tokenizer_json)
    (tmp_path / "json" / "tokenizer.json").write_text(text)
    # XLM-RoBERTa's file has the same name.
    settings = {"tokenizer_class": spec.tokenizer_class}
    (tmp_path / "model" / "tokenizer_config.json").write_text(
        json.dumps(settings)
    )
    for folder in ("model", "json"):
        assert tokenizer_files.read(str(tmp_path / folder)) == spec
        assert not tokenizer_files.is_wordpiece(str(tmp_path / folder))
        assert (
            tokenizer_files.read_vocabulary(str(tmp_path / folder))
            == spec.vocabulary
        )


def test_albert_s_settings_are_read(tmp_path):
    spec = learn(False)
    (tmp_path / "spiece.model").write_bytes(
        spec.vocabulary_files["spiece.model"]
    )
    settings = {"tokenizer_class": "AlbertTokenizerFast"}
    settings |= {"do_lower_case": False, "keep_accents": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokenizer_files.read(str(tmp_path)) == spec


def test_digits_with_a_comma_are_two_pieces(tmp_path):
    pieces = [Piece(token, 0.0) for token in ("<pad>", "<unk>")]
    pieces += [Piece(token, 0.0) for token in ("[CLS]", "[SEP]", "[MASK]")]
    pieces += [
        Piece("\u25815,", -1.0),
        Piece("\u25815", -3.0),
        Piece(",", -3.5),
    ]
    contents = sentencepiece_model.serialize(Model(tuple(pieces), b""))
    (tmp_path / "spiece.model").write_bytes(contents)
    spec = tokenizer_files.read(str(tmp_path))
    assert spec.make().tokenize(encode(["5,"])).to_list() == [[[6, 7]]]
    (again,) = spec.vocabulary_files.values()
    assert sentencepiece_model.parse(again).pieces[5].score == -1.0


def test_model_files_are_those_of_sentencepiece(spec):
    (contents,) = spec.vocabulary_files.values()
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    pieces, _ = sentencepiece_model.parse(contents)
    assert [piece.text for piece in pieces] == [
        processor.id_to_piece(n) for n in range(len(processor))
    ]
    assert [piece.score for piece in pieces] == [
        processor.get_score(n) for n in range(len(processor))
    ]


def test_marks_behind_what_the_table_has_are_lost_as_in_tokenizers():
    # It looks up e, and the marks behind it, up to the first that it finds;
    # only in clusters of at most five bytes.
    marks = ("\u0301", "\u0323", "\u0302", "\u20dd", "\ufe0f", "\u0301\u0323")
    bases = ("e", "ﬁ", "½", "…", "か", "☺", "\u0600e", "\r", "\x01", " ")
    texts = [f"a {base}{mark}b" for base in bases for mark in marks]
    pieces = [Piece(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [Piece(letter, -3.0) for letter in "▁abefi…か☺12⁄éẹêệ...\u0301"]
    unique = {piece.text: piece for piece in [*pieces, Piece("<mask>", 0.0)]}
    _, charsmap = sentencepiece_model.parse(learn().model)
    spec = unigram.from_model(
        Model(tuple(unique.values()), charsmap),
        unigram_files.XLM_ROBERTA_CLASS,
        do_lower_case=False,
        keep_accents=True,
    )
    encodings = theirs_of(spec).encode_batch(texts, add_special_tokens=False)
    ids = spec.make().tokenize(encode(texts)).merge_dims(1, 2)
    assert to_lists(ids) == [encoding.ids for encoding in encodings]
    lost = spec.make().tokenize(encode(["ﬁ", "ﬁ\u0301"])).merge_dims(1, 2)
    assert to_lists(lost)[0] == to_lists(lost)[1]


def test_characters_are_normalised_as_by_sentencepiece():
    charsmap = sentencepiece_model.parse(learn().model).charsmap
    changed = sentencepiece_model.replacements(charsmap, 4)
    (contents,) = learn().vocabulary_files.values()
    processor = sentencepiece.SentencePieceProcessor(model_proto=contents)
    for code_point in (*range(0x21, 0xD800, 7), *range(0xFF00, 0x10000)):
        if unicodedata.category(chr(code_point)).startswith("M"):
            continue
        # Spaces at the ends would go.
        text = processor.normalize(f"x{chr(code_point)}x")
        expected = text.removeprefix("\u2581")[1:-1].replace("\u2581", " ")
        found = changed.get(chr(code_point), chr(code_point))
        assert found == expected, hex(code_point)


def test_folding_looks_at_every_character_that_it_changes():
    looked_at = {c for part in unigram._FOLDED for c in part}
    for code_point in set(range(0x110000)) - looked_at:
        character = chr(code_point)
        if unicodedata.category(character) == "Cs":
            continue
        assert unicodedata.normalize("NFKD", character) == character
        assert not unicodedata.category(character).startswith("M")
        assert character.lower() == character


def test_same_text_gives_the_same_pieces():
    first = learn()
    assert learn.__wrapped__() == first
    assert len(first.vocabulary) == 500
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert first.vocabulary.tokens[:5] == special


@pytest.mark.parametrize(
    "texts, vocab_size, message",
    [
        ([], 500, "no word in a.txt"),
        ([" \n"], 500, "no word in a.txt"),
        (["abc abd"], 7, "at least 10: .*a.txt"),
    ],
)
def test_what_cannot_be_learned_is_told(texts, vocab_size, message):
    with pytest.raises(ValueError, match=message):
        learner.learn([texts] if texts else [], vocab_size, True, ["a.txt"])


def change(*path, to):
    def apply(values):
        for name in path[:-1]:
            values = values[name]
        values[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    "break_it, message",
    [
        (change("model", "byte_fallback", to=True), "byte_fallback` must be"),
        (change("model", "unk_id", to=None), "unk_id` must be that of <unk>"),
        (change("model", "vocab", to=7), "`tokenizers` writes it"),
        (change("model", "vocab", to=[]), "must have pieces"),
        (change("normalizer", to={"type": "NFC"}), "the steps of ALBERT"),
        (
            lambda values: values["normalizer"]["normalizers"].pop(0),
            "both steps for quotes or none",
        ),
        (change("pre_tokenizer", to=None), "WhitespaceSplit, then Metaspace"),
        (
            change(
                "pre_tokenizer", "pretokenizers", 1, "prepend_scheme", to="x"
            ),
            "before every word",
        ),
        (
            lambda values: values["added_tokens"].append(
                {"id": 700, "content": "[NEW]", "special": True}
            ),
            "must have the id 500",
        ),
        (
            lambda values: values["added_tokens"].append({"content": "x"}),
            "must have the id of each token",
        ),
        (
            change(
                *("normalizer", "normalizers", -1, "precompiled_charsmap"),
                to=base64.b64encode(b"abcdefgh").decode(),
            ),
            "its size, a trie and texts",
        ),
        (
            # Its first node's children are nowhere.
            lambda values: values["normalizer"]["normalizers"][-1].update(
                precompiled_charsmap=base64.b64encode(
                    (4).to_bytes(4, "little") + b"\0\0\xff\x7fa\0"
                ).decode()
            ),
            "its size, a trie and texts",
        ),
        (
            change("model", "vocab", 7, 1, to=math.nan),
            "the score of .* must be a finite 32-bit number.*nan",
        ),
        (change("model", "vocab", 7, 1, to=1e300), "a finite 32-bit number"),
        (change("added_tokens", to=7), "`added_tokens` must be a list.*7"),
        (
            change("normalizer", "normalizers", 0, "pattern", to="x"),
            "the steps of ALBERT",
        ),
        (
            change("truncation", to={"direction": "Left"}),
            "direction 'Right'.*'Left'",
        ),
    ],
)
def test_tokenizer_json_that_we_do_not_do_is_refused(
    tmp_path, break_it, message
):
    values = json.loads(json.dumps(learn().tokenizer_json))
    break_it(values)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}"):
        tokenizer_files.read(str(tmp_path))


def test_settings_of_another_model_than_its_file_are_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "AlbertTokenizer"}'
    )
    (tmp_path / "tokenizer.json").write_text('{"model": 7}')
    with pytest.raises(ValueError, match="json: `model.type` must be .*Uni.*7"):
        tokenizer_files.read(str(tmp_path))


@pytest.mark.parametrize(
    "contents, message",
    [
        (b"", "it has no piece"),
        (b"\xff\xff\xff", "not a SentencePiece model"),
        (b"\n\x03\n\x01a\x12\x02\x18\x02", "`model_type` must be unigram.*bpe"),
        (b"\n\x03\n\x01a\x12\x03\x98\x02\x01", "`byte_fallback` must be False"),
        (b"\n\x03\n\x01a\x1a\x02\x18\x00", "`add_dummy_prefix` must be True"),
        (b"\n\x03\n\x01a", "special tokens <pad>, <unk>"),
    ],
)
def test_model_that_we_do_not_do_is_refused(tmp_path, contents, message):
    (tmp_path / "spiece.model").write_bytes(contents)
    with pytest.raises(ValueError, match=f"spiece.model: .*{message}"):
        tokenizer_files.read(str(tmp_path))


def test_another_file_order_is_no_xlm_roberta(tmp_path):
    contents = learn().vocabulary_files["spiece.model"]
    (tmp_path / "sentencepiece.bpe.model").write_bytes(contents)
    with pytest.raises(ValueError, match="first pieces must be <unk>, <s>"):
        tokenizer_files.read(str(tmp_path))


def test_xlm_roberta_folds_nothing():
    spec = make_spec(unigram_files.XLM_ROBERTA_CLASS)
    with pytest.raises(ValueError, match="`do_lower_case` must be False"):
        dataclasses.replace(spec, do_lower_case=True)


def test_albert_s_folder_asks_for_segments():
    texts = model_folder.make_texts(
        {"model_type": "albert", "vocab_size": 500}, learn(), 64, None
    )
    settings = json.loads(texts["tokenizer_config.json"])
    assert "token_type_ids" in settings["model_input_names"]


def test_a_cleared_session_takes_nothing_away(spec):
    tokenizer = spec.make()
    texts = encode(["the tokenizer"])
    traced = tf.function(lambda: tokenizer.tokenize(texts).flat_values)
    expected = tokenizer.tokenize(texts).flat_values.numpy().tolist()
    assert traced().numpy().tolist() == expected
    keras.utils.clear_session(free_memory=False)
    assert traced().numpy().tolist() == expected
    assert tokenizer.tokenize(texts).flat_values.numpy().tolist() == expected


def test_words_given_one_by_one_begin_with_the_mark(spec):
    tokenizer = spec.make().for_words()
    texts = encode(["the tokenizer,  of", "", "a \u0301 'model'"])
    words = tokenizer.split_words(texts)
    ids, offsets = tokenizer.tokenize_with_offsets(texts)
    found = [[word.decode() for word in text] for text in words.to_list()]
    assert found[0] == ["the", "tokenizer", ",", "of"]
    assert found[1] == []
    # A mark alone is nothing to ALBERT.
    accent = [] if not spec.keep_accents else ["\u0301"]
    assert found[2] == ["a", *accent, "'", "model", "'"]
    assert ids.to_list() == [
        tokenizer.tokenize(tf.constant(text, tf.string))
        .merge_dims(1, 2)
        .to_list()
        for text in words.to_list()
    ]
    starts = offsets.starts.to_list()
    assert [word[0] for word in starts[0]] == [0, 4, 13, 16]
    tokens = spec.vocabulary.tokens
    for text in ids.to_list():
        assert all(tokens[word[0]].startswith("\u2581") for word in text)
