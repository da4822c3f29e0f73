"""MPNet's tokenizer: BERT's entries behind four others, in RoBERTa's frame."""

import json

import pytest
import tensorflow as tf
import tokenizers

from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.added_tokens import ALL
from bert_tf.text.vocabulary import MPNET
from references import auto_tokenizer as peer
from support import peers

PIECES = (
    *("the", "cat", "sat", "on", "a", "mat", "##s", "##ed", ",", ".", "e"),
    *("<", ">", "mask", "/", "s", "unk", "[", "]"),
)
TOKENS = (
    *("<s>", "<pad>", "</s>", "<unk>"),
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES),
    "<mask>",
)
TEXTS = [
    "The cat sat on a mat.",
    "the <mask> sat,  <mask>. <mask>",
    "a<mask>cats \t<mask>\n",
    "zebra </s> [SEP] [UNK] <unk> Éé",
    "",
]


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    settings = {"tokenizer_class": "MPNetTokenizer", "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer_files.read(str(tmp_path))


def rows_of(spec, texts):
    inputs = Preprocessor(spec, 32)(texts)
    return [
        ids[mask == 1].tolist()
        for ids, mask in zip(
            inputs["input_ids"].numpy(),
            inputs["input_mask"].numpy(),
            strict=True,
        )
    ]


def test_special_tokens_and_frame(spec):
    assert spec.vocabulary.special == MPNET
    assert spec.vocabulary.unk_id == TOKENS.index("[UNK]")
    ids = spec.vocabulary.index
    cls, sep, mat = ids("<s>"), ids("</s>"), ids("mat")
    pair = (tf.constant(["mat"]), tf.constant(["mat"]))
    assert rows_of(spec, pair) == [[cls, mat, sep, sep, mat, sep]]
    inputs = Preprocessor(spec, 8)(pair)
    assert not inputs["segment_ids"].numpy().any()
    assert inputs["input_ids"].numpy()[0, -1] == ids("<pad>")


@pytest.mark.parametrize("left_out", [None, "vocab.txt", "tokenizer.json"])
def test_folders_are_written_and_read_again(spec, tmp_path, left_out):
    folder = tmp_path / "again"
    tokenizer_files.write(str(folder), spec)
    if left_out:
        (folder / left_out).unlink()
    assert tokenizer_files.read(str(folder)) == spec
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "MPNetTokenizer"
    assert settings["unk_token"] == "[UNK]"
    assert "token_type_ids" not in settings["model_input_names"]


def test_ids_are_those_of_tokenizers(spec):
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    finds_all = tokenizer_files.with_tokens_in_text(spec, ALL)
    expected = [row.ids for row in theirs.encode_batch(TEXTS)]
    assert rows_of(finds_all, tf.constant(TEXTS)) == expected
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    expected = [row.ids for row in theirs.encode_batch(pairs)]
    assert rows_of(finds_all, tuple(map(tf.constant, zip(*pairs)))) == expected


def test_another_class_s_vocabulary_is_refused(spec, tmp_path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    message = "`tokenizer_class` must be MPNetTokenizer.*BertTokenizer"
    with pytest.raises(ValueError, match=message):
        tokenizer_files.read(str(tmp_path))


@pytest.mark.peers
@pytest.mark.parametrize("left_out", [None, "tokenizer.json"])
def test_transformers_reads_our_folders(spec, tmp_path, left_out):
    folder = tmp_path / "folder"
    tokenizer_files.write(str(folder), spec)
    if left_out:
        (folder / left_out).unlink()
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(TEXTS))
    found = json.loads(peers.run(peer.__file__, folder, path))
    assert found["class"] == "MPNetTokenizer"
    finds_all = tokenizer_files.with_tokens_in_text(spec, ALL)
    assert rows_of(finds_all, tf.constant(TEXTS)) == found["ids"]
