"""The judgement of a run: figure first, then causes, then the test to run next; out of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscale.answers.diagnose import records
from gpuscale.answers.diagnose.case import RunCase, read_case
from gpuscale.answers.diagnose.features import Features, features_of
from gpuscale.answers.diagnose.past import past_of
from gpuscale.answers.diagnose.planner import REFUSED, predicted, report_of, tuning_job, with_figure
from gpuscale.answers.diagnose.records import NamedCause, OutOfMemory, PeakPart
from gpuscale.core.diagnosis.causes import NAMED, Judged, judge, verdict_of, verdicts
from gpuscale.core.diagnosis.series import Log
from gpuscale.core.numeric import Z80
from gpuscale.core.records import dataclass, made_of
from gpuscale.core.words import gb
from gpuscale.io.run import first_of, load_causes, load_table

if TYPE_CHECKING:
    from gpuscale.answers.diagnose import Diagnose


class Fitting(NamedTuple):
    """What a peak is made of, and the change with which the job fits; empty where not known."""

    held: str = ""
    change: str = ""
    shares: Mapping[str, float] = MappingProxyType({})  # part -> share of the peak


def fitting(case: RunCase) -> Fitting:
    """Ask the planner of a job that ran out of memory."""
    if not _ran_out(case):
        return Fitting()
    with suppress(*REFUSED):
        r, _ = report_of(case) or (None, "")
        if r is not None and r.fits is False and r.best_peak_bytes and r.peak_bytes:
            lines = [line for line in r.diff if line[:3] not in ("---", "+++")]
            old, new = (" ".join(d[1:] for d in lines if d[:1] == s).split(" --") for s in "-+")
            words = " ".join(f"--{w.strip()}" for w in new[1:] if w not in old)
            fits = f"{words}: {gb(r.best_peak_bytes)} of {gb(r.capacity_bytes or 0.0)}"
            return Fitting(f"{gb(r.peak_bytes)} as told", fits if words else "")
        if case.kind in ("finetune", "rl") and (job := tuning_job(case)) is not None:
            answer: Any = job.answer()
            points, r = {p.key: p for p in answer.summary}, answer.result
            e = r.estimate.memory.policy if case.kind == "rl" else r.expected
            held, fit = points.get("held by"), points.get("would fit", points.get("may fit"))
            shares = {"logits_share": e.logits_bytes, "kept_share": e.kept_bytes}
            shares = {k: v / r.peak_bytes for k, v in shares.items()}
            change = f"{fit.value} {fit.note}" if fit else ""
            return Fitting(held.note if held else "", change, shares)
    return Fitting()


def _ran_out(case: RunCase) -> bool:
    """Whether memory is what the run complains of, and a message says that it ran out."""
    return "memory" in case.symptoms and any(f.name == "oom" for f in case.figures)


def out_of_memory(case: RunCase, named: Sequence[NamedCause], fit: Fitting) -> OutOfMemory | None:
    """Put together what message and planner say; None where no memory ran out.

    `named`: the causes, of which a likely one's remedy is the first thing to do.
    """
    n = case.log_number
    if not _ran_out(case):
        return None
    first = [c.remedy for c in named[:1] if c.probability > LIKELY and c.group == "memory"]
    first = [*([fit.change] if fit.change else []), *first]
    total, allocated = n("gpu_memory"), n("oom_allocated")
    spare, free, asked = n("oom_reserved_unallocated"), n("oom_free"), n("oom_request")
    if spare is None and (reserved := n("oom_reserved")) is not None and allocated is not None:
        spare = max(0.0, reserved - allocated)
    rest = 0.0
    if total is not None and allocated is not None and free is not None:
        rest = total - allocated - (spare or 0.0) - free
    needed, room = n("kv_needed"), n("kv_memory")
    said = {
        "allocated by PyTorch": allocated,
        "reserved, not allocated": spare,
        "outside PyTorch (context, NCCL, other processes)": rest if rest > 0 else None,
        "free": free,
        "cache of one longest request": needed,
        "room for the cache": room if case.log_text("start_refused") else None,
    }
    parts = tuple(PeakPart(part, value) for part, value in said.items() if value is not None)
    short = max(0.0, asked - free) if asked is not None and free is not None else None
    if short is None and needed is not None and room is not None:
        short = max(0.0, needed - room)
    short = n("oom_short") or short
    changes = (*first, *_changes(case, asked, spare, total))
    return OutOfMemory(parts, asked, short, spare, changes, fit.held)


LIKELY = 0.35
"""Probability of a cause from which its remedy comes first."""


def _changes(
    case: RunCase, asked: float | None, spare: float | None, total: float | None
) -> tuple[str, ...]:
    """Smallest changes first."""
    cut = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: as much is reserved"
    found = [cut] if asked and spare and spare > asked else []
    if why := case.log_text("start_refused"):
        most = case.log_number("most_model_len")
        length = f"--max-model-len {most:.0f}" if most else "--max-model-len"
        cache = f"{length}; --kv-cache-dtype fp8; more GPUs (--tensor-parallel-size)"
        return (*found, load_table("_known")["refused"].get(why, cache))
    if case.kind == "serving":
        return (*found, "--gpu-memory-utilization 0.85; --max-num-seqs 64; --enforce-eager")
    micro, recompute = case.number("micro_batch"), case.settings.get("recompute", "").lower()
    half = f"{max(1, int(micro // 2))}" if micro else "half"
    wide = bool(asked and total and asked > 0.03 * total)
    changes = {
        "gradient checkpointing on (recompute full)": recompute not in ("full", "true"),
        f"micro-batch {half}, twice the accumulation": micro is None or micro > 1,
        "fused or chunked cross entropy, if the block is tokens x vocabulary": wide,
        "a higher ZeRO stage (FSDP)": (case.gpus or 1) > 1 and case.number("zero") != 3,
        "8-bit optimizer or adapters": True,
    }
    return (*found, *(change for change, helps in changes.items() if helps))


LEAST = 0.04
"""A cause less likely than this is not named."""
SURE = 0.45
"""A first cause less likely than this leaves a question to be asked."""
CERTAIN = 0.8
"""A first cause less likely than this is asked the planner of, where model and GPU are said."""
COSTS = {"arithmetic": 0.2, "line": 0.4, "unit": 1.5, "run": 1.5}
"""Effort of a test, relative: a line of the log is at hand, a run takes minutes of all GPUs."""
EFFORT = 4.0
"""Effort of any test beside that of its kind: to set it up, to wait, to read it."""
ASKER_SPREAD = 0.35
"""Standard deviation of ln of what people expect."""
NO_MODEL = "which model it is (--model), on which GPUs (--gpu, --gpus): what it takes there decides"
NO_GPU = "which GPU it is (--gpu): what the same job takes there decides first"
NO_BATCH = "how many sequences a step has (--global-batch), and how long they are (--seq-len)"
NO_FIGURE = 0.6
AS_TOLD, BETTER = 1.3, 0.4
"""Times worse than the planner says up to which a run is as it was told to be; below the second it
is another job than was told."""
BEYOND = 1.1
"""Times beyond the planner's interval from which a figure is out of reach."""
LAID_OUT = (("pipeline-bubble", "bubble"), ("tiny-batch", "tokens_per_replica"))
"""Causes that are in the planner's figure where the feature is told."""
COUNTED = ("mfu", "tflops_per_gpu")
"""Figures with a count of FLOP in them: that the planner agrees speaks for figure and count."""
MOST_SHOWN = 64


