"""One kernel held by hand: tiles, waves, memory, the exponent that adds them, tables, power."""

import math
from dataclasses import replace

import pytest
from products import expected_matmul_time_s

from gpuscale.core.kernel import chip
from gpuscale.core.kernel.calibration import (
    GENERAL,
    ArchCalibration,
    Board,
    LogAxis,
    MatmulCalibration,
    PlaneTable,
    PowerReference,
    ResidualTable,
    at_power,
    clock_frac,
    matmul_interval_s,
    measured_format,
    tabulate,
)
from gpuscale.core.kernel.expected import (
    ROWS,
    ProductRows,
    Tiling,
    analytic_time_s,
    best_tiling,
    compute_time_s,
    corrected_time_s,
    expected_elementwise_time_s,
    memory_time_s,
    most_split,
    product_time_s,
    quantise_time_s,
)
from gpuscale.core.kernel.roofline import (
    MixedProduct,
    critical_batch,
    critical_batch_rule,
    elementwise_bytes,
    elementwise_flop,
    elementwise_time,
    matmul_bytes,
    matmul_flop,
    roofline,
)
from gpuscale.core.kernel.terms import elementwise_term, product_term
from gpuscale.io.calibration import load_arch
from gpuscale.io.hardware import unit_layout

BARE = MatmulCalibration(
    floor_s=0.0,
    latency_s=0.0,
    latency_exponent=1.0,
    compute_eff_frac=1.0,
    ramp_k=0.0,
    memory_eff_frac=1.0,
    blend=1.0,
    wave_exponent=1.0,
    tile_area=4096.0,
    l2_gain=1.0,
    sustained_slope=0.0,
)
P = ProductRows(256.0, 1024.0, 2.0, 1e12, 1e9, n_units=4)


def close(value, want):
    return value == pytest.approx(want, rel=1e-9, abs=1e-15)


# --- roofline ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flop", "moved", "time", "bound"),
    [(100, 10, 50.0, "compute"), (100, 80, 80.0, "memory"), (100, 50, 50.0, "compute")],
)
def test_roofline(flop, moved, time, bound):
    found = roofline(flop, moved, 2.0, 1.0)
    assert (found.time_s, found.compute_s, found.memory_s, found.bound) == (time, 50, moved, bound)
    assert (found.intensity_flop_per_byte, found.ridge_flop_per_byte) == (100 / moved, 2.0)
    assert roofline(1.0, 0.0, 1.0, 1.0).intensity_flop_per_byte == 0.0
    assert roofline(0.0, 1.0, 1.0, 1.0).time_s == 1.0


@pytest.mark.parametrize("bad", [(1, 1, 0, 1), (1, 1, 1, 0), (-1, 1, 1, 1), (1, -1, 1, 1)])
def test_roofline_refuses(bad):
    with pytest.raises(ValueError):
        roofline(*bad)


def test_work_and_traffic_of_products():
    assert matmul_flop(2, 3, 5, 7) == 2 * 2 * 3 * 5 * 7
    assert matmul_bytes(2, 3, 5) == 2 * (6 + 15 + 10)
    assert matmul_bytes(2, 3, 5, 1.0, 0.5, 4.0, 7, 11) == 7 * (6 + 11 * 7.5 + 40)
    # 2 m k n = ridge (x m k + w g k n + o m n)
    m = critical_batch(30, 50, 10, 1.0, 0.5, 4.0, 3)
    assert close(2 * m * 30 * 50, 10 * (m * 30 + 3 * 0.5 * 30 * 50 + 4 * m * 50))
    assert critical_batch(10, 10, 10, 1.0, 2.0, 1.0) is None
    assert critical_batch_rule(100.0, 0.5) == 25.0
    assert elementwise_flop("fma", 5) == 10 and elementwise_bytes("fma", 5, 2.0) == 40


