"""Pairs the variables of a model with the table of its family."""

from typing import Any

import keras

from bert_tf.checkpoints import families
from bert_tf.checkpoints.families.family import Tensor


def match(model: keras.Model) -> dict[Tensor, Any]:
    """Pairs the variables of a model with the table of its family.

    Args:
        model: A model of `bert_tf.models`, or one that holds its layers under
            their names. It has a `config`. Variables that other files hold are
            in its `extra_weights`, and left out.

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
