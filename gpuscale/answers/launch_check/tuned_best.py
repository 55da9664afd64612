"""The best way to run a fine-tuning launch on its GPUs, and the files of the launch with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscale.answers.launch_check.change import LaunchFiles, read_again
from gpuscale.answers.launch_check.records import Change, LaunchReport
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.plan import Plan
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.launch.read.found import Found

KEYS = {
    "micro_batch_size": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "recompute": "gradient_checkpointing",
}
KEYS_OF = {
    "torchtune": KEYS | {"recompute": "enable_activation_checkpointing"},
    "oumi": KEYS | {"recompute": "enable_gradient_checkpointing"},
    "unsloth": KEYS | {"recompute": "use_gradient_checkpointing"},
    "llama-factory": KEYS | {"recompute": "disable_gradient_checkpointing"},
}
"""What changes -> the key that says it, where the file does not say it by another."""
ZERO_KEYS = {".json": "zero_optimization.stage", ".yaml": "deepspeed_config.zero_stage"}
"""File beside a launch -> its key of the ZeRO stage: DeepSpeed's, accelerate's."""
WORTH = 1.03
"""Another sharding is proposed where the step is this much faster with it."""


def with_best(report: LaunchReport, plan: Plan, launch: LaunchFiles, found: Found) -> LaunchReport:
    """Put the fastest way that fits beside a launch.

    `plan`: the launch as a question, pinned as it is. What is free: micro-batch at the same batch,
    recomputation, offload and ZeRO stage.
    """
    from gpuscale.answers.finetune.plan import case_of

    try:
        case = case_of(plan, plan.cluster[0], plan.gpus[0])
        have = case.bench.trial(case.job)
        best = _best(plan, have)
    except GpuscaleError:  # what no plan is asked, though its memory can be
        return report
    if best is None:
        return report
    changes = _changes(have, best, sharded=plan.zero is not None)
    diff, left = _change_of_files(launch, found, changes)
    return replace(
        report,
        best_layout=best.job.layout,
        best_step_s=best.step.step_s,
        best_peak_bytes=best.memory.total_bytes,
        slower_factor=(report.step_s or have.step.step_s) / best.step.step_s,
        changes=changes,
        diff=diff,
        left=left,
    )


def _best(plan: Plan, have: Trial) -> Trial | None:
    """Fastest way that fits: sharded and offloaded as it is, unless that cannot be."""
    from gpuscale.answers.finetune.plan import best_on, case_of

    n_gpus, stage = have.job.layout.n_gpus, have.job.layout.zero_stage
    free = replace(plan, micro_batch=None, recompute=None, recompute_layers=None)

    def best(zero: int | None, offload: int | str | None) -> Trial | None:
        asked = replace(free, zero=zero, offload=offload)
        return best_on(asked, case_of(asked, plan.cluster[0], n_gpus))

    parts = have.job.offload, have.job.offload - {"activations"}  # which go with recomputation
    ways = {",".join(sorted(moved)) or "none" for moved in parts}  # nor what a habit would move
    tried = [one for moved in ways if (one := best(stage if n_gpus > 1 else None, moved))]
    own = min(tried, key=lambda one: one.step.step_s, default=None)
    if own is None:
        return best(None, None)
    if stage == 0:  # replicas are timed as another family than shards: no ground to leave them
        return own
    other = best(None, plan.offload)
    return other if other and own.step.step_s > WORTH * other.step.step_s else own


def _changes(have: Trial, best: Trial, *, sharded: bool) -> tuple[Change, ...]:
    """List what is otherwise; `sharded`: the files say a ZeRO stage, or that there is none."""

    def said(trial: Trial) -> dict[str, str]:
        lay = trial.job.layout
        return {
            "micro_batch_size": str(lay.micro_batch_size),
            "accumulation": str(lay.n_micro_batches),
            "recompute": lay.recompute,
            "zero_stage": str(lay.zero_stage),
            "offload": ",".join(sorted(trial.job.offload)) or "none",
        }

    now, wanted = said(have), said(best)
    fields = (f for f in now if sharded or f != "zero_stage")
    return tuple(Change(f, now[f], wanted[f]) for f in fields if now[f] != wanted[f])


def _change_of_files(
    launch: LaunchFiles, found: Found, changes: tuple[Change, ...]
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """Diff of the files, and what they still have otherwise with it."""
    from gpuscale.launch.edit import changed, diff
    from gpuscale.launch.read.notebook import is_notebook

    keys = KEYS_OF.get(found.kind, KEYS)
    own = {name: text for name, text in launch.files.items() if not is_notebook(name)}
    if found.kind == "unsloth" and not any(keys["recompute"] in text for text in own.values()):
        keys = {field: key for field, key in keys.items() if field != "recompute"}

    def options(side: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for c in changes:
            key = found.places.get(c.field, keys.get(c.field, "")).partition(":")[0]
            value = getattr(c, side)
            if key and c.field in keys:
                off = key.startswith("disable")
                made[key] = off != (value != "none") if c.field == "recompute" else int(value)
        return made

    after = {**launch.files, **changed(own, options("have"), options("best"))}
    for c in (one for one in changes if one.field == "zero_stage"):
        for ending, key in ZERO_KEYS.items():
            files = {name: text for name, text in after.items() if name.endswith(ending)}
            after |= changed(files, {key: c.have}, {key: int(c.best)})
    lines = diff(launch.files, after, launch.named)
    again = read_again(launch, after) if lines else None
    if again is None:
        return lines, ()
    now = {c.field: str(getattr(again, c.field, None) or c.have) for c in changes}
    return lines, tuple(
        replace(c, have=now[c.field])
        for c in changes
        if now[c.field] != c.best and not (c.best == "none" and again.recompute is None)
    )
