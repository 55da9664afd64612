"""Loading what a run meets: failure rates, savers, power, sites, prices, parts, causes."""

from __future__ import annotations

import datetime
import os
import re
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import Any, TypeVar

from gpuscale.core.diagnosis.causes import Cause, Sign
from gpuscale.core.records import dataclass
from gpuscale.core.run.bill import Draw, Making, Owned, Rate, Site
from gpuscale.core.run.checkpoint import Fleet, Saver
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.presets import OWN, checked, looks_like_path, preset_files, preset_path, shipped
from gpuscale.io.text import Table, read_toml
from gpuscale.specs import run as specs
from gpuscale.specs.hardware import ClusterSpec

S = TypeVar("S")

FRESH_DAYS = 90
"""Age beyond which a snapshot of prices is warned about."""

KEPT_DAYS = 90
"""Offers older than the newest by more than this are not averaged with it."""


def today() -> datetime.date:
    """Date that ages are counted to; `SOURCE_DATE_EPOCH` fixes it."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        return datetime.date.today()
    try:
        return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).date()
    except (ValueError, OverflowError, OSError):
        said = f"SOURCE_DATE_EPOCH: seconds since 1970 are wanted, got `{epoch[:20]}`"
        raise GpuscaleError(said) from None


@lru_cache(maxsize=32)
def _table(name: str) -> Table:
    return read_toml(preset_files("run")[name])


def names(table: str) -> list[str]:
    """Rows of a table of `presets/run`."""
    return list(_table(table))


def row(table: str, name: str, spec: type[S], noun: str, /, **more: str) -> S:
    """One row of a table of `presets/run`.

    Raises GpuscaleError if there is none of that name, with the closest one, or it does not hold.
    """
    rows = _table(table)
    key = name.strip().lower()
    if key not in rows:
        raise unknown_name(noun, name, rows, f"known: {', '.join(list(rows)[:12])}")
    return checked(spec, {**rows[key], **more}, f"{preset_files('run')[table]}: {key}")


def _known(table: str, name: str, spec: type[S]) -> S | None:
    """One row of a table, None where there is none of that name."""
    return row(table, name, spec, "") if name in names(table) else None


def load_fleet(name: str = "general") -> Fleet:
    """Failure rates of a fleet."""
    r = row("fleets", name, specs.FleetRow, "fleet")
    return Fleet(name, r.per_1000_node_days / 1e3, r.low / 1e3, r.high / 1e3, r.source)


def recovery_s(name: str, n_gpus: int) -> tuple[float, str]:
    """(Time from a failure until the job runs again, its source).

    >>> round(recovery_s("requeue", 8192)[0])
    755
    """
    r = row("recovery", name, specs.RecoveryRow, "way to recover")
    restart = r.restart_s + r.per_doubling_s * log2(n_gpus / r.at_gpus)
    return r.detect_s + r.hang_frac * r.hang_s + max(r.least_s, restart), r.source


def load_saver(name: str) -> Saver:
    """How software saves."""
    return row("savers", name, Saver, "way to save", name=name)


def load_site(name: str, pue: float | None = None) -> Site:
    """Place by country or cloud region, `--pue` laid over it."""
    r = row("sites", name, specs.SiteRow, "site")
    when = f" ({r.year})" if r.year else ""
    return Site(
        name, r.grid_g_per_kwh, pue or r.pue, r.usd_per_kwh, r.market_g_per_kwh, f"{r.source}{when}"
    )


def load_draw(cluster: ClusterSpec) -> Draw | None:
    """Power of a cluster's nodes at work; None where neither a rating nor a TDP is known."""
    own = _known("power", cluster.gpu.architecture, specs.PowerRow)
    r = own or row("power", "general", specs.PowerRow, "power")
    if cluster.node_power_w is not None:
        work = cluster.node_power_w * r.load
        how = f"{100 * r.load:.0f} % of the node's rating"
    elif cluster.gpu.tdp_w is not None:
        work = cluster.gpu.tdp_w * cluster.gpus_per_node * r.per_tdp
        how = f"{r.per_tdp:g} times the TDP of its GPUs"
    else:
        return None
    idle = work * float(_table("power")["idle"]["of_work"])
    return Draw(work, idle, r.low, r.high, cluster.gpus_per_node, f"{how}; {r.source}")


def load_making(gpu: str, life_s: float, utilisation_frac: float) -> Making | None:
    """Embodied carbon of a GPU, None where no figure is published."""
    r = _known("embodied", gpu, specs.EmbodiedRow)
    return Making(r.kg_per_gpu, life_s, utilisation_frac, r.source) if r else None


# --- switches and parts --------------------------------------------------------------------------


def load_switch(arg: str) -> specs.SwitchSpec:
    """Switch by preset name, alias or TOML file.

    >>> load_switch("QM9700").ports_at(50e9), load_switch("sn5600").ports_at(50e9)
    (64, 128)
    """
    path = Path(arg) if looks_like_path(arg) else preset_path("switch", arg)
    return checked(specs.SwitchSpec, read_toml(path), str(path))


def load_module(name: str) -> specs.ModuleRow | None:
    """Load a module of `presets/run/parts.toml`; None for no name."""
    if not name:
        return None
    modules = _table("parts")["module"]
    if name not in modules:
        raise unknown_name("module", name, modules, f"known: {', '.join(modules)}")
    return checked(specs.ModuleRow, modules[name], f"{preset_files('run')['parts']}: module {name}")


