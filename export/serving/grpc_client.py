r"""Asks TensorFlow Serving over gRPC.

    python export/serving/grpc_client.py --server=localhost:8500 --model=mrpc \
        --feature=sentence1 --feature=sentence2 \
        --text=$'He ran.\tHe was running.'

Needs tensorflow-serving-api, but not bert_tf: copy it and change it.
"""

import contextlib
import os
import sys

from absl import app
from absl import flags

_SERVER = flags.DEFINE_string("server", "localhost:8500", "host:port.")
_MODEL = flags.DEFINE_string("model", None, "The model.", required=True)
_FEATURE = flags.DEFINE_multi_string(
    "feature", ["text"], "Inputs of the signature, in the order of the texts."
)
_TEXT = flags.DEFINE_multi_string(
    "text", None, "A text; pairs are separated by a tab.", required=True
)
_TIMEOUT_SECONDS = flags.DEFINE_float("timeout_seconds", 10.0, "Longest wait.")


def predict(stub, model, inputs, timeout_seconds):
    """Returns {output: array} for {input: list of bytes}."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    for name, strings in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(strings))
    response = stub.Predict(request, timeout_seconds)
    return {
        name: tf.make_ndarray(value) for name, value in response.outputs.items()
    }


@contextlib.contextmanager
def without_notes():
    """Hides what TensorFlow prints about the machine when it is imported."""
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "0":
        yield
        return
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def main(_):
    # The original bytes of the command line, which need not be UTF-8.
    texts = [text.encode("utf-8", "surrogateescape") for text in _TEXT.value]
    rows = [text.split(b"\t") for text in texts]
    if any(len(row) != len(_FEATURE.value) for row in rows):
        sys.exit(
            "grpc_client.py: error: every --text needs one part for each "
            "--feature."
        )
    inputs = dict(zip(_FEATURE.value, map(list, zip(*rows))))
    with without_notes():
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc
    try:
        with grpc.insecure_channel(_SERVER.value) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            answers = predict(
                stub, _MODEL.value, inputs, _TIMEOUT_SECONDS.value
            )
    except grpc.RpcError as error:
        refused = _SERVER.value
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            refused = f"no server answers at {_SERVER.value}"
        details = " ".join((error.details() or "").split())
        sys.exit(f"grpc_client.py: error: {refused}: {details}")
    for index, row in enumerate(rows):
        print(b" | ".join(row).decode("utf-8", "replace"))
        for name, values in sorted(answers.items()):
            value = values[index].tolist() if values.ndim > 1 else values[index]
            print(f"  {name}: {value}")


if __name__ == "__main__":
    app.run(main)
