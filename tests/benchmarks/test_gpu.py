"""The benchmark on a GPU, as far as a CPU can try it."""

import dataclasses
import json
import sys

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.training import health
from references import training as reference
from support import benchmark_programs


@pytest.fixture(scope="module")
def benchmark():
    with benchmark_programs.imported("gpu") as module:
        yield module


def make_jobs(benchmark, **options):
    return benchmark.make_jobs(
        "tiny",
        16,
        "float32",
        **{"tokens": 40, "jit_compile": True, "has_peer": True} | options,
    )


def test_no_gpu_is_one_line(benchmark, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    with pytest.raises(SystemExit, match="finds no GPU on this machine") as end:
        benchmark.find_gpu(allows_cpu=False)
    # A string is printed, with the exit status 1.
    assert isinstance(end.value.code, str)
    assert "\n" not in end.value.code
    assert benchmark.find_gpu(allows_cpu=True) is None


def test_settings_have_equally_many_tokens(benchmark):
    jobs = make_jobs(benchmark)
    assert list(jobs) == [
        "bert_tf",
        "bert_tf, packed",
        "bert_tf, XLA",
        "bert_tf, packed, XLA",
        "transformers",
        "transformers_compiled",
    ]
    assert {job["batch_size"] for job in jobs.values()} == {2}
    long = benchmark.make_jobs(
        *("base", 512, "bfloat16"),
        tokens=8192,
        jit_compile=False,
        has_peer=False,
    )
    assert list(long) == ["bert_tf", "bert_tf, packed"]
    assert long["bert_tf"]["batch_size"] == 16
    assert long["bert_tf"]["num_predictions"] == 77
    assert long["bert_tf, packed"]["num_sequences"] == 8


@pytest.mark.slow
def test_a_packed_step_is_compiled(benchmark, monkeypatch):
    job = make_jobs(benchmark)["bert_tf, packed, XLA"]
    config = dataclasses.replace(reference.tiny_config(), num_hidden_layers=1)
    job["config"] = config.to_dict()
    monkeypatch.setattr(sys, "argv", ["", json.dumps(job)])
    import pretraining_bert_tf

    told = pretraining_bert_tf.pretraining_worker.read_job()
    assert (told["num_sequences"], told["jit_compile"]) == (2, True)
    rows = pretraining_bert_tf.pretraining_rows.random_rows(told, 2)
    assert rows["sequence_ids"][1].tolist() == [1] * 8 + [2] * 8
    assert rows["position_ids"][0].tolist() == [*range(8)] * 2
    assert rows["first_positions"].tolist() == [[0, 8]] * 2
    # Of two steps of two rows of 16, without padding.
    assert pretraining_bert_tf.prepare(told)(2) == [0.0, 2 * 2 * 16]


def test_the_tables_numbers(benchmark):
    jobs = make_jobs(benchmark, jit_compile=False)
    answers = {
        "bert_tf": [
            {"rows_per_second": rate, "device_peak_bytes": 3 * 2**29}
            for rate in (8.0, 30.0, 20.0)
        ],
        "bert_tf, packed": [],
        "transformers": [{"rows_per_second": 16.0, "device_peak_bytes": None}],
        "transformers_compiled": [
            {"rows_per_second": 10.0, "device_peak_bytes": None}
        ],
    }
    config = BertConfig(**jobs["bert_tf"]["config"])
    flops = 20 * health.flops_per_example(config, 16, 2)
    lines = benchmark.table_lines(jobs, answers, 2 * flops, 5 * flops)
    first, packed, *peers = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines
    ]
    assert first == [
        *("float32", "16", "bert_tf", "2", "20.0 (8.0 to 30.0)", "320"),
        *(f"{flops / 1e12:.3g}", "50%", "20%", "1.25", "1.5"),
    ]
    assert packed[2:4] == ["bert_tf, packed", "does not run"]
    assert len(packed) == len(first)
    assert [cells[9:] for cells in peers] == [["1.00", "-"], ["0.62", "-"]]


def test_peaks_are_numbers(benchmark):
    assert benchmark.peaks(["bfloat16=989"]) == {"bfloat16": 989e12}
    with pytest.raises(ValueError, match="Received: --peak_tf"):
        benchmark.peaks(["989"])
