"""The search finds what brute force finds, on small spaces, with and without pins."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuscale.core.layout import ORDERS, RECOMPUTE, Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.peak import peak_stage, stage_memories
from gpuscale.core.rules import RuleFacts, against
from gpuscale.core.search import space as space_of
from gpuscale.core.search.bounds import peak_floor_bytes, states_floors_bytes
from gpuscale.core.search.burden import burdens, total
from gpuscale.core.search.closest import least_memory
from gpuscale.core.search.engine import search
from gpuscale.core.search.problem import (
    Problem,
    micro_batch_s,
    peak_bytes,
    problem_for,
    stages_dealt,
    stages_of,
    step_s,
)
from gpuscale.core.search.results import (
    FAMILY_CUTOFF,
    FoundLayout,
    Incumbents,
    family,
    grid_of,
    make_layout,
)
from gpuscale.core.search.space import ProcessGrid, Space, Tail, default_space
from gpuscale.core.step.step import breakdown, model_stages, shape_of, stage_times
from gpuscale.io.hardware import load_cluster
from gpuscale.io.presets import preset_names
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import step_hardware
from gpuscale.specs.model import ModelSpec


def dense() -> ModelSpec:
    return ModelSpec.model_validate(
        dict(
            name="dense",
            hidden_size=2048,
            vocab_size=32000,
            layers="8 x full+mlp",
            mixers={"full": {"kind": "attention", "n_heads": 16, "n_kv_heads": 4, "head_dim": 128}},
            ffns={"mlp": {"kind": "dense", "ffn_hidden_size": 8192}},
        )
    )


def moe() -> ModelSpec:
    return ModelSpec.model_validate(
        dict(
            name="moe",
            hidden_size=1024,
            vocab_size=32000,
            layers="2 x full+mlp, 6 x full+moe",
            mixers={"full": {"kind": "attention", "n_heads": 8, "n_kv_heads": 8, "head_dim": 128}},
            ffns={
                "mlp": {"kind": "dense", "ffn_hidden_size": 4096},
                "moe": {"kind": "moe", "n_experts": 16, "top_k": 2, "expert_ffn_hidden_size": 2048},
            },
        )
    )


@lru_cache
def problem(kind: str, n_gpus: int, capacity_bytes: float, gpu: str = "dgx-h100") -> Problem:
    model = dense() if kind == "dense" else moe()
    heads = 16 if kind == "dense" else 8
    facts = RuleFacts(
        n_layers=8,
        head_counts=(heads,),
        kv_head_counts=(4,) if kind == "dense" else (),
        ffn_widths=(8192,) if kind == "dense" else (4096,),
        expert_widths=() if kind == "dense" else (2048,),
        n_experts=0 if kind == "dense" else 16,
        seq_len=4096,
        global_batch_size=32,
        n_gpus=n_gpus,
    )
    hardware = step_hardware(load_cluster(gpu))
    software = load_software()
    return Problem(
        model,
        hardware,
        software_record(software, hardware.architecture),
        model_facts(model),
        parameters_of(software),
        capacity_bytes,
        facts,
    )


def small(kind: str, n_gpus: int, capacity_bytes: float, **pins: object) -> Space:
    facts = problem(kind, n_gpus, capacity_bytes).facts
    space = default_space(facts, 8)
    space = replace(
        space,
        micro_batch_size=(1, 4),
        vpp=(2, 4),
        recompute=RECOMPUTE[:3],
        shard_group_size=(8,),
        ep=tuple(e for e in space.ep if e in (1, 4, 8)),
        offload_optimizer=(False, True),
    )
    return replace(space, **pins)  # type: ignore[arg-type]


def brute_force(problem: Problem, space: Space) -> Iterator[tuple[float, float, Layout]]:
    """Every layout of the space with its time and memory, one by one."""
    facts: RuleFacts = problem.facts
    for grid in space_of.grids(space, facts):
        outer = itertools.product(
            space_of.expert_degrees(space, facts, grid),
            space_of.micro_batches(space, facts, grid),
            space_of.sequence_parallels(space, facts, grid),
            space.precision,
            space_of.recomputes(space, facts, grid.pp),
            space_of.overlap_tps(space, grid.tp),
            space_of.orders(space, grid),
        )
        for (ep, etp), b, seq, precision, recompute, overlap, order in outer:
            stages = {}
            for tail in space_of.tails(space, facts, grid, b):
                layout = make_layout(
                    facts,
                    grid,
                    ep=ep,
                    etp=etp,
                    micro_batch_size=b,
                    sequence_parallel=seq,
                    precision=precision,
                    recompute=recompute,
                    overlap_tp=overlap,
                    order=order,
                    tail=tail,
                )
                p = problem_for(problem, tail.schedule)  # DualPipe has times of its own
                key = tail.vpp, p is problem
                if key not in stages:
                    stages[key] = stages_of(p, layout, shape_of(layout, p.hardware, p.software))
                yield step_s(p, layout, stages[key]), peak_bytes(p, layout), layout


@lru_cache
def evaluated(
    kind: str, n_gpus: int, space: Space
) -> list[tuple[float, float, float, str, tuple[int, ...]]]:
    """(weighed time, time, memory, family, grid) of every layout, which no capacity changes."""
    p = problem(kind, n_gpus, 80e9)
    return [
        (*weighed(p, space, step_s, x), peak, *of(x)) for step_s, peak, x in brute_force(p, space)
    ]


def of(x: Layout) -> tuple[str, tuple[int, ...]]:
    return family(x.tp, x.pp, x.cp, x.ep, x.zero_stage, x.shard_group_size), grid_of(x)


def weighed(p: Problem, space: Space, step_s: float, x: Layout) -> tuple[float, float]:
    return step_s * (1 + total(burdens(x, p.facts, space.domain_gpus))), step_s


def compare(kind: str, n_gpus: int, capacity_bytes: float, **pins: object) -> None:
    p = problem(kind, n_gpus, capacity_bytes)
    space = small(kind, n_gpus, capacity_bytes, **pins)
    result = search(p, space, n_next=3)
    best: dict[str, float] = {}
    grids: dict[tuple[int, ...], float] = {}
    every = evaluated(kind, n_gpus, space)
    n = len(every)
    for weighed_s, _, peak, name, key in every:
        if peak <= capacity_bytes:
            best[name] = min(best.get(name, float("inf")), weighed_s)
            grids[key] = min(grids.get(key, float("inf")), weighed_s)
    counts = result.counts
    assert counts.declared == n
    parts = counts.evaluated + counts.too_large + counts.dominated + counts.bounded
    assert parts == n and min(counts.evaluated, counts.bounded, counts.too_large) >= 0
    if not best:
        assert result.best is None and result.fastest is None
        return
    least = min(best.values())
    assert result.best is not None and result.fastest is not None
    assert result.best.weighed_s == pytest.approx(least, rel=1e-12)
    fastest = min(step_s for _, step_s, peak, *_ in every if peak <= capacity_bytes)
    assert result.fastest.step_s == pytest.approx(fastest, rel=1e-12)
    alone = search(p, space, 0, follow_families=False)
    assert (alone.best, alone.fastest) == (result.best, result.fastest)
    near = {k: v for k, v in best.items() if v <= FAMILY_CUTOFF * least}
    assert {k: v.weighed_s for k, v in result.families.items()} == pytest.approx(near, rel=1e-12)
    assert len(result.next_best) == min(3, len(grids) - 1)
    want = sorted(grids.values())[:4]
    got = [result.best.weighed_s, *(f.weighed_s for f in result.next_best)]
    assert got == pytest.approx(want, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("capacity_gb", [80, 7, 2])
@pytest.mark.parametrize(("kind", "n_gpus"), [("dense", 8), ("dense", 32), ("moe", 16)])
def test_search_equals_brute_force(kind: str, n_gpus: int, capacity_gb: float) -> None:
    pins: dict[str, object] = {"cp_kind": ("ring", "ulysses"), "cp": (1, 2)}
    if n_gpus == 8:
        pins |= {"overlap_pp": (True,)}
    else:
        pins |= {"overlap_pp": (True,), "overlap_dp": (True,), "offload_optimizer": (False,)}
        pins["vpp"] = (2,)
    compare(kind, n_gpus, capacity_gb * 1e9, **pins)


@pytest.mark.parametrize(("mtp", "pp", "vpp"), [(0, 1, 1), (0, 2, 2), (2, 1, 1), (2, 4, 1)])
def test_memoised_stages_are_those_of_the_step_model(mtp: int, pp: int, vpp: int) -> None:
    base = problem("moe", 16, 80e9)
    model = base.model.model_copy(update={"n_mtp_layers": mtp})
    p = replace(base, model=model, memory_facts=model_facts(model), cache={}, kernel_cache={})
    for recompute, layers in (("none", None), ("full", None), ("full", 1)):
        layout = Layout(
            4096, 32, tp=2, pp=pp, vpp=vpp, dp=8 // pp, recompute=recompute, recompute_layers=layers
        )
        shape = shape_of(layout, p.hardware, p.software)
        stages = model_stages(model, p.hardware, p.software, layout, shape)
        found = stages_of(p, layout, shape)
        assert found == pytest.approx(stage_times(stages)[0], rel=1e-12)
        bound = micro_batch_s(p, shape)
        if layers is None:
            assert bound == pytest.approx(found.all_stages_s, rel=1e-12)


def test_room_with_a_margin() -> None:
    """A margin of 1.25 on 80 GB leaves 64."""
    p = replace(problem("dense", 8, 80e9), fit_factor=1.25)
    assert p.room_bytes == 64e9 and replace(p, fit_factor=1.0).room_bytes == 80e9


FEW: dict[str, object] = {
    "cp": (1,),
    "micro_batch_size": (1, 4),
    "recompute_layers": (),
    "overlap_tp": (True,),
    "overlap_dp": (True,),
    "overlap_pp": (True,),
    "order": ("tp-cp-dp-pp",),
    "offload_optimizer": (False,),
    "sequence_parallel": (True,),
    "shard_group_size": (),
}
TINY: list[tuple[str, dict[str, object]]] = [
    ("dense", {"tp": (1, 2, 8), "pp": (1, 2, 4), "recompute": ("none", "full")}),
    ("dense", {"tp": (1,), "pp": (1, 2), "shard_group_size": (2, 4), "zero_stage": (0, 1, 2, 3)}),
    ("dense", {"tp": (2,), "pp": (2, 4), "recompute": ("full",), "recompute_layers": (1, 2)}),
    ("dense", {"tp": (2,), "pp": (1,), "cp": (1, 2, 4), "cp_kind": ("ring", "ulysses")}),
    ("dense", {"tp": (1, 4), "pp": (1,), "offload_optimizer": (False, True)}),
    ("dense", {"tp": (2,), "pp": (2,), "order": ORDERS, "sequence_parallel": (True, False)}),
    ("moe", {"tp": (1, 2), "pp": (1, 2), "ep": (1, 4), "recompute": ("none", "full")}),
    ("moe", {"tp": (2,), "pp": (4,), "ep": (2,), "vpp": (2,), "schedule": ("1f1b", "interleaved")}),
]


@pytest.mark.parametrize("capacity_gb", [80, 7, 4])
@pytest.mark.parametrize(("kind", "pins"), TINY)
def test_tiny_spaces(kind: str, pins: dict[str, object], capacity_gb: float) -> None:
    """The same on spaces of a few hundred layouts each, one dimension or two at a time."""
    schedules = {"schedule": ("1f1b", "zb-h1"), "zero_stage": (1, 3)}
    compare(kind, 8, capacity_gb * 1e9, **(FEW | schedules | pins))


@pytest.mark.parametrize(("kind", "pins"), TINY[::3])
def test_closest_of_tiny_spaces(kind: str, pins: dict[str, object]) -> None:
    p = problem(kind, 8, 1e9)
    space = small(kind, 8, 1e9, **(FEW | {"schedule": ("1f1b", "zb-h1")} | pins))
    least: dict[str, float] = {}
    for _, peak, x in brute_force(p, space):
        name = family(x.tp, x.pp, x.cp, x.ep, x.zero_stage, x.shard_group_size)
        least[name] = min(least.get(name, float("inf")), peak)
    found = least_memory(p, space, set(least))
    assert {k: v.peak_bytes for k, v in found.items()} == pytest.approx(least, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tp=st.sampled_from([(1,), (2,), (1, 4), (8,)]),
    pp=st.sampled_from([(1,), (2, 4), (1, 2, 4, 8)]),
    zero=st.sampled_from([(0,), (1,), (3,), (1, 3), (0, 1, 2, 3)]),
    recompute=st.sampled_from([("none",), ("per-op",), ("none", "full"), RECOMPUTE]),
    schedule=st.sampled_from([("1f1b",), ("1f1b", "zb-h1"), ("1f1b", "interleaved", "dualpipe")]),
    capacity_gb=st.sampled_from([80.0, 10.0, 6.0]),
    offload=st.sampled_from([(False,), (True,), (False, True)]),
)
def test_search_equals_brute_force_with_pins(
    tp: tuple[int, ...],
    pp: tuple[int, ...],
    zero: tuple[int, ...],
    recompute: tuple[str, ...],
    schedule: tuple[str, ...],
    capacity_gb: float,
    offload: tuple[bool, ...],
) -> None:
    compare(
        "dense",
        16,
        capacity_gb * 1e9,
        tp=tp,
        pp=pp,
        zero_stage=zero,
        recompute=recompute,
        schedule=schedule,
        cp=(1, 2),
        cp_kind=("ring",),
        offload_optimizer=offload,
    )


def test_search_uses_the_step_and_memory_models() -> None:
    """What the search assembles from memoised blocks is what the models say of the layout."""
    p = problem("moe", 16, 80e9)
    result = search(p, small("moe", 16, 80e9))
    assert result.best is not None
    for found in [result.best, *result.families.values()]:
        whole, _ = breakdown(p.model, p.hardware, p.software, found.layout)
        assert found.step_s == pytest.approx(whole.total_s, rel=1e-12)
        stages = stage_memories(p.memory_facts, found.layout, p.memory_parameters)
        assert found.peak_bytes == pytest.approx(peak_stage(stages).total_bytes, rel=1e-12)
        assert against(found.layout, p.facts) is None


@pytest.mark.slow
def test_closest_is_the_least_memory() -> None:
    p = problem("dense", 8, 1e9)
    space = small("dense", 8, 1e9, cp=(1,), offload_optimizer=(False,))
    least: dict[str, float] = {}
    for _, peak, x in brute_force(p, space):
        name = family(x.tp, x.pp, x.cp, x.ep, x.zero_stage, x.shard_group_size)
        least[name] = min(least.get(name, float("inf")), peak)
    found = least_memory(p, space, set(least))
    assert {k: v.peak_bytes for k, v in found.items()} == pytest.approx(least, rel=1e-12)
    for closest in found.values():
        assert closest.peak_bytes == peak_bytes(p, closest.layout)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*preset_names("software"), "pp_exposed_frac", "tp_exposed_frac"])
def test_overlap_is_off_where_that_is_faster(name):
    """Whatever the exposed shares of a family, no overlap that is pinned beats the choice."""
    base = problem("dense", 16, 80e9)
    software = replace(base.software, **{name: 1.5}) if name.endswith("frac") else None
    software = software or software_record(load_software(name), base.hardware.architecture)
    p = replace(base, software=software, cache={}, kernel_cache={})
    space = replace(default_space(p.facts, 8), zero_stage=(1,), vpp=(1, 2), micro_batch_size=(1, 2))
    space = replace(space, pp=(2, 4), tp=(2, 4)) if name.endswith("frac") else space
    best = search(p, space, 0, follow_families=False).best.step_s
    for dimension in ("overlap_dp", "overlap_pp", "overlap_tp"):
        off = search(p, replace(space, **{dimension: (False,)}), 0, follow_families=False).best
        assert best <= off.step_s * (1 + 1e-12), dimension


def test_families_are_named_where_nothing_fits() -> None:
    p = problem("dense", 8, 1e8)
    space = small("dense", 8, 1e8, cp=(1,))
    alone = search(p, space, 0, follow_families=False)
    assert alone.best is None
    assert alone.slower == search(p, space, 0).slower != ()


def random_job(seed: int) -> tuple[Problem, Space]:
    """Return a job with a batch of any kind, some dimensions pinned, on GPUs large and small."""
    draw = random.Random(seed)
    kind, n_gpus = draw.choice([("dense", 4), ("dense", 6), ("dense", 8), ("moe", 4), ("moe", 8)])
    base = problem(kind, n_gpus, draw.choice([80e9, 20e9, 12e9, 7e9]))
    batch = draw.choice([1, 7, 12, 24, 30, 32, 36, 44, 56, 60])
    facts = replace(base.facts, global_batch_size=batch, seq_len=draw.choice([512, 2048, 4096]))
    p = replace(base, facts=facts, cache={}, memory_cache={}, kernel_cache={})
    pins: dict[str, object] = {k: v for k, v in FEW.items() if k != "micro_batch_size"}
    for name, choices in {
        "tp": [(1,), (2,), (1, 2), (4,)],
        "pp": [(1,), (2,), (1, 2, 4)],
        "cp": [(1,), (1, 2), (2,)],
        "zero_stage": [(0,), (1, 3), (3,), (0, 1, 2, 3)],
        "recompute": [("none",), ("none", "full"), ("full",), ("none", "selective", "full")],
        "schedule": [("1f1b",), ("1f1b", "interleaved"), ("1f1b", "zb-h1")],
        "micro_batch_size": [None, None, (1,), (2, 3), (7,)],
        "shard_group_size": [(), (), (2,)],
        "offload_optimizer": [(False,), (False, True), (True,)],
        "offload_activations": [(False,), (False,), (True,)],
    }.items():
        chosen = draw.choice(choices)
        pins |= {} if chosen is None else {name: chosen}
    space = default_space(facts, 8)
    ep = tuple(e for e in space.ep if e in (1, 2, 4))
    return p, replace(space, ep=ep, vpp=(2,), **pins)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("GPUSCALE_JOBS", "40"))))
def test_random_jobs_however_they_are_asked(seed: int) -> None:
    """What is proposed, and the fastest, are those of every layout tried, whatever is shown."""
    p, space = random_job(seed)
    every = [
        (*weighed(p, space, step_s, x), of(x))
        for step_s, peak, x in brute_force(p, space)
        if peak <= p.room_bytes
    ]
    asked = [search(p, space, n, follow_families=f) for n, f in ((0, False), (1, True), (8, True))]
    assert len({(r.best, r.fastest) for r in asked}) == 1
    result = asked[-1]
    if not every:
        assert result.best is None and result.fastest is None
        return
    assert result.best.weighed_s == pytest.approx(min(e[0] for e in every), rel=1e-12)
    assert result.fastest.step_s == pytest.approx(min(e[1] for e in every), rel=1e-12)
    grids: dict[tuple[int, ...], float] = {}
    for weighed_s, _, (_, grid) in every:
        grids[grid] = min(grids.get(grid, weighed_s), weighed_s)
    shown = [f.weighed_s for f in (result.best, *result.next_best)]
    assert shown == pytest.approx(sorted(grids.values())[:9], rel=1e-12)
    better = replace(p, capacity_bytes=1.3 * p.capacity_bytes)
    more = search(better, space, 0).best
    assert more.weighed_s <= result.best.weighed_s


# --- relations: more is never worse, less said is never worse ---

KINDS = st.sampled_from([("dense", 8), ("dense", 32), ("moe", 16)])
FIGURES = (
    "capacity_bytes",
    "hbm_bytes_per_s",
    "scaleup_bytes_per_s",
    "scaleout_bytes_per_s",
    "bf16_flop_per_s",
    "host_link_bytes_per_s",
)


def best_of(p: Problem, space: Space) -> tuple[float, float]:
    """(Weighed time of the best, time of the fastest)."""
    found = search(p, space, 0, follow_families=False)
    if found.best is None or found.fastest is None:
        return float("inf"), float("inf")
    return found.best.weighed_s, found.fastest.step_s


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(KINDS, st.sampled_from([80e9, 7e9, 3e9]), st.sampled_from(FIGURES), st.floats(1.01, 4.0))
def test_better_hardware_is_never_worse(job, capacity, figure, factor):
    kind, n_gpus = job
    p = problem(kind, n_gpus, capacity)
    if figure == "capacity_bytes":
        more = replace(p, capacity_bytes=capacity * factor)
    else:
        hw = replace(p.hardware, **{figure: getattr(p.hardware, figure) * factor})
        more = replace(p, hardware=hw, cache={}, kernel_cache={})
    space = small(kind, n_gpus, capacity)
    before, after = best_of(p, space), best_of(more, space)
    assert all(b <= a * (1 + 1e-9) for a, b in zip(before, after, strict=True))


PINNED = ("tp", "pp", "cp", "ep", "micro_batch_size", "recompute", "zero_stage", "schedule")


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(KINDS, st.sampled_from([80e9, 7e9, 3e9]), st.data())
def test_a_pin_removed_is_never_worse(job, capacity, data):
    kind, n_gpus = job
    p, space = problem(kind, n_gpus, capacity), small(kind, n_gpus, capacity)
    names = data.draw(st.lists(st.sampled_from(PINNED), min_size=1, max_size=3, unique=True))
    pins = {n: (data.draw(st.sampled_from(getattr(space, n))),) for n in names}
    first = data.draw(st.sampled_from(names))
    fewer = {n: v for n, v in pins.items() if n != first}
    pinned, free = best_of(p, replace(space, **pins)), best_of(p, replace(space, **fewer))
    assert all(f <= q * (1 + 1e-9) for f, q in zip(free, pinned, strict=True))


def test_nothing_is_weighed_where_the_fastest_is_asked_for():
    p, space = problem("moe", 16, 80e9), small("moe", 16, 80e9)
    found = search(p, space, 0, weigh=False)
    assert found.best is not None and found.best.weighed_s == found.best.step_s
    assert found.best.step_s == best_of(p, space)[1]


@pytest.mark.parametrize("capacity_gb", [80, 2.5, 1.5])
@pytest.mark.parametrize(("overlap_ep", "graphs"), [(True, "none"), (False, "layer")])
def test_habits_of_tuned_experts_go_where_a_layout_lets_them(
    capacity_gb: float, overlap_ep: bool, graphs: str
) -> None:
    """The exchange is hidden neither under full recomputation nor in stages that are not
    interleaved, layers are captured without full recomputation (Megatron-Core)."""
    base = problem("moe", 8, capacity_gb * 1e9)
    software = replace(base.software, overlap_ep=overlap_ep, cuda_graphs=graphs, host_layer_s=1e-3)
    memory = replace(base.memory_parameters, overlap_ep=overlap_ep)
    p = replace(base, software=software, memory_parameters=memory, cache={}, memory_cache={})
    pins = FEW | {"tp": (1, 2), "pp": (1, 2, 4), "ep": (1, 4, 8), "recompute": ("none", "full")}
    pins |= {"schedule": ("1f1b", "interleaved"), "zero_stage": (1, 3)}
    space = small("moe", 8, capacity_gb * 1e9, **pins)
    every = []
    for _, _, x in brute_force(p, space):
        whole, _ = breakdown(p.model, p.hardware, p.software, x)
        every.append((whole.total_s * p.late, peak_bytes(p, x), x))
    fit = [one for one in every if one[1] <= p.room_bytes]
    found = search(p, space, 0, weigh=False)
    assert (found.best is None) == (not fit)
    if fit:
        assert found.best is not None
        assert found.best.step_s == pytest.approx(min(one[0] for one in fit), rel=1e-12)
    hidden = {x.recompute != "full" and (x.pp == 1 or x.vpp > 1) for *_, x in fit or every}
    assert hidden == {True, False} or capacity_gb < 80


def test_what_can_no_longer_matter():
    """Slower than the limit; slower than the fastest and, weighed, than all that it may be."""
    known = Incumbents(0)
    assert not known.hopeless(1e9, 1.0, (("DP",), ()))  # nothing is known
    known.slowest_s = 10.0
    assert known.hopeless(10.0, 0.0, (("DP",), ())) and not known.hopeless(9.9, 9.0, (("DP",), ()))
    known.fastest_s = known.kth_s = known.cutoff_s = 4.0
    assert not known.hopeless(4.0, 9.0, ((), ()))  # as fast as the fastest, whatever its burden
    assert known.hopeless(4.4, 0.0, ((), ())) and known.hopeless(4.1, 0.1, ((), ()))

    def now(**values: object) -> None:
        known.limits.clear()
        for name, value in values.items():
            setattr(known, name, value)

    now(kth_s=5.0)
    assert not known.hopeless(4.5, 0.1, ((), ())) and known.hopeless(4.5, 0.2, ((), ()))
    layout = make_layout(
        problem("dense", 8, 80e9).facts, ProcessGrid(1, 1, "ring", 1, 8), Tail(), ("none", None)
    )
    grids = ((1, 1, 1, 1, 1, 0), (1, 1, 1, 1, 1, 1))
    now(grids={grids[0]: FoundLayout(4.6, 4.6, 1.0, layout, "DP")})
    assert known.hopeless(4.5, 0.1, ((), grids[:1]))  # its grid is known to be faster
    assert not known.hopeless(4.5, 0.02, ((), grids[:1]))
    assert not known.hopeless(4.5, 0.1, ((), grids))  # the other one is not known
    now()
    known.result.families["DP"] = FoundLayout(8.0, 7.0, 1.0, layout, "DP")
    assert not known.hopeless(7.9, 0.0, (("DP",), grids[:1]))  # it may be the best of its family
    assert not known.hopeless(7.9, 0.0, (("DP",), ())) and known.hopeless(8.1, 0.0, (("DP",), ()))
    assert known.hopeless(7.9, 0.0, (("FSDP",), ()))  # never seen: up to the cutoff
    now(cutoff_s=9.0)
    assert not known.hopeless(8.9, 0.0, (("FSDP",), ()))
    now(follow_families=False)
    assert known.hopeless(7.9, 0.0, (("DP", "FSDP"), ()))


def test_a_problem_is_late_by_its_hosts_its_site_and_its_maturity():
    p = problem("dense", 8, 80e9)
    hw = replace(p.hardware, straggler_per_log2_hosts=0.1, site_factor=1.5)
    software = replace(p.software, maturity=replace(p.software.maturity, factor=2.0))
    late = [
        replace(p, hardware=hw, software=software, facts=replace(p.facts, n_gpus=n)).late
        for n in (4, 8, 16, 32)
    ]
    assert late == pytest.approx([3.0, 3.0, 3.3, 3.6])


def test_a_bound_of_memory_is_of_the_fullest_stage():
    """Never above the layout of least memory, and of no less than its heaviest states."""
    p, space = problem("dense", 8, 80e9), small("dense", 8, 80e9)
    grid = ProcessGrid(1, 1, "ring", 4, 2)
    first = make_layout(p.facts, grid, Tail(), ("full", None), micro_batch_size=1)
    states = tuple(space_of.least_states([Tail()]))
    floors = [floor for _, floor in states_floors_bytes(p, first, states, 1)]
    assert len(set(floors)) > 1  # the head is in the last stage
    assert max(floors) <= peak_floor_bytes(p, first, states, 1) <= peak_bytes(p, first)
    alone = replace(space, zero_stage=(3,), shard_group_size=(2,), fsdp=False)
    tails = space_of.shardings(alone, p.facts, ProcessGrid(1, 1, "ring", 1, 8))
    assert {t.shard_group_size for t in tails} == {2}


def test_experts_of_a_stage_are_split_by_their_own_degrees():
    """EP 2 x expert TP 4: an eighth of the experts each, whatever the TP of the attention."""
    p = problem("moe", 16, 80e9)
    whole, split = (
        stages_dealt(p, Layout(4096, 32, ep=ep, etp=etp, dp=16), 1)[0].expert_params
        for ep, etp in ((1, 1), (2, 4))
    )
    assert 8 * split == whole > 0.0
