"""torchtitan: the TOML of older releases, and the overrides of a train command."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, dialect, put_shape
from gpuscale.launch.dialects.rows import Heard, put, put_unheard, whole
from gpuscale.launch.found import DATA, UNSET, Found, known_options, launch_table

_WORDS = launch_table("words")["torchtitan"]
ENDS = ("first", "last")
MOVED: dict[str, str] = _WORDS["moved"]
OLD = frozenset(_WORDS["old"])
MODELS: dict[tuple[str, ...], str] = {tuple(k.split()): v for k, v in _WORDS["models"].items()}
SHAPES: dict[tuple[str, ...], Table] = {tuple(k.split()): v for k, v in _WORDS["shapes"].items()}
OTHERS = ("flux", "wan", "vlm")
"""Modules of models that are no decoder-only language models."""

OWN = ("--job.config_file", "--training.seq_len", "--training.max_context_length") + (
    "--training.local_batch_size",
    "--training.batch_size",
    "--training.global_batch_size",
)
"""Options that say so by themselves; other programs have a section `training` too."""
NO_TRAINING = re.compile(r"convert|estimat|seed_checkpoint|generate|infer")


def is_torchtitan(words: list[str]) -> bool:
    """Whether a command is a torchtitan training."""
    if any("torchtitan" in w for w in words) or any(w.startswith("--parallelism.") for w in words):
        return True
    return any(w.partition("=")[0] in OWN for w in words)


def with_variables(words: list[str], variables: Mapping[str, str | list[str]]) -> list[str]:
    """Put what `run_train.sh` takes from its environment on the command that starts it.

    >>> with_variables(["./run_train.sh"], {"CONFIG_FILE": "a.toml", "NGPU": "4"})
    ['torchrun', '--nproc_per_node=4', 'torchtitan', '--job.config_file=a.toml']
    """
    given = {k: v for k, v in variables.items() if isinstance(v, str) and v}
    says = "CONFIG_FILE" in given or {"MODULE", "CONFIG"} <= set(given)
    if not words or words[0].rsplit("/", 1)[-1] != "run_train.sh" or not says:
        return words
    names = {"CONFIG_FILE": "job.config_file", "MODULE": "module", "CONFIG": "config"}
    more = [f"--{option}={given[name]}" for name, option in names.items() if name in given]
    return ["torchrun", f"--nproc_per_node={given.get('NGPU', 8)}", "torchtitan", *more, *words[1:]]


def read_toml(tables: Table) -> Found:
    """Read a TOML of an older release: sections of keys."""
    flat = {
        f"{section}.{key}": value
        for section, keys in tables.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
    }
    found = _read({MOVED.get(key, key): value for key, value in flat.items()})
    written = {MOVED[key]: key for key in flat if key in MOVED}
    for field, said in found.places.items():
        key, _, value = said.partition(": ")
        found.places[field] = f"{written.get(key, key)}: {value}"
    found.version = "torchtitan before 0.3 (TOML)"
    found.not_understood += [f"[{s}]" for s in tables if s not in OLD]
    model = tables.get("model", {})
    if isinstance(model, dict):
        _put_model(found, str(model.get("name", "")), str(model.get("flavor", "")))
    named = tables.get("hf_transformers", {}).get("model") or tables.get("model", {}).get("config")
    if named:  # a module, or a fork (flame), that trains any model of the hub
        found.model, found.model_name = None, str(named)
    return found


def _put_model(found: Found, module: str, flavor: str) -> None:
    """Put the model of a module and flavor on the record."""
    if module in OTHERS:
        found.beyond.append(f"{module}: not the training of a decoder-only language model")
    found.model_name = preset_of(module, flavor)
    if dims := SHAPES.get((module, _plain(flavor))):
        tied = module == "qwen3" and "moe" not in flavor
        put_shape(found, found.model_name or module, dims, gated=True, tied=tied)


def read_command(words: Sequence[str]) -> Found:
    """Read the overrides of a train command of 0.3."""
    flat: Table = {}
    module = config = ""
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word.startswith("activation-checkpoint:"):
            flat["activation_checkpoint.mode"] = word.split(":", 1)[1]
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and i < len(words) and not words[i].startswith(("--", "activation-")):
            value = words[i]
            i += 1
        if name in ("module", "config"):
            module, config = (value, config) if name == "module" else (module, value)
        elif "." in name:
            flat[name.replace("-", "_")] = value
    known = known_options("torchtitan")
    names = (w.rsplit("/", 1)[-1] for w in words if not w.startswith("--job") and "=" not in w)
    program = next((n for n in names if NO_TRAINING.search(n)), "")
    none = [f"{program[:60]}: no training"] if program else []
    if file := flat.pop("job.config_file", ""):
        found = _with_toml(str(file), {MOVED.get(key, key): value for key, value in flat.items()})
        found.beyond += none
        return found
    registered = known_configurations().get(config)
    found = _read((registered or {}) | flat)
    found.version = known.version
    found.beyond += none
    found.not_understood += [
        f"--{key}"
        for key in flat
        if key not in known.arity
        and not key.startswith(("activation_checkpoint", "model_spec", "compile", "comm", "debug"))
        and ".no_" not in key
    ]
    if registered is not None:
        _put_model(found, str(registered["model.name"]), str(registered.get("model.flavor", "")))
    else:
        _leave_unsaid(found, flat)
        found.model_name = preset_of(module, config.removeprefix(module + "_"))
        if config and UNSET not in config:
            found.unread["recipe"] = config
    return found


def _with_toml(file: str, flat: Table) -> Found:
    """Options beside a TOML, which says the rest: what they leave out is left to it."""
    found = _read(flat)
    found.version = "torchtitan before 0.3 (TOML)"
    _leave_unsaid(found, flat)
    stem = re.sub(r"^.*/|\.toml$", "", file)
    if UNSET not in stem:
        module, _, flavor = _plain(stem).rpartition("_")
        found.model_name = MODELS.get((module, flavor))
        found.beside.append(f"{stem}.toml")
    return found


def _leave_unsaid(found: Found, flat: Table) -> None:
    """Leave to the file beside what the options do not say."""
    said = {key.rsplit(".", 1)[-1] for key in flat}
    for field, keys in SAID_BY.items():
        if not said & set(keys):
            setattr(found, field, None)


SAID_BY: dict[str, list[str]] = _WORDS["said_by"]


@lru_cache(maxsize=1)
def known_configurations() -> dict[str, Table]:
    """Give the configurations of torchtitan's own registries (0.3.0), by name."""
    return dict(json.loads((DATA / "torchtitan_configs.json").read_text("utf-8"))["configurations"])


