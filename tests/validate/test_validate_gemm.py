from pathlib import Path

import gpuscale
from gpuscale.evidence.records import summarise, unpredicted
from gpuscale.evidence.score_parts import number_format, predict_gemm_rows

DATA = Path(gpuscale.__file__).parent / "data" / "validation" / "gemm.csv"


def test_development_error_is_within_the_target():
    s = summarise(predict_gemm_rows(DATA))
    assert s.n_rows == s.n_scored == 1684
    assert s.median_frac < 0.05 and s.p90_frac < 0.20
    assert abs(s.bias_frac) < 0.01


def test_about_four_in_five_rows_lie_in_the_80_percent_interval():
    # the interval comes from rows held out of the fit, so the fitted rows do somewhat better
    assert 0.75 <= summarise(predict_gemm_rows(DATA)).coverage_frac <= 0.95


def test_names_of_number_formats():
    known = {"float16": "fp16", "fp8_static": "fp8", "int4_wo": "bf16", "w4a16_x": "bf16"}
    assert {n: number_format(n) for n in known} == known
    assert number_format("trits") is None


def test_rows_that_cannot_be_predicted_are_named():
    row = {"m": "8", "n": "8", "k": "8", "dtype": "bfloat16", "gpu": "H100-SXM", "time_us": "5"}
    bad = [{**row, "m": "nan"}, {**row, "gpu": "abacus"}, {**row, "dtype": "trits"}]
    rows = predict_gemm_rows([row, *bad, {**row, "gpu": "A100-SXM", "dtype": "fp8"}])
    assert rows[0].predicted > 0 and rows[0].reason == ""
    assert [r.predicted for r in rows[1:]] == [None] * 4
    assert list(unpredicted(rows)) == [
        "m, n or k is missing or below 1",
        "unknown GPU 'abacus'",
        "unknown number format 'trits'",
        "a100-sxm-80gb offers no fp8",
    ]
