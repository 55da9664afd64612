"""What RL frameworks cost over the models alone, from `presets/run/rl.toml`."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.core.rl.estimate import RolloutEngine
from gpuscale.core.rl.step import RlCosts
from gpuscale.io.presets import shipped
from gpuscale.io.toml import Table, read_toml
from gpuscale.specs.cluster import ClusterSpec
from gpuscale.specs.software import FittedValue, SoftwareSpec


@lru_cache(maxsize=1)
def _fitted() -> dict[str, float]:
    table = read_toml(shipped("run/rl.toml"))
    return {k: FittedValue.model_validate(v).value for k, v in table.items()}


def rl_costs(software: SoftwareSpec | None = None) -> RlCosts:
    """Costs and habits of a framework; what its preset leaves open is the fit of all."""
    own: Table = dict(_fitted())
    if software is not None:
        own |= software.rl
    return RlCosts(**own)


def rl_engine(
    cluster: ClusterSpec, tp: int, weights: str = "bf16", share: float | None = None
) -> RolloutEngine:
    """Make the serving side of a rollout: vLLM with `tp` GPUs a replica.

    `weights`: their format. `share`: of a GPU's memory, where training has the rest; None: its own.
    """
    from dataclasses import replace

    from gpuscale.core.memory.fit import usable_bytes
    from gpuscale.core.rl.estimate import RolloutEngine
    from gpuscale.core.serving.records import Replica
    from gpuscale.io.serving import serving_site

    gpu = cluster.gpu
    usable = usable_bytes(gpu.hbm_bytes, gpu.usable_hbm_bytes)
    site = serving_site(cluster, "vllm")
    if share is not None:
        memory = replace(site.software.memory, utilisation_frac=share)
        site = replace(site, software=replace(site.software, memory=memory))
    return RolloutEngine(Replica(tp=tp, ffn_format=weights, attention_format=weights), site, usable)
