"""Rows of a table of served models: names and formats to specs, blanks filled and named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscale.core.serving.maturity import SETTLED, Maturity
from gpuscale.core.serving.records import Drafts, Replica, Requests
from gpuscale.evidence.rows.measurements import number, whole
from gpuscale.evidence.rows.served_names import (
    drafts_of,
    formats,
    framework_of,
    served_cluster,
    served_model,
)
from gpuscale.evidence.rows.served_settings import not_warmed_up, tuning_of
from gpuscale.io.serving import engine_day, maturity_of

if TYPE_CHECKING:
    from gpuscale.core.serving.service import Tuning
    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.model import ModelSpec

from gpuscale.evidence.rows.words import Row

Pool = tuple[Replica, int]
"""Workers of one kind: layout, number."""

Pools = tuple[Pool, Pool]
"""A prefill and a decode pool."""

MLPERF_LIMITS = {  # model -> scenario -> (TTFT, TPOT) of the 99th percentile [s]
    "llama2-70b": {"server": (2.0, 0.2), "interactive": (0.45, 0.04)},
    "llama3.1-405b": {"server": (6.0, 0.175), "interactive": (4.5, 0.08)},
    "llama3.1-8b": {"server": (2.0, 0.1), "interactive": (0.5, 0.03)},
    "mixtral-8x7b": {"server": (2.0, 0.2)},
    "deepseek-v3": {"server": (2.0, 0.08)},
}
"""Latency limits of the benchmark's scenarios: MLPerf inference rules v5.1, datacenter."""

DATA_SETS = (  # words in the note -> (input, output) tokens
    (r"openorca/gsm8k|mbxp", 145.0, 145.0),  # MLCommons reference: output 145, prompts alike
    (r"openorca", 294.0, 294.0),
    (r"longbench|ruler", 9400.0, 680.0),
    (r"reasoning", 800.0, 3900.0),
    (r"cnn|dailymail|summaris", 778.0, 73.0),
)
"""Mean lengths of data sets where a row prints none, as printed in the rows' notes or by the
MLCommons reference implementations of the tasks (mean CNN/DailyMail article and summary)."""

RANDOM_LENGTHS = (1024, 8192)
"""Nominal maxima of the public benchmark that draws lengths from 0.8 to 1 times these."""

MEAN_OF_RANDOM = 0.9


STATISTICS = {"mean": "mean", "median": "p50", **{p: p for p in ("p50", "p90", "p95", "p99")}}
"""What a TTFT or TPOT may be of; a blank counts as the mean."""

NIGHTLY = re.compile(r"nightly|\bmain\b|branch|commit")
"""Words of a build between two releases."""

OTHER_VERSIONS = r"tensorrt 1|nim|atom|rocm 6"
"""Texts whose numbers are versions of something else than the engine."""

CHAT_LENGTHS = (200.0, 300.0)
"""Mean lengths of the prompts of chat data sets (ShareGPT) in public benchmarks."""


@dataclass(frozen=True, slots=True)
class ServedRow:
    """One served model, ready to be predicted."""

    id: str
    gpu: str
    model: ModelSpec
    cluster: ClusterSpec
    framework: str
    replicas: tuple[Replica, ...]  # the layout, or those to choose from
    n_gpus: int
    requests: Requests
    nominal_output: float  # as printed
    kind: str  # "closed", "offline", "burst", "static", "one", "pools", "prefill", "decode"
    limits: tuple[float, float] | None  # TTFT, TPOT of the scenario
    classes: Mapping[str, str]
    statistic: str = "mean"
    derived_rate: bool = False  # throughput = C o / (TTFT + (o - 1) TPOT), not counted
    power: bool = False  # the source prints the power of a GPU
    chat: bool = False  # lengths are those of chat data
    at_once: float | None = None  # requests that arrive together
    spread: tuple[float, float] = (1.0, 1.0)  # lengths are drawn between these times the nominal
    n_requests: int | None = None  # of the closed loop in all, where printed
    pools: tuple[Pools, ...] = ()  # prefill and decode pools, or those to choose from
    assumed: tuple[str, ...] = ()
    tuning: Tuning | None = None  # of the engine, where its benchmark publishes it
    maturity: Maturity = SETTLED
    version: str = ""  # of the engine, as printed
    cold: bool = False  # the benchmark sent no request before those that it counts


FORMATS_OF = ("ffn_format", "attention_format", "kv_format")


