"""Forms of an operation that a floor above knows to be faster where it runs.

Layers use keras.ops alone, in which some of what a framework computes in one
operation takes many. Whoever traces a model for a framework gives such an
operation here, and layers that are called meanwhile, outside of training, use
it.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import TypeAlias

from bert_tf.features import Tensor

# (float32 `[..., D]`, its gamma `[D]` and beta `[D]`, epsilon): the same
# normalised over the last axis, times gamma, plus beta.
LayerNormFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]

_layer_norm: contextvars.ContextVar[LayerNormFunction | None] = (
    contextvars.ContextVar("layer_norm", default=None)
)


@contextlib.contextmanager
def using(layer_norm: LayerNormFunction) -> Iterator[None]:
    """Has layers use a function in place of their own, in this thread.

    Args:
        layer_norm: A `LayerNormFunction`.
    """
    token = _layer_norm.set(layer_norm)
    try:
        yield
    finally:
        _layer_norm.reset(token)


def layer_norm() -> LayerNormFunction | None:
    """Returns the function in use, if there is one."""
    return _layer_norm.get()
