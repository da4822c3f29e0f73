"""Records where a Python process spends its processor time.

Python imports a module of this name when it starts. benchmarks/suite_times.py
puts this folder on PYTHONPATH, so every process of the test suite is counted:
pytest itself, programs that tests start, and forks. Each process appends lines
of JSON to its own file in the folder $BERT_TF_SUITE_TIMES; a process that is
killed leaves none.
"""

import atexit
import builtins
import json
import multiprocessing.util
import os
import sys
import threading
import time

_FOLDER = os.environ["BERT_TF_SUITE_TIMES"]

# A module of TensorFlow, a function that others call through it, and the kind
# that its time counts as.
_PATCHES = (
    (
        "tensorflow.python.framework.func_graph",
        "func_graph_from_py_func",
        "tracing",
    ),
    ("tensorflow.python.saved_model.save", "save_and_return_nodes", "export"),
)


class Recorder:
    """Seconds of this process by kind: "start", "tracing" and "export".

    Nested kinds count as the outermost one: tracing within a save is export.
    Imports count as start, whenever they happen. Each kind is the work of one
    Python thread; the total has the time of all threads.
    """

    def __init__(self):
        self._thread = threading.local()
        self._patched = set()
        self.reset()

    def reset(self):
        self._reported_s = 0.0
        self._seconds = {"start": 0.0, "tracing": 0.0, "export": 0.0}

    def counted(self, kind, function):
        """Wraps a function so that its outermost calls are timed."""

        def wrapper(*args, **kwargs):
            if getattr(self._thread, "is_counting", False):
                return function(*args, **kwargs)
            self._thread.is_counting = True
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._thread.is_counting = False
                self._seconds[kind] += time.thread_time() - start

        return wrapper

    def count_imports(self):
        import_module = builtins.__import__
        counted_import = self.counted("start", import_module)

        def wrapper(name, *args, **kwargs):
            if name in sys.modules:
                return import_module(name, *args, **kwargs)
            module = counted_import(name, *args, **kwargs)
            self._patch_tensorflow()
            return module

        builtins.__import__ = wrapper

    def _patch_tensorflow(self):
        for module_name, function_name, kind in _PATCHES:
            module = sys.modules.get(module_name)
            function = getattr(module, function_name, None)
            # A module that is still being imported may not have the function
            # yet.
            if module_name not in self._patched and function is not None:
                self._patched.add(module_name)
                setattr(module, function_name, self.counted(kind, function))

    def report(self, test):
        """Appends the time since the last report, for a test or for ""."""
        total_s = time.process_time()
        line = {"test": test, "total": total_s - self._reported_s}
        line |= self._seconds
        self.reset()
        self._reported_s = total_s
        with open(f"{_FOLDER}/{os.getpid()}.jsonl", "a") as stream:
            stream.write(json.dumps(line) + "\n")


def _report_end():
    # pytest sets this while a test runs, and child processes inherit it.
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    RECORDER.report(test.partition(" ")[0])


def _begin_fork(recorder):
    recorder.reset()
    # Forks of multiprocessing exit without running atexit's functions.
    multiprocessing.util.Finalize(None, _report_end, exitpriority=0)


RECORDER = Recorder()
RECORDER.count_imports()
atexit.register(_report_end)
multiprocessing.util.register_after_fork(RECORDER, _begin_fork)
