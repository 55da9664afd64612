"""Each rule at its edge: the last layout that it allows and the first that it refuses."""

from dataclasses import replace

import pytest

from gpuscale.core.habits import ANY
from gpuscale.core.layout import Layout, layout_chunks
from gpuscale.core.rules import RuleFacts, against, against_sequence_parallel, facts_of
from gpuscale.core.stages import splits_by_length
from gpuscale.io.models import load_model
from gpuscale.meant import packaged

DENSE = RuleFacts(32, (32,), (8,), (14336,), (), 0, 4096, 64, 8)
EXPERTS = RuleFacts(32, (32,), (8,), (14336,), (1536,), 8, 4096, 64, 8)


def broken(facts=DENSE, n=None, soft=None, seq=4096, batch=64, **layout):
    """Name of the rule that a layout of as many GPUs breaks, "" if it is allowed."""
    one = Layout(seq, batch, **layout)
    on = replace(ANY, name="X", **soft) if soft else facts.runs_on
    facts = replace(facts, n_gpus=n or one.n_gpus, seq_len=seq, global_batch_size=batch, runs_on=on)
    found = against(one, facts)
    assert found is None or found.rule in packaged("rules.toml")
    return found.rule if found else ""


def test_gpus_are_the_product_of_the_degrees():
    assert broken(tp=2, pp=2, dp=2, n=8) == "" and broken(tp=2, cp=2, dp=2, n=8) == ""
    assert broken(tp=2, pp=2, dp=2, n=16) == "gpus"


HEADS = [  # heads, KV heads, FFN width, tp, rule
    (32, 8, 14336, 8, ""),
    (32, 8, 14336, 16, ""),  # KV heads are repeated
    (24, 8, 14336, 16, "tp-heads"),
    (48, 6, 12288, 4, "tp-kv-heads"),
    (48, 6, 12288, 3, ""),
    (48, 6, 12288, 12, ""),
    (32, 8, 14338, 4, "tp-ffn"),
    (32, 8, 14338, 2, ""),
]


@pytest.mark.parametrize(("heads", "kv", "width", "tp", "rule"), HEADS)
def test_tensor_parallelism_splits_heads_and_columns(heads, kv, width, tp, rule):
    facts = replace(DENSE, head_counts=(heads,), kv_head_counts=(kv,), ffn_widths=(width,))
    assert broken(facts, seq=12288, tp=tp) == rule


def test_some_frameworks_repeat_no_kv_heads():
    assert broken(tp=8, soft={"kv_heads": "divide"}) == ""
    assert broken(tp=16, soft={"kv_heads": "divide"}) == "tp-kv-heads"
    assert broken(tp=2, soft={"tensor_parallel": False}) == "tp-offered"
    assert broken(dp=2, soft={"tensor_parallel": False}) == ""


def test_sequence_parallelism_splits_the_tokens_of_a_rank():
    assert broken(tp=8, seq=4096) == "" and broken(tp=8, seq=4100) == "sequence-parallel"
    assert broken(tp=8, seq=4100, sequence_parallel=False) == ""
    assert broken(tp=8, cp=2, seq=8 * 4) == "" and broken(tp=8, cp=2, seq=4 * 5) != ""
    assert broken(tp=2, soft={"sequence_parallel": (True,)}, sequence_parallel=False) != ""
    assert broken(tp=2, soft={"sequence_parallel": (False,)}) == "sequence-parallel"
    assert broken(dp=2, soft={"sequence_parallel": (False,)}) == ""
    only = {"experts_need_sequence_parallel": True}
    assert broken(EXPERTS, tp=2, soft=only) == ""
    assert broken(EXPERTS, tp=2, soft=only, sequence_parallel=False) == "sequence-parallel-experts"
    assert broken(DENSE, tp=2, soft=only, sequence_parallel=False) == ""
    always = replace(DENSE, runs_on=replace(ANY, name="X", sequence_parallel=(True,)))
    assert "always has" in against_sequence_parallel(False, 2, 1, always).message
    never = replace(DENSE, runs_on=replace(ANY, name="X", sequence_parallel=(False,)))
    assert "has no" in against_sequence_parallel(True, 2, 1, never).message


def test_context_parallelism_halves_the_chunks_again():
    """Megatron-LM `validate_args`: seq_len % (2 cp)."""
    assert broken(cp=4, seq=8 * 3) == "" and broken(cp=4, seq=4 * 3) == "cp-sequence"
    assert broken(cp=2, cp_kind="ulysses", tp=4) == "" and broken(cp=3, seq=6144) == ""
    assert broken(cp=2, cp_kind="ulysses", tp=8) == "cp-heads"  # one KV head a rank
    assert broken(cp=3, cp_kind="ulysses", seq=6144) == "cp-heads"
    assert broken(cp=2, soft={"cp_kinds": ("ulysses",)}) == "cp-kind"
    assert broken(cp=2, soft={"cp_kinds": ()}) == "cp-kind" and broken(soft={"cp_kinds": ()}) == ""


