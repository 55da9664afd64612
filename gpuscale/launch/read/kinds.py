"""Frameworks that one nested table configures: which a table is of, and what reads it.

What a key says stands in the rows of their framework, the paths and the style of a shape in
`words.toml`; here is what neither can say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuscale.core.finetune.method import canonical
from gpuscale.core.records import dataclass
from gpuscale.io.text import Table
from gpuscale.launch.dialects.hooks import ATTENTION, MLP
from gpuscale.launch.dialects.nested import Nested, dialect, put_shape, vocabulary
from gpuscale.launch.dialects.rows import known_keys, precision_of, put, put_unheard, sharded, whole
from gpuscale.launch.found import Found, launch_table
from gpuscale.launch.named import gpu_named
from gpuscale.launch.read import rl
from gpuscale.launch.read.rl import put_rl

Dims = Table
Own = Callable[[Nested, Dims, dict[str, bool]], None]


def _neox(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """GPT-NeoX: a gated MLP is a third wide, rounded up (megatron/model/transformer.py)."""
    wide = at.number("intermediate_size") or 4 * (dims["hidden"] or 0)
    if style["gated"]:
        multiple = at.number("mlp_multiple_of") or 256
        wide = -(-(wide // 3) // multiple) * multiple
    dims["ffn"] = wide


def _nanotron(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """nanotron: every degree is said, so that the GPUs are (config/parallelism_config.py)."""
    found = at.found
    found.n_gpus = (found.dp or 1) * found.tp * found.pp * found.cp
    if (found.ep or 1) > 1:  # parallel/context.py
        found.n_gpus *= found.ep or 1
        found.beyond.append(
            f"ep {found.ep}: nanotron's experts are a dimension of the ranks of its own"
        )
    found.vpp = 1
    found.schedule = found.schedule if found.pp > 1 else None
    config = "model.model_config."
    if at.true(f"{config}is_starcoder2_config") or not style["gated"]:  # whose MLP has no gate
        style |= {"gated": False, "rms": False, "bias": True, "tied": True}
        dims["ffn"] = dims["ffn"] or 4 * (dims["hidden"] or 0)
        dims["kv"] = 1 if at.true(f"{config}multi_query") else dims["kv"]


def _foundry(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """llm-foundry over Composer: MPT's shape, or that of Llama in LLM-Shearing."""
    found, kind = at.found, at.text("model.name")
    found.gpu = gpu_named(at.text("compute.gpu_type", "gpu_type").replace("_", "-"))
    fsdp = "fsdp_config" if at.get("fsdp_config") is not None else "parallelism_config.fsdp"
    shards = at.get(fsdp) is not None
    found.zero_stage = sharded(at.text(f"{fsdp}.sharding_strategy")) if shards else 0
    if (stage := at.number("deepspeed_config.zero_optimization.stage")) is not None:
        found.zero_stage, found.software = stage, "deepspeed"  # Composer hands it on
    if found.model_name:
        named = "lora" if at.get("model.peft_config") is not None else "full"
        named = "dora" if at.true("model.peft_config.use_dora") else named
        found.method = named if at.true("model.pretrained", default=True) else "pretrain"
        found.lora_rank = found.lora_rank or 8 if named != "full" else None
    elif "llama" in kind:
        style |= {"gated": True, "rms": True, "bias": False, "learned": False}
        style["tied"] = at.true("model.tie_word_embeddings")
    ratio = at.number("model.expansion_ratio") or 4
    dims["ffn"] = dims["ffn"] or (dims["hidden"] or 0) * ratio


