"""Vectors of texts, as the owner of a model makes them.

What a folder of sentence-transformers says holds: pooling, layers on the pooled
vector, normalisation, the longest sequence, and what is put before a text. Of
other folders the vector is the mean of the last block's, as `--kind=embedding`
has it. Letters in tensor names: B batch, L position, D size of a vector.
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


def make_vectors(
    encoder_outputs: Any, input_mask: tf.Tensor, vectors: SentenceVectors
) -> tf.Tensor:
    """Returns the vectors of texts: float32 `[B, D]`.

    Args:
        encoder_outputs: Every block's output, or the last one's alone: a list
            of float `[B, L, hidden]`.
        input_mask: int32 `[B, L]`.
        vectors: How they are made.
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
    """Returns how many tokens a sequence begins with that are a prompt's.

    [CLS] is one of them, as sentence-transformers has it, and 0 are those of
    no prompt.

    Raises:
        ValueError: If they leave no place for a text: its vector would be that
            of any other.
    """
    if not prompt:
        return 0
    pieces = preprocessor.tokenizer.tokenize(tf.constant([prompt]))
    number = int(pieces.merge_dims(1, 2).row_lengths()[0])
    places = preprocessor.max_seq_length
    if number + preprocessor.vocabulary.special.count(1) >= places:
        raise ValueError(
            f"A prompt must leave places for a text, of {places} tokens. "
            f"Received: one of {number}, {files.shortened(prompt)}."
        )
    return number + 1


class Embedder:
    """Computes the vectors of texts, those of about one length together.

    It runs in one process, with all cores or the first GPU: a batch's
    multiplications use them all.

    Args:
        encoder: A `BertEncoder`.
        preprocessor: The `Preprocessor`; longer texts are cut to its length.
        vectors: How the vectors are made.
        weights_sha256: {name: SHA-256} of what the weights were read from.
        prompt: What is put before every text.

    Raises:
        ValueError: As of `num_prompt_tokens`.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: Preprocessor,
        vectors: SentenceVectors,
        weights_sha256: dict[str, str],
        prompt: str = "",
    ) -> None:
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
            return tokenizer.tokenize(texts).merge_dims(1, 2)

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
            # With what is left out goes its place: the first token is another.
            first = tf.minimum(num_left_out, length - 1)
            if vectors.pooling == sentence_folder.CLS:
                # The last block makes nothing else.
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
        """The SHA-256 of all that the vectors of texts are a function of.

        But for how they are pooled and cut, the prompt and the precision,
        which messages can tell.
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
        """Returns one of the same model that puts another text before."""
        other = copy.copy(self)
        other._set_prompt(prompt)
        return other

    def __call__(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> np.ndarray:
        """Returns the vectors: float32 `[N, D]`.

        Args:
            texts, batch_size: As of `batches`, which says what is raised.
        """
        found = np.empty((len(texts), self.dimension), np.float32)
        for rows, vectors in self.batches(texts, batch_size):
            found[rows] = vectors
        return found

    def batches(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the vectors of texts of about one length, the longest first.

        Args:
            texts: N strings; all of them are tokenized at once.
            batch_size: Texts a step.

        Yields:
            int64 `[B]`, the indices of texts, and float32 `[B, D]`. Each text
            is there once.

        Raises:
            ValueError: If a vector is not finite.
        """
        if not len(texts):
            return
        pieces = self._tokenize(
            tf.constant([f"{self.prompt}{text}" for text in texts])
        )
        # The longest first: where memory does not suffice, it tells at once.
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
                    "The numbers of a vector must be finite. Received others "
                    f"for the text {files.shortened(text)}."
                )
            yield rows, found


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


def open_embedder(
    model_dir: files.AnyPath,
    *,
    pooling: str | None = None,
    is_normalized: bool | None = None,
    max_seq_length: int | None = None,
    dtype: str = "float32",
) -> Embedder:
    """Opens a model folder to make vectors of texts.

    Args:
        model_dir: A folder of sentence-transformers, Hugging Face or bert_tf,
            or a name of the Hub.
        pooling: "cls", "mean" or "max"; None for what the folder says, or else
            the mean.
        is_normalized: Whether a vector is divided by its length; None for what
            the folder says, or else not.
        max_seq_length: The longest sequence; None for what the folder says.
        dtype: A Keras dtype policy.

    Returns:
        An `Embedder`, with the folder's default prompt.

    Raises:
        ValueError: If it is no such folder, its model has no positions for
            so long a sequence, or its vectors are cut, and are to be divided
            by their lengths where the folder does not.
    """
    with reader.open_checkpoint(str(model_dir)) as checkpoint:
        folder = checkpoint.folder
        vectors = sentence_folder.read(folder) or SentenceVectors(
            pooling=MEAN, is_normalized=False
        )
        if pooling is not None:
            vectors = dataclasses.replace(vectors, pooling=pooling)
        vectors.check_normalized(is_normalized)
        if is_normalized is not None:
            vectors = dataclasses.replace(vectors, is_normalized=is_normalized)
        preprocessor = Preprocessor.from_folder(
            folder, max_seq_length or vectors.max_seq_length
        )
        encoder = checkpoints.load_open(checkpoint, BertEncoder, dtype=dtype)
        weights_sha256 = {
            path.rpartition("/")[2]: files.sha256(path)
            for path in checkpoint.weight_files
        }
    longest = encoder.config.max_position_embeddings
    if preprocessor.max_seq_length > longest:
        raise ValueError(
            "`max_seq_length` must not exceed the model's "
            f"max_position_embeddings={longest}. "
            f"Received: max_seq_length={preprocessor.max_seq_length}."
        )
    return Embedder(
        encoder, preprocessor, vectors, weights_sha256, vectors.prompt()
    )
