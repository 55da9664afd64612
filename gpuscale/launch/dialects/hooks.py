"""What no row says: pairs of functions, one that writes fields as options and one that reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuscale.io.text import Table
from gpuscale.launch.dialects import megatron, meshes
from gpuscale.launch.found import MEGATRON_KEYS
from gpuscale.launch.job import filled

Fields = Mapping[str, Any]


def write_accelerate(fields: Fields) -> tuple[Table, set[str]]:
    """FSDP2 and the sizes of the mesh (accelerate, utils/dataclasses.py, parallelism_config.py)."""
    stage, dp = fields["zero_stage"], fields["n_gpus"] // fields["tp"] // fields["cp"]
    replicate = fields.get("dp_replicate", 1)
    sharded = stage > 0 and dp * fields["cp"] // replicate > 1
    said = {"tp", "cp", "cp_kind", "dp_replicate"}
    table: Table = {"distributed_type": "FSDP" if sharded else "MULTI_GPU"}
    if fields["n_nodes"] > 1:
        table |= {"main_process_ip": "HEAD_NODE", "main_process_port": 29500}
        table |= {"rdzv_backend": "c10d", "same_network": True}
    if sharded:
        offload = fields["offload_optimizer"] and fields.get("offload_parameters", True)
        table |= {
            "fsdp_config.fsdp_version": 2,
            "fsdp_config.fsdp_reshard_after_forward": stage == 3,
            "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_config.fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_config.fsdp_offload_params": offload,
            "fsdp_config.fsdp_activation_checkpointing": False,  # the Trainer's own, not both
            "fsdp_config.fsdp_cpu_ram_efficient_loading": True,
        }
        said |= {"offload_optimizer", "offload_parameters"} if offload else set()
        said |= {"zero_stage"} if stage > 1 else set()
    elif not stage or fields["n_gpus"] == 1:
        said.add("zero_stage")
    if fields["tp"] > 1 or fields["cp"] > 1 or replicate > 1:
        kinds = {"ring": "cp", "ulysses": "sp"}
        kind = kinds.get(fields.get("cp_kind", "ring"), "cp")
        said -= set() if fields.get("cp_kind", "ring") in kinds else {"cp_kind"}
        sizes = {"dp_replicate": replicate if sharded else dp, "tp": fields["tp"]}
        sizes |= {"dp_shard": dp // replicate if sharded else 1, kind: fields["cp"]}
        key = "parallelism_config.parallelism_config_{}_size"
        table |= {key.format(name): n for name, n in sizes.items()}
    return table, said


ATTENTION = ("q", "k", "v", "o")
MLP = ("gate", "up", "down")


def write_torchtune(fields: Fields) -> tuple[Table, set[str]]:
    """Write torchtune's component of a model, and what its distributed recipes shard."""
    family, _, builder = fields["model"].rpartition(".")
    kind = fields["method"]
    said = {"model", "method"}
    name = builder if kind == "full" else f"lora_{builder}"
    table: Table = {"model._component_": f"torchtune.models.{family}.{name}"}
    if kind != "full":
        targets = fields["targets"]
        maps = (*ATTENTION, *MLP) if targets == ("all-linear",) else targets
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "output_proj"}
        table["model.lora_attn_modules"] = [names[m] for m in maps if m in names]
        table["model.apply_lora_to_mlp"] = bool(set(MLP) & set(maps))
        whole = not set(maps) & set(MLP) or set(MLP) <= set(maps)
        said |= {"targets"} if whole and set(maps) <= {*ATTENTION, *MLP} else set()
        table["model.use_dora"] = kind == "dora"
        if fields["base"] == "nf4":
            table["model.quantize_base"] = True
            said.add("base")
    offload = fields.get("offload_parameters"), fields["offload_optimizer"]
    if fields["n_gpus"] == 1 or fields["zero_stage"] == 3:
        said.add("zero_stage")
    if fields["n_gpus"] > 1:
        table["fsdp_cpu_offload"] = all(offload)
        said |= {"offload_parameters", "offload_optimizer"} if all(offload) else set()
    return table, said


