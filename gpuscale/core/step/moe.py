"""Feed-forward parts of a layer: dense, and mixture of experts with its dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.layout import Layout, hides_exchange
from gpuscale.core.records import NamedTuple, replace
from gpuscale.core.step.operators import linear_s, stream_s
from gpuscale.core.step.records import Hardware, Shape, Software

if TYPE_CHECKING:
    from gpuscale.specs.model import AnyFfn, DenseFfn, MoeFfn


class FfnTime(NamedTuple):
    """Seconds of one feed-forward part and the traffic of its activation."""

    linear_fwd_s: float = 0.0
    linear_bwd_s: float = 0.0
    dispatch_fwd_s: float = 0.0  # router, permute, unpermute
    dispatch_bwd_s: float = 0.0
    width_bytes: float = 0.0  # per token
    dispatched_bytes: float = 0.0  # one all-to-all, before de-duplication, of this rank
    local_experts: float = 0.0
    route_domains: int = 0  # nodes that a token may go to; 0: any
    last_fwd_s: float = 0.0  # the last projection of a dense part


def _mlp_s(
    hw: Hardware,
    tokens: float,
    width: float,
    hidden: int,
    gated: bool,
    precision: str,
    groups: int = 1,
) -> tuple[float, float]:
    f1, b1 = linear_s(hw, tokens, (2 if gated else 1) * width, hidden, precision, groups)
    f2, b2 = linear_s(hw, tokens, hidden, width, precision, groups)
    return f1 + f2, b1 + b2


def dense_ffn_s(ffn: DenseFfn, hidden: int, hw: Hardware, tokens: float, shape: Shape) -> FfnTime:
    """One MLP split over the ranks of TP."""
    width, precision = ffn.ffn_hidden_size / shape.tp, shape.precision
    fwd, bwd = _mlp_s(hw, tokens, width, hidden, ffn.gated, precision)
    last = linear_s(hw, tokens, hidden, width, precision)[0]
    streamed = 2.0 * width * (3 if ffn.gated else 2)
    return FfnTime(fwd, bwd, width_bytes=streamed, last_fwd_s=last)


def moe_ffn_s(
    ffn: MoeFfn, hidden: int, hw: Hardware, sw: Software, tokens: float, shape: Shape
) -> FfnTime:
    """Routed experts of the busiest rank; shared experts as a dense MLP.

    Tokens of a rank are ``tokens / tp`` (sequence split); each goes to `top_k` experts, so a local
    expert sees ``tokens / tp * ep * etp * top_k / n_experts`` rows in the mean, and on the busiest
    of several ranks `Software.expert_imbalance` times as many. One rank has all experts.
    """
    tp, ep, etp, precision = shape.tp, shape.ep, shape.etp, shape.precision
    local = max(1, round(ffn.n_experts / ep))
    own = tokens / tp
    busy = sw.expert_imbalance if ep > 1 else 1.0
    rows = busy * own * etp * ep * ffn.top_k / ffn.n_experts
    width = ffn.expert_ffn_hidden_size / etp
    expert_hidden = ffn.latent_size or hidden
    fwd, bwd = _mlp_s(
        hw,
        rows,
        width=width,
        hidden=expert_hidden,
        gated=ffn.gated,
        precision=precision,
        groups=local,
    )
    eff = hw.grouped_eff * sw.grouped_factor
    if precision not in ("bf16", "fp16"):
        eff *= hw.grouped_fp8_eff
    fwd, bwd = fwd / eff, bwd / eff
    for shared_width in (ffn.shared_ffn_hidden_size, ffn.dense_ffn_hidden_size):
        if shared_width:
            shared = _mlp_s(hw, tokens, shared_width / tp, hidden, ffn.gated, precision)
            fwd, bwd = fwd + shared[0], bwd + shared[1]
    if ffn.latent_size:
        down = linear_s(hw, own, ffn.latent_size, hidden, precision)
        up = linear_s(hw, own, hidden, ffn.latent_size, precision)
        fwd, bwd = fwd + down[0] + up[0], bwd + down[1] + up[1]
    moved = busy * own * ffn.top_k * expert_hidden * 2.0
    dispatch = sw.dispatch_factor * (stream_s(hw, moved * hw.permute_passes) + hw.router_s)
    bytes_per_token = 2.0 * (3 if ffn.gated else 2) * ffn.expert_ffn_hidden_size * ffn.top_k / tp
    return FfnTime(
        linear_fwd_s=fwd,
        linear_bwd_s=bwd,
        dispatch_fwd_s=dispatch,
        dispatch_bwd_s=dispatch,
        width_bytes=bytes_per_token,
        dispatched_bytes=moved,
        local_experts=float(local),
        route_domains=ffn.n_route_groups,
    )


def ffn_s(
    ffn: AnyFfn, hidden: int, hw: Hardware, sw: Software, *, tokens: float, shape: Shape
) -> FfnTime:
    """Time of any feed-forward part for `tokens` tokens of one tensor-parallel group."""
    if ffn.kind == "dense":
        return dense_ffn_s(ffn, hidden, hw, tokens, shape)
    if ffn.kind == "moe":
        return moe_ffn_s(ffn, hidden, hw, sw, tokens, shape)
    return FfnTime()


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
