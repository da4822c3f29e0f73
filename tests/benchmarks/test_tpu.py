"""The tables of what was compiled for TPUs, and what it would cost."""

import json
import sys

import pytest

from support import paths

BENCHMARKS = paths.ROOT / "benchmarks"


@pytest.fixture
def costs(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import tpu_costs

    yield tpu_costs
    del sys.modules["tpu_costs"]


def test_hours_of_the_paper(costs):
    # 256 * (9e5 * 2e9 + 1e5 * 8e9) operations at half of 4 * 197e12 a second.
    hours = costs.paper_hours({128: 2e9, 512: 8e9}, "v5e", 4, 0.5)
    assert hours == pytest.approx(256 * 2.6e15 / 394e12 / 3600)
    assert hours == pytest.approx(0.4693, abs=1e-4)


def test_twice_the_chips_half_the_hours_and_equal_chip_hours(costs):
    lines = costs.cost_table({"base": {128: 9e10, 512: 4e11}})
    assert len(lines) == 2 + 4
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[2:]
    ]
    assert [row[1:3] for row in rows] == [
        ["v5e-16", "40%"],
        ["v5e-16", "60%"],
        ["v6e-8", "40%"],
        ["v6e-8", "60%"],
    ]
    # 256 * (9e5 * 9e10 + 1e5 * 4e11) = 3.0976e19 operations.
    assert [float(row[3]) for row in rows] == [6.8, 4.5, 2.9, 2.0]
    assert [float(row[4]) for row in rows] == [109, 73, 23, 16]


@pytest.fixture
def run_tables(monkeypatch, run_program, tmp_path):
    """Returns a function that runs the program over what `tmp_path` holds."""
    # Processes have this one's path.
    monkeypatch.syspath_prepend(BENCHMARKS)

    def run(*arguments, check=True):
        return run_program(
            "tpu", f"--results_dir={tmp_path}", *arguments, check=check
        )

    return run


def test_tables_of_stored_cells(tmp_path, run_tables):
    memory = {
        "argument_bytes": 3 * 2**30,
        "output_bytes": 2 * 2**30,
        # Of the results, what is updated in place is among the arguments.
        "alias_bytes": 2 * 2**30,
        "temporary_bytes": 5 * 2**30,
    }
    cells = {
        "base_128_4_v5e": {"flops": 4e11, "model_flops": 5e11, **memory},
        "base_512_2_v5e": {"flops": 9e11, "model_flops": 9e11, **memory},
        "base_128_8_v5e_rematerialize": {"flops": 9e11, "model_flops": 1e12}
        | memory,
        "large_512_2_v6e": {"too_large": "EXHAUSTED: E1: Out of: HBM."},
        "base_128_8_v5e_2x2": {
            "flops": 2e11,
            "num_chips": 4,
            "all_reduces": [7, 1],
            **memory,
        },
    }
    for name, told in cells.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    done = run_tables(
        "--nocompile",
        "--cells=base:128:8:v5e:rematerialize,base:128:4:v5e,"
        "base:512:2:v5e,large:512:2:v6e,"
        "base:128:8:v5e_2x2,tiny:128:8:v5e",
    )
    rows = done.stdout.splitlines()
    assert (
        "| base | 128 | 4 | v5e | kept | 100.0 | 0.80 | 3.00 GiB | 5.00 GiB "
        "| 8.00 GiB | 51% | 10 |"
    ) in rows
    assert (
        "| base | 128 | 8 | v5e | again | 112.5 | 0.90 | 3.00 GiB | 5.00 GiB "
        "| 8.00 GiB | 51% | 20 |"
    ) in rows
    assert "| large | 512 | 2 | v6e | kept | Out of: HBM. |||||||" in rows
    assert "| base | 128 | 8 | 4 v5e | kept | 2 | 8 | 200 | 8.00 GiB |" in rows
    # What the compiler counts where both lengths are there.
    costs = [row for row in rows if "-16 | 40%" in row]
    assert costs[0] == "| base | v5e-16 | 40% | 7.6 | 122 |"
    assert costs[1].startswith("| large, matrix products | v5e-16 | 40% |")
    assert len(costs) == 2


@pytest.mark.parametrize("cell", ["base:128:v5e", "base:128:8:v5e:remat"])
def test_a_wrong_cell_is_named(run_tables, cell):
    done = run_tables("--nocompile", f"--cells={cell}", check=False)
    assert done.returncode == 1
    assert f"--cells={cell}" in done.stdout + done.stderr
