"""What a launch file says, whatever its kind; what it does not say is None."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.core.dataclasses import dataclass, field
from gpuscale.specs.model import ModelSpec

MEGATRON_KEYS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
"""Degree -> its key in Megatron-Core's configuration, and in all that hand one to it."""


@dataclass(kw_only=True, slots=True)
class Said:
    """Machines, layout, batch and precision as written; None: the files do not say it."""

    n_nodes: int | None = None
    gpus_per_node: int | None = None
    n_gpus: int | None = None
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None  # only where the file itself says it
    dp_replicate: int | None = None  # HSDP
    zero_stage: int | None = None
    micro_batch_size: int | None = None
    accumulation: int | None = None
    global_batch_size: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    recompute: str | None = None
    recompute_every: int | None = None  # one layer in so many
    offload_optimizer: bool = False
    offload_parameters: bool = False
    lora_rank: int | None = None
    weights: str | None = None  # number format of a served or quantised model
    kv: str | None = None
    max_seqs: int | None = None
    memory_utilization: float | None = None
    serves: dict[str, Any] = field(default_factory=dict)  # what else `serve` is asked, by its words
    rl: dict[str, int | str | bool] = field(
        default_factory=dict
    )  # method and samples, by `memory`'s words
    unread: dict[str, str] = field(default_factory=dict)  # field -> the variable that says it


@dataclass(slots=True)
class Found(Said):
    """A job as a launch file describes it. Degrees are counts, lengths tokens."""

    kind: str  # key of `read.detect.KINDS`
    software: str = ""  # preset of the framework family
    version: str = ""  # whose option names were known
    model_name: str | None = None  # as the file names it: a hub id, a path, a preset
    model: ModelSpec | None = None  # where the file holds the shape itself
    mtp: bool = False  # its layer of multi-token prediction is trained, where that is to be said
    method: str = "pretrain"  # pretrain, full, lora, qlora, dora, serve
    usual_gpus: int | None = None  # that its recipe is for, where nothing else is said
    gpu: str | None = None
    sequence_parallel: bool | None = None
    recompute_layers: int | None = None
    cp_kind: str | None = None
    schedule: str | None = None
    order: str | None = None  # of the ranks
    stage_layers: tuple[int, ...] | None = None
    layers_per_chunk: tuple[int, int] | None = None  # and what the ends count more, of torchtitan
    held: dict[str, float] = field(default_factory=dict)  # states -> part of them that is held
    offload_activations: bool = False
    overlap_tp: bool | None = None
    overlap_dp: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of `core.settings.JobSettings`
    tuning: dict[str, str] = field(default_factory=dict)  # loss and attention, by `memory`'s words
    optimizer: str | None = None
    targets: tuple[str, ...] = ()  # maps with an adapter; none: as the front end chooses
    role: str = ""  # prefill or decode, of a server's pools
    workers: int = 1  # of such a pool
    asked: dict[str, str] = field(
        default_factory=dict
    )  # keys that say how it runs and that nobody reads -> value
    not_understood: list[str] = field(default_factory=list)  # options the parser does not know
    unresolved: list[str] = field(default_factory=list)  # variables and substitutions
    notes: list[str] = field(default_factory=list)  # what an answer leaves out, or takes
    other_machine: str | None = None  # accelerators that are no GPUs
    beside: list[str] = field(default_factory=list)  # files that say more, as they are written
    source: str = ""  # name of the file that another wrote or named
    program: str = ""  # Python file that is started
    options: dict[str, Any] = field(default_factory=dict)  # what that program is told
    defaults: bool = False  # of a program that a command or a file tells the rest
    wrong: list[str] = field(default_factory=list)  # the framework refuses it
    beyond: list[str] = field(default_factory=list)  # why nothing can be predicted
    places: dict[str, str] = field(default_factory=dict)  # field -> the option as written

    @property
    def world_size(self) -> int | None:
        """GPUs of the job, where the file says them."""
        if self.n_gpus:
            return self.n_gpus
        if self.n_nodes and self.gpus_per_node:
            return self.n_nodes * self.gpus_per_node
        batch = self.global_batch_size
        replica = (self.micro_batch_size or 0) * (self.accumulation or 0)
        if batch and replica and not self.rl and batch % replica == 0:
            return batch // replica * self.tp * self.pp * self.cp
        return None if {"n_gpus", "n_nodes"} & set(self.unread) else self.usual_gpus


def main_of(found: list[Found]) -> list[Found]:
    """Of several commands of one kind the one that trains and says most, the first of equals."""
    kinds = dict.fromkeys(f.kind for f in found)
    chosen = []
    for kind in kinds:
        alike = [f for f in found if f.kind == kind]
        best = max(alike, key=lambda f: (not f.beyond, len(f.places)))
        others = sum((f.places, f.model_name) != (best.places, best.model_name) for f in alike)
        if others:
            best.unresolved.append(f"one of {others + 1} {kind} commands: others are not read")
        chosen.append(best)
    return chosen


UNSET = "\x00"
"""Mark of what could not be put in, before the variable's own text."""


def named_model(text: str) -> str:
    """Name of a model in a folder that is not known: the last part of the path names it."""
    text = re.sub(r"/[^/]*\.(bin|safetensors|pth?|index\.json)$", "", text.rstrip("/"))
    text = re.sub(r"(?<=\d)___(?=\d)", ".", text)  # in folders of ModelScope's cache
    if cached := re.search(r"(?:^|/)models--([\w.-]+?)--([\w.-]+)(/snapshots|$)", text):
        return f"{cached[1]}/{cached[2]}"  # a folder of the hub's cache
    if UNSET in text and re.search(r"[(`]", text):  # what a command prints
        after = text.rpartition(")")[2]
        return after.rpartition("/")[2] if "/" in after and UNSET not in after else text
    folder, _, last = text.rpartition("/")
    return last if UNSET in folder and UNSET not in last else text
