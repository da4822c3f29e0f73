"""BERT that turns a text into one vector: sentence embeddings.

Letters in tensor names: B row of the batch, P passages per row, N all texts of
the batch, L position, D size of a vector.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.arguments import whole_number
from bert_tf.features import Batch
from bert_tf.features import Tensor
from bert_tf.layers.basic import Dense
from bert_tf.layers.configured import AnyConfig
from bert_tf.models.encoder_model import EncoderModel
from bert_tf.models.encoder_model import mean_of_tokens
from bert_tf.models.inputs import check_alike
from bert_tf.models.inputs import check_names
from bert_tf.models.sentence_chunks import embed_in_chunks

CLS, MEAN, MAX = "cls", "mean", "max"
POOLINGS = (CLS, MEAN, MAX)
# The smallest divisor, as in sentence-transformers.
_SMALLEST_LENGTH = 1e-12
# Below all outputs of a model.
_SMALLEST = -1e9


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSentenceEncoder(EncoderModel):
    """Vectors of texts (Reimers & Gurevych 2019, arXiv 1908.10084).

    As in sentence-transformers, the last block's outputs for all tokens are
    pooled. A dense layer with tanh may follow, and the vector may be divided by
    its length. BERT's own pooler is not used, nor trained.

    Args:
        config: A `BertConfig`.
        pooling: "mean" or "max" over the tokens that are not padding, or "cls"
            for the first token.
        dense_size: Outputs of the dense layer; None for no such layer.
        has_dense_in_training_only: Whether the dense layer is used only in
            training, as in unsupervised SimCSE (Gao et al. 2021, arXiv
            2104.08821, section 6.3).
        is_normalized: Whether a vector is divided by its length.
        truncate_dim: How many of a vector's first numbers are kept, at most as
            many as it has; None for all. Training keeps all, because the loss
            may use several sizes (Kusupati et al. 2022, arXiv 2205.13147). As
            in sentence-transformers, what is kept is not normalised again.
        chunk_size: How many texts training embeds at once, with the memory of
            so many: see `sentence_chunks`. It must divide the number of texts.
            None for all; so it is with a call argument `encoder`.

    Call arguments:
        inputs: A dictionary of int32 tensors, named in `bert_tf.features`:
            `input_ids`, `input_mask`, `segment_ids` `[B, L]` of texts. If these
            are queries to be compared with passages, also `passage_ids`,
            `passage_mask`, `passage_segment_ids` `[B, P, L']`.

    Returns:
        float32 `[B, D]`; for queries with passages `[B, 1 + P, D]`, the query's
        vector first.

    Raises:
        ValueError: If a value is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertSentenceEncoder
        >>> model = BertSentenceEncoder(
        ...     BertConfig.named("tiny", vocab_size=50), is_normalized=True
        ... )
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> vectors = model(inputs).numpy()
        >>> vectors.shape, float((vectors[0] ** 2).sum().round(3))
        ((2, 128), 1.0)
    """

    def __init__(
        self,
        config: AnyConfig,
        pooling: str = MEAN,
        dense_size: int | None = None,
        has_dense_in_training_only: bool = False,
        is_normalized: bool = False,
        truncate_dim: int | None = None,
        chunk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {', '.join(POOLINGS)}. "
                f"Received: pooling={pooling!r}."
            )
        if pooling == CLS and self.config.is_decoder:
            raise ValueError(
                "`pooling` must be 'mean' or 'max' in a model that goes from "
                "left to right: its first token sees nothing but itself. "
                "Received: pooling='cls'."
            )
        dense_size = _checked_size("dense_size", dense_size)
        truncate_dim = _checked_size("truncate_dim", truncate_dim)
        chunk_size = _checked_size("chunk_size", chunk_size)
        if has_dense_in_training_only and dense_size is None:
            raise ValueError(
                "`has_dense_in_training_only` must be given with `dense_size`."
            )
        if type(is_normalized) is not bool:
            raise ValueError(
                "`is_normalized` must be True or False. "
                f"Received: is_normalized={is_normalized!r}."
            )
        self.pooling = pooling
        self.dense_size = dense_size
        self.has_dense_in_training_only = has_dense_in_training_only
        self.is_normalized = is_normalized
        self.truncate_dim = truncate_dim
        self.chunk_size = chunk_size
        size = self._whole_size
        if truncate_dim is not None and truncate_dim > size:
            raise ValueError(
                f"`truncate_dim` must be at most {size}, the size of the "
                f"vectors. Received: truncate_dim={truncate_dim}."
            )
        self.encoder.pooler.leave_out()
        self.dense = None
        if dense_size is not None:
            self.dense = Dense(
                dense_size,
                activation="tanh",
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=self.config.initializer_range
                ),
                dtype=self.dtype_policy,
                name="sentence_dense",
            )
        self.build()

    def build(self, input_shape=None):
        if not self.built and self.dense is not None:
            self.dense.build((None, self.config.hidden_size))

    @property
    def vector_size(self) -> int:
        """D of the vectors that the model returns in inference."""
        return self.truncate_dim or self._whole_size

    @property
    def _whole_size(self):
        """D before the vectors are cut."""
        if self.dense_size is None or self.has_dense_in_training_only:
            return self.config.hidden_size
        return self.dense_size

    @property
    def extra_weights(self) -> list[keras.Variable]:
        """Weights that no table of a family names; other files hold them."""
        return [] if self.dense is None else self.dense.weights

    def call(self, inputs, encoder=None, training=None):
        vectors = self._vectors_of(
            inputs, features.MODEL_INPUTS, encoder, training
        )
        if features.PASSAGE_IDS not in inputs:
            return vectors
        passages = self._vectors_of(
            inputs, features.PASSAGE_INPUTS, encoder, training
        )
        return ops.concatenate([vectors[:, None], passages], axis=1)

    def get_config(self):
        return super().get_config() | {
            "pooling": self.pooling,
            "dense_size": self.dense_size,
            "has_dense_in_training_only": self.has_dense_in_training_only,
            "is_normalized": self.is_normalized,
            "truncate_dim": self.truncate_dim,
            "chunk_size": self.chunk_size,
        }

    def _vectors_of(self, inputs, names, encoder, training):
        """Returns float32 `[..., D]` of inputs `[..., L]`."""
        check_names(inputs, names)
        check_alike(inputs, names)
        *shape, length = ops.shape(inputs[names[0]])
        flat_NL = {
            name: inputs[own] for name, own in zip(features.MODEL_INPUTS, names)
        }
        if len(shape) > 1:
            # Not simply -1, because TensorFlow would not know the number.
            is_known = all(isinstance(size, int) for size in shape)
            num_texts = math.prod(shape) if is_known else -1
            flat_NL = {
                name: ops.reshape(values, (num_texts, length))
                for name, values in flat_NL.items()
            }

        if training and self.chunk_size is not None and encoder is None:
            vectors_ND = embed_in_chunks(self, flat_NL)
        else:
            vectors_ND = self.embed(flat_NL, encoder, training)
        if len(shape) == 1:
            return vectors_ND
        return ops.reshape(vectors_ND, (*shape, vectors_ND.shape[-1]))

    def embed(
        self,
        inputs: Batch,
        encoder: Callable | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Returns the vectors of texts, float32 `[N, D]`, all at once.

        Args:
            inputs: int32 `[N, L]`, by name.
            encoder, training: As in a call.
        """
        encoder = encoder or self.encoder
        if self.pooling == CLS:
            # The last block computes nothing else.
            outputs = encoder(inputs, positions=1, training=training)
            pooled_ND = outputs["sequence_output"][:, 0]
        else:
            outputs = encoder(inputs, training=training)
            hidden_NLD = outputs["sequence_output"]
            mask_NL = inputs[features.INPUT_MASK]
            if self.pooling == MEAN:
                pooled_ND = mean_of_tokens(hidden_NLD, mask_NL)
            else:
                masked_NLD = ops.where(
                    ops.cast(mask_NL, "bool")[..., None],
                    ops.cast(hidden_NLD, "float32"),
                    _SMALLEST,
                )
                pooled_ND = ops.max(masked_NLD, axis=1)
        if self.dense is not None and (
            training or not self.has_dense_in_training_only
        ):
            pooled_ND = self.dense(pooled_ND, training=training)
        vectors_ND = ops.cast(pooled_ND, "float32")
        if self.is_normalized:
            vectors_ND = normalize(vectors_ND)
        if training or self.truncate_dim is None:
            return vectors_ND
        return vectors_ND[:, : self.truncate_dim]


def _checked_size(name, size):
    """Returns `size`, None or a positive integer, as a Python number."""
    if size is None:
        return None
    number = whole_number(name, size)
    if number < 1:
        raise ValueError(
            f"`{name}` must be positive, or None. Received: {name}={size}."
        )
    return number


def normalize(vectors: Tensor) -> Tensor:
    """Divides vectors `[..., D]` by their lengths; zeros stay zeros."""
    squares = ops.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, _SMALLEST_LENGTH**2))
