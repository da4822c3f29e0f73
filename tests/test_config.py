"""BertConfig: published sizes, and mistakes are named."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import families
from bert_tf.config import BertConfig
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.sizes import SIZES


def test_the_dictionary_makes_the_configuration_again():
    config = BertConfig.named("tiny", is_decoder=True)
    assert config.to_dict()["is_decoder"] is True
    assert BertConfig(**config.to_dict()) == config
    assert "is_decoder" not in BertConfig.named("tiny").to_dict()


def test_published_sizes():
    assert len({shape for shape in SIZES.values() if shape[0] <= 12}) == 24
    large = BertConfig.named("large")
    assert dataclasses.astuple(large)[1:6] == (30522, 1024, 24, 16, 4096)
    tiny = BertConfig.named("tiny", vocab_size=7)
    assert dataclasses.astuple(tiny)[1:6] == (7, 128, 2, 2, 512)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("tiny", 4096), ("albert-base", 4096)] + [("roberta-base", 4098)],
)
def test_positions_of_a_size_are_those_of_a_text(name, rows):
    config = BertConfig.named(
        name,
        vocab_size=9,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=4096,
    )
    config.check_length(4096)
    # RoBERTa's first position has the third row, here and in its files.
    embeddings = BertEmbeddings(config)
    embeddings.build()
    assert embeddings.position_embeddings.shape[0] == rows
    values = families.write_config(config)
    assert values["max_position_embeddings"] == rows
    assert families.parse_config(values) == config
    ids = np.full((1, 4096), 5, "int32")
    assert embeddings(ids, np.zeros_like(ids)).shape[1] == 4096
    with pytest.raises(ValueError, match="length=4097"):
        embeddings(np.full((1, 4097), 5, "int32"), np.zeros((1, 4097), "int32"))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"vocab_size": 9, "hidden_size": 10}, "hidden_size=10"),
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"vocab_size": True}, "vocab_size=True"),
        ({"vocab_size": "9"}, "vocab_size='9'"),
        ({"vocab_size": 9, "hidden_act": "swish"}, "hidden_act='swish'"),
        ({"vocab_size": 9, "hidden_dropout_prob": 1.0}, "prob=1.0"),
        ({"vocab_size": 9, "initializer_range": 0}, "initializer_range=0"),
        ({"vocab_size": 9, "model_type": 1}, "a name.*model_type=1"),
        ({"vocab_size": 9, "is_decoder": 1}, "True or False.*is_decoder=1"),
    ],
)
def test_wrong_values_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**values)


def test_unknown_size_is_named():
    with pytest.raises(ValueError, match="name='huge'"):
        BertConfig.named("huge")


def test_sequences_that_are_too_long_are_named():
    config = BertConfig.named("tiny", vocab_size=9, max_position_embeddings=7)
    config.check_length(7)
    message = "max_position_embeddings=7. Received: max_seq_length=8."
    with pytest.raises(ValueError, match=message):
        config.check_length(8)
