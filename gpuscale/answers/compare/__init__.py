"""`gpuscale compare`: answers, plans, GPUs, clusters or models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.cli.completion import complete_comparable
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.render.document import Document

MOST = 16


@command(app, "compare", example="gpuscale compare dgx-h100 dgx-b200")
def compare(
    common: Common,
    things: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            autocompletion=complete_comparable,
            help="Two or more of a kind: answers saved by --json or -o FILE.json, plan.toml jobs, "
            "or GPUs, clusters, models (preset or file).",
        ),
    ],
    fail_over: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Exit 1 if a number changed by more, e.g. 2%."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Only keys that start or end so. Repeatable."),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Rows that are equal too; of plans, every key that differs."),
    ] = False,
) -> Document:
    """Compare saved answers, plans, GPUs, clusters or models: what differs, and why.

    Where answers were saved with --explain, each change says which inputs of its formula differ.
    """
    from gpuscale.answers.compare.document import compared
    from gpuscale.answers.compare.plan import headline_rows, is_plan
    from gpuscale.answers.compare.things import read_things
    from gpuscale.answers.values import quantity
    from gpuscale.core.compare import changes, side_by_side

    limit = None if fail_over is None else quantity(fail_over, "frac", "--fail-over", zero=True)
    if not 2 <= len(things) <= MOST:
        raise GpuscaleError(
            f"compare takes 2 to {MOST} things, got {len(things)}",
            "gpuscale compare old.json new.json",
        )
    kind, found = read_things(common, things)
    if kind == "answer" and all(is_plan(t.result) for t in found):
        kind = "plan"
    if kind == "plan":
        rows = headline_rows(found)
    else:
        rows = [] if kind == "answer" else side_by_side([t.result for t in found])
    rows = [r for r in rows if _wanted(r.key, only) and (show_all or r.differs)]
    changed = [
        [c for c in changes(found[0].result, t.result) if _wanted(c.key, only)] for t in found[1:]
    ]
    asked = show_all or bool(only) or limit is not None
    every = kind == "answer" or (kind == "plan" and asked)
    return compared(kind, found, rows, changed, limit, every, common.set)


def _wanted(key: str, only: Sequence[str] | None) -> bool:
    """Whether `--only` lets a key through."""
    return not only or any(
        key == o or key.startswith(o + ".") or key.endswith("." + o) for o in only
    )
