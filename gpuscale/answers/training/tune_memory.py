"""`gpuscale memory --method ...`: what a fine-tuning job takes, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscale.answers.ask import Question, refuse_others
from gpuscale.answers.saved import command_of, inputs_of, said_by, startable, told
from gpuscale.answers.summary import (
    Peak,
    changed,
    compared_table,
    counted_rows,
    figures_of,
    largest_parts,
    part_bars,
    taken_points,
)
from gpuscale.answers.summary import part_rows as compared_rows
from gpuscale.answers.training import tune_words
from gpuscale.answers.training.tune_asked import RL, task_of
from gpuscale.answers.training.tune_case import FinetuneCase, job_of, make_case, site_of
from gpuscale.answers.training.tune_verdict import in_shards, mended, verdict_of
from gpuscale.answers.training.tune_wanted import settled
from gpuscale.core.finetune import bench as b
from gpuscale.core.finetune.bench import BenchChange, Trial, remedies
from gpuscale.core.finetune.memory import FinetuneMemory, finetune_memory
from gpuscale.core.finetune.method import Job, counts
from gpuscale.core.finetune.parameters import IDEAL
from gpuscale.core.records import asdict, dataclass, made_of, replace
from gpuscale.core.words import gb
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.presets import preset_names
from gpuscale.render.document import Block, Column, Document, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory


MOST_CARDS = 8
"""GPUs that `--smallest-gpu` lists."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU that holds the job alone."""

    gpu: str
    hbm_bytes: float
    usable_bytes: float
    step_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class TuningMemory(Peak):
    """Memory of a fine-tuning job. [byte]."""

    host_bytes_per_node: float
    trained_params: float
    seq_len: int
    micro_batch_size: int
    longest_seq_len: int  # with all else as it is; 0: none fits
    largest_micro_batch: int
    maturity: str
    expected: FinetuneMemory
    ideal: FinetuneMemory
    decides: str  # the setting that nobody said and that turns the verdict
    enough: BenchChange | None  # the one change that makes it likely to fit, where it is not
    fewest_gpus: int | None  # None: not asked for, or no number holds it
    remedies: tuple[BenchChange, ...]
    cards: tuple[Card, ...]  # of --smallest-gpu
    against: dict[str, FinetuneMemory]  # other software families


def tuning_memory(asked: Memory) -> Document:
    """Answer a question about the memory of a fine-tuning job."""
    refuse_others(asked, task_of(asked), asked.method or "")
    if asked.method in RL:
        from gpuscale.answers.training.rl import rl_document

        return rl_document(asked, "memory", settled(asked))
    families = [s.strip() for s in (asked.software or "").split(",") if s.strip()]
    cases = [case_of(asked, family) for family in families or (None,)]
    case = cases[0]
    if asked.max is not None:
        case = replace(case, job=_at_most(case, asked.max))
    trial = case.bench.trial(case.job)
    return _document(asked, case, trial, _result(asked, case, cases[1:], trial))


def case_of(asked: Memory, family: str | None) -> FinetuneCase:
    """Read a question about one software family, sharded where only that fits."""
    case = make_case(settled(replace(asked, software=family)))
    pinned = asked.zero is not None or asked.max or case.bench.fits(case.job)
    parted = None if pinned else in_shards(case)
    return parted if parted and parted.bench.fits(parted.job) else case


def _at_most(case: FinetuneCase, what: str) -> Job:
    """Return the job pushed to the longest sequence, or the largest micro-batch, that fits."""
    if what == "seq-len":
        longest = b.longest_seq_len(case.bench, case.job)
        return b.with_seq_len(case.job, longest) if longest else case.job
    most = b.largest_micro_batch(case.bench, case.job)
    return b.with_micro_batch(case.job, most) if most else case.job


