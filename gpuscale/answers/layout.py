"""The layout that a question gives in full, filled up by habits; what cannot run is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.answers.layout_options import Degrees, said_by_layout
from gpuscale.answers.saved import LAYOUT, OPTIONS
from gpuscale.core import rules
from gpuscale.core.habits import ANY
from gpuscale.core.layout import DEFAULT_CONTEXT, Layout
from gpuscale.core.records import replace
from gpuscale.core.search.space import powers_of_two
from gpuscale.core.settings import NO_SETTINGS, JobSettings
from gpuscale.errors import GpuscaleError, RuleError, unknown_name
from gpuscale.io.software import capabilities_of, load_software, ranks_of, settle

if TYPE_CHECKING:
    from gpuscale.core.rules import Broken, RuleFacts
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


OFFLOADS = ("parameters", "gradients", "optimizer", "activations")
OFFLOADED = {
    "none": (),
    "both": ("optimizer", "activations"),
    "params": ("parameters",),
    **dict.fromkeys(("all", "cpu"), ("parameters", "optimizer")),  # DeepSpeed's two offloads
}


def offloads_of(value: Any) -> tuple[str, ...]:
    """Read `--offload`: parts separated by commas, or a word for several of `OFFLOADED`.

    >>> offloads_of("parameters,optimizer"), offloads_of("none"), offloads_of("cpu")
    (('parameters', 'optimizer'), (), ('parameters', 'optimizer'))
    """
    words = [w.strip() for w in str(value or "none").lower().split(",")]
    if len(words) == 1 and words[0] in OFFLOADED:
        return OFFLOADED[words[0]]
    for word in words:
        if word not in OFFLOADS:
            raise unknown_name("offload", word, OFFLOADS, f"known: {', '.join(OFFLOADS)}, none")
    return tuple(dict.fromkeys(words))


def data_parallel(asked: Degrees, pp: int) -> int:
    """Data-parallel degree from ``dp`` or ``gpus``."""
    if asked.gpus is None:
        return asked.dp or 1
    dp = ranks_of({"tp": asked.tp, "pp": pp, "cp": asked.cp}, asked.gpus)
    if asked.dp not in (None, dp):
        split = asked.tp * pp * asked.cp
        raise GpuscaleError(f"--gpus {asked.gpus} with tp*pp*cp = {split} means dp = {dp}")
    return dp


def shard_group(asked: Degrees, n_shards: int) -> int | None:
    """GPUs of a shard group, which must divide the shards."""
    group = asked.shard_group
    if group is not None and (group > n_shards or n_shards % group):
        raise GpuscaleError(f"--shard-group {group} does not divide dp*cp = {n_shards}")
    return group


NEEDS = {
    "vpp": ("pp",),
    "schedule": ("pp",),
    "cp_kind": ("cp",),
    "sequence_parallel": ("tp",),
    "order": ("tp", "pp", "cp"),
}
"""Options that do nothing unless one of these degrees is above 1."""


def refuse_idle(asked: Degrees) -> None:
    """Refuse options that would do nothing with the degrees as asked."""
    for name, degrees in NEEDS.items():
        idle = all(getattr(asked, d) == 1 for d in degrees)
        if idle and getattr(asked, name) != getattr(type(asked), name):
            needed = " or ".join(f"--{d}" for d in degrees)
            raise GpuscaleError(f"--{name.replace('_', '-')} needs {needed} above 1")


def recompute_of(asked: Degrees) -> str | None:
    """How to recompute as asked: a number of layers means all of each; None: the habit."""
    if asked.recompute_layers and asked.recompute not in (None, "full"):
        raise GpuscaleError(f"--recompute-layers needs --recompute full, not {asked.recompute}")
    return asked.recompute or ("full" if asked.recompute_layers else None)


def experts_split(asked: Degrees, model: ModelSpec, software: SoftwareSpec) -> int | None:
    """TP of the experts: as asked, or that of the rest where the framework has it so."""
    soft = capabilities_of(software)
    biased = any(f.bias for f in model.expert_ffns)
    as_rest = soft.experts_over_data or (soft.experts_as_tp and not biased)
    return asked.etp or (asked.tp if model.has_experts and as_rest else None)


def most_experts_split(
    asked: Degrees, model: ModelSpec, software: SoftwareSpec, layout: Layout
) -> int:
    """Most ranks that a layout's experts may lie on, whole, where nobody said; else as they do."""
    if asked.ep > 1 or asked.etp:
        return layout.ep
    most = min((f.n_experts for f in model.expert_ffns), default=1)
    ways = (replace(layout, ep=n, etp=1) for n in reversed(powers_of_two(most)))
    return next((way.ep for way in ways if is_legal(model, software, way)), layout.ep)


def said_of(asked: Degrees, moved: Collection[str]) -> dict[str, Any]:
    """Fields of a layout as asked, None where nobody says them; `moved`: what is on the host."""
    named = {name: OPTIONS.get(name, (name,))[0] for name in LAYOUT}
    found = {name: getattr(asked, option, None) for name, option in named.items()}
    found |= {name: value == "on" for name, value in found.items() if value in ("on", "off")}
    return found | {f"offload_{part}": part in moved for part in ("optimizer", "activations")}


