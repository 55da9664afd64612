"""Hooks of MaxText, torchtitan and nanotron: their meshes, their stages, a model's shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import Table

if TYPE_CHECKING:
    from gpuscale.launch.dialects.megatron import Fields, Part
    from gpuscale.launch.job import TrainingLaunch


def maxtext(fields: Fields) -> Part:
    """Write the sequences of a device, in one pass or in those of a pipeline, and the mesh."""
    job: TrainingLaunch = fields["job"]
    lay, tpu = job.layout, job.cluster.gpu.name.startswith("tpu")
    table: Table = {"hardware": "tpu"} if tpu else {}
    table |= {} if tpu else {"attention": "cudnn_flash_te", "packing": False}
    if lay.pp == 1 and lay.n_micro_batches > 1 and lay.precision == "fp8":
        raise GpuscaleError(
            "MaxText accumulates no gradients with fp8",
            "plan with a larger --micro-batch, a smaller --global-batch or --precision bf16",
        )
    if lay.pp > 1 and (lay.n_micro_batches % lay.pp or not job.even_stages):
        raise GpuscaleError(
            "MaxText wants stages of as many layers each, and micro-batches a multiple of the "
            f"stages: not {lay.n_micro_batches} micro-batches on {lay.pp} stages",
            "plan with another --pp, --vpp or --global-batch",
        )
    passes = lay.n_micro_batches if lay.pp == 1 else 1
    table["per_device_batch_size"] = lay.global_batch_size / lay.n_gpus / passes
    if lay.pp > 1:
        table |= {"num_pipeline_microbatches": lay.n_micro_batches, "num_pipeline_repeats": lay.vpp}
        table["num_layers_per_pipeline_stage"] = job.stage_layers[0]
    elif passes > 1:
        table["gradient_accumulation_steps"] = passes
    axes, left = _axes(job, tpu)
    table |= axes
    said = {"micro_batch_size", "accumulation", "global_batch_size", "pp", "vpp", "stage_layers"}
    said |= {"tp", "cp", "ep", "zero_stage", "dp_replicate", "cp_kind", "overlap_tp", "overlap_pp"}
    if lay.cp > 1:
        words = (
            {"all-gather": "all_gather"} if tpu else {"ring": "ring", "all-gather": "all_gather"}
        )
        table["context_parallel_strategy"] = words.get(lay.cp_kind, "all_gather")
        said -= set() if lay.cp_kind in words else {"cp_kind"}
    if lay.offload_activations:
        table |= {"remat_policy": "custom", "decoder_layer_input": "offload"}
    said -= set() if lay.zero_stage in (0, 1, 3) and not left else {"zero_stage", "dp_replicate"}
    said -= set() if lay.overlap_tp else {"overlap_tp"}
    if lay.tp == 1 or lay.sequence_parallel:
        said.add("sequence_parallel")
    else:
        left.append("no sequence parallelism: the tensor axis splits activations too")
    if lay.etp == lay.tp:
        said.add("etp")
    return table, said | {"offload_activations"}, left


def _axes(job: TrainingLaunch, tpu: bool) -> tuple[Table, list[str]]:
    """Axes of the mesh: inside a slice (`ici_`), which is a node of GPUs, and over slices."""
    lay = job.layout
    if lay.dp % lay.ep:
        raise GpuscaleError(
            f"MaxText's expert axis is apart from its other axes: expert parallelism {lay.ep} must "
            f"divide data parallelism {lay.dp}",
            f"plan with --ep {math.gcd(lay.dp, lay.ep)}",
        )
    left: list[str] = []
    ranks = lay.dp // lay.ep
    group = lay.shard_group_size or lay.dp * lay.cp
    replicas = lay.dp * lay.cp // group if lay.zero_stage == 3 else ranks
    if ranks % replicas:
        left.append(f"shards of {group} ranks")
        replicas = 1
    if (lay.dp == lay.ep and lay.zero_stage and lay.dp * lay.cp > 1) or (
        lay.ep > 1 and lay.zero_stage < 3
    ):
        left.append(f"ZeRO-{lay.zero_stage} over the ranks of experts or of context parallelism")
    degrees = {
        "tensor_sequence" if lay.sequence_parallel else "tensor": lay.tp,
        "context": lay.cp,
        "expert": lay.ep,
        "fsdp": ranks // replicas,
        "data": replicas,
        "pipeline": lay.pp,
    }
    room = lay.n_gpus if tpu else job.gpus_a_node
    table: Table = {}
    for axis, degree in degrees.items():
        inner = math.gcd(degree, room)
        room //= inner
        sizes = {f"ici_{axis}_parallelism": inner, f"dcn_{axis}_parallelism": degree // inner}
        table |= {k: n for k, n in sizes.items() if n != 1 or axis in ("data", "fsdp")}
    if room > 1:
        raise GpuscaleError(
            "MaxText lays whole axes over nodes: these degrees leave GPUs of a node idle",
            "plan with degrees that divide the GPUs of a node, or are multiples of them",
        )
    if lay.zero_stage in (1, 2) and replicas > 1:
        table["shard_optimizer_over_data"] = True
    return table, left


def torchtitan(fields: Fields) -> Part:
    """Write the mesh, and the stages by the lengths that torchtitan splits layers into."""
    from gpuscale.core.stages import split_text, splits_by_length

    job: TrainingLaunch = fields["job"]
    lay, name, left = job.layout, job.model.name, list[str]()
    if name == "deepseek-v3" and lay.seq_len > DEEPSEEK_TOKENS:
        longest = f"{DEEPSEEK_TOKENS:,} tokens, not {lay.seq_len:,}"
        raise GpuscaleError(f"torchtitan's deepseek_v3_671b reaches {longest}")
    group = lay.shard_group_size or lay.dp * lay.cp
    replicate = lay.dp * lay.cp // group if lay.zero_stage else lay.dp
    key = "parallelism.{}".format
    table: Table = {
        "training.local_batch_size": lay.micro_batch_size
        * (lay.n_micro_batches if lay.pp > 1 else 1),
        key("data_parallel_replicate_degree"): replicate,
        key("data_parallel_shard_degree"): lay.dp // replicate if lay.zero_stage else 1,
        key("fsdp_reshard_after_forward"): "always" if lay.zero_stage == 3 else "never",
    }
    said = {"micro_batch_size", "dp_replicate", "vpp", "stage_layers", "schedule"}
    said |= set() if lay.zero_stage == 1 else {"zero_stage"}
    if lay.pp > 1:
        found = splits_by_length(job.model.n_layers, lay.pp * lay.vpp)
        if not found:
            raise GpuscaleError(
                f"torchtitan cannot split {job.model.n_layers} layers into {lay.pp * lay.vpp} "
                "stages",
                "plan with another --pp or --vpp",
            )
        same = (split for split in found if split.counts == job.stage_layers)
        each, first, last, chunks = next(same, found[0])
        if chunks != job.stage_layers:
            left.append(
                f"the split of layers {split_text(job.stage_layers)}; torchtitan makes "
                f"{split_text(chunks)}"
            )
        table |= {
            key("pipeline_parallel_degree"): lay.pp,
            key("pipeline_parallel_schedule"): "Interleaved1F1B"
            if lay.vpp > 1
            else SCHEDULES.get(lay.schedule, "1F1B"),
            key("pipeline_parallel_microbatch_size"): lay.micro_batch_size,
            key("pipeline_parallel_layers_per_stage"): each,
            key("pipeline_parallel_first_stage_less_layers"): first,
            key("pipeline_parallel_last_stage_less_layers"): last,
        }
        said -= set() if lay.schedule in SCHEDULES else {"schedule"}
    if lay.tp > 1 and not lay.sequence_parallel:
        table[key("no-enable_sequence_parallel")] = True
    if lay.pp > 1 or lay.ep > 1:  # no graphs of a pipeline, nor of an all-to-all that synchronises
        table["training.disable_cuda_graphs"] = True
    if lay.offload_optimizer:
        table["training.enable_cpu_offload"] = True
        left.append("torchtitan offloads parameters and gradients beside the optimizer")
    if lay.precision == ("fp8" if name == "llama3.1-405b" else "bf16"):
        said.add("precision")
    return table, said | {"pp", "sequence_parallel", "offload_optimizer"}, left


DEEPSEEK_TOKENS = 16_384
"""Tokens that the rotary positions of torchtitan's DeepSeek reach."""
SCHEDULES = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe"}


