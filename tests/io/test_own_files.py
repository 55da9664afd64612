"""The package's own files are read the same with and without pydantic."""

from __future__ import annotations

import pytest

from gpuscale.errors import GpuscaleError
from gpuscale.io import (
    calibration,
    finetune,
    hardware,
    models,
    presets,
    run,
    serving,
    software,
    step,
)
from gpuscale.io.hf_keys import family_tables
from gpuscale.io.hf_parts import FamilyRow
from gpuscale.io.hf_parts import rows as family_rows
from gpuscale.io.presets import OWN, preset_files
from gpuscale.specs.fields import adapter


def alike(one, other):
    """Equal, and of the same types all through."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(alike(getattr(one, k), getattr(other, k)) for k in one.__dataclass_fields__)
    return one == other


READERS = {
    "gpu": hardware.load_gpu,
    "cluster": hardware.load_cluster,
    "model": models.load_model,
    "software": software.load_software,
    "framework": software.load_framework,
    "arch": calibration.load_arch,
    "link": calibration.load_link,
    "switch": run.load_switch,
    "run": lambda table: TABLES[table]() if table in TABLES else None,
}
TABLES = {
    "rl": finetune.rl_costs,
    "sites": lambda: [run.load_site(name) for name in run.names("sites")],
    "savers": lambda: [run.load_saver(name) for name in run.names("savers")],
    "fleets": lambda: [run.load_fleet(name) for name in run.names("fleets")],
    "recovery": lambda: [run.recovery_s(name, 64) for name in run.names("recovery")],
    "nvlink": lambda: [run.load_nvlink(int(name)) for name in run.names("nvlink")],
    "purchase": lambda: [run.load_purchase(name) for name in run.names("purchase")],
    "embodied": lambda: [run.load_making(name, 1.0, 1.0) for name in run.names("embodied")],
    "parts": lambda: (run.load_link_price(1e9), step.load_calibration()),
    "stores": lambda: [serving.load_framework(name) for name in serving.FRAMEWORKS],
}
"""Tables of rates, the fits of a step, and what serving reads."""


@pytest.fixture
def both_ways(monkeypatch):
    """Each table that is read without pydantic is read with it too; (kind, same) of each."""
    seen = []
    quick = presets.made

    def made(kind, table):
        found = quick(kind, table)
        seen.append((kind.__name__, alike(found, adapter(kind).validate_python(table))))
        return found

    monkeypatch.setattr(presets, "made", made)
    for module in (calibration, finetune, hardware, models, run, serving, software, step):
        for function in vars(module).values():
            getattr(function, "cache_clear", int)()
    return seen


@pytest.mark.parametrize("kind", READERS)
def test_a_preset_is_what_pydantic_makes_of_it(kind, both_ways):
    names = [n for n, path in preset_files(kind).items() if path.parents[1] in OWN]
    for name in names:
        READERS[kind](name)
    wrong = {made for made, same in both_ways if not same}
    assert not wrong and len(both_ways) >= len(names) > 0


def test_rows_of_families_are_what_pydantic_makes_of_them():
    rows = adapter(dict[str, FamilyRow]).validate_python(family_tables()["family"])
    assert alike(rows, family_rows())


def test_an_own_file_that_somebody_broke_is_told_as_any_other(monkeypatch):
    with pytest.raises(GpuscaleError, match="bf16_flops: not a key that is known"):
        hardware.gpu_from_table({"name": "x", "bf16_flops": 1.0}, str(OWN[-1] / "gpu" / "x.toml"))
