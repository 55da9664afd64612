"""The whole job of an answer as its JSON keeps it: resolved, no name is looked up again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Question, fields_of
from gpuscale.answers.options import length_words
from gpuscale.answers.table import question_of
from gpuscale.core.layout import Layout
from gpuscale.core.quantity import UNITS
from gpuscale.core.records import asdict, fields, replace
from gpuscale.core.settings import GRADIENT_BYTES
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import checked

if TYPE_CHECKING:
    from gpuscale.answers.training.asked import Memory, Timeline
    from gpuscale.core.habits import Habit
    from gpuscale.io.inputs import Loaded
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.specs.software import SoftwareSpec


TOLD_GRADIENTS = ("megatron-bridge",)
"""Families that count 16-bit gradients and whose recipes reduce in 32 bits unless they are told."""


def saved_job(
    loaded: Loaded,
    layout: Layout,
    *,
    stage_layers: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Any] | None = None,
    command: str = "",
    estimate: Sequence[str] = (),
    gradients_bytes: float | None = None,
) -> dict[str, Any]:
    """Keep a job as it was computed: model and cluster as they are after `--set`.

    `gradients_bytes`: of a parameter, as they were counted where nobody said their format.
    """
    software = loaded.specs["software"].name
    if gradients_bytes == GRADIENT_BYTES["bf16"] and software in TOLD_GRADIENTS:
        settings = {"gradients": "bf16", **(settings or {})}
    return {
        "model": _kept(loaded.model.model_dump()),
        "cluster": _kept(loaded.cluster.model_dump()),
        "software": software,
        "layout": asdict(layout),
        "stage_layers": list(stage_layers),
        "settings": dict(settings or {}),
        "tuning": dict(tuning or {}),
        "command": command,
        "estimate": list(estimate),
    }


def inputs_of(loaded: Loaded, layout: Layout, **more: object) -> dict[str, object]:
    """Return the inputs of an answer about a layout as its JSON has them."""
    return loaded.inputs(n_gpus=layout.n_gpus, **more, **asdict(layout))


def launch_of(job: Any) -> TrainingLaunch:
    """Read a saved job.

    Raises GpuscaleError if it holds another key or value than `saved_job` writes.
    """
    from gpuscale.launch.dialects.write import chunks_of
    from gpuscale.launch.job import TrainingLaunch

    if not isinstance(job, dict) or set(job) != {f.name for f in fields(TrainingLaunch)}:
        raise GpuscaleError(
            "the answer does not hold the job that it is of",
            "make it again with `gpuscale plan MODEL --gpus N --json > plan.json`",
        )
    saved = checked(TrainingLaunch, job, "the saved job")
    model, layout, stages = saved.model, saved.layout, saved.stage_layers
    chunks = layout.stage_layers or ()
    if layout.pp > model.n_layers or sum(chunks or stages or (model.n_layers,)) != model.n_layers:
        raise GpuscaleError(
            f"the saved layout does not deal the {model.n_layers} layers of {model.name} over "
            f"{layout.pp} stages"
        )
    if (stages and len(stages) != layout.pp) or layout.pp * layout.vpp > model.n_layers + 2:
        raise GpuscaleError(f"the saved job has {len(stages)} stages, its layout {layout.pp}")
    return replace(
        saved,
        stage_layers=chunks_of(model, layout, stages),
        tuning={k: tuple(v) if isinstance(v, list) else v for k, v in saved.tuning.items()},
        command=saved.command[:2000],
        estimate=tuple(line[:400] for line in saved.estimate),
    )


def _kept(value: Any) -> Any:
    """Leave out what is not said, and where it is from."""
    if isinstance(value, dict):
        said = {k: v for k, v in value.items() if v is not None and k != "sources"}
        return {k: _kept(v) for k, v in said.items()}
    return [_kept(v) for v in value] if isinstance(value, (list, tuple)) else value


def startable(job: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Give a document its job, and what writes the launch file by the name of a wrapper."""

    def write(wrapper: str) -> str:
        import json

        from gpuscale.launch.dialects.write import framework_of, launch_script

        made = launch_of(json.loads(json.dumps(job())))
        return launch_script(made, framework_of(made), wrapper)[2]

    return {"job": job, "launch": write}


def command_line(question: type[Question], given: Mapping[str, Any]) -> str:
    """Command line that asks the same.

    >>> from gpuscale.answers.table import question_of
    >>> command_line(question_of("memory"), {"model": "llama3-8b", "gpu": "rtx-3090", "gpus": "2"})
    'gpuscale memory llama3-8b --gpu rtx-3090 --gpus 2'
    >>> command_line(question_of("diagnose"), {"log": "run.log"})
    'gpuscale diagnose --log run.log'
    """
    words = ["gpuscale", question.NAME]
    asked = [(name, *found) for name, found in fields_of(question).items() if name in given]
    for name, field, positional in sorted(asked, key=lambda one: not one[2]):
        value = given[name]
        flag = [] if positional else [f"--{name.replace('_', '-')}"]
        if field.kind == "flag":
            words += flag if str(value).lower() in ("true", "1", "on") else []
        elif field.kind == "many":
            each = [value] if isinstance(value, str) else value
            words += [word for one in each for word in (*flag, one)]
        else:
            words += [*flag, typed(value, field.dim)]
    return shlex.join(words)


TYPED = {"tokens": ("T", "B", "M", ""), "count": ("T", "B", "M", ""), "s": ("d", "h", "s")}
"""Dimension -> units in which a number is typed: the first in which it is whole, else the last."""


