"""Terms of the fine-tuning answers: the formula of each part with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.finetune.words import PARTS
from gpuscale.core.finetune.memory import bytes_per_logit, fragmentation_of, stream_bytes
from gpuscale.core.finetune.method import counts
from gpuscale.core.finetune.states import base_bytes_per_param
from gpuscale.core.memory.peak import shards
from gpuscale.core.memory.terms import usable_term
from gpuscale.core.records import Term, term_of, total_of

if TYPE_CHECKING:
    from gpuscale.answers.finetune.case import Case
    from gpuscale.core.finetune.job import Job
    from gpuscale.core.finetune.memory import FinetuneMemory

FORMULAS = {
    "base_bytes": (
        "(bytes_per_linear * linear_params + bytes_per_other * other_params) / shards",
        "formats table (QLoRA, arXiv:2305.14314 section 3, for nf4); casts of the software",
    ),
    "adapter_bytes": (
        "(adapter_weights_bytes + adapter_gradients_bytes) * adapter_params / shards",
        "LoRA, arXiv:2106.09685 section 4.1: rank * (in + out) of each map",
    ),
    "kept_bytes": (
        "bytes_per_element * n_layers * hidden_size * tokens",
        "full checkpointing keeps the input of each layer (arXiv:2205.05198)",
    ),
    "logits_bytes": (
        "bytes_per_logit * tokens * vocab_size",
        "logits, their fp32 copy, softmax and gradient: software preset",
    ),
    "fragmentation_bytes": (
        "(reserved_over_allocated - 1) * allocated_bytes",
        "software preset, [finetune.sources]",
    ),
}
"""Parts that are one formula where nothing is split: field -> (formula, source)."""


def memory_terms(case: Case, job: Job, memory: FinetuneMemory) -> tuple[Term, ...]:
    """Terms of the peak: the sum, and the parts that are one formula."""
    gpu, model, layout = case.loaded.gpu, case.loaded.model, job.layout
    p, whole = case.bench.site(job)[2], counts(model, job.method)
    linear, edge = base_bytes_per_param(job, p)
    linears = sum(k.n_layers * k.linear_params for k in whole.kinds)
    one_stage = layout.pp * layout.tp * layout.ep == 1
    frozen = job.method.adapts and "parameters" not in job.offload and not model.has_experts
    shown = {
        "base_bytes": one_stage and frozen,
        "adapter_bytes": one_stage and frozen and not job.method.train_embeddings,
        "kept_bytes": memory.kept_bytes > 0
        and layout.pp == 1
        and not (layout.tp > 1 and layout.sequence_parallel)
        and layout.recompute == "full"
        and not layout.offload_activations,
        "logits_bytes": memory.logits_bytes > 0 and layout.tp == 1 and memory.moment == "loss",
        "fragmentation_bytes": True,
    }
    more = {
        "n_layers": model.n_layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "adapter_params": whole.adapter_params,
        "adapter_weights_bytes": p.adapter_weights_bytes,
        "adapter_gradients_bytes": p.adapter_gradients_bytes,
        "bytes_per_linear": linear,
        "linear_params": linears,
        "bytes_per_other": edge,
        "other_params": whole.total_params - linears,
        "shards": float(shards(layout)[0] if layout.zero_stage == 3 else 1),
        "bytes_per_element": stream_bytes(job, p),
        "bytes_per_logit": bytes_per_logit(job, p),
        "tokens": job.logits_frac * layout.micro_batch_size * layout.seq_len / layout.cp,
        "reserved_over_allocated": fragmentation_of(layout.zero_stage, p),
    }
    children = tuple(
        term_of(name, "bytes", formula, source, memory, **more)
        for name, (formula, source) in FORMULAS.items()
        if shown[name]
    )
    parts = {key: getattr(memory, key) for _, key in PARTS}
    source = f"sum of the parts at the {memory.moment}"
    return (
        total_of("peak_bytes", memory.total_bytes, "bytes", parts, source, children),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, case.bench.usable_bytes),
    )
