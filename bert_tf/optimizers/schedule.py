"""The learning rate over a training run: a warmup, then a decay to 0."""

import math
from typing import Any
from typing import Self

import keras
from keras import ops

from bert_tf.optimizers import decays


# Registered under the former name of the linear schedule, which files hold.
@keras.saving.register_keras_serializable(
    package="bert_tf", name="WarmupLinearDecay"
)
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0, then decays to 0 (Devlin et al. 2018, A.2).

    At step t, of W warmup steps and N training steps in all:

        peak * t / W            while t < W
        peak * decay(1 - t / N) from W on, until N
        0                       afterwards

    The second line does not continue the first: a linear rate drops from
    `peak` to peak * (1 - W / N) at W, as in google-research/bert
    (optimization.py), whose decay is the linear one. With x the share of the
    steps that are left,

        linear  decay(x) = x
        cosine  decay(x) = (1 - cos(pi * x)) / 2
        root    decay(x) = 1 - sqrt(1 - x)

    The cosine is half a wave (arXiv 1608.03983, with one period and no
    restart). The root falls fastest at first; it is for a rate that is constant
    until the last `num_decay_steps` (warmup, stable, decay: Hagele et al. 2024,
    arXiv 2405.18392, which calls it 1-sqrt).

    Args:
        peak_learning_rate: Float, 0 or more, towards which the warmup rises.
        num_train_steps: The step at which the rate reaches 0, above 0.
        num_warmup_steps: Steps of the warmup, 0 or more. A warmup of more than
            `num_train_steps` is never finished.
        decay: One of `decays.DECAYS`.
        drop: Whether the decay is counted from step 0, as above. If False, it
            is counted from the end of the warmup, with x = (N - t) / (N - W),
            and the rate does not drop.
        num_decay_steps: None, or after how many steps of decay the training
            ends, whatever `drop` is; until then the rate is constant.

    Call arguments:
        step: The step, from 0: a number, or a scalar tensor.

    Returns:
        The learning rate, a float32 scalar.

    Raises:
        ValueError: If a value is out of its range, or does not apply.

    Example:

        >>> from bert_tf import WarmupDecay
        >>> rate = WarmupDecay(
        ...     1e-4, num_train_steps=100, num_warmup_steps=10
        ... )
        >>> [round(float(rate(step)), 6) for step in (0, 5, 10, 55, 100)]
        [0.0, 5e-05, 9e-05, 4.5e-05, 0.0]
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        *,
        decay: str = "linear",
        drop: bool = True,
        num_decay_steps: int | None = None,
    ) -> None:
        super().__init__()
        self.peak_learning_rate = peak_learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.decay = decay
        self.drop = drop
        self.num_decay_steps = num_decay_steps
        decays.check(
            peak_learning_rate,
            num_train_steps,
            num_warmup_steps,
            decay,
            num_decay_steps,
        )

    def __call__(self, step):
        step = ops.cast(step, "float32")
        start = 0 if self.drop else self.num_warmup_steps
        # No divisor is 0. Where one would be, `where` takes the other side.
        num_steps = self.num_decay_steps or max(self.num_train_steps - start, 1)
        left = ops.maximum(self.num_train_steps - step, 0.0)
        decayed = ops.minimum(left / num_steps, 1.0)
        if self.decay == "cosine":
            decayed = (1 - ops.cos(math.pi * decayed)) / 2
        elif self.decay == "root":
            decayed = 1 - ops.sqrt(1 - decayed)
        warmed = step / max(self.num_warmup_steps, 1)
        return self.peak_learning_rate * ops.where(
            step < self.num_warmup_steps, warmed, decayed
        )

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "decay": self.decay,
            "drop": self.drop,
            "num_decay_steps": self.num_decay_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        # Older files have a name, and the power of a decay that is gone.
        gone = ("name", "power")
        return cls(
            **{name: config[name] for name in config if name not in gone}
        )
