"""From a layout of a plan to files in a framework's words, and what it has no word for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.records import asdict
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import framework_habits
from gpuscale.io.text import Table
from gpuscale.launch.dialects import hooks
from gpuscale.launch.dialects.nested import dialect, nest
from gpuscale.launch.dialects.rows import matches, unsaid, write
from gpuscale.launch.found import launch_table, written_frameworks
from gpuscale.launch.job import LaunchFile, TrainingLaunch, Written, script
from gpuscale.specs.model import ModelSpec
from gpuscale.specs.software import FrameworkFile, WritingSpec


def framework_of(job: TrainingLaunch, asked: str | None = None) -> str:
    """Framework of a plan's software, or the one asked for.

    Raises GpuscaleError if no file can be written for the software.
    """
    of_software = launch_table("words")["plan"]["of_software"]
    name = asked or of_software.get(job.software, job.software)
    if name not in (known := written_frameworks()):
        raise GpuscaleError(
            f"no launch file is written for {job.software}", f"--framework takes {', '.join(known)}"
        )
    return name


def chunk_layers(model: ModelSpec, stage_layers: tuple[int, ...], vpp: int) -> tuple[int, ...]:
    """Layers of each chunk in model order: all stages' first chunks, then their second.

    `model`: the model; its layers are dealt. `stage_layers`: layers of each pipeline stage; empty
    where there is one. `vpp`: chunks of a stage [1].
    """
    from gpuscale.core.stages import deal

    dealt = deal(stage_layers or (model.n_layers,), vpp)
    return tuple(len(stage[chunk]) for chunk in range(vpp) for stage in dealt)


def chunks_of(model: ModelSpec, layout: Layout, stage_layers: tuple[int, ...]) -> tuple[int, ...]:
    """Layers of each chunk of a layout: as it deals them, or dealt by its stages.

    `stage_layers`: layers of each pipeline stage; empty where all hold as many.
    """
    if layout.stage_layers and len(layout.stage_layers) == layout.pp * layout.vpp:
        return layout.stage_layers
    stages = stage_layers or (model.n_layers // layout.pp,) * layout.pp
    return chunk_layers(model, stages, layout.vpp)


def launch_script(job: TrainingLaunch, framework: str, wrapper: str) -> tuple[Written, str, str]:
    """Write a launch.

    `framework`: one of `written_frameworks`. `wrapper`: a key of `gpuscale.launch.job.WRAPPERS`.
    Returns: what the framework is told, the usual name of the file, and its text: one file that
    holds all others as here-documents.
    """
    written = writes(job, framework)
    name, text = script(job, written, wrapper)
    return written, name, text


def estimate_lines(
    layout: Layout, peak_bytes: float, step: tuple[float, float, float] | None
) -> tuple[str, ...]:
    """Say what to expect of a step, for the head of a file.

    `step`: seconds of it, and the bounds of the interval; None where they were not asked.
    """
    time = "" if step is None else "{:.3g} s a step (80 % of such estimates: {:.3g} to {:.3g}), "
    return (
        f"expected: {time.format(*step or ())}{peak_bytes / 1e9:.1f} GB on the fullest GPU",
        f"{layout.n_gpus} GPUs, {layout.n_micro_batches} micro-batches of "
        f"{layout.micro_batch_size} a step",
    )


def text_of(form: str, table: Mapping[str, Any]) -> str:
    """Text of a file.

    >>> print(text_of("yaml", {"model.lora_rank": 8, "bf16": True}), end="")
    model:
      lora_rank: 8
    bf16: true
    """
    if form == "json":
        return json.dumps(nest(table), indent=2) + "\n"
    if form == "toml":
        from gpuscale.io.toml_out import table_to_toml

        return table_to_toml(nest(table))
    import yaml

    return str(yaml.safe_dump(nest(table), sort_keys=False, allow_unicode=True))


def words_of_command(form: str, table: Mapping[str, Any]) -> list[str]:
    """Words of a command: `--key value`, or `key=value`; a true flag stands alone.

    `form`: "values" says true and false too, as options that may be None want it.

    >>> words_of_command("flags", {"bf16": True, "targets": ["q", "v"], "stage": 2})
    ['--bf16', '--targets', 'q', 'v', '--stage', '2']
    >>> words_of_command("overrides", {"a.b": [1, 2], "c": False})
    ['a.b=[1,2]', 'c=false']
    """
    words: list[str] = []
    for key, value in table.items():
        if form == "overrides":
            words.append(f"{key}={said(value)}")
        elif value is True and form == "flags":
            words.append(f"--{key}")
        elif isinstance(value, bool):
            words += [f"--{key}", said(value)]
        elif isinstance(value, (list, tuple)):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", str(value)]
    return words


def said(value: Any) -> str:
    """Value as an override says it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{said(v)}" for k, v in value.items()) + "}"
    return f"[{','.join(map(said, value))}]" if isinstance(value, (list, tuple)) else str(value)


def told(job: TrainingLaunch) -> Table:
    """Fields of a job; what has no meaning in it is left out."""
    lay, model = job.layout, job.model
    group = lay.shard_group_size or lay.dp * lay.cp
    fields: Table = asdict(lay)
    for name in ("shard_group_size", "stage_layers", "dp"):
        fields.pop(name)
    fields |= {
        "job": job,
        "software": job.software,
        "experts": model.has_experts,
        "gpu_arch": job.cluster.gpu.architecture,
        "model": model.hub or model.name,
        "method": "pretrain",
        "accumulation": lay.n_micro_batches,
        "n_gpus": lay.n_gpus,
        "n_nodes": -(-lay.n_gpus // job.cluster.gpus_per_node),
        "gpus_per_node": min(lay.n_gpus, job.cluster.gpus_per_node),
        "dp_replicate": lay.dp * lay.cp // group,
        "sequence_parallel": lay.sequence_parallel and lay.tp > 1,
        "steps": 100,
        "stage_layers": None if job.even_stages or lay.pp == 1 else job.stage_layers,
        **{f"settings.{name}": value for name, value in job.settings.said.items()},
        **job.tuning,
    }
    idle = {"cp_kind": lay.cp == 1, "schedule": lay.pp == 1, "etp": not model.has_experts}
    idle |= {"overlap_tp": lay.tp == 1, "overlap_pp": lay.pp == 1}
    idle |= {"order": lay.tp * lay.pp * lay.cp == 1, "dp_replicate": lay.zero_stage == 0}
    return {name: value for name, value in fields.items() if not idle.get(name)}


NEVER_SAID = ("model", "n_gpus", "n_nodes", "gpus_per_node", "steps", "software") + (
    "lora_alpha",
    "job",
    "experts",
    "gpu_arch",
)
"""Fields that the launcher says, or that change nothing here."""
_WORDS = launch_table("words")["told"]
PHRASES: dict[str, str] = _WORDS["phrases"]


def phrase(name: str, value: Any) -> str:
    """Field in words.

    >>> phrase("tp", 2), phrase("overlap_dp", False), phrase("settings.moments", "bf16")
    ('tensor parallelism 2', 'data parallelism without overlap', 'moments bf16')
    """
    shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = PHRASES.get(name) or f"{name.rpartition('.')[2].replace('_', ' ')} {{}}"
    return text.format(shown)


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
