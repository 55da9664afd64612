"""Serving lines: `vllm serve`, SGLang's `launch_server`, `trtllm-serve`."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.launch.options import known_options
from gpuscale.launch.read.found import UNSET, Found, Values, named_model
from gpuscale.launch.read.gpus import gpu_named
from gpuscale.launch.read.nested import Nested

ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
    "--tp_size": "--tensor-parallel-size",
    "--pp-size": "--pipeline-parallel-size",
    "--pp_size": "--pipeline-parallel-size",
    "--dp": "--data-parallel-size",
    "--dp-size": "--data-parallel-size",
    "--ep-size": "--ep",
    "--ep_size": "--ep",
    "--context-length": "--max-model-len",
    "--max_seq_len": "--max-model-len",
    "--max-running-requests": "--max-num-seqs",
    "--max_batch_size": "--max-num-seqs",
    "--mem-fraction-static": "--gpu-memory-utilization",
    "--kv_cache_free_gpu_memory_fraction": "--gpu-memory-utilization",
    "--model-path": "--model",
    "--model-id": "--model",
    "--num-shard": "--tensor-parallel-size",
    "--max-total-tokens": "--max-model-len",
    "--quantize": "--quantization",
    "-m": "--model",
    "-hf": "--model",
    "--hf-repo": "--model",
    "-c": "--max-model-len",
    "--ctx-size": "--max-model-len",
    "-np": "--max-num-seqs",
    "--parallel": "--max-num-seqs",
}
"""Other spellings and the other engines' words -> vLLM's option."""


def engine_of(words: list[str]) -> str | None:
    """Engine that a command starts."""
    text = " ".join(w for w in words if " " not in w)  # commands handed on are read apart
    if "vllm serve" in text or "vllm.entrypoints" in text:
        return "vllm"
    if "sglang.launch_server" in text or "sglang serve" in text:
        return "sglang"
    if "text-generation-launcher" in text:
        return "tgi"
    if any(re.search(r"(^|/)llama-server$", w) for w in words):
        return "llamacpp"
    return "trtllm" if "trtllm-serve" in text else None


def read(words: list[str], engine: str) -> Found:
    """Read a serving line; context length is `seq_len`, concurrent sequences `max_seqs`."""
    found = Found(engine, software=engine, method="serve")
    known = known_options("vllm") if engine == "vllm" else None
    found.version = known.version if known else engine
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    start = next((i for i, w in enumerate(words) if _starts(w)), 0)
    i = start + 1
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("-"):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if engine == "vllm" and name.startswith("--") else name
        if known and name.startswith("--") and name not in (*known.arity, *ALIASES):
            longer = [option for option in known.arity if option.startswith(name)]
            name = longer[0] if len(longer) == 1 else name  # argparse takes a prefix
        if known and name not in known.arity and name not in ALIASES and not _server(name):
            found.not_understood.append(name)
        values = [value] if equals else []
        flag = known is not None and known.arity.get(name) == "0"
        if not equals and not flag and i < len(words) and not words[i].startswith("-"):
            values.append(words[i])
            i += 1
        given[ALIASES.get(name, name)] = values
    values_of = Values(found, given)
    name = values_of.text("--model", "model") or next(
        (named_model(p) for p in positional if not p.endswith((".py", "serve"))), ""
    )
    if UNSET in name:
        found.unread["model"] = name.replace(UNSET, "")
    elif name:
        found.model_name = re.sub(r"(-0+1-of-\d+)?\.gguf$", "", name)
    if config := given.get("--config"):
        found.unresolved.append(f"{config[0][:60]}, whose options are not read")
    if engine == "tgi":
        known_ones = "vLLM, SGLang, TensorRT-LLM and llama.cpp"
        found.beyond.append(f"the speed of Text Generation Inference: `serve` knows {known_ones}")
    _limits(values_of, "--enable-dp-attention" in given)
    return found


def _limits(values_of: Values, attention: bool) -> None:
    """Degrees, context and memory; `attention`: data parallelism divides the tensor ranks."""
    found = values_of.found
    found.tp = values_of.whole("--tensor-parallel-size", "tp") or 1
    found.pp = values_of.whole("--pipeline-parallel-size", "pp") or 1
    found.dp = values_of.whole("--data-parallel-size", "dp") or 1
    found.ep = values_of.whole("--ep", "ep")
    ranks = found.tp * found.pp * (1 if attention else found.dp)
    unknown = {"tp", "pp", "dp"} & set(found.unread)
    found.n_gpus = found.n_gpus or (None if unknown else ranks)
    if attention and found.tp % found.dp:
        found.wrong.append(f"tp {found.tp} is no multiple of the attention's dp {found.dp}")
    found.seq_len = _length(values_of, "--max-model-len")
    found.max_seqs = values_of.whole("--max-num-seqs", "max_seqs")
    found.weights = values_of.text("--quantization", "weights")
    found.kv = values_of.text("--kv-cache-dtype", "kv")
    share = values_of.text("--gpu-memory-utilization", "memory_utilization")
    try:
        found.memory_utilization = float(share) if share else None
    except ValueError:
        found.wrong.append(f"--gpu-memory-utilization {share}: not a number")
    if found.memory_utilization is not None and not 0 < found.memory_utilization <= 1:
        found.wrong.append(f"--gpu-memory-utilization {share}: must be above 0 and at most 1")


STACK = {
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxModelLen": "--max-model-len",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
"""Key of `vllmConfig` in the Helm chart of vLLM's production stack -> vLLM's option."""


def read_stack(engine: dict[str, Any]) -> Found | None:
    """Read the values of vLLM's production stack: the first of its models."""
    models = engine.get("modelSpec")
    models = [m for m in models if isinstance(m, dict)] if isinstance(models, list) else []
    if not models or not models[0].get("modelURL"):
        return None
    config = models[0].get("vllmConfig")
    config = config if isinstance(config, dict) else {}
    words = ["vllm", "serve", str(models[0]["modelURL"])]
    for key, option in STACK.items():
        words += [option, str(config[key])] if key in config else []
    more = config.get("extraArgs")
    found = read([*words, *(map(str, more) if isinstance(more, list) else ())], "vllm")
    if len(models) > 1:
        found.unresolved.append(f"one of {len(models)} models: others are not read")
    return found


