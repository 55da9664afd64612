"""What an expert avoids in a layout, as shares of the step that each must gain to be taken.

The time of a step is known to a tenth at best, and the order of layouts closer than that is little
better than chance (docs/accuracy.md); published recipes show what people launch among them
(`tools/picks.py`). The search takes the layout of the least ``step * (1 + burden)``.
"""

from __future__ import annotations

import math

from gpuscale.core.layout import DEFAULT_ORDER, Layout
from gpuscale.core.rules import RuleFacts
from gpuscale.core.search.space import WIDE_EXPERT

TOKENS_OF_A_RANK = 8192
"""A sequence is not worth cutting below so many tokens."""

DEEP = 16
"""Published pipelines are no deeper, but on more than ten thousand GPUs."""

MOST_EP = 64
"""Published trainings spread experts no further."""

SHARES = {
    "something": 0.005,  # any further kind of parallelism, recomputation or sharding
    "TP over nodes": 0.15,  # no published recipe has it
    # TP 2; TP 4 four times. A preference, set on one pick and Megatron-Bridge's guide: 1 or 2
    "TP around experts": 0.01,
    "TP around narrow experts": 0.07,  # likewise; recipes have TP 2 for memory
    "experts split by TP": 0.15,  # recipes spread experts by EP alone
    # all 65 rows with a pipeline and experts of the package's data/validation/training_runs have EP
    "pipeline of whole experts": 0.15,
    "CP": 0.02,
    "CP of a short sequence": 0.1,  # a doubling; 2 of 1,597 published layouts at 8k have CP 4
    "EP over nodes": 0.03,  # a doubling
    "EP beyond published": 0.2,  # a doubling beyond `MOST_EP`
    "pipeline": 0.015,  # a doubling, twice beyond `DEEP`
    "stages of one layer": 1.0,  # only where nothing else fits
    "thin stages": 0.02,  # a halving below four layers
    "uneven stages": 0.01,
    "chunks": 0.004,  # a doubling
    "chunks of one layer": 0.02,
    "few frameworks": 0.01,  # schedules of one's own
    "on the host": 0.03,
}
"""What is avoided -> share of the step that it must gain. Origin: a judgement, held to the recipes
of `tools/picks.py`; none is of a model or a run."""

WORTH_SAYING = 0.01
"""Share from which a burden is named where a layout is passed over."""

Burdens = list[tuple[str, float]]


def of_degrees(
    degrees: tuple[int, int, int, int, int, str], facts: RuleFacts, domain_gpus: int
) -> Burdens:
    """List (what, share of the step) of (tp, cp, pp, ep, etp, order), in words for a person."""
    tp, cp, pp, ep, etp, order = degrees
    found: Burdens = []
    if tp > 1:
        found.append((f"TP {tp}", SHARES["something"]))
    if tp > domain_gpus:
        found.append((f"TP {tp} over nodes of {domain_gpus}", SHARES["TP over nodes"]))
    if tp > 1 and facts.n_experts:
        narrow = max(facts.expert_widths, default=0) < WIDE_EXPERT
        what = "TP around narrow experts" if narrow else "TP around experts"
        found.append((what.replace("TP", f"TP {tp}"), SHARES[what] * math.log2(tp) ** 2))
    if etp > 1:
        found.append((f"experts split by TP {etp}", SHARES["experts split by TP"]))
    if cp > 1:
        cuts = max(0.0, math.log2(cp * TOKENS_OF_A_RANK / facts.seq_len))
        share = SHARES["CP"] + SHARES["CP of a short sequence"] * cuts
        found.append((f"CP {cp} at {facts.seq_len:,} tokens", share))
    if ep > 1:
        found.append((f"EP {ep}", SHARES["something"]))
    elif pp > etp == 1 and facts.n_experts:
        found.append(("whole experts in a pipeline", SHARES["pipeline of whole experts"]))
    if ep * etp > domain_gpus:
        share = SHARES["EP over nodes"] * math.log2(ep * etp / domain_gpus)
        share += SHARES["EP beyond published"] * math.log2(max(1.0, ep / MOST_EP))
        found.append((f"EP {ep} over nodes of {domain_gpus}", share))
    if order != DEFAULT_ORDER:
        found.append(("pipeline inside DP", SHARES["something"]))
    return found + (_of_pipeline(pp, facts.n_layers) if pp > 1 else [])


