"""Exports: versions, whole or not at all, what may be in them."""

import dataclasses
import hashlib
import json
import pathlib
import shutil
import uuid

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import atomic
from bert_tf import checkpoints
from bert_tf import files
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving import exporter
from bert_tf.serving import saved_model
from bert_tf.serving.graph import allowed_ops
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.servable import Source
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import check
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import serving_models
from support.disk import full_disk


def tree(folder):
    return sorted(
        path.relative_to(folder).as_posix()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    )


@pytest.fixture
def fast_save(monkeypatch):
    """Replaces the SavedModel by a small file; returns the list of calls."""
    calls = []
    graph = pathlib.Path(
        serving_models.exported("encoder", "ids"), "saved_model.pb"
    ).read_bytes()

    def write(folder, servable, module, traced):
        calls.append(servable)
        path = pathlib.Path(folder)
        (path / "variables").mkdir()
        (path / "variables" / "variables.index").write_text("ten bytes!")
        (path / "saved_model.pb").write_bytes(graph)

    monkeypatch.setattr(exporter, "make", lambda *_: None)
    monkeypatch.setattr(exporter, "sign", lambda *_: {})
    monkeypatch.setattr(exporter, "write", write)
    return calls


def export(tmp_path, **arguments):
    return export_to(tmp_path / "name", **arguments)


def export_to(export_dir, **arguments):
    return exporter.export(
        serving_models.model_dir("encoder"),
        export_dir,
        ExportOptions(**({"check": False} | arguments)),
    )


def test_special_tokens_in_texts_are_found_if_asked_for(tmp_path):
    vocabulary = serving_models.VOCABULARY
    text = tf.constant(["rain [MASK] sun"])
    found = {}
    for choice in (None, "all"):
        path = export_to(
            tmp_path / str(choice), kind="preprocessor", tokens_in_text=choice
        ).path
        ids = tf.saved_model.load(path)(text)["input_word_ids"].numpy()
        found[choice] = vocabulary.mask_id in ids
        settings = saved_model.read_settings(path)
        assert settings["tokens_in_text"] == (choice or "added")
    assert found == {None: False, "all": True}


def test_export_holds_the_files_of_a_servable():
    path = serving_models.exported("pair")
    assert path.endswith("/pair_text/1")
    assert {
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "assets/vocab.txt",
        "assets.extra/bert_tf.json",
    } <= set(tree(path))
    assert (
        pathlib.Path(path, "assets/vocab.txt").read_text("utf-8")
        == serving_models.VOCABULARY.to_text()
    )
    # Readable for a server that runs as another user.
    assert pathlib.Path(path).stat().st_mode & 0o777 == 0o755
    settings = saved_model.read_settings(path)
    assert settings["text_features"] == ["sentence 1", "class"]
    assert settings["max_seq_length"] == serving_models.MAX_SEQ_LENGTH
    assert settings["contents"] == "text"
    servable = serving_models.servable("pair")
    data = pathlib.Path(serving_models.model_dir("pair"), "model.safetensors")
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    assert settings["weights_sha256"] == {"model.safetensors": digest}
    assert check.other_weights(path, servable) == []
    servable.source = Source(weights_sha256={"other.safetensors": digest})
    names = ["model.safetensors", "other.safetensors"]
    assert check.other_weights(path, servable) == names


def test_versions_count_up_and_none_is_overwritten(tmp_path, fast_save):
    assert export(tmp_path).path == f"{tmp_path}/name/1"
    (tmp_path / "name" / "notes").mkdir()
    (tmp_path / "name" / "7").mkdir()
    assert export(tmp_path).path == f"{tmp_path}/name/8"
    assert len(fast_save) == 2
    assert saved_model.newest(tmp_path / "name").endswith("/8")
    assert saved_model.newest(tmp_path / "name" / "1").endswith("/1")


@pytest.fixture(params=["local", "remote"])
def export_dir(request, tmp_path):
    if request.param == "local":
        return str(tmp_path / "name")
    return f"ram://{uuid.uuid4().hex}/name"


