"""A serving line: answered by `serve` for the layout that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.launch_check.records import Checked, empty_report
from gpuscale.launch.read.engines import ENGINES
from gpuscale.launch.read.serving import attention_ranks
from gpuscale.render.document import Facts, Text

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.records import ServeAnswer
    from gpuscale.launch.read.found import Found
    from gpuscale.specs.model import ModelSpec

NEAREST = {"tgi": "vLLM", "lmdeploy": "vLLM", "tabbyapi": "llama.cpp"}
"""Engines whose speed was not measured -> the nearest one, by which `serve` answers."""

USUAL = 1024 + 256
"""Tokens of a request of `serve` where nothing says them."""
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
    if (
        "disagg" not in found.serves
        and answer.result.fits
        and (rows := _full(asked, found, model, n_gpus, answer.result))
    ):
        blocks.append(Facts(rows))
    report = empty_report(found, model, n_gpus, found.kind, fits=answer.result.fits)
    return Checked(report, asked, answer.warnings, blocks, answer.terms)


def _full(
    asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int, alone: ServeAnswer
) -> list[tuple[str, str, str]]:
    """Say how many users a server holds at its longest, and its speed with all it runs at once."""
    question = _question(asked, found, model, n_gpus)
    copies = question.concurrency or 1
    ranks = copies * (question.dp_attention or 1)
    length = question.context or model.max_position
    rows = []
    if length and found.kind not in ONE_CONTEXT and alone.kv_tokens < MOST_TOKENS:
        held = int(alone.kv_tokens // length) * ranks
        most = (found.max_seqs or held) * copies
        why = "the sequences that the line allows" if most < held else "what the cache holds"
        rows.append(("longest", f"{min(held, most):,} at a time", f"of {length:,} tokens: {why}"))
    at_once = min(MOST_AT_ONCE, int(alone.sequences_with_room) * copies)
    if at_once <= copies:
        return rows
    full = _question(asked, found, model, n_gpus, at_once).answer().result
    if full.output_tokens_per_s and full.tokens_per_s_per_user:
        each = f"{full.tokens_per_s_per_user:,.0f} to each of {at_once:,} users"
        size = f"{question.prompts.mean:,.0f} + {question.output_len.mean:,.0f} tokens"
        rows.append(("full", f"{full.output_tokens_per_s:,.0f} tokens/s", f"{each}, of {size}"))
    return rows


ONE_CONTEXT = ("llamacpp", "ollama", "tabbyapi")
"""Engines whose context is the cache of all their users together."""
MOST_AT_ONCE = 256
"""Most users of the line on a full server: vLLM's own limit on smaller GPUs."""
MOST_TOKENS = 1e12
"""Tokens of a cache that has no limit."""


def _question(
    asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int, at_once: int | None = None
) -> Serve:
    """Ask `serve` for the layout, the formats and the limits that a line names.

    A request is of the usual length, or of what the context holds; `at_once`: of a closed loop.
    """
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
    if length and length < USUAL:  # a request takes what the context holds
        answer = max(1, length // 5)
        said |= {"input": str(max(1, length - answer)), "output_len": str(answer)}
    if at_once:
        said["requests"] = 2 * at_once
    version = said.pop("version", "")
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
        concurrency=None if "disagg" in said else at_once or replicas,
        set=asked.settings,
        calibration=asked.calibration,
        **({} if "disagg" in said else degrees),
        **said,
    )


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