def olmo_core(fields: Fields) -> Part:
    """Write OLMo-core's batches, which it counts in tokens, and what it shards."""
    job: TrainingLaunch = fields["job"]
    lay, part = job.layout, "train_module.dp_config."
    ranks = lay.dp * lay.cp
    group = lay.shard_group_size or ranks
    table: Table = {
        "train_module.rank_microbatch_size": lay.micro_batch_size * lay.seq_len,
        "data_loader.global_batch_size": lay.global_batch_size * lay.seq_len,
        "model.vocab_size": job.model.vocab_size,
        f"{part}name": "ddp" if not lay.zero_stage else "hsdp" if group < ranks else "fsdp",
    }
    table |= {f"{part}num_replicas": ranks // group} if group < ranks and lay.zero_stage else {}
    said = {"micro_batch_size", "accumulation", "global_batch_size", "dp_replicate"}
    return table, said | ({"zero_stage"} if lay.zero_stage in (0, 3) else set()), []


def nanotron(fields: Fields) -> Part:
    """Write the shape of a model of Llama's kind, the one that nanotron's `LlamaConfig` can say."""
    model, lay = fields["job"].model, fields["job"].layout
    mixers, ffns = list(model.mixers.values()), list(model.ffns.values())
    mixer, ffn = mixers[0], ffns[0]
    if (
        len(mixers) + len(ffns) > 2
        or mixer.kind != "attention"
        or ffn.kind != "dense"
        or not ffn.gated
        or model.norm != "rmsnorm"
        or mixer.n_heads * mixer.head_dim != model.hidden_size
        or mixer.window_tokens
        or mixer.qk_norm != "none"
    ):
        raise GpuscaleError(
            f"nanotron's Llama configuration cannot say {model.name}",
            "`--framework megatron` writes any dense or MoE model",
        )
    if mixer.n_kv_heads % lay.tp:
        raise GpuscaleError(
            f"nanotron divides key and value heads: {mixer.n_kv_heads} by tensor parallelism "
            f"{lay.tp}",
            f"plan with --tp {mixer.n_kv_heads} or a divisor of it",
        )
    shape = {
        "is_qwen2_config" if lay.cp > 1 else "is_llama_config": True,  # models/qwen.py has CP
        "hidden_size": model.hidden_size,
        "intermediate_size": ffn.ffn_hidden_size,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": mixer.n_heads,
        "num_key_value_heads": mixer.n_kv_heads,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": max(lay.seq_len, model.max_position or 0),
        "tie_word_embeddings": model.tie_embeddings,
        "attention_bias": mixer.qkv_bias,
    }
    table: Table = {f"model.model_config.{key}": value for key, value in shape.items()}
    table |= {"general.run": model.name, "model.make_vocab_size_divisible_by": lay.tp}
    table |= {"parallelism.dp": lay.dp, "optimizer.zero_stage": min(lay.zero_stage, 1)}
    table["optimizer.learning_rate_scheduler.lr_warmup_steps"] = max(1, fields["steps"] // 50)
    table["parallelism.tp_linear_async_communication"] = lay.sequence_parallel
    table["parallelism.tp_mode"] = "REDUCE_SCATTER" if lay.sequence_parallel else "ALL_REDUCE"
    said = {"sequence_parallel", "dp_replicate"} | ({"zero_stage"} if lay.zero_stage < 2 else set())
    notes = ["rope_theta: its default of 10,000 stands"]
    if lay.cp > 1:  # trainer.py: no random weights
        table |= {"checkpoints.resume_checkpoint_path": "checkpoint"}
        table |= {"checkpoints.checkpoints_path": "saves", "checkpoints.checkpoint_interval": 1000}
        notes.append("context parallelism goes on from a checkpoint, nanotron starts none with it")
    return table, said, notes
