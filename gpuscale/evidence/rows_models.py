"""Model shape of a row of measurements: printed columns to a `ModelSpec`."""

from __future__ import annotations

import re

from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows_hardware import Row
from gpuscale.io.models import load_model
from gpuscale.specs.model import ModelSpec


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