def read_resource(table: dict[str, Any]) -> Found | None:
    """Read a resource that an operator of Kubernetes serves a model by: KubeAI's, KServe's."""
    at = Nested(Found(""), table)
    kind, group = at.text("kind"), at.text("apiVersion").split("/")[0]
    if kind == "Model" and group == "kubeai.org":
        return _kubeai(at)
    if at.get("trt_llm.build.checkpoint_repository.repo") is not None:
        return _truss(at)
    if kind == "Workspace" and group == "kaito.sh" and (name := at.text("inference.preset.name")):
        found = read(["vllm", "serve", name], "vllm")
        found.n_gpus, machine = None, at.text("resource.instanceType")
        found.unresolved.append(f"the GPUs of {machine}" if machine else "its machine")
        return found
    if kind == "LLMInferenceService" and (uri := at.text("spec.model.uri")):
        words = ["vllm", "serve", _hub(uri)]
        for key, option in PARALLELISM.items():
            if number := at.number(f"spec.parallelism.{key}"):
                words += [option, str(number)]
        return read([*words, *_more_words(at.get("spec.template.containers"))], "vllm")
    model = at.get("spec.predictor.model")
    if kind != "InferenceService" or not isinstance(model, dict):
        return None
    if at.text("spec.predictor.model.modelFormat.name") not in ("huggingface", "vllm", "vLLM"):
        return None
    words = [str(w).replace("--model_id", "--model") for w in model.get("args") or ()]
    named = [_hub(uri)] if (uri := at.text("spec.predictor.model.storageUri")) else []
    return read(["vllm", "serve", *named, *words], "vllm")


def is_config(keys: set[str]) -> bool:
    """Whether the keys of a YAML are those of a file for `vllm serve --config`."""
    names = {str(key).replace("_", "-") for key in keys}
    return "model" in names and len(names & CONFIG) > 1


