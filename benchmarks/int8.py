r"""Compares 8-bit products and models with float32 and bfloat16.

    python benchmarks/int8.py --init_checkpoint=minilm

TensorFlow's CPU kernels for int8 products are oneDNN's: unsigned activations,
signed weights, one scale for each. The time includes quantizing the
activations: "int8" uses the range of the current batch, "int8, fixed range" one
that is known in advance, which takes the fewest possible operations. "int8
weights" converts the weights to float32 at every call.

The first table times one product with its bias and constant weights, in the
sizes of one string and of 32. The second, with --init_checkpoint, a model
folder, times strings to embeddings, in sessions of exports whose weights are
constants. There the ranges come from 64 of the timed texts, which is the most
favourable case. The sides take turns, in two threads; "ratio" is the median of
the ratios to float32's time in the same turn. Prints Markdown.
"""

import contextlib
import functools
import pathlib
import random
import statistics
import tempfile
import time

import heading
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers its operations.
from absl import flags

from bert_tf import program
from bert_tf.layers.basic import Dense
from bert_tf.serving import exporter
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import BFLOAT16
from bert_tf.serving.options import FLOAT32
from bert_tf.serving.options import ExportOptions
from bert_tf.text import packing

v1 = tf.compat.v1
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint",
    None,
    "A model folder. Default: measure only the products.",
)
_THREADS = flags.DEFINE_integer("threads", 2, "Threads per session.")
_PRODUCTS_TOO = flags.DEFINE_bool(
    "products", True, "Whether to measure products too, not only a model."
)
_TURNS = flags.DEFINE_integer("turns", 20, "How often each side is timed.")

# Rows, inputs and outputs of MiniLM's products, for one string and for 32.
_SHAPES = [
    (rows, *sizes)
    for rows in (24, 32 * 25)
    for sizes in ((384, 384), (384, 1536), (1536, 384))
]
# Products per graph: a call of a single one would be all overhead.
_NUM_PRODUCTS = 12
_WORDS = ("the", "a", "film", "was", "really", "good", "bad", "and", "story")


def in_float32(x, kernel, bias):
    return tf.nn.bias_add(tf.matmul(x, tf.constant(kernel)), bias)


def in_bfloat16(x, kernel, bias):
    product = tf.matmul(
        tf.cast(x, tf.bfloat16), tf.constant(kernel, tf.bfloat16)
    )
    bias = tf.constant(bias, tf.bfloat16)
    return tf.cast(tf.nn.bias_add(product, bias), tf.float32)


def in_int8(x, kernel, bias):
    return _in_int8(x, kernel, bias, tf.reduce_min(x), tf.reduce_max(x))


def in_int8_of_range(x, kernel, bias, low=-6.0, high=6.0):
    return _in_int8(x, kernel, bias, low, high)


def with_int8_weights(x, kernel, bias):
    scales = np.abs(kernel).max(axis=0) / 127
    # Fed, as TensorFlow would convert a constant to float32 once and for all.
    weights = v1.placeholder_with_default(
        tf.constant(np.round(kernel / scales).astype("int8")), kernel.shape
    )
    product = tf.matmul(x, tf.cast(weights, tf.float32)) * scales
    return tf.nn.bias_add(product, bias)


def _in_int8(x, kernel, bias, low, high):
    """Returns the product of 8-bit activations and weights."""
    largest = np.abs(kernel).max()
    weights = np.round(kernel / largest * 127).astype("int8")
    # Relative to the smallest activation none is negative, as the kernel
    # requires. Its own mode for that, MIN_FIRST, gives wrong results in 2.21.
    added = (weights.astype("float32") * (largest / 127)).sum(axis=0)
    is_fixed = isinstance(low, float)
    units, start, limit = tf.raw_ops.QuantizeV2(
        input=x - low,
        min_range=0.0,
        max_range=high - low,
        T=tf.quint8,
        mode="SCALED",
    )
    product = tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
        a=units,
        b=tf.bitcast(tf.constant(weights), tf.qint8),
        bias=tf.constant(bias + low * added if is_fixed else bias),
        min_a=start,
        max_a=limit,
        min_b=-largest,
        max_b=largest,
        min_freezed_output=0.0,
        max_freezed_output=0.0,
        Toutput=tf.float32,
        input_quant_mode="SCALED",
    )
    product.set_shape([None, kernel.shape[1]])
    return product if is_fixed else product + low * added


_PRODUCTS = {
    "float32": in_float32,
    "bfloat16": in_bfloat16,
    "int8": in_int8,
    "int8, fixed range": in_int8_of_range,
    "int8 weights": with_int8_weights,
}


def session_of(graph):
    config = v1.ConfigProto(
        intra_op_parallelism_threads=_THREADS.value,
        inter_op_parallelism_threads=_THREADS.value,
    )
    return v1.Session(graph=graph, config=config)


