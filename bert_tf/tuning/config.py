"""What all fine-tuning programs are told."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig:
    """What all fine-tuning programs are told, by the names of their flags.

    Args:
        output_dir: Folder of the tuned model and of the results.
        init_checkpoint: A model folder, a release of Google's, or None.
        bert_config_file: The architecture; None for the checkpoint's.
        vocab_file: The vocabulary; None for the checkpoint's.
        do_lower_case: Whether texts are lower-cased; None for what the
            checkpoint's folder says, or else True.
        allow_partial: Whether the checkpoint may lack weights, or have some
            too many or of another shape.
        max_position_embeddings: None, or with `do_train` the positions of the
            tuned model, where more than the checkpoint's.
        max_seq_length: Longest sequence, in word pieces.
        do_train: Whether to train.
        do_eval: Whether to evaluate: with `do_train` after every epoch.
        do_predict: Whether to predict.
        train_batch_size: Examples a step, over all replicas.
        eval_batch_size: The same in evaluations.
        predict_batch_size: The same in predictions.
        gradient_accumulation_steps: Parts in which a replica goes through its
            share of a batch; see `training.loop.TrainingConfig`.
        learning_rate: At the end of the warmup.
        bucket_window_batches: 0, or sort so many batches by length, so that
            they hold less padding; see `array_source.ArraySource`.
        num_train_epochs: Times that the examples are gone through.
        warmup_proportion: Share of the steps in which the rate rises.
        learning_rate_drop: Whether the rate drops where the warmup ends; see
            `optimizers.schedule.WarmupDecay`.
        bias_correction: Of Adam's moments; see `BertOptimizer`.
        layerwise_learning_rate_decay: Learning rate of a layer as a share of
            the next one's; see `BertOptimizer`. 1 for one rate.
        reinit_top_layers: Blocks that begin anew, counted from the last; see
            `encoder_layers`. None of `freeze_lower_layers` may be among them,
            which `tuning.find_start` and `tuning.tune` check.
        freeze_lower_layers: None, or the blocks that are not trained, counted
            from the first; with 0 the embeddings alone are not.
        keep_best: Whether the model of the best epoch is kept, not the last's.
        early_stopping_epochs: None, or stop after so many epochs, one after
            the other, that were no better than the best before them.
        save_checkpoints_steps: Steps from one checkpoint to the next.
        iterations_per_loop: Steps from one line of the log to the next.
        random_seed: Of new weights, order of the examples and dropout.

    Raises:
        ValueError: If a value is out of its range, or two do not fit
            together; it names the flags.
    """

    output_dir: str
    init_checkpoint: str | None = None
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None
    allow_partial: bool = False
    max_position_embeddings: int | None = None
    max_seq_length: int = 128
    do_train: bool = False
    do_eval: bool = False
    do_predict: bool = False
    train_batch_size: int = 32
    eval_batch_size: int = 8
    predict_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    learning_rate: float = 5e-5
    bucket_window_batches: int = 0
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    learning_rate_drop: bool = True
    bias_correction: bool = False
    layerwise_learning_rate_decay: float = 1.0
    reinit_top_layers: int = 0
    freeze_lower_layers: int | None = None
    keep_best: bool = False
    early_stopping_epochs: int | None = None
    save_checkpoints_steps: int = 1000
    iterations_per_loop: int = 1000
    random_seed: int = 12345

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("--output_dir must be given.")
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "At least one of --do_train, --do_eval and --do_predict must "
                "be given."
            )
        if self.max_position_embeddings is not None and not self.do_train:
            raise ValueError(
                "--max_position_embeddings must be given with --do_train."
            )
        for name in ("keep_best", "early_stopping_epochs"):
            if getattr(self, name) and not (self.do_train and self.do_eval):
                raise ValueError(
                    f"--{name} must be given with --do_train and --do_eval."
                )
        for name, is_good, range_of_it in (
            ("max_seq_length", self.max_seq_length >= 3, "3 or more"),
            ("train_batch_size", self.train_batch_size >= 1, "positive"),
            ("eval_batch_size", self.eval_batch_size >= 1, "positive"),
            ("predict_batch_size", self.predict_batch_size >= 1, "positive"),
            (
                "gradient_accumulation_steps",
                self.gradient_accumulation_steps >= 1,
                "positive",
            ),
            (
                "bucket_window_batches",
                self.bucket_window_batches >= 0,
                "0 or more",
            ),
            ("learning_rate", self.learning_rate >= 0, "0 or more"),
            ("num_train_epochs", self.num_train_epochs > 0, "positive"),
            (
                "warmup_proportion",
                0 <= self.warmup_proportion <= 1,
                "from 0 to 1",
            ),
            (
                "layerwise_learning_rate_decay",
                0 < self.layerwise_learning_rate_decay <= 1,
                "above 0, and at most 1",
            ),
            ("reinit_top_layers", self.reinit_top_layers >= 0, "0 or more"),
            (
                "freeze_lower_layers",
                (self.freeze_lower_layers or 0) >= 0,
                "0 or more",
            ),
            (
                "early_stopping_epochs",
                self.early_stopping_epochs is None
                or self.early_stopping_epochs >= 1,
                "positive",
            ),
            (
                "save_checkpoints_steps",
                self.save_checkpoints_steps >= 1,
                "positive",
            ),
            ("iterations_per_loop", self.iterations_per_loop >= 1, "positive"),
        ):
            if not is_good:
                raise ValueError(
                    f"--{name} must be {range_of_it}. "
                    f"Received: --{name}={getattr(self, name)}."
                )
