import json

import pytest
from running import invoke

from gpuscale.answers.validate.served import predict_inference_rows
from gpuscale.answers.validate.served_rows import _drafts, _weights, engine_of, serve_asked
from gpuscale.errors import GpuscaleError
from gpuscale.io.models import load_model

PUBLISHED = [  # TensorRT-LLM perf-overview.md@00f37686aa85, output tokens/s
    (
        {
            "model": "Llama-3.1-405B",
            "gpu": "H200-SXM-141GB",
            "tp": "8",
            "precision": "fp8",
            "input_len": "2048",
            "output_len": "2048",
        },
        2948.0,
    ),
    (
        {
            "model": "Llama-3.3-70B",
            "gpu": "GB200",
            "tp": "1",
            "precision": "fp4",
            "input_len": "1000",
            "output_len": "1000",
        },
        7326.0,
    ),
    (
        {
            "model": "Llama-3.1-8B",
            "gpu": "H200-SXM-141GB",
            "tp": "1",
            "precision": "fp8",
            "input_len": "2048",
            "output_len": "2048",
        },
        12194.0,
    ),
    (  # its script has attention ranks, its table calls them TP
        {
            "model": "Qwen3-235B-A22B",
            "gpu": "H100-SXM-80GB",
            "n_gpus": "8",
            "tp": "8",
            "precision": "fp8",
            "input_len": "1000",
            "output_len": "1000",
            "note": "MoE runs may use attention DP",
        },
        14898.0,
    ),
]


