"""A collective on a machine: what its options mean, and its times."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from gpuscale.answers.parts.collective_answer import (
    COUNTED,
    CollectiveAnswer,
    Told,
    document,
    expected_time,
    sweep_document,
)
from gpuscale.answers.values import check_dtype, quantity
from gpuscale.answers.values import shape as read_shape
from gpuscale.core.formats import element_bytes
from gpuscale.core.network import collective as through
from gpuscale.core.network.collective import ALGORITHMS
from gpuscale.core.network.expected import reduces_in_switch
from gpuscale.core.network.hierarchy import Level, check_span, network_levels
from gpuscale.core.network.ideal import (
    CollectiveTime,
    Routing,
    Torus,
    ideal_collective,
    sweep_sizes,
)
from gpuscale.core.records import asdict, dataclass, made_of
from gpuscale.errors import GpuscaleError
from gpuscale.io.calibration import load_fabric
from gpuscale.io.hardware import pair_on_bridge
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.specs.hardware import ClusterSpec, NetworkLevel

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import Collective
    from gpuscale.render.document import Document


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """A collective on a machine: what its times are computed with."""

    asked: Collective
    loaded: Loaded
    spec: ClusterSpec
    levels: tuple[Level, ...]
    n_gpus: int
    algorithm: str
    routing: Routing

    @property
    def inputs(self) -> dict[str, object]:
        """What an answer was computed with; the sizes apart."""
        asked, routing = self.asked, self.routing
        return self.loaded.inputs(
            op=asked.op,
            catalogue=asked.catalogue,
            n_gpus=self.n_gpus,
            inner=asked.inner,
            algorithm=self.algorithm,
            hop_latency_s=asked.hop_latency,
            oversubscription=asked.oversubscription,
            top_k=routing.top_k,
            routing=routing.kind,
            n_experts=routing.n_experts,
            once_per_node=asked.once_per_node,
        )

    @property
    def warnings(self) -> list[str]:
        """What a person must know beside the answer."""
        spec, n_gpus, levels = self.spec, self.n_gpus, self.levels
        found = list(self.loaded.warnings)
        if spec.n_gpus and n_gpus > spec.n_gpus and spec.kind in ("fabric", "cluster"):
            found.append(f"{spec.name} has {spec.n_gpus:,} GPUs; {n_gpus:,} are counted")
        domain = spec.scaleup_domain_gpus
        if spec.gpu.bridged and spec.scaleup_class == "pcie" and n_gpus > 2:
            found.append(f"bridges join pairs: among {n_gpus} cards the slowest link is PCIe")
        if n_gpus > domain and n_gpus % domain:
            found.append(f"{n_gpus} GPUs do not fill domains of {domain}; counted as if they did")
        if self.asked.algorithm == "sharp":
            used = levels if n_gpus > domain else levels[:1]
            plain = [level.name for level in used if not level.reduces]
            if plain:
                found.append(f"switches of level {', '.join(plain)} do not reduce: a ring there")
        return found


def _case(asked: Collective) -> CollectiveCase:
    """Put together what the options mean, and refuse what cannot be."""
    loaded = load_inputs(asked, cluster=asked.cluster, catalogue=asked.catalogue, wires=asked.wires)
    spec = oversubscribed(loaded.cluster, asked.oversubscription)
    n_gpus = asked.gpus or _default_gpus(spec)
    if n_gpus == 2 and spec.gpu.bridged and spec.scaleup_class == "pcie":
        spec = pair_on_bridge(spec)
    levels = network_levels(spec)
    _check_inner(asked.op, n_gpus, asked.inner)
    try:
        check_span(n_gpus, levels, asked.inner)
    except ValueError as error:
        raise GpuscaleError(f"{spec.name}: {error}", "see `gpuscale presets` for others") from None
    name = asked.algorithm or _usual(asked.op, spec, levels, n_gpus, asked.inner)
    algorithm = _algorithm(asked.op, name, spec, n_gpus)
    routing = _routing(asked, n_gpus)
    return CollectiveCase(
        asked, loaded, spec, levels, n_gpus=n_gpus, algorithm=algorithm, routing=routing
    )


def collective_document(asked: Collective) -> Document:
    """Time a collective, at one size or at several."""
    case = _case(asked)
    if len(asked.sweep) > 1:
        raise GpuscaleError("--sweep MIN:MAX is for one range of sizes")
    sizes = _sizes(asked, case.n_gpus)
    torus = _torus(case.spec)

    def ideal(size: float, algorithm: str) -> CollectiveTime:
        return ideal_collective(
            asked.op,
            size,
            n_gpus=case.n_gpus,
            levels=case.levels,
            algorithm=algorithm,
            inner=asked.inner,
            hop_s=asked.hop_latency,
            routing=case.routing,
            torus=torus,
        )

    def answered(size: float) -> tuple[CollectiveAnswer, Told | None]:
        row = ideal(size, case.algorithm)
        plain = case.algorithm != "ring" and not asked.algorithm and not asked.sweep
        named = case.algorithm if asked.algorithm else None
        once = case.routing.top_k or 1 if asked.once_per_node else 1
        found = row, case.spec, case.levels, asked.inner, named
        told = expected_time(*found, calibration=asked.calibration, once_per_node_of=once)
        return made_of(
            CollectiveAnswer,
            row,
            expected=told and told.answer,
            ring_s=ideal(size, "ring").time_s if plain else None,
            switch_bytes=_switch_bytes(case, row)
            if asked.switch_bytes and not asked.sweep
            else None,
        ), told

    rows, told = zip(*map(answered, sizes), strict=True)
    if asked.sweep:
        return sweep_document(case, rows, told[-1])
    return document(case, rows[0], told[0])


def _switch_bytes(case: CollectiveCase, found: CollectiveTime) -> dict[str, float]:
    """Bytes through the switches; refused where they are not counted."""
    domain = min(case.loaded.cluster.scaleup_domain_gpus, found.n_gpus)
    if found.op == "all-gather":
        nodes = -(-found.n_gpus // domain)
        return asdict(through.all_gather_traffic(found.array_bytes, nodes, domain))
    if found.op == "all-reduce" and case.algorithm == "sharp" and found.n_gpus <= domain:
        return asdict(through.in_switch_all_reduce_traffic(found.array_bytes, found.n_gpus))
    raise GpuscaleError(
        f"--switch-bytes does not cover this {found.op}",
        "all-gather over nodes, and all-reduce --algorithm sharp inside one node",
    )


def _usual(op: str, spec: ClusterSpec, levels: tuple[Level, ...], n_gpus: int, inner: int) -> str:
    """Algorithm that the library takes for a large buffer, so that the roofline bounds it."""
    if op != "all-reduce" or not levels or not levels[0].reduces:
        return "ring"
    in_domain = min(levels[0].gpus or n_gpus, n_gpus) // inner
    return "sharp" if reduces_in_switch(load_fabric(spec), in_domain) else "ring"


def _default_gpus(spec: ClusterSpec) -> int:
    """One scale-up domain; of a whole fabric, all that it has."""
    if spec.kind in ("fabric", "cluster") and spec.n_gpus:
        return spec.n_gpus
    return spec.scaleup_domain_gpus if spec.kind != "tpu-pod" else spec.n_gpus or 1


def _check_inner(op: str, n_gpus: int, inner: int) -> None:
    if inner > 1 and op not in ("all-gather", "reduce-scatter", "all-reduce"):
        raise GpuscaleError(f"--inner has no meaning for {op}")
    if n_gpus % inner:
        raise GpuscaleError(f"--inner {inner} does not divide the {n_gpus} GPUs")


def _algorithm(op: str, name: str, spec: ClusterSpec, n_gpus: int) -> str:
    if name != "ring" and op != "all-reduce":
        raise GpuscaleError(f"--algorithm {name} is for all-reduce; {op} has one ideal form")
    inside = n_gpus <= spec.scaleup_domain_gpus
    if ALGORITHMS[name].in_switch and not (
        spec.in_switch_reduction_scaleup or (spec.in_switch_reduction_scaleout and not inside)
    ):
        raise GpuscaleError(
            f"the switches of {spec.name} do not reduce" + (" inside a node" if inside else ""),
            "`--set cluster.in_switch_reduction_scaleup=true` assumes that they do",
        )
    return name


def _routing(asked: Collective, n_gpus: int) -> Routing:
    kind, k, n_experts, once = asked.routing, asked.top_k, asked.experts, asked.once_per_node
    if asked.op != "all-to-all" and (k or n_experts or once):
        raise GpuscaleError(
            f"--top-k, --experts and --once-per-node are for all-to-all, not {asked.op}"
        )
    if kind == "without-replacement" and k is not None:
        if n_experts is None:
            raise GpuscaleError("--routing without-replacement wants --experts")
        if n_experts < k or n_experts < n_gpus:
            raise GpuscaleError(
                f"--experts {n_experts} must be at least --top-k {k} and the {n_gpus} GPUs"
            )
    kind = "top-k" if kind == "bound" else kind
    return Routing(k, kind if k else "dense", n_experts, once)


def _sizes(asked: Collective, n_gpus: int) -> tuple[float, ...]:
    op, shape, dtype = asked.op, asked.shape, asked.dtype.strip().lower()
    check_dtype(dtype)
    if (asked.bytes is not None) + (shape is not None) + bool(asked.sweep) != 1:
        raise GpuscaleError("give one of --bytes, --shape and --sweep", "for example --bytes 1GB")
    if asked.per_gpu and op != "all-to-all":
        raise GpuscaleError(f"--per-gpu is for all-to-all; --bytes of {op} is {COUNTED[op]}")
    if asked.sweep:
        sizes = _sweep_sizes(asked.sweep[0])
    elif shape is not None:
        size = prod(read_shape(shape)) * element_bytes(dtype)
        if size > 1e18:
            raise GpuscaleError(f"--shape {shape[:40]} has {size:.3g} bytes; at most 1e18")
        sizes = (size,)
    else:
        sizes = (asked.bytes or 0.0,)
    return tuple(s * n_gpus for s in sizes) if asked.per_gpu else sizes


def _sweep_sizes(text: str) -> tuple[float, ...]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise GpuscaleError("--sweep: give MIN:MAX or MIN:MAX:FACTOR, such as 1KiB:10GiB:2")
    low = quantity(parts[0], "bytes", "--sweep MIN", most=1e18)
    high = quantity(parts[1], "bytes", "--sweep MAX", most=1e18)
    if high < low:
        raise GpuscaleError("--sweep: the first size is larger than the second")
    factor = quantity(parts[2], "count", "--sweep FACTOR", least=1.01, most=1e6) if parts[2:] else 4
    return sweep_sizes(low, high, factor)


def _torus(spec: ClusterSpec) -> Torus | None:
    """Sides and link of a torus, if the GPU's links form one."""
    found = re.search(r"torus (\d+(?:x\d+)*)", spec.gpu.scaleup_topology)
    if not found or not spec.gpu.scaleup_p2p_bytes_per_s:
        return None
    return Torus(tuple(map(int, found[1].split("x"))), spec.gpu.scaleup_p2p_bytes_per_s)


def oversubscribed(spec: ClusterSpec, down_over_up: float | None) -> ClusterSpec:
    """Cluster whose outermost switches pass on only a part of what comes from the nodes.

    Raises GpuscaleError if more were to go up than comes from below.
    """
    if down_over_up is None:
        return spec
    if down_over_up < 1.0:
        raise GpuscaleError(
            f"--oversubscription must be at least 1, got {down_over_up:g}",
            "it is the bandwidth down over the bandwidth up: 1 is full bisection, 4 a quarter",
        )
    top = spec.levels[-1] if spec.levels else NetworkLevel(name="network")
    top = top.model_copy(update={"oversubscription": down_over_up})
    return spec.model_copy(update={"levels": (*spec.levels[:-1], top)})
