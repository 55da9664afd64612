"""Launch files questioned: what they start, whether it can run, what it takes, what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpuscale.answers import options
from gpuscale.answers.ask import Asked, Converted, WhatIf, flag, text, texts, whole
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import NoLaunch
from gpuscale.render.document import Document


@dataclass
class LaunchCheck(options.Machine, WhatIf):
    """Check a launch file: layout, rules of its framework, memory, step time, and what to change.

    Reads Megatron scripts, the YAML, TOML or JSON of training and RL frameworks, manifests,
    sbatch and torchrun lines, serving lines. Nothing is executed.
    """

    NAME: ClassVar[str] = "launch-check"
    RESULTS: ClassVar[str] = "launch_check.records:LaunchReport"
    EXAMPLE: ClassVar[str] = "gpuscale launch-check run.sh --cluster dgx-h100"
    file: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Files of one launch: a script, and the JSON or YAML that it names.", ..., label="FILE"
    )
    _: KW_ONLY
    model: Asked[str | None] = text("Model, where the files do not say its shape.")
    gpus: Asked[int | None] = whole("GPUs, where the files do not say them.", most=1e7)
    seq_len: Asked[int | None] = options.seq_len()
    var: Converted[tuple[str, ...], Sequence[str]] = texts(
        "A variable of the script, or an argument by its number: NAME=VALUE. Repeatable.",
        metavar="NAME=VALUE",
    )
    ignore: Converted[tuple[str, ...], Sequence[str]] = texts(
        "A key of the files that changes neither memory nor time, though its name says so. "
        "Repeatable.",
        metavar="KEY",
    )
    include: Converted[tuple[str, ...], Sequence[str]] = texts(
        "A folder outside the checkout of the files from which what they name is read. Repeatable.",
        metavar="DIR",
    )

    pass_others: Asked[bool] = flag("A file that starts no training or serving passes: for hooks.")

    def answer(self) -> Document:
        """Read, check, predict, compare."""
        from gpuscale.answers.launch_check.check import checked
        from gpuscale.answers.launch_check.document import document_of, no_launch

        try:
            return document_of(checked(self))
        except NoLaunch as error:
            if not self.pass_others:
                raise
            return no_launch(self, error.message)
