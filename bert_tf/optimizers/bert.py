"""The optimizer of google-research/bert for Keras and tf.distribute."""

import contextlib
import functools
import math
import numbers
import re
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import tensorflow as tf
from keras import ops

# Excluded from weight decay, as in google-research/bert: biases (including the
# heads' `output_bias`) and the scales of layer normalisation, as this library
# and Hugging Face spell them.
NO_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")

_MAY_BE_NONE = ("global_clipnorm", "weight_decay")

# Gradients are summed over the replicas in packs of about this many bytes. A
# pack is summed while the rest of the backward pass is computed. By default
# TensorFlow makes a single pack, and waits for the last gradient.
_ALL_REDUCE = tf.distribute.experimental.CommunicationOptions(
    bytes_per_pack=50 * 2**20
)

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

    In a custom step, call `apply` in replica context. It sums the gradients
    over the replicas, once. The sum must be the gradient of the global batch.
    `update_step` alone neither clips nor skips: it knows no norm.

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
            `loss_scale_factor` of `keras.optimizers.Optimizer`. On several
            devices, `ema_overwrite_frequency` fails in Keras itself, with any
            optimizer.

    Raises:
        ValueError: If Keras's backend is not TensorFlow; if `learning_rate`,
            `weight_decay`, `beta_1`, `beta_2`, `epsilon`, `global_clipnorm` or
            `layerwise_decay` is out of its range; if `no_weight_decay` is not
            a list of regular expressions; if Keras's own clipping or
            accumulation is asked for; when it is built, if a variable has 16
            bits.

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
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"{type(self).__name__} must run on TensorFlow. Received: "
                f"KERAS_BACKEND={keras.backend.backend()}."
            )
        # Keras would apply these before the sum over the replicas, or (the
        # last) fail under a distribution strategy.
        for option in ("clipnorm", "clipvalue", "gradient_accumulation_steps"):
            if kwargs.get(option) is not None:
                raise ValueError(
                    f"`{option}` is not offered by {type(self).__name__}. "
                    f"Received: {option}={kwargs[option]}."
                )
        for option, number in (
            ("global_clipnorm", global_clipnorm),
            ("beta_1", beta_1),
            ("beta_2", beta_2),
            ("weight_decay", weight_decay),
            ("epsilon", epsilon),
            ("layerwise_decay", layerwise_decay),
        ):
            if number is None and option in _MAY_BE_NONE:
                continue
            if not isinstance(number, numbers.Real):
                raise ValueError(
                    f"`{option}` must be a number. "
                    f"Received: {option}={number!r}."
                )
        # Keras itself rejects other types.
        if isinstance(learning_rate, float) and not (
            0 <= learning_rate < math.inf
        ):
            raise ValueError(
                "`learning_rate` must be a finite number, 0 or more, or a "
                f"schedule. Received: learning_rate={learning_rate}."
            )
        if global_clipnorm is not None and not global_clipnorm > 0:
            raise ValueError(
                "`global_clipnorm` must be positive or None. Received: "
                f"global_clipnorm={global_clipnorm}."
            )
        for option, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= beta < 1:
                raise ValueError(
                    f"`{option}` must be in [0, 1). Received: {option}={beta}."
                )
        for option, value in (
            ("weight_decay", weight_decay),
            ("epsilon", epsilon),
        ):
            if value is not None and not value >= 0:
                raise ValueError(
                    f"`{option}` must be 0 or more. Received: {option}={value}."
                )
        if not 0 < layerwise_decay <= 1:
            raise ValueError(
                "`layerwise_decay` must be above 0, and at most 1. Received: "
                f"layerwise_decay={layerwise_decay}."
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
        self.no_weight_decay = _checked_patterns(no_weight_decay)
        self.bias_correction = bias_correction
        self.skip_nonfinite = skip_nonfinite
        self.layerwise_decay = layerwise_decay
        self._step_cache = _StepCache()

    def build(self, variables):
        if self.built:
            return
        _check_bits(self, variables)
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        # In `update_step` a variable is one replica's tf.Variable, which has
        # no path.
        self._is_decayed = [self._use_weight_decay(v) for v in variables]
        self._rate_factors = _rate_factors(
            [getattr(v, "path", v.name) for v in variables],
            self.layerwise_decay,
        )
        self.gradient_norm = self.add_variable(
            shape=(),
            dtype="float32",
            aggregation="only_first_replica",
            name="gradient_norm",
        )
        self._update_norm = _UpdateNorm()

    @contextlib.contextmanager
    def measuring_update(
        self, is_wanted: bool | tf.Tensor = True
    ) -> Iterator[None]:
        """Makes `apply` measure `update_norm`, in a pass over all weights.

        Args:
            is_wanted: Whether to measure; a bool or, in a graph, a bool tensor.
        """
        self._update_norm.is_wanted = is_wanted
        try:
            yield
        finally:
            self._update_norm.is_wanted = False

    @property
    def update_norm(self) -> tf.Tensor:
        """The norm of the last step's change of all variables.

        It is 0 if it was not measured: see `measuring_update`.
        """
        return self._update_norm.value()

    def apply(self, grads, trainable_variables=None):
        if self.loss_scale_factor is not None:
            # Keras divides them, which IndexedSlices do not support.
            grads = [
                None if grad is None else tf.convert_to_tensor(grad)
                for grad in grads
            ]
        with self._step_cache.kept():
            super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        gradient = tf.cast(gradient, dtype)
        factor = self._rate_factors[index]
        # Made once per device. Made for each variable, they would be a tenth
        # of the operations of a small model's step.
        scalars = self._step_cache.get(
            (variable.device, factor, dtype),
            lambda: self._make_scalars(learning_rate, factor, dtype),
        )
        is_decayed = self._is_decayed[index]
        resources = [
            handle(each)
            for each in (
                variable,
                self._momentums[index],
                self._velocities[index],
            )
        ]
        _update(gradient, resources, scalars, is_decayed)
        self._update_norm.add(
            _adam_change(dtype, is_decayed),
            *resources,
            scalars.decay,
            scalars.step_size,
            scalars.adam["epsilon"],
        )

    def _make_scalars(self, learning_rate, rate_factor, dtype):
        """Returns what the updates of many variables share: `_Scalars`."""
        rate = tf.cast(learning_rate, dtype)
        if rate_factor != 1.0:
            rate *= rate_factor
        beta_1 = tf.constant(self.beta_1, dtype)
        beta_2 = tf.constant(self.beta_2, dtype)
        epsilon = tf.constant(self.epsilon, dtype)
        power_1 = power_2 = tf.zeros([], dtype)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, dtype)
            power_1, power_2 = tf.pow(beta_1, step), tf.pow(beta_2, step)
            # TensorFlow adds epsilon to the root of the uncorrected v.
            epsilon *= tf.sqrt(1 - power_2)
        is_finite = None
        if self._skips_here():
            # A rate of 0 and betas of 1 change nothing.
            is_finite = ops.isfinite(self.gradient_norm)
            rate = tf.where(is_finite, rate, tf.zeros([], dtype))
            beta_1 = tf.where(is_finite, beta_1, tf.ones([], dtype))
            beta_2 = tf.where(is_finite, beta_2, tf.ones([], dtype))
        decay = rate * (self.weight_decay or 0.0)
        return _Scalars(
            clip=self._clip_factor(dtype),
            is_finite=is_finite,
            decay=decay,
            kept_share=1 - decay,
            step_size=rate * tf.sqrt(1 - power_2) / (1 - power_1),
            adam={
                "beta1_power": power_1,
                "beta2_power": power_2,
                "lr": rate,
                "beta1": beta_1,
                "beta2": beta_2,
                "epsilon": epsilon,
            },
        )

    def _clip_factor(self, dtype):
        """Returns what gradients are multiplied by, or None."""
        largest = self.global_clipnorm
        # Outside of `apply`, the norm would be that of an earlier step.
        if largest is None or not self._step_cache.is_kept:
            return None
        norm = tf.cast(self.gradient_norm, dtype)
        return largest / tf.maximum(norm, largest)

    def _skips_here(self):
        """Returns whether the norm decides if this update is made."""
        return self.skip_nonfinite and self._step_cache.is_kept

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        # A SavedModel of a training step needs this variable, which
        # checkpoints do not have.
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel" and self.built:
            children["update_half_square"] = self._update_norm.half_square
        return children

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
        # Keras calls this before the sum over the replicas; see below.
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # A private hook of Keras's TensorFlow optimizer, the only place
        # between the all-reduce and the update; test_bert.py pins it.
        variables = [var for _, var in grads_and_vars]
        grads = [_dense(grad, var) for grad, var in grads_and_vars]
        replica = tf.distribute.get_replica_context()
        if replica is not None and replica.num_replicas_in_sync > 1:
            grads = replica.all_reduce(
                tf.distribute.ReduceOp.SUM, grads, options=_ALL_REDUCE
            )
        norm = tf.linalg.global_norm(
            [tf.cast(grad, "float32") for grad in grads]
        )
        self.gradient_norm.assign(norm)
        self._update_norm.reset()
        return list(zip(grads, variables))


