import math
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from products import expected_matmul_time_s

from gpuscale.core.kernel.calibration import (
    ArchCalibration,
    LogAxis,
    ResidualTable,
    matmul_interval_s,
)
from gpuscale.core.kernel.expected import expected_elementwise_time_s
from gpuscale.io.calibration import load_arch
from gpuscale.io.hardware import load_gpu

HOPPER = load_arch("hopper")
H100 = {"n_units": 132, "l2_bytes": 52e6}
DIM = st.floats(1, 2**18)


def h100(m, n, k, dtype="bf16", arch=HOPPER, peak=989.4e12, bw=3.35e12, **kw):
    return expected_matmul_time_s(m, n, k, dtype, arch, peak, bw, **H100, **kw)


@given(DIM, DIM, DIM, st.sampled_from(["bf16", "fp8", "fp8-block", "nvfp4", "int8"]))
def test_never_below_the_roofline(m, n, k, dtype):
    w = {"bf16": 2.0, "nvfp4": 0.5625}.get(dtype, 1.0)
    ideal = max(2 * m * n * k / 989.4e12, (w * (m * k + n * k) + 2 * m * n) / 3.35e12)
    assert h100(m, n, k, dtype) >= ideal * (1 - 1e-12)


@given(DIM, DIM, DIM, st.floats(1, 4), st.floats(1, 4))
def test_faster_hardware_is_never_slower(m, n, k, more_flop, more_bw):
    base = h100(m, n, k)
    assert h100(m, n, k, peak=989.4e12 * more_flop) <= base * (1 + 1e-9)
    assert h100(m, n, k, bw=3.35e12 * more_bw) <= base * (1 + 1e-9)


@pytest.mark.slow
@given(DIM, DIM, DIM, st.floats(1, 64), st.sampled_from(["hopper", "ada", "blackwell", "ampere"]))
def test_more_rows_never_take_less_time(m, n, k, more, arch):
    arch = load_arch(arch)
    few, many = (h100(rows, n, k, arch=arch) for rows in (m, m * more))
    assert many >= few * (1 - 1e-12)


@given(DIM, DIM, DIM)
def test_quantisation_adds_its_traffic(m, n, k):
    without, with_ = (h100(m, n, k, "fp8", include_quant=q) for q in (False, True))
    assert with_ > without


# measured: gpuscale/data/validation/gemm.csv (aiconfigurator, TensorRT-LLM 1.3.0rc20 on H100)
@pytest.mark.parametrize(
    ("shape", "measured_us"),
    [
        ((1, 256, 256), 3.003),
        ((16, 8192, 8192), 49.829),
        ((2048, 8192, 8192), 346.309),
        ((32768, 12288, 4096), 4283.195),
        ((32, 65536, 16384), 751.413),
    ],
)
def test_published_times(shape, measured_us):
    assert h100(*shape, warm_l2=True) * 1e6 == pytest.approx(measured_us, rel=0.12)


def test_a_gpu_without_measurements_works_from_its_data_sheet():
    for name in ("mi355x", "tpu-v5p", "rtx-5090", "v100-sxm2-32gb"):
        gpu = load_gpu(name)
        dtype = "bf16" if gpu.bf16_flop_per_s else "fp16"
        peak, bw = gpu.flop_per_s(dtype), gpu.hbm_bytes_per_s
        units = gpu.n_compute_units
        t = expected_matmul_time_s(8192, 8192, 8192, dtype, load_arch(gpu), peak, bw, n_units=units)
        assert 0.25 < 2 * 8192**3 / peak / t < 1.0


def test_interval_is_wider_for_a_format_without_measurements():
    low, high = matmul_interval_s(1.0, "bf16", HOPPER)
    low4, high4 = matmul_interval_s(1.0, "nvfp4", HOPPER)
    assert low4 < low < 1.0 < high < high4


def test_narrow_weights_cost_less_to_read():
    wide, narrow = h100(1, 8192, 8192), h100(1, 8192, 8192, weight_bytes=0.5)
    assert 0.2 < narrow / wide < 0.6
    assert h100(8192, 8192, 8192, weight_bytes=0.5) == pytest.approx(
        h100(8192, 8192, 8192), rel=0.05
    )


def test_table_is_held_at_its_edges_and_interpolates():
    axis = LogAxis(0, 1, 2)
    table = ResidualTable(axis, axis, axis, tuple(float(i) for i in range(8)))
    assert table.at(0.5, 1, 1) == table.at(1, 1, 1) == 0.0
    assert table.at(2, 2, 2) == table.at(64, 64, 64) == 7.0
    assert table.at(math.sqrt(2), 1, 1) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="values"):
        ResidualTable(axis, axis, axis, (1.0,))


def test_bad_sizes_are_refused():
    for m in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="at least 1"):
            h100(m, 8, 8)
    with pytest.raises(ValueError, match="positive"):
        expected_matmul_time_s(8, 8, 8, "bf16", ArchCalibration("x"), 0.0, 1.0)


def test_one_evaluation_is_cheap():
    start = time.process_time()
    for m in range(2000):
        h100(m + 1.0, 4096.0, 4096.0)
    assert (time.process_time() - start) / 2000 < 100e-6  # about 10 us on an idle core


@given(DIM, DIM, DIM, st.integers(1, 64))
def test_products_in_one_launch(m, n, k, products):
    """No slower than one after the other, no faster than the roofline of all."""
    plain = ArchCalibration("plain", {"bf16": replace(HOPPER.for_dtype("bf16"), table=None)})
    one, all_ = h100(m, n, k, arch=plain), h100(m, n, k, arch=plain, products=products)
    ideal = max(2 * m * n * k / 989.4e12, 2 * (m * k + n * k + m * n) / 3.35e12)
    assert products * ideal * (1 - 1e-12) <= all_
    # longer work sags under the power limit, by at most 2 * sustained_slope
    assert all_ <= products * one * (1 + 2.5 * plain.for_dtype("bf16").sustained_slope)
    assert h100(m, n, k, arch=plain, products=products + 1) >= all_ * (1 - 1e-9)


@given(st.floats(0, 1e15), st.floats(0, 1e3))
def test_elementwise_is_a_floor_and_a_rate(moved, compute_s):
    time_s = expected_elementwise_time_s(moved, compute_s, HOPPER, 3.35e12)
    assert time_s >= max(moved / 3.35e12, compute_s) + HOPPER.for_dtype("bf16").floor_s
    assert expected_elementwise_time_s(2 * moved, compute_s, HOPPER, 3.35e12) >= time_s


@pytest.mark.parametrize("products", [0, 0.5, math.nan])
def test_products_below_one_are_refused(products):
    with pytest.raises(ValueError, match="products"):
        h100(8, 8, 8, products=products)
