"""What layers need of Keras's backend beyond `keras.ops`."""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import TypeVar
from typing import cast

import keras
from keras import ops

from bert_tf.features import Tensor

Function = TypeVar("Function", bound=Callable)
Layer = TypeVar("Layer", bound=keras.layers.Layer)


def traced_once(function: Function) -> Function:
    """Makes TensorFlow trace a function once for every signature.

    For functions of a module that have a custom gradient. Each trace of one
    adds an entry to TensorFlow's global registry of gradients, which is never
    removed and holds the graph around it, with all variables of the model. In
    a function of its own, the graph holds nothing else.

    Args:
        function: Takes tensors and hashable values. It must not refer to
            tensors or layers in any other way.

    Returns:
        The function; on other backends unchanged.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.function(function, autograph=False)


def custom_gradient(function: Function) -> Function:
    """Is `ops.custom_gradient`, with one form of gradients for all backends.

    Args:
        function: As there, but the gradient that it returns takes only what is
            passed up. Use it in a `traced_once` function.
    """

    @ops.custom_gradient
    def call(*args):
        outputs, gradient = function(*args)

        def any_gradient(*args, upstream=None):
            # Keras's backends pass it in one or the other.
            return gradient(args[0] if upstream is None else upstream)

        return outputs, any_gradient

    return cast(Function, call)


def remat(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Makes a function forget what its gradient needs, and compute it again.

    On TensorFlow, `keras.remat` is `tf.recompute_grad`, which ties the second
    computation to the upstream gradient by `x == x`. The compiler for TPUs
    knows that this is true, sees the same values computed twice and keeps the
    first. Here `zero_after` ties them. Use it in a `traced_once` function.

    Args:
        function: Takes float tensors, or None, and returns one. It depends on
            nothing else that has a gradient.
    """
    if keras.backend.backend() != "tensorflow":
        return keras.remat(function)
    import tensorflow as tf

    @tf.custom_gradient
    def compute(*tensors):
        def gradient(upstream):
            first, *others = tensors
            again = [first + zero_after(upstream, first.dtype.name), *others]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(again)
                output = function(*again)
            return tape.gradient(
                output,
                again,
                output_gradients=upstream,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )

        return function(*tensors), gradient

    return compute


def without_values(make: Callable[[], Layer]) -> Layer:
    """Makes a layer only for its computation, which is given all values.

    Its variables have none, unless Keras gives all variables values that wait
    for some, as it does when a functional model is made.
    """
    with keras.StatelessScope(initialize_variables=False):
        return make()


def fori_loop(
    start: int, stop: Any, body: Callable[[Tensor, Any], Any], init: Any
) -> Any:
    """Does what `ops.fori_loop` does, one turn after the other.

    TensorFlow runs ten turns of that at once, with the memory of ten.

    Args:
        start, stop: Numbers of the first turn and behind the last one.
        body: Takes the number of a turn and the values so far; returns values.
        init: The first values, tensors in any structure.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.fori_loop(start, stop, body, init)
    import tensorflow as tf

    _, values = tf.while_loop(
        lambda turn, _: turn < stop,
        lambda turn, values: (turn + 1, body(turn, values)),
        (tf.constant(start), init),
        parallel_iterations=1,
    )
    return values


def map_one_by_one(
    function: Callable[[tuple[Any, ...]], Tensor], xs: Any
) -> Tensor:
    """Does what `ops.map` does, one turn after the other: see `fori_loop`.

    Args:
        function: Takes an element of each tensor in `xs`, in its structure, and
            returns a float32 tensor.
        xs: Tensors in any structure, which have one first size.

    Returns:
        The results, along a new first axis.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, xs)
    import tensorflow as tf

    return tf.map_fn(
        function, xs, parallel_iterations=1, fn_output_signature=tf.float32
    )


def seed_states(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that hold the model's random states.

    They are in the order of the layers, so a model rebuilt from the same
    configuration has the same variables in the same order.
    """
    return [v for v in model.variables if v.name == "seed_generator_state"]


def zero_after(x: Tensor, dtype: str) -> Tensor:
    """Returns a 0 that cannot be computed before `x`; a leading NaN makes it 1.

    Args:
        x: Float tensor of one axis or more.
        dtype: Dtype of the 0.
    """
    first = x[(slice(0, 1),) * len(x.shape)]
    return ops.cast(ops.any(ops.isnan(first)), dtype)


def all_after(
    x: Tensor, values: Iterable[Tensor | None]
) -> list[Tensor | None]:
    """Returns values that cannot be computed before `x`: see `zero_after`."""
    return [
        None if value is None else value + zero_after(x, value.dtype)
        for value in values
    ]


def check_is_tensorflow(what: str) -> None:
    """Checks that Keras computes with TensorFlow.

    Args:
        what: What needs it, as the message begins.

    Raises:
        ValueError: If Keras has another backend.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            f"{what} needs TensorFlow as Keras's backend: set "
            "KERAS_BACKEND=tensorflow before Keras is imported. "
            f"Received: KERAS_BACKEND={backend}."
        )
