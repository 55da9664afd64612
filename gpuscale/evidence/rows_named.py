"""What rows of published tables name (`data/printed.toml`): hardware, and the shape of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.presets import find_preset
from gpuscale.io.text import read_rows, read_toml
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.model import ModelSpec

Row = Mapping[str, str]
Rows = str | Path | Sequence[Row]


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return read_toml(Path(__file__).resolve().parents[1] / "data" / "printed.toml")


def meaning(table: str, text: str) -> str | None:
    """Say what a text stands for by the first pattern that is found in it; None by none.

    >>> meaning("tuner", "HF Trainer 2023 + PEFT zero3"), meaning("zero", "tp4 pp1")
    ('hf-deepspeed:2023-07', None)
    """
    rows: dict[str, str] = _tables()[table]
    return next((name for words, name in rows.items() if re.search(words, text.lower())), None)


def rows_of(rows: Rows) -> list[Row]:
    """Rows of a CSV file, or the rows themselves."""
    return list(read_rows(rows) if isinstance(rows, (str, Path)) else rows)


def number(text: str | None, low: float = 0.0, high: float = 1e30) -> float | None:
    """Return the positive finite number in `text`; None if there is none or it is out of range."""
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and low < value <= high else None


def whole(text: str | None, high: int = 10**9) -> int | None:
    """Return the positive whole number in `text`, or None."""
    value = number(text, high=high)
    return round(value) if value is not None and value >= 0.5 else None


CARD = re.compile(r"\([^)]*\)|nvidia|geforce|instinct|\bamd\b")
"""What stands around the name of a card."""

UNSTATED = re.compile(r"not stated|class, not|any with|gb class$")
"""Texts that name no GPU."""

LARGEST_NODE = 16
"""GPUs of a scale-up domain up to which it is the node that a row prints."""


@lru_cache(maxsize=1024)
def gpu_preset(text: str) -> str | None:
    """GPU preset of a printed name; None for one that is not known, or not stated.

    >>> gpu_preset("H100 (96GB HBM2e, 500W)"), gpu_preset("RTX 3090 (280 W)"), gpu_preset("x")
    ('h100-sxm', 'rtx-3090', None)
    """
    if UNSTATED.search(text.lower()):
        return None
    path = find_preset("gpu", CARD.sub("", text.lower()).strip() or "-")
    return path.stem if path else meaning("gpu", text)


def asked_gpu(row: Row) -> str | None:
    """GPU of a row as a command takes it; None where it is not stated, an error where unknown."""
    printed = row.get("gpu", "")
    gpu = gpu_preset(printed)
    if gpu is None and printed and not UNSTATED.search(printed.lower()):
        raise GpuscaleError(f"unknown GPU `{printed[:40]}`")
    return gpu


def measured_cluster(row: Row, gpu: str) -> ClusterSpec:
    """Usual node of a row's GPU, a preset, with what the row says of it."""
    cluster = load_cluster(gpu)
    per_node, domain = cluster.gpus_per_node, cluster.scaleup_domain_gpus
    try:
        printed = int(float(row.get("gpus_per_node") or 0))
    except (ValueError, OverflowError):
        printed = 0
    if 1 <= printed <= 1024:
        domain = printed if domain <= LARGEST_NODE else domain
        per_node = printed
    egress = _scaleout(row.get("fabric", ""), per_node) or cluster.egress_bytes_per_s_per_gpu
    change: dict[str, object] = {
        "gpu": cluster.gpu.model_copy(update=_overrides(row.get("gpu", ""))),
        "gpus_per_node": per_node,
        "scaleup_domain_gpus": domain,
        "node_egress_bytes_per_s": (egress or 0.0) * per_node or None,
        "fabric_class": _fabric_class(row, gpu),
    }
    return cluster.model_copy(update=change)


def _scaleout(text: str, per_node: int) -> float | None:
    """NIC bandwidth per GPU, one direction, from free text on the fabric. [byte/s].

    >>> _scaleout("NVLink in node, 4x Omni-Path 100 per node (Jean Zay)", 8)
    6250000000.0
    """
    lowered = text.lower()
    match = re.search(r"(\d+(?:\.\d+)?)\s*(?:gb/s|gbps|gbit/s|g)[^,;]{0,24}per gpu", lowered)
    if match:
        return float(match[1]) / 8 * 1e9
    match = re.search(
        r"(\d+)\s*x\s*(?:omni-path\s*)?(hdr|ndr|edr|xdr|[a-z0-9-]*\s*\d{2,4})", lowered
    )
    if match:
        speeds = {"hdr": 200.0, "ndr": 400.0, "edr": 100.0, "xdr": 800.0}
        tail = lowered[match.start() :]
        rate = speeds.get(match[2]) or next(
            (float(x) for x in re.findall(r"\b(\d{3,4})(?!\d)", tail)), None
        )
        return int(match[1]) * rate / 8 * 1e9 / per_node if rate else None
    match = re.search(r"(\d+(?:\.\d+)?)\s*(?:gb/s|gbps|gbit/s)", lowered)
    if match is None:
        return None
    rate = float(match[1])
    whole_node = "per node" in lowered or "node-node" in lowered or rate > 800
    return rate / 8 * 1e9 / (per_node if whole_node else 1)


def _fabric_class(row: Row, gpu: str) -> str:
    if gpu.startswith("tpu"):
        return "ici"
    found = meaning("fabric", f"{row.get('fabric', '')} {row.get('notes', '')}")
    # nanotron's published grid ran on AWS p5 instances (EFA v2), "The Ultra-Scale Playbook"
    grid = row.get("framework", "").lower().startswith("nanotron")
    return found or ("efa" if grid else "infiniband")