@dataclass(frozen=True)
class Answered:
    """What the document shows."""

    asked: Diagnose
    case: RunCase
    diagnosis: records.Diagnosis
    features: Features


def diagnosed(asked: Diagnose) -> Answered:
    """Judge a run."""
    case = with_figure(read_case(asked))
    past = past_of(case.logs)
    fit = fitting(case)
    features = {**features_of(case, past.features), **fit.shares}
    causes = load_causes()
    model, factors = predicted(case, {c.word: c for c in causes})
    if "bubble" in features:
        factors = {**factors, "pipeline-bubble": 1 / (1 - float(features["bubble"]))}
    if model is not None and model.ratio > AS_TOLD:  # what its layout costs is in what it says
        factors = {**factors, **dict.fromkeys((w for w, f in LAID_OUT if f in features), 1.0)}
    wanted, held = case.log_number("max_model_len"), case.log_number("most_model_len")
    if wanted and held:  # the engine says both
        factors = {**factors, "kv-cache-small": wanted / held}
    if model is not None:
        _hold_against(model, case, features)
    ratio, spread = _ratio(case, model, asked="ratio" in features)
    judged, pairs = judge(
        causes,
        features=features,
        symptoms=case.symptoms,
        kind=case.kind,
        ratio=ratio,
        spread=spread,
        models=factors,
        as_told="ratio" not in features and "as_told" in features,
    )
    verdict, share = verdict_of(judged)
    compared = ratio is not None or any(f.expected_text for f in case.figures)
    of = [j for j in (judged[:NAMED] if case.figures else judged) if j.speaks_for]
    told = any(j.verdict == verdict for j in of)
    if not told and verdict == "normal" and model and model.ratio > 1 and not model.inside:
        verdict, share = "fault", 1.0 - share  # worse than the interval, and nothing excuses it
    leading = sorted(judged[:NAMED], key=lambda j: j.verdict != verdict)
    named = _named(case, leading, model, factors)
    if not (told or compared):
        verdict, share = "unknown", 0.0  # how often each is the cause is no answer about this run
        named = ()
    test = _next_test(judged, verdict) if verdict != "unknown" else None
    together = next((words for words, p in pairs if p > 0.2), ())
    diagnosis = records.Diagnosis(
        verdict=verdict,
        probability=share,
        verdicts=verdicts(judged),
        kind=case.kind,
        symptoms=tuple(sorted(case.symptoms)),
        causes=named,
        together=together,
        next_test=test,
        asks=_asks(case, judged, features),
        ratio=case.main.ratio if case.main else None,
        predicted=model,
        out_of_memory=out_of_memory(case, named, fit),
        events=tuple(past.events),
        logs=tuple(_log(log) for log in case.logs),
        headline="",
    )
    return Answered(asked, case, diagnosis, features)


