"""Fine-tuning: a task, its data and a checkpoint become a tuned model."""

from bert_tf.tuning.from_python import run

__all__ = ["run"]
