"""bert_tf's process of benchmarks/gpu_layers.py; see pretraining_worker.py.

It runs under KERAS_BACKEND=jax and imports no TensorFlow. The optimizer is
Keras's AdamW, as bert_tf's own needs TensorFlow. The job's `attention` is the
`attention_chunk` of the model, or the implementation of
`jax.nn.dot_product_attention`, "xla" or "cudnn", to be called instead.
"""

import os

# Before Keras is imported.
os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import jax_step  # noqa: E402
import keras  # noqa: E402
import pretraining_rows  # noqa: E402
import pretraining_worker  # noqa: E402
from keras import ops  # noqa: E402

from bert_tf import features  # noqa: E402
from bert_tf.config import BertConfig  # noqa: E402
from bert_tf.layers.attention import gather_queries  # noqa: E402
from bert_tf.layers.attention import make_attention_mask  # noqa: E402
from bert_tf.layers.basic import apply_activation  # noqa: E402
from bert_tf.layers.basic import gather_positions  # noqa: E402
from bert_tf.models.pretrainer import BertPretrainer  # noqa: E402


def with_jax_attention(encoder, implementation):
    """Returns what can be called instead of an encoder on packed rows.

    It calls the encoder's layers, but JAX's attention between them, which drops
    no probabilities.
    """

    def call(inputs, positions, training=None):
        mask = make_attention_mask(
            inputs[features.INPUT_MASK], inputs[features.SEQUENCE_IDS]
        )
        x = encoder.embeddings(
            inputs[features.INPUT_IDS],
            inputs[features.SEGMENT_IDS],
            inputs[features.POSITION_IDS],
            training=training,
        )
        *blocks, last = encoder.blocks
        for block in blocks:
            x = _call_block(block, x, mask, x, implementation, training)
        # As in `BertEncoder`, the last block is computed only where it is read.
        first = inputs[features.FIRST_POSITIONS]
        read = ops.concatenate([first, positions], axis=1)
        x = _call_block(
            last,
            x,
            gather_queries(mask, read),
            gather_positions(x, read),
            implementation,
            training,
        )
        num_first = first.shape[1]
        places = ops.broadcast_to(ops.arange(num_first), first.shape)
        return {
            "sequence_output": x[:, num_first:],
            "pooled_output": encoder.pooler(x, places),
        }

    return call


def _call_block(block, inputs, mask, queries, implementation, training):
    """Does what `EncoderBlock` does, but for the dropout of probabilities."""
    attention = block.attention
    num_heads = block.config.num_attention_heads

    def heads_of(dense, x):
        x = dense(x, training=training)
        return ops.reshape(x, (*x.shape[:2], num_heads, -1))

    x = jax.nn.dot_product_attention(
        heads_of(attention.query, queries),
        heads_of(attention.key, inputs),
        heads_of(attention.value, inputs),
        mask=mask[:, None],
        implementation=implementation,
    )
    x = attention.merge_heads(ops.reshape(x, queries.shape), training=training)
    x = block.attention_dropout(x, training=training)
    attended = block.attention_layer_norm(queries + x)
    x = block.intermediate(attended, training=training)
    x = apply_activation(block.config.hidden_act, x)
    x = block.output_dense(x, training=training)
    x = block.output_dropout(x, training=training)
    return block.output_layer_norm(attended + x)


def prepare(job):
    """Returns a compiled step, its first state and a batch."""
    keras.utils.set_random_seed(1)
    attention = job["attention"]
    is_own = isinstance(attention, int)
    is_float32 = job["precision"] == "float32"
    model = BertPretrainer(
        BertConfig(**job["config"]),
        attention_chunk=attention if is_own else None,
        dtype="float32" if is_float32 else f"mixed_{job['precision']}",
    )
    optimizer = keras.optimizers.AdamW(
        1e-4, weight_decay=0.01, global_clipnorm=1.0
    )
    optimizer.build(model.trainable_variables)
    options = {}
    if not is_own:
        options["encoder"] = with_jax_attention(model.encoder, attention)
    step = jax_step.make_step(model, optimizer, **options)
    rows = pretraining_rows.random_rows(job, job["batch_size"])
    return (
        jax.jit(step, donate_argnums=0),
        jax_step.first_state(model, optimizer),
        jax.tree.map(jax.device_put, rows),
    )


def main():
    job = pretraining_worker.read_job()
    # On a machine without such a device this is an error.
    device = jax.devices(job["device"])[0]
    step, state, batch = prepare(job)

    def make_steps(count):
        nonlocal state
        for _ in range(count):
            loss, state = step(state, batch)
        loss.block_until_ready()

    pretraining_worker.serve(
        make_steps,
        job["batch_size"],
        lambda: (device.memory_stats() or {}).get("peak_bytes_in_use"),
    )


if __name__ == "__main__":
    main()
