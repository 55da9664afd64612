"""What the files of a launch say by themselves, before anything is derived or predicted."""

from __future__ import annotations

from collections.abc import Mapping

from gpuscale.core.words import DEGREES
from gpuscale.launch.found import Found, Said


def said_rows(said: Said, method: str) -> list[tuple[str, str, str]]:
    """Show what the files say, as facts."""
    if method == "serve":
        return _served_rows(said)
    rows = [
        ("machines", _machines(said), "as the files say"),
        ("layout", _layout(said), method),
        ("batch", _batch(said), ""),
        ("samples", ", ".join(_worded(said.rl)), ""),
        ("precision", said.precision or "", ""),
    ]
    return [row for row in rows if row[1]]


def _served_rows(said: Said) -> list[tuple[str, str, str]]:
    """Show what the files say of a server."""
    named = (("TP", said.tp), ("PP", said.pp), ("DP", said.dp or 1), ("EP", said.ep or 1))
    parts = [f"{name} {n}" for name, n in named if n > 1]
    parts += [f"{k.upper()} {v}" for k, v in said.unread.items() if k in ("tp", "pp", "dp")]
    pools = str(said.serves.get("disagg", "")).replace("+", " + ")
    rest = _worded({k: v for k, v in said.serves.items() if k != "disagg"})
    share = said.memory_utilization
    rows = [
        ("machines", _machines(said), "as the layout makes them"),
        ("layout", f"{pools} as pools" if pools else ", ".join(parts) or "TP 1", "serve"),
        ("weights", said.weights or "", "by the line"),
        ("cache", said.kv or "", ""),
        ("context", f"{said.seq_len:,} tokens" if said.seq_len else "", ""),
        ("sequences", f"{said.max_seqs:,} at a time" if said.max_seqs else "", ""),
        ("memory", f"{100 * share:g} %" if share else "", "of the GPU's, as the engine counts it"),
        ("more", ", ".join(rest), ""),
    ]
    return [row for row in rows if row[1]]


def _worded(table: Mapping[str, int | str | bool]) -> list[str]:
    """Show options by their words; one that is on by its name alone."""
    return [k.replace("_", " ") + ("" if v is True else f" {v}") for k, v in table.items()]


def _machines(said: Said) -> str:
    if said.n_gpus:
        return f"{said.n_gpus:,} GPU{'s' if said.n_gpus > 1 else ''}"
    parts = []
    if said.n_nodes:
        parts.append(f"{said.n_nodes:,} node{'s' if said.n_nodes > 1 else ''}")
    if said.gpus_per_node:
        parts.append(f"{said.gpus_per_node} GPU{'s' if said.gpus_per_node > 1 else ''} a node")
    return ", ".join(parts)


def _layout(said: Said) -> str:
    named = {**DEGREES, "dp_replicate": "replicas"}
    parts = [f"{word} {n}" for f, word in named.items() if (n := getattr(said, f) or 1) > 1]
    parts += [f"{k.upper()} {v}" for k, v in said.unread.items() if k in DEGREES]
    own = "as its recipe says" if "recipe" in said.unread else "data parallel alone"
    parts = parts or [said.unread.get("layout", own)]
    if said.zero_stage is not None:
        parts.append(f"ZeRO-{said.zero_stage}")
    if said.recompute and said.recompute != "none":
        every = f" of one layer in {n}" if (n := said.recompute_every or 1) > 1 else ""
        parts.append(f"{said.recompute} recompute{every}")
    offloaded = ("optimizer", said.offload_optimizer), ("parameters", said.offload_parameters)
    if moved := " and ".join(word for word, on in offloaded if on):
        parts.append(f"{moved} offloaded")
    if said.lora_rank:
        parts.append(f"rank {said.lora_rank}")
    if said.weights:
        parts.append(f"weights {said.weights}")
    return ", ".join(parts)


BATCH = {
    "micro_batch_size": "micro-batch",
    "accumulation": "accumulation",
    "global_batch_size": "global batch",
    "seq_len": "sequences of",
}


def _batch(said: Said) -> str:
    parts = [f"{word} {n:,}" for field, word in BATCH.items() if (n := getattr(said, field))]
    parts += [f"{word} {said.unread[f]}" for f, word in BATCH.items() if f in said.unread]
    return ", ".join(parts)


def asked_otherwise(found: Found, n_gpus: int | None) -> str:
    """Say how to ask about a program whose options are not known here."""
    named = (
        ("--gpus", n_gpus or "N"),
        ("--seq", found.seq_len or "LENGTH"),
        ("--micro-batch", found.micro_batch_size or "B"),
    )
    options = " ".join(f"{option} {value}" for option, value in named)
    script = found.places.get("script", "the program").rsplit("/", 1)[-1]
    model = found.model_name or "MODEL"
    ask = f"`gpuscale memory {model} {options}`"
    ask = f"give {script} with this file, or ask {ask}" if found.program else f"{ask} asks so"
    return f"how {script} shards and batches its model: {ask}"
