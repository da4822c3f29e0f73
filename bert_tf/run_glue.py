r"""Tunes a model to the tasks of GLUE, over learning rates and seeds.

    python -m bert_tf.run_glue --glue_dir=glue --tasks=MRPC,CoLA,SST-2 \
        --learning_rates=5e-5,3e-5 --seeds=1,2,3 \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=glue_runs

runs bert_tf.run_classifier once for each task, learning rate and seed, each in
its own process and folder. After each run it writes the scores of all into
table.md and table.json. The other flags of run_classifier are passed on to it.
Rerun the same command to resume after a stop: finished runs are not run again.

With --do_predict, the best run of each task answers its test sets, and
submission/ has the files for GLUE's leaderboard. AX, in AX/AX.tsv or
diagnostic/diagnostic.tsv of --glue_dir, is answered by the best run of MNLI.
"""

import dataclasses
import itertools
import os
import shlex
import signal
import subprocess
import sys

from absl import flags
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import fine_tuning_flags
from bert_tf import messages
from bert_tf import program
from bert_tf import training_flags
from bert_tf.training import preemption

fine_tuning_flags.set_defaults(do_train=True, do_eval=True)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with a folder of TSV files for every task."
)
_TASKS = flags.DEFINE_list(
    "tasks",
    ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"],
    "Names of tasks, which are the names of their folders, too.",
)
# Devlin et al. 2018, section 4.1.
_LEARNING_RATES = flags.DEFINE_list(
    "learning_rates", ["5e-5", "4e-5", "3e-5", "2e-5"], "All are tried."
)
_SEEDS = flags.DEFINE_list("seeds", ["12345"], "All are tried.")


def main(argv):
    del argv
    # Refuse here what run_classifier would refuse, before it is started.
    config = fine_tuning_flags.make_config()
    handed_on = _given_flags()
    rates = _numbers(_LEARNING_RATES, float, config, "learning_rate")
    seeds = _numbers(_SEEDS, int, config, "random_seed")
    tasks = _find_tasks(config)

    from bert_tf.tasks.classification import glue_runs

    runs = []
    for task, rate, seed in itertools.product(tasks, rates, seeds):
        folder = os.path.join(config.output_dir, task, f"lr{rate}-seed{seed}")
        run_flags = [
            *("--do_train", "--do_eval", *_data_flags(tasks[task])),
            *(f"--learning_rate={rate}", f"--random_seed={seed}"),
            *(f"--output_dir={folder}", *handed_on),
        ]
        run = glue_runs.Run(
            task=task,
            learning_rate=rate,
            seed=seed,
            folder=folder,
            flags=run_flags,
        )
        # MNLI's model answers it.
        if task != "ax":
            run.find_results()
            runs.append(run)
    failed = []
    for number, run in enumerate(runs, start=1):
        is_done = run.results is not None
        logging.info(
            "%d/%d  %s%s",
            number,
            len(runs),
            run.folder,
            ": is finished." * is_done,
        )
        if is_done:
            continue
        if _classify(run.flags):
            run.finish()
            glue_runs.write_tables(config.output_dir, runs)
        else:
            failed.append(run.folder)
    print(glue_runs.write_tables(config.output_dir, runs), end="")
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}."
        )
    if config.do_predict:
        _collect_submission(config.output_dir, tasks, runs)


def _given_flags(of_prediction=False):
    """Returns the given flags that belong to run_classifier.

    Args:
        of_prediction: Whether to return only those that change predictions.
    """
    by_module = flags.FLAGS.flags_by_module_dict()
    given = {
        flag.name: flag.serialize()
        for module in (fine_tuning_flags, training_flags)
        for flag in by_module[module.__name__]
        if flag.present
    }
    own = {"output_dir", "do_train", "do_eval", "do_predict"}
    names = given.keys() - own
    if of_prediction:
        names &= {flag.name for flag in by_module[training_flags.__name__]} | {
            *("max_seq_length", "predict_batch_size")
        }
    for name, instead in (
        ("learning_rate", "learning_rates"),
        ("random_seed", "seeds"),
    ):
        if name in given:
            raise ValueError(f"--{name} must be given as --{instead}.")
    return sorted(given[name] for name in names)


