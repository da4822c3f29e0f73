"""The contracts that every family keeps: a new one is a case in `peer`.

The golden file holds what transformers computes of tiny models whose every
parameter is random; `references/families.py` is what made it.
"""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints import variables
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import families as peer
from support import paths
from support.family_models import OWN_LAYERS
from support.family_models import load
from support.family_models import of_family
from support.family_models import our_outputs
from support.family_models import write_folder
from support.layer_checks import randomized

GOLDEN = json.loads((paths.GOLDEN / "families.json").read_text())["models"]
CLASSES = [(case, each) for case in peer.CASES for each in peer.classes(case)]
TOKENIZER = WordpieceSpec(Vocabulary(tokens=peer.TOKENS))
CONFIG = BertConfig(
    vocab_size=len(peer.TOKENS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=9,
)


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
    settings = json.loads((tmp_path / "b/tokenizer_config.json").read_text())
    has_segments = model.config.type_vocab_size > 1
    assert ("model_input_names" not in settings) == has_segments


def test_a_discriminator_s_folder_is_loaded_as_one(tmp_path):
    _, model = golden(tmp_path / "a", "electra", "ElectraForPreTraining")
    checkpoints.save(tmp_path / "b", model, TOKENIZER, 9)
    loaded, preprocessor, task = bert_tf.load(tmp_path / "b")
    assert isinstance(loaded, BertDiscriminator) and task is None
    logits = loaded(preprocessor(["the cat sat on the mat"]))
    assert logits.shape == (1, 9)
    card = (tmp_path / "b/README.md").read_text()
    assert (
        "pipeline_tag" not in card and "outputs = model(preprocessor(" in card
    )


# The exact counts of transformers' models.
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
        ("mpnet-base", parts.POOLER, 109_486_464),
        ("mpnet-base", parts.MASKED_LM, 109_518_527),
        ("roberta-base", parts.POOLER, 124_645_632),
        ("roberta-base", parts.MASKED_LM, 124_697_433),
        ("roberta-large", parts.POOLER, 355_359_744),
        ("albert-base", parts.POOLER, 11_683_584),
        ("albert-large", parts.POOLER, 17_683_968),
        ("albert-xlarge", parts.POOLER, 58_724_864),
        ("albert-xxlarge", parts.POOLER, 222_595_584),
        ("modernbert-base", parts.POOLER, 149_014_272),
        ("modernbert-base", parts.MASKED_LM, 149_655_232),
        ("modernbert-large", parts.POOLER, 394_781_696),
        ("modernbert-large", parts.MASKED_LM, 395_881_664),
        ("ettin-17m", parts.POOLER, 16_797_440),
        ("ettin-17m", parts.MASKED_LM, 16_913_600),
        ("ettin-32m", parts.POOLER, 31_883_136),
        ("ettin-32m", parts.MASKED_LM, 32_081_344),
        ("ettin-68m", parts.POOLER, 68_144_640),
        ("ettin-68m", parts.MASKED_LM, 68_457_664),
        ("ettin-150m", parts.MASKED_LM, 149_655_232),
        ("ettin-400m", parts.MASKED_LM, 395_881_664),
        ("ettin-1b", parts.POOLER, 1_028_050_688),
        ("ettin-1b", parts.MASKED_LM, 1_031_314_112),
    ],
)
def test_published_models_have_as_many_parameters(name, head, expected):
    config = BertConfig.named(name)
    family = families.of_config(config)
    its_parts = {parts.ENCODER, head}
    if head == parts.MASKED_LM:
        its_parts.add(parts.TRANSFORM)
    table = family.table(config, its_parts)
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


@pytest.mark.parametrize(
    "case, file_format",
    [
        *(
            (case, "hugging_face")
            for case in (*OWN_LAYERS, "bert")
            # Which has no table of positions.
            if case != "modernbert"
        ),
        ("bert", "google"),
    ],
)
def test_positions_grow_in_a_conversion_and_nothing_else(
    case, file_format, tmp_path
):
    architecture = peer.classes(case)[0]
    shapes = GOLDEN[case][architecture]["shapes"]
    source = write_folder(tmp_path / "source", case, architecture, shapes)

    def converted(source, name, file_format=file_format, **options):
        folder = str(tmp_path / name)
        checkpoints.convert(
            source, folder, file_format, hidden_act="gelu_new", **options
        )
        return checkpoints.load(folder, BertEncoder), folder

    plain, _ = converted(source, "plain")
    grown, folder = converted(source, "grown", max_position_embeddings=20)
    again, _ = converted(folder, "again", "bert_tf")
    config = dataclasses.replace(plain.config, max_position_embeddings=20)
    assert grown.config == again.config == config
    first = config.first_position
    table = np.array(plain.embeddings.position_embeddings)
    assert len(table) == first + 9
    for old, new, same in zip(
        plain.weights, grown.weights, again.weights, strict=True
    ):
        old = np.array(old)
        if new is grown.embeddings.position_embeddings:
            rows = [table, table[first:], table[first : first + 2]]
            old = np.concatenate(rows)
        np.testing.assert_array_equal(new, old)
        np.testing.assert_array_equal(same, old)
    # Of what the model could take, the vectors are the same to the bit; at
    # positions behind the seam, too.
    ids = 5 + np.arange(9, dtype="int32")[None]
    inputs = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }
    wanted = np.array(plain(inputs)["sequence_output"])
    np.testing.assert_array_equal(grown(inputs)["sequence_output"], wanted)
    later = inputs | {"position_ids": 9 + np.arange(9, dtype="int32")[None]}
    np.testing.assert_array_equal(grown(later)["sequence_output"], wanted)
    with pytest.raises(ValueError, match="at least the checkpoint's 20"):
        converted(folder, "cut", max_position_embeddings=9)
    assert not (tmp_path / "cut").exists()


