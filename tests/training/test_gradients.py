"""Custom gradients: the same in four ways of calling them, and no leak."""

import dataclasses
import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf import features
from bert_tf.models import objectives
from bert_tf.models import sentence_chunks
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.training.compiled_steps import CompiledSteps
from bert_tf.training.strategy import make_strategy
from references import training as reference

# Of two tiles of queries, the second one not full.
LENGTH = 150
CONFIG = dataclasses.replace(
    reference.tiny_config(0.3),
    max_position_embeddings=LENGTH,
    num_hidden_layers=1,
)


def make_inputs():
    random = np.random.default_rng(3)
    ids = random.integers(1, reference.VOCAB_SIZE, (2, LENGTH))
    lengths = np.array([LENGTH, 77])[:, None]
    return {
        "input_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(np.arange(LENGTH) < lengths, tf.int32),
        "segment_ids": tf.constant(np.arange(LENGTH) > lengths // 2, tf.int32),
    }


def gradients(way, policy, **options):
    """Returns the gradients of all weights, called in one of five ways."""
    strategy = tf.distribute.get_strategy()
    if way == "mirrored":
        strategy = make_strategy("mirrored", num_cpu_devices=2)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        encoder = BertEncoder(CONFIG, dtype=policy, **options)
        reference.set_weights(encoder)
    states = backend.seed_states(encoder)

    def run(inputs):
        for number, state in enumerate(states):
            state.assign([5, number])
        with tf.GradientTape() as tape:
            outputs = encoder(inputs, training=True)
            loss = tf.reduce_sum(outputs["sequence_output"][:, :3] ** 3)
            loss += tf.reduce_sum(outputs["pooled_output"])
        weights = [weight.value for weight in encoder.trainable_weights]
        return [
            tf.convert_to_tensor(slope)
            for slope in tape.gradient(loss, weights)
        ]

    runs = {
        "eager": run,
        "graph": tf.function(run, autograph=False),
        "jit": tf.function(run, autograph=False, jit_compile=True),
    }
    if way in runs:
        return runs[way](make_inputs())
    slopes = tf.function(lambda: strategy.run(run, [make_inputs()]))()
    first, second = zip(*map(strategy.experimental_local_results, slopes))
    # Both replicas were given the same rows and seeds.
    for slope, other in zip(first, second):
        np.testing.assert_allclose(slope, other, atol=1e-5)
    return first


@pytest.mark.parametrize("way", ["eager", "graph", "jit", "mirrored"])
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 0.05)]
)
def test_gradients_are_the_same_in_every_way(way, policy, tolerance):
    expected = gradients("graph", "float32", attention_chunk=0)
    got = gradients(way, policy, attention_chunk=128, rematerialize=True)
    for slope, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(
            slope, wanted, atol=tolerance * max(1, np.abs(wanted).max())
        )


def pretrain(policy):
    model = BertPretrainer(
        reference.tiny_config(0.3), dtype=policy, rematerialize=True
    )
    optimizer = BertOptimizer(1e-3)
    optimizer.build(model.trainable_variables)
    steps = CompiledSteps(model, objectives.PRETRAINING, optimizer)
    batches = tf.data.Dataset.from_tensors(reference.pretraining_arrays(4))
    steps.run(tf.distribute.get_strategy(), iter(batches.repeat()), 0, 2)
    return model


def fit(task):
    model = task.make_model(CONFIG, dtype="mixed_bfloat16", attention_chunk=128)
    model.compile(BertOptimizer(1e-3), task.loss())
    queries = make_inputs()
    passages = {
        name: queries[query][:, None]
        for query, name in zip(
            features.MODEL_INPUTS, features.PASSAGE_INPUTS, strict=True
        )
    }
    model.fit(queries | passages, np.zeros(2), batch_size=2, verbose=0)
    return model


@pytest.mark.parametrize(
    "train",
    [
        lambda: pretrain("float32"),
        lambda: pretrain("mixed_bfloat16"),
        lambda: fit(RetrievalTask()),
        lambda: fit(RetrievalTask(chunk_size=1)),
    ],
    ids=["float32", "bfloat16", "attention_in_chunks", "retrieval_in_chunks"],
)
def test_a_trained_model_leaves_no_weights_behind(train):
    """TensorFlow's register of gradients held the graph, and it the weights."""
    # The first of its kind is traced.
    train()
    gc.collect()
    num_traced = sentence_chunks._runner.cache_info().currsize
    model = train()
    assert sentence_chunks._runner.cache_info().currsize == num_traced
    handles = [
        weakref.ref(weight.value.handle) for weight in model.trainable_weights
    ]
    assert len(handles) > 20
    del model
    gc.collect()
    assert [handle() for handle in handles if handle() is not None] == []
