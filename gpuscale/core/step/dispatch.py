"""How a layout dispatches the tokens of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuscale.core.layout import Layout, hides_exchange
from gpuscale.core.step.records import Software

DUALPIPE_DISPATCH: dict[str, Any] = {
    "overlap_ep": True,
    "deduplicated_all_to_all": True,
    "rdma_dispatch": True,
    "dispatch_frac": 0.5,
    "dualpipe": True,
}
"""Fields of `Software` under DualPipe (DeepSeek-V3 report, arXiv:2412.19437, section 3.2): two
micro-batches in opposite directions hide each other's all-to-all (all but
`StepForm.dualpipe_ep_frac`), a token crosses to a node once, by RDMA kernels of its own, in fp8
on its way out."""


def dispatched(sw: Software, layout: Layout, has_experts: bool) -> Software:
    """Software as a layout sees it: experts under DualPipe have their own dispatch."""
    if not has_experts or sw.dualpipe:
        return sw
    if layout.schedule == "dualpipe":
        return replace(sw, **DUALPIPE_DISPATCH)
    return unable(sw, layout.recompute, layout.pp, layout.vpp)


def unable(sw: Software, recompute: str, pp: int, vpp: int) -> Software:
    """Software without the habits of tuned mixtures that a layout excludes.

    `core.settings.JobSettings.refused_by` has the same rules for what was said.
    """
    if sw.overlap_ep and not hides_exchange(recompute, pp, vpp):
        sw = replace(sw, overlap_ep=False)
    if sw.cuda_graphs == "layer" and recompute == "full":
        sw = replace(sw, cuda_graphs="none")
    return sw
