"""Runs numbered tasks in this process and in worker processes beside it.

Workers are spawned, not forked: TensorFlow's threads do not survive a fork.
They end when the process that started them ends, however it ends.
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

from bert_tf import quiet

# In a worker, the object whose methods are the tasks.
_tasks = None


@contextlib.contextmanager
def pool(tasks: object, num_workers: int) -> abc.Iterator[abc.Callable]:
    """Yields a function that runs tasks and yields their results.

    `run(method, numbers)` yields (number, `getattr(tasks, method)(number)`)
    as tasks finish. If the block raises, the workers are ended at once, in the
    middle of their tasks.

    Args:
        tasks: An object that can be pickled, with methods of one integer.
        num_workers: The number of processes, including this one. It works too,
            because TensorFlow alone takes 300 MB of every process.

    Raises (the function):
        OSError: If a process was killed.
        Whatever a task raises.
    """
    if num_workers == 1:
        yield lambda method, numbers: (
            (number, getattr(tasks, method)(number)) for number in numbers
        )
        return
    # Workers end when `held`, the other end, is closed.
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
        # Their tasks may take half an hour, and can be repeated.
        held.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        held.close()
        watched.close()


def _run(tasks, executor, started, method, numbers):
    """Yields (number, result) of the tasks of all processes; see `pool`.

    Args:
        tasks: The object whose methods are the tasks.
        executor: The executor of the workers.
        started: A future for the start of each worker. Starting takes seconds;
            no task is submitted before the first of them is done.
        method: The name of the method.
        numbers: The numbers of the tasks.
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
                # Each worker gets one task, and one in reserve. The last tasks
                # are not reserved: the first free process takes them.
                most = num_others * (2 if len(left) > num_others else 1)
                if num_given >= most:
                    return None
                num_given += bool(left)
            return left.popleft() if left else None

    def give():
        # Not under our lock: the executor may hold its own when it calls
        # `end`.
        while (number := take(for_other=True)) is not None:
            task = executor.submit(_call, method, number)
            task.add_done_callback(functools.partial(end, number))

    def end(number, task):
        """Called when a worker finishes a task or its start.

        It runs in the executor's thread, so the worker's next task does not
        wait for this process to finish its own.
        """
        nonlocal num_given
        is_failed = task.cancelled() or task.exception() is not None
        if number is not None or is_failed:
            done.put((number, task))
        with lock:
            num_given -= number is not None
            if is_failed:
                left.clear()
        # The executor takes no more tasks once it shuts down.
        with contextlib.suppress(RuntimeError):
            give()

    try:
        for task in started:
            task.add_done_callback(functools.partial(end, None))
        # Every task yields once.
        for _ in range(len(numbers)):
            number = take() if done.empty() else None
            if number is not None:
                yield number, getattr(tasks, method)(number)
            else:
                number, task = done.get()
                yield number, task.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise OSError(
            "A worker process was killed, perhaps for lack of memory. "
            "Run again to continue where it stopped."
        ) from error
    finally:
        with lock:
            left.clear()


def _set_up(tasks, watched):
    global _tasks
    quiet.quieten()
    _tasks = pickle.loads(tasks)
    import tensorflow as tf

    # One thread each: there are as many processes as cores.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
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
