"""Loads and saves checkpoints of bert_tf, Hugging Face and Google.

model = checkpoints.load(path, BertClassifier, num_labels=2)
checkpoints.save(folder, model, tokenizer, max_seq_length)
"""

from typing import TYPE_CHECKING

from bert_tf import lazy

if TYPE_CHECKING:
    from bert_tf.checkpoints.conversion import convert
    from bert_tf.checkpoints.loading import load
    from bert_tf.checkpoints.loading import load_open
    from bert_tf.checkpoints.loading import load_weights
    from bert_tf.checkpoints.model_folder import save
else:
    # Lazy: flags are built from `containers` without importing TensorFlow.
    __getattr__ = lazy.attach(
        __name__,
        {
            "convert": "bert_tf.checkpoints.conversion",
            "load": "bert_tf.checkpoints.loading",
            "load_open": "bert_tf.checkpoints.loading",
            "load_weights": "bert_tf.checkpoints.loading",
            "save": "bert_tf.checkpoints.model_folder",
        },
    )

__all__ = [
    "convert",
    "load",
    "load_open",
    "load_weights",
    "save",
]
