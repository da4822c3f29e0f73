"""Adam's moments and the step: of an optimizer, and of checkpoints.

google-research/bert keeps them beside the weights, as `<weight>/adam_m` and
`<weight>/adam_v`. In a model folder they lie in a file of their own,
optimizer.safetensors, in the layout of the weights that they belong to.
"""

import keras
import numpy as np

from bert_tf.checkpoints import reader
from bert_tf.checkpoints.containers import safetensors_folder
from bert_tf.checkpoints.families import bert

# What Keras's Adam and BertOptimizer call the two.
_KERAS_NAMES = ("momentum", "velocity")


def load_optimizer(path, model, optimizer):
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
        ValueError: If a moment is missing or of another shape; the message
            names file and tensor. The optimizer is as it was then.
    """
    matched = bert.match_variables(model)
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    slots = _slots_of(optimizer, matched)
    with reader.open_checkpoint(path, allow_partial=True) as checkpoint:
        if checkpoint.global_step is None:
            raise ValueError(
                f"{path}: must hold the state of an optimizer. Received: a "
                "checkpoint without global_step."
            )
        file_format = checkpoint.file_format
        for name, slot in slots:
            stored_name = name.stored_name(file_format) + slot
            found = checkpoint.slots.get(stored_name)
            wanted = name.stored_shape(file_format)
            if found != wanted:
                raise ValueError(
                    f"{checkpoint.slots_path}: the tensor {stored_name} must "
                    f"have the shape {list(wanted)}. Received: "
                    f"{'none such' if found is None else list(found)}."
                )
        for (name, slot), variable in slots.items():
            variable.assign(reader.read_tensor(checkpoint, name, slot))
        optimizer.iterations.assign(checkpoint.global_step)
        return checkpoint.global_step


def tensors_of(optimizer, matched):
    """Returns the contents of an optimizer.safetensors.

    Args:
        optimizer: A built `BertOptimizer` (or a Keras Adam).
        matched: {TensorName: variable} of the model.

    Returns:
        {name: array}, with the global step, int64.
    """
    tensors = {}
    for (name, slot), variable in _slots_of(optimizer, matched).items():
        array = keras.ops.convert_to_numpy(variable)
        if name.hugging_face_is_transposed:
            array = array.T
        tensors[name.hugging_face + slot] = array
    step = int(keras.ops.convert_to_numpy(optimizer.iterations))
    return tensors | {safetensors_folder.GLOBAL_STEP: np.array(step, np.int64)}


def _slots_of(optimizer, matched):
    """Returns {(TensorName, slot): the optimizer's variable}."""
    variables = {variable.path: variable for variable in optimizer.variables}
    slots = {}
    for name, variable in matched.items():
        if not variable.trainable:
            continue
        for slot, keras_name in zip(bert.SLOTS, _KERAS_NAMES):
            # Keras's way to name the variables of an optimizer.
            path = f"{variable.path.replace('/', '_')}_{keras_name}"
            path = f"{optimizer.name}/{path}"
            if path not in variables:
                raise ValueError(
                    "`optimizer` must keep a momentum and a velocity of every "
                    f"trainable variable. Received: a {type(optimizer)} "
                    f"without {path}."
                )
            slots[name, slot] = variables[path]
    return slots
