"""What model.safetensors does not hold of a `BertSentenceEncoder`."""

import keras
import numpy as np
from absl import logging
from keras import ops

from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import DenseLayer
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.sentence_encoder import BertSentenceEncoder


def vectors_of(
    model: keras.Model, query_prompt: str = "", passage_prompt: str = ""
) -> SentenceVectors | None:
    """Returns how a model makes vectors, for the files of its folder.

    Args:
        model: Any model of `bert_tf.models`.
        query_prompt: What stands before each query.
        passage_prompt: What stands before each passage.

    Returns:
        None if the model is not a `BertSentenceEncoder`.
    """
    if not isinstance(model, BertSentenceEncoder):
        return None
    dense: tuple[DenseLayer, ...] = ()
    layer = _stored_dense(model)
    if layer is not None:
        kernel, bias = map(ops.convert_to_numpy, layer.weights)
        dense = (
            DenseLayer(
                kernel=kernel, bias=bias, activation=sentence_folder.TANH
            ),
        )
    prompts, default = {}, None
    if query_prompt or passage_prompt:
        query, passage = (
            sentence_folder.QUERY_PROMPTS[0],
            sentence_folder.PASSAGE_PROMPTS[0],
        )
        prompts = {query: query_prompt, passage: passage_prompt}
        if query_prompt == passage_prompt:
            # All texts have the same prompt.
            default = query
    return SentenceVectors(
        pooling=model.pooling,
        is_normalized=model.is_normalized,
        truncate_dim=model.truncate_dim,
        dense=dense,
        prompts=prompts,
        default_prompt_name=default,
    )


def load_dense(model: keras.Model, folder: str, may_be_new: bool) -> None:
    """Loads a `BertSentenceEncoder`'s dense layer; does nothing without one.

    Args:
        model: Any model of `bert_tf.models`.
        folder: The checkpoint that the other weights were loaded from.
        may_be_new: Whether the layer may be missing; it then keeps its initial
            values.

    Raises:
        ValueError: If the layer is missing, and `may_be_new` is false.
    """
    layer = _stored_dense(model)
    if layer is None:
        return
    vectors = sentence_folder.read(folder)
    shapes = [tuple(each.shape) for each in layer.weights]
    stored: list[np.ndarray] = []
    if vectors is not None and vectors.is_trainable:
        stored = [each for dense in vectors.dense for each in dense.weights]
    if [each.shape for each in stored] == shapes:
        layer.set_weights(stored)
    elif may_be_new:
        logging.info("%s: starting with a new dense layer.", folder)
    else:
        raise ValueError(
            f"{folder}: must have one dense layer on the pooled vector, "
            f"with tanh, a bias, and the shapes {shapes}."
        )


def _stored_dense(model):
    """Returns the dense layer that a model's folder has, or None."""
    if not isinstance(model, BertSentenceEncoder):
        return None
    return None if model.has_dense_in_training_only else model.dense
