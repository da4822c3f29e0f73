r"""Asks TensorFlow Serving over gRPC.

    python export/serving/grpc_client.py --server=localhost:8500 --model=mrpc \
        --feature=sentence1 --feature=sentence2 \
        --text=$'He ran.\tHe was running.'

Needs tensorflow-serving-api, and nothing of bert_tf: copy it and change it.
"""

import grpc
import tensorflow as tf
from absl import app
from absl import flags
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

_SERVER = flags.DEFINE_string("server", "localhost:8500", "host:port.")
_MODEL = flags.DEFINE_string("model", None, "Its name.", required=True)
_FEATURE = flags.DEFINE_multi_string(
    "feature", ["text"], "Inputs of the signature, in the order of the texts."
)
_TEXT = flags.DEFINE_multi_string(
    "text", None, "A text; pairs are separated by a tab.", required=True
)
_TIMEOUT_SECONDS = flags.DEFINE_float("timeout_seconds", 10.0, "A request's.")


def predict(stub, model, inputs, timeout_seconds):
    """Returns {output: array} for {input: list of strings}."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    for name, strings in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(strings))
    response = stub.Predict(request, timeout_seconds)
    return {
        name: tf.make_ndarray(value) for name, value in response.outputs.items()
    }


def main(_):
    rows = [text.split("\t") for text in _TEXT.value]
    if any(len(row) != len(_FEATURE.value) for row in rows):
        raise app.UsageError("Every --text needs one part for each --feature.")
    inputs = dict(zip(_FEATURE.value, map(list, zip(*rows))))
    with grpc.insecure_channel(_SERVER.value) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answers = predict(stub, _MODEL.value, inputs, _TIMEOUT_SECONDS.value)
    for index, row in enumerate(rows):
        print(" | ".join(row))
        for name, values in sorted(answers.items()):
            value = values[index].tolist() if values.ndim > 1 else values[index]
            print(f"  {name}: {value}")


if __name__ == "__main__":
    app.run(main)