# What older folders hold beside the weights.
@pytest.mark.parametrize("case", OWN_LAYERS)
def test_tied_weights_and_buffers_are_no_others(case, tmp_path):
    (architecture,) = [
        each for each in peer.classes(case) if each.endswith("ForMaskedLM")
    ]
    stored = GOLDEN[case][architecture]
    folder = write_folder(tmp_path, case, architecture, stored["shapes"])
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    family = families.of_type(peer.CASES[case][0])
    for copy, original in family.tied.items():
        tensors[copy] = tensors[original]
    buffers = {
        f"{case}.{name}": np.arange(9)[None] for name in family.buffers[:1]
    }
    safetensors.numpy.save_file(tensors | buffers, path)
    model = load(folder, architecture)
    report = model.coverage_report
    assert {*report.names("left over")} == {*buffers, *family.tied}
    (copy, *_) = family.tied
    safetensors.numpy.save_file(tensors | {copy: tensors[copy] + 1}, path)
    with pytest.raises(
        ValueError, match=f"{copy} .*must equal .*untied decoder"
    ):
        load(folder, architecture)
    # safetensors' `save_model` keeps the first name of a tensor, whichever.
    for original in family.tied.values():
        del tensors[original]
    safetensors.numpy.save_file(tensors, path)
    other = load(folder, architecture)
    assert other.coverage_report.names("left over") == ()
    loaded = other.coverage_report.names("loaded")
    assert len(loaded) == len(report.names("loaded"))
    for found, wanted in zip(other.weights, model.weights, strict=True):
        if found.path in loaded:
            np.testing.assert_array_equal(found, wanted)


def test_padding_is_the_tokenizer_s(tmp_path):
    _, model = golden(tmp_path / "a", "roberta", "RobertaModel")
    tokens = ("[PAD]", "[CLS]", *peer.TOKENS[2:])
    other = WordpieceSpec(Vocabulary(tokens=tokens))
    message = "must be the model's padding_idx=1. Received: pad_id=0"
    with pytest.raises(ValueError, match=message):
        checkpoints.save(tmp_path / "b", model, other, 9)
    with pytest.raises(ValueError, match=message):
        StartingPoint(
            init_checkpoint=None, config=model.config, tokenizer=other
        )
    (tmp_path / "a/vocab.txt").write_text("\n".join(tokens))
    with pytest.raises(ValueError, match=f"a/vocab.txt: .*{message}"):
        checkpoints.load(tmp_path / "a", BertEncoder)


def test_sizes_of_other_families_fit_the_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(peer.TOKENS))
    start = starting_point.find(
        bert_config_file="roberta-base", vocab_file=tmp_path / "vocab.txt"
    )
    assert start.config.vocab_size == len(peer.TOKENS)
    assert start.config.padding_idx == peer.PAD_ID
    # What transformers' class does not have is not trained either.
    start = starting_point.find(
        bert_config_file="albert-base", vocab_file=tmp_path / "vocab.txt"
    )
    decoder = dataclasses.replace(start.config, is_decoder=True)
    with pytest.raises(ValueError, match="`is_decoder` must be False.*albert"):
        dataclasses.replace(start, config=decoder)


def config_of(model_type):
    config = of_family(CONFIG, model_type)
    if config.padding_idx is None:
        return config
    pad_id = TOKENIZER.vocabulary.pad_id
    return dataclasses.replace(config, padding_idx=pad_id)


@pytest.mark.parametrize("model_type", ["bert", *OWN_LAYERS])
def test_the_dropout_of_choices_is_kept(model_type, tmp_path):
    config = config_of(model_type)
    model = BertMultipleChoice(config, dropout=0.35)
    checkpoints.save(tmp_path / "a", model, TOKENIZER, 9)
    checkpoints.convert(tmp_path / "a", tmp_path / "b", "hugging_face")
    for name in "ab":
        again = checkpoints.load(tmp_path / name, BertMultipleChoice)
        assert again.dropout == 0.35


