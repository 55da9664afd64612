"""`serve` and `memory --serve` say the same of one replica."""

import pytest

from gpuscale.answers.serve import Serve
from gpuscale.answers.training.asked import Memory

JOBS = [
    ("llama3-8b", "dgx-h100", 1, 4096, {}),
    ("gemma3-27b", "dgx-a100", 2, 8192, {}),
    ("qwen3-30b-a3b", "dgx-h200", 2, 4096, {"weights": "fp8", "kv": "fp8"}),
    ("gpt-oss-120b", "dgx-h200", 1, 2048, {}),
    ("deepseek-v3", "dgx-h200", 8, 4096, {}),
    ("llama3-70b", "dgx-h100", 2, 2048, {"weights": "int4"}),
]


@pytest.mark.parametrize(("model", "cluster", "tp", "context", "formats"), JOBS)
def test_a_replica_is_the_same_in_both(model, cluster, tp, context, formats):
    same = {"model": model, "cluster": cluster, "tp": tp, "concurrency": 1, **formats}
    memory = Memory(**same, serve=True, context=context).answer().result
    held = memory.per_gpu
    lengths = {"input": context - 64, "output_len": 64, "context": context}
    served = Serve(**same, gpus=tp, **lengths).answer().result
    for part in ("weights_bytes", "activations_bytes", "overhead_bytes", "usable_bytes"):
        assert getattr(served.memory, part) == pytest.approx(getattr(held, part), rel=1e-6), part
    assert int(served.kv_tokens / context) in (held.max_concurrency, held.max_concurrency + 1)
    assert served.fits == memory.fits
    # a token of one sequence, at its whole context or half its output before it
    assert memory.times.decode_s <= 1.002 * served.alone_tpot_s


@pytest.mark.parametrize("weights", ["bf16", "fp8", "mxfp4", "int4"])
@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-120b", "deepseek-v3"])
def test_one_gpu_holds_all_the_weights(model, weights):
    found = Memory(model, serve=True, weights=weights, cluster="dgx-b200").answer().result
    tiled = (model, weights) == ("gpt-oss-120b", "mxfp4")  # experts of 2,880 in tiles of 256
    held = found.all_weights_bytes * ((3072 / 2880) ** 2 if tiled else 1.0)
    assert found.per_gpu.weights_bytes == pytest.approx(held, rel=0.01 if tiled else 2e-3)


def test_more_context_or_sequences_never_hold_more():
    rows = [
        Memory("llama3-70b", serve=True, tp=4, context=c, concurrency=n).answer().result
        for c, n in ((2048, 1), (8192, 1), (8192, 16), (32768, 16))
    ]
    most = [r.per_gpu.max_concurrency for r in rows]
    total = [r.per_gpu.total_bytes for r in rows]
    assert most == sorted(most, reverse=True)
    assert total == sorted(total)
    for r in rows:
        at = {"tp": 4, "context": r.context_tokens}
        fits = [
            Memory("llama3-70b", serve=True, concurrency=n, **at).answer().result.fits
            for n in (r.per_gpu.max_concurrency, r.per_gpu.max_concurrency + 1)
        ]
        assert fits == [True, False]
