"""What a better layout has otherwise, and the files of the launch with it, read again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpuscale.answers.launch_check.records import Change
from gpuscale.core.dataclasses import dataclass
from gpuscale.errors import GpuscaleError
from gpuscale.io.guard import bounded
from gpuscale.launch.read.together import last_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuscale.answers.training.plan_case import PlanCase
    from gpuscale.core.layout import Layout
    from gpuscale.core.plan.records import Estimate
    from gpuscale.launch.found import Found

    LayoutOf = Callable[[Found], Layout]

COMPARED = (
    "tp pp vpp cp ep etp zero_stage shard_group_size micro_batch_size recompute sequence_parallel "
    "offload_optimizer overlap_tp overlap_dp"
).split()
"""Fields of a layout that a person would change for a better one."""


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """Files of a launch, and what a person says beside them."""

    files: Mapping[str, str]  # with those that they name and that were found
    given: tuple[str, ...]  # names of those that a person gave, and of scripts that these start
    variables: dict[str, str]
    named: tuple[str, ...]  # by the person alone


def differences(have: Layout, best: Layout) -> tuple[Change, ...]:
    """List the fields that another layout has otherwise."""
    return tuple(
        Change(name, str(getattr(have, name)), str(getattr(best, name)))
        for name in COMPARED
        if getattr(have, name) != getattr(best, name)
        and not (name in ("sequence_parallel", "overlap_tp") and best.tp == 1)
    )


def change_of_files(
    launch: LaunchFiles, found: Found, layout_of: LayoutOf, case: PlanCase, best: Estimate
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """Write the best layout into the files.

    `layout_of`: lays out what files say. Returns: the change as a unified diff, none where no
    option of the layout can be set; and what the changed files, read again, still have otherwise.
    """
    from gpuscale.launch.dialects.write import chunks_of
    from gpuscale.launch.dialects.write import options as written_options
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.launch.read.edit import KINDS, changed, diff

    if found.kind not in KINDS:
        return (), ()

    def options(layout: Layout, stages: tuple[int, ...]) -> dict[str, object]:
        model = case.problem.model
        chunks = chunks_of(model, layout, stages)
        job = TrainingLaunch(model, case.cluster, found.software, layout, chunks)
        return written_options(job, found.kind)

    try:
        now, wanted = options(layout_of(found), ()), options(best.layout, best.stage_layers)
    except GpuscaleError:  # a layout that its exporter cannot say
        return (), ()
    with bounded(launch.given[0]):
        after = changed(launch.files, now, wanted)
        lines = diff(launch.files, after, launch.named)
        again = read_again(launch, after) if lines else None
    left: tuple[Change, ...] = ()
    with suppress(GpuscaleError):
        left = differences(layout_of(again), best.layout) if again else ()
    nearest = found.kind == "maxtext" and best.layout.recompute == "none"  # it keeps products alone
    return lines, tuple(c for c in left if not (nearest and c.field == "recompute"))


def read_again(launch: LaunchFiles, after: Mapping[str, str]) -> Found | None:
    """Read the changed files of a launch; None where they cannot be."""
    from gpuscale.launch.read.detect import read_launch

    def look(written: str) -> tuple[str, str] | None:
        same = (name for name in after if last_of(name) == last_of(written))
        return next(((name, after[name]) for name in same), None)

    given = {name: after[name] for name in launch.given}
    try:
        return read_launch(given, launch.variables, look)
    except (GpuscaleError, ValueError, OverflowError, ZeroDivisionError, RecursionError):
        return None
