"""Chains of operations on large tensors, which may be run as one.

TensorFlow runs every operation by itself, and each is a pass over memory. A
runner does a chain in fewer passes, and draws random numbers faster. It is set
from outside, because layers know only Keras. They look it up when they are
called, that is, when a graph is traced. So do optimizers: the update of a
variable is a chain.
"""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras

from bert_tf.features import Tensor

# `chain(*tensors, dtype)` returns tensors, or updates variables whose resources
# are among its inputs. `dtype`, at least as wide as that of the first input, is
# for intermediates; the dtypes of the results do not depend on it. Inputs and
# results may be None.
Chain = Callable[..., Any]


class Runner:
    """Computes operation by operation, and draws with Keras."""

    def run(self, chain: Chain, *tensors: Any) -> Any:
        """Returns a chain's results.

        Args:
            chain: See `Chain`. Pass the same object for the same function,
                because a runner may cache its compiled form.
            *tensors: Inputs of the chain. The first tells its size.
        """
        return chain(*tensors, tensors[0].dtype)

    def draw_words(self, shape: tuple[Any, ...], seed: Tensor) -> Tensor:
        """Returns random int32, of `[-2**31, 2**31 - 2]`.

        They are the same numbers whatever the runner.

        Args:
            shape: Ints, or scalar tensors where a length is not known.
            seed: int `[2]`.
        """
        return keras.random.randint(
            shape,
            minval=-(2**31),
            maxval=2**31 - 1,
            dtype="int32",
            seed=_Drawn(seed),
        )


class _Drawn(keras.random.SeedGenerator):
    """Wraps an existing seed, because Keras draws from generators only."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


PLAIN = Runner()

# Per thread: MirroredStrategy traces its devices in threads.
_RUNNER: contextvars.ContextVar[Runner] = contextvars.ContextVar(
    "runner", default=PLAIN
)


@contextlib.contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Makes layers and optimizers use a runner in the block."""
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def runner_here() -> Runner:
    """Returns the runner of the block, or `PLAIN` outside of any."""
    return _RUNNER.get()
