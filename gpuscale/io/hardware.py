"""Loading GPUs and clusters: a preset name, an alias, a TOML file, or `-` for standard input."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError, unknown_name
from gpuscale.io.presets import (
    checked,
    find_preset,
    known_names,
    looks_like_path,
    preset_names,
    preset_path,
)
from gpuscale.io.text import STDIN, Table, read_toml, shown_name
from gpuscale.io.this_machine import AUTO, gpus_here, preset_of, said_by_driver

if TYPE_CHECKING:
    from gpuscale.core.kernel.chip import UnitLayout
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec

CATALOGUES = ("vendor", "documents")
"""`vendor`: data sheets; `documents`: the rounded figures that the documents compute with."""


def load_gpu(arg: str, catalogue: str = "vendor") -> GpuSpec:
    """GPU by preset name, alias, TOML path or `-`.

    `arg`: for example ``h100``, ``mi300x``, ``./mine.toml``; ``auto``: the one in this machine.
    `catalogue`: ``vendor`` (data sheets) or ``documents`` (H100 990 TFLOP/s and 80e9 byte; GB200
    2250 TFLOP/s), for names only. Raises GpuscaleError for an unknown name (with the closest one),
    a file that cannot be read or a bad key.

    >>> load_gpu("h100").bf16_flop_per_s, load_gpu("h100", "documents").bf16_flop_per_s
    (989400000000000.0, 990000000000000.0)
    """
    check_catalogue(catalogue)
    if arg == AUTO:
        arg = preset_of(gpus_here().name)
    if arg == "-" or looks_like_path(arg):
        table, where = _read(arg)
        return gpu_from_table(table, where)
    try:
        found = _gpu_named(arg, catalogue)
        return found or _gpu_preset(preset_path(_kind("gpu", catalogue), arg))
    except GpuscaleError as error:
        raise _maybe_file(error, arg) from None


def load_cluster(arg: str, catalogue: str = "vendor") -> ClusterSpec:
    """Cluster by preset name, alias, TOML path, `-`, or a GPU's name, meaning its usual node.

    In TOML, `gpu` is the name of a GPU preset or a table with the keys of `GpuSpec`.

    `arg`: for example ``dgx-h100``, ``h100-superpod``, ``h100``, ``./mine.toml``; ``auto``: this
    machine. `catalogue`: as in `load_gpu`; it holds for the cluster and for the GPU that it names.
    Raises GpuscaleError as `load_gpu`.

    >>> load_cluster("h100").name
    'dgx-h100'
    >>> load_cluster("h800").scaleup_bytes_per_s
    200000000000.0
    """
    check_catalogue(catalogue)
    if arg == AUTO:
        return this_cluster(catalogue)
    if arg == "-" or looks_like_path(arg):
        table, where = _read(arg)
        if "hbm_bytes" in table:  # a GPU's file: its usual node
            return usual_node(gpu_from_table(table, where), catalogue)
        return cluster_from_table(table, where, catalogue)
    path = find_preset(_kind("cluster", catalogue), arg)
    if path is not None:
        return _cluster_preset(path, catalogue)
    gpu = _gpu_named(arg, catalogue)
    if gpu is None:
        raise _unknown_cluster(arg, catalogue)
    return usual_node(gpu, catalogue)


def usual_node(gpu: GpuSpec, catalogue: str = "vendor") -> ClusterSpec:
    """Node that a GPU usually sits in, with exactly this GPU in it.

    A GPU that names none is taken as a card: up to `CARDS_IN_A_MACHINE` of them in one machine.

    Raises GpuscaleError if the GPU names a node that does not exist.
    """
    if not gpu.usual_cluster:
        return machine_of_cards(gpu)
    path = preset_path(_kind("cluster", catalogue), gpu.usual_cluster)
    node = _cluster_preset(path, catalogue)
    if node.gpu == gpu:
        return node
    change: Table = {"gpu": gpu}
    if gpu.scaleup_bytes_per_s is not None:
        change["scaleup_bytes_per_s"] = gpu.scaleup_bytes_per_s
    return node.model_copy(update=change)


CARDS_IN_A_MACHINE = 8
"""Slots of the machine that cards without a usual node are put in; a question may use fewer."""


def machine_of_cards(gpu: GpuSpec) -> ClusterSpec:
    """Cards of one kind on the PCIe slots of one machine, as many as a question asks for.

    Cards reach each other at the rate of the slot, or at `peer_bytes_per_s` where the preset has
    it; machines reach each other by 100 Gbit/s Ethernet.

    >>> machine = machine_of_cards(load_gpu("rtx-3090"))
    >>> machine.gpus_per_node, machine.scaleup_bytes_per_s, machine.scaleup_class
    (8, 15750000000.0, 'pcie')
    """
    from gpuscale.specs.hardware import ClusterSpec

    assumed = "assumed: cards on the slots of one machine; change it with --set"
    return ClusterSpec(
        name=f"pcie-{gpu.name}"[:200],
        title=f"{gpu.title or gpu.name} on PCIe slots",
        provider="generic",
        gpu=gpu,
        gpus_per_node=CARDS_IN_A_MACHINE,
        scaleup_domain_gpus=CARDS_IN_A_MACHINE,
        scaleup_bytes_per_s=gpu.scaleup_bytes_per_s or gpu.peer_bytes_per_s or gpu.pcie_bytes_per_s,
        scaleup_class="pcie",
        node_egress_bytes_per_s=12.5e9,
        nics_per_node=1,
        fabric="Ethernet 100GbE",
        fabric_class="ethernet",
        topology="PCIe slots of one machine",
        sources={"gpus_per_node": assumed, "node_egress_bytes_per_s": assumed},
    )


def unit_layout(architecture: str) -> UnitLayout | None:
    """Layout of the compute unit of an architecture; None if it is not known.

    >>> unit_layout("hopper").lanes, unit_layout("Grace Hopper").lanes, unit_layout("abacus")
    (128, 128, None)
    """
    slug = "-".join(architecture.lower().replace("(", " ").replace(")", " ").split())
    return _unit_layouts().get(slug)


@lru_cache(maxsize=1)
def _unit_layouts() -> dict[str, UnitLayout]:
    from gpuscale.core.kernel.chip import UnitLayout

    found: dict[str, UnitLayout] = {}
    path = str(preset_path("run", "units"))
    for name, table in _read(path)[0].items():
        names = (name, *table.pop("also", ()))
        found |= dict.fromkeys(names, checked(UnitLayout, table, f"{path}: {name}"))
    return found


def pair_on_bridge(cluster: ClusterSpec) -> ClusterSpec:
    """Two cards of a machine that an NVLink bridge joins, as a cluster of their own.

    >>> pair = pair_on_bridge(load_cluster("a100-pcie-80gb"))
    >>> pair.gpus_per_node, pair.scaleup_bytes_per_s
    (2, 300000000000.0)
    """
    if cluster.gpu.bridge is None:
        raise GpuscaleError(f"no NVLink bridge of {cluster.gpu.name} is known")
    link, rate = cluster.gpu.bridge
    change = {
        "gpu": cluster.gpu.model_copy(update={"scaleup_link": link}),
        "gpus_per_node": 2,
        "scaleup_domain_gpus": 2,
        "scaleup_bytes_per_s": rate,
        "scaleup_class": "nvlink",
    }
    return cluster.model_copy(update=change)


def check_catalogue(catalogue: str) -> None:
    """Refuse a catalogue that is not in `CATALOGUES`."""
    if catalogue not in CATALOGUES:
        raise unknown_name("catalogue", catalogue, CATALOGUES, "use vendor or documents")


def gpu_from_table(table: Table, where: str) -> GpuSpec:
    """Make a GPU of a TOML table; `where` names its origin in errors."""
    from gpuscale.specs.hardware import GpuSpec

    return checked(GpuSpec, table, where)


def cluster_from_table(table: Table, where: str, catalogue: str = "vendor") -> ClusterSpec:
    """Make a cluster of a TOML table, whose `gpu` is a preset's name or a table."""
    from gpuscale.specs.hardware import ClusterSpec

    table = dict(table)
    gpu = table.get("gpu")
    if isinstance(gpu, str):
        try:
            table["gpu"] = (
                load_gpu(gpu, catalogue) if not looks_like_path(gpu) else _beside(where, gpu)
            )
        except GpuscaleError as error:
            raise GpuscaleError(f"{where}: gpu: {error.message}", error.hint) from None
    elif isinstance(gpu, dict):
        table["gpu"] = gpu_from_table(gpu, f"{where}: gpu")
    return checked(ClusterSpec, table, where)


