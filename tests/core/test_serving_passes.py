"""One pass through a replica by hand: parts of layers, exchanges, the host beside the GPU."""

import math
from types import SimpleNamespace

import pytest

from gpuscale.core.serving import exchange, forward
from gpuscale.core.serving.forward import SMALL_KERNELS, layer_time_s, overlap_frac, pass_time
from gpuscale.core.serving.records import Batch, Kernels, PassTime, Replica, ServingSoftware
from gpuscale.core.serving.replica import decode_time_s
from gpuscale.core.serving.scaling import windows_of
from gpuscale.io.models import load_model

LLAMA, MIXTRAL = load_model("llama3-70b").spec, load_model("mixtral-8x7b").spec
KERNELS = Kernels(
    linear_factor=1.25, small_kernel_s=0.01, stream_passes=10.0, host_blend=2.0,
    exchange_overlap=0.5, all_reduce_factor=2.0, crossing_s=0.5,
)  # fmt: skip
SOFT = {"host_s": 40.0, "host_per_sequence_s": 2.0, "step_s": 3.0, "linear_factor": 2.0,
        "prompt_layer_s": 1.0, "prompt_expert_layer_s": 0.5, "adds_experts": False}  # fmt: skip


def at(domain=8, **more):
    return SimpleNamespace(
        kernels=KERNELS, software=ServingSoftware("x", **(SOFT | more)), domain=domain,
        hbm_bytes_per_s=1e6, memo={},
    )  # fmt: skip


@pytest.fixture
def parts(monkeypatch):
    """Of a layer: projections 1 s, dense 2, experts 3, cores 0.5 and 0.25, exchanges 4 and 5."""
    asked = {}

    def put(name, value):
        def made(*args, **more):
            asked.setdefault(name, []).append(args)
            return value

        room = forward if hasattr(forward, name) else forward.kernels
        monkeypatch.setattr(room, name, made)

    put("ffn_s", (2.0, 3.0))
    put("projections_s", 1.0)
    put("prefill_core_s", 0.5)
    put("decode_core_s", 0.25)
    put("layer_communication_s", (4.0, 5.0))
    put("product_s", 16.0)
    put("collective_s", 7.0)
    return asked


def want(n, waited, tokens, small, **more):
    """Sum of n layers; products are 1.25 x 2 times as long in a model, norms pass 10 times."""
    passed = 10 * tokens * more.pop("hidden", 8192) * 2 / 1e6
    return PassTime(
        n * 3 * 2.5, n * 0.75, n * 3.0, more.get("communication", n * 9.0),
        pytest.approx(n * (small * 0.01 + passed)), 40.0, pytest.approx(waited),
    )  # fmt: skip


def busy(found):
    return found.total_s - found.host_s


DENSE = SMALL_KERNELS["attention"] + SMALL_KERNELS["dense"]
MOE = SMALL_KERNELS["attention"] + SMALL_KERNELS["moe"]


def test_a_decode_pass_by_hand(parts):
    """The host's 40 + 2 x 6 s run beside the GPU, three more are waited for."""
    found = pass_time(LLAMA, Replica(), at(), Batch(sequences=6.0, context=9.0))
    beside = math.hypot(busy(found), 52.0) - busy(found)
    assert found == want(80, 3 + beside, 6.0, DENSE)
    assert parts["product_s"][0][1] == 6.0  # a token of each through the head
    assert parts["product_s"][0][2:4] == (LLAMA.vocab_size, 8192)
    alone = pass_time(LLAMA, Replica(), at(serial_host=True), Batch(sequences=6.0, context=9.0))
    assert alone.host_s == 3 + 52.0


def test_a_pass_with_prompts_is_launched_layer_by_layer(parts):
    batch = Batch(prompt_tokens=100.0, prompt_context=50.0, prompts=2.0, sequences=6.0)
    found = pass_time(MIXTRAL, Replica(), at(), batch)
    host = math.hypot(52.0, 32 * 1.0 + 32 * 0.5)
    waited = 3 + math.hypot(busy(found), host) - busy(found)
    assert found == want(32, waited, 106.0, MOE, hidden=4096)
    assert parts["product_s"][0][1] == 8.0  # prompts that end, and a token of each sequence
    more = pass_time(MIXTRAL, Replica(), at(adds_experts=True), batch)
    assert more.small_s - found.small_s == pytest.approx(32 * 2 * 0.01)
    dense = pass_time(LLAMA, Replica(), at(adds_experts=True, serial_host=True), batch)
    assert dense.small_s == pytest.approx(80 * (DENSE * 0.01 + 10 * 106 * 8192 * 2 / 1e6))
    assert dense.host_s == pytest.approx(3 + math.hypot(52.0, 80.0))


