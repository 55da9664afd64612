"""`gpuscale memory` as people call it."""

import json
import math
import shlex

import pytest

from gpuscale.answers.training.asked import Memory
from gpuscale.cli.app import run
from gpuscale.io.software import load_software


def out(capsys, *args):
    code = run(("memory", *args))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def result(capsys, *args):
    code, text, _ = out(capsys, *args, "--json")
    return code, json.loads(text)["result"]


def test_llama3_70b_tp8_pp8_fits(capsys):
    code, text, err = out(capsys, "llama3-70b", "--cluster", "dgx-h100", "--tp", "8", "--pp", "8")
    assert (code, err) == (0, "")
    for word in (
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "fragmentation",
        "total",
        "ideal",
        "expected",
        "fits",
        "usable",
        "GiB",
    ):
        assert word in text


def test_llama3_70b_tp8_pure_dp_does_not_fit(capsys):  # Quiz 5 Q2.3: 87.5 GB against 80
    code, r = result(
        capsys,
        "--params",
        "70e9",
        "--recipe",
        "book-min",
        "--tp",
        "8",
        "--gpu",
        "h100",
        "--catalogue",
        "documents",
    )
    assert code == 1
    assert r["peak_bytes"] == 87.5e9
    assert r["hbm_bytes"] == 80e9
    assert (r["n_gpus_to_hold"], r["n_nodes_to_hold"]) == (9, 2)
    code, r = result(
        capsys, "llama3-70b", "--tp", "8", "--dp", "64", "--recipe", "book-min", "--zero", "0"
    )
    assert code == 1
    assert r["expected"]["weights_bytes"] + r["expected"]["optimizer_bytes"] == pytest.approx(
        70.55e9 * 10 / 8, rel=2e-3
    )


@pytest.mark.parametrize(
    ("zero", "want"), [(0, 120e9), (1, 31.40625e9), (2, 16.640625e9), (3, 1.875e9)]
)
def test_zero_paper_figure_1(capsys, zero, want):
    code, r = result(capsys, "--params", "7.5e9", "--zero", str(zero), "--dp", "64")
    assert r["peak_bytes"] == want
    assert code == (0 if want < 85e9 else 1)


def test_gpt3_on_512_v100(capsys):  # errata E8
    code, text, _ = out(
        capsys,
        "gpt3-175b",
        "--cluster",
        "dgx1-v100",
        "--tp",
        "8",
        "--gpus",
        "512",
        "--precision",
        "fp16",
        "--recompute",
        "full",
    )
    assert code == 1
    assert "does not fit" in text
    assert "smallest number of GPUs" in text
    _, r = result(capsys, "--params", "175e9", "--tp", "8", "--gpu", "v100")
    assert r["states"]["weights_bytes"] == 43.75e9 > r["hbm_bytes"]


@pytest.mark.parametrize(
    ("weights", "catalogue", "cards"),
    [
        ("bf16", "documents", 17),
        ("fp8", "documents", 9),
        ("bf16", "vendor", 16),
        ("fp8", "vendor", 8),
    ],
)
def test_671b_weights(capsys, weights, catalogue, cards):  # errata E25, E34
    _, r = result(
        capsys,
        "--serve",
        "--params",
        "671e9",
        "--weights",
        weights,
        "--gpu",
        "h100",
        "--catalogue",
        catalogue,
    )
    assert r["n_gpus_to_hold"] == cards


def test_an_apple_machine_serves_the_files_that_its_engine_takes(capsys):
    """`llama-server -hf` takes Q4_K_M, as `serve` says; 16 bits where somebody asks."""
    own = result(capsys, "qwen3-8b", "--serve", "--gpu", "m5-max")[1]
    wide = result(capsys, "qwen3-8b", "--serve", "--gpu", "m5-max", "--weights", "bf16")[1]
    assert own["peak_bytes"] < wide["peak_bytes"] - 10e9


def test_an_engine_given_less_memory_holds_fewer_tokens(capsys):
    """As many bytes less for the cache as the share is less of what a process can have."""
    usual, half = (
        result(capsys, "llama3-8b", "--serve", "--gpu", "h100-sxm", *more)[1]
        for more in ((), ("--memory-frac", "0.5"))
    )
    each = usual["per_gpu"]["kv_bytes_per_sequence_per_gpu"] / usual["context_tokens"]
    fewer = usual["per_gpu"]["cache_tokens"] - half["per_gpu"]["cache_tokens"]
    assert fewer * each == pytest.approx(0.42 * usual["capacity_bytes"], rel=0.01)
    assert half["said_by"]["memory_frac"] == "--memory-frac"


