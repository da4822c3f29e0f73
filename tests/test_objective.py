"""The division of loss terms by their weights."""

import numpy as np
import pytest

from bert_tf.models.objective import Objective


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


def test_a_term_without_weight_is_zero():
    terms = make_objective().loss_terms({"a": 3.0}, {"a": 0.0})
    np.testing.assert_allclose(terms["a"], 0.0)


def test_names_must_agree():
    with pytest.raises(ValueError, match=r"losses=\['a'\], weights=\['b'\]"):
        make_objective().loss_terms({"a": 3.0}, {"b": 1.0})
