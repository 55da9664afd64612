"""Terms of a serving memory: the formulas of `core.serving.memory` with the inputs they took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.formats import edge_bytes, weight_bytes
from gpuscale.core.model.params import ffn_params, layer_norm_params, mixer_params, mtp_params
from gpuscale.core.records import Term, term_of, total_of
from gpuscale.core.serving.memory import (
    FEWEST_SEQUENCES,
    SAMPLER_COPIES,
    SPARE_FRAC,
    activation_bytes,
    cache_room,
    edge_params,
    kept_params,
    reserved_bytes,
    routed_params,
)

if TYPE_CHECKING:
    from gpuscale.core.serving.memory import CacheRoom, EngineMemory
    from gpuscale.core.serving.records import Replica
    from gpuscale.core.serving.replica import ServingMemory
    from gpuscale.specs.model import ModelSpec

KWON = "Kwon et al. 2023 (arXiv:2309.06180), section 4"


OWN = "context_bytes + collective_bytes * log2(group)"
KEPT_BACK = {
    "device": f"{OWN} + (1 - utilisation_frac) * usable_bytes",
    "static": f"utilisation_frac * ({OWN}) + (1 - utilisation_frac) * usable_bytes",
    "free": f"utilisation_frac * ({OWN})"
    " + (1 - utilisation_frac) * (usable_bytes - weights_bytes - activations_bytes)",
    "all": OWN,
}
"""What an engine leaves alone, by its rule of dividing the memory."""

SAMPLER = f"{SAMPLER_COPIES:g} * 4 * sampler_sequences * vocab_size"


def weights_term(model: ModelSpec, replica: Replica, room: CacheRoom) -> Term:
    """Weights on one GPU of the fullest stage."""
    h, groups = model.hidden_size, model.layer_groups
    routed = sum(g.n * routed_params(g.ffn, h) for g in groups)
    ffn = "dense_params / tp" + (" + routed_params / group" if routed else "")
    kept = kept_params(model, replica)
    wide = " + (2 - ffn_bytes_each) * kept_params / tp" if kept else ""
    drafts = " + ffn_bytes_each * draft_params / group" if replica.drafts else ""
    return term_of(
        "weights_bytes",
        "bytes",
        f"stage_layers / layers * (ffn_bytes_each * ({ffn}) + mixer_bytes_each * mixer_params / tp"
        f"{wide}) + edge_bytes_each * edge_params / tp{drafts}",
        "formats table; embedding and head in 16 bits but in GGUF; experts over the group",
        room,
        replica,
        ffn_bytes_each=weight_bytes(1.0, replica.ffn_format, scales=True),
        dense_params=sum(g.n * ffn_params(g.ffn, h) for g in groups) - routed,
        routed_params=routed,
        kept_params=kept,
        mixer_bytes_each=weight_bytes(1.0, replica.attention_format, scales=True),
        mixer_params=sum(
            g.n * (mixer_params(g.mixer, h) + layer_norm_params(model)) for g in groups
        ),
        stage_layers=math.ceil(model.n_layers / replica.pp),
        layers=model.n_layers,
        edge_bytes_each=edge_bytes(replica.ffn_format),
        edge_params=edge_params(model, replica.pp),
        draft_params=mtp_params(model),
    )


def activations_term(
    model: ModelSpec, replica: Replica, engine: EngineMemory, room: CacheRoom
) -> Term:
    """Peak of a prefill chunk, and the logits that the sampler is profiled with."""
    if engine.rule == "static":
        text = "inside what the engine leaves alone"
        return Term("activations_bytes", room.activations_bytes, "bytes", source=text)
    chunk = Term(
        "chunk_bytes",
        activation_bytes(model, replica, engine.chunk_tokens),
        "bytes",
        source=f"2 bytes x {engine.chunk_tokens:,.0f} tokens of a chunk x (4 hidden sizes + the "
        "widest FFN), core/serving/memory.py",
    )
    reserved = reserved_bytes(replica, engine)
    sampler_bytes = SAMPLER_COPIES * 4.0 * engine.sampler_sequences * model.vocab_size
    taken = room.weights_bytes + chunk.value + reserved + sampler_bytes
    formula = f"chunk_bytes + {SAMPLER}"
    if (
        engine.rule == "device"
        and taken > (engine.utilisation_frac - SPARE_FRAC) * room.usable_bytes
    ):
        least = SAMPLER.replace("sampler_sequences", "fewest_sequences")
        formula = (
            f"chunk_bytes + max({least}, min({SAMPLER}, (utilisation_frac - {SPARE_FRAC:g})"
            " * usable_bytes - weights_bytes - chunk_bytes - reserved_bytes))"
        )
    return term_of(
        "activations_bytes",
        "bytes",
        formula,
        f"profiled peak and the sampler's fp32 copies; {KWON}",
        chunk,
        room,
        sampler_sequences=engine.sampler_sequences,
        utilisation_frac=engine.utilisation_frac,
        vocab_size=model.vocab_size,
        reserved_bytes=reserved,
        fewest_sequences=min(FEWEST_SEQUENCES, engine.sampler_sequences),
    )


def serving_terms(
    model: ModelSpec, replica: Replica, engine: EngineMemory, m: ServingMemory
) -> tuple[Term, ...]:
    """Total of a serving GPU with its parts, and the concurrency that fits."""
    room = cache_room(model, replica, engine, m.usable_bytes)
    names = ("weights_bytes", "kv_cache_bytes", "activations_bytes", "overhead_bytes")
    each = {"sequence_bytes": m.kv_bytes_per_sequence_per_gpu}
    cache = term_of(
        "kv_cache_bytes",
        "bytes",
        "concurrency * sequence_bytes",
        "KV heads, latent and state of each layer (core/serving/memory.py)",
        m,
        **each,
    )
    source = f"serving preset, rule `{engine.rule}` of [memory]"
    kept_back = term_of(
        "overhead_bytes", "bytes", KEPT_BACK[engine.rule], source, room, engine, group=replica.group
    )
    total = total_of(
        "total_bytes",
        m.total_bytes,
        "bytes",
        {name: getattr(m, name) for name in names},
        "sum of the parts",
        (
            weights_term(model, replica, room),
            cache,
            activations_term(model, replica, engine, room),
            kept_back,
        ),
    )
    if m.kv_bytes_per_sequence_per_gpu <= 0.0:
        return (total,)
    left = "usable_bytes - weights_bytes - activations_bytes - overhead_bytes"
    most = term_of(
        "max_concurrency",
        "count",
        f"max(0, floor(({left}) / sequence_bytes))",
        "sequences whose cache fits beside the rest",
        m,
        **each,
    )
    return total, most