def test_a_product_of_mixed_formats_by_its_peaks():
    product = MixedProduct(64, 4096, 8192, "bf16", "fp8", "fp32", batch=2, groups=4)
    found = product.roofline(1e12, 1e9)
    assert found.flop == 4 * 64 * 4096 * 8192
    assert found.bytes == 2 * (2 * 64 * 4096 + 4 * 4096 * 8192 + 4 * 64 * 8192)
    assert (found.kind, found.compute_dtype, found.bound) == ("matmul", "bf16", "memory")
    assert close(found.time_s, found.bytes / 1e9) and close(found.compute_s, found.flop / 1e12)
    assert close(found.critical_m_rule, 1000 * 1 * 4 / 2)
    assert found.critical_m == critical_batch(4096, 8192, 1000.0, 2.0, 1.0, 4.0, 4)
    m = found.smallest_compute_bound_m
    assert m - 1 < found.critical_m <= m
    small = MixedProduct(8, 8, 8, "bf16", "bf16", "bf16").roofline(1e12, 1e9)
    assert small.smallest_compute_bound_m is None


def test_elementwise_operations():
    add = elementwise_time("add", 100, "fp32", 10.0, 1.0)  # half the rate: no multiply-adds
    assert (add.compute_s, add.memory_s, add.flop_per_s) == (20.0, 1200.0, 5.0)
    assert (add.ridge_flop_per_byte, add.bound, add.kind) == (5.0, "memory", "add")
    assert elementwise_time("fma", 100, "fp32", 10.0, 1.0).compute_s == 20.0
    bare = elementwise_time("add", 100, "fp32", None, 1.0)
    assert (bare.compute_s, bare.ridge_flop_per_byte, bare.flop_per_s) == (0.0, 0.0, None)


# --- expected ------------------------------------------------------------------------------------


def test_traffic_of_a_product():
    assert P.moved_bytes(128.0) == 2 * (128 * 1024 + 256 * 1024 + 128 * 256)
    narrow = P._replace(weight_bytes=0.5, out_bytes=8.0)
    assert narrow.moved_bytes(128.0) == 2 * 128 * 1024 + 0.5 * 256 * 1024 + 8 * 128 * 256
    assert close(P.ideal_s(128.0), P.moved_bytes(128.0) / 1e9)
    fast = P._replace(hbm_bytes_per_s=1e30, products=3.0)
    assert close(fast.ideal_s(128.0), 3 * 2 * 128 * 256 * 1024 / 1e12)


def test_tiles_and_waves():
    """128 x 256 on four units, a tile costs 4,096 outputs beside its own.

    128 x 128: two tiles, half a unit each, K in two: 0.5 (16384 + 4096) = 10,240. 64 x 128: four
    tiles in a wave, 12,288. 64 x 64: two waves, 16,384.
    """
    assert best_tiling(128.0, P, BARE) == Tiling(10240.0, 128, 128, 0.5, 0.5)
    short = P._replace(k=512.0)  # too short to split
    assert (most_split(1024.0), most_split(512.0), most_split(100.0)) == (2, 1, 1)
    assert best_tiling(128.0, short, BARE) == Tiling(12288.0, 64, 128, 1.0, 1.0)
    # three products: 1.5 of 128 x 128 a unit, two waves: 40,960; 128 x 256: 0.75: 36,864, as
    # 3 waves of 64 x 128; the first of equals
    three = P._replace(products=3.0)
    assert best_tiling(128.0, three, BARE) == Tiling(36864.0, 64, 128, 3.0, 3.0)
    smooth = replace(BARE, wave_exponent=0.0)  # 1.5 waves
    assert best_tiling(128.0, three, smooth) == Tiling(30720.0, 128, 128, 1.5, 1.5)
    half = best_tiling(128.0, three._replace(n=128.0, n_units=2), replace(BARE, wave_exponent=0.5))
    assert half.cost <= 1.5 * (2 / 1.5) ** 0.5 * 20480
    # narrow weights have tiles of 16 rows
    few = P._replace(weight_bytes=0.5, n=128.0, k=100.0)
    assert best_tiling(1.0, few, BARE) == Tiling(16 * 128 + 4096.0, 16, 128, 0.25, 1.0)
    wide = few._replace(weight_bytes=2.0)
    assert best_tiling(1.0, wide, BARE) == Tiling(64 * 64 + 4096.0, 64, 64, 0.5, 1.0)


