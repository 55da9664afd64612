"""Clock of a board by its power."""

import pytest
from products import expected_matmul_time_s

from gpuscale.io.calibration import load_arch
from gpuscale.io.hardware import load_gpu

PUBLISHED = [  # GPU, TFLOP/s of a large bf16 product, tolerance, source
    ("a100-pcie-80gb", 252.9, 0.12, "stas00/ml-engineering compute/accelerator/README.md"),
    ("a100-sxm-80gb", 271.2, 0.10, "stas00/ml-engineering compute/accelerator/README.md"),
    ("h100-sxm", 792.1, 0.10, "stas00/ml-engineering compute/accelerator/README.md"),
]


def rate(gpu) -> float:
    n = 8192.0
    arch = load_arch(gpu)
    time_s = expected_matmul_time_s(
        n,
        n,
        k=n,
        dtype="bf16",
        arch=arch,
        peak_flop_per_s=gpu.bf16_flop_per_s,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s,
        n_units=gpu.n_compute_units,
    )
    return 2 * n**3 / time_s


@pytest.mark.parametrize(("name", "tflop_per_s", "rel", "source"), PUBLISHED)
def test_large_products_are_as_fast_as_published(name, tflop_per_s, rel, source):
    assert rate(load_gpu(name)) == pytest.approx(tflop_per_s * 1e12, rel=rel), source


def test_less_power_is_never_faster_and_the_measured_board_is_itself():
    sxm = load_gpu("a100-sxm-80gb")
    rates = [rate(sxm.model_copy(update={"tdp_w": w})) for w in (200.0, 300.0, 400.0, 500.0)]
    assert rates == sorted(rates) and rates[0] < rates[2]
    assert rates[2] == pytest.approx(rate(sxm), rel=1e-12)
    assert load_arch(sxm).matmul == load_arch("ampere").matmul
