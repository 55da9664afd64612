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
from gpuscale.core.model.params import count_params
from gpuscale.core.rl.estimate import RlJob
from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows.finetune import gpu_of
from gpuscale.evidence.rows.measurements import number, whole

if TYPE_CHECKING:
    from gpuscale.core.rl.step import RlCosts
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec
    from gpuscale.specs.software import SoftwareSpec

LAYOUTS = re.compile(r"train \[TP,CP,EP,PP[^\]]*\] \[([^\]]*)\]; generation \[TP,PP\] \[(\d+)")

PROMPT_TOKENS = 200.0
"""Prompt of the rows' mathematics problems, which is not printed: assumed."""

STATES_OVER_WEIGHTS = 5.0
"""Bytes of a step over those of bf16 weights, where the printed row leaves out the pipeline: its
degree is the least that holds these in half of a GPU."""

ALIGNER_BATCH = 128
"""Sequences of an optimizer step in NeMo-Aligner's table."""

ASYNC_ROLLOUT_SHARE = 0.5
"""Share of the GPUs that rolls out in the asynchronous rows, which do not print it: assumed."""


ALIGNER_LONGEST = 1024.0
"""Longest response of NeMo-Aligner's tutorial, which its table does not repeat: assumed."""

CHAT_MICRO_BATCH = 16
"""Sequences of a micro-batch in DeepSpeed-Chat's shipped scripts."""

CHAT_CRITIC = "opt-350m"
"""Critic and reward model of DeepSpeed-Chat's blog."""


@dataclass(frozen=True, slots=True, eq=False)
class RlRow:
    """One measured RL step, ready to be predicted."""

    bench: Bench
    job: Job
    rl: RlJob
    cluster: ClusterSpec
    rollout_tp: int
    step_s: float
    critic: Bench | None = None
    costs: RlCosts | None = None  # None: those of all frameworks


def _bench(model: ModelSpec, cluster: ClusterSpec, software: SoftwareSpec) -> Bench:
    from gpuscale.io.finetune import finetune_site

    gpu = cluster.gpu
    return Bench(
        model=model,
        facts=model_facts(model),
        site=lambda tried: finetune_site(cluster, software, tried),
        usable_bytes=usable_bytes(gpu.hbm_bytes, gpu.usable_hbm_bytes),
        gpus_per_node=cluster.gpus_per_node,
    )


def _phase(row: Mapping[str, str], name: str) -> float | None:
    """Figure of the column `phases`."""
    found = re.search(rf"\b{name}=([\d.,]+)", row.get("phases", ""))
    return float(found[1].replace(",", "")) if found else None


def rl_row(row: Mapping[str, str]) -> RlRow | str:
    """Read a measured RL step, or say why it cannot be computed."""
    from gpuscale.io.hardware import load_cluster
    from gpuscale.io.models import load_model

    method = row.get("method", "").lower()
    readers = {"grpo": _grpo, "ppo full": _chat if _phase(row, "pairs") else _aligner}
    if method not in readers:
        return "RL: only steps with printed layouts and lengths are predicted from this file"
    try:
        model = load_model(row.get("model", "")).spec
    except GpuscaleError:
        return f"unknown model `{row.get('model', '')[:40]}`"
    return readers[method](row, model, load_cluster(gpu_of(row.get("gpu", ""))[0]))


def _chat(row: Mapping[str, str], model: ModelSpec, cluster: ClusterSpec) -> RlRow | str:
    """Read a step of DeepSpeed-Chat's blog: queries and answers of one length, ZeRO-3."""
    from gpuscale.io.models import load_model
    from gpuscale.io.rl import rl_costs
    from gpuscale.io.software import load_software

    prompt, answer, pairs = (_phase(row, n) for n in ("query", "answer", "pairs_per_step"))
    n, rate = whole(row.get("n_gpus")), number(row.get("tokens_per_s"))
    if not (prompt and answer and pairs and n and rate):
        return "RL: lengths, batch or throughput not printed"
    software = load_software("deepspeed-chat")
    layout = Layout(
        seq_len=int(prompt + answer),
        global_batch_size=n * CHAT_MICRO_BATCH,
        micro_batch_size=CHAT_MICRO_BATCH,
        dp=n,
        zero_stage=3,
        recompute="full",
        precision="fp16",
    )
    rl = RlJob("ppo", int(pairs), 1, prompt, answer, answer, engine="hf", packed=False)
    return RlRow(
        bench=_bench(model, cluster, software),
        job=Job(Method("full"), OPTIMIZERS["adamw"], layout, attention="flash2"),
        rl=rl,
        cluster=cluster,
        rollout_tp=1,
        step_s=pairs * (prompt + answer) / rate,
        critic=_bench(load_model(CHAT_CRITIC).spec, cluster, software),
        costs=rl_costs(software),
    )


