"""Where the ranks of a group lie on the network: the order of the dimensions."""

from __future__ import annotations

from typing import NamedTuple

from gpuscale.core.layout import DEFAULT_ORDER, Layout


class Strides(NamedTuple):
    """Distance of neighbouring ranks of each group in the global numbering."""

    tp: int
    cp: int
    ep: int
    dense: int  # ranks that share the dense weights: cp and dp
    expert: int  # ranks that share the weights of one expert
    pp: int


def strides(layout: Layout, domain_gpus: int) -> Strides:
    """Return the rank distances of a layout.

    Ranks are numbered with the first dimension of `layout.order` innermost, so that it sits inside
    the scale-up domain; experts split the ranks of one pipeline stage, expert-TP first. Both
    orders are Megatron-Core's (``tp-cp-ep-dp-pp`` and ``tp-cp-ep-pp-dp``).

    `layout`: degrees and order. `domain_gpus`: GPUs of one scale-up domain: where the pipeline lies
    between CP and DP, the groups over both have no single distance, and get the one that puts as
    many ranks in a domain.

    Examples
    --------
    >>> from gpuscale.core.layout import Layout
    >>> strides(Layout(4096, 64, tp=4, pp=2, dp=8), 8)
    Strides(tp=1, cp=4, ep=1, dense=4, expert=1, pp=32)
    >>> strides(Layout(4096, 64, tp=4, pp=2, dp=8, order="tp-cp-pp-dp"), 8)
    Strides(tp=1, cp=4, ep=1, dense=8, expert=1, pp=4)
    """
    tp, etp, pp = layout.tp, layout.etp, layout.pp
    block, experts = tp * layout.cp, layout.ep * layout.etp
    if layout.order == DEFAULT_ORDER:
        return Strides(1, tp, etp, tp, experts, block * layout.dp)
    blocks = max(1, domain_gpus // (block * pp))  # data-parallel neighbours in one domain
    dense = max(1, min(layout.cp, domain_gpus // tp)) * blocks
    if experts <= block:
        return Strides(1, tp, etp, max(1, domain_gpus // dense), experts, block)
    inside = max(1, min(block, domain_gpus) // etp) * blocks
    return Strides(
        1, tp, max(1, domain_gpus // inside), max(1, domain_gpus // dense), experts * pp, block
    )