def test_a_pass_through_three_stages(parts):
    """Two hops; the host of a stage is not beside another's."""
    found = pass_time(LLAMA, Replica(tp=2, pp=3), at(), Batch(sequences=6.0, context=9.0))
    assert found == want(80, 3 * 3 + 3 * 52, 6.0, DENSE, communication=80 * 9.0 + 2 * 7.0)
    (hop,) = parts["collective_s"]
    assert hop[1:] == ("send-recv", 6 * 8192 * 2 / 2, 2, False)
    pass_time(LLAMA, Replica(tp=4, pp=3), at(), Batch(sequences=6.0, context=9.0))
    assert parts["collective_s"][1][4] is True  # twelve GPUs are beyond the node
    assert parts["product_s"][1][2] == LLAMA.vocab_size / 4


def test_ranks_of_attention_share_a_pass(parts):
    """Six sequences over three ranks; beyond the node half of the shorter part is hidden."""
    wide = Replica(dp_attention=3, ep=3)
    found = pass_time(MIXTRAL, wide, at(2, two_batches=True), Batch(sequences=6.0, context=9.0))
    computed = busy(found) - found.communication_s - found.head_s
    assert found.communication_s == pytest.approx(32 * 4 + (160 - 0.5 * min(160, computed)))
    assert [batch.sequences for _, batch, *_ in parts["decode_core_s"]] == [2.0]
    assert {args[2] for args in parts["ffn_s"]} == {6.0} and parts["ffn_s"][0][3] == 2.0
    near = pass_time(MIXTRAL, wide, at(8, two_batches=True), Batch(sequences=6.0, context=9.0))
    assert near.communication_s == pytest.approx(32 * 9.0)
    assert overlap_frac(wide, at(2, two_batches=True)) == 0.5
    assert overlap_frac(Replica(dp_attention=3, ep=2), at(2, two_batches=True)) == 0.0
    assert overlap_frac(Replica(tp=4, ep=4), at(2, two_batches=True)) == 0.0


def test_prompts_are_gathered_for_all_ranks_where_enough_decode(parts):
    three = Replica(dp_attention=3)
    for n, gathers, local in ((3.0, 60, 100.0), (2.0, 60, 300.0), (3.0, 0, 300.0)):
        parts.clear()
        batch = Batch(prompt_tokens=300.0, prompts=1.0, sequences=n, prompt_ranks=1.0)
        pass_time(MIXTRAL, three, at(gather_passes=gathers), batch)
        assert parts["prefill_core_s"][0][1].prompt_tokens == local


def test_a_draft_costs_a_layer_and_the_head(parts):
    """0.75 + 3 + small + 4 + 5, and products and head in a model."""
    found = layer_time_s(LLAMA, Replica(), at(), Batch(sequences=6.0))
    small = DENSE * 0.01 + 10 * 6 * 8192 * 2 / 1e6
    assert found == pytest.approx(0.75 + 3 + small + 9 + 2.5 * (3 + 16))


# --- exchanges of a layer ------------------------------------------------------------------------


@pytest.fixture
def exchanges(monkeypatch):
    """An all-reduce takes its bytes, an all-gather twice, a reduce-scatter three times."""
    monkeypatch.setattr(exchange, "all_reduce_s", lambda site, size, n: size)
    rates = {"all-gather": 2, "reduce-scatter": 3}
    monkeypatch.setattr(exchange, "collective_s", lambda site, op, size, n: rates[op] * size)
    sent = [1e9]
    monkeypatch.setattr(exchange, "exchange_s", lambda *args: sent[0])
    return sent


