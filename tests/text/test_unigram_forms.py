"""The forms of a unigram tokenizer's files: read with their ids, or refused."""

import copy
import itertools
import json

import pytest
import tensorflow as tf
import tokenizers

from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.tokenizers.unigram_files import ALBERT_CLASS
from bert_tf.text.tokenizers.unigram_files import CAMEMBERT_CLASS
from bert_tf.text.tokenizers.unigram_files import XLM_ROBERTA_CLASS
from bert_tf.text.vocabulary import SpecialTokens
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.unigrams import HARD
from support.unigrams import make_spec
from support.unigrams import theirs_of

WORDS = {"type": "WhitespaceSplit"}
SPACE = {
    "type": "Metaspace",
    "replacement": "▁",
    "prepend_scheme": "always",
    "split": True,
}
OLD_SPACE = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
STRIP_BOTH = STRIP | {"strip_left": True}
JOIN = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
MARK = JOIN | {"content": "▁"}
LINE_ENDS = JOIN | {"pattern": {"String": "\n"}}
# transformers' converters end with the first two, and ALBERT's with the third.
ENDS = ([], [STRIP, MARK], [JOIN], [MARK], [STRIP, JOIN], [MARK, STRIP])


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def contents_of(name):
    return copy.deepcopy(make_spec(name).tokenizer_json)


def write(folder, contents, **settings):
    folder.mkdir(exist_ok=True)
    text = json.dumps(contents)
    (folder / "tokenizer.json").write_text(text, "utf-8")
    if settings:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(settings), "utf-8")
    return str(folder)


def check(folder, contents, **settings):
    """Checks that a file is read, and written again, with its ids."""
    spec = tokenizer_files.read(write(folder / "read", contents, **settings))
    theirs = tokenizers.Tokenizer.from_str(json.dumps(contents))
    expected = theirs.encode_batch(HARD, add_special_tokens=False)
    expected = [encoding.ids for encoding in expected]
    ids = spec.make().tokenize(encode(HARD)).merge_dims(1, 2)
    assert to_lists(ids) == expected
    again = theirs_of(spec).encode_batch(HARD, add_special_tokens=False)
    assert [encoding.ids for encoding in again] == expected
    tokenizer_files.write(str(folder / "again"), spec)
    assert tokenizer_files.read(str(folder / "again")) == spec
    return spec


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize(
    "end, splits, name",
    [
        (end, splits, name)
        for end, splits in itertools.product(ENDS, ([WORDS, SPACE], [SPACE]))
        for name in (XLM_ROBERTA_CLASS, ALBERT_CLASS)
    ],
)
def test_normalisers_and_splits_give_the_ids_of_tokenizers(
    tmp_path, end, splits, name, has_table
):
    contents = contents_of(name)
    steps = contents["normalizer"]["normalizers"]
    steps = [*(steps if has_table else steps[:-1]), *end]
    contents["normalizer"] = sequence("normalizers", *steps)
    contents["pre_tokenizer"] = sequence("pretokenizers", *splits)
    spec = check(tmp_path, contents)
    is_standard = spec.splits_at_white_space and not spec.cleanup
    assert spec.splits_at_white_space == (len(splits) == 2)
    assert is_standard == (len(splits) == 2 and MARK not in end)
    # Without its name, transformers keeps what the file says.
    written = json.loads((tmp_path / "again/tokenizer_config.json").read_text())
    expected = name if is_standard else "PreTrainedTokenizerFast"
    assert written["tokenizer_class"] == expected


@pytest.mark.parametrize(
    "normalizer",
    [
        lambda table: table,
        lambda table: sequence("normalizers", sequence("normalizers", table)),
        lambda table: sequence("normalizers", LINE_ENDS, table),
        lambda table: sequence("normalizers", STRIP_BOTH, JOIN, table),
        lambda table: None,
    ],
)
def test_other_spellings_are_the_same(tmp_path, normalizer):
    contents = contents_of(XLM_ROBERTA_CLASS)
    (table,) = contents["normalizer"]["normalizers"]
    contents["normalizer"] = normalizer(table)
    contents["pre_tokenizer"] = sequence("pretokenizers", WORDS, OLD_SPACE)
    contents["decoder"] = None
    del contents["model"]["byte_fallback"]
    spec = check(tmp_path, contents)
    if contents["normalizer"] is not None:
        assert spec == make_spec(XLM_ROBERTA_CLASS)


