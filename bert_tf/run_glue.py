r"""Tunes a model to the tasks of GLUE, over learning rates and seeds.

    python -m bert_tf.run_glue --glue_dir=glue --tasks=MRPC,CoLA,SST-2 \
        --learning_rates=5e-5,3e-5 --seeds=1,2,3 \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=glue_runs

runs bert_tf.run_classifier once for each task, learning rate and seed, each in
its own process and folder. After each run it writes the scores of all into
table.md and table.json. The other flags of run_classifier are passed on to it.
What a run prints is shown, and kept in a .log beside its folder. Rerun the same
command to resume after a stop: finished runs are not run again.

With --do_predict, the best run of each task answers its test sets, and
submission/ has the files for GLUE's leaderboard. AX, in AX/AX.tsv or
diagnostic/diagnostic.tsv of --glue_dir, is answered by the best run of MNLI.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys

from absl import flags
from absl import logging

from bert_tf import files
from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks import tables
from bert_tf.training import preemption

fine_tuning_flags.set_defaults(do_train=True, do_eval=True)
_GLUE_DIR = flags.DEFINE_string(
    "glue_dir", None, "Folder with a folder of TSV files for every task."
)
_TFDS_DATA_DIR = flags.DEFINE_string(
    "tfds_data_dir",
    None,
    "Instead of --glue_dir: folder of prepared TensorFlow Datasets, glue/mrpc "
    "and so on.",
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

_CLASSIFIER = "bert_tf.run_classifier"


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    # Refuse here what run_classifier would refuse, before it is started.
    handed_on = _handed_on_flags()
    config = fine_tuning_flags.make_config()
    rates = _numbers("learning_rates", _LEARNING_RATES.value, float)
    seeds = _numbers("seeds", _SEEDS.value, int)
    for flag, name, values in (
        ("learning_rates", "learning_rate", rates),
        ("seeds", "random_seed", seeds),
    ):
        for value in values:
            with files.errors_named(f"--{flag}"):
                dataclasses.replace(config, **{name: value})
    tasks = _find_tasks(config)

    from bert_tf.tasks.classification import glue_runs

    runs = [
        {"task": task, "learning_rate": rate, "seed": seed}
        for task, rate, seed in itertools.product(
            (task for task in tasks if task != "ax"),
            rates,
            seeds,
        )
    ]
    for run in runs:
        run["folder"] = os.path.join(
            config.output_dir,
            run["task"],
            f"lr{run['learning_rate']}-seed{run['seed']}",
        )
        run["flags"] = [
            "--do_train",
            "--do_eval",
            *_data_flags(tasks[run["task"]]),
            f"--learning_rate={run['learning_rate']}",
            f"--random_seed={run['seed']}",
            f"--output_dir={run['folder']}",
            *handed_on,
        ]
        run["results"] = glue_runs.finished_results(run["folder"], run["flags"])
    failed = []
    for number, run in enumerate(runs, start=1):
        title = f"{number}/{len(runs)}  {run['folder']}"
        if run["results"] is not None:
            logging.info("%s: is finished.", title)
            continue
        logging.info("%s", title)
        if not _start(run["flags"], f"{run['folder']}.log"):
            failed.append(run["folder"])
            continue
        run["results"] = glue_runs.finish(run["folder"], run["flags"])
        _write_tables(config.output_dir, runs)
    _write_tables(config.output_dir, runs)
    print(files.read_text(os.path.join(config.output_dir, "table.md")), end="")
    if config.do_predict and not failed:
        _collect_submission(config.output_dir, tasks, runs)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed; the end of each .log "
            f"says why: {', '.join(failed)}."
        )


def _handed_on_flags():
    """Returns the given flags that belong to run_classifier."""
    given = []
    for module in (fine_tuning_flags, training_flags):
        for flag in flags.FLAGS.flags_by_module_dict()[module.__name__]:
            if flag.present and flag.name != "output_dir":
                given.append(flag.serialize())
    for name, instead in (
        ("learning_rate", "learning_rates"),
        ("random_seed", "seeds"),
    ):
        if any(flag.startswith(f"--{name}=") for flag in given):
            raise ValueError(f"--{name} must be given as --{instead}.")
    own = ("do_train", "do_eval", "do_predict")
    return sorted(
        set(given) - {f"--{no}{name}" for name in own for no in ("", "no")}
    )


def _prediction_flags():
    """Returns the given flags of run_classifier that apply to prediction."""
    by_module = flags.FLAGS.flags_by_module_dict()
    names = {flag.name for flag in by_module[training_flags.__name__]}
    names |= {"max_seq_length", "predict_batch_size"}
    return sorted(
        flags.FLAGS[name].serialize()
        for name in names
        if flags.FLAGS[name].present
    )


def _find_tasks(config):
    """Returns {key in `GLUE_TASKS`: name as given}; checks that data exist."""
    if (_GLUE_DIR.value is None) == (_TFDS_DATA_DIR.value is None):
        raise ValueError(
            "One of --glue_dir and --tfds_data_dir must be given, not both."
        )
    from bert_tf.tasks.classification import glue_files

    tasks = {}
    for name in _TASKS.value:
        task_files = glue_files.glue_task(name)
        key = next(
            key
            for key, known in glue_files.GLUE_TASKS.items()
            if known is task_files
        )
        if key in tasks:
            raise ValueError(
                "--tasks must name each task once. Received: "
                f"{tasks[key]}, {name}."
            )
        if config.calibrate and not task_files.task.has_temperature:
            raise ValueError(
                "--calibrate must not be given with a regression. "
                f"Received: --tasks={','.join(_TASKS.value)}."
            )
        tasks[key] = name
        if _GLUE_DIR.value is not None:
            wanted = (glue_files.TRAIN, glue_files.DEV)
            if config.do_predict:
                wanted += glue_files.TESTS
            task_files.check(_data_dir(name), wanted)
    if "ax" in tasks and not (config.do_predict and "mnli" in tasks):
        raise ValueError(
            "--tasks=AX must be given with MNLI, whose best model answers it, "
            "and with --do_predict."
        )
    return tasks


def _numbers(flag, texts, number):
    try:
        values = [number(text) for text in texts]
    except ValueError as error:
        raise ValueError(
            f"--{flag} must be numbers, separated by commas. Received: "
            f"--{flag}={','.join(texts)}."
        ) from error
    if not values or len(set(values)) != len(values):
        raise ValueError(
            f"--{flag} must be one number or more, each once. Received: "
            f"--{flag}={','.join(texts)}."
        )
    return values


def _data_dir(name):
    """Returns a task's folder; for AX perhaps that of the usual download."""
    folder = os.path.join(_GLUE_DIR.value, name)
    if name.lower() == "ax" and not files.is_folder(folder):
        return os.path.join(_GLUE_DIR.value, "diagnostic")
    return folder


