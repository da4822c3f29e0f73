"""The benchmark of the layers on a GPU, as far as a CPU can try it."""

import json
import os
import subprocess
import sys

import pytest

from bert_tf.config import BertConfig
from bert_tf.training import health
from support import benchmark_programs
from support import paths


@pytest.fixture(scope="module")
def benchmark():
    with benchmark_programs.imported("gpu_layers") as module:
        yield module


def test_no_gpu_is_one_line(benchmark, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert benchmark.find_gpu() is None
    flags = benchmark.flags.FLAGS
    flags.mark_as_parsed()
    with pytest.raises(SystemExit, match="nvidia-smi finds no GPU") as end:
        benchmark.main([])
    # A string is printed, with the exit status 1.
    assert isinstance(end.value.code, str)


def test_the_settings(benchmark):
    jobs = benchmark.make_jobs("base", 512, 32, "bfloat16", "gpu", True)
    assert [
        (
            job.get("attention"),
            job["library"],
            job["config"]["attention_probs_dropout_prob"],
        )
        for job in jobs.values()
    ] == [
        (0, "bert_tf_jax", 0.1),
        (256, "bert_tf_jax", 0.1),
        ("cudnn", "bert_tf_jax", 0.0),
        (None, "transformers", 0.1),
        (None, "transformers_compiled", 0.1),
        (0, "bert_tf_jax", 0.0),
        (256, "bert_tf_jax", 0.0),
        ("xla", "bert_tf_jax", 0.0),
    ]
    for job in jobs.values():
        assert (job["num_predictions"], job["num_sequences"]) == (76, 8)
    alone = benchmark.make_jobs("base", 512, 32, "bfloat16", "cpu", False)
    assert len(alone) == 5


def test_a_line_of_the_table(benchmark):
    job = benchmark.make_jobs("tiny", 16, 2, "float32", "cpu", False)["whole"]
    answers = [
        {"rows_per_second": rate, "device_peak_bytes": 3 * 2**29}
        for rate in (8.0, 40.0, 20.0)
    ]
    tflops = 20e-12 * health.flops_per_example(
        BertConfig(**job["config"]), 16, job["num_predictions"]
    )
    line = benchmark.table_line("whole", job, answers, 4 * tflops)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        *("whole", "0.1", "100.0 (50.0 to 250.0)", "320"),
        *(f"{tflops:.3g}", "25.0%", "1.5"),
    ]
    for missing, told in (([], "does not run"), (None, "no time")):
        line = benchmark.table_line("whole", job, missing, 1.0)
        assert f"| {told} |" in line
        assert line.count("|") == len(cells) + 1


def test_all_attentions_take_the_same_step_without_tensorflow(benchmark):
    job = benchmark.make_jobs("tiny", 160, 2, "float32", "cpu", False)["whole"]
    job["config"] |= {
        "vocab_size": 37,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    script = (
        "import json, sys\n"
        "sys.modules['tensorflow'] = sys.modules['sklearn'] = None\n"
        "import gpu_layers, pretraining_jax\n"
        "job = json.loads(sys.argv[1])\n"
        "for attention in (0, 128, 'xla'):\n"
        "    made = pretraining_jax.prepare(job | {'attention': attention})\n"
        "    step, state, batch = made\n"
        "    losses = []\n"
        "    for _ in range(2):\n"
        "        loss, state = step(state, batch)\n"
        "        losses.append(float(loss))\n"
        "    print(json.dumps(losses))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, json.dumps(job)],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": f"{benchmark_programs.FOLDER}:{paths.ROOT}",
        },
    )
    assert process.returncode == 0, process.stderr
    whole, chunks, of_jax = map(json.loads, process.stdout.splitlines())
    assert whole[0] != whole[1]
    assert chunks == pytest.approx(whole, rel=1e-5)
    assert of_jax == pytest.approx(whole, rel=1e-5)
