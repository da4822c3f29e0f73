r"""Exports in the releases of TensorFlow that servers link.

Run by `pytest -m peers`; environments are named by a variable, their Pythons
separated by colons:

    BERT_TF_SERVING_PYTHONS=/env/tf2.12.1/bin/python:/env/tf2.19/bin/python \
        pytest -m peers tests/serving/test_releases.py

Each needs tensorflow and tensorflow-text of one release.
"""

import os

import pytest

from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.proof import check
from support import serving_models

PYTHONS = [
    path
    for path in os.environ.get("BERT_TF_SERVING_PYTHONS", "").split(":")
    if path
]
_MAX_BYTES = 250


@pytest.mark.peers
@pytest.mark.parametrize(
    "kind, contents",
    [
        (kind, contents)
        for kind in (
            *("pair", "regression", "tagger", "choice"),
            *("squad", "squad_1", "pretrainer", "encoder"),
            *serving_models.EXPORTS,
        )
        for contents in options_lib.CONTENTS
        # These are of text alone.
        if contents != options_lib.IDS
        or kind not in ("preprocessor", "counted_pair")
    ],
)
def test_every_kind_of_export_answers_alike(kind, contents):
    assert PYTHONS, "BERT_TF_SERVING_PYTHONS names no environment."
    path = serving_models.exported(kind, contents)
    servable = check.trained_servable(
        saved_model.read_options(path), serving_models.model_dir(kind)
    )
    # Long ones would show no operation more.
    texts = [
        tuple(text[:_MAX_BYTES] for text in row)
        for row in servable.hard_texts()
    ]
    for python in PYTHONS:
        version, comparisons = check.compare(path, servable, texts, python)
        different = [
            comparison for comparison in comparisons if not comparison.is_equal
        ]
        assert not different, f"TensorFlow {version}: {different}"
