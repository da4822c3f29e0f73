"""Signatures: what a server's clients send, and what they get back.

Three ways in, for every model:

    serving_default  raw strings, one input a text feature, string [B]
    ids              the model inputs, int32 [B, L], under the names that
                     the module gives them
    examples         serialized tf.Examples whose features are the strings

A SavedModel without tensorflow_text has no strings: there `serving_default`
is what is called `ids` here, and the Examples hold ids. All answers have the
batch as their first axis, which a server's batching needs.
"""

import collections
import functools
import keyword
import re

import tensorflow as tf

from bert_tf import features
from bert_tf.serving import chunks
from bert_tf.text import packing

DEFAULT = "serving_default"
IDS = "ids"
EXAMPLES = "examples"
CLASSIFY = "classify"
REGRESS = "regress"

# TensorFlow Serving's names of its methods; all others are predict.
METHOD_NAMES = {
    CLASSIFY: "tensorflow/serving/classify",
    REGRESS: "tensorflow/serving/regress",
}
# The input that the classify and regress methods prescribe.
METHOD_INPUT = "inputs"


def task_signatures(module, task):
    """Returns the signatures of a fine-tuned model: {name: ConcreteFunction}.

    The answers are `task.decode`'s. Of a classification also `classes` string
    `[B, num_labels]`, the class names in the order of `probabilities`, and a
    signature of the classify method; of a regression one of the regress
    method. Both take serialized Examples as `inputs`.

    Args:
        module: A `ServingModule` whose model answers with logits.
        task: The task, e.g. a `GlueTask`.
    """

    def decode(logits):
        answers = task.decode(logits)
        if task.labels:
            answers["classes"] = _repeat(task.labels, tf.shape(logits)[0])
        return answers

    def answer_ids(inputs):
        return decode(module(inputs, training=False))

    def answer_packed(inputs):
        return decode(chunks.call_module(module, inputs, [task.num_outputs]))

    signatures = make_signatures(
        module, answer_ids, task.text_features, answer_packed=answer_packed
    )
    answer = answer_ids if module.preprocessor is None else answer_packed
    parse = functools.partial(
        _parse_inputs, module, text_features=task.text_features
    )
    serialized = tf.TensorSpec([None], tf.string, name=METHOD_INPUT)
    if task.labels:

        @tf.function(autograph=False)
        def classify(inputs):
            answers = answer(parse(inputs))
            return {
                "classes": answers["classes"],
                "scores": answers["probabilities"],
            }

        signatures[CLASSIFY] = classify.get_concrete_function(serialized)
    else:

        @tf.function(autograph=False)
        def regress(inputs):
            return {"outputs": answer(parse(inputs))["scores"]}

        signatures[REGRESS] = regress.get_concrete_function(serialized)
    return signatures


def encoder_signatures(module, text_features):
    """Returns the signatures of an encoder: {name: ConcreteFunction}.

    The answers are those of the Hub's text API: `pooled_output` and `default`
    (the same) `[B, hidden]`, `sequence_output` `[B, L, hidden]`, and
    `encoder_outputs` `[B, layers, L, hidden]`, an axis where the callable has
    a list; and `input_mask` int32 `[B, L]`, as L is the batch's longest text.

    Args:
        module: A `HubEncoder`.
        text_features: Names of the one or two strings.
    """

    def answer(inputs):
        outputs = module(inputs, training=False)
        return outputs | {
            "encoder_outputs": tf.stack(outputs["encoder_outputs"], axis=1),
            features.INPUT_MASK: tf.identity(inputs[features.INPUT_MASK]),
        }

    return make_signatures(module, answer, text_features)


