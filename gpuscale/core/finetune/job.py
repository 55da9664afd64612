"""One fine-tuning job, as memory and time take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuscale.core.finetune.method import Method

if TYPE_CHECKING:
    from gpuscale.core.finetune.optimizers import Optimizer
    from gpuscale.core.finetune.parameters import FinetuneParameters
    from gpuscale.core.layout import Layout


@dataclass(frozen=True, slots=True)
class Job:
    """One fine-tuning job: what is trained, how, and over how many GPUs."""

    method: Method
    optimizer: Optimizer
    layout: Layout  # seq_len is the longest sequence of a micro-batch
    loss: str = "eager"  # eager, chunked or fused; pairs: eager, log-probabilities of DPO
    offload: frozenset[str] = frozenset()  # of parameters, gradients, optimizer, activations
    attention: str = "best"  # "best" kernel of the GPU, "flash2" (FlashAttention-2), "eager"
    eval_batch: int = 0  # sequences of an evaluation that runs between the steps; 0: none
    logits_frac: float = 1.0  # share of the tokens whose logits are made
    compiled: bool = False  # norms and activations fused by a compiler

    def fuses_norms(self, p: FinetuneParameters) -> bool:
        """Norms and activations run fused: by a compiler, or by what fuses the loss (Liger)."""
        return self.compiled or (self.loss == "fused" and p.fused_loss_norms)

    def on_host(self, moved: frozenset[str]) -> Job:
        """Return the job with these parts on the host."""
        layout = replace(
            self.layout,
            offload_optimizer="optimizer" in moved,
            offload_activations="activations" in moved,
        )
        return replace(self, offload=moved, layout=layout)
