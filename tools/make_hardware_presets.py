"""Write presets/gpu and presets/cluster from the reference tables.

Usage: python tools/make_hardware_presets.py REFERENCE_FOLDER

The folder holds accelerators.csv, clusters.csv and sources.csv. What the tables lack (usual nodes
of GPUs that no row describes, the documents' own catalogue, aliases, levels of the fat trees) is
in tools/hardware_extra.py, each figure with its origin.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import hardware_extra as extra  # noqa: E402

from gpuscale.core.quantity import parse  # noqa: E402

UNCITED = "uncited: known figure, no readable source found"

ARCHITECTURE = {
    "Grace Hopper": "hopper",
    "Grace Blackwell": "blackwell",
    "Grace Blackwell Ultra": "blackwell-ultra",
    "Blackwell Ultra": "blackwell-ultra",
    "Blackwell (GB202)": "blackwell-gb202",
    "Ampere (GA102)": "ampere-ga102",
    "TPU v4": "tpu-v4",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v6e": "tpu-v6e",
    "TPU v7": "tpu-v7x",
    "NeuronCore-v2": "trainium1",
    "NeuronCore-v3": "trainium2",
}

COMPUTE, CACHE, MEMORY, LINK, POWER = (
    "compute_source",
    "cache_source",
    "memory_source",
    "link_source",
    "power_source",
)

# spec field: (column, dimension or "" for text/number, column of its source)
GPU_FIELDS = {
    "title": ("name", "", ""),
    "vendor": ("vendor", "", ""),
    "architecture": ("architecture", "", ""),
    "year": ("year", "", COMPUTE),
    "n_compute_units": ("compute_units", "", COMPUTE),
    "compute_unit_kind": ("compute_unit_kind", "", ""),
    "boost_clock_hz": ("boost_clock_hz", "hz", COMPUTE),
    "fp32_flop_per_s": ("fp32_flops", "flop_per_s", COMPUTE),
    "tf32_flop_per_s": ("tf32_flops", "flop_per_s", COMPUTE),
    "bf16_flop_per_s": ("bf16_flops", "flop_per_s", COMPUTE),
    "fp16_flop_per_s": ("fp16_flops", "flop_per_s", COMPUTE),
    "fp8_flop_per_s": ("fp8_flops", "flop_per_s", COMPUTE),
    "fp4_flop_per_s": ("fp4_flops", "flop_per_s", COMPUTE),
    "int8_flop_per_s": ("int8_ops", "flop_per_s", COMPUTE),
    "register_file_bytes_per_unit": ("register_file_bytes_per_unit", "bytes", CACHE),
    "smem_bytes_per_unit": ("smem_bytes_per_unit", "bytes", CACHE),
    "l1_smem_combined_bytes_per_unit": ("l1_smem_combined_bytes_per_unit", "bytes", CACHE),
    "l2_bytes": ("l2_bytes", "bytes", CACHE),
    "last_level_cache_bytes": ("last_level_cache_bytes", "bytes", CACHE),
    "hbm_bytes": ("hbm_bytes", "bytes", MEMORY),
    "hbm_bytes_per_s": ("hbm_bytes_per_s", "bytes_per_s", MEMORY),
    "memory_kind": ("memory_kind", "", ""),
    "scaleup_link": ("scaleup_link", "", ""),
    "scaleup_bytes_per_s": ("scaleup_bytes_per_s_per_direction", "bytes_per_s", LINK),
    "scaleup_p2p_bytes_per_s": ("scaleup_p2p_bytes_per_s_per_direction", "bytes_per_s", LINK),
    "scaleup_domain_gpus": ("scaleup_domain_size", "", LINK),
    "scaleup_topology": ("scaleup_topology", "", ""),
    "pcie_gen": ("pcie_gen", "", LINK),
    "pcie_bytes_per_s": ("pcie_bytes_per_s_per_direction", "bytes_per_s", LINK),
    "tdp_w": ("tdp_watts", "w", POWER),
}

# what `uncited_fields` of accelerators.csv means in spec fields
GPU_UNCITED = {
    "register_file": ["register_file_bytes_per_unit"],
    "smem": ["smem_bytes_per_unit", "l1_smem_combined_bytes_per_unit"],
    "smem_bytes_per_unit": ["smem_bytes_per_unit", "l1_smem_combined_bytes_per_unit"],
    "scaleup": ["scaleup_bytes_per_s", "scaleup_p2p_bytes_per_s", "scaleup_domain_gpus"],
    "scaleup_domain_size": ["scaleup_domain_gpus"],
    "fp32 packed": ["fp32_flop_per_s"],
    "cache": ["register_file_bytes_per_unit", "smem_bytes_per_unit", "l2_bytes"],
    "pcie_gen": ["pcie_gen", "pcie_bytes_per_s"],
    "all": list(GPU_FIELDS),
}
QUALIFIER = {
    "clock": ["boost_clock_hz"],
    "formula, clock": ["boost_clock_hz"],
    "fp32": ["fp32_flop_per_s"],
    "smem": ["smem_bytes_per_unit", "l1_smem_combined_bytes_per_unit"],
    "fp32,fp4": ["fp32_flop_per_s", "fp4_flop_per_s"],
    "fp32, clock": ["fp32_flop_per_s", "boost_clock_hz"],
    "bf16,int8": ["bf16_flop_per_s", "fp16_flop_per_s", "int8_flop_per_s"],
}

CLUSTER_FIELDS = {
    "title": ("name", ""),
    "provider": ("provider", ""),
    "kind": ("kind", ""),
    "gpu": ("accelerator_id", ""),
    "gpus_per_node": ("gpus_per_node", ""),
    "scaleup_domain_gpus": ("scaleup_domain_gpus", ""),
    "scaleup_bytes_per_s": ("scaleup_bytes_per_s_per_direction", "bytes_per_s"),
    "node_egress_bytes_per_s": ("node_egress_bytes_per_s_per_direction", "bytes_per_s"),
    "nics_per_node": ("nics_per_node", ""),
    "fabric": ("fabric", ""),
    "topology": ("topology", ""),
    "n_nodes": ("nodes", ""),
    "n_gpus": ("gpus", ""),
    "n_leaf_switches": ("leaf_switches", ""),
    "n_spine_switches": ("spine_switches", ""),
    "n_core_switches": ("core_switches", ""),
    "node_power_w": ("node_power_watts", "w"),
    "price_usd_per_gpu_hour": ("price_usd_per_gpu_hour", "usd_per_hour"),
    "price_kind": ("price_kind", ""),
    "price_date": ("price_date", ""),
}
CLUSTER_UNCITED = {
    "nics": ["nics_per_node", "node_egress_bytes_per_s"],
    "power": ["node_power_w"],
    "sharp": ["in_switch_reduction_scaleup", "in_switch_reduction_scaleout"],
    "switch radix": ["switch_radix"],
    "oversubscription": ["levels"],
    "topology": ["topology"],
    "gpus 2048": ["n_gpus", "n_nodes"],
    "dcn": ["node_egress_bytes_per_s"],
    "nics per instance": ["nics_per_node", "node_egress_bytes_per_s"],
    "fabric": ["fabric"],
    "nic_bits_per_s": ["node_egress_bytes_per_s"],
    "scaleup_domain_gpus": ["scaleup_domain_gpus"],
    "nics_per_node": ["nics_per_node"],
    "nics (800 Gb/s total is cited)": ["nics_per_node"],
    "NIC split (3600 Gb/s headline cited)": ["nics_per_node"],
    "80GB variant not on the page read": ["gpu"],
}

POWER_ONLY = ("dgx-power-secondary", "flashgenius", "awesomeagents-nvl72")

UNITS = {
    "bytes": [("GiB", 2**30), ("MiB", 2**20), ("KiB", 1024), ("GB", 1e9), ("MB", 1e6), ("B", 1)],
    "bytes_per_s": [("TB/s", 1e12), ("GiB/s", 2**30), ("GB/s", 1e9), ("MB/s", 1e6), ("B/s", 1)],
    "flop_per_s": [("TFLOP/s", 1e12), ("GFLOP/s", 1e9)],
    "hz": [("MHz", 1e6), ("Hz", 1)],
    "w": [("W", 1)],
    "usd_per_hour": [("USD/h", 1)],
}


def quantity(value: float, dim: str) -> str:
    """Shortest text with a unit that reads back as exactly the same number."""
    texts = [f"{value / factor:.12g} {unit}" for unit, factor in UNITS[dim]]
    exact = [t for t in texts if parse(t, dim) == value]
    exact = [t for t in exact if not t.startswith("0.")] or exact
    return min(exact, key=lambda t: (len(t.split()[0].replace(".", "")), texts.index(t)))


def toml_value(value: Any) -> str:
    """One TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def toml(table: dict[str, Any]) -> str:
    """Write a preset: keys, `[[levels]]`, then `[sources]`."""
    lines = [
        f"{key} = {toml_value(value)}"
        for key, value in table.items()
        if key not in ("sources", "levels")
    ]
    for level in table.get("levels", []):
        lines += ["", "[[levels]]", *(f"{k} = {toml_value(v)}" for k, v in level.items())]
    lines += ["", "[sources]"]
    lines += [f"{k} = {toml_value(v)}" for k, v in table["sources"].items()]
    return "\n".join(lines) + "\n"


