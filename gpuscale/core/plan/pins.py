"""Dimensions pinned or ranged by a person, put into the space that is searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, product
from operator import itemgetter
from typing import Any

from gpuscale.core import rules
from gpuscale.core.layout import CONTEXT_KINDS, DEFAULT_CONTEXT, ORDERS, RECOMPUTE
from gpuscale.core.records import replace
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.search.space import VPP, Space, divisors

MAX_VALUES = 4096


def select_ints(text: str, candidates: Sequence[int]) -> tuple[int, ...]:
    """Read integers pinned or ranged by a person.

    A list (``1,3``) or a single value is taken as it stands; a range (``4..16``) keeps the
    candidates inside it, both ends included. Parts can be mixed: ``1,4..16``.

    Raises ValueError if a part is no positive integer or range, or nothing is left.

    >>> select_ints("4..16", (1, 2, 4, 8, 16, 32))
    (4, 8, 16)
    >>> select_ints("1,3", (1, 2))
    (1, 3)
    """
    chosen: list[int] = []
    for part in (p.strip() for p in text.split(",")):
        low, dots, high = part.partition("..")
        if dots:
            first, last = _integer(low, part), _integer(high, part)
            if first > last:
                raise ValueError(f"range {part!r} is empty: write the smaller number first")
            chosen += [c for c in candidates if first <= c <= last]
        else:
            chosen.append(_integer(part, part))
    if not chosen:
        shown = ", ".join(map(str, candidates[:12]))
        raise ValueError(f"{text!r} leaves nothing; possible values here are {shown}")
    return tuple(sorted(set(chosen)))[:MAX_VALUES]


def _integer(text: str, part: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{part[:30]!r} is no whole number; write 8, or 1,3, or 4..16")
    return int(text)


def select_names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Read names out of `known`, comma-separated; ``all`` means every one.

    Raises ValueError if a name is not known; the message lists those that are.

    >>> select_names("none,full", ("none", "selective", "full"))
    ('none', 'full')
    """
    if text.strip() == "all":
        return tuple(known)
    names = tuple(dict.fromkeys(p.strip() for p in text.split(",")))
    for name in names:
        if name not in known:
            raise ValueError(f"{name[:30]!r} is not one of {', '.join(known)}")
    return names


INTS = {
    "tp": "tp",
    "cp": "cp",
    "pp": "pp",
    "dp": "dp",
    "ep": "ep",
    "etp": "etp",
    "vpp": "vpp",
    "micro_batch": "micro_batch_size",
    "zero": "zero_stage",
    "shard_group": "shard_group_size",
    "recompute_layers": "recompute_layers",
}
"""Flag -> field of `Space`, whole numbers."""

MOVED = {
    "none": (False, False),
    "optimizer": (True, False),
    "activations": (False, True),
    "both": (True, True),
}
"""Name -> whether the optimizer and whether activations are on the host."""

NAMES: dict[str, Sequence[str]] = {
    "cp_kind": tuple(CONTEXT_KINDS),
    "recompute": RECOMPUTE,
    "schedule": tuple(s.name for s in SCHEDULES.values() if s.searched),
    "offload": tuple(MOVED),
    "order": ORDERS,
}
"""Flag -> names to choose from."""

SWITCHES = ("sequence_parallel", "overlap_tp", "overlap_dp", "overlap_pp")
"""Flags that are on, off or both."""

FLAGS = (*INTS, *NAMES, *SWITCHES)

MOST_TRIED = 20_000


def pin_space(
    space: Space, pins: Mapping[str, str], facts: rules.RuleFacts
) -> tuple[Space, tuple[str, ...]]:
    """Put pins into a space.

    `space`: default space of the job. `pins`: flag name (`FLAGS`) to text: ``8``, ``1,3``,
    ``4..16``, ``none,full``, ``on``. `facts`: of the job. Returns: the pinned space, and one line
    for each value that was left out as impossible. Raises ValueError if a text cannot be read, or
    no value of a pin is possible; the message says why.

    ``vpp`` above 1 means the interleaved schedule, ``shard_group`` ZeRO-3 in groups of that size,
    ``recompute_layers`` full recomputation of so many layers of a stage.
    """
    changed: dict[str, Any] = {}
    left_out: list[str] = []
    for flag, text in pins.items():
        if flag in SWITCHES:
            changed[flag] = _switch(flag, text)
        elif flag == "offload":
            names, _ = _possible(flag, _read(flag, select_names, text, NAMES[flag]), facts)
            moved = zip(*(MOVED[n] for n in names), strict=True)
            optimizer, activations = (tuple(dict.fromkeys(m)) for m in moved)
            if len(activations) > 1:
                raise ValueError("--offload: activations move or not: `none,optimizer`, or `both`")
            changed |= {"offload_optimizer": optimizer, "offload_activations": activations}
        elif flag in NAMES:
            names = _read(flag, select_names, text, NAMES[flag])
            changed[flag], reasons = _possible(flag, names, facts)
            left_out += reasons
        else:
            values = _read(flag, select_ints, text, _candidates(flag, space, facts))
            changed[INTS[flag]], reasons = _possible(flag, values, facts)
            left_out += reasons
    changed.update(_implied(pins, changed, space))
    asked = replace(space, **changed)
    alone = min(asked.tp) * min(asked.pp) == facts.n_gpus or facts.global_batch_size == 1
    if "zero" in pins and 0 not in asked.zero_stage and asked.dp != (1,) and not alone:
        asked = replace(asked, sharded=True)
    return asked, tuple(left_out)


