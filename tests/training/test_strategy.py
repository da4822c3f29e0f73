"""Strategies by name, and the dtype policies of their devices."""

import re
import types

import pytest
import tensorflow as tf

from bert_tf.training import devices
from bert_tf.training import strategy as strategies


def test_one_device_is_the_default():
    strategy = strategies.make_strategy()
    assert strategy.num_replicas_in_sync == 1
    assert strategies.is_chief(strategy)


@pytest.mark.parametrize("num_devices", [2, 3])
def test_mirrored_logical_cpus(num_devices):
    strategy = strategies.make_strategy("mirrored", num_cpu_devices=num_devices)
    assert strategy.num_replicas_in_sync == num_devices
    assert strategies.is_chief(strategy)
    with strategy.scope():
        variable = tf.Variable(1.0)
    devices = {value.device[-5:] for value in variable.values}
    assert devices == {f"CPU:{index}" for index in range(num_devices)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "horovod"}, "`strategy` must be one of"),
        ({"name": "mirrored"}, "needs GPUs"),
        ({"name": "mirrored", "num_cpu_devices": 0}, "must be positive"),
        ({"name": "mirrored", "num_cpu_devices": 5}, "must be at most 4"),
        ({"num_cpu_devices": 2}, "`num_cpu_devices` must not be given"),
        ({"tpu_name": "local"}, "`tpu_name` must not be given"),
        ({"tpu_zone": "here"}, "`tpu_zone` must not be given"),
        ({"gcp_project": "mine"}, "`gcp_project` must not be given"),
        (
            {"name": "mirrored", "num_cpu_devices": 2, "num_tpu_cores": 8},
            "`num_tpu_cores` must not be given",
        ),
        ({"name": "multi_worker"}, "TF_CONFIG, with the addresses"),
    ],
)
def test_what_does_not_apply_is_an_error(options, message, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=message):
        strategies.make_strategy(**options)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "needs the environment variable TF_CONFIG.* JSONDecodeError: "),
        ("[]", "needs the environment variable TF_CONFIG.* TypeError: "),
        ('{"cluster": ["a:1"]}', "needs the environment variable TF_CONFIG"),
        ('{"cluster": {"worker": []}}', "there are no workers"),
        (
            '{"cluster": {"worker": "a:1"}}',
            "needs the environment .* Received: .*must be a list",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, '
            '"task": {"type": "worker", "index": 3}}',
            r"needs the environment .*3\}\}\. .*exceeds the maximum id",
        ),
    ],
)
def test_a_tf_config_of_another_form_is_named(config, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match=message):
        strategies.make_strategy("multi_worker")


@pytest.mark.parametrize(
    ("mixed_precision", "policy"),
    [
        ("auto", "float32"),
        ("float32", "float32"),
        ("bfloat16", "mixed_bfloat16"),
        ("float16", "mixed_float16"),
    ],
)
def test_dtype_policy_of_a_cpu(mixed_precision, policy):
    strategy = strategies.make_strategy()
    assert strategies.dtype_policy(mixed_precision, strategy) == policy


def test_dtype_policy_of_a_tpu(monkeypatch):
    strategy = strategies.make_strategy()
    monkeypatch.setattr(strategies, "is_tpu", lambda strategy: True)
    assert strategies.dtype_policy("auto", strategy) == "mixed_bfloat16"
    assert strategies.dtype_policy("float32", strategy) == "float32"
    with pytest.raises(ValueError, match="bfloat16 or float32 on a TPU"):
        strategies.dtype_policy("float16", strategy)


def test_unknown_precision_is_an_error():
    strategy = strategies.make_strategy()
    with pytest.raises(ValueError, match="`mixed_precision` must be one of"):
        strategies.dtype_policy("float8", strategy)


def test_a_process_alone_agrees_with_itself():
    strategy = strategies.make_strategy()
    assert not strategies.is_multi_host(strategy)
    agree = strategies.make_agreement(strategy)
    assert agree(True, 3) == (True, 3)