def test_communication_of_a_layer(exchanges):
    """Ten tokens of 100 wide are 2,000 bytes, after mixer and FFN."""
    mixer, moe, dense = (SimpleNamespace(kind=kind) for kind in ("attention", "moe", "dense"))
    none = SimpleNamespace(kind="none")

    def took(mixer, ffn, **layout):
        group = SimpleNamespace(mixer=mixer, ffn=ffn)
        site = SimpleNamespace(software=SimpleNamespace(joint_gpus=0), domain=8)
        return exchange.layer_communication_s(group, 100, Replica(**layout), site, 10.0)

    assert took(mixer, dense, tp=2) == took(mixer, moe, tp=2) == (4000.0, 0.0)
    assert took(mixer, none, tp=2) == took(none, dense, tp=2) == (2000.0, 0.0)
    assert took(mixer, dense) == (0.0, 0.0) == took(mixer, dense, dp_attention=4)
    # gathered and scattered of all four ranks, or sent where that is faster
    assert took(mixer, moe, dp_attention=4, ep=4) == (0.0, 5 * 8000.0)
    assert took(mixer, moe, dp_attention=2, ep=2) == (0.0, 5 * 4000.0)
    assert took(mixer, moe, tp=2, dp_attention=4, ep=8) == (2000.0, 5 * 8000.0)
    exchanges[0] = 7.0
    assert took(mixer, moe, dp_attention=4, ep=4) == (0.0, 7.0)
    exchanges[0] = None
    assert took(mixer, moe, dp_attention=4) == (0.0, 5 * 8000.0)


def test_an_engine_may_bring_prompts_to_the_experts_by_all_reduces(exchanges):
    """SGLang without DeepEP: of all ranks' tokens, there and back, on one machine."""
    group = SimpleNamespace(mixer=SimpleNamespace(kind="mla"), ffn=SimpleNamespace(kind="moe"))
    site = SimpleNamespace(software=SimpleNamespace(joint_gpus=8), domain=8)

    def took(n, reads):
        layout = Replica(dp_attention=n, ep=n)
        return exchange.layer_communication_s(group, 100, layout, site, 10.0, reads)[1]

    assert took(4, reads=True) == 2 * 8000.0 and took(8, reads=True) == 2 * 16000.0
    assert took(4, reads=False) == 5 * 8000.0 and took(16, reads=True) == 5 * 32000.0
    exchanges[0] = 7.0  # sent where that is faster, but over nodes by DeepEP alone
    assert took(8, reads=False) == took(16, reads=True) == 7.0
    site.software.joint_gpus = 16
    assert took(8, reads=False) == 7.0 and took(16, reads=False) == 5 * 32000.0


def test_collectives_go_twice_as_long_in_a_model_and_cross(monkeypatch):
    """Their own kernel or the library's, whichever is faster; once computed they are kept."""
    took = {"custom": 4.0, "auto": 3.0}
    asked = []

    def raw(site, op, size, n, algorithm, away):
        asked.append((op, n, algorithm, away))
        return took[algorithm]

    monkeypatch.setattr(exchange, "_raw_s", raw)
    site = at()
    assert exchange.all_reduce_s(site, 1000.0, 8) == 6.0 == exchange.all_reduce_s(site, 1000.0, 8)
    assert exchange.all_reduce_s(site, 1000.0, 16) == 6.5
    assert len(asked) == 4
    assert exchange.collective_s(site, "send-recv", 8.0, 2) == 6.0
    assert exchange.collective_s(site, "send-recv", 8.0, 2, True) == 6.5
    assert exchange.collective_s(site, "all-gather", 8.0, 9) == 6.5


# --- ideal forms, windows ------------------------------------------------------------------------


def test_ideal_decode():
    assert decode_time_s(12.0, 1.0, 2, 3.0, 1e9) == 2.0
    assert decode_time_s(1.0, 12.0, 2, 1e9, 3.0) == 2.0


def test_a_lag_of_two_windows():
    """What is needed in a window is started two windows before, the first at once."""
    counts = (10, 10, 40, 10)
    arrivals = [10.0 * w + 10.0 * i / n for w, n in enumerate(counts) for i in range(n)]
    found = windows_of(arrivals, 1.0, 20.0, 10.0)
    assert [w.needed for w in found.windows] == [1, 1, 4, 1]
    assert [w.planned for w in found.windows] == [4, 4, 4, 1]
    assert found.late_frac == pytest.approx(30 / 70)
    assert found.mean == 13 / 4 and found.peak == 4
