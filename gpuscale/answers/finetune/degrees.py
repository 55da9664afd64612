"""Degrees of the training side of RL that are worth trying, and the software that has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.io.software import load_software

if TYPE_CHECKING:
    from gpuscale.answers.finetune.case import Case
    from gpuscale.answers.finetune.wanted import Wanted


def by_trainer(wanted: Wanted) -> Wanted:
    """Ask the software that trains where the model is split, if another does."""
    software = load_software(wanted.software) if wanted.software else None
    if software is None or not software.rl.trainer or wanted.tp * wanted.pp * wanted.ep == 1:
        return wanted
    habit = software.finetune.recompute if software.finetune else None
    kept = wanted.recompute or habit
    return replace(wanted, software=software.rl.trainer, recompute=kept)


def degrees(n_gpus: int, case: Case) -> Iterator[tuple[int, int, int]]:
    """(TP, PP, EP) worth trying, the least split first; experts within the GPUs of a stage."""
    counts = [f.n_experts for f in case.loaded.model.ffns.values() if f.kind == "moe"]
    ranks = [1, *((2, 4, 8, 16, 32) if counts else ())]
    heads = min(
        (m.n_kv_heads for m in case.loaded.model.mixers.values() if hasattr(m, "n_kv_heads")),
        default=1,
    )
    for split in (1, 2, 4, 8, 16, 32, 64, 128):
        for tp in (8, 4, 2, 1):
            pp = split // tp
            fits = tp * pp == split and n_gpus % split == 0 and heads % tp == 0
            if not fits or pp > case.loaded.model.n_layers:
                continue
            if not counts and pp > 1 and tp < 8 <= heads:
                continue
            for ep in ranks:
                if n_gpus // pp % ep == 0 and all(n % ep == 0 for n in counts):
                    yield tp, pp, ep
