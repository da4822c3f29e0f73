"""Models whose weights are constants of the graph.

TensorFlow folds constants: when it loads the graph, it computes once whatever
depends on weights alone. Layers ask for this mode when they are called, that
is, when a graph is traced.

In float32, blocks then use their weights in two halves. TensorFlow computes the
two at the same time, each with a thread of its own. With few rows this is
faster than two threads that share each product, because the halves meet twice a
block and the threads at every operation. In bfloat16 the products take so
little time that the additional operations cost more.
"""

import contextlib
import contextvars
from collections.abc import Iterator

WHOLE = slice(None)

_ARE_CONSTANT: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "are_constant", default=False
)


@contextlib.contextmanager
def constant_weights() -> Iterator[None]:
    """Tells layers that are called in the block that weights are constants."""
    token = _ARE_CONSTANT.set(True)
    try:
        yield
    finally:
        _ARE_CONSTANT.reset(token)


def are_constant_here() -> bool:
    """Returns whether the call is in a block of `constant_weights`."""
    return _ARE_CONSTANT.get()


def parts_here(num_groups: int, size: int, dtype: str) -> list[slice]:
    """Returns the parts in which a layer's weights are used.

    Args:
        num_groups: How many groups of features there are, e.g. heads.
        size: The number of features of a group.
        dtype: The layer's compute dtype.

    Returns:
        Slices of features: two halves if weights are constants, the dtype is
        float32 and the groups can be halved, otherwise `WHOLE` alone.
    """
    if not are_constant_here() or dtype != "float32" or num_groups % 2:
        return [WHOLE]
    half = num_groups // 2 * size
    return [slice(0, half), slice(half, 2 * half)]
