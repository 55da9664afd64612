"""Renew gpuscale/data/offers.csv from the price catalogues of SkyPilot.

python tools/renew_offers.py nebius COMMIT 2026-11-01      one cloud's list at a pinned commit
python tools/renew_offers.py nebius list.csv 2026-11-01    a list on disk, of that day
    --write     put the offers into the file; else say what would change

A cloud's old offers are replaced, those of other clouds stay. Lists are of
github.com/skypilot-org/skypilot-catalog (Apache-2.0), catalogs/v8/CLOUD/vms.csv.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "gpuscale" / "data" / "offers.csv"
COLUMNS = ("gpu", "provider", "item", "gpus", "region", "term", "usd_per_gpu_hour")
MORE = ("as_of", "as_printed", "source")
RAW = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog"

PRESETS = {
    "H100": "h100-sxm",
    "H100-SXM": "h100-sxm",
    "H200": "h200-sxm",
    "H200-SXM": "h200-sxm",
    "B200": "b200-sxm",
    "GB200": "gb200",
    "GH200": "gh200-96gb",
    "A100": "a100-sxm-40gb",
    "A100-80GB": "a100-sxm-80gb",
    "A100-80GB-SXM": "a100-sxm-80gb",
    "L4": "l4",
    "L40S": "l40s",
    "RTXPRO6000": "rtx-pro-6000-server",
    "MI300X": "mi300x",
}
"""Name of an accelerator in the lists -> GPU preset; others are left out."""

NO_PRICE = 700.0
"""Marker of a list for a price that is not known."""


def read(source: str) -> str:
    """Text of a file or an address."""
    if not source.startswith("https://"):
        return Path(source).read_text(encoding="utf-8")
    from urllib.request import urlopen

    with urlopen(source, timeout=60) as answer:
        found: str = answer.read().decode("utf-8")
    return found


def offers_of(cloud: str, text: str, day: str, source: str) -> list[dict[str, str]]:
    """Offers of a list, on demand and spot; a spot price that repeats the other is none."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        gpu = PRESETS.get(row.get("AcceleratorName", ""))
        count = float(row.get("AcceleratorCount") or 0)
        if gpu is None or count < 1:
            continue
        prices = {"on-demand": row.get("Price"), "spot": row.get("SpotPrice")}
        if prices["spot"] == prices["on-demand"]:
            prices["spot"] = None
        for term, price in prices.items():
            if not price or float(price) <= 0 or float(price) == NO_PRICE:
                continue
            key = (gpu, row.get("Region", ""), term)
            each = float(price) / count
            if key in found and float(found[key]["usd_per_gpu_hour"]) <= each:
                continue
            cells = (gpu, cloud, row.get("InstanceType", ""), f"{count:g}", key[1], term)
            found[key] = dict(
                zip((*COLUMNS, *MORE), (*cells, f"{each:.6g}", day, day, source), strict=True)
            )
    return list(found.values())


def merged(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put new offers in the place of all older ones of their providers."""
    providers = {row["provider"].lower() for row in new}
    kept = [row for row in old if row["provider"].lower() not in providers]
    order = ("gpu", "term", "provider", "region")
    return sorted([*kept, *new], key=lambda row: [row[c] for c in order])


def main(args: list[str]) -> int:
    """Read a list, and print or write what it changes."""
    write = "--write" in args
    given = [a for a in args if a != "--write"]
    if len(given) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    cloud, source = given[:2]
    day = given[2] if len(given) == 3 else ""
    if re.fullmatch(r"[0-9a-f]{40}", source):
        source = f"{RAW}/{source}/catalogs/v8/{cloud}/vms.csv"
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day):
        print("the day of the list is wanted, as 2026-11-01", file=sys.stderr)
        return 2
    new = offers_of(cloud, read(source), day, source)
    with FILE.open(encoding="utf-8") as lines:
        old = list(csv.DictReader(lines))
    rows = merged(old, new)
    print(f"{len(new)} offers of {cloud}; {len(old)} -> {len(rows)} rows")
    if write and new:
        with FILE.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, (*COLUMNS, *MORE), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0 if new else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