def test_671b_served_on_16_cards(capsys):
    common = ("deepseek-v3", "--serve", "--tp", "8", "--pp", "2")
    code, r = result(capsys, *common, "--weights", "bf16")
    assert (code, r["fits"]) == (1, False)
    code, r = result(
        capsys,
        *common,
        "--weights",
        "fp8",
        "--kv",
        "fp8",
        "--context",
        "8192",
        "--concurrency",
        "64",
    )
    assert (code, r["fits"]) == (0, True)
    assert r["kv_bytes_per_token"] == 35136
    assert r["fewest"]["n_gpus"] == 16


def test_stages_and_min_gpus(capsys):
    given = ("llama3-8b", "--pp", "4", "--seq-len", "4096")
    code, text, _ = out(capsys, *given, "--stages", "--min-gpus")
    assert code == 0
    assert "stages, GB per GPU" in text
    assert "smallest number of GPUs" in text
    code, r = result(capsys, "llama3-8b", "--pp", "4")
    assert len(r["stages"]) == 4
    assert sum(s["n_layers"] for s in r["stages"]) == 32
    totals = [
        sum(v for k, v in s.items() if k.endswith("_bytes") and k != "total_bytes")
        for s in r["stages"]
    ]
    assert r["peak_bytes"] == pytest.approx(max(totals))


def test_hsdp_and_offload(capsys):
    _, group = result(capsys, "--params", "7e9", "--zero", "3", "--dp", "128", "--shard-group", "8")
    assert group["peak_bytes"] == 14e9  # lecture notes: 16 P / K
    _, kept = result(capsys, "llama3-8b", "--dp", "8")
    _, moved = result(capsys, "llama3-8b", "--dp", "8", "--offload", "optimizer")
    gone = kept["expected"]["master_bytes"] + kept["expected"]["optimizer_bytes"]
    assert moved["expected"]["optimizer_bytes"] == moved["expected"]["master_bytes"] == 0
    assert kept["allocated_bytes"] - moved["allocated_bytes"] == pytest.approx(gone)


def test_what_if_is_said(capsys):
    code, text, _ = out(capsys, "llama3-70b", "--tp", "8", "--set", "gpu.hbm_bytes=2 TB")
    assert code == 0
    assert "changed: " in text


def evaluate(term):
    names = {**vars(math), "max": max, "min": min, **term.inputs}
    if term.formula:
        assert eval(term.formula, {}, names) == pytest.approx(term.value, rel=1e-9), term.name
    assert term.source, term.name
    for child in term.children:
        evaluate(child)


@pytest.mark.parametrize(
    "given",
    [
        {"model": "deepseek-v3", "ep": "8", "dp": "16", "zero": "3"},
        {"model": "llama3-8b", "schedule": "dualpipe", "pp": "4", "software": "any"},
        {"params": "70e9", "tp": "8", "zero": "2", "dp": "4"},
        {"model": "llama3-8b", "serve": True, "concurrency": "9"},
        {"params": "671e9", "serve": True, "weights": "fp8"},
    ],
)
def test_terms_evaluate(given):
    document = Memory(**given).answer()
    assert document.terms
    for term in document.terms:
        evaluate(term)


def test_terms_have_the_inputs_of_the_formula():
    """Bytes per parameter are the recipe's, layers are counted: nothing is solved back."""
    given = {"model": "deepseek-v3", "dp": "8", "pp": "8", "ep": "8", "recompute": "full"}
    document = Memory(**given, recompute_layers="3", software="megatron-core").answer()
    total, *others = document.terms
    terms = {term.name: term.inputs for term in (*total.children, *others)}
    recipe = load_software("megatron-core").memory
    for part in ("weights_bytes", "gradients_bytes", "master_bytes", "optimizer_bytes"):
        assert terms[part]["bytes_per_param"] == getattr(recipe, part)
    kept = terms["activations_bytes"]
    assert kept["layers_1"] + kept.get("layers_2", 0) == 8
    assert kept["recomputed_frac"] == 3 / 8
    assert kept["in_flight"] == document.result.expected.in_flight_micro_batches
    assert terms["capacity_bytes"]["reserved_frac"] == 0.011


