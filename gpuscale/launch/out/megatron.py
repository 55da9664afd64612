"""Megatron-LM: flags of `pretrain_gpt.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.launch.job import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.core.layout import Layout
    from gpuscale.core.model.mixers import AnyMixer
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.specs.model import AnyFfn, ModelSpec

VERSION = "Megatron-LM, core 0.20 (source of 2026-08-22)"
PRECISION = {
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp8": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
}
FIRST_WITHOUT_MAX_CONNECTIONS = ("blackwell", "blackwell-ultra", "rubin")
"""Compute capability 10 and later: `validate_args` does not ask for the variable."""


def write(job: TrainingLaunch) -> Written:
    """Write the flags of Megatron-LM for a job.

    `job`: model, layout and machine. Returns: `train` is the script with all flags; mock data and
    an empty tokenizer, so that it runs as it is.
    """
    model, unsaid = _model(job.model)
    layout, more = _layout(job)
    batch = [
        *_pair("--seq-length", job.layout.seq_len),
        *_pair("--max-position-embeddings", max(job.layout.seq_len, job.model.max_position or 0)),
        *_pair("--micro-batch-size", job.layout.micro_batch_size),
        *_pair("--global-batch-size", job.layout.global_batch_size),
        *_pair("--train-iters", job.steps or 100),
        *_pair("--lr", "3e-4"),
        *_pair("--attention-dropout", 0),
        *_pair("--hidden-dropout", 0),
        *PRECISION[job.layout.precision],
    ]
    data = ["--mock-data", *_pair("--tokenizer-type", "NullTokenizer")]
    data += _pair("--vocab-size", job.model.vocab_size)
    connections = _connections(job)
    return Written(
        framework="megatron",
        version=VERSION,
        files=(),
        train=("pretrain_gpt.py", *model, *layout, *batch, *data),
        unsaid=tuple(unsaid + more),
        environment=(("CUDA_DEVICE_MAX_CONNECTIONS", connections),) if connections else (),
    )


def options(job: TrainingLaunch) -> dict[str, Any]:
    """List the flags of a job's layout and batch: True for a flag alone, else its words."""
    words, _ = _layout(job)
    words += _pair("--micro-batch-size", job.layout.micro_batch_size)
    words += _pair("--global-batch-size", job.layout.global_batch_size)
    made: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            flag, made[word] = word, True
        else:
            made[flag] = word if made[flag] is True else f"{made[flag]} {word}"
    return made


def _connections(job: TrainingLaunch) -> str | None:
    """Hopper and older want 1 for TP or CP; Megatron-FSDP wants more (`validate_args`)."""
    if job.layout.zero_stage >= 2:
        return "8"
    return None if job.gpu_arch in FIRST_WITHOUT_MAX_CONNECTIONS else "1"


def _pair(flag: str, value: object) -> list[str]:
    return [flag, str(value)]


def _model(model: ModelSpec) -> tuple[list[str], list[str]]:
    """Architecture flags, and what of the model they cannot say."""
    flags = [*_pair("--num-layers", model.n_layers), *_pair("--hidden-size", model.hidden_size)]
    unsaid: list[str] = []
    mixers, ffns = list(model.mixers.values()), list(model.ffns.values())
    flags += _mixer(mixers[0], unsaid)
    kinds = {m.kind for m in mixers}
    if kinds - {"attention", "mla"} or len(kinds) > 1:
        unsaid.append(f"token mixers of kind {', '.join(sorted(kinds))} in one model")
    flags += _windows(model, mixers, unsaid)
    flags += _ffns(model, ffns)
    if model.norm == "rmsnorm":
        flags += _pair("--normalization", "RMSNorm")
    position = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
    if model.position in position:
        flags += _pair("--position-embedding-type", position[model.position])
    else:
        unsaid.append(f"{model.position} positions")
    if not model.tie_embeddings:
        flags.append("--untie-embeddings-and-output-weights")
    if not any(getattr(f, "bias", False) for f in ffns) and not any(
        getattr(m, "out_bias", False) for m in mixers
    ):
        flags.append("--disable-bias-linear")
    if model.n_mtp_layers:
        flags += _pair("--mtp-num-layers", model.n_mtp_layers)
    if model.norms_per_layer > 2:
        unsaid.append(f"{model.norms_per_layer} norms a layer")
    return flags, unsaid