def test_time_on_the_matrix_units():
    """10,240 outputs of 2 (k + 76) FLOP on each of 4 units, of the largest tile's efficiency."""
    c = replace(BARE, ramp_k=76.0, compute_eff_frac=0.5)
    want = 10240 * 32768 / (32768 + 4096) * 4 * 2 * 1100 / (1e12 * 0.5)
    assert close(compute_time_s(128.0, P, c), want)
    slower = replace(c, clock_frac=0.5, sustained_slope=0.1)  # as with half the peak
    half = P._replace(peak_flop_per_s=5e11)
    assert close(
        compute_time_s(128.0, P, slower),
        compute_time_s(128.0, half, replace(slower, clock_frac=1.0)),
    )
    ideal = 2 * 128 * 256 * 1024
    sag = P._replace(peak_flop_per_s=ideal / (1e-4 * math.e**3))
    plain = compute_time_s(128.0, sag, c)
    slow = compute_time_s(128.0, sag, replace(c, sustained_slope=0.1))
    assert close(slow, plain * (1 + 0.1 * math.tanh(1.0)))


def test_time_on_the_memory():
    c = replace(BARE, memory_eff_frac=0.5)
    moved = P.moved_bytes(128.0)
    assert close(memory_time_s(128.0, P, c), moved / 5e8)
    assert close(memory_time_s(128.0, P._replace(products=3.0), c), 3 * moved / 5e8)
    half = P._replace(l2_bytes=moved / 0.6)  # at the edge half of it is resident
    slower = replace(c, l2_gain=0.8)
    assert close(memory_time_s(128.0, half, slower), moved / (5e8 * 0.9))
    assert close(memory_time_s(128.0, P, slower), moved / 5e8)
    twice = half._replace(products=2.0)  # a share of 1 / (1 + 2^3)
    assert close(memory_time_s(128.0, twice, slower), 2 * moved / (5e8 * (1 - 0.2 / 9)))
    faster = replace(c, l2_gain=1.4)
    assert close(memory_time_s(128.0, half, faster), moved / 5e8)
    assert close(memory_time_s(128.0, half._replace(warm_l2=True), faster), moved / (5e8 * 1.2))


def test_parts_add_up_with_an_exponent():
    c = replace(BARE, floor_s=1.0, latency_s=3.0, latency_exponent=0.5, blend=1.0)
    compute, memory = compute_time_s(128.0, P, c), memory_time_s(128.0, P, c)
    assert close(analytic_time_s(128.0, P, c), 1 + compute + memory + 3)
    long = P._replace(k=4096.0)
    parts = compute_time_s(128.0, long, c), memory_time_s(128.0, long, c), 3 * 4**0.5
    assert close(analytic_time_s(128.0, long, c), 1 + sum(parts))
    square = replace(c, blend=2.0)
    assert close(analytic_time_s(128.0, long, square), 1 + math.hypot(*parts))
    quantised = replace(square, quant_floor_s=5.0, quant_eff_frac=0.25)
    eight = long._replace(in_bytes=1.0, products=3.0, include_quant=True)
    added = 5 + 3 * 128 * 4096 * (2 + 1) / (1e9 * 0.25)
    assert close(quantise_time_s(128.0, eight, quantised), added)
    without = analytic_time_s(128.0, eight._replace(include_quant=False), quantised)
    assert close(analytic_time_s(128.0, eight, quantised), without + added)


def test_rows_of_the_grid():
    assert ROWS[:7] == (1, 2, 3, 4, 6, 8, 12) and ROWS[-2:] == (65536, 98304)


