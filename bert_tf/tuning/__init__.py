"""Fine-tuning: a task, its data and a checkpoint become a tuned model."""

from typing import TYPE_CHECKING

from bert_tf import lazy

if TYPE_CHECKING:
    from bert_tf.tuning.from_python import run
else:
    # Lazy: flags are made from `config`, without TensorFlow.
    __getattr__ = lazy.attach(__name__, {"run": "bert_tf.tuning.from_python"})

__all__ = ["run"]
