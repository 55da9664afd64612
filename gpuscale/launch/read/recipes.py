"""What the recipes of Megatron-Bridge and NeMo 2 set, and the scripts that take them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, dialect
from gpuscale.launch.dialects.rows import put
from gpuscale.launch.found import DATA, MEGATRON_KEYS, UNSET, Found, launch_table
from gpuscale.launch.named import gpu_named
from gpuscale.launch.read.keyed import read_bridge, value_of
from gpuscale.launch.read.program_text import Program
from gpuscale.launch.read.together import key_values

RECIPE_MODELS = {stem: model for model, stem in dialect("megatron-bridge").names.items()}
"""Stem of a recipe -> model preset."""

_WORDS = launch_table("words")["recipes"]
PERFORMANCE, FORMATS, MODES, PRECISIONS = (
    _WORDS[name] for name in ("performance", "formats", "modes", "precisions")
)

KEYS = {
    **{name.replace("vpp", "vp"): key for name, key in MEGATRON_KEYS.items()},
    "mb": "micro_batch_size",
    "gb": "global_batch_size",
    "sl": "seq_length",
    "nn": "num_nodes",
    "gn": "devices",
}
"""Short word of the data -> key that the recipe sets; a degree that is not there is 1."""
SHORT = {
    **{f"-{word}": KEYS[word] for word in "tp pp vp cp ep etp gb mb sl".split()},
    "-ng": "num_gpus",
}
"""Short options of Megatron-Bridge's `run_recipe.py`."""
MULTIMODAL = r"_vl_|_omni_|audio|^flux|^wan|_vl$"


@lru_cache(maxsize=1)
def _data() -> Table:
    data: Table = json.loads((DATA / "recipes.json").read_text("utf-8"))
    return data


def settings_of(name: str) -> Table | None:
    """Keys that a recipe sets, `model` and `num_gpus` among them; None for one that is not known.

    `name`: as exported, with or without `_config`; an old name is that of today's recipe.

    >>> found = settings_of("llama3_70b_pretrain_config")
    >>> found["model"], found["num_gpus"], found["tensor_model_parallel_size"]
    ('meta-llama/Meta-Llama-3-70B', 32, 4)
    """
    data, stem = _data(), name.removesuffix("_config")
    old = data["aliases"].get(stem)
    row = data["library"].get(old) if old else data["benchmark"].get(stem)
    row = row or data["library"].get(stem)
    if row is None:
        return None
    table = _table_of(row)
    if gpus := re.search(r"_(\d+)gpu_([a-z0-9]+)_", old or stem):
        table |= {"num_gpus": int(gpus[1]), "gpu": gpus[2]}
    return table


def _table_of(row: str) -> Table:
    """Keys of a row of the data."""
    model, *words = row.split()
    table: Table = dict.fromkeys(list(KEYS.values())[:2], 1)
    table |= {"micro_batch_size": 1, "expert_tensor_parallel_size": 1, "model": model}
    for word in words:
        if match := re.fullmatch(r"([a-z]+)(\d+)", word):
            table[KEYS[match[1]]] = int(match[2])
        elif word.startswith("mp="):
            table["mixed_precision"] = FORMATS[word[3:]]
        elif word.startswith("pl="):
            table["pipeline_model_parallel_layout"] = word[3:]
        elif word.startswith("rc="):
            table |= _recompute(word[3:])
    table["sequence_parallel"] = "sp" in words
    table |= {"use_megatron_fsdp": True} if "fsdp" in words else {}
    table |= {"peft": "lora"} if "lora" in words else {}
    return table


def _recompute(word: str) -> Table:
    kind, _, rest = word.partition(":")
    if kind == "selective":
        return {"recompute_granularity": kind} | (
            {"recompute_modules": rest.split(",")} if rest else {}
        )
    block = {"recompute_method": "block", "recompute_num_layers": rest} if rest else {}
    return {"recompute_granularity": kind} | block