class _Scalars(NamedTuple):
    """Scalars of an update.

    Attributes:
        clip: Factor of the gradient, or None.
        is_finite: Whether the gradient is finite, or None. If it is not, it
            counts as 0.
        decay: Share of its size that a decayed weight loses.
        kept_share: The rest.
        step_size: The learning rate, corrected as m and v are.
        adam: Inputs of `ResourceApplyAdam`.
    """

    clip: tf.Tensor | None
    is_finite: tf.Tensor | None
    decay: tf.Tensor
    kept_share: tf.Tensor
    step_size: tf.Tensor
    adam: dict[str, tf.Tensor]


def _clipped(gradient, scalars):
    """Returns a gradient as it is applied."""
    if scalars.clip is not None:
        gradient *= scalars.clip
    if scalars.is_finite is not None:
        zero = tf.zeros([], gradient.dtype)
        gradient = tf.where(scalars.is_finite, gradient, zero)
    return gradient


def _update(gradient, resources, scalars, is_decayed):
    """Updates a variable.

    Args:
        gradient: The gradient, not clipped.
        resources: Those of the variable, m and v.
        scalars: `_Scalars`.
        is_decayed: Whether the variable is decayed.
    """
    variable, momentum, velocity = resources
    gradient = _clipped(gradient, scalars)
    if is_decayed:
        tf.raw_ops.AssignVariableOp(
            resource=variable,
            value=read_after(gradient, variable) * scalars.kept_share,
        )
    # One pass over memory; single operations would make ten.
    tf.raw_ops.ResourceApplyAdam(
        var=variable,
        m=momentum,
        v=velocity,
        grad=gradient,
        **scalars.adam,
    )


