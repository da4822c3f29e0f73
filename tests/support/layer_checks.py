"""The contract that every layer and model of the library keeps."""

import keras
import numpy as np
import tensorflow as tf

# Of a vocabulary of 11 or more; the second row is padded.
MODEL_INPUTS = {
    "input_ids": np.array([[2, 9, 4, 7, 3], [2, 1, 3, 0, 0]], "int32"),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32"),
    "segment_ids": np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], "int32"),
}


def randomized(layer, seed=7):
    """Gives every weight of `layer` a random value, biases too."""
    generator = np.random.default_rng(seed)
    for variable in layer.weights:
        variable.assign(generator.normal(0, 0.5, variable.shape))
    return layer


def check_layer(make_layer, inputs, tmp_path, unused=()):
    """Checks a layer or model on inputs for its call.

    Args:
        make_layer: A function that returns a new layer; it gets `dtype`.
        inputs: A list of arrays: the positional call arguments; or a list
            with one dictionary of arrays.
        tmp_path: A folder to save in.
        unused: Parts of paths of weights that these inputs do not reach.
    """
    layer = make_layer(dtype="float32")
    outputs = layer(*inputs)
    randomized(layer)
    _check_config_round_trip(layer, inputs)
    _check_symbolic_shapes(layer, inputs, outputs)
    _check_keras_file(layer, inputs, tmp_path)
    _check_gradients(layer, inputs, unused)
    _check_mixed_precision(make_layer, inputs)


def _check_config_round_trip(layer, inputs):
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    copy(*inputs)
    copy.set_weights(layer.get_weights())
    tf.nest.map_structure(
        np.testing.assert_array_equal, layer(*inputs), copy(*inputs)
    )
    assert [w.path.split("/")[1:] for w in copy.weights] == [
        w.path.split("/")[1:] for w in layer.weights
    ]


def _symbolic(inputs):
    return tf.nest.map_structure(
        lambda array: keras.Input(
            (None, *array.shape[2:]) if array.ndim > 1 else (),
            dtype=str(array.dtype),
        ),
        inputs,
    )


def _check_symbolic_shapes(layer, inputs, outputs):
    specs = tf.nest.map_structure(
        lambda array: keras.KerasTensor(array.shape, str(array.dtype)), inputs
    )
    symbolic = layer.symbolic_call(*specs)
    tf.nest.map_structure(
        lambda spec, output: (
            _equal(tuple(spec.shape), tuple(output.shape)),
            _equal(
                keras.backend.standardize_dtype(spec.dtype),
                keras.backend.standardize_dtype(output.dtype),
            ),
        ),
        symbolic,
        outputs,
    )


def _equal(left, right):
    assert left == right


def _check_keras_file(layer, inputs, tmp_path):
    symbolic = _symbolic(inputs)
    model = keras.Model(symbolic, layer(*symbolic))
    path = str(tmp_path / f"{layer.name}.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    tf.nest.map_structure(
        np.testing.assert_array_equal, model(inputs), loaded(inputs)
    )


def _check_gradients(layer, inputs, unused):
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(layer(*inputs))
        # Cubes: the sum of a LayerNorm's output has a gradient of zero.
        loss = sum(
            tf.reduce_sum(tf.cast(output, "float32") ** 3) for output in outputs
        )
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    for variable, gradient in zip(variables, gradients):
        if any(part in variable.path for part in unused):
            continue
        assert gradient is not None, f"{variable.path} has no gradient"
        gradient = tf.convert_to_tensor(gradient)
        # Softmax does not see a bias that all keys share.
        if not variable.path.endswith("key/bias"):
            assert np.any(np.abs(gradient) > 0), f"{variable.path}: all zero"


def _check_mixed_precision(make_layer, inputs):
    layer = make_layer(dtype="mixed_bfloat16")
    layer(*inputs)
    for sublayer in layer._flatten_layers():
        assert sublayer.dtype_policy.name == "mixed_bfloat16", sublayer.path
    for variable in layer.trainable_variables:
        assert variable.dtype == "float32", variable.path
