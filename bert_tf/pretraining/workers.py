"""Runs numbered tasks in this process, and in others beside it.

The others are started anew (not forked: TensorFlow's threads do not live
through a fork) and end when the process that started them does, however that
one ends.
"""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from collections import abc

from bert_tf import lean_imports
from bert_tf import quiet

# In a worker: what the tasks are methods of.
_tasks = None


@contextlib.contextmanager
def pool(tasks: object, num_workers: int) -> abc.Iterator[abc.Callable]:
    """Yields a function that runs tasks and gives their results.

    `run(method, numbers)` yields (number, `getattr(tasks, method)(number)`),
    in the order in which they are done.

    Args:
        tasks: An object that can be pickled, with methods of one integer.
        num_workers: The number of processes, this one counted: it works too,
            for TensorFlow alone takes 300 MB of every process.

    Raises (the function):
        OSError: If a process was killed.
        What a task raises.
    """
    if num_workers == 1:
        yield lambda method, numbers: (
            (number, getattr(tasks, method)(number)) for number in numbers
        )
        return
    num_others = num_workers - 1
    executor = concurrent.futures.ProcessPoolExecutor(
        num_others,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up,
        # Pickled, so that TensorFlow is not imported before `_set_up`.
        initargs=(pickle.dumps(tasks),),
    )

    # They take seconds to start, and get no task before.
    ready = executor.submit(_call, None, None)

    def run(method, numbers):
        numbers = collections.deque(numbers)
        running: dict[concurrent.futures.Future, int] = {}
        try:
            while numbers or running:
                # One that each of them works on, and one in reserve.
                while (
                    numbers and ready.done() and len(running) < 2 * num_others
                ):
                    number = numbers.popleft()
                    running[executor.submit(_call, method, number)] = number
                if numbers:
                    number = numbers.popleft()
                    yield number, getattr(tasks, method)(number)
                else:
                    concurrent.futures.wait(
                        running, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                for task in [task for task in running if task.done()]:
                    yield running.pop(task), task.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise OSError(
                "A worker process was killed, perhaps for want of memory. "
                "Run again to continue where it stopped."
            ) from error

    try:
        yield run
    finally:
        executor.shutdown(cancel_futures=True)


def _set_up(tasks):
    global _tasks
    quiet.quieten()
    lean_imports.leave_out()
    _tasks = pickle.loads(tasks)
    import tensorflow as tf

    # One thread each: the processes are as many as there are cores.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    # Not before: `quiet` filters the import in a process of one thread alone.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _call(method, number):
    return getattr(_tasks, method)(number) if method else None
