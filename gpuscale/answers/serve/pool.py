"""Several models on one pool of GPUs: how it is split, which share a GPU, the lines to start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuscale.answers.serve.blocks import copies_text, figure, ms, rate_text
from gpuscale.answers.serve.case import case_of
from gpuscale.answers.serve.no_room import settled
from gpuscale.answers.study_jobs import fields_named
from gpuscale.answers.sweep import option_names
from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.sharing import Tenant, grown, placed, shared
from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Document, Facts, Point, Text

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve

OF_POOL = ("cluster", "gpu", "catalogue", "set", "calibration", "price", "spot", "seed")
"""What is said once, of the whole pool."""

TAKEN = ("engine", "ttft", "tpot")
"""What the others have as the first, unless they say otherwise."""

FIRST_PORT = 8000

SHARING = "processes on one GPU take turns: a pass is longer while another has work"


@dataclass(frozen=True, slots=True)
class PoolMember:
    """One model of the pool, under its rate."""

    model: str
    engine: str
    weights: str
    label: str  # its replicas and their layout in words
    gpus: tuple[int, ...]  # of the pool, of all replicas; empty where they do not fit
    rate_per_s: float
    at_most_per_s: float | None  # None beside others
    ttft_p95_s: float | None
    tpot_p95_s: float | None
    memory_frac: float | None  # of a GPU that it shares
    slowdown: float  # of its passes, by others on its GPU
    launch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """GPUs of all models together."""

    meets: bool
    fits: bool
    n_gpus: int  # needed
    n_gpus_apart: int  # were no GPU shared
    given_gpus: int
    grows_times: float | None  # that all rates may grow together, each model on GPUs of its own
    usd_per_hour: float | None
    models: tuple[PoolMember, ...]


@dataclass
class _Part:
    """One model with the answer to it alone: the fewest GPUs; what it has beside others."""

    asked: Serve
    alone: Document
    beside: Tenant | None = None
    stands: Sequence[range] = ()  # GPUs of each replica

    @property
    def r(self) -> Any:
        """Its answer alone, a `ServeAnswer`."""
        return self.alone.result

    @property
    def size(self) -> int:
        """GPUs of a replica."""
        return int(self.r.n_gpus // max(1, self.r.replicas))

    @cached_property
    def tenant(self) -> Tenant | None:
        """Its replica, where it is the only one and may share a GPU."""
        _, wanted, choice = settled(self.asked)
        what = choice.found[0].candidate.what
        if self.r.replicas > 1 or not isinstance(what, Service):
            return None
        shares = what.site.software.memory.rule == "device"
        return Tenant(what, wanted.rate_per_s or 0.0, wanted.limits) if shares else None


def questions(asked: Serve) -> list[Serve]:
    """Make a question of each model: the first as asked, the others as `--with` says."""
    known = {k: v for k, v in option_names(type(asked)).items() if v not in (*OF_POOL, "gpus")}
    known |= {"output": "output_len"}
    made = [replace(asked, beside=(), gpus=None)]
    for text in asked.beside:
        if not text.strip():
            raise GpuscaleError("--with '': a model is wanted", "as --with 'qwen2.5-7b rate=20/s'")
        model, *words = text.split()
        pairs = dict(word.partition("=")[::2] for word in words)
        own = fields_named(pairs, known, f"--with {model}")
        usual = {name: getattr(asked, name) for name in (*OF_POOL, *TAKEN)}
        if own.get("only") == "embed":
            usual["tpot"] = None
        made.append(type(asked)(model, **usual | own))
    for one in made:
        if one.rate is None or any((one.beside, one.trace, one.day, one.disagg, one.pareto)):
            raise GpuscaleError(
                f"{one.model} on a pool of several models: its --rate is wanted",
                "as --rate 2/s --with 'qwen2.5-7b rate=20/s input=512'",
            )
    return made


def _gathered(parts: Sequence[_Part], given: int | None) -> list[list[_Part]]:
    """Put models of one GPU beside others, the largest first, until the GPUs given are enough."""
    need, groups = sum(p.r.n_gpus for p in parts), list[list[_Part]]()
    for part in sorted(parts, key=lambda p: -p.size):
        for group in groups if part.size == 1 and (given is None or need > given) else ():
            tenants = [t for p in (*group, part) if (t := p.tenant) is not None]
            found = shared(tenants, part.asked.seed) if len(tenants) > len(group) else []
            if found:
                group.append(part)
                need -= 1
                for one, tenant in zip(group, found, strict=True):
                    one.beside = tenant
                break
        else:
            groups.append([part])
    return groups


def pool_document(asked: Serve) -> Document:
    """Answer for several models on one pool."""
    parts = [_Part(one, one.answer()) for one in questions(asked)]
    lost = [p.alone for p in parts if p.alone.answered_no]
    cluster = case_of(parts[0].asked).loaded.cluster
    groups = [] if lost else _gathered(parts, asked.gpus)
    sizes = [g[0].size for g in groups for _ in range(g[0].r.replicas)]
    domain, need = max(cluster.scaleup_domain_gpus, cluster.gpus_per_node), sum(sizes)
    room = asked.gpus or domain * (math.ceil(need / domain) + len(sizes))
    starts = iter(placed(sizes, room, domain))
    for group in groups:
        firsts = [at for _, at in zip(range(group[0].r.replicas), starts, strict=False)]
        for part in group:
            part.stands = [range(at, at + part.size) for at in firsts]
    apart = sum(p.r.n_gpus for p in parts)
    each = [
        (p.asked.rate or 0.0, p.r.at_most_per_s / p.r.replicas, p.size) for p in parts if not lost
    ]
    given, usd = asked.gpus or need or apart, getattr(parts[0].r, "usd_per_gpu_hour", None)
    result = PoolAnswer(
        meets=all(p.stands for p in parts),
        fits=all(p.stands for p in parts),
        n_gpus=need or apart,
        n_gpus_apart=apart,
        given_gpus=given,
        grows_times=grown(each, given) if each else None,
        usd_per_hour=usd and usd * given,
        models=tuple(_member(p, n, cluster.gpus_per_node) for n, p in enumerate(parts)),
    )
    gpu = f"{given:,} {cluster.gpu.name}"
    if lost:
        first = lost[0].blocks[0]
        assert isinstance(first, Text)
        return _document(first.text, result, parts)
    said = f"{len(parts)} models on {gpu}: they fit, {need:,} used, {given - need:,} spare."
    if not result.meets:
        said = f"{len(parts)} models do not fit on {gpu}: {result.n_gpus:,} are needed."
    return _document(said, result, parts)


def _member(part: _Part, n: int, per_node: int) -> PoolMember:
    """Say what a model gets, alone or beside others."""
    r, one = part.r, part.beside
    load = one.load(part.asked.seed) if one else None
    line = getattr(r, "launch", ("",))[0]
    line += f" --gpu-memory-utilization {one.memory_frac:g}" if one else ""
    lines = []
    for at in part.stands:
        devices = ",".join(str(gpu % per_node) for gpu in at[:per_node])
        port = FIRST_PORT + per_node * n + at.start % per_node
        where = f"  # node {at.start // per_node}" if at.start >= per_node else ""
        lines.append(f"CUDA_VISIBLE_DEVICES={devices} {line} --port {port}{where}")
    return PoolMember(
        model=part.alone.inputs["model"],
        engine=r.engine,
        weights=r.weights,
        label=copies_text(r) if part.stands else r.label,
        gpus=tuple(gpu for at in part.stands for gpu in at),
        rate_per_s=part.asked.rate or 0.0,
        at_most_per_s=None if one else getattr(r, "at_most_per_s", None),
        ttft_p95_s=load.ttft.p95_s if load else getattr(r, "ttft_p95_s", None),
        tpot_p95_s=(load.tpot.p95_s if load else getattr(r, "tpot_p95_s", None)) or None,
        memory_frac=one.memory_frac if one else None,
        slowdown=one.slowdown if one else 1.0,
        launch=tuple(lines),
    )


def _document(said: str, r: PoolAnswer, parts: Sequence[_Part]) -> Document:
    """Verdict, a line for each model, room to grow, money; table and launch lines as details."""
    lines = "\n".join(line for m in r.models for line in m.launch)
    points = [Point("verdict", said, tone="good" if r.meets else "bad")]
    rows = [_row(m) for m in r.models]
    points += [Point(*row) for row in rows]
    if saved := r.n_gpus_apart - r.n_gpus:
        points.append(Point("shared", f"{saved} GPU{'s' * (saved > 1)} less", SHARING))
    if r.grows_times:
        note = "of these rates together, each model on GPUs of its own"
        points.append(Point("at most", f"{figure(r.grows_times)} times", note))
    if r.usd_per_hour:
        points.append(Point("cost", f"{r.usd_per_hour:.2f} USD/h", f"of {r.given_gpus:,} GPUs"))
    if lines:
        points.append(Point("next", "--show launch", "the lines that start them"))
    inputs = {**parts[0].alone.inputs, "model": [m.model for m in r.models]}
    return Document.layered(
        "serve",
        inputs,
        r,
        points,
        {"models": [Text(said), Facts(rows)], "launch": [Text(lines)] if lines else []},
        warnings=tuple(dict.fromkeys(w for p in parts for w in p.alone.warnings)),
        answered_no=not r.meets,
    )


def _spans(gpus: Sequence[int]) -> str:
    """Write numbers as spans.

    >>> _spans((0, 1, 2, 3, 6))
    '0-3, 6'
    """
    firsts, ends = ([g for g in gpus if g + by not in gpus] for by in (-1, 1))
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(firsts, ends, strict=True))


def _row(m: PoolMember) -> tuple[str, str, str]:
    """Name, GPUs, and rate with latencies."""
    gpus = f", GPU{'s' * (len(m.gpus) > 1)} {_spans(m.gpus)}" if m.gpus else ""
    share = f", {100 * m.memory_frac:.0f} % of the memory" if m.memory_frac else ""
    most = f" of at most {figure(m.at_most_per_s)}" if m.at_most_per_s else ""
    both = (("TTFT", m.ttft_p95_s), ("TPOT", m.tpot_p95_s))
    times = [f"{name} p95 {ms(v)} ms" for name, v in both if v]
    slow = [f"passes {m.slowdown:.2f} times as long"] if m.slowdown > 1.0 else []
    told = ", ".join((rate_text(m.rate_per_s) + most, *times, *slow))
    return m.model, m.label + gpus + share, told
