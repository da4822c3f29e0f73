"""Objectives: terms over their weights, and losses of more than examples."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.models.objectives import Objective
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.training import step


def make_objective(weight_epsilon=0.0):
    return Objective(
        weights=lambda batch: {"a": batch["weight"]},
        losses=lambda outputs, batch: {"a": outputs},
        metrics=lambda outputs, batch: {},
        weight_epsilon=weight_epsilon,
    )


def test_terms_are_totals_over_weights():
    objective = make_objective(weight_epsilon=0.5)
    terms = objective.loss_terms({"a": 6.0, "b": 1.0}, {"a": 2.5, "b": 0.0})
    assert set(terms) == {"a", "b"}
    np.testing.assert_allclose(terms["a"], 2.0)
    np.testing.assert_allclose(terms["b"], 2.0)


def test_autograph_transforms_the_loss_of_a_step(caplog):
    objective = dataclasses.replace(make_objective(), loss_weights={"a": 2.0})
    loss = tf.function(lambda: objective.loss({"a": 3.0, "b": 1.0}))
    assert float(loss()) == 7.0
    assert "AutoGraph" not in caplog.text


def test_a_term_without_weight_is_zero():
    terms = make_objective().loss_terms({"a": 3.0}, {"a": 0.0})
    np.testing.assert_allclose(terms["a"], 0.0)


def test_names_must_agree():
    with pytest.raises(ValueError, match=r"losses=\['a'\], weights=\['b'\]"):
        make_objective().loss_terms({"a": 3.0}, {"b": 1.0})


@pytest.mark.parametrize(("num_classes", "hits"), [(3, 2.0), (2000, 5.0)])
def test_of_classes_with_one_logit_the_first_is_predicted(num_classes, hits):
    def ones(batch):
        return np.ones(5, "float32")

    objective = Objective.of_elements(ones, ones, "accuracy")
    logits = np.zeros((5, num_classes), "float32")
    logits[4, 2] = 1
    batch = {"labels": np.int32([0, 1, 2, 1, 2])}
    # A model that answers always alike is right where it answers so, and of a
    # vocabulary, where words of one logit are rare, everywhere.
    total, weight = objective.metrics(tf.constant(logits), batch)["accuracy"]
    assert (float(total), float(weight)) == (hits, 5.0)


class Line(keras.Model):
    """y = slope * x, of batches {"x": float32 [B]}."""

    def __init__(self, slope):
        super().__init__()
        self.slope = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(slope)
        )
        self.built = True

    def call(self, batch, training=None):
        return self.slope * batch["x"]


def test_a_loss_may_be_over_pairs_of_the_batch_and_of_two_models():
    teacher = Line(3.0)

    def losses(outputs, batch):
        differences = outputs[:, None] - outputs[None, :]
        errors = outputs - tf.stop_gradient(teacher(batch))
        return {
            "pairs": tf.reduce_sum(differences**2),
            "teacher": tf.reduce_sum(errors**2),
        }

    def weights(batch):
        size = tf.cast(tf.size(batch["x"]), tf.float32)
        return {"pairs": size**2, "teacher": size}

    model = Line(2.0)
    optimizer = BertOptimizer(0.1)
    optimizer.build(model.trainable_variables)
    x = np.array([1.0, -2.0, 4.0, 0.5], "float32")
    values = step.train_step(
        model,
        Objective(
            weights=weights,
            losses=losses,
            metrics=lambda outputs, batch: {},
        ),
        optimizer,
        {"x": tf.constant(x), "input_mask": tf.ones([4, 1], tf.int32)},
    )["values"]
    # With y = w x: w^2 mean (x_i - x_j)^2 and (w - 3)^2 mean x^2.
    pairs = np.mean((x[:, None] - x[None, :]) ** 2)
    squares = np.mean(x**2)
    np.testing.assert_allclose(values["pairs"], 4 * pairs, rtol=1e-6)
    np.testing.assert_allclose(values["teacher"], squares, rtol=1e-6)
    np.testing.assert_allclose(
        values["gradient_norm"], abs(4 * pairs - 2 * squares), rtol=1e-6
    )
    assert float(teacher.slope) == 3.0
