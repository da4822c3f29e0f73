"""Sources of training and evaluation batches."""

from typing import Protocol
from typing import TypeAlias

import tensorflow as tf

# A host's part in a run; None for one host with one replica.
Context: TypeAlias = tf.distribute.InputContext | None


class BatchSource(Protocol):
    """What the loop needs from a source of examples, once on each host.

    The order of training examples is a function of (seed, epoch) alone, never
    of an iterator's state, so that a run can resume at any example's number. A
    global batch has the same rows however many replicas or hosts share it. The
    datasets yield the batches of the host's replicas one after the other,
    {name: [B, ...]}, all of one static shape.
    """

    @property
    def unit(self) -> str:
        """What logs call the rows of a batch."""

    @property
    def num_examples(self) -> int:
        """The number of examples per epoch."""

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches, without end.

        Args:
            batch_size: Examples per step, over all replicas.
            start_example: The number of the first one, counted over all
                epochs from 0.
            context: The host's `Context`.
        """

    def evaluation_batches(
        self, batch_size: int, context: Context = None
    ) -> tf.data.Dataset:
        """Returns batches that hold every example once, in order.

        `example_weights` is 0 on the padding of the last batch.

        Args:
            batch_size: Examples per step, over all replicas.
            context: The host's `Context`.
        """