def test_marks_alone_are_where_their_spaces_are(tmp_path):
    contents = contents_of(XLM_ROBERTA_CLASS) | {"pre_tokenizer": SPACE}
    tokenizer = tokenizer_files.read(write(tmp_path / "a", contents)).make()
    texts = encode(["x", "   the", "the   ", "the"])
    ids, offsets = tokenizer.tokenize_with_offsets(texts)
    tokens = tokenizer.vocabulary.tokens
    found = [
        [(tokens[n], *place) for n, *place in zip(*row)]
        for row in zip(
            *(
                to_lists(values.merge_dims(1, 2))
                for values in (ids, offsets.starts, offsets.limits)
            )
        )
    ]
    assert found[1] == [("▁", 0, 1), ("▁", 0, 1), ("▁the", 3, 6)]
    assert found[2] == [("▁the", 0, 3), *[("▁", 3, 4)] * 3]
    assert found[3] == [("▁the", 0, 3)]


def template(single, pair, ids):
    """Returns a template, spelled like "<s> A </s> </s> B:1"."""

    def step(word):
        name, _, type_id = word.partition(":")
        kind = "Sequence" if name in "AB" else "SpecialToken"
        return {kind: {"id": name, "type_id": int(type_id or 0)}}

    return {
        "type": "TemplateProcessing",
        "single": [step(word) for word in single.split()],
        "pair": [step(word) for word in pair.split()],
        "special_tokens": {
            name: {"id": name, "ids": [its], "tokens": [name]}
            for name, its in ids.items()
        },
    }


FAIRSEQ_IDS = {"<s>": 0, "</s>": 2}
FAIRSEQ = template(
    "<s> A </s>", "<s> A </s> </s> B </s>", FAIRSEQ_IDS | {"<pad>": 1}
)
ROBERTA_PROCESSING = {
    "type": "RobertaProcessing",
    "sep": ["</s>", 2],
    "cls": ["<s>", 0],
    "trim_offsets": True,
    "add_prefix_space": False,
}
BERT_PROCESSING = {
    "type": "BertProcessing",
    "sep": ["</s>", 2],
    "cls": ["<s>", 0],
}


@pytest.mark.parametrize(
    "processor, num_between, second_segment",
    [
        (FAIRSEQ, 2, 0),
        (sequence("processors", FAIRSEQ), 2, 0),
        (ROBERTA_PROCESSING, 2, 0),
        (BERT_PROCESSING, 1, 1),
        (
            template(
                "<s> A </s>", "<s> A </s> B:1 </s>:1", FAIRSEQ_IDS
            ),
            1,
            1,
        ),
        (template("<s> A </s>", "<s> A </s> B </s>", FAIRSEQ_IDS), 1, 0),
    ],
)  # fmt: skip
def test_frames_that_can_be_said_are_read(
    tmp_path, processor, num_between, second_segment
):
    contents = contents_of(XLM_ROBERTA_CLASS) | {"post_processor": processor}
    spec = check(tmp_path, contents)
    assert spec.vocabulary.special.num_between == num_between
    assert spec.vocabulary.special.second_segment == second_segment
    theirs = tokenizers.Tokenizer.from_str(json.dumps(contents))
    encoding = theirs.encode("the model", "a token")
    inputs = Preprocessor(spec, len(encoding.ids))(
        (tf.constant(["the model"]), tf.constant(["a token"]))
    )
    assert inputs["input_ids"][0].numpy().tolist() == encoding.ids
    assert inputs["segment_ids"][0].numpy().tolist() == encoding.type_ids


