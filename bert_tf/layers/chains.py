"""Chains of operations on large tensors, which may be run as one.

TensorFlow runs every operation by itself: each is a pass over memory. What runs
a chain in fewer passes is given from outside, for layers know no more than
`keras.ops`. Layers look for it when they are called, which is when a graph is
traced.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from bert_tf.features import Tensor

# `chain(*tensors, dtype)` returns tensors, of types that do not depend on
# `dtype`: that is wider, or as wide, and what is between may be computed in it.
Chain = Callable[..., Any]
# `runner(chain, *tensors)` returns what the chain does of the tensors.
Runner = Callable[..., Any]

# Of its own in each thread: mirrored devices are traced in several.
_RUNNER: contextvars.ContextVar[Runner | None] = contextvars.ContextVar(
    "runner", default=None
)


@contextlib.contextmanager
def run_by(runner: Runner | None) -> Iterator[None]:
    """Lets layers that are called in the block run their chains by a runner.

    Args:
        runner: See `Runner`. None for operation by operation.
    """
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def run_chain(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, by the block's runner if there is one.

    Args:
        chain: See `Chain`. The same object whenever it is the same function: a
            runner may keep what it made of it.
        *tensors: What it takes.
    """
    runner = _RUNNER.get()
    if runner is None:
        return run_plainly(chain, *tensors)
    return runner(chain, *tensors)


def run_plainly(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, computed operation by operation."""
    return chain(*tensors, tensors[0].dtype)
