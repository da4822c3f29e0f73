"""What all tests share: quiet logs, four logical CPUs, programs to run."""

import gc
import os
import signal
import subprocess
import sys

import pytest
from absl import flags

from support import program_server

# Before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


# What a script starts in the background begins by ignoring Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if "not slow" in config.option.markexpr:
        # XLA takes longer to compile these tests' programs than to run them.
        # The tests with targets of their own have it as users do.
        os.environ.setdefault(
            "XLA_FLAGS",
            "--xla_backend_optimization_level=0 "
            "--xla_llvm_disable_expensive_passes=true",
        )
    # Where workers run the tests, this process only waits for them.
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.getoption("numprocesses", None):
        return
    # Almost all that an import creates stays: there is no garbage to find.
    gc.disable()
    import keras  # noqa: F401
    import tensorflow as tf

    gc.enable()

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )


def pytest_collection_finish():
    # A million objects of libraries, which every full collection would visit.
    gc.freeze()
    # Full collections would be 5 % of the processor time: what tests keep for
    # others is visited again each time, too.
    gc.set_threshold(700, 10, 50)


@pytest.fixture(autouse=True)
def _fresh_keras():
    """Gives every test the same initial weights, names and dtype policy."""
    import keras

    keras.utils.set_random_seed(20181011)
    # Without its garbage collection, which takes longer than most tests.
    keras.backend.clear_session(free_memory=False)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True)
def _default_verbosity():
    """Undoes what another test of this process set."""
    if "verbosity" in flags.FLAGS:
        flags.FLAGS["verbosity"].unparse()


@pytest.fixture
def run_program(tmp_path_factory):
    """Returns a function that runs a program of the library as users do.

    `run_program("bert_tf.run_pretraining", "--do_train", ...)` returns the
    finished process with its text; it fails the test on a non-zero exit
    status unless `check=False`. With `env`, more variables of the
    environment, it is a process of this one's own, under its limits, and does
    not share its libraries' import with others.
    """

    def run(module, *arguments, check=True, env=None, cwd=None):
        arguments = list(map(str, arguments))
        if env is None:
            folder = tmp_path_factory.mktemp("program")
            streams = [folder / "stdout", folder / "stderr"]
            status = program_server.run(
                module, arguments, cwd, *streams, timeout=300
            )
            process = subprocess.CompletedProcess(
                [module, *arguments],
                status,
                *(stream.read_text("utf-8") for stream in streams),
            )
        else:
            process = subprocess.run(
                [sys.executable, "-m", module, *arguments],
                capture_output=True,
                text=True,
                env=os.environ | env,
                cwd=cwd,
                timeout=300,
            )
        if check and process.returncode != 0:
            pytest.fail(
                f"{module} exited with {process.returncode}\n"
                f"{process.stdout}\n{process.stderr}",
                pytrace=False,
            )
        return process

    return run
