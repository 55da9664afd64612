"""`gpuscale collective`: one collective on a cluster, or a sweep over its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.cli.completion import complete_cluster, complete_op
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.network.hierarchy import Level
    from gpuscale.core.network.ideal import Routing, Torus
    from gpuscale.render.document import Document
    from gpuscale.specs.cluster import ClusterSpec

ALIASES = {
    "ag": "all-gather",
    "rs": "reduce-scatter",
    "ar": "all-reduce",
    "a2a": "all-to-all",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "allreduce": "all-reduce",
    "alltoall": "all-to-all",
    "p2p": "send-recv",
    "sendrecv": "send-recv",
}


@command(
    app,
    "collective",
    example="gpuscale collective all-gather h100 --shape 4096x65536",
    headlines=(
        "time_s",
        "in_switch_s",
        "expected.time_s",
        "busbw_bytes_per_s",
        "expected.busbw_bytes_per_s",
        "binding_level",
    ),
)
def collective(
    common: Common,
    op: Annotated[
        str,
        typer.Argument(
            help="all-gather, reduce-scatter, all-reduce, all-to-all, broadcast, send-recv.",
            autocompletion=complete_op,
        ),
    ],
    cluster: Annotated[
        str,
        typer.Argument(
            help="Cluster preset, GPU name (its usual node), TOML file or -.",
            autocompletion=complete_cluster,
        ),
    ],
    bytes_: Annotated[
        str | None,
        typer.Option(
            "--bytes",
            help="Size of the array: all-gather: gathered; reduce-scatter, "
            "all-reduce: one GPU's buffer; all-to-all: the array over all GPUs.",
        ),
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Shape of the array instead of --bytes, as 4096x65536.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Number format of --shape.")] = "bf16",
    gpus: Annotated[
        str | None,
        typer.Option(help="GPUs spanned, an inner axis included. [default: one NVLink domain]"),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="ring, tree or sharp (in the switches) for all-reduce. [default: ring; "
            "expected: as the library chooses]"
        ),
    ] = None,
    inner: Annotated[
        str, typer.Option(help="Ways the array is sharded on another axis that lies innermost.")
    ] = "1",
    top_k: Annotated[
        str | None, typer.Option(help="Sparse all-to-all: destinations per token.")
    ] = None,
    routing: Annotated[
        str,
        typer.Option(
            help="Sparse all-to-all: bound (k/n at most), with-replacement, or "
            "without-replacement of --experts."
        ),
    ] = "bound",
    experts: Annotated[
        str | None, typer.Option(help="Experts, for --routing without-replacement.")
    ] = None,
    once_per_node: Annotated[
        bool, typer.Option("--once-per-node", help="All-to-all sends a token to a node only once.")
    ] = False,
    per_gpu: Annotated[
        bool, typer.Option("--per-gpu", help="All-to-all: --bytes is one GPU's send buffer.")
    ] = False,
    hop_latency: Annotated[
        str, typer.Option(help="Latency of one hop, as '1 us'; the ideal has none.")
    ] = "0",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MIN:MAX[:FACTOR]",
            help="Table over sizes, as 1KiB:10GiB; or over a key of --set or an option, "
            "as KEY=LOW..HIGH[:N] or KEY=A,B,C (once or twice).",
        ),
    ] = None,
    switch_bytes: Annotated[
        bool, typer.Option("--switch-bytes", help="Also count the bytes through the switches.")
    ] = False,
    catalogue: Annotated[
        str, typer.Option(help="Hardware figures: vendor, or documents (as they round).")
    ] = "vendor",
) -> Document:
    """Time and bandwidth of one collective operation on a cluster.

    The ideal: each level's links full, levels pipelined, the slowest one sets the time.
    """
    from gpuscale.answers.collective.document import document, expected_time, sweep_document
    from gpuscale.answers.values import quantity, whole
    from gpuscale.core.network.hierarchy import check_span, network_levels
    from gpuscale.core.network.ideal import ideal_collective
    from gpuscale.io.inputs import load_inputs

    op = _op(op)
    loaded = load_inputs(common, cluster=cluster, catalogue=catalogue)
    spec = loaded.cluster
    levels = network_levels(spec)
    n_gpus = whole(gpus, "--gpus", most=1e8) if gpus else _default_gpus(spec)
    n_inner = whole(inner, "--inner", most=1e8)
    _check_inner(op, n_gpus, n_inner)
    try:
        check_span(n_gpus, levels, n_inner)
    except ValueError as error:
        raise GpuscaleError(f"{spec.name}: {error}", "see `gpuscale presets` for others") from None
    used = _algorithm(op, (algorithm or "ring").strip().lower(), spec, n_gpus)
    hop_s = quantity(hop_latency, "s", "--hop-latency", most=10.0, zero=True)
    choice = _routing(op, top_k, routing, experts, once_per_node, n_gpus)
    if sweep and len(sweep) > 1:
        raise GpuscaleError("--sweep MIN:MAX is for one range of sizes")
    sizes = _sizes(op, bytes_, shape, dtype, sweep[0] if sweep else None, per_gpu, n_gpus)
    torus = _torus(spec)
    rows = [
        ideal_collective(op, size, n_gpus, levels, used, n_inner, hop_s, choice, torus)
        for size in sizes
    ]
    inputs: dict[str, Any] = {
        "op": op,
        "cluster": spec.name,
        "catalogue": catalogue,
        "n_gpus": n_gpus,
        "inner": n_inner,
        "algorithm": used,
        "hop_latency_s": hop_s,
        "top_k": choice.top_k,
        "routing": choice.kind,
        "n_experts": choice.n_experts,
        "once_per_node": once_per_node,
    }
    warnings = [*loaded.warnings, *_warnings(spec, op, n_gpus, used, levels)]
    inputs["changed"] = list(loaded.changes)
    chosen = used if algorithm else None
    copies = choice.top_k or 1 if once_per_node else 1
    expected = [
        expected_time(row, spec, levels, n_inner, chosen, common.calibration, copies)
        for row in rows
    ]
    if sweep:
        return sweep_document(rows, expected, inputs, loaded, warnings)
    in_switch_s = None
    if op == "all-reduce" and algorithm is None and any(level.reduces for level in levels):
        sharp = ideal_collective(op, sizes[0], n_gpus, levels, "sharp", n_inner, hop_s)
        in_switch_s = sharp.time_s if sharp.time_s < rows[0].time_s else None
    return document(rows[0], expected[0], inputs, loaded, in_switch_s, warnings, switch_bytes)


def _op(text: str) -> str:
    from gpuscale.core.network.collective import OPS
    from gpuscale.errors import unknown_name

    name = text.strip().lower().replace("_", "-")
    name = ALIASES.get(name, name)
    if name not in OPS:
        raise unknown_name("collective", name, OPS, f"known: {', '.join(OPS)}")
    return name


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
    from gpuscale.core.network.collective import ALGORITHMS
    from gpuscale.errors import unknown_name

    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS, f"known: {', '.join(ALGORITHMS)}")
    if name != "ring" and op != "all-reduce":
        raise GpuscaleError(f"--algorithm {name} is for all-reduce; {op} has one ideal form")
    inside = n_gpus <= spec.scaleup_domain_gpus
    if name == "sharp" and not (
        spec.in_switch_reduction_scaleup or (spec.in_switch_reduction_scaleout and not inside)
    ):
        raise GpuscaleError(
            f"the switches of {spec.name} do not reduce" + (" inside a node" if inside else ""),
            "`--set cluster.in_switch_reduction_scaleup=true` assumes that they do",
        )
    return name


def _routing(
    op: str, top_k: str | None, kind: str, experts: str | None, once: bool, n_gpus: int
) -> Routing:
    from gpuscale.answers.values import whole
    from gpuscale.core.network.ideal import Routing
    from gpuscale.errors import unknown_name

    kinds = {
        "bound": "top-k",
        "with-replacement": "with-replacement",
        "without-replacement": "without-replacement",
    }
    kind = kind.strip().lower()
    if kind not in kinds:
        raise unknown_name("routing", kind, kinds, f"known: {', '.join(kinds)}")
    if op != "all-to-all" and (top_k or experts or once):
        raise GpuscaleError(f"--top-k, --experts and --once-per-node are for all-to-all, not {op}")
    k = whole(top_k, "--top-k", most=1e6) if top_k else None
    n_experts = whole(experts, "--experts", most=1e6) if experts else None
    if kind == "without-replacement" and k is not None:
        if n_experts is None:
            raise GpuscaleError("--routing without-replacement wants --experts")
        if n_experts < k or n_experts < n_gpus:
            raise GpuscaleError(
                f"--experts {n_experts} must be at least --top-k {k} and the {n_gpus} GPUs"
            )
    return Routing(k, kinds[kind] if k else "dense", n_experts, once)


def _sizes(
    op: str,
    bytes_: str | None,
    shape: str | None,
    dtype: str,
    sweep: str | None,
    per_gpu: bool,
    n_gpus: int,
) -> tuple[float, ...]:
    from math import prod

    from gpuscale.answers.collective.document import COUNTED
    from gpuscale.answers.matmul_time import check_dtype
    from gpuscale.answers.values import quantity
    from gpuscale.answers.values import shape as read_shape
    from gpuscale.core.formats import element_bytes

    if (bytes_ is not None) + (shape is not None) + (sweep is not None) != 1:
        raise GpuscaleError("give one of --bytes, --shape and --sweep", "for example --bytes 1GB")
    if per_gpu and op != "all-to-all":
        raise GpuscaleError(f"--per-gpu is for all-to-all; --bytes of {op} is {COUNTED[op]}")
    if sweep is not None:
        sizes = _sweep_sizes(sweep)
    elif shape is not None:
        dtype = dtype.strip().lower()
        check_dtype(dtype)
        size = prod(read_shape(shape)) * element_bytes(dtype)
        if size > 1e18:
            raise GpuscaleError(f"--shape {shape[:40]} has {size:.3g} bytes; at most 1e18")
        sizes = (size,)
    else:
        sizes = (quantity(bytes_ or "", "bytes", "--bytes", most=1e18),)
    return tuple(s * n_gpus for s in sizes) if per_gpu else sizes


def _sweep_sizes(text: str) -> tuple[float, ...]:
    from gpuscale.answers.values import quantity
    from gpuscale.core.network.ideal import sweep_sizes

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
    import re

    from gpuscale.core.network.ideal import Torus

    found = re.search(r"torus (\d+(?:x\d+)*)", spec.gpu.scaleup_topology)
    if not found or not spec.gpu.scaleup_p2p_bytes_per_s:
        return None
    return Torus(tuple(map(int, found[1].split("x"))), spec.gpu.scaleup_p2p_bytes_per_s)


def _warnings(
    spec: ClusterSpec, op: str, n_gpus: int, algorithm: str, levels: tuple[Level, ...]
) -> list[str]:
    found = []
    if spec.n_gpus and n_gpus > spec.n_gpus and spec.kind in ("fabric", "cluster"):
        found.append(f"{spec.name} has {spec.n_gpus:,} GPUs; {n_gpus:,} are counted")
    domain = spec.scaleup_domain_gpus
    if n_gpus > domain and n_gpus % domain:
        found.append(f"{n_gpus} GPUs do not fill domains of {domain}; counted as if they did")
    if algorithm == "sharp":
        used = levels if n_gpus > domain else levels[:1]
        plain = [level.name for level in used if not level.reduces]
        if plain:
            found.append(f"switches of level {', '.join(plain)} do not reduce: a ring there")
    return found
