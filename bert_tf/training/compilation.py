"""Compiles steps with XLA, and logs how long that takes."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import features


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function compiled with XLA, once for each set of shapes.

    Args:
        function: A function of nests of tensors. Shapes that are not static
            are known when it is called.
    """
    return tf.function(function, autograph=False, jit_compile=True)


class Log:
    """Logs that a step is being compiled, and how long that took.

    XLA compiles inside TensorFlow when the first batch of a shape arrives,
    which takes seconds to minutes.

    Attributes:
        num_compiled: How often a step was compiled.
    """

    def __init__(self) -> None:
        self.num_compiled = 0
        self._known: set[tuple[int, ...]] = set()
        self._start: float | None = None

    def begins(
        self, strategy: tf.distribute.Strategy, batch: Any
    ) -> tf.Operation:
        """Returns an operation that notes that a step is about to begin.

        Args:
            strategy: The `tf.distribute.Strategy`.
            batch: The step's batch, as the strategy distributes it.
        """
        # The trimmed batches of replicas may have different lengths.
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
            shapes = (" x ".join(map(str, shape)) for shape in sorted(new))
            logging.info(
                "Compiling the step with XLA for batches of %s.",
                " and ".join(shapes),
            )

    def _ends(self):
        if self._start is not None:
            seconds = time.monotonic() - self._start
            logging.info("Compiled in %.1f s, with the first step.", seconds)
            self._start = None
            self.num_compiled += 1
