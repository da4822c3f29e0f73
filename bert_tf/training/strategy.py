"""Where a training step runs: one device, several, several hosts, a TPU."""

import json
import logging
import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.training.options import JIT_COMPILE
from bert_tf.training.options import MIXED_PRECISION
from bert_tf.training.options import STRATEGIES

_logger = logging.getLogger(__name__)


def make_strategy(
    name: str = "one_device",
    *,
    num_cpu_devices: int | None = None,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """Makes a `tf.distribute.Strategy`; call it before anything runs.

    An option that does not apply to the strategy is an error.

    Args:
        name: `one_device`: the first GPU, or the CPU if there is none.
            `mirrored`: all GPUs of this machine. `multi_worker`: the machines
            named in the environment variable TF_CONFIG. `tpu`.
        num_cpu_devices: With `mirrored`: run on this many logical devices of
            the CPU instead of on GPUs.
        tpu_name: With `tpu`: name or grpc:// address; `local` (the default)
            if the program runs on the TPU VM itself.
        tpu_zone: Zone of the TPU, if it must be looked up by its name.
        gcp_project: Project of the TPU, likewise.
        num_tpu_cores: If given, the number of cores that the TPU must have.

    Raises:
        ValueError: If an option does not apply or the devices do not exist.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}. "
            f"Received: strategy={name!r}."
        )
    for option, value, only_with in (
        ("num_cpu_devices", num_cpu_devices, "mirrored"),
        ("tpu_name", tpu_name, "tpu"),
        ("tpu_zone", tpu_zone, "tpu"),
        ("gcp_project", gcp_project, "tpu"),
        ("num_tpu_cores", num_tpu_cores, "tpu"),
    ):
        if value is not None and name != only_with:
            raise ValueError(
                f"`{option}` must not be given without the strategy "
                f"`{only_with}`. Received: {option}={value!r}, "
                f"strategy={name!r}."
            )
    if name == "one_device":
        # TensorFlow's default strategy, which uses the first GPU if there is
        # one. Under OneDeviceStrategy Keras's `fit` starts the input twice, and
        # each time TensorFlow rewrites the graph of its pipeline.
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored(num_cpu_devices)
    if name == "multi_worker":
        return _multi_worker()
    return _tpu(tpu_name or "local", tpu_zone, gcp_project, num_tpu_cores)


def dtype_policy(mixed_precision: str, strategy: tf.distribute.Strategy) -> str:
    """Returns the name of the Keras dtype policy for a model.

    Args:
        mixed_precision: One of `MIXED_PRECISION`; `auto` is bfloat16 on TPUs
            and float32 elsewhere.
        strategy: What `make_strategy` returned.
    """
    if str(mixed_precision) not in MIXED_PRECISION:
        raise ValueError(
            f"`mixed_precision` must be one of {', '.join(MIXED_PRECISION)}. "
            f"Received: mixed_precision={mixed_precision!r}."
        )
    if mixed_precision == "auto":
        mixed_precision = "bfloat16" if is_tpu(strategy) else "float32"
    if mixed_precision == "float16" and is_tpu(strategy):
        raise ValueError(
            "`mixed_precision` must be bfloat16 or float32 on a TPU. "
            "Received: mixed_precision='float16'."
        )
    if mixed_precision == "float32":
        return "float32"
    return f"mixed_{mixed_precision}"


def compiles_step(
    jit_compile: bool | str, strategy: tf.distribute.Strategy
) -> bool:
    """Returns whether the loop compiles its step with XLA.

    Args:
        jit_compile: One of `JIT_COMPILE`, or a bool.
        strategy: What `make_strategy` returned. A TPU runs only compiled code,
            so its strategy compiles the step itself.

    Returns:
        Whether it does. `auto` does not: the compiled step has only been
        measured on CPUs, where it is slower.

    Raises:
        ValueError: If `jit_compile` is none of these, or false on a TPU.
    """
    value = str(jit_compile).lower()
    if value not in JIT_COMPILE:
        raise ValueError(
            f"`jit_compile` must be one of {', '.join(JIT_COMPILE)}. "
            f"Received: jit_compile={jit_compile!r}."
        )
    if value == "false" and is_tpu(strategy):
        raise ValueError(
            "`jit_compile` must be true or auto on a TPU, where every step is "
            f"compiled with XLA. Received: jit_compile={jit_compile!r}."
        )
    return value == "true" and not is_tpu(strategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes checkpoints and summaries."""
    resolver = strategy.cluster_resolver
    if resolver is None or resolver.task_type is None or is_tpu(strategy):
        return True
    return resolver.task_type == "chief" or (
        resolver.task_type == "worker"
        and resolver.task_id == 0
        and "chief" not in resolver.cluster_spec().jobs
    )


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether steps run on TPU cores, where all shapes are static."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_multi_host(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether several processes run the program, one per machine."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def num_hosts(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of machines that read the input."""
    if is_tpu(strategy):
        return strategy.extended.num_hosts
    if is_multi_host(strategy):
        jobs = strategy.cluster_resolver.cluster_spec().as_dict()
        return len(jobs.get("chief", ())) + len(jobs["worker"])
    return 1


def make_gather(
    strategy: tf.distribute.Strategy,
) -> Callable[[Sequence[int]], list[tuple[int, ...]]]:
    """Returns a function that gathers numbers from all processes of a run.

    `gather(numbers)` takes 64-bit integers, the same number of them in each
    process. It waits until all processes have called it, and returns a list
    with a tuple of each one's numbers.
    """
    if not is_multi_host(strategy):
        return lambda numbers: [tuple(numbers)]

    @tf.function(autograph=False)
    def gather_rows(values):
        def replica_gather():
            context = tf.distribute.get_replica_context()
            own_row = tf.one_hot(
                context.replica_id_in_sync_group,
                context.num_replicas_in_sync,
                dtype=tf.int64,
            )
            return context.all_reduce(
                tf.distribute.ReduceOp.SUM, own_row[:, None] * values
            )

        rows = strategy.experimental_local_results(strategy.run(replica_gather))
        # All replicas of a process have the same numbers: keep one row each.
        return rows[0][:: len(rows)]

    def gather(numbers):
        rows = gather_rows(tf.constant(numbers, tf.int64)).numpy().tolist()
        return [tuple(row) for row in rows]

    return gather


def make_agreement(
    strategy: tf.distribute.Strategy,
) -> Callable[[bool, int], tuple[bool, int]]:
    """Returns a function with which the processes of a run agree.

    `agree(flag, number)` waits until all processes have called it. It returns
    whether `flag` is true in any of them, and the `number` of the first
    process.
    """
    gather = make_gather(strategy)

    def agree(flag, number):
        flags, numbers = zip(*gather((int(flag), number)))
        return any(flags), numbers[0]

    return agree


def _mirrored(num_cpu_devices):
    if num_cpu_devices is None:
        if not tf.config.list_logical_devices("GPU"):
            raise ValueError(
                "The strategy `mirrored` needs GPUs, but none was found; with "
                "`num_cpu_devices` it runs on the CPU."
            )
        return tf.distribute.MirroredStrategy()
    if num_cpu_devices < 1:
        raise ValueError(
            "`num_cpu_devices` must be positive. Received: "
            f"num_cpu_devices={num_cpu_devices}."
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    if not tf.config.get_logical_device_configuration(cpu):
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * num_cpu_devices
            )
        except RuntimeError as error:
            raise ValueError(
                "`num_cpu_devices` must be set before TensorFlow is used. "
                f"Received: num_cpu_devices={num_cpu_devices}."
            ) from error
    num_there = len(tf.config.list_logical_devices("CPU"))
    if num_there < num_cpu_devices:
        raise ValueError(
            f"`num_cpu_devices` must be at most {num_there}, which this "
            "process was started with. Received: "
            f"num_cpu_devices={num_cpu_devices}."
        )
    return tf.distribute.MirroredStrategy(
        [f"/cpu:{index}" for index in range(num_cpu_devices)],
        # The default collectives allow only one number of CPU devices for the
        # whole process.
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def _multi_worker():
    given = os.environ.get("TF_CONFIG", "{}")
    try:
        # Without workers TensorFlow would train alone.
        if not json.loads(given)["cluster"]["worker"]:
            raise ValueError("there are no workers.")
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "The strategy `multi_worker` needs the environment variable "
            "TF_CONFIG, with the addresses of the workers in cluster.worker "
            "and this process's place in task, e.g. "
            '{"cluster": {"worker": ["10.0.0.1:12345", "10.0.0.2:12345"]}, '
            f'"task": {{"type": "worker", "index": 0}}}}. Received: {given}. '
            f"The reason given: {type(error).__name__}: {error}"
        ) from error


def _tpu(tpu_name, tpu_zone, gcp_project, num_tpu_cores):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=tpu_name, zone=tpu_zone, project=gcp_project
        )
        if tpu_name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"No TPU could be reached. Received: tpu_name={tpu_name!r}, "
            f"tpu_zone={tpu_zone!r}, gcp_project={gcp_project!r}. "
            f"The reason given: {reason}"
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    num_replicas = strategy.num_replicas_in_sync
    if num_tpu_cores is not None and num_tpu_cores != num_replicas:
        raise ValueError(
            f"`num_tpu_cores` must be {num_replicas}, as the TPU "
            f"{tpu_name!r} has. Received: num_tpu_cores={num_tpu_cores}."
        )
    return strategy


def on_first_replica(strategy: tf.distribute.Strategy, results: Any) -> Any:
    """Returns a nest of values as the first replica of this host has it."""
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], results
    )
