"""How many operations the graph of a step has: each takes time to trace."""

import dataclasses

import tensorflow as tf

from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import step as step_lib
from references import training as reference


def count_operations(num_layers):
    config = dataclasses.replace(
        reference.tiny_config(dropout=0.1), num_hidden_layers=num_layers
    )
    model = BertPretrainer(config)
    optimizer = BertOptimizer(WarmupDecay(0.01, 20, 2))
    optimizer.build(model.trainable_variables)
    batch = {
        name: tf.constant(value)
        for name, value in reference.pretraining_arrays(4).items()
    }

    @tf.function(autograph=False)
    def run(batch, measures_update):
        return step_lib.train_step(
            model,
            PRETRAINING,
            optimizer,
            batch,
            measures_update=measures_update,
        )

    graph = run.get_concrete_function(batch, tf.constant(True)).graph
    return len(graph.get_operations())


def test_a_block_adds_few_operations():
    # Measured: 528, with TensorFlow 2.21 and Keras 3.15; 708 where every
    # variable has constants of its own and activations change their shapes.
    first, second = count_operations(1), count_operations(2)
    assert second - first <= 540
