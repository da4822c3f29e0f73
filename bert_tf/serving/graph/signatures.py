"""Signatures: what a server's clients send, and what they get back.

Every model can be called in four ways:

    serving_default  raw strings, one input per text feature, string [B]
    examples         serialized tf.Examples whose features are the strings
    ids              the model inputs, int32 [B, L], under the names that
                     the module gives them
    ids_examples     serialized tf.Examples whose features are the model
                     inputs, in rows of any length

A SavedModel without tensorflow_text takes no strings: its `serving_default` is
the `ids` above, and its `examples` are the `ids_examples`. The first axis of
every answer is the batch, which a server's batching needs.
"""

import collections
import dataclasses
import keyword
import re
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.serving.graph import inputs as inputs_lib

DEFAULT = "serving_default"
EXAMPLES = "examples"
IDS_EXAMPLES = "ids_examples"
CLASSIFY = "classify"
REGRESS = "regress"
# What goes into a signature; IDS is also the name of one.
IDS = "ids"
STRINGS = "strings"

# TensorFlow Serving's method names; the method of all others is predict.
METHOD_NAMES = {
    CLASSIFY: "tensorflow/serving/classify",
    REGRESS: "tensorflow/serving/regress",
}


@dataclasses.dataclass(frozen=True)
class Form:
    """What is sent to a signature.

    Args:
        of: `STRINGS` or `IDS`.
        examples: The name of the input if it holds serialized Examples; None
            if every feature is an input of its own.
    """

    of: str
    examples: str | None = None


def make_forms(takes_text: bool) -> dict[str, Form]:
    """Returns {signature: its `Form`} for the signatures of every model.

    Args:
        takes_text: Whether strings go in, or ids only.
    """
    if not takes_text:
        return {DEFAULT: Form(IDS), EXAMPLES: Form(IDS, EXAMPLES)}
    return {
        DEFAULT: Form(STRINGS),
        EXAMPLES: Form(STRINGS, EXAMPLES),
        IDS: Form(IDS),
        IDS_EXAMPLES: Form(IDS, EXAMPLES),
    }


def make_signatures(servable: Any, module: Any) -> dict[str, Any]:
    """Returns a servable's signatures, {name: ConcreteFunction}.

    Args:
        servable: A `Servable`.
        module: Its `MODULE`.
    """
    # Signatures with the same answers share their graph, which is most of what
    # an export traces, writes and loads.
    answers = {
        of: trace_answer(servable, module, of)
        for of in dict.fromkeys(form.of for form in servable.forms.values())
    }
    return {
        name: _trace(
            servable, module, form, servable.outputs[name], answers[form.of]
        )
        for name, form in servable.forms.items()
    }


def _spec(servable, module, of):
    """Returns the specs of what goes into an answer to `of`."""
    if of == IDS:
        return module.ids_spec()
    return strings_spec(servable.text_features)


def trace_answer(servable: Any, module: Any, of: str) -> Any:
    """Returns a function from ids or strings to all that a signature gives.

    Args:
        servable: A `Servable`.
        module: Its `MODULE`, or for strings what has `encode` and `model`.
        of: `IDS` or `STRINGS`.
    """
    names = {
        output.name
        for name, form in servable.forms.items()
        if form.of == of
        for output in servable.outputs[name]
    }

    @tf.function(autograph=False)
    def answer_all(inputs):
        if of == IDS:
            inputs = module.take_ids(inputs)
            answers = servable.answer_ids(inputs, module.model)
        else:
            answers = servable.answer_texts(inputs, module.encode, module.model)
        return {name: answers[name] for name in sorted(names)}

    return answer_all.get_concrete_function(_spec(servable, module, of))


def _trace(servable, module, form, outputs, answer):
    """Returns a signature that checks the shapes of its inputs."""
    spec = _spec(servable, module, form.of)

    def parse(serialized):
        if form.of == IDS:
            inputs = parse_ids(
                serialized, module.max_length, servable.num_choices
            )
            names = servable.input_names
            return {names[name]: value for name, value in inputs.items()}
        return parse_texts(serialized, servable.text_features)

    if form.examples:
        spec = tf.TensorSpec([None], tf.string, name=form.examples)

    @tf.function(autograph=False)
    def signature(inputs):
        inputs = inputs_lib.check_shapes(inputs, spec)
        answers = answer(parse(inputs) if form.examples else inputs)
        return {output.name: answers[output.name] for output in outputs}

    return signature.get_concrete_function(spec)


