"""Signatures: what a server's clients send, and what they get back.

Four ways in, for every model:

    serving_default  raw strings, one input a text feature, string [B]
    examples         serialized tf.Examples whose features are the strings
    ids              the model inputs, int32 [B, L], under the names that
                     the module gives them
    ids_examples     serialized tf.Examples whose features are the model
                     inputs, each row as long as it is

A SavedModel without tensorflow_text has no strings: there `serving_default`
is what is called `ids` here, and `examples` what is `ids_examples`. All
answers have the batch as their first axis, which a server's batching needs.
"""

import collections
import functools
import keyword
import re

import tensorflow as tf

from bert_tf import features
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.text import packing

DEFAULT = "serving_default"
IDS = "ids"
EXAMPLES = "examples"
IDS_EXAMPLES = "ids_examples"
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
        task: The task, e.g. a `ClassificationTask`.
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

    def classify(serialized):
        answers = answer(parse(serialized))
        return {
            "classes": answers["classes"],
            "scores": answers["probabilities"],
        }

    def regress(serialized):
        return {"outputs": answer(parse(serialized))["scores"]}

    method = CLASSIFY if task.labels else REGRESS
    signatures[method] = _trace(
        classify if task.labels else regress, _serialized_spec(METHOD_INPUT)
    )
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


def make_signatures(module, answer, text_features, answer_packed=None):
    """Returns the four signatures of a model: {name: ConcreteFunction}.

    Args:
        module: A `ServingModule`.
        answer: A function from the module's inputs to {output: tensor}, each
            with the batch as its first axis.
        text_features: Names of the strings.
        answer_packed: What computes the same of inputs that the preprocessor
            packed: padded at their ends, so that rows may be cut. `answer` if
            None.
    """
    answer_packed = answer_packed or answer

    def answer_texts(texts):
        return answer_packed(_preprocess(module, texts, text_features))

    signatures = of_ids(module, answer)
    if module.preprocessor is None:
        return signatures
    return signatures | of_strings(answer_texts, text_features)


def of_ids(module, answer, num_choices=None):
    """Returns the signatures of ids, and of Examples with ids.

    They are `IDS` and `IDS_EXAMPLES`, or, where the module takes no strings,
    `DEFAULT` and `EXAMPLES`.

    Args:
        module: A `ServingModule`.
        answer: A function from the module's inputs to {output: tensor}.
        num_choices: C, where the ids are `[B, C, L]`; None for `[B, L]`.
    """

    def answer_examples(serialized):
        inputs = parse_ids(serialized, module.max_length, num_choices)
        return answer(module.from_model_inputs(inputs))

    takes_text = module.preprocessor is not None
    return {
        IDS if takes_text else DEFAULT: _trace(answer, module.ids_spec()),
        IDS_EXAMPLES if takes_text else EXAMPLES: _trace(
            answer_examples, _serialized_spec()
        ),
    }


