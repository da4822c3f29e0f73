r"""Tunes a model to the tasks of GLUE, over learning rates and seeds.

    python -m bert_tf.run_glue --data_dir=glue --task_name=MRPC,CoLA,SST-2 \
        --learning_rate=5e-5,3e-5 --random_seed=1,2,3 \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=glue_runs

runs bert_tf.run_classifier once for each task, learning rate and seed, each in
its own process and folder. After each run it writes the scores of all into
table.md and table.json. The other flags of run_classifier are passed on to it.
Rerun the same command to resume after a stop: finished runs are not run again.

With --do_predict, the best run of each task answers its test sets, and
submission/ has the files for GLUE's leaderboard. AX, in AX/AX.tsv or
diagnostic/diagnostic.tsv of --data_dir, is answered by the best run of MNLI.
"""

import dataclasses
import itertools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import flags
from absl import logging

from bert_tf import atomic
from bert_tf import described
from bert_tf import files
from bert_tf import program
from bert_tf import training_flags
from bert_tf.training import preemption
from bert_tf.tuning.config import FineTuningConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueOptions:
    """What is run: each task with each rate and each seed."""

    data_dir: str = described.option(
        dataclasses.MISSING, "Folder with a folder of TSV files for every task."
    )
    task_name: Sequence[str] = described.option(
        (
            *("CoLA", "SST-2", "MRPC", "STS-B", "QQP"),
            *("MNLI", "QNLI", "RTE", "WNLI"),
        ),
        "Names of tasks, which are the names of their folders, too.",
    )
    # Devlin et al. 2018, section 4.1.
    learning_rate: Sequence[float] = described.option(
        (5e-5, 4e-5, 3e-5, 2e-5), "All are tried.", described.NOT_NEGATIVE
    )
    random_seed: Sequence[int] = described.option(
        (12345,), "All are tried.", described.SEED
    )

    def __post_init__(self):
        described.check(self)
        for name, value in vars(self).items():
            if not value:
                raise ValueError(f"--{name} must be given.")


program.define_flags(GlueOptions)
_SET = {"learning_rate", "random_seed", "do_train", "do_eval"}
_OF_RUNS = program.define_flags(
    FineTuningConfig,
    {field.name for field in dataclasses.fields(FineTuningConfig)} - _SET,
)
_POLL_SECONDS = 0.1


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    options = program.from_flags(GlueOptions)
    # Refuse here what run_classifier would refuse, before it is started.
    config = program.from_flags(
        FineTuningConfig,
        learning_rate=options.learning_rate[0],
        random_seed=options.random_seed[0],
        do_train=True,
        do_eval=True,
    )
    files.check_may_be_written_into(config.output_dir)
    tasks = _find_tasks(options, config.do_predict)

    from bert_tf.tasks.classification import glue_runs

    runs = []
    for (task, data), rate, seed in itertools.product(
        tasks.items(), options.learning_rate, options.random_seed
    ):
        folder = os.path.join(config.output_dir, task, f"lr{rate}-seed{seed}")
        run_flags = [
            *("--do_train", "--do_eval", *data),
            *(f"--learning_rate={rate}", f"--random_seed={seed}"),
            *(f"--output_dir={folder}", *_given_flags(_OF_RUNS)),
        ]
        # MNLI's model answers AX.
        if task != "ax":
            run = glue_runs.Run(
                task=task,
                learning_rate=rate,
                seed=seed,
                folder=folder,
                flags=run_flags,
            )
            run.find_results()
            runs.append(run)
    for number, run in enumerate(runs, start=1):
        logging.info("%d/%d  %s", number, len(runs), run.folder)
        if run.results is not None:
            logging.info("It is finished.")
        elif _classify(run.flags):
            run.finish()
            glue_runs.write_tables(config.output_dir, runs)
    print(glue_runs.write_tables(config.output_dir, runs), end="")
    if failed := [run.folder for run in runs if run.results is None]:
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}."
        )
    if config.do_predict:
        _collect_submission(config.output_dir, tasks, runs)


def _given_flags(names):
    """Returns the given flags of these names, and those of devices."""
    names = {*names} - {"output_dir", "do_predict"}
    by_module = flags.FLAGS.flags_by_module_dict()
    names |= {flag.name for flag in by_module[training_flags.__name__]}
    given = (flags.FLAGS[name] for name in names)
    return sorted(flag.serialize() for flag in given if flag.present)


def _find_tasks(options, is_answered):
    """Returns {key in `GLUE_TASKS`: flags of its data}, which must exist."""
    from bert_tf.tasks.classification import glue_files

    tasks = {}
    for name in options.task_name:
        key = glue_files.glue_key(name)
        folder = os.path.join(options.data_dir, name)
        if key == "ax" and not files.is_folder(folder):
            # Its name in the usual download.
            folder = os.path.join(options.data_dir, "diagnostic")
        wanted = [glue_files.TRAIN, glue_files.DEV]
        wanted += glue_files.TESTS if is_answered else []
        glue_files.GLUE_TASKS[key].check(folder, wanted)
        tasks[key] = (f"--task_name={name}", f"--data_dir={folder}")
    if "ax" in tasks and not (is_answered and "mnli" in tasks):
        raise ValueError(
            "--task_name=AX must be given with MNLI, whose best model answers "
            "it, and with --do_predict."
        )
    return tasks


def _classify(arguments):
    """Runs run_classifier; returns whether it succeeded.

    On SIGTERM or Ctrl-C, run_classifier saves its state, and both exit with
    code 75.
    """
    command = [sys.executable, "-m", "bert_tf.run_classifier", *arguments]
    logging.info("%s", shlex.join(command))
    with preemption.stop_noted() as stop:
        process = subprocess.Popen(command, stdout=sys.stderr)
        while process.poll() is None:
            # A terminal sends Ctrl-C to both processes. run_classifier saves
            # only once, even if it gets both signals.
            if stop.is_set():
                process.terminate()
                process.wait()
            time.sleep(_POLL_SECONDS)
    if stop.is_set() or process.returncode == preemption.PREEMPTED_EXIT_CODE:
        sys.exit(preemption.PREEMPTED_EXIT_CODE)
    return process.returncode == 0


def _collect_submission(output_dir, tasks, runs):
    """Lets the best runs answer the test sets, for the leaderboard."""
    from bert_tf.tasks.classification import glue_files
    from bert_tf.tasks.classification import glue_runs

    folder = os.path.join(output_dir, "submission")
    for task, data in tasks.items():
        best = glue_runs.best_run("mnli" if task == "ax" else task, runs).folder
        answers = os.path.join(output_dir, "ax") if task == "ax" else best
        names = glue_files.GLUE_TASKS[task].submissions.values()
        # There is no leaderboard for XNLI.
        written = names or (f"{glue_files.TEST}_results.tsv",)
        # A run's answers stay valid, but for AX another run may have been the
        # best before.
        if task == "ax" or not all(
            files.exists(os.path.join(answers, name)) for name in written
        ):
            given = _given_flags(("max_seq_length", "predict_batch_size"))
            folders = (f"--init_checkpoint={best}", f"--output_dir={answers}")
            if not _classify(["--do_predict", *data, *folders, *given]):
                raise ValueError(f"The predictions of {task} failed.")
        for name in names:
            path = os.path.join(folder, name)
            answer = files.read_bytes(os.path.join(answers, name))
            atomic.write_bytes(path, answer)
            print(f"For GLUE's leaderboard: {path}")


if __name__ == "__main__":
    program.run(main)
