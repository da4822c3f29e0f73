"""Checkpoints against transformers itself, in an environment of its own.

    python -m pytest -m peers tests/checkpoints/test_peers.py

makes .venv-peers with torch, transformers and the weights of all-MiniLM-L6-v2
when there is none; BERT_TF_PEERS_PYTHON names the Python of another.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import model_folder
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import checkpoints as peer
from support import peers

pytestmark = pytest.mark.peers

TEXTS = (
    "The cat sat on the mat.",
    "A DOG, the cats; sat-ed on?",
    "",
    "Café e 日本 the\tmat",
)
MODELS = {
    "BertModel": BertEncoder,
    "BertForPreTraining": BertPretrainer,
    "BertForMaskedLM": lambda config: BertPretrainer(
        config, has_next_sentence_head=False
    ),
    "BertForSequenceClassification": lambda config, **kwargs: BertClassifier(
        config, num_labels=4, **kwargs
    ),
    "BertForTokenClassification": lambda config, **kwargs: BertTokenClassifier(
        config, num_labels=4, **kwargs
    ),
    "BertForQuestionAnswering": BertSpanPredictor,
    "BertForMultipleChoice": BertMultipleChoice,
}
INPUTS = {name: np.array(ids, "int32") for name, ids in peer.INPUTS.items()}
PRETRAINER_INPUTS = INPUTS | {
    "masked_lm_positions": np.tile(np.arange(7, dtype="int32"), (3, 1))
}


def ask(*arguments):
    """Runs tests/reference_checkpoints.py there; returns what it prints."""
    return peers.run(peer.__file__, *arguments)


def peer_outputs(tmp_path, architecture, folder, inputs, dtype="float32"):
    np.savez(tmp_path / "inputs.npz", **inputs)
    ask(
        "outputs",
        architecture,
        folder,
        tmp_path / "inputs.npz",
        tmp_path / "outputs.npz",
        dtype,
    )
    return dict(np.load(tmp_path / "outputs.npz"))


def inputs_of(architecture):
    """Returns the inputs: of multiple choice one row of three choices."""
    if architecture == "BertForMultipleChoice":
        return {name: ids[None] for name, ids in INPUTS.items()}
    return INPUTS


def our_outputs(model):
    """Returns the outputs under transformers' names."""
    if isinstance(model, BertMultipleChoice):
        return {"logits": model(inputs_of("BertForMultipleChoice"))}
    if isinstance(model, BertPretrainer):
        outputs = model(PRETRAINER_INPUTS)
        if model.next_sentence_head is None:
            return {"logits": outputs["masked_lm_logits"]}
        return {
            "prediction_logits": outputs["masked_lm_logits"],
            "seq_relationship_logits": outputs["next_sentence_logits"],
        }
    outputs = model(INPUTS)
    if isinstance(model, BertEncoder):
        return {
            "last_hidden_state": outputs["sequence_output"],
            "pooler_output": outputs["pooled_output"],
        }
    return outputs if isinstance(outputs, dict) else {"logits": outputs}


