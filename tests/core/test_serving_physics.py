"""Physics of a serving pass: ranks, exchange, drafts, pools, power, memory."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.memory.fit import usable_bytes
from gpuscale.core.model.params import count_params
from gpuscale.core.serving import layouts
from gpuscale.core.serving.disaggregated import prefill_worker
from gpuscale.core.serving.exchange import exchange_s
from gpuscale.core.serving.forward import decode_step, exposed_s, pass_time, side_by_side_s
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.memory import (
    EngineMemory,
    cache_bytes_per_sequence,
    cache_room,
    replica_weight_bytes,
)
from gpuscale.core.serving.power import PowerParameters, energy_per_token_j, gpu_power_w
from gpuscale.core.serving.records import Batch, Drafts, Replica
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.core.serving.traffic import Lengths
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.models import load_model
from gpuscale.io.serving import load_power, load_serving_kernels, serving_site

FP8 = {"ffn_format": "fp8-block", "attention_format": "fp8-block", "kv_format": "fp8"}


@pytest.fixture(scope="module")
def h100():
    return serving_site(load_cluster("dgx-h100"), "sglang")


def spec(name):
    return load_model(name).spec


def memory_of(name):
    gpu = load_gpu(name)
    return usable_bytes(gpu.hbm_bytes, gpu.usable_hbm_bytes)


def cache_tokens(model, replica, engine, device_bytes, tokens=8192.0):
    room = cache_room(model, replica, engine, device_bytes).cache_bytes
    return room / cache_bytes_per_sequence(model, replica, tokens) * tokens


# --- one pass ------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.floats(1.0, 20.0))
def test_host_and_gpu_side_by_side_lie_between_the_longer_and_the_sum(gpu, host, blend):
    both = side_by_side_s(gpu, host, blend)
    assert max(gpu, host) * (1 - 1e-9) <= both <= (gpu + host) * (1 + 1e-9)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_overlap_hides_no_more_than_the_shorter(compute, exchange, overlap):
    added = exposed_s(compute, exchange, overlap)
    assert max(0.0, exchange - compute) - 1e-12 <= added <= exchange + 1e-12


def test_each_attention_rank_has_a_scheduler_of_its_own(h100):
    busy = replace(h100, software=replace(h100.software, host_per_sequence_s=1e-3))
    model = spec("deepseek-v3")
    wide = Replica(1, 1, 8, 8, **FP8)
    few, many = (
        pass_time(model, wide, busy, Batch(sequences=n, context=100)).host_s for n in (64, 512)
    )
    assert many < 0.09 and few < 0.01  # 512 sequences on one scheduler would be 0.5 s


def test_one_prompt_is_read_by_one_rank_and_eight_by_eight(h100):
    model, wide = spec("deepseek-v3"), Replica(1, 1, 8, 8, **FP8)
    one = pass_time(model, wide, h100, Batch(2048, 1024, 1)).linear_s
    eight = pass_time(model, wide, h100, Batch(8 * 2048, 1024, 8, prompt_ranks=8)).linear_s
    assert eight == pytest.approx(one, rel=0.01)


def test_exchange_grows_with_nodes_and_is_limited_by_the_routing(h100):
    ffn = spec("deepseek-v3").ffns["moe"]
    times = [
        exchange_s(ffn, 7168, Replica(1, 1, n, n), h100, 128.0) or 0.0 for n in (8, 16, 32, 72)
    ]
    assert times == sorted(times)
    free = ffn.model_copy(update={"n_route_groups": 0})
    wide = Replica(1, 1, 64, 64)
    assert exchange_s(free, 7168, wide, h100, 4096.0) > exchange_s(ffn, 7168, wide, h100, 4096.0)
    assert exchange_s(ffn, 7168, Replica(), h100, 128.0) is None


# --- drafts --------------------------------------------------------------------------------------


def test_drafts_by_the_formula_of_their_paper():
    # Leviathan 2023, equation 1: (1 - a^(n+1)) / (1 - a) tokens a pass
    assert 1 + Drafts(4, (0.8,)).accepted == pytest.approx((1 - 0.8**5) / 0.2)
    assert Drafts(3, (0.8, 0.6, 0.4)).accepted == pytest.approx(0.8 + 0.48 + 0.192)


def test_drafts_speed_up_one_stream_and_help_less_in_a_large_batch(h100):
    model = spec("deepseek-v3")
    plain, drafted = Replica(8, **FP8), Replica(8, drafts=Drafts(3, (0.8, 0.6, 0.4)), **FP8)
    gain = [
        decode_step(model, plain, h100, n, 2000.0).per_token_s
        / decode_step(model, drafted, h100, n, 2000.0).per_token_s
        for n in (1, 512)
    ]
    assert gain[0] > 1.3 and gain[1] < gain[0]
    never = replace(drafted, drafts=Drafts(3, (0.0,)))
    one = decode_step(model, never, h100, 1, 2000.0)
    assert one.tokens == 1.0 and one.per_token_s > decode_step(model, plain, h100, 1, 2000.0).time_s


# --- pools ---------------------------------------------------------------------------------------


# --- power ---------------------------------------------------------------------------------------


def test_power_lies_between_idle_and_tdp_and_a_token_gets_cheaper():
    p = load_power()
    assert gpu_power_w(700, 0.0, p, 0.0) == pytest.approx(700 * p.idle_frac)
    powers = [gpu_power_w(700, u / 10, p) for u in range(11)]
    assert powers == sorted(powers) and powers[-1] <= 700
    assert energy_per_token_j(8, 500, 100) > 3 * energy_per_token_j(8, 700, 2000)
    assert gpu_power_w(700, 5.0, PowerParameters()) <= 700


# --- memory as engines count it ------------------------------------------------------------------

PRINTED = [  # model, replica, engine, GPU, tokens of the cache, tolerance, source
    (
        "qwen3-235b-a22b",
        Replica(4, ffn_format="fp8-block", attention_format="fp8-block"),
        EngineMemory("device", 0.9, sampler_sequences=1024),
        "h100",
        178_880,
        0.20,
        "vLLM issue 21348",
    ),
    (
        "qwen3-235b-a22b",
        Replica(4, ffn_format="fp8-block", attention_format="fp8-block"),
        EngineMemory("static", 0.93),
        "h100",
        367_404,
        0.10,
        "vLLM issue 21348, SGLang",
    ),
    (
        "qwen2.5-14b",
        Replica(2),
        EngineMemory("device", 0.98, chunk_tokens=2048),
        "rtx-4090",
        81_536,
        0.10,
        "vLLM issue 13061",
    ),
]


FILES = [  # model, format, bytes of the file: llama.cpp, tools/quantize/README.md
    ("llama3.1-8b", "q4_k_m", 4.9e9),
    ("llama3.1-70b", "q4_k_m", 43.1e9),
    ("llama3.1-405b", "q4_k_m", 249.1e9),
    ("llama3.1-8b", "q8_0", 7.95 * 2**30),
    ("llama3.1-8b", "q2_k", 2.95 * 2**30),
]


@pytest.mark.parametrize(("name", "fmt", "file_bytes"), FILES)
def test_gguf_files_have_their_size(name, fmt, file_bytes):
    one = Replica(ffn_format=fmt, attention_format=fmt)
    assert replica_weight_bytes(spec(name), one) == pytest.approx(file_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("name", "repeated"),
    [
        ("qwen3-30b-a3b", 48 * 4 * 2048 * 2 * 128),  # its four KV heads on eight GPUs
        ("deepseek-v3", 61 * 7 * 7168 * (1536 + 576)),  # down projections of queries and keys
        ("deepseek-v3.2", 61 * 7 * (7168 * (1536 + 576) + 7168 * (128 + 64) + 1536 * 64 * 128)),
    ],
)
def test_every_rank_has_the_down_projections_the_indexer_and_a_kv_head(name, repeated):
    """With them R1 leaves 509,331 tokens on 8 H200, where SGLang has about 509k (questions.csv)."""
    model = spec(name)
    one, eight = replica_weight_bytes(model, Replica()), replica_weight_bytes(model, Replica(8))
    assert 8 * eight - one == pytest.approx(2 * repeated, rel=0.001)


@pytest.mark.parametrize(
    ("cluster", "printed_bytes"),
    [
        ("dgx-h100", 64.38 * 2**30),  # vLLM issue 33155, Triton
        ("dgx-a100", 65.97 * 2**30),  # vLLM issue 23278, Marlin
    ],
)
def test_experts_in_mxfp4_take_whole_tiles_of_their_kernels(cluster, printed_bytes):
    model = spec("gpt-oss-120b")
    engine = serving_site(load_cluster(cluster), "vllm").software.memory
    one = layouts.checkpoint_formats(model, "mxfp4", "bf16")
    assert replica_weight_bytes(model, one, engine) == pytest.approx(printed_bytes, rel=0.003)
    assert replica_weight_bytes(model, one) < 0.95 * printed_bytes
    eight = replace(one, tp=8)  # 360 of the inner width on each GPU, in tiles of 64 or 128: 384
    split, file = (8.0 * replica_weight_bytes(model, eight, m) for m in (engine, None))
    assert split / file == pytest.approx(384 / 360 * 3072 / 2880, rel=0.01)
    other = replace(one, ffn_format="nvfp4")
    assert replica_weight_bytes(model, other, engine) == replica_weight_bytes(model, other)


@given(st.sampled_from(["q4_k_m", "q8_0", "bf16"]))
def test_few_rows_of_experts_are_not_padded_on_vector_units(fmt):
    """One token reads its experts; on the tensor units it also pays for whole tiles."""
    site = serving_site(load_cluster("apple-m1-ultra"), "llamacpp")
    model, one = spec("gpt-oss-20b"), Replica(ffn_format=fmt, attention_format=fmt)
    tiled = replace(site, software=replace(site.software, vector_rows=0), memo={})
    batch = Batch(sequences=1, context=100)
    few, many = (pass_time(model, one, s, batch).experts_s for s in (site, tiled))
    assert few < many


@pytest.mark.parametrize(("name", "replica", "engine", "gpu", "tokens", "rel", "source"), PRINTED)
def test_cache_tokens_are_those_that_engines_print(name, replica, engine, gpu, tokens, rel, source):
    found = cache_tokens(spec(name), replica, engine, memory_of(gpu))
    assert found == pytest.approx(tokens, rel=rel), source


def test_a_30b_in_fp8_does_not_start_on_32_gb():  # vLLM issue 41695
    small = Replica(ffn_format="fp8-block", attention_format="fp8-block")
    room = cache_room(spec("qwen3-30b-a3b"), small, EngineMemory("device", 0.95), memory_of("5090"))
    assert room.cache_bytes < 0.0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from(["llama3.1-8b", "qwen3-30b-a3b"]))
def test_weights_of_all_gpus_are_the_model(tp, name):
    model = spec(name)
    total = tp * replica_weight_bytes(model, Replica(tp))
    assert total == pytest.approx(2.0 * count_params(model).total_params, rel=0.001)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["device", "static", "free", "all"]), st.floats(0.5, 0.98))
def test_parts_of_the_memory_add_up(rule, share):
    room = cache_room(spec("llama3.1-8b"), Replica(2), EngineMemory(rule, share), 80e9)
    parts = room.weights_bytes + room.activations_bytes + room.overhead_bytes + room.cache_bytes
    assert parts == pytest.approx(room.usable_bytes)


def test_data_parallel_attention_repeats_weights_and_splits_the_cache():
    model = spec("deepseek-v3")
    tp, dp = Replica(8, **FP8), Replica(1, 1, 8, 8, **FP8)
    assert replica_weight_bytes(model, dp) > 1.1 * replica_weight_bytes(model, tp)
    engine, device = EngineMemory("static", 0.9), memory_of("h200")
    assert 8 * cache_tokens(model, dp, engine, device) > 4 * cache_tokens(model, tp, engine, device)


@pytest.mark.parametrize(
    ("name", "gpu", "measured"),
    [
        ("deepseek-v3", "h100", 218_172.0),  # lmsys.org, 2025-05-05, large-scale EP
        ("kimi-k2", "h200", 224_000.0),  # lmsys.org, 2025-07-20, Kimi K2
    ],
)
def test_published_prefill_of_experts_over_four_nodes(name, gpu, measured):
    layout = Replica(dp_attention=32, ep=32, ffn_format="fp8-block", attention_format="fp8-block")
    site = serving_site(load_cluster(gpu), "sglang")
    demand = Demand(Lengths("fixed", 2000), Lengths("fixed", 1))
    worker = prefill_worker(load_model(name).spec, layout, site, demand, Tuning())
    each_s = worker.prompt_s(0.0, int(worker.scheduler.token_budget // 2000))
    assert 2000.0 / each_s == pytest.approx(measured, rel=0.3)


@pytest.mark.parametrize(
    ("engine", "ranks", "chunk", "tokens"),
    [
        ("sglang", 8, None, 16384),  # server_args.py: 2,048 of each rank
        ("sglang", 8, 32768, 32768),  # recipes/b200-fp8 of srt-slurm
        ("sglang", 16, None, 16 * 16384),  # several machines: set by hand
        ("vllm", 8, None, 8 * 16384),
    ],
)
def test_attention_ranks_of_sglang_share_the_tokens_of_a_pass(engine, ranks, chunk, tokens):
    layout = Replica(dp_attention=ranks, ep=ranks, ffn_format="fp8", attention_format="fp8")
    demand = Demand(Lengths("fixed", 1000), Lengths("fixed", 100))
    site, tuning = serving_site(load_cluster("b200"), engine), Tuning(chunk_tokens=chunk)
    worker = Service(load_model("deepseek-v3").spec, layout, site, demand, tuning)
    assert worker.scheduler.token_budget == tokens


def test_kernels_that_unpack_weights_lose_on_datacenter_blackwell_alone():
    large, desktop, hopper = (
        load_serving_kernels(name) for name in ("blackwell", "blackwell-geforce", "hopper")
    )
    assert large.widened_memory_eff < desktop.widened_memory_eff == hopper.widened_memory_eff
    assert large.small_kernel_s == desktop.small_kernel_s


def test_fp8_checkpoint_keeps_what_its_config_names(tmp_path):
    """Llama 3.1 405B in FP8: vLLM prints 57.75 GiB on each of 8 GPUs; the lists are the hub's."""
    shape = {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126}
    shape |= {"num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256}
    kept = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(126) for p in "qkvo"]
    kept += [f"model.layers.{i}.mlp.{p}_proj" for i in (0, 125) for p in ("down", "gate", "up")]
    quantised = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": kept}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "quantization_config": quantised, **shape}))
    found = load_model(str(path)).spec
    assert found.fp8_keeps_attention and found.fp8_whole_layers == 2
    formats = replace(layouts.checkpoint_formats(found, "fp8", "bf16"), tp=8)
    assert replica_weight_bytes(found, formats) == pytest.approx(57.75 * 2**30, rel=0.02)
