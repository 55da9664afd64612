"""A launch as it is: read, held against the rules, predicted, and beside the best plan."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuscale.answers.launch_check.document import asked_otherwise, covered, hidden_of
from gpuscale.answers.launch_check.files import Allowed, allowed, finder, given_files
from gpuscale.answers.launch_check.records import (
    Checked,
    LaunchFiles,
    change_of_files,
    differences,
    empty_report,
    with_origins,
)
from gpuscale.answers.launch_check.tuned import frozen_format
from gpuscale.answers.training.plan_case import PlanCase, make_case, solve
from gpuscale.answers.training.plan_request import GlobalBatch, read_request
from gpuscale.answers.training.plan_text import layout_terms
from gpuscale.core.layout import Layout
from gpuscale.core.plan.records import Estimate
from gpuscale.core.plan.scan import why_worse
from gpuscale.core.records import replace
from gpuscale.core.rules import against
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.io.jobs import step_interval
from gpuscale.io.software import load_software
from gpuscale.io.step import memory_interval_factor, one_peak
from gpuscale.io.text import bounded, shown_name
from gpuscale.launch.found import Found, layout_of
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.together import last_of
from gpuscale.specs.model import ModelSpec

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck

ADAPTED = ("lora", "qlora", "dora")
ALONE = ("deepspeed", "accelerate")
"""Kinds that say how any training is sharded, and not what is trained."""

SIZES = tuple(
    "tp pp vpp cp ep etp dp dp_replicate n_gpus n_nodes gpus_per_node micro_batch_size "
    "accumulation global_batch_size seq_len".split()
)
"""Fields of a launch that are counts of at least one."""

MOST = 1e9


def found_in(files: dict[str, str], variables: dict[str, str], where: Allowed) -> Found:
    """Read the files of a launch; those that they name below the folders `where` are put to them.

    Raises GpuscaleError for what is no launch file, nested without measure, or names a size that
    nothing can have.
    """
    from gpuscale.launch.read.detect import read_launch

    name = next(iter(files))
    try:
        with bounded(name):
            found = read_launch(dict(files), variables, finder(files, where))
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise GpuscaleError(f"{name}: holds a value that cannot be used: {error}") from None
    for field in SIZES:
        value = getattr(found, field)
        if value is not None and not 1 <= value <= MOST:
            shown = field.replace("_", " ")
            raise GpuscaleError(f"{name}: {shown} is {value:.15g}, and must be 1 to {MOST:g}")
    return found


def checked(asked: LaunchCheck) -> Checked:
    """Answer for the files of a launch, without repeating secrets or files that were not given.

    Raises GpuscaleError if a file cannot be read, or is of no known kind.
    """
    files: dict[str, str] = {}
    try:
        found = _checked(asked, files)
    except GpuscaleError as error:
        with bounded(asked.file[0]):
            hidden = hidden_of(tuple(map(shown_name, asked.file)), files)
            told, hint = hidden.masked(error.message), hidden.masked(error.hint)
        raise type(error)(told, hint) from None
    with bounded(asked.file[0]):
        return covered(found, hidden_of(tuple(map(shown_name, asked.file)), files))


def _checked(asked: LaunchCheck, files: dict[str, str]) -> Checked:
    """Answer for the files of a launch; those that are read are put to `files`."""
    with bounded(asked.file[0]):
        where, variables = allowed(asked.file, asked.include), _variables(asked)
        files |= given_files(asked.file, where)
    launch = LaunchFiles(files, tuple(files), variables, tuple(map(shown_name, asked.file)))
    found = found_in(files, variables, where)
    done = _answered(_on_its_gpu(asked, found), found, launch)
    return replace(done, report=with_origins(asked, found, files, done.report))


def _answered(asked: LaunchCheck, found: Found, launch: LaunchFiles) -> Checked:
    """Answer for what the files say: what is missing, or what it takes."""
    found.weights = frozen_format(found)
    model, missing = _model(asked, found)
    missing += _unread(found)
    missing += [
        f"what {key}: {value} does, which is not known here: --ignore {key} if it does nothing"
        for key, value in found.asked.items()
        if key not in asked.ignore
    ]
    missing = [] if found.beyond else missing  # nothing that a person says makes it predicted
    n_gpus = asked.gpus or found.world_size
    if n_gpus is None:
        missing.append("the number of GPUs: say it with --gpus")
    kind = KINDS[found.kind]
    length = asked.seq_len or found.seq_len or found.unread.get("seq_len")
    if (kind.length or kind.told_by) and not length and not found.beside:
        missing.append("the sequence length: say it with --seq-len")
    if found.kind in ALONE and (model is None or n_gpus is None or not length):
        missing = [_alone(model is None, n_gpus is None, not length)]
    missing = found.beyond or missing
    if found.beside and model is None and not found.model_name and found.kind not in ALONE:
        untold = "model" not in found.unread and not found.beyond
        missing = missing[1:] if untold else missing  # the file says it
    for path in found.beside:
        missing.append(f"{last_of(path)}, which says the rest: give it beside this file")
    if found.model is not None and found.method in ADAPTED and not asked.model:
        missing.append("the name of the model that has adapters: say it with --model")
    if found.other_machine and not (asked.cluster or asked.gpu):
        missing.append(
            f"{found.other_machine}, which no preset has: --gpu asks about the same job on a GPU"
        )
    if found.precision == "fp32" and found.kind == "megatron" and not found.beyond:
        missing.append("--bf16 or --fp16: without them it trains in fp32, which is not predicted")
    if found.precision == "fp32" and found.kind == "levanter":
        missing.append("trainer.mp in bf16: training in fp32 is not predicted")
    if found.kind == "program" and not found.beside:
        missing = [asked_otherwise(found, n_gpus)]
    if model is None or n_gpus is None or missing:
        software = found.software or found.kind
        report = empty_report(found, model, n_gpus, software, None, tuple(missing))
        return Checked(report, asked)
    if found.method == "serve":
        from gpuscale.answers.launch_check.served import served

        return served(asked, found, model, n_gpus)
    over_megatron = found.kind == "ms-swift" and found.software == "megatron-core"
    adapted = found.method in ADAPTED or bool(found.rl)
    tunes = (kind.tunes and found.method != "pretrain") or (kind.told_by and found.method == "full")
    if adapted or (tunes and not over_megatron):
        from gpuscale.answers.launch_check.tuned import tuned

        return tuned(asked, found, model, n_gpus, launch)
    return _trained(asked, found, model, n_gpus, launch)


def _alone(*lacks: bool) -> str:
    """Say what a file that only shards leaves to the program that reads it."""
    options = ("--model NAME", "--gpus N", "--seq-len N")
    asked = ", ".join(option for option, on in zip(options, lacks, strict=True) if on)
    return (
        "what the program is told that reads this file: give its script with this file, "
        f"or say {asked}"
    )


def _on_its_gpu(asked: LaunchCheck, found: Found) -> LaunchCheck:
    """Ask about the GPU that the files name, where a person names none."""
    if asked.cluster or asked.gpu or not found.gpu:
        return asked
    try:
        load_cluster(found.gpu)
    except GpuscaleError:
        return asked
    return replace(asked, gpu=found.gpu)


def _variables(asked: LaunchCheck) -> dict[str, str]:
    made = {}
    for pair in asked.var:
        name, equals, value = pair.partition("=")
        if not equals or not (name.isidentifier() or name.isdigit() or name == "@"):
            raise GpuscaleError(f"--var {pair[:60]}: write NAME=VALUE")
        made[name] = value
    return made


def _model(asked: LaunchCheck, found: Found) -> tuple[ModelSpec | None, list[str]]:
    """Find the model that is trained; else say what is missing."""
    spec, missing = _named_model(asked, found)
    own = found.kind in ("maxtext", "torchtitan") and not found.mtp
    if spec is not None and spec.n_mtp_layers and own:
        spec = spec.model_copy(update={"n_mtp_layers": 0})  # they train it where a key says so
        found.notes.append("without its layer of multi-token prediction, as is the default")
    return spec, missing


def _named_model(asked: LaunchCheck, found: Found) -> tuple[ModelSpec | None, list[str]]:
    """Find the model that is given, or that the files hold or name."""
    from gpuscale.io.models import load_model

    if asked.model:
        return load_model(asked.model).spec, []
    if found.model is not None:
        return found.model, []
    if not found.model_name:
        said = f", which is {found.unread['model'][:60]}" if "model" in found.unread else ""
        return None, [f"the model{said}: name it with --model"]
    try:
        return load_model(found.model_name).spec, []
    except GpuscaleError:
        shown = found.model_name[:80]
    _, slash, last = shown.rstrip("/").rpartition("/")
    for name in (last if slash else "", re.sub(r"^[A-Za-z-]+_(?=[A-Za-z])", "", last)):
        with suppress(GpuscaleError):  # GGUF files are named `Author_Model-Q4_K_M`
            spec = load_model(name).spec
            found.notes.append(f"{shown} is not here: {spec.name} is taken by its name")
            found.model_name = spec.name
            return spec, []
    return None, [f"the shape of its model `{shown}`: give its config.json with --model"]


def _unread(found: Found) -> list[str]:
    """Say what a script takes from variables that are not known, where the layout needs it."""
    missing = []
    if recipe := found.unread.get("recipe"):
        shown = recipe.partition("$")[0].rstrip("_")[:60]
        missing.append(f"the degrees: those of the recipe {shown} are not known here")
    if "layout" in found.unread and found.kind == "megatron-bridge" and not found.beside:
        missing.append("the degrees: give the command that runs it beside this file")
    for field, text in found.unread.items():
        if field.startswith("argument "):
            how = f"--var {field.split()[1]}=VALUE"
            missing.append(f"{field}, by which it chooses ({text}): say it with {how}")
        if field in NEEDED:
            named = re.fullmatch(r"\$\{?(\w+)\}?", text)
            how = f"--var {named[1]}=NUMBER" if named else "--var"
            missing.append(f"{field.replace('_', ' ')}, which is {text[:60]}: say it with {how}")
    return missing


NEEDED = ("tp", "pp", "vpp", "cp", "ep", "micro_batch_size", "global_batch_size") + (
    "accumulation",
    "seq_len",
    "group",
)
"""Fields of a launch without which its layout and batch are not known."""


def _trained(
    asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int, launch: LaunchFiles
) -> Checked:
    """Check a training launch."""
    software = load_software(found.software or "fsdp")
    loaded = load_inputs(asked, cluster=asked.where, others={"software": software})

    def laid_out(files: Found) -> Layout:
        return layout_of(files, model, software, n_gpus, asked.seq_len)

    try:
        layout = laid_out(found)
    except GpuscaleError as error:
        found.wrong.append(str(error))
        return Checked(empty_report(found, model, n_gpus, software.name, None), asked)
    case = _case(asked, found, layout, loaded, model)
    estimate, broken = _judged(found, case, layout)
    best = _best(case)
    diff, left = change_of_files(launch, found, laid_out, case, best) if best else ((), ())
    report = replace(
        empty_report(found, model, n_gpus, software.name, estimate.fits if estimate else None),
        layout=layout,
        can_launch=not broken,
        broken=broken,
        best_layout=best.layout if best else None,
        best_step_s=best.step_s if best else None,
        best_peak_bytes=best.peak_bytes if best else None,
        why=_why(case, estimate, best),
        changes=differences(layout, best.layout) if best else (),
        diff=diff,
        left=left,
    )
    if estimate is None:
        return Checked(report, asked, loaded.warnings)
    low, high = step_interval(estimate.step, case.problem, software.name, layout)
    capacity = max(estimate.capacity_bytes, estimate.room_bytes)
    factor = memory_interval_factor(software.name)
    report = replace(
        report,
        stage_layers=estimate.stage_layers,
        peak_bytes=estimate.peak_bytes,
        capacity_bytes=estimate.capacity_bytes,
        fits_probability=one_peak(estimate.peak_bytes, capacity, factor),
        memory_interval_factor_80=factor,
        step_s=estimate.step_s,
        step_low_s=low,
        step_high_s=high,
        mfu=estimate.step.mfu,
        slower_factor=estimate.step_s / best.step_s if best else None,
    )
    return Checked(report, asked, loaded.warnings, terms=layout_terms(case, estimate))


def _case(
    asked: LaunchCheck, found: Found, layout: Layout, loaded: Loaded, model: ModelSpec
) -> PlanCase:
    """Make the search of the same job on the same GPUs."""
    from gpuscale.answers.training.plan import Plan

    loaded = replace(loaded, specs={**loaded.specs, "model": model})
    request = read_request(
        Plan(
            model.name,
            gpus=layout.n_gpus,
            cluster=asked.where,
            software=loaded.specs["software"].name,
            precision=layout.precision,
            **found.settings,
        )
    )
    batch = GlobalBatch(
        float(layout.global_batch_size * layout.seq_len), layout.global_batch_size, ""
    )
    return make_case(loaded, request, layout.n_gpus, layout.seq_len, batch)


def _judged(
    found: Found, case: PlanCase, layout: Layout
) -> tuple[Estimate | None, tuple[str, ...]]:
    """Estimate of a layout, and the rules that it breaks; none where it breaks one."""
    from gpuscale.core.plan.records import estimate

    broken = list(found.wrong)
    rule = against(layout, case.problem.facts)
    if rule and not (rule.rule == "batch" and found.wrong):  # said already
        broken.append(f"{rule.message} ({rule.source or rule.rule})")
    if not broken:
        try:
            return _as_held(estimate(case.problem, layout), found), ()
        except ValueError as error:
            broken.append(str(error))
    return None, tuple(broken)


def _as_held(estimate: Estimate, found: Found) -> Estimate:
    """Take off what a launch does not hold of gradients and of the optimizer's states."""
    memory = estimate.memory
    for kind, part in found.held.items():
        whole = getattr(memory, f"{kind}_bytes")
        memory = replace(memory, **{f"{kind}_bytes": part * whole})
        named = f"{part * whole / 1e9:.1f} GB of {HELD[kind]}, not {whole / 1e9:.1f}"
        found.notes.append(f"{named}: so the files ask; the best plan holds them as is usual")
    peak = memory.total_bytes
    fits = peak <= max(estimate.capacity_bytes, estimate.room_bytes)
    return replace(estimate, memory=memory, peak_bytes=peak, fits=fits)


HELD = {"gradients": "gradients", "optimizer": "states of the optimizer"}


def _best(case: PlanCase) -> Estimate | None:
    """Best layout of the same job on the same GPUs, where one fits."""
    from gpuscale.core.plan.records import estimate

    try:
        result = solve(case, 1)
    except GpuscaleError:
        return None
    return estimate(case.problem, result.best.layout) if result.best else None


def _why(case: PlanCase, estimate: Estimate | None, best: Estimate | None) -> str:
    from gpuscale.answers.training.plan_answer import board_of

    if estimate is None or best is None or estimate.step_s <= best.step_s:
        return ""
    return why_worse(estimate, best, board_of(case, estimate.layout))
