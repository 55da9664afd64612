"""What the fine-tuning answers say in the same words, and the formulas of each part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuscale.answers.summary import asked_for, chance_tone, memory_point, span
from gpuscale.core.finetune.memory import (
    FinetuneMemory,
    bytes_per_logit,
    fragmentation_of,
    stream_bytes,
)
from gpuscale.core.finetune.method import Job, counts
from gpuscale.core.finetune.states import base_bytes_per_param, state_bytes
from gpuscale.core.memory.fit import usable_term
from gpuscale.core.memory.peak import shards
from gpuscale.core.quantity import format_time
from gpuscale.core.records import Term, replace, term_of, total_of
from gpuscale.core.settings import MATURITY_WORDS
from gpuscale.core.verdict import EVEN, said
from gpuscale.core.words import gb
from gpuscale.meant import packaged
from gpuscale.render.document import Column, Point, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscale.answers.training.rl_blocks import RlAnswer
    from gpuscale.answers.training.tune_case import FinetuneCase
    from gpuscale.answers.training.tune_memory import TuningMemory
    from gpuscale.answers.training.tune_plan_blocks import TuningPlan
    from gpuscale.core.finetune.bench import Bench, BenchChange
    from gpuscale.core.finetune.parameters import FinetuneParameters

PARTS = (
    ("base weights", "base_bytes"),
    ("adapters, gradients", "adapter_bytes"),
    ("gradients", "gradients_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("kept activations", "kept_bytes"),
    ("layer at work", "working_bytes"),
    ("logits and loss", "logits_bytes"),
    ("gathered, unpacked", "gathered_bytes"),
    ("workspaces", "workspace_bytes"),
    ("fragmentation", "fragmentation_bytes"),
    ("context", "context_bytes"),
)
"""Parts of the memory in words, and their fields."""


def method_words(job: Job) -> str:
    """Say what is trained in a few words.

    >>> from gpuscale.core.finetune.method import Method
    >>> from types import SimpleNamespace
    >>> method_words(SimpleNamespace(method=Method(rank=8, base="nf4", targets=("q", "v"))))
    'QLoRA rank 8 on q, v over nf4'
    """
    m = job.method
    less = f", lowest {m.frozen_layers} layers frozen" if m.frozen_layers else ""
    if m.kind == "full":
        less = less or (", embeddings frozen" if m.embeddings_frozen else "")
        return f"full training{less}"
    name = {"lora": "QLoRA" if m.quantised else "LoRA", "dora": "DoRA"}[m.kind]
    more = ", embedding and head in full" if m.train_embeddings else ""
    return f"{name} rank {m.rank} on {', '.join(m.targets)} over {m.base}{more}{less}"


def states_text(job: Job, p: FinetuneParameters) -> tuple[str, str]:
    """Bytes of a trained parameter, and what they are.

    >>> from types import SimpleNamespace as N
    >>> from gpuscale.core.finetune.method import Method
    >>> from gpuscale.core.finetune.states import OPTIMIZERS
    >>> from gpuscale.core.finetune.parameters import FinetuneParameters
    >>> states_text(N(method=Method("full"), optimizer=OPTIMIZERS["adamw"]), FinetuneParameters())
    ('8 bytes', 'a trained parameter: weight bf16, gradient bf16, adamw states 4')
    """
    opt = job.optimizer
    if job.method.adapts:
        weight, gradient, master = p.adapter_weights_bytes, p.adapter_gradients_bytes, 0.0
        states = state_bytes(opt, p.adapter_moment_bytes)
    else:
        weight, gradient = p.full_weights_bytes, p.full_gradients_bytes
        master, states = p.full_master_bytes, state_bytes(opt, p.full_moment_bytes)
    words = [f"weight {NAMES.get(weight, weight)}", f"gradient {NAMES.get(gradient, gradient)}"]
    if opt.in_backward:
        words[1], gradient = "gradient gone layer by layer", 0.0
    words += [f"master {NAMES.get(master, master)}"] if master else []
    how = "factored" if opt.factored else "projected" if opt.projected else f"{states:.3g}"
    words.append(f"{opt.name} states {how}{' outside the allocator' if opt.paged else ''}")
    total = weight + gradient + master + (0.0 if opt.paged else states)
    return f"{total:.3g} bytes", f"a trained parameter: {', '.join(words)}"


NAMES = {2.0: "bf16", 4.0: "fp32"}
"""Bytes of a number -> its format, as training keeps it."""


def layout_words(job: Job) -> str:
    """Say how the job is laid out."""
    at = job.layout
    split = {n.upper(): getattr(at, n) for n in ("tp", "pp", "cp", "ep")}
    told = [f"{name} {ways}" for name, ways in split.items() if ways > 1]
    if at.dp * at.cp > 1:  # states are shared by the ranks of a sequence too
        how = {0: "replicas", 1: "ZeRO 1", 2: "ZeRO 2", 3: "sharded (ZeRO 3)"}[at.zero_stage]
        told.append(f"DP {at.dp} {how}")
    some = f" of {at.recompute_layers} layers a stage" if at.recompute_layers else ""
    told += [f"micro-batch {at.micro_batch_size} x {at.seq_len:,} tokens"]
    told += [f"recompute {at.recompute}{some}", f"{job.loss} loss"]
    told += [job.optimizer.name + (" in backward" if job.optimizer.in_backward else "")]
    told += [f"offload {', '.join(sorted(job.offload))}"] if job.offload else []
    return ", ".join(told)


def verdict_text(case: FinetuneCase, what: str, r: Any, n_gpus: int) -> str:
    """Begin an answer: whether it fits, in one sentence without its end.

    `r`: the answer's record. The interval is shown where the limit may be inside. What fits the
    GPU and is called no fit has too little memory of the hosts, or of an engine.
    """
    where = f"{n_gpus:,} {case.loaded.gpu.name}" if n_gpus > 1 else f"one {case.loaded.gpu.name}"
    peak, usable = r.peak_bytes, r.capacity_bytes
    low, high = r.peak_low_bytes, r.peak_high_bytes
    cannot = not r.fits and r.fits_probability >= sum(EVEN) / 2
    verdict = "does not fit" if cannot else said(r.fits_probability)
    between = f" ({low / 1e9:,.1f} to {high / 1e9:,.1f})" if low < usable < high else ""
    room = f"{gb(peak)}{between} of {gb(usable)} a GPU"
    return f"{what} of {case.loaded.model.name} on {where} {verdict}: {room}"


COSTLY_FRAC = 0.02
"""Share of the GPU from which a habit's cost is told."""


