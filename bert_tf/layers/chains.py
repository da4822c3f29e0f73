"""Chains of operations on large tensors, which may be run as one.

TensorFlow runs every operation by itself, and each is a pass over memory. A
runner does a chain in fewer passes. It is set from outside, because layers know
only `keras.ops`. They look it up when they are called, that is, when a graph is
traced.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from bert_tf.features import Tensor

# `chain(*tensors, dtype)` returns tensors. `dtype`, at least as wide as the
# inputs', is for intermediates; the dtypes of the results do not depend on it.
Chain = Callable[..., Any]
# `runner(chain, *tensors)` returns the results of the chain.
Runner = Callable[..., Any]

# Per thread: MirroredStrategy traces its devices in threads.
_RUNNER: contextvars.ContextVar[Runner | None] = contextvars.ContextVar(
    "runner", default=None
)


@contextlib.contextmanager
def run_by(runner: Runner | None) -> Iterator[None]:
    """Makes layers that are called in the block use a runner for their chains.

    Args:
        runner: See `Runner`. None runs operation by operation.
    """
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def run_chain(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, using the block's runner if there is one.

    Args:
        chain: See `Chain`. Pass the same object for the same function, because
            a runner may cache its compiled form.
        *tensors: Inputs of the chain.
    """
    runner = _RUNNER.get()
    if runner is None:
        return run_plainly(chain, *tensors)
    return runner(chain, *tensors)


def run_plainly(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, computed operation by operation."""
    return chain(*tensors, tensors[0].dtype)
