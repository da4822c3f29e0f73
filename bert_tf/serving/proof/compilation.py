"""How long XLA takes to compile a model, shape by shape."""

from bert_tf import files
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import TIMEOUT_SECONDS
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import requests

# The first one compiles; of the others the last is the quickest.
_NUM_CALLS = 3


def seconds_by_shape(
    path: files.AnyPath, servable: Servable
) -> dict[tuple[int, int], tuple[float, float]]:
    """Calls a compiled SavedModel once and again with each of its shapes.

    In a process of its own; Python's TensorFlow compiles without being told.

    Args:
        path: The SavedModel.
        servable: The `Servable` that it was exported from.

    Returns:
        {(rows, length): (seconds of the first call, of the last)}, the same
        text in all rows.

    Raises:
        ValueError: As of `caller.calling`.
    """
    shapes = warmup.compiled_shapes(servable)
    # The ids of the default signature are as long as can be, whatever the row.
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
