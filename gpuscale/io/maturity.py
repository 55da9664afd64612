"""What a job is like of which nobody says how far it was tuned: settings, median and width."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscale.core.step.interval import RACK_DOMAIN
from gpuscale.core.step.maturity import Maturity
from gpuscale.io.software import capabilities_of
from gpuscale.io.step_intervals import interval_table

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.settings import JobSettings
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


def _swiglu(model: ModelSpec) -> bool:
    """Whether the experts of a model are gated and have no biases, as fused kernels take them."""
    return all(f.gated and not f.bias for f in model.ffns.values() if f.kind == "moe")


class Degrees(NamedTuple):
    """What of a layout settings may refuse; of one that is to be found, what they refuse least."""

    pp: int = 1
    vpp: int = 2
    ep: int = 2
    recompute: str = "none"

    @classmethod
    def of(cls, layout: Layout) -> Degrees:
        """Take them of a layout."""
        return cls(layout.pp, layout.vpp, layout.ep, layout.recompute)


@lru_cache(maxsize=8)
def _row(kind: str, name: str) -> dict[str, Any]:
    """Row of jobs of a kind (moe, or the stack of a dense model) and a maturity."""
    found: dict[str, Any] = interval_table()["maturity"][f"{kind}/{name}"]
    return found


def maturity_of(software: SoftwareSpec, has_experts: bool, name: str | None = None) -> Maturity:
    """Median and width of a maturity, over the jobs that the software's parameters are fitted to.

    Of a job of which nobody says it the interval holds the tuned ones too.
    """
    said, name = name is not None, name or software.maturity
    kind = "moe" if has_experts else software.stack
    own, fitted = _row(kind, name), _row(kind, software.fitted_on)
    factor = max(1.0, own["median"] / fitted["median"])
    faster, slower = own["faster"], own["slower"]
    if name == "tuned" and software.maturity == name:  # recipes of its vendor
        faster = slower = 0.0
    elif not said:
        faster = max(faster, log(factor) + _row(kind, "tuned")["faster"])
    return Maturity(name, factor, faster, slower)


def settled(
    settings: JobSettings,
    software: SoftwareSpec,
    model: ModelSpec,
    cluster: ClusterSpec,
    *,
    precision: str = "bf16",
    degrees: Degrees,
) -> JobSettings:
    """Fill in what jobs of a maturity set for experts, where nobody said it.

    The dispatcher is that of published recipes on the architecture and network, whether the layout
    is given or to be found; what a launch file leaves out, its reader says. What is refused by
    `degrees`, the layout as far as it is known, is left out.
    """
    name = settings.maturity or software.maturity
    if not model.has_experts:
        return settings
    if settings.balance is None:
        settings = replace(settings, balance=_row("moe", name)["balance"])
    recipe = next(
        (
            r
            for r in software.experts
            if cluster.gpu.architecture in r.architectures
            and (cluster.fabric_class in r.fabrics or cluster.scaleup_domain_gpus >= RACK_DOMAIN)
            and (not r.formats or precision in r.formats)
            and (not r.swiglu or _swiglu(model))
        ),
        None,
    )
    if recipe is None:
        return settings
    wanted: dict[str, Any] = {"dispatcher": recipe.dispatcher}
    if name == "tuned":
        kept = ("moe_kernels", "overlap_ep", "cuda_graphs")
        wanted |= {field: getattr(recipe, field) for field in kept}
    soft = capabilities_of(software)
    for field, value in wanted.items():
        more = replace(settings, **{field: value})
        refused = more.against(soft) or more.refused_by(*degrees)
        if getattr(settings, field) is None and value is not None and not refused:
            settings = more
    return settings
