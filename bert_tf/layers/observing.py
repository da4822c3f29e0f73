"""Recording of what an encoder computes inside, for losses that need it.

    with observing() as seen:
        outputs = model(inputs)
    seen.states, seen.heads

Encoders and their attention look for an observer when they are called, that is,
when a graph is traced. Without one, nothing is recorded.
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
        heads: For every layer the queries, divided by the square root of the
            head size, the keys and the values: three tensors
            `[B, heads, L, head size]`.
    """

    states: list[Tensor] = dataclasses.field(default_factory=list)
    heads: list[tuple[Tensor, Tensor, Tensor]] = dataclasses.field(
        default_factory=list
    )


# Per thread: MirroredStrategy traces its devices in threads.
_OBSERVED: contextvars.ContextVar[Observed | None] = contextvars.ContextVar(
    "observed", default=None
)


@contextlib.contextmanager
def observing() -> Iterator[Observed]:
    """Yields an `Observed`, filled when the block calls an encoder, once."""
    observed = Observed()
    token = _OBSERVED.set(observed)
    try:
        yield observed
    finally:
        _OBSERVED.reset(token)


def observed_here() -> Observed | None:
    """Returns the `Observed` of the current block, or None outside of one."""
    return _OBSERVED.get()