def make_product(compute, num_rows, num_inputs, num_outputs):
    """Returns a function that runs some products, and the first one's error."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, num_inputs)).astype("float32")
    with tf.Graph().as_default() as graph:
        fed = v1.placeholder(tf.float32, [None, num_inputs])
        outputs = []
        for index in range(_NUM_PRODUCTS):
            shape = (num_inputs, num_outputs)
            kernel = rng.normal(scale=0.04, size=shape).astype("float32")
            bias = rng.normal(size=num_outputs).astype("float32")
            if not index:
                wanted = x @ kernel + bias
            outputs.append(compute(fed, kernel, bias))
        first, total = outputs[0], tf.add_n([y[0, 0] for y in outputs])
    session = session_of(graph)
    error = np.abs(session.run(first, {fed: x}) - wanted).max()
    call = session.make_callable(total, [fed])
    return lambda: call(x), error / np.abs(wanted).max()


def take_turns(calls, num_calls=4):
    """Returns {side: (median seconds of a call, ratio to the first side's)}."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(_TURNS.value):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(num_calls):
                call()
            times[name].append((time.perf_counter() - start) / num_calls)
    first = next(iter(times.values()))
    return {
        name: (
            statistics.median(values),
            statistics.median(np.divide(values, first)),
        )
        for name, values in times.items()
    }


def measure_products():
    print("| rows | inputs | outputs | | µs | ratio | largest error |")
    print("|---|---|---|---|---|---|---|")
    for shape in _SHAPES:
        made = {
            name: make_product(compute, *shape)
            for name, compute in _PRODUCTS.items()
        }
        found = take_turns({name: call for name, (call, _) in made.items()})
        for name, (seconds, ratio) in found.items():
            print(
                f"| {' | '.join(map(str, shape))} | {name} "
                f"| {seconds / _NUM_PRODUCTS * 1e6:.0f} | {ratio:.2f} "
                f"| {made[name][1]:.1e} |",
                flush=True,
            )


@contextlib.contextmanager
def dense_layers_of(model, compute):
    """Replaces the dense layers' calls, except the pooler's, by `compute`."""
    layers = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, Dense) and "pooler" not in layer.path
    ]
    for layer in layers:
        layer.call = lambda x, training=None, own=layer: compute(own, x)
    try:
        yield
    finally:
        for layer in layers:
            del layer.call


def export_int8(servable, texts, folder):
    """Exports with fixed ranges, taken from the texts."""
    ranges, values = {}, {}

    def observe(layer, x):
        low, high = ranges.get(layer.path, (np.inf, -np.inf))
        ranges[layer.path] = (
            min(low, float(tf.reduce_min(x))),
            max(high, float(tf.reduce_max(x))),
        )
        values[layer.path] = layer.kernel.numpy(), layer.bias.numpy()
        return type(layer).call(layer, x)

    def compute(layer, x):
        y = in_int8_of_range(x, *values[layer.path], *ranges[layer.path])
        return y if layer.activation is None else layer.activation(y)

    with dense_layers_of(servable.model, observe):
        inputs = packing.trim_padding(servable.encode(texts))
        servable.call_model(inputs, training=False)
    # Its operations are not among those that old servers have.
    check_ops, saved_model.check_ops = saved_model.check_ops, lambda *_, **__: 0
    try:
        with dense_layers_of(servable.model, compute):
            save(servable, folder)
    finally:
        saved_model.check_ops = check_ops


def save(servable, folder):
    module = exporter.make(servable, folder)
    traced = exporter.sign(servable, module)
    exporter.write(folder, servable, module, traced)


def measure_models():
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices(_WORDS, k=rng.randint(6, 34))) for _ in range(128)
    ]
    with tempfile.TemporaryDirectory() as root:
        calls = {}
        for name, precision in (
            ("float32", FLOAT32),
            ("bfloat16", BFLOAT16),
            ("int8, fixed range", FLOAT32),
        ):
            folder = f"{root}/{name}"
            pathlib.Path(folder).mkdir()
            servable = opening.open_folder(
                _INIT_CHECKPOINT.value,
                ExportOptions(
                    kind="embedding", freeze=True, precision=precision
                ),
            )
            if name.startswith("int8"):
                rows = [(text.encode(),) for text in texts[:64]]
                export_int8(servable, rows, folder)
            else:
                save(servable, folder)
            session = session_of(tf.Graph())
            with session.graph.as_default():
                loaded = v1.saved_model.load(session, ["serve"], folder)
            signature = loaded.signature_def["serving_default"]
            calls[name] = session.make_callable(
                signature.outputs["embeddings"].name,
                [signature.inputs["text"].name],
            )
        vectors = {name: call(texts) for name, call in calls.items()}
        print("| strings | | ms | ratio | least cosine with float32's |")
        print("|---|---|---|---|---|")
        for size in (1, 32):
            found = take_turns(
                {
                    name: functools.partial(call, texts[:size])
                    for name, call in calls.items()
                }
            )
            for name, (seconds, ratio) in found.items():
                left, right = (
                    each / np.linalg.norm(each, axis=1, keepdims=True)
                    for each in (vectors["float32"], vectors[name])
                )
                cosine = np.sum(left * right, axis=1).min()
                print(
                    f"| {size} | {name} | {seconds * 1e3:.1f} | {ratio:.2f} "
                    f"| {cosine:.4f} |",
                    flush=True,
                )


def main(_):
    heading.show()
    if _PRODUCTS_TOO.value:
        measure_products()
    if _INIT_CHECKPOINT.value is not None:
        print()
        measure_models()


if __name__ == "__main__":
    program.run(main)
