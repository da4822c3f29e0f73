"""What is frozen stays frozen in a model's copies and files.

Keras records `trainable` of the model itself but not of its layers, which would
be trained.
"""

from collections.abc import Callable
from typing import Any
from typing import Self

import keras

_KEY = "trainable_layers"


class ModelThatKeepsFrozen(keras.Model):
    """A model whose layers exist once it is constructed."""

    def get_config(self):
        return super().get_config() | _states(self)

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> Self:
        config = dict(config)
        states = config.pop(_KEY, None)
        model = super().from_config(config, custom_objects)
        if states is not None:
            _set_trainable(model, states)
        return model


class LayerThatKeepsFrozen(keras.layers.Layer):
    """A layer whose sublayers exist once it is built."""

    # A function that returns it, because Keras would track a dictionary.
    _trainable_layers: Callable[[], dict[str, bool]] = staticmethod(dict)

    def get_config(self):
        return super().get_config() | _states(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        states = config.pop(_KEY, {})
        layer = super().from_config(config)
        layer._trainable_layers = lambda: states
        return layer

    def _post_build(self):
        # A hook of Keras's. Sublayers do not exist earlier.
        super()._post_build()
        states = self._trainable_layers()
        if states or not self.trainable:
            _set_trainable(self, states)


def _states(parent):
    """Returns the entry of a configuration, if anything within is frozen."""
    states = {
        path: layer.trainable
        for path, layer, within in _layers_within(parent)
        if layer.trainable != within.trainable
    }
    return {_KEY: states} if states or not parent.trainable else {}


def _set_trainable(parent, states):
    """Sets `trainable` of all layers in `parent`.

    Layers whose path is not in `states` follow the layer that they are in.
    """
    # From the outside in, because a layer sets those within it too.
    for path, layer, within in _layers_within(parent):
        layer.trainable = states.get(path, within.trainable)


def _layers_within(parent, prefix=""):
    """Yields (path, layer, the layer that it is in), from the outside in."""
    for layer in parent._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{layer.name}"
        yield path, layer, parent
        yield from _layers_within(layer, f"{path}/")
