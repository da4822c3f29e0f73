"""Fits, keeps and reports the temperature of a tuned model.

`bert_tf.tasks.calibration` explains what it is and how it is fitted.
"""

from typing import Any

import numpy as np
from absl import logging

from bert_tf import messages
from bert_tf.checkpoints import model_folder
from bert_tf.tasks import calibration
from bert_tf.tasks.task import Task


def fit(task: Any, logits: np.ndarray, labels: np.ndarray) -> tuple[Any, str]:
    """Fits the temperature of a task on a development set.

    Args:
        task: A `Task` that is `calibration.Calibrated`.
        logits: Its answers to the set.
        labels: The labels of the set.

    Returns:
        The task with that temperature, or with its own if none can be fitted,
        and a sentence about it for the report.
    """
    try:
        temperature = calibration.fit_temperature(logits, labels)
    except calibration.CalibrationError as error:
        logging.warning(
            "No temperature can be fitted on the development set: %s. It stays "
            "%.4g.",
            error,
            task.temperature,
        )
        return task, f"**No temperature can be fitted on this set: {error}.**"
    note = (
        f"The temperature is fitted on this set ({len(labels):,} "
        "examples): on others the error will be larger."
    )
    return task.with_temperature(temperature), note


def stored(folder: str, task: Task) -> float:
    """Returns the temperature of the model in a folder; 1 if it has none.

    Raises:
        ValueError: If it is no temperature; the message names the file.
    """
    if not calibration.has_temperature(task):
        return 1.0
    values = model_folder.read_task(folder) or {}
    temperature = values.get("temperature", 1.0)
    with messages.errors_named(f"{folder}/{model_folder.TASK_FILE}"):
        calibration.check_temperature(temperature)
    return temperature


def keep(folder: str, output_dir: str, temperature: float) -> None:
    """Writes a temperature into a model's folder after an evaluation only.

    If the folder is not the output folder, or was not tuned here, it is not
    changed, and a warning says so.

    Args:
        folder: The model's folder.
        output_dir: The folder that the program writes to.
        temperature: The temperature.
    """
    values = model_folder.read_task(folder)
    if folder == output_dir and values is not None:
        values["temperature"] = temperature
        model_folder.write_task(folder, values)
        logging.info("%s now has the temperature %.4g.", folder, temperature)
    else:
        logging.warning(
            "The temperature is used only for these predictions and not kept "
            "with the model: %s is no folder that this program tuned, or "
            "not --output_dir.",
            folder,
        )


def describe(
    logits: np.ndarray, labels: np.ndarray, temperature: float, note: str
) -> tuple[dict[str, float], tuple[str, str]]:
    """Returns what a temperature achieves on a development set.

    Args:
        logits, labels: As for `fit`.
        temperature: The temperature.
        note: The sentence from `fit`; "" if it was not fitted here.

    Returns:
        The results, {name: float}, and a section of the report, (heading,
        Markdown).
    """
    before = calibration.measure(logits, labels)
    after = calibration.measure(logits, labels, temperature)
    return (
        calibration.results(before, after, temperature),
        calibration.section(
            before,
            after,
            temperature,
            note or "The temperature is as the model's folder has it.",
            has_sigmoids=labels.ndim == 2,
        ),
    )
