"""Evaluation of a model over a source, on any strategy."""

import itertools
from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf import progress_bar
from bert_tf.input import errors
from bert_tf.input.batch_source import BatchSource
from bert_tf.models.objectives import Objective
from bert_tf.training import progress
from bert_tf.training import step as step_lib
from bert_tf.training import strategy as strategies

# Where `write_results` writes, in the folder of the model.
RESULTS_FILE = "eval_results.txt"


def make_evaluation(
    model: keras.Model,
    objective: Objective,
    source: BatchSource,
    batch_size: int,
    strategy: tf.distribute.Strategy,
    max_batches: int | None = None,
) -> Callable[[], dict[str, float]]:
    """Returns a function that evaluates the model as it is when called.

    It goes over every example once, or over the first `max_batches` batches.

    Args:
        model: A `keras.Model`.
        objective: An `Objective`.
        source: A source of batches.
        batch_size: Examples a step, over all replicas.
        strategy: The `tf.distribute.Strategy` that the model was made in.
        max_batches: If given, the largest number of batches.

    Returns:
        A function without arguments. It returns {name: float} of `loss`, its
        terms and the metrics. Terms and metrics are sums over the examples
        divided by their weight; `loss` is the sum of its terms, each times its
        `loss_weights`.

        The function raises `ValueError` if the input is damaged or does not
        suit the model.
    """

    @tf.function(autograph=False)
    def run_step(batch):
        results = strategy.run(
            step_lib.eval_step, args=(model, objective, batch)
        )
        return strategies.on_first_replica(strategy, results)

    def run():
        with errors.clear_errors(getattr(source, "paths", ())):
            batches = strategy.distribute_datasets_from_function(
                lambda context: source.evaluation_batches(batch_size, context)
            )
            batches = itertools.islice(batches, max_batches)
            # There may be fewer batches: counting them may mean reading all.
            with progress_bar.track(
                batches, "evaluate", max_batches
            ) as tracked:
                results = [
                    tf.nest.map_structure(float, run_step(batch))
                    for batch in tracked
                ]
        if not results:
            raise ValueError(
                "There must be a batch to evaluate. Received: "
                f"max_batches={max_batches}."
            )
        sums = tf.nest.map_structure(lambda *values: sum(values), *results)
        terms = progress.ratios(sums["losses"])
        return {
            "loss": objective.loss(terms),
            **terms,
            **progress.ratios(sums["metrics"]),
        }

    return run


def write_results(path: str, results: dict[str, float]) -> None:
    """Writes sorted lines "name = value": the whole file or nothing."""
    lines = (f"{name} = {results[name]}\n" for name in sorted(results))
    atomic.write_text(path, "".join(lines))


def read_results(path: str) -> dict[str, float]:
    """Reads what `write_results` has written."""
    lines = files.read_text(path).splitlines()
    pairs = (line.split(" = ") for line in lines)
    return {name: float(value) for name, value in pairs}
