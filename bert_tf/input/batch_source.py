"""What training and evaluation take their batches from."""

from typing import Protocol
from typing import TypeAlias

import tensorflow as tf

# A host's part in a run; None for one host with one replica.
Context: TypeAlias = tf.distribute.InputContext | None


class BatchSource(Protocol):
    """What the loop asks of a source of examples, once on each host.

    The order of training examples is a function of (seed, epoch) alone, never
    of an iterator's state: a run that stopped goes on at an example's number.
    A global batch is the same rows however many replicas or hosts share it.
    The datasets yield the batches of the host's replicas one after the other,
    {name: [B, ...]}, all of one static shape.
    """

    @property
    def num_examples(self) -> int:
        """The examples of an epoch."""

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches, without end.

        Args:
            batch_size: Examples a step, over all replicas.
            start_example: The number of the first one, counted over all
                epochs from 0.
            context: The host's `Context`.
        """

    def evaluation_batches(
        self, batch_size: int, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the batches of every example once, in order.

        `example_weights` is 0 on what fills the last batch.

        Args:
            batch_size: Examples a step, over all replicas.
            context: The host's `Context`.
        """
