"""Vectors of texts, made as a model's folder specifies.

A folder of sentence-transformers specifies the pooling, layers on the pooled
vector, the normalisation, the longest sequence and the prompt before a text.
With other folders the vector is the mean of the last block's output, as with
`--kind=embedding`. Letters in tensor names: B batch, L position, D size of a
vector.
"""

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.tasks.features import extraction
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.options import CONCATENATE
from bert_tf.tasks.features.options import MEAN
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import utf_8

# Texts that are tokenized at once, as long as they may be.
_TOKENIZED = 256


def make_vectors(
    encoder_outputs: Any, input_mask: tf.Tensor, vectors: SentenceVectors
) -> tf.Tensor:
    """Returns the vectors of texts: float32 `[B, D]`.

    Args:
        encoder_outputs: The outputs of all blocks, or of just the last: a list
            of float `[B, L, hidden]`.
        input_mask: int32 `[B, L]`.
        vectors: How the vectors are made.
    """
    pool = Extraction(
        layers=(-1,), combine=CONCATENATE, pooling=vectors.pooling
    )
    found_BD = pool(encoder_outputs, input_mask)
    for layer in vectors.dense:
        found_BD = tf.matmul(found_BD, layer.kernel)
        if layer.bias is not None:
            found_BD += layer.bias
        if layer.activation == sentence_folder.TANH:
            found_BD = tf.tanh(found_BD)
    if vectors.is_normalized:
        found_BD = extraction.normalized(found_BD)
    if vectors.truncate_dim is not None:
        found_BD = found_BD[:, : vectors.truncate_dim]
    return found_BD


def num_prompt_tokens(prompt: str, preprocessor: Preprocessor) -> int:
    """Returns the number of tokens of a prompt at the start of a sequence.

    As in sentence-transformers, [CLS] is one of them. An empty prompt has 0.

    Raises:
        ValueError: If they leave no room for a text: all texts would have the
            same vector.
    """
    if not prompt:
        return 0
    pieces = preprocessor.tokenizer.tokenize(tf.constant([prompt]))
    number = int(pieces.merge_dims(1, 2).row_lengths()[0])
    places = preprocessor.max_seq_length
    if number + preprocessor.vocabulary.special.count(1) >= places:
        raise ValueError(
            f"A prompt must leave room for a text among {places} tokens. "
            f"Received: one of {number}, {messages.shortened(prompt)}."
        )
    return number + 1


