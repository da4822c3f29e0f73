"""Runs that are killed, and runs on many devices: `make survival-check`."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training import preemption
from references import training as reference
from support.paths import TESTS

pytestmark = pytest.mark.survival
NUM_KILLS = 20


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for name, size in (("a", 50), ("b", 43)):
        reference.write_records(
            folder / f"{name}.tfrecord",
            reference.pretraining_arrays(size, seed=size),
        )
    (folder / "config.json").write_text(
        json.dumps(reference.tiny_config(0.1).to_dict())
    )
    (folder / "vocab.txt").write_text(reference.vocabulary().to_text())
    return folder


class Program:
    """A program in a process of its own, and what it has logged."""

    def __init__(self, module, *flags, environment=None):
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *flags],
            env=os.environ | (environment or {}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self.process.stderr as stream:
            for line in stream:
                self.log.append(line)

    def wait_for(self, pattern, count=1):
        end = time.monotonic() + 200
        while sum(bool(re.search(pattern, line)) for line in self.log) < count:
            assert time.monotonic() < end, "".join(self.log)
            time.sleep(0.01)

    def wait(self, status=0):
        """Waits for its end, which must be with this status."""
        assert self.process.wait(900) == status, "".join(self.log)
        self._reader.join()


def start_training(records, output, *flags, environment=None):
    return Program(
        "bert_tf.run_pretraining",
        *("--do_train", f"--input_file={records}/*.tfrecord"),
        f"--bert_config_file={records}/config.json",
        f"--vocab_file={records}/vocab.txt",
        f"--output_dir={output}",
        f"--max_seq_length={reference.LENGTH}",
        f"--max_predictions_per_seq={reference.PREDICTIONS}",
        *("--train_batch_size=8", "--gradient_accumulation_steps=2"),
        # More than quick processors make before the last kill.
        *("--num_train_steps=4000", "--num_warmup_steps=9"),
        *("--learning_rate=1e-3", "--save_checkpoints_steps=7"),
        *flags,
        environment=environment,
    )


def final_state(output):
    path = tf.train.latest_checkpoint(str(output / "train"))
    reader = tf.train.load_checkpoint(path)
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def test_kills_at_any_time_change_nothing(records, tmp_path):
    start_training(records, tmp_path / "unbroken").wait()
    # A seed for the times; what the machine does meanwhile differs anyway.
    delays = random.Random(4)
    places = []
    for number in range(NUM_KILLS):
        training = start_training(records, tmp_path / "killed")
        training.wait_for("Beginning with|Resuming from")
        if number % 4 == 0:
            # While it restores, traces, makes its first steps.
            time.sleep(delays.uniform(0, 3))
        else:
            # In the middle of whatever: a step, a checkpoint, the model.
            training.wait_for("Saved ", delays.randint(1, 25))
            time.sleep(delays.uniform(0, 0.2))
        training.process.kill()
        # Else the run was over before: make it longer.
        training.wait(-signal.SIGKILL)
        places += re.findall("Resuming from step (\\d+)", "".join(training.log))
    start_training(records, tmp_path / "killed").wait()
    print("Restarted from the steps", *places)
    places = [int(place) for place in places]
    assert places == sorted(places)
    assert len(set(places)) > NUM_KILLS / 2

    killed, expected = tmp_path / "killed", tmp_path / "unbroken"
    got, wanted = final_state(killed), final_state(expected)
    assert got.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    name = "model.safetensors"
    assert (killed / name).read_bytes() == (expected / name).read_bytes()
    # Nothing is left but the same files, and the logs of TensorBoard.
    for folder in (".", "train"):
        names = [
            {
                path.name
                for path in (output / folder).iterdir()
                if not path.name.startswith("events.")
            }
            for output in (killed, expected)
        ]
        assert names[0] == names[1]


def cluster(num_workers):
    """Returns the environment of each worker, on this machine."""
    ports = []
    for _ in range(num_workers):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    workers = [f"localhost:{port}" for port in ports]
    return [
        {
            "TF_CONFIG": json.dumps(
                {
                    "cluster": {"worker": workers},
                    "task": {"type": "worker", "index": index},
                }
            )
        }
        for index in range(num_workers)
    ]


def test_sigterm_at_one_worker_stops_all_at_one_step(records, tmp_path):
    def start(output):
        flags = ("--strategy=multi_worker", "--num_train_steps=400")
        return [
            start_training(records, output, *flags, environment=environment)
            for environment in cluster(2)
        ]

    for worker in start(tmp_path / "unbroken"):
        worker.wait()
    workers = start(tmp_path / "stopped")
    workers[0].wait_for("Saved ", 3)
    # Not the chief, which alone writes.
    workers[1].process.send_signal(signal.SIGTERM)
    for worker in workers:
        worker.wait(preemption.PREEMPTED_EXIT_CODE)
    steps = [
        re.findall(f"Stopped by {name}; step (\\d+) of", "".join(worker.log))
        for worker, name in zip(workers, ("another worker", "SIGTERM"))
    ]
    assert len(steps[0]) == 1
    assert steps[0] == steps[1]
    print("Stopped at step", steps[0][0])
    got = final_state(tmp_path / "stopped")
    assert got["step/.ATTRIBUTES/VARIABLE_VALUE"] == int(steps[0][0])

    for worker in start(tmp_path / "stopped"):
        worker.wait()
        assert f"Resuming from step {steps[0][0]}." in "".join(worker.log)
    got, wanted = (
        final_state(tmp_path / name) for name in ("stopped", "unbroken")
    )
    assert got.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


def test_workers_without_a_shared_folder_all_stop(records, tmp_path):
    def start(outputs, *flags):
        flags = ("--strategy=multi_worker", "--num_warmup_steps=2", *flags)
        return [
            start_training(records, output, *flags, environment=environment)
            for output, environment in zip(outputs, cluster(2))
        ]

    outputs = tmp_path / "chief", tmp_path / "worker"
    # Nothing is restored yet, and the chief alone writes.
    for worker in start(outputs, "--num_train_steps=8"):
        worker.wait()
    for num_steps in (12, 8):
        # The second would have nothing left to train, at the chief.
        workers = start(outputs, f"--num_train_steps={num_steps}")
        for worker in workers:
            worker.wait(1)
            assert re.search(
                r"error: All workers must begin with the same state\. .* "
                r"step 8 \(state \w+\) at worker 0; "
                r"step 0 \(state \w+\) at worker 1\.",
                worker.log[-1],
            ), "".join(worker.log)
    assert final_state(outputs[0])["step/.ATTRIBUTES/VARIABLE_VALUE"] == 8


def test_a_run_served_by_other_processes_is_the_same(records, tmp_path):
    with socket.socket() as first, socket.socket() as second:
        first.bind(("localhost", 0))
        second.bind(("localhost", 0))
        ports = [free.getsockname()[1] for free in (first, second)]
    servers = [
        Program(
            "bert_tf.data.serve_input", f"--port={port}", "--host=localhost"
        )
        for port in ports
    ]
    try:
        for server in servers:
            server.wait_for("Serving on port")
        addresses = ",".join(f"grpc://localhost:{port}" for port in ports)
        short = "--num_train_steps=30"
        start_training(
            records,
            tmp_path / "served",
            short,
            f"--tf_data_service={addresses}",
        ).wait()
        start_training(records, tmp_path / "alone", short).wait()
    finally:
        for server in servers:
            server.process.terminate()
            server.wait()
    name = "model.safetensors"
    served, alone = tmp_path / "served" / name, tmp_path / "alone" / name
    assert served.read_bytes() == alone.read_bytes()


def run_same_step(records, folder, name, num_devices, parts):
    """Returns the history, [NUM_STEPS, names]."""
    paths, processes = [], []
    environments = [{}]
    if name == "multi_worker":
        environments = cluster(num_devices)
    for index, environment in enumerate(environments):
        paths.append(folder / f"{index}.json")
        arguments = (f"{records}/*.tfrecord", paths[-1], name)
        processes.append(
            subprocess.Popen(
                [
                    *(
                        sys.executable,
                        TESTS / "support/same_step.py",
                        *arguments,
                    ),
                    *(str(num_devices), str(parts)),
                ],
                env=os.environ | {"PYTHONPATH": str(TESTS)} | environment,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:
        _, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
    histories = [json.loads(path.read_text()) for path in paths]
    # All hosts say the same.
    assert all(history == histories[0] for history in histories)
    return np.array(histories[0])


@pytest.fixture(scope="module")
def one_device(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return run_same_step(records, folder, "one_device", 1, 1)


@pytest.mark.parametrize(
    ("name", "num_devices", "parts"),
    [
        ("one_device", 1, 3),
        ("mirrored", 2, 1),
        ("mirrored", 2, 3),
        ("mirrored", 4, 1),
        ("mirrored", 4, 2),
        ("multi_worker", 2, 1),
        ("multi_worker", 2, 3),
    ],
)
def test_every_way_makes_the_same_steps(
    records, tmp_path, one_device, name, num_devices, parts
):
    history = run_same_step(records, tmp_path, name, num_devices, parts)
    assert one_device.shape == (50, 4)
    assert one_device[:, 3].max() > 1
    difference = np.abs(history - one_device)
    print(
        f"{name} x {num_devices}, {parts} part(s): largest difference of the "
        f"loss {difference[:, 0].max():.1e}, of the norm of the gradient "
        f"{difference[:, 3].max():.1e}"
    )
    assert difference[:, :3].max() < 1e-5
