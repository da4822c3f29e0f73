"""Private symbols of TensorFlow and Keras: each is listed, and still does it.

The list is the table in docs/decisions.md. Of each symbol a test holds what we
rely on; those of optimizers are held in tests/optimizers/.
"""

import ast
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config
from tensorflow.python.saved_model import save_context

from support.paths import ROOT

_IMPORTS = re.compile(r"(tensorflow\.python|keras\.src)\b")
# Where classes are subclasses of Keras's.
_FOLDERS = ("layers", "models", "optimizers", "checkpoints")


def listed():
    text = (ROOT / "docs/decisions.md").read_text("utf-8")
    _, _, section = text.partition("## Private symbols")
    return {*re.findall(r"^\| `([\w.]+)`", section, re.MULTILINE)}


def make_owners():
    """Returns objects that have what classes of ours inherit."""
    layer = keras.layers.Dense(1)
    layer.build((1, 1))
    return [layer, keras.Sequential([layer]), keras.optimizers.Adam()]


def private_names(tree):
    """Yields names that begin with an underscore: attributes and methods."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "name", None)
        if isinstance(name, str) and re.match("_[a-z]", name):
            yield name


def used():
    found = set()
    owners = make_owners()
    for path in (ROOT / "bert_tf").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        imports_keras = False
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and _IMPORTS.match(node.module):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
                found |= {name for name in names if _IMPORTS.match(name)}
                imports_keras |= "keras" in names
        if imports_keras and path.parent.name in _FOLDERS:
            found |= {
                name
                for name in private_names(tree)
                if any(hasattr(owner, name) for owner in owners)
            }
    return found


def test_the_table_holds_what_is_used():
    assert listed() == used()


def test_determinism_can_be_asked_for():
    assert config.is_op_determinism_enabled() is False
    tf.config.experimental.enable_op_determinism()
    try:
        assert config.is_op_determinism_enabled() is True
    finally:
        config.disable_op_determinism()


def test_what_is_traced_in_a_save_context_is_not_traced_on_saving(tmp_path):
    traces = []

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def double(self, number):
            traces.append(number)
            return 2 * number

    for is_within in (True, False):
        traces.clear()
        module = Module()
        options = tf.saved_model.SaveOptions()
        if is_within:
            with save_context.save_context(options):
                module.double.get_concrete_function()
        else:
            module.double.get_concrete_function()
        tf.saved_model.save(module, tmp_path / str(is_within), options=options)
        assert len(traces) == (1 if is_within else 2)


class Pair(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(2)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, inputs):
        return self.inner(inputs)

    def _post_build(self):
        super()._post_build()
        self.num_weights = len(self.inner.weights)


def test_layers_are_walked():
    pair = Pair()
    model = keras.Sequential([pair])
    alone = model._flatten_layers(include_self=False, recursive=False)
    assert pair in alone and pair.inner not in alone
    assert {pair, pair.inner} <= {*model._flatten_layers()}


def test_post_build_is_called_when_sublayers_are_there():
    pair = Pair()
    pair(np.zeros((1, 3), "float32"))
    assert pair.num_weights == 2


def test_a_built_layer_can_be_unlocked():
    pair = Pair()
    pair(np.zeros((1, 3), "float32"))
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.metric = keras.metrics.Mean()
    pair._tracker.unlock()
    pair.metric = keras.metrics.Mean()
    assert pair.metric in pair.metrics
    pair._tracker.lock()
    assert pair._tracker.locked
