r"""Compiles pre-training under KERAS_BACKEND=jax for the chips of a TPU host.

    python benchmarks/tpu_compile_jax.py base 128 256 v5e:2x2 keep cell.json

The batch is divided among the chips, and the weights are on all of them. The
optimizer is Keras's AdamW, as `bert_tf.training` needs TensorFlow. "keep" keeps
activations, "rematerialize" recomputes them with `keras.remat`. It needs no
device, and nothing runs. Writes what the compiler reports on one chip's
program, and its reductions over the chips, to the JSON file.
`benchmarks/tpu.py` calls this for each line of its table.

Needs jax and libtpu beside bert_tf; `make tpu-check` makes the environment.
"""

import json
import os
import re
import sys
import time

# Before Keras and libtpu are loaded, as libtpu would look for a cloud metadata
# server.
os.environ.update(
    KERAS_BACKEND="jax",
    TPU_SKIP_MDS_QUERY="1",
    JAX_PLATFORMS="cpu",
    TPU_ACCELERATOR_TYPE="v5litepod-4",
    TPU_WORKER_HOSTNAMES="localhost",
)

import jax  # noqa: E402
import jax_step  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tpu_costs  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec  # noqa: E402

from bert_tf import features  # noqa: E402
from bert_tf.config import BertConfig  # noqa: E402
from bert_tf.models import pretrainer  # noqa: E402


def main(size, length, batch_size, topology_name, what, path):
    length, batch_size = int(length), int(batch_size)
    start = time.monotonic()
    topology = topologies.get_topology_desc(
        platform="tpu", topology_name=topology_name
    )
    mesh = Mesh(np.array(topology.devices), ("rows",))
    on_all = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("rows"))

    model = pretrainer.BertPretrainer(
        BertConfig.named(size), dtype="mixed_bfloat16"
    )
    model.encoder.rematerialize = {"keep": False, "rematerialize": True}[what]
    optimizer = keras.optimizers.AdamW(1e-4, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    state = jax.tree.map(
        lambda variable: jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=on_all
        ),
        jax_step.first_state(model, optimizer),
    )
    batch = {
        name: jax.ShapeDtypeStruct(
            (batch_size, *shape), dtype.replace("64", "32"), sharding=divided
        )
        for name, (dtype, shape) in features.pretraining_record(
            length, tpu_costs.PREDICTIONS[length]
        ).items()
    }
    step = jax.jit(jax_step.make_step(model, optimizer), donate_argnums=0)
    program = step.lower(state, batch).compile()
    memory = program.memory_analysis()
    found = {
        "flops": program.cost_analysis()["flops"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "num_chips": len(topology.devices),
        "all_reduces": _all_reduces(program.as_text()),
        "seconds": time.monotonic() - start,
    }
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def _all_reduces(text):
    """Returns how many arrays each reduction over the chips sums."""
    # E.g. %all-reduce.7 = (f32[768], f32[768,768]) all-reduce(...
    found = re.findall(r" = (\S.*?) all-reduce(?:-start)?\(", text)
    return [
        len(re.findall(r"\b(?:f32|bf16|s32)\[", shapes)) for shapes in found
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