def _result(
    asked: Memory, case: FinetuneCase, others: list[FinetuneCase], trial: Trial
) -> TuningMemory:
    pushed = tuple(case.unsaid) if asked.max else ()  # to the limit, with all that is taken
    verdict = verdict_of(case, case.job, pushed)
    bench, job, model = case.bench, case.job, case.loaded.model
    memory, ideal = trial.memory, finetune_memory(case.loaded.model, bench.facts, job, IDEAL)
    fewest = b.fewest_gpus(bench, job) if asked.min_gpus or not trial.fits else None
    low_s, high_s = case.step_ends_s(trial)
    return made_of(
        TuningMemory,
        verdict,
        memory,
        trial.step,
        job.layout,
        enough=None if asked.max else mended(case, trial),
        step_low_s=low_s,
        step_high_s=high_s,
        maturity=case.maturity,
        layout=job.layout,
        peak_bytes=memory.total_bytes,
        capacity_bytes=bench.usable_bytes,
        hbm_bytes=case.loaded.gpu.hbm_bytes,
        headroom_bytes=bench.usable_bytes - memory.total_bytes,
        memory_interval_factor_80=trial.interval_factor_80,
        nvidia_smi_bytes=memory.total_bytes,
        ideal_total_bytes=ideal.total_bytes,
        host_bytes_per_node=bench.host_bytes_per_node(job, memory),
        trained_params=counts(model, job.method).trained_params,
        longest_seq_len=b.longest_seq_len(bench, job),
        largest_micro_batch=b.largest_micro_batch(bench, job),
        expected=memory,
        ideal=ideal,
        fewest_gpus=fewest.layout.n_gpus if fewest else None,
        remedies=remedies(bench, trial),
        cards=_cards(case, trial) if asked.smallest_gpu else (),
        against={c.software.name: c.bench.memory(c.job) for c in others},
        taken=case.assumed,
        said_by=said_by(told(asked), case.software, habits=case.habits),
    )


def _cards(case: FinetuneCase, trial: Trial) -> tuple[Card, ...]:
    """GPUs that hold the job, the smallest memory first."""
    gpus = [gpu for gpu in map(load_gpu, preset_names("gpu")) if gpu.vendor in ("NVIDIA", "AMD")]
    gpus.sort(key=lambda gpu: (gpu.hbm_bytes, -gpu.hbm_bytes_per_s))
    cards: list[Card] = []
    for gpu in gpus:
        usable = gpu.process_bytes
        if usable >= trial.memory.total_bytes and len(cards) < MOST_CARDS:
            own = replace(case.bench, site=site_of(load_cluster(gpu.name), case.software))
            step = own.step(trial.job)
            cards.append(Card(gpu.name, gpu.hbm_bytes, usable, step.step_s, step.tokens_per_s))
    return tuple(cards)


def _document(asked: Memory, case: FinetuneCase, trial: Trial, r: TuningMemory) -> Document:
    words, n_gpus = tune_words.trained_words(trial.job), r.layout.n_gpus
    short = tune_words.short_of_host(r.host_bytes_per_node, case.bench, trial.job)
    table = _parts_table(case, r)
    said = tune_words.verdict_text(case, words, r, n_gpus) + short
    if r.enough:
        said += f"; {'surer' if r.fits else 'fits'} with {tune_words.mend_text(r.enough)}"
    summary = memory_summary(asked, case, trial.job, r, f"{said}.")
    remedy: list[Block] = [remedy_table(r.remedies)] if r.remedies else []
    if not r.remedies and not trial.fits:
        remedy = [Text("nothing on the list of changes makes it fit this GPU")]
    cards: list[Block] = [_card_table(r)] if r.cards else []
    if asked.smallest_gpu and not r.cards:
        cards = [Text("no GPU preset holds it alone: see --gpus and the changes above")]
    bars = part_bars(tune_words.part_rows(r.expected), r.capacity_bytes)
    details: dict[str, list[Block]] = {
        "memory": [Text(summary[0].value), table, bars],
        "figures": [figures_of(summary, *_facts(asked, case, trial.job, r))],
        "remedies": remedy,
        "cards": cards,
        "changed": changed(case.loaded),
    }
    return Document.layered(
        "memory",
        job_inputs(case, trial.job),
        r,
        summary,
        details,
        warnings=case.warnings(),
        answered_no=not r.fits,
        terms=tune_words.memory_terms(case, trial.job, r.expected),
        csv_table=table,
        **startable(lambda: kept_job(asked, case, trial)),
    )