BAD = [
    ((), "give a model or --params"),
    (("llama3-70b", "--params", "70e9"), "give a model or --params"),
    (("llama3-70c",), "unknown model"),
    (("llama3-70b", "--tp", "0"), "--tp must be"),
    (("llama3-70b", "--tp", "-8"), "--tp must be"),
    (("llama3-70b", "--tp", "nan"), "--tp"),
    (("llama3-70b", "--tp", "1e300"), "--tp"),
    (("llama3-70b", "--tp", "7"), "does not divide 64 heads"),
    (("llama3-70b", "--pp", "83"), "more than 80 layers"),
    (("llama3-70b", "--vpp", "2"), "interleaved needs pp > 1"),
    (("llama3-70b", "--ep", "2"), "need a model with experts"),
    (("deepseek-v3", "--ep", "3", "--dp", "3"), "does not divide 256 experts"),
    (("llama3-70b", "--gpus", "12", "--tp", "8"), "no multiple"),
    (("llama3-70b", "--zero", "4"), "--zero must be"),
    (("llama3-70b", "--recipe", "mixed-adan"), "unknown recipe"),
    (("llama3-70b", "--recompute", "half"), "unknown recompute"),
    (("llama3-70b", "--precision", "fp12"), "unknown precision"),
    (("llama3-70b", "--software", "my-own"), "unknown software"),
    (("llama3-70b", "--seq", "0"), "--seq-len must be"),
    (("llama3-70b", "--weights", "fp8"), "--weights needs --serve"),
    (("llama3-70b", "--serve", "--zero", "3"), "no meaning with --serve"),
    (("llama3-70b", "--serve", "--weights", "fp7"), "unknown --weights format"),
    (("llama3-70b", "--serve", "--context", "-1"), "--context must be"),
    (("llama3-70b", "--serve", "--concurrency", "0.5"), "--concurrency must be"),
    (("llama3-70b", "--gpu", "h100", "--cluster", "dgx-h100"), "not both"),
    (("--params", "0"), "--params must be"),
    (("--params", "70e9", "--stages"), "needs a model"),
    (("--params", "70e9", "--vpp", "4"), "needs a model"),
    (("llama3-70b", "--serve", "--seq", "8192"), "no meaning with --serve"),
    (("llama3-70b", "--serve", "--stages"), "no meaning with --serve"),
    (("deepseek-v3", "--balance", "0.5"), "--balance must be"),
    (("--params", "70e9", "--shard-group", "3", "--dp", "8"), "does not divide"),
]


@pytest.mark.parametrize(("args", "message"), BAD)
def test_bad_input_is_one_line(capsys, args, message):
    code, text, err = out(capsys, *args)
    assert (code, text) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_other_formats(capsys, form):
    for args in (("llama3-8b",), ("--params", "8e9"), ("llama3-8b", "--serve")):
        code, text, _ = out(capsys, *args, "--format", form)
        assert code in (0, 1)
        assert "nan" not in text.lower().replace("nanotron", "")
        assert text.strip()


def test_the_peak_has_a_moment(capsys):
    """Whole logits decide where sequences are short of layers' work; recomputed layers else."""
    given = ("llama3-8b", "--gpus", "8", "--seq-len", "8192", "--micro-batch", "1")
    _, whole = result(capsys, *given, "--recompute", "none", "--loss", "eager")
    peaks = whole["peaks"]
    assert next(iter(peaks)) == "loss" and peaks["loss"] == pytest.approx(whole["peak_bytes"])
    assert peaks["loss"] > peaks["backward"] > peaks["evaluation"]
    assert peaks["evaluation"] > peaks["optimizer step and saving"]
    _, fused = result(capsys, *given, "--recompute", "none", "--loss", "fused")
    assert next(iter(fused["peaks"])) == "backward"
    assert fused["peaks"]["backward"] == pytest.approx(fused["peak_bytes"])
    code, text, _ = out(capsys, *given, "--recompute", "none", "--loss", "eager")
    assert "at loss: " in text


def test_the_setting_that_decides_is_asked_for(capsys):
    """The loss kernel, with what it decides; nothing once it is said."""
    given = ("llama3-8b", "--gpus", "8", "--seq-len", "8192", "--micro-batch", "2", "--zero", "3")
    given += ("--recompute", "full", "--software", "torchtitan")
    code, r = result(capsys, *given, "--gpu", "a100-40gb")
    assert r["decides"].startswith("--loss: ") and r["decides"].endswith(" with eager")
    code, r = result(capsys, *given, "--gpu", "a100-40gb", "--loss", "chunked")
    assert r["decides"] == ""


