import math
from collections import defaultdict

import pytest

from gpuscale.evidence.rows.measurements import read_rows
from gpuscale.evidence.rows.serving import framework_of, served_model, served_row
from gpuscale.evidence.score.inference import own_inference, predict_inference_rows
from gpuscale.evidence.score.records import quantile, summarise, unpredicted
from gpuscale.io.serving import serving_intervals


@pytest.fixture(scope="module")
def scored():
    return predict_inference_rows(own_inference())


def test_every_printed_quantity_is_predicted(scored):
    assert len(scored) == 1995 and not unpredicted(scored)


def test_development_error(scored):
    limits = {"tpot_ms": 0.14, "throughput_tok_s": 0.13, "ttft_ms": 0.32}
    for quantity, median in limits.items():
        s = summarise([r for r in scored if r.quantity == quantity])
        assert s.median_frac < median, quantity


def test_about_four_in_five_rows_lie_in_the_80_percent_interval(scored):
    assert 0.78 <= summarise(scored).coverage_frac <= 0.82


def test_shipped_intervals_are_those_of_the_rows(scored):
    table = serving_intervals()
    rows = read_rows(own_inference())
    kinds = [served_row(row, i) for i, row in enumerate(rows, 1)]
    by_id = {k.id: f"{k.kind}/{k.classes['dense_or_moe']}" for k in kinds}
    errors = defaultdict(list)
    for r in scored:
        errors[f"{by_id[r.id]}/{r.quantity}"].append(abs(math.log(r.ratio)))
    for name, found in errors.items():
        assert table[name] == pytest.approx(quantile(found, 0.8), abs=2e-3), name


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
        ("Llama-3.3-70B", "llama3.1-70b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b"),
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


def test_frameworks():
    assert framework_of("SGLang 0.5.6") == "sglang" and framework_of("") == "trtllm"


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