def load_link_price(link_bytes_per_s: float) -> specs.LinkRow | None:
    """Price of an optical link of a speed; None where none is published."""
    path = f"{preset_files('run')['parts']}: link"
    rows = [checked(specs.LinkRow, t, path) for t in _table("parts")["link"].values()]
    return next((r for r in rows if abs(r.link_bytes_per_s / link_bytes_per_s - 1) < 1e-6), None)


def load_purchase(gpu: str) -> specs.PurchaseRow | None:
    """Price of a machine with these GPUs; None where none is published."""
    return _known("purchase", gpu, specs.PurchaseRow)


def load_owned(path: str) -> Owned:
    """Read the file of `--own`."""
    return checked(Owned, read_toml(path), path)


def load_nvlink(generation: int) -> specs.NvlinkRow | None:
    """Links of a GPU and ports of a switch chip of an NVLink generation; None where not known."""
    return _known("nvlink", str(generation), specs.NvlinkRow)


def network_rates() -> tuple[float, float, str]:
    """(Failures of a link a month, of a switch, their source)."""
    link = row("network", "link", specs.PartRow, "part")
    switch = row("network", "switch", specs.PartRow, "part")
    return link.per_month, switch.per_month, link.source


# --- offers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """A dated offer to rent a GPU."""

    gpu: str
    provider: str
    region: str
    term: str  # on-demand, spot, capacity-block
    usd_per_gpu_hour: float
    as_of: str  # ISO date or month; empty where the source has none
    source: str


@lru_cache(maxsize=1)
def offers() -> tuple[Offer, ...]:
    """All offers of the shipped snapshot, `gpuscale/data/offers.csv`."""
    import csv
    import io

    text = (Path(__file__).parents[1] / "data" / "offers.csv").read_text(encoding="utf-8")
    rows: list[Table] = list(csv.DictReader(io.StringIO(text)))
    kept = [{name: row[name] for name in Offer.__slots__} for row in rows]
    return tuple(Offer(**r | {"usd_per_gpu_hour": float(r["usd_per_gpu_hour"])}) for r in kept)


def day_of(as_of: str) -> datetime.date | None:
    """First day that a date or month means.

    >>> day_of("2024-12"), day_of("")
    (datetime.date(2024, 12, 1), None)
    """
    match = re.fullmatch(r"(\d{4})-(\d{2})(?:-(\d{2}))?", as_of)
    return datetime.date(int(match[1]), int(match[2]), int(match[3] or 1)) if match else None


def rent_of(gpu: str, term: str = "on-demand") -> Rate | None:
    """Median and range of the newest offers of a GPU; None where there is none.

    >>> rate = rent_of("h100-sxm")
    >>> rate.low_usd < rate.usd_per_gpu_hour < rate.high_usd, rate.as_of
    (True, '2025-10-25')
    """
    found = [o for o in offers() if o.gpu == gpu and o.term == term]
    if not found:
        return None
    dated = [(d, o) for o in found if (d := day_of(o.as_of)) is not None]
    age = None
    if dated:
        newest = max(d for d, _ in dated)
        found = [o for d, o in dated if (newest - d).days <= KEPT_DAYS]
        age = max(0, (today() - newest).days)
    prices = sorted(o.usd_per_gpu_hour for o in found)
    n = len(prices)
    origin, as_of = (
        f"median of {n} offer{'s' * (n > 1)}",
        newest.isoformat() if dated else "undated",
    )
    median = (prices[(n - 1) // 2] + prices[n // 2]) / 2
    return Rate(median, prices[0], prices[-1], term, origin, as_of, age_days=age)


def age_text(rate: Rate) -> str:
    """Say how old a price is."""
    if rate.as_of == "undated":
        return "of no known date"
    return "" if rate.age_days is None else f"{rate.age_days} days old"


@lru_cache(maxsize=1)
def load_causes() -> tuple[Cause, ...]:
    """Read the catalogue; the package's own is held against `Cause` by a test, not at each start.

    Raises GpuscaleError for a key of another's that is missing or not known.
    """
    found = []
    for name, path in preset_files("cause").items():
        table = read_toml(path)
        shared = {key: table[key] for key in ("group", "verdict")}
        where = f"presets/cause/{name}.toml"
        for entry in table["cause"]:
            own = path.parents[1] in OWN
            found.append(_made(entry | shared) if own else checked(Cause, entry | shared, where))
    return tuple(found)


def _made(entry: Table) -> Cause:
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    made |= {k: tuple(Sign(*s) for s in entry.get(k, ())) for k in ("signs", "normal_if")}
    return Cause(**made)


@lru_cache(maxsize=4)
def load_table(name: str) -> Table:
    """Read a table beside the causes: `_words`, by which descriptions are understood, or others."""
    return read_toml(shipped(f"cause/{name}.toml"))


def first_of(table: dict[str, str], text: str) -> str | None:
    """Return the first name of a table whose words stand in a text."""
    return next((name for name, words in table.items() if re.search(words, text)), None)


def told(name: str, text: str) -> re.Match[str] | None:
    """Find the words of a name in a text.

    >>> told("serving", "vLLM 0.9") is not None, told("moe", "llama-7b") is not None
    (True, False)
    """
    return re.search(load_table("_words")[name], text, re.IGNORECASE)