def _read(flag: str, read: Callable[..., Any], text: str, known: Sequence[Any]) -> tuple[Any, ...]:
    try:
        values: tuple[Any, ...] = read(text, known)
    except ValueError as error:
        raise ValueError(f"--{flag.replace('_', '-')}: {error}") from None
    return values


def _switch(flag: str, text: str) -> tuple[bool, ...]:
    values = {"on": (True,), "off": (False,), "both": (True, False)}
    try:
        return values[text.strip().lower()]
    except KeyError:
        name = flag.replace("_", "-")
        raise ValueError(f"--{name}: {text[:30]!r} is not one of on, off, both") from None


def _candidates(flag: str, space: Space, facts: rules.RuleFacts) -> Sequence[int]:
    """Values that a range selects from."""
    if flag == "vpp":
        return (1, *VPP)
    if flag == "dp":
        return divisors(facts.n_gpus)
    if flag in ("pp", "tp", "cp"):
        return [d for d in divisors(facts.n_gpus) if not _alone(flag, d, facts)]
    if flag == "etp":
        return [1 << i for i in range(7)]
    if flag == "recompute_layers":
        return range(1, facts.n_layers + 1)
    if flag == "zero":
        return facts.runs_on.zero_stages
    found: Sequence[int] = getattr(space, INTS[flag])
    return found


def _alone(flag: str, value: Any, facts: rules.RuleFacts) -> str:
    """Reason against one value whatever the others are; empty if there is none."""
    if flag in INTS and value < 1 and flag != "zero":
        return f"{flag} must be at least 1"
    if flag in ("tp", "cp", "pp", "dp", "shard_group") and facts.n_gpus % value:
        return f"{flag}={value} does not divide {facts.n_gpus:,} GPUs"
    if flag == "zero" and value > 3:
        return f"zero={value} is not one of 0, 1, 2, 3"
    broken = _AGAINST[flag](value, facts)
    return broken.message if broken else ""


def _cp_alone(cp: int, facts: rules.RuleFacts) -> rules.Broken | None:
    broken = [
        rules.against_cp(cp, k, 1, facts) for k in facts.runs_on.cp_kinds or (DEFAULT_CONTEXT,)
    ]
    return None if None in broken else broken[0]


def _kind_alone(kind: str, facts: rules.RuleFacts) -> rules.Broken | None:
    soft = facts.runs_on
    why = f"{soft.name} has no context parallelism by {kind}"
    return None if kind in soft.cp_kinds else rules.Broken("cp-kind", why)


def _schedule_alone(name: str, facts: rules.RuleFacts) -> rules.Broken | None:
    soft = facts.runs_on
    if name == "1f1b" or (soft.pipeline and name in soft.schedules):
        return None
    why = f"{soft.name} has no {name} schedule: it has {', '.join(soft.schedules)}"
    return rules.Broken("schedule", why) if soft.pipeline else rules.against_pp(2, 1, facts)


_AGAINST: dict[str, Callable[[Any, rules.RuleFacts], rules.Broken | None]] = {
    "tp": rules.against_tp,
    "cp": _cp_alone,
    "pp": lambda pp, facts: rules.against_pp(pp, 1, facts),
    "vpp": lambda vpp, facts: rules.against_pp(2, vpp, facts) if vpp > 1 else None,
    "dp": lambda dp, facts: _said(rules.against_batch(1, dp, facts), "dp"),
    "micro_batch": lambda b, facts: _said(rules.against_batch(b, 1, facts), "micro_batch_size"),
    "ep": lambda ep, facts: rules.against_ep(ep, 1, 1, 1, ep, facts),
    "etp": lambda etp, facts: rules.against_ep(1, etp, etp, 1, 1, facts),
    "zero": lambda stage, facts: rules.against_zero(stage, None, 1, 2, 1, facts),
    "shard_group": lambda group, facts: rules.against_zero(3, group, 1, group, 1, facts),
    "recompute": lambda mode, facts: rules.against_recompute(mode, None, facts),
    "recompute_layers": lambda n, facts: rules.against_recompute("full", n, facts),
    "cp_kind": _kind_alone,
    "schedule": _schedule_alone,
    "offload": lambda name, facts: rules.against_offload(*MOVED[name], facts),
    "order": rules.against_order,
}
"""Flag -> rule that one value of it breaks whatever the others are."""


def _said(broken: rules.Broken | None, name: str) -> rules.Broken | None:
    """Rule of the batch with the one degree that is meant."""
    if broken is None:
        return None
    return broken._replace(message=broken.message.replace("dp*micro_batch_size", name))


