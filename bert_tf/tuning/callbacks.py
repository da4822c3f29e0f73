"""Keras callbacks in a fine-tuning, whose loop makes many steps in one call."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import keras

from bert_tf import messages

# What is called; an overridden hook of another name would never be.
HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end")
_OF_LEARNING_RATE = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


def check(callbacks: Iterable[keras.callbacks.Callback]) -> None:
    """Raises `ValueError` for a callback that would not do what it is for."""
    for callback in callbacks:
        reason = _why_not(callback)
        if reason:
            name = type(callback).__name__
            raise ValueError(f"`callbacks`: {reason}. Received: {name}.")


def _why_not(callback):
    """Returns why a callback does not work here; None if it does."""
    if not isinstance(callback, keras.callbacks.Callback):
        return "must be Keras callbacks"
    if isinstance(callback, _OF_LEARNING_RATE):
        return (
            "the learning rate follows its schedule; see `learning_rate`, "
            "`warmup_proportion`"
        )
    others = [
        name
        for name in dir(keras.callbacks.Callback)
        if name.startswith("on_")
        and name not in HOOKS
        # A function of the instance has none, as `LambdaCallback`'s.
        and getattr(getattr(callback, name), "__func__", None)
        is not getattr(keras.callbacks.Callback, name)
    ]
    if others:
        return (
            f"only {', '.join(HOOKS)} are called, not {', '.join(others)}; "
            "checkpoints, the best epoch (`keep_best`) and TensorBoard's "
            "curves need no callback"
        )
    if isinstance(callback, keras.callbacks.EarlyStopping):
        if callback.restore_best_weights:
            return "`keep_best=True` replaces restore_best_weights"
        if callback.mode == "auto" and not callback.monitor.endswith("loss"):
            return (
                f"monitor={messages.shortened(callback.monitor)} needs "
                "mode='max' or mode='min'"
            )
    return None


def epoch_logs(
    training: Sequence[Mapping[str, float]],
    start: int,
    end: int,
    results: Mapping[str, float],
) -> dict[str, float]:
    """Returns what `on_epoch_end` gets, by Keras's names.

    Args:
        training: Reports of the training, with `step` in each: means over the
            steps since the report before.
        start: The step at which the epoch began.
        end: The step at which it ended.
        results: {name: float} of its evaluation; empty without one.

    Returns:
        {name: float}: `loss` and, if the task has it, `accuracy`, means over
        the epoch's steps; and the results, e.g. `val_loss` of `eval_loss`.
    """
    totals: dict[str, float] = {}
    before = start
    for report in training:
        if start < report["step"] <= end:
            for name in ("loss", "accuracy"):
                if name in report:
                    total = report[name] * (report["step"] - before)
                    totals[name] = totals.get(name, 0.0) + total
            before = report["step"]
    logs = {name: total / (end - start) for name, total in totals.items()}
    return logs | {
        f"val_{name.removeprefix('eval_')}": value
        for name, value in results.items()
        if name != "global_step"
    }
