"""A run against its own past: warm-up, stalls, saves, drifts, growing memory, slow ranks."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gpuscale.answers.diagnose.records import RunEvent
from gpuscale.core.diagnosis import series
from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.diagnose.judged import Answered


TIMES = ("step_time", "rank_time", "forward_backward")
RATES = ("tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "steps_per_s", "tflops_per_gpu")
MEMORIES = ("memory_reserved", "memory_allocated", "memory_active", "host_memory")
DRIFT = 1.08
"""Times that each quarter of the steps is longer than the one before, where they drift."""
NEAR = 2
"""Steps behind a save in which a slow step is its doing."""


@dataclass
class Past:
    """What the series show."""

    features: dict[str, str | float] = field(default_factory=dict)
    events: list[RunEvent] = field(default_factory=list)


def past_of(logs: Sequence[series.Log]) -> Past:
    """Look through the series of all logs."""
    past = Past()
    for log in logs:
        _times(log, past)
        _memory(log, past)
        _ranks(log, past)
        _loading(log, past)
    return past


def _timed(log: series.Log) -> tuple[series.Track, list[float]] | None:
    """Track of the steps, as times: of rates the inverse."""
    for name in (*TIMES, *RATES):
        track = log.track(name)
        if track is not None and track.series.n >= 3:
            values = track.series.values
            if name in TIMES:
                return track, list(values)
            if all(v > 0 for v in values):
                return track, [1 / v for v in values]
    return None


def _times(log: series.Log, past: Past) -> None:
    found = _timed(log)
    if found is None:
        return
    track, times = found
    steps = track.series.steps
    k = series.warm_up(times, track.series.skip)
    level = statistics.median(times[k:])
    k = next((i for i in range(k) if times[i] < level), k)  # a warm-up is longer, never shorter
    steady = times[k:]
    middle = statistics.median(steady)
    past.features["steps_read"] = float(len(steady))
    if k and middle > 0:
        past.features["first_over_steady"] = times[0] / middle
        if times[0] > 1.5 * middle:
            longer = f"{times[0] / middle:.3g} times longer"
            text = f"first {k} of the printed steps are warm-up: {longer}"
            past.events.append(RunEvent("warm-up", text, steps[0]))
    if len(steady) >= 8 and middle > 0:
        past.features["mean_over_median"] = statistics.fmean(steady) / middle
    n = len(steady)
    parts = pairwise(i * n // 4 for i in range(5)) if n > 7 else ()
    quarters = [statistics.median(steady[a:b]) for a, b in parts]
    if quarters and all(b > DRIFT * a for a, b in pairwise(quarters)):
        past.features["worsens"] = "yes"
        ends = (f"{q / middle:.2g}" for q in (quarters[0], quarters[-1]))
        text = f"steps grow from {' to '.join(ends)} of their median"
        past.events.append(RunEvent("drift", f"{text}, without a restart", steps[k]))
        return
    if slow := series.stalls(steps[k:], steady):
        _stalls(log, slow, past)
    if moved := series.shift(steps[k:], steady):
        worse = moved.after / moved.before
        word = "slower" if worse > 1 else "faster"
        if worse > 1:
            past.features["shifted"] = "yes"
        text = f"from step {moved.step:g} on {abs(worse - 1) * 100:.0f} % {word}, without a restart"
        past.events.append(RunEvent("shift", text, moved.step))


AFTER = (("save", "save_share"), ("evaluation", "eval_share"))
"""What slow steps may come after, and the feature of its share."""
LONE_SHARE = 0.05
"""Share of the time that long steps without a rhythm must take to be said."""
MOST_AFTER = 0.6
"""Share of those that a slow step must follow; of slow steps, half as many without a rhythm."""


def _stalls(log: series.Log, slow: series.Stalls, past: Past) -> None:
    """Say what the slow steps come after, or their rhythm."""
    which = ", ".join(f"{s:g}" for s in slow.steps[:5]) + (" ..." if len(slow.steps) > 5 else "")
    share = f"{100 * slow.share_frac:.0f} % of the time"
    for kind, feature in AFTER:
        at = [step for what, step, _ in log.events if what == kind]
        behind = [s for s in slow.steps if any(0 <= s - e <= NEAR for e in at)]
        met = sum(any(0 <= s - e <= NEAR for s in behind) for e in at)
        least = MOST_AFTER if slow.period else MOST_AFTER / 2
        if behind and met >= MOST_AFTER * len(at) and len(behind) >= least * len(slow.steps):
            past.features |= {f"stall_at_{kind}s": "yes", feature: slow.share_frac}
            past.events.append(RunEvent(kind, f"steps after it are longer ({which}): {share}"))
            return
    if slow.share_frac > (0.01 if slow.period else LONE_SHARE):
        past.features["stall_regular"] = "yes" if slow.period else "no"
        if slow.period:
            past.features.setdefault("data_share", slow.share_frac)
        rhythm = f"every {slow.period:g} steps" if slow.period else "without a rhythm"
        text = f"long steps {rhythm} ({which}): {share}"
        past.events.append(RunEvent("stall", text, slow.steps[0]))


def _memory(log: series.Log, past: Past) -> None:
    for name in MEMORIES:
        track = log.track(name)
        if track is None or track.series.n < 8:
            continue
        s = track.series
        rise = series.growth(s.steps, s.values)
        past.features["memory_grows"] = "yes" if rise else past.features.get("memory_grows", "no")
        if rise:
            span = f"from {s.values[0] / 1e9:.4g} to {s.values[-1] / 1e9:.4g} GB"
            text = f"{name.replace('_', ' ')} rises {span}, {rise / 1e6:.3g} MB a step"
            past.events.append(RunEvent("memory grows", text))


def _ranks(log: series.Log, past: Past) -> None:
    for name in (*TIMES, *RATES):
        by_rank: dict[int, float] = {}
        for (_, rank, key), track in log.tracks.items():  # the last run's stand last
            if key == name and rank is not None and (value := track.series.steady().median) > 0:
                by_rank[rank] = value if name in TIMES else 1 / value
        if len(by_rank) < 3:
            continue
        slow = series.slow_rank(by_rank)
        past.features["slow_rank"] = "yes" if slow else "no"
        if slow:
            text = f"rank {slow[0]} takes {slow[1]:.3g} times as long as the others"
            past.events.append(RunEvent("slow rank", text))
        return


def _loading(log: series.Log, past: Past) -> None:
    data = log.track("data_time") or log.track("loader")
    whole = log.track("step_time") or log.track("update_time") or log.track("forward_backward")
    if data is not None and whole is not None:
        values, rest = data.series.values, whole.series.values
        mean = statistics.fmean(values)
        beside = 0.0 if log.track("step_time") else mean  # an update does not hold its loading
        share = mean / (statistics.fmean(rest) + beside)
        past.features["data_share"] = min(1.0, share)
        if share > 0.05:
            taken = f"{100 * min(1.0, share):.0f} % of the time, {max(values):.3g} s at most"
            past.events.append(RunEvent("loading", f"loading takes {taken}"))
    elif (percent := log.number("data_time_percent")) is not None:
        past.features["data_share"] = percent


OF_STEP = ("step_time", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "steps_per_s")


def calibration_of(a: Answered) -> tuple[str, str]:
    """(text of the calibration, what it holds); runs of the file are averaged with this one.

    Raises GpuscaleError where the planner says nothing of this job's step.
    """
    from gpuscale.evidence.fit_site import SITE_RANGE
    from gpuscale.io.calibration import load_calibration
    from gpuscale.io.toml_out import table_to_toml

    assert a.asked.save is not None
    p = a.diagnosis.predicted
    if p is None or p.quantity not in OF_STEP:
        raise GpuscaleError(
            "--save needs a training step that the model covers",
            "give model, GPUs, batch and sequence length, and the step time or tokens/s",
        )
    old = load_calibration(a.asked.save) if os.path.isfile(a.asked.save) else {}
    site = old.get("site", {})
    n = int(site.get("n_rows", 0))
    before, own = float(site.get("step_time_factor", 1.0)), p.ratio * p.over_tuned
    factor = math.exp((math.log(before) * n + math.log(own)) / (n + 1))
    if not SITE_RANGE[0] <= factor <= SITE_RANGE[1]:
        raise GpuscaleError(
            f"the run takes {factor:.3g} times the expected time: that is no matter of a site",
            "mend its cause first",
        )
    table = {
        "step_time_factor": float(f"{factor:.4g}"),
        "n_rows": n + 1,
        "source": f"gpuscale diagnose: {p.by}",
    }
    said = f"{n + 1} run{'s' if n else ''}, {factor:.3g} times a tuned job's time"
    if n:
        said += f"; this one is {_off(p.ratio)} off the plan as it comes, {_off(own / before)} off "
        said += "by the runs before it"
    return table_to_toml({"made_by": "gpuscale diagnose", **old, "site": table}), said


def _off(ratio: float) -> str:
    return f"{100 * (max(ratio, 1 / ratio) - 1):.0f} %"
