"""The training answer of `gpuscale memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.answers import saved
from gpuscale.answers.layout import layout_of, most_experts_split
from gpuscale.answers.options import usual_seq_len
from gpuscale.answers.summary import (
    Peak,
    asked_for,
    chance_tone,
    changed,
    compared_table,
    counted_rows,
    figures_of,
    largest_parts,
    memory_point,
    part_bars,
    part_rows,
    taken_points,
)
from gpuscale.answers.training.memory_verdict import verdict_of
from gpuscale.core.memory.facts import ModelFacts, StageMemory
from gpuscale.core.memory.fit import Fewest, fewest_gpus, peak_term, usable_term, why
from gpuscale.core.memory.parameters import IDEAL, MemoryParameters
from gpuscale.core.memory.peak import moments, peak_stage, stage_memories
from gpuscale.core.records import dataclass, made_of, replace
from gpuscale.core.rules import facts_of
from gpuscale.core.stages import split_text
from gpuscale.core.verdict import said
from gpuscale.core.words import DEGREES, MEMORY_PARTS, gb
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.io.jobs import problem_of, timed_step
from gpuscale.io.software import capabilities_of, load_software, usual_software
from gpuscale.io.step import memory_interval_factor
from gpuscale.render.document import Block, Column, Document, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory, Timeline
    from gpuscale.core.layout import Layout
    from gpuscale.specs.software import SoftwareSpec


@dataclass(frozen=True, slots=True)
class TrainingMemory(Peak):
    """Memory of a training job. [byte]."""

    peak_stage: int
    peaks: dict[str, float]  # moment of a run -> what the fullest GPU shows, the largest first
    expected: StageMemory
    ideal: StageMemory
    stages: tuple[StageMemory, ...]
    decides: str  # the setting that nobody said and that turns the verdict
    fewest: Fewest | None  # that hold the upper end of the interval, as `plan` wants it
    fewest_expected: Fewest | None  # that hold the expected value


def loaded_of(asked: Memory | Timeline) -> Loaded:
    """Model, machine and software that are meant."""
    named = asked.software or usual_software(asked.where, catalogue=asked.catalogue)
    return load_inputs(
        asked,
        cluster=asked.where,
        model=asked.model,
        catalogue=asked.catalogue,
        others={"software": load_software(named)},
        wires=asked.wires,
    )


def training_document(asked: Memory) -> Document:
    """Answer a training question about a model."""
    said = saved.told(asked)
    if asked.accumulation is not None:
        from gpuscale.answers.training.tune_wanted import with_accumulation

        asked = with_accumulation(asked, asked.gpus)
    loaded = loaded_of(asked)
    software: SoftwareSpec = loaded.specs["software"]
    layout = layout_of(asked, usual_seq_len(asked.seq_len, loaded.model), loaded.model, software)
    problem = problem_of(loaded, layout, asked.job_settings)
    facts, parameters = problem.memory_facts, problem.memory_parameters
    stages = stage_memories(facts, layout, parameters)
    peak = peak_stage(stages)
    ideal = stage_memories(facts, layout, _ideal(IDEAL, parameters))[peak.stage]
    usable = loaded.gpu.process_bytes
    factor = memory_interval_factor(software.name)
    ep = most_experts_split(asked, loaded.model, software, layout)
    verdict = verdict_of(asked, layout, usable, factor, facts, parameters, ep=ep)
    rules = facts_of(loaded.model, layout.seq_len, 1, 1, capabilities_of(software))
    fewest, risky = (
        fewest_gpus(
            facts,
            parameters,
            layout,
            rules,
            room_bytes=room,
            gpus_per_node=loaded.cluster.gpus_per_node,
            grow_batch=asked.global_batch is None,
        )
        if asked.min_gpus or not verdict.fits
        else None
        for room in (usable / factor, usable)
    )
    result = made_of(
        TrainingMemory,
        verdict,
        peak,
        fits=verdict.fits,
        layout=layout,
        peak_bytes=peak.total_bytes,
        capacity_bytes=usable,
        hbm_bytes=loaded.gpu.hbm_bytes,
        headroom_bytes=usable - peak.total_bytes,
        memory_interval_factor_80=factor,
        nvidia_smi_bytes=peak.total_bytes,
        ideal_total_bytes=ideal.total_bytes,
        peak_stage=peak.stage,
        peaks=moments(facts, layout, parameters, peak),
        expected=peak,
        ideal=ideal,
        stages=stages,
        fewest=fewest,
        fewest_expected=risky,
        taken=saved.taken_of(asked, loaded, layout),
        said_by=saved.said_by(said, software),
        **timed_step(problem, layout, software.name),
    )
    return _document(asked, loaded, layout, facts, parameters, result)


def _ideal(ideal: MemoryParameters, p: MemoryParameters) -> MemoryParameters:
    """Build the bare formulas with the recipe and settings of the job."""
    kept = {name: getattr(p, name) for name in OF_JOB}
    least = {name: min(getattr(ideal, name), getattr(p, name)) for name in LEAST}
    return replace(ideal, **kept, **least)


OF_JOB = (
    "weights_bytes gradients_bytes gradients_bytes_fp16 master_bytes optimizer_bytes "
    "sharded_weights_bytes fused_cross_entropy loss fused_linear_ce selective_per_op "
    "quantised_inputs narrow_weights fp8_orientations unfused_attention stage_split "
    "expert_imbalance"
).split()
"""Parameters of the recipe and the settings, which the bare formulas take too."""

LEAST = "logits_bytes fused_logits_bytes hidden_bytes ffn_bytes".split()
"""Parameters that settings can lower below the bare formula's."""


