"""Hugging Face style jobs: DeepSpeed, accelerate, trainer arguments, LLaMA-Factory, axolotl."""

from __future__ import annotations

import re

from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, dialect
from gpuscale.launch.dialects.rows import Heard, known_keys, put, put_unheard, whole
from gpuscale.launch.found import UNSET, Found, known_options, launch_table, named_model
from gpuscale.launch.read import rl
from gpuscale.launch.read.program import NO_TRAINING, TRAINS, options_in

_WORDS = launch_table("words")["trainer"]
REFUSED = ("amp", "sparse_gradients", "curriculum_learning")
"""Keys of older releases that DeepSpeed 0.19.8 refuses."""


def read_deepspeed(table: Table, found: Found | None = None) -> Found:
    """Read a DeepSpeed JSON; sequence length, model and GPUs are not in it."""
    found = found or Found("deepspeed", method="full")
    found.software = "deepspeed-zero3"
    found.version = "DeepSpeed 0.19.8"
    for key in table:
        if key in REFUSED:
            found.wrong.append(f"{key}: DeepSpeed 0.19.8 refuses this key")
        elif key not in _WORDS["deepspeed_keys"]:
            found.not_understood.append(f"{key} (DeepSpeed ignores it)")
    put(dialect("deepspeed-config"), Nested(found, table), whole=False)
    zero = section(table, "zero_optimization")
    found.zero_stage = whole(zero.get("stage")) or 0
    found.offload_optimizer = _device(zero, "offload_optimizer")
    found.offload_parameters = _device(zero, "offload_param")
    if found.offload_parameters and found.zero_stage != 3:
        found.offload_parameters = False
        found.notes.append("offload_param does nothing below ZeRO-3")
    if found.offload_optimizer and not found.zero_stage:
        found.offload_optimizer = False
        found.notes.append("offload_optimizer does nothing at stage 0")
    found.cp_kind = "ulysses" if found.cp > 1 else found.cp_kind
    on = {k for k in ("bf16", "fp16") if section(table, k).get("enabled") is True}
    if on == {"bf16", "fp16"}:
        found.wrong.append("bf16 and fp16 exclude each other")
    found.precision = found.precision or next(iter(sorted(on)), None)
    optimizer = section(table, "optimizer").get("type")
    found.optimizer = str(optimizer).lower() if optimizer else found.optimizer
    return found


def section(table: Table, key: str) -> Table:
    """Give a table's section; an empty one where it has none."""
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _device(zero: Table, key: str) -> bool:
    return section(zero, key).get("device") in ("cpu", "nvme")


def read_accelerate(table: Table) -> Found:
    """Read an accelerate YAML: processes, sharding, parallel sizes."""
    found = Found("accelerate", software="fsdp", version=known_options("accelerate").version)
    found.n_gpus = whole(table.get("num_processes"))
    found.n_nodes = whole(table.get("num_machines"))
    if found.n_gpus and found.n_nodes and found.n_gpus % found.n_nodes:
        found.wrong.append(
            f"num_processes {found.n_gpus} is no multiple of num_machines {found.n_nodes}"
        )
    word = str(table.get("mixed_precision", "no"))
    found.precision = word if word in ("bf16", "fp16", "fp8") else None  # else the trainer's
    found.method = "full"
    known = set(known_options("accelerate").arity) | set(_WORDS["accelerate_file_keys"])
    for key in table:
        if key not in known and not key.endswith(("_config", "_environment")):
            found.not_understood.append(key)
    kind = str(table.get("distributed_type", "NO")).upper()
    if kind == "DEEPSPEED":
        _accelerate_deepspeed(section(table, "deepspeed_config"), found)
    elif kind == "FSDP":
        _fsdp(section(table, "fsdp_config"), found)
    elif kind == "MULTI_GPU":  # replicas, where the program is told of no DeepSpeed
        found.places["launcher"] = "accelerate"
    _parallelism(section(table, "parallelism_config"), found)
    return found


