"""Base classes of layers and models that have a `BertConfig`."""

import dataclasses
from typing import Any
from typing import TypeAlias

import keras

from bert_tf import messages
from bert_tf.config import BertConfig
from bert_tf.layers.basic import Dense
from bert_tf.layers.basic import Dropout
from bert_tf.layers.frozen import LayerThatKeepsFrozen
from bert_tf.layers.frozen import ModelThatKeepsFrozen

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
        return values | {"config": self.config.to_dict()}


class ConfiguredModel(Configured, ModelThatKeepsFrozen):
    """A model with a configuration."""

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


class ConfiguredLayer(Configured, LayerThatKeepsFrozen):
    """A layer with a configuration, and makers of the sublayers of BERT."""

    def make_kernel_initializer(
        self, stddev: float | None = None
    ) -> keras.initializers.Initializer:
        # A new instance each time: a shared one repeats its values.
        return keras.initializers.TruncatedNormal(
            stddev=stddev or self.config.initializer_range
        )

    def make_dense(
        self,
        units: int,
        name: str,
        dense_class: type[keras.layers.Dense] = Dense,
        num_inputs: int | None = None,
        stddev: float | None = None,
        **kwargs: Any,
    ) -> keras.layers.Dense:
        """Returns a built `Dense`.

        `num_inputs` defaults to the hidden size, `stddev` and `use_bias` to
        the configuration's `initializer_range` and `has_biases`.
        """
        kwargs.setdefault("use_bias", self.config.has_biases)
        dense = dense_class(
            units,
            kernel_initializer=self.make_kernel_initializer(stddev),
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
            center=self.config.has_biases,
            dtype=self.dtype_policy,
            name=name,
        )
        layer_norm.build((None, None, num_inputs or self.config.hidden_size))
        return layer_norm


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
            f"{messages.shortened(values)}."
        )
    return BertConfig(**values)