class Sources:
    """Readable citations by their key in sources.csv."""

    def __init__(self, folder: Path) -> None:
        with open(folder / "sources.csv", newline="") as file:
            self.rows = {r["key"]: r for r in csv.DictReader(file)}

    def cite(self, text: str, field: str = "") -> str:
        """Citation of `key;key (what)`; a key with a remark counts for the fields it names."""
        own, other = [], []
        for part in filter(None, (p.strip() for p in text.split(";"))):
            match = re.fullmatch(r"([\w.-]+)(?: \((.*)\))?", part)
            assert match is not None, part
            if match[1] in POWER_ONLY and field != "node_power_w":
                continue
            if field and match[2] in QUALIFIER:
                if field in QUALIFIER[match[2]]:
                    own.append(self._one(match[1], ""))
            else:
                other.append(self._one(match[1], match[2] or ""))
        return "; ".join(own or other) or UNCITED

    def _one(self, key: str, remark: str) -> str:
        if key == "uncited":
            return UNCITED
        row = self.rows[key]
        kind = re.split(r" \(|,", row["kind"])[0]
        kind = "" if kind == "primary" else f" [{kind}]"
        return row["where"] + kind + (f" ({remark})" if remark else "")


def value_of(text: str, dim: str) -> Any:
    """Turn a cell into its TOML value."""
    if dim:
        return quantity(float(text), dim)
    return int(text) if re.fullmatch(r"\d+", text) else text


