"""Files of a job in a framework's words, and what the framework has no word for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.errors import GpuscaleError
from gpuscale.launch.dialects import hooks
from gpuscale.launch.dialects.data import dialect
from gpuscale.launch.dialects.forms import text_of, words_of_command
from gpuscale.launch.dialects.rows import matches, unsaid, write
from gpuscale.launch.dialects.told import NEVER_SAID, phrase, told
from gpuscale.launch.job import LaunchFile, Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.specs.framework import FrameworkFile, WritingSpec


DEGREES = ("tp", "pp", "cp", "ep", "rl.engine")
"""Fields without which a file would start another job on other ranks."""


AUTO = dict.fromkeys(("global_batch_size", "micro_batch_size", "accumulation"), "auto")
"""Batch of a second file where the first one's words are not of the same numbers."""


def writes(job: TrainingLaunch, name: str) -> Written:
    """Write a job as a framework's files.

    Raises GpuscaleError if the framework does not train so, or does not have the model.
    """
    framework, fields = dialect(name), told(job)
    fields["software"] = job.software
    if framework.names:
        if job.model.name not in framework.names:
            known = ", ".join(framework.names)
            raise GpuscaleError(
                f"{framework.title or name} has no configuration of {job.model.name}",
                f"it has {known}; `--framework megatron` writes any dense or MoE model",
            )
        fields["model"] = framework.names[job.model.name]
    method = str(fields.get("rl.method") or fields["method"])
    ways = [w for w in framework.writing if method in w.methods and matches(w.when, fields)]
    if not ways:
        known = ", ".join(dict.fromkeys(m for w in framework.writing for m in w.methods))
        raise GpuscaleError(
            f"{framework.title or name} trains no {method} as it is planned here",
            f"it trains {known}; --framework takes another",
        )
    way = ways[0]
    table, said = _table(framework, fields)
    table = {**way.fixed, **table}
    files = []
    for one in way.beside:
        if matches(one.when, fields):
            other = dialect(one.framework)
            inner, more = _table(other, fields | (AUTO if "rl.method" in fields else {}))
            files.append(LaunchFile(other.writing[0].file, text_of(other.writing[0].form, inner)))
            said |= more
            table |= {one.option: other.writing[0].file} if one.option else {}
    left = [n for n in unsaid(fields, said, _habits(name, fields)) if n not in NEVER_SAID]
    if degrees := [phrase(n, fields[n]) for n in left if n in DEGREES]:
        raise GpuscaleError(
            f"{framework.title or name} cannot say {', '.join(degrees)}",
            "plan without, or --framework takes another",
        )
    because = {n: framework.unsaid.get(n, "") for n in left}
    return _written(framework, way, table, files, {n: fields[n] for n in left}, because)


def _habits(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Find what the framework does by itself where nobody says and REST is of another mind."""
    from gpuscale.io.frameworks import framework_habits

    facts = {"method": str(fields["method"]), "task": str(fields.get("rl.method") or "sft")}
    facts["devices"] = "one" if fields["n_gpus"] == 1 else "many"
    found = framework_habits(name, facts)
    return {key: found[key].value for key in ("recompute",) if key in found}


def _table(framework: FrameworkFile, fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Options of a job by rows and hooks, and the fields that they say."""
    table, said = write(framework, fields)
    for hook in framework.hook:
        more, told_of = hooks.HOOKS[hook.python](fields)
        table |= more
        said |= told_of
    return table, said


def _written(
    framework: FrameworkFile,
    way: WritingSpec,
    table: dict[str, Any],
    files: list[LaunchFile],
    left: Mapping[str, Any],
    because: Mapping[str, str],
) -> Written:
    words = list(way.run)
    if way.form in ("flags", "overrides"):
        words += words_of_command(way.form, table)
    elif way.form == "python":
        files.insert(0, LaunchFile(way.file, hooks.script_of(framework.name, table)))
    else:
        files.insert(0, LaunchFile(way.file, text_of(way.form, table)))
    said = (phrase(n, v) + (f": {because[n]}" if because[n] else "") for n, v in left.items())
    return Written(
        framework=framework.name,
        version=f"{framework.title or framework.name} {framework.version}".strip(),
        files=tuple(files),
        train=tuple(words),
        unsaid=tuple(said),
        unsaid_fields=tuple(left),
        launcher=way.launcher,
    )