def strings_spec(text_features: tuple[str, ...]) -> dict[str, tf.TensorSpec]:
    """Returns the specs of the strings: {name: string [B] or [B, C]}."""
    names = input_names(text_features)
    return {
        name: tf.TensorSpec([None, *shape], tf.string, name=names[name])
        for name, shape in _shapes(text_features).items()
    }


def parse_texts(
    serialized: tf.Tensor, text_features: tuple[str, ...]
) -> dict[str, tf.Tensor]:
    """Returns the strings of serialized Examples, {name: [B] or [B, C]}."""
    return tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature(shape, tf.string)
            for name, shape in _shapes(text_features).items()
        },
    )


def parse_ids(
    serialized: tf.Tensor, max_length: int, num_choices: int | None = None
) -> dict[str, tf.Tensor]:
    """Returns the model inputs of serialized Examples: {name: int32}.

    Rows are padded with zeros to the longest of the batch. With choices, each
    feature of an example holds its C rows one after the other, all of the same
    length.

    Args:
        serialized: string `[B]`.
        max_length: The greatest L.
        num_choices: C; None without choices.

    Returns:
        {name: `[B, L]`}, or {name: `[B, C, L]`} with `num_choices`.

    Raises:
        tf.errors.InvalidArgumentError: When the graph runs, if an example's
            features are missing, differ in length, are too long, or do not
            have C rows; or if its C rows begin with different ids, or a mask
            is not 1s followed by 0s.
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
    num_ids = inputs_lib.checked(counts[0], check)
    lengths = tf.repeat(num_ids // num_rows, num_rows)
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
    """Returns inputs `[B, C, L]` if their rows look whole.

    Unpadded rows of different lengths may have as many numbers as C rows of one
    length. Split in the wrong places, they would get an answer all the same.
    """
    first_ids_BC = inputs[features.INPUT_IDS][:, :, 0]
    mask_BCL = inputs[features.INPUT_MASK]
    # As if a 1 came before the first position.
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
            "must begin with one id, and those of "
            f"`{features.INPUT_MASK}` must be 1s followed by 0s; pad shorter "
            "rows with zeros. Received: the rows' first ids and mask sums",
            tf.boolean_mask(first_ids_BC, is_wrong_B),
            tf.boolean_mask(tf.reduce_sum(mask_BCL, axis=2), is_wrong_B),
        ],
    )
    return inputs_lib.checked(inputs, check)


def input_names(text_features: tuple[str, ...]) -> dict[str, str]:
    """Returns {text feature: its name as the input of a signature}.

    TensorFlow wants these to be Python parameters: "question 1" becomes
    "question_1", and "class" becomes "class_". If two become the same, ignoring
    case, the second gets the suffix "_2"; if only the second was a parameter
    already, the first gets it. Examples keep the original names.
    """
    names: dict[str, str] = {}
    # Names that are parameters already come first.
    for feature in sorted(
        dict.fromkeys(text_features), key=lambda name: _parameter(name) != name
    ):
        name = _parameter(feature)
        # TensorFlow takes "Text" and "text" for the same name.
        is_there = name.lower() in map(str.lower, names.values())
        names[feature] = f"{name}_2" if is_there else name
    return names


def _parameter(text_feature):
    name = re.sub(r"[^0-9A-Za-z_]", "_", text_feature)
    if not name[:1].isalpha():
        name = f"text_{name}"
    # TensorFlow's own functions have a parameter `self`.
    is_taken = keyword.iskeyword(name) or name == "self"
    return f"{name}_" if is_taken else name


def _shapes(text_features):
    """Returns {name: shape of its strings in one row}."""
    counts = collections.Counter(text_features)
    return {
        name: [] if count == 1 else [count] for name, count in counts.items()
    }
