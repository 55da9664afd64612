"""A launch that fine-tunes a model of the hub: its memory, and the best way to run it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuscale.answers.launch_check.records import (
    Change,
    Checked,
    LaunchFiles,
    LaunchReport,
    empty_report,
    read_again,
)
from gpuscale.answers.training.tune_memory import TuningMemory
from gpuscale.core.finetune.method import chosen
from gpuscale.core.finetune.states import optimizer
from gpuscale.core.model.layer_shape import model_maps
from gpuscale.core.records import replace
from gpuscale.errors import GpuscaleError, RuleError
from gpuscale.io.software import framework_habits
from gpuscale.launch.dialects.nested import dialect
from gpuscale.launch.dialects.rows import words_of
from gpuscale.launch.found import DEFAULT_SEQ_LEN, Found
from gpuscale.launch.read.kinds import KINDS

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.answers.training.plan import Plan
    from gpuscale.core.finetune.bench import Trial
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import RowSpec

ROWS_OF = {"trainer": "transformers"}
"""Kind whose options the rows of another framework's file say."""
CHECKPOINTS = "use_gradient_checkpointing"
ZERO_KEYS = {".json": "zero_optimization.stage", ".yaml": "deepspeed_config.zero_stage"}
"""File beside a launch -> its key of the ZeRO stage: DeepSpeed's, accelerate's."""
WORTH = 1.03
"""Another sharding is proposed where the step is this much faster with it."""


def with_best(report: LaunchReport, plan: Plan, launch: LaunchFiles, found: Found) -> LaunchReport:
    """Put the fastest way that fits beside a launch.

    `plan`: the launch as a question, pinned as it is. What is free: micro-batch at the same batch,
    recomputation, offload and ZeRO stage.
    """
    from gpuscale.answers.training.tune_plan import case_of

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
    from gpuscale.answers.training.tune_plan import best_on, case_of

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
            "loss": trial.job.loss,
        }

    now, wanted = said(have), said(best)
    fields = (f for f in now if sharded or f != "zero_stage")
    return tuple(Change(f, now[f], wanted[f]) for f in fields if now[f] != wanted[f])


