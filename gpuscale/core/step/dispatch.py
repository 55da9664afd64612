"""How a pipeline schedule dispatches the tokens of experts."""

from __future__ import annotations

from typing import Any

DUALPIPE_DISPATCH: dict[str, Any] = {
    "overlap_ep": True,
    "deduplicated_all_to_all": True,
    "rdma_dispatch": True,
    "ep_exposed_frac": 0.1,
}
"""Fields of `Software` under DualPipe (DeepSeek-V3 report, arXiv:2412.19437, section 3.2): two
micro-batches in opposite directions hide each other's all-to-all all but a tenth (prior), a token
crosses to a node once, by RDMA kernels of its own."""
