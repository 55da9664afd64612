"""The whole job of an answer as its JSON keeps it: resolved, no name is looked up again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.core.layout import ORDERS, PRECISIONS, RECOMPUTE, Layout
from gpuscale.core.schedules import SCHEDULES
from gpuscale.core.settings import GRADIENT_BYTES, JobSettings
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

KEYS = ("model", "cluster", "software", "layout", "stage_layers", "settings", "tuning") + (
    "command",
    "estimate",
)
"""Keys of a saved job."""
KNOWN: dict[str, Sequence[Any]] = {
    "recompute": RECOMPUTE,
    "precision": PRECISIONS,
    "schedule": tuple(SCHEDULES),
    "cp_kind": tuple(CONTEXT_KINDS),
    "order": ORDERS,
    "zero_stage": (0, 1, 2, 3),
}
"""Field of a layout -> what it may be."""
MOST = 10**9
TOLD_GRADIENTS = ("megatron-bridge",)
"""Families that count 16-bit gradients and whose recipes reduce in 32 bits unless they are told."""


def saved_job(
    model: ModelSpec,
    cluster: ClusterSpec,
    software: str,
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
    if gradients_bytes == GRADIENT_BYTES["bf16"] and software in TOLD_GRADIENTS:
        settings = {"gradients": "bf16", **(settings or {})}
    return {
        "model": model.model_dump(mode="json", exclude_none=True, exclude={"sources"}),
        "cluster": cluster.model_dump(
            mode="json", exclude_none=True, exclude={"sources": True, "gpu": {"sources"}}
        ),
        "software": software,
        "layout": asdict(layout),
        "stage_layers": list(stage_layers),
        "settings": dict(settings or {}),
        "tuning": dict(tuning or {}),
        "command": command,
        "estimate": list(estimate),
    }


def launch_of(job: Any) -> TrainingLaunch:
    """Read a saved job.

    Raises GpuscaleError if it holds another key or value than `saved_job` writes.
    """
    from gpuscale.launch.plan import job_of
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

    if not isinstance(job, dict) or set(job) != set(KEYS):
        raise GpuscaleError(
            "the answer does not hold the job that it is of",
            "make it again with `gpuscale plan MODEL --gpus N --json > plan.json`",
        )
    model = _spec(ModelSpec, job["model"], "model")
    cluster = _spec(ClusterSpec, job["cluster"], "cluster")
    layout = _layout(job["layout"])
    stages = _whole(job["stage_layers"], "stage_layers")
    for name, deep in (("settings", JobSettings), ("tuning", None)):
        held = job[name]
        known = {f.name for f in fields(deep)} if deep else None
        if not isinstance(held, dict) or (known is not None and set(held) - known):
            raise GpuscaleError(f"the saved job's {name} cannot be read")
    chunks = layout.stage_layers or ()
    if layout.pp > model.n_layers or sum(chunks or stages or (model.n_layers,)) != model.n_layers:
        raise GpuscaleError(
            f"the saved layout does not deal the {model.n_layers} layers of {model.name} over "
            f"{layout.pp} stages"
        )
    if (stages and len(stages) != layout.pp) or layout.pp * layout.vpp > model.n_layers + 2:
        raise GpuscaleError(f"the saved job has {len(stages)} stages, its layout {layout.pp}")
    made = job_of(model, layout, stages, cluster, str(job["software"]))
    return replace(
        made,
        settings=JobSettings(**_tuples(job["settings"])),
        tuning=_tuples(job["tuning"]),
        command=str(job["command"])[:2000],
        estimate=tuple(str(line)[:400] for line in job["estimate"])
        if isinstance(job["estimate"], list)
        else (),
    )


def launched(job: Callable[[], Mapping[str, Any]]) -> Callable[[str], str]:
    """Make what writes the launch file of a job by the name of a wrapper."""

    def write(wrapper: str) -> str:
        import json

        from gpuscale.launch.plan import framework_of, launch_script

        made = launch_of(json.loads(json.dumps(job())))
        return launch_script(made, framework_of(made), wrapper)[2]

    return write


def _spec(kind: Any, table: Any, name: str) -> Any:
    import pydantic

    try:
        return kind.model_validate(table)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise GpuscaleError(f"the saved job's {name}: {at}: {first['msg']}") from None


def _layout(table: Any) -> Layout:
    """Read a layout; each degree is a count of at least one, each word a known one."""
    known = {f.name: f for f in fields(Layout)}
    if not isinstance(table, dict) or set(table) - set(known):
        raise GpuscaleError("the saved layout cannot be read: not a table of its own fields")
    for name, value in table.items():
        kind = known[name].type
        if name == "stage_layers":
            value = None if value is None else _whole(value, name)
        good = (value is None and "None" in str(kind)) or name == "stage_layers"
        if name in KNOWN:
            good = value in KNOWN[name]
        elif not good and str(kind).startswith("int"):
            good = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST
        elif not good:
            good = isinstance(value, bool)
        if not good:
            raise GpuscaleError(f"the saved layout's {name} is {str(value)[:40]}")
    try:
        return Layout(**_tuples(table))
    except TypeError as error:
        raise GpuscaleError(f"the saved layout cannot be read: {error}") from None


def _whole(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n <= MOST for n in value):
        raise GpuscaleError(f"the saved job's {name} is no list of whole numbers")
    return tuple(value)


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