@pytest.mark.parametrize("model_type", ["bert", *OWN_LAYERS])
def test_a_tagger_s_labels_are_counted_without_its_class(model_type, tmp_path):
    config = config_of(model_type)
    model = BertTokenClassifier(config, num_labels=5)
    checkpoints.save(tmp_path, model, TOKENIZER, 9)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["architectures"]
    path.write_text(json.dumps(values))
    again = checkpoints.load(tmp_path, BertTokenClassifier)
    assert again.num_labels == 5
    # Nothing is new but a pooler, which it does not use.
    new = again.coverage_report.names("new")
    assert all("/pooler/" in name for name in new)


def test_heads_have_the_dropouts_of_their_family():
    def make(model_class, name, **kwargs):
        config = families.parse_config(values[name])
        return model_class(config, **kwargs)

    values = {
        name: peer.config_values(name, "Model")
        for name in ("bert", "distilbert", "roberta")
    }
    # transformers' defaults.
    for key in ("qa_dropout", "seq_classif_dropout"):
        del values["distilbert"][key]
    distilbert = make(BertClassifier, "distilbert")
    assert distilbert.dropout == 0.2
    assert distilbert.hidden_layer.input_dropout.rate == 0
    assert make(BertMultipleChoice, "distilbert").dropout == 0.2
    spans = make(BertSpanPredictor, "distilbert")
    assert spans.span_head.input_dropout.rate == 0.1
    assert make(BertSpanPredictor, "bert").span_head.input_dropout.rate == 0
    roberta = make(BertClassifier, "roberta", dropout=0.3)
    assert roberta.hidden_layer.input_dropout.rate == 0.3
    assert roberta.classification_head.input_dropout.rate == 0.3
    # Its pooler serves for it.
    assert make(BertMultipleChoice, "roberta").hidden_layer is None
    assert make(BertClassifier, "bert").hidden_layer is None


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


# {pattern of Hugging Face's names: what Google's TF1 releases have}.
ALBERT_TF1 = {
    r"^albert\.": "bert.",
    r"\.albert_layer_groups\.(\d)\.albert_layers\.0\.": (
        r".transformer.group_\1.inner_group_0."
    ),
    r"attention\.(query|key|value)\b": r"attention_1.self.\1",
    r"attention\.dense\b": "attention_1.output.dense",
    r"attention\.LayerNorm": "LayerNorm",
    r"\bffn\.": "ffn_1.intermediate.dense.",
    r"ffn_output": "ffn_1.intermediate.output.dense",
    r"full_layer_layer_norm": "LayerNorm_1",
    r"pooler\.": "pooler.dense.",
    r"^predictions\.bias": "cls.predictions.output_bias",
    r"^predictions\.": "cls.predictions.transform.",
    r"sop_classifier\.classifier\.weight": (
        "cls.seq_relationship.output_weights"
    ),
    r"sop_classifier\.classifier\.bias": "cls.seq_relationship.output_bias",
}
ELECTRA_TF1 = {
    r"\.layer\.(\d)": r".layer_\1",
    r"dense_prediction": "dense_1",
}


def write_tf1(path, architecture, patterns, **others):
    """Writes transformers' values as Google's releases have them."""
    case = architecture.split("For")[0].lower()
    arrays = {}
    stored = peer.tensors(GOLDEN[case][architecture]["shapes"])
    for name, array in stored.items():
        for pattern, replacement in patterns.items():
            name = re.sub(pattern, replacement, name)
        if re.search(r"_embeddings\.weight$", name):
            name = name.removesuffix(".weight")
        elif re.search(r"LayerNorm(_1)?\.(weight|bias)$", name):
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        elif name.endswith(".weight"):
            name, array = name.replace(".weight", ".kernel"), array.T
        arrays[name.replace(".", "/")] = array
    path.mkdir()
    tf1_checkpoint.write(f"{path}/model.ckpt-best", arrays | others)


def test_google_s_albert_is_read(tmp_path):
    architecture = "AlbertForPreTraining"
    write_tf1(tmp_path / "a", architecture, ALBERT_TF1)
    values = peer.config_values("albert", architecture)
    for key in ("model_type", "architectures", "pad_token_id"):
        del values[key]
    # What Google calls gelu is the tanh form.
    values |= {"hidden_act": "gelu", "net_structure_type": 0, "gap_size": 0}
    (tmp_path / "a/albert_config.json").write_text(json.dumps(values))
    model = checkpoints.load(tmp_path / "a", BertPretrainer)
    assert model.config.hidden_act == "gelu_new"
    for status in ("new", "left over"):
        assert model.coverage_report.names(status) == ()
    expected = GOLDEN["albert"][architecture]["outputs"]
    for name, output in our_outputs(model, architecture).items():
        np.testing.assert_allclose(
            peer.golden_slice(output), expected[name], atol=1e-5
        )
    with pytest.raises(ValueError, match="in Google's format.*albert"):
        (tmp_path / "a/vocab.txt").write_text("\n".join(peer.TOKENS))
        checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")


