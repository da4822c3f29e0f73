"""Writes what an evaluation found, and what the model card says."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import model_folder
from bert_tf.tasks import calibration
from bert_tf.tasks.task import Task
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.tuning import report
from bert_tf.tuning import temperatures
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.record import EpochRecord


class Reporter:
    """Writes the results of a run: eval_results.txt, report.md, the card.

    Make it before the model's weights are read.

    Args:
        config: The `FineTuningConfig`.
        folder: The folder of the training that the model comes from.
        dataset: Name of the TensorFlow Datasets set that the examples come
            from; None if they come from elsewhere.
    """

    def __init__(
        self, config: FineTuningConfig, folder: str, dataset: str | None
    ) -> None:
        self._config = config
        self._folder = folder
        self._dataset = dataset
        self.read_card()

    def read_card(self) -> None:
        """Reads the model card; call it when the model has been written.

        Results are later added to this card only, since another one may be of
        other weights.
        """
        self._card = model_folder.read_card(self._folder)

    def make_origin(
        self,
        task: Task,
        start: str | None,
        source: Any,
        settings: Mapping[str, Any],
    ) -> model_card.Origin:
        """Returns the training's `Origin`, for the model card.

        Args:
            task: The `Task`.
            start: The checkpoint that the training begins with; None for new
                weights.
            source: The training set's `Source`.
            settings: {name: value} of the training.
        """
        return model_card.Origin(
            name=task.title,
            method="fine-tuned",
            start=start,
            data={
                "Training set": {
                    "TensorFlow Datasets": self._dataset,
                    source.unit.capitalize(): f"{source.num_examples:,}",
                }
            },
            datasets=(self._dataset,) if self._dataset else (),
            settings=settings,
        )

    def write(
        self,
        task: Task,
        source: Any,
        answers: Any,
        results: Mapping[str, float],
        settings: Mapping[str, Any],
        temperature_note: str = "",
    ) -> dict[str, float]:
        """Writes and prints the results of an evaluation, and its report.

        Args:
            task: The `Task`, with the values it chose on the development set.
            source: The development set's `Source`.
            answers: The task's answers to it.
            results: {name: float} of the evaluation.
            settings: {name: value} that the report shows after the options and
                the task.
            temperature_note: The sentence from `temperatures.fit`; "" if no
                temperature was fitted.

        Returns:
            The results, with those of the calibration.
        """
        config, examples = self._config, source.examples
        results = dict(results)
        sections = task.report_sections(examples, answers, results)
        temperature = calibration.temperature_of(task)
        if config.calibrate or temperature != 1:
            calibrated, section = temperatures.describe(
                answers, examples.labels, temperature, temperature_note
            )
            sections = [*sections, section]
            results |= calibrated
        path = os.path.join(config.output_dir, evaluation.RESULTS_FILE)
        evaluation.write_results(path, results)
        for name in sorted(results):
            print(f"{name} = {results[name]}")
        report.write(
            config.output_dir,
            f"{task.title}: {task.main_metric} {results[task.main_metric]:.4g}",
            results,
            EpochRecord(
                f"{self._folder}/{checkpointing.FOLDER}",
                task.main_metric,
                math.inf,
            ),
            {**dataclasses.asdict(config), **task.to_dict(), **settings},
            sections,
            task.report_scores,
        )
        # If the model is in another folder, only the results are written here.
        if self._folder == config.output_dir:
            self._write_to_card(task, source, results)
        return results

    def _write_to_card(self, task, source, results):
        """Writes the results into the model card."""
        model_folder.write_results(
            self._folder,
            self._card,
            task.title,
            self._dataset or _name_of(task, source),
            report.shown_results(results, task.report_scores),
        )


def _name_of(task, source):
    """Returns what a model card calls a development set."""
    # Not all families of tasks have names, and not all examples come from a
    # file, which may differ from the last time.
    name = str(getattr(task, "name", "development set"))
    if (path := getattr(source.examples, "path", None)) is not None:
        name = f"{name}, {os.path.basename(path)}"
    return f"{name}, {source.num_examples:,} {source.unit}"
