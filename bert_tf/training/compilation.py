"""Compiles steps or their chains with XLA, and logs how long that takes."""

import contextlib
import enum
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import philox
from bert_tf.layers import chains

# A smaller chain gains little, and the first step waits up to a tenth of a
# second for each that is compiled.
_MIN_ELEMENTS = 2**19 + 1


class Compilation(enum.Enum):
    """Which part of a training step XLA compiles."""

    NOTHING = "nothing"
    # On CPUs, the chains of its layers, its loss and its update: see
    # `compiled_chains`.
    CHAINS = "chains"
    # The whole step on one device; otherwise the part without communication
    # between replicas.
    STEP = "step"


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function compiled with XLA, once for each set of shapes.

    Args:
        function: A function of nests of tensors. Shapes that are not static
            are known when it is called.
    """
    return tf.function(function, autograph=False, jit_compile=True)


def compiled_chains() -> contextlib.AbstractContextManager[None]:
    """Makes layers and optimizers compile their chains in the block with XLA.

    Matrix products are left to TensorFlow. This applies only if all devices are
    CPUs: the gain on GPUs has not been measured, and TPUs compile everything
    anyway.
    """
    devices = tf.config.list_logical_devices()
    is_on_cpus = all(device.device_type == "CPU" for device in devices)
    return chains.run_by(_CompilingRunner() if is_on_cpus else chains.PLAIN)


class _CompilingRunner(chains.Runner):
    """Has XLA compile what is large enough, and of a static shape.

    XLA would compile a chain again for every dynamic length.
    """

    def run(self, chain, *tensors):
        num_elements = tensors[0].shape.num_elements()
        if num_elements is None or num_elements < _MIN_ELEMENTS:
            return super().run(chain, *tensors)
        return _compiled_chain(chain)(*tensors)

    def draw_words(self, shape, seed):
        lengths = tf.TensorShape(
            [length if isinstance(length, int) else None for length in shape]
        )
        num_words = lengths.num_elements()
        # A word serves two elements.
        is_small = num_words is None or 2 * num_words < _MIN_ELEMENTS
        if is_small or num_words % 4:
            return super().draw_words(shape, seed)
        if seed.dtype != tf.int32:
            # As Keras does it.
            seed = tf.cast(tf.math.floormod(seed, 2**31 - 2), tf.int32)
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        words = _compiled_drawing(num_words // 4)(key, counter)
        return tf.reshape(tf.bitcast(words, tf.int32), shape)


@functools.cache
def _compiled_chain(chain):
    def run_compiled_chain(*tensors):
        # Intermediates never reach memory, so float32 costs nothing.
        is_wide = tensors[0].dtype == tf.float64
        return chain(*tensors, "float64" if is_wide else "float32")

    return jit(run_compiled_chain)


@functools.cache
def _compiled_drawing(num_groups):
    """Returns a function that draws groups of four words, as TensorFlow does.

    TensorFlow computes one word after the other, XLA several at once.
    """

    def draw(key, counter):
        """Returns uint64 `[num_groups, 2]`, each of two words.

        Args:
            key: uint64 `[1]`.
            counter: uint64 `[2]`. The first, to which the number of the group
                is added, is 0.
        """
        group = tf.cast(tf.range(num_groups), tf.uint64)
        right_shift = tf.bitwise.right_shift
        words = philox.philox(
            (group, counter[0], *philox.halves(counter[1], right_shift)),
            philox.halves(key[0], right_shift),
            right_shift,
        )
        # TensorFlow takes them modulo 2**32 - 1, the size of the range.
        words = [
            tf.where(word == np.uint64(2**32 - 1), np.uint64(0), word)
            for word in words
        ]
        low, high = tf.stack(words[::2], -1), tf.stack(words[1::2], -1)
        pairs = tf.bitwise.left_shift(high, np.uint64(32)) | low
        # Of integers that begin at -2**31.
        return pairs ^ np.uint64(2**63 + 2**31)

    return jit(draw)


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
