"""Money, energy and carbon of an answer: what is asked, the bill, and how it is shown.

Every question with a duration or a rate inherits `Costed` and calls `bill_of`; the formulas are
in `core.run`, the offers, sites and readings in `io.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuscale.answers.ask import PRETRAIN, TRAIN, Asked, Question, amount, flag, text
from gpuscale.core.records import dataclass, replace
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.run.bill import Bill, Owned, Rate, Site
    from gpuscale.specs.hardware import ClusterSpec

DEFAULT_SITE = "world"
J_PER_KWH = 3.6e6

PRICE = "Of a GPU, e.g. '2.5 USD/h'."


def read_price(value: Any, label: str = "--price") -> float:
    """Price of a GPU-hour: a number is in USD/h, a text must say so.

    Raises GpuscaleError for a text without a unit, which may be meant per node or per month.

    >>> read_price("2.10 USD/h"), read_price(2.1)
    (2.1, 2.1)
    """
    from gpuscale.answers.values import quantity

    return quantity(value, "usd_per_hour", label, most=1e6)


@dataclass(kw_only=True)
class Costed(Question):
    """Options of every question whose answer has a duration or a rate."""

    GROUP: ClassVar[str] = "money"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN
    spot: Asked[bool] = flag("Rent at the spot price, with its pre-emptions.", common=1)
    preemptions: Asked[float | None] = amount(
        "Times a day that a spot job is stopped. [default: 1]",
        "count",
        most=1e4,
        zero=True,
        tasks=PRETRAIN,
    )
    site: Asked[str | None] = text(
        "Where it stands: a country or cloud region, e.g. france, gcp/us-central1. "
        f"[default: {DEFAULT_SITE}]"
    )
    pue: Asked[float | None] = amount(
        "Power of the site over that of the machines, 1 or more. [default: the site's]",
        "count",
        least=1.0,
        most=10.0,
    )
    own: Asked[str | None] = text(
        "Owned instead of rented: a file with its prices.", metavar="FILE"
    )

    def check(self) -> None:
        """Read the site and what is owned."""
        from gpuscale.io.run import load_owned, load_site

        super().check()
        if self.site is not None:
            load_site(self.site, self.pue)
        if self.own is not None:
            load_owned(self.own)


@dataclass(kw_only=True)
class Priced(Costed):
    """The same, and a price."""

    price: Asked[float | None] = Asked(PRICE, None, read_price, group="money", common=1)


def rate_of(cluster: ClusterSpec, given: float | None = None, spot: bool = False) -> Rate | None:
    """Price of a GPU-hour: as given, else of the cluster's file, else of the shipped offers.

    Raises GpuscaleError if a spot price is wanted and none is known.
    """
    from gpuscale.core.run.bill import Rate
    from gpuscale.io.run import day_of, rent_of, today

    if given is not None:
        return Rate(given, given, given, "given")
    if spot:
        rate = rent_of(cluster.gpu.name, "spot")
        if rate is None:
            raise GpuscaleError(
                f"no spot offer of {cluster.gpu.name} is known", "give it: --price '1.2 USD/h'"
            )
        return rate
    own = cluster.price_usd_per_gpu_hour
    if own is not None:
        day = day_of(cluster.price_date)
        age = None if day is None else max(0, (today() - day).days)
        kind = cluster.price_kind or "preset"
        return Rate(own, own, own, kind, cluster.name, cluster.price_date, age_days=age)
    return rent_of(cluster.gpu.name) or rent_of(cluster.gpu.name, "capacity-block")


def rate_text(rate: Rate) -> str:
    """Say what a price is and how old.

    >>> from gpuscale.core.run.bill import Rate
    >>> rate_text(Rate(2.5, 2.5, 2.5, "given"))
    '2.5 USD per GPU-hour (given)'
    """
    words = [rate.kind, rate.origin, rate.as_of]
    if rate.low_usd < rate.high_usd:
        words.insert(2, f"{rate.low_usd:.4g} to {rate.high_usd:.4g}")
    return f"{rate.usd_per_gpu_hour:.4g} USD per GPU-hour ({', '.join(w for w in words if w)})"


def age_warnings(rate: Rate | None) -> list[str]:
    """Warn of a price that is old or undated."""
    from gpuscale.io.run import FRESH_DAYS, age_text

    if rate is None or (rate.age_days or 0) <= FRESH_DAYS and rate.as_of != "undated":
        return []
    return [f"the price of a GPU is {age_text(rate)}; --price 'X USD/h' gives today's"]


def owned_of(asked: Costed, cluster: ClusterSpec, site: Site, work_w: float | None) -> Owned:
    """Cluster that is owned: the file over the site and the tables; what is missing is refused.

    `work_w`: power of a node, where it is known. Raises GpuscaleError if the price of a machine,
    its power or that of electricity is nowhere said.
    """
    from gpuscale.io.run import load_owned, load_purchase

    own, bought = load_owned(asked.own or ""), load_purchase(cluster.gpu.name)
    node_usd = own.node_usd
    if node_usd is None and bought is not None and bought.gpus_per_node == cluster.gpus_per_node:
        node_usd = bought.node_usd
    price = own.usd_per_kwh if own.usd_per_kwh is not None else site.usd_per_kwh
    whole = replace(
        own,
        node_usd=node_usd,
        node_power_w=own.node_power_w or work_w,
        pue=own.pue or site.pue,
        usd_per_kwh=price,
    )
    examples = {"node_usd": "310000 USD", "node_power_w": "8 kW", "usd_per_kwh": "0.08 USD/kWh"}
    for key, example in examples.items():
        if getattr(whole, key) is None:
            raise GpuscaleError(f"--own: `{key}` is not known", f'write {key} = "{example}"')
    return whole


def bill_of(
    asked: Costed,
    cluster: ClusterSpec,
    time_s: float,
    n_gpus: int,
    *,
    given: float | None = None,
    work_frac: float = 1.0,
    tokens: float | None = None,
) -> Bill:
    """Bill of a duration.

    `asked`: site, PUE, spot, own. `cluster`: its GPU, node power and price. `time_s`: elapsed time,
    failures included [s]. `n_gpus`: GPUs held [1]. `given`: price of a GPU-hour [USD/h].
    `work_frac`: of the time at work; the rest idles [1]. `tokens`: tokens made in that time [1].
    """
    from gpuscale.core.run.bill import Bill, Rate, break_even_utilisation, charge, own_cost
    from gpuscale.core.run.time import SECONDS_PER_DAY
    from gpuscale.io.run import load_draw, load_making, load_site

    site = load_site(asked.site or DEFAULT_SITE, asked.pue)
    draw = load_draw(cluster)
    rate, rent, own, share = None, None, None, None
    life_s, use = 4 * 365.25 * SECONDS_PER_DAY, 0.8
    if asked.own is not None:
        owned = owned_of(asked, cluster, site, draw.work_w if draw else None)
        site = replace(site, pue=owned.pue or site.pue, usd_per_kwh=owned.usd_per_kwh)
        size = (n_gpus, cluster.gpus_per_node)
        own = own_cost(owned, *size)
        each = own.total_usd_per_gpu_hour
        rate = Rate(each, each, each, "own", asked.own)
        rent = rate_of(cluster, given, asked.spot)
        share = break_even_utilisation(owned, *size, rent.usd_per_gpu_hour) if rent else None
        life_s, use = owned.life_years * 365.25 * SECONDS_PER_DAY, owned.utilisation
    else:
        rate = rate_of(cluster, given, asked.spot)
    making = load_making(cluster.gpu.name, life_s, use)
    found = charge(
        time_s, n_gpus, rate, draw, site, work_frac=work_frac, tokens=tokens, making=making
    )
    return Bill(rate, found, site, draw, own, rent, break_even_utilisation=share)


def stops_per_s(asked: Costed) -> float:
    """Pre-emptions of a spot job. [1/s]."""
    from gpuscale.core.run.time import SECONDS_PER_DAY

    if not asked.spot:
        if asked.preemptions is not None:
            raise GpuscaleError("--preemptions needs --spot")
        return 0.0
    return (1.0 if asked.preemptions is None else asked.preemptions) / SECONDS_PER_DAY


def bill_rows(bill: Bill) -> list[tuple[str, str, str]]:
    """Lines of a bill: money, energy, carbon, each with what it was made from."""
    from gpuscale.core.quantity import format_si

    c, rows = bill.charge, []
    if c.usd is not None and bill.rate is not None:
        rows.append(("cost", format_si(c.usd, "usd"), rate_text(bill.rate)))
        if c.usd_per_million_tokens is not None:
            each = f"{c.usd_per_million_tokens:.4g} USD"
            rows.append(("", each, "per million tokens"))
    if bill.own is not None:
        o = bill.own
        parts = (
            ("capital", o.capital_usd),
            ("energy", o.energy_usd),
            ("colocation", o.colocation_usd),
            ("staff", o.staff_usd),
            ("maintenance", o.maintenance_usd),
        )
        text_ = ", ".join(f"{name} {usd:.3g}" for name, usd in parts if usd)
        rows.append(("owned GPU-hour", f"{o.total_usd_per_gpu_hour:.4g} USD", text_))
    if bill.break_even_utilisation is not None and bill.rent is not None:
        note = f"of the hours used costs as much as renting at {rate_text(bill.rent)}"
        rows.append(("break-even", f"{100 * bill.break_even_utilisation:.1f} %", note))
    if c.energy_j is not None and bill.draw is not None and bill.site is not None:
        low_high = f"{kwh_text(c.energy_low_j)} to {kwh_text(c.energy_high_j)}"
        node = f"{bill.draw.work_w / 1e3:.3g} kW a node at work, PUE {bill.site.pue:g}"
        rows.append(("energy", kwh_text(c.energy_j), f"{low_high}; {node}"))
        if c.energy_usd is not None:
            price = f"at {bill.site.usd_per_kwh:.4g} USD/kWh, part of a rent"
            rows.append(("electricity", format_si(c.energy_usd, "usd"), price))
    if c.carbon_kg is not None and bill.site is not None:
        grid = f"site {bill.site.name}: {bill.site.grid_g_per_kwh:.4g} g/kWh, location-based"
        rows.append(("carbon", _kg(c.carbon_kg), grid))
    if c.carbon_market_kg is not None:
        rows.append(("", _kg(c.carbon_market_kg), "market-based"))
    if c.embodied_kg is not None:
        rows.append(("embodied carbon", _kg(c.embodied_kg), "making of the GPUs, by their hours"))
    return rows


def kwh_text(joule: float | None) -> str:
    """Write an energy in kWh, MWh, GWh or TWh."""
    kwh = (joule or 0.0) / J_PER_KWH
    for limit, factor, unit in ((1e3, 1.0, "kWh"), (1e6, 1e-3, "MWh"), (1e9, 1e-6, "GWh")):
        if kwh < limit:
            return f"{kwh * factor:.4g} {unit}"
    return f"{kwh * 1e-9:.4g} TWh"


def _kg(kg: float) -> str:
    if kg < 1e3:
        return f"{kg:.4g} kg CO2e"
    return f"{kg / 1e3:.4g} t CO2e" if kg < 1e7 else f"{kg / 1e3:,.0f} t CO2e"
