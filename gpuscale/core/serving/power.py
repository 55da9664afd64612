"""Power of the GPUs that serve a load, and the energy of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.core.formats import element_bytes
from gpuscale.core.model.layer_shape import flop_per_token, kv_cache_bytes
from gpuscale.core.records import dataclass
from gpuscale.core.serving.kernels import multiplied_in
from gpuscale.core.serving.replica import weights_read_bytes

if TYPE_CHECKING:
    from gpuscale.core.serving.percentiles import LoadResult
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class PowerParameters:
    """Power of a GPU over its TDP: ``idle + (1 - idle) min(1, busy + slope use)``.

    `use` is the share of the time in which memory or matrix units run at their peak; `busy` is
    what clocks, caches and links take as soon as passes run without pause.
    """

    idle_frac: float = 0.18
    busy_frac: float = 0.2
    slope: float = 0.5


def use_frac(
    model: ModelSpec, replica: Replica, site: ServingSite, load: LoadResult, context: float
) -> float:
    """Share of the time that memory and matrix units would need at their peaks. [1].

    ``(passes/s read + FLOP/s / C) / n_gpus``; a pass reads the weights met and the cache.

    `replica`: layout, formats, drafts. `site`: hardware. `load`: what one replica does, its
    sequences of the mean `context` [1].
    """
    kept = 1.0 + (replica.drafts.accepted if replica.drafts else 0.0)
    drafted = 1.0 + (replica.drafts.n_tokens if replica.drafts else 0.0)
    passes = load.output_tokens_per_s / max(1.0, load.decoding_sequences) / kept
    cache = kv_cache_bytes(model, context, element_bytes(replica.kv_format))
    met = weights_read_bytes(model, replica.ffn_format, max(1, round(load.decoding_sequences)))
    read = met + load.decoding_sequences * cache
    flop = flop_per_token(model, max(1, int(context))).forward_flop
    tokens = load.output_tokens_per_s * drafted / kept + load.input_tokens_per_s
    peak = site.peaks[multiplied_in(site, replica.ffn_format)]
    busy = passes * read / site.hbm_bytes_per_s + tokens * flop / peak
    return min(1.0, busy / replica.n_gpus)


def gpu_power_w(
    tdp_w: float, use: float, parameters: PowerParameters, busy_frac: float = 1.0
) -> float:
    """Power of one GPU. [W].

    >>> round(gpu_power_w(700.0, 0.5, PowerParameters(0.2, 0.2, 0.5)))
    392
    """
    p = parameters
    load = min(1.0, p.busy_frac + p.slope * use)
    return tdp_w * (p.idle_frac + (1.0 - p.idle_frac) * busy_frac * load)


def energy_per_token_j(n_gpus: float, power_w: float, tokens_per_s: float) -> float:
    """Energy of the GPUs for one token. [J].

    >>> energy_per_token_j(8, 500.0, 2000.0)
    2.0
    """
    if not tokens_per_s > 0.0:
        raise ValueError(f"tokens_per_s must be above 0, got {tokens_per_s}")
    return n_gpus * power_w / tokens_per_s