def habit_text(case: FinetuneCase, job: Job) -> str:
    """Say what the framework does by itself here, and what each of it costs."""
    from gpuscale.answers.training.tune_verdict import as_set, open_settings

    own = case.bench.memory(job).total_bytes
    found = []
    for s in open_settings(replace(case, job=job)):
        habit = case.habits.get(s.field)
        other = s.ways[-1][1]
        if habit is None or s.field == "seq_len" or s.ways[0][1] != str(habit.value):
            continue
        less = own - case.bench.memory(as_set(job, {s.field: other})).total_bytes
        if abs(less) > COSTLY_FRAC * case.bench.usable_bytes:
            words = f"{s.field.replace('_', '-')} {habit.value}"
            note = f", {habit.note}" if habit.note else ""
            how = "saves it" if less > 0 else "would cost it"
            found.append(f"{words}{note} ({less / 1e9:+,.1f} GB; {s.option} {other} {how})")
    name = case.software.name
    return f"by itself {name} has: {'; '.join(found)}" if found else ""


def short_of_host(needed_bytes: float, bench: Bench, job: Job) -> str:
    """Say that offloaded parts do not fit the hosts, or want unusual ones; empty where they do."""
    room = bench.host_room_bytes(job)
    if needed_bytes <= room:
        return ""
    if bench.host_bytes is None:
        usual = f"{gb(room)} is usual (--host-memory)"
        return f"; the hosts need {gb(needed_bytes)} each, where {usual}"
    return f"; the hosts need {gb(needed_bytes)}, and have {gb(room)}"


def trained_words(job: Job) -> str:
    """Say the kind of training in a word or two.

    >>> from gpuscale.core.finetune.method import Method
    >>> from types import SimpleNamespace
    >>> trained_words(SimpleNamespace(method=Method(rank=8, base="nf4")))
    'QLoRA'
    """
    return "Full training" if job.method.kind == "full" else method_words(job).split(" ")[0]


def part_rows(memory: FinetuneMemory) -> list[tuple[str, float]]:
    """(part, bytes) of what there is."""
    return [(label, v) for label, key in PARTS if (v := getattr(memory, key)) > 0]


def time_text(seconds: float) -> str:
    """Time to three digits, in a unit that people use."""
    return format_time(seconds, 3)


def step_point(r: TuningMemory | TuningPlan) -> Point:
    """Time of a step with its interval, and the tokens of a second."""
    ends = span(time_text(r.step_low_s), time_text(r.step_high_s))
    note = f"(80 % {MATURITY_WORDS[r.maturity]}: {ends}), {r.tokens_per_s:,.0f} tokens/s"
    return Point("step", time_text(r.step_s), note)


