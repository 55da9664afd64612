"""Maps that get an adapter, as front ends name them."""

from __future__ import annotations

import re
from typing import Any

from gpuscale.core.finetune.method import canonical

MAPS = ("q", "k", "v", "o", "qkv", "gate", "up", "gate_up", "down")
ALL = "all-linear"


def targets_of(value: Any) -> tuple[str, ...]:
    """Targets of a list, or of names with commas; none where one of them is not known here.

    >>> targets_of("q_proj,v_proj"), targets_of(["all"]), targets_of(".*mlp.*")
    (('q', 'v'), ('all-linear',), ())
    """
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value or "").strip())
    names = tuple(dict.fromkeys(canonical(str(part)) for part in parts if part))
    if ALL in names:
        return (ALL,)
    return names if names and all(name in MAPS for name in names) else ()