def _aligner(row: Mapping[str, str], model: ModelSpec, cluster: ClusterSpec) -> RlRow | str:
    """Read a step of NeMo-Aligner's table: actor and critic on nodes of their own."""
    from gpuscale.io.rl import rl_costs
    from gpuscale.io.software import load_software

    samples, mean = _phase(row, "rollout_samples"), _phase(row, "mean_response")
    actors, critics = _phase(row, "actor_nodes"), _phase(row, "critic_nodes")
    step = number(row.get("step_time_s"))
    if not (samples and mean and actors and critics and step):
        return "RL: nodes, lengths or batch not printed"
    software = load_software("nemo-aligner")
    tp, local = 8, cluster.gpus_per_node
    train = int(actors) * local
    bench = _bench(model, cluster, software)
    total = 2.0 * count_params(model).total_params
    pp = 1
    while total * STATES_OVER_WEIGHTS / (tp * pp) > bench.usable_bytes / 2:
        pp *= 2
    layout = Layout(
        seq_len=int(PROMPT_TOKENS + ALIGNER_LONGEST),
        global_batch_size=max(1, train // (tp * pp)),
        dp=max(1, train // (tp * pp)),
        tp=tp,
        pp=pp,
        zero_stage=1,
    )
    rl = RlJob(
        "ppo",
        int(samples),
        1,
        PROMPT_TOKENS,
        mean,
        ALIGNER_LONGEST,
        engine="hf",
        critic_gpus=int(critics) * local,
        updates=max(1, round(samples / ALIGNER_BATCH)),
        packed=False,
    )
    return RlRow(
        bench=bench,
        job=Job(Method("full"), OPTIMIZERS["adamw"], layout),
        rl=rl,
        cluster=cluster,
        rollout_tp=8 if total < 8 * 0.6 * bench.usable_bytes else 16,
        step_s=step,
        costs=rl_costs(software),
    )


def _grpo(row: Mapping[str, str], model: ModelSpec, cluster: ClusterSpec) -> RlRow | str:
    """Read a step of NeMo-RL's performance summary."""
    from gpuscale.io.rl import rl_costs
    from gpuscale.io.software import load_software

    found = LAYOUTS.search(row.get("parallel", ""))
    mean, longest = number(row.get("mean_tokens")), number(row.get("seq_len"))
    batch = re.search(r"generation_batch=([\d,]+)", row.get("phases", ""))
    n, step = whole(row.get("n_gpus")), number(row.get("step_time_s"))
    if not (found and mean and longest and batch and n and step):
        return "RL: layout, lengths or batch not printed"
    tp, cp, ep, pp = (int(v) for v in re.findall(r"\d+", found[1])[:4])
    in_turn = "on policy" in row.get("phases", "").lower()
    train = n if in_turn else max(tp * cp * pp, round(n * (1.0 - ASYNC_ROLLOUT_SHARE)))
    dp = max(1, train // (tp * cp * pp))
    software = load_software("nemo-rl")
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
    bench = _bench(model, cluster, software)
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
        lag=int(lag[1]) if (lag := re.search(r"(\d+)-step off", row["phases"].lower())) else 1,
    )
    job = Job(Method("full"), OPTIMIZERS["adamw"], layout)
    return RlRow(
        bench=bench,
        job=job,
        rl=rl,
        cluster=cluster,
        rollout_tp=int(found[2]),
        step_s=step,
        costs=rl_costs(software),
    )
