"""Adam's moments and the step, in optimizers and in checkpoints.

google-research/bert keeps them beside the weights, as `<weight>/adam_m` and
`<weight>/adam_v`. A model folder has a separate file for them,
optimizer.safetensors, in the layout of their weights.
"""

from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints import containers
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import variables
from bert_tf.checkpoints.families.family import Tensor

# The names of the two in Keras's Adam and in BertOptimizer.
_KERAS_NAMES = ("momentum", "velocity")


def load_optimizer(
    path: str, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> int:
    """Fills an optimizer with the moments and the step of a checkpoint.

    Args:
        path: A TF1 checkpoint of a training run, or a model folder that
            holds an optimizer.safetensors.
        model: A model of `bert_tf.models`.
        optimizer: A `BertOptimizer` (or a Keras Adam); it is built on the
            model's trainable variables if it is not yet.

    Returns:
        The global step, which is the optimizer's `iterations` now.

    Raises:
        ValueError: If the step is missing, or a moment is missing or of another
            shape; the message names file and tensor. No moment has been
            changed then, unless a tensor turned out to be unreadable.
    """
    matched = variables.match(model)
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    slots = _slots_of(optimizer, matched)
    with reader.open_checkpoint(path, allow_partial=True) as checkpoint:
        container = checkpoint.container
        if container.global_step is None:
            raise ValueError(
                f"{path}: must hold the state of an optimizer. Received: a "
                "checkpoint without global_step."
            )
        for tensor, slot in slots:
            name = tensor.stored(container.file_format).name + slot
            found = container.slots.get(name)
            wanted = tensor.stored_shape(container.file_format)
            if found != wanted:
                raise ValueError(
                    f"{container.slots_path}: the tensor {name} must have the "
                    f"shape {list(wanted)}. Received: "
                    f"{'none such' if found is None else list(found)}."
                )
        for (tensor, slot), variable in slots.items():
            variable.assign(checkpoint.read(tensor, slot))
        optimizer.iterations.assign(container.global_step)
        return container.global_step


def tensors_of(
    optimizer: keras.optimizers.Optimizer, matched: dict[Tensor, Any]
) -> dict[str, np.ndarray]:
    """Returns the contents of an optimizer.safetensors.

    Args:
        optimizer: A built `BertOptimizer` (or a Keras Adam).
        matched: {Tensor: variable} of the model.

    Returns:
        {name: array}, including the global step, int64.
    """
    tensors = {}
    for (tensor, slot), variable in _slots_of(optimizer, matched).items():
        stored = tensor.hugging_face
        array = keras.ops.convert_to_numpy(variable)
        tensors[stored.name + slot] = stored.transform.to_file(array)
    step = int(keras.ops.convert_to_numpy(optimizer.iterations))
    return tensors | {containers.GLOBAL_STEP: np.array(step, np.int64)}


def _slots_of(optimizer, matched):
    """Returns {(Tensor, slot): the optimizer's variable}."""
    variables = {variable.path: variable for variable in optimizer.variables}
    slots = {}
    for tensor, variable in matched.items():
        if not variable.trainable:
            continue
        for slot, keras_name in zip(containers.SLOTS, _KERAS_NAMES):
            # How Keras names the variables of an optimizer.
            path = f"{variable.path.replace('/', '_')}_{keras_name}"
            path = f"{optimizer.name}/{path}"
            if path not in variables:
                raise ValueError(
                    "`optimizer` must keep a momentum and a velocity of every "
                    f"trainable variable. Received: a {type(optimizer)} "
                    f"without {path}."
                )
            slots[tensor, slot] = variables[path]
    return slots
