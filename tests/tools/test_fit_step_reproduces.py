"""The shipped parameters of the step model are what `tools/fit_step.py` yields."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("numpy")
TOOL = Path(__file__).resolve().parents[2] / "tools" / "fit_step.py"


def load_tool():
    spec = importlib.util.spec_from_file_location("fit_step", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(not TOOL.exists(), reason="the fitting script is not installed")
def test_shipped_values_are_the_optimum():
    import numpy as np

    tool = load_tool()
    problem = tool.Problem(tool.fitted_rows())
    base = problem.log_times(problem.shipped)
    hessian, gradient = problem.newton(problem.shipped, base)
    step = -np.linalg.solve(hessian, gradient)  # what one more step would change, in ln
    worst = int(np.argmax(np.abs(step)))
    assert abs(step[worst]) < 0.03, (problem.free[worst], float(step[worst]))
    at_priors = problem.objective(problem.prior, problem.log_times(problem.prior))
    assert problem.objective(problem.shipped, base) < 0.9 * at_priors


@pytest.mark.skipif(not TOOL.exists(), reason="the fitting script is not installed")
def test_no_parameter_is_of_one_model_or_source():
    tool = load_tool()
    kinds = {path.split(".")[0] for path in tool.all_tables()}
    assert kinds == {"form", "kernels", "arch", "fabric", "software"}
    assert all(table.source for table in tool.all_tables().values())
