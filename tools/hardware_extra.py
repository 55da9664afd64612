"""What the reference tables lack: usual nodes, fat-tree levels, the documents' catalogue, aliases.

Used by make_hardware_presets.py; every figure here carries its origin.
"""

from __future__ import annotations

from typing import Any

ASSUMED = "assumed: a common build, not a data sheet; change it with --set or a file of your own"
BOOK = "How to Scale Your Model (Austin et al. 2025), ch. 12 GPUs"
DOC = BOOK + ", as the documents print it"
SUPERPOD = (
    "docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-h100/latest/"
    "network-fabrics.html"
)

USUAL_CLUSTER = {
    "v100-sxm2-32gb": "dgx1-v100",
    "a100-sxm-40gb": "dgx-a100-40gb",
    "a100-sxm-80gb": "dgx-a100",
    "a100-pcie-40gb": "pcie-a100-40gb-8",
    "a100-pcie-80gb": "pcie-a100-80gb-8",
    "a800-sxm-80gb": "hgx-a800-8",
    "h100-sxm": "dgx-h100",
    "h100-pcie": "pcie-h100-8",
    "h100-nvl": "pcie-h100-nvl-8",
    "h800-sxm": "hgx-h800-8",
    "h20-sxm-96gb": "hgx-h20-8",
    "h200-sxm": "dgx-h200",
    "gh200-96gb": "gh200-96gb-1",
    "gh200-144gb": "gh200-144gb-1",
    "b200-sxm": "dgx-b200",
    "b300-sxm": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "rubin": "vera-rubin-nvl72",
    "l40s": "pcie-l40s-8",
    "rtx-4090": "pcie-rtx-4090-8",
    "rtx-5090": "pcie-rtx-5090-8",
    "rtx-6000-ada": "pcie-rtx-6000-ada-8",
    "rtx-pro-6000-server": "pcie-rtx-pro-6000-8",
    "a10g": "aws-g5-48xlarge",
    "l4": "pcie-l4-8",
    "t4": "pcie-t4-8",
    "mi250x": "mi250x-4",
    "mi300x": "mi300x-8",
    "mi325x": "mi325x-8",
    "mi350x": "mi350x-8",
    "mi355x": "mi355x-8",
    "gaudi2": "gaudi2-8",
    "gaudi3": "gaudi3-8",
    "tpu-v4": "pod-tpu-v4",
    "tpu-v5e": "pod-tpu-v5e",
    "tpu-v5p": "pod-tpu-v5p",
    "tpu-v6e": "pod-tpu-v6e",
    "tpu-v7x": "pod-tpu-v7x",
    "trainium1": "aws-trn1",
    "trainium2": "aws-trn2",
}

GPU_ALIASES = {
    "v100": "v100-sxm2-32gb",
    "v100-sxm2": "v100-sxm2-32gb",
    "v100-32gb": "v100-sxm2-32gb",
    "a100": "a100-sxm-80gb",
    "a100-80gb": "a100-sxm-80gb",
    "a100-80": "a100-sxm-80gb",
    "a100-sxm": "a100-sxm-80gb",
    "a100-40gb": "a100-sxm-40gb",
    "a100-40": "a100-sxm-40gb",
    "a100-pcie": "a100-pcie-80gb",
    "a800": "a800-sxm-80gb",
    "a800-sxm": "a800-sxm-80gb",
    "h100": "h100-sxm",
    "h100-sxm5": "h100-sxm",
    "h100-80gb": "h100-sxm",
    "h800": "h800-sxm",
    "h20": "h20-sxm-96gb",
    "h20-sxm": "h20-sxm-96gb",
    "h200": "h200-sxm",
    "gh200": "gh200-96gb",
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "vera-rubin": "rubin",
    "4090": "rtx-4090",
    "rtx4090": "rtx-4090",
    "5090": "rtx-5090",
    "rtx5090": "rtx-5090",
    "rtx-pro-6000": "rtx-pro-6000-server",
    "rtx6000-ada": "rtx-6000-ada",
    "tpu-v5": "tpu-v5p",
    "v4": "tpu-v4",
    "v5e": "tpu-v5e",
    "v5p": "tpu-v5p",
    "v6e": "tpu-v6e",
    "trillium": "tpu-v6e",
    "tpu7x": "tpu-v7x",
    "tpu-v7": "tpu-v7x",
    "ironwood": "tpu-v7x",
    "trn1": "trainium1",
    "trn2": "trainium2",
}

