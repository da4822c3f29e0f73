"""Options of pre-training, from which its flags are made; no TensorFlow."""

import dataclasses
import functools
from collections.abc import Sequence

from bert_tf import described
from bert_tf import messages
from bert_tf.config import ATTENTION_TILE
from bert_tf.input import addresses
from bert_tf.optimizers import decays
from bert_tf.runs import output_folder
from bert_tf.training.options import LoopOptions
from bert_tf.training.settings import MASKS_OF_ALL_QUERIES

OPTIMIZERS = ("bert", "lamb", "stable_adamw")
ATTENTION = ("bidirectional", "left_to_right")
REPLACED_TOKENS = "replaced_tokens"
OBJECTIVES = ("masked_tokens", REPLACED_TOKENS)

ATTENTION_CHUNK = described.Range(
    f"0 or a positive multiple of {ATTENTION_TILE}",
    lambda value: value >= 0 and value % ATTENTION_TILE == 0,
)


def attention_masks(length: int, dropout: float) -> str:
    """Returns what says how a run draws attention's masks.

    Releases that do not say it drew one for all queries. For short rows, and
    without dropout, nothing has changed.

    Args:
        length: Most tokens of a row.
        dropout: That of attention's probabilities.
    """
    if length <= ATTENTION_TILE or not dropout:
        return MASKS_OF_ALL_QUERIES
    return f"one for {ATTENTION_TILE} queries"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a training.

    Args:
        input_file: The globs of its records, comma-separated.
        max_seq_length: Tokens of a record; None for the manifest's value.
        num_steps: Steps of the phase.
        train_batch_size: Examples a step, over all devices.
    """

    input_file: str
    max_seq_length: int | None
    num_steps: int
    train_batch_size: int


def parse_phases(text: str, input_file: str) -> tuple[Phase, ...]:
    """Reads e.g. "128:900000:256,512:100000:256": length, steps, batch.

    Args:
        text: The phases.
        input_file: The globs of each phase, with a semicolon between two.

    Raises:
        ValueError: If the text does not describe phases, or the globs are not
            those of as many.
    """
    parts, patterns = text.split(","), input_file.split(";")
    if len(patterns) != len(parts):
        raise ValueError(
            f"--input_file must name the records of {len(parts)} phases, with "
            "a semicolon between two phases. Received: "
            f"--input_file={input_file}."
        )
    phases = []
    for part, pattern in zip(parts, patterns):
        numbers = part.split(":")
        if len(numbers) != 3 or not all(
            number.isdecimal() and int(number) > 0 for number in numbers
        ):
            raise ValueError(
                "--phases must be length:steps:batch, positive numbers, with "
                f"a comma between two phases. Received: {part!r} in "
                f"--phases={text}."
            )
        length, num_steps, batch_size = map(int, numbers)
        phases.append(
            Phase(
                input_file=pattern,
                max_seq_length=length,
                num_steps=num_steps,
                train_batch_size=batch_size,
            )
        )
    return tuple(phases)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What is read, in which batches, and for how many steps.

    Args:
        **options: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range, or does not go with
            `phases`.
    """

    input_file: str = described.option(
        dataclasses.MISSING,
        "Record files: globs, comma-separated. With --phases, the globs of "
        "each phase, with a semicolon between two phases.",
    )
    eval_file: str | None = described.option(
        None,
        "With --do_eval: record files to evaluate on, as for --input_file. "
        "Default: those of the training, or of its last phase.",
    )
    max_seq_length: int | None = described.option(
        None,
        "Tokens of a record. Default: as in the records' manifest, or 128.",
        described.POSITIVE,
    )
    max_predictions_per_seq: int | None = described.option(
        None,
        "Most masked tokens of a record. Default: as in the records' "
        "manifest, or 20.",
        described.POSITIVE,
    )
    train_batch_size: int = described.option(
        32, "Examples a step, over all devices.", described.POSITIVE
    )
    num_train_steps: int = described.option(
        100_000, "Number of the last step.", described.POSITIVE
    )
    phases: str | None = described.option(
        None,
        "length:steps:batch of each phase, comma-separated, e.g. "
        "128:900000:256,512:100000:256; instead of --max_seq_length, "
        "--num_train_steps and --train_batch_size. All phases share one "
        "learning rate schedule. A phase with the same length and records as "
        "the one before it reads on where that ended.",
    )
    eval_batch_size: int = described.option(
        8,
        "Examples per evaluation batch, over all devices.",
        described.POSITIVE,
    )
    max_eval_steps: int = described.option(
        100, "Most batches to evaluate.", described.POSITIVE
    )
    tf_data_service: Sequence[str] = described.option(
        (),
        "grpc://host:port of machines where `bert_tf serve-data` runs, "
        "comma-separated. They make the training batches, which stay the "
        "same. Default: made here.",
    )

    def __post_init__(self):
        described.check(self)
        if self.phases is not None:
            self._check_alone("phases")
        # Raises if they are none.
        _ = self.training_phases

    def _check_alone(self, name):
        """Checks that no option is given whose place another one takes."""
        for other in ("max_seq_length", "num_train_steps", "train_batch_size"):
            value = getattr(self, other)
            if value != getattr(type(self), other):
                raise ValueError(
                    f"--{other} must not be given with --{name}. Received: "
                    f"--{other}={value} --{name}={getattr(self, name)}."
                )

    @functools.cached_property
    def training_phases(self) -> tuple[Phase, ...]:
        """The phases, one after the other; one if there are no `phases`."""
        if self.phases is not None:
            return parse_phases(self.phases, self.input_file)
        phase = Phase(
            input_file=self.input_file,
            max_seq_length=self.max_seq_length,
            num_steps=self.num_train_steps,
            train_batch_size=self.train_batch_size,
        )
        return (phase,)

    @property
    def num_steps(self) -> int:
        """The steps of all phases."""
        return sum(phase.num_steps for phase in self.training_phases)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """What a model is trained for.

    Args:
        **options: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range, or two contradict each
            other.
    """

    objective: str = described.option(
        "masked_tokens",
        "masked_tokens: predict masked tokens, and the label of each sentence "
        "pair if the records have one. replaced_tokens: ELECTRA, from records "
        "of any kind. A small generator predicts the masked tokens, and a "
        "discriminator, which is the model, tells which tokens were replaced "
        "by the generator's samples. The generator is saved in the folder "
        "generator of --output_dir.",
        choices=OBJECTIVES,
    )
    attention: str | None = described.option(
        None,
        "left_to_right: a token sees only itself and those before it, and "
        "every next token is predicted instead of the masked ones and the "
        "next sentence (the paper's LTR ablation, section 5.1), from records "
        "of any kind. This many predictions take more memory. The log's "
        "masked_lm_loss is then the loss of the next tokens, and the "
        "configuration has is_decoder. Default: as the configuration says, or "
        "bidirectional.",
        choices=ATTENTION,
    )
    generator_size: float | None = described.option(
        None,
        "Width of ELECTRA's generator as a share of the discriminator's; it "
        "has as many layers. Default: the checkpoint's, or 0.25.",
        described.LAYER_SHARE,
    )
    span_boundary_objective: bool = described.option(
        False,
        "Predict tokens of masked spans also from the two tokens around the "
        "span (SpanBERT), from records of any kind; those of "
        "create_pretraining_data --do_span_mask have SpanBERT's spans. The "
        "head for it is saved only in train/, not in the model.",
    )

    def __post_init__(self):
        described.check(self)
        electra = f"--objective={REPLACED_TOKENS}"
        if self.generator_size is not None and not self.replaces_tokens:
            raise ValueError(
                f"--generator_size needs {electra}. Received: "
                f"--generator_size={self.generator_size} "
                f"--objective={self.objective}."
            )
        if self.replaces_tokens and self.span_boundary_objective:
            raise ValueError(
                f"--span_boundary_objective must not come with {electra}: it "
                "predicts masked tokens. Received: both."
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

    @property
    def replaces_tokens(self) -> bool:
        return self.objective == REPLACED_TOKENS


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateOptions:
    """The learning rate and Adam's bias, in every training.

    Args:
        **options: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range.
    """

    learning_rate: float = described.option(
        5e-5,
        "Learning rate at the end of the warmup.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    learning_rate_drop: bool = described.option(
        True,
        "Count the decay from step 0, as google-research/bert does: the rate "
        "drops where the warmup ends. --nolearning_rate_drop counts it from "
        "the end of the warmup.",
        of_training=True,
    )
    bias_correction: bool | None = described.option(
        None,
        "Correct the bias of Adam's moments, which google-research/bert does "
        "not do, and fairseq does for RoBERTa and SpanBERT. The first hundreds "
        "of steps are then several times smaller, and training on few examples "
        "is steadier. Default: not for bert.",
        of_training=True,
    )
    layerwise_learning_rate_decay: float = described.option(
        1.0,
        "Factor of the learning rate from each layer to the one below (Howard "
        "& Ruder 2018). Of K blocks, block k (from 0) has it to the power of "
        "K - k, the embeddings to the power of K + 1. E.g. 0.9; 1 gives all "
        "layers one rate.",
        described.LAYER_SHARE,
        of_training=True,
    )

    def __post_init__(self):
        described.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """What saves memory, in every training.

    Args:
        **options: The fields below, as the help of their flags describes them.
    """

    rematerialize: bool = described.option(
        False,
        "Compute the blocks a second time for the gradient instead of keeping "
        "their activations. Saves memory with long sequences, and takes more "
        "time. Not for a student that learns attention or relations.",
    )
    attention_chunk: int | None = described.option(
        None,
        "How many queries attention computes at once, a multiple of 128; 0 for "
        "all. The memory of chunks grows with the length, not with its square; "
        "the result is the same. Default: 256 for sequences of 512 or more "
        "tokens, otherwise all.",
        ATTENTION_CHUNK,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(RateOptions):
    """The optimizer and its learning rate; see `optimizer.make`.

    Args:
        **options: The fields below and the inherited ones, as the help of their
            flags describes them.

    Raises:
        ValueError: If a value is out of its range.
    """

    optimizer: str = described.option(
        "bert",
        "bert: Adam with weight decay, as in google-research/bert; lamb: for "
        "batches of thousands; stable_adamw: Adam with smaller steps where "
        "gradients grow suddenly, as ModernBERT was trained.",
        choices=OPTIMIZERS,
    )
    num_warmup_steps: int = described.option(
        10_000,
        "Steps in which the learning rate rises; must be fewer than all steps.",
        described.NOT_NEGATIVE,
    )
    learning_rate_decay: str = described.option(
        "linear",
        "Form of the learning rate's decay. root falls fastest at first; it is "
        "for --num_decay_steps.",
        choices=decays.DECAYS,
    )
    num_decay_steps: int | None = described.option(
        None,
        "Only this many last steps have a decay: before, the learning rate is "
        "constant (warmup, stable, decay). Default: all steps have it.",
        described.POSITIVE,
    )
    weight_decay: float = described.option(
        0.01, "Weight decay; 0 for none.", described.NOT_NEGATIVE
    )
    adam_beta_2: float = described.option(
        0.999,
        "Decay rate of Adam's second moments; RoBERTa uses 0.98.",
        described.Range("in [0, 1)", lambda value: 0 <= value < 1),
    )
    adam_epsilon: float = described.option(
        1e-6,
        "What Adam adds to the roots of its second moments; SpanBERT uses "
        "1e-8.",
        described.POSITIVE,
    )
    clip_norm: float = described.option(
        1.0,
        "Largest norm of all gradients together; 0 for no clipping, as in "
        "RoBERTa.",
        described.NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(MemoryOptions):
    """The options of a pre-training.

    Args:
        input, objective, optimizer, loop: Options of these parts.
        **options: The fields below and the inherited ones, as the help of their
            flags describes them.

    Raises:
        ValueError: If a value is out of its range, or options contradict each
            other.
    """

    input: InputOptions
    objective: ObjectiveOptions = ObjectiveOptions()
    optimizer: OptimizerOptions = OptimizerOptions()
    loop: LoopOptions = LoopOptions()
    output_dir: str = described.option(
        dataclasses.MISSING,
        "Folder of the model, its training and its results.",
    )
    init_checkpoint: str | None = described.option(
        None,
        "Where to begin: a model folder (of bert_tf or Hugging Face), a "
        "release of Google's, or hf:organisation/name@revision of the Hugging "
        "Face Hub. Default: new weights.",
    )
    do_train: bool = described.option(False, "Whether to train.")
    do_eval: bool = described.option(
        False, "Whether to evaluate, after any training."
    )
    keep_best: bool = described.option(
        False,
        "With --do_train --do_eval: evaluate before each checkpoint too, and "
        "keep the model of the lowest loss in the folder best of --output_dir.",
    )

    def __post_init__(self):
        described.check(self)
        if not self.do_train and not self.do_eval:
            raise ValueError(
                "At least one of --do_train and --do_eval must be given."
            )
        if self.keep_best and not (self.do_train and self.do_eval):
            raise ValueError("--keep_best needs --do_train and --do_eval.")
        if self.input.eval_file and not self.do_eval:
            raise ValueError("--eval_file must be given with --do_eval.")
        first, _ = self.loop.profiled_steps
        if self.do_train and first >= self.input.num_steps:
            raise ValueError(
                "--profile_steps must begin before the training ends, at step "
                f"{self.input.num_steps}. Received: "
                f"--profile_steps={self.loop.profile_steps}."
            )
        if self.objective.span_boundary_objective and not self.do_train:
            raise ValueError(
                "--span_boundary_objective needs --do_train: its head is in no "
                "model folder, so it cannot be evaluated alone. Received: "
                "--do_train=false."
            )

    def check_places(self) -> None:
        """Checks the output folder, and that tf.data services answer.

        Call it before anything is read or written.

        Raises:
            ValueError: If the folder holds a model that the training would
                replace, a warmup is too long for a training that begins, or a
                service does not answer.
        """
        if self.do_train:
            output_folder.check(self.output_dir)
            self._check_warmup()
        addresses.check(self.input.tf_data_service)

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

    def _check_warmup(self):
        num_warmup_steps = self.optimizer.num_warmup_steps
        num_steps = self.input.num_steps
        # A training that an older release began may be resumed as it was.
        if num_warmup_steps < num_steps or output_folder.holds_training(
            self.output_dir
        ):
            return
        raise ValueError(
            "--num_warmup_steps must be less than the steps of the training: "
            "the learning rate would never reach --learning_rate. Received: "
            f"--num_warmup_steps={num_warmup_steps} with "
            f"{messages.counted(num_steps, 'step', 'steps')}. A tenth of them "
            f"is usual: --num_warmup_steps={num_steps // 10}."
        )
