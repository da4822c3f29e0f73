"""The options of all fine-tuning programs, each described once.

A field defines its flag (`fine_tuning_flags`), its check, and whether a
resumed training must have the same value.
"""

import dataclasses
from typing import Any

from bert_tf import described
from bert_tf import sizes
from bert_tf.runs import options
from bert_tf.training.options import JIT_COMPILE

# The settings that compare epochs by their scores.
COMPARING_EPOCHS = ("keep_best", "early_stopping_epochs")


def _flag(default, text, values=None, of_training=False, choices=None) -> Any:
    """Describes a hyper-parameter.

    Args:
        default, text, values, choices: As for `described.option`.
        of_training: Whether the result of a training depends on it, so that a
            resumed training must have the same value.
    """
    return described.option(
        default, text, values, choices=choices, of_training=of_training
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig:
    """The options of all fine-tuning programs, by the names of their flags.

    Args:
        output_dir: Folder of the tuned model and of the results.
        **others: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range or two values do not fit
            together; the message names the flags.
    """

    output_dir: str = _flag(
        dataclasses.MISSING, "Folder of the tuned model and of the results."
    )
    init_checkpoint: str | None = _flag(
        None,
        "A model folder (of bert_tf or Hugging Face), a release of Google's, "
        "or hf:organisation/name@revision of the Hugging Face Hub. "
        "Default: training starts from random weights.",
    )
    bert_config_file: str | None = _flag(None, sizes.HELP)
    vocab_file: str | None = _flag(
        None, "Vocabulary. Default: the checkpoint's own."
    )
    do_lower_case: bool | None = _flag(
        None,
        "Whether to lower-case the text. Default: as the model folder says, "
        "otherwise true.",
    )
    allow_partial: bool = _flag(
        False,
        "Accept a checkpoint with missing or unused weights, or weights of "
        "another shape; the report in the log lists those that are new.",
    )
    max_position_embeddings: int | None = _flag(
        None,
        "With --do_train: positions of the tuned model, if more than the "
        "checkpoint's; the new ones repeat its position embeddings from the "
        "first on.",
    )
    max_seq_length: int = _flag(
        128,
        "Longest sequence, in word pieces.",
        described.Range("3 or more", lambda value: value >= 3),
        of_training=True,
    )
    do_train: bool = _flag(False, "Whether to train.")
    do_eval: bool = _flag(
        False,
        "Whether to evaluate on the development set, with --do_train after "
        "every epoch.",
    )
    do_predict: bool = _flag(False, "Whether to write predictions.")
    train_batch_size: int = _flag(
        32,
        "Examples a step, over all devices.",
        described.POSITIVE,
        of_training=True,
    )
    eval_batch_size: int = _flag(
        8,
        "Examples per evaluation batch, over all devices.",
        described.POSITIVE,
    )
    predict_batch_size: int = _flag(
        8,
        "Examples per prediction batch, over all devices.",
        described.POSITIVE,
    )
    gradient_accumulation_steps: int = _flag(
        1,
        "Number of parts in which a device processes its share of a batch, if "
        "the memory does not hold it at once. The step is that of the whole "
        "batch.",
        described.POSITIVE,
    )
    rematerialize: bool = _flag(
        False,
        "Compute the blocks a second time for the gradient instead of keeping "
        "their activations. Saves memory with long sequences, and takes more "
        "time. Not for a student that learns attention or relations.",
    )
    attention_chunk: int | None = _flag(
        None, options.ATTENTION_CHUNK_HELP, options.ATTENTION_CHUNK
    )
    jit_compile: bool | str = _flag(
        "auto",
        "true: compile the step with XLA, which takes seconds to minutes for "
        "each length of batches. They are padded to one of four lengths, the "
        "quarters of --max_seq_length. auto: compile parts of it on a CPU if "
        "all batches have one length, as records have, and nothing on a GPU, "
        "where the gain has not been measured. A TPU compiles every step.",
        choices=JIT_COMPILE,
    )
    learning_rate: float = _flag(
        5e-5,
        "Learning rate at the end of the warmup.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    bucket_window_batches: int = _flag(
        0,
        "Sort the examples of this many shuffled batches, e.g. 64, by length, "
        "and shuffle the batches again. Each batch then holds examples of "
        "similar length and little padding. Default: no sorting, as in the "
        "original.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    num_train_epochs: float = _flag(
        3.0,
        "Number of passes over the training set. Only this flag may be raised "
        "when a training is resumed: from there on, the learning rate then "
        "follows the schedule of all steps.",
        described.POSITIVE,
        of_training=True,
    )
    warmup_proportion: float = _flag(
        0.1,
        "Share of the steps in which the learning rate rises.",
        described.Range("from 0 to 1", lambda value: 0 <= value <= 1),
        of_training=True,
    )
    learning_rate_drop: bool = _flag(
        True,
        "Count the decay from step 0, as the original does: the rate drops "
        "where the warmup ends. --nolearning_rate_drop counts it from the end "
        "of the warmup.",
        of_training=True,
    )
    bias_correction: bool = _flag(
        False,
        "Correct the bias of Adam's moments, which the original does not do. "
        "The first hundreds of steps are then several times smaller, and "
        "training on few examples is steadier.",
        of_training=True,
    )
    layerwise_learning_rate_decay: float = _flag(
        1.0,
        "Factor of the learning rate from each layer to the one below (Howard "
        "& Ruder 2018). Of K blocks, block k (from 0) has it to the power of "
        "K - k, the embeddings to the power of K + 1. E.g. 0.9; 1 gives all "
        "layers one rate.",
        described.LAYER_SHARE,
        of_training=True,
    )
    reinit_top_layers: int = _flag(
        0,
        "Initialise this many of the checkpoint's last blocks, and the pooler, "
        "anew (Zhang et al. 2020). Not with blocks that --freeze_lower_layers "
        "names.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    freeze_lower_layers: int | None = _flag(
        None,
        "Leave the embeddings and this many of the first blocks as the "
        "checkpoint has them. Default: all are trained.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    keep_best: bool = _flag(
        False,
        "With --do_train --do_eval: keep the model of the epoch that scored "
        "highest in the task's first score. Default: the last epoch's, as in "
        "the original.",
        of_training=True,
    )
    early_stopping_epochs: int | None = _flag(
        None,
        "With --do_train --do_eval: stop after this many epochs without a "
        "better score. The learning rate follows the full schedule until then.",
        described.POSITIVE,
        of_training=True,
    )
    calibrate: bool = _flag(
        False,
        "With --do_eval: fit a temperature on the development set, so that "
        "predictions are right as often as their probabilities say (Guo et al. "
        "2017), and keep it with the model. Predictions and exports then use "
        "it. For classification, several labels and multiple choice.",
    )
    save_checkpoints_steps: int = _flag(
        1000,
        "Steps between two checkpoints of the training state; the first comes "
        "within a minute.",
        described.POSITIVE,
    )
    iterations_per_loop: int = _flag(
        1000,
        "Most steps between two log lines; there is a line at least every 30 "
        "seconds.",
        described.POSITIVE,
    )
    random_seed: int = _flag(
        12345,
        "Seed of the new weights, the order of the examples and the dropout.",
        described.SEED,
        of_training=True,
    )

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("--output_dir must be given.")
        # First: the checks below rely on the types.
        described.check(self)
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "At least one of --do_train, --do_eval and --do_predict must "
                "be given."
            )
        if self.max_position_embeddings is not None and not self.do_train:
            raise ValueError(
                "--max_position_embeddings must be given with --do_train."
            )
        if self.calibrate and not self.do_eval:
            raise ValueError("--calibrate must be given with --do_eval.")
        for name in COMPARING_EPOCHS:
            if getattr(self, name) and not (self.do_train and self.do_eval):
                raise ValueError(
                    f"--{name} must be given with --do_train and --do_eval."
                )

    @property
    def compares_epochs(self) -> bool:
        """Whether epochs are compared by their scores."""
        return any(getattr(self, name) for name in COMPARING_EPOCHS)

    def training_settings(self) -> dict[str, Any]:
        """Returns {name: value} that a resumed training must have, too."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata["of_training"]
        }