def _hold_against(p: records.Predicted, case: RunCase, features: Features) -> None:
    """Put to the features what the planner says of figure and wish.

    More than it allows was expected of a run that does as it says: the wish counts no more.
    """
    features["model_ratio"] = p.ratio
    if BETTER < p.ratio < 1 or (p.ratio < AS_TOLD and p.inside):
        features["as_told"] = "yes"
    if p.quantity not in COUNTED and "expected_text" in features:
        features["model_time_ratio"] = p.ratio
    figure = next((f for f in case.figures if f.name == p.quantity), None)
    if figure is None or not figure.expected or not p.inside:
        return
    less, wish = figure.quantity.less_is_better, figure.expected
    if (wish < p.low / BEYOND) if less else (wish > p.high * BEYOND):
        features["unreachable"] = "yes"
        features.pop("ratio", None)


def _ratio(
    case: RunCase, model: records.Predicted | None, asked: bool
) -> tuple[float | None, float]:
    """Weigh model and asker: (times worse than it should be, spread of its logarithm)."""
    figure = case.main
    parts: list[tuple[float, float]] = []
    if figure is not None and figure.ratio is not None and figure.ratio > 0 and asked:
        parts.append((math.log(figure.ratio), ASKER_SPREAD))
    if model is not None and model.ratio > 0:
        wide = math.log(model.high / model.low) / 2 / Z80
        parts.append((math.log(model.ratio), max(0.1, wide)))
    if not parts:
        return None, NO_FIGURE
    weight = math.fsum(1 / s**2 for _, s in parts)
    mean = math.fsum(m / s**2 for m, s in parts) / weight
    return math.exp(mean), weight**-0.5


