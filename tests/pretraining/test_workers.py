"""Tasks in other processes: what is not told by the builder's tests."""

import os
import time

import pytest

from bert_tf.cores import num_cores
from bert_tf.pretraining import workers


class Tasks:
    """Tasks that a worker can do."""

    def __init__(self):
        self.first_process = os.getpid()

    def square(self, number):
        return number * number

    def die(self, number):
        if os.getpid() != self.first_process:
            os._exit(number)

    def where(self, number):
        time.sleep(0.05)
        return os.getpid()

    def refuse(self, number):
        raise ValueError(f"not {number}")


def test_tasks_in_this_process():
    with workers.pool(Tasks(), 1) as run:
        assert dict(run("square", [2, 3])) == {2: 4, 3: 9}


def test_what_a_worker_raises_and_a_killed_worker(capfd, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with workers.pool(Tasks(), 2) as run:
        assert dict(run("square", [5])) == {5: 25}
        with pytest.raises(ValueError, match="not 3"):
            list(run("refuse", [3]))
        # Until the other process is there, this one works alone.
        while True:
            found = dict(run("where", range(9)))
            assert sorted(found) == list(range(9))
            if len(set(found.values())) == 2:
                break
        assert os.getpid() in found.values()
        with pytest.raises(OSError, match="was killed.*Run again"):
            list(run("die", range(9)))
    # TensorFlow, which it imports, says nothing of the machine.
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("cpu_count, cores", [(3, 3), (None, 1)])
def test_cores_where_the_system_tells_no_affinity(
    monkeypatch, cpu_count, cores
):
    assert 1 <= num_cores() <= os.cpu_count()
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cpu_count)
    assert num_cores() == cores