def _possible(
    flag: str, values: tuple[Any, ...], facts: rules.RuleFacts
) -> tuple[tuple[Any, ...], list[str]]:
    reasons = {v: _alone(flag, v, facts) for v in values}
    kept = tuple(v for v in values if not reasons[v])
    if not kept:
        raise ValueError(next(iter(reasons.values())))
    return kept, [f"left out: {r}" for r in reasons.values() if r]


def _implied(pins: Mapping[str, str], changed: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Tell what a pin means for dimensions that are not pinned themselves."""
    more: dict[str, Any] = {}
    if "vpp" in pins:
        wanted = changed["vpp"]
        schedules = changed.get("schedule", space.schedule)
        if 1 not in wanted:
            more["schedule"] = tuple(s for s in schedules if s == "interleaved")
            if not more["schedule"]:
                raise ValueError("--vpp above 1 needs --schedule interleaved")
        elif wanted == (1,):
            more["schedule"] = tuple(s for s in schedules if s != "interleaved")
            if not more["schedule"]:
                raise ValueError("--schedule interleaved needs --vpp of at least 2")
        more["vpp"] = tuple(v for v in wanted if v > 1)
        more["even_chunks"] = False
    if "shard_group" in pins:
        more["fsdp"] = False
        if "zero" not in pins:
            more["zero_stage"] = (3,)
    if pins.get("recompute") == "full" and "recompute_layers" not in pins:
        more["recompute_layers"] = ()  # a person who says full means every layer
    if "recompute_layers" in pins:
        more["whole_recompute"] = False
        if "recompute" not in pins:
            more["recompute"] = ("full",)
    return more


def why_empty(space: Space, facts: rules.RuleFacts) -> str:
    """Reason why a pinned space holds no layout: that of the combination that came furthest.

    >>> from gpuscale.core.search.space import default_space
    >>> f = rules.RuleFacts(32, (32,), (8,), (14336,), (), 0, 8192, 512, 64)
    >>> pinned, _ = pin_space(default_space(f, 8), {"tp": "8", "pp": "2", "dp": "8"}, f)
    >>> why_empty(pinned, f)
    'tp*pp*dp=128 does not divide 64 GPUs'
    """
    if len(space.tp) == len(space.pp) == len(space.dp) == 1:
        fixed = space.tp[0] * space.pp[0] * space.dp[0]
        if facts.n_gpus % fixed:
            return f"tp*pp*dp={fixed} does not divide {facts.n_gpus:,} GPUs"
        if facts.n_gpus // fixed not in space.cp:
            return (
                f"tp*pp*dp={fixed} leaves cp={facts.n_gpus // fixed} of {facts.n_gpus:,} GPUs; "
                f"possible are cp={', '.join(map(str, space.cp))}"
            )
    none = (-1, "no layout meets all pinned values together")
    return max((none, *islice(_reasons(space, facts), MOST_TRIED)), key=itemgetter(0))[1]


def _reasons(space: Space, facts: rules.RuleFacts) -> Iterable[tuple[int, str]]:
    """(how far a combination came, what stopped it)."""
    n, refused = facts.n_gpus, facts.settings.refused_by
    for tp, cp, pp in product(space.tp, space.cp, space.pp):
        width = tp * cp * pp
        dp, rest = divmod(n, width)
        if rest:
            yield 1, f"tp*cp*pp={width} does not divide {n:,} GPUs"
            continue
        if space.dp and dp not in space.dp:
            yield 0, f"tp*cp*pp={width} leaves dp={dp}, which is pinned to another value"
            continue
        reasons = [
            all_or_none(rules.against_cp(cp, kind, tp, facts) for kind in space.cp_kind),
            all_or_none(
                rules.against_sequence_parallel(on, tp, cp, facts) for on in space.sequence_parallel
            ),
            all_or_none(rules.against_batch(b, dp, facts) for b in space.micro_batch_size),
            all_or_none(
                rules.against_ep(ep, etp or tp, tp, cp, dp, facts)
                for ep, etp in product(space.ep, space.etp)
            ),
            all_or_none(
                rules.against_schedule(s, v, pp, max(1, facts.global_batch_size // (dp * b)), facts)
                for b in space.micro_batch_size
                for s in space.schedule
                for v in (space.vpp if s == "interleaved" else (1,))
            ),
            all_or_none(rules.against_zero(z, None, pp, dp, cp, facts) for z in space.zero_stage),
            all_or_none(
                rules.Broken("settings", why) if (why := refused(pp, vpp, ep, mode)) else None
                for vpp in (1, *(space.vpp if "interleaved" in space.schedule else ()))
                for ep, mode in product(sorted(space.ep, reverse=True), space.recompute)
            ),
        ]
        yield from islice(((i, r) for i, r in enumerate(reasons, 2) if r), 1)


def all_or_none(reasons: Iterable[rules.Broken | None]) -> str:
    """Return the first reason if every candidate has one, else nothing.

    >>> a, b = rules.Broken("gpus", "a"), rules.Broken("gpus", "b")
    >>> all_or_none([a, None]), all_or_none([a, b])
    ('', 'a')
    """
    first = ""
    for broken in reasons:
        if broken is None:
            return ""
        first = first or broken.message
    return first
