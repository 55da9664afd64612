"""Causes of a run that looks wrong, and how likely each is for what is known of it.

A cause has a weight (how often it is one), signs (how many times likelier a feature is where it is
the cause) and a range of sizes. The posterior is Bayes' rule over all causes and pairs of them,
with "nothing is wrong" among them; sizes of a pair multiply.

D. J. Spiegelhalter, R. P. Knill-Jones, J. R. Stat. Soc. A 147(1), 1984: weights of evidence add.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import combinations
from typing import ClassVar

from gpuscale.core.bounds import STRICT
from gpuscale.core.numeric import Z80
from gpuscale.core.records import NamedTuple, dataclass, field

Features = Mapping[str, str | float]
"""What is known: a text, or a number in SI units."""

SIZE_TAIL = 0.25
"""Extra spread of ln(size): a range from physics is not exact."""

PAIR = 0.12
"""How often two causes act together, relative to each alone: 9 of the 54 runs of the table."""

MOST_PAIRED = 6
MOST_RATIO = 300.0
"""Times worse beyond which a figure says no more."""

MODEL_EDGE = 1.25
"""Edges of a counterfactual's size, 80 % of cases between them."""

MODEL_SPREAD = 0.25
"""Spread of ln(size) of a counterfactual of the planner."""

ASKED_SPREAD = 0.15
"""Least spread of ln(ratio) of a cause that is it: of 21 published runs with both figures, 18 lost
what they were off to within a tenth."""

MOST_OFF = 12.0
"""Square of the deviations beyond which a size says no more: ranges have tails."""

SPEAKING, DOUBT = 8.0, 3.0
"""Where a fault's own signs are this strong, "nothing is wrong" is that much less likely; where
those of a mistaken figure are, a fault is."""

FLOOR, CEILING = 1e-3, 1e3
"""Signs of one cause together weigh no more than this: wording is never certain."""


class Sign(NamedTuple):
    """A feature that speaks for a cause, or against it."""

    feature: str
    condition: str  # `>n`, `<n`, `a..b` of a number; else a regular expression
    ratio: float = 1.0
    words: str = ""

    @property
    def strength(self) -> float:
        """Size of its weight of evidence, for or against. [nat]."""
        return abs(math.log(self.ratio))

    def holds(self, features: Features) -> str | None:
        """Text of what was found; None where the feature is unknown or is not so."""
        value = features.get(self.feature)
        if value is None:
            return None
        low, dots, high = self.condition.partition("..")
        if isinstance(value, str):
            hit = re.search(self.condition, value, re.IGNORECASE)
            return (hit[0] if self.feature == "said" else value)[:80] if hit else None
        if self.condition[0] == ">":
            met = value > float(self.condition[1:])
        elif self.condition[0] == "<":
            met = value < float(self.condition[1:])
        elif dots and low:
            met = float(low) <= value <= float(high)
        else:
            return None
        return shown(self.feature, value) if met else None


def shown(feature: str, value: float) -> str:
    """Write a feature's value as it is said in a sentence.

    >>> shown("data_share", 0.83), shown("ratio", 2.414), shown("tokens_per_gpu", 2048.0)
    ('83 %', '2.4', '2,048')
    """
    if feature.endswith(("_share", "_util", "_percent", "bubble", "_usage", "_utilization")):
        return f"{100 * value:.3g} %"
    if feature in ("busbw", "message_bytes"):
        return f"{value / 1e9:.3g} GB" + ("/s" if feature == "busbw" else "")
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2g}"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause as the catalogue has it."""

    __pydantic_config__: ClassVar[dict[str, str | bool]] = STRICT

    word: str
    title: str
    group: str
    verdict: str  # "fault" | "normal" | "measurement"
    shows: tuple[str, ...]
    size: tuple[float, float]
    often: float
    cost: str
    test: str
    shows_if: str
    shows_else: str
    remedy: str
    source: str
    kinds: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # features that must not be "no"
    options: Mapping[str, str | bool] = field(default_factory=dict)
    signs: tuple[Sign, ...] = ()
    usual: float = 0.0  # what published runs of it lost, where that is not the middle of `size`
    normal_if: tuple[Sign, ...] = ()  # where what is asked for is so, nothing is wrong
    words: Mapping[str, str] = field(default_factory=dict)  # remedy in a framework's words


