"""The preprocessor of the TF Hub text API, a SavedModel without a model.

https://www.tensorflow.org/hub/common_saved_model_apis/text: called with
strings, it returns the encoder's inputs. `tokenize` and `bert_pack_inputs` are
its two halves, for callers that pack pairs or choose the length themselves.
"""

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
from bert_tf.serving.options import ExportOptions
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor


def _show_ids(answers):
    ids = answers["input_word_ids"][answers["input_mask"] == 1]
    return " ".join(map(str, ids))


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
    input_names = INPUT_NAMES

    @classmethod
    def resolve(
        cls, options: ExportOptions, task: Any, vectors: Any = None
    ) -> ExportOptions:
        # It has no model, and takes strings.
        for name, wanted in (
            ("contents", TEXT),
            ("precision", FLOAT32),
            ("freeze", False),
        ):
            value = getattr(options, name)
            if value != wanted:
                raise ValueError(
                    f"--{name} must be {wanted} with --kind=preprocessor. "
                    f"Received: --{name}={value}."
                )
        return super().resolve(options, task)

    @property
    def forms(self) -> dict[str, signatures.Form]:
        # Ids are its output.
        return {
            name: form
            for name, form in super().forms.items()
            if form.of == signatures.STRINGS
        }

    def make_module(self, vocab_path: str) -> Any:
        return HubPreprocessor(
            self.preprocessor, vocab_path, self.options.max_text_bytes
        )

    def answer_texts(
        self, module: Any, texts: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        texts = [texts[name] for name in self.text_features]
        return module(texts[0] if len(texts) == 1 else texts)

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        return {
            INPUT_NAMES[name]: value.numpy() for name, value in inputs.items()
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
        preprocessor: A `Preprocessor`.
        vocab_path: The vocabulary, a local file.
        max_text_bytes: The most bytes of a text that `__call__` reads; the two
            halves take any length.
    """

    def __init__(
        self, preprocessor: Preprocessor, vocab_path: str, max_text_bytes: int
    ) -> None:
        super().__init__()
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

    def trace(self) -> None:
        """Traces the callables: only traced ones survive saving."""
        strings = tf.TensorSpec([None], tf.string)
        self.__call__.get_concrete_function(strings)
        self.__call__.get_concrete_function([strings, strings])
        self.tokenize.trace()
        for shape in ([None, None, None], [None, None]):
            segment = tf.RaggedTensorSpec(shape, tf.int32)
            for segments in ([segment], [segment, segment]):
                for length in ((), (tf.TensorSpec([], tf.int32),)):
                    self.bert_pack_inputs.get_concrete_function(
                        segments, *length
                    )

    @tf.function(autograph=False)
    def __call__(self, texts: Any) -> dict[str, tf.Tensor]:
        return _rename(self._preprocess(texts))

    @tf.function(autograph=False)
    def bert_pack_inputs(
        self, segments: Any, seq_length: tf.Tensor | int | None = None
    ) -> dict[str, tf.Tensor]:
        return _rename(self._pack(segments, seq_length))


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

    def trace(self):
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


def _rename(inputs):
    return {INPUT_NAMES[name]: value for name, value in inputs.items()}