def typed(value: Any, dim: str = "") -> str:
    """Text of a value of a dimension as it is typed.

    >>> typed((8, 16)), typed({"": 2.5}), typed({"dgx-h100": 2.0})
    ('8,16', '2.5 USD/h', 'dgx-h100=2 USD/h')
    >>> typed(1.5e13, "tokens"), typed(1234567.0, "tokens"), typed(2592000.0, "s"), typed(0.5, "s")
    ('15T', '1234567', '30d', '0.5s')
    """
    if isinstance(value, float) and dim in TYPED:
        whole = (unit for unit in TYPED[dim] if value % UNITS[dim][unit] == 0.0)
        unit = next(whole, TYPED[dim][-1])
        return f"{value / UNITS[dim][unit]:.15g}{unit}"
    if isinstance(value, Mapping):  # of prices
        return ",".join(f"{k}={v:g} USD/h" if k else f"{v:g} USD/h" for k, v in value.items())
    if isinstance(value, tuple):
        return ",".join(map(typed, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def command_of(asked: Question, then: str = "", without: tuple[str, ...] = (), **said: Any) -> str:
    """Command line that asks a question again; `then`: another command, of what that has as well.

    `without`: groups of options that are left open, `said`: what is told otherwise, None: nothing.
    """
    known = fields_of(type(asked))
    kept = fields_of(question_of(then)) if then else known
    own = {n: getattr(asked, n) for n, (f, _) in known.items() if f.group not in without} | said
    told = {n: v for n, v in own.items() if n in kept and v not in (None, known[n][0].default)}
    return command_line(type(asked), told).replace(asked.NAME, then or asked.NAME, 1)


OPTIONS = {
    "micro_batch_size": ("micro_batch",),
    "global_batch_size": ("global_batch", "batch_tokens", "accumulation"),
    "seq_len": ("seq_len", "max_len"),
    "dp": ("gpus", "n_gpus"),
    "zero_stage": ("zero",),
    "shard_group_size": ("shard_group", "dp_replicate"),
    "stage_layers": ("pipeline_layout",),
    "offload_optimizer": ("offload",),
    "offload_activations": ("offload",),
}
"""Field of a layout -> options that say it; of others that of its own name."""

LAYOUT = tuple(f.name for f in fields(Layout))
"""Fields of a layout."""

CHOSEN = tuple(n for n in LAYOUT if n not in ("seq_len", "global_batch_size", "precision"))
"""Those that a plan searches over unless they are pinned."""

OWN = ("zero_stage", "sequence_parallel", "recompute", "cp_kind")
"""Fields of a layout that a family's preset decides where nobody says them."""

OF_A_JOB = ("machines", "layout", "batch", "kernels", "fine-tuning", "rl", "serving")
"""Groups of options that say a job; the others say what is looked for, counted or shown."""


def told(asked: Question) -> dict[str, str]:
    """Options of a job that a person gave: name -> the option."""
    return {
        name: f"--{name.replace('_', '-')}" if not argument else "argument"
        for name, (field, argument) in fields_of(type(asked)).items()
        if field.group in OF_A_JOB and getattr(asked, name) != field.default
    }


def said_by(
    said: Mapping[str, str],
    software: SoftwareSpec,
    *,
    habits: Mapping[str, Habit] | None = None,
    searched: Collection[str] = (),
) -> dict[str, str]:
    """Say who said each value of a job: fields of its layout, and the options beside it.

    `said`: field or option -> who said it (`told`, and what files say). `habits`: field -> habit of
    the framework and version that was named. `searched`: fields that the answer chose.
    """
    why = software.sources
    usual = {n: f"habit of {software.name}: {why.get(n, '')}".removesuffix(": ") for n in OWN}
    usual |= {k: f"habit of {software.name}: {h.source}" for k, h in (habits or {}).items()}
    where = {} if "gpu" in said else {"cluster": "default"}
    found, known = {}, {"software": "default", **where, **usual, **said}
    for name in LAYOUT:
        options = (name, *OPTIONS.get(name, ()))
        known = {k: who for k, who in known.items() if k not in options or k == "gpus"}
        by_person = next((said[o] for o in options if o in said), "")
        if name in searched and (not by_person or (name == "dp" and "dp" not in said)):
            by_person = "searched"
        found[name] = by_person or next((usual[o] for o in options if o in usual), "default")
    return found | known


def unsaid(*rows: tuple[object, str, str]) -> tuple[str, ...]:
    """List what nobody said: of (what was given, what is taken, the option) those not given.

    >>> unsaid((None, "sequences of 8,192", "--seq-len"), ("phi4", "llama3-8b", "--model"))
    ('sequences of 8,192 (--seq-len)',)
    """
    return tuple(f"{taken} ({option})" for given, taken, option in rows if not given)


def taken_of(asked: Memory | Timeline, loaded: Loaded, layout: Layout) -> tuple[str, ...]:
    """List what nobody said of a layout that is given in full."""
    return unsaid(
        (asked.cluster or asked.gpu, loaded.cluster.name, "--cluster"),
        (asked.seq_len, length_words(layout.seq_len, loaded.model), "--seq-len"),
        (asked.software, loaded.specs["software"].name, "--software"),
        (asked.micro_batch, f"micro-batch {layout.micro_batch_size}", "--micro-batch"),
        (asked.recompute, f"recompute {layout.recompute}", "--recompute"),
        (asked.zero is not None, f"ZeRO {layout.zero_stage}", "--zero"),
    )
