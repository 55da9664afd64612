"""Logs as programs print them: what is found, with its unit, and nothing that is not there."""

# ruff: noqa: E501
import io
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.io.log_patterns import load_patterns
from gpuscale.io.log_reader import read_log

MEGATRON = (
    " [2026-03-30 20:02:40] iteration {k:8d}/ 500000 | consumed samples: {n:12d} | elapsed time per "
    "iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 137.5 | learning rate: 2.0E-06 | "
    "global batch size:   128 | lm loss: 2.092005E-01 | number of nan iterations:   0 |\n"
)

PRINTED = [  # a line as it is printed, a fact of it, its value in SI
    ("elapsed time per iteration (ms): 1234.5 | global batch size: 64 |", "step_time", 1.2345),
    ("Step Time : 10.35s GPU utilization: 412.5MODEL_TFLOP/s/GPU", "tflops_per_gpu", 412.5e12),
    ("| train_step_timing in s: 7.62 | consumed_samples: 768", "step_time", 7.62),
    ("elapsed time per iteration (ms): 5.0/5.1 | hip mem usage: 100GB", "step_time", 0.005),
    (
        "step: 10  loss: 12.1  memory: 81.67GiB(85.93%)  tps: 11,770  tflops: 301.2  mfu: 30.4%",
        "tokens_per_s_per_gpu",
        11770,
    ),
    ("iteration: 3 / 9 | time_per_iteration_ms: 1.05K | tokens_per_sec_per_gpu: 125K |", "step_time", 1.05),
    ("RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.4, MemAllocated=12.3GB", "samples_per_s", 12.4),
    ("time (ms) | fwd: 376.60 | bwd: 864.56 | step: 22880.87", "optimizer", 22.88087),
    ("{'train_runtime': 123.4, 'train_samples_per_second': 8.1}", "samples_per_s_run", 8.1),
    ("{'loss': 1.4, 'memory(GiB)': 6.5, 'train_speed(iter/s)': 0.4938}", "steps_per_s", 0.4938),
    ("{'loss': 1.4, 'memory/max_active (GiB)': 13.07, 'epoch': 0.1}", "memory_allocated", 13.07 * 2**30),
    ("  Total train batch size (w. parallel, distributed & accumulation) = 16", "global_batch", 16),
    (" \\\\   /|    Batch size per device = 2 | Gradient accumulation steps = 4", "accumulation", 4),
    ("Step 10 | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1234.5 peak_memory_reserved:14.1", "memory_reserved", 14.1 * 2**30),
    ("Epoch 1 | iter 100 step 25 | loss train: 1.2 | iter time: 350.32 ms (step)", "step_time", 0.35032),
    ("completed step: 10, seconds: 5.123, TFLOP/s/device: 400.1, Tokens/s/device: 8000.2", "step_time", 5.123),
    ("    throughput/device/TPS=25,000", "tokens_per_s_per_gpu", 25000),
    ("Step 10 | Time: 25.60s | Throughput: 12345 tokens/s | MFU: 12.3% | Peak Mem.: 67.8 GiB", "mfu", 0.123),
    ("step:10 - perf/mfu/actor:0.35 - timing_s/gen:45.2 - timing_s/step:100.1", "generation_time", 45.2),
    ("  • Total step time: 45.23s", "step_time", 45.23),
    ("perf 10: {'perf/step_time': 100.1, 'perf/actor_train_tflops': 130.0}", "step_time", 100.1),
    ("iter 3: loss 4.1398, time 22.15ms, mfu 38.10%", "mfu", 0.381),
    ("step:10/1750 train_time:1234ms step_avg:142.51ms", "step_time", 0.14251),
    ("Model loading took 14.9888 GiB memory and 5.2 seconds", "weights_memory", 14.9888 * 2**30),
    ("GPU KV cache size: 75,840 tokens", "kv_tokens", 75840),
    ("set 'enforce_eager=True' or use '--enforce-eager' in the CLI.", "", None),  # a hint (vllm#11251)
    ("# GPU blocks: 1381, # CPU blocks: 2048", "kv_blocks", 1381),
    (
        "Decode batch, #running-req: 8, #token: 12345, token usage: 0.05, cuda graph: True, gen "
        "throughput (token/s): 800.12, #queue-req: 3",
        "generation_tokens_per_s",
        800.12,
    ),
    ("KV Cache is allocated. #tokens: 443000, K size: 27.1 GB, V size: 27.1 GB", "kv_tokens", 443000),
    ("Epoch 0 [10/500] loss 3.2 Time: 12.1s Data: 11.0s", "data_time", 11.0),
    ("Train: 0 [ 50/1251 ( 4%)] Loss: 6.9 Time: 11.843s, 86.46/s (12.0s) Data: 11.021 (11.2)", "data_time", 11.021),
    ("Epoch: [0][16/5005]\tTime 67.619 (11.054)\tData 67.544 (10.785)\tLoss 6.9", "data_time", 67.544),
    ("{'loss': 1.2, 'step': 10, 'data_load_time': 1.5, 'step_time': 2.0}", "data_time", 1.5),
    ("step 10 | loss 3.2 | dt 1210.0ms | data 1100.0ms", "step_time", 1.21),
    ("Request Throughput (req/sec):                     43.2089", "requests_per_s", 43.2089),
    ("Mean TTFT (ms):                          18854.01", "ttft_mean", 18.85401),
    ("llama_perf_context_print:        eval time =   16162.68 ms /   255 runs   (   63.38 ms per token,    15.78 tokens per second)", "tokens_per_s", 15.78),
    ("load_tensors: offloaded 19/81 layers to GPU", "gpu_layers", 19),
    ("eval rate:            36.97 tokens/s", "tokens_per_s", 36.97),
    ("# Avg bus bandwidth    : 24.7123", "busbw_mean", 24.7123e9),
    (" 65536      5000             197.52             197.50             0.376", "", None),
    ("CUDA out of memory. Tried to allocate 1.30 GiB. GPU 4 has a total capacity of 94.99 GiB of which 861.06 MiB is free.", "oom_request", 1.3 * 2**30),
    ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 75.31 GiB already allocated; 1.08 GiB free; 77.10 GiB reserved in total by PyTorch)", "oom_allocated", 75.31 * 2**30),
    ("|  0  NVIDIA H100  On | 00:0 Off |\n| N/A 77C P2 346W / 350W |  22500MiB / 24576MiB |    99%      Default |", "power_limit", 350),
]  # fmt: skip