def tabled(*logs):
    """Corrections at 2 and 4 rows, whatever the columns."""
    axis = LogAxis(0.0, 1.0, 2)
    return ResidualTable(LogAxis(1.0, 1.0, 2), axis, axis, tuple(x for x in logs for _ in range(4)))


def test_correction_is_held_on_the_grid():
    c = replace(BARE, table=tabled(math.log(2), math.log(3)))
    assert close(corrected_time_s(2.0, P, c), 2 * analytic_time_s(2.0, P, c))
    assert close(corrected_time_s(4.0, P, c), 3 * analytic_time_s(4.0, P, c))
    two, three, four, six = (corrected_time_s(m, P, c) for m in (2.0, 3.0, 4.0, 6.0))
    assert close(corrected_time_s(2.25, P, c), two + (three - two) / 4)
    assert close(corrected_time_s(5.0, P, c), (four + six) / 2)
    assert corrected_time_s(4.0, P, BARE) == analytic_time_s(4.0, P, BARE)
    falling = replace(BARE, table=tabled(math.log(30), 0.0))
    assert corrected_time_s(4.0, P, falling) >= 30 * analytic_time_s(2.0, P, falling)
    assert corrected_time_s(8.0, P, falling) == corrected_time_s(4.0, P, falling)
    many = 3e5
    assert close(corrected_time_s(many, P, c), 3 * analytic_time_s(many, P, c))
    assert close(corrected_time_s(ROWS[-1], P, c), 3 * analytic_time_s(ROWS[-1], P, c))


def expected(m, arch, **changed):
    kept = {"n": 256, "k": 1024, "dtype": "bf16", "n_units": 4} | changed
    return expected_matmul_time_s(m, arch=arch, peak_flop_per_s=1e12, hbm_bytes_per_s=1e9, **kept)


def test_an_expected_time_is_the_form_and_its_correction():
    slow = replace(BARE, floor_s=1.0, table=tabled(math.log(2), math.log(3)))
    arch = ArchCalibration("toy", {"bf16": slow})
    assert expected(2.0, arch) == corrected_time_s(2.0, P, slow)
    assert expected(2.0, arch, dtype="fp16") == corrected_time_s(2.0, P, slow)
    assert expected(2.0, arch, products=2.0) == analytic_time_s(2.0, P._replace(products=2.0), slow)
    eight = expected(2.0, arch, dtype="fp8")  # not measured: the form of bf16 alone
    assert eight == analytic_time_s(2.0, P._replace(in_bytes=1.0), slow)
    assert expected(2.0, arch, n_units=None) == corrected_time_s(2.0, P._replace(n_units=1), slow)
    cached = replace(slow, l2_gain=0.5)
    held = P._replace(l2_bytes=1e9)
    found = expected(2.0, ArchCalibration("toy", {"bf16": cached}), l2_bytes=1e9)
    assert found == corrected_time_s(2.0, held, cached) != corrected_time_s(2.0, P, cached)
    fast = ArchCalibration("toy", {"bf16": replace(BARE, memory_eff_frac=9.0)})
    assert expected(2.0, fast) == P.ideal_s(2.0)  # never below the roofline, but from a warm cache
    assert expected(2.0, fast, warm_l2=True) < P.ideal_s(2.0)
    for bad in ({"n": 0.5}, {"k": 0.0}):
        with pytest.raises(ValueError, match="at least 1"):
            expected(2.0, arch, **bad)
    assert expected(1.0, arch, n=1.0, k=1.0) > 0.0
    with pytest.raises(ValueError, match="positive"):
        expected_matmul_time_s(1, 1, 1, "bf16", arch, 1.0, 0.0)


