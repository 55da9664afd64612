"""`gpuscale explore`: a job under the cursor keys, its answer redrawn at once (extra `explore`)."""

from __future__ import annotations

import sys
from typing import ClassVar

from gpuscale.answers.ask import Asked, Question, text
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name


@dataclass
class Explore(Question):
    """Walk through models, machines and layouts in the terminal, the answer redrawn."""

    NAME: ClassVar[str] = "explore"
    EXAMPLE: ClassVar[str] = "gpuscale explore llama3-70b --gpus 512 --gpu h100"
    model: Asked[str] = text("Model to begin with.", "llama3.1-8b")
    _: KW_ONLY
    gpu: Asked[str] = text("GPU to begin with.", "h100")
    gpus: Asked[str] = text("Number of GPUs to begin with.", "16")
    task: Asked[str] = text("pretrain, fine-tune or serve.", "pretrain")

    def begin(self) -> None:
        """Open the screen with a job.

        Raises GpuscaleError without the extra, without a terminal, and for an unknown task.
        """
        from gpuscale.cli.explore_job import MACHINE, TASKS, ExploredJob

        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS, f"one of {', '.join(TASKS)}")
        try:
            from gpuscale.cli.explore_screen import Explorer
        except ImportError:
            raise GpuscaleError(
                "`gpuscale explore` needs the package textual", "pip install 'gpuscale[explore]'"
            ) from None
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            hint = "a pipe takes `gpuscale plan`"
            raise GpuscaleError("`gpuscale explore` needs a terminal", hint)
        given = {name: getattr(self, name) for name in MACHINE}
        Explorer(ExploredJob(self.task, {**given, **TASKS[self.task]["first"]})).run()
