"""The example clients, and the server's configuration files."""

import concurrent.futures
import http.server
import json
import re
import socketserver
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format

from support import paths
from support import serving_models

FOLDER = paths.ROOT / "export" / "serving"


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def grpc_server():
    pytest.importorskip("tensorflow_serving")
    from support import prediction_server

    server, port = prediction_server.start(
        {"pair": serving_models.loaded("pair")}
    )
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait()


def test_grpc_client_prints_the_answers(grpc_server, run_program):
    process = run_program(
        "bert_tf.export.serving.grpc_client",
        f"--server={grpc_server}",
        "--model=pair",
        "--feature=sentence_1",
        "--feature=class_",
        # The byte FF, as Python has it of a command line.
        "--text=the \udcff quick\tlorem",
    )
    lines = process.stdout.splitlines()
    assert lines[0] == "the \ufffd quick | lorem"
    answer = serving_models.loaded("pair").signatures["serving_default"](
        sentence_1=tf.constant([b"the \xff quick"]),
        class_=tf.constant(["lorem"]),
    )
    printed = dict(line.strip().split(": ", 1) for line in lines[1:])
    np.testing.assert_allclose(
        json.loads(printed["probabilities"]),
        answer["probabilities"][0],
        atol=1e-6,
    )
    assert printed["labels"] == repr(answer["labels"][0].numpy())


def test_grpc_client_says_what_is_wrong_in_one_line(grpc_server, run_program):
    for server, text, message in (
        (grpc_server, "a", f"{grpc_server}: "),
        ("127.0.0.1:1", "a", "no server answers at 127.0.0.1:1: "),
        (grpc_server, "a\tb", "every --text needs one part for each --feature"),
    ):
        process = run_program(
            "bert_tf.export.serving.grpc_client",
            f"--server={server}",
            "--model=no_such",
            f"--text={text}",
            check=False,
        )
        assert process.returncode == 1
        assert "Traceback" not in process.stderr
        # TensorFlow, imported before, tells of the machine in an earlier one.
        line = process.stderr.splitlines()[-1]
        assert line.startswith(f"grpc_client.py: error: {message}")


def test_many_clients_at_once_get_their_own_answers(grpc_server):
    import grpc
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    texts = [f"the {'x' * index} quick" for index in range(24)]
    function = serving_models.loaded("pair").signatures["serving_default"]
    wanted = function(
        sentence_1=tf.constant(texts), class_=tf.constant(["lorem"] * 24)
    )["probabilities"]

    with grpc.insecure_channel(grpc_server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def ask(text):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "pair"
            for name, value in (("sentence_1", text), ("class_", "lorem")):
                request.inputs[name].CopyFrom(tf.make_tensor_proto([value]))
            outputs = stub.Predict(request, 60).outputs
            return tf.make_ndarray(outputs["probabilities"])[0]

        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(ask, texts))
    np.testing.assert_allclose(answers, wanted, atol=1e-5)


def test_rest_client_sends_instances():
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802
            size = int(self.headers["Content-Length"])
            received.append((self.path, json.loads(self.rfile.read(size))))
            predictions = [{"labels": "ja"}, {"labels": "nein"}]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"predictions": predictions}).encode())

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            process = run(
                "rest_client.py",
                f"http://127.0.0.1:{server.server_port}",
                "mrpc",
                '{"sentence": "ü"}',
                '{"sentence": ""}',
            )
        finally:
            server.shutdown()
            thread.join()
    assert process.returncode == 0, process.stderr
    assert received == [
        (
            "/v1/models/mrpc:predict",
            {"instances": [{"sentence": "ü"}, {"sentence": ""}]},
        )
    ]
    assert '{"labels": "nein"}' in process.stdout


class NoHttp(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        self.rfile.read(len('{"instances": [{}]}'))
        self.wfile.write(b"\0\0\x06\4\0\0\0\0\0\0\5\0\0@\0\n")


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"error":\n "Servable not found"}')

    def log_message(self, *arguments):
        pass


