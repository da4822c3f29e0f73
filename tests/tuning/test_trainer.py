"""What trains a task, by strategy."""

from unittest import mock

import keras
import tensorflow as tf

from bert_tf.training import loop
from bert_tf.tuning import trainer
from bert_tf.tuning.config import FineTuningConfig


def test_the_loop_trains_on_a_tpu(tmp_path):
    """It was refused as if --jit_compile=false had been given."""
    cores = mock.Mock(spec=tf.distribute.TPUStrategy)
    cores.num_replicas_in_sync = 8
    cores.cluster_resolver = object()
    config = FineTuningConfig(output_dir=str(tmp_path), do_train=True)
    state = mock.Mock()
    state.model = keras.Sequential([keras.layers.Dense(1)])
    train = trainer.make_trainer(
        config,
        mock.Mock(),
        mock.Mock(),
        state,
        mock.Mock(),
        100,
        cores,
    )
    assert train.func is loop.train
    assert train.keywords["history"] is not None