CLUSTER_ALIASES = {
    "h100-superpod": "superpod-h100-4su",
    "superpod-h100": "superpod-h100-4su",
    "b200-superpod": "superpod-b200-4su",
    "superpod-b200": "superpod-b200-4su",
    "b300-superpod": "superpod-b300-xdr-4su",
    "gb200-superpod": "superpod-gb200-1su",
    "superpod-gb200": "superpod-gb200-1su",
    "dgx-a100-80gb": "dgx-a100",
    "dgx-v100": "dgx1-v100",
    "dgx1": "dgx1-v100",
    "hgx-a100": "dgx-a100",
    "hgx-h100": "hgx-h100-8x400g",
    "hgx-h200": "dgx-h200",
    "hgx-b200": "dgx-b200",
    "hgx-b300": "dgx-b300",
    "hgx-h800": "hgx-h800-8",
    "hgx-a800": "hgx-a800-8",
    "hgx-h20": "hgx-h20-8",
    "nvl72": "gb200-nvl72",
    "gb200-nvl": "gb200-nvl72",
    "gb300-nvl": "gb300-nvl72",
    "rubin-nvl72": "vera-rubin-nvl72",
    "meta-24k": "meta-24k-roce",
    "deepseek": "deepseek-h800",
    "p4d": "aws-p4d",
    "p4de": "aws-p4de",
    "p5": "aws-p5",
    "p5e": "aws-p5e",
    "p5en": "aws-p5en",
    "a3-high": "gcp-a3-high",
    "a3-mega": "gcp-a3-mega",
    "a3-ultra": "gcp-a3-ultra",
    "g5-48xlarge": "aws-g5-48xlarge",
    "tpu-v4-pod": "pod-tpu-v4",
    "tpu-v5e-pod": "pod-tpu-v5e",
    "tpu-v5p-pod": "pod-tpu-v5p",
    "tpu-v6e-pod": "pod-tpu-v6e",
    "tpu-v7x-pod": "pod-tpu-v7x",
}


def cluster_extra(name: str) -> dict[str, tuple[Any, str]]:
    """Fields of a cluster row that the table does not hold as such: (value, source)."""
    out: dict[str, tuple[Any, str]] = {}
    levels = _levels(name)
    if levels:
        out["levels"] = levels
    radix = _radix(name)
    if radix:
        out["switch_radix"] = radix
    if name == "superpod-b300-xdr-18su":
        out["n_gpus"] = (
            10368,
            "1296 nodes of 8 GPUs, as its cable count; the document prints 9216",
        )
    if name.startswith("superpod-b300-eth"):
        out["network_planes"] = (2, "as `fabric`: twin plane, 2 x 400 Gb/s per GPU")
    switches = {"dgx-a100": 6, "dgx-h100": 4, "superpod-h100": 4, "gb200-nvl72": 18}
    for prefix, count in switches.items():
        if name.startswith(prefix):
            source = "9 switch trays x 2 chips, as `topology`" if prefix == "gb200-nvl72" else DOC
            out["n_scaleup_switches"] = (count, source)
    return out


