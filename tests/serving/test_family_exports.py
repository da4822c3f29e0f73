"""Families with their own tokenizers: every kind saved, exported, checked.

What is served from strings is held to what training computes of them, on
strings that are hard to read. All kinds and older releases of TensorFlow come
with `make serving-check`, as in tests/serving/test_releases.py.
"""

import dataclasses
import itertools
import os

import keras
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving import exporter
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import check
from bert_tf.tasks import fill_mask
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models
from support.tokenizer_families import FAMILIES
from support.tokenizer_families import MAX_SEQ_LENGTH

PYTHONS = [
    path
    for path in os.environ.get("BERT_TF_SERVING_PYTHONS", "").split(":")
    if path
]
# {kind: (model of a configuration, its task, how it is exported)}
KINDS = {
    "pair": (
        lambda config: BertClassifier(config, num_labels=3),
        serving_models.PAIR_TASK,
        ExportOptions(),
    ),
    "tagger": (
        lambda config: BertTokenClassifier(config, 5),
        serving_models.TAGGING_TASK,
        ExportOptions(),
    ),
    "squad": (BertSpanPredictor, serving_models.SQUAD_TASK, ExportOptions()),
    "choice": (
        BertMultipleChoice,
        serving_models.CHOICE_TASK,
        ExportOptions(),
    ),
    "fill_mask": (
        BertPretrainer,
        None,
        ExportOptions(kind="fill_mask", top_k=3),
    ),
    "embedding": (
        BertEncoder,
        None,
        ExportOptions(kind="embedding", normalize=True),
    ),
    "token_embeddings": (
        BertEncoder,
        None,
        ExportOptions(kind="token_embeddings"),
    ),
}


# Those that do more than tokenize whole texts.
FEW_KINDS = ("tagger", "squad", "fill_mask", "token_embeddings")
# The others with `make serving-check`.
ALWAYS = {("albert", "squad")}


def export(folder, family, kind, **changes):
    """Returns a model folder and what was exported of it."""
    config, spec, _ = FAMILIES[family]
    make, task, options = KINDS[kind]
    keras.utils.set_random_seed(3)
    model = make(config)
    for variable in model.trainable_variables:
        noise = tf.random.normal(variable.shape, stddev=0.3)
        variable.assign(variable.value + noise)
    model_dir = f"{folder}/model"
    checkpoints.save(
        model_dir,
        model,
        spec,
        MAX_SEQ_LENGTH,
        task=task.to_dict() if task else None,
    )
    assert starting_point.find(model_dir).tokenizer == spec
    options = dataclasses.replace(options, contents=options_lib.TEXT, **changes)
    return model_dir, exporter.export(model_dir, f"{folder}/served", options)


@pytest.mark.parametrize(
    "family, kind",
    [
        pytest.param(*pair, marks=[] if pair in ALWAYS else [pytest.mark.peers])
        for pair in itertools.product(FAMILIES, FEW_KINDS)
    ],
)
def test_what_is_served_is_what_was_trained(
    tmp_path, monkeypatch, family, kind
):
    monkeypatch.setattr(caller, "calling", serving_models.calling)
    _, exported = export(tmp_path, family, kind)
    # Without any, no server needs tensorflow_text.
    *_, text_ops = FAMILIES[family]
    found = {name.replace("WithOffsets", "") for name in exported.text_ops}
    assert found == {*text_ops}


@pytest.mark.parametrize("family", FAMILIES)
def test_fill_mask_is_checked_on_the_familys_own_masks(family):
    _, spec, _ = FAMILIES[family]
    servable = serving_models.make_servable(
        FillMask, preprocessor=Preprocessor(spec, MAX_SEQ_LENGTH)
    )
    inputs = servable.encode(servable.hard_texts())
    is_mask = fill_mask.find_masks(inputs, spec.vocabulary).numpy()
    assert is_mask.any(axis=1).sum() > len(texts_lib.HARD_STRINGS)


@pytest.mark.peers
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_older_releases_answer_alike(tmp_path, family, kind):
    assert PYTHONS, "BERT_TF_SERVING_PYTHONS names no environment."
    model_dir, exported = export(tmp_path, family, kind, check=False)
    servable = check.trained_servable(
        saved_model.read_options(exported.path), model_dir
    )
    texts = servable.hard_texts()
    for python in PYTHONS:
        version, comparisons = check.compare(
            exported.path, servable, texts, python
        )
        different = [each for each in comparisons if not each.is_equal]
        assert not different, f"TensorFlow {version}: {different}"