@pytest.mark.parametrize(("row", "measured"), PUBLISHED)
def test_published_throughputs(row, measured):
    (line,) = predict_inference_rows(
        [{**row, "framework": "tensorrt_llm 1.0", "throughput_tok_s": str(measured)}]
    )
    assert line.predicted == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-v3"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("Llama-3.3-70B", "llama3.3-70b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b"),
        ("Llama-3.1-8B Q4_K_M", "llama3.1-8b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)
def test_names_of_models(name, preset):
    assert load_model(name).spec.name == preset


@pytest.mark.parametrize("name", ["acme/Foo-397B-A17B", "acme/Foo-13B-chat", "Llama-3.1-8B-Gated"])
def test_an_unknown_model_is_never_scored_as_another(name):
    with pytest.raises(GpuscaleError, match=r"unknown model|no preset of this name"):
        serve_asked({**SERVED, "model": name})


def test_a_row_says_what_the_cache_held():
    """In its own column: "requests " in a note says nothing of it."""
    told = [{"cache": "empty", "note": "80 requests of one length"}, {"note": "another seed"}]
    found = predict_inference_rows([{**SERVED, "tpot_ms": "9", **more} for more in told])
    assert [line.classes["cache"] for line in found] == ["empty", "not recorded"]


def test_engines_and_their_versions():
    assert engine_of({"framework": "SGLang 0.5.6"}) == ("sglang:0.5.6", [])
    assert engine_of({"framework": "llama.cpp b3622"})[0] == "llamacpp"
    of_day = {"framework": "sglang", "note": "date 2026-02-12; median latencies"}
    assert engine_of(of_day)[0] == "sglang:2026-02-12"
    assert engine_of({"framework": "atom (ROCm)"})[1]
    with pytest.raises(GpuscaleError, match="unknown engine"):
        engine_of({"framework": "own server"})


def test_formats_of_files():
    assert _weights({"precision": "int4 (Q4_K_M, 4.85 bit)"}, "bf16") == "q4_k_m"
    assert _weights({"precision": "fp4"}, "mxfp4") is None
    assert _weights({"precision": "fp8", "model": "Qwen3-32B-FP8"}, "bf16") == "fp8-block"
    row = {**SERVED, "precision": "bf16", "note": "KV cache fp8; x"}
    assert serve_asked(row)[0]["kv"] == "fp8"


def test_drafts_are_read_or_assumed():
    given = {"draft": "mtp:3", "accept": "0.8,0.6"}
    assert _drafts({"spec": "mtp", "accepted": "0.8, 0.6"}, True) == (given, [])
    assert _drafts({"spec": "mtp:1", "accepted": "1.85"}, True)[0]["accept"] == "1.85"
    assert _drafts({"spec": "none"}, True) == ({}, [])
    assert _drafts({"spec": "mtp"}, True)[1]


def test_what_scripts_set_and_rows_do_not_print_is_asked():
    """dsr1_fp8_b200_trt_mtp.sh: (3 + 1) * 32 + 1024 + 127 tokens of a pass, in blocks of 64."""
    row = {
        **SERVED,
        "model": "DeepSeek-R1",
        "gpu": "B200",
        "n_gpus": "8",
        "tp": "8",
        "precision": "fp8",
        "input_len": "1024",
        "concurrency": "32",
        "spec": "mtp",
        "framework": "trtllm 1.2.0rc6",
        "source": "InferenceX-app: benchmarks",
    }
    assert serve_asked(row)[0]["chunk"] == "1216"
    plain = {**row, "spec": "none"}
    assert serve_asked(plain)[0]["chunk"] == "8192"
    assert serve_asked({**plain, "input_len": "8192"})[0]["chunk"] == "8320"
    sglang = serve_asked({**row, "framework": "sglang 0.5.9"})[0]
    assert (sglang["draft"], sglang["no_deepgemm"]) == ("mtp:2", "true")
    assert "chunk" not in serve_asked({**row, "source": "another"})[0]


def test_pools_of_a_disaggregated_row():
    text = "prefill 2 workers x tp8 ep8 dpa True (16 GPUs), decode 1 workers x tp32 ep32 dpa False"
    row = {
        **SERVED,
        "model": "DeepSeek-R1",
        "gpu": "GB200",
        "n_gpus": "48",
        "mode": "disaggregated",
        "prefill_layout": text + " (32 GPUs)",
    }
    assert serve_asked(row)[0]["disagg"] == "2xDPA8-EP8+1xTP32-EP32"
    source = {"source": "InferenceX-app: benchmarks", "framework": "dynamo sglang v0.5.8"}
    plain = serve_asked({**row, **source, "gpu": "B200", "precision": "fp8"})[0]
    assert plain["no_deepgemm"] == "true"
    whole = {
        **row,
        **source,
        "gpu": "B200",
        "prefill_layout": text.replace("ep8", "ep1") + " (32 GPUs)",
    }
    assert "no_deepgemm" not in serve_asked({**whole, "precision": "fp8"})[0]
    assert serve_asked({**row, **source, "gpu": "H100"})[0]["no_deepep"] == "true"
    with pytest.raises(GpuscaleError, match="pools are not printed"):
        serve_asked({**row, "prefill_layout": ""})


SERVED = {
    "model": "Llama-3.1-8B",
    "gpu": "H100",
    "n_gpus": "1",
    "tp": "1",
    "precision": "fp8",
    "input_len": "100",
    "output_len": "100",
    "concurrency": "4",
    "tpot_ms": "5",
}


def test_a_row_is_what_the_command_prints():
    (line,) = predict_inference_rows([SERVED])
    words = "--gpu h100-sxm --gpus 1 --tp 1 --weights fp8 --input 100 --output-len 100"
    done = invoke("serve", "llama3.1-8b", *words.split(), "--concurrency", "4", "--json")
    answer = json.loads(done.stdout)["result"]
    assert line.predicted == pytest.approx(answer["tpot_mean_s"] * 1e3)
    assert line.low == pytest.approx(answer["tpot_low_s"] * 1e3)
    assert line.high == pytest.approx(answer["tpot_high_s"] * 1e3)


def test_rows_that_cannot_be_predicted_are_named():
    row = SERVED
    rows = predict_inference_rows(
        [
            row,
            {**row, "model": "mystery"},
            {**row, "gpu": "abacus"},
            {**row, "input_len": "nan"},
            {**row, "tpot_ms": "", "concurrency": "1e300"},
        ]
    )
    assert rows[0].predicted > 0 and rows[0].reason == ""
    assert [r.predicted for r in rows[1:4]] == [None] * 3
    assert [r.reason.split(":")[0] for r in rows[1:4]] == [
        "unknown model preset `mystery`",
        "unknown GPU `abacus`",
        "no lengths, and the data set is unknown",
    ]
    assert rows[4].quantity == "throughput_tok_s" and rows[4].reason == "no measured value"


def test_every_hardware_and_precision_gives_a_number():
    for gpu in ("A100", "MI300X", "L40S", "B300", "H20", "RTX 4090", "Gaudi 3", "TPU v5e"):
        for precision in ("", "fp8", "fp4", "int4", "int8"):
            row = {
                "model": "Llama-3.1-8B",
                "gpu": gpu,
                "tp": "2",
                "precision": precision,
                "input_len": "500",
                "output_len": "100",
                "concurrency": "8",
                "ttft_ms": "1",
                "tpot_ms": "1",
            }
            for line in predict_inference_rows([row]):
                assert line.predicted and line.predicted > 0, (gpu, precision, line.reason)
