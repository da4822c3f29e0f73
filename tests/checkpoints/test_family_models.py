"""The contracts that every family keeps: a new one is a case in `peer`.

The golden file holds what transformers computes of tiny models whose every
parameter is random; `references/families.py` is what made it.
"""

import dataclasses
import json
import math

import numpy as np
import pytest
import safetensors.numpy

from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import variables
from bert_tf.config import BertConfig
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import families as peer
from support import paths
from support.family_models import load
from support.family_models import our_outputs
from support.family_models import write_folder
from support.layer_checks import randomized

GOLDEN = json.loads((paths.GOLDEN / "families.json").read_text())["models"]
CLASSES = [(case, each) for case in peer.CASES for each in peer.classes(case)]
TOKENIZER = WordpieceSpec(Vocabulary(tokens=peer.TOKENS))


def golden(tmp_path, case, architecture):
    """Returns transformers' outputs, and our model of the same folder."""
    stored = GOLDEN[case][architecture]
    folder = write_folder(tmp_path, case, architecture, stored["shapes"])
    return stored["outputs"], load(folder, architecture)


@pytest.mark.parametrize("case, architecture", CLASSES)
def test_transformers_computes_and_stores_the_same(
    case, architecture, tmp_path
):
    outputs, model = golden(tmp_path / "a", case, architecture)
    new = model.coverage_report.names("new")
    # Of BERT's masked-LM class our pretrainer has more: both are new.
    unused = ("/pooler/", "/next_sentence/")
    assert [name for name in new if not any(x in name for x in unused)] == []
    assert model.coverage_report.names("left over") == ()
    ours = our_outputs(model, architecture)
    assert ours.keys() == outputs.keys() - {"loss"}
    for name, output in ours.items():
        np.testing.assert_allclose(
            peer.golden_slice(output), outputs[name], atol=1e-5, err_msg=name
        )

    if any("/next_sentence/" in name for name in new):
        # It is stored as that of pre-training, another case here.
        return
    checkpoints.save(tmp_path / "b", model, TOKENIZER, 9)
    old, saved = (
        safetensors.numpy.load_file(tmp_path / name / "model.safetensors")
        for name in "ab"
    )
    assert old.keys() == saved.keys()
    for name, array in old.items():
        np.testing.assert_array_equal(array, saved[name], err_msg=name)
    values = json.loads((tmp_path / "b/config.json").read_text())
    for key, value in peer.config_values(case, architecture).items():
        if key not in ("id2label", "label2id"):
            assert values[key] == value, key
    assert families.parse_config(values) == model.config


# family.md, section 2, and the exact counts of transformers' models.
@pytest.mark.parametrize(
    "name, head, expected",
    [
        ("tinybert-4L", parts.POOLER, 14_350_248),
        ("tinybert-6L", parts.POOLER, 66_955_008),
        ("spanbert-base", parts.POOLER, 108_310_272),
        ("spanbert-large", parts.POOLER, 333_579_264),
        ("distilbert-base-uncased", parts.POOLER, 66_362_880),
        ("distilbert-base-uncased", parts.MASKED_LM, 66_985_530),
        ("distilbert-base-cased", parts.POOLER, 65_190_912),
        ("distilbert-base-multilingual", parts.POOLER, 134_734_080),
        ("distilroberta-base", parts.POOLER, 82_118_400),
        ("electra-small", parts.POOLER, 13_483_008),
        ("electra-small", parts.DISCRIMINATOR, 13_549_057),
        ("electra-base", parts.POOLER, 108_891_648),
        ("electra-large", parts.POOLER, 334_092_288),
        ("electra-small-generator", parts.MASKED_LM, 4_620_026),
        ("electra-base-generator", parts.MASKED_LM, 33_740_602),
        ("electra-large-generator", parts.MASKED_LM, 51_295_290),
        ("roberta-base", parts.POOLER, 124_645_632),
        ("roberta-base", parts.MASKED_LM, 124_697_433),
        ("roberta-large", parts.POOLER, 355_359_744),
        ("albert-base", parts.POOLER, 11_683_584),
        ("albert-large", parts.POOLER, 17_683_968),
        ("albert-xlarge", parts.POOLER, 58_724_864),
        ("albert-xxlarge", parts.POOLER, 222_595_584),
    ],
)
def test_published_models_have_as_many_parameters(name, head, expected):
    config = BertConfig.named(name)
    family = families.of_config(config)
    table = family.table(config, (parts.ENCODER, head))
    assert sum(math.prod(tensor.shape) for tensor in table) == expected
    assert families.parse_config(families.write_config(config)) == config