def _accelerate_deepspeed(section: Table, found: Found) -> None:
    found.software = "deepspeed-zero3"
    if isinstance(file := section.get("deepspeed_config_file"), str):
        found.beside.append(file)
    found.zero_stage = whole(section.get("zero_stage"))
    found.accumulation = whole(section.get("gradient_accumulation_steps"))
    found.offload_optimizer = section.get("offload_optimizer_device") in ("cpu", "nvme")
    found.offload_parameters = section.get("offload_param_device") in ("cpu", "nvme")


def _fsdp(section: Table, found: Found) -> None:
    version = whole(section.get("fsdp_version")) or 1
    reshard = section.get("fsdp_reshard_after_forward", True)
    strategy = str(section.get("fsdp_sharding_strategy", "")).upper()
    full = strategy in ("", "FULL_SHARD", "1", "HYBRID_SHARD", "4")
    found.zero_stage = 3 if (full if version == 1 else str(reshard).lower() != "false") else 2
    found.offload_parameters = section.get("fsdp_offload_params") is True
    found.offload_optimizer = found.offload_parameters
    if section.get("fsdp_activation_checkpointing") is True:
        found.recompute = "full"


def read_launcher(words: list[str]) -> Found | None:
    """Read what `accelerate launch` itself is told of sharding: FSDP or DeepSpeed."""
    at = next((i for i, w in enumerate(words) if w.rsplit("/", 1)[-1] == "accelerate"), None)
    if at is None or words[at + 1 : at + 2] != ["launch"]:
        return None
    end = next((i for i, w in enumerate(words) if i > at and w.endswith(".py")), len(words))
    given = options_in(words[at:end])
    kind = "FSDP" if "use_fsdp" in given else "DEEPSPEED" if "use_deepspeed" in given else ""
    file = given.get("config_file")
    if not kind and not isinstance(file, str):
        return None
    found = Found("accelerate", software="", version=known_options("accelerate").version)
    if kind == "FSDP":
        found.software = "fsdp"
        true = {k: str(v).lower() == "true" for k, v in given.items() if v in ("true", "True")}
        _fsdp(given | true, found)
    elif kind:
        _accelerate_deepspeed(given, found)
    found.beside += [file] if isinstance(file, str) else []
    word = str(given.get("mixed_precision", "no"))
    found.precision = word if word in ("bf16", "fp16", "fp8") else None
    return found


def _parallelism(section: Table, found: Found) -> None:
    def size(name: str) -> int:
        return whole(section.get(f"parallelism_config_{name}_size")) or 1

    found.tp = max(found.tp, size("tp"))
    cp, sp = size("cp"), size("sp")
    if cp > 1 and sp > 1:
        found.wrong.append("cp and sp exclude each other")
    found.cp = max(found.cp, cp, sp)
    if found.cp > 1:
        found.cp_kind = "ulysses" if sp > 1 else "ring"
    found.dp_replicate = size("dp_replicate") if section else None
    if section and found.n_gpus:
        product = found.tp * found.cp * size("dp_replicate") * size("dp_shard")
        if product != found.n_gpus:
            found.wrong.append(
                f"the parallel sizes multiply to {product}, num_processes is {found.n_gpus}"
            )


HALVES = ("source_max_len", "target_max_len"), ("max_source_length", "max_target_length")
"""Arguments that together are the length: of the prompt, of the answer."""
TOLD = frozenset(_WORDS["told"])


AXOLOTL = frozenset(_WORDS["axolotl"])
OTHER_TASKS = ("infer_backend", "export_dir", "do_predict", "do_eval")
"""Arguments of LLaMA-Factory and of trainers that say another task than training."""
RECIPE = frozenset(_WORDS["recipe"])
VISION = tuple(_WORDS["vision"])

TWO_STACKS = re.compile(
    r"(?i)(?:^|[/_-])(?:m|by|code|flan-|u)?(?:t5|m?bart|pegasus|whisper)(?:[v_-]|$)"
)
"""Names of models of an encoder and a decoder."""


MODEL_KEYS = ("model_name", "model_path", "config_name", "model_id", "model_id_or_path")