def _document(
    asked: Memory,
    loaded: Loaded,
    layout: Layout,
    facts: ModelFacts,
    parameters: MemoryParameters,
    r: TrainingMemory,
) -> Document:
    peak = r.expected
    with_ = (
        f"micro-batch {layout.micro_batch_size}, recompute "
        f"{', '.join((layout.recompute, layout.precision, *asked.job_settings.words))}"
    )
    own = "" if asked.recipe else "its own recipe, "
    summary = _summary(asked, loaded, layout, r, with_)
    recipe = f"{loaded.specs['software'].name}, {own}sequence {layout.seq_len:,}, {with_}"
    head = f"{summary[0].value}\n{layout_text(layout)}; {recipe}"
    rows = part_rows(r.ideal, peak, MEMORY_PARTS.items())
    table = compared_table(rows, r.ideal, peak)
    counts = tuple(s.n_layers for s in r.stages)
    split = [("stages", split_text(counts), "layers")] if len(set(counts)) > 1 else []
    fewest: list[Block] = []
    if asked.min_gpus or not r.fits:
        fewest = [Text(_fewest_text(r, loaded, layout.n_gpus))]
    details: dict[str, list[Block]] = {
        "memory": [Text(head), table, part_bars(rows, r.capacity_bytes)],
        "figures": [figures_of(summary, *split, *counted_rows(r, r.peaks))],
        "stages": [_stage_table(r)] if asked.stages else [],
        "fewest": [*fewest, *changed(loaded)],
    }
    return Document.layered(
        "memory",
        _inputs(asked, loaded, layout),
        r,
        summary,
        details,
        warnings=loaded.warnings,
        answered_no=not r.fits,
        terms=(
            peak_term(facts, layout, parameters, peak),
            usable_term(loaded.gpu.usable_hbm_bytes, r.hbm_bytes, r.capacity_bytes),
        ),
        csv_table=table if not asked.stages else _stage_table(r),
        **saved.startable(lambda: _job(asked, loaded, layout, r, parameters)),
    )


