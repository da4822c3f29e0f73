"""Flags that the training programs share: devices and precision.

Only programs import this module: importing it defines the flags.
"""

from typing import TYPE_CHECKING

from absl import flags

from bert_tf.training import options

if TYPE_CHECKING:
    import tensorflow as tf

_STRATEGY = flags.DEFINE_enum(
    "strategy",
    None,
    options.STRATEGIES,
    "Where to run. one_device: the first GPU, or the CPU if there is none; "
    "mirrored: all GPUs of this machine; multi_worker: the machines of "
    "TF_CONFIG; tpu. Default: tpu with --use_tpu, otherwise one_device.",
)
_NUM_CPU_DEVICES = flags.DEFINE_integer(
    "num_cpu_devices",
    None,
    "With --strategy=mirrored: run on this many logical CPU devices.",
)
_USE_TPU = flags.DEFINE_bool(
    "use_tpu", False, "Run on a TPU; the same as --strategy=tpu."
)
_TPU_NAME = flags.DEFINE_string(
    "tpu_name",
    None,
    "Name or grpc:// address of the TPU. Default: local, this TPU VM's own.",
)
_TPU_ZONE = flags.DEFINE_string(
    "tpu_zone", None, "Zone of the TPU, if it is looked up by its name."
)
_GCP_PROJECT = flags.DEFINE_string(
    "gcp_project", None, "Project of the TPU, if it is looked up by its name."
)
_MASTER = flags.DEFINE_string(
    "master", None, "Another name of --tpu_name, as an address."
)
# Differs from BERT: no default (8 there); if it is given, it is checked.
_NUM_TPU_CORES = flags.DEFINE_integer(
    "num_tpu_cores", None, "The number of cores that the TPU must have."
)
_MIXED_PRECISION = flags.DEFINE_enum(
    "mixed_precision",
    "auto",
    options.MIXED_PRECISION,
    "Arithmetic of the layers; weights and losses are float32. auto: "
    "bfloat16 on TPUs, float32 elsewhere.",
)
_TF32 = flags.DEFINE_bool(
    "tf32",
    True,
    "On NVIDIA GPUs from Ampere on: multiply float32 matrices in TF32, with "
    "10 bits of mantissa, which is faster. --notf32: in float32.",
)
_DETERMINISTIC = flags.DEFINE_bool(
    "deterministic",
    False,
    "Run only deterministic operations, so that a GPU gives the same bits each "
    "time. Slower; an operation without a deterministic form stops the run.",
)


def make_strategy() -> "tf.distribute.Strategy":
    """Returns the strategy that the flags ask for.

    It first sets the arithmetic of the devices from the flags.

    Raises:
        ValueError: If flags contradict each other or a device is missing.
    """
    name = _STRATEGY.value or ("tpu" if _USE_TPU.value else "one_device")
    if _USE_TPU.value and name != "tpu":
        raise ValueError(
            "--use_tpu and --strategy must agree. Received: "
            f"--use_tpu --strategy={name}."
        )
    if None not in (_TPU_NAME.value, _MASTER.value) and (
        _TPU_NAME.value != _MASTER.value
    ):
        raise ValueError(
            "--master is another name of --tpu_name: the two must agree. "
            f"Received: --tpu_name={_TPU_NAME.value} --master={_MASTER.value}."
        )
    from bert_tf.training import devices
    from bert_tf.training import strategy as strategies

    devices.set_arithmetic(tf32=_TF32.value, deterministic=_DETERMINISTIC.value)
    return strategies.make_strategy(
        name,
        num_cpu_devices=_NUM_CPU_DEVICES.value,
        tpu_name=_TPU_NAME.value or _MASTER.value,
        tpu_zone=_TPU_ZONE.value,
        gcp_project=_GCP_PROJECT.value,
        num_tpu_cores=_NUM_TPU_CORES.value,
    )


def dtype_policy(strategy: "tf.distribute.Strategy") -> str:
    """Returns the name of the Keras dtype policy that the flags ask for."""
    from bert_tf.training import strategy as strategies

    return strategies.dtype_policy(_MIXED_PRECISION.value, strategy)
