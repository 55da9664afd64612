"""What a launch file says, what it leaves out; facts of frameworks that are kept as data."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.core.layout import Layout
from gpuscale.core.records import NamedTuple, dataclass, field, fields
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import preset_files
from gpuscale.io.software import ranks_of, settle
from gpuscale.io.text import Table, read_toml
from gpuscale.specs.model import ModelSpec
from gpuscale.specs.software import SoftwareSpec

DATA = Path(__file__).parent / "data"


@lru_cache(maxsize=1)
def written_frameworks() -> tuple[str, ...]:
    """Training frameworks whose files are written: those whose data say how a method is.

    >>> "megatron" in written_frameworks(), "deepspeed-config" in written_frameworks()
    (True, False)
    """
    found = preset_files("framework").items()
    return tuple(n for n, f in found if "[[writing]]\nmethods" in f.read_text("utf-8"))


class Options(NamedTuple):
    """Option -> how many values it takes: "0", "1", a number, or "+", "*" for any."""

    version: str
    arity: dict[str, str]


@lru_cache(maxsize=8)
def known_options(framework: str) -> Options:
    """Options of a framework.

    >>> known_options("megatron").arity["--tensor-model-parallel-size"]
    '1'
    """
    table = json.loads((DATA / f"{framework}.json").read_text("utf-8"))
    arity = {name: n for n, names in table["options"].items() for name in names.split()}
    return Options(table["version"], arity)


@lru_cache(maxsize=8)
def launch_table(name: str) -> Table:
    """Table of a TOML file of `gpuscale/launch/data`."""
    return read_toml(DATA / f"{name}.toml")


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
    """Of several commands the one that trains and says most, the first of equals.

    Of servers one of each engine.
    """
    chosen = []
    trains = any(f.method != "serve" for f in found)
    for kind in dict.fromkeys("" if trains else f.kind for f in found):
        alike = [f for f in found if trains or f.kind == kind]
        best = max(alike, key=lambda f: (f.method != "serve", not f.beyond, len(f.places)))
        if others := sum((f.places, f.model_name) != (best.places, best.model_name) for f in alike):
            best.unresolved.append(f"one of {others + 1} commands: others are not read")
        chosen.append(best)
    return chosen


UNSET = "\x00"
"""Mark of what could not be put in, before the variable's own text."""


def is_unknown(text: str) -> bool:
    """Whether a text is nothing but what is not known."""
    return bool(re.fullmatch(UNSET + r"\$(\w+|[^\w{(]|\{.*\}|\(.*\))", text, re.DOTALL))


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


MEGATRON = ("megatron", "megatron-bridge", "ms-swift")
DEFAULT_SEQ_LEN = {"trainer": 1024, "torchtitan": 2048}
"""Length that the front end takes where its file names none (its own default); that of others is
in their presets.
"""


def layout_of(
    found: Found, model: ModelSpec, software: SoftwareSpec, n_gpus: int, seq_len: int | None
) -> Layout:
    """Lay a launch out on its GPUs.

    `found`: what the files say; what is wrong by itself is added to `found.wrong`. `software`: the
    family, for what the framework does by habit. `n_gpus`: GPUs [1]. `seq_len`: tokens of a
    sequence, where a person says them [1]. Raises GpuscaleError if the degrees do not divide the
    GPUs, or no sequence length is known.
    """
    said = {f.name: getattr(found, f.name, None) for f in fields(Layout)}
    dp = ranks_of(said, n_gpus, "the launch on {n_gpus} GPUs")
    micro = found.micro_batch_size or 1
    batch = found.global_batch_size or micro * dp * (found.accumulation or 1)
    _check_batch(found, micro, dp, batch)
    length = seq_len or found.seq_len or DEFAULT_SEQ_LEN.get(found.kind)
    if not length:
        raise GpuscaleError("the files name no sequence length", "say it with --seq-len")
    usual = 0 if found.places.get("launcher") == "accelerate" else software.zero_stage
    zero = usual if found.zero_stage is None else found.zero_stage
    experts = any(f.kind == "moe" for f in model.ffns.values())
    etp = found.etp or (found.tp if experts and found.kind in (*MEGATRON[:2], "maxtext") else 1)
    replicas = max(1, found.dp_replicate or 1)
    if dp * found.cp % replicas:
        why = f"{replicas} replicas of the shards do not divide dp*cp = {dp * found.cp}"
        raise GpuscaleError(why)
    settled: dict[str, object] = {
        "seq_len": length,
        "global_batch_size": batch,
        "etp": etp,
        "vpp": _chunks(found, model),
        "dp": dp,
        "zero_stage": zero,
        "shard_group_size": dp * found.cp // replicas if replicas > 1 and zero == 3 else None,
        "recompute": found.recompute or "none",
        "recompute_layers": _recomputed(found, model),
        "schedule": found.schedule or ("interleaved" if found.vpp > 1 else "1f1b"),
        "precision": None if found.precision == "fp32" else found.precision,
        "cp_kind": found.cp_kind or "ring",
        "stage_layers": _stages(found),
    }
    return settle(said | settled, software)


def _chunks(found: Found, model: ModelSpec) -> int:
    """Virtual stages of a pipeline; torchtitan derives them (pipeline_parallel.py)."""
    if found.kind != "torchtitan" or found.pp == 1:
        return found.vpp
    if found.layers_per_chunk:
        each, more = found.layers_per_chunk
        return max(1, math.ceil((model.n_layers + more) / each) // found.pp)
    return 1 if found.schedule in ("1f1b", "gpipe") else 2


def _recomputed(found: Found, model: ModelSpec) -> int | None:
    """Layers of a stage that are computed again, where it is not all of them."""
    if not found.recompute_every or found.recompute_every == 1:
        return found.recompute_layers
    return max(1, model.n_layers // found.pp // found.recompute_every)


def _check_batch(found: Found, micro: int, dp: int, batch: int) -> None:
    """Say what a framework asserts of the three numbers of a batch."""
    if found.accumulation and found.global_batch_size and found.kind == "deepspeed":
        product = micro * found.accumulation * dp
        if product != batch:
            found.wrong.append(
                f"train_batch_size {batch} is not micro-batch {micro} x accumulation "
                f"{found.accumulation} x {dp} data-parallel ranks = {product}"
            )
    elif batch % (micro * dp):
        found.wrong.append(
            f"the global batch {batch} is no multiple of micro-batch {micro} x {dp} "
            "data-parallel ranks"
        )


def _stages(found: Found) -> tuple[int, ...] | None:
    """Layers of each stage, or of each chunk, where the file says them."""
    chunks = found.stage_layers
    if not chunks or found.pp == 1 or len(chunks) % found.pp:
        return None
    return chunks
