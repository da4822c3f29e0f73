"""Base classes of layers and models that have a `BertConfig`."""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import Self
from typing import TypeAlias

import keras

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout

# A configuration, or its dictionary as Keras stores it.
AnyConfig: TypeAlias = BertConfig | dict[str, Any]


class Configured:
    """Mixin for layers and models with a configuration.

    In the list of bases it stands before Keras's class.

    Args:
        config: A `BertConfig`, or what its `to_dict` returns, as stored in
            Keras's files.

    Raises:
        ValueError: If it is any other dictionary. One of Google's or Hugging
            Face's could mean another model: "gelu" has two meanings.
    """

    def __init__(self, config: AnyConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(config, BertConfig):
            config = from_dict(config)
        self.config = config

    def get_config(self):
        # Keras's class, the next base, has the method.
        values = super().get_config()  # type: ignore[misc]
        values["config"] = self.config.to_dict()
        states = {
            path: layer.trainable
            for path, layer, parent in _layers_within(self)
            if layer.trainable != parent.trainable
        }
        if states or not values["trainable"]:
            values["trainable_layers"] = states
        return values


class ConfiguredModel(Configured, keras.Model):
    """A model with a configuration; its copies and files keep what is frozen.

    Keras records this for the model itself but not for its layers, which would
    be trained.
    """

    def __init__(self, config: AnyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # Ids may come as floats, as of a keras.Input without a dtype. Keras
        # would make 16 bits of them under such a policy: other ids.
        self.autocast = False

    def __setattr__(self, name: str, value: Any) -> None:
        is_locked = hasattr(self, "_tracker") and self._tracker.locked
        if not is_locked or not isinstance(value, keras.metrics.Metric):
            super().__setattr__(name, value)
            return
        # Keras's guides make the metrics of a custom step in a subclass's
        # `__init__`. By then models here are built, and Keras has locked them.
        self._tracker.unlock()
        try:
            super().__setattr__(name, value)
        finally:
            self._tracker.lock()

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> Self:
        config = dict(config)
        states = config.pop("trainable_layers", None)
        model = super().from_config(config, custom_objects)
        if states is not None:
            _set_trainable(model, states)
        return model


class ConfiguredLayer(Configured, keras.layers.Layer):
    """A layer with a configuration, and makers of the sublayers of BERT.

    Like those of a `ConfiguredModel`, its copies and files keep what is frozen.
    """

    # A function that returns it, because Keras would track a dictionary.
    _trainable_layers: Callable[[], dict[str, bool]] = staticmethod(dict)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        states = config.pop("trainable_layers", {})
        layer = super().from_config(config)
        layer._trainable_layers = lambda: states
        return layer

    def _post_build(self):
        # A hook of Keras's. Sublayers do not exist earlier.
        super()._post_build()
        states = self._trainable_layers()
        if states or not self.trainable:
            _set_trainable(self, states)

    def make_kernel_initializer(self) -> keras.initializers.Initializer:
        # A new instance each time: a shared one repeats its values.
        return keras.initializers.TruncatedNormal(
            stddev=self.config.initializer_range
        )

    def make_dense(
        self,
        units: int,
        name: str,
        dense_class: type[keras.layers.Dense] = Dense,
        num_inputs: int | None = None,
        **kwargs: Any,
    ) -> keras.layers.Dense:
        """Returns a built `Dense`; `num_inputs` defaults to the hidden size."""
        dense = dense_class(
            units,
            kernel_initializer=self.make_kernel_initializer(),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )
        dense.build((None, num_inputs or self.config.hidden_size))
        return dense

    def make_dropout(self, rate: float, name: str) -> Dropout:
        return Dropout(rate, dtype=self.dtype_policy, name=name)

    def make_layer_norm(
        self, name: str, num_inputs: int | None = None
    ) -> keras.layers.LayerNormalization:
        """Returns a built layer; `num_inputs` is as in `make_dense`."""
        layer_norm = keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_eps,
            dtype=self.dtype_policy,
            name=name,
        )
        layer_norm.build((None, None, num_inputs or self.config.hidden_size))
        return layer_norm


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


def from_dict(values: Any) -> BertConfig:
    """Returns the `BertConfig` whose `to_dict` returned `values`.

    Raises:
        ValueError: If `values` is anything else.
    """
    names = {field.name for field in dataclasses.fields(BertConfig)}
    if (
        not isinstance(values, dict)
        or not {"model_type"} <= set(values) <= names
    ):
        raise ValueError(
            "`config` must be a BertConfig or what its to_dict() returns; "
            "checkpoints.families.parse_config reads Google's "
            "bert_config.json and Hugging Face's config.json. Received: "
            f"{files.shortened(values)}."
        )
    return BertConfig(**values)