@pytest.mark.parametrize(
    "processor, message",
    [
        (None, "must frame texts as CLS A SEP"),
        (sequence("processors", FAIRSEQ, FAIRSEQ), "must frame texts"),
        (template("A </s>", "A </s> </s> B </s>", FAIRSEQ_IDS), "must frame"),
        (template("<s> A", "<s> A B", FAIRSEQ_IDS), "must frame"),
        (
            template(
                "<s> A </s>", "<s> A </s> </s> </s> B </s>", FAIRSEQ_IDS
            ),
            "must frame",
        ),
        (
            template("<s> A </s>", "<s> B </s> </s> A </s>", FAIRSEQ_IDS),
            "must frame",
        ),
        (
            template("<s> A:1 </s>", "<s> A:1 </s> </s> B </s>", FAIRSEQ_IDS),
            "must frame",
        ),
        (
            template(
                "<s> A </s>",
                "<s> A </s> </s> B </s>",
                {"<s>": 2, "</s>": 2},
            ),
            "with the ids of the vocabulary",
        ),
        # Without its two other keys, `tokenizers` takes it for BERT's.
        (BERT_PROCESSING | {"type": "RobertaProcessing"}, "must frame"),
        (ROBERTA_PROCESSING | {"cls": ["<s>", 7]}, "with the ids of"),
    ],
)  # fmt: skip
def test_other_frames_are_refused(tmp_path, processor, message):
    contents = contents_of(XLM_ROBERTA_CLASS) | {"post_processor": processor}
    with pytest.raises(
        ValueError, match=f"`post_processor`.*{message}|{message}"
    ):
        tokenizer_files.read(write(tmp_path / "a", contents))


def test_a_class_frames_as_transformers_does(tmp_path):
    contents = contents_of(XLM_ROBERTA_CLASS)
    contents["post_processor"] = BERT_PROCESSING
    folder = write(tmp_path / "a", contents, tokenizer_class=XLM_ROBERTA_CLASS)
    with pytest.raises(ValueError, match="2 SEP between, B in segment 0. Rec"):
        tokenizer_files.read(folder)


