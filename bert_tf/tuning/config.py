"""The options of all fine-tuning programs, each described once.

A field defines its flag (`fine_tuning_flags`) and its check. If the result of a
training depends on it, its metadata has `of_training`: a resumed training must
then have the same value.
"""

import dataclasses
from typing import Any

from bert_tf import described
from bert_tf import sizes
from bert_tf.runs.options import MemoryOptions
from bert_tf.runs.options import RateOptions
from bert_tf.training.options import StepOptions

# The settings that compare epochs by their scores.
COMPARING_EPOCHS = ("keep_best", "early_stopping_epochs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig(StepOptions, RateOptions, MemoryOptions):
    """The options of all fine-tuning programs, by the names of their flags.

    Args:
        output_dir: Folder of the tuned model and of the results.
        **others: The fields below and the inherited ones, as the help of their
            flags describes them.

    Raises:
        ValueError: If a value is out of its range or two values do not fit
            together; the message names the flags.
    """

    output_dir: str = described.option(
        dataclasses.MISSING, "Folder of the tuned model and of the results."
    )
    init_checkpoint: str | None = described.option(
        None,
        "A model folder (of bert_tf or Hugging Face), a release of Google's, "
        "or hf:organisation/name@revision of the Hugging Face Hub. "
        "Default: training starts from random weights.",
    )
    bert_config_file: str | None = described.option(None, sizes.HELP)
    vocab_file: str | None = described.option(
        None, "Vocabulary. Default: the checkpoint's own."
    )
    do_lower_case: bool | None = described.option(
        None,
        "Whether to lower-case the text. Default: as the model folder says, "
        "otherwise true.",
    )
    allow_partial: bool = described.option(
        False,
        "Accept a checkpoint with missing or unused weights, or weights of "
        "another shape; the report in the log lists those that are new.",
    )
    max_position_embeddings: int | None = described.option(
        None,
        "With --do_train: positions of the tuned model, if more than the "
        "checkpoint's; the new ones repeat its position embeddings from the "
        "first on.",
    )
    max_seq_length: int = described.option(
        128,
        "Longest sequence, in word pieces.",
        described.Range("3 or more", lambda value: value >= 3),
        of_training=True,
    )
    do_train: bool = described.option(False, "Whether to train.")
    do_eval: bool = described.option(
        False,
        "Whether to evaluate on the development set, with --do_train after "
        "every epoch.",
    )
    do_predict: bool = described.option(False, "Whether to write predictions.")
    train_batch_size: int = described.option(
        32,
        "Examples a step, over all devices.",
        described.POSITIVE,
        of_training=True,
    )
    eval_batch_size: int = described.option(
        8,
        "Examples per evaluation batch, over all devices.",
        described.POSITIVE,
    )
    predict_batch_size: int = described.option(
        8,
        "Examples per prediction batch, over all devices.",
        described.POSITIVE,
    )
    bucket_window_batches: int = described.option(
        0,
        "Sort the examples of this many shuffled batches, e.g. 64, by length, "
        "and shuffle the batches again. Each batch then holds examples of "
        "similar length and little padding. Default: no sorting, as in the "
        "original.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    num_train_epochs: float = described.option(
        3.0,
        "Number of passes over the training set. Only this flag may be raised "
        "when a training is resumed: from there on, the learning rate then "
        "follows the schedule of all steps.",
        described.POSITIVE,
        of_training=True,
    )
    warmup_proportion: float = described.option(
        0.1,
        "Share of the steps in which the learning rate rises.",
        described.Range("from 0 to 1", lambda value: 0 <= value <= 1),
        of_training=True,
    )
    reinit_top_layers: int = described.option(
        0,
        "Initialise this many of the checkpoint's last blocks, and the pooler, "
        "anew (Zhang et al. 2020). Not with blocks that --freeze_lower_layers "
        "names.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    freeze_lower_layers: int | None = described.option(
        None,
        "Leave the embeddings and this many of the first blocks as the "
        "checkpoint has them. Default: all are trained.",
        described.NOT_NEGATIVE,
        of_training=True,
    )
    keep_best: bool = described.option(
        False,
        "With --do_train --do_eval: keep the model of the epoch that scored "
        "highest in the task's first score. Default: the last epoch's, as in "
        "the original.",
        of_training=True,
    )
    early_stopping_epochs: int | None = described.option(
        None,
        "With --do_train --do_eval: stop after this many epochs without a "
        "better score. The learning rate follows the full schedule until then.",
        described.POSITIVE,
        of_training=True,
    )
    calibrate: bool = described.option(
        False,
        "With --do_eval: fit a temperature on the development set, so that "
        "predictions are right as often as their probabilities say (Guo et al. "
        "2017), and keep it with the model. Predictions and exports then use "
        "it. For classification, several labels and multiple choice.",
    )

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("--output_dir must be given.")
        # First: the checks below rely on the types.
        described.check(self)
        # The optimizer is always google-research/bert's.
        object.__setattr__(self, "bias_correction", bool(self.bias_correction))
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
            if field.metadata.get("of_training")
        }