def test_experts_lie_in_the_ranks_of_a_stage():
    assert broken(EXPERTS, dp=8, ep=8) == "" and broken(EXPERTS, tp=2, cp=2, dp=2, ep=8) == ""
    assert broken(EXPERTS, dp=4, ep=8) == "ep-ranks"
    assert broken(EXPERTS, dp=3, ep=3, batch=63) == "ep-divides"
    assert broken(EXPERTS, dp=4, tp=2, ep=4, etp=2) == ""
    assert broken(EXPERTS, dp=2, tp=2, ep=4, etp=2) == "ep-ranks"
    assert broken(EXPERTS, dp=5, etp=5, batch=65) == "etp-width"
    assert broken(DENSE, dp=2, ep=2) == "experts" and broken(DENSE, dp=2, etp=2) == "experts"
    assert broken(EXPERTS, dp=2, ep=2, soft={"expert_parallel": False}) == "experts"
    assert broken(EXPERTS, dp=2, soft={"expert_parallel": False}) == ""
    own = {"expert_tensor_parallel": False}
    assert broken(EXPERTS, tp=2, etp=2, soft=own) == "" == broken(EXPERTS, tp=2, soft=own)
    assert broken(EXPERTS, tp=4, etp=2, soft=own) == "experts"


def test_the_batch_is_dealt_evenly():
    assert broken(dp=4, micro_batch_size=2, batch=24) == ""
    assert broken(dp=4, micro_batch_size=2, batch=20) == "batch"


def test_pipelines_hold_a_layer_in_every_stage_or_chunk():
    assert broken(pp=32) == broken(pp=34) == ""  # embedding and head alone
    assert broken(pp=35) == broken(pp=33, soft={"lone_ends": False}) == "pp-layers"
    assert broken(pp=17, vpp=2, batch=68, schedule="interleaved") == ""  # the ends hold none
    assert broken(pp=7, vpp=5, batch=70, schedule="interleaved") == "pp-layers"
    even = {"uneven_stages": False}
    assert broken(pp=8, soft=even) == "" and broken(pp=6, soft=even) == "pp-even"
    assert broken(pp=8, vpp=4, soft=even, schedule="interleaved") == ""
    assert broken(pp=8, vpp=3, soft=even, schedule="interleaved") == "pp-even"
    assert broken(pp=2, soft={"pipeline": False}) == "pp-offered"
    assert broken(dp=2, soft={"pipeline": False}) == ""
    tied = replace(DENSE, tied=True)
    assert broken(tied, pp=2) == "" and broken(tied, pp=2, soft={"tied_pipeline": False}) != ""
    assert broken(DENSE, pp=2, soft={"tied_pipeline": False}) == ""
    by_length = replace(DENSE, n_layers=61)
    assert broken(by_length, pp=8, soft={"stages_by_length": True}) == ""
    assert broken(by_length, pp=56, soft={"stages_by_length": True}) == "pp-even"


def test_schedules_need_their_micro_batches():
    """Narayanan 2021, 2.2: m % p = 0; DeepSeek-V3, 3.2.1: even stages, 2 p micro-batches."""
    assert broken(pp=4, vpp=2, batch=8) == "" and broken(pp=4, vpp=2, batch=10) == "interleaved"
    assert broken(pp=4, schedule="interleaved") == "interleaved"
    assert broken(pp=4, vpp=2, schedule="zb-h1") == "interleaved"
    assert broken(pp=4, schedule="zb-h1") == ""
    assert broken(pp=4, schedule="dualpipe", batch=8) == ""
    for pp, batch in ((4, 6), (4, 9), (3, 8)):
        assert broken(pp=pp, schedule="dualpipe", batch=batch) == "dualpipe"
    assert broken(pp=1, schedule="zb-h1") == "schedule" == broken(pp=1, vpp=2)
    assert broken(pp=2, schedule="zb-h1", soft={"schedules": ("1f1b",)}) == "schedule"


def test_states_are_sharded_as_the_framework_can():
    assert broken(dp=2, zero_stage=3) == "" == broken(pp=2, zero_stage=3)
    assert broken(pp=2, zero_stage=2) == "zero-pipeline" and broken(dp=2, zero_stage=2) == ""
    assert broken(pp=2, zero_stage=2, soft={"zero_pipeline_asked": (2,)}) == ""
    assert broken(dp=2, zero_stage=3, soft={"zero_stages": (0, 1)}) == "zero"
    assert broken(dp=4, cp=2, zero_stage=3, shard_group_size=8) == ""
    assert broken(dp=4, cp=2, zero_stage=3, shard_group_size=3) == "shard-group"
    assert broken(dp=4, zero_stage=2, shard_group_size=2) == "shard-group"
    no = {"hybrid_shards": False}
    assert broken(dp=4, zero_stage=3, shard_group_size=2, soft=no) == "shard-group"


