"""Python scripts that take a recipe of Megatron-Bridge or NeMo 2 and set some of it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.toml import Table
from gpuscale.launch.found import UNSET, Found
from gpuscale.launch.options import launch_table
from gpuscale.launch.read.keyed import read_bridge
from gpuscale.launch.read.program_text import Program
from gpuscale.launch.read.recipes import of_nemo, of_recipe, settings_of

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
        tuned = {PERFORMANCE[key]: v for key, v in keys.items() if key in PERFORMANCE}
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


_WORDS = launch_table("words")["recipe_scripts"]
PERFORMANCE: dict[str, str] = _WORDS["performance"]


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
