"""The record of a training: its losses, and its scores by epoch."""

import json
import math
import numbers
from collections.abc import Sequence
from typing import Any

from bert_tf import atomic
from bert_tf import files
from bert_tf.tasks import metrics
from bert_tf.tasks.task import Task
from bert_tf.training import checkpointing

_NAME = "epochs.json"
# Values of reports that are not kept: the same training has others each time.
_SPEEDS = {
    *("step_seconds", "input_share"),
    *("examples_per_second", "tokens_per_second"),
}


class EpochRecord:
    """The reports and evaluations of one training, kept beside its state.

    Args:
        folder: The folder of the training's state.
        main_metric: The result by which epochs are compared. Higher is better,
            NaN the worst; the first of equal epochs is the best.
        step: The step from which the training resumes. Records of later steps
            are dropped, as these steps are made again.

    Attributes:
        training: A list of {name: float}, with `step` and `loss` in each.
        evaluations: A list of {name: float}, with `epoch` and `global_step`
            in each.
        model_step: The step of the model in the output folder, if it is the
            last epoch's; None before there is one. A resumed training has
            later checkpoints before it has a later model.
        stopped: The step at which a callback ended the training, and the
            number of steps that it would have had; None if none did.
    """

    def __init__(
        self, folder: files.AnyPath, main_metric: str, step: float
    ) -> None:
        self._path = f"{folder}/{_NAME}"
        self._main_metric = main_metric
        self.training: list[dict[str, float]] = []
        self.evaluations: list[dict[str, float]] = []
        self.model_step: int | None = None
        self.stopped: list[int] | None = None
        if not files.exists(self._path):
            return
        values = files.read_json(self._path)
        try:
            self.training = [
                report
                for report in values["training"]
                if report["step"] <= step
            ]
            self.evaluations = [
                results
                for results in values["evaluations"]
                if results["global_step"] <= step
            ]
            # Older releases did not write it.
            self.model_step = values.get("model_step")
            self.stopped = values.get("stopped")
        except (AttributeError, KeyError, TypeError) as error:
            raise self._no_record() from error

    def _no_record(self):
        return ValueError(
            f"{self._path}: not the record of a training. Restore it, or "
            "delete it: a training that compares no epochs needs none."
        )

    def check_evaluated(self, ends: Sequence[int], step: int) -> None:
        """Checks that every finished epoch has a score.

        For a training that compares its epochs. Otherwise the next epoch would
        count as the best and replace the model that was kept.

        Args:
            ends: The steps at which epochs end.
            step: The step from which the training resumes. The epoch that ends
                with it may not have been evaluated yet.

        Raises:
            ValueError: If an epoch has no results, or none for `main_metric`.
        """
        for results in self.evaluations:
            # Raises now, not at the end of the next epoch.
            self._score(results)
        found = {results["global_step"] for results in self.evaluations}
        missing = [end for end in ends if end < step and end not in found]
        if missing:
            raise ValueError(
                f"{self._path}: must hold the scores of all epochs before step "
                f"{step}, to compare them with the next ones. Received: none "
                f"of step {missing[0]}. Restore it, or begin anew with another "
                "--output_dir; the model that was kept is untouched."
            )

    def add(self, epoch: int, results: dict[str, float]) -> None:
        """Adds an epoch's results; drops others of the same or later steps."""
        self.evaluations = [
            earlier
            for earlier in self.evaluations
            if earlier["global_step"] < results["global_step"]
        ]
        self.evaluations.append({"epoch": epoch, **results})

    @property
    def best(self) -> dict[str, float]:
        """The results of the best epoch, {name: float}.

        Raises:
            ValueError: If the record lacks the `main_metric` of an epoch.
        """
        # `max` returns the first of equal ones.
        return _without_epoch(max(self.evaluations, key=self._score))

    def _score(self, results):
        score = results.get(self._main_metric)
        # A user's task may return NumPy numbers.
        is_number = isinstance(score, numbers.Real)
        if not is_number or isinstance(score, bool):
            raise self._no_record()
        return metrics.comparable(score)

    @property
    def num_without_gain(self) -> int:
        """Number of epochs since the best one."""
        if not self.evaluations:
            return 0
        steps = [results["global_step"] for results in self.evaluations]
        return len(steps) - 1 - steps.index(self.best["global_step"])

    def results_at(self, step: int) -> dict[str, float] | None:
        """Returns the results of the evaluation at a step, or None."""
        for results in self.evaluations:
            if results["global_step"] == step:
                return _without_epoch(results)
        return None

    def write(self) -> None:
        """Writes the record: the whole file or nothing."""
        training = [
            {name: report[name] for name in report if name not in _SPEEDS}
            for report in self.training
        ]
        values: dict[str, Any] = {
            "training": training,
            "evaluations": self.evaluations,
        }
        if self.model_step is not None:
            values["model_step"] = self.model_step
        if self.stopped is not None:
            values["stopped"] = self.stopped
        atomic.write_text(self._path, json.dumps(values, indent=1) + "\n")


def _without_epoch(results):
    return {name: results[name] for name in results if name != "epoch"}


def step_of_model(folder: str, task: Task) -> int:
    """Returns the step of the tuned model in a folder.

    Args:
        folder: The model's folder.
        task: The `Task` it is evaluated with.
    """
    found = checkpointing.read_description(folder) or {}
    if found.get("keep_best"):
        # Its metrics may differ from those of this evaluation.
        task = task.from_dict(found["task"])
    record = EpochRecord(
        f"{folder}/{checkpointing.FOLDER}", task.main_metric, math.inf
    )
    if found.get("keep_best") and record.evaluations:
        return int(record.best["global_step"])
    if record.model_step is not None:
        return record.model_step
    return checkpointing.trained_steps(folder)