def read_arguments(table: Table, kind: str, software: str, rows: str = "") -> Found:
    """Read trainer arguments as a flat table (`--key value`, LLaMA-Factory or axolotl YAML)."""
    if kind == "llama-factory" and "pipeline_model_parallel_size" in table:  # USE_MCA=1
        rows, software = "llama-factory-mca", "llama-factory-mca"
    found = Found(kind, software=software)
    every, table = table, Heard(table)
    at = Nested(found, table)
    put(dialect(rows or ROWS.get(kind, "transformers")), at)
    _model(table, found)
    for pair in HALVES:
        if all(lengths := [whole(table.get(key)) or 0 for key in pair]):
            found.seq_len = sum(lengths)
            found.places["seq_len"] = " + ".join(pair)
    _method(table, kind, found)
    rl.put_trainer(table, found)
    if isinstance(fsdp := table.get("fsdp"), (list, str)) and fsdp:
        found.zero_stage = 3 if "full_shard" in str(fsdp) else 2
        found.offload_parameters = found.offload_optimizer = "offload" in str(fsdp)
    shards = found.zero_stage is not None or kind == "axolotl"
    if shards and (given := section(table, "fsdp_config")):
        named = {f"fsdp_{k.removeprefix('fsdp_')}": v for k, v in given.items()}
        version = table.get("fsdp_version", named.get("fsdp_version"))
        _fsdp({**named, "fsdp_version": version}, found)
    if (inner := whole(table.get("dp_shard_size"))) and kind == "axolotl":  # with it all are said
        found.n_gpus = inner * (found.dp_replicate or 1) * found.tp * found.cp
    _named_config(table, found)
    put_unheard(found, every, table.asked | at.heard, known_keys(rows or ROWS.get(kind, "")))
    told = {key for key in OTHER_TASKS if str(table.get(key, "False")).lower() != "false"}
    if told and not (_true(table, "do_train") or "learning_rate" in table):
        found.beyond.append(
            f"{min(told)}: an inference, an export or an evaluation, not a training"
        )
    return found


ROWS = {"llama-factory": "llama-factory", "axolotl": "axolotl", "ms-swift": "ms-swift"}
"""Kind -> the framework whose rows say its arguments; others are trainers of Transformers."""


def _model(table: Table, found: Found) -> None:
    """Name the model, and say where it is no decoder-only language model."""
    model = table.get("model_name_or_path") or table.get("base_model") or table.get("model")
    for key in MODEL_KEYS:
        model = model or (table.get(key) if "/" in str(table.get(key)) else None)
    model = model or table.get("config_name")
    name = named_model(str(model)) if model else ""
    found.unread.pop("model", None)
    if UNSET in name:
        found.unread["model"] = name.replace(UNSET, "")
    found.model_name = name if name and UNSET not in name else None
    if found.model_name and TWO_STACKS.search(name):
        found.beyond.append(f"{name}: an encoder and a decoder, not a decoder-only language model")
    if part := next((key for key in VISION if str(table.get(key, "False")) != "False"), ""):
        found.beyond.append(f"{part}: more than a decoder-only language model trains")


def _named_config(table: Table, found: Found) -> None:
    """Take the ZeRO stage that an option says, and the files that say more."""
    for key in ("zero_stage", "deepspeed_stage"):
        if found.zero_stage is None:
            found.zero_stage = whole(table.get(key))
    name = next((str(v) for v in [table.get("deepspeed_config"), table.get("deepspeed")] if v), "")
    if re.search(r"/|\.(json|yaml|conf)", name) or UNSET in name:
        found.software = found.software or "deepspeed-zero3"
        found.beside.append(name)
    config = table.get("config")
    if isinstance(config, str) and config.endswith((".yaml", ".yml")):
        found.beside.append(config)


def _true(table: Table, key: str) -> bool:
    return str(table.get(key, "")).lower() in ("true", "1", "yes", "auto")


