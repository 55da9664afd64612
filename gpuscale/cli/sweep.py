"""`--sweep`: one command once per point of one or two keys, its headline numbers as a table."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscale.cli.sweep_axis import Axis, read_axes
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.cli.common import Common
    from gpuscale.render.document import Document

HEADLINES: dict[str, tuple[str, ...]] = {
    "matmul-time": ("time_s", "expected.time_s", "bound"),
    "collective": (
        "time_s",
        "in_switch_s",
        "expected.time_s",
        "busbw_bytes_per_s",
        "expected.busbw_bytes_per_s",
        "binding_level",
    ),
    "memory": (
        "total_bytes",
        "per_gpu.total_bytes",
        "per_gpu.max_concurrency",
        "headroom_bytes",
        "fits",
    ),
    "network": (
        "collective_bytes_per_s",
        "slowest_level",
        "switches.n_leaf_switches",
        "switches.n_spine_switches",
        "switches.n_core_switches",
    ),
    "roofline": (
        "tokens_per_gpu",
        "rows.*.ratio",
        "rows.*.need",
        "bf16_flop_per_s",
        "bf16_ridge_flop_per_byte",
    ),
    "model": ("params", "active_params", "training_flop_per_token", "kv_bytes_per_token"),
    "timeline": ("step_s", "window_s", "bubble_frac"),
    "plan": (
        "step_s",
        "roofline_s",
        "mfu",
        "tokens_per_s",
        "peak_bytes",
        "layout.tp",
        "layout.cp",
        "layout.pp",
        "layout.dp",
        "run.days",
        "chosen.n_gpus",
        "chosen.step_s",
        "chosen.mfu",
        "tp",
        "pp",
        "times.prefill_s",
        "times.decode_s",
        "times.tokens_per_s",
    ),
}
"""Keys of the result that are shown unless others are asked for, of each command that can be swept
(`cli.common.SWEPT`); those that an answer lacks are left out."""


@dataclass(frozen=True, slots=True)
class Point:
    """Answer at one point; `numbers` has the dotted keys of the result."""

    values: tuple[float | str, ...]
    labels: tuple[str, ...]
    answer: str  # yes, no (does not fit, requirement not met), error
    note: str
    numbers: Mapping[str, Any]


def sweep_document(
    name: str,
    function: Callable[..., Document],
    common: Common,
    given: Mapping[str, Any],
    sweeps: tuple[str, ...],
    show: str | None,
) -> Document:
    """Run a command at every point and tabulate its numbers.

    Parameters
    ----------
    name : str
        The command.
    function : callable
        What it runs: `(common, **given) -> Document`.
    common : Common
        Options of all commands; each point gets its own `--set`.
    given : mapping
        The command's own arguments.
    sweeps : tuple of str
        One or two ``KEY=VALUES``.
    show : str or None
        Keys of the result, comma-separated; wildcards are allowed.

    Raises
    ------
    GpuscaleError
        If a sweep cannot be read, or no point has an answer.
    """
    from gpuscale.cli.sweep_table import document

    axes = read_axes(sweeps)
    if "-" in given.values() or any("-" in axis.texts for axis in axes):
        raise GpuscaleError("--sweep reads the input once per point", "give a file instead of `-`")
    parameters = option_names(function)
    points, first_error = [], None
    for index in itertools.product(*(range(len(axis.texts)) for axis in axes)):
        try:
            point = _answer(function, common, given, axes, index, parameters)
        except GpuscaleError as error:
            first_error = first_error or error
            point = _point(axes, index, "error", error.message, {})
        points.append(point)
    if first_error and all(p.answer == "error" for p in points):
        raise first_error
    shown = chosen_keys(name, points, show)
    changed = [setting.partition("=")[0] for setting in common.set_]
    if taken := [axis.key for axis in axes if axis.key in changed]:
        raise GpuscaleError(f"{taken[0]} is given by --set and by --sweep")
    return document(name, _inputs(function, common, given, axes), axes, shown, points)


def option_names(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters of a command by the names that a person types: ``seq``, ``global-batch``."""
    found: dict[str, inspect.Parameter] = {}
    signature = inspect.signature(function, eval_str=True, locals={"Document": object})
    for parameter in signature.parameters.values():
        if parameter.name == "common":
            continue
        info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
        # the first declaration of `typer.Option("--a", "--b")` is kept as its default
        declared = [getattr(info, "default", None), *(getattr(info, "param_decls", None) or ())]
        typed = [d for d in declared if isinstance(d, str) and d.startswith("--")]
        for name in typed or [parameter.name]:
            found[name.strip("-_").replace("_", "-")] = parameter
    return found


def _point(
    axes: tuple[Axis, ...],
    index: tuple[int, ...],
    answer: str,
    note: str,
    numbers: Mapping[str, Any],
) -> Point:
    pairs = list(zip(axes, index, strict=True))
    values, labels = (tuple(a.values[i] for a, i in pairs), tuple(a.labels[i] for a, i in pairs))
    return Point(values, labels, answer, note, numbers)