def served_row(row: Row, index: int) -> ServedRow | str:
    """Read one row; a text tells why it cannot be predicted."""
    model, said = served_model(row.get("model", ""))
    if model is None:
        return f"unknown model {row.get('model', '')[:40]!r}: {said}"
    cluster = served_cluster(row.get("gpu", ""))
    if cluster is None:
        return f"unknown GPU {row.get('gpu', '')[:40]!r}"
    n_gpus = whole(row.get("n_gpus"), 100_000) or whole(row.get("tp"), 4096) or 1
    framework, taken = framework_of(row.get("framework", ""))
    assumed = [text for text in (said, taken) if text and text != "engine not printed"]
    kind = _kind(row)
    found = _requests(row, kind)
    if isinstance(found, str):
        return found
    requests, nominal, spread, more = found
    drafts, printed = drafts_of(row, model, whole(row.get("dp_attention"), 4096) or 1)
    if not printed:
        more.append("acceptance of the drafts not printed, a usual one taken")
    of_parts = zip(FORMATS_OF, formats(row, model, framework), strict=True)
    dtypes: dict[str, Any] = {**dict(of_parts), "drafts": drafts}
    replicas = _replicas(row, model, cluster, n_gpus, dtypes)
    pools = _pools(row.get("prefill_layout", ""), model, dtypes) if kind == "pools" else ()
    if kind == "pools" and not pools:
        return "disaggregated, and the pools are not printed"
    assumed += _left_open(kind, replicas, pools)
    note = row.get("note", "").lower()
    version = _version(row, framework)
    maturity = maturity_of(model, framework, version) if version else SETTLED
    return ServedRow(
        id=row.get("id") or f"row-{index}",
        gpu=row.get("gpu", ""),
        model=model,
        cluster=cluster,
        framework=framework,
        replicas=replicas,
        n_gpus=n_gpus,
        requests=requests,
        nominal_output=nominal,
        kind=kind,
        limits=_limits(row, model),
        classes={
            **_classes(row, model, cluster, framework, kind),
            "drafts": _draft_class(row, model, drafts, printed),
            "maturity": maturity.stage,
        },
        statistic=STATISTICS.get(row.get("statistic", "").lower(), "mean"),
        derived_rate="derived" in row.get("throughput_kind", ""),
        power=number(row.get("power_w")) is not None,
        chat=_chat(note, kind, requests.input_tokens),
        at_once=_counted(r"burst of ([\d,]+) requests", note),
        spread=spread,
        n_requests=_counted(r"\brequests (\d+)", note),
        pools=pools,
        assumed=(*assumed, *more),
        tuning=tuning_of(row, model, framework, requests) if kind == "closed" else None,
        maturity=maturity,
        version="" if version == "nightly" else version,
        cold=kind == "closed" and not_warmed_up(note),
    )


def _left_open(kind: str, replicas: tuple[Replica, ...], pools: tuple[Pools, ...]) -> list[str]:
    if len(replicas) > 1 and kind != "pools":
        return ["layout: the fastest that fits"]
    return ["workers not printed: the fastest"] if len(pools) > 1 else []


def _chat(note: str, kind: str, mean: float) -> bool:
    low, high = CHAT_LENGTHS
    return "sharegpt lengths" in note or (kind == "burst" and low < mean < high)


def _counted(pattern: str, note: str) -> int | None:
    found = re.search(pattern, note)
    return int(found[1].replace(",", "")) if found else None


def _version(row: Row, framework: str) -> str:
    """Version of the engine that a row prints, a month, or nightly; "" where none is."""
    text = row.get("framework", "").lower()
    printed = re.search(r"20\d\d-\d\d|(?<![\d.])\d+(\.\d+)+(rc\d+)?", text)
    if not printed or re.search(OTHER_VERSIONS, text):
        return "nightly" if NIGHTLY.search(text) and not printed else ""
    own = "dynamo" in text and not re.search(r"(sglang|vllm) v?\d", text)
    return engine_day("dynamo", printed[0]) if own else printed[0]


def _kind(row: Row) -> str:
    scenario, mode = row.get("scenario", "").lower(), row.get("mode", "").lower()
    for word, kind in (("prefill pool", "prefill"), ("decode pool", "decode")):
        if word in mode:
            return kind
    if "disagg" in mode:
        return "pools"
    if "static" in scenario:
        return "static"
    if "one stream" in scenario:
        return "one"
    if "burst of" in row.get("note", "").lower():
        return "burst"
    return "offline" if number(row.get("concurrency"), high=1e6) is None else "closed"


def _limits(row: Row, model: ModelSpec) -> tuple[float, float] | None:
    scenario = row.get("scenario", "").lower()
    limits = MLPERF_LIMITS.get(model.name, {}).get(scenario)
    if scenario in ("server", "interactive") and limits is None:
        limits = (2.0, 0.2) if scenario == "server" else (0.5, 0.03)
    return limits


