"""Models whose weights are constants of the graph.

What is computed of weights alone, TensorFlow then computes once, as it loads
the graph. Layers look for it when they are called, which is when a graph is
traced.
"""

import contextlib
import contextvars
from collections.abc import Iterator

_IS_FOLDED: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "is_folded", default=False
)


@contextlib.contextmanager
def weights_folded() -> Iterator[None]:
    """Lets layers that are called in the block compute with weights freely."""
    token = _IS_FOLDED.set(True)
    try:
        yield
    finally:
        _IS_FOLDED.reset(token)


def are_folded_here() -> bool:
    """Returns whether to compute of weights alone costs a call nothing."""
    return _IS_FOLDED.get()
