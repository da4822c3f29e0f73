"""Turns strings into model inputs; everything that reads text uses it."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import messages
from bert_tf import sizes
from bert_tf.arguments import whole_number
from bert_tf.text import packing
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec

# The number of positions of every released BERT.
_RELEASED_MAX_LENGTH = 512


class Preprocessor(tf.Module):
    """Turns strings, or pairs of strings, into the inputs of the model.

    They are packed as in Devlin et al. 2018, section 3: [CLS], the text and
    [SEP]; for a pair, then the second text and [SEP]. What does not fit is cut
    at the end of the text, in a pair at the end of the longer one.

    The same object works in tf.data, runs eagerly and is part of an exported
    model, so that text is treated alike everywhere. Called with
    `keras.Input((), dtype="string")`, it makes a model that takes strings.

    Args:
        tokenizer: The spec of the tokenizer.
        max_seq_length: Length of the sequences, special tokens included: at
            least 2, and at most the model's `max_position_embeddings`.
        tokens_in_text: Which tokens are found where a text contains them:
            "added", those that were added to the model's vocabulary; "all",
            also the model's own, such as "[MASK]", as in transformers; or
            "none". None for what the spec says: "added", unless the tokenizer
            was saved with another.

    Call arguments:
        texts: string `[batch]`, or a tuple or list of one or two of them. Each
            may also be a scalar. A list of scalars (Python strings, arrays or
            tensors without axes) is a batch, a tuple of them is a pair. A text
            may be empty. Keras's inputs of strings become the model's.

    Returns:
        Dictionary of int32 `[batch, max_seq_length]`, or `[max_seq_length]`
        for scalars: `input_ids`, `input_mask`, `segment_ids`.

    Raises:
        ValueError: If `max_seq_length` is too small or no integer, if there
            are more than two texts or their shapes differ, or if they are not
            strings. The message names the first row, from 1, that is not.

    Example:

        >>> from bert_tf import Preprocessor
        >>> preprocessor = Preprocessor.from_folder("pretrained", 8)
        >>> preprocessor(["the bill", "a refund is due"])["input_mask"].numpy()
        array([[1, 1, 1, 1, 0, 0, 0, 0],
               [1, 1, 1, 1, 1, 1, 0, 0]], dtype=int32)
        >>> preprocessor(("the bill", "is due"))["segment_ids"].numpy()
        array([0, 0, 0, 0, 1, 1, 1, 0], dtype=int32)
    """

    def __init__(
        self,
        tokenizer: Spec,
        max_seq_length: int = 128,
        tokens_in_text: str | None = None,
    ) -> None:
        super().__init__(name="preprocessor")
        max_seq_length = whole_number("max_seq_length", max_seq_length)
        if max_seq_length < 2:
            raise ValueError(
                "`max_seq_length` must be at least 2, for [CLS] and [SEP]. "
                f"Received: max_seq_length={max_seq_length}."
            )
        if not hasattr(tokenizer, "make"):
            raise ValueError(
                "`tokenizer` must be the spec of a tokenizer. "
                "`Preprocessor.from_folder` reads it from a model folder. "
                f"Received: {messages.shortened(tokenizer)}."
            )
        if tokens_in_text is not None:
            tokenizer = tokenizer_files.with_tokens_in_text(
                tokenizer, tokens_in_text
            )
        self.tokenizer = tokenizer.make()
        self.vocabulary = tokenizer.vocabulary
        self.do_lower_case = tokenizer.do_lower_case
        self.max_seq_length = max_seq_length

    @classmethod
    def from_folder(
        cls,
        folder: files.AnyPath,
        max_seq_length: int | None = None,
        tokens_in_text: str | None = None,
    ) -> "Preprocessor":
        """Reads the vocabulary and the settings of a model folder.

        Args:
            folder: Holds the files of a tokenizer and, like Hugging Face's
                folders, tokenizer_config.json and config.json. Without the
                latter two (Google's releases) the vocabulary tells the case.
            max_seq_length: Length of the sequences; by default the longest
                that the folder's model takes.
            tokens_in_text: As in `Preprocessor`; None for what the folder says.

        Raises:
            ValueError: If the vocabulary is missing or bad, or the settings
                ask for a tokenizer that is not supported.
        """
        folder = str(folder).rstrip("/")
        tokenizer = tokenizer_files.read(folder)
        settings = tokenizer_files.own_settings(folder)
        longest = settings.get("model_max_length", _RELEASED_MAX_LENGTH)
        # Hugging Face writes 10^30 for a length that it does not know.
        longest = min(int(longest), _num_positions(f"{folder}/config.json"))
        with messages.errors_named(folder):
            return cls(
                tokenizer,
                longest if max_seq_length is None else max_seq_length,
                tokens_in_text,
            )

    def check_has_room(self, num_texts: int) -> None:
        """Checks that each text of a sequence gets a token or more.

        Without one, a model would read the same of every text.

        Args:
            num_texts: 1, or 2 for pairs.

        Raises:
            ValueError: If `max_seq_length` is too small.
        """
        num_special = self.vocabulary.special.count(num_texts)
        least = num_special + num_texts
        if self.max_seq_length < least:
            what = "a text" if num_texts == 1 else "a pair of texts"
            raise ValueError(
                f"`max_seq_length` must be at least {least} for {what}: "
                f"{num_special} special tokens, and a token of each text. "
                f"Received: max_seq_length={self.max_seq_length}."
            )

    def __call__(self, texts: Any) -> dict[str, tf.Tensor]:
        columns = texts if isinstance(texts, (tuple, list)) else (texts,)
        if columns and isinstance(columns[0], keras.KerasTensor):
            # Imported here because a layer reads a preprocessor from files.
            from bert_tf.text.preprocessor_layer import PreprocessorLayer

            return PreprocessorLayer(self)(texts)
        return self.encode_with_is_cut(texts)[0]

    def encode_with_is_cut(
        self, texts: Any
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns what a call does, and whether texts were cut.

        Args:
            texts: As in a call.

        Returns:
            A pair: the model inputs, and bool `[batch]`, or a scalar.
        """
        segments = _to_segments(texts)
        shapes = [segment.shape for segment in segments]
        if shapes[0].rank not in (0, 1) or not all(
            shape.rank == shapes[0].rank and shape.is_compatible_with(shapes[0])
            for shape in shapes
        ):
            raise ValueError(
                "`texts` must be strings of shape [batch] or [], of the same "
                "shape if they are two. Received: shapes "
                f"{', '.join(str(shape) for shape in shapes)}."
            )
        is_scalar = shapes[0].rank == 0
        if is_scalar:
            segments = [segment[tf.newaxis] for segment in segments]
        pieces = [self.tokenizer.tokenize(segment) for segment in segments]
        inputs = packing.pack(pieces, self.max_seq_length, self.vocabulary)
        is_cut = packing.is_cut(pieces, self.max_seq_length, self.vocabulary)
        for value in inputs.values():
            value.set_shape([segments[0].shape[0], self.max_seq_length])
        if is_scalar:
            inputs = {name: value[0] for name, value in inputs.items()}
            is_cut = is_cut[0]
        return inputs, is_cut

    def encode_choices(
        self, contexts: Any, choices: Any
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of a `BertMultipleChoice`.

        Each choice is packed with the context as a pair.

        Args:
            contexts: string `[B]`.
            choices: string `[B, C]`: as many choices for each context.

        Returns:
            Dictionary of int32 `[B, C, max_seq_length]`: `input_ids`,
            `input_mask`, `segment_ids`.

        Raises:
            ValueError: If there are not as many choices in every row, or they
                are not strings.
        """
        if not tf.is_tensor(choices):
            counts = sorted({len(row) for row in choices})
            choices = _to_lists("choices", choices).to_tensor()
            if len(counts) > 1:
                raise ValueError(
                    "`choices` must be as many in every row. Received: rows "
                    f"of {', '.join(map(str, counts))}."
                )
        return encode_choices(self, _to_tensor(contexts), choices)

    def encode_words(
        self, sentences: Any, labels: Any = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Returns inputs, labels and weights for a `BertTokenClassifier`.

        They are what `fit(inputs, labels, sample_weight=weights)` takes, and
        what it takes of a data set: `dataset.map(preprocessor.encode_words)`.
        A word's label stands at its first piece, where the model is to predict
        it. A sentence that is too long is cut; `tuning.run` has windows.

        Args:
            sentences: string `[B, (words)]`: lists of words, or a
                `tf.RaggedTensor`. No word is split by its spaces.
            labels: int `[B, (words)]`: the words' classes. None for their
                numbers in the sentence, 0, 1, ...

        Returns:
            A triple: the inputs, a dictionary as of a call; the labels, int32
            `[B, max_seq_length]`; and the weights, float32, 1 where a word
            begins and 0 elsewhere.

        Raises:
            ValueError: If the words are not lists of strings, or there are not
                as many labels.
        """
        words = _to_lists("sentences", sentences)
        labels = _to_word_labels(labels, words)
        pieces = self.tokenizer.for_words().tokenize(words.flat_values)
        pieces = pieces.merge_dims(1, 2)
        lengths = words.with_values(pieces.row_lengths())
        inputs = packing.pack(
            [words.with_values(pieces)], self.max_seq_length, self.vocabulary
        )
        # After [CLS], and the pieces of the sentence's words before.
        before = tf.cumsum(lengths.flat_values, exclusive=True)
        first = tf.gather(tf.concat([before, [0]], 0), words.row_starts())
        rows = words.value_rowids()
        places = 1 + before - tf.gather(first, rows)
        # Words of nothing but control characters have no piece.
        is_read = (lengths.flat_values > 0) & (places < self.max_seq_length - 1)
        index = tf.boolean_mask(tf.stack([rows, places], axis=1), is_read)
        shape = tf.shape(inputs[features.INPUT_IDS], tf.int64)

        def placed(values):
            return tf.scatter_nd(index, tf.boolean_mask(values, is_read), shape)

        return inputs, placed(labels), placed(tf.ones_like(labels, tf.float32))


def encode_choices(
    encode: Callable[[Any], dict[str, tf.Tensor]],
    contexts: tf.Tensor,
    choices: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Is `Preprocessor.encode_choices`, with what encodes pairs.

    Args:
        encode: A `Preprocessor`, or a callable like one.
        contexts: string `[B]`.
        choices: string `[B, C]`.
    """
    num_choices = tf.shape(choices)[1]
    contexts = tf.tile(contexts[:, tf.newaxis], [1, num_choices])
    inputs = encode([tf.reshape(contexts, [-1]), tf.reshape(choices, [-1])])
    encoded = {}
    for name, values in inputs.items():
        length = tf.shape(values)[1]
        encoded[name] = tf.reshape(values, [-1, num_choices, length])
        encoded[name].set_shape([*choices.shape, values.shape[1]])
    return encoded


def _num_positions(config_path):
    """Returns the longest sequence that a configuration, if any, allows."""
    values = files.read_object(config_path) if files.exists(config_path) else {}
    length = values.get("max_position_embeddings", _RELEASED_MAX_LENGTH)
    is_good = type(length) is int
    family = sizes.FAMILIES.get(str(values.get("model_type")), {})
    if is_good and "padding_idx" in family:
        # Positions start after the padding's id.
        padding = values.get("pad_token_id", 1)
        length -= (padding if type(padding) is int else 1) + 1
    if not is_good or length < 1:
        raise ValueError(
            f"{config_path}: `max_position_embeddings` must be a positive "
            "integer, beyond `pad_token_id` + 1 of RoBERTa. Received: "
            "max_position_embeddings="
            f"{messages.shortened(values.get('max_position_embeddings'))}."
        )
    return length


def _to_segments(texts):
    if isinstance(texts, list) and any(isinstance(row, tuple) for row in texts):
        # Two tuples may be rows or columns, which would pair different texts.
        raise ValueError(
            "`texts` must be columns, a tuple (first texts, second texts): "
            "tuple(zip(*rows)) makes them from a list of rows. Received: a "
            "list of tuples."
        )
    is_batch = not isinstance(texts, (tuple, list)) or (
        isinstance(texts, list) and not any(map(_is_batch, texts))
    )
    segments = (texts,) if is_batch else texts
    if len(segments) not in (1, 2):
        raise ValueError(
            "`texts` must be one or two texts per example. "
            f"Received: {len(segments)}."
        )
    return [_to_tensor(segment) for segment in segments]


def _is_batch(item):
    """Returns whether an item of a list is a batch, not a text or missing."""
    if isinstance(item, (str, bytes, float)):
        return False
    shape = getattr(item, "shape", None)
    if shape is None:
        return hasattr(item, "__len__")
    # A tensor whose number of axes is not known is refused as a batch.
    return getattr(shape, "rank", None) != 0 and shape != ()


def _to_word_labels(labels, words):
    """Returns labels as int32 `[W]`, for the words of all sentences."""
    if labels is None:
        labels = tf.ragged.range(words.row_lengths())
    elif not tf.is_tensor(labels):
        counts = words.row_lengths().numpy().tolist()
        for row, (own, count) in enumerate(zip(labels, counts), start=1):
            if len(own) != count:
                raise ValueError(
                    f"`labels`, row {row}: must be as many as the words, "
                    f"{count}. Received: {len(own)}."
                )
        labels = tf.ragged.constant(labels, tf.int32, ragged_rank=1)
    else:
        if not isinstance(labels, tf.RaggedTensor):
            labels = tf.RaggedTensor.from_tensor(labels)
        tf.debugging.assert_equal(
            labels.row_lengths(),
            words.row_lengths(),
            "`labels` must be as many as the words in every row.",
        )
    return tf.cast(labels.flat_values, tf.int32)


def _to_lists(name, lists):
    """Returns lists of strings, which may be a tensor, as `[B, (strings)]`."""
    if isinstance(lists, tf.RaggedTensor):
        return lists
    if tf.is_tensor(lists):
        return tf.RaggedTensor.from_tensor(lists)
    for row, texts in enumerate(lists, start=1):
        if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__"):
            raise ValueError(
                f"`{name}`, row {row}: must be a list of strings. "
                f"Received: {messages.shortened(texts)}."
            )
    strings = [text for texts in lists for text in texts]
    return tf.RaggedTensor.from_row_lengths(
        _to_tensor(strings), [len(texts) for texts in lists]
    )


def _to_tensor(segment):
    try:
        return tf.convert_to_tensor(segment, tf.string)
    except (TypeError, ValueError):
        # E.g. a column with None or NaN. TensorFlow's error names no row.
        texts = _to_array(segment)
        for row, text in enumerate(texts, start=1):
            if isinstance(text, np.ndarray) and not text.ndim:
                text = text.item()
            if tf.is_tensor(text) and text.dtype == tf.string:
                continue
            if not isinstance(text, (str, bytes)):
                raise ValueError(
                    f"`texts`, row {row}: must be a string; an empty one is "
                    f"''. Received: {messages.shortened(text)}."
                ) from None
            try:
                tf.constant(text)
            except ValueError:
                # Half a surrogate pair, as JSON can write it.
                raise ValueError(
                    f"`texts`, row {row}: must be what UTF-8 can hold. "
                    f"Received: {messages.shortened(text)}."
                ) from None
        raise


def _to_array(segment):
    """Returns rows that are not a tensor of strings as an array of objects.

    Raises:
        ValueError: If it has no rows.
    """
    # Ragged and sparse tensors are tensors too, and so are those of numbers.
    has_rows = not tf.is_tensor(segment)
    has_rows = has_rows and not isinstance(segment, tf.data.Dataset)
    if has_rows:
        try:
            return np.atleast_1d(np.asarray(segment, object))
        except (TypeError, ValueError):
            # Keras's symbolic tensors, or lists of arrays of different shapes.
            pass
    received = type(segment).__name__
    if (dtype := getattr(segment, "dtype", None)) is not None:
        received = f"{received} of {getattr(dtype, 'name', dtype)}"
    raise ValueError(
        "`texts` must be strings: a list, an array or a tensor of them. "
        f"Received: {received}."
    ) from None