def uncited_fields(cell: str, names: dict[str, list[str]], columns: dict[str, str]) -> set[str]:
    """Spec fields that a row says rest on no readable source."""
    out: set[str] = set()
    for item in filter(None, (i.strip() for i in cell.split(";"))):
        out |= set(names.get(item, [columns[item]] if item in columns else []))
    return out


def gpu_table(row: dict[str, str], sources: Sources) -> dict[str, Any]:
    """One GPU preset."""
    columns = {column: field for field, (column, _, _) in GPU_FIELDS.items()}
    uncited = uncited_fields(row["uncited_fields"], GPU_UNCITED, columns)
    table: dict[str, Any] = {"name": row["id"]}
    cited: dict[str, str] = {}
    for field, (column, dim, source) in GPU_FIELDS.items():
        text = row[column]
        if not text:
            continue
        table[field] = value_of(text, dim)
        if source:
            cited[field] = UNCITED if field in uncited else sources.cite(row[source], field)
    table["architecture"] = ARCHITECTURE.get(row["architecture"], row["architecture"].lower())
    cited["hbm_bytes"] += f"; {row['hbm_label']}, {row['hbm_basis']}"
    if row["scaleup_vendor_quote"]:
        cited["scaleup_bytes_per_s"] += f"; vendor: {row['scaleup_vendor_quote']}"
    table["usual_cluster"] = extra.USUAL_CLUSTER[row["id"]]
    if row["notes"]:
        table["notes"] = row["notes"]
    table["sources"] = cited
    return table


