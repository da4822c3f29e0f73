"""Pairs the variables of a model with the table of its family."""

from typing import Any

import keras

from bert_tf.checkpoints import families
from bert_tf.checkpoints.families.family import Tensor


def match(model: keras.Model) -> dict[Tensor, Any]:
    """Pairs the variables of a model with the table of its family.

    Left out are variables that other files hold, which are in the model's
    `extra_weights`, and the factors of LoRA: see `merged`.

    Args:
        model: A model of `bert_tf.models`, or one that holds its layers under
            their names. It has a `config`.

    Returns:
        {Tensor: variable}, in the table's order.

    Raises:
        ValueError: If a variable is not in the table.
    """
    if not hasattr(model, "config"):
        raise ValueError(
            "`model` must be one of bert_tf.models. Received: a "
            f"{type(model).__name__}, which has no `config`."
        )
    family = families.of_config(model.config)
    table = {
        tensor.keras: tensor
        for tensor in family.table(
            model.config, num_labels=getattr(model, "num_labels", 2)
        )
    }
    matched = {}
    extra = {id(each) for each in getattr(model, "extra_weights", ())}
    extra |= {id(each) for each in lora_factors(model)}
    for variable in model.weights:
        if id(variable) in extra:
            continue
        keras_name = variable.path
        # The names of the models around the encoder come first in the path.
        while keras_name not in table and "/" in keras_name:
            keras_name = keras_name.split("/", 1)[1]
        if keras_name not in table:
            raise ValueError(
                f"The variable {variable.path} is in no model of the family "
                f"{family.model_type}: only those of bert_tf.models, with a "
                "head that the family has, can be loaded and saved. Load the "
                "BertEncoder inside it."
            )
        matched[keras_name] = variable
    return {table[name]: matched[name] for name in table if name in matched}


def lora_factors(model: keras.Model) -> list[Any]:
    """Returns the variables that Keras's `enable_lora` has added."""
    return [
        factor
        for layer in _lora_layers(model)
        for factor in (layer.lora_kernel_a, layer.lora_kernel_b)
    ]


def merged(model: keras.Model) -> dict[int, Any]:
    """Returns the kernels that LoRA adds to, as the model computes with them.

    Returns:
        {id of a kernel's variable: kernel plus its low-rank update}.
    """
    return {
        id(variable): layer.kernel
        for layer in _lora_layers(model)
        for variable in layer.weights
        if variable.name == "kernel"
    }


def _lora_layers(model):
    return [
        layer
        for layer in model._flatten_layers()
        if getattr(layer, "lora_enabled", False)
    ]