def read_after(gradient: tf.Tensor, variable: tf.Tensor) -> tf.Tensor:
    """Returns the value of a resource, read once a gradient is computed.

    TensorFlow would compute with an earlier value as soon as a step begins: a
    second copy of all weights, kept until the step ends.
    """
    with tf.control_dependencies([gradient]):
        return _read(variable, gradient.dtype)


def _read(resource, dtype):
    return tf.raw_ops.ReadVariableOp(resource=resource, dtype=dtype)


@functools.cache
def _adam_change(dtype, is_decayed):
    """Returns a function that computes how an update changed a variable.

    It is called after the update: if a tensor held the earlier weight, XLA
    could not update it in place. Of a weight that decays entirely nothing
    is left, and only Adam's step is counted.
    """

    def change(variable, momentum, velocity, decay, step_size, epsilon):
        value, m, v = (
            _read(each, dtype) for each in (variable, momentum, velocity)
        )
        step = step_size * m / (tf.sqrt(v) + epsilon)
        if not is_decayed:
            return -step
        before = tf.math.divide_no_nan(value + step, 1 - decay)
        return -(step + decay * before)

    return change


class _StepCache:
    """What the updates of a step's variables share.

    Not a plain dictionary, because checkpoints would look into that attribute.
    """

    def __init__(self):
        self._made = None

    @contextlib.contextmanager
    def kept(self):
        """Keeps what `get` makes until the block ends.

        All replicas enter the block before any of their variables is updated.
        """
        self._made = {}
        try:
            yield
        finally:
            self._made = None

    @property
    def is_kept(self):
        """Whether a step is being made, and not a single update."""
        return self._made is not None

    def get(self, key, make):
        if self._made is None:
            return make()
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


