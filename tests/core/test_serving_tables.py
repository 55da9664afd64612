"""Tables of passes against the passes themselves; replicas over time."""

from __future__ import annotations

import pytest

from gpuscale.core.serving.forward import decode_step, pass_time
from gpuscale.core.serving.records import Batch, Drafts, Replica
from gpuscale.core.serving.scaling import windows_of
from gpuscale.core.serving.tables import ContextRange, replica_table
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model
from gpuscale.io.serving import serving_site

CONTEXTS = ContextRange(1000.0, 3000.0)
H200 = serving_site(load_cluster("dgx-h200"), "vllm")
CASES = {
    "dense": ("llama3.1-70b", Replica(tp=8)),
    "stages": ("llama3.1-70b", Replica(tp=4, pp=2)),
    "experts": ("deepseek-v3", Replica(tp=8, ffn_format="fp8-block")),
    "ranks": ("deepseek-v3", Replica(dp_attention=8, ep=8, ffn_format="fp8-block")),
    "drafts": ("llama3.1-70b", Replica(tp=8, drafts=Drafts(3, (0.8,)))),
    "recurrent": ("nemotron-h-56b", Replica(tp=8)),
}


@pytest.fixture(params=CASES, scope="module")
def tabled(request):
    name, replica = CASES[request.param]
    model = load_model(name).spec
    return model, replica, replica_table(model, replica, H200, CONTEXTS)


@pytest.mark.parametrize("n", [1, 8, 40, 160, 500])
def test_decode_passes_are_those_of_the_model(tabled, n):
    model, replica, table = tabled
    base, each = table.decode(n)
    for context in (1200.0, 2000.0, 2800.0):
        want = decode_step(model, replica, H200, max(1.0, n / replica.pp), context).time_s
        assert base + each * n * context == pytest.approx(want, rel=0.04), (n, context)


@pytest.mark.parametrize(("tokens", "keys"), [(300, 150), (2000, 1000), (6000, 9000)])
def test_prompt_passes_are_those_of_the_model(tabled, tokens, keys):
    model, replica, table = tabled
    batch = Batch(prompt_tokens=tokens, prompt_context=keys, prompts=1.0)
    want = pass_time(model, replica, H200, batch).total_s
    assert table.prompt(tokens, keys, 0, 1) == pytest.approx(want, rel=0.08)


def test_a_prompt_beside_decoding_costs_less_than_a_pass(tabled):
    _, _, table = tabled
    alone, beside = table.prompt(256, 128, 0, 1), table.prompt(256, 128, 8, 1)
    assert 0.0 <= beside < alone


def test_ranks_read_prompts_side_by_side():
    model, replica = load_model("deepseek-v3").spec, CASES["ranks"][1]
    table = replica_table(model, replica, H200, CONTEXTS)
    one, eight = table.prompt(1024, 512, 0, 1), table.prompt(8 * 1024, 512, 0, 8)
    assert eight < 4.0 * one


def test_windows_count_every_request():
    arrivals = [0.5 * i for i in range(600)] + [300.0 + 2.0 * i for i in range(150)]
    scaled = windows_of(arrivals, 1.0, 60.0, 60.0)
    assert sum(w.rate_per_s for w in scaled.windows) * 60.0 == pytest.approx(len(arrivals))
    assert scaled.peak == 2
    assert all(w.planned >= w.needed for w in scaled.windows)
    assert scaled.planned_replica_s <= scaled.fixed_replica_s
    assert 1.0 <= scaled.mean <= scaled.peak
    late = windows_of(list(reversed([600.0 - t for t in arrivals])), 1.0, 120.0, 60.0)
    assert late.late_frac > 0.0  # the traffic grows, and replicas come too late
    with pytest.raises(ValueError, match="above 0"):
        windows_of([], 1.0, 0.0, 60.0)