def test_names_and_frame_of_bert_are_read(tmp_path):
    contents = contents_of(ALBERT_CLASS)
    text = json.dumps(contents).replace("<pad>", "[PAD]")
    contents = json.loads(text.replace("<unk>", "[UNK]"))
    spec = check(tmp_path, contents)
    assert spec.vocabulary.special == SpecialTokens()
    written = tmp_path / "again"
    assert {path.name for path in written.iterdir()} == {
        "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip


@pytest.mark.parametrize(
    "change, message",
    [
        ({"split": False}, "split=False"),
        ({"prepend_scheme": "first"}, "prepend_scheme='first'"),
        ({"prepend_scheme": "never"}, "prepend_scheme='never'"),
        ({"replacement": "_"}, "replacement='_'"),
    ],
)
def test_another_metaspace_is_refused(tmp_path, change, message):
    contents = contents_of(XLM_ROBERTA_CLASS)
    contents["pre_tokenizer"] = SPACE | change
    with pytest.raises(ValueError, match=f"json: `pre_tokenizer`.*{message}"):
        tokenizer_files.read(write(tmp_path / "a", contents))


@pytest.mark.parametrize(
    "steps",
    [[STRIP, MARK], [JOIN], [LINE_ENDS], [STRIP_BOTH]],
)
def test_spaces_that_something_else_follows_are_refused(tmp_path, steps):
    contents = contents_of(XLM_ROBERTA_CLASS) | {"pre_tokenizer": SPACE}
    (table,) = contents["normalizer"]["normalizers"]
    contents["normalizer"] = sequence("normalizers", *steps, table)
    with pytest.raises(ValueError, match="json: `normalizer`: Strip must keep"):
        tokenizer_files.read(write(tmp_path / "a", contents))


@pytest.mark.parametrize(
    "name, settings, message",
    [
        (XLM_ROBERTA_CLASS, {"add_prefix_space": False}, "must be True"),
        (XLM_ROBERTA_CLASS, {"cls_token": "</s>"}, "`cls_token` must be '<s>'"),
        (XLM_ROBERTA_CLASS, {"bos_token": "</s>"}, "`bos_token` must be '<s>'"),
        (CAMEMBERT_CLASS, {"eos_token": "<s>"}, "`eos_token` must be '</s>'"),
        (
            "PreTrainedTokenizerFast",
            {"add_bos_token": True},
            "`add_bos_token` must not be",
        ),
        (ALBERT_CLASS, {"do_lower_case": False}, "`do_lower_case` must be T"),
    ],
)  # fmt: skip
def test_settings_of_another_tokenizer_are_refused(
    tmp_path, name, settings, message
):
    contents = contents_of(
        name if name != "PreTrainedTokenizerFast" else XLM_ROBERTA_CLASS
    )
    folder = write(tmp_path / "a", contents, tokenizer_class=name, **settings)
    with pytest.raises(ValueError, match=f"tokenizer_config.json: .*{message}"):
        tokenizer_files.read(folder)


def test_an_albert_that_does_not_say_its_case_is_lower_cased(tmp_path):
    # transformers takes its own default, whatever tokenizer.json folds.
    contents = contents_of(ALBERT_CLASS)
    contents["normalizer"]["normalizers"] = [
        step
        for step in contents["normalizer"]["normalizers"]
        if step["type"] != "Lowercase"
    ]
    assert not check(tmp_path, contents).do_lower_case
    folder = write(tmp_path / "a", contents, tokenizer_class=ALBERT_CLASS)
    with pytest.raises(ValueError, match="`do_lower_case` must be False"):
        tokenizer_files.read(folder)


def test_settings_that_mean_nothing_are_read(tmp_path):
    settings = {
        "tokenizer_class": "XLMRobertaTokenizerFast",
        "do_lower_case": True,
        "keep_accents": False,
        "remove_space": False,
        "sp_model_kwargs": {"enable_sampling": True},
        "legacy": False,
        "mask_token": {"content": "<mask>", "lstrip": True},
    }
    check(tmp_path, contents_of(XLM_ROBERTA_CLASS), **settings)


def test_camembert_s_ids_are_read_from_its_model_and_written(tmp_path):
    spec = make_spec(CAMEMBERT_CLASS)
    pieces, charsmap = sentencepiece_model.parse(spec.model)
    assert [piece.text for piece in pieces[:7]] == [
        "<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>",
        "</s>",
    ]  # fmt: skip
    released = Model((Piece("<unk>", 0.0), *pieces[5:-1]), charsmap)
    contents = sentencepiece_model.serialize(released)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(contents)
    (tmp_path / "config.json").write_text('{"model_type": "camembert"}')
    found = tokenizer_files.read(str(tmp_path))
    assert found.tokenizer_class == CAMEMBERT_CLASS
    assert found.vocabulary == spec.vocabulary
    ids = found.make().tokenize(encode(HARD)).merge_dims(1, 2)
    expected = spec.make().tokenize(encode(HARD)).merge_dims(1, 2)
    assert to_lists(ids) == to_lists(expected)
    vocabulary = found.vocabulary
    assert (vocabulary.cls_id, vocabulary.pad_id, vocabulary.sep_id) == (
        5,
        1,
        6,
    )
    assert (vocabulary.unk_id, vocabulary.mask_id) == (3, len(vocabulary) - 1)
    tokenizer_files.write(str(tmp_path / "again"), found)
    (tmp_path / "again/tokenizer.json").unlink()
    assert tokenizer_files.read(str(tmp_path / "again")) == found


def test_added_tokens_are_read_and_written(tmp_path):
    contents = contents_of(XLM_ROBERTA_CLASS)
    size = len(contents["model"]["vocab"])
    flags = {"lstrip": False, "rstrip": True, "normalized": True}
    flags |= {"single_word": False, "special": False}
    contents["added_tokens"] += [
        {"id": size, "content": "[E1]"} | flags,
        {"id": 30, "content": contents["model"]["vocab"][30][0]} | flags,
    ]
    spec = tokenizer_files.read(write(tmp_path / "a", contents))
    assert spec.vocabulary.tokens[size:] == ("[E1]",)
    # In the order of their ids.
    assert spec.added_tokens == (
        AddedToken(
            content=spec.vocabulary.tokens[30],
            rstrip=True,
            normalized=True,
            is_piece=True,
        ),
        AddedToken(content="[E1]", rstrip=True, normalized=True),
    )
    written = spec.tokenizer_json
    assert written["model"]["vocab"] == contents["model"]["vocab"]
    assert written["added_tokens"] == sorted(
        contents["added_tokens"], key=lambda token: token["id"]
    )
    # SentencePiece's file has none.
    (model,) = spec.vocabulary_files.values()
    pieces, _ = sentencepiece_model.parse(model)
    assert "[E1]" not in [piece.text for piece in pieces]
