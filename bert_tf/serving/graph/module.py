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


class ModelCaller:
    """A servable's model, as called by the graphs of its answers.

    Args:
        servable: A `Servable`.
    """

    def __init__(self, servable: Any) -> None:
        super().__init__()
        self._input_names = servable.input_names
        self._call_model = lambda inputs, training: servable.call_model(
            inputs, training
        )

    def from_model_inputs(
        self, inputs: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns model inputs under the names that clients use."""
        return {
            outside: inputs[name] for name, outside in self._input_names.items()
        }

    def to_model_inputs(
        self, inputs: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns a client's inputs under their names in the library."""
        return {
            name: inputs[outside] for name, outside in self._input_names.items()
        }

    def compute(self, inputs: dict[str, tf.Tensor]) -> Any:
        """Returns the output for model inputs that are known to be valid."""
        return self._call_model(inputs, False)

    def __call__(
        self, inputs: dict[str, tf.Tensor], training: bool = False
    ) -> Any:
        return self._call_model(self.to_model_inputs(inputs), training)


class ServingModule(ModelCaller, tf.__internal__.tracking.AutoTrackable):
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

    Args:
        servable: A `Servable`: model and preprocessor, and how to call them.
        vocab_path: The vocabulary, a local file.
    """

    def __init__(self, servable: Any, vocab_path: str) -> None:
        super().__init__(servable)
        model, preprocessor = servable.kept_model, servable.preprocessor
        self._is_frozen = servable.options.freeze
        encoder = None
        if is_known(servable.encoder.config):
            encoder = InferenceEncoder(servable.encoder, self._is_frozen)
        self._call_model = lambda inputs, training: servable.call_model(
            inputs, training, encoder
        )
        # tf.saved_model.save would walk through Keras's own objects. It gets
        # only the tf.Variables; the functions reach the model by a closure.
        self.variables = []
        self.trainable_variables = []
        if not self._is_frozen:
            self.variables = [variable.value for variable in model.variables]
            self.trainable_variables = [
                variable.value
                for part in servable.trained_parts
                for variable in part.trainable_variables
            ]
        self._weights = lambda: model.weights
        self.max_length = model.config.max_position_embeddings
        names, config = self._input_names, model.config
        # Under the names that clients use.
        sizes = {names[features.INPUT_IDS]: config.vocab_size}
        # With fewer segments, the model ignores their ids.
        if config.type_vocab_size > 1:
            sizes[names[features.SEGMENT_IDS]] = config.type_vocab_size
        self._sizes = sizes
        self.regularization_losses: list[Any] = []
        self.vocab_file = tf.saved_model.Asset(vocab_path)
        self.do_lower_case = tf.Variable(
            preprocessor.do_lower_case, trainable=False, name="do_lower_case"
        )
        self.preprocessor = (
            TextModule(servable) if servable.takes_text else None
        )
        # With choices, their axis comes before that of the positions.
        self._ids_shape = [None, None] + [None] * bool(servable.num_choices)

    def ids_spec(self) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the inputs, {name outside: int32 [B, L]}.

        With choices they are `[B, C, L]`.
        """
        return {
            name: tf.TensorSpec(self._ids_shape, tf.int32, name=name)
            for name in self._input_names.values()
        }

    def trace(self) -> None:
        """Traces the callables: only traced ones survive saving."""
        if self._is_frozen:
            answer = self._trace_with_constants()
            self._call_model = lambda inputs, training: answer(inputs)
        self.__call__.get_concrete_function(self.ids_spec(), training=False)
        if not self._is_frozen:
            self.__call__.get_concrete_function(self.ids_spec(), training=True)
            self.training_call.get_concrete_function(self.ids_spec())

    @tf.function(autograph=False)
    def __call__(
        self, inputs: dict[str, tf.Tensor], training: bool = False
    ) -> Any:
        inputs = inputs_lib.check_shapes(inputs, self.ids_spec())
        inputs = self.to_model_inputs(
            inputs_lib.check_ids(inputs, self._sizes, self.max_length)
        )
        return self._call_model(inputs, training)

    @tf.function(autograph=False)
    def training_call(self, inputs: dict[str, tf.Tensor]) -> Any:
        return self(inputs, training=True)

    def _trace_with_constants(self):
        """Returns the one function that holds the weights' values.

        All signatures call it, so that the SavedModel holds them only once.
        """
        values = [(weight, weight.numpy()) for weight in self._weights()]
        call_model = self._call_model

        @tf.function(autograph=False)
        def answer(inputs):
            with keras.StatelessScope(state_mapping=values):
                return call_model(inputs, training=False)

        spec = self.to_model_inputs(self.ids_spec())
        return answer.get_concrete_function(spec)


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