def memory_terms(case: FinetuneCase, job: Job, memory: FinetuneMemory) -> tuple[Term, ...]:
    """Terms of the peak: the sum, and the parts that are one formula."""
    gpu, model, layout = case.loaded.gpu, case.loaded.model, job.layout
    p, whole = case.bench.site(job)[2], counts(model, job.method)
    linear, edge = base_bytes_per_param(job, p)
    linears = math.fsum(k.n_layers * k.linear_params for k in whole.kinds)
    one_stage = layout.pp * layout.tp * layout.ep == 1
    frozen = job.method.adapts and "parameters" not in job.offload and not model.has_experts
    shown = {
        "base_bytes": one_stage and frozen,
        "adapter_bytes": one_stage and frozen and not job.method.train_embeddings,
        "kept_bytes": memory.kept_bytes > 0
        and layout.pp == 1
        and not (layout.tp > 1 and layout.sequence_parallel)
        and layout.recompute == "full"
        and not layout.offload_activations,
        "logits_bytes": memory.logits_bytes > 0 and layout.tp == 1 and memory.moment == "loss",
        "fragmentation_bytes": True,
    }
    more = {
        "adapter_params": whole.adapter_params,
        "adapter_weights_bytes": p.adapter_weights_bytes,
        "adapter_gradients_bytes": p.adapter_gradients_bytes,
        "bytes_per_linear": linear,
        "linear_params": linears,
        "bytes_per_other": edge,
        "other_params": whole.total_params - linears,
        "shards": float(shards(layout)[0] if layout.zero_stage == 3 else 1),
        "bytes_per_element": stream_bytes(job, p),
        "bytes_per_logit": bytes_per_logit(job, p),
        "tokens": job.logits_frac * layout.micro_batch_size * layout.seq_len / layout.cp,
        "reserved_over_allocated": fragmentation_of(layout.zero_stage, p),
    }
    children = tuple(
        term_of(name, "bytes", part["formula"], part["source"], memory, model, **more)
        for name, part in packaged("tuning_terms.toml").items()
        if shown[name]
    )
    parts = {key: getattr(memory, key) for _, key in PARTS}
    source = f"sum of the parts at the {memory.moment}"
    return (
        total_of("peak_bytes", memory.total_bytes, "bytes", parts, source, children),
        usable_term(gpu.usable_hbm_bytes, gpu.hbm_bytes, case.bench.usable_bytes),
    )


def head_points(
    case: FinetuneCase, job: Job, r: TuningMemory | TuningPlan | RlAnswer, said: str, how: str = ""
) -> list[Point]:
    """Verdict, method (of a step of RL: its words), layout, memory."""
    tone = chance_tone(r.fits_probability) if r.fits else "bad"
    held = memory_point(r.peak_bytes, r.capacity_bytes, (r.peak_low_bytes, r.peak_high_bytes), tone)
    return [
        Point("verdict", said, tone=tone),
        Point("method", how or method_words(job), case.software.name),
        Point("layout", layout_words(job)),
        replace(held, note="; ".join(filter(None, (held.note, r.beyond)))),
        *asked_for(r.decides),
    ]


def mend_text(mend: BenchChange) -> str:
    """Say the change that makes a job fit, its peak with it and how likely it fits then."""
    return f"{mend.words} ({gb(mend.total_bytes)}, {100 * (mend.fits_probability or 0.0):.0f} %)"


def remedy_points(found: Sequence[BenchChange], likely: BenchChange | None = None) -> list[Point]:
    """Change that makes it likely to fit, else those, one on another, by which it may."""
    if likely:
        return [Point("would fit", likely.words, f"then {gb(likely.total_bytes)} a GPU")]
    if not found:
        return []
    first = next((i for i, remedy in enumerate(found) if remedy.fits), len(found) - 1)
    words = [remedy.words for remedy in found[: first + 1]]
    shown = words[:3] + ([f"{len(words) - 3} more (--show remedies)"] if len(words) > 3 else [])
    both = "together, " if len(words) > 1 else ""
    after = f"{both}then {gb(found[first].total_bytes)} a GPU"
    return [Point("may fit" if found[first].fits else "would help", "; ".join(shown), after)]


def share_table(
    key: str, title: str, rows: Sequence[tuple[str, float]], total_s: float, digits: int
) -> Table:
    """Parts of a step: time and share of each."""
    columns = (
        Column(key, title, right=False),
        Column("time_s", "time", time_text),
        Column("share", "share", lambda v: f"{100 * v:.{digits}f} %"),
    )
    return Table(columns, [(label, v, v / total_s) for label, v in rows])