def test_a_model_is_taken_at_its_own_length(capsys):
    """As it was pretrained, where that is published, and the answer says so."""
    for name, tokens in (("deepseek-v3", 4096), ("gemma3-27b", 32768), ("llama3-8b", 8192)):
        _, r = result(capsys, name, "--gpus", "64")
        assert r["layout"]["seq_len"] == tokens
        own = f"sequences of {tokens:,}, as it was pretrained (--seq-len)"
        assert (own in r["taken"]) == (tokens != 8192)


def test_nodes_of_ones_own_are_those_of_the_timeline(capsys):
    asked = ["llama3-8b", "--gpus", "64", "--tp", "2", "--global-batch", "64", "--json"]
    slow = [*asked, "--nics", "1", "--link", "50Gb/s"]
    steps = []
    for line in (["memory", *asked], ["memory", *slow], ["timeline", *slow]):
        assert run(line) == 0
        steps.append(json.loads(capsys.readouterr().out)["result"]["step_s"])
    assert steps[1] > 1.1 * steps[0]
    assert steps[1] == pytest.approx(steps[2], rel=1e-9)


def test_experts_that_nobody_spread_are_an_open_setting(capsys):
    line = ["mixtral-8x7b", "--gpu", "h100-sxm", "--gpus", "16", "--tp", "4"]
    own, said = (result(capsys, *line, *more)[1] for more in ((), ("--etp", "4")))
    _, spread = result(capsys, *line, "--ep", "8")
    assert own["fits_probability"] > 10 * said["fits_probability"]
    assert own["peak_low_bytes"] < spread["peak_bytes"] < said["peak_low_bytes"]
    assert own["decides"].startswith("--ep: ") and spread["layout"]["etp"] == 1


def test_a_slow_port_comes_once_a_node(capsys):
    """ZeRO-3 over 10 Gb/s between two nodes took 22 times a step of one (LLaMA-Factory 5014)."""
    job = "plan llama3-8b --method lora --zero 3 --gpu a100 --micro-batch 1"
    job += " --software llama-factory"

    def step_s(*more):
        run([*job.split(), *more, "--json"])
        answer = json.loads(capsys.readouterr().out)
        return answer["result"]["step_s"], " ".join(answer["warnings"])

    alone, _ = step_s("--gpus", "8")
    slow, told = step_s("--gpus", "16", "--link", "10Gb/s")
    assert "one such --link a node is taken (--nics)" in told and 15 < slow / alone < 60
    assert step_s("--gpus", "16", "--link", "10Gb/s", "--nics", "1") == (slow, "")
    rails, told = step_s("--gpus", "16", "--link", "100Gb/s")
    assert rails < slow / 20 and not told


def test_a_server_without_room_leads_to_gpus_that_hold_it(capsys):
    asked = ("deepseek-r1", "--gpu", "rtx-4090", "--gpus", "1", "--serve")
    code, text, _ = out(capsys, *asked)
    fewest = result(capsys, *asked)[1]["fewest"]["n_gpus"]
    assert code == 1 and fewest > 1
    assert f"gpuscale serve deepseek-r1 --gpu rtx-4090 --gpus {fewest}`" in text


def test_serve_names_as_few_gpus_as_memory_does(capsys):
    machine = "--gpu h100 --gpus 8 --weights bf16".split()
    _, held = result(capsys, "deepseek-v3", *machine, "--serve")
    assert run(["serve", "deepseek-v3", *machine, "--json"]) == 1
    served = json.loads(capsys.readouterr().out)["result"]
    assert served["fewest_gpus"] == held["fewest"]["n_gpus"] == 24


@pytest.mark.parametrize(
    ("asked", "then"),
    [
        (
            "llama1-13b --method lora --base int8 --gpu rtx-3080 --gpus 4 --seq-len 512",
            "plan llama1-13b --method qlora --base int8 --gpu rtx-3080 --gpus 4 --seq-len 512",
        ),
        (
            "llama3-70b --gpus 64 --tp 8 --seq-len 4096 --precision fp8",
            "plan llama3-70b --gpus 64 --precision fp8 --seq-len 4096",
        ),
        (
            "llama3-8b --gpu 'm2 ultra 192gb' --serve --weights q4_k_m --context 8k",
            "serve llama3-8b --gpu 'm2 ultra 192gb' --weights q4_k_m --context 8192",
        ),
    ],
)
def test_what_comes_next_is_asked_of_the_same_job(capsys, monkeypatch, asked, then):
    monkeypatch.setenv("GPUSCALE_SHOW", "")
    _, text, _ = out(capsys, *shlex.split(asked))
    (said,) = (line for line in text.splitlines() if line.startswith("next"))
    assert f"gpuscale {then}  " in said
    assert run(shlex.split(then)) in (0, 1)
