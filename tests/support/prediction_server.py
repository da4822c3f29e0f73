"""A small PredictionService over a loaded SavedModel, for tests of clients."""

import concurrent.futures

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers Predict as TensorFlow Serving does."""

    def __init__(self, models):
        self.models = models

    def Predict(self, request, context):  # noqa: N802
        name = request.model_spec.name
        if name not in self.models:
            context.abort(grpc.StatusCode.NOT_FOUND, f"No model {name}.")
        function = self.models[name].signatures[
            request.model_spec.signature_name or "serving_default"
        ]
        outputs = function(
            **{
                key: tf.constant(tf.make_ndarray(value))
                for key, value in request.inputs.items()
            }
        )
        response = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response


def start(models):
    """Returns (server, port) of a server on loopback for {name: model}."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(models), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port
