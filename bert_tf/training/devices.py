"""The devices of a run: what they are, and how they compute."""

import logging
import os
import platform

import tensorflow as tf

# Only this module tells whether operations are deterministic; no public name
# does.
from tensorflow.python.framework import config

from bert_tf import cores

_logger = logging.getLogger(__name__)


def set_arithmetic(*, tf32: bool, deterministic: bool) -> None:
    """Sets how operations are computed; call it before anything runs.

    Args:
        tf32: Whether GPUs that support it (NVIDIA's Ampere and later) multiply
            float32 matrices in TF32, with 10 bits of mantissa.
        deterministic: Whether operations give the same bits each time; see
            `tf.config.experimental.enable_op_determinism`. It stays so for the
            whole process.
    """
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def arithmetic(strategy: tf.distribute.Strategy) -> dict[str, bool]:
    """Returns {name: bool} of settings that change the bits of a step on GPUs.

    Empty on other devices.
    """
    if _devices(strategy)[0] != "GPU":
        return {}
    return {
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "deterministic": config.is_op_determinism_enabled(),
    }


def log(strategy: tf.distribute.Strategy) -> None:
    """Logs which devices the steps run on, and warns about unused GPUs."""
    gpus = tf.config.get_visible_devices("GPU")
    kind, num_devices = _devices(strategy)
    details = [f"{cores.num_cores()} cores, {platform.machine()}"]
    if kind == "GPU":
        names = (
            tf.config.experimental.get_device_details(gpu).get("device_name")
            for gpu in gpus
        )
        details = sorted({name for name in names if name})
    elif kind == "TPU":
        details = []
    _logger.info(
        "%s device%s: %s%s.",
        num_devices,
        "s" if num_devices > 1 else "",
        kind,
        f" ({', '.join(details)})" if details else "",
    )
    if kind == "GPU":
        _logger.info(
            "Float32 matrices are multiplied in %s.",
            "TF32, if the GPU has it; --notf32 turns it off"
            if arithmetic(strategy)["tf32"]
            else "float32",
        )
    num_unused = len(gpus) - (num_devices if kind == "GPU" else 0)
    if num_unused > 0:
        _logger.warning(
            "%d of %d GPUs are not used. --strategy=mirrored, "
            "tf.distribute.MirroredStrategy() in Python, takes them all.",
            num_unused,
            len(gpus),
        )
    elif kind == "CPU" and _has_nvidia_driver():
        _logger.warning(
            "NVIDIA's GPU driver is installed, but TensorFlow finds no GPU: "
            "pip install 'tensorflow[and-cuda]' installs what it needs."
        )


def _devices(strategy):
    """Returns the kind of device, CPU, GPU or TPU, and the number of them."""
    try:
        devices = strategy.extended.worker_devices
    except RuntimeError:
        # TensorFlow's default strategy does not name its device.
        has_gpu = tf.config.get_visible_devices("GPU")
        return "GPU" if has_gpu else "CPU", 1
    return tf.DeviceSpec.from_string(devices[0]).device_type, len(devices)


def _has_nvidia_driver():
    # If the variable is empty or -1, the GPUs are hidden on purpose.
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not is_hidden and os.path.exists("/proc/driver/nvidia/version")
