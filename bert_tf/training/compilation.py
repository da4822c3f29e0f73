"""Steps compiled with XLA, and what the log tells of it."""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf import features

_logger = logging.getLogger(__name__)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function compiled with XLA, anew for tensors of new shapes.

    Args:
        function: A function of nests of tensors, whose shapes, where they are
            not static, are known when it is called.
    """
    return tf.function(function, autograph=False, jit_compile=True)


class Log:
    """Tells that a step is being compiled, and how long it took.

    XLA compiles inside of TensorFlow when the first batch of a shape is there,
    which takes seconds to minutes.

    Attributes:
        num_compiled: How often a step was.
    """

    def __init__(self) -> None:
        self.num_compiled = 0
        self._known: set[tuple[int, ...]] = set()
        self._start: float | None = None

    def begins(
        self, strategy: tf.distribute.Strategy, batch: Any
    ) -> tf.Operation:
        """Returns an operation that notes a step about to begin.

        Args:
            strategy: The `tf.distribute.Strategy`.
            batch: The step's batch, as the strategy has it.
        """
        # Trimmed replicas may be of several lengths.
        ids = strategy.experimental_local_results(batch[features.INPUT_IDS])
        shapes = tf.stack([tf.shape(each) for each in ids])
        return tf.numpy_function(self._begins, [shapes], [])

    def ends(self) -> tf.Operation:
        """Returns an operation that notes that the step has ended."""
        return tf.numpy_function(self._ends, [], [])

    def _begins(self, shapes):
        new = set(map(tuple, shapes.tolist())) - self._known
        if new:
            self._known |= new
            self._start = time.monotonic()
            told = (" x ".join(map(str, shape)) for shape in sorted(new))
            _logger.info(
                "Compiling the step with XLA for batches of %s.",
                " and ".join(told),
            )

    def _ends(self):
        if self._start is not None:
            seconds = time.monotonic() - self._start
            _logger.info("Compiled; with its first step %.1f s.", seconds)
            self._start = None
            self.num_compiled += 1