def of_strings(answer_texts, text_features):
    """Returns the signatures of strings: `DEFAULT` and `EXAMPLES`.

    Args:
        answer_texts: A function from {name: string [B]} to {output: tensor},
            each with the batch as its first axis.
        text_features: Names of the strings; the strings of a name that is
            there C times are `[B, C]`.
    """
    return {
        DEFAULT: _trace(answer_texts, strings_spec(text_features)),
        EXAMPLES: _trace(
            lambda serialized: answer_texts(
                parse_texts(serialized, text_features)
            ),
            _serialized_spec(),
        ),
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


def parse_ids(serialized, max_length, num_choices=None):
    """Returns the model inputs of serialized Examples: {name: int32}.

    A row may be of any length; it is filled up with zeros to the batch's
    longest. The C rows of an example with choices are of one length, and stand
    in each feature one after the other.

    Args:
        serialized: string `[B]`.
        max_length: The greatest L.
        num_choices: C.

    Returns:
        {name: `[B, L]`, or with `num_choices` `[B, C, L]`}.

    Raises:
        tf.errors.InvalidArgumentError: If an example's features are missing,
            not of one length, too long, or not of C rows, when the graph runs;
            or its C rows do not begin alike, or a mask is not 1s and then 0s.
    """
    ragged = tf.io.parse_example(
        serialized,
        {name: tf.io.RaggedFeature(tf.int64) for name in features.MODEL_INPUTS},
    )
    counts = tf.stack([values.row_lengths() for values in ragged.values()])
    counts = tf.cast(counts, tf.int32)
    num_rows = num_choices or 1
    names = ", ".join(f"`{name}`" for name in ragged)
    is_right = (counts > 0) & tf.equal(counts % num_rows, 0)
    is_right &= tf.equal(counts, counts[0]) & (counts <= num_rows * max_length)
    is_wrong = tf.logical_not(tf.reduce_all(is_right, axis=0))
    check = tf.debugging.Assert(
        tf.reduce_all(is_right),
        [
            f"{names} of an Example must have one length, a multiple of "
            f"{num_rows} from {num_rows} to {num_rows * max_length}. Received: "
            "lengths",
            tf.transpose(tf.boolean_mask(counts, is_wrong, axis=1)),
        ],
    )
    with tf.control_dependencies([] if check is None else [check]):
        lengths = tf.repeat(counts[0] // num_rows, num_rows)
    # An empty batch has no longest row; the pooler needs a first position.
    longest = tf.maximum(tf.reduce_max(lengths), 1)
    inputs = {}
    for name, values in ragged.items():
        rows = tf.RaggedTensor.from_row_lengths(
            tf.cast(values.flat_values, tf.int32), lengths, validate=False
        ).to_tensor(shape=tf.stack([-1, longest]))
        if num_choices:
            shape = [tf.size(serialized), num_choices, longest]
            rows = tf.reshape(rows, tf.stack(shape))
            rows.set_shape([None, num_choices, None])
        inputs[name] = rows
    return _check_rows_of_choices(inputs) if num_choices else inputs


def _check_rows_of_choices(inputs):
    """Returns inputs `[B, C, L]` whose rows are whole, as far as can be told.

    Rows of different lengths, joined without padding, may be as many numbers as
    C rows of one length; cut across, they would be answered all the same.
    """
    first_ids_BC = inputs[features.INPUT_IDS][:, :, 0]
    mask_BCL = inputs[features.INPUT_MASK]
    # Nothing before the first position, as if it were a 1.
    before_BCL = tf.pad(
        mask_BCL[:, :, :-1], [[0, 0], [0, 0], [1, 0]], constant_values=1
    )
    is_whole_BC = (
        tf.equal(first_ids_BC, first_ids_BC[:, :1])
        & tf.equal(mask_BCL[:, :, 0], 1)
        & tf.reduce_all((mask_BCL >= 0) & (mask_BCL <= before_BCL), axis=2)
    )
    is_whole_B = tf.reduce_all(is_whole_BC, axis=1)
    is_wrong_B = tf.logical_not(is_whole_B)
    check = tf.debugging.Assert(
        tf.reduce_all(is_whole_B),
        [
            f"The rows of `{features.INPUT_IDS}` of an Example with choices "
            f"must begin with one id, those of `{features.INPUT_MASK}` be 1s "
            "and then 0s; fill shorter rows up with zeros. Received: the rows' "
            "first ids, and their sums of the mask",
            tf.boolean_mask(first_ids_BC, is_wrong_B),
            tf.boolean_mask(tf.reduce_sum(mask_BCL, axis=2), is_wrong_B),
        ],
    )
    with tf.control_dependencies([] if check is None else [check]):
        return tf.nest.map_structure(tf.identity, inputs)


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


def _trace(answer, spec):
    """Returns a signature, which checks the shapes of its inputs."""

    @tf.function(autograph=False)
    def signature(inputs):
        return answer(inputs_lib.check_shapes(inputs, spec))

    return signature.get_concrete_function(spec)


def _serialized_spec(name=EXAMPLES):
    return tf.TensorSpec([None], tf.string, name=name)


def _preprocess(module, texts, text_features):
    texts = [texts[name] for name in text_features]
    inputs = module.preprocessor(texts[0] if len(texts) == 1 else texts)
    return module.from_model_inputs(packing.trim_padding(inputs))


def _parse_inputs(module, serialized, text_features):
    """Returns the module's inputs of serialized Examples."""
    if module.preprocessor is None:
        inputs = parse_ids(serialized, module.max_length)
        return module.from_model_inputs(inputs)
    texts = parse_texts(serialized, text_features)
    return _preprocess(module, texts, text_features)


def _repeat(names, batch_size):
    names = tf.constant(names)
    return tf.tile(names[tf.newaxis], [batch_size, 1])
