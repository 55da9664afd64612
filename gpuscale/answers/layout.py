"""The layout that a question gives in full, filled up from the software's habits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.options import Degrees
    from gpuscale.core.layout import Layout
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

    Parameters
    ----------
    asked : Degrees
        The degrees; what is not given is the software's habit.
    seq_len : int
        Tokens of a sequence. [1]
    model, software : spec
        What is trained, and with what.
    stage_batches : int
        Micro-batches for each stage, where no global batch is given. [1]

    Raises
    ------
    GpuscaleError
        For degrees that no framework can run.
    """
    from gpuscale.core.layout import Layout

    dp = data_parallel(asked, asked.tp * asked.pp * asked.cp)
    _check_degrees(asked, model, dp)
    wanted = asked.sequence_parallel
    sequence_parallel = software.sequence_parallel if wanted is None else wanted == "on"
    batch = asked.global_batch or stage_batches * dp * asked.micro_batch * asked.pp
    return Layout(
        seq_len=seq_len,
        global_batch_size=batch,
        micro_batch_size=asked.micro_batch,
        tp=asked.tp,
        cp=asked.cp,
        ep=asked.ep,
        etp=asked.etp,
        pp=asked.pp,
        vpp=asked.vpp,
        dp=dp,
        zero_stage=software.zero_stage if asked.zero is None else asked.zero,
        shard_group_size=shard_group(asked, dp * asked.cp),
        sequence_parallel=sequence_parallel and asked.tp > 1,
        recompute=asked.recompute or software.recompute,
        recompute_layers=asked.recompute_layers,
        schedule=asked.schedule,
        precision=asked.precision,
        offload_optimizer=asked.offload in ("optimizer", "both"),
        offload_activations=asked.offload in ("activations", "both"),
    )


def _check_degrees(asked: Degrees, model: ModelSpec, dp: int) -> None:
    """Refuse degrees that no framework can run."""
    tp, pp, ep, etp = asked.tp, asked.pp, asked.ep, asked.etp
    if pp * asked.vpp > model.n_layers:
        raise GpuscaleError(f"pp*vpp = {pp * asked.vpp} is more than the {model.n_layers} layers")
    if asked.vpp > 1 and pp == 1:
        raise GpuscaleError("--vpp needs --pp above 1")
    for mixer in model.mixers.values():
        heads = getattr(mixer, "n_heads", tp)
        if heads % tp:
            raise GpuscaleError(f"--tp {tp} does not divide {heads} heads")
    experts = [f.n_experts for f in model.ffns.values() if f.kind == "moe"]
    if ep * etp > 1 and not experts:
        raise GpuscaleError("--ep and --etp need a model with experts")
    if any(n % ep for n in experts):
        raise GpuscaleError(f"--ep {ep} does not divide {experts[0]} experts")
    if (tp * asked.cp * dp) % (ep * etp):
        over = tp * asked.cp * dp
        raise GpuscaleError(f"ep*etp = {ep * etp} does not divide tp*cp*dp = {over}")
