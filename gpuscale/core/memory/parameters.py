"""Memory parameters of a framework family and settings of a job, as the formulas take them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gpuscale.core.memory.states import RECIPES, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.specs.software import SoftwareSpec


LOSS_CHUNKS = 8
"""Parts of a sequence whose logits a chunked cross entropy holds one by one (torchtitan,
`components/loss.py`, `num_chunks`)."""

_HELD = {"eager": 1.0, "chunked": 1.0 / LOSS_CHUNKS, "fused": 0.0}


FP32_BYTES = 4.0
"""Of a number in fp32. [byte]."""


@dataclass(frozen=True, slots=True)
class MemoryParameters:
    """Bytes per parameter, element and device; the defaults are the bare formulas (ideal).

    `specs.software_memory.SoftwareMemory` has the same fields, filled by family; the settings
    at the end belong to the job.
    """

    weights_bytes: float = 2.0
    gradients_bytes: float = 2.0
    gradients_bytes_fp16: float = 2.0
    master_bytes: float = 4.0
    optimizer_bytes: float = 8.0
    step_bytes: float = 0.0
    sharded_weights_bytes: float = 2.0
    unsharded_layers: float = 1.0
    hidden_bytes: float = 8.0
    attention_bytes: float = 2.0
    ffn_bytes: float = 2.0
    expert_hidden_bytes: float = 2.0
    quantised_inputs: bool = False
    scores_bytes: float = 5.0
    per_op_frac: float = 0.5
    live_layers: float = 0.0
    gathered_tensors: float = 0.0
    logits_bytes: float = 6.0
    fused_logits_bytes: float = 4.0
    whole_logits_bytes: float = 0.0
    fused_linear_ce: bool = False
    head_gradient_bytes: float = 0.0
    selective_per_op: bool = False
    workspace_bytes: float = 0.0
    fragmentation: float = 1.0
    context_bytes: float = 0.0
    printed_kind: str = "reserved"
    printed_stage: str = "peak"
    # settings of the job
    stage_split: str = "even"
    unfused_attention: bool = False
    fused_cross_entropy: bool = False
    loss: str = "eager"
    recompute_modules: tuple[str, ...] = ("core_attn",)
    offloaded_layers: int = 0
    expert_imbalance: float = 1.0

    @property
    def held_logits_frac(self) -> float:
        """Share of the logits of a micro-batch that the loss holds at once. [1]."""
        return 0.0 if self.fused_linear_ce else _HELD[self.loss]

    @property
    def saved_bytes(self) -> tuple[float, float, float]:
        """Of a parameter in a checkpoint: weights, master weights, optimizer states. [byte].

        Weights kept in fp32 (FSDP) are master weights too.
        """
        if self.sharded_weights_bytes >= FP32_BYTES:
            return self.sharded_weights_bytes, 0.0, self.optimizer_bytes
        return self.weights_bytes, self.master_bytes, self.optimizer_bytes


IDEAL = MemoryParameters()
"""The formulas alone: no gathers, workspaces, fragmentation or context."""


_FAMILY = tuple(f.name for f in fields(MemoryParameters))[:-7]


def _states_of(r: Recipe) -> dict[str, float]:
    """Bytes per parameter of a named recipe, in place of the family's. [byte]."""
    return {
        "weights_bytes": r.weights_bytes,
        "gradients_bytes": r.gradients_bytes,
        "gradients_bytes_fp16": r.gradients_bytes,
        "master_bytes": r.master_bytes,
        "optimizer_bytes": r.optimizer_bytes,
        "step_bytes": 0.0,
        "sharded_weights_bytes": r.weights_bytes,
    }


def parameters_of(
    software: SoftwareSpec, options: Mapping[str, object] | None = None
) -> MemoryParameters:
    """Make the flat record of a framework family and a run's settings.

    `software`: the family: its `memory` table, attention kernel, cross entropy, stage split.
    `options`: ``attention`` ("unfused"), ``fused_cross_entropy``, ``loss``, ``recipe``,
    ``gradient_bytes``, ``moment_bytes``, ``recompute_modules``, ``offload_layers``,
    ``expert_imbalance``; others are of no concern here.
    """
    given = dict(options or {})
    values: dict[str, Any] = {name: getattr(software.memory, name) for name in _FAMILY}
    if (recipe := given.get("recipe")) is not None:
        values |= _states_of(RECIPES[str(recipe)])
    gradient = given.get("gradient_bytes")
    if isinstance(gradient, (int, float)):
        values["gradients_bytes"] = (
            float(gradient) if gradient < 4 else max(float(gradient), values["gradients_bytes"])
        )
    moments = given.get("moment_bytes")
    if isinstance(moments, (int, float)):
        values["optimizer_bytes"] = float(moments)
    modules: Any = given.get("recompute_modules", ("core_attn",))
    return MemoryParameters(
        **values,
        stage_split=software.stage_split,
        unfused_attention=given.get("attention", software.attention) == "unfused",
        fused_cross_entropy=bool(given.get("fused_cross_entropy", software.fused_cross_entropy)),
        loss=str(given.get("loss", software.loss)),
        recompute_modules=tuple(modules),
        offloaded_layers=int(str(given.get("offload_layers", 0))),
        expert_imbalance=float(str(given.get("expert_imbalance", 1.0))),
    )
