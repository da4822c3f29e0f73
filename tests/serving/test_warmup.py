"""Warm-up requests: messages that a server of the stubs' release reads."""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import exporter
from bert_tf.serving import saved_model
from bert_tf.serving.formats import warmup
from bert_tf.serving.options import ExportOptions
from support import serving_models


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with the graph and settings of an export alone."""

    def make(kind, contents="text"):
        path = serving_models.exported(kind, contents)
        for name in ("saved_model.pb", "assets.extra/bert_tf.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            with open(f"{path}/{name}", "rb") as stream:
                (tmp_path / name).write_bytes(stream.read())
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    "kind, contents", [("pair", "text"), ("regression", "ids")]
)
def test_requests_can_be_replayed(folder, kind, contents):
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.apis import prediction_log_pb2

    path = folder(kind, contents)
    servable = serving_models.servable(
        kind, contents=contents, warmup_batch_sizes=(1, 3)
    )
    described = saved_model.read_signatures(path)
    count = warmup.write_requests(path, servable, "name")
    assert count == 2 * len(described)
    records = tf.data.TFRecordDataset(
        f"{path}/assets.extra/tf_serving_warmup_requests"
    )
    signatures = serving_models.loaded(kind, contents).signatures
    seen = []
    for record in records:
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        method = log.WhichOneof("log_type")
        request = getattr(log, method).request
        name = request.model_spec.signature_name
        assert request.model_spec.name == "name"
        if method == "predict_log":
            inputs = {
                key: tf.make_ndarray(value)
                for key, value in request.inputs.items()
            }
            assert described[name].method_name.endswith("predict")
        else:
            assert described[name].method_name.endswith(
                method.removesuffix("_log")
            )
            examples = request.input.example_list.examples
            inputs = {
                "inputs": np.array(
                    [example.SerializeToString() for example in examples],
                    object,
                )
            }
        answer = signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        seen.append((name, len(next(iter(answer.values())))))
    assert sorted(seen) == sorted(
        (name, size) for name in described for size in (1, 3)
    )


def test_texts_are_as_long_as_can_be(folder):
    servable = serving_models.servable("pair", warmup_batch_sizes=(1,))
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.apis import prediction_log_pb2

    path = folder("pair")
    warmup.write_requests(path, servable, "name")
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(
            f"{path}/assets.extra/tf_serving_warmup_requests"
        )
    ]
    requests = {
        log.predict_log.request.model_spec.signature_name: (
            log.predict_log.request.inputs
        )
        for log in logs
    }
    mask = tf.make_ndarray(requests["ids"]["input_mask"])
    assert mask.tolist() == [[1] * serving_models.MAX_SEQ_LENGTH]
    # The strings are as long: each has a word for every place.
    for name in ("sentence_1", "class_"):
        (text,) = tf.make_ndarray(requests["serving_default"][name])
        assert text.split() == [b"the"] * serving_models.MAX_SEQ_LENGTH


def test_a_text_to_be_filled_in_has_a_mask():
    servable = serving_models.servable("fill_mask", kind="fill_mask")
    (text,) = warmup._longest_row(servable)
    assert text.split() == [b"[MASK]"] + [b"the"] * (
        serving_models.MAX_SEQ_LENGTH - 1
    )


def test_a_full_disk_is_an_os_error(folder):
    path = folder("encoder")
    os.symlink("/dev/full", f"{path}/assets.extra/{warmup.FILE}")
    servable = serving_models.servable("encoder", warmup_batch_sizes=(1,))
    with pytest.raises(OSError, match=f"{warmup.FILE} cannot be written"):
        warmup.write_requests(path, servable, "name")


def test_without_the_stubs_the_error_says_what_to_install(folder, monkeypatch):
    for name in ("tensorflow_serving", "tensorflow_serving.apis"):
        monkeypatch.setitem(sys.modules, name, None)
    servable = serving_models.servable("encoder", warmup_batch_sizes=(1,))
    with pytest.raises(ValueError, match="pip install tensorflow-serving-api"):
        warmup.write_requests(folder("encoder"), servable, "name")


def test_exports_ask_for_the_stubs_before_they_begin(tmp_path, monkeypatch):
    for name in ("tensorflow_serving", "tensorflow_serving.apis"):
        monkeypatch.setitem(sys.modules, name, None)
    options = ExportOptions(warmup_batch_sizes=(1,))
    with pytest.raises(ValueError, match="tensorflow-serving-api"):
        exporter.export("no such model", tmp_path, options)


def test_exports_refuse_wrong_batch_sizes_before_they_begin():
    with pytest.raises(ValueError, match="warmup_batch_sizes=1,0"):
        ExportOptions(warmup_batch_sizes=(1, 0))


def test_exports_refuse_too_many_requests_before_they_begin(tmp_path):
    pytest.importorskip("tensorflow_serving")
    options = ExportOptions(warmup_batch_sizes=range(1, 402))
    folder = tmp_path / "name"
    with pytest.raises(ValueError, match="must be at most 1000"):
        exporter.export(serving_models.model_dir("encoder"), folder, options)
    assert not folder.exists()