def _answer(
    function: Callable[..., Document],
    common: Common,
    given: Mapping[str, Any],
    axes: tuple[Axis, ...],
    index: tuple[int, ...],
    parameters: dict[str, inspect.Parameter],
) -> Point:
    settings, own = list(common.set_), dict(given)
    for axis, i in zip(axes, index, strict=True):
        text = axis.texts[i]
        if "." in axis.key:
            settings.append(f"{axis.key}={text}")
            continue
        name = axis.key.replace("_", "-")
        if name not in parameters:
            hint = "a key with a dot is one of --set, another an option of the command"
            raise unknown_name("option in --sweep:", axis.key, parameters, hint)
        own[parameters[name].name] = converted(text, parameters[name], f"--sweep {axis.key}")
    here = dataclasses.replace(common, set_=tuple(settings), require=(), output=())
    found = function(common=here, **own)
    numbers = dict(named_leaves(found.result))
    no, note = found.answered_no, ""
    if common.require:
        from gpuscale.cli.requirements import check_all

        failed = [v for v in check_all(common.require, found.result) if not v.met]
        note = "; ".join(f"failed: {v.requirement}: have {v.have}" for v in failed)
        no = no or bool(failed)
    return _point(axes, index, "no" if no else "yes", note, numbers)


def converted(text: str, parameter: inspect.Parameter, where: str) -> Any:
    """Turn a text into what an option takes: text, number, true or false, or a list of texts."""
    kind = str(parameter.annotation)
    if "bool" in kind:
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if text.lower() not in words:
            raise GpuscaleError(f"{where}: true or false is wanted, got `{text[:40]}`")
        return words[text.lower()]
    if "str" in kind:
        return [text] if "list" in kind else text
    from gpuscale.cli.values import quantity, whole

    info = parameter.annotation.__metadata__[0]
    least = 0 if info.min is None else info.min
    if "int" in kind:
        return whole(text, where, least=least, most=1e15 if info.max is None else info.max)
    most = 1e24 if info.max is None else info.max
    return quantity(text, "count", where, least=least, most=most, zero=not least)


def named_leaves(result: Any) -> list[tuple[str, Any]]:
    """Values of a result by dotted key; items of a list go by their name where they have one.

    Examples
    --------
    >>> named_leaves({"rows": [{"axis": "dp", "need": 2.0}], "n": [1]})
    [('rows.dp.axis', 'dp'), ('rows.dp.need', 2.0), ('n.0', 1)]
    """
    from gpuscale.core.compare import leaves
    from gpuscale.render.data import plain

    return list(leaves(_named(plain(result))))


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named(v) for key, v in value.items()}
    if not isinstance(value, list):
        return value
    for label in ("axis", "scope", "name"):
        names = [item.get(label) if isinstance(item, dict) else None for item in value]
        if value and all(isinstance(n, str) for n in names) and len(set(names)) == len(names):
            return {str(n): _named(item) for n, item in zip(names, value, strict=True)}
    return [_named(item) for item in value]


def chosen_keys(name: str, points: list[Point], show: str | None) -> list[str]:
    """Keys of the result that are shown: those asked for, or the command's headlines."""
    known = {key: None for point in points for key in point.numbers}
    patterns = [p.strip() for p in show.split(",")] if show else list(HEADLINES[name])
    found: dict[str, None] = {}
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            matched = [k for k in fnmatch.filter(known, pattern) if show or _varies(k, points)]
        elif show:
            from gpuscale.cli.requirements import find

            matched = [find(pattern.replace("-", "_"), known, "--sweep-show")]
        else:
            matched = [pattern] if pattern in known else []
        found |= dict.fromkeys(matched)
    empty = {k for k in found if all(p.numbers.get(k) is None for p in points)}
    if not (kept := [k for k in found if k not in empty or show]):
        raise GpuscaleError(
            "--sweep: no number to show", f"--sweep-show takes any of {', '.join(list(known)[:30])}"
        )
    return kept


def _varies(key: str, points: list[Point]) -> bool:
    return len({str(p.numbers.get(key)) for p in points if p.answer != "error"}) > 1


def _inputs(
    function: Callable[..., Any], common: Common, given: Mapping[str, Any], axes: tuple[Axis, ...]
) -> dict[str, Any]:
    """Collect what stays the same at every point: arguments that differ from their defaults."""
    swept = {axis.key.replace("_", "-") for axis in axes}
    fixed = {}
    for name, parameter in option_names(function).items():
        value = given.get(parameter.name)
        if name not in swept and value is not None and value != parameter.default:
            fixed[name.replace("-", "_")] = value
    return {**fixed, "changed": list(common.set_)}
