"""The best model of a pre-training so far, which has a folder of its own."""

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

from bert_tf import atomic
from bert_tf import files
from bert_tf.training import evaluation
from bert_tf.training import settings as settings_lib
from bert_tf.training.options import BEST_FOLDER
from bert_tf.training.options import FOLDER
from bert_tf.training.settings import RunSettings

# The loss of the best model and `_LOSS_SETTINGS` at that time. The file is
# beside the training's state.
_FILE = "best.json"
# If one of these settings differs, losses cannot be compared.
_LOSS_SETTINGS = {settings_lib.EVALUATION, "discriminator_weight"}


class BestModel:
    """Keeps the model whose evaluation has the lowest loss.

    Args:
        output_dir: The run's output folder.
        settings: The settings of the run, which may have been resumed and
            stopped with other settings before.

    Attributes:
        folder: Path of the folder that has the best model and its results.
        loss: Loss of the best model; None if there is no model, or if its loss
            cannot be compared with those of this run.
    """

    def __init__(self, output_dir: str, settings: RunSettings) -> None:
        output_dir = output_dir.rstrip("/")
        self.folder = f"{output_dir}/{BEST_FOLDER}"
        self._path = f"{output_dir}/{FOLDER}/{_FILE}"
        self._settings = settings
        self.loss: float | None = None

    def restore(self) -> None:
        """Finds the best model of the run so far; call it before `keep`.

        Raises:
            ValueError: If a file that describes the best model is damaged.
        """
        self.loss = _number(self._read_loss())

    def keep(self, loss: float, write: Callable[[str], object]) -> bool:
        """Replaces the best model if the loss of another one is lower.

        Args:
            loss: The other model's loss.
            write: Writes the other model into a folder, its results last.

        Returns:
            Whether the model was replaced.
        """
        if self.loss is not None and not loss < self.loss:
            return False
        if self.loss is None:
            # If the program is killed below, the next run will not take the
            # new model for that of the old loss.
            self._write_loss(None)
        write(self.folder)
        self.loss = _number(loss)
        self._write_loss(self.loss)
        return True

    def _write_loss(self, loss):
        """Writes the loss, None while there is none, and its settings."""
        values = {"loss": loss, "settings": self._loss_settings()}
        atomic.write_text(self._path, json.dumps(values, indent=2) + "\n")

    def _read_loss(self):
        """Returns the loss of the best model, None if it is not comparable."""
        results = f"{self.folder}/{evaluation.RESULTS_FILE}"
        if not files.exists(results):
            return None
        # The loss is not taken from the results if it is elsewhere: a later
        # evaluation of the model may have replaced them, with other records.
        if files.exists(self._path):
            return self._read_comparable_loss()
        with _damage_named(results):
            loss = evaluation.read_results(results)["loss"]
        # From an older release. Until the first checkpoint of a resumed run,
        # `changes` gives the changes since then.
        is_comparable = not _LOSS_SETTINGS & self._settings.changes().keys()
        return loss if is_comparable else None

    def _read_comparable_loss(self):
        with _damage_named(self._path):
            values = files.read_json(self._path)
            loss, old = values["loss"], values["settings"]
            if loss is not None:
                loss = float(loss)
            new = self._loss_settings()
            # A setting that only one side has comes from another release and
            # is ignored.
            is_comparable = all(
                old[name] == new[name] for name in old.keys() & new.keys()
            )
        return loss if is_comparable else None

    def _loss_settings(self) -> dict[str, Any]:
        values = self._settings.values
        return {
            name: values[name]
            for name in sorted(_LOSS_SETTINGS & values.keys())
        }


def _number(loss):
    """Returns the loss, or None for NaN, which any other loss beats."""
    return None if loss is None or math.isnan(loss) else loss


@contextlib.contextmanager
def _damage_named(path):
    """Turns errors about the contents of a file into a `ValueError`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: not the description of a training's best model. Remove "
            "it to resume; the best model so far is then forgotten."
        ) from error