CONFIG = {
    "gpu-memory-utilization",
    "max-model-len",
    "tensor-parallel-size",
    "max-num-seqs",
    "max-num-batched-tokens",
    "enforce-eager",
    "enable-prefix-caching",
    "kv-cache-dtype",
}
"""Options of vLLM of which such a file has two."""


def read_config(table: dict[str, Any]) -> Found:
    """Read a YAML for `vllm serve --config`: the options as keys."""
    words = ["vllm", "serve", str(table["model"])]
    for key, value in table.items():
        name = f"--{str(key).replace('_', '-')}"
        if key != "model" and value is not False and value is not None:
            words += [name] if value is True else [name, str(value)]
    return read(words, "vllm")


def _truss(at: Nested) -> Found:
    """Read a Truss configuration that builds an engine of TensorRT-LLM."""
    build = "trt_llm.build"
    words = ["trtllm-serve", at.text(f"{build}.checkpoint_repository.repo")]
    for key, option in TRUSS.items():
        if number := at.number(f"{build}.{key}"):
            words += [option, str(number)]
    found = read(words, "trtllm")
    found.gpu = gpu_named(at.text("resources.accelerator"))
    kind = at.text(f"{build}.quantization_type")
    found.weights = next((f for f in ("fp8", "fp4", "int8", "int4") if f in kind), None)
    found.kv = "fp8" if kind.endswith("_kv") else None
    return found


TRUSS = {
    "tensor_parallel_count": "--tensor-parallel-size",
    "max_seq_len": "--max-model-len",
    "max_batch_size": "--max-num-seqs",
}

PARALLELISM = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}
"""Key of KServe's `parallelism` -> vLLM's option."""


def _kubeai(at: Nested) -> Found:
    """Read KubeAI's `Model`: an engine's arguments beside the model and its GPUs."""
    engine = at.text("spec.engine").lower()
    words = at.get("spec.args")
    words = [str(w) for w in words] if isinstance(words, list) else []
    found = read(["vllm", "serve", _hub(at.text("spec.url")), *words], "vllm")
    profile, _, count = at.text("spec.resourceProfile").partition(":")
    found.gpu = gpu_named(profile)
    if count.isdigit() and int(count) > (found.n_gpus or 1):
        found.unresolved.append(
            f"{count} GPUs a replica, of which the arguments use {found.n_gpus}"
        )
    if engine != "vllm":
        found.beyond.append(f"engine {engine or '(none)'}: `serve` knows vLLM and its kin")
    return found


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


def _starts(word: str) -> bool:
    """Whether the options of an engine begin behind a word."""
    modules = ("vllm.entrypoints", "sglang.launch_server")
    programs = ("serve", "trtllm-serve", "text-generation-launcher", "llama-server")
    return word.rsplit("/", 1)[-1] in programs or word.startswith(modules)


def _server(name: str) -> bool:
    """Whether an option belongs to the HTTP server, not to the engine."""
    return name.startswith(
        (
            "--host",
            "--port",
            "--api",
            "--uvicorn",
            "--ssl",
            "--allow",
            "--chat-template",
            "--enable-auto-tool",
            "--tool",
            "--served",
            "--root-path",
            "--middleware",
            "--lora-modules",
            "--disable-frontend",
            "--enable-log",
            "--disable-log",
            "--enable-request",
            "--headless",
            "--log",
            "--response-role",
            "--disable-uvicorn",
            "--no-",
            "--reasoning",
            "--enable-server",
        )
    )


def _length(values: Values, name: str) -> int | None:
    """Context length: a number, or `32k` (1,000) and `32K` (1,024) as vLLM reads them."""
    text = values.text(name, "seq_len")
    if text is None or text == "auto" or text == "-1":
        return None
    scale = {"k": 1000, "K": 1024, "m": 10**6, "M": 1024**2}.get(text[-1:], 1)
    try:
        return round(float(text[:-1] if scale > 1 else text) * scale)
    except ValueError:
        values.found.wrong.append(f"{name} {text[:40]}: not a length")
        return None
