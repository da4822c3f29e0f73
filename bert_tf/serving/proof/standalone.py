"""Calls a SavedModel with tensorflow and tensorflow_text alone.

    python -P standalone.py [--without_text] SAVED_MODEL REQUESTS ANSWERS

This script is never imported. It runs in a process of its own, also under older
releases, to prove that a SavedModel does not need this library.

REQUESTS and ANSWERS are TFRecords of tf.train.Examples whose features are
serialized TensorProtos. A request has the string `signature` and a feature for
each input, and an answer for each output. The version of TensorFlow is printed
at the end. `--without_text` leaves tensorflow_text out.
"""

import importlib
import sys

import tensorflow as tf

SIGNATURE = "signature"


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[0] == "--without_text":
        arguments.pop(0)
    else:
        # Registers its operations.
        importlib.import_module("tensorflow_text")
    saved_model, requests_path, answers_path = arguments
    # The two libraries import some of Keras themselves; calls must add nothing.
    keras_before = _modules_of("keras", "tf_keras")

    signatures = tf.saved_model.load(saved_model).signatures
    with tf.io.TFRecordWriter(answers_path) as writer:
        for record in tf.data.TFRecordDataset(requests_path):
            request = _decode(record.numpy())
            signature = request.pop(SIGNATURE).numpy().decode("utf-8")
            writer.write(_encode(signatures[signature](**request)))
            # The waiting process sees the file grow.
            writer.flush()

    unwanted = _modules_of("keras", "tf_keras") - keras_before
    unwanted |= _modules_of("bert_tf")
    if unwanted:
        sys.exit(f"{saved_model}: imported {', '.join(sorted(unwanted))}.")
    print(tf.__version__)


def _modules_of(*packages):
    return {name for name in sys.modules if name.split(".")[0] in packages}


def _decode(record):
    """Returns the tensors of a serialized tf.train.Example by name."""
    tensors = {}
    example = tf.train.Example.FromString(record)
    for name, feature in example.features.feature.items():
        proto = feature.bytes_list.value[0]
        # A TensorProto's first field is its dtype.
        dtype = tf.as_dtype(_TensorProto.FromString(proto).dtype)
        tensors[name] = tf.io.parse_tensor(proto, dtype)
    return tensors


def _encode(tensors):
    example = tf.train.Example()
    for name, tensor in tensors.items():
        proto = tf.io.serialize_tensor(tensor).numpy()
        example.features.feature[name].bytes_list.value.append(proto)
    return example.SerializeToString()


# The message's class, without importing a private module of TensorFlow.
_TensorProto = type(tf.make_tensor_proto(0))

if __name__ == "__main__":
    main()
