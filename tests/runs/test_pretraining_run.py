"""What a pre-training tells of its records."""

import dataclasses
from types import SimpleNamespace

import pytest

from bert_tf.manifest import Manifest
from bert_tf.runs import optimizer
from bert_tf.runs import pretraining_run
from bert_tf.runs.options import OptimizerOptions
from bert_tf.training import checkpointing
from bert_tf.training.settings import RunSettings
from support import pretraining_options


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


def test_card_tells_what_manifests_tell_of_each_phases_records(tmp_path):
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
    given = {"records": ["x"], "learning_rate": 0.5}
    state = SimpleNamespace(step=70, settings=RunSettings(str(tmp_path), given))
    start = SimpleNamespace(
        init_checkpoint="hf:org/name",
        config=SimpleNamespace(
            model_type="bert", num_hidden_layers=2, hidden_size=8
        ),
    )

    def origin_of(sources, is_resumed):
        return pretraining_run._origin(
            SimpleNamespace(optimizer=OptimizerOptions(optimizer="lamb")),
            start,
            state,
            pretraining_run._describe_records(sources),
            is_resumed,
        )

    origin = origin_of([told, told, untold], is_resumed=False)
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
        "diverged": None,
    }

    # Another run may have begun it.
    state.settings.find(40)
    origin = origin_of([untold], is_resumed=True)
    assert not origin.knows_start
    assert origin.data == {"Records from step 40 on": {"Files": 2}}

    # One that found nothing left to train tells of those before it.
    state.settings.write()
    state.settings = RunSettings(
        str(tmp_path), {"records": ["y"], "learning_rate": 7.0}
    )
    state.settings.find(70)
    origin = origin_of([untold], is_resumed=True)
    assert origin.data == {}
    assert origin.settings["learning_rate"] == 0.5
    assert origin.settings["from_step"] == 40


def test_records_of_many_manifests_are_told_as_one():
    manifests = [make_source(seed=i).manifests[0] for i in range(1000)]
    # Of a set in two folders.
    manifests.append(dataclasses.replace(manifests[0], records={"b": {}}))
    source = SimpleNamespace(paths=("a", "b"), manifests=tuple(manifests))
    (told,) = pretraining_run._describe_records([source])
    assert told["Examples"] == "1,234,000"
    assert told["Tokens"] == "56,789,000"


def test_an_evaluation_on_records_of_the_training_says_so(tmp_path, caplog):
    train, dev, other = (
        SimpleNamespace(paths=paths, digest=paths[0] * 8)
        for paths in (("a", "b"), ("b", "c"), ("d",))
    )
    start = SimpleNamespace(init_checkpoint=str(tmp_path))

    def name(eval_source, **options):
        options = pretraining_options.make_options(
            input_file="x/a,b", output_dir="out", **options
        )
        return pretraining_run._name_dataset(
            options, start, [train], eval_source
        )

    told = "a, b, which the model was trained on"
    given = {"do_eval": True, "eval_file": "x/a,b"}
    assert name(train, do_train=True, do_eval=True) == told
    # One file is enough.
    assert name(dev, do_train=True, **given) == told
    assert len(caplog.messages) == 2
    assert "--eval_file names other records" in caplog.messages[0]
    assert name(other, do_train=True, **given) == "a, b"
    # Later, by what the run was begun with.
    records = [pretraining_run._identity(train)]
    folder = tmp_path / checkpointing.FOLDER
    RunSettings(str(folder), {"records": records}).write()
    assert name(train, do_train=False, do_eval=True) == told
    assert name(dev, do_train=False, do_eval=True) == "a, b"
    assert len(caplog.messages) == 3


def resumed_state(folder, step, saved=(), **values):
    """Returns what is asked of a training state that was resumed."""
    settings = RunSettings(str(folder), values)
    settings.find(step)
    return SimpleNamespace(
        step=step,
        output_dir=str(folder),
        settings=settings,
        saved_steps=lambda: list(saved),
    )


def test_the_best_models_card_is_written_before_its_results(
    tmp_path, monkeypatch
):
    """Killed in between, a rerun would not keep the same model again."""
    start = SimpleNamespace(
        config=SimpleNamespace(
            model_type="bert", num_hidden_layers=2, hidden_size=8
        )
    )

    def kill(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretraining_run.model_folder, "write_results", kill)
    with pytest.raises(KeyboardInterrupt):
        pretraining_run._write_results(
            start, str(tmp_path), {"loss": 1.0}, "card", "b"
        )
    assert not (tmp_path / "eval_results.txt").exists()


def test_a_resumed_run_says_that_its_checkpoint_is_not_read(caplog):
    read = []
    pretraining = SimpleNamespace(load_weights=read.append)
    state = SimpleNamespace(
        step=7, restore=lambda: True, log_changes=lambda: None
    )
    start = SimpleNamespace(init_checkpoint="base")
    with caplog.at_level("INFO", logger="bert_tf"):
        assert pretraining_run._begin(start, pretraining, state)
    assert "Resuming from step 7." in caplog.text
    assert "--init_checkpoint=base are not read" in caplog.text
    state.restore = lambda: False
    assert not pretraining_run._begin(start, pretraining, state)
    assert read == ["base"]


@pytest.mark.parametrize("num_steps", [0, 3])
def test_the_optimizer_skips_steps_if_the_options_say_so(num_steps):
    options = OptimizerOptions(num_warmup_steps=2)
    made = optimizer.make(options, 20, "float32", num_steps > 0)
    assert made.skip_nonfinite == (num_steps > 0)


def test_float16_is_not_left_or_entered_on_the_way(tmp_path):
    policies = "mixed_float16", "mixed_bfloat16", "float32"
    for old in policies:
        folder = tmp_path / old
        folder.mkdir()
        resumed_state(folder, 0, mixed_precision=old).settings.write()
        for new in policies:
            state = resumed_state(folder, 2, [2], mixed_precision=new)
            if old == new or "mixed_float16" not in (old, new):
                checkpointing.TrainingState._check_precision(state)
                continue
            with pytest.raises(ValueError) as error:
                checkpointing.TrainingState._check_precision(state)
            assert str(error.value) == (
                f"--mixed_precision must stay as it was, {old}: float16 needs "
                f"a different optimizer. Received: {new}. To continue in it, "
                f"begin in another folder with --init_checkpoint={folder}."
            )
    # A run that begins has nothing to keep to.
    checkpointing.TrainingState._check_precision(
        resumed_state(tmp_path / "new", 0, mixed_precision="mixed_float16")
    )
