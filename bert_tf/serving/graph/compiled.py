"""A model compiled by XLA, called with few shapes.

XLA compiles again for every input shape, which takes seconds. Rows are
therefore padded to the next of a few lengths, and batches to the next of a few
sizes.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.serving.graph import chunks


class CompiledModel:
    """A model compiled by XLA that computes one output per row of ids.

    Args:
        call_model: A function of model inputs, int32 `[B, L]`, to float32
            `[B, ...]`.
        specs: The model inputs' `tf.TensorSpec`s.
        row_shape: Shape of a row's output.
        lengths: The values of L, ascending; no row is longer.
        batch_sizes: The values of B, ascending.
        padding_id: The id that rows are padded with.
    """

    def __init__(
        self,
        call_model: Callable[[dict[str, tf.Tensor]], tf.Tensor],
        specs: dict[str, tf.TensorSpec],
        row_shape: Sequence[int | None],
        lengths: Sequence[int],
        batch_sizes: Sequence[int],
        padding_id: int,
    ) -> None:
        # One function for all signatures, so that they share what is compiled.
        self._call_model = tf.function(
            call_model, autograph=False, jit_compile=True
        ).get_concrete_function(specs)
        self._row_shape = list(row_shape)
        self._lengths = lengths
        self._batch_sizes = batch_sizes
        self._fill = {features.INPUT_IDS: padding_id}

    @property
    def chunk_size(self) -> int:
        """The most rows that `compute` takes."""
        return self._batch_sizes[-1]

    def compute(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns float32 `[B, ...]` for at most `chunk_size` rows.

        The rows must be valid, like those made from texts or returned by
        `inputs.check_ids`: XLA raises no errors.
        """
        shape = tf.shape(inputs[features.INPUT_IDS])
        padding = tf.stack(
            [
                [0, _next(sizes, shape[axis]) - shape[axis]]
                for axis, sizes in enumerate((self._batch_sizes, self._lengths))
            ]
        )
        outputs = self._call_model(
            {
                name: tf.pad(
                    value, padding, constant_values=self._fill.get(name, 0)
                )
                for name, value in inputs.items()
            }
        )
        return outputs[: shape[0]]

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns float32 `[B, ...]` for any number of rows.

        The rows must be valid, as in `compute`.
        """

        def compute_chunk(start):
            limit = start + self.chunk_size
            rows = {name: value[start:limit] for name, value in inputs.items()}
            return [tf.cast(self.compute(rows), tf.float32)]

        (outputs,) = chunks.concat_chunks(
            compute_chunk,
            tf.shape(inputs[features.INPUT_IDS])[0],
            self.chunk_size,
            [tf.TensorSpec([None, *self._row_shape], tf.float32)],
        )
        outputs.set_shape([None, *self._row_shape])
        return outputs


def _next(sizes: Sequence[int], size: Any) -> tf.Tensor:
    """Returns the first of the ascending sizes that is at least `size`."""
    return tf.gather(sizes, tf.searchsorted(sizes, size[tf.newaxis])[0])