def named_by(table: Table) -> str:
    """Name of the recipe that the options of a command choose; empty where they name none."""
    if recipe := table.get("recipe"):
        return str(recipe)
    parts = [str(table[key]) for key in ("model_name", "model_size") if table.get(key)]
    named = "_".join(parts) if table.get("model_name") else ""
    if len(parts) == 2 or not re.search(f"[/{UNSET}]", named):  # one names the model itself
        named = named if UNSET in named else re.sub(r"[-.]", "_", named).lower()
        table = {"model_recipe_name": named, **table}
    if stem := table.get("model_recipe_name"):  # of the performance scripts
        words = (
            stem,
            MODES.get(task := str(table.get("task") or "pretrain"), task),
            f"{table.get('num_gpus')}gpu",
            str(table.get("gpu") or "h100").lower(),
            PRECISIONS.get(str(table.get("compute_dtype")), table.get("compute_dtype") or "bf16"),
        )
        return "_".join(map(str, words))
    stem, mode = str(table.get("model") or ""), str(table.get("mode") or "pretrain")
    return f"{stem}_{MODES.get(mode, mode)}" if stem else ""


def of_nemo(stem: str, task: str, overrides: Table) -> Found:
    """Build the record of a NeMo 2 recipe with what a command or a script sets otherwise.

    `stem`: of the model, as `llama3_8b`. `task`: `pretrain_recipe` or `finetune_recipe`.
    """
    asked = overrides.get("peft_scheme", "lora") in ("lora", "dora")
    full = ".full" if task == "finetune_recipe" and not asked else ""
    row = _data()["nemo"].get(f"{stem}.{task}{full}")
    base = _table_of(row) if row else {}
    base.pop("model", None)
    base.setdefault("devices", 8)  # of every recipe
    if isinstance(plugins := overrides.get("trainer.plugins"), str):  # bf16_with_fp8_mixed()
        overrides = {**overrides, "mixed_precision": plugins}
    found = read_bridge(base | overrides)
    if found.method == "pretrain" and task == "finetune_recipe":
        found.method = "full"
    short = re.sub(r"_(16k|64k|128k|nvidia)$", "", stem)
    found.model_name = preset_of(short) or None
    if re.search(r"^(bert|t5|hyena|e5|clip|flux)|_vl|llava", stem):
        found.beyond.append(f"{stem}: not the training of a decoder-only language model")
    if row is None:
        found.unresolved.append(f"what the recipe {stem} sets itself")
        found.unread["recipe"] = stem
    return found


def is_nemo(words: list[str]) -> bool:
    """Whether a command is NeMo 2's: `nemo llm pretrain --factory llama3_8b`."""
    at = next((i for i, w in enumerate(words) if w.rsplit("/", 1)[-1] == "nemo"), None)
    return at is not None and words[at + 1 : at + 2] == ["llm"]


def read_nemo(words: list[str]) -> Found:
    """Read a command of NeMo 2's own program."""
    given = words[words.index("llm") + 1 :]
    task = "finetune_recipe" if given[:1] == ["finetune"] else "pretrain_recipe"
    after = [b for a, b in zip(given, given[1:], strict=False) if a == "--factory"]
    factory = (after or [""])[0] or next(
        (w.partition("=")[2] for w in given if w.startswith("--factory=")), ""
    )
    made_with = [w.strip() for w in factory.partition("(")[2].rstrip(")").split(",")]
    pairs = key_values([*given, *made_with]).items()
    table = {k.replace("num_gpus_per_node", "devices"): value_of(value) for k, value in pairs}
    return of_nemo(factory.partition("(")[0].strip("'\""), task, table)


def preset_of(stem: str) -> str:
    """Model preset of a recipe's stem, or the name that its model has by it.

    >>> preset_of("llama31_8b"), preset_of("llama3_2_1b"), preset_of("qwen25_1p5b")
    ('llama3.1-8b', 'llama3.2-1b', 'qwen2.5-1.5b')
    """
    dotted = re.sub(r"^(llama|qwen)(\d)_?(\d)_", r"\1\2.\3-", stem)
    dotted = re.sub(r"(\d)p(\d)", r"\1.\2", re.sub(r"(?<=[-_])(\d)00m$", r"0.\1b", dotted))
    dotted = re.sub(r"^nemotron(\d)_(?=nano|super|ultra)", r"nemotron-\1-", dotted)
    return RECIPE_MODELS.get(stem, dotted.replace("_", "-"))


def read_recipe(words: list[str]) -> Found:
    """Read a command of `run_recipe.py`: options and `KEY=VALUE` overrides of a recipe."""
    table: Table = {}
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            key = SHORT.get(name, name.lstrip("-").replace("-", "_"))
            table[PERFORMANCE.get(key, key)] = value_of(value if equals else after)
        elif re.match(r"\+{0,2}[a-z_]+(\.\w+)*=", word):
            key, _, value = word.lstrip("+").partition("=")
            table[key] = value_of(value)
    if modules := table.get("recompute_modules"):
        table["recompute_modules"] = modules if isinstance(modules, list) else modules.split(",")
        table.setdefault("recompute_granularity", "selective")
    return of_recipe(named_by(table), table)