def layout_of(
    asked: Degrees, seq_len: int, model: ModelSpec, software: SoftwareSpec, stage_batches: int = 1
) -> Layout:
    """Lay a training job out as asked.

    `asked`: the degrees; what is not given is the software's habit. `seq_len`: tokens of a sequence
    [1]. `model, software`: what is trained, and with what. `stage_batches`: micro-batches for each
    stage, where no global batch is given [1]. Raises GpuscaleError for a layout that the framework
    cannot run.
    """
    if software.trainer and asked.tp * asked.pp * asked.ep > 1:
        software = load_software(software.trainer)
    moved = offloads_of(asked.offload)
    if tuned := set(moved) - {"optimizer", "activations"}:
        raise GpuscaleError(f"--offload {min(tuned)} needs --method", "pre-training keeps it")
    said = said_of(asked, moved)
    if asked.pipeline_layout:
        pins = said_by_layout(asked.pipeline_layout, asked.pp if asked.pp > 1 else None)
        said |= {"pp": pins["pp"], "vpp": pins["vpp"]}
    said["recompute"] = recompute_of(asked) or ("selective" if asked.recompute_modules else None)
    said["etp"] = experts_split(asked, model, software)
    dp = data_parallel(asked, said["pp"])
    each = max(stage_batches, 2) if asked.schedule == "dualpipe" else stage_batches
    batch = asked.global_batch or each * dp * (asked.micro_batch or 1) * said["pp"]
    said |= {"seq_len": seq_len, "global_batch_size": batch, "dp": dp}
    again = {"recompute": said["recompute"] or "full"}  # some move activations with it only
    alone = () if asked.etp else ({"etp": 1},)  # where no rank is left for the experts' own TP
    ways = [settle(said | more, software) for more in ({}, again, *alone)]
    layout = next((way for way in ways if is_legal(model, software, way)), ways[0])
    refuse_illegal(model, software, layout, settings=asked.job_settings)
    refuse_settings(software, asked.job_settings)
    return layout


def refusal(broken: Broken, facts: RuleFacts, *, software_alone: bool = False) -> GpuscaleError:
    """Error of a broken rule: what is wrong, and where the rule is from."""
    from gpuscale.meant import packaged

    soft, rule = facts.runs_on, packaged("rules.toml")[broken.rule]
    origin = next((soft.sources[f] for f in rule.get("fields", ()) if f in soft.sources), "")
    source = broken.source or (f"{soft.version}: {origin}" if origin else rule["source"])
    more = "; --software any lays out without a framework's rules" if software_alone else ""
    return RuleError(broken.message, f"rule {broken.rule} ({source}){more}")


def refuse_illegal(
    model: ModelSpec,
    software: SoftwareSpec,
    layout: Layout,
    trained: Mapping[str, Any] = rules.PRETRAINED,
    settings: JobSettings = NO_SETTINGS,
) -> None:
    """Refuse a layout that the framework cannot run, alone or with what is trained and set."""
    soft = capabilities_of(software)
    facts = rules.facts_of(model, layout.seq_len, layout.global_batch_size, layout.n_gpus, soft)
    facts = replace(facts, trained=trained, settings=settings)
    broken = rules.against(layout, facts)
    if broken is not None:
        alone = rules.against(layout, replace(facts, runs_on=ANY)) is None
        raise refusal(broken, facts, software_alone=alone)


def is_legal(
    model: ModelSpec,
    software: SoftwareSpec,
    layout: Layout,
    trained: Mapping[str, Any] = rules.PRETRAINED,
) -> bool:
    """Whether the framework can run a layout, with what is trained."""
    try:
        refuse_illegal(model, software, layout, trained)
    except GpuscaleError:
        return False
    return True


def refuse_settings(software: SoftwareSpec, settings: JobSettings) -> None:
    """Refuse settings that the framework does not have, or that go with no layout."""
    soft = capabilities_of(software)
    why = settings.against(soft) or settings.refused_by(1, 1, 2, "none")
    if settings.bucket_params and not software.bucket_params:
        why = why or f"{soft.name} exchanges gradients layer by layer, in no buckets of a size"
    if why:
        raise GpuscaleError(
            why, f"{soft.version}; --software any lays out without a framework's rules"
        )


def refuse_serving(model: ModelSpec, tp: int, pp: int) -> None:
    """Refuse degrees of a replica that no serving engine can run."""
    facts = rules.facts_of(model, 1, 1, tp * pp)
    broken = rules.against_tp(tp, facts) or rules.against_pp(pp, 1, facts)
    if broken is not None:
        raise refusal(broken, facts)


def refuse_degrees(
    model: ModelSpec, seq_len: int, *, tp: int, pp: int, cp: int, ep: int, dp: int
) -> None:
    """Refuse degrees that no framework can run, whatever batch and schedule are."""
    facts = rules.facts_of(model, seq_len, dp, tp * pp * cp * dp)
    broken = (
        rules.against_tp(tp, facts)
        or rules.against_cp(cp, DEFAULT_CONTEXT, tp, facts)
        or rules.against_ep(ep, 1, tp, cp, dp, facts)
        or rules.against_pp(pp, 1, facts)
    )
    if broken is not None:
        raise refusal(broken, facts)