def _change_of_files(
    launch: LaunchFiles, found: Found, changes: tuple[Change, ...]
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """Diff of the files, and what they still have otherwise with it."""
    from gpuscale.launch.read.edit import changed, diff
    from gpuscale.launch.read.files import is_notebook

    rows = {row.field.removeprefix("tuning."): row for row in _rows(found) if row.written}
    own = {name: text for name, text in launch.files.items() if not is_notebook(name)}
    if found.kind == "unsloth" and not any(CHECKPOINTS in text for text in own.values()):
        del rows["recompute"]

    def options(side: str) -> dict[str, Any]:
        keys = {f: row.option[0].rpartition(".")[2] for f, row in rows.items() if row.option}
        made: dict[str, Any] = dict.fromkeys(keys.values())  # beside which another may be put
        for c in (one for one in changes if one.field in rows):
            row, value = rows[c.field], getattr(c, side)
            word = words_of(row, value) if row.words else int(value)
            if isinstance(word, Mapping):  # several options; a list that the file has stays
                lists = {k for k, v in word.items() if isinstance(v, list)}
                kept = {k for k in lists if any(k in text for text in own.values())}
                made |= {k: v[0] if k in lists else v for k, v in word.items() if k not in kept}
            elif word is not None and c.field in {**keys, **found.places}:
                made[found.places.get(c.field, keys.get(c.field, "")).partition(":")[0]] = word
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
    said = {c.field: getattr(again, c.field, again.tuning.get(c.field)) for c in changes}
    now = {c.field: str(said[c.field] or c.have) for c in changes}
    return lines, tuple(
        replace(c, have=now[c.field])
        for c in changes
        if now[c.field] != c.best and not (c.best == "none" and again.recompute is None)
    )


def _rows(found: Found) -> tuple[RowSpec, ...]:
    """Rows that say the options of a launch; none for a framework that has no file."""
    try:
        return dialect(ROWS_OF.get(found.kind, found.kind)).row
    except ValueError:
        return ()


LIKE = {"roll": "verl"}
"""Kind without a preset -> the one whose workers are placed and sharded as its are."""
OVER_MEGATRON = {name: name for name in ("megatron-bridge", "llama-factory-mca")}
OVER_MEGATRON |= {"megatron-core": "megatron-swift"}
"""Software of a launch with Megatron's degrees -> whose adapters it trains."""


def software_of(found: Found) -> str:
    """Family whose habits the launch has."""
    if found.software in OVER_MEGATRON:
        return OVER_MEGATRON[found.software]
    if KINDS[found.kind].preset:
        return found.kind
    if found.kind in LIKE:
        return LIKE[found.kind]
    if found.kind == "trainer" and (found.rl or found.software == "trl"):
        return "trl"
    if found.kind == "deepspeed" or found.software == "deepspeed-zero3":
        return "hf-deepspeed"
    if found.method == "qlora" and (found.zero_stage or 0) >= 2:
        return "fsdp-qlora"
    return "hf-fsdp" if (found.zero_stage or 0) >= 2 else "hf-peft"


OF_MEMORY = "layout peak_bytes capacity_bytes fits_probability memory_interval_factor_80".split()
OF_MEMORY += "step_s step_low_s step_high_s".split()
"""What a report takes of the answer about memory."""


def tuned(
    asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int, launch: LaunchFiles
) -> Checked:
    """Check a fine-tuning launch."""
    from gpuscale.answers.training.asked import Memory
    from gpuscale.answers.training.plan import Plan

    given = _options(asked, found, model, n_gpus)
    name = asked.model or found.model_name
    try:
        answer = Memory(name, **given).answer()
    except RuleError as error:
        empty = empty_report(found, model, n_gpus, software_of(found), None)
        broken = (f"{error.message} ({error.hint.partition('; ')[0]})",)
        return Checked(replace(empty, can_launch=False, broken=broken), asked)
    result = answer.result
    report = replace(
        empty_report(found, model, n_gpus, software_of(found), result.fits),
        method=given["method"],
        tuning=result if isinstance(result, TuningMemory) else None,
        **{name: getattr(result, name) for name in OF_MEMORY},
    )
    if not found.rl:
        degrees = ("tp", "pp", "vpp", "cp", "ep", "etp")  # one of 1 is no option of a plan
        options = {k: v for k, v in given.items() if v != 1 or k not in degrees}
        report = with_best(report, Plan(name, **options), launch, found)
    return Checked(report, asked, answer.warnings, answer.blocks, answer.terms)


def _options(asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int) -> dict[str, Any]:
    """Say the launch in the options of `memory`; what is taken is added to `found.notes`."""
    method = found.method if found.method in ("lora", "qlora", "dora") else "full"
    if method in ("lora", "dora") and not found.rl:
        found.weights = found.weights or "bf16"
    length = asked.seq_len or found.seq_len
    if not length and not found.rl and (length := DEFAULT_SEQ_LEN.get(found.kind)):
        found.notes.append(f"sequences of {length:,} tokens, the trainer's default (--seq-len)")
    parts = ("parameters", "optimizer", "activations")
    offload = [part for part in parts if getattr(found, f"offload_{part}")]
    usual = framework_habits(software_of(found), {}).get("micro_batch")
    micro = found.micro_batch_size or int(str(usual.value) if usual else 1)
    if not found.micro_batch_size:
        found.notes.append(f"micro-batch {micro}, as the files name none")
    weights = None if found.weights == "fp32" else found.weights  # TRL's own habit
    dp = max(1, n_gpus // (found.tp * found.pp * found.cp))
    batch = found.global_batch_size or micro * dp * (found.accumulation or 1)
    trained = _samples(found, batch) or {"method": method, "global_batch": batch}
    if found.kind == "slime" and found.rl and model.published_format != "bf16":
        trained["rollout_weights"] = model.published_format  # its checkpoint is the engine's
    return dict(
        cluster=asked.where,
        gpus=n_gpus,
        rank=found.lora_rank or DEFAULT_RANK if method != "full" else None,
        targets=_targets(found, model) if method != "full" else (),
        base="nf4" if method == "qlora" and found.rl else weights,
        software=software_of(found),
        seq_len=length,
        micro_batch=micro,
        **{name: getattr(found, name) or 1 for name in ("tp", "pp", "vpp", "cp", "ep", "etp")},
        zero=_stage(found) if n_gpus > 1 else None,
        recompute=found.recompute or "none",
        optimizer=_optimizer(found.optimizer),
        offload=",".join(offload) or None,
        set=asked.settings,
        calibration=asked.calibration,
        **({} if found.rl else found.tuning),
        **trained,
    )


def _optimizer(word: str | None) -> str | None:
    """Optimizer of fine-tuning that a word means; those not known are left to the software's."""
    with suppress(ValueError):
        return optimizer((word or "").lower()).name
    return None


def _targets(found: Found, model: ModelSpec) -> tuple[str, ...]:
    """Take the maps of an adapter that the model has, as peft does."""
    every = tuple(m for _, maps in model_maps(model) for m in maps)
    held = tuple(name for name in found.targets if chosen(every, (name,)))
    return held or found.targets


def _stage(found: Found) -> int | None:
    """ZeRO stage: replicas where a trainer of RL, or under torchrun, is told of no sharding."""
    whole = found.kind in ("llama-factory", "ms-swift", "axolotl") and found.cp == 1
    replicas = found.rl or whole or (found.kind == "trainer" and "launcher" in found.places)
    return 0 if found.zero_stage is None and replicas else found.zero_stage


def frozen_format(found: Found) -> str | None:
    """Name the format of weights under adapters, where the model's name says that it is GPTQ's."""
    name = (found.model_name or "").lower()
    if found.weights or found.method not in ("lora", "dora"):
        return found.weights
    if re.search(r"(?<![a-z])(awq|gptq)", name):
        return "int8" if re.search(r"int8|8[-_]?bit", name) else "int4-g128"
    return None


DEFAULT_RANK = 16
"""Rank of adapters where a file turns them on and names none: that of `memory`."""


def _samples(found: Found, batch: int) -> dict[str, Any]:
    """Options of `memory` that say the samples of a step of RL or preference tuning."""
    if not found.rl:
        return {}
    given: dict[str, Any] = dict(found.rl)
    group = given.get("group") or 1
    if batch < int(given.get("prompts") or 0) * int(group):
        given["global_batch"] = batch  # of an update, of which a step has several
    given["prompts"] = given.get("prompts") or max(1, batch // int(group))
    reference = framework_habits(software_of(found), {"task": given["method"]}).get("reference")
    if "no_kl" in given and not given["no_kl"] and reference and not reference.value:
        given["kl"] = True  # the files ask for what the framework does not do by itself
    return given
