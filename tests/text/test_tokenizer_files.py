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
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import checkpoints as peer

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s")
IDS = {token: index for index, token in enumerate(TOKENS)}
JSON = WordpieceSpec(Vocabulary(tokens=TOKENS)).tokenizer_json
NORMALIZER = JSON["normalizer"]
NEW_ID = len(TOKENS)
E1 = {
    "id": NEW_ID,
    "content": "[E1]",
    "single_word": False,
    "lstrip": True,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a tokenizer.json into tmp_path.

    Its arguments change parts of BERT's; `settings` are tokenizer_config.json.
    """

    def write(settings=None, **parts):
        texts = {"tokenizer.json": JSON | parts}
        if settings is not None:
            texts["tokenizer_config.json"] = settings
        for name, values in texts.items():
            (tmp_path / name).write_text(json.dumps(values), "utf-8")
        return str(tmp_path)

    return write


def model(**changes):
    return {"model": JSON["model"] | changes}


def normalizer(**changes):
    return NORMALIZER | changes


def test_a_folder_without_any(tmp_path):
    assert tokenizer_files.read_vocabulary(tmp_path) is None
    assert tokenizer_files.vocabulary_path(tmp_path) is None
    assert tokenizer_files.read_settings(tmp_path) == {}


def test_tokens_are_in_the_order_of_their_ids(write):
    folder = write(**model(vocab=dict(reversed(IDS.items()))))
    assert tokenizer_files.read_vocabulary(folder).tokens == TOKENS


def test_ids_without_an_entry_are_unused(write):
    ids = {token: 2 * index for token, index in IDS.items()}
    frame = {
        "type": "BertProcessing",
        "sep": ["[SEP]", 6],
        "cls": ["[CLS]", 4],
    }
    folder = write(post_processor=frame, added_tokens=[], **model(vocab=ids))
    spec = tokenizer_files.read(folder)
    assert spec.vocabulary.tokens[::2] == TOKENS
    assert set(spec.vocabulary.tokens[1::2]) == {""}
    ids = spec.make().tokenize(["the cats"]).to_list()
    assert ids == [[[10], [12, 14]]]
    assert spec.tokenizer_json["model"]["vocab"] == dict(
        zip(TOKENS, range(0, 16, 2))
    )


def test_tokenizer_json_comes_first(write, tmp_path, caplog):
    folder = write()
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(TOKENS[::-1]))
    for _ in range(2):
        assert tokenizer_files.read(folder).vocabulary.tokens == TOKENS
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    caplog.clear()
    # The same entries, and a line that no text uses.
    path.write_text("\n".join((*TOKENS, " ")))
    assert tokenizer_files.read(folder).vocabulary.tokens == (*TOKENS, " ")
    path.write_text("a b")
    assert tokenizer_files.read(folder).vocabulary.tokens == TOKENS


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"model": None}, "`model.type` must be WordPiece, BPE or Unigram"),
        (model(type="WordLevel"), "WordPiece, BPE or Unigram.*'WordLevel'"),
        (model(vocab=None), "`vocab`"),
        (model(vocab=list(TOKENS)), "`vocab`"),
        (model(vocab=IDS | {"x": 99}), "0, 1, 2"),
        (model(vocab=IDS | {"x": 7}), r"id 7 must be of one.*'##s', 'x'"),
        (
            model(vocab={"[PAD]": 0}) | {"added_tokens": []},
            r"\[UNK\].* missing",
        ),
        (model(continuing_subword_prefix="@"), "subword_prefix.* '##'.*'@'"),
        (model(unk_token="[PAD]"), r"unk_token` must be '\[UNK\]'.*PAD"),
        (model(max_input_chars_per_word=201), "must be 1 to 200.*201"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "BertPreTok.*'Whitespace'"),
        ({"pre_tokenizer": None}, "`pre_tokenizer` must be a BertPreTok.*None"),
        ({"normalizer": None}, "`normalizer` must be a BertNormalizer"),
        ({"normalizer": {"type": "NFKC"}}, "BertNormalizer.*NFKC"),
        ({"normalizer": {"type": "Lowercase"}}, "BertNormalizer.*Lowercase"),
        ({"normalizer": normalizer(clean_text=False)}, "clean_text=true.*Fal"),
        ({"truncation": {"direction": "Left"}}, "`truncation` must .*'Left'"),
        ({"truncation": "Left"}, "`truncation` must be null.*'Left'"),
        ({"post_processor": None}, "`post_processor` must frame"),
    ],
)
def test_other_tokenizers_are_refused(write, parts, match):
    folder = write(**parts)
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{match}"):
        tokenizer_files.read(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame["single"].pop(),
        lambda frame: frame["single"].reverse(),
        lambda frame: frame["pair"].insert(3, frame["pair"][2]),
        lambda frame: frame["pair"][3]["Sequence"].update(type_id=0),
        lambda frame: frame["single"][1]["Sequence"].update(type_id=1),
        lambda frame: frame["special_tokens"]["[CLS]"].update(ids=[5]),
        lambda frame: frame["special_tokens"]["[SEP]"].update(ids=[3, 3]),
        lambda frame: frame.update(special_tokens={}),
        lambda frame: frame.update(single=[7]),
        lambda frame: frame.update(type="ByteLevel"),
    ],
)
def test_another_frame_is_refused(write, change):
    frame = json.loads(json.dumps(JSON["post_processor"]))
    change(frame)
    folder = write(post_processor=frame)
    with pytest.raises(ValueError, match="tokenizer.json: `post_processor` mu"):
        tokenizer_files.read(folder)


def sequence(part, name):
    return {"type": "Sequence", name: [part]}


@pytest.mark.parametrize(
    "parts",
    [
        {
            "normalizer": sequence(NORMALIZER, "normalizers"),
            "pre_tokenizer": sequence(JSON["pre_tokenizer"], "pretokenizers"),
            "post_processor": sequence(JSON["post_processor"], "processors"),
        },
        {
            "post_processor": {
                "type": "BertProcessing",
                "sep": ["[SEP]", 3],
                "cls": ["[CLS]", 2],
            }
        },
        # The side of the padding means nothing to a text alone.
        {
            "truncation": {"direction": "Right", "max_length": 128},
            "padding": {"direction": "Left", "strategy": "BatchLongest"},
        },
        {"normalizer": normalizer(strip_accents=True)},
    ],
)
def test_other_spellings_are_read(write, parts):
    assert tokenizer_files.read(write(**parts)).tokenizer_json == JSON


def test_the_longest_word_is_as_in_the_file(write):
    spec = tokenizer_files.read(write(**model(max_input_chars_per_word=100)))
    words = ["the" + "s" * 97, "the" + "s" * 98]
    first, second = spec.make().tokenize(words).to_list()
    assert first == [[5] + [7] * 97]
    assert second == [[1]]
    assert spec.settings == {"fast": False, "max_chars_per_word": 100}
    assert tokenizer_files.describe(spec) is None
    # `tokenizers` does not need the limit to be told.
    values = dict(JSON["model"])
    del values["max_input_chars_per_word"]
    assert tokenizer_files.read(write(model=values)) == spec
    assert tokenizer_files.read(write()).max_chars_per_word == 200


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


GENERAL = {"tokenizer_class": "PreTrainedTokenizerFast"}


@pytest.mark.parametrize(
    ("settings", "changes", "is_lower"),
    [
        ({"do_lower_case": False}, {"lowercase": False}, False),
        (
            {"do_lower_case": False, "strip_accents": False},
            {"lowercase": False},
            False,
        ),
        ({}, {"strip_accents": True}, True),
        (None, {}, True),
        # A general class obeys tokenizer.json alone.
        (GENERAL, {"lowercase": False}, False),
        (GENERAL | {"do_lower_case": True}, {"lowercase": False}, False),
        ({"tokenizer_class": "Mine"}, {"lowercase": False}, False),
        # Without config.json, transformers does not know the class.
        ({}, {"lowercase": False}, False),
    ],
)
def test_the_case_is_that_of_both_files(write, settings, changes, is_lower):
    folder = write(settings, normalizer=normalizer(**changes))
    assert tokenizer_files.read(folder).do_lower_case is is_lower
    assert tokenizer_files.read_settings(folder)["do_lower_case"] is is_lower


@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        ({"do_lower_case": True}, {"lowercase": False}, "do_lower_case` must"),
        # transformers lower-cases where nothing else is told.
        ({}, {"lowercase": False}, "`do_lower_case` must be False.*default"),
        ({"strip_accents": False}, {}, "`strip_accents` must be True.*False"),
        ({"tokenize_chinese_chars": False}, {}, "`tokenize_chinese_chars` mu"),
        ({}, {"handle_chinese_chars": False}, "`tokenize_chinese_chars` must"),
        (GENERAL, {"handle_chinese_chars": False}, "`tokenize_chinese_chars`"),
        (GENERAL, {"strip_accents": False}, "`strip_accents` must be None"),
        (
            {"strip_accents": False},
            {"strip_accents": False},
            "`strip_accents` must be None",
        ),
        ({"never_split": ["cat"]}, {}, r"`never_split` must be \[\].*'cat'"),
        ({"word_tokenizer_type": "mecab"}, {}, "word_tokenizer_type.*'mecab'"),
        ({"split_special_tokens": True}, {}, "split_special_tokens.*True"),
        ({"model_input_names": ["input_ids"]}, {}, "`model_input_names` must"),
        ({"cls_token": "<s>"}, {}, r"`cls_token` must be \[CLS\].*'<s>'"),
    ],
)
def test_files_that_contradict_are_refused(
    tmp_path, write, settings, changes, match
):
    (tmp_path / "config.json").write_text('{"type_vocab_size": 2}')
    folder = write(settings, normalizer=normalizer(**changes))
    with pytest.raises(ValueError, match=f"json: .*{match}"):
        tokenizer_files.read(folder)


INPUT_NAMES = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("settings", "segment"),
    [
        ({}, 1),
        ({"model_input_names": [*INPUT_NAMES, "token_type_ids"]}, 1),
        ({"model_input_names": INPUT_NAMES}, 0),
        (GENERAL, 0),
        (GENERAL | {"model_input_names": ["token_type_ids", *INPUT_NAMES]}, 1),
    ],
)
def test_a_model_that_is_given_no_segments(tmp_path, write, settings, segment):
    (tmp_path / "config.json").write_text('{"type_vocab_size": 2}')
    spec = tokenizer_files.read(write(settings))
    packed = Preprocessor(spec, 7)(("the", "cats"))
    assert packed["segment_ids"].numpy().tolist() == [0] * 3 + [segment] * 3 + [
        0
    ]
    tokenizer_files.write(tmp_path / "again", spec)
    assert tokenizer_files.read(str(tmp_path / "again")) == spec
    # Another model does not look at them.
    (tmp_path / "config.json").write_text('{"model_type": "distilbert"}')
    other = tokenizer_files.read(str(tmp_path))
    assert other.vocabulary.special.second_segment == 1


def test_tokenizer_json_tells_the_kind(tmp_path):
    # paraphrase-multilingual-MiniLM: XLM-RoBERTa's unigrams beside BERT's name.
    tokens = ("<s>", "<pad>", "</s>", "<unk>", "▁cat", "▁", "<mask>")
    spec = unigram.from_model(
        sentencepiece_model.Model(
            tuple(sentencepiece_model.Piece(token, -1.0) for token in tokens),
            b"",
        ),
        "XLMRobertaTokenizer",
        do_lower_case=False,
        keep_accents=True,
    )
    texts = {
        "tokenizer.json": spec.tokenizer_json,
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast"},
        "config.json": {"tokenizer_class": "BertTokenizer"},
    }
    for name, values in texts.items():
        (tmp_path / name).write_text(json.dumps(values))
    assert tokenizer_files.read(str(tmp_path)) == spec


@pytest.mark.parametrize(
    "name",
    ["BertJapaneseTokenizer", "PhobertTokenizer", "BertweetTokenizer"],
)
@pytest.mark.parametrize("path", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("has_json", [True, False])
def test_foreign_classes_are_refused(tmp_path, write, name, path, has_json):
    write({})
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    if not has_json:
        (tmp_path / "tokenizer.json").unlink()
    (tmp_path / path).write_text(json.dumps({"tokenizer_class": name}))
    with pytest.raises(ValueError, match=f"{path}: `tokenizer_class`.*{name}"):
        tokenizer_files.read(str(tmp_path))


@pytest.fixture
def model_folder(tmp_path):
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
    model_folder, read, has_case, name, value
):
    case = {"do_lower_case": True} if has_case else {}
    folder = model_folder(**{name: value}, **case)
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
def test_names_of_wordpiece(model_folder, name):
    folder = model_folder(tokenizer_class=name)
    spec = tokenizer_files.read(folder)
    assert starting_point.find(folder).tokenizer == spec
    assert spec.vocabulary.tokens == peer.TOKENS
    assert spec.tokenizer_class == "BertTokenizer"


def test_a_vocabulary_file_makes_a_tokenizer(model_folder):
    folder = model_folder(do_lower_case=False)
    path = f"{folder}/vocab.txt"
    spec = tokenizer_files.from_vocabulary_file(path, do_lower_case=False)
    assert spec == tokenizer_files.read(folder)