@dataclass(frozen=True, slots=True)
class Judged:
    """A cause with its probability for the run at hand."""

    cause: Cause
    probability: float
    size: float  # factor that it is thought to explain
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    verdict: str  # the cause's own, or "normal" where the run is as it was asked for


class _Weighed(NamedTuple):
    """A cause with the logarithm of its weight, all told and by its signs alone."""

    cause: Cause
    score: float
    signs: float
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]


Pair = tuple[tuple[str, str], float]
"""Two causes together, and how likely."""


def _weight(cause: Cause, features: Features) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """(ln of the signs' ratio, what speaks for it, what against)."""
    total = 0.0
    for_: list[str] = []
    against: list[str] = []
    strongest: dict[str, tuple[float, str]] = {}
    for sign in cause.signs:
        found = sign.holds(features)
        if found is None:
            continue
        said = sign.words.format(found) if "{" in sign.words else sign.words
        old = strongest.get(sign.feature)
        if old is None or sign.strength > abs(math.log(old[0])):
            strongest[sign.feature] = (sign.ratio, said)
    special = any(ratio > 1 for name, (ratio, _) in strongest.items() if name != "said")
    for name, (ratio, said) in strongest.items():
        again = name == "said" and ratio > 1 and special  # the words are of the same setting
        total += math.log(ratio) / (2 if again else 1)
        if said:
            (for_ if ratio > 1 else against).append(said)
    return max(math.log(FLOOR) * 2, min(math.log(CEILING), total)), tuple(for_), tuple(against)


def _size_weight(size: tuple[float, float], ratio: float | None, spread: float) -> float:
    """Say how well a range of sizes meets the ratio of measured and expected: a log-likelihood."""
    if ratio is None:
        return 0.0
    low, high = (math.log(max(1.0, s)) for s in size)
    sigma = math.hypot((high - low) / 2 / Z80, SIZE_TAIL, spread)
    off = (math.log(max(ratio, 1 / MOST_RATIO)) - (low + high) / 2) / sigma
    return -min(off * off, MOST_OFF) / 2 - math.log(sigma)


def explained(cause: Cause, ratio: float | None, spread: float, model: float | None) -> float:
    """Factor that a cause is thought to explain: its range, the model and what is missing, weighed.

    Without a counterfactual of its own no cause explains more than what is missing.

    `ratio`: measured over expected, None where no figure is expected. `spread`: of ln(ratio).
    `model`: what the counterfactual says, None without one.
    """
    low, high = (math.log(max(1.0, s)) for s in cause.size)
    middle = math.log(cause.usual) if cause.usual else (low + high) / 2
    parts = [(middle, math.hypot((high - low) / 2 / Z80, SIZE_TAIL))]
    if model is not None and model > 1:
        parts.append((math.log(model), MODEL_SPREAD))
    if ratio is not None:
        parts.append((math.log(min(max(ratio, 1.0), MOST_RATIO)), max(ASKED_SPREAD, spread / 2)))
    total = math.fsum(1 / s**2 for _, s in parts)
    size = math.exp(math.fsum(m / s**2 for m, s in parts) / total)
    return size if model is not None or ratio is None else min(size, max(1.0, ratio))