def _beside(where: str, gpu: str) -> GpuSpec:
    """GPU file named in a cluster file; its path is relative to that file."""
    path = Path(where).parent / gpu if where != STDIN else Path(gpu)
    table, shown = _read(str(path))
    return gpu_from_table(table, shown)


def _read(arg: str) -> tuple[Table, str]:
    return read_toml(arg), shown_name(arg)


@lru_cache(maxsize=256)
def _gpu_preset(path: Path) -> GpuSpec:
    table, where = _read(str(path))
    return gpu_from_table(table, where)


@lru_cache(maxsize=256)
def _cluster_preset(path: Path, catalogue: str) -> ClusterSpec:
    table, where = _read(str(path))
    return cluster_from_table(table, where, catalogue)


def _gpu_named(arg: str, catalogue: str) -> GpuSpec | None:
    """GPU by name, at the end of which may be its round size or another that its chip is sold with.

    >>> _gpu_named("M4 Max 64GB", "vendor").usable_hbm_bytes / 2**30
    48.0
    """
    path, size = _gpu_path(arg, catalogue), re.search(_SIZE, arg)
    if path or not size:
        return _gpu_preset(path) if path else None
    named = float(size[1]) * 2**30
    if not (path := _gpu_path(arg[: size.start()], catalogue)):
        return None
    chip = _gpu_preset(path)
    about = abs(chip.hbm_bytes - named) < ECC_FRAC * named
    return chip if about else chip.of_size(named) if named in chip.memory_sizes else None