def of_recipe(name: str, overrides: Table) -> Found:
    """Build the record of a recipe with what a command or a script sets otherwise.

    `name`: of the recipe; a degree of one that is not known, and that is not said, is its own.
    `overrides`: by key, with its path or without.
    """
    said = settings_of(name) or {}
    hub = str(said.get("model", "-"))
    base = {k: v for k, v in said.items() if k not in ("model", "num_gpus", "gpu")}
    table = base | overrides
    leaves = {key.rsplit(".", 1)[-1]: value for key, value in overrides.items()}
    if str(leaves.get("pipeline_model_parallel_size")) == "1":  # nor the chunks of its stages
        split = ("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout")
        table = {k: v for k, v in table.items() if k in overrides or k not in split}
    precision = str(overrides.get("mixed_precision") or overrides.get("compute_dtype") or "")
    if not precision:  # a recipe of the library says its format in its name
        named = re.search(r"mxfp8|nvfp4|fp8mx|fp8", name)
        words = f"bf16_with_{named[0].replace('fp8mx', 'mxfp8')}" if named else ""
        precision = str(base.get("mixed_precision") or words)
    table["mixed_precision"] = precision or "bf16"
    found = read_bridge(table)
    put(dialect("megatron-bridge"), Nested(found, overrides), whole=False)
    if found.zero_stage == 1 and table.get("ddp.use_distributed_optimizer") is False:
        found.zero_stage = 0
    if "nvfp4" in precision:
        found.precision = "nvfp4"
    tuned = re.search(r"_(sft|finetune|peft)(_|$)", name)
    if found.method == "pretrain" and tuned:
        found.method = "lora" if tuned[1] == "peft" else "full"
    found.method = "dora" if overrides.get("mode") == "dora" else found.method
    stem = re.split(r"_(?:\d+k_)?(?:pretrain|sft|peft|finetune|low_precision)", name)[0]
    named_so = preset_of(stem) if stem else found.model_name
    named_so = None if UNSET in (named_so or "") else named_so
    found.model_name = hub if hub != "-" and stem not in RECIPE_MODELS else named_so
    found.gpu = gpu_named(str(overrides.get("gpu") or re.sub(r"^.*gpu_", "", name)))
    if re.search(MULTIMODAL, stem):
        found.beyond.append(f"{name}: more than a decoder-only language model trains")
    if UNSET in str(overrides.get("num_gpus", "")):
        found.unread["n_gpus"] = str(overrides["num_gpus"]).replace(UNSET, "")
    elif str(overrides.get("num_gpus", "")).isdigit():
        found.n_gpus = int(str(overrides["num_gpus"]))
    found.usual_gpus = said.get("num_gpus")
    if not said and name:
        found.unresolved.append(f"what the recipe {name[:60].replace(UNSET, '')} sets itself")
        if "tensor_model_parallel_size" not in {key.rsplit(".", 1)[-1] for key in overrides}:
            found.unread["recipe"] = name.replace(UNSET, "")
    return found


NEMO = ("pretrain_recipe", "finetune_recipe")
NEMO_MODULE = r"nemo\.collections\.llm\.recipes\.(\w+)"
SHARED = 8
"""Recipes of one file that are named when none of them is chosen."""


