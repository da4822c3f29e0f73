"""What a training is told: what flags are made of, without TensorFlow."""

import dataclasses
import math
from collections.abc import Sequence

from bert_tf.input import addresses
from bert_tf.optimizers import decays
from bert_tf.training import output_folder

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
MIXED_PRECISION = ("auto", "float32", "bfloat16", "float16")
JIT_COMPILE = ("true", "false", "auto")

OPTIMIZERS = ("bert", "lamb")
ATTENTION = ("bidirectional", "left_to_right")
REPLACED_TOKENS = "replaced_tokens"
OBJECTIVES = ("masked_tokens", REPLACED_TOKENS)

_POSITIVE = "a finite number above 0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a training.

    Args:
        max_seq_length: Tokens of a record; None for what its manifest tells.
        num_steps: Steps of the phase.
        train_batch_size: Examples a step, over all devices.
    """

    max_seq_length: int | None
    num_steps: int
    train_batch_size: int


def parse_phases(text: str) -> tuple[Phase, ...]:
    """Reads e.g. "128:900000:256,512:100000:256": length, steps, batch.

    Returns:
        A tuple of `Phase`.

    Raises:
        ValueError: If the text is none of phases.
    """
    phases = []
    for part in text.split(","):
        numbers = part.split(":")
        if len(numbers) != 3 or not all(
            number.isdecimal() and int(number) > 0 for number in numbers
        ):
            raise ValueError(
                "`phases` must be length:steps:batch, positive numbers, with "
                f"a comma between two phases. Received: {part!r} in "
                f"phases={text!r}."
            )
        length, num_steps, batch_size = map(int, numbers)
        phases.append(
            Phase(
                max_seq_length=length,
                num_steps=num_steps,
                train_batch_size=batch_size,
            )
        )
    return tuple(phases)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a pre-training goes. The defaults are those of `run_pretraining`.

    Args:
        phases: The `Phase`s, one after the other.
        input_files: Globs of the records of each phase, comma-separated.
        output_dir: Folder of the model, its training and its results.
        eval_input_file: Globs of the records to evaluate on; None for those
            of the last phase.
        init_checkpoint: A model folder or a release of Google's to begin
            with; None for new weights.
        attention: One of `ATTENTION`; None for what the configuration says.
        objective: One of `OBJECTIVES`.
        generator_size: Width of ELECTRA's generator as a share of the
            discriminator's, in (0, 1]; None for the checkpoint's, or a
            quarter.
        discriminator_weight: Of the loss of ELECTRA's discriminator; None for
            50.
        span_boundary_objective: Whether tokens of masked spans are also
            predicted from what stands around the span (SpanBERT).
        input_shares: Parts of a batch, each with its own share of the
            records; None for one a host.
        tf_data_service: "grpc://host:port" of machines that make the training
            batches; none to make them here.
        max_predictions_per_seq: Most masked tokens of a record; None for what
            the records' manifest tells, or 20.
        do_train: Whether to train.
        do_eval: Whether to evaluate, after any training.
        gradient_accumulation_steps: Parts in which a device goes through its
            share of a batch.
        rematerialize: Whether the blocks are computed a second time for the
            gradient, which saves memory.
        jit_compile: One of `JIT_COMPILE`, or a bool: whether the step is
            compiled with XLA; see `strategy.choose_compilation`.
        eval_batch_size: Examples of a batch to evaluate, over all devices.
        learning_rate: Learning rate at the end of the warmup.
        num_warmup_steps: Steps in which the learning rate rises; fewer than
            those of a training that begins.
        learning_rate_decay: One of `decays.DECAYS`: what follows.
        learning_rate_power: Power of the polynomial decay, or None.
        learning_rate_drop: Whether the decay is counted from step 0, and not
            from the end of the warmup.
        optimizer: One of `OPTIMIZERS`.
        weight_decay: Of the optimizer; 0 for none.
        adam_beta_2: The decay rate of its second moments, in [0, 1).
        adam_epsilon: What it adds to their roots, above 0.
        clip_norm: Largest norm of all gradients together; 0 for no clipping.
        bias_correction: Whether it corrects the bias of its moments; None for
            what is usual: of lamb yes, of bert no.
        layerwise_learning_rate_decay: Share of its learning rate that a layer
            hands down to the one below; 1 gives all layers one rate.
        save_checkpoints_steps: Steps from one checkpoint to the next; the
            first one comes within a minute.
        keep_checkpoint_max: Newest checkpoints to keep.
        keep_best: Whether to evaluate before each checkpoint, and to keep the
            model of the lowest loss.
        iterations_per_loop: Most steps from one line of the log to the next;
            there is one at least every 30 seconds.
        max_eval_steps: Most batches to evaluate.
        skip_nonfinite_steps: Steps in a row whose gradient is not finite that
            are passed over; 0 to stop at the first.
        profile_steps: None, or (first, last) as in `loop.TrainingConfig`.
        peak_tflops: What a device can do at most, in 10**12 operations a
            second, to report how much of it is used; or None.
        random_seed: Seed of the new weights, the order of the examples and
            the dropout.

    Raises:
        ValueError: If options contradict each other or the output folder.
    """

    phases: tuple[Phase, ...]
    input_files: tuple[str, ...]
    output_dir: str
    eval_input_file: str | None = None
    init_checkpoint: str | None = None
    attention: str | None = None
    objective: str = "masked_tokens"
    generator_size: float | None = None
    discriminator_weight: float | None = None
    span_boundary_objective: bool = False
    input_shares: int | None = None
    tf_data_service: Sequence[str] = ()
    max_predictions_per_seq: int | None = None
    do_train: bool = False
    do_eval: bool = False
    gradient_accumulation_steps: int = 1
    rematerialize: bool = False
    jit_compile: bool | str = "auto"
    eval_batch_size: int = 8
    learning_rate: float = 5e-5
    num_warmup_steps: int = 10_000
    learning_rate_decay: str = "linear"
    learning_rate_power: float | None = None
    learning_rate_drop: bool = True
    optimizer: str = "bert"
    weight_decay: float = 0.01
    adam_beta_2: float = 0.999
    adam_epsilon: float = 1e-6
    clip_norm: float = 1.0
    bias_correction: bool | None = None
    layerwise_learning_rate_decay: float = 1.0
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    keep_best: bool = False
    iterations_per_loop: int = 1000
    max_eval_steps: int = 100
    skip_nonfinite_steps: int = 0
    profile_steps: tuple[int, int] | None = None
    peak_tflops: float | None = None
    random_seed: int = 12345

    def __post_init__(self):
        if not self.do_train and not self.do_eval:
            raise ValueError(
                "At least one of --do_train and --do_eval must be given."
            )
        if self.keep_best and not (self.do_train and self.do_eval):
            raise ValueError("--keep_best needs --do_train and --do_eval.")
        if self.do_train:
            output_folder.check(self.output_dir)
            self._check_warmup()
            first, last = self.profile_steps or (0, 0)
            if first >= self.num_train_steps:
                raise ValueError(
                    "--profile_steps must begin before the training ends, at "
                    f"step {self.num_train_steps}. Received: "
                    f"--profile_steps={first}:{last}."
                )
        if not 0 <= self.random_seed < 2**32:
            raise ValueError(
                "--random_seed must be in [0, 2**32). "
                f"Received: --random_seed={self.random_seed}."
            )
        addresses.check(self.tf_data_service)
        decays.check(
            self.learning_rate,
            self.num_train_steps,
            self.num_warmup_steps,
            self.learning_rate_decay,
            self.learning_rate_power,
        )
        if not 0 < self.layerwise_learning_rate_decay <= 1:
            raise ValueError(
                "--layerwise_learning_rate_decay must be above 0, and at most "
                "1. Received: --layerwise_learning_rate_decay="
                f"{self.layerwise_learning_rate_decay}."
            )
        self._check_objective()
        self._check_optimizer()

    @property
    def num_train_steps(self) -> int:
        return sum(phase.num_steps for phase in self.phases)

    def checkpoint(self) -> str | None:
        """Returns the model to begin with; None for new weights.

        Raises:
            ValueError: If there is none to evaluate.
        """
        if self.do_train:
            return self.init_checkpoint
        return output_folder.trained_model(
            self.output_dir, self.init_checkpoint
        )

    @property
    def replaces_tokens(self) -> bool:
        return self.objective == REPLACED_TOKENS

    def _check_objective(self):
        electra = f"--objective={REPLACED_TOKENS}"
        for name in ("generator_size", "discriminator_weight"):
            value = getattr(self, name)
            if value is None:
                continue
            if not self.replaces_tokens:
                raise ValueError(
                    f"--{name} needs {electra}. Received: --{name}={value} "
                    f"--objective={self.objective}."
                )
            is_size = name == "generator_size"
            if not 0 < value < math.inf or (is_size and value > 1):
                told = "above 0, and at most 1" if is_size else _POSITIVE
                raise ValueError(
                    f"--{name} must be {told}. Received: --{name}={value}."
                )
        if self.replaces_tokens and self.span_boundary_objective:
            raise ValueError(
                f"--span_boundary_objective must not come with {electra}: the "
                "one is of masked tokens. Received: both."
            )
        if self.attention == "left_to_right":
            for flag, is_given in (
                (electra, self.replaces_tokens),
                ("--span_boundary_objective", self.span_boundary_objective),
            ):
                if is_given:
                    raise ValueError(
                        f"{flag} needs attention in both directions. "
                        "Received: --attention=left_to_right."
                    )
        if self.span_boundary_objective and not self.do_train:
            raise ValueError(
                "--span_boundary_objective needs --do_train: its head is in no "
                "model folder, to be evaluated alone. Received: "
                "--do_train=false."
            )

    def _check_optimizer(self):
        for name, is_valid, told in (
            (
                "weight_decay",
                0 <= self.weight_decay < math.inf,
                "a finite number, 0 or more",
            ),
            ("adam_beta_2", 0 <= self.adam_beta_2 < 1, "in [0, 1)"),
            ("adam_epsilon", 0 < self.adam_epsilon < math.inf, _POSITIVE),
            ("clip_norm", self.clip_norm >= 0, "above 0, or 0 for none"),
        ):
            if not is_valid:
                raise ValueError(
                    f"--{name} must be {told}. Received: --{name}="
                    f"{getattr(self, name)}."
                )

    def _check_warmup(self):
        # One that an older release began goes on as it was.
        if (
            self.num_warmup_steps < self.num_train_steps
            or output_folder.holds_training(self.output_dir)
        ):
            return
        raise ValueError(
            "--num_warmup_steps must be less than the steps of the training: "
            "the learning rate would never reach --learning_rate. Received: "
            f"--num_warmup_steps={self.num_warmup_steps} with "
            f"{self.num_train_steps} steps. A tenth of them is usual: "
            f"--num_warmup_steps={self.num_train_steps // 10}."
        )
