"""Hooks of Megatron-LM and Megatron-Bridge: the model's flags, stages, shards, recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.io.text import Table
from gpuscale.launch.found import launch_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.specs.model import AnyFfn, ModelSpec

    Fields = Mapping[str, Any]
    Part = tuple[Table, set[str], list[str]]


def model(fields: Fields) -> Part:
    """Architecture flags, and what of the model they cannot say."""
    spec: ModelSpec = fields["job"].model
    table: Table = {"num-layers": spec.n_layers, "hidden-size": spec.hidden_size}
    left: list[str] = []
    mixers, ffns = list(spec.mixers.values()), list(spec.ffns.values())
    table |= _mixer(mixers[0], left)
    kinds = {m.kind for m in mixers}
    if kinds - {"attention", "mla"} or len(kinds) > 1:
        left.append(f"token mixers of kind {', '.join(sorted(kinds))} in one model")
    table |= _windows(spec, mixers, left)
    table |= _ffns(spec, ffns)
    table |= {"normalization": "RMSNorm"} if spec.norm == "rmsnorm" else {}
    position = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
    if spec.position in position:
        table["position-embedding-type"] = position[spec.position]
    else:
        left.append(f"{spec.position} positions")
    biased = any(getattr(f, "bias", False) for f in ffns)
    biased |= any(getattr(m, "out_bias", False) for m in mixers)
    table |= {} if spec.tie_embeddings else {"untie-embeddings-and-output-weights": True}
    table |= {} if biased else {"disable-bias-linear": True}
    table |= {"mtp-num-layers": spec.n_mtp_layers} if spec.n_mtp_layers else {}
    base = "rope_theta (--rotary-base, 10,000) and " if spec.position == "rope" else ""
    left.append(f"{base}the norms' epsilon (--norm-epsilon, 1e-5): the defaults stand")
    if spec.norms_per_layer > 2:
        left.append(f"{spec.norms_per_layer} norms a layer")
    table["max-position-embeddings"] = max(fields["seq_len"], spec.max_position or 0)
    table["vocab-size"] = spec.vocab_size
    return table, {"model"}, left


def _mixer(mixer: AnyMixer, left: list[str]) -> Table:
    if mixer.kind == "mla":
        if mixer.sparse_top_k_tokens:
            left.append("the sparse indexer of the attention")
        return {
            "multi-latent-attention": True,
            "num-attention-heads": mixer.n_heads,
            **({"q-lora-rank": mixer.q_lora_rank} if mixer.q_lora_rank else {}),
            "kv-lora-rank": mixer.kv_lora_rank,
            "qk-head-dim": mixer.qk_nope_head_dim,
            "qk-pos-emb-head-dim": mixer.qk_rope_head_dim,
            "v-head-dim": mixer.v_head_dim,
            "qk-layernorm": True,
        }
    heads = getattr(mixer, "n_heads", None) or getattr(mixer, "n_v_heads", 1)
    if mixer.kind != "attention":
        return {"num-attention-heads": heads}
    left += ["attention sinks"] if mixer.sinks else []
    left += ["the output gate"] if mixer.output_gate else []
    groups = {"group-query-attention": True, "num-query-groups": mixer.n_kv_heads}
    return {
        "num-attention-heads": heads,
        "kv-channels": mixer.head_dim,
        **(groups if mixer.n_kv_heads != mixer.n_heads else {}),
        **({"qk-layernorm": True} if mixer.qk_norm != "none" else {}),
        **({"add-qkv-bias": True} if mixer.qkv_bias else {}),
    }


def _windows(spec: ModelSpec, mixers: Sequence[AnyMixer], left: list[str]) -> Table:
    """Sliding windows: one width, and which layers are without (1: the layer skips it)."""
    widths = {w for m in mixers if (w := getattr(m, "window_tokens", None))}
    if len(widths) > 1:
        left.append("sliding windows of several widths")
    if len(widths) != 1:
        return {}
    has = [
        int(bool(getattr(spec.mixers[m], "window_tokens", None))) for m, _ in spec.layer_sequence
    ]
    skips = {} if all(has) else {"window-attn-skip-freq": _runs(has)}
    return {"window-size": f"{widths.pop() - 1},0", **skips}


def _ffns(spec: ModelSpec, ffns: Sequence[AnyFfn]) -> Table:
    table: Table = {}
    widths = [f.ffn_hidden_size for f in ffns if f.kind == "dense"]
    experts = [f for f in ffns if f.kind == "moe"]
    widths += [f.expert_ffn_hidden_size for f in experts]
    if any(getattr(f, "gated", False) for f in ffns):
        table["swiglu"] = True
    table |= {"ffn-hidden-size": widths[0]} if widths else {}
    for moe in experts[:1]:
        table |= {"num-experts": moe.n_experts, "moe-router-topk": moe.top_k}
        table |= {"moe-ffn-hidden-size": moe.expert_ffn_hidden_size, "moe-grouped-gemm": True}
        if moe.shared_ffn_hidden_size:
            table["moe-shared-expert-intermediate-size"] = moe.shared_ffn_hidden_size
        kinds = [int(spec.ffns[f].kind == "moe") for _, f in spec.layer_sequence]
        table |= {} if all(kinds) else {"moe-layer-freq": _runs(kinds)}
    return table


def _runs(bits: Sequence[int]) -> str:
    """Python list expression of a pattern.

    >>> _runs([0, 0, 0, 1, 1])
    '([0]*3+[1]*2)'
    """
    from itertools import groupby

    return "(" + "+".join(f"[{bit}]*{len(list(run))}" for bit, run in groupby(bits)) + ")"


def _stages(job: TrainingLaunch) -> tuple[str, int]:
    """Give the string of the layers of each chunk, or the chunks of a stage where that is all."""
    lay, mtp = job.layout, job.model.n_mtp_layers
    if lay.pp == 1 or (job.even_stages and not mtp):
        return "", lay.vpp if lay.pp > 1 else 1
    chunks = ["t" * n for n in job.stage_layers]
    chunks[0] = "E" + chunks[0]
    chunks[-1] += "m" * mtp + "L"
    return "|".join(chunks), 1


def _sharding(job: TrainingLaunch) -> tuple[Table, set[str]]:
    """Keys of what Megatron-Core shards, by their names in its configuration."""
    lay = job.layout
    sharded = lay.zero_stage > 0 or narrow_states(job)
    table: Table = {"use_distributed_optimizer": sharded}
    table["overlap_grad_reduce"] = lay.overlap_dp
    table["overlap_param_gather"] = lay.overlap_dp and sharded
    if lay.zero_stage >= 2:
        kind = "optim_grads" if lay.zero_stage == 2 else "optim_grads_params"
        table |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": kind}
        table |= {"ckpt_format": "fsdp_dtensor"}
    group = lay.shard_group_size or lay.dp * lay.cp
    if sharded and group < lay.dp * lay.cp:
        table["num_distributed_optimizer_instances"] = lay.dp * lay.cp // group
    said = {"overlap_dp", "dp_replicate", "stage_layers", "vpp", "recompute_layers"}
    return table, said | ({"zero_stage"} if lay.zero_stage or not sharded else set())


def narrow_states(job: TrainingLaunch) -> bool:
    """Whether the optimizer is the one that Megatron runs sharded alone, were it on one rank."""
    return job.layout.offload_optimizer or job.settings.moments not in (None, "fp32")


def _recompute(job: TrainingLaunch) -> Table:
    """Keys of what is computed again."""
    lay = job.layout
    if lay.recompute == "full":
        layers, method = (
            lay.recompute_layers,
            "uniform" if lay.recompute_layers is None else "block",
        )
        return {"recompute_method": method, "recompute_num_layers": layers or 1}
    modules = job.settings.recompute_modules or () if lay.recompute == "selective" else ()
    modules = tuple(m for m in modules if job.model.has_experts or m not in ("moe", "moe_act"))
    return {"recompute_modules": list(modules)} if modules else {}


def _narrow(job: TrainingLaunch) -> bool:
    """Whether weights are kept and gathered in the narrow format of the products."""
    lay = job.layout
    narrow = lay.precision in NARROW_WEIGHTS and lay.zero_stage > 0
    return narrow and job.settings.fp8_param_gather is not False


NARROW_WEIGHTS = {
    "fp8": "fp8_param_gather",
    "mxfp8": "fp8_param_gather",
    "nvfp4": "fp4_param_gather",
}


def flags(fields: Fields) -> Part:
    """Write stages, shards and recomputation as flags; one that is false is left out."""
    job: TrainingLaunch = fields["job"]
    lay = job.layout
    chunks, vpp = _stages(job)
    table, said = _sharding(job)
    table |= _recompute(job)
    table |= {"pipeline_model_parallel_layout": chunks} if chunks else {}
    table |= {"num_virtual_stages_per_pipeline_rank": vpp} if vpp > 1 else {}
    table |= {"no_gradient_accumulation_fusion": True} if lay.zero_stage >= 2 else {}
    if _narrow(job) and not lay.offload_optimizer:  # whose optimizer wants weights of 16 bits
        table[NARROW_WEIGHTS[lay.precision]] = True
        if lay.precision == "mxfp8" and lay.zero_stage == 1:
            table["reuse_grad_buf_for_mxfp8_param_ag"] = True
    said |= {"settings.recompute_modules", "settings.fp8_param_gather"}
    return {key.replace("_", "-"): v for key, v in table.items() if v is not False}, said, []


def keys(fields: Fields, chunks_of: str = "virtual_pipeline_model_parallel_size") -> Part:
    """Write stages, shards and recomputation as keys of what has defaults of its own.

    `chunks_of`: its key for the chunks of a stage.
    """
    job: TrainingLaunch = fields["job"]
    lay = job.layout
    chunks, vpp = _stages(job)
    table, said = _sharding(job)
    table |= _recompute(job) | {"overlap_p2p_comm": lay.vpp > 1}
    if lay.recompute == "selective":
        table.setdefault("recompute_modules", ["core_attn"])
    table |= {"pipeline_model_parallel_layout": chunks} if chunks else {}
    table |= {chunks_of: vpp} if vpp > 1 else {}
    table |= {"gradient_accumulation_fusion": False} if lay.zero_stage >= 2 else {}
    table.pop("ckpt_format", None)
    return table, said | {"settings.recompute_modules"}, []


PLACES = {
    "use_distributed_optimizer": ("ddp.", "optimizer."),
    "ckpt_format": ("checkpoint.",),
    **dict.fromkeys(("pipeline_model_parallel_layout", "virtual_pipeline_model_parallel_size"), ()),
}
"""Key of Megatron-Core -> sections of Megatron-Bridge that have it, where it is not `ddp`."""


def overrides(fields: Fields) -> Part:
    """Write stages, shards, recomputation and formats as overrides of a recipe."""
    job: TrainingLaunch = fields["job"]
    lay, again = job.layout, _recompute(job)
    chunks, _ = _stages(job)
    shards, said = _sharding(job)
    table = {f"{p}{k}": v for k, v in shards.items() for p in PLACES.get(k, ("ddp.",))}
    model: Table = {"virtual_pipeline_model_parallel_size": lay.vpp if lay.vpp > 1 else None}
    model["tp_comm_overlap"] = lay.tp > 1 and lay.sequence_parallel and lay.overlap_tp
    model |= {"overlap_p2p_comm": lay.vpp > 1, "batch_p2p_comm": lay.pp > 1 and lay.vpp == 1}
    model["pipeline_model_parallel_layout"] = f"'{chunks}'" if chunks else None
    model |= {"recompute_method": None, "recompute_num_layers": None} | again
    if lay.recompute == "selective":
        model.setdefault("recompute_modules", ["core_attn"])
    model |= {"gradient_accumulation_fusion": False} if lay.zero_stage >= 2 else {}
    if job.model.has_experts:
        model["overlap_moe_expert_parallel_comm"] = bool(job.settings.overlap_ep)
    table |= {f"++model.{key}": value for key, value in model.items()}
    table["++mixed_precision"] = _mixed_precision(job)
    table["optimizer.use_precision_aware_optimizer"] = narrow_states(job)
    said |= {"overlap_tp", "settings.overlap_ep", "precision"}
    return table, said | {"settings.recompute_modules", "settings.fp8_param_gather"}, []


def _mixed_precision(job: TrainingLaunch) -> Any:
    """Name of a record, or the record with what the run sets otherwise than its name does."""
    name, fields = PRECISION[job.layout.precision]
    changed: Table = {}
    if job.settings.gradients == "bf16":
        changed["grad_reduce_in_fp32"] = False
    if job.layout.precision in NARROW_WEIGHTS and not _narrow(job):
        changed[NARROW_WEIGHTS[job.layout.precision]] = False
        changed |= {k: False for k in fields if k.startswith("reuse")}
    if not changed or name == "fp16_mixed":
        return name
    kept = {"_target_": f"{MIXED}.MixedPrecisionConfig", "bf16": True}
    dtype = {"_target_": "torch.bfloat16", "_call_": False}
    return kept | {"params_dtype": dtype, "pipeline_dtype": dtype} | fields | changed


MIXED = "megatron.bridge.training.mixed_precision"
PRECISION: dict[str, tuple[str, Table]] = launch_table("words")["megatron"]["mixed"]
"""Format -> name of `mixed_precision`, and what it sets beside bf16."""
