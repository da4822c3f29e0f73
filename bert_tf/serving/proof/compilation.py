"""Measures how long XLA takes to compile a model, shape by shape."""

from bert_tf import files
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import TIMEOUT_SECONDS
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import requests

# The first call compiles; the last one is the fastest.
_NUM_CALLS = 3


def seconds_by_shape(
    path: files.AnyPath, servable: Servable
) -> dict[tuple[int, int], tuple[float, float]]:
    """Calls a compiled SavedModel several times with each of its shapes.

    It runs in a process of its own. Unlike a server, TensorFlow in Python needs
    no flag to compile.

    Args:
        path: The SavedModel.
        servable: The `Servable` that it was exported from.

    Returns:
        {(rows, length): (seconds of the first call, of the last)}, with the
        same text in all rows.

    Raises:
        ValueError: As in `caller.calling`.
    """
    shapes = warmup.compiled_shapes(servable)
    # The default signature for ids gets rows padded to the full length.
    name = signatures.DEFAULT if servable.takes_text else signatures.EXAMPLES
    times: list[float] = []
    with caller.calling(
        path,
        (
            (name, requests.make_inputs(name, servable, [row] * size))
            for (size, _), row in shapes.items()
            for _ in range(_NUM_CALLS)
        ),
        with_text=servable.takes_text,
        timeout_seconds=servable.options.timeout_seconds or TIMEOUT_SECONDS,
        times=times,
    ) as (_, answers):
        for _ in answers:
            pass
    return {
        shape: (times[_NUM_CALLS * index], times[_NUM_CALLS * (index + 1) - 1])
        for index, shape in enumerate(shapes)
    }
