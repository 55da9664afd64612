"""`network check FILE`: a given cable list against ports, evenness, rails, planes, bisection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError
from gpuscale.render.document import Column, Document, Facts, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.parts.asked import Network
    from gpuscale.core.fabric.bill import Cable


MOST_CABLES = 500_000


def read_cables(path: str) -> list[Cable]:
    """Cables of a CSV with the columns a_device, a_port, b_device, b_port (and length).

    Raises GpuscaleError for a file without these columns or with an empty cell.
    """
    from gpuscale.core.fabric.bill import COLUMNS, Cable
    from gpuscale.io.text import csv_lines

    lines = csv_lines(path, MOST_CABLES)
    names = [n.strip().lower().replace(" ", "_") for n in next(lines, [])]
    missing = [c for c in COLUMNS[:4] if c not in names]
    if missing:
        raise GpuscaleError(
            f"{path}: no column {', '.join(missing)}",
            "a cable list has a_device,a_port,b_device,b_port,length; A is the lower device",
        )
    found = []
    for n, line in enumerate(lines, 2):
        if not line:
            continue
        row = dict(zip(names, line, strict=False))
        cells = [row.get(c, "").strip() for c in COLUMNS]
        if not all(cells[:4]):
            raise GpuscaleError(f"{path}: line {n}: an end of the cable is empty")
        found.append(Cable(cells[0], cells[1], cells[2], cells[3], cells[4]))
    if not found:
        raise GpuscaleError(f"{path}: holds no cable")
    return found


def check_document(asked: Network) -> Document:
    """Check the list of `asked.file`; what is wrong makes the answer a no."""
    from gpuscale.answers.parts.network_blocks import CableCheck
    from gpuscale.core.fabric.check import check_cables
    from gpuscale.io.run import load_switch

    if asked.file is None:
        raise GpuscaleError("`network check` needs a file", "gpuscale network check cables.csv")
    ports = asked.radix
    if ports is None and asked.switch is not None:
        switch = load_switch(asked.switch)
        ports = switch.ports_at(asked.link or switch.native_bytes_per_s)
    try:
        report = check_cables(read_cables(asked.file), ports)
    except ValueError as error:
        raise GpuscaleError(f"{asked.file}: {error}") from None
    tiers = ", ".join(f"{n} in {name}" for name, n in report.tiers)
    wrong = [f.check for f in report.findings if not f.ok]
    verdict = f"{asked.file}: " + (f"wrong: {', '.join(wrong)}." if wrong else "nothing is wrong.")
    facts = [
        ("cables", f"{report.n_cables:,}", f"{report.n_hosts:,} hosts"),
        ("switches", f"{report.n_switches:,}", tiers),
        ("networks", str(report.n_planes), "without a common switch"),
        ("a link fails", f"{100 * report.link_loss_frac:.3g} %", "of a host's links"),
        ("a leaf fails", f"{100 * report.leaf_loss_frac:.3g} %", "of all host links"),
    ]
    if report.spine_loss_frac is not None:
        share = f"{100 * report.spine_loss_frac:.3g} %"
        facts.append(("a spine", share, "of all links between tiers, where one fails"))
    columns = {
        "check": "check",
        "ok": Column("ok", "", lambda v: "ok" if v else "WRONG", right=False),
        "detail": "found",
    }
    return Document.layered(
        "network",
        {"check": asked.file, "switch_radix": ports},
        CableCheck(report.ok, report),
        (),
        {
            "figures": [Text(verdict), Facts(facts)],
            "checks": [Table.of(columns, report.findings, "checks")],
        },
        warnings=[] if ports else ["ports of a switch not checked: give --switch or --radix"],
        answered_no=not report.ok,
    )