def _mixer(mixer: AnyMixer, unsaid: list[str]) -> list[str]:
    if mixer.kind == "mla":
        flags = ["--multi-latent-attention", *_pair("--num-attention-heads", mixer.n_heads)]
        if mixer.q_lora_rank:
            flags += _pair("--q-lora-rank", mixer.q_lora_rank)
        flags += _pair("--kv-lora-rank", mixer.kv_lora_rank)
        flags += _pair("--qk-head-dim", mixer.qk_nope_head_dim)
        flags += _pair("--qk-pos-emb-head-dim", mixer.qk_rope_head_dim)
        flags += [*_pair("--v-head-dim", mixer.v_head_dim), "--qk-layernorm"]
        if mixer.sparse_top_k_tokens:
            unsaid.append("the sparse indexer of the attention")
        return flags
    heads = getattr(mixer, "n_heads", None) or getattr(mixer, "n_v_heads", 1)
    flags = _pair("--num-attention-heads", heads)
    if mixer.kind != "attention":
        return flags
    flags += _pair("--kv-channels", mixer.head_dim)
    if mixer.n_kv_heads != mixer.n_heads:
        flags += ["--group-query-attention", *_pair("--num-query-groups", mixer.n_kv_heads)]
    if mixer.qk_norm != "none":
        flags.append("--qk-layernorm")
    if mixer.qkv_bias:
        flags.append("--add-qkv-bias")
    for word, held in (("attention sinks", mixer.sinks), ("the output gate", mixer.output_gate)):
        if held:
            unsaid.append(word)
    return flags


def _windows(model: ModelSpec, mixers: Sequence[AnyMixer], unsaid: list[str]) -> list[str]:
    """Sliding windows: one width, and which layers are without."""
    widths = {w for m in mixers if (w := getattr(m, "window_tokens", None))}
    if not widths:
        return []
    if len(widths) > 1:
        unsaid.append("sliding windows of several widths")
        return []
    full = [
        0 if getattr(model.mixers[m], "window_tokens", None) else 1 for m, _ in model.layer_sequence
    ]
    flags = _pair("--window-size", f"{widths.pop() - 1},0")
    if any(full):  # 1: a layer that skips the window
        flags += _pair("--window-attn-skip-freq", _runs([1 - one for one in full]))
    return flags


def _ffns(model: ModelSpec, ffns: Sequence[AnyFfn]) -> list[str]:
    flags: list[str] = []
    dense = [f for f in ffns if f.kind == "dense"]
    experts = [f for f in ffns if f.kind == "moe"]
    if any(getattr(f, "gated", False) for f in ffns):
        flags.append("--swiglu")
    width = dense[0].ffn_hidden_size if dense else None
    if width is None and experts:
        width = experts[0].expert_ffn_hidden_size
    if width:
        flags += _pair("--ffn-hidden-size", width)
    if experts:
        moe = experts[0]
        flags += _pair("--num-experts", moe.n_experts)
        flags += _pair("--moe-router-topk", moe.top_k)
        flags += _pair("--moe-ffn-hidden-size", moe.expert_ffn_hidden_size)
        flags.append("--moe-grouped-gemm")
        if moe.shared_ffn_hidden_size:
            flags += _pair("--moe-shared-expert-intermediate-size", moe.shared_ffn_hidden_size)
        kinds = [1 if model.ffns[f].kind == "moe" else 0 for _, f in model.layer_sequence]
        if not all(kinds):
            flags += _pair("--moe-layer-freq", _runs(kinds))
    return flags


