"""Options of pre-training: their parts, and what they ask of folders."""

import socket

import pytest

from bert_tf import files
from bert_tf.runs import options as options_lib
from support import pretraining_options

GIVEN = {
    "input_file": "gs://no/where*",
    "output_dir": "gs://no/where",
    "init_checkpoint": "gs://no/checkpoint",
    "do_train": True,
    "tf_data_service": ("grpc://localhost:1",),
}


def test_options_touch_no_file_until_they_are_checked(monkeypatch):
    def fail(*args, **others):
        raise OSError("looked at")

    monkeypatch.setattr(files, "exists", fail)
    monkeypatch.setattr(socket, "create_connection", fail)
    options = pretraining_options.make_options(
        **GIVEN, num_train_steps=5, num_warmup_steps=5
    )
    with pytest.raises(OSError, match="looked at"):
        options.check_places()
    monkeypatch.setattr(files, "exists", lambda path: False)
    with pytest.raises(ValueError, match="--num_warmup_steps must be less th"):
        options.check_places()
    options = pretraining_options.make_options(**GIVEN)
    with pytest.raises(ValueError, match="does not answer at grpc://localhost"):
        options.check_places()


def test_each_option_has_one_place():
    names = []

    def collect(kind):
        for field in options_lib.dataclasses.fields(kind):
            names.append(field.name)
            if options_lib.dataclasses.is_dataclass(field.type):
                collect(field.type)

    collect(options_lib.PretrainingOptions)
    # A part and the option that names its kind.
    twice = {name for name in names if names.count(name) > 1}
    assert twice == {"objective", "optimizer"}
