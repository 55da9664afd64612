"""The shipped memory parameters are what the fit script yields."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from gpuscale.core.memory.parameters import parameters_of
from gpuscale.evidence.score_runs import read_runs
from gpuscale.io.software import load_software

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "fit_memory.py"
    if not path.exists():
        pytest.skip("tools are not part of an installed package")
    import sys

    spec = importlib.util.spec_from_file_location("fit_memory", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit_memory"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs(tool):
    rows = read_runs(tool.DATA / "training_runs.csv.gz")
    return [r for r in rows if r.memory_bytes and r.layout and r.model and r.quality == "good"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mape"), [("megatron", 1.5), ("megatron-deepspeed", 5.6), ("torchtitan", 4.0)]
)
def test_shipped_parameters_are_a_minimum(tool, runs, name, mape):
    group = next(g for g in tool.GROUPS if g.name == name)
    rows = [r for r in runs if group.chosen(r)]
    shipped = parameters_of(load_software(group.families[0]))

    def loss(parameters):
        return fmean(
            abs(math.log(tool.predicted(r, tool.of_run(r, parameters)) / r.memory_bytes))
            for r in rows
        )

    here = loss(shipped)
    for parameter, _ in group.free:
        for factor in (0.8, 1.25):
            value = getattr(shipped, parameter) * factor
            if parameter == "fragmentation":
                value = 1 + (getattr(shipped, parameter) - 1) * factor
            assert loss(replace(shipped, **{parameter: value})) >= here - 2e-4, parameter
    ratios = [tool.predicted(r, tool.of_run(r, shipped)) / r.memory_bytes for r in rows]
    assert 100 * fmean(abs(x - 1) for x in ratios) <= mape


def test_families_of_a_group_share_its_values(tool):
    for group in tool.GROUPS:
        values = {
            tuple(getattr(load_software(f).memory, n) for n, _ in group.free)
            for f in group.families
        }
        assert len(values) == 1, group.name