def _summary(
    asked: Memory, loaded: Loaded, layout: Layout, r: TrainingMemory, with_: str
) -> list[Point]:
    ends = r.peak_low_bytes, r.peak_high_bytes
    verdict = said(r.fits_probability)
    where = f"{loaded.model.name} on {layout.n_gpus:,} {loaded.gpu.name} ({loaded.cluster.name})"
    room = f"{gb(r.peak_bytes)} of {gb(r.capacity_bytes)} a GPU"
    full = f"{r.peak_stage + 1} of {layout.pp}: {why(r.expected, layout.pp)}"
    points = [
        Point("verdict", f"{where} {verdict}: {room}.", tone=chance_tone(r.fits_probability)),
        Point("layout", layout_text(layout), with_),
        memory_point(r.peak_bytes, r.capacity_bytes, ends, chance_tone(r.fits_probability)),
        *asked_for(r.decides),
        largest_parts(
            [(word, getattr(r.expected, key)) for key, word in MEMORY_PARTS.items()],
            next(iter(r.peaks)),
        ),
        *([Point("fullest", f"stage {full}")] if layout.pp > 1 else []),
    ]
    if r.fewest is not None:
        points.append(Point("fewest GPUs", _on(r.fewest, loaded)))
    points += taken_points(r.taken)
    said_else = {"gpus": (r.fewest or layout).n_gpus, "micro_batch": None, "accumulation": None}
    following = saved.command_of(asked, "plan", ("layout", "kernels"), **said_else)
    return [*points, Point("next", following, "time and money")]


def _job(
    asked: Memory, loaded: Loaded, layout: Layout, r: TrainingMemory, p: MemoryParameters
) -> dict[str, object]:
    """Keep this layout as a whole job."""
    from gpuscale.launch.dialects.write import estimate_lines

    return saved.saved_job(
        loaded,
        layout,
        stage_layers=[stage.n_layers for stage in r.stages],
        settings=asked.job_settings.said,
        gradients_bytes=p.gradients_bytes,
        command=saved.command_of(asked),
        estimate=estimate_lines(layout, r.peak_bytes, None),
    )


def layout_text(layout: Layout) -> str:
    """Degrees of a layout in one line."""
    always, named = ("tp", "pp", "dp"), ((f, getattr(layout, f)) for f in DEGREES)
    degrees = ", ".join(f"{DEGREES[f]} {n}" for f, n in named if n > 1 or f in always)
    group = f" in groups of {layout.shard_group_size}" if layout.shard_group_size else ""
    return f"{degrees}, ZeRO {layout.zero_stage}{group}"


def _fewest_text(r: TrainingMemory, loaded: Loaded, n_gpus: int) -> str:
    """Smallest numbers of GPUs: safe, as `plan` wants it, and by the expected value alone."""
    fixed = "this micro-batch, sequence and recompute"
    if r.fewest is None:
        found = f"smallest number of GPUs: none found; more GPUs do not help with {fixed}"
    else:
        otherwise = not r.fits and r.fewest.n_gpus <= n_gpus
        found = "laid out otherwise it fits; " if otherwise else ""
        found += (
            f"smallest number of GPUs with {fixed}: {_on(r.fewest, loaded)} of "
            f"{gb(r.capacity_bytes)}, and room for the upper end of the range"
        )
    less = r.fewest_expected
    if less is not None and (r.fewest is None or less.n_gpus < r.fewest.n_gpus):
        found += f"\nby the expected value alone: {_on(less, loaded)}"
    return found


def _on(f: Fewest, loaded: Loaded) -> str:
    nodes = f" ({f.n_nodes} node{'s' if f.n_nodes > 1 else ''} of {loaded.cluster.gpus_per_node})"
    ep = f", EP {f.ep}" if f.ep > 1 else ""
    return f"{f.n_gpus:,}{nodes}, TP {f.tp}, PP {f.pp}, DP {f.dp}{ep}: {gb(f.total_bytes)}"


def _stage_table(r: TrainingMemory) -> Any:
    parts = {
        key: word for key, word in MEMORY_PARTS.items() if any(getattr(s, key) for s in r.stages)
    }
    parts |= {"total_bytes": "total"}
    columns = (
        Column("stage", "stage"),
        Column("n_layers", "layers"),
        Column("in_flight_micro_batches", "in flight", lambda v: f"{v:g}"),
        *(Column(key, label, lambda v: f"{v / 1e9:,.2f}") for key, label in parts.items()),
    )
    rows = [(s.stage + 1, *(getattr(s, c.key) for c in columns[1:])) for s in r.stages]
    return Table(columns, rows, title="stages, GB per GPU")


def _inputs(asked: Memory, loaded: Loaded, layout: Layout) -> dict[str, object]:
    settings = {"settings": said} if (said := asked.job_settings.said) else {}
    named = {"catalogue": asked.catalogue, "recipe": asked.recipe or ""}
    return saved.inputs_of(loaded, layout, **named, **settings)
