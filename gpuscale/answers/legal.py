"""Layouts that a framework cannot run are refused, by every command alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.core import rules
from gpuscale.core.capabilities import ANY
from gpuscale.core.context import DEFAULT_CONTEXT
from gpuscale.core.settings import NO_SETTINGS
from gpuscale.errors import GpuscaleError, RuleError

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.core.rules import Broken, RuleFacts
    from gpuscale.core.settings import JobSettings
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


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
    from gpuscale.io.software import capabilities_of

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
    from gpuscale.io.software import capabilities_of

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
