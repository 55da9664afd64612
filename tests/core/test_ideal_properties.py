"""Invariants of the ideal kernels and collectives."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.formats import FORMATS, compute_dtype, element_bytes
from gpuscale.core.kernel import roofline as rl
from gpuscale.core.kernel.roofline import MixedProduct, elementwise_time
from gpuscale.core.network import collective as co
from gpuscale.core.network.collective import (
    ALGORITHMS,
    all_gather_traffic,
    in_switch_all_reduce_traffic,
)
from gpuscale.core.network.hierarchy import Level, hierarchical_time_s, level_times, spans
from gpuscale.core.network.ideal import (
    KINDS,
    Routing,
    ideal_collective,
    level_all_to_all_times_s,
    reached_frac,
    sweep_sizes,
    torus_bisection_time_s,
)
from gpuscale.textbook import formulas as networks
from gpuscale.textbook.formulas import all_to_all_time_s

SIZES = st.floats(1.0, 1e15)
RANKS = st.integers(2, 5000)
RATES = st.floats(1e6, 1e13)
DIMS = st.integers(1, 10**6)
REDUCING = ("all-gather", "reduce-scatter", "all-reduce")
ONE_FORM = (*REDUCING, "broadcast", "send-recv")


def pod(node_rate=450e9, share=50e9, reduces=True):
    return (
        Level("node", 8, node_rate, reduces),
        Level("leaf", 256, share, reduces),
        Level("spine", None, share, reduces),
    )


@given(DIMS, DIMS, DIMS, RATES, RATES)
def test_roofline_is_the_slower_part(m, k, n, flop_per_s, bytes_per_s):
    t = MixedProduct(m, k, n, "bf16", "bf16", "bf16").roofline(flop_per_s, bytes_per_s)
    assert t.time_s == max(t.compute_s, t.memory_s)
    assert (t.bound == "compute") == (t.compute_s >= t.memory_s)
    assert (t.intensity_flop_per_byte >= t.ridge_flop_per_byte * (1 - 1e-9)) or t.bound == "memory"


@given(DIMS, DIMS, DIMS, RATES, RATES, st.floats(1.0, 100.0))
def test_faster_hardware_is_never_slower(m, k, n, flop_per_s, bytes_per_s, gain):
    product = MixedProduct(m, k, n, "bf16", "bf16", "bf16")
    base = product.roofline(flop_per_s, bytes_per_s).time_s
    for f, b in ((gain, 1.0), (1.0, gain)):
        faster = MixedProduct(m, k, n, "bf16", "bf16", "bf16").roofline(
            flop_per_s * f, bytes_per_s * b
        )
        assert faster.time_s <= base * (1 + 1e-12)


@given(DIMS, DIMS, DIMS)
def test_a_batch_costs_as_much_as_its_products(m, k, n):
    one = rl.matmul_bytes(m, k, n), rl.matmul_flop(m, k, n)
    many = rl.matmul_bytes(m, k, n, batch=7), rl.matmul_flop(m, k, n, 7)
    assert many == pytest.approx([7 * v for v in one])


@given(st.integers(16, 10**5), st.integers(16, 10**5), st.floats(1.0, 1000.0))
def test_critical_batch_is_where_the_bound_changes(k, n, ridge):
    critical = rl.critical_batch(k, n, ridge)
    if critical is None:
        most = rl.roofline(rl.matmul_flop(1e12, k, n), rl.matmul_bytes(1e12, k, n), ridge, 1.0)
        assert most.bound == "memory" or most.intensity_flop_per_byte < ridge * 1.001
        return
    for scale, bound in ((1.001, "compute"), (0.999, "memory")):
        m = critical * scale
        t = rl.roofline(rl.matmul_flop(m, k, n), rl.matmul_bytes(m, k, n), ridge, 1.0)
        assert t.bound == bound
    assert critical >= rl.critical_batch_rule(ridge) * (1 - 1e-9)


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 4096))
def test_grouped_product_reads_every_weight_once(groups, k, n):
    m = 64
    grouped = rl.matmul_bytes(m, k, n, groups=groups)
    assert grouped - rl.matmul_bytes(m, k, n) == pytest.approx((groups - 1) * 2.0 * k * n)
    critical = rl.critical_batch(4096, 8192, 281.25, groups=groups)
    assert critical == pytest.approx(groups * rl.critical_batch(4096, 8192, 281.25))


@pytest.mark.parametrize("op", rl.ELEMENTWISE)
def test_elementwise_on_an_h100_is_memory_bound(op):
    t = elementwise_time(op, 10**6, "fp32", 66.9e12, 3.35e12)
    assert t.bound == "memory"
    assert t.time_s == pytest.approx(t.bytes / 3.35e12)


def test_elementwise_without_a_vector_rate_counts_memory():
    t = elementwise_time("add", 1000, "fp32", None, 1e12)
    assert (t.flop_per_s, t.bound, t.compute_s) == (None, "memory", 0.0)


def test_formats_are_ordered_and_known():
    for name, f in FORMATS.items():
        assert f.name == name and f.source
        assert {*f.measured_as, f.rate or name, f.stored_as or name} <= set(FORMATS)
        wider = 0.08 if f.edges else 0.05  # some layers in a wider format
        assert f.bits / 8 <= f.bytes < 1.25 * f.bits / 8 + wider
    assert compute_dtype("nvfp4", "bf16") == "bf16"
    with pytest.raises(ValueError, match="unknown dtype"):
        element_bytes("fp12")


@given(SIZES, RANKS, RATES)
def test_ring_bus_bandwidth_is_the_link(size, n, rate):
    for op in REDUCING:
        time_s = networks.collective_time_s(op, size, n, rate)
        assert co.bandwidths_bytes_per_s(op, size, n, time_s)[1] == pytest.approx(rate, rel=1e-9)


@given(SIZES, RANKS, RATES, st.floats(0, 1e-3), st.sampled_from(("ring", "tree")))
def test_bus_bandwidth_never_exceeds_the_link(size, n, rate, hop_s, algorithm):
    for op in (*ONE_FORM,):
        time_s = networks.collective_time_s(op, size, n, rate, hop_s, algorithm)
        assert co.bandwidths_bytes_per_s(op, size, n, time_s)[1] <= rate * (1 + 1e-9)


@given(SIZES, RANKS, RATES)
def test_all_reduce_is_reduce_scatter_and_all_gather(size, n, rate):
    parts = [
        networks.collective_time_s(op, size, n, rate) for op in ("reduce-scatter", "all-gather")
    ]
    assert networks.collective_time_s("all-reduce", size, n, rate) == pytest.approx(sum(parts))


@given(SIZES, RANKS, RATES)
def test_approximation_is_an_upper_bound(size, n, rate):
    for op in ONE_FORM:
        exact = networks.collective_time_s(op, size, n, rate)
        assert exact <= co.approximate_time_s(op, size, rate) * (1 + 1e-12)


@given(st.integers(1, 2000), st.integers(1, 600), st.integers(0, 10))
def test_reached_share_is_ordered_by_the_kind_of_draw(n, k, more):
    """Drawing with replacement repeats destinations most; k/n is the upper bound."""
    experts = n * (math.ceil(k / n) + more)
    share = {kind: reached_frac(n, k, kind, experts) for kind in KINDS}
    assert share["dense"] == 1.0
    if experts >= k:
        assert share["with-replacement"] <= share["without-replacement"] + 1e-6
    assert share["without-replacement"] <= share["top-k"] + 1e-6
    assert 0 <= share["with-replacement"] <= 1


def test_one_expert_per_rank_without_replacement_is_k_over_n():
    assert reached_frac(8, 4, "without-replacement", 8) == pytest.approx(0.5)
    assert reached_frac(64, 8, "without-replacement", 256) == pytest.approx(
        1 - math.comb(252, 8) / math.comb(256, 8)
    )


@given(SIZES, st.integers(2, 20000), st.floats(1.0, 50.0))
def test_more_bandwidth_is_never_slower(size, n, gain):
    for op in ONE_FORM:
        base = hierarchical_time_s(op, size, n, pod())
        for faster in (pod(450e9 * gain), pod(450e9, 50e9 * gain)):
            assert hierarchical_time_s(op, size, n, faster) <= base * (1 + 1e-12)
    base = max(level_all_to_all_times_s(size, n, pod()))
    assert max(level_all_to_all_times_s(size, n, pod(450e9 * gain, 50e9 * gain))) <= base


@given(st.sampled_from(REDUCING), st.integers(1, 12), st.integers(0, 6))
def test_hierarchy_equals_the_flat_form_inside_a_node(op, log_n, log_inner):
    n = min(8, 2**log_n)
    assert hierarchical_time_s(op, 1e9, n, pod()) == pytest.approx(
        networks.collective_time_s(op, 1e9, n, 450e9)
    )


@given(st.sampled_from(REDUCING), st.integers(3, 12), st.integers(0, 8))
def test_inner_sharding_never_costs_more(op, log_n, log_inner):
    n, inner = 2**log_n, 2 ** min(log_inner, log_n)
    sharded = hierarchical_time_s(op, 1e9, n, pod(), inner=inner)
    assert sharded <= hierarchical_time_s(op, 1e9, n, pod()) * (1 + 1e-12)
    if inner == n:
        assert sharded == 0.0


@given(st.integers(1, 10**5))
def test_levels_account_for_every_gpu(n):
    children = math.prod(s.n_children for s in spans(n, pod()))
    assert children >= n
    assert all(t.time_s >= 0 for t in level_times("all-reduce", 1e9, n, pod()))


@given(st.integers(2, 5000), SIZES, st.floats(0, 1e-4))
def test_parts_add_to_the_total(n, size, hop_s):
    for op in co.OPS:
        t = ideal_collective(op, size, n, pod(), hop_s=hop_s)
        assert t.time_s == t.bandwidth_s + t.latency_s
        assert t.latency_s == pytest.approx(t.steps * hop_s)
        assert t.bandwidth_s == pytest.approx(
            max(x.time_s - x.steps * hop_s for x in t.levels), rel=1e-6, abs=1e-12
        )


@given(st.integers(2, 5000), st.integers(1, 64))
def test_sparse_all_to_all_is_never_dearer_than_dense(n, k):
    dense = ideal_collective("all-to-all", 1e9, n, pod())
    for kind in ("top-k", "with-replacement"):
        sparse = ideal_collective("all-to-all", 1e9, n, pod(), routing=Routing(k, kind))
        once = ideal_collective("all-to-all", 1e9, n, pod(), routing=Routing(k, kind, None, True))
        assert once.time_s <= sparse.time_s * (1 + 1e-12) <= dense.time_s * (1 + 1e-9)


def test_sharp_helps_only_where_the_switches_reduce():
    fast = hierarchical_time_s("all-reduce", 1e9, 64, pod(), "sharp")
    plain = hierarchical_time_s("all-reduce", 1e9, 64, pod(reduces=False), "sharp")
    assert plain == hierarchical_time_s("all-reduce", 1e9, 64, pod())
    assert fast < plain


def test_torus_all_to_all_is_slower_than_full_connection():
    assert torus_bisection_time_s(1e9, (16, 16), 45e9) > all_to_all_time_s(1e9, 256, 180e9)
    assert torus_bisection_time_s(1e9, (1,), 45e9) == 0.0


@given(SIZES, st.integers(1, 64), st.integers(1, 64))
def test_switch_bytes_balance(size, m, n):
    t = all_gather_traffic(size, m, n)
    assert t.node_in_bytes == pytest.approx(size)
    assert t.node_out_gpus_bytes == pytest.approx(n * size - size / m)
    assert t.top_out_bytes == pytest.approx(m * t.node_in_above_bytes)
    s = in_switch_all_reduce_traffic(size, n)
    assert s.in_bytes == pytest.approx(n * size) == pytest.approx(s.out_bytes)


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1.01, 100))
def test_sweep_starts_and_ends_where_asked(first, ratio, factor):
    sizes = sweep_sizes(first, first * ratio, factor)
    assert sizes[-1] == first * ratio and sizes[0] == first or len(sizes) == 1
    assert list(sizes) == sorted(sizes)


@pytest.mark.parametrize(
    "call",
    [
        lambda: co.traffic_factor("all-gather", 0),
        lambda: co.traffic_factor("gather", 8),
        lambda: co.traffic_factor("all-reduce", 8, "star"),
        lambda: networks.collective_time_s("all-gather", -1.0, 8, 1e9),
        lambda: networks.collective_time_s("all-gather", 1.0, 8, 0.0),
        lambda: reached_frac(8, 0),
        lambda: reached_frac(8, 4, "without-replacement", 2),
        lambda: reached_frac(8, 4, "other"),
        lambda: hierarchical_time_s("all-gather", 1.0, 16, (Level("node", 8, 1e9),)),
        lambda: hierarchical_time_s("all-gather", 1.0, 8, pod(), inner=16),
        lambda: ideal_collective("all-to-all", 1.0, 8, pod(), inner=2),
        lambda: rl.roofline(1.0, 1.0, 0.0, 1.0),
    ],
)
def test_bad_input_is_a_value_error(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda a: a.name)
@given(n=st.integers(2, 4096))
def test_every_algorithm_sends_what_an_all_reduce_must(algorithm, n):
    """In a network each rank sends 2 (n-1)/n of the array (Patarasuk and Yuan 2009), and the news
    of n ranks takes log2(n) hops; only switches that reduce do with less."""
    least = 1.0 if algorithm.in_switch else 2 * (n - 1) / n
    assert least * (1 - 1e-12) <= algorithm.sent(n) <= algorithm.sent_by_many
    assert algorithm.hops(n) >= (2 if algorithm.in_switch else math.log2(n))
    assert algorithm.sent(10**6) == pytest.approx(algorithm.sent_by_many, rel=1e-5)