def test_an_elementwise_kernel_is_a_floor_and_a_rate():
    c = replace(BARE, floor_s=1.0, memory_eff_frac=0.5)
    arch = ArchCalibration("toy", {"bf16": c})
    assert expected_elementwise_time_s(30.0, 2.0, arch, 10.0) == 7.0
    assert expected_elementwise_time_s(30.0, 9.0, arch, 10.0) == 10.0
    assert expected_elementwise_time_s(0.0, 0.0, arch, 10.0) == 1.0
    for bad in ((-1.0, 0.0, arch, 1.0), (0.0, -1.0, arch, 1.0), (0.0, 0.0, arch, 0.0)):
        with pytest.raises(ValueError):
            expected_elementwise_time_s(*bad)
    term = elementwise_term(30.0, 2.0, arch, 10.0, "toy")
    assert term.value == eval(term.formula, {"max": max}, term.inputs) == 7.0


# --- constants -----------------------------------------------------------------------------------

ONE, TWO, TE = (replace(BARE, floor_s=float(i)) for i in range(3))


@pytest.mark.parametrize(
    ("dtype", "kernels", "key"),
    [
        ("bf16", "", "bf16"),
        ("fp16", "", "bf16"),
        ("fp8", "", "fp8"),
        ("fp8", "te", "fp8-te"),
        ("bf16", "te", "bf16"),
        ("fp64", "", ""),
    ],
)
def test_constants_of_a_format(dtype, kernels, key):
    arch = ArchCalibration("toy", {"bf16": ONE, "fp8": TWO, "fp8-te": TE})
    assert arch.format_used(dtype, kernels) == key
    assert arch.for_dtype(dtype, kernels) is arch.matmul.get(key, GENERAL)


@pytest.mark.parametrize(
    ("used", "dtype", "kernels", "own"),
    [
        ("bf16", "bf16", "", True),
        ("bf16", "fp16", "", True),
        ("fp16", "bf16", "", False),
        ("bf16", "fp8", "", False),
        ("fp8-te", "fp8", "te", True),
        ("fp8", "fp8", "te", True),
        ("", "fp8", "", False),
    ],
)
def test_constants_that_are_a_formats_own(used, dtype, kernels, own):
    assert measured_format(used, dtype, kernels) is own


def test_interval_of_a_product():
    own = replace(BARE, low_frac=0.9, high_frac=1.1)
    arch = ArchCalibration("toy", {"bf16": own})
    assert matmul_interval_s(2.0, "bf16", arch) == (1.8, 2.2)
    assert matmul_interval_s(2.0, "bf16", arch, unseen=True) == (1.5, 2.8)
    assert matmul_interval_s(2.0, "fp8", arch) == (1.5, 2.8)
    other = ArchCalibration("toy", {"bf16": replace(own, borrowed=True)})
    assert matmul_interval_s(2.0, "bf16", other) == (1.5, 2.8)
    wide = replace(own, low_frac=0.5, high_frac=2.0, borrowed=True)
    assert matmul_interval_s(2.0, "bf16", ArchCalibration("toy", {"bf16": wide})) == (1.0, 4.0)


# --- tables --------------------------------------------------------------------------------------


def test_places_on_an_axis():
    axis = LogAxis(1.0, 2.0, 4)  # 2, 8, 32, 128
    assert axis.points() == [2.0, 8.0, 32.0, 128.0]
    places = [axis.place(x) for x in (1.0, 2.0, 4.0, 8.0, 64.0, 128.0, 999.0)]
    assert places == [(0, 0.0), (0, 0.0), (0, 0.5), (1, 0.0), (2, 0.5), (2, 1.0), (2, 1.0)]


def test_interpolation_in_three_and_two_dimensions():
    """A function that is linear in each logarithm is found exactly."""
    m, n, k = LogAxis(0.0, 1.0, 3), LogAxis(1.0, 1.0, 4), LogAxis(2.0, 1.0, 2)

    def form(a, b, c):
        x, y, z = math.log2(a), math.log2(b), math.log2(c)
        return 1 + 2 * x + 3 * y + 5 * z + 7 * x * y + 11 * y * z + 13 * x * z + 17 * x * y * z

    table = tabulate((m, n, k), form)
    for at in ((1.5, 3.0, 5.0), (3.5, 9.0, 7.0), (1.0, 2.0, 4.0), (2.0, 5.0, 8.0)):
        assert close(table.at(*at), form(*at))
    assert close(table.at(99, 99, 99), form(4, 16, 8))
    plane = PlaneTable(m, n, tuple(form(a, b, 1) for a in m.points() for b in n.points()))
    for at in ((1.5, 3.0), (3.5, 9.0), (2.0, 5.0)):
        assert close(plane.at(*at), form(*at, 1))
    assert close(plane.at(0.1, 99), form(1, 16, 1))