def test_numbers_of_processes_are_gathered_exactly(monkeypatch):
    strategy = strategies.make_strategy("mirrored", num_cpu_devices=2)
    numbers = (2**32 - 1, 0, 12_345_677)
    assert strategies.make_gather(strategy)(numbers) == [numbers]
    # By the collective, too: here of one process, which has two replicas.
    monkeypatch.setattr(strategies, "is_multi_host", lambda strategy: True)
    assert strategies.make_gather(strategy)(numbers) == [numbers]


def test_the_log_names_the_cpu(caplog):
    caplog.set_level("INFO", logger="bert_tf")
    devices.log(strategies.make_strategy())
    devices.log(strategies.make_strategy("mirrored", num_cpu_devices=3))
    one, three = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"1 device: CPU \(\d+ cores, \w+\)\.", one)
    assert three == one.replace("1 device:", "3 devices:")


@pytest.mark.parametrize(
    ("used", "lines"),
    [
        (
            ["GPU:0"],
            [
                "1 device: GPU (NVIDIA H100).",
                "Float32 matrices are multiplied in TF32, if the GPU has it; "
                "--notf32 turns it off.",
                "1 of 2 GPUs are not used. --strategy=mirrored, "
                "tf.distribute.MirroredStrategy() in Python, takes them all.",
            ],
        ),
        (
            ["GPU:0", "GPU:1"],
            [
                "2 devices: GPU (NVIDIA H100).",
                "Float32 matrices are multiplied in float32.",
            ],
        ),
        (["TPU:0", "TPU:1"], ["2 devices: TPU."]),
    ],
)
def test_the_log_names_gpus_and_those_not_used(
    used, lines, caplog, monkeypatch
):
    gpus = ["gpu 0", "gpu 1"] if "GPU:0" in used else []
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda gpu: {"device_name": "NVIDIA H100"},
    )
    devices.set_arithmetic(tf32="GPU:1" not in used, deterministic=False)
    caplog.set_level("INFO", logger="bert_tf")
    names = [f"/job:localhost/replica:0/task:0/device:{u}" for u in used]
    extended = types.SimpleNamespace(worker_devices=names)
    strategy = types.SimpleNamespace(extended=extended)
    devices.log(strategy)
    assert [record.getMessage() for record in caplog.records] == lines
    # What a run on them is told to have been computed with.
    told = {"tf32": "GPU:1" not in used, "deterministic": False}
    assert devices.arithmetic(strategy) == (told if gpus else {})
    devices.set_arithmetic(tf32=True, deterministic=False)


@pytest.mark.parametrize(("hidden", "is_told"), [(None, True), ("", False)])
def test_a_gpu_that_tensorflow_does_not_find_is_told(
    caplog, monkeypatch, hidden, is_told
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(strategies.os.path, "exists", lambda path: True)
    devices.log(strategies.make_strategy())
    assert ("pip install 'tensorflow[and-cuda]'" in caplog.text) == is_told


class _Resolver:
    def __init__(self, task_type, task_id, jobs):
        self.task_type = task_type
        self.task_id = task_id
        self.jobs = jobs

    def cluster_spec(self):
        return tf.train.ClusterSpec(dict.fromkeys(self.jobs, ["localhost:1"]))


class _Strategy:
    def __init__(self, *resolver):
        self.cluster_resolver = _Resolver(*resolver)


@pytest.mark.parametrize(
    ("place", "is_chief"),
    [
        (("worker", 0, ["worker"]), True),
        (("worker", 1, ["worker"]), False),
        (("worker", 0, ["chief", "worker"]), False),
        (("chief", 0, ["chief", "worker"]), True),
        ((None, None, []), True),
    ],
)
def test_one_process_of_a_cluster_is_the_chief(place, is_chief):
    assert strategies.is_chief(_Strategy(*place)) == is_chief


def test_every_process_of_a_cluster_is_a_host(monkeypatch):
    assert strategies.num_hosts(strategies.make_strategy()) == 1
    monkeypatch.setattr(strategies, "is_multi_host", lambda strategy: True)
    assert strategies.num_hosts(_Strategy("worker", 0, ["worker"])) == 1
    chief = _Strategy("worker", 0, ["chief", "worker"])
    assert strategies.num_hosts(chief) == 2
