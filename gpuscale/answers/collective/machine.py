"""What the options of a collective change of the cluster that it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.specs.cluster import NetworkLevel

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec


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