def _data_flags(name):
    if _GLUE_DIR.value is not None:
        return [f"--task_name={name}", f"--data_dir={_data_dir(name)}"]
    data_set = name.lower().replace("-", "")
    return [
        f"--tfds_name=glue/{data_set}",
        f"--tfds_data_dir={_TFDS_DATA_DIR.value}",
    ]


def _start(arguments, log_path):
    """Runs run_classifier, shows its output, and returns whether it succeeded.

    On SIGTERM or Ctrl-C, run_classifier saves its state, and both exit with
    code 75.
    """
    command = [sys.executable, "-m", _CLASSIFIER, *arguments]
    logging.info("%s", shlex.join(command))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    was_told = False

    def stop(number, frame):
        del number, frame
        nonlocal was_told
        was_told = True
        # A terminal sends Ctrl-C to both processes. run_classifier saves only
        # once, even if it gets both signals.
        process.terminate()

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGINT)
        # A background process is started with Ctrl-C ignored.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    output = bytearray()
    try:
        for line in process.stdout:
            output += line
            # Continue even if nobody reads the output.
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
        process.wait()
    except BaseException:
        process.kill()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        files.write_bytes(log_path, bytes(output))
    if was_told or process.returncode == preemption.PREEMPTED_EXIT_CODE:
        sys.exit(preemption.PREEMPTED_EXIT_CODE)
    if process.returncode:
        text = output.decode("utf-8", "replace").strip()
        logging.error("It failed: %s", text.rsplit("\n", 1)[-1])
    return process.returncode == 0


