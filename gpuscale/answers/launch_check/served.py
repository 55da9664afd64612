"""A serving line: answered by `serve` for the layout that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.launch_check.records import Checked, empty_report
from gpuscale.launch.read.engines import ENGINES
from gpuscale.launch.read.serving import attention_ranks
from gpuscale.render.document import Text

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.serve import Serve
    from gpuscale.launch.read.found import Found
    from gpuscale.specs.model import ModelSpec

NEAREST = {"tgi": "vLLM", "lmdeploy": "vLLM", "tabbyapi": "llama.cpp"}
"""Engines whose speed was not measured -> the nearest one, by which `serve` answers."""

CONTEXTS = {"ollama": 4096}
"""Context of an engine where nothing says one (Ollama, `OLLAMA_CONTEXT_LENGTH`)."""


def served(asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int) -> Checked:
    """Check a serving line: does it start, how long a context, at which speed for one user."""
    question = _question(asked, found, model, n_gpus)
    answer = question.answer()
    own = found.kind == "vllm" and not question.context and model.max_position
    if own and answer.result.fits and answer.result.kv_tokens < model.max_position:
        found.notes.append(
            f"no length is given: the cache has room for {int(answer.result.kv_tokens):,} tokens, "
            f"and vLLM does not start with less than the model's own context, here taken as "
            f"{model.max_position:,}; --max-model-len says another"
        )
    if found.kind in NEAREST:
        name = ENGINES[found.kind].title.removesuffix(" server")
        found.notes.append(f"{name} was not measured: figures are those of {NEAREST[found.kind]}")
    lines = getattr(answer.result, "launch", ()), getattr(answer.result, "benchmark", "")
    again = "\n".join((*lines[0], lines[1]))  # the file itself is the launch
    blocks = [b for b in answer.blocks if not (isinstance(b, Text) and b.text == again)]
    report = empty_report(found, model, n_gpus, found.kind, fits=answer.result.fits)
    return Checked(report, asked, answer.warnings, blocks, answer.terms)


def _question(asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int) -> Serve:
    """Ask `serve` for the layout, the formats and the limits that a line names."""
    from gpuscale.answers.serve import Serve

    said: dict[str, Any] = dict(found.serves)
    attention = attention_ranks(found)
    on_tensor = bool(said.pop("attention", False))
    own = said.pop("own_context", False)
    tp, replicas = max(1, found.tp // attention), 1 if on_tensor else found.dp or 1
    if replicas > 1 and any(group.ffn.kind == "moe" for group in model.layer_groups):
        attention, replicas = replicas, 1  # ranks of one engine share the experts
    layers = sum(group.n for group in model.layer_groups)
    if said.get("ngl", 0) >= layers:
        del said["ngl"]
    if "n_cpu_moe" in said:
        sparse = sum(group.n for group in model.layer_groups if group.ffn.kind == "moe")
        said["n_cpu_moe"] = min(said["n_cpu_moe"], sparse) or None
    length = asked.seq_len or found.seq_len or CONTEXTS.get(found.kind)
    degrees: dict[str, Any] = {"tp": tp, "pp": found.pp, "ep": found.ep}
    if attention > 1:
        degrees["dp_attention"] = attention
    version = _older(found.kind, said.pop("version", ""))
    return Serve(
        asked.model or found.model_name or "",
        engine=f"{found.kind}:{version}" if version else found.kind,
        cluster=asked.where,
        gpus=n_gpus,
        weights=_weights(found, model),
        kv=found.kv,
        context=length or (model.max_position if own else None),
        max_seqs=found.max_seqs,
        memory_frac=found.memory_utilization or _own_share(asked, found.kind),
        concurrency=None if "disagg" in said else replicas,
        set=asked.settings,
        calibration=asked.calibration,
        **({} if "disagg" in said else degrees),
        **said,
    )


def _older(engine: str, version: str) -> str:
    """Version of an engine whose settings were others; empty for those of today."""
    from gpuscale.io.serving import known_versions
    from gpuscale.specs.serving import version_of

    known = known_versions(engine) if version else ()
    return version if any(version_of(version) < version_of(b) for b in known) else ""


def _own_share(asked: LaunchCheck, kind: str) -> float | None:
    """Share of the memory that an engine takes by itself: no setting of a launch is mended."""
    from gpuscale.answers.serve import reading
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.serving import serving_site

    engine = reading.engines(kind, "engine")[0]
    share = serving_site(load_cluster(asked.where), engine).software.memory.utilisation_frac
    return share if share < 1.0 else None


def _weights(found: Found, model: ModelSpec) -> str | tuple[str, ...]:
    """Format of the weights: as the line says, else as the checkpoint's name or config does."""
    published = model.published_format
    if found.weights and not published.startswith(found.weights):
        return found.weights
    return published if published != "bf16" else ()