def _gpu_path(arg: str, catalogue: str) -> Path | None:
    """File of a GPU by name, alias or, of the vendors' figures, the name that its driver prints.

    >>> _gpu_path("A100 40G", "vendor").stem, _gpu_path("3090-24g", "vendor").stem
    ('a100-sxm-40gb', 'rtx-3090')
    """
    path = find_preset(_kind("gpu", catalogue), arg)
    if path or catalogue != "vendor":
        return path
    name = re.sub(_SIZE, r" \1GB", arg)
    return find_preset("gpu", name) or said_by_driver(name)


ECC_FRAC = 0.08
"""Memory that a GPU may show less than it is named by: a sixteenth, for error correction."""


_SIZE = r"(?i)[\s-]+(\d+)\s?gi?b?$"
"""Memory at the end of a name, as people write it: 40G, 24 GB, -80gib."""


def _kind(kind: str, catalogue: str) -> str:
    return f"{kind}/documents" if catalogue == "documents" else kind


def _unknown_cluster(arg: str, catalogue: str) -> GpuscaleError:
    known = [name for kind in ("cluster", "gpu") for name in known_names(_kind(kind, catalogue))]
    if catalogue == "documents":
        hint = "the documents' catalogue has " + ", ".join(preset_names("gpu/documents"))
        return unknown_name("cluster or GPU of the documents' catalogue", arg, known, hint)
    hint = "list them with `gpuscale presets --kind cluster`"
    size = re.search(_SIZE, arg)
    card = size and _gpu_path(arg[: size.start()], catalogue)
    if size and card:
        hint = (
            f"`{card.stem}` of another size: --gpu {card.stem} --set gpu.hbm_bytes='{size[1]} GiB'"
        )
        return GpuscaleError(f"no {card.stem} of {size[1]} GB is known", hint)
    return _maybe_file(unknown_name("cluster or GPU", arg, known, hint), arg)


def _maybe_file(error: GpuscaleError, arg: str) -> GpuscaleError:
    """Say how to name a file, where an unknown name is one."""
    if os.path.isfile(arg):
        return GpuscaleError(error.message, f"for the file of that name write `./{arg[:60]}`")
    return error


def this_cluster(catalogue: str = "vendor") -> ClusterSpec:
    """Describe this machine as a cluster of one node.

    Raises GpuscaleError if its GPUs cannot be told.
    """
    name, count = gpus_here()
    node = usual_node(load_gpu(preset_of(name), catalogue), catalogue)
    change = {"name": f"this-machine-{count}x-{node.gpu.name}", "gpus_per_node": count}
    domain = min(count, node.scaleup_domain_gpus) if count > 1 else count
    return node.model_copy(update=change | {"n_gpus": count, "scaleup_domain_gpus": domain})
