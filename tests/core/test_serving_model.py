"""Physics of the expected serving model."""

from dataclasses import replace

import pytest

from gpuscale.core.serving.forward import most_sequences, pass_time
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.records import Batch, PassTime, Replica
from gpuscale.core.serving.replica import ServingJob, serving_times
from gpuscale.core.serving.service import Service
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import load_framework, serving_site

MODELS = ("llama3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "nemotron-h-56b")
EIGHT = Replica(tp=8)


@pytest.fixture(scope="module")
def site():
    return serving_site(load_cluster("dgx-h200"))


def spec(name):
    return load_model(name).spec


def decode_s(model, replica, site, n, context=2000.0):
    return pass_time(model, replica, site, Batch(sequences=n, context=context)).total_s


@pytest.mark.parametrize("name", MODELS)
def test_parts_add_up_and_are_not_negative(site, name):
    for batch in (Batch(sequences=8, context=900), Batch(2048, 1024, 1), Batch(512, 256, 1, 8, 9)):
        t = pass_time(spec(name), EIGHT, site, batch)
        parts = [getattr(t, field) for field in PassTime.__slots__]
        assert min(parts) >= 0 and t.total_s == pytest.approx(sum(parts))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [1, 16, 256])
def test_ideal_is_a_lower_bound(site, name, n):
    model = spec(name)
    job = ServingJob(context_tokens=2000, concurrency=n)
    ideal = serving_times(model, job, 8, 1, site.hbm_bytes_per_s, site.peaks["bf16"])
    assert ideal.decode_s <= decode_s(model, EIGHT, site, n)
    prefill = pass_time(model, EIGHT, site, Batch(2000, 1000, 1)).total_s
    assert ideal.prefill_s <= prefill


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("field", ["hbm_bytes_per_s", "scaleup_bytes_per_s"])
def test_more_bandwidth_never_slows(site, name, field):
    faster = replace(site, **{field: 1.5 * getattr(site, field)}, memo={})
    for batch in (Batch(sequences=32, context=4000), Batch(4096, 2048, 1)):
        before = pass_time(spec(name), EIGHT, site, batch).total_s
        assert pass_time(spec(name), EIGHT, faster, batch).total_s <= before * (1 + 1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_batch_takes_longer_and_yields_more(site, name):
    times = [decode_s(spec(name), EIGHT, site, n) for n in (1, 4, 16, 64, 256)]
    assert times == sorted(times)
    rates = [n / t for n, t in zip((1, 4, 16, 64, 256), times, strict=True)]
    assert rates == sorted(rates)


def test_a_longer_context_costs_decode_time_except_for_state_and_windows(site):
    assert decode_s(spec("llama3.1-70b"), EIGHT, site, 64, 8000) > 1.2 * decode_s(
        spec("llama3.1-70b"), EIGHT, site, 64, 1000
    )
    windowed = spec("gpt-oss-120b")
    layer = {k: m for k, m in windowed.mixers.items() if getattr(m, "window_tokens", None)}
    only = windowed.model_copy(
        update={"mixers": {k: next(iter(layer.values())) for k in windowed.mixers}}
    )
    only.__dict__.pop("layer_groups", None)
    assert decode_s(only, EIGHT, site, 64, 8000) == decode_s(only, EIGHT, site, 64, 1000)


@pytest.mark.parametrize("n", [1, 32])
def test_narrow_weights_decode_faster(site, n):
    model = spec("llama3.1-70b")
    wide = decode_s(model, EIGHT, site, n)
    fp8 = Replica(tp=8, ffn_format="fp8", attention_format="fp8", kv_format="fp8")
    int4 = Replica(tp=8, ffn_format="int4", attention_format="int4", kv_format="fp8")
    assert decode_s(model, fp8, site, n) < wide
    assert decode_s(model, int4, site, n) < wide


def test_a_narrow_format_that_the_gpu_lacks_is_read_narrow_and_multiplied_in_bf16():
    a100 = serving_site(load_cluster("dgx-a100"))
    fp8 = Replica(tp=8, ffn_format="fp8", attention_format="fp8")
    model = spec("llama3.1-70b")
    assert decode_s(model, fp8, a100, 1) < decode_s(model, EIGHT, a100, 1)


def test_few_tokens_meet_few_experts(site):
    model = spec("deepseek-v3")
    one = pass_time(model, EIGHT, site, Batch(sequences=1, context=100)).experts_s
    many = pass_time(model, EIGHT, site, Batch(sequences=256, context=100)).experts_s
    assert 10 * one < many < 64 * one


def test_pipeline_and_data_parallel_attention(site):
    model = spec("deepseek-v3")
    formats = {"ffn_format": "fp8-block", "attention_format": "fp8-block", "kv_format": "fp8"}
    tp, dp = Replica(tp=8, **formats), Replica(1, 1, 8, 8, **formats)
    # the latent cache has one copy per GPU: data-parallel attention holds far more sequences
    assert most_sequences(model, dp, site, 8000) > 3 * most_sequences(model, tp, site, 8000)
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 500))
    two = Service(model, Replica(tp=4, pp=2, **formats), site, demand).closed(64, 128)
    assert two.output_tokens_per_s > 0 and two.tpot.mean_s > 0


def test_frameworks_differ_in_chunks():
    assert load_framework("vllm").mixed and not load_framework("sglang").mixed
