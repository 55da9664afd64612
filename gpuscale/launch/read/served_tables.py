"""Serving engines in tables and in programs: operators, engines' YAML, Ray Serve, constructors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuscale.io.calibration import merged
from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested
from gpuscale.launch.found import UNSET, Found, known_options, launch_table, main_of
from gpuscale.launch.named import ENGINES, gpu_named
from gpuscale.launch.read import serving
from gpuscale.launch.read.program_text import Program
from gpuscale.launch.read.serving import read
from gpuscale.launch.read.together import as_flags, yaml_tables

_SERVER_WORDS = launch_table("words")["python_servers"]
CONSTRUCTORS: dict[str, list[str]] = _SERVER_WORDS["constructors"]
COMMANDS: dict[str, list[str]] = _SERVER_WORDS["commands"]


def read_servers(program: Program) -> Found | None:
    """Read the server that a program starts; None where it starts none."""
    found = main_of([*_constructed(program), *_commanded(program)])
    if not found:
        return None
    best = max(found, key=lambda f: len(f.places))
    for _, _, keys in program.calls:  # Modal's functions say their GPUs
        if isinstance(named := keys.get("gpu"), str) and UNSET not in named:
            best.gpu = best.gpu or gpu_named(named.partition(":")[0])
    return best


def _constructed(program: Program) -> Iterator[Found]:
    """Engines that a call makes."""
    roots = {module.split(".")[0] for module in program.imports}
    for name, words, keys in program.calls:
        last = name.rsplit(".", 1)[-1]
        if last == "LLMConfig" and (found := read_served(keys)) is not None:
            yield found
        package = next((p for p, calls in CONSTRUCTORS.items() if p in roots and last in calls), "")
        if not package:
            continue
        said = {key: value for key, value in keys.items() if key != "**"}
        if words and "model" not in said:
            said["model"] = words[0]
        line = [*COMMANDS[package], *as_flags(said)]
        found = serving.read(line, "trtllm" if package == "tensorrt_llm" else package)
        if "**" in keys:
            found.unread.setdefault("tp", str(keys["**"]).replace(UNSET, ""))
        found.not_understood = []
        if found.model_name or found.unread:
            yield found


def _commanded(program: Program) -> Iterator[Found]:
    """Commands that a program holds as a list of words."""
    lists = [value for value in program.names.values() if isinstance(value, list)]
    lists += [w for _, words, _ in program.calls for w in words if isinstance(w, list)]
    for one in lists:
        if len(one) < 3 or any(isinstance(word, (list, dict)) for word in one):
            continue
        words = [f"{UNSET}?" if word is None else str(word) for word in one]
        if engine := serving.engine_of(words):
            yield serving.read(words, engine)


def read_served(table: Table) -> Found | None:
    """Read a table that says how a model is served; None where it is of no such kind."""
    for reader in (_config, _stack, _resource, _ray, _trtllm_options):
        if (found := reader(table)) is not None:
            return found
    return None


def _line(engine: str, model: str, options: Mapping[str, Any], more: Any = ()) -> Found:
    """Read a table of options as the command that says the same."""
    words = [engine, "serve"] if engine in ("vllm", "sglang") else ["trtllm-serve"]
    words += [model] if model else []
    return read([*words, *as_flags(options), *(str(w) for w in more or ())], engine)


# --- engines' own YAML -------------------------------------------------------------------------

_WORDS = launch_table("words")["served_tables"]
CONFIGS: dict[str, str] = _WORDS["configs"]


def _config(table: Table) -> Found | None:
    """Read a YAML for `vllm serve --config` or SGLang's: the options as keys."""
    engine, options = str(table.get("engine")), table.get("engine_args")
    if engine in CONFIGS and isinstance(options, dict):  # an entry of FlagScale's
        return _line(engine, str(options.get("model") or ""), {**options, "model": None})
    names = {str(key).replace("_", "-") for key in table}
    if any(isinstance(value, dict) for key, value in table.items() if "config" not in str(key)):
        return None
    counts = {engine: len(names & set(known.split())) for engine, known in CONFIGS.items()}
    engine = max(counts, key=lambda name: counts[name])
    called = str(table.get("served_model_name") or table.get("served-model-name"))
    model = table.get("model") or table.get("model_tag") or (called if "/" in called else "")
    own = {"--host", "--port", *known_options("vllm").arity}
    alone = engine == "vllm" and all(f"--{name.removeprefix('no-')}" in own for name in names)
    if counts[engine] < 2 - alone or not isinstance(model, str):
        return None
    kept = {k: v for k, v in table.items() if k not in ("model", "model_tag")}
    found = _line(engine, "", {"--model": model or None, **kept})
    found.unread.pop("tp", None)
    return found


