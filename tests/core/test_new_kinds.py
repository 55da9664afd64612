"""How to add, tried: one row or one class of a real new kind, and it flows through everything."""

import json
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import ClassVar, Literal

import pytest
from running import invoke

from gpuscale.core.finetune.states import OPTIMIZERS, Optimizer
from gpuscale.core.habits import ANY
from gpuscale.core.layout import CONTEXT_KINDS, ContextKind, Exchange, Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.core.memory.parameters import parameters_of
from gpuscale.core.memory.peak import peak_stage, stage_memories
from gpuscale.core.model.mixers.kind import CacheShape, Kept, Linear, Product, Scan, Work
from gpuscale.core.model.mixers.recurrent import Recurrent
from gpuscale.core.model.params import count_params
from gpuscale.core.network.collective import ALGORITHMS, Algorithm
from gpuscale.core.rules import against, facts_of
from gpuscale.core.search.engine import search
from gpuscale.core.search.space import default_space
from gpuscale.core.step.step import step_time
from gpuscale.core.step.timeline import timeline
from gpuscale.io.hardware import load_cluster
from gpuscale.io.jobs import make_problem
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import step_hardware

LLAMA = load_model("llama3-8b").spec
SOFTWARE = load_software("megatron-core")


# --- context parallelism -----------------------------------------------------------------------


