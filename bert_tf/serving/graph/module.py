"""The root object of a SavedModel: a model, and what it needs to be used.

`tf.saved_model.save` writes it and `tf.saved_model.load` gives an object with
the same attributes, without Keras and without this library.
"""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.layers.constant_weights import constant_weights
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph.compiled import CompiledModel


class ModelCaller:
    """A servable's model as the graphs of its answers call it.

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
        """Returns model inputs under their names outside."""
        return {
            outside: inputs[name] for name, outside in self._input_names.items()
        }

    def to_model_inputs(
        self, inputs: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns inputs from outside under their names in the library."""
        return {
            name: inputs[outside] for name, outside in self._input_names.items()
        }

    @property
    def chunk_size(self) -> int | None:
        """As of `chunks.compute_in_chunks`."""
        return None

    def compute(self, inputs: dict[str, tf.Tensor]) -> Any:
        """Returns what a call does of model inputs known to be right."""
        return self._call_model(inputs, False)

    def __call__(self, inputs, training=False):
        return self._call_model(self.to_model_inputs(inputs), training)


class ServingModule(ModelCaller, tf.__internal__.tracking.AutoTrackable):
    """A Keras model as `tf.saved_model.save` keeps it, to be called.

    It keeps its weights as variables, which can be trained on, or frozen, as
    constants of the graph: TensorFlow then arranges the matrices once for the
    processor and not at every call, but copies the graph many times.

    Attributes that survive saving:
        __call__: `(inputs, training=False)`, what the model computes from ids,
            a dictionary of int32 `[B, L]`.
            Frozen not with `training=True`.
        training_call: `(inputs)`, the same with `training=True`: what
            `keras.layers.TFSMLayer` wants for its training endpoint. Not
            frozen.
        variables, trainable_variables: lists of tf.Variable, frozen empty.
        regularization_losses: an empty list, as loaders look for one.
        vocab_file: the vocabulary, an asset.
        do_lower_case: whether it is for lower-cased text, a tf.Variable.
        preprocessor: a `TextModule`, unless only ids go in.

    Args:
        servable: A `Servable`: model, preprocessor, and how they are called.
        vocab_path: The vocabulary, a local file.
    """

    def __init__(self, servable: Any, vocab_path: str) -> None:
        super().__init__(servable)
        model, preprocessor = servable.kept_model, servable.preprocessor
        self._is_frozen = servable.options.is_frozen
        # tf.saved_model.save knows tf.Variables and would otherwise walk
        # through Keras's own objects: it gets the former, and the model is
        # reached only by the functions, as a closure.
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
        self._shapes = (
            servable.row_shape,
            servable.options.jit_lengths,
            servable.options.jit_batch_sizes,
        )
        names, config = self._input_names, model.config
        # By the names that clients know.
        sizes = {names[features.INPUT_IDS]: config.vocab_size}
        # Fewer segments are of no account.
        if config.type_vocab_size > 1:
            sizes[names[features.SEGMENT_IDS]] = config.type_vocab_size
        self._sizes = sizes
        self._padding_id = model.config.padding_idx or 0
        self._compiled: CompiledModel | None = None
        self.regularization_losses: list[Any] = []
        self.vocab_file = tf.saved_model.Asset(vocab_path)
        self.do_lower_case = tf.Variable(
            preprocessor.do_lower_case, trainable=False, name="do_lower_case"
        )
        self.preprocessor = (
            TextModule(servable) if servable.takes_text else None
        )
        # Of choices there is an axis before that of the positions.
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
        row_shape, lengths, batch_sizes = self._shapes
        if batch_sizes:
            # Requests of ids may be longer than texts are read.
            self._compiled = CompiledModel(
                lambda inputs: self._call_model(inputs, False),
                self.to_model_inputs(self.ids_spec()),
                row_shape,
                sorted({*lengths, self.max_length}),
                batch_sizes,
                self._padding_id,
            )
        self.__call__.get_concrete_function(self.ids_spec(), training=False)
        if not self._is_frozen:
            self.__call__.get_concrete_function(self.ids_spec(), training=True)
            self.training_call.get_concrete_function(self.ids_spec())

    def compute(self, inputs: dict[str, tf.Tensor]) -> Any:
        if self._compiled is not None:
            return self._compiled.compute(inputs)
        return super().compute(inputs)

    @property
    def chunk_size(self) -> int | None:
        if self._compiled is not None:
            return self._compiled.chunk_size
        return super().chunk_size

    @tf.function(autograph=False)
    def __call__(self, inputs, training=False):
        inputs = inputs_lib.check_shapes(inputs, self.ids_spec())
        inputs = self.to_model_inputs(
            inputs_lib.check_ids(inputs, self._sizes, self.max_length)
        )
        if self._compiled is not None and not training:
            return self._compiled(inputs)
        return self._call_model(inputs, training)

    @tf.function(autograph=False)
    def training_call(self, inputs: dict[str, tf.Tensor]) -> Any:
        return self(inputs, training=True)

    def _trace_with_constants(self):
        """Returns the one function that holds the weights' values.

        All signatures call it, and so the SavedModel holds them once.
        """
        values = [(weight, weight.numpy()) for weight in self._weights()]
        call_model = self._call_model
        _, _, jit_batch_sizes = self._shapes
        # XLA computes several products of few rows at once: one that is larger
        # takes it longer.
        scope = contextlib.nullcontext if jit_batch_sizes else constant_weights

        @tf.function(autograph=False)
        def answer(inputs):
            with scope(), keras.StatelessScope(state_mapping=values):
                return call_model(inputs, training=False)

        spec = self.to_model_inputs(self.ids_spec())
        return answer.get_concrete_function(spec)


class TextModule(tf.__internal__.tracking.AutoTrackable):
    """A preprocessor with its length fixed, as a SavedModel keeps it.

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
        self._max_text_bytes = servable.options.bounds["max_text_bytes"]
        self._preprocess = lambda texts: servable.preprocess(texts)
        # With the names that TensorFlow gives them: others it would trace once
        # more as it saves.
        texts, *pair = [
            tf.TensorSpec([None], tf.string, name=name)
            for name in ("texts", "texts_0", "texts_1")
        ]
        self.__call__.get_concrete_function(texts)
        if servable.TAKES_PAIRS:
            self.__call__.get_concrete_function(pair)

    @tf.function(autograph=False)
    def __call__(self, texts):
        return self._preprocess(
            inputs_lib.take_texts(texts, self._max_text_bytes)
        )