def test_exports_at_once_get_a_version_each(export_dir, fast_save, monkeypatch):
    write = exporter.write
    inner = []

    def write_while_another_exports(*arguments):
        write(*arguments)
        if not inner:
            inner.append(None)
            inner[0] = export_to(export_dir, keep_versions=1)

    export_to(export_dir)
    monkeypatch.setattr(exporter, "write", write_while_another_exports)
    outer = export_to(export_dir, keep_versions=1)
    assert inner[0].path == f"{export_dir}/2"
    assert inner[0].pruned == (1,)
    assert outer.path == f"{export_dir}/3"
    # Neither removes what the other made.
    assert outer.pruned == ()
    assert files.list_folder(export_dir) == ["2", "3"]
    for version in ("2", "3"):
        assert files.exists(f"{export_dir}/{version}/saved_model.pb")


@pytest.mark.parametrize(
    "model, bounds, message",
    [
        (
            "squad",
            {"max_text_bytes": 9, "max_windows": 2},
            "--max_text_bytes must not be given .* --contents=ids",
        ),
        ("pretrainer", {"max_masks": 2, "max_text_bytes": 9}, "^--max_text_b"),
    ],
)
def test_bounds_of_texts_are_refused_where_none_are_taken(
    tmp_path, fast_save, model, bounds, message
):
    def export_ids(bounds):
        is_pretrainer = model == "pretrainer"
        return exporter.export(
            serving_models.model_dir(model),
            tmp_path / "name",
            ExportOptions(
                contents="ids",
                kind="fill_mask" if is_pretrainer else None,
                **bounds,
                check=False,
            ),
        )

    with pytest.raises(ValueError, match=message):
        export_ids(bounds)
    assert fast_save == []
    export_ids({key: bounds[key] for key in bounds if key == "max_masks"})
    (servable,) = fast_save
    assert servable.options.max_masks in (2, None)


def test_a_full_disk_is_an_error_of_the_system(tmp_path):
    serving_models.model_dir("encoder")
    with full_disk(2000), pytest.raises(OSError, match="cannot be written: "):
        export(tmp_path, contents="ids")
    assert tree(tmp_path) == []


def test_what_killed_exporters_left_is_named_and_stays(
    export_dir, fast_save, caplog
):
    is_local = "ram:" not in export_dir
    folders = [".export.abc", ".export.x_1"] if is_local else ["3", "007"]
    for name in folders:
        atomic.write_text(f"{export_dir}/{name}/variables/data", "half")
    # Neither a version, nor one that is being copied, nor another folder.
    atomic.write_text(f"{export_dir}/4/saved_model.pb", "")
    atomic.write_text(f"{export_dir}/notes/a", "")
    atomic.write_text(f"{export_dir}/.6.{uuid.uuid4().hex}.claim", "")
    if not is_local:
        atomic.write_text(f"{export_dir}/6/variables/data", "half")
    with caplog.at_level("WARNING", "absl"):
        export_to(export_dir)
    (line,) = (each for each in caplog.messages if "killed" in each)
    assert f"{export_dir}: incomplete versions: {', '.join(folders)}. " in line
    for name in folders:
        assert files.exists(f"{export_dir}/{name}/variables/data")
    caplog.clear()
    for name in folders:
        files.remove(f"{export_dir}/{name}")
    with caplog.at_level("WARNING", "absl"):
        export_to(export_dir)
    assert not any("killed" in each for each in caplog.messages)


def test_a_version_with_leading_zeros_is_one(export_dir, fast_save):
    for name in ("0001", "9" * 20):
        atomic.write_text(f"{export_dir}/{name}/saved_model.pb", "old")
    assert saved_model.versions(export_dir) == [1]
    assert saved_model.newest(export_dir) == f"{export_dir}/0001"
    exported = export_to(export_dir, keep_versions=1)
    assert exported.path == f"{export_dir}/2"
    assert exported.pruned == (1,)
    assert files.list_folder(export_dir) == ["2", "9" * 20]


def test_a_failing_save_leaves_nothing(tmp_path, fast_save, monkeypatch):
    def write(folder, *_):
        pathlib.Path(folder, "saved_model.pb").write_text("half")
        raise OSError("No space left on device")

    monkeypatch.setattr(exporter, "write", write)
    with pytest.raises(OSError, match="No space"):
        export(tmp_path)
    assert list((tmp_path / "name").iterdir()) == []