def make_signatures(
    module, answer, text_features, add_to_answer=None, answer_packed=None
):
    """Returns the three signatures of a model: {name: ConcreteFunction}.

    Args:
        module: A `ServingModule`.
        answer: A function from the module's inputs to {output: tensor}, each
            with the batch as its first axis.
        text_features: Names of the strings.
        add_to_answer: A function (texts, answers) to the answers where they
            are to strings: texts is {name: string [B]}. None for no more than
            `answer` returns.
        answer_packed: What computes the same of inputs that the preprocessor
            packed: padded at their ends, so that rows may be cut. `answer` if
            None.
    """
    answer_packed = answer_packed or answer
    complete = add_to_answer or (lambda texts, answers: answers)

    def answer_texts(texts):
        inputs = _preprocess(module, texts, text_features)
        return complete(texts, answer_packed(inputs))

    ids = of_ids(module, answer)
    if module.preprocessor is not None:
        return {IDS: ids} | of_strings(answer_texts, text_features)

    @tf.function(autograph=False)
    def examples(serialized):
        return answer(_parse_ids(module, serialized))

    return {
        DEFAULT: ids,
        EXAMPLES: examples.get_concrete_function(_serialized_spec()),
    }


def of_ids(module, answer):
    """Returns the signature of ids, a ConcreteFunction.

    Args:
        module: A `ServingModule`.
        answer: A function from the module's inputs to {output: tensor}.
    """

    @tf.function(autograph=False)
    def ids(inputs):
        return answer(inputs)

    return ids.get_concrete_function(module.ids_spec())


def of_strings(answer_texts, text_features):
    """Returns the signatures of strings: `DEFAULT` and `EXAMPLES`.

    Args:
        answer_texts: A function from {name: string [B]} to {output: tensor},
            each with the batch as its first axis.
        text_features: Names of the strings; the strings of a name that is
            there C times are `[B, C]`.
    """

    @tf.function(autograph=False)
    def strings(texts):
        return answer_texts(texts)

    @tf.function(autograph=False)
    def examples(serialized):
        return answer_texts(parse_texts(serialized, text_features))

    return {
        DEFAULT: strings.get_concrete_function(strings_spec(text_features)),
        EXAMPLES: examples.get_concrete_function(_serialized_spec()),
    }


def strings_spec(text_features):
    """Returns the specs of the strings: {name: string [B] or [B, C]}."""
    return {
        name: tf.TensorSpec([None, *shape], tf.string, name=input_name(name))
        for name, shape in _shapes(text_features).items()
    }


def parse_texts(serialized, text_features):
    """Returns {name: string [B] or [B, C]} of serialized Examples."""
    return tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature(shape, tf.string)
            for name, shape in _shapes(text_features).items()
        },
    )


def input_name(text_feature):
    """Returns a text feature's name as the input of a signature.

    TensorFlow wants these to be Python parameters: "question 1" becomes
    "question_1" and "class" "class_". In Examples the name is as it was.
    """
    name = re.sub(r"[^0-9A-Za-z_]", "_", text_feature)
    if not name[:1].isalpha():
        name = f"text_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def _shapes(text_features):
    """Returns {name: shape of its strings in one row}."""
    counts = collections.Counter(text_features)
    return {
        name: [] if count == 1 else [count] for name, count in counts.items()
    }


def _serialized_spec():
    return tf.TensorSpec([None], tf.string, name=EXAMPLES)


def _preprocess(module, texts, text_features):
    texts = [texts[name] for name in text_features]
    inputs = module.preprocessor(texts[0] if len(texts) == 1 else texts)
    return module.from_model_inputs(packing.trim_padding(inputs))


def _parse_inputs(module, serialized, text_features):
    """Returns the module's inputs of serialized Examples."""
    if module.preprocessor is None:
        return _parse_ids(module, serialized)
    texts = parse_texts(serialized, text_features)
    return _preprocess(module, texts, text_features)


def _parse_ids(module, serialized):
    # Any length, filled up with zeros to the batch's longest: ids that the
    # mask hides need not be [PAD].
    spec = {
        name: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        for name in features.MODEL_INPUTS
    }
    inputs = tf.io.parse_example(serialized, spec)
    inputs = {name: tf.cast(value, tf.int32) for name, value in inputs.items()}
    return module.from_model_inputs(packing.trim_padding(inputs))


def _repeat(names, batch_size):
    names = tf.constant(names)
    return tf.tile(names[tf.newaxis], [batch_size, 1])