@pytest.mark.parametrize("case", peer.CASES)
def test_table_is_of_the_variables_that_there_are(case):
    architecture = peer.classes(case)[0]
    config = families.parse_config(peer.config_values(case, architecture))
    matched = variables.match(BertEncoder(config))
    for tensor, variable in matched.items():
        assert tensor.shape == tuple(variable.shape), tensor.keras
    wanted = families.of_config(config).table(
        config, (parts.ENCODER, parts.POOLER)
    )
    assert tuple(matched) == wanted


@pytest.mark.parametrize(
    "name, overrides, message",
    [
        ("bert", {"padding_idx": 1}, "`padding_idx` must be None.* bert"),
        ("bert", {"has_pooler": False}, "`has_pooler` must be True.* bert"),
        ("distilbert", {"is_decoder": True}, "`is_decoder` must be False"),
        ("distilbert", {"type_vocab_size": 2}, "`type_vocab_size` must be 0"),
        ("electra", {"layer_norm_eps": 1e-5}, ""),
        ("roberta", {"padding_idx": None}, "`pad_token_id` must have"),
        (
            "albert",
            {"embedding_size": None},
            "`embedding_size` must have",
        ),
    ],
)
def test_what_a_family_cannot_say_is_not_saved(name, overrides, message):
    architecture = peer.classes(name)[0]
    config = families.parse_config(peer.config_values(name, architecture))
    config = dataclasses.replace(config, **overrides)
    if not message:
        assert families.parse_config(families.write_config(config)) == config
        return
    with pytest.raises(ValueError, match=message):
        families.write_config(config)


def test_padding_in_front_moves_no_token_of_roberta():
    config = families.parse_config(
        peer.config_values("roberta", "RobertaModel")
    )
    model = randomized(BertEncoder(config))
    text = np.array([[0, 9, 12, 2]], "int32")
    ones, zeros = np.ones_like(text), np.zeros_like(text)
    whole = {"input_ids": text, "input_mask": ones, "segment_ids": zeros}
    expected = model(whole)["sequence_output"]
    for before, after in ((3, 0), (0, 3), (2, 1)):
        padded = {
            name: np.pad(
                ids,
                ((0, 0), (before, after)),
                constant_values=peer.PAD_ID if name == "input_ids" else 0,
            )
            for name, ids in whole.items()
        }
        # What is told of segments is of no account.
        padded["segment_ids"] += 1
        found = model(padded)["sequence_output"][:, before : before + 4]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    # Those of a row that holds several sequences count from 0 in each.
    packed = whole | {"position_ids": np.arange(4, dtype="int32")[None]}
    np.testing.assert_allclose(
        model(packed)["sequence_output"], expected, atol=1e-5
    )


def test_positions_of_roberta_are_repeated_from_its_first(tmp_path):
    _, model = golden(tmp_path, "roberta", "RobertaModel")
    longer = checkpoints.load(tmp_path, BertEncoder, max_position_embeddings=20)
    old, new = (
        np.array(each.embeddings.position_embeddings)
        for each in (model, longer)
    )
    assert old.shape[0] == 11 and new.shape[0] == 22
    np.testing.assert_array_equal(new[:11], old)
    np.testing.assert_array_equal(new[11:20], old[2:])
    np.testing.assert_array_equal(new[20:], old[2:4])


def test_albert_applies_each_of_its_blocks_several_times(tmp_path):
    _, model = golden(tmp_path, "albert_groups", "AlbertModel")
    assert len(model.blocks) == 2
    outputs = model(peer.inputs_of("AlbertModel"))
    assert len(outputs["encoder_outputs"]) == 5


@pytest.mark.parametrize(
    "architectures, message",
    [
        (
            ["RobertaForMaskedLM"],
            "config.json: `architectures` must be of the family distilbert: "
            "one of DistilBertModel, .*RobertaForMaskedLM",
        ),
        (["SomebodysDistilBert"], None),
    ],
)
def test_a_head_of_another_family_is_refused(tmp_path, architectures, message):
    case = "DistilBertModel"
    folder = write_folder(
        tmp_path, "distilbert", case, GOLDEN["distilbert"][case]["shapes"]
    )
    values = peer.config_values("distilbert", case)
    (tmp_path / "config.json").write_text(
        json.dumps(values | {"architectures": architectures})
    )
    if message is None:
        checkpoints.load(folder, BertEncoder)
        return
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder, BertEncoder)


def test_a_head_that_the_family_does_not_have_is_refused(tmp_path):
    folder = write_folder(
        tmp_path, "bert", "BertModel", GOLDEN["bert"]["BertModel"]["shapes"]
    )
    with pytest.raises(ValueError, match="discriminator.* family bert"):
        checkpoints.load(folder, BertDiscriminator)