class Embedder:
    """Computes the vectors of texts, in batches of similar lengths.

    It runs in one process on all cores or on the first GPU; the
    multiplications of a batch use all of it.

    Args:
        encoder: A `BertEncoder`.
        preprocessor: The `Preprocessor`; longer texts are cut to its length.
        vectors: How the vectors are made.
        weights_sha256: {name: SHA-256} of the files with the weights.
        prompt: A string put before every text.

    Raises:
        ValueError: If texts have no room; see `Preprocessor.check_has_room`
            and `num_prompt_tokens`.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: Preprocessor,
        vectors: SentenceVectors,
        weights_sha256: dict[str, str],
        prompt: str = "",
    ) -> None:
        preprocessor.check_has_room(1)
        self.vectors = vectors
        self.max_seq_length = preprocessor.max_seq_length
        self.precision = encoder.compute_dtype
        self._encoder = encoder
        self._preprocessor = preprocessor
        self._weights_sha256 = weights_sha256
        vocabulary = preprocessor.vocabulary
        tokenizer = preprocessor.tokenizer
        num_special = vocabulary.special.count(1)

        @tf.function(autograph=False, reduce_retracing=True)
        def tokenize(texts):
            heads, _ = utf_8.cut_texts(texts)
            pieces = tokenizer.tokenize(heads).merge_dims(1, 2)
            # The rest has no place, and may be a book.
            return pieces[:, : self.max_seq_length]

        pieces = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
        rows, number = (
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([], tf.int32),
        )

        @tf.function(autograph=False, input_signature=[pieces, rows, number])
        def embed(pieces, rows, num_left_out):
            pieces = tf.gather(pieces, rows)
            longest = tf.cast(tf.reduce_max(pieces.row_lengths()), tf.int32)
            length = tf.minimum(longest + num_special, self.max_seq_length)
            inputs = packing.pack([pieces], length, vocabulary)
            mask = inputs[features.INPUT_MASK]
            # Leaving out a prompt shifts the first token, which "cls" pools.
            first = tf.minimum(num_left_out, length - 1)
            if vectors.pooling == sentence_folder.CLS:
                # The last block computes only this position.
                positions = tf.fill([tf.size(rows), 1], first)
                outputs = encoder(inputs, positions, training=False)
                hidden, mask = outputs["sequence_output"], mask[:, :1]
            else:
                outputs = encoder(inputs, training=False)
                hidden = outputs["sequence_output"][:, first:]
                mask = mask[:, first:]
            return make_vectors([hidden], mask, vectors)

        self._tokenize = tokenize
        self._embed = embed
        self._set_prompt(prompt)

    def _set_prompt(self, prompt):
        self.prompt = prompt
        number = num_prompt_tokens(prompt, self._preprocessor)
        self._num_left_out = tf.constant(
            0 if self.vectors.include_prompt else number
        )

    @property
    def dimension(self) -> int:
        """The size of a vector."""
        return self.vectors.size(self._encoder.config.hidden_size)

    @property
    def model_sha256(self) -> str:
        """The SHA-256 of everything that determines the vectors of texts.

        Except pooling, truncation, prompt and precision, which messages can
        name.
        """
        spec = self._preprocessor.tokenizer.spec
        parts = {
            "weights": self._weights_sha256,
            "config": self._encoder.config.to_dict(),
            "vocabulary": list(spec.vocabulary.tokens),
            "do_lower_case": spec.do_lower_case,
            "tokenizer": tokenizer_files.describe(spec),
            "dense": [
                [
                    layer.activation,
                    *(
                        None if part is None else _sha256(part.tobytes())
                        for part in (layer.kernel, layer.bias)
                    ),
                ]
                for layer in self.vectors.dense
            ],
        }
        text = json.dumps(parts, sort_keys=True)
        return _sha256(text.encode("utf-8"))

    def with_prompt(self, prompt: str) -> "Embedder":
        """Returns an `Embedder` of the same model with another prompt."""
        other = copy.copy(self)
        other._set_prompt(prompt)
        return other

    def __call__(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> np.ndarray:
        """Returns the vectors: float32 `[N, D]`.

        Args:
            texts, batch_size: See `batches`, also for what is raised.
        """
        found = np.empty((len(texts), self.dimension), np.float32)
        for rows, vectors in self.batches(texts, batch_size):
            found[rows] = vectors
        return found

    def batches(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the vectors of texts of similar length, the longest first.

        Args:
            texts: N strings.
            batch_size: Texts a step.

        Yields:
            int64 `[B]`, the indices of texts, and float32 `[B, D]`. Each text
            occurs once.

        Raises:
            ValueError: If a vector is not finite.
        """
        if not len(texts):
            return
        pieces = tf.concat(
            [
                self._tokenize(
                    tf.constant(
                        [
                            f"{self.prompt}{text}"
                            for text in texts[start : start + _TOKENIZED]
                        ]
                    )
                )
                for start in range(0, len(texts), _TOKENIZED)
            ],
            axis=0,
        )
        # The longest first, so that a lack of memory shows at once.
        order = np.argsort(-pieces.row_lengths().numpy(), kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            found = self._embed(
                pieces, tf.constant(rows, tf.int64), self._num_left_out
            ).numpy()
            is_good = np.isfinite(found).all(axis=1)
            if not is_good.all():
                text = texts[rows[np.argmin(is_good)]]
                raise ValueError(
                    "The numbers of a vector must be finite. Received: "
                    f"infinity or NaN for the text {messages.shortened(text)}."
                )
            yield rows, found


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


def open_embedder(
    model_dir: files.AnyPath,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_seq_length: int | None = None,
    dtype: str = "float32",
) -> Embedder:
    """Opens a model folder to make vectors of texts.

    Args:
        model_dir: A folder of sentence-transformers, Hugging Face or bert_tf,
            or a name on the Hub.
        pooling: "cls", "mean" or "max". None for the folder's setting, or
            "mean" if it has none.
        normalize: Whether vectors are divided by their length. None for
            the folder's setting, or False if it has none.
        max_seq_length: The longest sequence; None for the folder's setting.
        dtype: A Keras dtype policy.

    Returns:
        An `Embedder`, with the folder's default prompt.

    Raises:
        ValueError: If it is not such a folder, the model has too few positions
            for `max_seq_length`, or normalisation is requested for truncated
            vectors that the folder does not normalise.
    """
    with reader.open_checkpoint(str(model_dir)) as checkpoint:
        folder = checkpoint.folder
        vectors = sentence_folder.read(folder) or SentenceVectors(
            pooling=MEAN, is_normalized=False
        )
        if pooling is not None:
            vectors = dataclasses.replace(vectors, pooling=pooling)
        vectors.check_normalized(normalize)
        if normalize is not None:
            vectors = dataclasses.replace(vectors, is_normalized=normalize)
        preprocessor = Preprocessor.from_folder(
            folder, max_seq_length or vectors.max_seq_length
        )
        encoder = checkpoints.load_open(checkpoint, BertEncoder, dtype=dtype)
        weights_sha256 = checkpoint.weights_sha256()
    encoder.config.check_length(preprocessor.max_seq_length)
    return Embedder(
        encoder, preprocessor, vectors, weights_sha256, vectors.prompt()
    )
