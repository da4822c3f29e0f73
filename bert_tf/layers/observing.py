"""What goes on inside an encoder, for a loss that is made of it.

    with observing() as seen:
        outputs = model(inputs)
    seen.states, seen.heads

Encoders and their attention look for an observer when they are called, which
is when a graph is traced, and without one compute what they always do.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator

from bert_tf.features import Tensor


@dataclasses.dataclass
class Observed:
    """What an encoder computed in a call.

    Attributes:
        states: The output of the embeddings, then of every layer,
            `[B, L, hidden_size]` each.
        heads: Of every layer the queries, divided by the square root of the
            size of a head, the keys and the values: three tensors
            `[B, heads, L, size of a head]`.
    """

    states: list[Tensor] = dataclasses.field(default_factory=list)
    heads: list[tuple[Tensor, Tensor, Tensor]] = dataclasses.field(
        default_factory=list
    )


# Of its own in each thread: mirrored devices are traced in several.
_OBSERVED: contextvars.ContextVar[Observed | None] = contextvars.ContextVar(
    "observed", default=None
)


@contextlib.contextmanager
def observing() -> Iterator[Observed]:
    """Yields what fills as an encoder is called in the block, once."""
    observed = Observed()
    token = _OBSERVED.set(observed)
    try:
        yield observed
    finally:
        _OBSERVED.reset(token)


def observed_here() -> Observed | None:
    """Returns what is to be filled, None outside such a block."""
    return _OBSERVED.get()
