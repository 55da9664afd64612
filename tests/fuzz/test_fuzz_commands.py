"""Property: no command line and no file makes a traceback, a hang, NaN or a half answer.

The generator is that of `tools/fuzz.py`, which runs thousands of cases per command.
"""

import os
import random
import runpy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuscale.answers.table import COMMANDS

tool = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "fuzz.py"))
FILES = tool["base_files"]()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_bad_input_is_refused_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines, options = tool["lines_of"](name), tool["options_of"](name)
    limit_s = 5 * tool["LIMIT_S"].get(name, 1.0)  # machines differ; hangs are longer

    @settings(
        max_examples=10 if name in tool["LIMIT_S"] else 40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(st.integers(0, 2**32))
    def hold(seed):
        args, stdin = tool["case"](random.Random(seed), lines, options, FILES, tmp_path)
        found = tool["fault"](args, stdin, limit_s)
        assert not found, f"{args!r}: {found}"

    hold()
    assert Path.cwd() == tmp_path and os.environ["GPUSCALE_STRICT"] == "1"
