"""The root object of a SavedModel: a model and all that its use needs.

`tf.saved_model.save` writes it. `tf.saved_model.load` returns an object with
the same attributes, without Keras and without this library.
"""

from typing import Any

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.inference.encoder import InferenceEncoder
from bert_tf.serving.inference.encoder import is_known


class TracedModel:
    """A servable's model as one function of model inputs, for answers.

    It is traced once, and all callables and signatures call it: the SavedModel
    holds it only once. If the weights are frozen, it holds their values.

    Attributes:
        outputs: The `tf.TensorSpec`s of what it returns, in its structure.

    Args:
        servable: A `Servable`.

    Call arguments:
        inputs: The model inputs, int32 `[B, L]`, or `[B, C, L]` with choices.

    Returns:
        What the servable's `call_model` returns.
    """

    def __init__(self, servable: Any) -> None:
        are_frozen = servable.options.freeze
        encoder = None
        if is_known(servable.encoder.config):
            encoder = InferenceEncoder(servable.encoder, are_frozen)
        values = []
        if are_frozen:
            values = [
                (weight, weight.numpy())
                for weight in servable.kept_model.weights
            ]

        @tf.function(autograph=False)
        def call(inputs):
            with keras.StatelessScope(state_mapping=values):
                return servable.call_model(inputs, False, encoder)

        names = features.MODEL_INPUTS
        self._call = call.get_concrete_function(
            {name: ids_spec(servable, name) for name in names}
        )
        self.outputs = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype),
            self._call.structured_outputs,
        )

    def __call__(self, inputs: dict[str, tf.Tensor]) -> Any:
        return self._call(
            {name: inputs[name] for name in features.MODEL_INPUTS}
        )


def ids_spec(servable: Any, name: str) -> tf.TensorSpec:
    """Returns the spec of an input of ids: int32 `[B, L]` or `[B, C, L]`."""
    shape = [None, None]
    if servable.num_choices:
        shape.insert(1, servable.num_choices)
    return tf.TensorSpec(shape, tf.int32, name=name)


class ServingModule(tf.__internal__.tracking.AutoTrackable):
    """A Keras model that `tf.saved_model.save` can save as a callable.

    The weights are variables, which can be trained further, or, if frozen,
    constants of the graph. TensorFlow then arranges the matrices for the
    processor once instead of at every call, but copies the graph many times.

    Attributes that survive saving:
        __call__: `(inputs, training=False)`: the model's output for ids, a
            dictionary of int32 `[B, L]`. A frozen model has no
            `training=True`.
        training_call: `(inputs)`: the same with `training=True`, the training
            endpoint for `keras.layers.TFSMLayer`. A frozen model has none.
        variables, trainable_variables: lists of tf.Variable, empty if frozen.
        regularization_losses: an empty list, which loaders look for.
        vocab_file: the vocabulary, an asset.
        do_lower_case: a tf.Variable, whether the model is for lower-cased text.
        preprocessor: a `TextModule`; None if only ids go in.

    Other attributes:
        model: The `TracedModel`.

    Args:
        servable: A `Servable`: model and preprocessor, and how to call them.
        vocab_path: The vocabulary, a local file.
    """

    def __init__(self, servable: Any, vocab_path: str) -> None:
        super().__init__()
        model, preprocessor = servable.kept_model, servable.preprocessor
        are_frozen = servable.options.freeze
        # No part of what is saved, nor is what the functions reach by closures:
        # tf.saved_model.save would walk through Keras's own objects.
        self.model = TracedModel(servable)
        self._call_training = lambda inputs: servable.call_model(inputs, True)
        self.variables = []
        self.trainable_variables = []
        if not are_frozen:
            self.variables = [variable.value for variable in model.variables]
            self.trainable_variables = [
                variable.value
                for part in servable.trained_parts
                for variable in part.trainable_variables
            ]
        self.regularization_losses: list[Any] = []
        self.vocab_file = tf.saved_model.Asset(vocab_path)
        self.do_lower_case = tf.Variable(
            preprocessor.do_lower_case, trainable=False, name="do_lower_case"
        )
        self.preprocessor = (
            TextModule(servable) if servable.takes_text else None
        )
        config = model.config
        self.max_length = config.max_position_embeddings
        self._names = names = servable.input_names
        # Under the names that clients use.
        self._sizes = {names[features.INPUT_IDS]: config.vocab_size}
        # With fewer segments, the model ignores their ids.
        if config.type_vocab_size > 1:
            self._sizes[names[features.SEGMENT_IDS]] = config.type_vocab_size
        self._spec = {name: ids_spec(servable, name) for name in names.values()}
        # Only traced callables survive saving.
        self.__call__.get_concrete_function(self._spec, training=False)
        if not are_frozen:
            self.__call__.get_concrete_function(self._spec, training=True)
            self.training_call.get_concrete_function(self._spec)

    @property
    def encode(self) -> Any:
        """The preprocessor of strings."""
        return self.preprocessor

    def ids_spec(self) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the inputs, {name outside: int32 [B, L]}.

        With choices they are `[B, C, L]`.
        """
        return self._spec

    def take_ids(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns a client's inputs as model inputs, if they are valid."""
        inputs = inputs_lib.check_ids(inputs, self._sizes, self.max_length)
        return {name: inputs[outside] for name, outside in self._names.items()}

    @tf.function(autograph=False)
    def __call__(
        self, inputs: dict[str, tf.Tensor], training: bool = False
    ) -> Any:
        inputs = self.take_ids(inputs_lib.check_shapes(inputs, self._spec))
        return self._call_training(inputs) if training else self.model(inputs)

    @tf.function(autograph=False)
    def training_call(self, inputs: dict[str, tf.Tensor]) -> Any:
        return self(inputs, training=True)


class TextModule(tf.__internal__.tracking.AutoTrackable):
    """A preprocessor with a fixed length, in the form that can be saved.

    Args:
        servable: A `Servable`.

    Call arguments:
        texts: string `[B]`, or a list of two of them if it takes pairs.

    Returns:
        The model inputs, int32 `[B, max_seq_length]`.
    """

    def __init__(self, servable: Any) -> None:
        super().__init__()
        self.tokenizer = servable.preprocessor.tokenizer
        self._max_text_bytes = servable.options.max_text_bytes
        self._preprocess = lambda texts: servable.preprocess(texts)
        # The names that TensorFlow itself would choose: with others, it would
        # trace again on saving.
        texts, *pair = [
            tf.TensorSpec([None], tf.string, name=name)
            for name in ("texts", "texts_0", "texts_1")
        ]
        self.__call__.get_concrete_function(texts)
        if servable.TAKES_PAIRS:
            self.__call__.get_concrete_function(pair)

    @tf.function(autograph=False)
    def __call__(self, texts: Any) -> dict[str, tf.Tensor]:
        return self._preprocess(
            inputs_lib.take_texts(texts, self._max_text_bytes)
        )
