"""What a job is like of which nobody says how far it was tuned: settings, median and width."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscale.core.step.maturity import Maturity
from gpuscale.io.software import capabilities_of
from gpuscale.io.step_intervals import interval_table

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.settings import JobSettings
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


def _swiglu(model: ModelSpec) -> bool:
    """Whether the experts of a model are gated and have no biases, as fused kernels take them."""
    return all(f.gated and not f.bias for f in model.ffns.values() if f.kind == "moe")


class Degrees(NamedTuple):
    """What of a layout settings may refuse."""

    pp: int
    vpp: int
    ep: int
    recompute: str

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

    >>> from gpuscale.io.software import load_software
    >>> maturity_of(load_software("megatron-core"), False).name
    'as-it-comes'
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
    architecture: str,
    *,
    precision: str = "bf16",
    planned: bool = False,
    degrees: Degrees | None = None,
) -> JobSettings:
    """Fill in what jobs of a maturity set for experts.

    `planned`: the layout is to be found, and the dispatcher with it: that of published recipes on
    the architecture. `degrees`: of the layout, where they are known; settings that they refuse are
    left out.
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
            if architecture in r.architectures
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
    elif not planned:
        return settings
    soft = capabilities_of(software)
    for field, value in wanted.items():
        more = replace(settings, **{field: value})
        if getattr(settings, field) is not None or value is None or more.against(soft):
            continue
        if degrees is not None and more.refused_by(*degrees):
            continue
        settings = more
    return settings
