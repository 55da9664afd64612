"""The layout that a question gives in full, filled up from the software's habits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.finetune.wanted import offloads_of
from gpuscale.answers.layout_options import said_by_layout
from gpuscale.answers.legal import refuse_illegal, refuse_settings
from gpuscale.core.context import DEFAULT_CONTEXT
from gpuscale.core.layout import Layout
from gpuscale.errors import GpuscaleError
from gpuscale.io.software import capabilities_of

if TYPE_CHECKING:
    from gpuscale.answers.layout_options import Degrees
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec


def data_parallel(asked: Degrees, model_parallel: int) -> int:
    """Data-parallel degree from ``dp`` or ``gpus``."""
    if asked.gpus is None:
        return asked.dp or 1
    if asked.gpus % model_parallel:
        raise GpuscaleError(
            f"--gpus {asked.gpus} is no multiple of tp*pp*cp = {model_parallel}",
            f"{max(1, asked.gpus // model_parallel) * model_parallel} would be",
        )
    dp = asked.gpus // model_parallel
    if asked.dp is not None and asked.dp != dp:
        raise GpuscaleError(f"--gpus {asked.gpus} with tp*pp*cp = {model_parallel} means dp = {dp}")
    return dp


def shard_group(asked: Degrees, n_shards: int) -> int | None:
    """GPUs of a shard group, which must divide the shards."""
    group = asked.shard_group
    if group is not None and (group > n_shards or n_shards % group):
        raise GpuscaleError(f"--shard-group {group} does not divide dp*cp = {n_shards}")
    return group


def layout_of(
    asked: Degrees, seq_len: int, model: ModelSpec, software: SoftwareSpec, stage_batches: int = 1
) -> Layout:
    """Lay a training job out as asked.

    `asked`: the degrees; what is not given is the software's habit. `seq_len`: tokens of a sequence
    [1]. `model, software`: what is trained, and with what. `stage_batches`: micro-batches for each
    stage, where no global batch is given [1]. Raises GpuscaleError for a layout that the framework
    cannot run.
    """
    pp, vpp = asked.pp, asked.vpp
    if asked.pipeline_layout:
        said = said_by_layout(asked.pipeline_layout, pp if pp > 1 else None)
        pp, vpp = int(said["pp"]), int(said["vpp"])
    dp = data_parallel(asked, asked.tp * pp * asked.cp)
    wanted = asked.sequence_parallel
    sequence_parallel = software.sequence_parallel if wanted is None else wanted == "on"
    each = max(stage_batches, 2) if asked.schedule == "dualpipe" else stage_batches
    moved = offloads_of(asked.offload)
    if tuned := set(moved) - {"optimizer", "activations"}:
        raise GpuscaleError(f"--offload {min(tuned)} needs --method", "pre-training keeps it")
    batch = asked.global_batch or each * dp * (asked.micro_batch or 1) * pp
    layout = Layout(
        seq_len=seq_len,
        global_batch_size=batch,
        micro_batch_size=asked.micro_batch or 1,
        tp=asked.tp,
        cp=asked.cp,
        ep=asked.ep,
        etp=asked.etp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        zero_stage=software.zero_stage if asked.zero is None else asked.zero,
        shard_group_size=asked.shard_group,
        sequence_parallel=sequence_parallel and asked.tp > 1,
        recompute=asked.recompute
        or ("selective" if asked.recompute_modules else software.recompute),
        recompute_layers=asked.recompute_layers,
        schedule=asked.schedule,
        precision=asked.precision,
        cp_kind=asked.cp_kind or (capabilities_of(software).cp_kinds or (DEFAULT_CONTEXT,))[0],
        overlap_tp=asked.overlap_tp == "on",
        overlap_dp=asked.overlap_dp == "on",
        overlap_pp=asked.overlap_pp == "on",
        order=asked.order,
        offload_optimizer="optimizer" in moved,
        offload_activations="activations" in moved,
        stage_layers=asked.pipeline_layout,
    )
    refuse_illegal(model, software, layout)
    refuse_settings(software, asked.job_settings, layout)
    return layout