def _of_pipeline(pp: int, n_layers: int) -> Burdens:
    """Depth, thin stages, and stages that are not equal but for their ends."""
    doublings = math.log2(pp * max(1.0, pp / DEEP))
    found = [(f"PP {pp}", SHARES["something"] + SHARES["pipeline"] * doublings)]
    over = f"({n_layers} layers over {pp})"
    if 2 * pp - 2 > n_layers:
        found.append((f"stages of one layer {over}", SHARES["stages of one layer"]))
    elif 4 * pp > n_layers:
        share = SHARES["thin stages"] * math.log2(4 * pp / n_layers)
        found.append((f"thin stages {over}", share))
    if 0 not in (n_layers % pp, (n_layers + 1) % pp, (n_layers + 2) % pp):
        found.append((f"uneven stages {over}", SHARES["uneven stages"]))
    return found


def of_recompute(recompute: str) -> Burdens:
    """Burden of any recomputation; how much of it is in the time."""
    return [] if recompute == "none" else [(f"{recompute} recompute", SHARES["something"])]


def of_states(zero_stage: int, shard_group_size: int | None, *on_the_host: bool) -> Burdens:
    """Burden of shard groups, of states that are whole, and of (optimizer, activations) moved."""
    found = [("shard groups (HSDP)", SHARES["something"])] if shard_group_size else []
    if zero_stage == 0:
        found.append(("an optimizer on every rank", SHARES["something"]))
    for what, moved in zip(("optimizer", "activations"), on_the_host, strict=True):
        found += [(f"{what} on the host", SHARES["on the host"])] if moved else []
    return found


def of_schedule(schedule: str, vpp: int, pp: int, n_layers: int) -> Burdens:
    """Burden of chunks, more where they are of one layer, and of schedules few frameworks have."""
    found: Burdens = []
    if vpp > 1:
        found.append((f"{vpp} chunks a stage", SHARES["chunks"] * math.log2(vpp)))
    if vpp > 1 and 2 * pp * vpp - 2 > n_layers:
        found.append(("chunks of one layer", SHARES["chunks of one layer"]))
    if schedule in ("zb-h1", "dualpipe"):
        found.append((f"schedule {schedule}", SHARES["few frameworks"]))
    return found


def total(found: Burdens) -> float:
    """Share of the step that burdens count together. [1]."""
    return math.fsum(share for _, share in found)


def risks(of: Layout, against: Layout, facts: RuleFacts, domain_gpus: int) -> tuple[str, ...]:
    """List what an expert avoids in one layout and does not find in another, the heaviest first."""
    known = burdens(against, facts, domain_gpus)
    more = [b for b in burdens(of, facts, domain_gpus) if b not in known]
    heavy = [b for b in more if b[1] >= WORTH_SAYING] or more[:1]
    return tuple(what for what, _ in heavy)


def burdens(x: Layout, facts: RuleFacts, domain_gpus: int) -> Burdens:
    """List what an expert avoids in a layout, the heaviest first.

    >>> from gpuscale.core.layout import Layout
    >>> from gpuscale.core.rules import RuleFacts
    >>> facts = RuleFacts(80, (64,), (8,), (28672,), (), 0, 8192, 512, 64)
    >>> burdens(Layout(8192, 512, tp=4, pp=4, vpp=5, dp=4, schedule="interleaved"), facts, 8)[0][0]
    'PP 4'
    """
    found = [
        *of_degrees((x.tp, x.cp, x.pp, x.ep, x.etp, x.order), facts, domain_gpus),
        *of_recompute(x.recompute),
        *of_states(x.zero_stage, x.shard_group_size, x.offload_optimizer, x.offload_activations),
        *of_schedule(x.schedule, x.vpp, x.pp, facts.n_layers),
    ]
    return sorted(found, key=lambda b: -b[1])