def _named(
    case: RunCase, judged: list[Judged], model: records.Predicted | None, factors: dict[str, float]
) -> tuple[records.NamedCause, ...]:
    found: list[records.NamedCause] = []
    families = load_table("_words")["families"].items()
    for j in judged[:NAMED]:
        if j.probability < LEAST and found:
            break
        c, alone = j.cause, None
        family = first_of({f: w for f, w in families if f in c.words}, case.said)
        if model is not None and c.verdict == "fault":
            less = model.quantity in ("step_time", "ttft", "tpot", "itl")
            usual = j.size if j.probability > SURE else math.sqrt(c.size[0] * c.size[1])
            factor = factors.get(c.word) or usual
            alone = model.value * factor if less else model.value / factor
        found.append(
            made_of(
                records.NamedCause,
                j,
                c,
                cause=c.word,
                explains_factor=j.size,
                low_factor=c.size[0],
                high_factor=c.size[1],
                gain_frac=1 - 1 / j.size if c.verdict == "fault" else 0.0,
                remedy=f"{c.words[family]} ({c.remedy})" if family else c.remedy,
                test_cost=c.cost,
                predicted=alone,
            )
        )
    return tuple(found)


def _next_test(judged: list[Judged], verdict: str) -> records.Test | None:
    """Test that finds the cause soonest for its cost: a test of one cause says yes or no to it."""
    likely = [j for j in judged[:6] if j.probability >= 0.02]
    if not likely:
        return None
    of = [j for j in likely if verdict in (j.verdict, j.cause.verdict)]
    best = max(of or likely, key=lambda j: j.probability / (EFFORT + COSTS[j.cause.cost]))
    p = min(max(best.probability, 1e-6), 1 - 1e-6)
    known = -p * math.log(p) - (1 - p) * math.log(1 - p)  # the entropy of its answer
    others = [j.cause.word for j in likely if j is not best][: NAMED - 1]
    outcomes = [records.Outcome(best.cause.word, best.cause.shows_if)]
    outcomes += [records.Outcome(word, best.cause.shows_else) for word in others]
    return records.Test(best.cause.test, best.cause.cost, known, tuple(outcomes))


def _asks(case: RunCase, judged: list[Judged], features: Features) -> str:
    """Say the one thing that is unknown and that the leading causes' signs depend on most."""
    unsure = not judged or judged[0].probability < CERTAIN
    compared = case.main is None or case.main.ratio is not None
    if unsure and not compared and not {"memory", "network"} & case.symptoms:
        if not (case.params or case.number("width")):
            return NO_MODEL
        if not (case.gpu_name or case.cluster):
            return NO_GPU
        batch = case.number("global_batch") or case.number("micro_batch") or case.number("batch")
        if case.main and case.main.name in ("step_time", "steps_per_s") and not batch:
            return NO_BATCH
    if not judged or judged[0].probability >= SURE:
        return ""

    def weight(names: list[str]) -> float:
        return math.fsum(
            j.probability
            * max((s.strength for s in j.cause.signs if s.feature in names), default=0)
            for j in judged[:6]
        )

    asks = [(text, names.split()) for text, names in load_table("_known")["asks"].items()]
    open_ = [(weight(names), text) for text, names in asks if not features.keys() & set(names)]
    best, text = max(open_, default=(0.0, ""))
    return text if best else ""


def _log(log: Log) -> records.LogRead:
    series = []
    for (run, rank, name), track in log.tracks.items():
        if (s := track.series).n < 2:
            continue
        steady, cut = s.steady(), slice(None, None, max(1, len(s.values) // MOST_SHOWN))
        more = {"n": s.n, "steps": tuple(s.steps[cut]), "values": tuple(s.values[cut])}
        more |= {"name": name, "run": run, "rank": rank, "n_warm_up": steady.skipped}
        series.append(made_of(records.SeriesRead, steady, track, **more))
    return records.LogRead(
        log.name,
        programs=tuple(sorted(log.programs, key=lambda p: -log.programs[p])),
        n_lines=log.lines,
        n_bytes=log.bytes_,
        n_runs=log.runs,
        repeated_lines_read_1_in=log.thinned,
        facts=tuple(log.all()),
        series=tuple(series),
    )
