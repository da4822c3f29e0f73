"""BertConfig: released files load by their meaning, mistakes are named."""

import dataclasses
import json

import pytest

from bert_tf.config import SIZES
from bert_tf.config import BertConfig

# google-research/bert's bert_config.json of BERT-Base, Chinese, as released.
GOOGLE_CHINESE = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 21128,
}


def test_google_s_gelu_is_the_tanh_form():
    config = BertConfig.from_dict(GOOGLE_CHINESE)
    assert config == BertConfig(vocab_size=21128)
    assert config.hidden_act == "gelu_new"


def test_hugging_face_s_gelu_is_the_erf_form():
    values = {"model_type": "bert", "vocab_size": 99, "hidden_act": "gelu"}
    assert BertConfig.from_dict(values).hidden_act == "gelu"
    values = {"architectures": ["BertModel"], "vocab_size": 99}
    assert BertConfig.from_dict(values).hidden_act == "gelu"


def test_missing_segments_are_as_many_as_the_original_has():
    assert BertConfig.from_dict({"vocab_size": 9}).type_vocab_size == 16
    values = {"model_type": "bert", "vocab_size": 9}
    assert BertConfig.from_dict(values).type_vocab_size == 2


def test_json_round_trip(tmp_path):
    config = BertConfig.named("mini", hidden_act="gelu", layer_norm_eps=1e-6)
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert BertConfig.from_json(path) == config
    assert json.loads(path.read_text())["model_type"] == "bert"


def test_left_to_right_is_told_in_hugging_face_s_word():
    config = BertConfig.named("tiny", is_decoder=True)
    assert config.to_dict()["is_decoder"] is True
    assert BertConfig.from_dict(config.to_dict()) == config
    assert "is_decoder" not in BertConfig.named("tiny").to_dict()


def test_published_sizes():
    assert len({shape for shape in SIZES.values() if shape[0] <= 12}) == 24
    large = BertConfig.named("large")
    assert dataclasses.astuple(large)[:5] == (30522, 1024, 24, 16, 4096)
    tiny = BertConfig.named("tiny", vocab_size=7)
    assert dataclasses.astuple(tiny)[:5] == (7, 128, 2, 2, 512)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"vocab_sise": 9}, "Unknown keys.*vocab_sise"),
        ({"hidden_size": 8}, "no `vocab_size`"),
        ({"vocab_size": 9, "hidden_size": 10}, "hidden_size=10"),
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"vocab_size": True}, "vocab_size=True"),
        ({"vocab_size": "9"}, "vocab_size='9'"),
        ({"vocab_size": 9, "hidden_act": "swish"}, "hidden_act='swish'"),
        ({"vocab_size": 9, "hidden_dropout_prob": 1.0}, "prob=1.0"),
        ({"vocab_size": 9, "initializer_range": 0}, "initializer_range=0"),
        ({"vocab_size": 9, "model_type": "roberta"}, "model_type='roberta'"),
        (
            {"vocab_size": 9, "position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key'",
        ),
        ({"vocab_size": 9, "is_decoder": 1}, "True or False.*is_decoder=1"),
        ([], "JSON object. Received: list"),
    ],
)
def test_wrong_values_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        BertConfig.from_dict(values)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text('{"vocab_size": 9, "hiden_size": 8}')
    with pytest.raises(ValueError, match="bert_config.json: Unknown keys"):
        BertConfig.from_json(path)
    path.write_text('{"vocab_size": 9,')
    with pytest.raises(ValueError, match="bert_config.json: not JSON"):
        BertConfig.from_json(path)
    with pytest.raises(ValueError, match="There is no file .*absent.json"):
        BertConfig.from_json(tmp_path / "absent.json")


def test_unknown_size_is_named():
    with pytest.raises(ValueError, match="name='huge'"):
        BertConfig.named("huge")
