"""Feature extraction: hidden layers of BERT as vectors of tokens or of texts.

This is the feature-based approach of Devlin et al. 2018, section 5.3: the
weights stay fixed, and another model or a search uses the vectors. Letters in
tensor names: B batch, L position, K layers, D hidden size.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.models.encoder import BertEncoder
from bert_tf.tasks.features.options import CLS
from bert_tf.tasks.features.options import COMBINE
from bert_tf.tasks.features.options import CONCATENATE
from bert_tf.tasks.features.options import MAX
from bert_tf.tasks.features.options import MEAN
from bert_tf.tasks.features.options import NONE
from bert_tf.tasks.features.options import POOLING
from bert_tf.tasks.features.options import SEPARATE
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import utf_8
from bert_tf.training import strategy as strategies


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extraction:
    """How vectors are made from the encoder's layers.

    Args:
        layers: Indices of blocks: 0 is the first, -1 the last. The embeddings
            are not among them.
        combine: "separate": one vector a layer. "concatenate": one vector of
            all layers, in the order of `layers`. "mean": their mean.
        pooling: "none": the vectors of every token. "cls": the vector of
            [CLS]. "mean": the mean over all tokens, including [CLS] and [SEP].
            "max": the element-wise maximum over all tokens.
        normalize: Whether every vector is divided by its length.

    Call arguments:
        encoder_outputs: Every block's output, a list of float `[B, L, D]`.
        input_mask: int32 `[B, L]`.

    Returns:
        float32 `[B, L, ...]`, or `[B, ...]` with pooling. The other axes are
        the layers, if they are separate, and the vector.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    layers: tuple[int, ...] = (-1, -2, -3, -4)
    combine: str = SEPARATE
    pooling: str = NONE
    normalize: bool = False

    def __post_init__(self):
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("`layers` must name a layer. Received: none.")
        for field, choices in (("combine", COMBINE), ("pooling", POOLING)):
            value = getattr(self, field)
            if value not in choices:
                raise ValueError(
                    f"`{field}` must be one of {', '.join(choices)}. "
                    f"Received: {field}={value!r}."
                )

    def check_layers(self, num_layers: int) -> None:
        """Raises `ValueError` if the encoder does not have the layers."""
        for layer in self.layers:
            if not -num_layers <= layer < num_layers:
                raise ValueError(
                    f"`layers` must be from {-num_layers} to "
                    f"{num_layers - 1}, as the model has {num_layers}. "
                    f"Received: {layer}."
                )

    def __call__(
        self, encoder_outputs: Sequence[tf.Tensor], input_mask: tf.Tensor
    ) -> tf.Tensor:
        outputs = [
            tf.cast(encoder_outputs[layer], tf.float32) for layer in self.layers
        ]
        if self.combine == CONCATENATE:
            vectors = tf.concat(outputs, axis=-1)
        else:
            vectors = tf.stack(outputs, axis=2)
            if self.combine == MEAN:
                vectors = tf.reduce_mean(vectors, axis=2)
        if self.pooling == CLS:
            vectors = vectors[:, 0]
        elif self.pooling == MEAN:
            weights = tf.cast(input_mask, tf.float32)
            # Rows that pad the batch have no tokens.
            total = tf.maximum(tf.reduce_sum(weights, axis=1), 1.0)
            weights /= total[:, tf.newaxis]
            # Add the remaining axes of the vectors.
            weights = weights[(..., *[tf.newaxis] * (vectors.shape.rank - 2))]
            vectors = tf.reduce_sum(vectors * weights, axis=1)
        elif self.pooling == MAX:
            is_token = input_mask > 0
            is_token = is_token[(..., *[tf.newaxis] * (vectors.shape.rank - 2))]
            vectors = tf.where(is_token, vectors, vectors.dtype.min)
            vectors = tf.reduce_max(vectors, axis=1)
        return normalized(vectors) if self.normalize else vectors


def normalized(vectors: tf.Tensor) -> tf.Tensor:
    """Returns vectors, float `[..., D]`, divided by their lengths."""
    squares = tf.reduce_sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * tf.math.rsqrt(tf.maximum(squares, 1e-24))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineFeatures:
    """The vectors of one line.

    Args:
        index: The line's number, from 0.
        token_ids: int32 `[tokens]`, with [CLS] and [SEP].
        vectors: float32 `[tokens, ...]`, or `[...]` with pooling; see
            `Extraction`.
        is_cut: Whether the line was too long and tokens were left out.
    """

    index: int
    token_ids: np.ndarray
    vectors: np.ndarray
    is_cut: bool


