"""The runs of `run_glue`: what is kept of each, and the tables of all.

A run writes to its folder, in this order: the training state, from which
`run_classifier` resumes; the model; the results; and run.json, which marks the
run as finished. Then the state is removed. So a run that was killed is either
finished or can be resumed.
"""

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Iterable
from collections.abc import Sequence

from bert_tf import atomic
from bert_tf import files
from bert_tf.tasks import metrics
from bert_tf.tasks import tables
from bert_tf.tasks.classification import glue_files
from bert_tf.training import checkpointing
from bert_tf.training import evaluation

_RUN_FILE = "run.json"
_HEADER = (
    *("task", "score", "learning rate", "seeds", "median", "best", "best run"),
)


@dataclasses.dataclass(kw_only=True)
class Run:
    """A run of `run_classifier`.

    Args:
        task: A key of `glue_files.GLUE_TASKS`.
        learning_rate, seed: What differs between the runs of a task.
        folder: The run's folder.
        flags: The flags that it is run with.

    Attributes:
        results: {name: float}; None until it is finished.
    """

    task: str
    learning_rate: float
    seed: int
    folder: str
    flags: Sequence[str] = dataclasses.field(repr=False)
    results: dict[str, float] | None = None

    def find_results(self) -> None:
        """Takes the results of a run that is finished.

        Raises:
            ValueError: If it was run with other flags.
        """
        path = os.path.join(self.folder, _RUN_FILE)
        if not files.exists(path):
            return
        found = files.read_json(path)
        # In earlier releases every run predicted, not only the best one.
        found_flags = [
            flag
            for flag in found["flags"]
            if flag not in ("--do_predict", "--nodo_predict")
        ]
        if found_flags != [*self.flags]:
            differences = sorted({*found_flags} ^ {*self.flags})
            raise ValueError(
                f"{path}: that run had other flags: {' '.join(differences)}. "
                "Give another --output_dir, or delete the run's folder."
            )
        # 0.2.0 could keep the states of runs.
        if not found.get("keeps_state", True):
            self._remove_state()
        self.results = found["results"]

    def finish(self) -> None:
        """Takes the results, marks the run as finished, removes its state."""
        self.results = evaluation.read_results(
            f"{self.folder}/{evaluation.RESULTS_FILE}"
        )
        values = {
            "flags": [*self.flags],
            "keeps_state": False,
            "results": self.results,
        }
        atomic.write_text(
            os.path.join(self.folder, _RUN_FILE),
            json.dumps(values, indent=1) + "\n",
        )
        self._remove_state()

    def _remove_state(self):
        state = os.path.join(self.folder, checkpointing.FOLDER)
        if files.exists(state):
            files.remove(state)

    @property
    def main_score(self) -> float:
        """The first score of the task, of which NaN is the lowest."""
        assert self.results is not None
        name = glue_files.GLUE_TASKS[self.task].task.main_metric
        return metrics.comparable(self.results[name])


def best_run(task: str, runs: Iterable[Run]) -> Run:
    """Returns the finished run of a task with the highest score."""
    return max(_finished(task, runs), key=lambda run: run.main_score)


def write_tables(output_dir: str, runs: Sequence[Run]) -> str:
    """Writes table.md and table.json; returns the former's text."""
    rows: list[tuple] = []
    for task in dict.fromkeys(run.task for run in runs):
        if finished := _finished(task, runs):
            rows += _rows(task, finished)
    num_done = sum(run.results is not None for run in runs)
    text = (
        "Scores on the development sets, times 100. The learning rate is the "
        "one with the highest median over the seeds in the task's first score; "
        "the best run is that of all learning rates. "
        f"{num_done} of {len(runs)} runs are done.\n\n"
        f"{tables.table(_HEADER, rows)}\n"
    )
    atomic.write_text(os.path.join(output_dir, "table.md"), text)
    described = [dataclasses.asdict(run) for run in runs]
    for values in described:
        del values["flags"]
    values = {
        "table": [dict(zip(_HEADER, row)) for row in rows],
        "runs": described,
    }
    atomic.write_text(
        os.path.join(output_dir, "table.json"),
        json.dumps(files.with_nulls(values), indent=1) + "\n",
    )
    return text


def _finished(task, runs):
    return [run for run in runs if run.task == task and run.results]


def _rows(task, runs):
    """Yields a task's rows of the table, one for each score."""
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        by_rate.setdefault(run.learning_rate, []).append(run)
    rate = max(
        by_rate,
        key=lambda rate: statistics.median(
            run.main_score for run in by_rate[rate]
        ),
    )
    best = best_run(task, runs)
    for metric in glue_files.GLUE_TASKS[task].task.metrics:
        for name in (metric, f"mismatched_{metric}"):
            if f"eval_{name}" not in (best.results or {}):
                continue
            best_score, *scores = (
                (run.results or {})[f"eval_{name}"]
                for run in (best, *by_rate[rate])
            )
            # Of an even number, NaN would make the median depend on the order.
            median = statistics.median(map(metrics.comparable, scores))
            yield (
                task,
                name,
                str(rate),
                len(scores),
                100 * (math.nan if median == -math.inf else median),
                100 * best_score,
                os.path.basename(best.folder),
            )
