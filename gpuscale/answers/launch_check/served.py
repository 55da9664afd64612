"""A serving line: answered by `serve` for the layout that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers.launch_check.records import Checked, empty_report
from gpuscale.core.records import replace
from gpuscale.io.hardware import load_cluster
from gpuscale.launch.read.serving import attention_ranks
from gpuscale.render.document import Facts, Text

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.serve import Serve
    from gpuscale.answers.serve.records import ServeAnswer
    from gpuscale.launch.found import Found
    from gpuscale.specs.model import ModelSpec

USUAL = 1024 + 256
"""Tokens of a request of `serve` where nothing says them."""
CONTEXTS = {"ollama": 4096}
"""Context of an engine where nothing says one (Ollama, `OLLAMA_CONTEXT_LENGTH`)."""


def served(asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int) -> Checked:
    """Check a serving line: does it start, how long a context, at which speed for all its users."""
    question = _question(asked, found, model, n_gpus)
    answer = question.answer()
    alone = answer.result
    at_once = _users(found, question, alone) if alone.fits else 0
    if at_once > (question.concurrency or 1):
        answer = _question(asked, found, model, n_gpus, at_once).answer()
    own = found.kind == "vllm" and not question.context and model.max_position
    if own and answer.result.fits and answer.result.kv_tokens < model.max_position:
        found.notes.append(
            f"no length is given: the cache has room for {int(answer.result.kv_tokens):,} tokens, "
            f"and vLLM does not start with less than the model's own context, here taken as "
            f"{model.max_position:,}; --max-model-len says another"
        )
    lines = getattr(answer.result, "launch", ()), getattr(answer.result, "benchmark", "")
    again = "\n".join((*lines[0], lines[1]))  # the file itself is the launch
    blocks = [b for b in answer.blocks if not (isinstance(b, Text) and b.text == again)]
    length = question.context or model.max_position
    if alone.fits and (rows := _longest(found, question, alone, length)):
        blocks.append(Facts(rows))
    report = replace(
        empty_report(found, model, n_gpus, found.kind, fits=answer.result.fits),
        peak_bytes=answer.result.peak_bytes,
        capacity_bytes=answer.result.capacity_bytes,
        bill=getattr(answer.result, "bill", None),
    )
    return Checked(report, asked, answer.warnings, blocks, answer.terms)


def _users(found: Found, question: Serve, room: ServeAnswer) -> int:
    """Users that a server has at once: as many as its line and its cache let in."""
    if "disagg" in found.serves or found.kind in ONE_CONTEXT:
        return 0
    held = int(room.kv_tokens // USUAL) * (question.dp_attention or 1)
    return min(MOST_AT_ONCE, min(held, found.max_seqs or held) * (question.concurrency or 1))


def _longest(
    found: Found, question: Serve, room: ServeAnswer, length: float | None
) -> list[tuple[str, str, str]]:
    """Say how many requests of the longest context a server holds; nothing where none is known."""
    if not length or found.kind in ONE_CONTEXT or room.kv_tokens > MOST_TOKENS:
        return []
    copies = question.concurrency or 1
    held = int(room.kv_tokens // length) * copies * (question.dp_attention or 1)
    most = (found.max_seqs or held) * copies
    why = "the sequences that the line allows" if most < held else "what the cache holds"
    return [("longest", f"{min(held, most):,} at a time", f"of {length:,} tokens: {why}")]


ONE_CONTEXT = ("llamacpp", "ollama")
"""Engines whose context is the cache of all their users together."""
MOST_AT_ONCE = 256
"""Most users of the line on a full server: vLLM's own limit on smaller GPUs."""
ROUNDS = 5
"""Requests of each of them."""
MOST_TOKENS = 1e12
"""Tokens of a cache that has no limit."""


def _question(
    asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int, at_once: int | None = None
) -> Serve:
    """Ask `serve` for the layout, the formats and the limits that a line names.

    Alone a request takes what the context holds; those of `at_once` users are of usual length.
    """
    from gpuscale.answers.serve import Serve

    said: dict[str, Any] = dict(found.serves)
    attention = attention_ranks(found)
    on_tensor = bool(said.pop("attention", False))
    own = said.pop("own_context", False)
    tp, replicas = max(1, found.tp // attention), 1 if on_tensor else found.dp or 1
    if replicas > 1 and model.has_experts and found.kind != "sglang":
        attention, replicas = replicas, 1  # ranks of one engine share the experts
    if said.get("ngl", 0) >= model.n_layers:
        del said["ngl"]
    if "n_cpu_moe" in said:
        said["n_cpu_moe"] = min(said["n_cpu_moe"], model.n_expert_layers) or None
    length = asked.seq_len or found.seq_len or CONTEXTS.get(found.kind)
    degrees: dict[str, Any] = {"tp": tp, "pp": found.pp, "ep": found.ep}
    if attention > 1:
        degrees["dp_attention"] = attention
    if length and (at_once or length < USUAL):
        answer = max(1, min(length, USUAL) // 5)
        prompt = max(1, min(length, USUAL) - answer)
        said = {"input": str(prompt), "output_len": str(answer), **said}
    if at_once:
        said["requests"] = ROUNDS * at_once
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
    from gpuscale.io.serving import load_words, serving_site

    words = load_words()
    engine = (words["engines"] | words["nearest"])[kind]
    share = serving_site(load_cluster(asked.where), engine).software.memory.utilisation_frac
    return share if share < 1.0 else None


def _weights(found: Found, model: ModelSpec) -> str | tuple[str, ...]:
    """Format of the weights: as the line says, else as the checkpoint's name or config does."""
    published = model.published_format
    if found.weights and not published.startswith(found.weights):
        return found.weights
    return published if published != "bf16" else ()