def minilm_inputs(folder):
    """Sentences padded to 32, and random ids of mixed lengths to 128."""
    texts = [*TEXTS, "It was the best of times, " * 4]
    sentences = Preprocessor.from_folder(folder, max_seq_length=32)(texts)
    yield {name: np.array(array) for name, array in sentences.items()}

    generator = np.random.default_rng(20181011)
    lengths = np.array([128, 1, 5, 17, 64, 100, 2, 33])[:, None]
    positions = np.arange(128)[None]
    mask = (positions < lengths).astype("int32")
    yield {
        "input_ids": generator.integers(999, 30522, (8, 128)).astype("int32")
        * mask,
        "input_mask": mask,
        "segment_ids": (positions > lengths // 2).astype("int32") * mask,
    }


def test_every_layer_of_minilm_equals_transformers(tmp_path):
    minilm = peers.minilm()
    model = checkpoints.load(minilm, BertEncoder)
    assert model.coverage_report.names("new") == ()
    largest = {"tokens": 0.0, "padding": 0.0, "padding, theirs": 0.0}
    for inputs in minilm_inputs(minilm):
        theirs, exact = (
            peer_outputs(tmp_path, "BertModel", minilm, inputs, dtype)
            for dtype in ("float32", "float64")
        )
        outputs = model(inputs)
        np.testing.assert_allclose(
            outputs["pooled_output"], theirs["pooler_output"], atol=2e-5
        )
        is_token = inputs["input_mask"] == 1
        assert len(outputs["encoder_outputs"]) == 6
        for index, ours in enumerate(outputs["encoder_outputs"]):
            ours, layer = np.array(ours), f"layer_{index}"
            errors = {
                "tokens": np.abs(ours - theirs[layer])[is_token],
                "padding": np.abs(ours - exact[layer])[~is_token],
                "padding, theirs": np.abs(theirs[layer] - exact[layer])[
                    ~is_token
                ],
            }
            for name, error in errors.items():
                largest[name] = max(largest[name], error.max())
            assert errors["tokens"].max() < 2e-5, layer
            # What comes out for padding, which no token looks at, depends so
            # much on its input that rounding shows: in float32 transformers
            # itself is up to 8e-5 away from what it computes in float64. On
            # the sentences we are farther off, on the random ids nearer.
            assert (
                errors["padding"].max()
                < 2e-5 + 4 * errors["padding, theirs"].max()
            ), layer
    print("largest differences:", largest)


def test_minilm_is_bit_equal_after_a_round_trip(tmp_path):
    minilm = peers.minilm()
    # Its gelu is the erf form, which Google's files cannot say.
    checkpoints.convert(minilm, tmp_path / "a", "google", hidden_act="gelu_new")
    checkpoints.convert(
        tmp_path / "a", tmp_path / "b", "hugging_face", hidden_act="gelu"
    )
    first = checkpoints.load(minilm, BertEncoder)
    second = checkpoints.load(tmp_path / "b", BertEncoder)
    assert first.config == second.config
    for left, right in zip(first.weights, second.weights):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
@pytest.mark.parametrize("architecture", MODELS)
def test_what_we_save_transformers_loads(tmp_path, architecture, hidden_act):
    config = families.parse_config(peer.CONFIG | {"hidden_act": hidden_act})
    model = MODELS[architecture](config)
    generator = np.random.default_rng(5)
    for variable in model.weights:
        variable.assign(generator.normal(0, 0.4, variable.shape))
    folder = tmp_path / "folder"
    vocabulary = Vocabulary(tokens=peer.TOKENS)
    checkpoints.save(folder, model, WordpieceSpec(vocabulary), 9)
    assert json.loads(ask("keys", architecture, folder)) == {
        "missing_keys": [],
        "unexpected_keys": [],
        "mismatched_keys": [],
    }
    theirs = peer_outputs(
        tmp_path, architecture, folder, inputs_of(architecture)
    )
    for name, output in our_outputs(model).items():
        np.testing.assert_allclose(output, theirs[name], atol=2e-5)
    preprocessor = Preprocessor.from_folder(folder)
    ids = np.array(preprocessor(list(TEXTS))["input_ids"])
    tokens = json.loads(ask("tokens", folder, *TEXTS))
    for row, expected in zip(ids, tokens):
        # Differs: Hugging Face does not cut off what is too long unasked.
        assert row[row > 0].tolist()[:-1] == expected[:9][: sum(row > 0) - 1]


@pytest.mark.parametrize("shard_size", ["1GB", "4KB"])
@pytest.mark.parametrize("architecture", MODELS)
def test_what_transformers_saves_we_load(tmp_path, architecture, shard_size):
    folder = tmp_path / "folder"
    ask("save", architecture, folder, shard_size)
    assert (folder / "model.safetensors").exists() == (shard_size == "1GB")
    model_class = (
        MODELS[architecture]
        if isinstance(MODELS[architecture], type)
        else type(MODELS[architecture](families.parse_config(peer.CONFIG)))
    )
    model = checkpoints.load(folder, model_class)
    new = [n for n in model.coverage_report.names("new") if "pooler" not in n]
    assert new == []
    theirs = peer_outputs(
        tmp_path, architecture, folder, inputs_of(architecture)
    )
    for name, output in our_outputs(model).items():
        np.testing.assert_allclose(output, theirs[name], atol=2e-5)
    assert model_folder.read_vocabulary(folder).tokens == peer.TOKENS
    checkpoints.convert(folder, tmp_path / "ours", "bert_tf")
    assert json.loads(ask("keys", architecture, tmp_path / "ours")) == {
        "missing_keys": [],
        "unexpected_keys": [],
        "mismatched_keys": [],
    }


def test_golden_outputs_are_what_transformers_computes(tmp_path):
    golden = peers.ROOT / "tests/golden/checkpoints_tiny.json"
    ask("golden", tmp_path / "golden.json")
    old = json.loads(golden.read_text())["outputs"]
    new = json.loads((tmp_path / "golden.json").read_text())["outputs"]
    for hidden_act, architectures in old.items():
        for architecture, outputs in architectures.items():
            for name, values in outputs.items():
                np.testing.assert_allclose(
                    new[hidden_act][architecture][name], values, atol=1e-5
                )


def test_environment_is_another_one():
    # Neither library is to see the other's dependencies.
    assert (
        pathlib.Path(peers.python()).parent
        != pathlib.Path(sys.executable).parent
    )
