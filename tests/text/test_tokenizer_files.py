"""The files of a tokenizer in a folder, whichever version wrote them.

That the settings reach the preprocessor: tests/text/test_preprocessor.py.
"""

import json

import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from references import checkpoints as peer

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s")
IDS = {token: index for index, token in enumerate(TOKENS)}
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": False,
}


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a tokenizer.json into tmp_path."""

    def write(**values):
        (tmp_path / "tokenizer.json").write_text(json.dumps(values), "utf-8")
        return tmp_path

    return write


def test_a_folder_without_any(tmp_path):
    assert tokenizer_files.read_vocabulary(tmp_path) is None
    assert tokenizer_files.vocabulary_path(tmp_path) is None
    assert tokenizer_files.read_settings(tmp_path) == {}


def test_tokens_are_in_the_order_of_their_ids(write):
    backwards = dict(reversed(IDS.items()))
    folder = write(model={"type": "WordPiece", "vocab": backwards})
    assert tokenizer_files.read_vocabulary(folder).tokens == TOKENS


def test_added_tokens_come_with_their_ids(write):
    folder = write(
        added_tokens=[
            {"id": 0, "content": "[PAD]"},
            {"id": 8, "content": "[NEW]"},
        ],
        model={"vocab": IDS},
    )
    assert tokenizer_files.read_vocabulary(folder).tokens == (*TOKENS, "[NEW]")


def test_vocab_txt_comes_first(write):
    folder = write(model={"type": "BPE"})
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    assert tokenizer_files.read_vocabulary(folder).tokens == TOKENS


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({}, "`model` must be of the type WordPiece"),
        (
            {"model": {"type": "WordLevel", "vocab": IDS}},
            "WordPiece or BPE.*'WordLevel'",
        ),
        ({"model": {"type": "WordPiece"}}, "`vocab`"),
        ({"model": {"vocab": list(TOKENS)}}, "`vocab`"),
        ({"model": {"vocab": IDS | {"x": 9}}}, "0, 1, 2"),
        ({"model": {"vocab": IDS | {"x": 7}}}, "0, 1, 2"),
        ({"model": {"vocab": {"[PAD]": 0}}}, r"\[UNK\].* missing"),
        (
            {"model": {"vocab": IDS, "continuing_subword_prefix": "@"}},
            "continuing_subword_prefix.*'@'",
        ),
    ],
)
def test_other_tokenizers_are_refused(write, values, match):
    folder = write(**values)
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{match}"):
        tokenizer_files.read_vocabulary(folder)


def test_no_json_object_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match="tokenizer.json: must be a JSON obj"):
        tokenizer_files.read_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json: must be a JSON object"):
        tokenizer_files.read_settings(tmp_path)


def test_case_that_nothing_tells_must_be_told(tmp_path):
    words = [f"word{number}" for number in range(99)]
    tokens = [*SPECIAL_TOKENS, *words, "Berlin"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    with pytest.raises(ValueError, match="1 of 105 entries .* capitals.*_case"):
        tokenizer_files.read(str(tmp_path))
    for is_lower in (True, False):
        text = json.dumps({"do_lower_case": is_lower})
        (tmp_path / "tokenizer_config.json").write_text(text)
        spec = tokenizer_files.read(str(tmp_path))
        assert spec.do_lower_case is is_lower


def test_settings_come_from_both_files(write):
    folder = write(normalizer=NORMALIZER)
    path = folder / "tokenizer_config.json"
    assert tokenizer_files.read_settings(folder) == {
        "do_lower_case": False,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
    }
    path.write_text('{"model_max_length": 9, "strip_accents": false}')
    assert tokenizer_files.read_settings(folder) == {
        "do_lower_case": False,
        "strip_accents": False,
        "tokenize_chinese_chars": True,
        "model_max_length": 9,
    }
    # As in transformers, tokenizer_config.json is right where they differ.
    path.write_text('{"do_lower_case": true}')
    assert tokenizer_files.read_settings(folder) == {"do_lower_case": True}


@pytest.mark.parametrize("normalizer", [None, {"type": "Lowercase"}])
def test_a_normalizer_of_another_kind_is_refused(write, normalizer):
    folder = write(normalizer=normalizer)
    with pytest.raises(ValueError, match="tokenizer.json: `normalizer` must"):
        tokenizer_files.read_settings(folder)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (
            {"added_tokens": [{"content": "<e1>", "id": 8, "special": False}]},
            "`added_tokens` must be special tokens.*'<e1>'",
        ),
        (
            {"pre_tokenizer": {"type": "Whitespace"}},
            "`pre_tokenizer` must be a BertPreTokenizer.*'Whitespace'",
        ),
        (
            {"truncation": {"direction": "Left", "max_length": 128}},
            "`truncation` must be null or have the direction 'Right'.*'Left'",
        ),
        ({"truncation": "Left"}, "`truncation` must be null.*'Left'"),
    ],
)
def test_texts_that_are_parted_otherwise_are_refused(write, values, match):
    theirs = {"normalizer": NORMALIZER, "model": {"vocab": IDS}}
    folder = write(**theirs)
    assert tokenizer_files.read(str(folder)).vocabulary.tokens == TOKENS
    # The side of the padding means nothing to a text alone.
    write(
        **theirs,
        truncation={"direction": "Right", "max_length": 128},
        padding={"direction": "Left", "strategy": "BatchLongest"},
    )
    assert tokenizer_files.read(str(folder)).vocabulary.tokens == TOKENS
    special = {"content": "<e1>", "id": 8, "special": True}
    write(**theirs, added_tokens=[special, {"content": "[PAD]", "id": 0}])
    spec = tokenizer_files.read(str(folder))
    assert spec.vocabulary.tokens == (*TOKENS, "<e1>")
    write(**theirs | values)
    with pytest.raises(ValueError, match=f"tokenizer.json: {match}"):
        tokenizer_files.read(str(folder))


@pytest.fixture
def model(tmp_path):
    """Returns a function that makes a model folder with these settings."""

    def make(**settings):
        peer.write_folder(tmp_path / "model", "BertModel")
        path = tmp_path / "model/tokenizer_config.json"
        path.write_text(json.dumps(settings))
        return str(tmp_path / "model")

    return make


READERS = {
    "preprocessor": Preprocessor.from_folder,
    "starting point": starting_point.find,
    "starting point, another vocabulary": lambda folder: starting_point.find(
        folder, vocab_file=f"{folder}/vocab.txt"
    ),
    "weights": lambda folder: checkpoints.load(folder, BertEncoder),
    "conversion": lambda folder: checkpoints.convert(
        folder, f"{folder}/../converted", "bert_tf"
    ),
    "conversion to Google's form": lambda folder: checkpoints.convert(
        folder, f"{folder}/../converted", "google"
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("has_case", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strip_accents", False),
        ("tokenize_chinese_chars", False),
        ("do_basic_tokenize", False),
        ("truncation_side", "left"),
        ("tokenizer_class", "XLNetTokenizer"),
        ("tokenizer_class", "BertJapaneseTokenizer"),
        ("tokenizer_class", ["BertTokenizer"]),
    ],
)
def test_whatever_reads_a_folder_refuses_another_tokenizer(
    model, read, has_case, name, value
):
    case = {"do_lower_case": True} if has_case else {}
    folder = model(**{name: value}, **case)
    with pytest.raises(ValueError, match=f"tokenizer_config.json: .*`{name}`"):
        read(folder)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "BertTokenizer",
        "BertTokenizerFast",
        "DistilBertTokenizerFast",
        "PreTrainedTokenizerFast",
        "TokenizersBackend",
    ],
)
def test_names_of_wordpiece(model, name):
    folder = model(tokenizer_class=name)
    spec = tokenizer_files.read(folder)
    assert starting_point.find(folder).tokenizer == spec
    assert spec.vocabulary.tokens == peer.TOKENS
    assert spec.tokenizer_class == "BertTokenizer"


def test_a_vocabulary_file_makes_a_tokenizer(model):
    folder = model(do_lower_case=False)
    path = f"{folder}/vocab.txt"
    spec = tokenizer_files.from_vocabulary_file(path, do_lower_case=False)
    assert spec == tokenizer_files.read(folder)
