"""The optimizer of google-research/bert for Keras and tf.distribute."""

import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import keras
from keras import ops

from bert_tf.features import Tensor
from bert_tf.optimizers import checks
from bert_tf.optimizers import clipping
from bert_tf.optimizers import layerwise

# Excluded from weight decay, as in google-research/bert: biases (including the
# heads' `output_bias`) and the scales of layer normalisation, as this library
# and Hugging Face spell them.
NO_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")

LearningRate: TypeAlias = (
    float | keras.optimizers.schedules.LearningRateSchedule
)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertOptimizer(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, as BERT was trained.

    Devlin et al. 2018, appendix A.2, and A.3 for fine-tuning.

    With gradient g of variable w, clipped by the norm of all gradients:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        w = w - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)

    This is `AdamWeightDecayOptimizer` of google-research/bert, so by default
    there is no bias correction. One thing differs: gradients are clipped once,
    after they are summed over the replicas, so that the number of devices
    changes nothing. (Keras, and BERT on TPUs, clip on each device.)

    In a custom step, call `apply` in replica context, as Keras's `fit` does. It
    sums the gradients over the replicas, once, clips them (`sum_and_clip`) and
    updates (`apply_summed`). The sum must be the gradient of the global batch.

    Args:
        learning_rate: Float or a `LearningRateSchedule`, e.g. `WarmupDecay`.
        weight_decay: Float, 0 for none.
        beta_1: Decay rate of m, in `[0, 1)`.
        beta_2: Decay rate of v, in `[0, 1)`.
        epsilon: Added to the root of v.
        global_clipnorm: Largest norm of all gradients together, above 0; or
            None.
        no_weight_decay: Regular expressions; a variable whose `path` holds a
            match of any of them is not decayed.
        bias_correction: Whether m and v are divided by 1 - beta ** t, as in
            Adam's paper (arXiv 1412.6980, algorithm 1). It steadies
            fine-tuning on little data (arXiv 2006.05987).
        skip_nonfinite: Whether a step whose gradient is not finite leaves
            weights, m and v as they are. It counts as a step all the same.
        layerwise_decay: Float d in (0, 1]. With K blocks in an encoder, block
            k, counted from 0, has the learning rate times d ** (K - k). The
            embeddings have it times d ** (K + 1); pooler and heads have all of
            it (discriminative fine-tuning, Howard & Ruder 2018, arXiv
            1801.06146, section 3.2). ELECTRA's code has one more factor d for
            the whole encoder. Blocks above the last trained one do not count.
        name: Name of the optimizer.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency` and
            `gradient_accumulation_steps` of `keras.optimizers.Optimizer`. On
            several devices, `ema_overwrite_frequency` fails in Keras itself,
            with any optimizer. Accumulation is for `fit` on one device: the
            mean of so many gradients is clipped and applied. A schedule of the
            learning rate counts each of them as a step.

    Raises:
        ValueError: If `learning_rate`, `weight_decay`, `beta_1`, `beta_2`,
            `epsilon`, `global_clipnorm` or `layerwise_decay` is out of its
            range; if `no_weight_decay` is not a list of regular expressions; if
            Keras's own clipping or loss scale is asked for; when it is built,
            if a variable has 16 bits, or if it would accumulate gradients on
            several replicas.

    Example:

        >>> import keras
        >>> from bert_tf import BertOptimizer
        >>> weight = keras.Variable([1.0], name="kernel")
        >>> optimizer = BertOptimizer(learning_rate=0.1, weight_decay=0.5)
        >>> optimizer.apply([keras.ops.array([2.0])], [weight])
        >>> # The gradient is clipped to 1: 1 - 0.1 * (0.1 / 0.001**0.5 + 0.5).
        >>> round(float(weight[0]), 3)
        0.634
    """

    def __init__(
        self,
        learning_rate: LearningRate = 5e-5,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        no_weight_decay: Iterable[str] = NO_WEIGHT_DECAY,
        bias_correction: bool = False,
        skip_nonfinite: bool = False,
        layerwise_decay: float = 1.0,
        name: str = "bert_optimizer",
        **kwargs: Any,
    ) -> None:
        checks.check_options(
            type(self).__name__,
            kwargs,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            layerwise_decay=layerwise_decay,
        )
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            name=name,
            **kwargs,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.no_weight_decay = checks.checked_patterns(no_weight_decay)
        self.bias_correction = bias_correction
        self.skip_nonfinite = skip_nonfinite
        self.layerwise_decay = layerwise_decay

    def build(self, variables):
        if self.built:
            return
        checks.check_bits(type(self).__name__, variables)
        if self.gradient_accumulation_steps and clipping.num_replicas() > 1:
            raise self._accumulation_error()
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        # In `update_step` TensorFlow's variables have no path.
        self._is_decayed = [self._use_weight_decay(v) for v in variables]
        self._rate_factors = layerwise.rate_factors(
            [getattr(v, "path", v.name) for v in variables],
            self.layerwise_decay,
        )
        self.gradient_norm = self.add_variable(
            shape=(),
            dtype="float32",
            aggregation="only_first_replica",
            name="gradient_norm",
        )

    # A step is `sum_and_clip`, then `apply_summed`. The latter is Keras's
    # `apply`, whose own sum and clipping are left out in the hooks below. If
    # `fit` accumulates, Keras's `apply` adds up the gradients, and clips their
    # mean in its hook.

    def apply(self, grads, trainable_variables=None):
        """Makes a step by each replica's gradients, as Keras's `fit` does."""
        variables = trainable_variables
        if variables is None:
            variables = self._trainable_variables
        gradients = clipping.dense(grads, variables)
        if self.gradient_accumulation_steps:
            # What has been accumulated is clipped: see `_clip_gradients`.
            super().apply(gradients, trainable_variables)
            return
        if not self.built:
            # `sum_and_clip` keeps the norm in a variable.
            self.build(variables)
        self.apply_summed(self.sum_and_clip(gradients), variables)

    def sum_and_clip(self, gradients: Sequence[Any]) -> list[Any]:
        """Returns gradients summed over the replicas, then clipped.

        Args:
            gradients: This replica's, dense, or None: see
                `clipping.sum_and_clip`. The norm is kept in `gradient_norm`.
        """
        gradients, norm = clipping.sum_and_clip(gradients, self.global_clipnorm)
        self.gradient_norm.assign(norm)
        return gradients

    def apply_summed(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> None:
        """Makes a step by what `sum_and_clip` returned."""
        if self.gradient_accumulation_steps:
            raise self._accumulation_error()
        super().apply(gradients, variables)

    def _accumulation_error(self):
        return ValueError(
            "`gradient_accumulation_steps` of an optimizer is for `fit` on one "
            "device. Otherwise the loop accumulates: give it "
            "--gradient_accumulation_steps, or `TrainingConfig`. Received: "
            f"gradient_accumulation_steps={self.gradient_accumulation_steps}."
        )

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        g = ops.cast(gradient, variable.dtype)
        # m = beta_1 * m + (1 - beta_1) * g, and v likewise. Written as a
        # change, because TensorFlow computes what needs no gradient at the
        # start of a step: beta_1 * m would be kept until g is there.
        self._assign_add(m, (g - m) * (1 - self.beta_1))
        self._assign_add(v, (ops.square(g) - v) * (1 - self.beta_2))
        update = self._update(index, variable, self.iterations + 1)
        rate = ops.cast(learning_rate, variable.dtype)
        self._assign_add(variable, -rate * self._rate_factors[index] * update)

    def _update(self, index, variable, step):
        """Returns what is subtracted from a variable, for a rate of 1."""
        m, v = self._momentums[index], self._velocities[index]
        if self.bias_correction:
            step = ops.cast(step, variable.dtype)
            m = m / (1 - ops.power(self.beta_1, step))
            v = v / (1 - ops.power(self.beta_2, step))
        update = m / (ops.sqrt(v) + self.epsilon)
        if self._is_decayed[index] and self.weight_decay:
            # update + weight_decay * variable. As in `update_step`, that
            # product would be computed early and kept.
            update = (update / self.weight_decay + variable) * self.weight_decay
        return update

    def _assign_add(self, variable, change):
        if self.skip_nonfinite:
            change = ops.where(ops.isfinite(self.gradient_norm), change, 0.0)
        self.assign_add(variable, change)

    def update_norm(self, learning_rate: float) -> Tensor:
        """Returns the norm of the last step's change of all variables.

        It is recomputed from m, v and the new weights. (LAMB's differs by about
        a share of `learning_rate`, because its scale depends on the old ones.)

        Args:
            learning_rate: The last step's.
        """
        squares = []
        for index, variable in enumerate(self._trainable_variables):
            rate = learning_rate * self._rate_factors[index]
            change = rate * self._update(index, variable, self.iterations)
            if self._is_decayed[index]:
                # The step made the decay smaller by this share.
                change = ops.divide_no_nan(change, 1 - rate * self.weight_decay)
            # What has never had a gradient has not been updated.
            is_updated = ops.any(self._velocities[index] > 0)
            square = ops.sum(ops.square(change))
            squares.append(ops.where(is_updated, square, 0.0))
        return ops.sqrt(sum(squares))

    def get_config(self):
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "no_weight_decay": list(self.no_weight_decay),
            "bias_correction": self.bias_correction,
            "skip_nonfinite": self.skip_nonfinite,
            "layerwise_decay": self.layerwise_decay,
        }

    def _use_weight_decay(self, variable):
        # Exclusions made with Keras's `exclude_from_weight_decay` count too.
        return (
            bool(self.weight_decay)
            and not self._is_excluded(variable)
            and super()._use_weight_decay(variable)
        )

    def _is_excluded(self, variable):
        # Keras looks only at the last part of the path, and so misses
        # "layer_norm/gamma".
        path = getattr(variable, "path", variable.name)
        return any(re.search(part, path) for part in self.no_weight_decay)

    def _apply_weight_decay(self, variables):
        # The decay is a part of the update in `update_step`.
        pass

    def _clip_gradients(self, grads):
        # Keras calls this once it has accumulated the gradients.
        if self.gradient_accumulation_steps:
            return self.sum_and_clip(grads)
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # Keras's TensorFlow optimizer would sum them again; a private hook,
        # which test_bert.py pins.
        return grads_and_vars