def read_recipe_script(tree: ast.Module) -> Found | None:
    """Read a script; None where it takes no recipe.

    Raises GpuscaleError if it defines several and runs none.
    """
    module = Program(tree)
    found: dict[str, Found] = {}
    imported = [a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    known = {alias.asname: alias.name for alias in imported if alias.asname}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for scope in (*functions, None):
        name = scope.name if scope else ""
        program = module if scope is None else Program(scope, module.names)
        program.made |= {
            root: (known[call], keys)
            for root, (call, keys) in program.made.items()
            if call in known
        }
        one = _of_scope(name, program, module.imports)
        if one is not None:
            found[name] = one
    if len(found) > 1 and "" in found:
        del found[""]  # the module repeats what its only function does
    if len(found) > 1:
        names = ", ".join(list(found)[:SHARED]) + (", ..." if len(found) > SHARED else "")
        raise GpuscaleError(
            f"{len(found)} recipes in one file ({names})",
            "give the command that runs one: `run_recipe.py --recipe NAME`, `nemo llm pretrain`",
        )
    return next(iter(found.values()), None)


def _of_scope(name: str, program: Program, imports: set[str]) -> Found | None:
    """Job of one function, or of the module where `name` is empty."""
    tuned: Table = {}
    for _, _, keys in (c for c in program.calls if c[0].endswith("set_primary_perf_configs")):
        tuned = {SCRIPTED[key]: v for key, v in keys.items() if key in SCRIPTED}
        if UNSET in str(tuned) or "micro_batch_size" not in tuned:
            raise GpuscaleError(
                "a performance script of NeMo: its options and a table beside it say the layout",
                "give it as `nemo llm pretrain --factory NAME trainer.strategy.KEY=VALUE ...`",
            )
        tuned["mixed_precision"] = f"bf16_with_{tuned['mixed_precision']}"
    if settings_of(name) is not None:
        return of_recipe(name, program.attributes.get("cfg", {}))
    stem = program.names.get("NAME")
    if name in NEMO and isinstance(stem, str):
        return of_nemo(stem, name, {})
    makers = {call for call, _ in program.made.values()}
    for root, (call, keys) in program.made.items():
        overrides = program.attributes.get(root, {})
        if root in makers:
            continue
        if call in program.made:  # what `partial` made
            call, before = program.made[call]
            keys = before | keys
        last = call.rsplit(".", 1)[-1]
        if last in NEMO:
            stem = call.split(".")[-2] if "." in call else _imported(imports)
            return of_nemo(stem, last, _settings(keys) | overrides | tuned)
        overrides = {k: v for k, v in keys.items() if v is not None} | overrides
        if not last.endswith("_config") or not (settings_of(last) or _sets_a_job(overrides)):
            continue
        return of_recipe(name if name.endswith("_config") else last, overrides)
    return _written_out(program)


def _written_out(program: Program) -> Found | None:
    """Job that a script builds of the classes of NeMo 2 or Megatron-Bridge, without a recipe."""
    names = [(call, [str(w) for w in words]) for call, words, _ in program.calls]
    made = {word.rsplit(".", 1)[-1] for call, words in names for word in (call, *words[:1])}
    if not made & BUILT:
        return None
    table: Table = {}
    for call, words, keys in program.calls:
        table |= {k: v for k, v in keys.items() if isinstance(v, (int, str, bool))}
        if call.endswith("from_hf_pretrained") and words:
            table["model_name"] = words[0]
        if call.endswith("LoRA"):
            table |= {"peft": "lora", "adapter_dim": keys.get("dim", 32)}
    for said in program.attributes.values():
        table |= {key: value for key, value in said.items() if value is not None}
    sized = (m for one in made if (m := re.fullmatch(r"([A-Z]\w*?)Config(\d+\w*)", one)))
    if (model := next(sized, None)) is not None:  # Llama31Config8B
        family = re.sub(r"(\d)(\d)$", r"\1.\2", model[1].lower())
        table["model_name"] = f"{family}-{model[2].lower()}"
    if "Trainer" in made:
        table.setdefault("num_nodes", 1)
    named = str(table.get("model_name", ""))
    if UNSET in named:
        del table["model_name"]
    found = read_bridge(table)
    if UNSET in named:
        found.unread["model"] = named.replace(UNSET, "")
    return found if found.places else None


BUILT = {"ConfigContainer", "MegatronStrategy"}
"""Classes that hold a job: of Megatron-Bridge, and of NeMo 2."""


SCRIPTED: dict[str, str] = launch_table("words")["recipe_scripts"]["performance"]
"""Argument of the performance scripts' functions -> key."""


def _imported(imports: set[str]) -> str:
    named = [match[1] for one in imports if (match := re.fullmatch(NEMO_MODULE, one))]
    return named[0] if len(named) == 1 else ""


def _sets_a_job(overrides: Mapping[str, Any]) -> bool:
    """Whether a configuration gets degrees or a batch: more than a helper does."""
    parts = ("parallel_size", "batch_size")
    return sum(key.endswith(parts) for key in overrides) > 1


def _settings(keys: Mapping[str, Any]) -> Table:
    """Arguments of a NeMo recipe under the names of what they set."""
    return {
        re.sub(r"^(\w+)_parallelism$", r"\1_model_parallel_size", key)
        .replace("context_model_", "context_")
        .replace("num_gpus_per_node", "devices"): value
        for key, value in keys.items()
        if value is not None
    }