def test_tables_refuse_what_does_not_fill_them():
    one, two = LogAxis(0.0, 1.0, 1), LogAxis(0.0, 1.0, 2)
    for axes in ((one, two, two), (two, one, two), (two, two, one)):
        with pytest.raises(ValueError, match="two points"):
            ResidualTable(*axes, (0.0,) * 4)
    for axes in ((one, two), (two, one)):
        with pytest.raises(ValueError, match="two points"):
            PlaneTable(*axes, (0.0,) * 2)
    with pytest.raises(ValueError, match="values"):
        PlaneTable(two, two, (0.0,) * 3)
    with pytest.raises(ValueError, match="values"):
        ResidualTable(two, two, two, (0.0,) * 7)


# --- mixed formats -------------------------------------------------------------------------------


def single(product):
    rows, one = product.single("bf16", 1e12, 1e9, None, None)
    assert (one.k, one.in_bytes, one.n_units, one.l2_bytes) == (100, 2.0, 1, 0.0)
    return rows, one.n, one.out_bytes, one.weight_bytes, one.products


def test_a_mixed_product_is_one_of_a_single_format():
    same = MixedProduct(64, 100, 30, "bf16", "bf16", "fp32")
    assert single(same) == (64.0, 30.0, 4.0, None, 1.0)
    assert same.unseen == ""
    narrow = MixedProduct(64, 100, 30, "bf16", "fp8", "bf16", batch=3, groups=4)
    assert single(narrow) == (16.0, 30.0, 2.0, 1.0, 12.0)
    turned = MixedProduct(64, 100, 30, "fp8", "bf16", "bf16")
    assert single(turned) == (30.0, 64.0, 2.0, 1.0, 1.0)
    assert turned.unseen == "a product of mixed formats"
    assert replace(same, batch=2).unseen == "a batched product"
    assert replace(same, groups=2).unseen == "a grouped product"


NAMES = {n: getattr(math, n) for n in ("exp", "log", "tanh", "ceil", "floor")}


def evaluated(term):
    """Check that every formula gives its value; return how many there were."""
    if term.formula:
        found = eval(term.formula, NAMES | {"max": max, "min": min}, term.inputs)
        assert found == pytest.approx(term.value, rel=1e-9), term.name
    return bool(term.formula) + sum(evaluated(child) for child in term.children)


@pytest.mark.parametrize("m", [1, 5, 64, 1000, 98304, 200_000])
@pytest.mark.parametrize(
    "formats", [("bf16", "bf16"), ("bf16", "int4"), ("fp8", "bf16"), ("fp8", "fp8")]
)
def test_terms_of_a_product(m, formats):
    """What `--explain` says is what was computed: tiles, waves, memory, correction."""
    arch = load_arch("hopper")
    product = MixedProduct(m, 4096, 2048, *formats, "bf16")
    compute = "fp8" if formats == ("fp8", "fp8") else "bf16"
    for changed in (product, replace(product, groups=min(m, 4)), replace(product, batch=2)):
        rows, one = changed.single(compute, 989.4e12, 3.35e12, 132, 52e6)
        term = product_term(rows, one, compute, arch, "hopper")
        assert evaluated(term) >= 5
        time_s = product_time_s(rows, one, compute, arch)
        ideal = 2 * one.products * rows * 4096 * one.n / 989.4e12
        assert time_s == pytest.approx(term.value) or time_s >= ideal


