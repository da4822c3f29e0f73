"""Computes a model's outputs for every example of a source."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import progress_bar


class Predictor:
    """Computes a model's outputs for every example of a source.

    Args:
        model: A `keras.Model` made in the strategy's scope.
        strategy: Any `tf.distribute.Strategy`.
    """

    def __init__(
        self, model: keras.Model, strategy: tf.distribute.Strategy
    ) -> None:
        self._strategy = strategy

        # It takes the iterator, whose type is always the same, so that it is
        # traced only once for batches of different lengths.
        @tf.function(autograph=False)
        def run_step(iterator):
            return strategy.run(
                lambda inputs: model(inputs, training=False),
                args=(next(iterator),),
            )

        self._run_step = run_step

    def __call__(self, source: Any, batch_size: int) -> np.ndarray:
        """Returns what the source keeps of the logits; by default all.

        Args:
            source: A `tasks.source.Source`.
            batch_size: Examples a step, over all replicas.
        """
        batches = self._strategy.distribute_datasets_from_function(
            lambda context: source.evaluation_batches(
                batch_size, context=context
            ).map(_model_inputs)
        )
        iterator = iter(batches)
        count = source.num_examples
        starts = range(0, count, batch_size)
        outputs, num_filled = None, 0
        with progress_bar.track(starts, "predict", len(starts)) as tracked:
            for start in tracked:
                rows = self._strategy.gather(
                    self._run_step(iterator), axis=0
                ).numpy()
                # The last batch is padded with extra rows.
                kept = source.kept(rows[: count - start], start)
                if outputs is None:
                    # Filled in place: joining the batches would hold them all
                    # twice, which is gigabytes for spans.
                    outputs = np.empty(
                        (source.num_kept, *kept.shape[1:]), kept.dtype
                    )
                outputs[num_filled : num_filled + len(kept)] = kept
                num_filled += len(kept)
        assert outputs is not None, "There are no examples."
        return outputs


def _model_inputs(batch):
    return {name: batch[name] for name in features.MODEL_INPUTS}