def _levels(name: str) -> tuple[list[dict[str, Any]], str] | None:
    leaf, spine, core = ({"name": n} for n in ("leaf", "spine", "core"))
    if name.startswith(("superpod-h100", "superpod-b200")):
        page = SUPERPOD.replace("h100", "b200") if "b200" in name else SUPERPOD
        source = f"{page}: scalable unit of 32 nodes on 8 rail-aligned leaf switches"
        if name.endswith(("-1su", "-2su", "-3su", "-4su", "-8su")):
            return [leaf | {"gpus": 256}, spine], source
        text = source + "; two tiers of 64-port switches reach 2048 GPUs (radix^2/2)"
        return [leaf | {"gpus": 256}, spine | {"gpus": 2048}, core], text
    if name.startswith("superpod-b300-eth"):
        return [leaf | {"gpus": 512}, spine], "scalable unit of 64 nodes, one leaf pair per rail"
    if name.startswith("superpod-b300-xdr"):
        return [leaf | {"gpus": 576}, spine], "scalable unit of 72 nodes on 8 leaf switches"
    if name == "deepseek-h800":
        return [leaf | {"gpus": 256}, spine], (
            "uncited: 2-level fat tree per rail, 32 nodes below a leaf of 64 ports assumed"
        )
    if name == "meta-24k-roce":
        return [
            {"name": "rack", "gpus": 16},
            {"name": "pod", "gpus": 3072},
            {"name": "aggregation", "oversubscription": 7.0},
        ], "as `topology`: racks of 16, 8 pods of 3072 GPUs, 1:7 between pods"
    return None


def _radix(name: str) -> tuple[int, str] | None:
    if name.startswith("superpod-b300-xdr"):
        return 144, "72 nodes below each leaf switch of a rail and as many uplinks"
    if name.startswith("superpod-b300-eth"):
        return 128, "2 planes of 400 Gb/s: 1024 links of a unit on 16 leaf switches, half down"
    if name.startswith(("superpod-h100", "superpod-b200")):
        return 64, "uncited: Quantum-2 switch with 64 ports of 400 Gb/s"
    return None


def node(
    name: str,
    gpu: str,
    title: str,
    egress: str | None,
    nics: int | None,
    fabric: str,
    fabric_class: str,
    origin: str,
    **more: Any,
) -> dict[str, Any]:
    """One generic node, with the same origin for all its network figures."""
    table: dict[str, Any] = {
        "name": name,
        "title": title,
        "provider": "generic",
        "kind": "node",
        "gpu": gpu,
        "gpus_per_node": 8,
        "scaleup_domain_gpus": 8,
    } | more
    if egress:
        table |= {"node_egress_bytes_per_s": egress, "nics_per_node": nics}
    table |= {"fabric": fabric, "fabric_class": fabric_class}
    stated = (
        "gpus_per_node",
        "scaleup_domain_gpus",
        "node_egress_bytes_per_s",
        "nics_per_node",
        "fabric",
        "n_nodes",
        "n_gpus",
    )
    sources = {k: origin for k in stated if k in table} | table.pop("sources", {})
    return table | {"sources": sources}


