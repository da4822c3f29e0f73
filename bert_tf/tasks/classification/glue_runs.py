"""What `run_glue` keeps of a run that is finished, whenever it is killed.

A run's folder has, in this order: the training's state, with which
`run_classifier` resumes; the model; the results; run.json, from which on the
run is finished; and last the state is removed. So a run that is killed can be
resumed or is finished.
"""

import json
import os

from bert_tf import files
from bert_tf.training import checkpointing
from bert_tf.training import evaluation

_RUN_FILE = "run.json"


def finish(
    folder: str, run_flags: list[str], keeps_state: bool
) -> dict[str, float]:
    """Notes that a run is finished, and lets go of its training's state.

    Args:
        folder: The run's.
        run_flags: The list of flags that it was run with.
        keeps_state: Whether its training's state stays.

    Returns:
        Its results, {name: float}.
    """
    results = evaluation.read_results(f"{folder}/eval_results.txt")
    values = {
        "flags": run_flags,
        "keeps_state": keeps_state,
        "results": results,
    }
    files.write_text(
        os.path.join(folder, _RUN_FILE), json.dumps(values, indent=1) + "\n"
    )
    _let_go(folder, values)
    return results


def finished_results(
    folder: str, run_flags: list[str]
) -> dict[str, float] | None:
    """Returns the results of a run that is finished, or None.

    Args:
        folder, run_flags: As of `finish`.

    Raises:
        ValueError: If it was run with other flags.
    """
    path = os.path.join(folder, _RUN_FILE)
    if not files.exists(path):
        return None
    found = files.read_json(path)
    # Earlier releases had every run predict, and not the best one alone.
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
    _let_go(folder, found)
    return found["results"]


def _let_go(folder, values):
    state = os.path.join(folder, checkpointing.FOLDER)
    # Before run.json said whether it stays, the state was removed first.
    if not values.get("keeps_state", True) and files.exists(state):
        files.remove(state)
