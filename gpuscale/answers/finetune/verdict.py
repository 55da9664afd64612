"""Whether a fine-tuning or RL job fits: over the settings that the question leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.core.verdict import LENGTHS, Open, Verdict, probability, ways
from gpuscale.core.words import gb
from gpuscale.io.verdict import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuscale.answers.finetune.case import Case
    from gpuscale.core.finetune.job import Job

OTHER = {"eager": "fused", "chunked": "eager", "fused": "eager", "none": "full"}
"""Value of loss or recomputation -> the other one that people have."""


TAKEN = 0.85
"""Weight of what a named framework does by itself, and of what an answer takes where none is named
and says so: prior. A script around an engine may do either."""


def open_settings(case: Case) -> tuple[Open, ...]:
    """List settings of a job that nobody said, with the weight of what was taken and of the rest.

    What a framework does by itself weighs more than what is taken where no framework is named;
    the weights are priors.
    """
    job, layout = case.job, case.job.layout
    micro = layout.micro_batch_size
    others = (  # field, weight of what a script around an engine takes, taken, other
        ("recompute", 0.7, layout.recompute, OTHER.get(layout.recompute, "none")),
        ("loss", 0.75, job.loss, OTHER[job.loss]),
        ("micro_batch", 0.7, str(micro), "1" if micro > 1 else "4"),
    )
    found = []
    for field, script, taken, other in others:
        w = TAKEN if field in case.habits or not case.named else script
        ways_ = ((w, taken), (1.0 - w, other))
        found.append(Open(field, "--" + field.replace("_", "-"), ways_))
    found.append(Open("seq_len", "--seq-len", LENGTHS))
    return tuple(s for s in found if s.field in case.unsaid)


def as_set(job: Job, values: Mapping[str, str]) -> Job:
    """Return the job with open settings set."""
    layout = job.layout
    factor = float(values.get("seq_len", 1.0))
    micro = int(values.get("micro_batch", layout.micro_batch_size))
    layout = replace(
        layout,
        recompute=values.get("recompute", layout.recompute),
        seq_len=max(1, round(layout.seq_len * factor)),
        micro_batch_size=micro,
        global_batch_size=max(1, layout.n_micro_batches) * layout.dp * micro,
    )
    made = replace(job, layout=layout, loss=values.get("loss", job.loss))
    if layout.recompute != "full" and job.layout.recompute == "full":
        return made.on_host(job.offload - {"activations"})
    return made


def far_from_measured(case: Case, job: Job, rl: bool) -> list[str]:
    """Name what of a job was measured less than the rest."""
    layout = job.layout
    kinds = {f.kind for f in case.loaded.model.ffns.values()}
    marks = {
        "offload": bool(job.offload),
        "context": layout.cp > 1,
        "split": layout.tp * layout.pp > 1,
        "experts": "moe" in kinds,
        "rl": rl,
        "old stack": job.attention == "eager",
        "unnamed": not case.named,
    }
    return [name for name, holds in marks.items() if holds]


def verdict_of(
    case: Case,
    job: Job,
    peak_bytes: Callable[[Job, Mapping[str, str]], float],
    chosen: Sequence[str] = (),
    rl: bool = False,
) -> Verdict:
    """Verdict of a job.

    `peak_bytes`: peak of a job under open settings. `chosen`: settings that the answer itself chose
    and tells. `rl`: a step of RL.
    """
    at = replace(case, job=job, unsaid=case.unsaid - set(chosen))
    settings = open_settings(at)
    cases = [(w, values, peak_bytes(as_set(job, values), values)) for w, values in ways(settings)]
    how, usable = spread(), case.bench.usable_bytes
    width = how.width(case.bench.site(job)[2].interval_factor_80, far_from_measured(case, job, rl))
    p = probability([(w, b) for w, _, b in cases], usable, width, how.bias)
    p = how.believed(p, settled=not settings and not rl)  # of RL a question says never all
    return Verdict(p, _decides(settings, cases, usable))


def _decides(
    settings: Sequence[Open],
    cases: Sequence[tuple[float, dict[str, str], float]],
    usable_bytes: float,
) -> str:
    """Name the open setting that turns the verdict alone, with what it decides."""
    _, taken, peak = cases[0]
    names = {
        "recompute": "recomputation",
        "micro_batch": "the micro-batch",
        "loss": "the loss kernel",
    }
    for s in settings:
        value = s.ways[1][1]
        other = next(b for _, values, b in cases if values == {**taken, s.field: value})
        if s.field in names and (peak <= usable_bytes) != (other <= usable_bytes):
            return (
                f"{names[s.field]} decides: {gb(peak)} with {taken[s.field]}, {gb(other)} with "
                f"{value}; say {s.option}"
            )
    return ""
