"""Words of published tables (`data/printed.toml`), and the hardware that a row names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster
from gpuscale.io.presets import find_preset
from gpuscale.io.text import read_rows, read_toml
from gpuscale.specs.cluster import ClusterSpec

Row = Mapping[str, str]
Rows = str | Path | Sequence[Row]


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return read_toml(Path(__file__).resolve().parents[1] / "data" / "printed.toml")


def meaning(table: str, text: str) -> str | None:
    """Say what a text stands for by the first pattern that is found in it; None by none.

    >>> meaning("tuner", "HF Trainer 2023 + PEFT zero3"), meaning("zero", "tp4 pp1")
    ('hf-deepspeed', None)
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
