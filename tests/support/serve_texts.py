"""Tokenizes texts by a SavedModel as a server loads it: without bert_tf.

    python -m support.serve_texts SAVED_MODEL TEXTS IDS

TEXTS and IDS are serialized tensors.
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401

if __name__ == "__main__":
    saved_model, texts_path, ids_path = sys.argv[1:]
    texts = tf.io.parse_tensor(tf.io.read_file(texts_path), tf.string)
    ids = tf.saved_model.load(saved_model).tokenize(texts)
    tf.io.write_file(ids_path, tf.io.serialize_tensor(ids.flat_values))
    assert "bert_tf" not in sys.modules