def test_recompute_offload_and_order_are_the_framework_s():
    assert broken(recompute="full", recompute_layers=3) == ""
    assert broken(recompute="full", soft={"recompute": ("none",)}) == "recompute"
    whole = {"recompute_layers": False}
    assert broken(recompute="full", recompute_layers=3, soft=whole) == "recompute"
    assert broken(recompute="full", soft=whole) == ""
    assert broken(offload_optimizer=True, soft={"offload_optimizer": False}) == "offload"
    assert broken(offload_activations=True, soft={"offload_activations": False}) == "offload"
    assert broken(soft={"offload_optimizer": False, "offload_activations": False}) == ""
    assert broken(soft={"orders": ("tp-dp",)}) == "order"


GIVEN = [  # layers of the stages or chunks, pp, vpp, rule
    ((8, 8, 8, 8), 4, 1, ""),
    ((7, 9, 9, 7), 4, 1, ""),
    ((8, 8, 8, 7), 4, 1, "pp-layers"),
    ((16, 16), 4, 1, "pp-layers"),
    ((0, 16, 8, 8), 4, 1, ""),  # the embedding alone
    ((16, 0, 8, 8), 4, 1, "pp-layers"),
    ((1, 31), 2, 1, ""),
    ((16, 16), 2, 4, ""),
    ((3, 29), 2, 4, "pp-layers"),  # four chunks are four layers
    ((0, 16, 16, 0), 2, 2, ""),  # embedding and head alone
    ((16, 0, 16, 0), 2, 2, "pp-layers"),
    ((0, 16, 15, 0), 2, 2, "pp-layers"),
    ((0, 1, 31, 0), 2, 2, ""),  # one layer is enough of a chunk
]


@pytest.mark.parametrize(("layers", "pp", "vpp", "rule"), GIVEN)
def test_named_stages_hold_all_layers(layers, pp, vpp, rule):
    assert broken(pp=pp, vpp=vpp, stage_layers=layers) == rule


def test_named_stages_are_equal_where_they_must_be():
    even = {"uneven_stages": False}
    assert broken(pp=4, stage_layers=(8, 8, 8, 8), soft=even) == ""
    assert broken(pp=4, stage_layers=(7, 9, 9, 7), soft=even) == "pp-even"
    facts = replace(DENSE, stage_layers=(16, 16))
    assert facts.stages_given(2, 1) == (16, 16) and facts.stages_given(1, 2) == (16, 16)
    assert facts.stages_given(4, 1) is None and DENSE.stages_given(2, 1) is None


def test_figures_of_a_model():
    """DeepSeek-V3, configuration: 61 layers, 128 heads, 18,432 and 2,048 wide, 256 experts."""
    found = facts_of(load_model("deepseek-v3").spec, 4096, 64, 8)
    assert (found.n_layers, found.head_counts, found.n_experts) == (61, (128,), 256)
    assert (set(found.ffn_widths), found.expert_widths) == ({18432, 2048}, (2048,))
    assert (found.seq_len, found.global_batch_size, found.n_gpus) == (4096, 64, 8)
    llama = facts_of(load_model("llama3-8b").spec, 1, 1, 1)
    assert (llama.kv_head_counts, llama.n_experts, llama.tied) == ((8,), 0, False)


def test_stages_by_the_layers_of_one():
    """torchtitan: ceil((61 + 1 + 1) / 8) stages of 8 layers, embedding and head counted as one."""
    found = {(s.less_on_first, s.less_on_last): s for s in splits_by_length(61, 8)}
    assert set(found) == {(0, 0), (1, 1), (1, 0), (0, 1)}
    assert found[1, 1].counts == (7, 8, 8, 8, 8, 8, 8, 6)
    assert found[1, 0].counts == (7, 8, 8, 8, 8, 8, 7, 7)
    assert found[0, 1].counts == (8, 8, 8, 8, 8, 8, 7, 6)
    for n_layers in range(2, 40):
        for n in range(1, n_layers + 1):
            for s in splits_by_length(n_layers, n):
                assert sum(s.counts) == n_layers and len(s.counts) == n
                total = n_layers + s.less_on_first + s.less_on_last
                assert -(-total // s.layers_per_stage) == n
                full = [*s.counts]
                full[0] += s.less_on_first
                full[-1] += s.less_on_last
                assert max(full) <= s.layers_per_stage and max(full) - min(full) <= 1


def test_chunks_are_read_as_megatron_writes_them():
    """Megatron-Core, `PipelineParallelLayerLayout`: E, t, m, L, bars and stars."""
    assert layout_chunks("Et*3|(tt|)*29,m|L") == [3, *[2] * 29, 0, 0]
    assert layout_chunks("Ettt|t*4|ttL") == [3, 4, 2]
    assert layout_chunks("15 16, 16 15") == [15, 16, 16, 15]
    for bad in ("", "Ex|t", "t*"):
        with pytest.raises(ValueError, match="no list of layers"):
            layout_chunks(bad)
