"""The shipped constants are what the fitting script yields."""

import importlib.util
from pathlib import Path

import pytest

from gpuscale.io.calibration import arch_spec

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "fit_gemm.py"
spec = importlib.util.spec_from_file_location("fit_gemm", SCRIPT)
fit_gemm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fit_gemm)
GROUPS = fit_gemm.groups()


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted(GROUPS), ids="-".join)
def test_shipped_constants_and_table_come_from_the_script(group):
    arch, key = group
    shipped = arch_spec(arch).matmul[key]
    fitted = fit_gemm.fitted(GROUPS[group])
    for name in fit_gemm.PRIORS:
        assert getattr(shipped, name) == pytest.approx(getattr(fitted, name), rel=5e-3, abs=1e-3)
    assert shipped.n_rows == len(GROUPS[group])
    table = [round(1000 * v) for v in shipped.table.values] if shipped.table else []
    assert len(table) == len(fit_gemm.thousandths(fitted))
    assert all(abs(a - b) <= 3 for a, b in zip(table, fit_gemm.thousandths(fitted), strict=True))


def test_every_architecture_of_a_gpu_preset_has_a_calibration():
    from gpuscale.io.hardware import load_gpu
    from gpuscale.io.presets import preset_names

    for name in preset_names("gpu"):
        assert arch_spec(load_gpu(name).architecture).name == load_gpu(name).architecture