def heads_in_a_domain(cp, tp, heads, kv_heads):
    """Only what lies in a domain splits heads."""
    return "" if all(n // tp for n in heads) else "no heads to split"


def both_levels(x):
    """All-to-all in the scale-up domain, a ring of what is left over the network."""
    inside = x.cp_ranks_in_domain
    outside = x.cp // inside
    n_bytes = x.tokens / x.tp * 4.0 * x.hidden_size + x.tokens * x.kv_bytes
    kv_bytes = x.tokens * x.cp * x.kv_bytes / inside
    pairs = ((inside, "all-to-all", 1, n_bytes), (outside, "gather", inside, kv_bytes))
    return tuple(Exchange(op, n, apart, size) for n, op, apart, size in pairs if n > 1)


HIERARCHICAL = ContextKind(
    name="a2a+p2p",
    needs=heads_in_a_domain,
    exchanges=both_levels,
    by_block=False,
    source="Fang and Zhao 2024, USP, arXiv:2405.07719; Megatron-Core hierarchical CP",
)


def test_a_kind_of_context_parallelism_is_one_row(monkeypatch):
    monkeypatch.setitem(CONTEXT_KINDS, "a2a+p2p", HIERARCHICAL)
    any_kind = replace(ANY, cp_kinds=tuple(CONTEXT_KINDS))
    facts = facts_of(LLAMA, 131072, 8, 32, any_kind)
    layout = Layout(131072, 8, tp=2, cp=16, cp_kind="a2a+p2p")
    assert against(layout, facts) is None
    assert against(replace(layout, cp_kind="ulysses"), facts).rule == "cp-heads"
    hardware = step_hardware(load_cluster("dgx-h100"))
    software = software_record(SOFTWARE, hardware.architecture)
    ours, ring = (
        step_time(LLAMA, hardware, software, replace(layout, cp_kind=kind))
        for kind in ("a2a+p2p", "ring")
    )
    assert ours.expected.cp_comm_s != ring.expected.cp_comm_s
    assert 0.0 < ours.roofline_s <= ours.expected_s < 2 * ring.expected_s
    memory = parameters_of(SOFTWARE)
    here, there = (
        peak_stage(stage_memories(model_facts(LLAMA), replace(layout, cp_kind=kind), memory))
        for kind in ("a2a+p2p", "ring")
    )
    assert here.total_bytes == there.total_bytes
    laid = timeline(LLAMA, hardware, software, layout)
    assert laid.total_s == pytest.approx(ours.expected_s)
    problem = make_problem(LLAMA, load_cluster("dgx-h100"), SOFTWARE, facts)
    space = replace(default_space(facts, 8), cp_kind=("a2a+p2p",), cp=(16,))
    assert search(problem, space, 1).best.layout.cp_kind == "a2a+p2p"


def test_every_kind_has_a_source_and_its_bytes_grow_with_tokens():
    from gpuscale.core.layout import ContextShape

    for kind in CONTEXT_KINDS.values():
        small, large = (
            sum(e.n_bytes for e in kind.exchanges(ContextShape(8, 1, 8, tokens, 4096, 4096.0)))
            for tokens in (1024.0, 2048.0)
        )
        assert 0 < small < large and kind.source


# --- an algorithm of a collective --------------------------------------------------------------


def test_an_algorithm_of_a_collective_is_one_row(monkeypatch):
    one_shot = Algorithm(  # every rank reads the buffers of all others and adds them
        name="one-shot",
        sent=lambda n: n - 1,
        sent_by_many=1e3,
        hops=lambda n: 1,
        in_switch=False,
        measured_as=None,
        source="FlashInfer and vLLM custom all-reduce, one-shot",
    )
    monkeypatch.setitem(ALGORITHMS, "one-shot", one_shot)
    line = "collective all-reduce dgx-h100 --gpus 8 --bytes 1MB --hop-latency 1us --algorithm"
    ours, ring = (invoke(*f"{line} {name} --json".split()) for name in ("one-shot", "ring"))
    assert ours.returncode == ring.returncode == 0
    assert '"algorithm": "one-shot"' in ours.stdout
    assert ours.stdout != ring.stdout
    for n in (2, 8, 72):
        assert one_shot.hops(n) <= 2 * ceil(log2(n))


# --- an optimizer ------------------------------------------------------------------------------


def test_an_optimizer_is_one_row(monkeypatch):
    mini = Optimizer("adam-mini", 1, 1, "Zhang et al. 2024, arXiv:2406.16793: one moment a block")
    monkeypatch.setitem(OPTIMIZERS, "adam-mini", mini)
    line = "memory llama3-8b --method full --gpus 8 --optimizer {} --json"
    found = {}
    for name in ("sgd", "adam-mini", "adamw"):
        done = invoke(*line.format(name).split())
        assert done.returncode in (0, 1), done.stderr
        found[name] = json.loads(done.stdout)["result"]["peak_bytes"]
    assert found["sgd"] < found["adam-mini"] < found["adamw"]
    timed = invoke(
        "plan", "llama3-8b", "--method", "full", "--gpus", "8", "--optimizer", "adam-mini"
    )
    assert timed.returncode == 0, timed.stderr


# --- an attention ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RgLru(Recurrent):
    """Gated linear recurrence of Griffin (De et al. 2024, arXiv:2402.19427, section 2.4)."""

    measured: ClassVar[bool] = False
    kind: Literal["rg-lru"] = "rg-lru"
    width: int
    n_heads: int
    conv_kernel: int = 4

    def weights(self, hidden_size):
        gates = 2 * self.width * self.width / self.n_heads
        return 3 * self.width * hidden_size + gates, (self.conv_kernel + 4) * self.width

    def maps(self, hidden_size):
        return (
            Linear("in_proj", hidden_size, 2 * self.width, "x"),
            Linear("out_proj", self.width, hidden_size, "attention out"),
        )

    def flop(self, seq_len, causal=True):
        return (2.0 * self.conv_kernel + 8.0) * self.width

    def cache(self):
        return CacheShape(conv_elements=(self.conv_kernel - 1) * self.width)

    def kept(self):
        return Kept(split=6.0 * self.width)

    def work(self, hidden_size, tp=1):
        width = self.width / tp
        products = (
            Product("in", 2 * width, hidden_size),
            Product("gates", 2 * width, self.width / self.n_heads),
            Product("out", hidden_size, width),
        )
        return Work(products, Scan(self.flop(0) / tp, 2.0 * 6.0 * width), 2 * width, 0.0)

    def heads(self):
        return self.n_heads, self.n_heads

    def words(self):
        return f"gated linear recurrence, {self.width:,} wide"


def test_an_attention_is_one_class():
    (name,) = LLAMA.mixers
    griffin = LLAMA.model_copy(
        update={"name": "griffin", "mixers": {name: RgLru(width=4096, n_heads=16)}}
    )
    assert count_params(griffin).total_params == pytest.approx(
        count_params(LLAMA).total_params, rel=0.2
    )
    layout = Layout(8192, 64, tp=2, dp=4, recompute="selective")
    hardware = step_hardware(load_cluster("dgx-h100"))
    software = software_record(SOFTWARE, hardware.architecture)
    here, there = (step_time(m, hardware, software, layout) for m in (griffin, LLAMA))
    assert 0.0 < here.roofline_s <= here.expected_s != there.expected_s
    memory = parameters_of(SOFTWARE)
    held = peak_stage(stage_memories(model_facts(griffin), layout, memory))
    assert held.weights_bytes > 0 and held.activations_bytes > 0


# --- a column left out -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "column"), [(ContextKind, "needs"), (Algorithm, "sent"), (Optimizer, "moments")]
)
def test_a_row_with_a_column_left_out_cannot_be_made(row, column):
    with pytest.raises(TypeError, match=column):
        row(name="new")


def test_a_mixer_with_a_column_left_out_cannot_be_defined():
    with pytest.raises(TypeError, match="leaves out .*weights"):
        type("Half", (Recurrent,), {"measured": True})