def read(text):
    return read_log(io.BytesIO(text.encode()))


@pytest.mark.parametrize(("text", "name", "value"), PRINTED)
def test_a_line_is_read(text, name, value):
    log = read(text + "\n")
    if not name:
        assert list(log.all()) == []
    else:
        assert log.number(name) == pytest.approx(value)


def test_a_number_keeps_its_unit_line_and_program():
    [fact] = [f for f in read("x\nMean TPOT (ms):   51.78\n").all() if f.name == "tpot_mean"]
    assert (fact.printed, fact.unit, fact.line) == ("51.78 ms", "s", 2)
    assert fact.program == "bench-serving"


def test_an_mfu_that_was_not_computed_is_none():
    assert read("iter 1: loss 4.1, time 248.63ms, mfu -100.00%\n").number("mfu") is None


def test_warm_up_colours_and_ranks():
    steps = [f"[rank{r}]:\x1b[32mstep: {k}  loss: 1.0  memory: 10.00GiB(12.5%)  tps: {v}\x1b[0m\n"
             for k, v in ((1, 538), (10, 11_177), (20, 11_171), (30, 11_219)) for r in (0, 1)]  # fmt: skip
    log = read("".join(steps))
    assert {k[1] for k in log.tracks} == {0, 1}
    steady = log.track("tokens_per_s_per_gpu").series.steady()
    assert (steady.skipped, steady.median) == (1, 11_177)
    assert log.runs == 1


