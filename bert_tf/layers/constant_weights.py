"""Models whose weights are constants of the graph.

TensorFlow folds constants: what is computed of weights alone, it computes once,
as it loads the graph. Layers look for it when they are called, which is when a
graph is traced.
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
    """Returns whether weights are constants where a layer is called."""
    return _ARE_CONSTANT.get()
