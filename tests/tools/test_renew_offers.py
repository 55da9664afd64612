"""Renewing the shipped offers from a list: markers, repeated spot prices, other clouds kept."""

import csv
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
spec = importlib.util.spec_from_file_location("renew_offers", ROOT / "tools" / "renew_offers.py")
renew = importlib.util.module_from_spec(spec)
spec.loader.exec_module(renew)

LIST = """InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region
h100_8,H100,8,23.6,10.0,eu
h100_4,H100,4,16.0,,eu
h200_8,H200,8,700.0,700.0,eu
a100_1,A100-80GB,1,1.39,1.39,eu
cpu,,,0.1,,eu
odd,Q9000,1,1.0,,eu
"""


def test_offers_of_a_list():
    found = renew.offers_of("nebius", LIST, "2026-11-01", "list.csv")
    rows = {(r["gpu"], r["term"]): float(r["usd_per_gpu_hour"]) for r in found}
    assert rows == {
        ("h100-sxm", "on-demand"): 2.95,
        ("h100-sxm", "spot"): 1.25,
        ("a100-sxm-80gb", "on-demand"): 1.39,
    }
    assert {r["as_of"] for r in found} == {"2026-11-01"}


def test_other_clouds_stay_and_the_shape_is_that_of_the_file():
    with renew.FILE.open(encoding="utf-8") as lines:
        old = list(csv.DictReader(lines))
    new = renew.offers_of("Nebius", LIST, "2026-11-01", "list.csv")
    rows = renew.merged(old, new)
    others = [r for r in old if r["provider"] != "Nebius"]
    assert len(rows) == len(others) + len(new)
    assert set(rows[0]) == {*renew.COLUMNS, *renew.MORE}


def test_every_shipped_offer_has_a_preset_a_price_and_a_source():
    from gpuscale.io.presets import preset_names
    from gpuscale.io.run import offers

    known = set(preset_names("gpu"))
    for offer in offers():
        assert offer.gpu in known
        assert 0.1 < offer.usd_per_gpu_hour < 100
        assert offer.term in ("on-demand", "spot", "capacity-block") and offer.source
