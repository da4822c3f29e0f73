"""Every family against transformers itself, in an environment of its own.

    python -m pytest -m peers tests/checkpoints/test_family_peers.py

Every class of tiny models whose every parameter is random: hidden states,
outputs, loss and gradients of training, and the folders that we save of them.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import variables
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.objectives import cross_entropy
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import families as peer
from support import peers
from support.family_models import load
from support.family_models import our_outputs

pytestmark = pytest.mark.peers

CLASSES = [(case, each) for case in peer.CASES for each in peer.classes(case)]
TOKENIZER = WordpieceSpec(Vocabulary(tokens=peer.TOKENS))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Returns a folder of transformers' models and what they compute."""
    folder = tmp_path_factory.mktemp("theirs")
    peers.run(peer.__file__, "outputs", folder)
    return folder


def loss_of(outputs, architecture):
    """Returns the loss as transformers has it, from our outputs."""
    labels = peer.labels_of(architecture)
    if architecture == "ElectraForPreTraining":
        is_token = peer.inputs_of(architecture)["input_mask"] == 1
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            labels["labels"].astype("float32"), outputs["logits"]
        )
        return tf.reduce_mean(losses[is_token])
    if architecture.endswith("ForQuestionAnswering"):
        starts = cross_entropy(
            outputs["start_logits"], labels["start_positions"]
        )
        ends = cross_entropy(outputs["end_logits"], labels["end_positions"])
        return tf.reduce_mean(starts + ends) / 2
    losses = []
    for name, each in labels.items():
        logits = outputs.get("logits")
        if logits is None:
            logits = outputs[PAIR_LOGITS.get(name, "prediction_logits")]
        has_label = each != -100
        of_each = cross_entropy(logits, np.maximum(each, 0))
        losses.append(tf.reduce_mean(of_each[has_label]))
    return sum(losses)


PAIR_LOGITS = {
    "next_sentence_label": "seq_relationship_logits",
    "sentence_order_label": "sop_logits",
}


@pytest.mark.parametrize("case, architecture", CLASSES)
def test_every_number_is_transformers(theirs, case, architecture):
    folder = theirs / case / architecture
    expected = dict(np.load(folder / "outputs.npz"))
    model = load(str(folder), architecture, without_dropout=True)
    is_token = np.array(peer.INPUTS["input_mask"]) == 1
    largest = {}
    for training in (False, True):
        with tf.GradientTape() as tape:
            outputs = our_outputs(model, architecture, training)
            loss = loss_of(outputs, architecture)
        for name, output in outputs.items():
            difference = np.abs(np.array(output) - expected[name])
            if output.shape[:2] == is_token.shape:
                difference = difference[is_token]
            largest[name] = difference.max()
    encoder = model if isinstance(model, BertEncoder) else model.encoder
    states = encoder(
        {name: np.array(ids, "int32") for name, ids in peer.INPUTS.items()}
    )["encoder_outputs"]
    assert f"layer_{len(states)}" not in expected
    for index, state in enumerate(states):
        layer = expected[f"layer_{index}"]
        largest[f"layer_{index}"] = np.abs(state - layer)[is_token].max()
    print(case, architecture, largest)
    assert max(largest.values()) < 1e-5

    if not peer.labels_of(architecture):
        return
    np.testing.assert_allclose(loss, expected["loss"], atol=1e-5)
    matched = variables.match(model)
    gradients = tape.gradient(loss, [each.value for each in matched.values()])
    checked = set()
    for tensor, gradient in zip(matched, gradients):
        name = f"gradient/{tensor.hugging_face.name}"
        if name not in expected:
            assert gradient is None, name
            continue
        checked.add(name)
        found = np.array(tf.convert_to_tensor(gradient))
        wanted = tensor.hugging_face.transform.to_variable(expected[name])
        if tensor.keras.endswith(("word_embeddings", "position_embeddings")):
            # transformers does not train the embeddings of the padding.
            rows = np.arange(len(found)) != peer.PAD_ID
            found, wanted = found[rows], wanted[rows]
        np.testing.assert_allclose(found, wanted, atol=5e-5, err_msg=name)
    assert checked == {name for name in expected if "gradient/" in name}


def test_transformers_finds_all_of_what_we_save(theirs, tmp_path):
    for case, architecture in CLASSES:
        model = load(str(theirs / case / architecture), architecture)
        config = json.loads(
            (theirs / case / architecture / "config.json").read_text()
        )
        folder = tmp_path / case / "saved"
        checkpoints.save(folder, model, TOKENIZER, 9)
        saved = json.loads((folder / "config.json").read_text())
        (name,) = saved["architectures"]
        assert name == architecture
        target = tmp_path / case / name
        folder.rename(target)
        assert families.parse_config(config) == families.parse_config(saved)
    found = json.loads(peers.run(peer.__file__, "call", tmp_path))
    assert len(found) == len(CLASSES)
    assert {name: keys for name, keys in found.items() if keys} == {}
