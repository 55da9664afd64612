"""Relations between answers: better hardware is never worse, one question has one answer."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_schema import problems
from running import invoke

from gpuscale.answers.requirements import schema_of
from gpuscale.io.hardware import load_cluster, load_gpu

CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-b200", "gb200-nvl72", "mi300x-8", "pcie-h100-8")
RATES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
FIGURES = ("egress", "scale-up", "HBM bandwidth", "FLOP/s", "HBM")
quick = settings(max_examples=12, deadline=None, derandomize=True, database=None)


def asked(line, *more):
    """Code and JSON of a command line; None where it is refused."""
    done = invoke(*line.split(), *more, "--json")
    return json.loads(done.stdout) if done.returncode < 2 else None


def better(where, figure, factor):
    """`--set` of a cluster, or of a GPU, with one figure better, or all of them."""
    if figure == "all":
        return [word for one in FIGURES for word in better(where, one, factor)]
    cluster = load_cluster(where) if "-" in where and where in CLUSTERS else None
    gpu = cluster.gpu if cluster else load_gpu(where)
    if figure == "FLOP/s":
        keys = {f"gpu.{k}_flop_per_s": getattr(gpu, f"{k}_flop_per_s") for k in RATES}
    elif figure.startswith("HBM"):
        name = "hbm_bytes" if figure == "HBM" else "hbm_bytes_per_s"
        keys = {f"gpu.{name}": getattr(gpu, name)}
    else:
        name = "node_egress_bytes_per_s" if figure == "egress" else "scaleup_bytes_per_s"
        keys = {f"cluster.{name}": getattr(cluster, name) if cluster else None}
    return [word for k, v in keys.items() if v for word in ("--set", f"{k}={v * factor!r}")]


def at(result, path):
    for key in path.split("."):
        result = result[key]
    return result


def never_worse(line, where, figure, factor, *paths, slack=1e-9):
    """Hold that numbers of which less is better (or, with `-`, more) do not get worse."""
    before, change = asked(line), better(where, figure, factor)
    if before is None or not change:
        return
    after = asked(line, *change)
    assert after is not None, (line, change)
    for path in paths:
        sign = -1 if path.startswith("-") else 1
        old, new = (at(a["result"], path.lstrip("-")) for a in (before, after))
        assert sign * new <= sign * old + slack * abs(old), (line, figure, factor, path, old, new)


TIMES = ("time_s", "expected.time_s", "expected.low_s", "expected.high_s")
factors = st.sampled_from([1.05, 1.5, 4.0])
sizes = st.sampled_from([1, 7, 64, 100, 1024, 5000, 16384])


@quick
@given(
    st.sampled_from(["h100-sxm", "a100-sxm-80gb", "l4", "h100-pcie", "b200-sxm", "mi300x"]),
    st.tuples(sizes, sizes, sizes),
    st.sampled_from(["bf16", "fp8", "fp32"]),
    st.sampled_from(FIGURES[2:]),
    factors,
)
def test_a_product(gpu, shape, dtype, figure, factor):
    line = f"matmul-time {gpu} {shape[0]} {shape[1]} {shape[2]} --dtype {dtype}"
    never_worse(line, gpu, figure, factor, *TIMES)


@quick
@given(
    st.sampled_from(["all-reduce", "all-gather", "all-to-all", "broadcast"]),
    st.sampled_from(CLUSTERS),
    st.sampled_from([2, 8, 24, 64, 1024]),
    st.sampled_from(["4KB", "1MB", "1GB"]),
    st.sampled_from(FIGURES[:2]),
    factors,
)
def test_a_collective(op, cluster, gpus, size, figure, factor):
    line = f"collective {op} {cluster} --gpus {gpus} --bytes {size}"
    never_worse(line, cluster, figure, factor, *TIMES)


@pytest.mark.slow
@quick
@given(
    st.sampled_from(["llama3-8b", "qwen3-30b-a3b"]),
    st.sampled_from(["lora", "full"]),
    st.sampled_from(CLUSTERS),
    st.sampled_from([1, 8, 16]),
    st.sampled_from(["safe", "expected"]),
    st.sampled_from(FIGURES),
    factors,
)
def test_fine_tuning(model, method, cluster, gpus, fit, figure, factor):
    line = f"plan {model} --cluster {cluster} --method {method} --gpus {gpus} --fit {fit}"
    line += " --examples 10k --mean-len 300 --price 2USD/h"
    if (asked(line) or {"result": {"fits": False}})["result"]["fits"]:
        never_worse(line, cluster, figure, factor, "step_s", "run_s", "cost_usd", "-tokens_per_s")


@quick
@given(
    st.sampled_from(
        [
            ("timeline qwen3-30b-a3b --gpus 32 --tp 2 --pp 2", ("step_s",)),
            ("network CLUSTER --gpus 512", ("-collective_bytes_per_s", "all_reduce.time_s")),
            ("checkpoint llama3-70b --gpus 64", ("save.write_s", "save.load_s", "lost_frac")),
            ("memory llama3-8b --gpus 8 --serve", ("-per_gpu.max_concurrency", "-fits")),
            ("memory llama3-70b --gpus 16", ("-headroom_bytes", "-fits")),
        ]
    ),
    st.sampled_from(CLUSTERS),
    st.sampled_from(FIGURES),
    st.sampled_from([1.0, 2.0, 4.0]),
)
def test_other_answers(job, cluster, figure, factor):
    line, paths = job
    where = "" if "CLUSTER" in line else f" --cluster {cluster}"
    never_worse(line.replace("CLUSTER", cluster) + where, cluster, figure, factor, *paths)


WORSE_ONCE = [
    ("matmul-time a100-sxm-80gb 5000 128 16384", "a100-sxm-80gb", "FLOP/s", 4.0, TIMES),
    (
        "plan qwen3-30b-a3b --cluster dgx-h100 --method full --gpus 8 --global-batch 128",
        "dgx-h100",
        "HBM",
        1.05,
        ("step_s",),
    ),
    (
        "plan qwen3-14b --cluster gb200-nvl72 --method full --gpus 2 --zero 2 --recompute none"
        " --micro-batch 4 --optimizer adafactor --examples 10k --mean-len 200",
        "gb200-nvl72",
        "FLOP/s",
        4.0,
        ("step_s",),
    ),
    (
        "plan llama3-8b --cluster pcie-h100-8 --method grpo --gpus 4 --response 2k --seq-len 8192"
        " --price 2USD/h",
        "pcie-h100-8",
        "HBM",
        2.0,
        ("step_s", "bill.charge.usd"),
    ),
    (
        "serve llama3-8b --cluster dgx-h100 --gpus 8 --input 128 --output-len 1000 --concurrency 4",
        "dgx-h100",
        "all",
        1.5,
        ("-requests_per_s", "-output_tokens_per_s"),
    ),
]


@pytest.mark.parametrize("job", WORSE_ONCE)
def test_what_got_worse_once(job):
    line, where, figure, factor, paths = job
    never_worse(line, where, figure, factor, *paths)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES)
def test_a_plan(figure):
    """The fastest layout, which is the proposed one or named beside it."""
    line = "plan gemma3-12b --cluster dgx-h100 --gpus 16 --seq-len 8192 --pp 2"
    before, after = (asked(line, *more)["result"] for more in ([], better("dgx-h100", figure, 1.5)))
    fastest = [(r["bolder"] or r["passed_over"] or r)["step_s"] for r in (before, after)]
    assert fastest[1] <= fastest[0] * (1 + 1e-9)
    for r, least in zip((before, after), fastest, strict=True):
        assert all(x["step_s"] >= least for x in (r, *r["alternatives"]) if x.get("fits", True))


def test_a_plan_that_fits_safely_names_the_faster_one_that_was_expected_to_fit():
    """With every figure a twentieth better something fits safely, and is slower: 20 -> 51 min."""
    line = "plan llama3-70b --cluster aws-p4de --gpus 24 --seq-len 2048 --software deepspeed-zero3"
    figures = {"node_egress_bytes_per_s": 50e9, "scaleup_bytes_per_s": 300e9}
    keys = {f"cluster.{k}": v for k, v in figures.items()}
    keys |= {"gpu.hbm_bytes_per_s": 2.039e12, "gpu.hbm_bytes": 80 * 2**30}
    keys |= {"gpu.bf16_flop_per_s": 312e12}
    before, after = (
        asked(line),
        asked(line, *(word for k, v in keys.items() for word in ("--set", f"{k}={v * 1.05!r}"))),
    )
    old, new = before["result"], after["result"]
    assert old["bolder"] is None and before["summary"][0]["tone"] == "near"  # fits as expected
    named = new["bolder"]
    assert named["step_s"] <= old["passed_over"]["step_s"] <= old["step_s"] < 0.5 * new["step_s"]
    assert named["gain_frac"] == pytest.approx(1 - named["step_s"] / new["step_s"])
    assert 0.5 < named["fits_probability"] < 0.9 and named["peak_bytes"] < new["capacity_bytes"]
    assert named["peak_bytes"] > new["peak_bytes"]
    (said,) = (p for p in after["summary"] if p["key"] == "passed over")
    assert "--fit expected" in said["note"] and "faster" in said["value"]


# --- one question has one answer ---------------------------------------------------------------

JOBS = [
    "matmul-time h100-sxm 64 4096 8192 --dtype fp8",
    "collective all-gather dgx-a100 --gpus 32 --bytes 10MB",
    "memory qwen3-30b-a3b --cluster dgx-h100 --gpus 16 --dispatcher deepep --moments fp8",
    "memory llama3-8b --cluster dgx-h100 --gpus 8 --serve --concurrency 16",
    "memory phi4 --cluster mi300x-8 --gpus 8 --method qlora",
    "plan qwen3-30b-a3b --cluster dgx-h100 --gpus 8 --dispatcher deepep --tokens 1T --price 2USD/h",
    "plan llama3-8b --cluster dgx-a100 --gpus 8 --method dora --rank 64 --examples 1k --mean-len 9",
    "plan llama3-8b --cluster dgx-h100 --gpus 8 --method ppo --response 1k",
    "serve phi4 --cluster dgx-b200 --gpus 2 --concurrency 4 --output-len 32 --kv fp8 --tp 1",
    "timeline llama3-8b --cluster dgx-h100 --gpus 16 --tp 2 --pp 4",
    "network dgx-b200 --gpus 256",
    "checkpoint llama3-70b --cluster dgx-h200 --gpus 64",
    "roofline qwen3-14b --cluster mi300x-8 --gpus 64",
]


def numbers(value, name=""):
    """Numbers of a JSON value by path."""
    if isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, x in entries for k, v in numbers(x, f"{name}.{key}").items()}
    return {name: value} if isinstance(value, (int, float)) else {}


@pytest.mark.slow
@pytest.mark.parametrize("line", JOBS)
def test_files_compare_and_schema(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = asked(line, "-o", "a.json", "-o", "a.md", "-o", "a.html", "-o", "a.csv")
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == answer
    assert problems(answer, schema_of(line.split()[0])) == []
    same = json.loads(invoke("compare", "a.json", "a.json", "--json").stdout)["result"]
    assert not (same["rows"] or same["changes"] or same["inputs_changed"])
    assert all(d["delta"] == 0 for d in same["differences"])
    text = invoke(*line.split())
    headline = text.stdout.split("\n")[0]
    assert headline and headline in (tmp_path / "a.md").read_text("utf-8").replace("\\", "")


@pytest.mark.slow
@pytest.mark.parametrize("line", JOBS)
def test_a_preset_by_name_is_the_preset_by_path(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = line.split()
    for i, word in enumerate(words[1:], 1):
        shown = invoke("presets", "show", word)
        if shown.returncode == 0 and words[i - 1] != "--method":
            (tmp_path / f"{i}.toml").write_text(shown.stdout, "utf-8")
            words[i] = f"{i}.toml"
    assert words != line.split()
    assert numbers(asked(" ".join(words))["result"]) == numbers(asked(line)["result"])


def test_parts_add_up():
    plan, tuned, memory = (asked(JOBS[i])["result"] for i in (5, 6, 2))
    for column in (plan["step"]["roofline"], plan["step"]["expected"]):
        parts = [v for k, v in column.items() if k != "total_s"]
        assert math.fsum(parts) == pytest.approx(column["total_s"])
    for parts in (plan["memory"], memory["expected"]):
        held = [v for k, v in parts.items() if k.endswith("_bytes") and k != "total_bytes"]
        assert math.fsum(held) == pytest.approx(parts["total_bytes"])
    held = [v for k, v in tuned["expected"].items() if k.endswith("_bytes") and k != "host_bytes"]
    assert math.fsum(held) == pytest.approx(tuned["peak_bytes"])
    run = plan["run"]
    assert run["gpu_hours"] == pytest.approx(24 * run["expected_days"] * plan["n_gpus"])
    assert run["usd"] == pytest.approx(run["gpu_hours"] * run["usd_per_gpu_hour"])
    assert plan["bill"]["charge"]["usd"] == pytest.approx(run["usd"])


@pytest.mark.parametrize(("model", "method"), [("llama3-8b", "lora"), ("phi4", "full")])
def test_memory_says_what_a_fine_tuning_plan_says(model, method):
    found = asked(f"plan {model} --cluster dgx-h100 --gpus 8 --method {method}")["result"]
    c = found["chosen"]
    pins = f"--zero {c['zero_stage']} --micro-batch {c['micro_batch_size']}"
    pins += f" --global-batch {c['global_batch_size']} --recompute {c['recompute']}"
    line = f"memory {model} --cluster dgx-h100 --gpus 8 --method {method} --software"
    memory = asked(f"{line} {c['software']} {pins}")["result"]
    for key in ("peak_bytes", "step_s", "capacity_bytes"):
        assert memory[key] == pytest.approx(found[key] if key in found else c[key], rel=1e-9)


@pytest.mark.parametrize("more", ["", " --engine split", " --critic qwen2.5-7b"])
def test_memory_says_what_a_plan_of_rl_says(more):
    line = f"llama3-8b --cluster dgx-h100 --gpus 16 --method ppo --response 1k{more}"
    plan, memory = (asked(f"{command} {line}")["result"] for command in ("plan", "memory"))
    assert plan["fits"] == memory["fits"]
    for key in ("step_s", "peak_bytes", "tokens_per_s"):
        assert memory[key] == pytest.approx(plan[key], rel=1e-9)


@pytest.mark.parametrize("more", ["", " --method lora", " --serve"])
def test_a_larger_model_sequence_or_batch_never_needs_less(more):
    def total(model, seq, batch):
        flag = "--concurrency" if more == " --serve" else "--micro-batch"
        length = "--context" if more == " --serve" else "--seq-len"
        line = f"memory {model} --cluster dgx-h100 --gpus 8{more} {length} {seq} {flag} {batch}"
        result = asked(line)["result"]
        return result["peak_bytes"]

    base = total("qwen3-8b", 4096, 1)
    assert total("qwen3-14b", 4096, 1) > base
    assert total("qwen3-8b", 8192, 1) >= base
    assert total("qwen3-8b", 4096, 4) >= base


def test_nics_of_plan_are_settings_and_end_at_the_slot():
    short = asked("plan llama3-8b --gpu a100 --gpus 16 --nics 2 --link 100Gb/s --micro-batch 1")
    long = asked(
        "plan llama3-8b --gpu a100 --gpus 16 --micro-batch 1 --set cluster.nics_per_node=2",
        "--set",
        "cluster.node_egress_bytes_per_s=25 GB/s",
    )
    assert short["result"]["step_s"] == long["result"]["step_s"]
    # 3 x 8 A100, four ports of 200 Gb/s a node: 96 GB/s at most (NVIDIA/nccl-tests issue 119)
    line = "collective all-reduce dgx-a100-40gb --gpus 24 --bytes 128MB"
    four = [asked(line, *w.split()) for w in ("--nics 4", "--set cluster.nics_per_node=4")]
    rate = [a["result"]["expected"]["busbw_bytes_per_s"] for a in four]
    assert rate[0] == rate[1] == pytest.approx(96e9, rel=0.2)
    # one H100 a node, four NICs of 400 Gb/s: 50 GB/s measured (NVIDIA/nccl-tests issue 232)
    done = invoke(
        *"collective all-reduce h100 --gpus 2 --gpus-per-node 1 --nics 4 --link 400Gb/s "
        "--bytes 16GB --json".split()
    )
    answer = json.loads(done.stdout)
    assert answer["result"]["expected"]["busbw_bytes_per_s"] == pytest.approx(50e9, rel=0.05)
    assert "PCIe slots" in answer["warnings"][0]


def test_a_ring_between_nodes_is_said_beside_the_tree():
    # two p4d: 78 GB/s of bus bandwidth by the tree (aws-samples), at most 50 by what 4 NICs carry
    done = invoke(*"collective all-reduce aws-p4d --gpus 16 --bytes 4GB".split())
    row = next(line for line in done.stdout.splitlines() if line.startswith("as a ring"))
    assert 40 < float(row.split()[3]) < 50


SERVED = "serve llama3-70b --cluster aws-p5en --gpus 1 --concurrency 32 --tp 1"


@pytest.mark.parametrize("engine", ["trtllm", "vllm", "sglang"])
def test_more_memory_serves_as_much_where_the_engines_own_settings_begin_to_hold(engine):
    """Its own settings hold one request at last, where tight ones held twenty."""
    rates, seen = [], set()
    for gb in (146, 150, 154, 157, 160, 170, 185):
        line = f"{SERVED} --chunk 8192 --engine {engine} --set gpu.hbm_bytes={gb}GB"
        answer = asked(line)
        rates.append(answer["result"].get("output_tokens_per_s", 0.0))
        seen |= {w.partition(":")[0] for w in answer["warnings"] if "own settings" in w}
    assert all(b >= a * 0.99 for a, b in zip(rates, rates[1:], strict=False)), rates
    assert len(seen) > 1, seen  # no room, and room for some


def test_a_chunk_set_by_hand_is_kept_where_memory_is_tight():
    answer = asked(f"{SERVED} --chunk 4096 --engine trtllm --set gpu.hbm_bytes=152GB --show launch")
    assert "95 % of the memory, 4,096 tokens a pass" in " ".join(answer["warnings"])
    assert "4096" in answer["result"]["launch"][0]


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_a_larger_card_is_offered_no_way_that_does_not_fit(factor):
    """170.1 GB of 169.9 fits by what is expected and not by the verdict: it is passed over."""
    where = "dgx-a100"
    line = f"plan llama3-70b --cluster {where} --gpus 1 --method dora --fit expected"
    old, new = asked(line), asked(line, *better(where, "all", factor))
    assert old["result"]["fits"] and new["result"]["fits"]
    assert new["result"]["tokens_per_s"] > old["result"]["tokens_per_s"]
