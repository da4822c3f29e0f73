"""Packs one or two segments into one sequence: [CLS] A [SEP] B [SEP].

The vocabulary's `SpecialTokens` say which tokens these are, how many stand
between A and B, and which segment B is.

Core TensorFlow operations only: the trimming kernels of tensorflow_text are
missing from TensorFlow Serving before 2.20. Letters: B batch, L sequence
length.
"""

from collections.abc import Iterable

import tensorflow as tf

from bert_tf import features
from bert_tf.text.vocabulary import Vocabulary


def take(
    pieces: tf.RaggedTensor,
    rows: tf.Tensor,
    starts: tf.Tensor,
    lengths: tf.Tensor,
) -> tf.RaggedTensor:
    """Takes parts of rows; only these parts need memory.

    Args:
        pieces: RaggedTensor `[rows, (pieces)]`.
        rows: int32 `[B]`: the row of each part.
        starts: int32 `[B]`: the number of its first piece in the row.
        lengths: int32 `[B]`: how many pieces it has; all must be in the row.

    Returns:
        RaggedTensor `[B, (pieces)]`.
    """
    starts += tf.gather(tf.cast(pieces.row_starts(), tf.int32), rows)
    index = tf.ragged.range(starts, starts + lengths)
    return index.with_flat_values(
        tf.gather(pieces.flat_values, index.flat_values)
    )


def pack(
    segments: Iterable[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    vocabulary: Vocabulary,
) -> dict[str, tf.Tensor]:
    """Packs one or two segments per row into the inputs of the model.

    Args:
        segments: List of one or two RaggedTensors of ids, `[batch, (pieces)]`
            or `[batch, (words), (pieces)]`. What does not fit is cut at the
            end. In a pair, as in the original, the longer segment loses its
            last piece until both fit; if they are equally long, B does.
        seq_length: Length of the sequences, with room for the special tokens
            (`SpecialTokens.count`). An int, or an int32 scalar, which is
            checked when it runs.
        vocabulary: The `Vocabulary` that the ids are from.

    Returns:
        Dictionary of int32 `[batch, seq_length]`: `input_ids`, `input_mask`
        (1 on pieces, 0 on padding) and `segment_ids` (`second_segment` on B
        and its [SEP], otherwise 0).

    Raises:
        ValueError: If there are not one or two segments, or the special
            tokens alone do not fit.
    """
    segments = list(segments)
    if len(segments) not in (1, 2):
        raise ValueError(
            "`segments` must be one or two. "
            f"Received: {len(segments)} segments."
        )
    template = vocabulary.special
    num_between = template.num_between
    num_special = template.count(len(segments))
    if tf.is_tensor(seq_length):
        check = tf.debugging.assert_greater_equal(
            seq_length,
            num_special,
            message="`seq_length` must have room for the special tokens.",
        )
        with tf.control_dependencies([check] if check is not None else []):
            seq_length = tf.identity(seq_length)
    elif seq_length < num_special:
        raise ValueError(
            f"`seq_length` must be at least {num_special} for "
            f"{len(segments)} segments, which have as many special tokens. "
            f"Received: seq_length={seq_length}."
        )
    segments = [_flat(segment) for segment in segments]
    max_tokens = seq_length - num_special
    lengths = [_column(segment.row_lengths()) for segment in segments]
    if len(segments) == 1:
        kept_a = tf.minimum(lengths[0], max_tokens)
        length = kept_a + 2
    else:
        tf.debugging.assert_equal(
            *[tf.shape(length) for length in lengths],
            message="The two segments must have as many rows.",
        )
        length_a, length_b = lengths
        # The result of the original's loop, without the loop: of two long
        # segments A gets half, rounded up; a short one leaves the other the
        # room that it does not need.
        half = (max_tokens + 1) // 2
        kept_a = tf.minimum(length_a, tf.maximum(max_tokens - length_b, half))
        length = kept_a + tf.minimum(length_b, max_tokens - kept_a)
        length += num_special

    # Every position of the output is looked up in one list: the special
    # tokens, the pieces of all A, the pieces of all B.
    special = [vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id]
    pad, cls, sep = range(len(special))
    pieces = [tf.cast(segment.values, tf.int32) for segment in segments]
    table = tf.concat([tf.constant(special), *pieces], axis=0)

    position_1L = tf.range(seq_length)[tf.newaxis, :]
    offset_a = len(special) - 1 + _column(segments[0].row_starts())
    index_BL = tf.where(position_1L <= kept_a, offset_a + position_1L, sep)
    in_b_BL = position_1L > kept_a + num_between
    if len(segments) == 2:
        offset_b = len(special) + tf.size(pieces[0]) - 1 - num_between - kept_a
        offset_b += _column(segments[1].row_starts())
        index_BL = tf.where(in_b_BL, offset_b + position_1L, index_BL)
        index_BL = tf.where(position_1L == length - 1, sep, index_BL)
    index_BL = tf.where(position_1L == 0, cls, index_BL)
    is_piece_BL = position_1L < length
    segment_BL = tf.cast(in_b_BL & is_piece_BL, tf.int32)
    index_BL = tf.where(is_piece_BL, index_BL, pad)
    return {
        features.INPUT_IDS: tf.gather(table, index_BL),
        features.INPUT_MASK: tf.cast(is_piece_BL, tf.int32),
        features.SEGMENT_IDS: segment_BL * template.second_segment,
    }


def is_cut(
    segments: Iterable[tf.RaggedTensor], seq_length: int, vocabulary: Vocabulary
) -> tf.Tensor:
    """Returns which rows have more pieces than `pack` keeps: bool `[batch]`.

    Args:
        segments, seq_length, vocabulary: As in `pack`.
    """
    lengths = [_flat(segment).row_lengths() for segment in segments]
    most = seq_length - vocabulary.special.count(len(lengths))
    return sum(lengths) > tf.cast(most, lengths[0].dtype)


def _flat(segment):
    if segment.shape.rank != 3:
        return segment
    # `merge_dims` takes some 30 operations to check what is known to be right.
    words = segment.values
    return tf.RaggedTensor.from_row_splits(
        words.values,
        tf.gather(words.row_splits, segment.row_splits),
        validate=False,
    )


def _column(vector):
    return tf.cast(vector, tf.int32)[:, tf.newaxis]


def trim_padding(
    inputs: dict[str, tf.Tensor], multiple: int = 1
) -> dict[str, tf.Tensor]:
    """Cuts the batch to its longest row: the same results, sooner.

    Args:
        inputs: A dictionary. The model inputs in it, int32 `[B, ..., L]`,
            padded at the end, are cut.
        multiple: The longest row's length is rounded up to a multiple of this.

    Returns:
        The same, `[B, ..., longest]` with 1 <= longest <= L.
    """
    lengths = tf.reduce_sum(inputs[features.INPUT_MASK], axis=-1)
    # An empty batch has no longest row; the pooler needs a first position.
    longest = tf.maximum(tf.reduce_max(lengths), 1)
    if multiple > 1:
        longest = (longest + multiple - 1) // multiple * multiple
    return inputs | {
        name: inputs[name][..., :longest] for name in features.MODEL_INPUTS
    }
