"""Checkpoints in and out: the model folder, and Hugging Face's and Google's.

model = checkpoints.load(path, BertClassifier, num_labels=2)
checkpoints.save(folder, model, tokenizer, max_seq_length)
"""

from bert_tf.checkpoints.conversion import convert
from bert_tf.checkpoints.loading import load
from bert_tf.checkpoints.loading import load_open
from bert_tf.checkpoints.loading import load_weights
from bert_tf.checkpoints.model_folder import save
from bert_tf.checkpoints.optimizer_state import load_optimizer

__all__ = [
    "convert",
    "load",
    "load_open",
    "load_optimizer",
    "load_weights",
    "save",
]
