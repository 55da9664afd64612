"""Files of a job in a framework's words, and what the framework has no word for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.toml import Table
from gpuscale.launch.dialects import hooks
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.forms import text_of, words_of_command
from gpuscale.launch.dialects.rows import matches, unsaid, write
from gpuscale.launch.dialects.told import NEVER_SAID, phrase, told
from gpuscale.launch.job import LaunchFile, TrainingLaunch, Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.specs.framework import FrameworkFile, WritingSpec


DEGREES = ("tp", "pp", "cp", "ep", "rl.engine")
"""Fields without which a file would start another job on other ranks."""


AUTO = dict.fromkeys(("global_batch_size", "micro_batch_size", "accumulation"), "auto")
"""Batch of a second file where the first one's words are not of the same numbers."""


def writes(job: TrainingLaunch, name: str) -> Written:
    """Write a job as a framework's files.

    Raises GpuscaleError if the framework does not train so, or does not have the model.
    """
    framework = dialect(name)
    fields = _fields(job, framework)
    way, table, said, left_too = _way(framework, fields)
    files = []
    for one in way.beside:
        if matches(one.when, fields):
            other = dialect(one.framework)
            inner, more, _ = _table(other, fields | (AUTO if "rl.method" in fields else {}))
            files.append(LaunchFile(other.writing[0].file, text_of(other.writing[0].form, inner)))
            said |= more
            table |= {one.option: other.writing[0].file} if one.option else {}
    left = [n for n in unsaid(fields, said, _habits(framework, fields)) if n not in NEVER_SAID]
    if degrees := [phrase(n, fields[n]) for n in left if n in DEGREES]:
        raise GpuscaleError(
            f"{framework.title or name} cannot say {', '.join(degrees)}",
            "plan without, or --framework takes another",
        )
    words = [word.format(model=str(fields["model"]).split()) for word in way.run]
    ends = [prefix + str(table.pop(key)) for key, prefix in way.ends.items()]
    if way.form in ("flags", "values", "overrides"):
        words += words_of_command(way.form, table)
    elif way.form == "python":
        files.insert(0, LaunchFile(way.file, hooks.script_of(framework.name, table)))
    else:
        files.insert(0, LaunchFile(way.file, text_of(way.form, table)))
    because = {n: f": {framework.unsaid[n]}" if n in framework.unsaid else "" for n in left}
    wanted = [e for e in framework.environment if matches(e.when, fields)]
    wanted = [e for e in wanted if not (e.unless and matches(e.unless, fields))]
    return Written(
        framework=framework.name,
        version=f"{framework.title or framework.name} {framework.version}".strip(),
        files=tuple(files),
        train=(*words, *ends),
        unsaid=(*(phrase(n, fields[n]) + because[n] for n in left), *left_too),
        environment=tuple({e.name: e.value for e in reversed(wanted)}.items()),
        unsaid_fields=tuple(left),
        launcher=way.launcher,
    )


def options(job: TrainingLaunch, name: str) -> Table:
    """List the options of a job as they stand in a framework's files: a flag alone is True.

    Raises GpuscaleError as `writes` does.
    """
    way, table, _, _ = _way(dialect(name), _fields(job, dialect(name)))
    flags = way.form in ("flags", "values")
    return {
        f"--{key}" if flags and "." not in key else key.lstrip("+"): value
        for key, value in table.items()
    }


def _fields(job: TrainingLaunch, framework: FrameworkFile) -> Table:
    """Fields of a job, its model by the framework's own name."""
    fields = told(job)
    if framework.names:
        if job.model.name not in framework.names:
            known = ", ".join(framework.names)
            raise GpuscaleError(
                f"{framework.title or framework.name} has no configuration of {job.model.name}",
                f"it has {known}; `--framework megatron` writes any dense or MoE model",
            )
        fields["model"] = framework.names[job.model.name]
    return fields


def _way(
    framework: FrameworkFile, fields: Mapping[str, Any]
) -> tuple[WritingSpec, Table, set[str], list[str]]:
    """(how it is written, its options, the fields that they say, what else they cannot say)."""
    method = str(fields.get("rl.method") or fields["method"])
    ways = [w for w in framework.writing if method in w.methods and matches(w.when, fields)]
    if not ways:
        name = framework.title or framework.name
        needs = [f"{k} {' or '.join(v)}" for w in framework.writing for k, v in w.when.items()]
        if any(method in w.methods for w in framework.writing):
            what = f"{name} writes no {method} with what is planned here"
            raise GpuscaleError(
                what, f"its files have {', '.join(needs)}; --framework takes another"
            )
        known = ", ".join(dict.fromkeys(m for w in framework.writing for m in w.methods))
        raise GpuscaleError(
            f"{name} trains no {method} that is written here",
            f"it trains {known}; --framework takes another",
        )
    table, said, left = _table(framework, fields)
    under = ways[0].under
    if under is not None:
        table = {
            key if "." in key else under + key.replace("-", "_"): v for key, v in table.items()
        }
    return ways[0], {**ways[0].fixed, **table}, said, left


def _habits(framework: FrameworkFile, fields: Mapping[str, Any]) -> Table:
    """Find what the framework does by itself where nobody says and REST is of another mind."""
    from gpuscale.io.frameworks import framework_habits

    facts = {"method": str(fields["method"]), "task": str(fields.get("rl.method") or "sft")}
    facts["devices"] = "one" if fields["n_gpus"] == 1 else "many"
    found = framework_habits(framework.name, facts)
    near = [r.field for r in framework.row if str(fields.get(r.field)).lower() in r.nearest]
    own = {key: found[key].value for key in ("recompute",) if key in found}
    return own | dict.fromkeys(near)


def _table(
    framework: FrameworkFile, fields: Mapping[str, Any]
) -> tuple[Table, set[str], list[str]]:
    """Options of a job by rows and hooks, the fields that they say, and what else they cannot."""
    table, said = write(framework, fields)
    left: list[str] = []
    for hook in framework.hook:
        more, told_of, *rest = hooks.HOOKS[hook.python](fields)
        table |= more
        said |= told_of
        left += rest[0] if rest else []
    return {key: _null(value) for key, value in table.items()}, said, left


def _null(value: Any) -> Any:
    """Value of a table of TOML, which has no null."""
    if isinstance(value, dict):
        return {key: _null(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_null(one) for one in value]
    return None if value == "null" else value
