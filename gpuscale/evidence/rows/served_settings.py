"""Settings of engines that a public benchmark publishes beside its rows, not in them.

Read in the launch scripts of SemiAnalysisAI/InferenceX (`benchmarks/single_node`, October 2025 to
August 2026), whose rows are known by their nominal maxima of 1,024 and 8,192 tokens.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from gpuscale.core.serving.service import Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuscale.core.serving.records import Requests
    from gpuscale.specs.model import ModelSpec

ROOMY = 8192.0
"""Token budget below which later scripts do not go."""

ROOMY_SINCE = (1, 3)
"""TensorRT-LLM from which the rows of DeepSeek were made with them."""

RECEIVE_EVERY = (10, 30)
"""SGLang on Blackwell: passes between two looks for new requests, below and from `MANY` on; a
request waits for half of them in the mean."""

MANY = 16.0

BALANCED_WAIT = 60
"""Passes that a prompt waits at most until every attention rank has one (TensorRT-LLM,
`attention_dp_config.timeout_iters`)."""


WARMED_UP_SINCE = "2026-01-21"
"""Day from which that benchmark sends two warm-up requests for each one in flight (its pull request
480: `--num-warmups`); before, one."""


def not_warmed_up(note: str) -> bool:
    """Whether a row of that benchmark counts a server's first prompts.

    >>> not_warmed_up("nominal maxima; date 2025-12-15"), not_warmed_up("date 2026-05-18")
    (True, False)
    """
    day = re.search(r"\bdate (20\d\d-\d\d-\d\d)", note)
    return day is not None and day[1] < WARMED_UP_SINCE


def tuning_of(
    row: Mapping[str, str], model: ModelSpec, framework: str, ask: Requests
) -> Tuning | None:
    """Find the settings of a row's engine where its benchmark publishes them, else None."""
    if "nominal maxima" not in row.get("note", "").lower() or ask.concurrency is None:
        return None
    if "disagg" in row.get("mode", "").lower():
        return None
    ranks = int(row.get("dp_attention") or 1)
    latent = any(m.kind == "mla" for m in model.mixers.values())
    if framework == "trtllm":
        return _tensorrt(row, ask.concurrency, latent, ranks)
    if (
        framework == "sglang"
        and latent
        and row.get("gpu", "").lower().startswith(("b200", "gb200"))
    ):
        return Tuning(wait_passes=RECEIVE_EVERY[ask.concurrency >= MANY] // 2, wait_frac=math.inf)
    return None


def _tensorrt(row: Mapping[str, str], concurrency: float, latent: bool, ranks: int) -> Tuning:
    """Token budget, and how long prompts wait to be read together."""
    printed = float(row.get("input_len") or 0.0), float(row.get("output_len") or 0.0)
    short = printed == (1024.0, 1024.0)
    if not latent:
        waits = short and (row.get("tp") or "") in ("1", "2", "4")
        return Tuning(16384.0, None, 20 if waits else 0, 0.9)
    budget = 64.0 * ((concurrency + printed[0] + 127.0) // 64.0)
    version = re.search(r"(\d+)\.(\d+)", row.get("framework", ""))
    if version and (int(version[1]), int(version[2])) >= ROOMY_SINCE:
        budget = max(ROOMY, budget)
        if short and concurrency >= 64 and ranks == 1:
            return Tuning(budget, None, 40, 0.8)
    if ranks > 1:  # until every rank has a prompt
        return Tuning(budget, None, BALANCED_WAIT, min(1.0, printed[0] / budget))
    return Tuning(budget)
