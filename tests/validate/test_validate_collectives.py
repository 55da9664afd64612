from pathlib import Path

import pytest

import gpuscale
from gpuscale.core.network.calibration import FabricCalibration
from gpuscale.evidence.records import summarise, summarise_by, unpredicted
from gpuscale.evidence.score_parts import TORCH_LAUNCH_S, collective_row, predict_collective_rows
from gpuscale.io.calibration import load_link

DATA = Path(gpuscale.__file__).parent / "data" / "validation" / "collectives.csv"


def test_development_error_is_within_the_target():
    rows = predict_collective_rows(DATA)
    s = summarise(rows)
    assert s.n_rows == s.n_scored + 8 >= 939
    assert s.median_frac < 0.05 and s.p90_frac < 0.20
    assert abs(s.bias_frac) < 0.02
    assert all(g.median_frac < 0.12 for g in summarise_by(rows, "op"))
    assert list(unpredicted(rows)) == ["no measured time"]


def test_about_four_in_five_rows_lie_in_the_80_percent_interval():
    # the interval pools rows held out of the fit with fitted ones
    assert 0.75 <= summarise(predict_collective_rows(DATA)).coverage_frac <= 0.95


def test_groups_beyond_a_rack_scale_domain():
    row = {
        "op": "all_gather",
        "gpu": "GB200",
        "n_gpus": "144",
        "gpus_per_node": "4",
        "fabric": "IB NDR 400G/GPU",
        "size_bytes": "1048576",
    }
    assert collective_row(row, 1).n_in_domain == 72
    assert collective_row({**row, "n_gpus": "16", "fabric": "NVLink5 NVL72"}, 1).n_in_domain == 16
    assert collective_row({**row, "n_gpus": "8", "gpu": "H100"}, 1).n_in_domain == 4


def test_rows_that_cannot_be_predicted_are_named():
    row = {
        "op": "all_reduce",
        "gpu": "H100-SXM",
        "n_gpus": "16",
        "gpus_per_node": "8",
        "fabric": "IB NDR 400G/GPU",
        "size_bytes": "1048576",
        "time_us": "90",
    }
    bad = [{**row, "op": "gossip"}, {**row, "gpu": "abacus"}, {**row, "size_bytes": ""}]
    rows = predict_collective_rows([row, *bad])
    assert 40 < rows[0].predicted < 200 and rows[0].low < rows[0].predicted < rows[0].high
    assert [r.reason for r in rows[1:]] == [
        "unknown collective 'gossip'",
        "unknown GPU 'abacus'",
        "no size",
    ]


def test_a_call_of_torch_starts_later():
    row = {"op": "all-reduce", "gpu": "H100", "n_gpus": "8", "fabric": "NVLink4"}
    one = collective_row({**row, "size_bytes": "1e6", "time_us": "50"}, 1)
    torch = collective_row({**row, "size_bytes": "1e6", "note": "torch.distributed"}, 1)
    fabric = FabricCalibration(load_link("nvlink4"), load_link("infiniband"))
    assert torch.expected_s(fabric) == pytest.approx(one.expected_s(fabric) + TORCH_LAUNCH_S)
