"""BERT from raw text to a served SavedModel, in TensorFlow and Keras 3.

Nothing is imported here: `bert_tf.layers` and `bert_tf.models` run on any
Keras backend, and importing them must not load TensorFlow.
"""

__version__ = "0.1.0"
