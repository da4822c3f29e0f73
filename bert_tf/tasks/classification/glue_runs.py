"""Marks the runs of `run_glue` as finished, safely if they are killed.

A run writes to its folder, in this order: the training state, from which
`run_classifier` resumes; the model; the results; and run.json, which marks the
run as finished. Then the state is removed. So a run that was killed is either
finished or can be resumed.
"""

import json
import os

from bert_tf import files
from bert_tf.training import checkpointing
from bert_tf.training import evaluation

_RUN_FILE = "run.json"


def finish(folder: str, run_flags: list[str]) -> dict[str, float]:
    """Marks a run as finished, and removes its training state.

    Args:
        folder: The run's folder.
        run_flags: The list of flags that it was run with.

    Returns:
        Its results, {name: float}.
    """
    results = evaluation.read_results(f"{folder}/{evaluation.RESULTS_FILE}")
    values = {"flags": run_flags, "results": results}
    files.write_text(
        os.path.join(folder, _RUN_FILE), json.dumps(values, indent=1) + "\n"
    )
    _remove_state(folder)
    return results


def finished_results(
    folder: str, run_flags: list[str]
) -> dict[str, float] | None:
    """Returns the results of a run, or None if it is not finished.

    Args:
        folder, run_flags: See `finish`.

    Raises:
        ValueError: If it was run with other flags.
    """
    path = os.path.join(folder, _RUN_FILE)
    if not files.exists(path):
        return None
    found = files.read_json(path)
    # In earlier releases every run predicted, not only the best one.
    found_flags = [
        flag
        for flag in found["flags"]
        if flag not in ("--do_predict", "--nodo_predict")
    ]
    if found_flags != run_flags:
        differences = sorted(set(found_flags) ^ set(run_flags))
        raise ValueError(
            f"{path}: that run had other flags: {' '.join(differences)}. Give "
            "another --output_dir, or delete the run's folder."
        )
    _remove_state(folder)
    return found["results"]


def _remove_state(folder):
    state = os.path.join(folder, checkpointing.FOLDER)
    if files.exists(state):
        files.remove(state)
