"""Terms of a serving memory: the formulas of `core.serving.memory` with the inputs they took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscale.core.formats import edge_bytes, weight_bytes
from gpuscale.core.model.params import ffn_params, layer_norm_params, mixer_params, mtp_params
from gpuscale.core.records import Term
from gpuscale.core.serving.memory import (
    FEWEST_SEQUENCES,
    SAMPLER_COPIES,
    SPARE_FRAC,
    activation_bytes,
    cache_room,
    edge_params,
    reserved_bytes,
    routed_params,
)

if TYPE_CHECKING:
    from gpuscale.core.serving.memory import CacheRoom, EngineMemory
    from gpuscale.core.serving.records import Replica
    from gpuscale.core.serving.replica import ServingMemory
    from gpuscale.specs.model import ModelSpec

KWON = "Kwon et al. 2023 (arXiv:2309.06180), section 4"


def weights_term(model: ModelSpec, replica: Replica, room: CacheRoom) -> Term:
    """Weights on one GPU of the fullest stage."""
    h = model.hidden_size
    routed = sum(g.n * routed_params(g.ffn, h) for g in model.layer_groups)
    inputs = {
        "ffn_bytes_each": weight_bytes(1.0, replica.ffn_format, scales=True),
        "dense_params": sum(g.n * ffn_params(g.ffn, h) for g in model.layer_groups) - routed,
        "tp": float(replica.tp),
        "mixer_bytes_each": weight_bytes(1.0, replica.attention_format, scales=True),
        "mixer_params": sum(
            g.n * (mixer_params(g.mixer, h) + layer_norm_params(model)) for g in model.layer_groups
        ),
        "stage_layers": float(math.ceil(model.n_layers / replica.pp)),
        "layers": float(model.n_layers),
        "edge_bytes_each": edge_bytes(replica.ffn_format),
        "edge_params": edge_params(model, replica.pp),
    }
    ffn = "dense_params / tp"
    if routed:
        ffn += " + routed_params / group"
        inputs |= {"routed_params": routed, "group": float(replica.group)}
    formula = (
        f"stage_layers / layers * (ffn_bytes_each * ({ffn}) + mixer_bytes_each * mixer_params / tp)"
        " + edge_bytes_each * edge_params / tp"
    )
    if replica.drafts:
        formula += " + ffn_bytes_each * draft_params / group"
        inputs |= {"draft_params": mtp_params(model), "group": float(replica.group)}
    source = "formats table; embedding and head in 16 bits but in GGUF; experts over the group"
    return Term("weights_bytes", room.weights_bytes, "bytes", formula, inputs, source)


def activations_term(
    model: ModelSpec, replica: Replica, engine: EngineMemory, room: CacheRoom
) -> Term:
    """Peak of a prefill chunk, and the logits that the sampler is profiled with."""
    peak = {"chunk_bytes": activation_bytes(model, replica, engine.chunk_tokens)}
    vocab = {"vocab_size": float(model.vocab_size)}
    sampler = f"{SAMPLER_COPIES:g} * 4 * sampler_sequences * vocab_size"
    source = f"profiled peak and the sampler's fp32 copies; {KWON}"
    name, value = "activations_bytes", room.activations_bytes
    if engine.rule == "static":
        text = "inside what the engine leaves alone"
        return Term(name, value, "bytes", source=text)
    child = Term(
        "chunk_bytes",
        peak["chunk_bytes"],
        "bytes",
        source=f"2 bytes x {engine.chunk_tokens:,.0f} tokens of a chunk x (4 hidden sizes + the "
        "widest FFN), core/serving/memory.py",
    )
    inputs = peak | {"sampler_sequences": engine.sampler_sequences} | vocab
    formula = f"chunk_bytes + {sampler}"
    if engine.rule == "device" and spared(model, replica, engine, room) < 0.0:  # fewer sequences
        inputs |= {
            "utilisation_frac": engine.utilisation_frac,
            "usable_bytes": room.usable_bytes,
            "weights_bytes": room.weights_bytes,
            "reserved_bytes": reserved_bytes(replica, engine),
            "fewest_sequences": min(FEWEST_SEQUENCES, engine.sampler_sequences),
        }
        spare = (
            f"(utilisation_frac - {SPARE_FRAC:g}) * usable_bytes - weights_bytes - chunk_bytes"
            " - reserved_bytes"
        )
        least = sampler.replace("sampler_sequences", "fewest_sequences")
        formula = f"chunk_bytes + max({least}, min({sampler}, {spare}))"
    return Term(name, value, "bytes", formula, inputs, source, children=(child,))


def spared(model: ModelSpec, replica: Replica, engine: EngineMemory, room: CacheRoom) -> float:
    """Room that is left once the sampler has all that it is profiled with. [byte]."""
    peak = activation_bytes(model, replica, engine.chunk_tokens)
    sampler = SAMPLER_COPIES * 4.0 * engine.sampler_sequences * model.vocab_size
    taken = room.weights_bytes + peak + reserved_bytes(replica, engine) + sampler
    return (engine.utilisation_frac - SPARE_FRAC) * room.usable_bytes - taken


def overhead_term(replica: Replica, engine: EngineMemory, room: CacheRoom) -> Term:
    """Explain what the engine leaves alone: context, buffers, its reserve."""
    inputs = {
        "context_bytes": engine.context_bytes,
        "collective_bytes": engine.collective_bytes,
        "group": float(replica.group),
    }
    formula = "context_bytes + collective_bytes * log2(group)"
    reserve = {"utilisation_frac": engine.utilisation_frac, "usable_bytes": room.usable_bytes}
    if engine.rule == "device":
        formula += " + (1 - utilisation_frac) * usable_bytes"
        inputs |= reserve
    elif engine.rule == "static":
        formula = f"utilisation_frac * ({formula}) + (1 - utilisation_frac) * usable_bytes"
        inputs |= reserve
    elif engine.rule == "free":
        parts = ("weights_bytes", "activations_bytes")
        inputs |= reserve | {name: getattr(room, name) for name in parts}
        formula = (
            f"utilisation_frac * ({formula})"
            " + (1 - utilisation_frac) * (usable_bytes - weights_bytes - activations_bytes)"
        )
    source = f"serving preset, rule `{engine.rule}` of [memory]"
    return Term("overhead_bytes", room.overhead_bytes, "bytes", formula, inputs, source)


def serving_terms(
    model: ModelSpec, replica: Replica, engine: EngineMemory, m: ServingMemory
) -> tuple[Term, ...]:
    """Total of a serving GPU with its parts, and the concurrency that fits."""
    room = cache_room(model, replica, engine, m.usable_bytes)
    parts = {
        "weights_bytes": m.weights_bytes,
        "kv_cache_bytes": m.kv_cache_bytes,
        "activations_bytes": m.activations_bytes,
        "overhead_bytes": m.overhead_bytes,
    }
    each = {"sequence_bytes": m.kv_bytes_per_sequence_per_gpu}
    cache = Term(
        "kv_cache_bytes",
        m.kv_cache_bytes,
        "bytes",
        "concurrency * sequence_bytes",
        {"concurrency": float(m.concurrency)} | each,
        "KV heads, latent and state of each layer (core/serving/memory.py)",
    )
    found = [
        Term(
            name="total_bytes",
            value=m.total_bytes,
            unit="bytes",
            formula=" + ".join(parts),
            inputs=parts,
            source="sum of the parts",
            children=(
                weights_term(model, replica, room),
                cache,
                activations_term(model, replica, engine, room),
                overhead_term(replica, engine, room),
            ),
        )
    ]
    if m.kv_bytes_per_sequence_per_gpu > 0.0:
        beside = {k: v for k, v in parts.items() if k != "kv_cache_bytes"}
        room_left = "usable_bytes - weights_bytes - activations_bytes - overhead_bytes"
        found.append(
            Term(
                "max_concurrency",
                float(m.max_concurrency),
                "count",
                f"max(0, floor(({room_left}) / sequence_bytes))",
                {"usable_bytes": m.usable_bytes} | beside | each,
                "sequences whose cache fits beside the rest",
            )
        )
    return tuple(found)