class Extractor:
    """Computes the vectors of lines, a batch at a time.

    Args:
        encoder: A `BertEncoder` made in the strategy's scope.
        preprocessor: The `Preprocessor`; longer lines are cut to its length.
        extraction: An `Extraction`.
        strategy: A `tf.distribute.Strategy` on one host.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: Preprocessor,
        extraction: Extraction,
        strategy: tf.distribute.Strategy,
    ) -> None:
        extraction.check_layers(encoder.config.num_hidden_layers)
        self._preprocessor = preprocessor
        self._is_pooled = extraction.pooling != NONE
        self._strategy = strategy
        # TPU programs have fixed shapes.
        self._is_trimmed = not strategies.is_tpu(strategy)

        @tf.function(autograph=False, reduce_retracing=True)
        def encode(texts):
            heads, have_more = zip(*map(utf_8.cut_texts, texts))
            inputs, is_cut = preprocessor.encode_with_is_cut(heads)
            return inputs, tf.reduce_any([is_cut, *have_more], axis=0)

        def vectors_of(inputs):
            outputs = encoder(inputs, training=False)
            return extraction(
                outputs["encoder_outputs"], inputs[features.INPUT_MASK]
            )

        @tf.function(autograph=False, reduce_retracing=True)
        def run_step(inputs):
            return strategy.run(vectors_of, args=(inputs,))

        self._encode = encode
        self._run_step = run_step

    def __call__(
        self, lines: Iterable[tuple[str, ...]], batch_size: int
    ) -> Iterator[LineFeatures]:
        """Yields the `LineFeatures` of lines, in their order.

        Args:
            lines: Iterable of tuples of one or two strings.
            batch_size: Lines a step, over all devices.

        Raises:
            ValueError: If `batch_size` is not a multiple of the number of
                devices, or a vector is not finite.
        """
        num_replicas = self._strategy.num_replicas_in_sync
        if batch_size % num_replicas:
            raise ValueError(
                f"`batch_size` must be a multiple of {num_replicas}, the "
                f"number of devices. Received: batch_size={batch_size}."
            )
        index, batch = 0, []
        for line in lines:
            batch.append(line)
            if len(batch) == batch_size:
                yield from self._batch_features(batch, batch_size, index)
                index += len(batch)
                batch = []
        if batch:
            yield from self._batch_features(batch, batch_size, index)

    def _batch_features(self, batch, batch_size, first_index):
        inputs, are_cut = self._inputs(batch, batch_size)
        outputs = self._run_step(self._distribute(inputs))
        vectors = self._strategy.gather(outputs, axis=0).numpy()
        for row, is_cut in enumerate(are_cut):
            num_tokens = inputs[features.INPUT_MASK][row].sum()
            found = (
                vectors[row] if self._is_pooled else vectors[row, :num_tokens]
            )
            if not np.isfinite(found).all():
                raise ValueError(
                    "The numbers of a vector must be finite. Received: "
                    f"infinity or NaN for line {first_index + row + 1}."
                )
            yield LineFeatures(
                index=first_index + row,
                token_ids=inputs[features.INPUT_IDS][row, :num_tokens],
                vectors=found,
                is_cut=bool(is_cut),
            )

    def _inputs(self, batch, batch_size):
        """Returns the model inputs, and whether each line was cut.

        Rows of padding are added, so that all devices get equally many and a
        TPU program keeps its shapes.
        """
        shape = (batch_size, self._preprocessor.max_seq_length)
        inputs = {
            name: np.zeros(shape, "int32") for name in features.MODEL_INPUTS
        }
        inputs[features.INPUT_IDS] += self._preprocessor.vocabulary.pad_id
        are_cut = np.zeros(len(batch), bool)
        for num_texts in (1, 2):
            # Lines of one text are packed apart: they have no second [SEP].
            rows = [i for i, line in enumerate(batch) if len(line) == num_texts]
            if not rows:
                continue
            columns = zip(*(batch[row] for row in rows))
            packed, are_cut[rows] = self._encode(
                [tf.constant(column) for column in columns]
            )
            for name, value in packed.items():
                inputs[name][rows] = value
        if self._is_trimmed:
            longest = inputs[features.INPUT_MASK].sum(axis=1).max()
            num_replicas = self._strategy.num_replicas_in_sync
            num_rows = -(-len(batch) // num_replicas) * num_replicas
            inputs = {
                name: value[:num_rows, :longest]
                for name, value in inputs.items()
            }
        return inputs, are_cut

    def _distribute(self, inputs):
        """Returns each replica's rows."""

        def rows_of(context):
            return {
                name: tf.constant(
                    np.split(value, context.num_replicas_in_sync)[
                        context.replica_id_in_sync_group
                    ]
                )
                for name, value in inputs.items()
            }

        return self._strategy.experimental_distribute_values_from_function(
            rows_of
        )
