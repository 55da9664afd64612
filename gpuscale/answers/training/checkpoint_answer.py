"""The answer of `checkpoint`: sized, timed, placed in a run, and its terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers import lifetime
from gpuscale.answers.money import age_warnings, bill_of, bill_rows, stops_per_s
from gpuscale.answers.run_terms import BilledTime, bill_terms, outlook_terms, save_terms
from gpuscale.answers.summary import changed, cost_points
from gpuscale.core.memory.parameters import RECIPES, FamilyMemory, Recipe, parameters_of
from gpuscale.core.model.params import count_params
from gpuscale.core.quantity import format_si
from gpuscale.core.quantity import format_time as t
from gpuscale.core.records import Term, dataclass, replace, term_of
from gpuscale.core.run import checkpoint as saving
from gpuscale.core.run.bill import Bill
from gpuscale.core.run.checkpoint import GPUS_PER_NODE, Fleet, interruptions, spare_machines
from gpuscale.core.run.goodput import MOST_SAVES, Outlook, effective_frac, first_order_frac
from gpuscale.core.run.time import SECONDS_PER_DAY
from gpuscale.core.settings import MOMENT_BYTES, JobSettings
from gpuscale.core.words import gb
from gpuscale.errors import GpuscaleError
from gpuscale.io.inputs import Loaded, load_inputs
from gpuscale.io.software import capabilities_of, load_software
from gpuscale.render.document import Block, Column, Document, Facts, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Checkpoint
    from gpuscale.render.chart import Chart
    from gpuscale.specs.hardware import ClusterSpec

LOST = "saving, work done again, recovery, slow machines"


def checkpoint_terms(
    asked: Checkpoint, cluster: ClusterSpec, r: CheckpointAnswer
) -> tuple[Term, ...]:
    """Explain the headline numbers."""
    from gpuscale.io.run import load_saver

    store = lifetime.store_of(asked, cluster, r.n_gpus)
    writers = min(r.n_gpus, asked.writers or r.n_gpus)
    met = lifetime.conditions_of(asked, r.n_gpus, r.save, stops_per_s(asked))
    held = BilledTime(r.outlook.expected_s, r.n_gpus, 1 - r.outlook.goodput.recovery_frac)
    g = r.outlook.goodput
    return (
        _size(asked, r),
        *save_terms(r.save, load_saver(asked.saver), store, r.n_nodes, writers),
        *outlook_terms(r.outlook, met),
        term_of("lost_frac", "frac", "1 - goodput_frac", LOST, r, g),
        *bill_terms(r.bill, held),
    )


def _size(asked: Checkpoint, r: CheckpointAnswer) -> Term:

    recipe = saved_recipe(asked.recipe, asked.software)
    adapters = asked.trainable is not None and not asked.weights_only
    return term_of(
        "checkpoint_bytes",
        "bytes",
        "saved_params * weight_bytes_each"
        " + trained_params * (master_bytes_each + state_bytes_each)",
        f"recipe {recipe.name}; gradients are not saved",
        r,
        saved_params=r.trainable_params if adapters else r.n_params,
        weight_bytes_each=recipe.weights_bytes,
        trained_params=r.trainable_params,
        master_bytes_each=recipe.master_bytes,
        state_bytes_each=recipe.optimizer_bytes,
    )


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """One checkpoint, and a run with it."""

    n_params: float
    trainable_params: float
    bytes_per_param: float
    checkpoint_bytes: float
    parts: saving.CheckpointParts
    n_gpus: int
    n_nodes: int
    save: saving.SaveTime
    store_write_bytes_per_s: float
    store_read_bytes_per_s: float
    mtbf_s: float
    young_s: float
    daly_s: float
    exact_s: float
    interval_s: float  # used: as given, or the best that the store allows
    first_order_frac: float  # useful time to first order, beside the exact form of `outlook`
    lost_frac: float  # of the time: saving, work done again, recovery
    saving_frac: float  # of the time: waiting for saves
    bytes_per_day: float  # written
    n_saves: float  # in the time asked for
    n_interruptions: float  # while it computes so long
    n_interruptions_by_clock: float  # in the time asked for, as elapsed
    outlook: Outlook
    spares: int  # machines that cover those down at once, 99 % of the time, repaired in a day
    bill: Bill


ADAM_MOMENTS = 2


def saved_recipe(recipe: str | None, software: str | None, moments: str | None = None) -> Recipe:
    """Recipe by name, else that of a framework, else mixed-adam; with Adam's moments in a format.

    >>> r = saved_recipe(None, "torchtitan")
    >>> r.weights_bytes, r.master_bytes, r.optimizer_bytes
    (4.0, 0.0, 8.0)

    Raises GpuscaleError for both, and for a framework that is not known.
    """
    if moments is not None:
        if recipe is not None:
            raise GpuscaleError("give --recipe or --moments, not both", "a recipe has its own")
        if software is not None:
            soft = capabilities_of(load_software(software))
            if why := JobSettings(moments=moments).against(soft):
                raise GpuscaleError(why)
        return replace(saved_recipe(None, software), optimizer_bytes=MOMENT_BYTES[moments])
    if software is None:
        return RECIPES[recipe or "mixed-adam"]
    if recipe is not None:
        raise GpuscaleError("give --recipe or --software, not both", "a framework has its own")
    spec = load_software(software)
    tuned = spec.finetune
    if tuned is not None and spec.memory == FamilyMemory():
        p = tuned
        saved = (p.full_weights_bytes, p.full_master_bytes, ADAM_MOMENTS * p.full_moment_bytes)
    else:
        saved = parameters_of(spec).saved_bytes
    weights, master, states = saved
    origin = f"as {spec.title or spec.name} keeps them"
    return Recipe(spec.name, weights, 0.0, master, states, origin)


def _parts(asked: Checkpoint, loaded: Loaded) -> tuple[float, float, saving.CheckpointParts]:
    """(Parameters, trained ones, checkpoint by part)."""
    n = asked.params or count_params(loaded.model).total_params
    trained = 0.0 if asked.weights_only else asked.trainable or n
    if trained > n:
        raise GpuscaleError(f"--trainable {trained:.4g} is more than the {n:.4g} parameters")
    r = saved_recipe(asked.recipe, asked.software, asked.moments)
    adapters = asked.trainable is not None and not asked.weights_only
    saved = trained if adapters else n  # the frozen weights are on disk already
    parts = saving.checkpoint_parts(
        saved, r.weights_bytes, r.master_bytes, r.optimizer_bytes, trained
    )
    return n, trained, parts


def _answer(asked: Checkpoint, loaded: Loaded) -> tuple[CheckpointAnswer, Fleet]:
    cluster = loaded.cluster
    n_gpus = asked.gpus or cluster.gpus_per_node
    n_nodes = -(-n_gpus // cluster.gpus_per_node)
    n, trained, parts = _parts(asked, loaded)
    total = parts.total_bytes
    other, writers = stops_per_s(asked), asked.writers
    saved, found = lifetime.life_of(
        asked, cluster, total, asked.time, n_gpus, writers=writers, other_per_s=other
    )
    g, mean = found.goodput, found.goodput.mtbf_s
    store = lifetime.store_of(asked, cluster, n_gpus)
    fleet, restart = lifetime.fleet_of(asked, n_gpus), lifetime.restart_s(asked, n_gpus, saved)
    n_saves = asked.time / g.interval_s
    machine = fleet.per_node_day * cluster.gpus_per_node / GPUS_PER_NODE
    work, price = 1 - g.recovery_frac, asked.price
    bill = bill_of(asked, cluster, found.expected_s, n_gpus, given=price, work_frac=work)
    answer = CheckpointAnswer(
        n_params=n,
        trainable_params=trained,
        bytes_per_param=total / n,
        checkpoint_bytes=total,
        parts=parts,
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        save=saved,
        store_write_bytes_per_s=store.write_bytes_per_s,
        store_read_bytes_per_s=store.read_bytes_per_s,
        mtbf_s=mean,
        young_s=saving.young_interval_s(saved.blocking_s, mean),
        daly_s=saving.daly_interval_s(saved.blocking_s, mean),
        exact_s=saving.exact_interval_s(saved.blocking_s, mean),
        interval_s=g.interval_s,
        first_order_frac=first_order_frac(g.interval_s, saved.blocking_s, restart, mean),
        lost_frac=1 - g.goodput_frac,
        saving_frac=g.saving_frac,
        bytes_per_day=total * SECONDS_PER_DAY / g.interval_s,
        n_saves=n_saves,
        n_interruptions=found.n_interruptions,
        n_interruptions_by_clock=interruptions(asked.time, mean),
        outlook=found,
        spares=spare_machines(n_nodes, machine, SECONDS_PER_DAY),
        bill=bill,
    )
    return answer, fleet


def checkpoint_document(asked: Checkpoint) -> Document:
    """Size it, time it, and place it in a run."""
    loaded = load_inputs(asked, cluster=asked.where, model=asked.model, catalogue=asked.catalogue)
    r, fleet = _answer(asked, loaded)
    name = loaded.model.name if asked.model is not None else f"{r.n_params:.4g} parameters"
    where = f"{name} on {r.n_gpus:,} {loaded.gpu.name} ({loaded.cluster.name})"
    title = f"{where}, saved {asked.saver}"
    clock = f"{r.n_interruptions_by_clock:,.3g} interruptions in so long by the clock"
    time_rows = [
        ("time computed", t(asked.time, 4), clock),
        *lifetime.outlook_rows(r.outlook, r.n_gpus),
    ]
    first = f"{100 * r.first_order_frac:.1f} %"
    note = "useful to first order (Kokolis et al.); parts from the exact form where stops are dense"
    time_rows.append(("", first, note))
    time_rows.append(("failure rate", f"{1e3 * fleet.per_node_day:.3g}", _rate_note(fleet)))
    spare = "machines down at once, 99 % of the time, each repaired in a day"
    time_rows.append(("spares", str(r.spares), spare))
    details: dict[str, list[Block]] = {
        "size": [Text(title), *changed(loaded), _size_table(r)],
        "save": [Facts(_save_rows(asked, loaded.cluster, r), "save and load")],
        "run": [Facts(time_rows, "a run with failures")],
        "bill": [Facts(bill_rows(r.bill), "bill of the run")],
    }
    return Document.layered(
        "checkpoint",
        loaded.inputs(
            params=asked.params,
            n_gpus=r.n_gpus,
            recipe=saved_recipe(asked.recipe, asked.software).name,
            saver=asked.saver,
            recovery=asked.recovery,
            fleet=fleet.name,
            interval_s=asked.interval,
            time_s=asked.time,
        ),
        r,
        _summary(asked, title, r),
        details,
        warnings=[*loaded.warnings, *age_warnings(r.bill.rate)],
        terms=checkpoint_terms(asked, loaded.cluster, r),
        pictures=lambda: _pictures(r, asked),
    )


def _summary(asked: Checkpoint, title: str, r: CheckpointAnswer) -> list[Point]:
    """Size, save, interval, run, what is lost, what helps, money."""
    o = r.outlook
    waits = f"the job waits {t(r.save.blocking_s, 3)} each time; loaded in {t(r.save.load_s, 3)}"
    ends = f"({t(o.low_s, 3)} to {t(o.high_s, 3)})"
    stops = f"{r.n_interruptions:,.3g} interruptions; saving {100 * r.saving_frac:.2f} %"
    return [
        Point("verdict", f"{title}: {gb(r.checkpoint_bytes)} every {t(r.interval_s, 3)}."),
        Point("save", t(r.save.write_s, 3), f"until it is safe; {waits}"),
        Point("interval", t(r.interval_s, 3), _used(asked, r)),
        Point("run", t(o.expected_s), f"{ends}, failures counted; {t(asked.time, 3)} without"),
        Point("lost", f"{100 * r.lost_frac:.1f} %", stops),
        *(Point("would help", h.lever, f"saves {t(h.saved_s, 3)}") for h in o.helps[:1]),
        *cost_points(r.bill),
    ]


def _rate_note(fleet: Fleet) -> str:
    low, high = 1e3 * fleet.low_per_node_day, 1e3 * fleet.high_per_node_day
    return f"stops per 1,000 machine-days, {low:.3g} to {high:.3g}; fleet {fleet.name}"


def _size_table(r: CheckpointAnswer) -> Table:
    p = r.parts
    rows = [
        ("weights", p.weights_bytes),
        ("fp32 master weights", p.master_bytes),
        ("optimizer states", p.optimizer_bytes),
        ("checkpoint", p.total_bytes),
    ]
    columns = [
        Column("part", "part", right=False),
        Column("bytes", "size", gb),
        Column("gib", "", lambda v: f"{v:,.2f} GiB"),
        Column("bytes_per_param", "a parameter", lambda v: f"{v:.3g} B"),
    ]
    shown = [[name, v, v / 2**30, v / r.n_params] for name, v in rows if v or name == "checkpoint"]
    return Table(columns, shown, "size")


def _used(asked: Checkpoint, r: CheckpointAnswer) -> str:
    """Say why the interval is as it is."""
    if asked.interval:
        return "given"
    if r.interval_s <= 1.001 * r.exact_s:
        return "the best"
    if r.interval_s <= 1.001 * r.save.write_s:
        return "a save must be safe before the next one begins"
    return f"{MOST_SAVES:,.0f} saves from one failure to the next: they cost nothing"


def _rate(bytes_per_s: float) -> str:
    return format_si(bytes_per_s, "bytes_per_s", 3)


def _save_rows(
    asked: Checkpoint, cluster: ClusterSpec, r: CheckpointAnswer
) -> list[tuple[str, str, str]]:
    s = r.save
    kind = asked.store or "general"
    stores = [lifetime.store_of(asked, cluster, r.n_gpus, end) for end in ("low", "high")]
    rates = " to ".join(_rate(store.write_bytes_per_s) for store in stores)
    origin = f"{kind}, {rates} (--store)" if isinstance(kind, str) else "given"
    others = f"exact; Young {t(r.young_s, 3)}, Daly {t(r.daly_s, 3)}"
    return [
        ("store", _rate(r.store_write_bytes_per_s), origin),
        ("per GPU", format_si(s.bytes_per_gpu, "bytes"), "distinct shards"),
        ("save", t(s.write_s, 3), f"until it is safe; bound by the {s.bound}"),
        ("job waits", t(s.blocking_s, 3), f"for each save ({asked.saver})"),
        ("load", t(s.load_s, 3), ""),
        ("best interval", t(r.exact_s, 3), others),
        ("interval", t(r.interval_s, 3), _used(asked, r)),
        ("written a day", format_si(r.bytes_per_day, "bytes"), f"{r.n_saves:,.0f} saves in all"),
        ("lost to saving", f"{100 * r.saving_frac:.2f} %", "of the time"),
    ]


def _pictures(r: CheckpointAnswer, asked: Checkpoint) -> list[Chart]:
    """Effective time over the interval, at the expected failure rate."""
    from gpuscale.render.chart import Axis, Lines, Mark, Series

    restart = lifetime.restart_s(asked, r.n_gpus, r.save)
    low, n = max(1.0, r.interval_s / 30), 60
    points = []
    for k in range(n + 1):
        at = low * (r.interval_s * 30 / low) ** (k / n)
        points.append((at, effective_frac(at, r.save.blocking_s, restart, r.mtbf_s), ""))
    marks = [Mark("x", r.interval_s, "used"), Mark("x", r.young_s, "Young")]
    return [
        Lines(
            key="interval",
            title="Useful time over the interval between checkpoints",
            x=Axis("interval", "s", log=True),
            y=Axis("useful time", "frac"),
            series=[Series("", points, markers=False)],
            marks=marks,
            note=f"{r.n_gpus:,} GPUs, a save waits {r.save.blocking_s:.3g} s",
        )
    ]