def _overrides(text: str) -> dict[str, float]:
    """Figures that a printed GPU name changes against its preset."""
    lowered = text.lower()
    found: dict[str, float] = {}
    if "hbm2e" in lowered and "h100" in lowered:
        found.update(hbm_bytes=96e9, hbm_bytes_per_s=2.4e12)
    watts = re.search(r"(\d{3,4})\s*w\b", lowered)
    if watts:
        found["tdp_w"] = float(watts[1])
    return found


def _int(row: Row, key: str) -> int:
    try:
        value = int(float(row.get(key) or 0))
    except (ValueError, OverflowError):
        return 0
    return value if 0 < value < 10**9 else 0


def model_of(row: Row) -> ModelSpec:
    """Model of a row: the shape that it prints, else the preset of its name.

    Raises GpuscaleError for a name that is none, without a shape.
    """
    layers, hidden = _int(row, "layers"), _int(row, "hidden")
    spec = _printed(row, layers, hidden) if layers and hidden else named_model(row)
    notes = row.get("notes", "").lower()
    if re.search(r"mtp (layer|module)", notes) and "w/o mtp" not in notes:
        spec = spec.model_copy(update={"n_mtp_layers": 1})
    return spec


def named_model(row: Row) -> ModelSpec:
    """Model of the name that a row prints, as every command takes it.

    Raises GpuscaleError for a name that is none.
    """
    name = row.get("model", "").strip()
    if name in ("", "-"):
        raise GpuscaleError("model not stated")
    return load_model(name).spec


def _attention(row: Row, hidden: int) -> dict[str, object]:
    heads = _int(row, "heads") or max(1, hidden // 128)
    text = row.get("attention", "").lower()
    mla = re.search(
        r"mla\D*q_?lora\D*(\d+)\D+kv_?lora\D*(\d+)\D+nope\D*(\d+)\D+rope\D*(\d+)\D+v\D*(\d+)", text
    )
    if mla:
        q, kv, nope, rope, value = (int(x) for x in mla.groups())
        return {
            "kind": "mla",
            "n_heads": heads,
            "q_lora_rank": q or None,
            "kv_lora_rank": kv,
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": value,
        }
    if "mla" in text or "deepseek-v3" in row.get("model", "").lower():
        return {
            "kind": "mla",
            "n_heads": heads,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        }
    return {
        "kind": "attention",
        "n_heads": heads,
        "n_kv_heads": _int(row, "kv_heads") or heads,
        "head_dim": _int(row, "head_dim") or max(1, hidden // heads),
    }


def _ffn(row: Row, hidden: int) -> tuple[dict[str, object], dict[str, object] | None]:
    gated = row.get("gated_mlp", "").lower() not in ("no", "false", "0")
    width = _int(row, "ffn") or (8 * hidden // 3 if gated else 4 * hidden)
    dense: dict[str, object] = {"kind": "dense", "ffn_hidden_size": width, "gated": gated}
    experts = _int(row, "experts")
    if experts < 2:
        return dense, None
    expert_width = _int(row, "moe_ffn") or width
    moe = {
        "kind": "moe",
        "n_experts": experts,
        "top_k": min(experts, _int(row, "top_k") or 2),
        "expert_ffn_hidden_size": expert_width,
        "gated": gated,
        "shared_ffn_hidden_size": _int(row, "shared_experts") * expert_width,
        "n_route_groups": 4 if "deepseek-v3" in row.get("model", "").lower() else 0,
    }
    return dense, moe


def _printed(row: Row, layers: int, hidden: int) -> ModelSpec:
    text = row.get("attention", "").lower()
    full = _attention(row, hidden)
    dense, moe = _ffn(row, hidden)
    mixers: dict[str, object] = {"full": full}
    window = re.search(r"(?:window|local)\D{0,12}(\d+)", text)
    order = ["full"] * layers
    if window and full["kind"] == "attention":
        mixers["window"] = {**full, "window_tokens": int(window[1])}
        ratio = re.search(r"(\d+)\s*(?::|local.{0,12}per)", text)
        period = int(ratio[1]) + 1 if ratio else 2
        every = "full" in text or "alternating" in text or "global" in text
        order = ["full" if every and i % period == period - 1 else "window" for i in range(layers)]
    n_dense = min(layers, _int(row, "moe_dense_layers")) if moe else layers
    ffns: dict[str, object] = {"dense": dense} if n_dense else {}
    if moe:
        ffns["moe"] = moe
    pattern = ", ".join(
        f"{mixer}+{'dense' if i < n_dense else 'moe'}" for i, mixer in enumerate(order)
    )
    return ModelSpec.model_validate(
        {
            "name": row.get("model") or "model",
            "hidden_size": hidden,
            "vocab_size": _int(row, "vocab") or 51200,
            "layers": _compact(pattern),
            "mixers": mixers,
            "ffns": ffns,
            "tie_embeddings": row.get("tied_embeddings", "").lower() == "yes",
            "norm": "rmsnorm" if dense["gated"] else "layernorm",
            "position": "rope" if dense["gated"] else "learned",
        }
    )


def _compact(pattern: str) -> str:
    """Run-length form of a comma list: `a, a, b` -> `2 x a, 1 x b`."""
    parts: list[tuple[int, str]] = []
    for item in pattern.split(", "):
        if parts and parts[-1][1] == item:
            parts[-1] = (parts[-1][0] + 1, item)
        else:
            parts.append((1, item))
    return ", ".join(f"{n} x {item}" for n, item in parts)