def test_terms_below_and_between_the_rows_of_the_grid():
    falling = replace(BARE, table=tabled(math.log(30), 0.0))
    arch = ArchCalibration("toy", {"bf16": falling})

    def at(m):
        product = MixedProduct(m, 1024, 256, "bf16", "bf16", "bf16")
        rows, one = product.single("bf16", 1e12, 1e9, None, None)
        return product_term(rows, one, "bf16", arch, "toy")

    assert at(8).formula == "below_s" and at(8).children[0].source.startswith("at 2 rows")
    assert [c.name for c in at(5).children] == ["below_s"]  # both neighbours wait for fewer rows
    assert at(7).value == at(5).value
    rising = replace(BARE, table=tabled(0.0, 1.0), clock_frac=0.7, sustained_slope=0.1)
    arch = ArchCalibration("toy", {"bf16": rising})
    assert [c.name for c in at(5).children] == ["below_s", "above_s"]
    for m in (5, 8, 98304, 300_000):
        assert evaluated(at(m)) > 5


# --- power ---------------------------------------------------------------------------------------

SXM = PowerReference(
    tdp_w=400.0, n_units=100, flop_per_s=100.0, exponent=0.5, headroom=1.2, most_eff_frac=0.95
)


@pytest.mark.parametrize(
    ("board", "frac"),
    [
        (Board(400.0, 100, 100.0), 1.0),
        (Board(100.0, 100, 100.0), 0.5),  # a quarter of the watts, at the power of a half
        (Board(200.0, 50, 50.0), 1.0),  # fewer units, each with as much
        (Board(400.0, 100, 200.0), 0.5),  # twice the clock
        (Board(484.0, 100, 100.0), 1.0),  # 1.1: within the headroom
        (Board(900.0, 100, 100.0), 1.25),  # 1.5 over 1.2
    ],
)
def test_clock_of_a_board(board, frac):
    assert close(clock_frac(board, SXM), frac)


def test_products_at_another_power():
    c = replace(BARE, compute_eff_frac=0.8, sustained_slope=0.1)
    arch = ArchCalibration("toy", {"bf16": c})
    assert at_power(arch, SXM, SXM) is arch
    less = at_power(arch, Board(100.0, 100, 100.0), SXM).matmul["bf16"]
    assert (less.clock_frac, less.compute_eff_frac, less.sustained_slope) == (0.5, 0.8, 0.1)
    more = at_power(arch, Board(900.0, 100, 100.0), SXM).matmul["bf16"]
    assert close(more.compute_eff_frac, 0.95) and close(more.sustained_slope, 0.095)
    some = replace(SXM, most_eff_frac=2.0)
    more = at_power(arch, Board(900.0, 100, 100.0), some).matmul["bf16"]
    assert close(more.compute_eff_frac, 1.0) and close(more.sustained_slope, 0.1)
    least = replace(SXM, most_eff_frac=0.5)  # measured products were faster: they stay
    assert at_power(arch, Board(900.0, 100, 100.0), least).matmul["bf16"].compute_eff_frac == 0.8


# --- chip ----------------------------------------------------------------------------------------


def test_units_of_a_chip():
    """ "How to Scale Your Model", GPU chapter: H100 132 SMs of 4 x 32 lanes, 4 tensor cores."""
    assert chip.cuda_cores(132) == 16896 and chip.cuda_cores(10, 2, 8) == 160
    assert chip.tensor_cores(132) == 528 and chip.tensor_cores(10, 8) == 80
    assert chip.vector_flop_per_s(100, 10) == 1000 == chip.vector_flop_per_s(100, 5, 2)
    assert chip.clock_from_vector_hz(1000, 100) == 5.0
    assert chip.clock_from_vector_hz(1000, 100, 1.0) == 10.0
    assert chip.tensor_flop_per_cycle(1000, 10, 20) == 5.0
    assert chip.chip_total_bytes(132, 256 * 1024) == 33 * 2**20
    assert chip.critical_intensity(100, 4) == 25.0
    assert unit_layout("Grace Hopper") is unit_layout("hopper")
    assert unit_layout("Ampere (GA102)").max_warps == 48