TRTLLM_OPTIONS: dict[str, str] = _WORDS["trtllm_options"]
TRTLLM_KEYS = frozenset(_WORDS["trtllm_keys"])


def _trtllm_options(table: Table) -> Found | None:
    """Read a YAML of options of TensorRT-LLM's LLM API."""
    inner = table.get("llm_api_args")
    merged = table | (inner if isinstance(inner, dict) else {})
    if not TRTLLM_KEYS & set(merged) or any(k in merged for k in ("kind", "services", "trainer")):
        return None
    at = Nested(Found(""), merged)
    said = {option: at.text(*paths.split()) or None for option, paths in TRTLLM_OPTIONS.items()}
    found = _line("trtllm", "", {"--model": at.text("model", "model_path") or None, **said})
    if at.true("enable_attention_dp"):
        found.serves["attention"] = True
    if at.get("speculative_config") is not None:
        found.notes.append(
            "how many drafts are kept is not said: speculation is left out of the speed"
        )
    return found


# --- operators of Kubernetes -------------------------------------------------------------------

STACK: dict[str, str] = _WORDS["stack"]


def _stack(table: Table) -> Found | None:
    """Read the values of vLLM's production stack: the first of its models."""
    engine = table.get("servingEngineSpec")
    models = engine.get("modelSpec") if isinstance(engine, dict) else None
    models = [m for m in models if isinstance(m, dict)] if isinstance(models, list) else []
    if not models or not models[0].get("modelURL"):
        return None
    config = models[0].get("vllmConfig")
    config = config if isinstance(config, dict) else {}
    said = {option: config.get(key) for key, option in STACK.items()}
    more = config.get("extraArgs")
    found = _line("vllm", str(models[0]["modelURL"]), said, more if isinstance(more, list) else ())
    if len(models) > 1:
        found.notes.append(f"one of {len(models)} models: others are not read")
    replicas = models[0].get("replicaCount")
    if isinstance(replicas, int) and replicas > 1:
        found.notes.append(f"{replicas} replicas: one is answered")
    return found


def _resource(table: Table) -> Found | None:
    """Read a resource that an operator serves a model by: KServe's, KubeAI's, Kaito's."""
    at = Nested(Found(""), table)
    kind = at.text("kind")
    row = RESOURCES.get(kind, {})
    engine = (at.text(row["engine"]) or "vllm").lower() if row else ""
    if row and (uri := at.text(*row["model"].split())) and engine in ENGINES:
        found = _line(engine, _hub(uri), {}, at.get(row["words"]))
        machine, _, number = at.text(row["machine"]).partition(":")
        name, gpus = SIZES.get(machine, [machine, number or "1"])
        found.gpu = gpu_named(name)
        found.other_machine = "a CPU" if machine == "cpu" else None
        found.tp = max(found.tp, int(gpus)) if machine in SIZES else found.tp  # on all of a node
        return found
    if kind == "LLMInferenceService" and (uri := at.text("spec.model.uri")):
        said = {option: at.number(f"spec.parallelism.{key}") for key, option in DEGREES.items()}
        return _line("vllm", _hub(uri), said, _more_words(at.get("spec.template.containers")))
    model = at.get("spec.predictor.model")
    if kind != "InferenceService" or not isinstance(model, dict):
        return None
    if at.text("spec.predictor.model.modelFormat.name") not in ("huggingface", "vllm", "vLLM"):
        return None
    words = [str(w).replace("--model_id", "--model") for w in model.get("args") or ()]
    return _line("vllm", _hub(at.text("spec.predictor.model.storageUri")), {}, words)


