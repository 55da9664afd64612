"""The shipped constants are what the fitting script yields."""

import importlib.util
from pathlib import Path

import pytest

from gpuscale.io.calibration import load_link

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "fit_collectives.py"
spec = importlib.util.spec_from_file_location("fit_collectives", SCRIPT)
fit_collectives = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fit_collectives)


@pytest.mark.slow
def test_shipped_constants_come_from_the_script():
    links = fit_collectives.fit_all(fit_collectives.measured())
    assert len(links) >= 8
    for name, link in links.items():
        shipped = load_link(name).ops
        assert shipped.keys() == link.ops.keys()
        for kind, c in link.ops.items():
            for field in fit_collectives.PRIORS:
                got, want = getattr(shipped[kind], field), getattr(c, field)
                assert got == pytest.approx(want, rel=5e-3, abs=1e-3 if want > 1e-2 else 1e-8)
            table = shipped[kind].table
            assert (table is None) == (c.table is None)
            if table is not None:
                assert (
                    max(abs(a - b) for a, b in zip(table.values, c.table.values, strict=True))
                    < 3e-3
                )
