"""Hardware named in a row of measurements: GPU, node and fabric texts to presets and figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Row = Mapping[str, str]

_GPUS = (  # pattern on the printed name, GPU preset, cluster preset of the usual node
    (r"gb300", "gb300", "gb300-nvl72"),
    (r"gb200", "gb200", "gb200-nvl72"),
    (r"b300", "b300-sxm", "dgx-b300"),
    (r"b200|blackwell", "b200-sxm", "dgx-b200"),
    (r"rubin|vr200", "rubin", "gb300-nvl72"),
    (r"gh200", "gh200-96gb", "dgx-h100"),
    (r"h200", "h200-sxm", "dgx-h200"),
    (r"h800", "h800-sxm", "deepseek-h800"),
    (r"h20\b", "h20-sxm-96gb", "dgx-h100"),
    (r"h100.*(pcie)", "h100-pcie", "dgx-h100"),
    (r"h100.*nvl", "h100-nvl", "dgx-h100"),
    (r"h100|hopper", "h100-sxm", "dgx-h100"),
    (r"a100.*pcie.*40", "a100-pcie-40gb", "dgx-a100"),
    (r"a100.*pcie", "a100-pcie-80gb", "dgx-a100"),
    (r"a100.*40", "a100-sxm-40gb", "dgx-a100"),
    (r"a800", "a800-sxm-80gb", "dgx-a100"),
    (r"a100|ampere", "a100-sxm-80gb", "dgx-a100"),
    (r"v100", "v100-sxm2-32gb", "dgx1-v100"),
    (r"mi35[05]x?", "mi355x", "dgx-h100"),
    (r"mi325x?", "mi325x", "dgx-h100"),
    (r"mi300x?", "mi300x", "dgx-h100"),
    (r"mi250x?", "mi250x", "dgx-a100"),
    (r"gaudi.?3", "gaudi3", "dgx-h100"),
    (r"gaudi.?2", "gaudi2", "dgx-a100"),
    (r"tpu.?v?7|ironwood", "tpu-v7x", "pod-tpu-v7x"),
    (r"v6e|trillium", "tpu-v6e", "pod-tpu-v6e"),
    (r"v5p", "tpu-v5p", "pod-tpu-v5p"),
    (r"v5e|v5.?lite", "tpu-v5e", "pod-tpu-v5e"),
    (r"tpu.?v?4", "tpu-v4", "pod-tpu-v4"),
    (r"trn2|trainium.?2", "trainium2", "aws-trn2"),
    (r"trn1|trainium", "trainium1", "aws-trn1"),
    (r"l40s", "l40s", "dgx-a100"),
    (r"4090", "rtx-4090", "dgx-a100"),
)
_NODE = {  # GPU preset -> (architecture, GPUs per node, scale-up domain, NIC byte/s per GPU, HBM)
    "gb300": ("blackwell-ultra", 4, 72, 100e9, 288e9),
    "gb200": ("blackwell", 4, 72, 50e9, 192e9),
    "b300-sxm": ("blackwell-ultra", 8, 8, 100e9, 288e9),
    "b200-sxm": ("blackwell", 8, 8, 50e9, 180e9),
    "rubin": ("rubin", 4, 72, 100e9, 288e9),
    "gh200-96gb": ("hopper", 4, 4, 25e9, 96e9),
    "h200-sxm": ("hopper", 8, 8, 50e9, 141e9),
    "h800-sxm": ("hopper", 8, 8, 50e9, 80e9),
    "h20-sxm-96gb": ("hopper", 8, 8, 50e9, 96e9),
    "h100-pcie": ("hopper", 8, 2, 25e9, 80e9),
    "h100-nvl": ("hopper", 8, 2, 25e9, 94e9),
    "h100-sxm": ("hopper", 8, 8, 50e9, 80e9),
    "a100-pcie-40gb": ("ampere", 8, 2, 12.5e9, 40e9),
    "a100-pcie-80gb": ("ampere", 8, 2, 12.5e9, 80e9),
    "a100-sxm-40gb": ("ampere", 8, 8, 25e9, 40e9),
    "a800-sxm-80gb": ("ampere", 8, 8, 25e9, 80e9),
    "a100-sxm-80gb": ("ampere", 8, 8, 25e9, 80e9),
    "v100-sxm2-32gb": ("volta", 8, 8, 6.25e9, 32e9),
    "mi355x": ("cdna4", 8, 8, 50e9, 288e9),
    "mi325x": ("cdna3", 8, 8, 50e9, 256e9),
    "mi300x": ("cdna3", 8, 8, 50e9, 192e9),
    "mi250x": ("cdna2", 4, 4, 25e9, 128e9),
    "gaudi3": ("gaudi3", 8, 8, 75e9, 128e9),
    "gaudi2": ("gaudi2", 8, 8, 37.5e9, 96e9),
    "tpu-v7x": ("tpu-v7", 4, 9216, 12.5e9, 192e9),
    "tpu-v6e": ("tpu-v6e", 4, 256, 12.5e9, 32e9),
    "tpu-v5p": ("tpu-v5p", 4, 8960, 6.25e9, 95e9),
    "tpu-v5e": ("tpu-v5e", 8, 256, 3.1e9, 16e9),
    "tpu-v4": ("tpu-v4", 4, 4096, 6.25e9, 32e9),
    "trainium2": ("neuroncore-v3", 16, 16, 25e9, 96e9),
    "trainium1": ("neuroncore-v2", 16, 16, 6.25e9, 32e9),
    "l40s": ("ada", 8, 1, 12.5e9, 48e9),
    "rtx-4090": ("ada", 8, 1, 3e9, 24e9),
}
DEFAULT_GPU = ("h100-sxm", "dgx-h100")


@dataclass(frozen=True, slots=True)
class HardwareFacts:
    """What a row says of its hardware, blanks filled from the usual node of the GPU."""

    gpu_name: str  # GPU preset
    cluster_name: str  # cluster preset of the usual node
    architecture: str
    gpus_per_node: int
    scaleup_domain_gpus: int
    scaleout_bytes_per_s_per_gpu: float  # one direction
    fabric_class: str  # infiniband, roce, efa, omni-path, infiniband-800g, ici, tcp
    hbm_bytes: float
    overrides: Mapping[str, float] = field(default_factory=dict)  # of the GPU preset
    gpu_known: bool = True


def gpu_preset(text: str) -> tuple[str, str, bool]:
    """(GPU preset, cluster preset, recognised) of a printed GPU name.

    Examples
    --------
    >>> gpu_preset("H100 (96GB HBM2e, 500W)")
    ('h100-sxm', 'dgx-h100', True)
    """
    lowered = text.lower()
    for pattern, gpu, cluster in _GPUS:
        if re.search(pattern, lowered):
            return gpu, cluster, True
    return (*DEFAULT_GPU, False)


def hardware_facts(row: Row) -> HardwareFacts:
    """Hardware of one row of measurements."""
    text = row.get("gpu", "")
    gpu, cluster, known = gpu_preset(text)
    architecture, per_node, domain, nic, hbm = _NODE[gpu]
    try:
        per_node_printed = int(float(row.get("gpus_per_node") or 0))
    except (ValueError, OverflowError):
        per_node_printed = 0
    if 1 <= per_node_printed <= 1024:
        domain = per_node_printed if domain <= 16 else domain
        per_node = per_node_printed
    bandwidth = _scaleout(row.get("fabric", ""), per_node) or nic
    overrides = _overrides(text)
    return HardwareFacts(
        gpu_name=gpu,
        cluster_name=cluster,
        architecture=architecture,
        gpus_per_node=per_node,
        scaleup_domain_gpus=domain,
        scaleout_bytes_per_s_per_gpu=bandwidth,
        fabric_class=_fabric_class(row, gpu, bandwidth),
        hbm_bytes=overrides.get("hbm_bytes", hbm),
        overrides=overrides,
        gpu_known=known,
    )


def _scaleout(text: str, per_node: int) -> float | None:
    """NIC bandwidth per GPU, one direction, from free text on the fabric. [byte/s].

    Examples
    --------
    >>> _scaleout("NVLink in node, 4x Omni-Path 100 per node (Jean Zay)", 8)
    6250000000.0
    """
    lowered = text.lower()
    if not lowered:
        return None
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


def _fabric_class(row: Row, gpu: str, bandwidth: float) -> str:
    text = f"{row.get('fabric', '')} {row.get('notes', '')}".lower()
    if gpu.startswith("tpu"):
        return "ici"
    for pattern, name in (
        (r"omni-?path|\bopa\b", "omni-path"),
        (r"\befa\b|aws|p5\b|p4d", "efa"),
        (r"800 gb/s infiniband per node", "infiniband-800g"),
        (r"roce|ethernet", "roce"),
        (r"infiniband|\bib\b|hdr|ndr|connectx", "infiniband"),
        (r"tcpx?o?|fastrak", "tcpx"),
    ):
        if re.search(pattern, text):
            return name
    # nanotron's published grid ran on AWS p5 instances (EFA v2), "The Ultra-Scale Playbook"
    return "efa" if row.get("framework", "").lower().startswith("nanotron") else "infiniband"


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
