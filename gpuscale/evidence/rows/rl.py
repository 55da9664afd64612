"""Rows of RL steps whose layouts and lengths are printed: one job each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.core.finetune.bench import Bench
from gpuscale.core.finetune.job import Job
from gpuscale.core.finetune.method import Method
from gpuscale.core.finetune.optimizers import OPTIMIZERS
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.fit import usable_bytes
from gpuscale.core.rl.estimate import RlJob
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.finetune import gpu_of
from gpuscale.evidence.rows.measurements import number, whole

if TYPE_CHECKING:
    from gpuscale.specs.cluster import ClusterSpec

LAYOUTS = re.compile(r"train \[TP,CP,EP,PP[^\]]*\] \[([^\]]*)\]; generation \[TP,PP\] \[(\d+)")

PROMPT_TOKENS = 200.0
"""Prompt of the rows' mathematics problems, which is not printed: assumed."""

ASYNC_ROLLOUT_SHARE = 0.5
"""Share of the GPUs that rolls out in the asynchronous rows, which do not print it: assumed."""


@dataclass(frozen=True, slots=True, eq=False)
class RlRow:
    """One measured RL step, ready to be predicted."""

    bench: Bench
    job: Job
    rl: RlJob
    cluster: ClusterSpec
    rollout_tp: int
    step_s: float


def rl_row(row: Mapping[str, str]) -> RlRow | str:
    """Read a step of GRPO, or say why it cannot be computed."""
    from gpuscale.io.finetune import finetune_site
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.models import load_model
    from gpuscale.io.software import load_software

    if row.get("method", "").lower() != "grpo":
        return "RL: only GRPO steps with printed layouts are predicted from this file"
    found = LAYOUTS.search(row.get("parallel", ""))
    mean, longest = number(row.get("mean_tokens")), number(row.get("seq_len"))
    batch = re.search(r"generation_batch=([\d,]+)", row.get("phases", ""))
    n, step = whole(row.get("n_gpus")), number(row.get("step_time_s"))
    if not (found and mean and longest and batch and n and step):
        return "RL: layout, lengths or batch not printed"
    try:
        model = load_model(row.get("model", "")).spec
    except GpuscaleError:
        return f"unknown model `{row.get('model', '')[:40]}`"
    tp, cp, ep, pp = (int(v) for v in re.findall(r"\d+", found[1])[:4])
    in_turn = "on policy" in row.get("phases", "").lower()
    train = n if in_turn else max(tp * cp * pp, round(n * (1.0 - ASYNC_ROLLOUT_SHARE)))
    dp = max(1, train // (tp * cp * pp))
    cluster = load_cluster(gpu_of(row.get("gpu", ""))[0])
    software = load_software("megatron-bridge")
    layout = Layout(
        seq_len=int(longest),
        global_batch_size=dp,
        dp=dp,
        tp=tp,
        cp=cp,
        pp=pp,
        ep=min(ep, dp * tp * cp),
        zero_stage=1,
        sequence_parallel=tp > 1,
    )
    gpu = cluster.gpu
    bench = Bench(
        model=model,
        facts=model_facts(model),
        site=lambda tried: finetune_site(cluster, software, tried),
        usable_bytes=usable_bytes(gpu.hbm_bytes, gpu.usable_hbm_bytes),
        gpus_per_node=cluster.gpus_per_node,
    )
    most = longest - PROMPT_TOKENS
    rl = RlJob(
        method="grpo",
        prompts=int(batch[1].replace(",", "")) // 32 or 1,
        group=32,
        prompt_tokens=PROMPT_TOKENS,
        response_tokens=min(mean - PROMPT_TOKENS, most),
        max_response_tokens=most,
        engine="colocated" if in_turn else "async",
        rollout_gpus=0 if in_turn else n - train,
    )
    job = Job(Method("full"), OPTIMIZERS["adamw"], layout)
    return RlRow(bench, job, rl, cluster, int(found[2]), step)
