"""`gpuscale compare`: two saved answers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.cli.app import app
from gpuscale.cli.common import Common, command
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.core.compare import Change
    from gpuscale.render.document import Document


@command(app, "compare", example="gpuscale compare old.json new.json --fail-over 2%")
def compare(
    common: Common,
    old: Annotated[str, typer.Argument(help="Answer saved by --json or -o FILE.json.")],
    new: Annotated[str, typer.Argument(help="Another answer of the same command.")],
    fail_over: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Exit 1 if a number changed by more, e.g. 2%."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Only keys that start or end so. Repeatable."),
    ] = None,
) -> Document:
    """Compare two saved answers of a command, key by key.

    Where both were saved with --explain, each change says which inputs of its formula differ.
    """
    from gpuscale.cli.values import quantity
    from gpuscale.core.compare import changes, exceeds

    limit = None if fail_over is None else quantity(fail_over, "frac", "--fail-over", zero=True)
    one, other = _answer(old), _answer(new)
    if one["command"] != other["command"]:
        raise GpuscaleError(
            f"{old} answers `{one['command']}` and {new} answers `{other['command']}`",
            "two answers of one command can be compared",
        )
    found = [c for c in changes(one["result"], other["result"]) if _wanted(c.key, only)]
    over = [] if limit is None else [c for c in found if exceeds(c, limit)]
    return _document(one, other, found, over, limit, (old, new))


def _answer(path: str) -> dict[str, Any]:
    """Read a saved answer, checked for being one."""
    import json

    from gpuscale.io.toml import read_text

    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise GpuscaleError(f"{path}: is not JSON") from None
    keys = {"schema", "command", "inputs", "result"}
    if not isinstance(found, dict) or not keys <= set(found) or found["schema"] != 1:
        raise GpuscaleError(
            f"{path}: is no answer of gpuscale", "save one with `--json > FILE` or `-o FILE.json`"
        )
    return found


def _wanted(key: str, only: list[str] | None) -> bool:
    return not only or any(
        key == o or key.startswith(o + ".") or key.endswith("." + o) for o in only
    )


def _shown(key: str, value: Any) -> str:
    from gpuscale.render.explain import amount

    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return amount(key.rsplit(".", 1)[-1], value)


def _said(value: Any) -> str:
    """Input as it is said on a line."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _because(found: list[tuple[str, float, float]]) -> str:
    shown = [f"{name} {_shown(name, a)} -> {_shown(name, b)}" for name, a, b in found[:3]]
    return ", ".join(shown) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _document(
    one: dict[str, Any], other: dict[str, Any], found: list[Change], over: list[Change],
    limit: float | None, files: tuple[str, str],
) -> Document:  # fmt: skip
    from gpuscale.core.compare import causes
    from gpuscale.render.document import Block, Column, Document, Table, Text

    because = {c.key: causes(c.key, one.get("explain"), other.get("explain")) for c in found}
    inputs = {
        k: (one["inputs"].get(k), other["inputs"].get(k))
        for k in dict.fromkeys([*one["inputs"], *other["inputs"]])
        if one["inputs"].get(k) != other["inputs"].get(k)
    }
    columns = [
        Column("key", "key", right=False), Column("old", "old"), Column("new", "new"),
        Column("change_frac", "change", lambda v: f"{100 * v:+.2f} %"),
    ]  # fmt: skip
    rows: list[tuple[Any, ...]] = [
        (c.key, _shown(c.key, c.old), _shown(c.key, c.new), c.change_frac) for c in found
    ]
    if any(because.values()):
        columns.append(Column("because", "because", right=False))
        rows = [(*row, _because(because[row[0]])) for row in rows]
    asked = [f"{k}: {_said(a)} -> {_said(b)}" for k, (a, b) in inputs.items()]
    title = f"{one['command']}: {files[0]} -> {files[1]}"
    blocks: list[Block] = [Text("\n".join([title, *asked]))]
    blocks.append(Table(columns, rows) if rows else Text("the results are equal"))
    if limit is not None:
        worst = f", largest {over[0].key}" if over else ""
        blocks.append(Text(f"{len(over)} changed by more than {100 * limit:g} %{worst}"))
    result = {
        "command": one["command"], "inputs_changed": {k: list(v) for k, v in inputs.items()},
        "changes": found,
        "because": {key: [list(c) for c in inputs] for key, inputs in because.items() if inputs},
        "n_over": len(over), "fail_over_frac": limit,
    }  # fmt: skip
    given = {"old": files[0], "new": files[1]}
    table = Table(columns[:4], [(c.key, c.old, c.new, c.change_frac) for c in found])
    return Document(
        "compare", given, result, blocks, answered_no=bool(over), csv_table=table if rows else None
    )
