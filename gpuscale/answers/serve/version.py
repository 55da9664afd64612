"""What a version of an engine does by itself and what that costs; how new a model is to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.serve import reading

if TYPE_CHECKING:
    from gpuscale.answers.serve.case import Case
    from gpuscale.core.serving.maturity import Maturity

TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llamacpp": "llama.cpp"}


def engine_text(case: Case, engine: str) -> str:
    """``vLLM 0.12 (2025-12-03)``; without a version as of the newest release that is known."""
    from gpuscale.io.serving import engine_day

    version = case.versions.get(engine, "")
    day = "" if version == "nightly" else engine_day(engine, version)
    title = TITLES.get(engine, reading.SHOWN.get(engine, engine))
    if not version:
        return f"{title} as of {day}" if day else title
    return f"{title} {version}" + (f" ({day})" if day and day != version else "")


def habits_line(case: Case, engine: str) -> str:
    """Say which settings a version brings, and what of them costs time."""
    site = case.sites[engine]
    soft, memory = site.software, site.software.memory
    parts = [
        f"{100 * memory.utilisation_frac:.0f} % of the memory",
        f"{soft.chunk_tokens:,.0f} prompt tokens a pass",
        f"{soft.max_sequences:,.0f} sequences",
    ]
    if soft.serial_host:
        parts.append(f"the host works between passes, {1e3 * soft.host_s:.1f} ms each")
    parts += [f"{value} {word}" for word, value in kernels_named(case, engine)]
    return f"{engine_text(case, engine)} by itself: {', '.join(parts)}."


NAMED = {
    "attention_backend": "attention",
    "expert_backend": "experts",
    "graph_sequences": "sequences in graphs",
}
"""Habits that are told without a number of their own -> what they are of."""


def kernels_named(case: Case, engine: str) -> list[tuple[str, object]]:
    """Kernels that a version takes on the GPU, as (of what, name)."""
    from gpuscale.core.serving.layouts import n_experts
    from gpuscale.io.serving import engine_habits

    version, gpu = case.versions.get(engine, ""), case.loaded.gpu
    known = "" if version == "nightly" else version
    facts = {"family": case.model.family, "format": case.weights[0]}
    found = engine_habits(engine, known, gpu.hbm_bytes, gpu.architecture, **facts)
    told = [name for name in NAMED if name in found]
    if not n_experts(case.model):
        told = [name for name in told if name != "expert_backend"]
    return [(NAMED[name], found[name].value) for name in told]


def age_text(case: Case, engine: str) -> str:
    """Say how new the architecture is to the engine; nothing where it is settled."""
    age: Maturity | None = case.ages.get(engine)
    if age is None or not age.new:
        return ""
    named = engine_text(case, engine)
    if not age.released:
        return f"as it comes: {named} has no measured architecture like it"
    months = age.months or 0.0
    if age.stage == "new":
        since = f"{months:.1f} months old in {named}"
    elif months < 0.0:
        since = f"released {age.released}, after {named}"
    else:
        since = f"in {named} on the days of its release, {age.released}"
    return f"as it comes: this architecture is {since}, newer than what is measured there"
