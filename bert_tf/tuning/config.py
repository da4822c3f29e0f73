"""What all fine-tuning programs are told: every hyper-parameter, once.

From a field come its flag (`fine_tuning_flags`), its check, and whether a
resumed training must repeat it.
"""

import dataclasses
from typing import Any

from bert_tf import described
from bert_tf import sizes
from bert_tf.training import options


def _flag(default, text, values=None, of_training=False, choices=None) -> Any:
    """Describes a hyper-parameter.

    Args:
        default, text, values, choices: As of `described.option`.
        of_training: Whether a training is a function of it, beside the model,
            the task and the data: a resumed one must have the same.
    """
    return described.option(
        default, text, values, choices=choices, of_training=of_training
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig:
    """What all fine-tuning programs are told, by the names of their flags.

    Args:
        output_dir: Folder of the tuned model and of the results.
        **others: The fields below, as the help of their flags describes them.

    Raises:
        ValueError: If a value is out of its range, or two do not fit
            together; it names the flags.
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
        "or else true.",
    )
    allow_partial: bool = _flag(
        False,
        "Take a checkpoint that lacks weights, or has some too many or of "
        "another shape; the report in the log tells which are new.",
    )
    max_position_embeddings: int | None = _flag(
        None,
        "With --do_train: positions of the tuned model, if more than the "
        "checkpoint's; their embeddings are repeated from the first on.",
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
        "Whether to evaluate on the development set: with --do_train after "
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
        "Parts in which a device goes through its share of a batch, one after "
        "the other, where the memory does not hold it at once. The step is "
        "that of the whole batch.",
        described.POSITIVE,
    )
    rematerialize: bool = _flag(
        False,
        "Compute the blocks a second time for the gradient instead of keeping "
        "their activations: long sequences in less memory, in more time. "
        "Not for a student that learns attention or relations.",
    )
    jit_compile: bool | str = _flag(
        "auto",
        "true: compile the step with XLA, which takes seconds to minutes for "
        "each length of batches: they are padded to one of four, the quarters "
        "of --max_seq_length. auto: parts of it, on a CPU, where all batches "
        "have one length, as records have; none of it on a GPU, since none has "
        "shown yet what it gives. A TPU compiles every step.",
        choices=options.JIT_COMPILE,
    )
    learning_rate: float = _flag(
        5e-5,
        "Learning rate at the end of the warmup.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    bucket_window_batches: int = _flag(
        0,
        "Sort so many shuffled batches by length, e.g. 64, and shuffle the "
        "batches again: each then holds examples of about one length, and "
        "little padding. Default: none are sorted, as in the original.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    num_train_epochs: float = _flag(
        3.0,
        "Times that the training set is gone through. It alone may be raised "
        "when a training is resumed: the learning rate then follows the "
        "schedule of all steps, from there on.",
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
        "where the warmup ends. --nolearning_rate_drop counts it from there.",
        of_training=True,
    )
    bias_correction: bool = _flag(
        False,
        "Correct the bias of Adam's moments, which the original does not: the "
        "first hundreds of steps are then several times smaller, and training "
        "on few examples is steadier.",
        of_training=True,
    )
    layerwise_learning_rate_decay: float = _flag(
        1.0,
        "Share of its learning rate that a layer hands down to the one below "
        "(Howard & Ruder 2018): of K blocks number k, from 0, has it to the "
        "power of K - k, the embeddings to the power of K + 1. E.g. 0.9; 1 "
        "gives all layers one rate.",
        described.LAYER_SHARE,
        of_training=True,
    )
    reinit_top_layers: int = _flag(
        0,
        "Begin with so many of the checkpoint's last blocks, and the pooler, "
        "newly made (Zhang et al. 2020). Not with blocks that "
        "--freeze_lower_layers names.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    freeze_lower_layers: int | None = _flag(
        None,
        "Leave the embeddings and so many of the first blocks as the "
        "checkpoint has them. Default: all are trained.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    keep_best: bool = _flag(
        False,
        "With --do_train --do_eval: keep the model of the epoch that scored "
        "highest in the task's first score. Default: the last epoch's, as the "
        "original.",
        of_training=True,
    )
    early_stopping_epochs: int | None = _flag(
        None,
        "With --do_train --do_eval: stop after so many epochs without a "
        "better score. The learning rate falls as if there were no such stop.",
        described.POSITIVE,
        of_training=True,
    )
    calibrate: bool = _flag(
        False,
        "With --do_eval: fit a temperature on the development set, so that "
        "probabilities are right as often as they say (Guo et al. 2017), and "
        "keep it with the model: predictions and exports then have it. Of "
        "classes, several labels and multiple choice.",
    )
    save_checkpoints_steps: int = _flag(
        1000,
        "Steps between two checkpoints of the training state; the first comes "
        "within a minute.",
        described.POSITIVE,
    )
    iterations_per_loop: int = _flag(
        1000,
        "Most steps between two lines of the log; there is one at least every "
        "30 seconds.",
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
        # Before it is asked whether values are true.
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
        for name in ("keep_best", "early_stopping_epochs"):
            if getattr(self, name) and not (self.do_train and self.do_eval):
                raise ValueError(
                    f"--{name} must be given with --do_train and --do_eval."
                )

    def of_training(self) -> dict[str, Any]:
        """Returns {name: value} of what a resumed training must repeat."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata["of_training"]
        }
