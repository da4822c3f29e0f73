"""The coverage report as people read it."""

from bert_tf.checkpoints.report import LEFT_OVER
from bert_tf.checkpoints.report import LOADED
from bert_tf.checkpoints.report import NEW
from bert_tf.checkpoints.report import CoverageEntry
from bert_tf.checkpoints.report import CoverageReport


def test_what_layers_have_alike_is_one_row():
    loaded = [
        CoverageEntry(
            status=LOADED,
            name=f"encoder/layer_{index}/output/kernel",
            shape=(8, 4),
            note=f"bert.encoder.layer.{index}.output.dense.weight",
        )
        for index in (0, 1, 2, 5)
    ]
    others = [
        CoverageEntry(
            status=NEW, name="encoder/layer_3/output/kernel", shape=(8, 4)
        ),
        CoverageEntry(status=LEFT_OVER, name="cls.bias", shape=()),
    ]
    report = CoverageReport(path="here", entries=(*loaded, *others))
    assert [line.split() for line in str(report).splitlines()] == [
        ["status", "name", "shape", "note"],
        [
            "loaded",
            "encoder/layer_{0-2,5}/output/kernel",
            "8x4",
            "bert.encoder.layer.{0-2,5}.output.dense.weight",
        ],
        ["new", "encoder/layer_3/output/kernel", "8x4"],
        ["left", "over", "cls.bias", "scalar"],
        ["here:", "loaded", "4", "tensors;"]
        + ["1", "initialised;", "1", "unused"],
    ]