def samples_of(fields: Fields) -> int:
    """Sequences of an update of RL."""
    samples = fields["rl.prompts"] * (fields.get("rl.group") or 1)
    return int(samples // (fields.get("rl.updates") or 1))


RL_SAID = {"seq_len", "global_batch_size", "accumulation", "rl.updates", "rl.prompt"}


def write_verl(fields: Fields) -> tuple[Table, set[str]]:
    """Write the mini-batch of an update: prompts, of which each has its responses."""
    mini = fields["rl.prompts"] // (fields.get("rl.updates") or 1)
    return {"actor_rollout_ref.actor.ppo_mini_batch_size": mini}, set(RL_SAID)


def write_trl(fields: Fields) -> tuple[Table, set[str]]:
    """Write how many micro-batches an update of RL takes, and those of a generation."""
    if "rl.method" not in fields:
        return {}, set()
    ranks = fields["n_gpus"] // fields["tp"] // fields["cp"] // fields["pp"]
    each = fields["micro_batch_size"] * ranks
    steps = samples_of(fields) // each
    said = {"accumulation", "global_batch_size"}
    said |= {"rl.prompts", "rl.updates"} if samples_of(fields) == steps * each else set()
    table: Table = {"gradient_accumulation_steps": max(1, steps)}
    if fields["rl.method"] != "dpo":
        table["steps_per_generation"] = max(1, steps) * (fields.get("rl.updates") or 1)
    return table, said | ({"seq_len"} if fields["rl.method"] != "dpo" else set())


def write_openrlhf(fields: Fields) -> tuple[Table, set[str]]:
    """Write where the models of RL stand, and the samples of an update."""
    if "rl.method" not in fields:
        return {}, set()
    said = set(RL_SAID)
    table: Table = {"train.batch_size": samples_of(fields)}
    if fields["rl.method"] == "dpo":
        return table, said | {"rl.method", "rl.prompts"}
    tp, engine = fields.get("rl.rollout_tp") or 1, fields["rl.engine"]
    if engine == "colocated":
        table |= {"train.colocate_all": True, "vllm.enable_sleep": True, "ds.enable_sleep": True}
        table |= {"vllm.num_engines": max(1, fields["n_gpus"] // tp)}
        return table, said | {"rl.engine"}
    if engine in ("split", "async"):
        table["vllm.num_engines"] = fields["rl.rollout_gpus"] // tp
        said |= {"rl.rollout_gpus", "rl.engine"} if engine == "split" else {"rl.rollout_gpus"}
    if critic := fields.get("rl.critic_gpus"):
        table |= {"critic.num_nodes": 1, "critic.num_gpus_per_node": critic}
        said.add("rl.critic_gpus")
    return table, said


def write_nemo_rl(fields: Fields) -> tuple[Table, set[str]]:
    """Write NeMo-RL's policy: over Megatron-Core, or over FSDP2 (dtensor) where that can say it."""
    stage, adapter = fields["zero_stage"], fields.get("lora_rank")
    torch = stage == 3 and fields["pp"] == 1 and fields.get("etp", 1) == 1
    part = "policy.dtensor_cfg" if torch else "policy.megatron_cfg"
    said = {"tp", "cp", "ep", "cp_kind", "recompute"}
    table: Table = {
        "policy.dtensor_cfg.enabled": torch,
        "policy.megatron_cfg.enabled": not torch,
        f"{part}.activation_checkpointing": fields["recompute"] == "full",
    }
    said |= {"zero_stage"} if torch or stage == 1 else set()
    said -= set() if fields["recompute"] in ("none", "full") else {"recompute"}
    if torch:
        names = {"tp": "tensor", "cp": "context", "ep": "expert"}
        table |= {f"{part}.{word}_parallel_size": fields[n] for n, word in names.items()}
        offload = fields.get("offload_parameters", False) and fields["offload_optimizer"]
        table |= {f"{part}.cpu_offload": offload, f"{part}.sequence_parallel": False}
        said |= {"offload_parameters", "offload_optimizer"} if offload else set()
        said -= set() if fields.get("cp_kind", "ring") == "ring" else {"cp_kind"}
    else:
        table |= {f"{part}.{k}": fields.get(n, 1) for n, k in MEGATRON_KEYS.items() if n != "vpp"}
        table[f"{part}.sequence_parallel"] = fields["sequence_parallel"]
        said |= {"pp", "etp", "sequence_parallel"}
    if adapter:
        lora = f"{part}.lora_cfg" if torch else f"{part}.peft"
        table |= {f"{lora}.enabled": True, f"{lora}.dim": adapter}
        table |= {f"{lora}.alpha": fields.get("lora_alpha", 2 * adapter)}
        table |= {f"{lora}.target_modules": []}
        said |= {"lora_rank"} | ({"targets"} if fields["targets"] == ("all-linear",) else set())
    method = fields.get("rl.method")
    if method == "dpo":
        table |= {"policy.train_global_batch_size": samples_of(fields)}
        said |= RL_SAID | {"rl.method", "rl.prompts"}
    elif method:
        table |= {"policy.train_global_batch_size": samples_of(fields)}
        table |= {"data.max_input_seq_length": fields["rl.prompt"]}
        said |= RL_SAID - {"seq_len"}
        said |= {"rl.method"} if method == "grpo" else set()
        apart = fields.get("rl.rollout_gpus")
        table["policy.generation.colocated.enabled"] = not apart
        said |= {"rl.engine"} if fields["rl.engine"] == "colocated" else set()
    return table, said


LITGPT = {"q": "query", "k": "key", "v": "value", "o": "projection"}


def write_litgpt(fields: Fields) -> tuple[Table, set[str]]:
    """Write LitGPT's folder of a checkpoint, its flags of adapters, and what it shards."""
    said = {"model"}
    table: Table = {"checkpoint_dir": f"checkpoints/{fields['model']}"}
    if fields["method"] == "lora":
        maps = fields["targets"]
        maps = (*LITGPT, *MLP) if maps == ("all-linear",) else maps
        table |= {f"lora_{word}": name in maps for name, word in LITGPT.items()}
        table |= {"lora_mlp": "up" in maps, "lora_head": False}
        said |= {"targets"} if set(MLP) <= set(maps) or not set(MLP) & set(maps) else set()
    several = fields["n_gpus"] > 1
    if fields["zero_stage"] == (3 if several else 0):
        said.add("zero_stage")
    if fields["recompute"] == ("full" if several else "none"):
        said.add("recompute")
    return table, said


HOOKS: dict[str, Callable[[Fields], Any]] = {
    "accelerate": write_accelerate,
    "torchtune": write_torchtune,
    "trl": write_trl,
    "verl": write_verl,
    "openrlhf": write_openrlhf,
    "nemo_rl": write_nemo_rl,
    "litgpt": write_litgpt,
    "megatron.model": megatron.model,
    "megatron.flags": megatron.flags,
    "megatron.overrides": megatron.overrides,
    "megatron.swift": megatron.keys,
    "megatron.primus": partial(megatron.keys, chunks_of="num_virtual_stages_per_pipeline_rank"),
    "meshes.maxtext": meshes.maxtext,
    "meshes.torchtitan": meshes.torchtitan,
    "meshes.nanotron": meshes.nanotron,
    "meshes.olmo_core": meshes.olmo_core,
}
"""Name of a hook -> what writes its fields: the options, the fields that they say, and words for
what else the framework cannot say."""


def script_of(framework: str, table: Fields) -> str:
    """Python program of a framework that has no command line (Unsloth)."""
    parts: dict[str, list[str]] = {"load": [], "peft": [], "": []}
    for key, value in table.items():
        part, _, name = key.rpartition(".")
        parts[part].append(f"    {name}={value!r},")
    if any("r=" in line for line in parts["peft"]):
        head = ["model = FastLanguageModel.get_peft_model(", "    model,"]
        parts["peft"] = [*head, *parts["peft"], ")"]
    else:
        parts["peft"] = []
    return filled("unsloth", load=parts["load"], peft=parts["peft"], arguments=parts[""])