def _best(task, runs):
    """Returns (learning rate with the best median, its runs, best run of all).

    None if no run of the task is done.
    """
    from bert_tf.tasks import metrics
    from bert_tf.tasks.classification import glue_files

    name = glue_files.GLUE_TASKS[task].task.main_metric
    done = [run for run in runs if run["task"] == task and run["results"]]
    if not done:
        return None

    def score(run):
        return metrics.comparable(run["results"][name])

    by_rate = {}
    for run in done:
        by_rate.setdefault(run["learning_rate"], []).append(run)
    rate = max(
        by_rate,
        key=lambda rate: statistics.median(map(score, by_rate[rate])),
    )
    return rate, by_rate[rate], max(done, key=score)


def _median(scores):
    """Returns the median of scores, of which NaN is the lowest."""
    from bert_tf.tasks import metrics

    found = statistics.median(map(metrics.comparable, scores))
    return math.nan if found == -math.inf else found


def _write_tables(output_dir, runs):
    from bert_tf.tasks.classification import glue_files

    rows = []
    for task in dict.fromkeys(run["task"] for run in runs):
        found = _best(task, runs)
        if found is None:
            continue
        rate, at_rate, best = found
        metrics = glue_files.GLUE_TASKS[task].task.metrics
        names = [f"eval_{metric}" for metric in metrics]
        names += [
            name
            for name in (f"eval_mismatched_{metric}" for metric in metrics)
            if name in best["results"]
        ]
        for name in names:
            rows.append(
                {
                    "task": task,
                    "score": name.removeprefix("eval_"),
                    "learning rate": str(rate),
                    "seeds": len(at_rate),
                    "median": 100
                    * _median(run["results"][name] for run in at_rate),
                    "best": 100 * best["results"][name],
                    "best run": os.path.basename(best["folder"]),
                }
            )
    header = (
        "task",
        "score",
        "learning rate",
        "seeds",
        "median",
        "best",
        "best run",
    )
    num_done = sum(run["results"] is not None for run in runs)
    text = (
        "Scores on the development sets, times 100. The learning rate is the "
        "one with the highest median over the seeds in the task's first score; "
        "the best run is that of all learning rates. "
        f"{num_done} of {len(runs)} runs are done.\n\n"
        + tables.table(header, [[row[name] for name in header] for row in rows])
        + "\n"
    )
    files.write_text(os.path.join(output_dir, "table.md"), text)
    values = {
        "table": rows,
        "runs": [
            {name: run[name] for name in run if name != "flags"} for run in runs
        ],
    }
    files.write_text(
        os.path.join(output_dir, "table.json"),
        json.dumps(files.with_nulls(values), indent=1) + "\n",
    )


def _collect_submission(output_dir, tasks, runs):
    """Lets the best runs answer the test sets, for the leaderboard."""
    from bert_tf.tasks.classification import glue_files

    folder = os.path.join(output_dir, "submission")
    is_of_glue = False
    for task in tasks:
        best = _best("mnli" if task == "ax" else task, runs)[2]["folder"]
        answers = os.path.join(output_dir, "ax") if task == "ax" else best
        names = glue_files.GLUE_TASKS[task].submissions.values()
        # There is no leaderboard for XNLI.
        written = names or (f"{glue_files.TEST}_results.tsv",)
        is_of_glue |= bool(names)
        # A run's answers stay valid, but for AX another run may have been the
        # best before.
        if task == "ax" or not all(
            files.exists(os.path.join(answers, name)) for name in written
        ):
            arguments = [
                "--do_predict",
                *_data_flags(tasks[task]),
                f"--init_checkpoint={best}",
                f"--output_dir={answers}",
                *_prediction_flags(),
            ]
            log_path = f"{answers}.predict.log"
            if not _start(arguments, log_path):
                raise ValueError(
                    f"The predictions of {task} failed; {log_path} says why."
                )
        for name in names:
            files.write_bytes(
                os.path.join(folder, name),
                files.read_bytes(os.path.join(answers, name)),
            )
    if is_of_glue:
        print(f"For GLUE's leaderboard: {folder}")


if __name__ == "__main__":
    program.run(main)
