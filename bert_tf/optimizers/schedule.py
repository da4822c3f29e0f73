"""Learning rates over a training: a warmup, then a decay to 0.

google-research/bert's is the default everywhere; the others differ from it in
the form of the decay alone.
"""

import math

import keras
from keras import ops

DECAYS = ("linear", "polynomial", "cosine")


def make_schedule(
    decay: str,
    peak_learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
    *,
    power: float | None = None,
    drop: bool = True,
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Makes the schedule of this name.

    Args:
        decay: One of `DECAYS`.
        power: Of the polynomial, which needs it; None for the others.
        **: The rest is as of `WarmupLinearDecay`.

    Raises:
        ValueError: If a value is bad, or does not apply.
    """
    if decay not in DECAYS:
        raise ValueError(
            f"`decay` must be one of {', '.join(DECAYS)}. "
            f"Received: decay={decay!r}."
        )
    if (power is not None) != (decay == "polynomial"):
        raise ValueError(
            "`power` must be given with the polynomial decay, and with no "
            f"other. Received: decay={decay!r}, power={power}."
        )
    arguments = (peak_learning_rate, num_train_steps, num_warmup_steps, drop)
    if power is not None:
        return WarmupPolynomialDecay(*arguments, power=power)
    if decay == "cosine":
        return WarmupCosineDecay(*arguments)
    return WarmupLinearDecay(*arguments)


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0, then decays linearly to 0.

    At step t, of W warmup steps and N training steps in all:

        peak * t / W          while t < W
        peak * (1 - t / N)    from W on, until N
        0                     afterwards

    The second line is not joined to the first: the rate drops from `peak` to
    peak * (1 - W / N) at W, as in google-research/bert (optimization.py).

    Args:
        peak_learning_rate: Float, what the warmup rises towards.
        num_train_steps: The step at which the rate is 0, above 0.
        num_warmup_steps: Steps of the warmup. More of them than
            `num_train_steps` are never finished.
        drop: Whether the decay is counted from step 0, as above. If False it
            is counted from the end of the warmup, peak * (N - t) / (N - W),
            and the rate does not drop.
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        drop: bool = True,
        name: str = "warmup_linear_decay",
    ) -> None:
        super().__init__()
        if not peak_learning_rate >= 0:
            raise ValueError(
                "`peak_learning_rate` must be 0 or more. Received: "
                f"peak_learning_rate={peak_learning_rate}."
            )
        if not num_train_steps > 0:
            raise ValueError(
                "`num_train_steps` must be positive. Received: "
                f"num_train_steps={num_train_steps}."
            )
        if not num_warmup_steps >= 0:
            raise ValueError(
                "`num_warmup_steps` must be 0 or more. Received: "
                f"num_warmup_steps={num_warmup_steps}."
            )
        self.peak_learning_rate = peak_learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.drop = drop
        self.name = name

    def __call__(self, step):
        step = ops.cast(step, "float32")
        start = 0 if self.drop else self.num_warmup_steps
        # Both divisors are kept from 0: there `where` takes the other side.
        left = ops.maximum(self.num_train_steps - step, 0.0) / max(
            self.num_train_steps - start, 1
        )
        warmed = step / max(self.num_warmup_steps, 1)
        return self.peak_learning_rate * ops.where(
            step < self.num_warmup_steps, warmed, self._decayed(left)
        )

    def _decayed(self, left):
        # The share of the peak, of the share of the steps that are left.
        return left

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "drop": self.drop,
            "name": self.name,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupPolynomialDecay(WarmupLinearDecay):
    """As `WarmupLinearDecay`, with the decay to a power.

    From W on: peak * (1 - t / N)**power, or without the drop
    peak * ((N - t) / (N - W))**power.

    Args:
        power: Float above 0; with 1 the decay is linear, with 0.5 it keeps
            high for longer.
        **: The rest is as of `WarmupLinearDecay`.
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        drop: bool = True,
        power: float = 1.0,
        name: str = "warmup_polynomial_decay",
    ) -> None:
        super().__init__(
            peak_learning_rate, num_train_steps, num_warmup_steps, drop, name
        )
        if not power > 0:
            raise ValueError(
                f"`power` must be positive. Received: power={power}."
            )
        self.power = power

    def _decayed(self, left):
        return ops.power(left, self.power)

    def get_config(self):
        return super().get_config() | {"power": self.power}


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupCosineDecay(WarmupLinearDecay):
    """As `WarmupLinearDecay`, with half a cosine wave for the decay.

    From W on: peak * (1 + cos(pi * t / N)) / 2, or without the drop
    peak * (1 + cos(pi * (t - W) / (N - W))) / 2 (arXiv 1608.03983, with one
    period and no restart).
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        drop: bool = True,
        name: str = "warmup_cosine_decay",
    ) -> None:
        super().__init__(
            peak_learning_rate, num_train_steps, num_warmup_steps, drop, name
        )

    def _decayed(self, left):
        return (1 - ops.cos(math.pi * left)) / 2
