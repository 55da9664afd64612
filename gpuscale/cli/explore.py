"""`gpuscale explore`: a job under the cursor keys, its answer redrawn at once (extra `explore`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gpuscale.errors import GpuscaleError, unknown_name


def begin(task: str, given: Mapping[str, str]) -> None:
    """Open the screen with a job.

    Raises GpuscaleError without the extra, without a terminal, and for an unknown task.
    """
    from gpuscale.cli.explore_job import TASKS, ExploredJob

    if task not in TASKS:
        raise unknown_name("task", task, TASKS, f"one of {', '.join(TASKS)}")
    try:
        from gpuscale.cli.explore_screen import Explorer
    except ImportError:
        raise GpuscaleError(
            "`gpuscale explore` needs the package textual", "pip install 'gpuscale[explore]'"
        ) from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise GpuscaleError("`gpuscale explore` needs a terminal", "a pipe takes `gpuscale plan`")
    Explorer(ExploredJob(task, {**given, **TASKS[task]["first"]})).run()
