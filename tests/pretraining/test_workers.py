"""Tasks in other processes: what is not told by the builder's tests."""

import multiprocessing
import os
import time

import pytest

from bert_tf.cores import num_cores
from bert_tf.pretraining import workers


class Tasks:
    """Tasks that a worker can do."""

    def __init__(self, folder=None):
        self.first_process = os.getpid()
        self.folder = folder

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

    def refuse_one_and_sleep(self, number):
        """Of the other process: the first is refused, the next is long."""
        if os.getpid() == self.first_process:
            time.sleep(0.05)
        elif self.mark("refused"):
            raise ValueError(f"not {number}")
        else:
            time.sleep(60)

    def wait_for_others(self, number):
        """Returns how many are done while this process is in the first."""
        if os.getpid() != self.first_process:
            return self.mark(str(number))
        end = time.monotonic() + 60
        while len(os.listdir(self.folder)) < 5 and time.monotonic() < end:
            time.sleep(0.05)
        return len(os.listdir(self.folder))

    def mark(self, name):
        """Returns whether it is the first that makes the file."""
        try:
            open(os.path.join(self.folder, name), "x").close()
        except FileExistsError:
            return False
        return True


def test_tasks_in_this_process():
    with workers.pool(Tasks(), 1) as run:
        assert dict(run("square", [2, 3])) == {2: 4, 3: 9}


def test_what_a_worker_raises_and_a_killed_worker():
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


def test_an_error_does_not_wait_for_tasks_of_others(tmp_path):
    with (
        pytest.raises(ValueError, match="not "),
        workers.pool(Tasks(tmp_path), 2) as run,
    ):
        try:
            for _ in run("refuse_one_and_sleep", range(10_000)):
                pass
        finally:
            raised = time.monotonic()
    assert time.monotonic() - raised < 20
    assert not multiprocessing.active_children()


def test_others_work_while_this_process_is_in_its_first_task(tmp_path):
    with workers.pool(Tasks(tmp_path), 2) as run:
        told = dict(run("wait_for_others", range(6)))
    # All but the first, and before they were started there was no other one.
    assert told == {0: 5} | dict.fromkeys(range(1, 6), True)


@pytest.mark.parametrize("cpu_count, cores", [(3, 3), (None, 1)])
def test_cores_where_the_system_tells_no_affinity(
    monkeypatch, cpu_count, cores
):
    assert 1 <= num_cores() <= os.cpu_count()
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cpu_count)
    assert num_cores() == cores
