"""Settings of every test: a number that is not finite is a bug; no person's own environment."""

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: neither the time of an example nor of drawing it is held.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

os.environ["GPUSCALE_STRICT"] = "1"
os.environ["SOURCE_DATE_EPOCH"] = "1795305600"  # 2026-11-22: ages of prices are counted to it
for _name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "GPUSCALE_FORMAT", "PYTHONIOENCODING"):
    os.environ.pop(_name, None)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the whole suite on two cores where pytest-xdist is there; `-n 0` for one process."""
    option = config.option
    worker = hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ
    whole = not worker and (not config.args or config.args == config.getini("testpaths"))
    if whole and getattr(option, "numprocesses", 0) is None and not option.usepdb:
        option.numprocesses = min(2, os.cpu_count() or 1)
        option.dist = "loadfile"  # what a file caches, it caches once