def test_google_s_electra_is_read(tmp_path):
    architecture = "ElectraForPreTraining"
    ours = {
        "generator/encoder/layer_0/output/dense/bias": np.zeros(4, "float32"),
        "generator_predictions/output_bias": np.zeros(19, "float32"),
    }
    write_tf1(tmp_path / "a", architecture, ELECTRA_TF1, **ours)
    # A release has no file of its sizes; a head is 64 wide.
    model = checkpoints.load(tmp_path / "a", BertDiscriminator)
    values = peer.config_values("electra", architecture)
    config = dataclasses.replace(
        families.parse_config(values), num_attention_heads=1
    )
    assert model.config == dataclasses.replace(
        config, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
    )
    report = model.coverage_report
    assert report.names("new") == ()
    assert {*report.names("left over")} == {*ours}
    assert "of the generator" in str(report)
    # Its other heads are new: Google's files have none.
    classifier = checkpoints.load(tmp_path / "a", BertClassifier)
    new = classifier.coverage_report.names("new")
    assert len(new) == 4 and all("/classifier" in name for name in new)

    (tmp_path / "a/config.json").write_text(json.dumps(values))
    model = checkpoints.load(tmp_path / "a", BertDiscriminator)
    expected = GOLDEN["electra"][architecture]["outputs"]["logits"]
    found = our_outputs(model, architecture)["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


MODERN = {"model_type": "modernbert", "vocab_size": 30, "num_hidden_layers": 7}


def test_both_spellings_of_modernbert_s_configuration_are_read():
    older = MODERN | {
        "global_attn_every_n_layers": 4,
        "global_rope_theta": 500.0,
        "local_rope_theta": 70.0,
        "local_attention": 20,
    }
    types = ["sliding_attention"] * 7
    types[0] = types[4] = "full_attention"
    newer = MODERN | {
        "layer_types": types,
        "local_attention": 20,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_theta": 70.0},
        },
    }
    config = families.parse_config(older)
    assert config == families.parse_config(newer)
    assert config == families.parse_config(families.write_config(config))
    assert config.attention_window == 10
    assert [config.is_local(layer) for layer in range(7)] == [
        each == "sliding_attention" for each in types
    ]
    # Windows without a base of their own have the other one.
    one = families.parse_config(older | {"local_rope_theta": None})
    assert one == dataclasses.replace(config, local_rotary_theta=None)
    plain = families.parse_config(MODERN)
    assert plain.local_rotary_theta == 10000 and plain.attention_window == 64
    assert plain.full_attention_every == 3


@pytest.mark.parametrize(
    "values, message",
    [
        ({"norm_bias": True}, "`norm_bias` must be False"),
        (
            {"layer_types": ["sliding_attention"] * 7},
            "`layer_types` must be 'full_attention' in every so many",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "must have the rope_type 'default'. Received: .*yarn",
        ),
        ({"local_attention": 1}, "`attention_window` must be a positive"),
        ({"classifier_pooling": "max"}, "must be one of cls, mean"),
    ],
)
def test_what_modernbert_does_not_compute_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        families.parse_config(MODERN | values)


def test_the_dropout_of_modernbert_s_pretraining_is_kept():
    config = families.parse_config(MODERN | {"attention_dropout": 0.2})
    assert config.hidden_dropout_prob == 0.2
    config = dataclasses.replace(
        families.parse_config(MODERN), hidden_dropout_prob=0.1
    )
    values = families.write_config(config)
    assert values["attention_dropout"] == 0.0
    assert families.parse_config(values) == config


def test_a_new_head_of_modernbert_begins_with_the_trained_layer(tmp_path):
    _, model = golden(tmp_path, "modernbert", "ModernBertForMaskedLM")
    head = model.masked_lm_head
    for model_class in (
        BertClassifier,
        BertMultipleChoice,
        BertSpanPredictor,
        lambda config: BertTokenClassifier(config, 3),
    ):
        new = model_class(model.config)
        checkpoints.load_weights(tmp_path, new)
        for name in ("transform", "layer_norm"):
            for found, wanted in zip(
                getattr(new.hidden_layer, name).weights,
                getattr(head, name).weights,
                strict=True,
            ):
                np.testing.assert_array_equal(found, wanted)