def test_an_export_that_answers_otherwise_leaves_nothing(tmp_path, monkeypatch):
    real_write = exporter.write

    def write(folder, servable, *others):
        real_write(folder, servable, *others)
        # The trained model is then not the one that was saved.
        variable = servable.model.classification_head.trainable_variables[0]
        variable.assign(variable.value * 1.01)

    monkeypatch.setattr(exporter, "write", write)
    monkeypatch.setattr(caller, "calling", serving_models.calling)
    with pytest.raises(ValueError, match="does not answer as") as error:
        exporter.export(
            serving_models.model_dir("pair"),
            tmp_path / "name",
            ExportOptions(contents="ids"),
        )
    assert "DIFFERENT" in str(error.value)
    assert list((tmp_path / "name").iterdir()) == []


def test_refused_operations_are_named(monkeypatch):
    path = serving_models.exported("encoder", "ids")
    monkeypatch.setattr(
        allowed_ops, "CORE_OPS", allowed_ops.CORE_OPS - {"Erfc"}
    )
    with pytest.raises(ValueError, match=r"Received: Erfc\.$"):
        saved_model.check_ops(path, has_text=False)


def test_ids_only_holds_no_operation_of_tensorflow_text():
    text_ops, core_ops = saved_model.read_ops(
        serving_models.exported("encoder", "ids")
    )
    assert text_ops == ()
    assert {"MatMul", "Softmax", "ParseExampleV2"} <= set(core_ops)
    path = serving_models.exported("pair")
    text_ops, _ = saved_model.read_ops(path)
    assert text_ops == ("FastWordpieceTokenizeWithOffsets", "NormalizeUTF8")
    with pytest.raises(ValueError, match="FastWordpiece"):
        saved_model.check_ops(path, has_text=False)


def test_report_tells_sizes_and_signatures(tmp_path, fast_save):
    text = str(export(tmp_path, contents="ids"))
    assert f"Exported {tmp_path}/name/1" in text
    assert "variables       0.00 MB" in text
    assert "serving_default (tensorflow/serving/predict)" in text
    assert "<- input_word_ids: int32 [?, ?]" in text
    assert "-> encoder_outputs: float32 [?, 2, ?, 8]" in text


def test_a_regression_of_several_numbers_is_no_classifier(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(serving_models.model_dir("pair"), folder)
    (folder / "task.json").unlink()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["problem_type"] = "regression"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json: `problem_type` must"):
        opening.open_folder(folder)


def test_classifier_without_task_is_served_with_its_label_names(tmp_path):
    model = BertClassifier(serving_models.CONFIG, num_labels=2)
    checkpoints.save(
        tmp_path,
        model,
        WordpieceSpec(serving_models.VOCABULARY),
        serving_models.MAX_SEQ_LENGTH,
        label_names=("rain", "sun"),
    )
    servable = opening.open_folder(tmp_path)
    assert servable.task.labels == ("rain", "sun")
    assert servable.text_features == ("text",)
    assert servable.preprocessor.max_seq_length == serving_models.MAX_SEQ_LENGTH
    servable = opening.open_folder(
        tmp_path, ExportOptions(max_seq_length=11, text_features=["a", "b"])
    )
    assert servable.text_features == ("a", "b")
    assert servable.preprocessor.max_seq_length == 11
    for ours, theirs in zip(
        model.trainable_variables, servable.model.trainable_variables
    ):
        np.testing.assert_array_equal(ours.value, theirs.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"contents": "words"}, "--contents must be one of text, ids"),
        ({"kind": "poem"}, "--kind must be one of task, encoder, .*poem"),
        ({"max_seq_length": 24}, "max_position_embeddings=23"),
        ({"text_features": ["a", "b", "c"]}, "one or two different names"),
        ({"text_features": ["a", "a"]}, "one or two different names"),
        ({"text_features": ["", "b"]}, "neither of them empty"),
        # Two letters would be two names.
        ({"text_features": "ab"}, "--text_features must be names"),
        ({"max_seq_length": 0}, "--max_seq_length must be 3 or more"),
        ({"keep_versions": 0}, "--keep_versions must be positive"),
        ({"top_k": 2}, "given with --kind=encoder"),
        *(
            ({name: value}, f"--{name} must be {expected}.*Received: --{name}=")
            for name, value, expected in (
                ("max_seq_length", "19", "an integer"),
                ("keep_versions", True, "an integer"),
                ("max_accuracy_loss", "5", "a number"),
                ("check", "no", "true or false"),
                ("freeze", 1, "true or false"),
                ("kind", ["encoder"], "one of task, encoder"),
                ("eval_file", 3, "a string"),
                ("text_features", None, "names"),
                ("warmup_batch_sizes", 8, "integers"),
            )
        ),
        (
            {"max_accuracy_loss": float("nan")},
            "--max_accuracy_loss must be a finite number",
        ),
        *(
            ({"kind": "preprocessor", name: value}, f"--{name} must be .*prep")
            for name, value in (
                ("precision", "bfloat16"),
                ("freeze", True),
                ("contents", "ids"),
            )
        ),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export(tmp_path, **arguments)
    assert not (tmp_path / "name").exists()