def fabric_class(fabric: str) -> str:
    """Calibration class of a fabric by its name."""
    name = fabric.lower()
    for word, kind in (
        ("infiniband", "infiniband"),
        ("efa", "efa"),
        ("tcpx", "tcpx"),
        ("roce", "roce"),
        ("spectrum", "roce"),
        ("omni", "omni-path"),
        ("ici", "ici"),
        ("slingshot", "slingshot"),
        ("ethernet", "ethernet"),
    ):
        if word in name:
            return kind
    return "infiniband" if not name else "ethernet"


def scaleup_class(gpu: dict[str, Any]) -> str:
    """Calibration class of the scale-up link of a GPU preset."""
    link = str(gpu.get("scaleup_link", "")).lower()
    for word, kind in (
        ("bridge", "pcie"),
        ("nvlink", "nvlink"),
        ("infinity", "amd-if"),
        ("roce", "roce"),
        ("ici", "ici"),
        ("neuronlink", "neuronlink"),
    ):
        if word in link:
            return kind
    return "pcie"


def cluster_table(
    row: dict[str, str], sources: Sources, gpus: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """One cluster preset."""
    columns = {column: field for field, (column, _) in CLUSTER_FIELDS.items()}
    uncited = uncited_fields(row["uncited_fields"], CLUSTER_UNCITED, columns)
    table: dict[str, Any] = {"name": row["id"]}
    cited: dict[str, str] = {}
    for field, (column, dim) in CLUSTER_FIELDS.items():
        if not row[column]:
            continue
        table[field] = value_of(row[column], dim)
        if field in ("title", "provider", "kind", "price_kind", "price_date"):
            continue
        source = "price_source" if field.startswith("price") else "source"
        cited[field] = UNCITED if field in uncited else sources.cite(row[source], field)
    if row["kind"] == "tpu-pod":  # the pod rows hold an achieved figure, the preset the data sheet
        gpu = gpus[row["accelerator_id"]]
        table["scaleup_bytes_per_s"] = gpu["scaleup_bytes_per_s"]
        cited["scaleup_bytes_per_s"] = gpu["sources"]["scaleup_bytes_per_s"]
    table["fabric_class"] = fabric_class(row["fabric"])
    table["scaleup_class"] = scaleup_class(gpus[row["accelerator_id"]])
    scaleout = row["in_switch_reduction_scaleout"]
    for field, on in (
        ("in_switch_reduction_scaleup", row["in_switch_reduction_scaleup"] == "yes"),
        ("in_switch_reduction_scaleout", scaleout.startswith("yes")),
    ):
        table[field] = on
        cited[field] = UNCITED if field in uncited else sources.cite(row["source"])
    if scaleout not in ("yes", "no", ""):
        cited["in_switch_reduction_scaleout"] += f"; stated as: {scaleout}"
    for field, (value, source) in extra.cluster_extra(row["id"]).items():
        table[field] = value
        cited[field] = source
    if row["notes"]:
        table["notes"] = row["notes"]
    table["sources"] = cited
    return table


def write(path: Path, text: str) -> None:
    """Write one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(reference: str) -> None:
    """Write all presets."""
    folder, out = Path(reference), ROOT / "presets"
    sources = Sources(folder)
    with open(folder / "accelerators.csv", newline="") as file:
        gpus = {r["id"]: gpu_table(r, sources) for r in csv.DictReader(file)}
    with open(folder / "clusters.csv", newline="") as file:
        clusters = {r["id"]: cluster_table(r, sources, gpus) for r in csv.DictReader(file)}
    clusters |= extra.generic_nodes(gpus)
    for kind, tables in (
        ("gpu", gpus),
        ("cluster", clusters),
        ("gpu/documents", extra.document_gpus()),
        ("cluster/documents", extra.document_clusters()),
        ("link", extra.links()),
    ):
        for name, table in tables.items():
            write(out / kind / f"{name}.toml", toml(table))
    for kind, aliases in (("gpu", extra.GPU_ALIASES), ("cluster", extra.CLUSTER_ALIASES)):
        lines = [f"{toml_value(k)} = {toml_value(v)}" for k, v in sorted(aliases.items())]
        write(out / kind / "_aliases.toml", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