def preset_of(module: str, flavor: str) -> str | None:
    """Model preset of a torchtitan module and flavor.

    >>> preset_of("qwen3", "30B-A3B"), preset_of("llama3", "8b")
    ('qwen3-30b-a3b', 'llama3.1-8b')
    """
    flavor = _plain(flavor)
    if (module, flavor) in MODELS:
        return MODELS[(module, flavor)]
    if not module or not flavor or "/" in module:
        return module if "/" in module else None  # a model of the hub, in forks
    flavor = re.sub(r"^(\d)_(\d+b)", r"\1.\2", flavor).replace("_", "-")
    return f"{module}-{flavor}"


def _plain(flavor: str) -> str:
    """Flavor without what leaves its shape as it is."""
    ways = "first|sft|float8|mxfp8|nvfp4|hybridep|minimal|flex|varlen"
    return re.sub(rf"_({ways})(_.*)?$", "", flavor.lower())


DEGREES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


def _read(given: Table) -> Found:
    found, flat = Found("torchtitan", software="torchtitan"), Heard(given)
    put(dialect("torchtitan"), at := Nested(found, flat))
    for field, word in DEGREES.items():
        if at.text(f"parallelism.{word}_parallel_degree") == "0":
            setattr(found, field, 0)  # which no job has
    _batch(flat, found)
    old = flat.get("parallelism.data_parallel_shard_degree")
    sharded = whole(old) != 1 or found.cp > 1  # parallel_dims.py, `fsdp_enabled`
    reshard = str(flat.get("parallelism.fsdp_reshard_after_forward", "default"))
    found.zero_stage = (2 if reshard == "never" or found.pp > 1 else 3) if sharded else 0
    if reshard == "always" and sharded:
        found.zero_stage = 3
    each = whole(flat.get("parallelism.pipeline_parallel_layers_per_stage"))
    if each and found.pp > 1:
        keys = (f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ENDS)
        less = [1 if (n := whole(flat.get(key))) is None else n for key in keys]
        found.layers_per_chunk = (each, sum(less))
    nth = whole(flat.get("activation_checkpoint.selective_ac_option"))
    if str(flat.get("activation_checkpoint.mode", "selective")) == "selective" and nth:
        found.recompute, found.recompute_every = "full", nth  # of every nth block
    if (shard := whole(old)) and shard > 0:  # every degree has a number: their product
        found.n_gpus = shard * (found.dp_replicate or 1) * found.tp * found.pp * found.cp
    if str(flat.get("training.dtype", "")) == "bfloat16":  # weights, and all that follows them
        found.settings["recipe"] = "bf16-adam"
    found.precision = _precision(flat)
    found.sequence_parallel = str(flat.get("parallelism.enable_sequence_parallel", True)) != "False"
    found.sequence_parallel &= "parallelism.no_enable_sequence_parallel" not in flat
    found.offload_optimizer |= at.get("training.enable_cpu_offload") == ""
    early = str(flat.get("optimizer.early_step_in_backward", False)).lower() in ("true", "")
    if early and found.zero_stage:  # components/optimizer.py: each is applied, and freed
        found.held["gradients"] = 0.0
    found.cp_kind = "ring" if found.cp > 1 else None
    schedule = found.schedule or "1F1B" if found.pp > 1 else "1F1B"  # not used by one stage
    found.schedule = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved"}.get(
        schedule.lower(), schedule
    )
    told = {k: v for k, v in given.items() if k not in flat.asked and "converters" not in k}
    put_unheard(found, told, set(), set())
    return found


def _batch(flat: Table, found: Found) -> None:
    """Under a pipeline the local batch is cut into micro-batches."""
    tokens = whole(flat.get("training.num_tokens_per_microbatch_per_dp_rank"))
    if tokens and found.seq_len:
        found.micro_batch_size = max(1, tokens // found.seq_len)
    local = found.micro_batch_size
    if found.pp > 1 and local:
        size = whole(flat.get("parallelism.pipeline_parallel_microbatch_size")) or 1
        if local % size:
            found.wrong.append(f"local batch {local} is no multiple of the micro-batch {size}")
        found.micro_batch_size, found.accumulation = size, local // size


def _precision(flat: Table) -> str:
    """Name the number format of the converters that a file turns on."""
    said = " ".join(str(v) for k, v in flat.items() if "converters" in k).lower()
    for name, part in (("nvfp4", "nvfp4"), ("mxfp8", "mx"), ("fp8", "float8")):
        if part in said:
            return name
    return "fp8" if str(flat.get("float8.enable_float8_linear", "")).lower() == "true" else "bf16"
