"""What a pre-training tells of its records."""

import dataclasses
from types import SimpleNamespace

from bert_tf.manifest import Manifest
from bert_tf.training import pretraining_run


def make_source(**settings):
    """Returns a source of records with a manifest."""
    manifest = Manifest(
        max_seq_length=64,
        max_predictions_per_seq=10,
        vocab_size=3,
        vocab_sha256="",
        do_lower_case=True,
        settings=settings,
        inputs=[],
        counts={"documents": 3, "examples": 1234, "tokens": 56789},
        records={},
    )
    return SimpleNamespace(paths=("a", "b"), manifests=(manifest,))


def test_card_tells_what_manifests_tell_of_each_phases_records():
    told = make_source(
        objective="full_sentences",
        masking_mode="dynamic",
        masked_lm_prob=0.125,
        do_whole_word_mask=True,
        do_span_mask=False,
        dupe_factor=5,
        tfds_name="wikipedia/20230601.en:1.0.0",
    )
    untold = SimpleNamespace(paths=("a", "b"), manifests=())
    state = SimpleNamespace(
        step=70,
        settings=SimpleNamespace(
            values={"records": ["x"], "learning_rate": 0.5}, since=0
        ),
    )
    start = SimpleNamespace(
        init_checkpoint="hf:org/name",
        config=SimpleNamespace(
            model_type="bert", num_hidden_layers=2, hidden_size=8
        ),
    )
    origin = pretraining_run._origin(
        SimpleNamespace(optimizer="lamb"),
        start,
        state,
        pretraining_run._describe_records([told, told, untold]),
        is_resumed=False,
    )
    assert origin.data == {
        "Records": {
            "Objective": "full_sentences",
            "Masking": "dynamic, 12.5% of the tokens, whole words",
            "Sequence length": 64,
            "Masked tokens, at most": 10,
            "Examples": "1,234",
            "Tokens": "56,789",
            "Documents": "3",
            "Passes over the text": 5,
            "TensorFlow Datasets": "wikipedia/20230601.en:1.0.0",
        },
        "Records 2": {"Files": 2},
    }
    assert origin.datasets == ("wikipedia/20230601.en:1.0.0",)
    assert origin.knows_start
    assert (origin.name, origin.start) == ("bert L-2_H-8", "hf:org/name")
    assert origin.settings["versions"].startswith("bert_tf ")
    del origin.settings["versions"]
    assert origin.settings == {
        "steps": 70,
        "optimizer": "lamb",
        "learning_rate": 0.5,
        "from_step": None,
    }

    # Another run may have begun it.
    state.settings.since = 40
    origin = pretraining_run._origin(
        SimpleNamespace(optimizer="lamb"),
        start,
        state,
        pretraining_run._describe_records([untold]),
        is_resumed=True,
    )
    assert not origin.knows_start
    assert origin.data == {"Records from step 40 on": {"Files": 2}}


def test_records_of_many_manifests_are_told_as_one():
    manifests = [make_source(seed=i).manifests[0] for i in range(1000)]
    # Of a set in two folders.
    manifests.append(dataclasses.replace(manifests[0], records={"b": {}}))
    source = SimpleNamespace(paths=("a", "b"), manifests=tuple(manifests))
    (told,) = pretraining_run._describe_records([source])
    assert told["Examples"] == "1,234,000"
    assert told["Tokens"] == "56,789,000"
