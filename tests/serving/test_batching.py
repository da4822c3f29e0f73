"""What TensorFlow Serving does with requests, replayed, and its parameters.

The replay is of tensorflow_serving/batching/batching_session.cc: requests
are put together along the first axis, filled up with copies of the last one's
first row, and the answers cut apart again; large requests are split, and their
answers joined by tensorflow::tensor::Concat.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2

from bert_tf.serving import saved_model
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.proof import check
from bert_tf.serving.proof import requests
from support import paths
from support import serving_models

FOLDER = paths.ROOT / "export" / "serving"
FILES = ("cpu", "gpu", "varying")
# Kinds whose answers are of one width, whatever is in the batch.
FIXED = ("pair", "regression", "choice", "embedding", "preprocessor")


def read_parameters(name):
    """Reads a file as the server does; see its session_bundle_config.proto."""
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto",
        package="serving",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    message = file.message_type.add(name="BatchingParameters")
    field = descriptor_pb2.FieldDescriptorProto
    integer = ".google.protobuf.Int64Value"
    for number, (key, wrapper) in enumerate(
        {
            "max_batch_size": integer,
            "batch_timeout_micros": integer,
            "max_enqueued_batches": integer,
            "num_batch_threads": integer,
            "max_execution_batch_size": integer,
            "enable_large_batch_splitting": ".google.protobuf.BoolValue",
        }.items(),
        start=1,
    ):
        message.field.add(
            name=key,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=wrapper,
            label=field.LABEL_OPTIONAL,
        )
    message.field.add(
        name="allowed_batch_sizes",
        number=20,
        type=field.TYPE_INT64,
        label=field.LABEL_REPEATED,
    )
    message.field.add(
        name="pad_variable_length_inputs",
        number=21,
        type=field.TYPE_BOOL,
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("serving.BatchingParameters")
    )
    text = (FOLDER / f"batching_parameters_{name}.txt").read_text("utf-8")
    return text_format.Parse(text, made())


def pad_with_first_elements(arrays):
    """What the server does with `pad_variable_length_inputs`."""
    shape = np.max([array.shape for array in arrays], axis=0)
    return [
        np.pad(
            array,
            [
                (0, 0),
                *(
                    (0, most - size)
                    for most, size in zip(shape[1:], array.shape[1:])
                ),
            ],
            constant_values=array.flat[0],
        )
        for array in arrays
    ]


def serve(answer, asked, parameters):
    """Returns the answers to requests that meet in one batch.

    Args:
        answer: A signature.
        asked: A list of {input: array}.
        parameters: What `read_parameters` returned.
    """
    sizes = [len(next(iter(request.values()))) for request in asked]
    limit = min(
        [size for size in parameters.allowed_batch_sizes if size >= sum(sizes)],
        default=sum(sizes),
    )
    merged = {}
    for name in asked[0]:
        arrays = [request[name] for request in asked]
        if parameters.pad_variable_length_inputs:
            arrays = pad_with_first_elements(arrays)
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ValueError("different shapes and padding is turned off")
        arrays += [arrays[-1][:1]] * (limit - sum(sizes))
        merged[name] = tf.constant(np.concatenate(arrays))
    limits = np.cumsum(sizes)
    answers = {}
    for name, value in answer(**merged).items():
        assert len(value) == limit
        answers[name] = np.split(value.numpy()[: limits[-1]], limits[:-1])
    return [
        {name: parts[row] for name, parts in answers.items()}
        for row in range(len(asked))
    ]


def join(parts):
    """What the server makes of the answers to the parts of a request."""
    rows = sum(map(len, parts))
    joined = np.zeros([rows, *parts[0].shape[1:]], parts[0].dtype)
    flat = np.concatenate([part.reshape(-1) for part in parts])
    assert len(flat) <= joined.size, "The server ends here."
    joined.reshape(-1)[: len(flat)] = flat
    return joined


@functools.cache
def requests_of(kind, signature):
    """Returns requests of one, two and one rows, of different lengths."""
    servable = check.trained_servable(
        saved_model.read_options(serving_models.exported(kind)),
        serving_models.model_dir(kind),
    )
    strings = [b"the quick", b"lorem, a longer one", b"x", b"b " * 30]
    if kind == "squad":
        # Of equal words the places would have equal scores.
        strings[3] = b"a quick b, lorem the c. x b quick; a lorem c the x " * 2
    if kind == "fill_mask":
        # None has as many masks as the next.
        strings = [b"[MASK] " * row + text for row, text in enumerate(strings)]
    texts = [
        tuple(
            strings[(row + column) % len(strings)]
            for column in range(len(servable.text_features))
        )
        for row in range(len(strings))
    ]
    return [
        requests.make_inputs(signature, servable, part)
        for part in (texts[:1], texts[1:3], texts[3:])
    ]


@pytest.mark.parametrize(
    "kind, signature, file",
    [
        *(
            (*way, file)
            for file in ("cpu", "gpu")
            for way in (
                ("pair", "serving_default"),
                ("pair", "ids_examples"),
                ("pair", "classify"),
                ("choice", "examples"),
                ("choice", "ids_examples"),
            )
        ),
        ("regression", "regress", "gpu"),
        ("embedding", "examples", "gpu"),
        ("encoder", "ids_examples", "varying"),
        ("squad", "serving_default", "varying"),
        ("tagger", "serving_default", "varying"),
        ("fill_mask", "serving_default", "varying"),
        ("token_embeddings", "examples", "varying"),
    ],
)
def test_merged_requests_get_their_own_answers(kind, signature, file):
    answer = serving_models.loaded(kind).signatures[signature]
    asked = requests_of(kind, signature)
    for request, found in zip(
        asked, serve(answer, asked, read_parameters(file)), strict=True
    ):
        alone = answer(**{key: tf.constant(v) for key, v in request.items()})
        for name, wanted in alone.items():
            # The batch's longest is longer than that of one request.
            value = found[name][tuple(map(slice, wanted.shape))]
            if name == "sequence_output" or name == "encoder_outputs":
                mask = alone["input_mask"].numpy()[..., np.newaxis]
                mask = mask if value.ndim == 3 else mask[:, np.newaxis]
                value, wanted = value * mask, wanted * mask
            if value.dtype.kind == "f":
                np.testing.assert_allclose(value, wanted, atol=1e-5)
            else:
                np.testing.assert_array_equal(value, wanted)


def cut_ids(request, length):
    return {name: value[:, :length] for name, value in request.items()}


def test_ids_of_different_lengths_need_examples():
    answer = serving_models.loaded("pair").signatures["ids"]
    _, asked, longest = requests_of("pair", "ids")
    asked = [cut_ids(asked, 17), longest]
    parameters = read_parameters("cpu")
    with pytest.raises(ValueError, match="different shapes"):
        serve(answer, asked, parameters)
    # Filled up by the server they would be answered, wrongly.
    parameters.pad_variable_length_inputs = True
    found, _ = serve(answer, asked, parameters)
    alone = answer(**{key: tf.constant(v) for key, v in asked[0].items()})
    wrong = np.abs(found["probabilities"] - alone["probabilities"])
    assert wrong.max() > 1e-3


@pytest.mark.parametrize("kind", ["pair", "choice"])
def test_split_requests_are_joined(kind):
    answer = serving_models.loaded(kind).signatures["ids_examples"]
    parts = requests_of(kind, "ids_examples")
    found = [
        answer(**{key: tf.constant(v) for key, v in part.items()})
        for part in parts
    ]
    whole = answer(
        examples=tf.constant(np.concatenate([p["examples"] for p in parts]))
    )
    for name, wanted in whole.items():
        joined = join([part[name].numpy() for part in found])
        if wanted.dtype == tf.float32:
            np.testing.assert_allclose(joined, wanted, atol=1e-5)
        else:
            np.testing.assert_array_equal(joined, wanted)


def test_answers_of_other_widths_may_not_be_split():
    parameters = read_parameters("varying")
    assert not parameters.enable_large_batch_splitting.value
    for kind in (
        *(*FIXED, "encoder", "tagger", "fill_mask", "squad"),
        "token_embeddings",
    ):
        described = saved_model.read_signatures(serving_models.exported(kind))
        widths = {
            dimension.size
            for name, signature in described.items()
            # There all rows of a request are of one length anyway.
            if name != signatures.IDS
            for output in signature.outputs.values()
            for dimension in output.tensor_shape.dim[1:]
        }
        assert (-1 in widths) == (kind not in FIXED)


@pytest.mark.parametrize("name", FILES)
def test_parameters_are_what_the_server_starts_with(name):
    parameters = read_parameters(name)
    assert not parameters.pad_variable_length_inputs
    largest = parameters.max_batch_size.value
    if name != "varying":
        assert parameters.enable_large_batch_splitting.value
        assert parameters.max_execution_batch_size.value <= largest
        largest = parameters.max_execution_batch_size.value
    sizes = list(parameters.allowed_batch_sizes)
    assert bool(sizes) == (name == "gpu")
    if sizes:
        # The server refuses to start otherwise.
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == largest


class Ids:
    """As much of a servable, and a module, as signatures of ids need."""

    max_length = 4
    num_choices = 2
    forms = signatures.make_forms(takes_text=False)
    outputs = dict.fromkeys(
        forms,
        [
            Output(name, "int32", "choices length", "")
            for name in ("input_ids", "input_mask", "segment_ids")
        ],
    )

    input_names = {
        name: name for name in ("input_ids", "input_mask", "segment_ids")
    }
    model = None

    def take_ids(self, inputs):
        return inputs

    def answer_ids(self, inputs, model):
        return inputs

    def ids_spec(self):
        return {
            name: tf.TensorSpec([None] * 3, tf.int32, name=name)
            for name in ("input_ids", "input_mask", "segment_ids")
        }


def example(**features):
    message = tf.train.Example()
    for name, values in features.items():
        message.features.feature[name].int64_list.value.extend(values)
    return message.SerializeToString()


def test_examples_of_choices_without_text():
    of = signatures.make_signatures(Ids(), Ids())
    assert set(of) == {"serving_default", "examples"}
    rows = [
        example(
            input_ids=[2, 5, 3, 2, 3, 0],
            input_mask=[1, 1, 1, 1, 1, 0],
            segment_ids=[0] * 6,
        ),
        example(input_ids=[2, 2], input_mask=[1, 1], segment_ids=[0, 1]),
    ]
    found = of["examples"](examples=tf.constant(rows))
    np.testing.assert_array_equal(
        found["input_ids"],
        [[[2, 5, 3], [2, 3, 0]], [[2, 0, 0], [2, 0, 0]]],
    )
    np.testing.assert_array_equal(found["segment_ids"][1, :, 0], [0, 1])
    np.testing.assert_array_equal(
        found["input_mask"],
        [[[1, 1, 1], [1, 1, 0]], [[1, 0, 0], [1, 0, 0]]],
    )
    nothing = of["examples"](examples=tf.zeros([0], tf.string))
    assert nothing["input_ids"].shape == (0, 2, 1)


# Traced once for all tests.
PARSE_IDS = tf.function(signatures.parse_ids, autograph=False)


@pytest.mark.parametrize(
    "features",
    [
        {"input_ids": [2, 3], "input_mask": [1, 1]},
        {"input_ids": [2, 3], "input_mask": [1, 1], "segment_ids": [0]},
        {"input_ids": [2], "input_mask": [1], "segment_ids": [0]},
        dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [1] * 10),
        {"text": [1]},
    ],
)
def test_examples_whose_features_do_not_fit_are_refused(features):
    good = example(input_ids=[2, 3], input_mask=[1, 1], segment_ids=[0, 0])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`input_ids`, .* must have one length, a multiple of 2 .* to 8",
    ):
        PARSE_IDS(tf.constant([good, example(**features)]), 4, 2)


@pytest.mark.parametrize(
    "features",
    [
        # A row of two ids, and then one of four.
        {"input_ids": [2, 3, 2, 5, 6, 3], "input_mask": [1] * 6},
        {"input_ids": [2, 5, 2, 5], "input_mask": [1, 1, 0, 0]},
        {"input_ids": [2, 5, 2, 5], "input_mask": [1, 1, 2, 1]},
        {
            "input_ids": [2, 5, 3, 2, 5, 3],
            "input_mask": [1, 1, 1, 1, 0, 1],
        },
    ],
)
def test_rows_of_choices_that_are_cut_across_are_refused(features):
    num_ids = len(features["input_ids"])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"an Example with choices must begin with one id.*\[\[2 ",
    ):
        PARSE_IDS(
            tf.constant(
                [
                    example(
                        input_ids=[2, 2], input_mask=[1, 1], segment_ids=[0, 0]
                    ),
                    example(**features, segment_ids=[0] * num_ids),
                ]
            ),
            4,
            2,
        )


def test_joined_rows_of_choices_are_not_answered():
    answer = serving_models.loaded("choice").signatures["ids_examples"]
    rows = [[2] + [7] * (length - 2) + [3] for length in (5, 6, 7)]
    ids = [token for row in rows for token in row]
    padded = [token for row in rows for token in row + [0] * (7 - len(row))]
    joined, good = (
        tf.constant(
            [
                example(
                    input_ids=each,
                    input_mask=[int(token > 0) for token in each],
                    segment_ids=[0] * len(each),
                )
            ]
        )
        for each in (ids, padded)
    )
    assert answer(examples=good)["probabilities"].shape == (1, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="with zeros"):
        answer(examples=joined)
