"""Blocks whose activations are computed again for the gradient, not kept."""

import functools
from collections.abc import Hashable
from typing import Any
from typing import cast

import keras
from keras import ops

from bert_tf.backend import all_after
from bert_tf.backend import remat
from bert_tf.backend import traced_once
from bert_tf.backend import without_values
from bert_tf.features import Tensor
from bert_tf.layers.blocks import Block


def recompute(
    block: Block,
    inputs: Tensor,
    layout: Any,
    queries: Tensor | None = None,
) -> Tensor:
    """Calls a block in training, and calls it again for the gradient.

    Only its inputs are kept. A stack of blocks then needs the memory of one
    block's activations, for about a third more time (Chen et al. 2016, arXiv
    1604.06174).

    Args:
        block: The block.
        inputs, layout, queries: As in a call.

    Returns:
        float, as in a call.
    """
    block_class = cast(Hashable, type(block))
    run = _runner(block_class, block.arguments, block.dtype_policy.name)
    seeds = block.draw_seeds()
    # Copies, because a variable would be an argument of its own.
    weights = [ops.copy(each) for each in weights_of_block(block)]
    if queries is None:
        return run(weights, seeds, layout, inputs)
    return run(weights, seeds, layout, inputs, queries)


@functools.cache
def _runner(block_class, arguments, policy):
    """Returns the function that all blocks with these arguments share.

    It takes the weights as arguments. As a function of one block, it would keep
    that block's model alive: see `traced_once`.
    """

    def make_block():
        block = block_class(*arguments, dtype=policy)
        block.build(None)
        return block

    like = without_values(make_block)

    @traced_once
    def run(weights, seeds, layout, *inputs):
        # Biases of scores have a gradient, too; masks have none.
        parts = keras.tree.flatten(layout)
        places = [n for n, part in enumerate(parts) if _is_float(part)]

        def call(*tensors):
            inputs = tensors[: -len(weights) - len(places)]
            for place, bias in zip(places, tensors[len(inputs) :]):
                parts[place] = bias
            # Tied to the inputs. Otherwise XLA would see the same masks twice,
            # and keep them.
            late_seeds = all_after(inputs[0], seeds)
            values = [*zip(weights_of_block(like), tensors[-len(weights) :])]
            with keras.StatelessScope(values, initialize_variables=False):
                return like(
                    inputs[0],
                    keras.tree.pack_sequence_as(layout, parts),
                    *inputs[1:],
                    seeds=late_seeds,
                    training=True,
                )

        return remat(call)(*inputs, *(parts[n] for n in places), *weights)

    return run


def _is_float(tensor):
    return "float" in keras.backend.standardize_dtype(tensor.dtype)


def weights_of_block(block: Block) -> list[Tensor]:
    """Returns the kernels, with LoRA's updates, and all other weights."""
    names = ("kernel", "bias", "gamma", "beta")
    weights = (
        getattr(layer, name, None)
        for layer in block._flatten_layers(include_self=False)
        for name in names
    )
    return [weight for weight in weights if weight is not None]
