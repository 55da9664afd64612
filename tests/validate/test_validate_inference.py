from collections import Counter

import pytest

from gpuscale.evidence.rows.served_names import drafts_of, formats, framework_of, served_model
from gpuscale.evidence.rows.serving import served_row
from gpuscale.evidence.score.inference import own_inference, predict_inference_rows
from gpuscale.io.tables import read_rows


def test_every_row_is_predicted_or_named():
    left = [found for found in map(served_row, read_rows(own_inference()), range(1, 1377))]
    reasons = Counter(found for found in left if isinstance(found, str))
    assert reasons == {
        "no lengths, and the data set is unknown": 10,
        "a decode pool, and its batch is not printed": 1,
    }


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
]


@pytest.mark.parametrize(("row", "measured"), PUBLISHED)
def test_published_throughputs_lie_in_the_interval(row, measured):
    (line,) = predict_inference_rows([{**row, "throughput_tok_s": str(measured)}])
    assert line.low <= measured <= line.high


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
    model, _ = served_model(name)
    assert model.name == preset


def test_a_model_known_by_its_size_is_assumed_with_a_note():
    model, note = served_model("acme/Foo-13B-chat")
    assert model is not None and "13" in note.replace(".", "") or "1.3e+10" in note


@pytest.mark.parametrize("name", ["acme/Foo-397B-A17B", "acme/Foo-8x7B", "Llama-3.1-8B-Gated"])
def test_an_unknown_model_is_never_scored_as_another(name):
    model, why = served_model(name)
    assert model is None and why


def test_frameworks():
    assert framework_of("SGLang 0.5.6") == ("sglang", "")
    assert framework_of("llama.cpp b3622")[0] == "llamacpp"
    assert framework_of("")[0] == "trtllm" and framework_of("atom (ROCm)")[1]


def test_formats_of_files():
    model, _ = served_model("Llama-3.1-8B")
    found = formats({"precision": "int4 (Q4_K_M, 4.85 bit)"}, model, "llamacpp")
    assert found == ("q4_k_m", "q4_k_m", "bf16")
    assert formats({"precision": "bf16", "note": "KV cache fp8; x"}, model, "vllm")[2] == "fp8"


def test_drafts_are_read_or_assumed():
    model, _ = served_model("deepseek-ai/DeepSeek-R1")
    given, printed = drafts_of({"spec": "mtp", "accepted": "0.8, 0.6"}, model, 1)
    assert printed and given.accepted == pytest.approx(0.8 + 0.48 + 0.8 * 0.6 * 0.6)
    mean, printed = drafts_of({"spec": "mtp:1", "accepted": "1.85"}, model, 16)
    assert printed and mean.n_tokens == 1 and mean.accepted == pytest.approx(0.85)
    assert drafts_of({"spec": "none"}, model, 1) == (None, True)
    assumed, printed = drafts_of({"spec": "mtp"}, model, 1)
    assert not printed and 1.5 < 1 + assumed.accepted < 4


def test_pools_of_a_disaggregated_row():
    text = "prefill 2 workers x tp8 ep8 dpa True (16 GPUs), decode 1 workers x tp32 ep32 dpa False"
    row = {
        "model": "DeepSeek-R1",
        "gpu": "GB200",
        "n_gpus": "48",
        "mode": "disaggregated",
        "input_len": "8192",
        "output_len": "1024",
        "concurrency": "256",
        "prefill_layout": text + " (32 GPUs)",
    }
    (pools,) = served_row(row, 1).pools
    (prefill, n_prefill), (decode, n_decode) = pools
    assert n_prefill * prefill.n_gpus + n_decode * decode.n_gpus == 48
    assert (prefill.dp_attention, n_prefill) == (8, 2)
    assert (decode.tp, decode.ep) == (32, 32)
    assert "pools are not printed" in served_row({**row, "prefill_layout": ""}, 1)


def test_rows_that_cannot_be_predicted_are_named():
    row = {
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
        "unknown model 'mystery'",
        "unknown GPU 'abacus'",
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