def _method(table: Table, kind: str, found: Found) -> None:
    """Full, LoRA, QLoRA or DoRA, by each front end's own words."""
    bits = whole(table.get("quantization_bit")) or whole(table.get("bits"))
    four_bit = any([_true(table, key) for key in _WORDS["four_bit"]]) or bits == 4
    eight_bit = any([_true(table, key) for key in _WORDS["eight_bit"]]) or bits == 8
    named = table.get("adapter") or table.get("finetuning_type") or table.get("train_mode")
    adapter = str(named or "").lower()
    switches = [_true(table, key) for key in SWITCHES if key in table]
    if not adapter and (any(switches) or (found.lora_rank and not switches)):
        adapter = "lora"
    dora = any([_true(table, key) for key in _WORDS["dora"]])
    if adapter in _WORDS["partial"]:
        found.beyond.append(f"{adapter}: a part of the weights trains, which is not predicted")
    if adapter not in ("lora", "qlora"):
        found.method, found.weights = "full", "int8" if eight_bit else None
    elif eight_bit:
        found.method, found.weights = "dora" if dora else "lora", "int8"
    elif adapter == "qlora" or four_bit:
        nested = [str(table.get(key)).lower() for key in _WORDS["nested"]]
        base = "nf4-nodq" if "false" in nested else "nf4"
        found.method = "dora" if dora else "qlora"
        found.weights = base if dora or base != "nf4" else None
    else:
        found.method, found.weights = "dora" if dora else "lora", None
    if found.method != "full" and found.lora_rank is None:
        found.lora_rank = next((n for key, n in _WORDS["ranks"].items() if key in table), None)


SWITCHES: list[str] = _WORDS["adapts"]
"""Arguments that turn adapters on or off."""
LORA = re.compile(r"(?:^|[_-])q?lora(?![a-z])")
ALONE = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Launchers under which a trainer that names no DeepSpeed and no FSDP holds replicas (DDP)."""


def is_command(table: Table) -> bool:
    """Whether a command has the arguments of a trainer of Hugging Face, and not more of its own."""
    named = {"model_name_or_path", "deepspeed"} & set(table)
    own = set(table) - TOLD - set(rl.GRPO_KEYS)
    own -= known_keys("trainer") | known_keys("trl") | known_keys("llama-factory")
    return "per_device_train_batch_size" in table or bool(named and 2 * len(own) <= len(table))


def method_of(name: str) -> Table:
    """Give the method that the name of a program or a recipe says (TRL and its kin)."""
    method = re.search(r"(?:^|_|\.)(dpo|orpo|simpo|grpo|rloo|ppo|rm|reward)(?![a-z])", name)
    return {"rl": method[1].replace("reward", "rm")} if method else {}


def read_command(words: list[str], table: Table) -> Found:
    """Read a command of a program with the arguments of a trainer of Hugging Face."""
    programs = [b for a, b in zip(words, words[1:], strict=False) if a in ("-m", "--module")]
    programs += [w for w in words if w.endswith(".py")]
    last = programs[-1].rsplit("/", 1)[-1] if programs else ""
    torchrun = any(w.rsplit("/", 1)[-1] in ALONE for w in words)
    if torchrun and "-m" in words:  # options before the module are torchrun's own
        table = options_in(words[len(words) - words[::-1].index("-m") :])
    table = method_of(last) | table
    kind = "llama-factory" if "finetuning_type" in table else "trainer"
    ours = any(re.search(r"(^|/)trl[./]", program) for program in programs)
    software = "llama-factory" if kind != "trainer" else ""
    found = read_arguments(table, kind, software, "trl" if ours else "")
    found.rl = {k: v for k, v in found.rl.items() if "method" in found.rl}
    if "config_name" in table and not table.get("model_name_or_path"):
        found.method = "pretrain"  # from random weights (run_clm.py)
    if ours and table.get("dtype") == "float32":
        found.software = "trl"
        if found.method in ("lora", "dora"):
            found.weights = found.weights or "fp32"
    if kind == "trainer":
        found.software = "unsloth" if _true(table, "use_unsloth") else found.software
        found.program, found.options = programs[-1] if programs else "", table
        if found.method == "full" and LORA.search(last) and not set(SWITCHES) & set(table):
            found.beside.append(programs[-1])  # which makes the adapters
        if NO_TRAINING.search(last) and not TRAINS.search(last):
            found.beyond.append(f"{last}: by its name no training")
        if torchrun:
            found.places["launcher"] = "torchrun"
    return found