def _runs(bits: Sequence[int]) -> str:
    """Python list expression of a pattern.

    >>> _runs([0, 0, 0, 1, 1])
    '([0]*3+[1]*2)'
    """
    parts: list[list[int]] = []
    for bit in bits:
        if parts and parts[-1][0] == bit:
            parts[-1][1] += 1
        else:
            parts.append([bit, 1])
    return "(" + "+".join(f"[{bit}]*{n}" for bit, n in parts) + ")"


def _layout(job: TrainingLaunch) -> tuple[list[str], list[str]]:
    """Parallelism flags, and what of the layout they cannot say."""
    lay = job.layout
    unsaid: list[str] = []
    flags = [
        *_pair("--tensor-model-parallel-size", lay.tp),
        *_pair("--pipeline-model-parallel-size", lay.pp),
    ]
    if lay.tp > 1 and lay.sequence_parallel:
        flags.append("--sequence-parallel")
    if lay.cp > 1:
        flags += _pair("--context-parallel-size", lay.cp)
        flags += _pair("--cp-comm-type", CONTEXT_KINDS[lay.cp_kind].said_as["megatron"])
    if any(f.kind == "moe" for f in job.model.ffns.values()):
        flags += _pair("--expert-model-parallel-size", lay.ep)
        flags += _pair("--expert-tensor-parallel-size", lay.etp)
    flags += _stages(job)
    flags += _data_parallel(job)
    if lay.zero_stage == 0 and narrow_states(job):
        unsaid.append(SHARDED_ALONE)
    flags += _recompute(job, unsaid)
    if lay.schedule not in ("1f1b", "interleaved"):
        unsaid.append(f"the schedule {lay.schedule}: Megatron runs 1F1B, interleaved with --vpp")
    if lay.order != "tp-cp-dp-pp":
        flags.append("--use-tp-pp-dp-mapping")
    if lay.offload_optimizer:
        flags += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    if lay.offload_activations:
        unsaid.append("activations offloaded to the host")
    if lay.tp > 1 and lay.sequence_parallel and lay.overlap_tp:
        flags.append("--tp-comm-overlap")
    flags += _settings(job)
    return flags, unsaid


def _settings(job: TrainingLaunch) -> list[str]:
    """Write what the run sets beside its layout."""
    s = job.settings
    flags: list[str] = []
    experts = any(f.kind == "moe" for f in job.model.ffns.values())
    if s.cuda_graphs == "layer":
        modules = ["attn", "moe_router", "moe_preprocess"] if experts else ["attn", "mlp"]
        flags += [*_pair("--cuda-graph-impl", "transformer_engine"), "--cuda-graph-modules"]
        flags += modules
    elif s.cuda_graphs == "full":
        flags += _pair("--cuda-graph-impl", "full_iteration")
        flags.append("--no-check-for-nan-in-loss-and-grad")
    if experts and s.dispatcher in ("deepep", "hybridep"):
        flags += _pair("--moe-token-dispatcher-type", "flex")
        flags += _pair("--moe-flex-dispatcher-backend", s.dispatcher)
    elif experts:
        flags += _pair("--moe-token-dispatcher-type", "alltoall")
    if experts and s.moe_kernels not in (None, "untuned"):
        flags.append("--moe-permute-fusion")
    if s.overlap_ep:
        flags.append("--overlap-moe-expert-parallel-comm")
    if s.moments not in (None, "fp32"):
        if not job.layout.offload_optimizer:
            flags.append("--use-precision-aware-optimizer")
        flags += [*_pair("--exp-avg-dtype", s.moments), *_pair("--exp-avg-sq-dtype", s.moments)]
    if s.gradients == "bf16":
        flags.append("--grad-reduce-in-bf16")
    if s.offload_layers:
        flags += _pair("--cpu-offloading-num-layers", s.offload_layers)
    return flags + _narrow_weights(job)