def judge(
    causes: tuple[Cause, ...],
    features: Features,
    symptoms: frozenset[str],
    kind: str,
    ratio: float | None = None,
    spread: float = 0.3,
    models: Mapping[str, float] | None = None,
    as_told: bool = False,
) -> tuple[list[Judged], list[Pair]]:
    """Judge every cause for what is known: the likeliest first, and the likeliest pairs.

    `causes`: the catalogue. `features`: what is known of the run. `symptoms`: classes of what looks
    wrong, speed, latency, mfu, tflops, memory, network. `kind`: pretrain, finetune, rl, serving,
    network; "" where it is not known. `ratio`: how many times worse than expected. `spread`:
    standard deviation of ln(ratio). `models`: word of a cause -> factor that the planner's
    counterfactual gives it. `as_told`: the planner expects the figure of the job as it was told,
    what its layout costs was asked for.
    """
    found: list[_Weighed] = []
    for cause in causes:
        if not symptoms & set(cause.shows) or (kind and cause.kinds and kind not in cause.kinds):
            continue
        weight, for_, against = _weight(cause, features)
        if not for_ and cause.size[1] <= 1.0:
            continue  # it slows nothing: its own sign alone tells of it
        weight += math.fsum(math.log(FLOOR) for need in cause.needs if features.get(need) == "no")
        size = cause.size
        if models and cause.word in models:
            size = (models[cause.word] / MODEL_EDGE, models[cause.word] * MODEL_EDGE)
        off = max(ratio, 1 / ratio) if ratio and cause.verdict == "measurement" else ratio
        score = math.log(cause.often) + weight + _size_weight(size, off, spread)
        found.append(_Weighed(cause, score, weight, for_, against))
    if not found:
        return [], []
    for speaking, doubted in (("fault", "normal"), ("measurement", "fault")):
        if any(f.signs > math.log(SPEAKING) for f in found if f.cause.verdict == speaking):
            less = {doubted: math.log(DOUBT)}
            found = [f._replace(score=f.score - less.get(f.cause.verdict, 0.0)) for f in found]
    found.sort(key=lambda f: -f.score)
    pairs = _pairs(found[:MOST_PAIRED], ratio, spread)
    top = max([found[0].score, *(score for _, score in pairs)])
    share = {f.cause.word: math.exp(f.score - top) for f in found}
    both = [(words, math.exp(score - top)) for words, score in pairs]
    whole = math.fsum(share.values()) + math.fsum(p for _, p in both)
    for words, p in both:
        for word in words:
            share[word] += p / 2
    judged = []
    for f in found:
        cause, model = f.cause, (models or {}).get(f.cause.word)
        told = as_told and cause.group == "layout"
        factor = model if told and model else explained(cause, ratio, spread, model)
        normal = told or any(s.holds(features) for s in cause.normal_if)
        verdict = "normal" if normal else cause.verdict
        judged.append(
            Judged(
                cause, share[cause.word] / whole, factor, f.speaks_for, f.speaks_against, verdict
            )
        )
    judged.sort(key=lambda j: -j.probability)
    return judged, sorted(((words, p / whole) for words, p in both), key=lambda pair: -pair[1])


def _pairs(found: list[_Weighed], ratio: float | None, spread: float) -> list[Pair]:
    """Pairs of faults that both have signs of their own, where one is not enough: their scores."""
    faults = [f for f in found if f.cause.verdict == "fault" and f.speaks_for and ratio is not None]
    pairs = []
    for a, b in combinations(faults, 2):
        if not set(a.speaks_for) & set(b.speaks_for):
            size = (a.cause.size[0] * b.cause.size[0], a.cause.size[1] * b.cause.size[1])
            score = math.log(PAIR * a.cause.often * b.cause.often / 2) + a.signs + b.signs
            pair = (a.cause.word, b.cause.word)
            pairs.append((pair, score + _size_weight(size, ratio, spread)))
    return pairs


NAMED = 3
"""Causes that are named, and that decide the verdict."""


def verdict_of(judged: list[Judged]) -> tuple[str, float]:
    """Verdict of the likeliest causes, and its share among them.

    The many causes of which nothing speaks carry no more than how often they are it.

    >>> verdict_of([])
    ('unknown', 0.0)
    """
    shares = verdicts(judged[:NAMED])
    whole = math.fsum(shares.values())
    word = max(shares, key=lambda v: shares[v])
    return (word, shares[word] / whole) if whole else ("unknown", 0.0)


def verdicts(judged: list[Judged]) -> dict[str, float]:
    """Probability of each verdict.

    >>> verdicts([])
    {'fault': 0.0, 'normal': 0.0, 'measurement': 0.0}
    """
    found = dict.fromkeys(("fault", "normal", "measurement"), 0.0)
    for j in judged:
        found[j.verdict] += j.probability
    return found
