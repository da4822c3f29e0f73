"""The preprocessor in a Keras model, which then takes strings."""

import os
from typing import Any

import keras

from bert_tf import backend
from bert_tf import features
from bert_tf.text import preprocessor as preprocessor_lib
from bert_tf.text.tokenizers import files as tokenizer_files

# The folder of the tokenizer's files among the assets of a Keras file.
_TOKENIZER = "tokenizer"


@keras.saving.register_keras_serializable(package="bert_tf")
class PreprocessorLayer(keras.layers.Layer):
    """A `Preprocessor` as a layer: strings in, inputs of a model out.

    A preprocessor makes it when it is called with `keras.Input`s. Keras's files
    hold the tokenizer. Keras does not compile a model that contains this layer
    with XLA, which knows no strings.

    Args:
        preprocessor: A `Preprocessor`; None in a copy, which gets it from a
            Keras file.
        max_seq_length: Length of the sequences; None for the preprocessor's.

    Call arguments:
        texts: string `[B]`, or for pairs a tuple of two of them.

    Returns:
        What the preprocessor returns for them.

    Raises:
        ValueError: If Keras has another backend than TensorFlow, or the texts
            have another shape.
    """

    def __init__(
        self,
        preprocessor: "preprocessor_lib.Preprocessor | None" = None,
        max_seq_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        backend.check_is_tensorflow("A preprocessor in a model")
        self.supports_jit = False
        self.preprocessor = preprocessor
        if preprocessor is not None:
            max_seq_length = preprocessor.max_seq_length
        self.max_seq_length = max_seq_length

    def call(self, texts):
        if self.preprocessor is None:
            raise ValueError(
                f"The layer {self.name} must have a tokenizer. Keras copies "
                "none: make the model anew, or load it from its file."
            )
        return self.preprocessor(texts)

    def compute_output_spec(self, texts):
        inputs = keras.tree.flatten(texts)
        for each in inputs:
            if len(each.shape) != 1 or each.dtype != "string":
                raise ValueError(
                    "Texts of a model must be strings [B]: keras.Input((), "
                    f'dtype="string"). Received: {each.dtype} of shape '
                    f"{[*each.shape]}."
                )
        shape = (inputs[0].shape[0], self.max_seq_length)
        return {
            name: keras.KerasTensor(shape, "int32")
            for name in features.MODEL_INPUTS
        }

    def get_config(self):
        return super().get_config() | {"max_seq_length": self.max_seq_length}

    def save_assets(self, dir_path: str) -> None:
        assert self.preprocessor is not None
        tokenizer_files.write(
            os.path.join(dir_path, _TOKENIZER), self.preprocessor.tokenizer.spec
        )

    def load_assets(self, dir_path: str) -> None:
        self.preprocessor = preprocessor_lib.Preprocessor.from_folder(
            os.path.join(dir_path, _TOKENIZER), self.max_seq_length
        )