def _draft_class(row: Row, model: ModelSpec, drafts: Drafts | None, printed: bool) -> str:
    if drafts is not None:
        return "given" if printed else "assumed"
    recorded = row.get("spec") or "not used" in row.get("note", "").lower()
    return "none" if recorded or not model.n_mtp_layers else "not recorded"


def _classes(
    row: Row, model: ModelSpec, cluster: ClusterSpec, framework: str, kind: str
) -> dict[str, str]:
    moe = any(f.kind == "moe" for f in model.ffns.values())
    weak = "weak" in row.get("note", "").lower() or "weak" in row.get("quality", "").lower()
    return {
        "model": model.name,
        "framework": framework,
        "kind": kind,
        "source": row.get("source", "").split(":")[0],
        "dense_or_moe": "moe" if moe else "dense",
        "precision": row.get("precision", "") or "bf16 (blank)",
        "architecture": cluster.gpu.architecture,
        "quality": "weak" if weak else "good",
    }


def _requests(row: Row, kind: str) -> tuple[Requests, float, tuple[float, float], list[str]] | str:
    n, o = number(row.get("input_len"), high=1e8), number(row.get("output_len"), high=1e8)
    concurrency = number(row.get("concurrency"), high=1e6)
    note = row.get("note", "").lower()
    assumed = []
    if n is None or o is None:
        known = next(((a, b) for words, a, b in DATA_SETS if re.search(words, note)), None)
        if known is None:
            return "no lengths, and the data set is unknown"
        n, o = n or known[0], o or known[1]
        assumed.append("mean lengths of the data set")
    if max(n, o) < 1:
        return "lengths below 1"
    nominal, spread = o, (1.0, 1.0)
    if "nominal maxima" in note and {n, o} <= set(RANDOM_LENGTHS):
        n, o = MEAN_OF_RANDOM * n, MEAN_OF_RANDOM * o
        spread = (0.8, 1.0)
    elif "lengths uniform from 1" in note:
        spread = (0.0, 1.0)
    if kind == "one":
        concurrency = 1.0
    if concurrency is not None:
        concurrency = max(1.0, concurrency)
    if kind == "decode" and concurrency is None:
        return "a decode pool, and its batch is not printed"
    return Requests(max(1.0, n), max(1.0, o), concurrency), nominal, spread, assumed


def _replicas(
    row: Row, model: ModelSpec, cluster: ClusterSpec, n_gpus: int, dtypes: Mapping[str, Any]
) -> tuple[Replica, ...]:
    tp, pp = whole(row.get("tp"), 4096), whole(row.get("pp"), 4096)
    dp, ep = whole(row.get("dp_attention"), 4096), whole(row.get("ep"), 4096)
    moe = any(f.kind == "moe" for f in model.ffns.values())
    if tp is not None and dp is not None:
        return (Replica(tp, pp or 1, dp, ep or 1, **dtypes),)
    if tp is not None:
        one = Replica(tp, pp or 1, 1, ep or 1, **dtypes)
        return (one, Replica(1, pp or 1, tp, tp, **dtypes)) if moe and tp > 1 else (one,)
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= min(n_gpus, max(8, cluster.gpus_per_node))]
    made = [Replica(n, 1, 1, 1, **dtypes) for n in sizes]
    if moe:
        made += [Replica(1, 1, n, n, **dtypes) for n in sizes if n > 1]
    return tuple(made)


POOL = re.compile(
    r"(prefill|decode) (\d+) workers x tp(\d+) ep(\d+) dpa (true|false) \((\d+) gpus\)"
)


def _pools(text: str, model: ModelSpec, dtypes: Mapping[str, Any]) -> tuple[Pools, ...]:
    """Prefill and decode pool of a printed layout; several where the workers are not counted."""
    found = {m[0]: m[1:] for m in POOL.findall(text.lower())}
    if set(found) != {"prefill", "decode"}:
        return ()
    choices = [_pool(found[name], dtypes) for name in ("prefill", "decode")]
    return tuple((one, two) for one in choices[0] for two in choices[1])


def _pool(printed: tuple[str, ...], dtypes: Mapping[str, Any]) -> list[Pool]:
    workers, tp, ep, gpus = (int(printed[i]) for i in (0, 1, 2, 4))
    if workers < 1:  # how many workers share the GPUs is not printed
        sizes = [n for n in (4, 8, 16) if gpus % n == 0] or [gpus]
        return [(Replica(n, 1, 1, 1, **dtypes), gpus // n) for n in sizes]
    each = max(1, gpus // workers)
    if printed[3] == "true":
        return [(Replica(1, 1, each, max(ep, each if tp == 1 else ep), **dtypes), workers)]
    return [(Replica(each, 1, 1, ep if ep > 1 else 1, **dtypes), workers)]
