"""Rank distances: every group counted rank by rank, against the distance that is used."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.core.layout import ORDERS, Layout
from gpuscale.core.step.parallel_comm import strides

POWERS = st.sampled_from([1, 2, 4, 8])
SIZES = {"tp": 0, "cp": 1, "dp": 2, "pp": 3}


def ranks(layout: Layout, group: tuple[str, ...]) -> list[int]:
    """Global ranks of the group of rank 0 over some dimensions."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    stride, distance = 1, {}
    for dim in layout.order.split("-"):
        distance[dim] = stride
        stride *= sizes[dim]
    spans = [range(sizes[d]) for d in group]
    return sorted(
        sum(i * distance[d] for i, d in zip(at, group, strict=True))
        for at in itertools.product(*spans)
    )


def inside(members: list[int], domain: int) -> int:
    return sum(r < domain for r in members)


def counted(n: int, stride: int, domain: int) -> int:
    return max(1, min(n, domain // stride))


@given(POWERS, POWERS, POWERS, POWERS, st.sampled_from(ORDERS), st.sampled_from([8, 64]))
def test_ranks_in_one_domain(tp: int, cp: int, dp: int, pp: int, order: str, domain: int) -> None:
    layout = Layout(4096, 64, tp=tp, cp=cp, dp=dp, pp=pp, order=order)
    at = strides(layout, domain)
    for group, stride in (
        (("tp",), at.tp),
        (("cp",), at.cp),
        (("cp", "dp"), at.dense),
        (("pp",), at.pp),
    ):
        members = ranks(layout, group)
        assert counted(len(members), stride, domain) == inside(members, domain), (group, stride)


@given(POWERS, POWERS, POWERS, POWERS, POWERS, st.sampled_from(ORDERS))
def test_experts_in_one_domain(tp: int, cp: int, dp: int, pp: int, ep: int, order: str) -> None:
    if (tp * cp * dp) % ep:
        return
    layout = Layout(4096, 64, tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, order=order)
    stage = ranks(layout, ("tp", "cp", "dp"))  # in the order of numbering
    members = stage[:ep]
    assert counted(ep, strides(layout, 8).ep, 8) == inside(members, 8)
