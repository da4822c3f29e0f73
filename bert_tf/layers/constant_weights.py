"""Models whose weights are constants of the graph.

TensorFlow folds constants: when it loads the graph, it computes once whatever
depends on weights alone. Layers ask for this mode when they are called, that
is, when a graph is traced.
"""

import contextlib
import contextvars
from collections.abc import Iterator

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
