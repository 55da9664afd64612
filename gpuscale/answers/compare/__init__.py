"""Comparison: answers, plans, GPUs, clusters or models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpuscale.answers.ask import Asked, Converted, WhatIf, amount, flag, texts
from gpuscale.core.records import KW_ONLY, dataclass
from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.render.document import Document

MOST = 16


@dataclass
class Compare(WhatIf):
    """Compare saved answers, plans, GPUs, clusters or models: what differs, and why.

    Where answers were saved with --explain, each change says which inputs of its formula differ.
    """

    NAME: ClassVar[str] = "compare"
    RESULTS: ClassVar[str] = "compare.document:Comparison"
    EXAMPLE: ClassVar[str] = "gpuscale compare dgx-h100 dgx-b200"
    things: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Two or more of a kind: answers saved by --json or -o FILE.json, plan.toml jobs, "
        "or GPUs, clusters, models (preset or file).",
        ...,
        metavar="A B...",
        complete="comparable",
    )
    _: KW_ONLY
    fail_over: Asked[float | None] = amount(
        "Exit 1 if a number changed by more, e.g. 2%.", "frac", zero=True, metavar="SHARE"
    )
    only: Converted[tuple[str, ...], Sequence[str]] = texts(
        "Only keys that start or end so. Repeatable.", metavar="KEY"
    )
    all: Asked[bool] = flag("Rows that are equal too; of plans, every key that differs.")

    def answer(self) -> Document:
        """Compare them."""
        return _answer(self)


def _answer(asked: Compare) -> Document:
    from gpuscale.answers.compare.differences import changes, side_by_side
    from gpuscale.answers.compare.document import compared
    from gpuscale.answers.compare.things import headline_rows, is_plan, read_things
    from gpuscale.render.text import leaves

    things, limit, only, show_all = asked.things, asked.fail_over, asked.only, asked.all
    if not 2 <= len(things) <= MOST:
        raise GpuscaleError(
            f"compare takes 2 to {MOST} things, got {len(things)}",
            "gpuscale compare old.json new.json",
        )
    kind, found = read_things(asked, things)
    keys = {key for t in found for key, _ in leaves(t.result)}
    for one in only:
        if not any(_wanted(key, (one,)) for key in keys):
            raise unknown_name("key", one, keys, "`--all` lists the keys")
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
    wanted = show_all or bool(only) or limit is not None
    listed = kind == "answer" or (kind == "plan" and wanted)
    return compared(
        kind, found, rows=rows, changed=changed, limit=limit, every=listed, set_=asked.set
    )


def _wanted(key: str, only: Sequence[str]) -> bool:
    """Whether `--only` lets a key through."""
    return not only or any(
        key == o or key.startswith(o + ".") or key.endswith("." + o) for o in only
    )