def generic_nodes(gpus: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Usual nodes of GPUs that no row of clusters.csv describes."""
    made = [*_sxm_nodes(gpus), *_pcie_nodes(gpus), *_other_nodes(gpus)]
    return {table["name"]: table for table in made}


def _link(gpu: dict[str, Any], scaleup_class: str) -> dict[str, Any]:
    return {
        "scaleup_bytes_per_s": gpu["scaleup_bytes_per_s"],
        "scaleup_class": scaleup_class,
        "sources": {"scaleup_bytes_per_s": gpu["sources"]["scaleup_bytes_per_s"]},
    }


def _sxm_nodes(gpus: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    hdr, ndr = "InfiniBand HDR", "InfiniBand NDR"
    nodes = [
        node(
            "dgx-a100-40gb",
            "a100-sxm-40gb",
            "DGX A100 with 40 GB GPUs",
            "200 GB/s",
            8,
            hdr,
            "infiniband",
            "network of the DGX A100, also sold with 40 GB GPUs",
            **_link(gpus["a100-sxm-40gb"], "nvlink"),
        ),
        node(
            "hgx-a800-8",
            "a800-sxm-80gb",
            "HGX A800, 8 x 200G",
            "200 GB/s",
            8,
            hdr,
            "infiniband",
            ASSUMED,
            **_link(gpus["a800-sxm-80gb"], "nvlink"),
        ),
    ]
    for name, gpu, title in (
        ("hgx-h800-8", "h800-sxm", "HGX H800, 8 x 400G"),
        ("hgx-h20-8", "h20-sxm-96gb", "HGX H20, 8 x 400G"),
    ):
        nodes.append(
            node(
                name,
                gpu,
                title,
                "400 GB/s",
                8,
                ndr,
                "infiniband",
                ASSUMED,
                in_switch_reduction_scaleup=True,
                in_switch_reduction_scaleout=True,
                **_link(gpus[gpu], "nvlink"),
            )
        )
    for gpu in ("mi300x", "mi325x", "mi350x", "mi355x"):
        title = f"8 x {gpu.upper()}, 8 x 400G"
        nodes.append(
            node(
                f"{gpu}-8",
                gpu,
                title,
                "400 GB/s",
                8,
                "RoCE or InfiniBand NDR",
                "roce",
                ASSUMED,
                **_link(gpus[gpu], "amd-if"),
            )
        )
    return nodes


def _pcie_nodes(gpus: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    nodes = []
    for name, gpu, egress, nics, fabric, fabric_class in (
        ("pcie-a100-40gb-8", "a100-pcie-40gb", "50 GB/s", 2, "InfiniBand HDR", "infiniband"),
        ("pcie-a100-80gb-8", "a100-pcie-80gb", "50 GB/s", 2, "InfiniBand HDR", "infiniband"),
        ("pcie-h100-8", "h100-pcie", "100 GB/s", 2, "InfiniBand NDR", "infiniband"),
        ("pcie-h100-nvl-8", "h100-nvl", "100 GB/s", 2, "InfiniBand NDR", "infiniband"),
        ("pcie-l40s-8", "l40s", "50 GB/s", 2, "Ethernet 200GbE", "roce"),
        ("pcie-rtx-4090-8", "rtx-4090", "12.5 GB/s", 1, "Ethernet 100GbE", "ethernet"),
        ("pcie-rtx-5090-8", "rtx-5090", "12.5 GB/s", 1, "Ethernet 100GbE", "ethernet"),
        ("pcie-rtx-6000-ada-8", "rtx-6000-ada", "25 GB/s", 2, "Ethernet 100GbE", "ethernet"),
        ("pcie-rtx-pro-6000-8", "rtx-pro-6000-server", "200 GB/s", 4, "RoCE 400GbE", "roce"),
        ("aws-g5-48xlarge", "a10g", "12.5 GB/s", 1, "AWS ENA/EFA 100 Gb/s", "efa"),
        ("pcie-l4-8", "l4", "12.5 GB/s", 1, "Ethernet 100GbE", "ethernet"),
        ("pcie-t4-8", "t4", "12.5 GB/s", 1, "Ethernet 100GbE", "ethernet"),
    ):
        pcie = gpus[gpu]
        aws = name.startswith("aws")
        origin = "uncited: 8 GPUs and 100 Gb/s per instance, no page read" if aws else ASSUMED
        table = node(
            name,
            gpu,
            f"8 x {pcie['title'].split(' (')[0]} on PCIe",
            egress,
            nics,
            fabric,
            fabric_class,
            origin,
            scaleup_bytes_per_s=pcie["pcie_bytes_per_s"],
            scaleup_class="pcie",
            topology="PCIe through switches or the host",
            notes="GPUs talk over PCIe; NVLink bridges of pairs, where sold, are left out.",
            sources={"scaleup_bytes_per_s": pcie["sources"]["pcie_bytes_per_s"]},
        )
        if aws:
            table |= {"provider": "AWS", "kind": "cloud-instance", "title": "AWS g5.48xlarge"}
        nodes.append(table)
    return nodes


def _other_nodes(gpus: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    nodes = []
    for gpu in ("gh200-96gb", "gh200-144gb"):
        nodes.append(
            node(
                f"{gpu}-1",
                gpu,
                "One GH200, 1 x 400G",
                "50 GB/s",
                1,
                "InfiniBand NDR",
                "infiniband",
                ASSUMED,
                gpus_per_node=1,
                scaleup_domain_gpus=1,
                **_link(gpus[gpu], "nvlink"),
            )
        )
    nodes.append(
        node(
            "mi250x-4",
            "mi250x",
            "4 x MI250X, 4 x 200G",
            "100 GB/s",
            4,
            "Slingshot 11",
            "slingshot",
            "uncited: the node of Frontier and LUMI, no page read",
            gpus_per_node=4,
            scaleup_domain_gpus=4,
            **_link(gpus["mi250x"], "amd-if"),
        )
    )
    for gpu, egress, ports in (("gaudi2", "300 GB/s", "100"), ("gaudi3", "600 GB/s", "200")):
        origin = gpus[gpu]["sources"]["scaleup_bytes_per_s"].split(";")[0]
        nodes.append(
            node(
                f"{gpu}-8",
                gpu,
                f"8 x {gpu.capitalize()}",
                egress,
                24,
                f"RoCE v2, 3 x {ports} GbE per accelerator",
                "roce",
                f"{origin}; 3 of the 24 ports of each accelerator leave the box",
                **_link(gpus[gpu], "roce"),
            )
        )
    nodes.append(
        node(
            "vera-rubin-nvl72",
            "rubin",
            "Vera Rubin NVL72 rack (announced)",
            "800 GB/s",
            8,
            "ConnectX-9",
            "infiniband",
            "uncited: announced, 4 GPUs per tray with 2 x 800 Gb/s each assumed",
            kind="rack",
            gpus_per_node=4,
            scaleup_domain_gpus=72,
            n_nodes=18,
            n_gpus=72,
            in_switch_reduction_scaleup=True,
            in_switch_reduction_scaleout=True,
            **_link(gpus["rubin"], "nvlink"),
        )
    )
    return nodes


def document_gpus() -> dict[str, dict[str, Any]]:
    """GPUs with the figures that the documents compute with (rounded, decimal GB)."""
    rows = [
        # name, title, architecture, units, smem, l2, hbm, bandwidth, bf16, fp16, fp8, int8, fp4,
        # scale-up (one way), domain, usual cluster
        (
            "v100-sxm2-32gb",
            "V100",
            "volta",
            80,
            "96 KiB",
            "6 MB",
            "32 GB",
            "0.9 TB/s",
            None,
            "125",
            None,
            None,
            None,
            "150 GB/s",
            8,
            "dgx1-v100",
        ),
        (
            "a100-sxm-80gb",
            "A100",
            "ampere",
            108,
            "192 KiB",
            "40 MB",
            "80 GB",
            "2.0 TB/s",
            "312",
            "312",
            None,
            "624",
            None,
            "300 GB/s",
            8,
            "dgx-a100",
        ),
        (
            "h100-sxm",
            "H100",
            "hopper",
            132,
            "256 KiB",
            "50 MB",
            "80 GB",
            "3.35 TB/s",
            "990",
            "990",
            "1980",
            "1980",
            None,
            "450 GB/s",
            8,
            "dgx-h100",
        ),
        (
            "h200-sxm",
            "H200",
            "hopper",
            132,
            "256 KiB",
            "50 MB",
            "141 GB",
            "4.8 TB/s",
            "990",
            "990",
            "1980",
            "1980",
            None,
            "450 GB/s",
            8,
            "dgx-h200",
        ),
        (
            "h800-sxm",
            "H800",
            "hopper",
            132,
            "256 KiB",
            "50 MB",
            "80 GB",
            "3.35 TB/s",
            "990",
            "990",
            "1980",
            "1980",
            None,
            "200 GB/s",
            8,
            "hgx-h800-8",
        ),
        (
            "b200-sxm",
            "B200",
            "blackwell",
            148,
            "256 KiB",
            "126 MB",
            "192 GB",
            "8.0 TB/s",
            "2250",
            "2250",
            "4500",
            "4500",
            "9000",
            "900 GB/s",
            8,
            "dgx-b200",
        ),
        (
            "gb200",
            "GB200",
            "blackwell",
            148,
            "256 KiB",
            "126 MB",
            "192 GB",
            "8.0 TB/s",
            "2250",
            "2250",
            "4500",
            "4500",
            "9000",
            "900 GB/s",
            72,
            "gb200-nvl72",
        ),
    ]
    keys = (
        "n_compute_units",
        "l1_smem_combined_bytes_per_unit",
        "l2_bytes",
        "hbm_bytes",
        "hbm_bytes_per_s",
        "bf16_flop_per_s",
        "fp16_flop_per_s",
        "fp8_flop_per_s",
        "int8_flop_per_s",
        "fp4_flop_per_s",
        "scaleup_bytes_per_s",
        "scaleup_domain_gpus",
    )
    out = {}
    for name, title, architecture, *figures, usual in rows:
        values = {k: v for k, v in zip(keys, figures, strict=True) if v is not None}
        for key in values:
            if key.endswith("flop_per_s"):
                values[key] += " TFLOP/s"
        sources = dict.fromkeys(values, DOC)
        sources["scaleup_bytes_per_s"] += ", NVLink table, one direction"
        if name == "h800-sxm":
            sources["scaleup_bytes_per_s"] = (
                "400 GB/s both directions; the documents print 300 GB/s, see `gpuscale quiz`"
            )
        if "fp8_flop_per_s" in values and values["fp8_flop_per_s"].startswith("1980"):
            sources["fp8_flop_per_s"] += ": 2 x 990 (the table rounds to 2000)"
        if name == "h100-sxm":
            sources["hbm_bytes_per_s"] = "lecture and book compute with 3.35; one table prints 3.4"
        out[name] = {
            "name": name,
            "title": f"{title}, the documents' figures",
            "vendor": "NVIDIA",
            "architecture": architecture,
            **values,
            "usual_cluster": usual,
            "notes": "Catalogue `documents`: rounded, decimal GB. Data sheets: the preset of the "
            "same name without --catalogue.",
            "sources": sources,
        }
    return out


def document_clusters() -> dict[str, dict[str, Any]]:
    """Nodes and the SuperPOD with the documents' figures."""
    rows: list[tuple[str, str, str, int, int, str, str | None, int | None, int | None]] = [
        ("dgx1-v100", "V100 node", "v100-sxm2-32gb", 8, 8, "150 GB/s", None, None, None),
        ("dgx-a100", "A100 node", "a100-sxm-80gb", 8, 8, "300 GB/s", "200 GB/s", 8, 6),
        ("dgx-h100", "H100 node", "h100-sxm", 8, 8, "450 GB/s", "400 GB/s", 8, 4),
        ("dgx-h200", "H200 node", "h200-sxm", 8, 8, "450 GB/s", "400 GB/s", 8, 4),
        ("hgx-h800-8", "H800 node", "h800-sxm", 8, 8, "200 GB/s", "400 GB/s", 8, None),
        ("dgx-b200", "B200 node", "b200-sxm", 8, 8, "900 GB/s", "400 GB/s", 8, None),
        ("gb200-nvl72", "GB200 NVL72", "gb200", 72, 72, "900 GB/s", "3600 GB/s", 72, None),
        (
            "superpod-h100-4su",
            "H100 SuperPod, 4 units of 32 nodes",
            "h100-sxm",
            8,
            8,
            "450 GB/s",
            "400 GB/s",
            8,
            4,
        ),
    ]
    out = {}
    for name, title, gpu, per_node, domain, link, egress, nics, switches in rows:
        table: dict[str, Any] = {
            "name": name,
            "title": f"{title}, the documents' figures",
            "provider": "NVIDIA",
            "kind": "fabric" if name.startswith("superpod") else "node",
            "gpu": gpu,
            "gpus_per_node": per_node,
            "scaleup_domain_gpus": domain,
            "scaleup_bytes_per_s": link,
        }
        optional = {
            "node_egress_bytes_per_s": egress,
            "nics_per_node": nics,
            "n_scaleup_switches": switches,
        }
        table |= {k: v for k, v in optional.items() if v is not None}
        if name != "dgx1-v100":
            table["fabric"] = "InfiniBand HDR" if name == "dgx-a100" else "InfiniBand NDR"
        table |= {
            "fabric_class": "infiniband",
            "in_switch_reduction_scaleup": "v100" not in name and "a100" not in name,
        }
        if name.startswith("superpod"):
            table |= {
                "switch_radix": 64,
                "n_nodes": 128,
                "n_gpus": 1024,
                "n_leaf_switches": 32,
                "n_spine_switches": 16,
                "n_core_switches": 0,
                "in_switch_reduction_scaleout": True,
            }
        figures = [k for k, v in table.items() if isinstance(v, int) or k.endswith("_bytes_per_s")]
        if name.startswith("superpod"):
            table["levels"] = [{"name": "leaf", "gpus": 256}, {"name": "spine"}]
            figures.append("levels")
        out[name] = table | {"sources": dict.fromkeys(figures, DOC)}
    return out


def links() -> dict[str, dict[str, Any]]:
    """Links with bandwidth (one direction), latency and card price."""
    table = "interconnect table of the documents' multi-GPU questions and answers (2-way NVLink)"
    coded = "PCI-SIG base specification: 16 lanes, 128b/130b"
    rows: list[tuple[str, str, str, str, str, str, str | None, str | None, int | None]] = [
        (
            "nvlink2",
            "NVLink 2, V100: 6 links x 25 GB/s",
            "nvlink",
            "GPU",
            "150 GB/s",
            table,
            "1 us",
            "2 us",
            None,
        ),
        (
            "nvlink3",
            "NVLink 3, A100: 12 links x 25 GB/s",
            "nvlink",
            "GPU",
            "300 GB/s",
            table,
            "1 us",
            "2 us",
            None,
        ),
        (
            "nvlink4",
            "NVLink 4, H100: 18 links x 25 GB/s",
            "nvlink",
            "GPU",
            "450 GB/s",
            table,
            None,
            "1 us",
            None,
        ),
        (
            "nvlink5",
            "NVLink 5, B200: 18 links x 50 GB/s",
            "nvlink",
            "GPU",
            "900 GB/s",
            BOOK,
            None,
            None,
            None,
        ),
        ("pcie3-x16", "PCIe 3.0 x16", "pcie", "slot", "15.75 GB/s", coded, "10 us", "10 us", None),
        ("pcie4-x16", "PCIe 4.0 x16", "pcie", "slot", "31.5 GB/s", coded, "5 us", "5 us", None),
        ("pcie5-x16", "PCIe 5.0 x16", "pcie", "slot", "63 GB/s", coded, "3 us", "5 us", None),
        (
            "ib-hdr",
            "InfiniBand HDR, 200 Gb/s",
            "infiniband",
            "port",
            "200 Gb/s",
            table,
            "1 us",
            "2 us",
            5000,
        ),
        (
            "ib-ndr",
            "InfiniBand NDR, 400 Gb/s",
            "infiniband",
            "port",
            "400 Gb/s",
            BOOK,
            None,
            None,
            None,
        ),
        (
            "ib-xdr",
            "InfiniBand XDR, 800 Gb/s",
            "infiniband",
            "port",
            "800 Gb/s",
            "docs.nvidia.com/dgx-superpod/reference-architecture/scalable-infrastructure-b300-xdr",
            None,
            None,
            None,
        ),
        ("ethernet-100g", "100 GbE", "ethernet", "port", "100 Gb/s", table, "10 us", "50 us", 1000),
        ("ethernet-400g", "400 GbE", "ethernet", "port", "400 Gb/s", table, "5 us", "20 us", 3000),
    ]
    out = {}
    for name, title, kind, scope, rate, source, low, high, price in rows:
        figures: dict[str, Any] = {
            "bytes_per_s": rate,
            "latency_low_s": low,
            "latency_high_s": high,
            "card_price_usd": price,
        }
        figures = {k: v for k, v in figures.items() if v is not None}
        sources = dict.fromkeys(figures, table) | {"bytes_per_s": source}
        out[name] = {"name": name, "title": title, "kind": kind, "scope": scope} | figures
        if kind == "pcie":
            out[name]["notes"] = "The documents round to 16, 32 and 64 GB/s."
        out[name]["sources"] = sources
    return out