def _narrow_weights(job: TrainingLaunch) -> list[str]:
    """Weights kept and gathered in the narrow format; a CPU optimizer wants those of 16 bits."""
    lay = job.layout
    if lay.precision not in NARROW_WEIGHTS or not lay.zero_stage or lay.offload_optimizer:
        return []
    if job.settings.fp8_param_gather is False:
        return []
    buffer = ["--reuse-grad-buf-for-mxfp8-param-ag"]
    return [NARROW_WEIGHTS[lay.precision]] + (
        buffer if lay.precision == "mxfp8" and lay.zero_stage == 1 else []
    )


NARROW_WEIGHTS = {
    "fp8": "--fp8-param-gather",
    "mxfp8": "--fp8-param-gather",
    "nvfp4": "--fp4-param-gather",
}


def _stages(job: TrainingLaunch) -> list[str]:
    """Virtual stages, and the layers of each where they are not equal."""
    lay = job.layout
    if lay.pp == 1:
        return []
    if job.even_stages and not job.model.n_mtp_layers:
        if lay.vpp == 1:
            return []
        return _pair("--num-virtual-stages-per-pipeline-rank", lay.vpp)
    chunks = ["t" * n for n in job.stage_layers]
    chunks[0] = "E" + chunks[0]
    chunks[-1] += "m" * job.model.n_mtp_layers + "L"
    return _pair("--pipeline-model-parallel-layout", "|".join(chunks))


def _data_parallel(job: TrainingLaunch) -> list[str]:
    lay = job.layout
    if job.software == "megatron-deepspeed":
        return _pair("--zero-stage", lay.zero_stage)
    if lay.zero_stage >= 2:
        sharding = "optim_grads" if lay.zero_stage == 2 else "optim_grads_params"
        return [
            "--use-megatron-fsdp",
            *_pair("--data-parallel-sharding-strategy", sharding),
            *_pair("--ckpt-format", "fsdp_dtensor"),
            "--use-distributed-optimizer",
            "--no-gradient-accumulation-fusion",
            *(["--overlap-grad-reduce", "--overlap-param-gather"] if lay.overlap_dp else []),
            *_instances(lay),
        ]
    if lay.zero_stage == 0 and not narrow_states(job):
        return ["--overlap-grad-reduce"] if lay.overlap_dp else []
    flags = ["--use-distributed-optimizer"]
    if lay.overlap_dp:
        flags += ["--overlap-grad-reduce", "--overlap-param-gather"]
    return flags + _instances(lay)


SHARDED_ALONE = "ZeRO-0: the optimizer of these states is sharded (ZeRO-1 is written)"


def narrow_states(job: TrainingLaunch) -> bool:
    """Whether the optimizer is the one that Megatron runs sharded alone, were it on one rank."""
    return job.layout.offload_optimizer or job.settings.moments not in (None, "fp32")


def _instances(lay: Layout) -> list[str]:
    """Write the copies of the states that groups of ranks shard."""
    group = lay.shard_group_size
    if not group or group >= lay.dp * lay.cp:
        return []
    return _pair("--num-distributed-optimizer-instances", lay.dp * lay.cp // group)


def _recompute(job: TrainingLaunch, unsaid: list[str]) -> list[str]:
    lay = job.layout
    if lay.recompute == "none":
        return []
    if lay.recompute == "selective":
        experts = any(f.kind == "moe" for f in job.model.ffns.values())
        modules = job.settings.recompute_modules or ()
        modules = tuple(m for m in modules if experts or m not in ("moe", "moe_act"))
        named = ["--recompute-modules", *modules] if modules else []
        return [*_pair("--recompute-granularity", "selective"), *named]
    if lay.recompute == "per-op":
        unsaid.append("recomputation per operation (selective is written)")
        return _pair("--recompute-granularity", "selective")
    method, n = ("uniform", 1) if lay.recompute_layers is None else ("block", lay.recompute_layers)
    return [
        *_pair("--recompute-granularity", "full"),
        *_pair("--recompute-method", method),
        *_pair("--recompute-num-layers", n),
    ]
