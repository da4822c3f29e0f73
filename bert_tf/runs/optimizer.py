"""The optimizer that a run's options ask for."""

import keras

from bert_tf.optimizers import loss_scale
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.optimizers.stable_adamw import StableAdamW
from bert_tf.runs.options import OptimizerOptions

_CLASSES = {
    "bert": BertOptimizer,
    "lamb": LambOptimizer,
    "stable_adamw": StableAdamW,
}


def make(
    options: OptimizerOptions,
    num_train_steps: int,
    compute_dtype: str,
    skip_nonfinite: bool = False,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer.

    Args:
        options: The `OptimizerOptions`.
        num_train_steps: The step at which the learning rate reaches 0.
        compute_dtype: The model's compute dtype. With "float16" the optimizer
            scales the loss.
        skip_nonfinite: Whether it skips steps whose gradient is not finite.
    """
    arguments = {}
    if options.bias_correction is not None:
        arguments["bias_correction"] = options.bias_correction
    optimizer = _CLASSES[options.optimizer](
        WarmupDecay(
            options.learning_rate,
            num_train_steps,
            options.num_warmup_steps,
            decay=options.learning_rate_decay,
            drop=options.learning_rate_drop,
            num_decay_steps=options.num_decay_steps,
        ),
        weight_decay=options.weight_decay,
        beta_2=options.adam_beta_2,
        epsilon=options.adam_epsilon,
        global_clipnorm=options.clip_norm or None,
        skip_nonfinite=skip_nonfinite,
        layerwise_decay=options.layerwise_learning_rate_decay,
        **arguments,
    )
    return loss_scale.scaled_for(compute_dtype, optimizer)
