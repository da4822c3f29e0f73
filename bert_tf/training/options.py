"""Options of the loop, and names that programs share with it; no TensorFlow."""

import dataclasses
import re

from bert_tf import described

# The state of the training, in the folder of the model.
FOLDER = "train"
# The best model of a run so far, in the folder of the last one.
BEST_FOLDER = "best"
# ELECTRA's generator, in the folder of its discriminator.
GENERATOR_FOLDER = "generator"
# Modules of sentence-transformers, as checkpoints/sentence_files.py names them.
MODULE_FOLDER = re.compile(r"\d+_(Transformer|Pooling|Dense|Normalize)")

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
MIXED_PRECISION = ("auto", "float32", "bfloat16", "float16")
JIT_COMPILE = ("true", "false", "auto")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How steps are made, logged and saved, in every training.

    Args:
        **options: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range.
    """

    gradient_accumulation_steps: int = described.option(
        1,
        "Number of parts in which a device processes its share of the batch. "
        "It needs the memory of one part; the optimizer makes one step.",
        described.POSITIVE,
    )
    jit_compile: bool | str = described.option(
        "auto",
        "true: compile the step with XLA, which takes seconds to minutes for "
        "each length of batches; those of fine-tuning are padded to a quarter, "
        "half, three quarters or all of --max_seq_length. auto: compile parts "
        "of it on a CPU if all batches have one length, as records have, and "
        "nothing on a GPU, where the gain has not been measured. A TPU "
        "compiles every step.",
        choices=JIT_COMPILE,
    )
    save_checkpoints_steps: int = described.option(
        1000,
        "Steps from one checkpoint to the next; the first comes within a "
        "minute.",
        described.POSITIVE,
    )
    iterations_per_loop: int = described.option(
        1000,
        "Most steps from one log line to the next; there is a line at least "
        "every 30 seconds.",
        described.POSITIVE,
    )
    random_seed: int = described.option(
        12345,
        "Seed of the new weights, the order of the examples and the dropout.",
        described.SEED,
        of_training=True,
    )

    def __post_init__(self):
        described.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopOptions(StepOptions):
    """How the loop makes, logs and saves steps.

    Args:
        **options: The fields below and the inherited ones, as the help of their
            flags describes them.

    Raises:
        ValueError: If a value is out of its range.
    """

    skip_nonfinite_steps: int = described.option(
        0,
        "Skip steps whose gradient is not finite, at most this many in a row. "
        "Default: stop at the first.",
        described.NOT_NEGATIVE,
    )
    profile_steps: str | None = described.option(
        None,
        "first:end, e.g. 100:105: profile the steps 100 to 104, for "
        "TensorBoard.",
    )
    peak_tflops: float | None = described.option(
        None,
        "Peak of a device in 10**12 operations a second, for the model FLOPs "
        "utilisation. In bfloat16, by the chips' documentation: TPU v2 core "
        "22.5, v3 core 61.5, v4 275, v5e 197, v5p 459, v6e 918.",
        described.POSITIVE,
    )

    def __post_init__(self):
        super().__post_init__()
        first, end = self.profiled_steps
        if self.profile_steps is not None and not first < end:
            raise ValueError(
                "--profile_steps must be two numbers, first:end, the first "
                f"step and a later one. Received: --profile_steps="
                f"{self.profile_steps}."
            )

    @property
    def profiled_steps(self) -> tuple[int, int]:
        """The first step to profile, and the step before which it ends."""
        parts = (self.profile_steps or "").split(":")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            return 0, 0
        first, end = map(int, parts)
        return first, end