def _olmo(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """OLMo (the repository of the first two releases): FSDP, a shape of its own."""
    found = at.found
    replicated = at.text("distributed_strategy") in ("ddp", "single")
    found.zero_stage = 0 if replicated else sharded(at.text("fsdp.sharding_strategy"))
    if found.recompute is None:  # every second, third or fourth layer, or one of them
        word = at.text("activation_checkpointing").rsplit("_", 1)[-1]
        share = {"two": 2, "three": 3, "four": 4}.get(word, 1)
        found.recompute, found.recompute_layers = "full", (dims["layers"] or 0) // share
        found.asked.pop("activation_checkpointing", None)
    ratio = at.number("model.mlp_ratio") or 4
    wide = at.number("model.mlp_hidden_size") or (dims["hidden"] or 0) * ratio
    dims["ffn"] = wide // 2 if style["gated"] else wide  # of both halves together (olmo/model.py)
    dims["kv"] = 1 if at.true("model.multi_query_attention") else dims["kv"]


def _lingua(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """Meta Lingua: `dim` and a gated MLP of 8/3 of it (lingua/transformer.py)."""
    found = at.found
    shards, replicas = at.number("distributed.dp_shard"), found.dp_replicate
    found.n_gpus = shards * replicas * found.tp if shards and replicas else None
    multiple = at.number("model.multiple_of") or 256
    factor = float(at.text("model.ffn_dim_multiplier") or 1.0)
    wide = int(2 * 4 * (dims["hidden"] or 0) / 3 * factor)
    dims["ffn"] = -(-wide // multiple) * multiple


def _levanter(at: Nested, dims: Dims, style: dict[str, bool]) -> None:
    """Levanter: classes of models with a length of their own, GPT-2's and Llama's."""
    found, kind = at.found, at.text("model.type")
    name = at.text("initialize_from_hf", "model_name_or_path")
    own = at.number("model.hidden_dim") and not at.true("use_hf_model_config")
    if name and name.lower() not in ("true", "false") and not own:
        found.model_name = name.split("@")[0]
        return
    for key in ("train_batch_size", "per_device_parallelism"):
        if isinstance(at.get(f"trainer.{key}"), list):
            found.beyond.append(f"trainer.{key} has several stages: give a file of one")
    gpt2 = kind in ("", "gpt2") or "starcoder" in kind
    if found.seq_len is None:
        found.seq_len = {"": 1024, "gpt2": 1024, "llama": 2048}.get(kind)
    dims["ffn"] = dims["ffn"] or 4 * (dims["hidden"] or 0)
    dims["vocab"] = vocabulary(at.text("data.tokenizer", "tokenizer"))
    style |= {"gated": not gpt2, "rms": not gpt2, "bias": gpt2, "learned": gpt2, "tied": gpt2}


OWN: dict[str, Own] = {
    "gpt-neox": _neox,
    "nanotron": _nanotron,
    "llm-foundry": _foundry,
    "olmo": _olmo,
    "lingua": _lingua,
    "levanter": _levanter,
}
"""Framework -> what neither its rows nor its table of a shape can say."""


def put_own_shape(at: Nested) -> None:
    """Build the model of a file by its framework's paths, unless it names one of the hub."""
    table: Mapping[str, Any] = launch_table("words")["shapes"][at.found.kind]
    usual = table.get("usual", {})
    dims = {key: n or usual.get(key) for key, n in at.dims(at.found.kind).items()}
    style = {key: _holds(at, said) for key, said in table["style"].items()}
    OWN[at.found.kind](at, dims, style)
    if not at.found.model_name and dims["hidden"] and not at.found.beyond:
        name = at.text(*table["name"].split()).replace("%", "")
        put_shape(at.found, name or table["own"], dims, **style)


def _holds(at: Nested, said: bool | Mapping[str, Any]) -> bool:
    """Whether a file is of a style: always, or where an option is true or `like` a pattern."""
    if isinstance(said, bool):
        return said
    text = at.text(said["option"])
    if not text:
        return bool(said.get("usual", False))
    return bool(re.search(said["like"], text)) if "like" in said else at.true(said["option"])


def neox_keys(table: Mapping[str, Any]) -> Table:
    """Write keys of a GPT-NeoX file with underscores, as it does itself."""
    return {str(key).replace("-", "_"): value for key, value in table.items()}


MAPS = ("q", "k", "v", "o", "qkv", "gate", "up", "gate_up", "down")
ALL = "all-linear"


def targets_of(value: Any) -> tuple[str, ...]:
    """Targets of a list, or of names with commas; none where one of them is not known here.

    >>> targets_of("q_proj,v_proj"), targets_of(["all"]), targets_of(".*mlp.*")
    (('q', 'v'), ('all-linear',), ())
    """
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value or "").strip())
    names = tuple(dict.fromkeys(canonical(str(part)) for part in parts if part))
    if ALL in names:
        return (ALL,)
    return names if names and all(name in MAPS for name in names) else ()


def builder_name(builder: str) -> str:
    """Name of a model by the function of torchtune that builds it.

    >>> [builder_name(f) for f in ("llama3_1_8b", "qlora_qwen2_5_1_5b_instruct", "phi3_mini")]
    ['llama3.1-8b', 'qwen2.5-1.5b-instruct', 'phi3-mini']
    """
    name = re.sub(r"^(q?lora|reward)_", "", builder.rsplit(".", 1)[-1])
    name = re.sub(r"(?<=\d)_(5b)", r".\1", name)
    return re.sub(r"(?<=\d)_(?=\d+_)", ".", name).replace("_", "-")


def _torchtune(at: Nested) -> None:
    """torchtune: components by their path, one recipe a file."""
    found = at.found
    builder = at.text("model._component_", "policy_model._component_", "policy._component_")
    found.model_name = builder_name(builder) if builder else None
    part = "model" if at.get("model") is not None else "policy_model"
    if at.number(f"{part}.embed_dim"):
        put_shape(found, found.model_name or "model", at.dims("torchtune"), gated=True)
    found.offload_parameters = found.offload_optimizer = at.true("fsdp_cpu_offload")
    stem = builder.rsplit(".", 1)[-1]
    four_bit = stem.startswith("qlora") or at.true("model.quantize_base")
    if found.lora_rank:
        dora = at.true("model.use_dora")
        found.method = "dora" if dora else "qlora" if four_bit else "lora"
        found.weights = "nf4" if dora and four_bit else None
        maps = targets_of(at.get("model.lora_attn_modules"))
        mlp = at.true("model.apply_lora_to_mlp")
        whole = mlp and len(maps) == len(ATTENTION)
        found.targets = ("all-linear",) if whole else (*maps, *(MLP if mlp else ()))
    loss = at.text("loss._component_", "rlhf_loss._component_").lower()
    if "dpo" in loss:
        put_rl(found, {"method": "dpo"})
    elif "simpo" in loss:
        put_rl(found, {"method": "simpo"})
    elif "ppo" in loss or at.get("policy_model") is not None:
        rl = {"method": "ppo", "max_response": at.number("max_generated_tokens")}
        put_rl(found, rl | {"prompts": at.number("batch_size")})
    elif "grpo" in loss:
        rl = {"method": "grpo", "group": at.number("grpo_samples", "grpo_size")}
        put_rl(found, rl | {"max_response": at.number("max_generated_tokens")})
    if at.get("optimizer") is None and at.get("policy_model") is None:
        found.beyond.append("no optimizer: an evaluation or a generation, not a training")


LITGPT_MAPS = {"query": True, "key": False, "value": True, "projection": False, "mlp": False}
LITGPT_TARGETS = {"query": "q", "key": "k", "value": "v", "projection": "o", "mlp": "gate up down"}
"""Flags of LitGPT's adapters, with their habit (finetune/lora.py) -> maps."""


def _litgpt(at: Nested) -> None:
    """LitGPT: `litgpt finetune` by a checkpoint's folder, `litgpt pretrain` by a model's name."""
    found = at.found
    folder = at.text("checkpoint_dir")
    found.model_name = "/".join(folder.split("/")[-2:]) if folder else at.text("model_name") or None
    found.precision = precision_of(at.text("precision"))
    if found.gpus_per_node and not found.n_nodes:
        found.n_nodes = 1
    if at.get("lora_r") is not None:
        found.method = "qlora" if "bnb" in at.text("quantize") else "lora"
        on = {n for n, habit in LITGPT_MAPS.items() if at.true(f"lora_{n}", default=habit)}
        parts = [maps for n, maps in LITGPT_TARGETS.items() if n in on]
        whole = set(on) == set(LITGPT_MAPS)
        found.targets = ("all-linear",) if whole else tuple(" ".join(parts).split())
    elif not folder:
        found.method = "pretrain"
        return
    # FSDP with checkpoints of blocks where there are several devices (finetune/full.py, lora.py)
    several = (found.world_size or 1) > 1
    found.zero_stage, found.recompute = (3, "full") if several else (0, "none")


def _oumi(at: Nested) -> None:
    """oumi: a trainer of TRL or its own, with sections for adapters, FSDP and DeepSpeed."""
    found = at.found
    if at.true("training.use_peft"):
        four_bit = at.true("peft.q_lora")
        found.method, found.lora_rank = "qlora" if four_bit else "lora", found.lora_rank or 8
    else:
        found.lora_rank = None
    found.zero_stage = 0
    if at.true("fsdp.enable_fsdp"):
        found.zero_stage = sharded(at.text("fsdp.sharding_strategy"))
        found.offload_parameters = at.true("fsdp.cpu_offload")
    if at.true("deepspeed.enable_deepspeed"):
        found.software = "deepspeed-zero3"
        stage = at.text("deepspeed.zero_stage")[-1:]
        found.zero_stage = int(stage) if stage.isdigit() else 0
    trainer = at.text("training.trainer_type").upper()
    if method := next((m for m in ("DPO", "GRPO") if m in trainer), ""):
        group = at.number("training.grpo.num_generations")
        longest = at.number("training.grpo.max_completion_length")
        prompt = at.number("training.grpo.max_prompt_length")
        rl = {"group": group, "prompt": prompt, "max_response": longest}
        put_rl(found, {"method": method.lower()} | (rl if method == "GRPO" else {}))


def _automodel(at: Nested) -> None:
    """NeMo Automodel: adapters of its own section."""
    if at.get("peft") is not None:
        at.found.method, at.found.lora_rank = "lora", at.number("peft.dim") or 8
        if at.true("quantization.load_in_4bit"):
            at.found.method = "qlora"


def _prime_rl(at: Nested) -> None:
    """prime-rl: a trainer and an orchestrator; the GPUs that train are those of the answer."""
    found, rl = at.found, at.found.rl
    found.method = "lora" if found.lora_rank else "full"
    if found.n_nodes:
        found.gpus_per_node, found.n_gpus = found.gpus_per_node or 8, None
    if at.get("orchestrator") is None:
        return
    group, batch = whole(rl.get("group")), at.number("orchestrator.batch_size")
    prompts = max(1, batch // group) if batch and group else None
    put_rl(found, {**rl, "method": "grpo", "prompts": prompts})
    found.global_batch_size = batch or found.global_batch_size


def _olmo_core(at: Nested) -> None:
    """OLMo-core: batches in tokens, all of a part where the program has none (`{mode: full}`)."""
    found, part = at.found, "train_module.dp_config"
    named = found.model_name or ""
    found.model_name = FACTORIES.get(named)
    found.unread |= {"model": named} if named and not found.model_name else {}
    found.zero_stage = 0 if at.text(f"{part}.name") == "ddp" else 3
    if at.text(f"{part}.name") == "hsdp" and not found.dp_replicate:
        found.asked[f"{part}.name"] = "hsdp with a replica a node"
    at.heard |= {"model.vocab_size", "train_module.ac_config", f"{part}.param_dtype"}
    if mode := at.text("train_module.ac_config.mode").removesuffix("full"):
        found.asked["train_module.ac_config.mode"] = mode
    for field, path in TOKENS.items():
        rows = (at.number(path) or 0) // found.seq_len if found.seq_len else 0
        setattr(found, field, rows or None)
        found.unread |= {} if rows else {field: f"{at.text(path) or 'unsaid'} tokens"}


TOKENS = {
    "micro_batch_size": "train_module.rank_microbatch_size",
    "global_batch_size": "data_loader.global_batch_size",
}
FACTORIES = {factory: model for model, factory in dialect("olmo-core").names.items()}


TUNED = {
    "olmo-core": _olmo_core,
    "torchtune": _torchtune,
    "litgpt": _litgpt,
    "oumi": _oumi,
    "nemo-automodel": _automodel,
    "prime-rl": _prime_rl,
}
"""Framework -> what reads what its rows do not say."""


READERS = {**dict.fromkeys(OWN, put_own_shape), **rl.READERS, **TUNED}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of launch file (`launch/data/kinds.toml`)."""

    kind: str  # as `Found.kind`
    title: str  # what an answer calls such a file
    software: str = ""  # preset of the framework family
    group: str = ""  # rl, shape (it trains one of its own), hub (it tunes a model of the hub)
    told_by: tuple[str, ...] = ()  # alternatives; of one all paths (apart by spaces) must be there
    beside: str = ""  # key that names another file of the same kind
    tunes: bool = False  # a model of the hub
    preset: bool = False  # of its name
    length: bool = False  # is asked for where no file says it

    @property
    def method(self) -> str:
        """What its files train where they do not say."""
        return "pretrain" if self.group in ("shape", "program") else "full"

    def is_of(self, table: Mapping[str, Any]) -> bool:
        """Whether a table is such a configuration."""
        at = Nested(Found(""), table)
        return any(all(at.get(path) is not None for path in one.split()) for one in self.told_by)

    def found(self, table: Mapping[str, Any]) -> Found:
        """Read a configuration."""
        found = Found(self.kind, software=self.software, method=self.method)
        at = Nested(found, table)
        put(dialect(self.kind), at)
        found.cp_kind = found.cp_kind if found.cp > 1 else None
        if found.lora_rank and (self.group == "rl" or self.kind not in READERS):
            found.method = "lora"
        put_beyond(at)
        if reader := READERS.get(self.kind):
            reader(at)
        put_unheard(found, table, at.heard, known_keys(self.kind))
        if self.beside and (other := at.text(self.beside)):
            found.beside.append(other)
        return found


def put_beyond(at: Nested) -> None:
    """Say what a file has of which its framework's file says that it is not predicted."""
    for asked, why in dialect(at.found.kind).beyond.items():
        path, _, like = asked.partition(" ~ ")
        value = at.get(path)
        if value is not None and re.search(like, str(value), re.IGNORECASE):
            at.found.beyond.append(why.format(value))


KINDS = {
    one["kind"]: Kind(**{**one, "told_by": tuple(one.get("told_by", ()))})
    for one in launch_table("kinds")["kind"]
}
"""Kinds by their names, the one that decides first."""


def of_table(table: Mapping[str, Any], *groups: str) -> Found | None:
    """Read a table by the first kind of some groups that it is of."""
    chosen = (one for one in KINDS.values() if one.group in groups and one.is_of(table))
    return next((one.found(table) for one in chosen), None)
