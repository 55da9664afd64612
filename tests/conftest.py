"""Settings of every test: a number that is not finite is a bug; no person's own environment."""

import gc
import os
import sys
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: neither the time of an example nor of drawing it is held.
# Draws are the same in every run; GPUSCALE_DRAW=1 draws anew, to look for more.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize="GPUSCALE_DRAW" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")

# Modules are compiled once, not once a process and once a run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Ten thousand tests stay in memory: they are looked through less often for what can be freed.
gc.set_threshold(100_000, 20, 20)

os.environ["GPUSCALE_STRICT"] = "1"
os.environ["GPUSCALE_SHOW"] = "all"  # tests read whole answers; tests/cli/test_layers.py, summaries
os.environ["SOURCE_DATE_EPOCH"] = "1795305600"  # 2026-11-22: ages of prices are counted to it
for _name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "GPUSCALE_FORMAT", "PYTHONIOENCODING"):
    os.environ.pop(_name, None)


LONGEST = (
    "test_try_page",
    "test_own_copy",
    "test_html_in_browser",
    "test_docs",
    "test_relations",
    "test_serve_command",
    "test_attack",
    "test_fit_step_reproduces",
    "test_serve_pool",
    "test_search_exact",
    "test_validate_runs_layouts",
    "test_plan_agrees",
    "test_one_rule_book",
    "test_plan_command",
    "test_explore",
    "test_fuzz_commands",
    "test_fit_gemm",
    "test_answers",
)
QUICK_S = 1.0
"""CPU time of all cases of a test; one that takes more is marked `slow`, but for these."""
ALWAYS = ("test_numbers_are_as_kept", "test_doctests", "test_every_name_is_used")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Where no test is named: the quick ones, on the cores there are; `-n 0`: one process."""
    option = config.option
    worker = hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ
    unnamed = not config.args or config.args == config.getini("testpaths")
    if unnamed and not option.markexpr and not option.keyword:
        option.markexpr = "not slow"
    if worker:  # only its arguments come from the first process
        return
    if unnamed and getattr(option, "numprocesses", 0) is None and not option.usepdb:
        option.numprocesses = min(8, os.cpu_count() or 1)
        option.dist = "loadfile"  # what a file caches, it caches once
        option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    """Start with the files that take longest, so that no process ends on one alone."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Note the CPU time of a test that is not marked `slow`."""
    start_s = time.process_time()
    try:
        return (yield)
    finally:
        if item.get_closest_marker("slow") is None:
            item.user_properties.append(("quick_s", time.process_time() - start_s))


def pytest_terminal_summary(terminalreporter):
    """Name the tests that should be marked `slow`: twice the limit, as machines differ."""
    spent_s = Counter()
    for report in terminalreporter.getreports("passed"):
        test = report.nodeid.partition("[")[0]
        spent_s[test] += dict(report.user_properties).get("quick_s", 0.0)
    for test, seconds in spent_s.most_common():
        if seconds > 2 * QUICK_S and not test.endswith(ALWAYS):
            terminalreporter.line(f"to be marked slow: {test} took {seconds:.1f} s of CPU time")