def test_wrong_arguments_of_an_export():
    folder = serving_models.model_dir("encoder")
    for arguments, message in (
        ((None, "name"), "`model_dir` must be a path. Received: NoneType"),
        ((folder, 3), "`export_dir` must be a path. Received: int"),
        ((folder, ""), "`export_dir` must be a path. Received: ''"),
        ((folder, "name", {}), "must be an ExportOptions. Received: dict"),
    ):
        with pytest.raises(ValueError, match=message):
            exporter.export(*arguments)


def test_numbers_of_numpy_are_stored():
    options = ExportOptions(
        keep_versions=np.int64(7),
        warmup_batch_sizes=np.array([1, 8]),
        top_k=np.int64(3),
        max_masks=np.int32(2),
    )
    values = json.loads(json.dumps(dataclasses.asdict(options)))
    assert ExportOptions.from_dict(values) == options
    assert options.warmup_batch_sizes == (1, 8)


def test_options_that_former_releases_wrote_are_read():
    options = ExportOptions.from_dict(
        {
            "kind": "embedding",
            "settings": {"embedding": "cls", "normalize": True, "prompt": ""},
            "bounds": {"max_text_bytes": 40},
            "is_frozen": True,
            "is_checked": True,
            "is_jit_compiled": False,
            "jit_lengths": [],
            "version": None,
            "timeout_seconds": None,
            "check": [{"signature": "ids"}],
        }
    )
    assert options == ExportOptions(
        kind="embedding",
        pooling="cls",
        normalize=True,
        prompt="",
        max_text_bytes=40,
        freeze=True,
    )


def test_a_path_of_a_check_file_is_stored(tmp_path):
    path = tmp_path / "texts.txt"
    options = ExportOptions(eval_file=path)
    assert options.eval_file == str(path)
    values = json.loads(json.dumps(dataclasses.asdict(options)))
    assert ExportOptions.from_dict(values) == options


def test_what_is_no_model_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="missing"):
        exporter.export(tmp_path / "missing", tmp_path / "name")
    assert not (tmp_path / "name").exists()


def test_text_features_must_be_the_tasks():
    with pytest.raises(ValueError, match="the model, sentence 1,class"):
        serving_models.servable("pair", text_features=["a", "b"])


def test_a_damaged_task_is_named(tmp_path):
    for name in tree(serving_models.model_dir("pair")):
        data = pathlib.Path(serving_models.model_dir("pair"), name).read_bytes()
        (tmp_path / name).write_bytes(data)
    task = json.loads((tmp_path / "task.json").read_text("utf-8"))
    (tmp_path / "task.json").write_text(json.dumps(task | {"family": "poem"}))
    with pytest.raises(ValueError, match=r"task\.json: `family` must be"):
        opening.open_folder(tmp_path)


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b""])
def test_a_damaged_saved_model_is_named(tmp_path, data):
    (tmp_path / "saved_model.pb").write_bytes(data)
    with pytest.raises(ValueError, match=r"saved_model\.pb: "):
        saved_model.read_signatures(tmp_path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("settings", []),
        ("max_seq_length", "19"),
        ("max_seq_length", 2),
        ("text_features", [1]),
        ("warmup_batch_sizes", ["8"]),
        ("freeze", 1),
        ("weights_sha256", ["a"]),
    ],
)
def test_damaged_options_of_an_export_are_named(tmp_path, key, value):
    saved_model.write_settings(tmp_path, {key: value})
    with pytest.raises(ValueError, match=rf"bert_tf\.json: \W+{key}\W* must"):
        saved_model.read_options(tmp_path)


def test_method_names_survive_loading():
    assert "classify" in serving_models.loaded("pair").signatures
