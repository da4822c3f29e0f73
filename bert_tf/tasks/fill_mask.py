"""Fill-mask: what BERT's masked-LM head puts in the place of "[MASK]".

Everything is in TensorFlow operations, so that a program can run it and a
SavedModel can carry it. Letters in tensor names: B batch, L position, M masks
of a text, K answers to a mask, V vocabulary.
"""

from typing import Any

import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.features import Batch
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.words import WHITE_SPACE
from bert_tf.text.vocabulary import Vocabulary

# RE2's \s, spelled out, at the end of a string.
_WHITE_SPACE_AT_END = r"[\t\n\f\r ]+$"
# White space as `tokenizers` has it, at the end of a string.
_ANY_SPACE_AT_END = rf"[{WHITE_SPACE}]+$"


def load_open(
    checkpoint: reader.Checkpoint, dtype: Any = None
) -> BertPretrainer:
    """Returns the `BertPretrainer` of an open checkpoint.

    Raises:
        ValueError: If it has no masked-LM head, or cannot be loaded.
    """
    found = checkpoint.found_parts
    if parts.MASKED_LM not in found:
        raise ValueError(
            f"{checkpoint.path}: must have a masked-LM head, as pre-trained "
            f"models have. Its parts: {', '.join(found)}."
        )
    return checkpoints.load_open(checkpoint, BertPretrainer, dtype=dtype)


def encode(
    texts: tf.Tensor, preprocessor: Preprocessor
) -> dict[str, tf.Tensor]:
    """Returns the model inputs of texts in which "[MASK]" is one token.

    The tokenizer itself would read it as plain text: "[", "mask" and "]".
    White space before "[MASK]" belongs to the masked word, as in RoBERTa's
    released tokenizer.

    Args:
        texts: string `[B]`.
        preprocessor: The `Preprocessor`; texts that are too long are cut.

    Returns:
        Dictionary of int32 `[B, max_seq_length]`.
    """
    return encode_with_is_cut(texts, preprocessor)[0]


def encode_with_is_cut(
    texts: tf.Tensor, preprocessor: Preprocessor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns `encode`'s inputs, and which texts were cut: bool `[B]`."""
    parts = tf.strings.split(texts, preprocessor.vocabulary.special.mask)
    # A mask follows every part except a text's last one, where this is 0.
    num_following = tf.ragged.range(parts.row_lengths() - 1, -1, -1).flat_values
    num_masks = tf.minimum(num_following, 1)
    strings = tf.where(
        num_masks > 0,
        tf.strings.regex_replace(parts.flat_values, _ANY_SPACE_AT_END, ""),
        parts.flat_values,
    )
    pieces = preprocessor.tokenizer.tokenize(strings).merge_dims(1, 2)
    masks = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(num_masks)], preprocessor.vocabulary.mask_id),
        num_masks,
        validate=False,
    )
    pieces = parts.with_values(tf.concat([pieces, masks], axis=1))
    packed = [pieces], preprocessor.max_seq_length, preprocessor.vocabulary
    return packing.pack(*packed), packing.is_cut(*packed)


def count_masks(texts: tf.Tensor, mask_token: str) -> tf.Tensor:
    """Returns how often texts, string `[B]`, have the token: int32 `[B]`."""
    parts = tf.strings.split(texts, mask_token)
    return tf.cast(parts.row_lengths(), tf.int32) - 1


def find_masks(inputs: Batch, vocabulary: Vocabulary) -> tf.Tensor:
    """Returns where the model inputs have masks, bool `[B, L]`."""
    is_mask_BL = tf.equal(inputs[features.INPUT_IDS], vocabulary.mask_id)
    return is_mask_BL & tf.equal(inputs[features.INPUT_MASK], 1)


