"""The job that is explored: its dimensions, their values, its answer; nothing here draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuscale.answers.answer import ask
from gpuscale.answers.ask import fields_of
from gpuscale.answers.saved import OPTIONS, command_line
from gpuscale.answers.table import question_of
from gpuscale.core.records import dataclass, replace
from gpuscale.io.presets import preset_names
from gpuscale.io.text import read_toml
from gpuscale.render.chart import Axis
from gpuscale.render.document import Document
from gpuscale.render.text import plain

TIME, MEMORY = Axis("step", "s"), Axis("memory", "bytes")
MACHINE = ("model", "gpu", "gpus")
LAYOUT = "tp pp cp ep vpp zero micro_batch recompute".split()
"""Options that pin a layout."""

_WALKED = read_toml(Path(__file__).with_name("walked.toml"))
TASKS: Mapping[str, Mapping[str, Any]] = _WALKED["tasks"]
"""Task -> its command, its dimensions beside model and machine, where these begin, its table."""


def values(name: str) -> Sequence[str]:
    """Values of a dimension; empty is what the planner takes."""
    if name in ("model", "gpu"):
        return preset_names(name)
    free = _WALKED["doubled_or_free"]
    if ends := _WALKED["doubled"].get(name) or free.get(name):
        return [*[""] * (name in free), *(str(2**k) for k in range(ends[0], ends[1] + 1))]
    return list(_WALKED["named"][name])


@dataclass(frozen=True, slots=True)
class ExploredJob:
    """What is asked: a task and the texts of its options."""

    task: str
    given: Mapping[str, str]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Options under the cursor keys."""
        return (*MACHINE, *TASKS[self.task]["dimensions"])

    @property
    def line(self) -> str:
        """Command line that asks the same."""
        return command_line(question_of(TASKS[self.task]["command"]), self._said())

    def about(self, name: str) -> str:
        """Say what a dimension means, in the words of its option."""
        return fields_of(question_of(TASKS[self.task]["command"]))[name][0].help

    def with_(self, **changed: str) -> ExploredJob:
        """Return the job with other options; an empty one is left to the planner."""
        return replace(self, given={**self.given, **changed})

    def released(self) -> ExploredJob:
        """Return the job with no layout pinned."""
        return self.with_(**dict.fromkeys(LAYOUT, ""))

    def stepped(self, name: str, by: int) -> ExploredJob:
        """Take the next value of a dimension, or the one before."""
        known, now = values(name), self.given.get(name, "")
        at = known.index(now) if now in known else _place(now, known)
        return self.with_(**{name: known[min(max(at + by, 0), len(known) - 1)]})

    def as_task(self, task: str) -> ExploredJob:
        """Ask another task of the same model and machine."""
        stays = {name: self.given[name] for name in MACHINE}
        return ExploredJob(task, {**stays, **TASKS[task]["first"]})

    def answer(self) -> Document:
        """Answer it; the last answers are kept."""
        more = {"alternatives": "16"} if self.task == "pretrain" else {}
        return _answered(TASKS[self.task]["command"], tuple((more | self._said()).items()))

    def _said(self) -> dict[str, str]:
        known = self.dimensions
        return {name: v for name, v in self.given.items() if v and name in known}


def _place(now: str, known: Sequence[str]) -> int:
    """Where a number that is none of the values stands among them."""
    if not now.isdigit():
        return 0
    return max((i for i, v in enumerate(known) if v.isdigit() and int(v) <= int(now)), default=0)


@lru_cache(maxsize=64)
def _answered(command: str, given: tuple[tuple[str, str], ...]) -> Document:
    return ask(question_of(command)(**dict(given)))


@dataclass(frozen=True, slots=True)
class PinnableRow:
    """One layout that can be pinned."""

    cells: tuple[str, ...]
    pins: Mapping[str, str]


def rows(job: ExploredJob, document: Document) -> list[PinnableRow]:
    """Layouts of an answer: the chosen one, then the others."""
    result = plain(document.result)
    if job.task == "serve":
        return [_served(r) for r in result.get("rows") or ()]
    if job.task == "fine-tune":
        return [_tuned(r) for r in result.get("options") or ()]
    chosen = [result | {"why": "chosen"}] if result.get("layout") else []
    found = (*chosen, *(result.get("alternatives") or ()))
    return [_trained(r) for r in found if r.get("layout")]


def _trained(r: Mapping[str, Any]) -> PinnableRow:
    lay = r["layout"]
    degrees = [f"{k.upper()} {lay[k]}" for k in ("tp", "cp", "ep", "pp", "dp") if lay[k] > 1]
    chunks = f" x{lay['vpp']}" if lay["vpp"] > 1 else ""
    name = f"{' x '.join(degrees) or 'DP 1'}{chunks}, ZeRO {lay['zero_stage']}"
    name += f", mb {lay['micro_batch_size']}, recompute {lay['recompute']}"
    memory = MEMORY.text(r["peak_bytes"], 3)
    cells = (name, TIME.text(r["step_s"], 3), memory, f"{100 * r['mfu']:.1f} %", r["why"])
    fields = {options[0]: field for field, options in OPTIONS.items()}
    return PinnableRow(cells, {pin: str(lay[fields.get(pin, pin)]) for pin in LAYOUT})


def _tuned(r: Mapping[str, Any]) -> PinnableRow:
    layout = f"{r['n_gpus']} GPUs, ZeRO {r['zero_stage']}, mb {r['micro_batch_size']}"
    cells = (r["software"], layout, TIME.text(r["step_s"], 3), MEMORY.text(r["peak_bytes"], 3))
    pins = {"micro_batch": str(r["micro_batch_size"]), "zero": str(r["zero_stage"])}
    return PinnableRow(cells, pins | {"recompute": r["recompute"]})


def _served(r: Mapping[str, Any]) -> PinnableRow:
    numbers = (f"{r[k]:,.3g}" for k in ("tokens_per_s_per_user", "tokens_per_s_per_gpu"))
    usd = r["usd_per_million_output_tokens"]
    cells = (
        r["label"],
        f"{r['at_most_per_s'] or 0.0:.3g}/s",
        *numbers,
        f"{usd:.3g}" if usd else "-",
    )
    at = r["label"].split()
    pins = {"tp": at[at.index("TP") + 1]} if "TP" in at[:-1] else {}
    return PinnableRow(cells, pins)
