r"""Compiles the pre-training step for one TPU chip, without a TPU.

    python benchmarks/tpu_compile.py base 128 256 v5e keep cell.json

Lowers what `bert_tf.training.loop` runs on each replica (dropout seeds, model,
losses, gradients, optimizer; mixed bfloat16) to StableHLO with TensorFlow, and
passes it to libtpu's compiler. "keep" keeps activations, "rematerialize"
recomputes them, as that flag of the program does. It needs no device, and
nothing runs. Writes what the compiler reports to the JSON file.
`benchmarks/tpu.py` calls this for each line of its table.

Needs jax and libtpu beside bert_tf; `make tpu-check` makes the environment.
"""

import json
import os
import re
import sys
import time

# Before libtpu is loaded, as it would look for a cloud metadata server.
os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    JAX_PLATFORMS="cpu",
    TPU_ACCELERATOR_TYPE="v5litepod-1",
    TPU_WORKER_HOSTNAMES="localhost",
)

import jax  # noqa: E402
import tensorflow as tf  # noqa: E402
import tpu_costs  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.extend.mlir import ir  # noqa: E402

from bert_tf import features  # noqa: E402
from bert_tf.config import BertConfig  # noqa: E402
from bert_tf.models import objectives  # noqa: E402
from bert_tf.models import pretrainer  # noqa: E402
from bert_tf.optimizers.bert import BertOptimizer  # noqa: E402
from bert_tf.training import health  # noqa: E402
from bert_tf.training import randomness  # noqa: E402
from bert_tf.training import step as step_lib  # noqa: E402


def lower_step(config, length, num_predictions, batch_size, rematerialize):
    """Returns the step's StableHLO, as text."""
    model = pretrainer.BertPretrainer(
        config, rematerialize=rematerialize, dtype="mixed_bfloat16"
    )
    optimizer = BertOptimizer(1e-4)
    optimizer.build(model.trainable_variables)
    objective = objectives.PRETRAINING
    states = randomness.seed_states(model)

    @tf.function(autograph=False, jit_compile=True)
    def step(batch, number):
        randomness.set_seeds(states, 12345, number)
        return step_lib.train_step(model, objective, optimizer, batch)

    batch = {
        name: tf.zeros((batch_size, *shape), dtype.replace("int64", "int32"))
        for name, (dtype, shape) in features.pretraining_record(
            length, num_predictions
        ).items()
    }
    number = tf.constant(0, tf.int64)
    return step.experimental_get_compiler_ir(batch, number)(stage="stablehlo")


def compile_for_chip(stablehlo, chip):
    """Compiles a program for one chip.

    Args:
        stablehlo: The text of a module.
        chip: "v5e" or "v6e".

    Returns:
        {name: number} of the compiler's statistics, or {"too_large": the
        compiler's message} if it does not fit into memory.
    """
    topology = topologies.get_topology_desc(
        platform="tpu",
        topology_name=f"{chip}:1x1",
        chips_per_host_bounds=(1, 1, 1),
    )
    device = topology.devices[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(_for_tpu(stablehlo))
        try:
            program = device.client.compile(
                module,
                xla_client.DeviceList((device,)),
                xla_client.CompileOptions(),
            )
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return {"too_large": str(error).split("\n")[0]}
    memory = program.get_compiled_memory_stats()
    costs = program.cost_analysis()
    return {
        "flops": costs["flops"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        # Variables updated in place.
        "alias_bytes": memory.alias_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
    }


def _for_tpu(stablehlo):
    """Rewrites what TensorFlow's bridge lowers differently for CPUs.

    `mhlo.copy`, which jax does not know, becomes a reshape to the same shape.
    Random bits come from the device's own generator, with a state of two
    numbers, as tf2xla does on TPUs. On CPUs it uses Philox, with a state of
    three.
    """
    stablehlo = re.sub(
        r"mhlo\.copy (%\S+)(?: \{.*\})? : (tensor<.*?>)",
        r"stablehlo.reshape \1 : (\2) -> \2",
        stablehlo,
    )
    stablehlo = re.sub(
        r"(%\S+), (%\S+) = stablehlo\.rng_bit_generator (%\S+), "
        r"algorithm =  ?PHILOX : \(tensor<3xui64>\) -> "
        r"\(tensor<3xui64>, (tensor<.*?>)\)",
        "\n".join(
            [
                r"\1_in = stablehlo.slice \3 [0:2] : (tensor<3xui64>) -> "
                r"tensor<2xui64>",
                r"\1_rest = stablehlo.slice \3 [2:3] : (tensor<3xui64>) -> "
                r"tensor<1xui64>",
                r"\1_out, \2 = stablehlo.rng_bit_generator \1_in, "
                r"algorithm = DEFAULT : (tensor<2xui64>) -> "
                r"(tensor<2xui64>, \4)",
                r"\1 = stablehlo.concatenate \1_out, \1_rest, dim = 0 : "
                r"(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>",
            ]
        ),
        stablehlo,
    )
    assert "PHILOX" not in stablehlo, "another form of the random bits"
    return stablehlo


def main(size, length, batch_size, chip, what, path):
    config = BertConfig.named(size)
    length, batch_size = int(length), int(batch_size)
    start = time.monotonic()
    stablehlo = lower_step(
        config,
        length,
        tpu_costs.PREDICTIONS[length],
        batch_size,
        {"keep": False, "rematerialize": True}[what],
    )
    found = compile_for_chip(stablehlo, chip)
    found["model_flops"] = batch_size * health.flops_per_example(
        config, length, tpu_costs.PREDICTIONS[length]
    )
    found["seconds"] = time.monotonic() - start
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