def predict(
    inputs: Batch,
    model: BertPretrainer,
    vocabulary: Vocabulary,
    training: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the probabilities of all words in place of every mask.

    Args:
        inputs: The model inputs, int32 `[B, L]`.
        model: A `BertPretrainer`.
        vocabulary: Its `Vocabulary`.
        training: Whether dropout is applied.

    Returns:
        A pair: float32 `[B, M, V]`, where V is the number of entries and M the
        largest number of masks in a row and at least 1, and int32 `[B]`, how
        many there are in each.
    """
    is_mask_BL = find_masks(inputs, vocabulary)
    num_masks_B = tf.reduce_sum(tf.cast(is_mask_BL, tf.int32), axis=1)
    # At least 1: without masks it is 0, without rows the smallest integer.
    most = tf.maximum(tf.reduce_max(num_masks_B), 1)
    # Masks rank first, in order. Rows with fewer masks get other positions.
    length = tf.shape(is_mask_BL)[1]
    rank_BL = tf.where(is_mask_BL, length - tf.range(length), 0)
    positions_BM = tf.math.top_k(rank_BL, most).indices
    outputs = model.encoder(inputs, training=training)
    logits_BMV = model.masked_lm_head(
        outputs["sequence_output"],
        positions_BM,
        model.encoder.embeddings.word_embeddings,
    )
    return probabilities_of(logits_BMV, vocabulary), num_masks_B


def probabilities_of(logits: tf.Tensor, vocabulary: Vocabulary) -> tf.Tensor:
    """Returns the probabilities of the vocabulary's entries.

    Args:
        logits: float32 `[..., vocab_size of the model]`.
        vocabulary: The `Vocabulary`. A model may have more rows than it has
            entries; as in transformers, they share in the softmax.

    Returns:
        float32 `[..., number of entries]`.
    """
    return tf.nn.softmax(logits)[..., : len(vocabulary)]


def decode(
    probabilities: tf.Tensor,
    num_masks: tf.Tensor,
    vocabulary: Vocabulary,
    top_k: int,
) -> dict[str, tf.Tensor]:
    """Returns the likeliest words in place of every mask.

    Args:
        probabilities: float32 `[B, M, V]`.
        num_masks: int32 `[B]`: how many of the M are masks of the row.
        vocabulary: The `Vocabulary`.
        top_k: K, from 1 to V.

    Returns:
        A dictionary: `tokens` string, `ids` int32 and `scores` float32
        `[B, M, K]`, the likeliest first, with "", the id of [PAD] and 0.0
        where there is no mask; and `num_masks` int32 `[B]`.
    """
    scores, ids = tf.math.top_k(probabilities, top_k)
    return spell(scores, ids, num_masks, vocabulary)


def spell(
    scores: tf.Tensor,
    ids: tf.Tensor,
    num_masks: tf.Tensor,
    vocabulary: Vocabulary,
) -> dict[str, tf.Tensor]:
    """Returns `decode`'s dictionary for the likeliest words.

    Args:
        scores: float32 `[B, M, K]`, the highest first.
        ids: int32 `[B, M, K]`, the words that have these scores.
        num_masks: int32 `[B]`: how many of the M are masks of the row.
        vocabulary: The `Vocabulary`.
    """
    is_mask = _is_mask(num_masks, scores)[..., tf.newaxis]
    return {
        "tokens": tf.where(
            is_mask, tf.gather(tf.constant(vocabulary.tokens), ids), ""
        ),
        "ids": tf.where(is_mask, ids, vocabulary.pad_id),
        "scores": tf.where(is_mask, scores, 0.0),
        "num_masks": tf.identity(num_masks),
    }


def fill(
    texts: tf.Tensor, answers: dict[str, tf.Tensor], tokenizer: Spec
) -> tf.Tensor:
    """Returns the texts with each answer in place of its mask.

    The text's other masks stay "[MASK]". An answer that continues a word is
    joined to the text before it.

    Args:
        texts: string `[B]`.
        answers: What `decode` returned for them.
        tokenizer: The spec of the tokenizer.

    Returns:
        string `[B, M, K]`, "" where there is no mask.
    """
    # Only as many masks as have answers: those that were cut off stay.
    num_masks = tf.shape(answers["tokens"])[1]
    mask_token = tokenizer.vocabulary.special.mask
    lengths = tf.strings.split(texts, mask_token)
    lengths = lengths.with_values(tf.strings.length(lengths.values))
    lengths = lengths.to_tensor(shape=tf.stack([-1, num_masks]))
    size = len(mask_token.encode("utf-8"))
    starts = tf.cumsum(lengths, axis=1) + size * tf.range(num_masks)

    # From here on a row is a mask: each text is repeated for its masks.
    index = tf.where(_is_mask(answers["num_masks"], starts))
    texts = tf.gather(texts, index[:, 0])
    starts = tf.gather_nd(starts, index)
    limits = starts + size
    before = tf.strings.substr(texts, tf.zeros_like(starts), starts)
    after = tf.strings.substr(texts, limits, tf.strings.length(texts) - limits)[
        :, tf.newaxis
    ]
    joined = tf.strings.regex_replace(before, _WHITE_SPACE_AT_END, "")

    spelled = tokenizer.spell(tf.gather_nd(answers["tokens"], index))
    starts_word = tf.equal(tf.strings.substr(spelled, 0, 1), " ")
    before = tf.where(starts_word, before[:, tf.newaxis], joined[:, tf.newaxis])
    spelled = tf.strings.regex_replace(spelled, "^ ", "")
    # An entry of byte-level BPE may be part of a character.
    spelled = tf.strings.unicode_transcode(spelled, "UTF-8", "UTF-8")
    after = tf.repeat(after, tf.shape(spelled)[1], axis=1)
    filled = tf.RaggedTensor.from_row_lengths(
        tf.strings.join([before, spelled, after]),
        answers["num_masks"],
        validate=False,
    )
    return filled.to_tensor("", shape=tf.shape(answers["tokens"]))


def _is_mask(num_masks, values):
    """Returns bool `[B, M]`: whether this place holds a mask of the row."""
    place = tf.range(tf.shape(values)[1])
    return place < num_masks[:, tf.newaxis]