def test_rest_client_says_what_is_wrong_in_one_line():
    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        answers = [(run("rest_client.py", url, "m", "{}"), '{"error": "Serva')]
        thread.join()
    with socketserver.TCPServer(("127.0.0.1", 0), NoHttp) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        answers.append((run("rest_client.py", url, "m", "{}"), "gRPC has ano"))
        thread.join()
    text = "a text must be a JSON object, in UTF-8. Received: "
    for arguments, message in (
        (("http://127.0.0.1:1", "m", "{}"), "no server answers at http://127"),
        (("http://127.0.0.1:1", "m", "{"), text),
        (("http://127.0.0.1:1", "m", '{"a": "\udcff"}'), text),
    ):
        answers.append((run("rest_client.py", *arguments), message))
    for process, message in answers:
        assert process.returncode == 1
        (line,) = process.stderr.splitlines()
        assert line.startswith("rest_client.py: error: ")
        assert message in line


def read_yaml(name):
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_compose_files_mount_what_the_server_is_told_to_read(processor):
    service = read_yaml("docker-compose.yml")["services"]["serving"]
    volumes, command = service["volumes"], service["command"]
    if processor == "gpu":
        # A command takes the place of another.
        other = read_yaml("docker-compose.gpu.yml")["services"]["serving"]
        assert other["image"] == f"{service['image']}-gpu"
        (device,) = other["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]
        assert "volumes" not in other
        command = other["command"]
    # A mounted file stays the old one when an editor replaces it, and the
    # server is to read its models' again.
    assert volumes == ["./servables:/models:ro", ".:/config:ro"]
    flags = dict(each.removeprefix("--").split("=") for each in command)
    assert flags.pop("enable_batching") == "true"
    assert flags.pop("model_config_file_poll_wait_seconds") == "60"
    # On a GPU nobody has measured it.
    threads = "1" if processor == "cpu" else None
    assert flags.pop("tensorflow_intra_op_parallelism", None) == threads
    assert {*flags} == {
        *("model_config_file", "monitoring_config_file"),
        "batching_parameters_file",
    }
    name = f"batching_parameters_{processor}.txt"
    assert flags["batching_parameters_file"] == f"/config/{name}"
    for path in flags.values():
        folder, name = path.rsplit("/", 1)
        assert folder == "/config"
        assert (FOLDER / name).exists()


def test_prometheus_reads_the_metrics_of_the_server():
    service = read_yaml("docker-compose.yml")["services"]
    added = read_yaml("docker-compose.monitoring.yml")["services"]
    (volume,) = added["prometheus"]["volumes"]
    source, target, _ = volume.split(":")
    assert (FOLDER / source).exists()
    assert target == "/etc/prometheus/prometheus.yml"
    (job,) = read_yaml(source)["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert any(each.endswith(f":{port}") for each in service[name]["ports"])
    monitoring = (FOLDER / "monitoring.config").read_text("utf-8")
    assert (
        re.search(
            r'^prometheus_config {\s+enable: true\s+path: "(.+)"\s+}$',
            monitoring,
            re.MULTILINE,
        )[1]
        == job["metrics_path"]
    )


@pytest.mark.parametrize(
    "name", ["models.config", "models_two_versions.config"]
)
def test_models_are_configured_as_the_server_reads_it(name):
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.config import model_server_config_pb2

    found = text_format.Parse(
        (FOLDER / name).read_text("utf-8"),
        model_server_config_pb2.ModelServerConfig(),
    )
    (model,) = found.model_config_list.config
    assert model.base_path == f"/models/{model.name}"
    # A label is of a version that is loaded.
    versions = model.model_version_policy.specific.versions
    assert {*model.version_labels.values()} <= {*versions}
    assert bool(versions) == ("two_versions" in name)
