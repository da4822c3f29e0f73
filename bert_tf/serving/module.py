"""The root object of a SavedModel: a model, and what it needs to be used.

`tf.saved_model.save` writes it and `tf.saved_model.load` gives an object with
the same attributes, without Keras and without this library.
"""

import tensorflow as tf

from bert_tf import features


class ServingModule(tf.__internal__.tracking.AutoTrackable):
    """A Keras model as `tf.saved_model.save` keeps it: trainable, callable.

    Attributes that survive saving:
        __call__: `(inputs, training=False)`, what the model computes from ids,
            a dictionary of int32 `[B, L]`.
        training_call: `(inputs)`, the same with `training=True`: what
            `keras.layers.TFSMLayer` wants for its training endpoint.
        variables, trainable_variables: lists of tf.Variable.
        regularization_losses: an empty list, as loaders look for one.
        vocab_file: the vocabulary, an asset.
        do_lower_case: whether it is for lower-cased text, a tf.Variable.
        preprocessor: a `TextModule`, unless only ids go in.

    Args:
        model: A Keras model of this library, called with model inputs.
        preprocessor: The `Preprocessor` that it was trained with.
        vocab_path: The vocabulary, a local file.
        takes_text: Whether the preprocessor goes into the SavedModel: it then
            needs the operations of tensorflow_text to be loaded at all.
        input_names: What the model inputs are called outside:
            {name in `features.MODEL_INPUTS`: other name}.
        encode: What makes model inputs of strings `[B]`; None for the
            preprocessor, which takes pairs too.
    """

    def __init__(
        self,
        model,
        preprocessor,
        vocab_path,
        *,
        takes_text=True,
        input_names=None,
        encode=None,
    ):
        super().__init__()
        # tf.saved_model.save knows tf.Variables and would otherwise walk
        # through Keras's own objects: it gets the former, and the model is
        # reached only by the functions, as a closure.
        self.variables = [variable.value for variable in model.variables]
        self.trainable_variables = [
            variable.value for variable in model.trainable_variables
        ]
        self.regularization_losses = []
        self._call_model = lambda inputs, training: model(
            inputs, training=training
        )
        self.vocab_file = tf.saved_model.Asset(vocab_path)
        self.do_lower_case = tf.Variable(
            preprocessor.do_lower_case, trainable=False, name="do_lower_case"
        )
        self.preprocessor = (
            TextModule(preprocessor, encode) if takes_text else None
        )
        self._input_names = input_names or {
            name: name for name in features.MODEL_INPUTS
        }

    def ids_spec(self):
        """Returns the specs of the inputs: {name outside: int32 [B, L]}."""
        return {
            name: tf.TensorSpec([None, None], tf.int32, name=name)
            for name in self._input_names.values()
        }

    def from_model_inputs(self, inputs):
        """Returns model inputs under their names outside."""
        return {
            outside: inputs[name] for name, outside in self._input_names.items()
        }

    def to_model_inputs(self, inputs):
        """Returns inputs from outside under their names in the library."""
        return {
            name: inputs[outside] for name, outside in self._input_names.items()
        }

    def trace(self):
        """Traces the callables: only traced ones survive saving."""
        for training in (False, True):
            self.__call__.get_concrete_function(
                self.ids_spec(), training=training
            )
        self.training_call.get_concrete_function(self.ids_spec())

    @tf.function(autograph=False)
    def __call__(self, inputs, training=False):
        return self._call_model(self.to_model_inputs(inputs), training)

    @tf.function(autograph=False)
    def training_call(self, inputs):
        return self(inputs, training=True)


def trainable_values(*layers):
    """Returns the trainable variables of Keras layers as tf.Variables."""
    return [
        variable.value
        for layer in layers
        for variable in layer.trainable_variables
    ]


class TextModule(tf.__internal__.tracking.AutoTrackable):
    """A preprocessor with its length fixed, as a SavedModel keeps it.

    Args:
        preprocessor: A `Preprocessor`.
        encode: As of `ServingModule`.

    Call arguments:
        texts: string `[B]`, or without `encode` a list of two of them.

    Returns:
        The model inputs, int32 `[B, max_seq_length]`.
    """

    def __init__(self, preprocessor, encode=None):
        super().__init__()
        self.tokenizer = preprocessor.tokenizer
        self._preprocess = encode or (lambda texts: preprocessor(texts))
        strings = tf.TensorSpec([None], tf.string)
        self.__call__.get_concrete_function(strings)
        if encode is None:
            self.__call__.get_concrete_function([strings, strings])

    @tf.function(autograph=False)
    def __call__(self, texts):
        return self._preprocess(texts)
