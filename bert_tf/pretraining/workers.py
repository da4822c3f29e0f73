"""Runs numbered tasks in this process, and in others beside it.

The others are started anew (not forked: TensorFlow's threads do not live
through a fork) and end when the process that started them does, however that
one ends.
"""

import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
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
    in the order in which they are done. Where anything raises in the block,
    the others' tasks are not waited for: they are ended in the midst of them.

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
    # Workers end where its other end is closed.
    watched, held = multiprocessing.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(
        num_workers - 1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_up,
        # Pickled, so that TensorFlow is not imported before `_set_up`.
        initargs=(pickle.dumps(tasks), watched),
    )
    try:
        started = [
            executor.submit(_call, None, None) for _ in range(num_workers - 1)
        ]
        yield lambda method, numbers: _run(
            tasks, executor, started, method, numbers
        )
    except BaseException:
        # What they are at may take half an hour, and can be done again.
        held.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        held.close()
        watched.close()


def _run(tasks, executor, started, method, numbers):
    """Yields (number, result) of tasks of all processes, as `pool` tells.

    Args:
        tasks: What they are methods of.
        executor: The other processes.
        started: A future of each of them. They take seconds to start, and get
            no task before one is done.
        method: The name of the method.
        numbers: Of the tasks.
    """
    num_others = len(started)
    left = collections.deque(numbers)
    num_given = 0
    lock = threading.Lock()
    done: queue.SimpleQueue = queue.SimpleQueue()

    def take(for_other=False):
        """Returns the next number, or None."""
        nonlocal num_given
        with lock:
            if for_other:
                # One that each of them works on, and one in reserve, but for
                # the last ones: those are for the first that is free.
                most = num_others * (2 if len(left) > num_others else 1)
                if num_given >= most:
                    return None
                num_given += bool(left)
            return left.popleft() if left else None

    def give():
        # Not under the lock: the executor has its own, and may hold it when
        # it tells of an end.
        while (number := take(for_other=True)) is not None:
            task = executor.submit(_call, method, number)
            task.add_done_callback(functools.partial(end, number))

    def end(number, task):
        """Called where another process, or its start, is done.

        By the executor's thread: the next task does not wait until this
        process is done with its own.
        """
        nonlocal num_given
        is_failed = task.cancelled() or task.exception() is not None
        if number is not None or is_failed:
            done.put((number, task))
        with lock:
            num_given -= number is not None
            if is_failed:
                left.clear()
        # None can be given any more when the executor shuts down.
        with contextlib.suppress(RuntimeError):
            give()

    try:
        for task in started:
            task.add_done_callback(functools.partial(end, None))
        # Each is told once.
        for _ in range(len(numbers)):
            number = take() if done.empty() else None
            if number is not None:
                yield number, getattr(tasks, method)(number)
            else:
                number, task = done.get()
                yield number, task.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise OSError(
            "A worker process was killed, perhaps for want of memory. "
            "Run again to continue where it stopped."
        ) from error
    finally:
        with lock:
            left.clear()


def _set_up(tasks, watched):
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
    threading.Thread(
        target=_end_with_parent, args=(watched,), daemon=True
    ).start()


def _end_with_parent(watched):
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel, watched])
    os._exit(1)


def _call(method, number):
    return getattr(_tasks, method)(number) if method else None