def kept_job(asked: Question, case: FinetuneCase, trial: Trial) -> dict[str, object]:
    """Keep a job whole with what is expected of it."""
    memory = f"{trial.memory.total_bytes / 1e9:.1f} GB on the fullest GPU"
    return job_of(asked, case, trial.job, f"expected: {trial.step.step_s:.3g} s a step, {memory}")


def job_inputs(case: FinetuneCase, job: Job) -> dict[str, object]:
    """Return the inputs of an answer as its JSON has them."""
    return inputs_of(
        case.loaded,
        job.layout,
        method=asdict(job.method),
        optimizer=job.optimizer.name,
        loss=job.loss,
        attention=job.attention,
        offload=sorted(job.offload),
        mean_tokens=case.bench.mean_tokens,
    )


def _parts_table(case: FinetuneCase, r: TuningMemory) -> Table:
    many = {case.software.name: r.expected, **r.against}
    if r.against:
        columns = [Column("part", "per GPU", right=False)]
        columns += [Column(f"{n}_bytes", n, gb) for n in many]
        keys = [
            (label, key)
            for label, key in tune_words.PARTS
            if any(getattr(m, key) for m in many.values())
        ]
        rows = [(label, *(getattr(m, key) for m in many.values())) for label, key in keys]
        return Table(columns, [*rows, ("total", *(m.total_bytes for m in many.values()))])
    rows = compared_rows(r.ideal, r.expected, ((key, label) for label, key in tune_words.PARTS))
    return compared_table(rows, r.ideal, r.expected)


def _facts(
    asked: Memory, case: FinetuneCase, job: Job, r: TuningMemory
) -> list[tuple[str, str, str]]:
    """Answer in figures beside its summary."""
    has = f"; it has {gb(asked.host_memory)}" if asked.host_memory else ""
    hosts = f"per node: offloaded parts and their copies, processes{has}"
    return [
        *counted_rows(r, r.expected.peaks),
        ("states", *tune_words.states_text(job, case.bench.site(job)[2])),
        ("host memory", gb(r.host_bytes_per_node), hosts),
        *([("habits", "", habit)] if (habit := tune_words.habit_text(case, job)) else []),
    ]


def remedy_table(found: Sequence[BenchChange]) -> Table:
    """List what would make it fit."""
    columns = (
        Column("words", "to make it fit, each on top", right=False),
        Column("saved_bytes", "saves", gb),
        Column("total_bytes", "then", gb),
        Column("lost_s", "step", lambda v: f"{v:+.3g} s"),
        Column("fits", "fits", lambda v: "yes" if v else "no", right=False),
    )
    return Table.of(columns, found)


def _card_table(r: TuningMemory) -> Table:
    columns = (
        Column("gpu", "smallest GPUs that hold it", right=False),
        Column("hbm_bytes", "memory", lambda v: f"{v / 2**30:,.0f} GiB"),
        Column("usable_bytes", "usable", gb),
        Column("step_s", "step", tune_words.time_text),
        Column("tokens_per_s", "tokens/s", lambda v: f"{v:,.0f}"),
    )
    return Table.of(columns, r.cards)


def memory_summary(
    asked: Memory, case: FinetuneCase, job: Job, r: TuningMemory, said: str
) -> list[Point]:
    """Memory of a fine-tuning job."""
    room = (
        f"{r.longest_seq_len:,} tokens, or micro-batch {r.largest_micro_batch:,}; "
        f"{r.trained_params / 1e6:,.1f} M parameters are trained"
    )
    found = tune_words.head_points(case, job, r, said)
    found.append(largest_parts(tune_words.part_rows(r.expected), r.expected.moment))
    found.append(tune_words.step_point(r))
    helps = tune_words.remedy_points(r.remedies, r.enough)
    found += [Point("longest", room)] if r.fits else helps
    if r.fewest_gpus is not None:
        found.append(Point("fewest GPUs", f"{r.fewest_gpus:,}"))
    found += taken_points(r.taken)
    kind = "qlora" if job.method.quantised and job.method.kind == "lora" else job.method.kind
    known = {"method": kind, **({"software": case.software.name} if r.against else {})}
    following = command_of(asked, "plan", (), **known)
    return [*found, Point("next", following, "its cost")]