def with_models(tables: list[Table]) -> list[Table]:
    """Put the models of llmaz, resources of their own, into those that serve them."""
    named = ((Nested(Found(""), t).text("metadata.name"), t) for t in tables)
    models = {name: table for name, table in named if table.get("kind") == "OpenModel"}
    return [_claimed(one, models) if one.get("kind") == "Playground" else one for one in tables]


def _claimed(served: Table, models: Mapping[str, Table]) -> Table:
    model = models.get(Nested(Found(""), served).text("spec.modelClaim.modelName"), {})
    flavors = Nested(Found(""), model).get("spec.inferenceConfig.flavors")
    flavor = flavors[0] if isinstance(flavors, list) and flavors else {}
    return merged(merged(model, served), {"spec": {"flavor": flavor}})


DEGREES: dict[str, str] = _WORDS["degrees"]
RESOURCES: dict[str, dict[str, str]] = _WORDS["resources"]
SIZES: dict[str, list[str]] = _WORDS["sizes"]


def _hub(uri: str) -> str:
    """Name of a model behind `hf://` and its kin, without a revision."""
    return uri.partition("://")[2].split("?")[0] if "://" in uri else uri


def _more_words(containers: Any) -> list[str]:
    """Arguments of vLLM that KServe's containers hold: their own, and those of a variable."""
    words: list[str] = []
    for one in containers if isinstance(containers, list) else ():
        one = one if isinstance(one, dict) else {}
        words += [str(w) for w in one.get("args") or () if str(w).startswith("-")]
        for variable in one.get("env") or ():
            if isinstance(variable, dict) and variable.get("name") == "VLLM_ADDITIONAL_ARGS":
                words += str(variable.get("value", "")).split()
    return words


# --- Ray Serve ---------------------------------------------------------------------------------


def _ray(table: Table) -> Found | None:
    """Read a model of Ray Serve LLM: `llm_configs`, in a service or alone, or RayLLM's file."""
    table = _inside(table)
    config = next(_ray_configs(table), None)
    if config is None:
        return None
    at = Nested(Found(""), config)
    source = "model_loading_config.model_source model_loading_config.model_id"
    older = "engine_config.hf_model_id engine_config.model_id"
    kwargs = at.get("engine_kwargs", "engine_config.engine_kwargs")
    options = kwargs if isinstance(kwargs, dict) else {}
    name = at.text(*source.split(), *older.split())
    name = name.rstrip("/").rpartition("/")[2] if "://" in name else name  # a store's last folder
    found = _line("vllm", name, options)
    if workers := at.number("scaling_config.num_workers"):
        found.tp = max(found.tp, workers)
    found.seq_len = found.seq_len or at.number("engine_config.max_total_tokens")
    resources = at.get("scaling_config.resources_per_worker")
    named = " ".join(resources) if isinstance(resources, dict) else ""
    found.gpu = gpu_named(at.text("accelerator_type") or named.replace("_", "-"))
    others = sum(1 for _ in _ray_configs(table)) - 1
    if others:
        found.notes.append(f"one of {others + 1} models: others are not read")
    return found


def _inside(table: Table) -> Table:
    """Take the configuration of Ray Serve out of a resource that holds it as text."""
    at = Nested(Found(""), table)
    texts = [at.get("spec.serveConfigV2")]
    data = table.get("data")
    if table.get("kind") == "ConfigMap" and isinstance(data, dict):
        texts += data.values()
    for text in texts:
        if isinstance(text, str) and any(k in text for k in ("llm_configs", "engine_config:")):
            return next(iter(yaml_tables("serveConfigV2", text)), table)
    return table


def _ray_configs(table: Table) -> Any:
    """Each `LLMConfig` of a table."""
    if "model_loading_config" in table or "engine_config" in table:
        yield table
    applications = table.get("applications")
    applications = applications if isinstance(applications, list) else [table]
    for one in applications:
        at = Nested(Found(""), one if isinstance(one, dict) else {})
        configs = at.get("args.llm_configs", "llm_configs")
        for config in configs if isinstance(configs, list) else [at.get("args.llm_config")]:
            if isinstance(config, dict):
                yield config
