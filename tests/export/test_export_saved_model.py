"""The program that exports, as users run it."""

import pytest
import tensorflow as tf

from bert_tf.serving import saved_model
from support import serving_models

PROGRAM = "bert_tf.export.export_saved_model"


def test_exports_a_checked_servable_and_tells_what_it_holds(
    run_program, tmp_path
):
    servable = tmp_path / "vectors"
    for version in (1, 2):
        (servable / str(version)).mkdir(parents=True)
        (servable / str(version) / "saved_model.pb").write_text("")
    (tmp_path / "dev.txt").write_text("a fox\nanother\n")
    process = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('encoder')}",
        f"--export_dir={servable}",
        "--max_seq_length=11",
        "--kind=embedding",
        # The former name is understood.
        "--embedding=cls",
        "--normalize",
        "--serving_precision=bfloat16",
        "--max_text_bytes=70",
        f"--eval_file={tmp_path}/dev.txt",
        "--keep_versions=2",
    )
    assert f"Exported {servable}/3" in process.stdout
    assert "Removed versions: 1" in process.stdout
    assert sorted(path.name for path in servable.iterdir()) == ["2", "3"]
    assert "<- text: string [?]" in process.stdout
    assert "-> embeddings: float32 [?, 8]" in process.stdout
    settings = saved_model.read_settings(servable / "3")
    wanted = {
        "pooling": "cls",
        "normalize": True,
        "prompt": "",
        "count_tokens": False,
        "max_text_bytes": 70,
        "max_windows": None,
    }
    assert wanted.items() <= settings.items()
    stored = tf.train.load_checkpoint(f"{servable}/3/variables/variables")
    dtypes = set(stored.get_variable_to_dtype_map().values())
    assert tf.bfloat16 in dtypes and tf.float32 not in dtypes
    # The price of bfloat16 on the hard texts and the two: some, but not much.
    assert "tolerance 0.1" in process.stdout
    rows = [line.split() for line in process.stdout.splitlines()]
    rows = [row[1:5] for row in rows if "changed" in row]
    assert len(rows) == 4
    for num_texts, difference, num_changed, _ in rows:
        assert (num_texts, num_changed) == ("18", "0")
        assert 1e-4 < float(difference) < 0.1


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ["--format=onnx", "--freeze"],
            "--freeze must not be given with --format=onnx. "
            "Received: --freeze=True.",
        ),
        (
            ["--format=onnx", "--precision=bfloat16"],
            "--precision must not be given with --format=onnx. "
            "Received: --precision=bfloat16.",
        ),
        (
            ["--label_column=a"],
            "--label_column must be given with --eval_file. "
            "Received: --label_column=a.",
        ),
        (
            ["--kind=encoder", "--freeze"],
            "--freeze must be False with --kind=encoder. "
            "Received: --freeze=True.",
        ),
        (
            ["--kind=preprocessor", "--contents=ids"],
            "--contents must be text with --kind=preprocessor. "
            "Received: --contents=ids.",
        ),
    ],
)
def test_refusals_name_options(run_program, tmp_path, flags, message):
    if "--format=onnx" in flags:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    process = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('encoder')}",
        f"--export_dir={tmp_path}/export",
        *flags,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith(f": error: {message}")


def test_lists_of_numbers_are_told_by_their_flag(run_program, tmp_path):
    process = run_program(
        PROGRAM,
        f"--model_dir={tmp_path}/none",
        f"--export_dir={tmp_path}/export",
        "--warmup_batch_sizes=1,8x",
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith(
        ": error: --warmup_batch_sizes must be numbers with commas between. "
        "Received: --warmup_batch_sizes=1,8x."
    )
