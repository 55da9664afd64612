"""Fine-tuning: counts, states, memory and time against published numbers and invariants."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.finetune.method import Job, Method, check, counts
from gpuscale.core.finetune.parameters import IDEAL
from gpuscale.core.finetune.states import OPTIMIZERS, matrix_state_bytes, optimizer
from gpuscale.core.finetune.step import finetune_step
from gpuscale.core.formats import element_bytes
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.io.finetune import finetune_site
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software

TRAINABLE = [  # model, rank, targets, parameters, source
    ("llama3-8b", 16, ("all-linear",), 41_943_040, "unsloth issue 465: 41.9 M trainable"),
    ("llama2-7b", 8, ("q", "v"), 4_194_304, "PEFT README: 4,194,304 trainable parameters"),
    ("llama2-7b", 64, ("all-linear",), 159_907_840, "QLoRA: r 64 on all layers of the 7B"),
]


def model_of(name):
    return load_model(name).spec


@pytest.mark.parametrize(("name", "rank", "targets", "want", "source"), TRAINABLE)
def test_adapter_counts_are_the_published_ones(name, rank, targets, want, source):
    found = counts(model_of(name), Method(rank=rank, targets=targets)).adapter_params
    assert found == want, source


def test_nf4_bits_are_qlora_s():
    assert element_bytes("nf4-dq") * 8 == pytest.approx(4.127, abs=1e-3)  # QLoRA, section 3


def job(method="lora", seq=2048, micro=1, opt="adamw", **layout):
    base = Layout(seq_len=seq, global_batch_size=8, micro_batch_size=micro, zero_stage=0)
    kind = Method("full") if method == "full" else Method("lora", base="bf16")
    if method == "qlora":
        kind = Method("lora", base="nf4")
    return Job(kind, optimizer(opt), replace(base, **{"recompute": "full"} | layout))


def peak(j, p=IDEAL, name="llama3-8b"):
    model = model_of(name)
    return finetune_memory(model, model_facts(model), j, p)


def test_ideal_lora_is_weights_adapters_and_little_else():
    m = peak(job(seq=1))
    assert m.base_bytes == pytest.approx(2 * 8_030_261_248, rel=1e-6)
    assert m.adapter_bytes + m.optimizer_bytes == pytest.approx(41_943_040 * 8)


def test_quantised_base_keeps_embedding_and_head_wide():
    m = peak(job("qlora", seq=1))
    edges = 2 * 128256 * 4096
    want = (8_030_261_248 - edges - 65 * 4096) * element_bytes("nf4-dq") + 2 * (edges + 65 * 4096)
    assert m.base_bytes == pytest.approx(want, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["lora", "qlora", "full"]), st.integers(1, 4), st.integers(9, 13))
def test_memory_grows_with_tokens_and_parts_add_up(method, micro, log_seq):
    p = load_software("hf-peft").finetune
    one = peak(job(method, 2**log_seq, micro), p)
    more = peak(job(method, 2 ** (log_seq + 1), micro), p)
    assert more.total_bytes >= one.total_bytes
    rest = one.fragmentation_bytes + one.context_bytes
    assert one.total_bytes == pytest.approx(one.allocated_bytes + rest)


def test_frozen_maps_keep_no_inputs():
    p = replace(IDEAL, working_factor=1.0)
    full = replace(job("full", recompute="none"), loss="fused")
    lora = replace(job("lora", recompute="none"), loss="fused")
    q_v = replace(lora, method=Method("lora", targets=("q", "v")))
    kept = [peak(j, p).kept_bytes for j in (full, lora, q_v)]
    assert kept[0] == pytest.approx(kept[1])  # adapters on all maps need every input again
    assert kept[2] < 0.8 * kept[1]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_states_and_a_source(name):
    opt = OPTIMIZERS[name]
    assert opt.source
    assert matrix_state_bytes(opt, 1024, 4096, 4.0) <= 2 * 4.0 * 1024 * 4096
    assert peak(job("full", opt=name), name="llama3.2-1b").total_bytes > 0


def test_optimizer_in_the_backward_pass_holds_no_gradients():
    whole = peak(job("full", opt="adamw"))
    layered = peak(job("full", opt="adamw+in-backward"))
    assert layered.gradients_bytes < 0.2 * whole.gradients_bytes


def test_sharding_divides_the_states():
    alone = peak(job("full", zero_stage=3))
    eight = peak(job("full", zero_stage=3, dp=8))
    assert eight.base_bytes == pytest.approx(alone.base_bytes / 8)
    assert eight.optimizer_bytes == pytest.approx(alone.optimizer_bytes / 8)


def test_offload_moves_bytes_to_the_host():
    at = job("full", zero_stage=3, dp=4, offload_optimizer=True)
    moved = peak(replace(at, offload=frozenset({"optimizer", "parameters"})))
    assert moved.base_bytes == moved.optimizer_bytes == 0
    assert moved.host_bytes > 0


REFUSED = [
    (Method("lora", rank=8192), "rank 8,192 is above the width 1,024 of k"),
    (Method("lora", targets=("q", "wrong")), "target `wrong` is in no layer"),
    (Method("full", base="nf4"), "cannot be trained in full"),
]


@pytest.mark.parametrize(("method", "message"), REFUSED)
def test_methods_that_cannot_run_are_refused(method, message):
    with pytest.raises(ValueError, match=message):
        check(model_of("llama3-8b"), method)


def step(j, name="llama3-8b", gpu="a100-sxm-80gb", software="hf-peft"):
    return finetune_step(
        model_of(name), j, *finetune_site(load_cluster(gpu), load_software(software), j)
    )


def test_lora_costs_two_thirds_of_full_without_recomputation():
    """2P forward and 2P input gradient against 6P: the products alone, no adapters."""
    lora = replace(job(recompute="none", seq=8192), method=Method("lora", targets=("q",), rank=1))
    full = job("full", recompute="none", seq=8192)
    ratio = step(lora).parts.matmul_s / step(full).parts.matmul_s
    assert ratio == pytest.approx(2 / 3, abs=0.05)


def test_unpacking_is_constant_per_micro_step():
    short, long = step(job("qlora", seq=512)), step(job("qlora", seq=8192))
    assert short.unpack_s == pytest.approx(long.unpack_s)
    assert short.unpack_s > 0


def test_padding_lowers_the_tokens_that_count():
    j = job()
    site = finetune_site(load_cluster("a100"), load_software("hf-peft"), j)
    half = finetune_step(model_of("llama3-8b"), j, *site, useful_frac=0.5)
    assert half.tokens == half.padded_tokens / 2