def _numbers(flag, number, config, option):
    """Returns the different numbers in a list flag, all good for an option."""
    with messages.errors_named(f"--{flag.name}"):
        try:
            values = [*dict.fromkeys(map(number, flag.value))]
        except ValueError:
            raise ValueError(
                "must be numbers, separated by commas. "
                f"Received: {','.join(flag.value)}."
            ) from None
        for value in values:
            dataclasses.replace(config, **{option: value})
    return values


def _find_tasks(config):
    """Returns {key in `GLUE_TASKS`: name as given}; checks that data exist."""
    program.require(glue_dir=_GLUE_DIR.value)
    from bert_tf.tasks.classification import glue_files

    tasks = {}
    for name in _TASKS.value:
        task_files = glue_files.glue_task(name)
        key = next(
            key
            for key, known in glue_files.GLUE_TASKS.items()
            if known is task_files
        )
        tasks[key] = name
        wanted = [glue_files.TRAIN, glue_files.DEV]
        wanted += glue_files.TESTS if config.do_predict else []
        task_files.check(_data_dir(name), wanted)
    if "ax" in tasks and not (config.do_predict and "mnli" in tasks):
        raise ValueError(
            "--tasks=AX must be given with MNLI, whose best model answers it, "
            "and with --do_predict."
        )
    return tasks


def _data_dir(name):
    """Returns a task's folder; for AX perhaps that of the usual download."""
    folder = os.path.join(_GLUE_DIR.value, name)
    if name.lower() == "ax" and not files.is_folder(folder):
        return os.path.join(_GLUE_DIR.value, "diagnostic")
    return folder


def _data_flags(name):
    return [f"--task_name={name}", f"--data_dir={_data_dir(name)}"]


def _classify(arguments):
    """Runs run_classifier; returns whether it succeeded.

    On SIGTERM or Ctrl-C, run_classifier saves its state, and both exit with
    code 75.
    """
    command = [sys.executable, "-m", "bert_tf.run_classifier", *arguments]
    logging.info("%s", shlex.join(command))
    was_told = False
    process = subprocess.Popen(command, stdout=sys.stderr)

    def stop(number, frame):
        del number, frame
        nonlocal was_told
        was_told = True
        # A terminal sends Ctrl-C to both processes. run_classifier saves only
        # once, even if it gets both signals.
        process.terminate()

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        # A background process is started with Ctrl-C ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if was_told or code == preemption.PREEMPTED_EXIT_CODE:
        sys.exit(preemption.PREEMPTED_EXIT_CODE)
    return code == 0


def _collect_submission(output_dir, tasks, runs):
    """Lets the best runs answer the test sets, for the leaderboard."""
    from bert_tf.tasks.classification import glue_files
    from bert_tf.tasks.classification import glue_runs

    folder = os.path.join(output_dir, "submission")
    is_of_glue = False
    for task, name in tasks.items():
        best = glue_runs.best_run("mnli" if task == "ax" else task, runs).folder
        answers = os.path.join(output_dir, "ax") if task == "ax" else best
        names = glue_files.GLUE_TASKS[task].submissions.values()
        # There is no leaderboard for XNLI.
        written = names or (f"{glue_files.TEST}_results.tsv",)
        is_of_glue |= bool(names)
        # A run's answers stay valid, but for AX another run may have been the
        # best before.
        if task == "ax" or not all(
            files.exists(os.path.join(answers, each)) for each in written
        ):
            arguments = [
                *("--do_predict", *_data_flags(name)),
                *(f"--init_checkpoint={best}", f"--output_dir={answers}"),
                *_given_flags(of_prediction=True),
            ]
            if not _classify(arguments):
                raise ValueError(f"The predictions of {name} failed.")
        for each in names:
            atomic.write_bytes(
                os.path.join(folder, each),
                files.read_bytes(os.path.join(answers, each)),
            )
    if is_of_glue:
        print(f"For GLUE's leaderboard: {folder}")


if __name__ == "__main__":
    program.run(main)
