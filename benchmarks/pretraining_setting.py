"""One setting of a pre-training benchmark: a process that runs steps.

Imported by the benchmarks' programs; see pretraining_worker.py for the process.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

from bert_tf import program

_FOLDER = pathlib.Path(__file__).parent
# {library: its script}; all others are peers.
_OURS = {"bert_tf": "pretraining_bert_tf", "bert_tf_jax": "pretraining_jax"}
# {peer: the library whose environment it runs in}
PEERS = {
    "keras_hub": "keras_hub",
    "model_garden": "model_garden",
    "transformers": "transformers",
    "transformers_compiled": "transformers",
}


def answers_of(name, python, job, rounds, seconds, environment=None):
    """Returns a setting's answers, or none if it does not run.

    Args:
        name, python, job, environment: As for `Setting`.
        rounds: How often it answers.
        seconds: How long it runs steps for each answer.
    """
    try:
        setting = Setting(name, python, job, environment)
        for _ in range(rounds):
            setting.measure(seconds)
    except RuntimeError as error:
        # Usually a GPU has too little memory.
        print(error, file=sys.stderr)
        return []
    setting.stop()
    return setting.answers


class Setting:
    """A process that runs steps of one library in one precision.

    Args:
        name: Its name in the table.
        python: The Python to run.
        job: See `pretraining_worker.read_job`.
        environment: {variable: value} to add to this process's environment.
            None adds nothing for a peer, and for bert_tf what its programs set:
            `program.ALLOCATOR`.

    Attributes:
        answers: Its answers, round by round.
        is_peer: Whether it is another library.
        is_random: Whether its rows are full of random tokens.

    Raises:
        RuntimeError: Here and in `measure`, if the process has ended.
    """

    def __init__(self, name, python, job, environment=None):
        self.name = name
        self.precision = job["precision"]
        self.is_peer = job["library"] not in _OURS
        self.is_random = job.get("files") is None
        self.answers = []
        script = _OURS.get(job["library"], "pretraining_peers")
        if environment is None:
            environment = {} if self.is_peer else program.ALLOCATOR
        self._process = subprocess.Popen(
            [python, str(_FOLDER / f"{script}.py"), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | environment,
        )
        self._read("ready")

    def measure(self, seconds):
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        self.answers.append(json.loads(self._read("{")))

    def stop(self):
        self._process.stdin.close()
        self._process.wait()

    def median(self, name):
        return statistics.median(answer[name] for answer in self.answers)

    def _read(self, beginning):
        # Libraries print their own lines too.
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        raise RuntimeError(
            f"The process of {self.name} in {self.precision} ended with exit "
            f"status {self._process.wait()}; its errors stand above."
        )