class _UpdateNorm:
    """Sums the squares of a step's changes, variable by variable.

    Not a part of the optimizer's state: Keras and checkpoints do not see it.

    Attributes:
        half_square: Half the sum, a float32 variable.
    """

    def __init__(self):
        self.is_wanted = False
        # `fit` builds the optimizer while it traces.
        with tf.init_scope():
            self.half_square = tf.Variable(
                0.0,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def reset(self):
        self.half_square.assign(0.0)

    def add(self, change, *tensors):
        """Adds the change of a variable.

        Args:
            change: A function of tensors and resources that returns it.
            *tensors: Its arguments.
        """
        if self.is_wanted is False:
            return
        # `tf.cond` would trace two functions for every variable, which takes
        # an eighth of a step's tracing time.
        half_square, zero = _half_squares(
            change, tuple(tensor.dtype for tensor in tensors)
        )
        (half_square,) = tf.raw_ops.If(
            cond=self.is_wanted,
            input=tensors,
            Tout=[tf.float32],
            then_branch=half_square,
            else_branch=zero,
        )
        # Assigned outside the condition, as replicas cannot synchronise in it.
        half_square.set_shape([])
        self.half_square.assign_add(half_square)

    def value(self):
        return tf.sqrt(2 * self.half_square)


@functools.cache
def _half_squares(change, dtypes):
    """Returns two functions of tensors of these dtypes and any shape.

    The first returns half the squared norm of `change` of the tensors, the
    second 0, as float32 scalars.
    """

    def half_square(*tensors):
        return tf.cast(tf.nn.l2_loss(change(*tensors)), tf.float32)

    def zero(*tensors):
        del tensors
        return tf.constant(0.0)

    signature = [
        tf.TensorSpec([] if dtype == tf.resource else None, dtype)
        for dtype in dtypes
    ]
    # They outlive the graph in which they are first needed.
    with tf.init_scope():
        return tuple(
            tf.function(
                function, autograph=False, input_signature=signature
            ).get_concrete_function()
            for function in (half_square, zero)
        )


def _checked_patterns(patterns):
    """Returns regular expressions as a tuple.

    Raises:
        ValueError: If `patterns` is not a list of regular expressions.
    """
    # A string's characters would each match nearly every path.
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ValueError(
            "`no_weight_decay` must be a list of regular expressions. "
            f"Received: no_weight_decay={patterns!r}."
        )
    patterns = tuple(patterns)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ValueError(
                "`no_weight_decay` must be a list of regular expressions. "
                f"Received: {pattern!r}, {error}."
            ) from error
    return patterns


def _check_bits(optimizer, variables):
    """Raises `ValueError` if a variable has 16 bits.

    In bfloat16, beta_2 would be 1 and v would stay 0. In float16, v and epsilon
    would all but vanish.
    """
    for variable in variables:
        dtype = tf.as_dtype(variable.dtype).name
        if dtype in ("bfloat16", "float16"):
            raise ValueError(
                f"{type(optimizer).__name__} must have float32 weights. In 16 "
                "bits, train with dtype='mixed_bfloat16'. Received: "
                f"{getattr(variable, 'path', variable.name)} of {dtype}."
            )


def _dense(grad, variable):
    """Returns a gradient as a tensor of the variable's shape.

    The update is dense anyway. In the IndexedSlices of embeddings a row may
    occur twice, which would make the norm wrong. TensorFlow packs only
    gradients whose shapes it knows.
    """
    grad = tf.convert_to_tensor(grad)
    grad.set_shape(variable.shape)
    return grad


def handle(variable: Any) -> tf.Tensor:
    """Returns the resource of a Keras variable or a `tf.Variable`."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    return variable.handle


def _rate_factors(paths, layerwise_decay):
    """Returns the factor of each variable's learning rate."""
    places = [_encoder_and_depth(path) for path in paths]
    # Each of several encoders is counted separately.
    num_blocks: dict[str, int] = {}
    for place in filter(None, places):
        encoder, depth = place
        num_blocks[encoder] = max(num_blocks.get(encoder, 0), depth)
    return [
        layerwise_decay ** (num_blocks[place[0]] + 1 - place[1])
        if place
        else 1.0
        for place in places
    ]


def _encoder_and_depth(path):
    """Returns the path of a variable's encoder, and its depth in it.

    The depth is 0 for the embeddings and k + 1 for block k. Returns None above
    the blocks, even for a layer whose name is like a block's.
    """
    found = re.search(
        r"(?:^|/)(?:layer_(\d+)/(?:attention|intermediate|output)|embeddings/)",
        path,
    )
    if not found:
        return None
    depth = 0 if found[1] is None else int(found[1]) + 1
    return path[: found.start()], depth
