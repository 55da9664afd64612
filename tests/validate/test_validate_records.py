import pytest

from gpuscale.evidence.records import (
    ScoredRow,
    quantile,
    row_cells,
    summarise,
    summarise_by,
    unpredicted,
    worst,
)

ROWS = [
    ScoredRow(
        id="a",
        gpu="x",
        quantity="time_us",
        measured=10.0,
        predicted=11.0,
        low=9.0,
        high=12.0,
        classes={"op": "sum"},
    ),
    ScoredRow(
        id="b",
        gpu="x",
        quantity="time_us",
        measured=10.0,
        predicted=8.0,
        low=7.0,
        high=9.0,
        classes={"op": "copy"},
    ),
    ScoredRow(id="c", gpu="y", quantity="time_us", measured=10.0, reason="unknown GPU"),
]


def test_summary_counts_every_row():
    s = summarise(ROWS)
    assert (s.n_rows, s.n_scored, s.n_with_interval) == (3, 2, 2)
    assert s.mape_frac == pytest.approx(0.15)
    assert s.median_frac == pytest.approx(0.15)
    assert s.p90_frac == pytest.approx(0.19)
    assert s.bias_frac == pytest.approx(-0.05)
    assert s.coverage_frac == 0.5


def test_groups_and_left_out_rows():
    assert [(s.name, s.n_rows) for s in summarise_by(ROWS, "gpu")] == [("x", 2), ("y", 1)]
    assert [s.name for s in summarise_by(ROWS, "op")] == ["sum", "copy", "?"]
    assert unpredicted(ROWS) == {"unknown GPU": ["c"]}
    assert [r.id for r in worst(ROWS, 1)] == ["b"]


def test_cells_of_an_unpredicted_row_are_blank():
    cells = row_cells(ROWS[2])
    assert cells["predicted"] == "" and cells["ratio"] == ""
    assert cells["reason"] == "unknown GPU"


def test_no_row_gives_no_number():
    assert summarise([]).mape_frac is None
    with pytest.raises(ValueError, match="nothing"):
        quantile([], 0.5)