def test_a_step_that_goes_back_is_another_run():
    lines = [MEGATRON.format(k=k, n=k, ms=ms) for ms in (900.0, 500.0) for k in range(10, 20)]
    log = read("".join(lines))
    assert log.runs == 2
    assert [log.number("step_time", run) for run in (0, 1)] == [0.9, 0.5]


def test_a_progress_bar_is_many_lines():
    text = "".join(f"\r 10%|#  | {k}/100 [00:50<07:30,  5.0{k}s/it]" for k in range(1, 9))
    assert read(text).track("step_time").series.n == 8


def test_tables():
    row = "  1073741824     268435456     float     sum      -1   {t}  233.04  436.95      0\n"
    log = read("#   size  count  type redop root  time algbw busbw #wrong\n" + row.format(t=4607.6))
    [found] = log.tables["nccl_tests"]
    assert found["busbw"].value == pytest.approx(436.95e9)
    assert found["time"].value == pytest.approx(4.6076e-3)
    perf = (
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536      5000             197.52             197.50             0.376\n"
    )
    [found] = read(perf).tables["other"]
    assert found["bw_average"].value == pytest.approx(197.5e9 / 8)


def test_every_pattern_compiles_and_has_a_literal_that_can_be_screened():
    patterns = load_patterns()
    for line in patterns.lines:
        assert all(len(h) >= 4 for h in line.has), line.has
        assert all(f.search for f in line.find)
        assert all(p is None or p.search for p in line.places)
    for table in patterns.tables:
        assert all(group in table.row.groupindex for _, _, group in table.columns)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log():
    class Endless(io.RawIOBase):
        left = 6

        def read(self, n=-1):
            self.left -= 1
            k = 1000 * (6 - self.left)
            step = "".join(MEGATRON.format(k=k + i, n=k, ms=500 + i % 7) for i in range(1000))
            return step.encode() if self.left >= 0 else b""

    tracemalloc.start()
    log = read_log(Endless())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert log.lines == 6_000
    assert log.number("step_time") == pytest.approx(0.503, abs=0.003)
    assert peak < 15e6


@pytest.mark.parametrize(
    "text", ["a" * 3_000_000, "iteration " * 40_000, "((((" * 50_000, "1" * 200_000 + " tokens/s"]
)
def test_a_hostile_line_takes_no_time(text):
    start = time.perf_counter()
    read(text + " via NET/ out of memory -- loss: \n")
    assert time.perf_counter() - start < 2


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(PRINTED))
def test_bytes_of_any_kind_are_read(noise, printed):
    log = read_log(io.BytesIO(noise + b"\n" + printed[0].encode()[: len(noise)] + b"\n"))
    assert all(f.line >= 1 for f in log.all())


def test_a_build_without_a_gpu_is_said():
    assert read("FMA = 1 | F16C = 1 | BLAS = 0 | SSE3 = 1\n").text("gpu_backend") == "none"
    assert read("FMA = 1 | F16C = 1 | BLAS = 1 | SSE3 = 1\n").text("gpu_backend") is None


def test_rows_at_the_end_of_a_log_are_read_once():
    head = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    rows = "".join(f" {size}      5000             197.52             197.50             0.376\n"
                   for size in (4096, 65536, 1048576))  # fmt: skip
    assert [r["bytes"].value for r in read(head + rows).tables["other"]] == [4096, 65536, 1048576]


def test_a_matrix_has_no_figures_of_its_margins():
    text = (
        "Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 912.68   9.90\n     1   N/A 922.37\n"
    )
    found = [f.value for f in read(text).all() if not isinstance(f.value, str)]
    assert found == pytest.approx([912.68e9, 9.9e9, 922.37e9])
