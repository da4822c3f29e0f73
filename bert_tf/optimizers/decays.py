"""Kinds of learning rate decay; the schedule itself needs Keras."""

import math
import numbers

DECAYS = ("linear", "cosine", "root")


def check(
    peak_learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    decay: str,
    num_decay_steps: int | None = None,
) -> None:
    """Checks the arguments of a `WarmupDecay`.

    Raises:
        ValueError: If a value is out of its range, or does not apply.
    """
    for name, value in (
        ("peak_learning_rate", peak_learning_rate),
        ("num_train_steps", num_train_steps),
        ("num_warmup_steps", num_warmup_steps),
        ("num_decay_steps", 1 if num_decay_steps is None else num_decay_steps),
    ):
        # Tensors and arrays are fine too.
        is_number = isinstance(value, numbers.Real) or hasattr(value, "dtype")
        if not is_number:
            raise ValueError(
                f"`{name}` must be a number. Received: {name}={value!r}."
            )
    for name, value, is_good, wanted in (
        ("decay", decay, decay in DECAYS, f"one of {', '.join(DECAYS)}"),
        (
            "peak_learning_rate",
            peak_learning_rate,
            0 <= peak_learning_rate < math.inf,
            "a finite number, 0 or more",
        ),
        ("num_train_steps", num_train_steps, num_train_steps > 0, "positive"),
        (
            "num_warmup_steps",
            num_warmup_steps,
            num_warmup_steps >= 0,
            "0 or more",
        ),
        (
            "num_decay_steps",
            num_decay_steps,
            num_decay_steps is None or num_decay_steps > 0,
            "positive or None",
        ),
    ):
        if not is_good:
            raise ValueError(
                f"`{name}` must be {wanted}. Received: {name}={value!r}."
            )
