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


def memory_terms(case: Case, job: Job, memory: FinetuneMemory) -> tuple[Term, ...]:
    """Terms of the peak: the sum, and the parts that are one formula."""
    gpu = case.loaded.gpu
    parts = {key: getattr(memory, key) for _, key in PARTS}
    children = [
        *_base_terms(case, job, memory),
        *_activation_terms(case, job, memory),
        term_of(
            "fragmentation_bytes",
            "bytes",
            "(reserved_over_allocated - 1) * allocated_bytes",
            "software preset, [finetune.sources]",
            memory,
            reserved_over_allocated=fragmentation_of(
                job.layout.zero_stage, case.bench.site(job)[2]
            ),
        ),
    ]
    source = f"sum of the parts at the {memory.moment}"
    return (
        total_of("peak_bytes", memory.total_bytes, "bytes", parts, source, tuple(children)),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, case.bench.usable_bytes),
    )


def _base_terms(case: Case, job: Job, memory: FinetuneMemory) -> list[Term]:
    """Frozen weights and adapters of one stage that holds the whole model."""
    layout = job.layout
    whole = counts(case.loaded.model, job.method)
    experts = sum(k.n_layers * k.expert_params for k in whole.kinds)
    if layout.pp * layout.tp * layout.ep > 1 or experts or not job.method.adapts:
        return []
    if "parameters" in job.offload:
        return []
    p = case.bench.site(job)[2]
    linear, edge = base_bytes_per_param(job, p)
    n = float(shards(layout)[0] if layout.zero_stage == 3 else 1)
    linears = sum(k.n_layers * k.linear_params for k in whole.kinds)
    terms = [
        term_of(
            "base_bytes",
            "bytes",
            "(bytes_per_linear * linear_params + bytes_per_other * other_params) / shards",
            "formats table (QLoRA, arXiv:2305.14314 section 3, for nf4); casts of the software",
            memory,
            bytes_per_linear=linear,
            linear_params=linears,
            bytes_per_other=edge,
            other_params=whole.total_params - linears,
            shards=n,
        )
    ]
    if not job.method.train_embeddings:
        terms.append(
            term_of(
                "adapter_bytes",
                "bytes",
                "(weight_bytes + gradient_bytes) * adapter_params / shards",
                "LoRA, arXiv:2106.09685 section 4.1: rank * (in + out) of each map",
                memory,
                whole,
                weight_bytes=p.adapter_weights_bytes,
                gradient_bytes=p.adapter_gradients_bytes,
                shards=n,
            )
        )
    return terms


def _activation_terms(case: Case, job: Job, memory: FinetuneMemory) -> list[Term]:
    layout, model = job.layout, case.loaded.model
    tokens = layout.micro_batch_size * layout.seq_len / layout.cp
    terms = []
    whole = layout.pp == 1 and not (layout.tp > 1 and layout.sequence_parallel)
    if whole and layout.recompute == "full" and not layout.offload_activations:
        if memory.kept_bytes:
            terms.append(
                term_of(
                    "kept_bytes",
                    "bytes",
                    "bytes_per_element * layers * hidden_size * tokens",
                    "full checkpointing keeps the input of each layer (arXiv:2205.05198)",
                    memory,
                    model,
                    bytes_per_element=stream_bytes(job, case.bench.site(job)[2]),
                    layers=model.n_layers,
                    tokens=tokens,
                )
            )
    if memory.logits_bytes and layout.tp == 1:
        each = bytes_per_logit(job, case.bench.site(job)[2])
        terms.append(
            term_of(
                "logits_bytes",
                "bytes",
                "bytes_per_logit * tokens * vocab_size",
                "logits, their fp32 copy, softmax and gradient: software preset",
                memory,
                model,
                bytes_per_logit=each,
                tokens=tokens,
            )
        )
    return terms
