"""How many operations the graph of a step has: each takes time to trace."""

import dataclasses

import tensorflow as tf

from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import compiled_steps
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
    def run(batch):
        return step_lib.train_step(model, PRETRAINING, optimizer, batch)

    graph = run.get_concrete_function(batch).graph
    return len(graph.get_operations())


def test_a_block_adds_few_operations():
    # Measured: 1039, with TensorFlow 2.21 and Keras 3.15; 1075 with 2.20 and
    # 3.12.
    first, second = count_operations(1), count_operations(2)
    assert second - first <= 1090


def test_what_a_step_tells_is_of_its_own_batch():
    model = BertPretrainer(reference.tiny_config())
    optimizer = BertOptimizer(WarmupDecay(0.01, 20, 2))
    optimizer.build(model.trainable_variables)
    steps = compiled_steps.CompiledSteps(model, PRETRAINING, optimizer)
    strategy = tf.distribute.get_strategy()
    arrays = reference.pretraining_arrays(4)
    alone = {
        name: value
        for name, value in arrays.items()
        if name != "next_sentence_labels"
    }

    def names_of(arrays, step):
        batches = tf.data.Dataset.from_tensors(arrays)
        (results,), _ = steps.run(strategy, iter(batches), step, 1)
        return results["values"].keys(), results["metrics"].keys()

    # Pairs, texts alone, and pairs again: of these there is a graph already.
    first, second = names_of(arrays, 0), names_of(alone, 1)
    assert first[0] - second[0] == {"next_sentence_loss"}
    assert first[1] - second[1] == {"next_sentence_accuracy"}
    assert names_of(arrays, 2) == first
