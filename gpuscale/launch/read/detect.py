"""Which kind a launch file is, and the one place that reads any of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpuscale.errors import GpuscaleError, NoLaunch
from gpuscale.io.calibration import merged
from gpuscale.io.text import Table, parse_toml
from gpuscale.launch.dialects.nested import dialect, nest
from gpuscale.launch.found import Found, main_of
from gpuscale.launch.named import gpu_of_file, number_of_file
from gpuscale.launch.read import (
    commands,
    containers,
    keyed,
    maxtext,
    megatron,
    program,
    python,
    rl,
    served_tables,
    serving,
    together,
    torchtitan,
    trainer,
)
from gpuscale.launch.read.bash.launchers import (
    OF_THE_MACHINE,
    outside_variables,
    put_machine,
    read_size,
)
from gpuscale.launch.read.bash.run import read_document, read_script
from gpuscale.launch.read.bash.words import Script, unknown_to_all
from gpuscale.launch.read.commands import command
from gpuscale.launch.read.files import (
    as_script,
    commands_of_page,
    is_notebook,
    is_page,
    is_python,
    read_modelfile,
    read_notebook,
    started_by,
)
from gpuscale.launch.read.kinds import KINDS, neox_keys, of_table
from gpuscale.launch.read.program_text import ANY_YAML
from gpuscale.launch.read.together import as_flags, flat, llama_factory_v1, tables_in, yaml_tables

SUPPORTED = (
    "Megatron scripts, the YAML, TOML or JSON of training frameworks, Python scripts of TRL and "
    "Unsloth, manifests, sbatch and torchrun lines, servers of vLLM, SGLang, TensorRT-LLM, TGI, "
    "LMDeploy, llama.cpp, Ollama, Dynamo and Ray"
)
MOST_SHOWN = 2000
"""Characters of a list that are looked at."""
TEMPLATE = re.compile(r"\{\{-?\s*(\.|\$\w*\.|end\b|if\b|include\b|range\b)")


NONE: Mapping[str, str] = MappingProxyType({})


def read_launch(
    files: dict[str, str], variables: Mapping[str, str] = NONE, look: together.Look = unknown_to_all
) -> Found:
    """Read the files of one launch together.

    `files`: text by file name; a script and the JSON that it names, say. `variables`: variables of
    the scripts that a person gives. `look`: finds the files that these name. Returns: what they say
    together: the training file decides, the others fill in. Raises GpuscaleError if none of them is
    of a known kind, or a JSON, YAML or TOML does not parse.
    """

    def read(name: str, text: str, options: Mapping[str, Any]) -> list[Found]:
        return _read_one(name, text, variables, options, near=near)

    def near(path: str) -> tuple[str, str] | None:
        if path == ANY_YAML:
            given = [one for one in files.items() if one[0].endswith((".yaml", ".yml"))]
            return given[0] if len(given) == 1 else None
        text = scripts.get(together.last_of(path))
        return look(path) if text is None else (path, text)

    found: list[Found] = []
    scripts = {name.rsplit("/", 1)[-1]: text for name, text in files.items()}
    inside = {other for name, text in scripts.items() for other in started_by(text, scripts, name)}
    for name, text in files.items():
        if name.rsplit("/", 1)[-1] not in inside:
            more = _read_one(name, text, variables, near=near)
            for one in more:
                one.gpu = one.gpu or gpu_of_file(name, text)
                one.usual_gpus = one.usual_gpus or number_of_file(name)
            found += more
    found = together.followed(found, list(files), near, read)
    if not found:
        shown = ", ".join(files)
        names = [other for text in files.values() for other in started_by(text)]
        names = [other for other in names if other.rsplit("/", 1)[-1] not in scripts]
        why = f"starts {', '.join(names[:3])}" if names else "not a launch file of a known kind"
        hint = "give that file beside this one" if names else f"`launch-check` reads {SUPPORTED}"
        raise NoLaunch(f"{shown}: {why}", hint)
    main = together.joined(found, {kind: i for i, kind in enumerate(KINDS)})
    if main.method == "serve":
        serving.put_size(main)
    return main


def _read_one(
    name: str,
    text: str,
    variables: Mapping[str, str],
    options: Mapping[str, Any] = NONE,
    *,
    near: together.Look = unknown_to_all,
) -> list[Found]:
    """Read a file; `options`: what a command that starts it puts over its keys."""
    stripped = text.lstrip()
    if is_notebook(name):

        def part(at: str, body: str, told: Mapping[str, Any], look: together.Look) -> list[Found]:
            return _read_one(at, body, variables, told, near=look)

        return read_notebook(name, text, near, part)
    if name.endswith((".yaml", ".yml")):
        return commands.one_device(name, _yaml(name, text, variables, options, near))
    named = name.lower()
    if "modelfile" in named and not is_page(name, ""):
        if (served := read_modelfile(text)) is not None:
            return [served]
    if name.endswith(".json") or (stripped.startswith("{") and '"' in stripped[:200]):
        return [_json(name, text)]
    if is_page(name, text):
        inside = [f for one in commands_of_page(text) for f in _document(*one, variables)]
        if not (inside := serving.server_of([f for f in inside if f.model_name or f.places])):
            raise NoLaunch(
                f"{name}: a page or notes, not a launch file", f"`launch-check` reads {SUPPORTED}"
            )
        return inside
    if name.endswith(".toml") or re.match(r"\[\w+\]\n\w+ = ", stripped):
        return [_toml(name, text)]
    if is_python(name, text):
        if (found := python.read_python(text, {**variables, **options}, near)) is not None:
            return [found]
        raise NoLaunch(
            f"{name}: a Python program that names no model and trainer by constants is not read",
            "give the script or the configuration that starts it",
        )
    return _script(name, as_script(name, text), variables, near)


def _json(name: str, text: str) -> Found:
    try:
        table = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise GpuscaleError(f"{name}: not JSON: {str(error)[:120]}") from None
    if not isinstance(table, dict):
        raise GpuscaleError(f"{name}: a JSON object is expected")
    keys = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"} & set(table)
    if keys or isinstance(table.get("bf16"), dict) or "deepspeed" in name or "ds_" in name:
        return trainer.read_deepspeed(table)
    if {"model_name_or_path", "per_device_train_batch_size"} <= set(table):
        return trainer.read_arguments(table, "trainer", "hf-trainer")
    raise NoLaunch(
        f"{name}: not a DeepSpeed configuration",
        "a model's config.json is the model argument of `plan` and `memory`",
    )


def _toml(name: str, text: str) -> Found:
    tables = parse_toml(text, name)
    if not {"parallelism", "training"} & set(tables) and (found := of_table(tables, "hub")):
        return found
    if not any(isinstance(tables.get(key), dict) for key in ("training", "parallelism", "model")):
        raise NoLaunch(f"{name}: not a torchtitan configuration", "[training] is missing")
    return torchtitan.read_toml(tables)


def _yaml(
    name: str,
    text: str,
    variables: Mapping[str, str],
    options: Mapping[str, Any],
    near: together.Look,
) -> list[Found]:
    if TEMPLATE.search(text):
        raise NoLaunch(
            f"{name}: a Helm template, whose values stand elsewhere",
            "give what `helm template` makes of it",
        )
    found: list[Found] = []
    for table in served_tables.with_models(yaml_tables(name, text)):
        if "litellm_params" in str(table.get("model_list"))[:MOST_SHOWN]:
            raise GpuscaleError(
                f"{name}: LiteLLM's routes, whose servers are started elsewhere",
                "give the file that starts one of them",
            )
        one = _table(merged(together.composed(table, near), nest(options)))
        found += [one] if one else _embedded(name, table, variables)
        if one and one.kind == "trainer" and not one.rl:
            rl.put_trainer(trainer.method_of(name.rsplit("/", 1)[-1]), one)
    return serving.server_of(found)


def _table(table: Table) -> Found | None:
    """Build the record of a YAML by the keys that only one kind has."""
    if isinstance(run := table.get("parameters"), dict) and "train_loader" in run:
        table = {**table, **run}  # a run of MosaicML's cloud
    keys = set(table)
    if keys & {"compute_environment", "distributed_type", "fsdp_config"} and (
        "num_processes" in keys or "distributed_type" in keys
    ):
        return trainer.read_accelerate(table)
    if "finetuning_type" in keys and {"task", "n_shot"} & keys and "stage" not in keys:
        asked = trainer.read_arguments(table, "llama-factory", "llama-factory")
        asked.beyond.append("task: an evaluation, not a training")
        return asked
    if "finetuning_type" in keys or ("stage" in keys and "model_name_or_path" in keys):
        return trainer.read_arguments(table, "llama-factory", "llama-factory")
    if "actor_rollout_ref" in keys or {"partial_pretrain"} & set(trainer.section(table, "model")):
        return keyed.read_verl_file(table)
    if "peft_config" in keys or ("model" in keys and "train_dataset" in keys):
        return trainer.read_arguments(llama_factory_v1(table), "llama-factory", "llama-factory")
    if {"tuner_type", "train_type", "rlhf_type", "sft_type"} & keys:
        return commands.read_yaml(table)
    if "modules" in keys and (primus := read_primus(table)):
        return primus
    if (served := served_tables.read_served(table)) is not None:
        return served
    if "base_model" in keys and keys & trainer.AXOLOTL:
        return trainer.read_arguments(table, "axolotl", "axolotl")
    if any(str(k).startswith(("ici_", "dcn_")) for k in keys) or (
        "per_device_batch_size" in keys or "base_config" in keys
    ):
        return maxtext.read(table, str(table.get("base_config", "base.yml")))
    if isinstance(arguments := table.get("MODEL_ARGS"), dict) and (
        "--num-layers" in arguments or "--tensor-model-parallel-size" in arguments
    ):
        return megatron.read(["pretrain_gpt.py", *" ".join(as_flags(arguments)).split()], "model")
    if found := of_table(table, "rl") or of_table(neox_keys(table), "shape", "hub"):
        return found
    if {"zero_optimization", "train_micro_batch_size_per_gpu"} & keys:
        return trainer.read_deepspeed(table)
    if isinstance(search := table.get("train_settings"), dict) and "model_size_in_b" in search:
        raise GpuscaleError(
            "a search of NeMo's auto-configurator, which has no layout yet",
            "`plan MODEL --gpus N` is such a search",
        )
    if keyed.is_bridge(table):
        hands_on = {"system", "model", "data"} <= keys
        return keyed.read_flagscale(table) if hands_on else keyed.read_bridge(table)
    recipe = "model_name_or_path" in keys and keys & trainer.RECIPE
    if recipe or "per_device_train_batch_size" in keys:
        return trainer.read_arguments(table, "trainer", "hf-trainer")
    arguments = dict(flat(table))
    if "per_device_train_batch_size" in arguments:  # sections of a program of one's own
        return trainer.read_arguments(arguments, "trainer", "hf-trainer")
    return None


def _embedded(name: str, table: Table, variables: Mapping[str, str]) -> list[Found]:
    """Commands inside a SkyPilot, dstack or Kubernetes file."""
    composed = isinstance(table.get("services"), dict) and "kind" not in table
    known = ({} if composed else containers.variables_of(table)) | dict(variables)
    found: list[Found] = []
    services = table["services"] if composed else {}
    usual = {k: v for k, v in services.items() if not (isinstance(v, dict) and v.get("profiles"))}
    if usual != services:  # those that no profile holds back
        found = _embedded(name, {**table, "services": usual}, variables)
    for held in () if found else containers.held_in(table):
        for one in _script(name, held.text, known):
            containers.put_machines(table, held, one)
            found.append(one)
    return found


def _script(
    name: str, text: str, variables: Mapping[str, str], near: together.Look = unknown_to_all
) -> list[Found]:
    script = read_script(text, outside_variables(text) | dict(variables), near)
    stem = re.sub(r"[^\w.-]", "-", name.rsplit("/", 1)[-1].rsplit(".", 1)[0])[:60] or "model"
    told = ((commands.handed_over(w), script.own.get(tuple(w), {})) for w in script.commands)
    read = [(torchtitan.with_variables(w, script.variables | own), own) for w, own in told]
    script.commands = [words for words, _ in read]
    alone = {tuple(words): own for words, own in reversed(read)}  # of equals the first is read
    started = [(f, words) for words in script.commands if (f := command(words, stem)) is not None]
    found = main_of(serving.pooled([f for f, _ in started]))
    if not found and (own := program.of_script(script)) is not None:
        started, found = [own], [own[0]]
    kept = [words for f, words in started if any(f is other for other in found)]
    found += [f for words in kept or script.commands if (f := trainer.read_launcher(words))]
    found += _written(script, found, variables)
    if not found and (options := program.options_of(script)):
        found = [megatron.read(["pretrain_gpt.py", *options], stem)]
        found[0].unresolved.append("no command: the options that its variables hold are read")
        found[0].precision = None if found[0].precision == "fp32" else found[0].precision
    for one in found:
        words = next((words for f, words in started if f is one), [])
        script.variables |= alone.get(tuple(words), {})
        served = one.method == "serve"
        put_machine(script.headers, one) if served else read_size(script.headers, script, one)
        if one.kind in ("maxtext", "levanter"):
            for words in script.commands:
                maxtext.put_slices(words, one)
        _unresolved(one, script)
    return found


def _written(script: Script, found: list[Found], variables: Mapping[str, str]) -> list[Found]:
    """Read the files that a script writes, and those that these name."""
    made: list[Found] = []
    read: list[str] = []
    while more := [
        n for n in together.named_among(script.documents, found + made) if n not in read
    ]:
        name = more[0]
        read.append(name)
        body = read_document(name, script)
        job = not found and not made or ("#SBATCH" in body and not name.endswith(".sh"))
        ran = any(together.last_of(f.program) == name for f in found if f.program)
        if ran or name.endswith((".json", ".yaml", ".yml")) or (job and body.startswith("#!")):
            made += _document(name, body, variables)
    return made


def _document(name: str, text: str, variables: Mapping[str, str]) -> list[Found]:
    """Read a file that a script writes; one of no known kind says nothing."""
    try:
        found = _read_one(name, text, variables)
    except GpuscaleError:
        return []
    for one in found:
        one.source = name
    return found


def _unresolved(found: Found, script: Script) -> None:
    """Variables that stand in the training command itself; of a server, what may choose it."""
    if found.method != "serve":
        found.unread |= {f"argument {number}": test for number, test in script.chosen.items()}
    for text in script.unresolved:
        if found.method == "serve" and not text.startswith(("for ", "case ")):
            continue
        name = text.strip("${}")
        idle = text.startswith(("$(", "`")) or name in OF_THE_MACHINE or not re.search(r"\w", name)
        if text not in found.unresolved and not idle:
            found.unresolved.append(text)


PRIMUS: dict[str, Callable[[Table], Found]] = {
    "megatron": keyed.read_bridge,
    "torchtitan": torchtitan.read_toml,
    "maxtext": maxtext.read,
}
"""Framework -> what reads the keys that override its own."""
PRIMUS_NAMES = {file: model for model, file in dialect("primus").names.items()}


def read_primus(table: Table) -> Found | None:
    """Read a YAML of Primus: a framework's options as overrides of a model's own file."""
    for section in tables_in(table.get("modules")):
        overrides, reader = section.get("overrides"), PRIMUS.get(str(section.get("framework")))
        if reader and isinstance(overrides, dict):
            found = reader(overrides)
            if section["framework"] == "megatron":
                found.kind, found.software = "megatron", "megatron-core"
            found.version, found.not_understood, found.model = "Primus", [], None
            stem = re.sub(r"\.ya?ml$", "", str(section.get("model", "")))
            name = stem.lower().removesuffix("-fp8")
            if name != stem.lower():
                found.precision = "fp8"
            module, _, flavor = name.rpartition("_")
            named = torchtitan.MODELS.get((module, flavor)) or name.replace("_", "-")
            own = PRIMUS_NAMES.get(f"{stem}.yaml") if section["framework"] == "megatron" else None
            found.model_name = own or maxtext.MODELS.get(named, named) or None
            return found
    return None
