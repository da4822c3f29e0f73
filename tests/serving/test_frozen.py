"""SavedModels whose weights are constants, and that read bounded texts."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import exporter
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.proof import check
from bert_tf.serving.proof import requests
from support import serving_models

KINDS = ("pair", "choice", "squad", "tagger", "fill_mask", "embedding")
SLOW = ("choice", "squad", "fill_mask", "embedding")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW))
        for kind in KINDS
    ],
)
def test_answers_are_those_of_the_trained_model(kind):
    kind = f"frozen_{kind}"
    servable = check.trained_servable(
        saved_model.read_options(serving_models.exported(kind)),
        serving_models.model_dir(kind),
    )
    texts = servable.hard_texts()[:8]
    found = serving_models.differences(kind, servable, texts)
    assert {"serving_default", "ids", "examples"} <= set(found)
    for signature, (difference, where) in found.items():
        assert difference <= check.TOLERANCE, (signature, where)
    assert servable.options.max_text_bytes == 40
    strings = requests.strings(servable.text_features, texts)
    answers = serving_models.loaded(kind).signatures["serving_default"](
        **{name: tf.constant(value) for name, value in strings.items()}
    )
    bounds = {"max_windows", "max_masks"} & servable.DEFAULTS.keys()
    assert ("is_cut" in answers) == bool(bounds)
    if "is_cut" in answers:
        assert 0 < answers["is_cut"].numpy().sum() < len(texts)


@pytest.mark.parametrize("contents", options_lib.CONTENTS)
def test_the_graph_holds_every_weight_once(contents):
    path = serving_models.exported("frozen_pair", contents)
    servable = serving_models.servable("pair")
    graph = saved_model._read(path).meta_graphs[0].graph_def
    nodes = [
        *graph.node,
        *(node for each in graph.library.function for node in each.node_def),
    ]
    held = [
        tf.make_ndarray(node.attr["value"].tensor)
        for node in nodes
        if node.op == "Const" and node.attr["dtype"].type == tf.float32
    ]
    for weight in servable.model.weights:
        # Far from one another: `serving_models` adds noise.
        equal = [np.array_equal(weight.numpy(), value) for value in held]
        assert sum(equal) == 1, weight.path
    module = serving_models.loaded("frozen_pair", contents)
    assert list(module.variables) == list(module.trainable_variables) == []


def test_loaded_object_is_called_but_not_trained():
    module = serving_models.loaded("frozen_pair")
    servable = serving_models.servable("pair")
    inputs = servable.preprocessor((["the quick"], ["lorem"]))
    np.testing.assert_allclose(
        module(inputs), servable.model(inputs), atol=check.TOLERANCE
    )
    with pytest.raises(ValueError, match="matching concrete function"):
        module(inputs, training=True)


def test_what_is_not_frozen_is_said(tmp_path, monkeypatch):
    options = options_lib.ExportOptions(freeze=True)
    with pytest.raises(ValueError, match="be False with --kind=encoder"):
        exporter.export(serving_models.model_dir("encoder"), tmp_path, options)
    monkeypatch.setattr(opening, "MOST_FROZEN_BYTES", 5000)
    with pytest.raises(ValueError, match=r"more than 5,000 .* Received: [6-9]"):
        exporter.export(serving_models.model_dir("pair"), tmp_path, options)
    assert list(tmp_path.iterdir()) == []
