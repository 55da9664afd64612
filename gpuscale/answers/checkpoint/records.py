"""What `checkpoint` answers with."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscale.core.run.bill import Bill
from gpuscale.core.run.checkpoint import CheckpointParts, SaveTime
from gpuscale.core.run.goodput import Outlook


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """One checkpoint, and a run with it."""

    n_params: float
    trainable_params: float
    bytes_per_param: float
    checkpoint_bytes: float
    parts: CheckpointParts
    n_gpus: int
    n_nodes: int
    save: SaveTime
    store_write_bytes_per_s: float
    store_read_bytes_per_s: float
    mtbf_s: float
    young_s: float
    daly_s: float
    exact_s: float
    interval_s: float  # used: as given, or the best that the store allows
    first_order_frac: float  # useful time to first order, beside the exact form of `outlook`
    lost_frac: float  # of the time: saving, work done again, recovery
    saving_frac: float  # of the time: waiting for saves
    bytes_per_day: float  # written
    n_saves: float  # in the time asked for
    n_interruptions: float  # while it computes so long
    n_interruptions_by_clock: float  # in the time asked for, as elapsed
    outlook: Outlook
    spares: int  # machines that cover those down at once, 99 % of the time, repaired in a day
    bill: Bill
