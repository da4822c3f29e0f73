"""The preprocessor of the TF Hub text API, a SavedModel without a model.

https://www.tensorflow.org/hub/common_saved_model_apis/text: called with
strings, it returns the encoder's inputs. `tokenize` and `bert_pack_inputs` are
its two halves, for callers that pack pairs or choose the length themselves.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import FLOAT32
from bert_tf.serving.options import TEXT
from bert_tf.text import packing


def _show_ids(answers):
    ids = answers["input_word_ids"][answers["input_mask"] == 1]
    return " ".join(map(str, ids))


def _rename(inputs):
    return {INPUT_NAMES[name]: value for name, value in inputs.items()}


class _Tokenize(tf.__internal__.tracking.AutoTrackable):
    """The first half: strings to ids, and the ids of the special tokens."""

    def __init__(self, preprocessor):
        super().__init__()
        self._tokenizer = preprocessor.tokenizer
        vocabulary = preprocessor.vocabulary
        self._special = {
            "vocab_size": len(vocabulary),
            "padding_id": vocabulary.pad_id,
            "start_of_sequence_id": vocabulary.cls_id,
            "end_of_segment_id": vocabulary.sep_id,
            "mask_id": vocabulary.mask_id,
        }
        self.__call__.get_concrete_function(tf.TensorSpec([None], tf.string))
        self.get_special_tokens_dict.get_concrete_function()

    @tf.function(autograph=False)
    def __call__(self, texts):
        return self._tokenizer.tokenize(texts)

    @tf.function(autograph=False)
    def get_special_tokens_dict(self):
        return {
            name: tf.constant(value, tf.int32)
            for name, value in self._special.items()
        }


class HubPreprocessor(tf.__internal__.tracking.AutoTrackable):
    """Turns strings into the inputs of an encoder of the Hub.

    Attributes that survive saving:
        __call__: `(texts)`: string `[B]`, or a list of two of them, to int32
            `[B, max_seq_length]`: `input_word_ids`, `input_mask`,
            `input_type_ids`.
        tokenize: `(texts)`: string `[B]` to a RaggedTensor int32
            `[B, (words), (pieces)]`; and `tokenize.get_special_tokens_dict()`.
        bert_pack_inputs: `(segments, seq_length)`: a list of one or two
            RaggedTensors int32, `[B, (words), (pieces)]` or `[B, (pieces)]`,
            to what `__call__` returns, of length `seq_length`: an int or int32
            scalar, `max_seq_length` if left out.
        vocab_file: the vocabulary, an asset.
        do_lower_case: a tf.Variable, whether the model is for lower-cased text.

    Args:
        servable: A `Preprocessing`. Its `max_text_bytes` are for `__call__`;
            the two halves take any length.
        vocab_path: The vocabulary, a local file.
    """

    # There is none.
    model = None

    def __init__(self, servable: Any, vocab_path: str) -> None:
        super().__init__()
        preprocessor = servable.preprocessor
        max_text_bytes = servable.options.max_text_bytes
        self.vocab_file = tf.saved_model.Asset(vocab_path)
        self.do_lower_case = tf.Variable(
            preprocessor.do_lower_case, trainable=False, name="do_lower_case"
        )
        self.tokenize = _Tokenize(preprocessor)
        self._preprocess = lambda texts: preprocessor(
            inputs_lib.take_texts(texts, max_text_bytes)
        )
        self._pack = lambda segments, seq_length: packing.pack(
            segments,
            preprocessor.max_seq_length if seq_length is None else seq_length,
            preprocessor.vocabulary,
        )
        # Only traced callables survive saving.
        strings = tf.TensorSpec([None], tf.string)
        self.__call__.get_concrete_function(strings)
        self.__call__.get_concrete_function([strings, strings])
        for shape in ([None, None, None], [None, None]):
            segment = tf.RaggedTensorSpec(shape, tf.int32)
            for segments in ([segment], [segment, segment]):
                for length in ((), (tf.TensorSpec([], tf.int32),)):
                    self.bert_pack_inputs.get_concrete_function(
                        segments, *length
                    )

    @property
    def encode(self) -> Any:
        """The preprocessor of strings."""
        return self

    @tf.function(autograph=False)
    def __call__(self, texts: Any) -> dict[str, tf.Tensor]:
        return _rename(self._preprocess(texts))

    @tf.function(autograph=False)
    def bert_pack_inputs(
        self, segments: Any, seq_length: tf.Tensor | int | None = None
    ) -> dict[str, tf.Tensor]:
        return _rename(self._pack(segments, seq_length))


class Preprocessing(Servable):
    """The encoder's inputs for one or two strings, under the Hub's names."""

    KIND = "preprocessor"
    outputs_of_strings = (
        Output(
            name="input_word_ids",
            dtype="int32",
            axes="max_seq_length",
            meaning="the ids",
            heading="input_word_ids",
            show=_show_ids,
        ),
        Output(
            name="input_mask",
            dtype="int32",
            axes="max_seq_length",
            meaning="1 where there is a token, 0 at padding",
        ),
        Output(
            name="input_type_ids",
            dtype="int32",
            axes="max_seq_length",
            meaning="which of the strings a token belongs to",
        ),
    )
    MODULE = HubPreprocessor
    # It has no model, and takes strings.
    FIXED = {"contents": TEXT, "precision": FLOAT32, "freeze": False}
    input_names = INPUT_NAMES

    @property
    def forms(self) -> dict[str, signatures.Form]:
        # Ids are its output.
        return {
            name: form
            for name, form in super().forms.items()
            if form.of == signatures.STRINGS
        }

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        columns = [texts[name] for name in self.text_features]
        return encode(columns[0] if len(columns) == 1 else columns)

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        return {
            INPUT_NAMES[name]: value.numpy() for name, value in inputs.items()
        }
