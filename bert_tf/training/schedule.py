"""The learning rate of google-research/bert as a Keras schedule."""

import keras
from keras import ops


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
        peak_learning_rate,
        num_train_steps,
        num_warmup_steps=0,
        drop=True,
        name="warmup_linear_decay",
    ):
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
        decayed = ops.maximum(self.num_train_steps - step, 0.0) / max(
            self.num_train_steps - start, 1
        )
        warmed = step / max(self.num_warmup_steps, 1)
        return self.peak_learning_rate * ops.where(
            step < self.num_warmup_steps, warmed, decayed
        )

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "drop": self.drop,
            "name": self.name,
        }
