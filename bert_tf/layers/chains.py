"""Chains of operations on large tensors, which may be run as one.

TensorFlow runs every operation by itself, and each is a pass over memory. A
runner does a chain in fewer passes. It is set from outside, because layers know
only `keras.ops`. They look it up when they are called, that is, when a graph is
traced. So do optimizers: the update of a variable is a chain.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from bert_tf.features import Tensor

# `chain(*tensors, dtype)` returns tensors, or updates variables whose resources
# are among its inputs. `dtype`, at least as wide as the inputs', is for
# intermediates; the dtypes of the results do not depend on it.
Chain = Callable[..., Any]
# `runner(chain, *tensors)` returns the results of the chain.
Runner = Callable[..., Any]


def run_plainly(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, computed operation by operation."""
    return chain(*tensors, tensors[0].dtype)


# Per thread: MirroredStrategy traces its devices in threads.
_RUNNER: contextvars.ContextVar[Runner] = contextvars.ContextVar(
    "runner", default=run_plainly
)


@contextlib.contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Makes layers and optimizers use a runner for their chains in the block.

    Args:
        runner: See `Runner`.
    """
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def runner_here() -> Runner:
    """Returns the runner of the block, or `run_plainly` outside of any."""
    return _RUNNER.get()


def run_chain(chain: Chain, *tensors: Tensor) -> Any:
    """Returns a chain's results, using the block's runner if there is one.

    Args:
        chain: See `Chain`. Pass the same object for the same function, because
            a runner may cache its compiled form.
        *tensors: Inputs of the chain.
    """
    return runner_here()(chain, *tensors)
