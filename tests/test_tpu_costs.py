"""What the paper's pre-training costs on paper, and the table of it."""

import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent / "benchmarks"


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
