"""Rows of a table of served models, each as the question that a person would ask of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.evidence.rows_named import Row, asked_gpu, meaning, named_model, number, whole
from gpuscale.evidence.score_runs import own_copy
from gpuscale.io.text import read_rows

OTHER_VERSIONS = r"tensorrt 1|nim|atom|rocm 6"
"""Texts whose numbers are versions of something else than the engine."""

POOL = re.compile(
    r"(prefill|decode) (\d+) workers x tp(\d+) ep(\d+) dpa (true|false) \((\d+) gpus\)"
)
GGUF = re.compile(r"\bi?q(\d)_(k(_[sml])?|[01])\b")


def kind_of(row: Row) -> str:
    """Say what load a row is of: closed, offline, burst, static, one, pools, prefill or decode."""
    said = "; ".join(f"{key} {row.get(key, '')}" for key in ("mode", "scenario", "note"))
    inside = number(row.get("concurrency"), high=1e6)
    return meaning("load", said) or ("closed" if inside else "offline")


def serve_asked(row: Row) -> tuple[dict[str, Any], list[str]]:
    """Arguments of `gpuscale serve` that say what a row states, and what had to be assumed.

    Raises GpuscaleError for what is not known or not printed and has no default.
    """
    note, kind = row.get("note", "").lower(), kind_of(row)
    engine, assumed = engine_of(row)
    lengths, more = _lengths(row, kind)
    spec = named_model(row)
    draft, usual = _drafts(row, spec.n_mtp_layers > 0)
    together = number(row.get("concurrency"), high=1e6)
    if kind == "decode" and together is None:
        raise GpuscaleError("a decode pool, and its batch is not printed")
    burst = re.search(r"burst of ([\d,]+) requests", note)
    many = re.search(r"\brequests (\d+)", note)
    at_once = whole(burst[1]) if burst else max(1, round(together or 1.0))
    loads: dict[str, Any] = {"burst": at_once} if kind in ("burst", "static") else {}
    if kind not in ("burst", "static", "offline", "prefill"):
        loads = {"concurrency": at_once, "requests": many and int(many[1])}
    gguf = (engine or "").startswith("llamacpp")
    limits = meaning("scenario", f"{spec.name} {row.get('scenario', '')}")
    if kind == "offline" and limits:
        loads |= dict(zip(("ttft", "tpot"), limits.split(), strict=True))
    met = f"{engine} {row.get('gpu')} {row.get('precision')} {note}"
    cold = kind == "closed" and meaning("cold", met) is not None
    cache = re.search(r"kv[ -]cache (bf16|fp8|fp16)", note)
    setting = (engine, row.get("gpu"), row.get("precision"), "tp", row.get("tp"), row.get("spec"))
    scripts = f"{kind} {row.get('source')} {' '.join(map(str, setting))} {at_once} in flight"
    scripts += f", {row.get('prefill_layout')}"
    scripted = (meaning("scripted", scripts) or "").split() if kind in ("closed", "pools") else ()
    degrees = _degrees(row, spec.has_experts)
    asked = {
        "model": row["model"],
        "gpu": asked_gpu(row),
        "gpus": whole(row.get("n_gpus"), 100_000) or degrees["tp"] or 1,
        "engine": engine,
        "weights": _weights(row, "" if gguf else spec.published_format),
        "kv": cache and cache[1],
        "cold": cold,
        "only": kind if kind in ("prefill", "decode") else None,
        **(degrees if kind != "pools" else _pooled(row, spec.name, bool(draft))),
        **lengths,
        **loads,
        **draft,
        **dict(word.split("=") for word in scripted),
    }
    if str(asked.get("chunk", "")).endswith("+"):
        asked["chunk"] = _pass_tokens(asked["chunk"], row, asked)
    return {k: v for k, v in asked.items() if v is not None}, [*assumed, *more, *usual]


def _pass_tokens(least: str, row: Row, asked: Mapping[str, Any]) -> str:
    """Tokens of a pass of a rank that hold a prompt with what it decodes, in blocks of 64."""
    each = int(str(asked.get("draft", ":0")).rsplit(":", 1)[1]) + 1
    decoded = each * (asked["concurrency"] // (asked["dp_attention"] or 1))
    tokens = (decoded + (number(row.get("input_len")) or 0.0) + 127.0) // 64.0 * 64.0
    return f"{max(float(least[:-1]), tokens):.0f}"


def _degrees(row: Row, mixture: bool) -> dict[str, int | None]:
    """Degrees of a replica; some tables call its GPUs TP where a mixture has attention ranks."""
    found = {key: whole(row.get(key), 4096) for key in ("tp", "pp", "dp_attention", "ep")}
    if mixture and meaning("ranked", row.get("note", "")):
        found |= {"tp": 1, "dp_attention": found["tp"], "ep": found["tp"]}
    return found


def engine_of(row: Row) -> tuple[str | None, list[str]]:
    """Engine and version of a row as `--engine` takes them, and what was assumed.

    >>> engine_of({"framework": "vllm 0.15.1"}), engine_of({"framework": "TensorRT 10.11"})
    (('vllm:0.15.1', []), ('trtllm', []))
    >>> engine_of({"framework": "atom (ROCm)"}), engine_of({})
    (('vllm', ['engine taken as vllm']), (None, []))
    """
    from gpuscale.io.serving import engine_day

    text = row.get("framework", "").lower()
    name = meaning("engine", text)
    near = None if name else meaning("nearest_engine", text)
    if not (name or near):
        if text:
            raise GpuscaleError(f"unknown engine {text[:40]!r}")
        return None, []
    printed = re.search(r"20\d\d-\d\d|(?<![\d.])\d+(\.\d+)+(rc\d+)?", text)
    version = printed[0] if printed and not re.search(OTHER_VERSIONS, text) else ""
    if version and "dynamo" in text and not re.search(r"(sglang|vllm) v?\d", text):
        version = engine_day("dynamo", version)
    if not printed and re.search(r"nightly|\bmain\b|branch|commit", text):
        version = "nightly"
    run = re.search(r"\bdate (20\d\d-\d\d-\d\d)", row.get("note", ""))
    if not printed and not version and run:
        version = run[1]  # the newest of that day
    taken = [f"engine taken as {near}"] if near else []
    return f"{name or near}:{version}".rstrip(":"), taken


def _weights(row: Row, published: str) -> str | None:
    """Format of `--weights`; None where it is the published one, or none is printed."""
    text = row.get("precision", "").lower()
    if gguf := GGUF.search(text):
        return {8: "q8_0", 6: "q6_k", 5: "q5_k_m"}.get(int(gguf[1]), "q4_k_m")
    word = meaning("stored", text)
    if word is None or word in published:
        return None
    block = word == "fp8" and ("fp8" in row.get("model", "").lower() or "block" in text)
    return "fp8-block" if block else {"fp4": "nvfp4", "int4": "awq"}.get(word, word)


def _lengths(row: Row, kind: str) -> tuple[dict[str, str], list[str]]:
    """Prompts and answers as `--input` and `--output-len` take them; what was assumed."""
    note, printed = row.get("note", "").lower(), meaning("lengths", row.get("note", ""))
    means = [number(row.get(key), high=1e8) for key in ("input_len", "output_len")]
    assumed = []
    if None in means:
        if printed is None:
            raise GpuscaleError("no lengths, and the data set is unknown")
        means = [own or float(of) for own, of in zip(means, printed.split(), strict=True)]
        assumed.append("mean lengths of the data set")
    n, o = (max(1.0, mean or 1.0) for mean in means)
    chat = kind == "burst" and 200.0 < n < 300.0  # ShareGPT, in public benchmarks
    shapes, span = ("{:g}", "{:g}"), "uniform:{:g},{:g}"
    if "sharegpt lengths" in note or chat:
        shapes = ("lognormal:{:g},1.1", "lognormal:{:g},0.9")
    elif "nominal maxima" in note and {n, o} <= {1024.0, 8192.0}:  # drawn from 0.8 to 1 times
        return {"input": span.format(0.8 * n, n), "output_len": span.format(0.8 * o, o)}, assumed
    elif "lengths uniform from 1" in note:
        ends = {"input": span.format(1, 2 * n - 1), "output_len": span.format(1, 2 * o - 1)}
        return ends, assumed
    return {"input": shapes[0].format(n), "output_len": shapes[1].format(o)}, assumed


def _drafts(row: Row, predicts: bool) -> tuple[dict[str, str], list[str]]:
    """Options of speculative decoding; what was assumed.

    `accepted` holds probabilities by position, or the mean tokens of a pass. Where a source prints
    neither, three drafts of the prediction layer are taken (one with data-parallel attention, whose
    batches are large), four of an EAGLE head.
    """
    spec, note = row.get("spec", "").lower(), row.get("note", "").lower()
    share = re.search(r"([\d.]+) ?% accepted", note)
    if spec in ("", "none", "off", "no") and not share:
        return {}, []
    own = "mtp" in spec or predicts
    counted = re.search(r"num[-_](?:draft[-_]tokens|speculative[-_]tokens|steps)[ =:]+(\d+)", note)
    counted = counted or re.search(r"(?:mtp|drafts?)\D{0,3}(\d)\b", spec)
    usual = (1 if (whole(row.get("dp_attention")) or 1) > 1 else 3) if own else 4
    n = int(counted[1]) if counted else 1 if share else usual
    accept = f"{share[1]}%" if share else re.sub(r"[^\d.,]", "", row.get("accepted") or "")
    assumed = [] if accept else ["acceptance of the drafts not printed, a usual one taken"]
    accept = accept or meaning("accepted", "mtp" if own else "eagle") or ""
    return {"draft": f"{'mtp' if predicts and own else 'eagle'}:{n}", "accept": accept}, assumed


def _pooled(row: Row, model: str, drafts: bool) -> dict[str, Any]:
    """Pools, and the sequences of a decode worker's rank that the source's scripts set.

    Rows do not print these: SemiAnalysisAI/InferenceX@843c6254ff69, configs/*-master.yaml,
    `DECODE_MAX_BATCH_SIZE` or the name of the recipe, from 2025-11 on; where more requests are in
    flight than decode, they wait for another's whole answer.
    """
    pools, gpu = _pools(row), row.get("gpu", "").lower().split("-")[0]
    lengths = (row.get("input_len"), row.get("output_len"), "mtp" if drafts else "none")
    key = (model, gpu, row.get("precision"), *lengths, pools, row.get("concurrency"))
    trtllm = "trtllm" in row.get("framework", "").lower()
    return {"disagg": pools, "max_seqs": _batches().get(key) if trtllm else None}


@cache
def _batches() -> dict[tuple[str | None, ...], int]:
    rows = [tuple(row.values()) for row in read_rows(own_copy("pool_batches"))]
    return {row[:-1]: int(row[-1]) for row in rows}


def _pools(row: Row) -> str:
    """Pools of a disaggregated row as `--disagg` takes them.

    >>> one = "prefill 2 workers x tp8 ep8 dpa True (16 GPUs), "
    >>> _pools({"prefill_layout": one + "decode 1 workers x tp32 ep32 dpa False (32 GPUs)"})
    '2xDPA8-EP8+1xTP32-EP32'
    """
    found: Mapping[str, tuple[str, ...]] = {
        m[0]: m[1:] for m in POOL.findall(row.get("prefill_layout", "").lower())
    }
    # degrees of 1 for the four GPUs of a tray: low latency, TP 4 (InferenceX@76fa58252)
    made = found.get("decode", ("0", "0", "", "", "0"))
    fast = made[1:3] == ("1", "1") and int(made[4]) == 4 * int(made[0])
    sides = [_pool(found[name], fast) for name in ("prefill", "decode") if name in found]
    if len(sides) < 2 or "" in sides:
        raise GpuscaleError("disaggregated, and the pools are not printed")
    return "+".join(sides)


def _pool(printed: tuple[str, ...], fast: bool) -> str:
    """Write one pool; "" where the workers that share its GPUs are not counted."""
    workers, tp, ep, gpus = (int(printed[i]) for i in (0, 1, 2, 4))
    if workers < 1:
        return ""
    each = max(1, gpus // workers)
    if printed[3] == "true" and not fast:
        return f"{workers}xDPA{each}-EP{max(ep, each if tp == 1 else ep)}"
    return f"{workers}xTP{each}-EP{max(1, ep)}"
