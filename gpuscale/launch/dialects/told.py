"""All that a job says, field by field, as a framework must be told it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuscale.io.toml import Table
from gpuscale.launch.options import launch_table

if TYPE_CHECKING:
    from gpuscale.launch.job import TrainingLaunch


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
