"""Rows of the board of limits, each number from widths of the model and links of the data sheet.

Llama 3 70B: D 8,192, F 28,672, three matrices, 80 layers, 64 query and 8 KV heads of 128. Mixtral
8x7B: D 4,096, F 14,336, 8 experts of which 2, 32 layers. DeepSeek-V3: D 7,168, F 2,048, 8 of 256 in
at most 4 of 8 groups, one shared. H100: 990 TFLOP/s, 450 GB/s, 50 GB/s a GPU out of a node of 8.
"""

import pytest

from gpuscale.core.layout import Layout
from gpuscale.core.limits import formulas as limits
from gpuscale.core.limits import formulas as pp
from gpuscale.core.limits.board import limits_board
from gpuscale.io.hardware import load_cluster
from gpuscale.io.models import load_model

H100, H800 = (load_cluster(name, "documents") for name in ("dgx-h100", "h800"))
LLAMA, MIXTRAL, DEEPSEEK = (
    load_model(name).spec for name in ("llama3-70b", "mixtral-8x7b", "deepseek-v3")
)
C = 990e12
B = 2**22  # tokens of a batch: 512 sequences of 8,192


def cut(**links):
    return H100.model_copy(update=links)


ALONE = cut(node_egress_bytes_per_s=None)  # one node without a network
SLOW = cut(node_egress_bytes_per_s=8e9)  # 1 GB/s a GPU out of a node
DENSE = {"tp": 8, "cp": 2, "pp": 2, "dp": 16}  # 512 GPUs, 32 micro-batches
MOE = {"tp": 2, "ep": 8, "dp": 16, "zero_stage": 3, "seq_len": 4096, "global_batch_size": 256}
WIDE = {"ep": 64, "pp": 16, "dp": 128, "seq_len": 4096, "global_batch_size": 15360}
MLP = 3 * 8192 * 28672  # weights of Llama's
EXPERT = 3 * 4096 * 14336
MIXER = 4096 * (2 * 4096 + 2 * 1024)  # weights of Mixtral's attention
STAGE = 855_638_016 * B / 16 / 32  # of a layer: 2 D (D + 1,024) + 3 D F, times tokens

# model, cluster, layout, axis, what the row says
ROWS = [
    # gradients of 2 bytes, reduced and gathered over the 32 nodes of a stage, an eighth a GPU
    (LLAMA, H100, DENSE, "dp", {
        "degree": 32, "in_use": True, "have": B / 512, "rule": 2475 / 2,
        "math_s": 4 * MLP * B / 512 / C, "comm_s": 2 * 2 * MLP * 31 / 32 / 400e9 / 2,
        "need": 2475 / 2 * 31 / 32, "verdict": "compute-bound", "bound": "compute",
        "note": "tokens per DP rank 131,072",
    }),
    # gathered twice and reduced once for each of 32 micro-batches, forward and backward
    (LLAMA, H100, DENSE, "fsdp", {
        "degree": 32, "in_use": False, "have": B / 512, "rule": 32 * 2475 / 2,
        "math_s": 6 * MLP * B / 32 / 512 / C, "comm_s": 3 * 2 * MLP * 31 / 32 / 400e9 / 2,
        "need": 32 * 2475 / 2 * 31 / 32, "verdict": "not used; would be communication-bound 4.68x",
        "bound": "communication", "note": "ZeRO-3, 32 micro-batches", "exceeded": False,
    }),
    (LLAMA, H100, DENSE | {"zero_stage": 3}, "dp", {
        "in_use": False, "verdict": "not used; would be compute-bound",
    }),
    (LLAMA, H100, DENSE | {"zero_stage": 3}, "fsdp", {"in_use": True, "exceeded": True}),
    (LLAMA, H100, {"tp": 8, "dp": 2, "global_batch_size": 2}, "fsdp", {
        "degree": 2, "note": "ZeRO-3, 1 micro-batch",
    }),
    (LLAMA, H100, {"tp": 8, "dp": 2, "global_batch_size": 4}, "fsdp", {
        "note": "ZeRO-3, 2 micro-batches",
    }),
    # inside a node two GPUs of TP carry a gradient together: C / (2 W)
    (LLAMA, H100, {"tp": 2, "dp": 2}, "dp", {"degree": 2, "rule": 1100, "need": 1100 / 2}),
    (LLAMA, H100, {"tp": 2, "pp": 2, "dp": 4}, "dp", {"rule": 1100 / 2}),  # a stage is a node
    (LLAMA, H100, {"tp": 32, "dp": 2}, "dp", {"rule": C / (50e9 * 32)}),
    (LLAMA, H100, {"tp": 8}, "dp", {"in_use": False, "verdict": "not used", "bound": "-"}),
    (LLAMA, H100, {"tp": 4, "cp": 2}, "dp", {"degree": 2, "in_use": True, "rule": 550}),
    # 131,072 tokens of a group, gathered and scattered; 1.5 F W/C of three matrices over nodes
    (LLAMA, H100, DENSE, "tp", {
        "degree": 8, "in_use": True, "have": 8, "math_s": 2 * MLP * 131072 / 8 / C,
        "comm_s": 2 * 2 * 131072 * 8192 * 7 / 8 / 450e9, "rule": 28672 * 450e9 / C,
        "need": 1.5 * 28672 * 450e9 / C * 8 / 7, "verdict": "compute-bound", "note": "F = 28,672",
    }),
    (LLAMA, H100, {}, "tp", {"verdict": "not used; compute-bound to 22.3", "bound": "-"}),
    (LLAMA, SLOW, {"tp": 16}, "tp", {
        "need": 8 + 1.5 * 28672 * 8e9 / C, "rule": 28672 * 8e9 / C, "bound": "communication",
        "exceeded": True,
    }),
    (LLAMA, cut(node_egress_bytes_per_s=1.0), {"tp": 8}, "tp", {"need": 8.0, "bound": "compute"}),
    (LLAMA, ALONE, {"tp": 8}, "tp", {"need": 8.0}),
    (LLAMA, cut(scaleup_bytes_per_s=100e9), {"tp": 8}, "tp", {
        "need": 1 + 1.5 * 28672 * 100e9 / C, "verdict": "communication-bound 1.61x",
    }),
    (LLAMA, cut(scaleup_bytes_per_s=20e9), {}, "tp", {
        "verdict": "not used; any degree would be communication-bound",
    }),
    (LLAMA, cut(scaleup_bytes_per_s=30e9), {}, "tp", {
        "verdict": "not used; compute-bound to 2.3",
    }),
    # a micro-batch's activations over the links of 16 GPUs; stages of 40 layers
    (LLAMA, H100, DENSE, "pp", {
        "degree": 2, "have": 2, "math_s": 2 * STAGE / 16 / C * 80 / 2,
        "comm_s": 2 * B / 16 / 32 * 8192 / (16 * 50e9), "need": 80.0, "rule": None,
        "note": "32 micro-batches, bubble 3.0 %", "in_use": True,
    }),
    (LLAMA, SLOW, DENSE, "pp", {"need": 80 * 855_638_016 * 1e9 / 8192 / C, "bound": "compute"}),
    (LLAMA, SLOW, {"pp": 8, "tp": 1}, "pp", {"need": 80.0}),  # inside the node
    (LLAMA, H100, {"pp": 4, "global_batch_size": 1}, "pp", {
        "note": "1 micro-batch, bubble 75.0 %",
    }),
    (LLAMA, H100, {"pp": 2, "vpp": 4, "global_batch_size": 2}, "pp", {
        "note": "2 micro-batches, bubble 11.1 %",  # 1 of 2 x 4 + 1
    }),
    (LLAMA, H100, {"tp": 8}, "pp", {
        "note": "", "verdict": "not used; compute-bound to 80", "bound": "-", "in_use": False,
    }),
    # K and V of an eighth as many heads to the neighbour; causal: half of the products
    (LLAMA, H100, DENSE, "cp", {
        "degree": 2, "have": 4096, "math_s": 4 * 4096**2 * 8192 / 8 / 2 / C,
        "comm_s": 4 * 4096 * 1024 / 8 / 50e9, "need": 4950.0, "rule": 2475.0, "exceeded": True,
        "verdict": "communication-bound 1.21x", "note": "ring, causal, over the network",
    }),
    (LLAMA, H100, {"cp": 8}, "cp", {
        "need": 550.0, "note": "ring, causal, inside the NVLink domain", "have": 1024,
        "verdict": "compute-bound",
    }),
    (LLAMA, H100, {"tp": 8}, "cp", {"verdict": "not used; compute-bound to 14.9", "bound": "-"}),
    # attention's weights alone; two of TP share a node's links
    (MIXTRAL, H100, MOE, "dp", {
        "degree": 16, "in_use": False, "have": 32768, "math_s": 4 * MIXER * 2**20 / 32 / C,
        "comm_s": 2 * 2 * MIXER * 3 / 4 / 400e9, "need": 2475 * 3 / 4, "rule": 2475,
        "note": "tokens per DP rank 65,536; attention and shared experts",
    }),
    # all eight experts' gradients among four nodes, the work of two
    (MIXTRAL, H100, MOE, "moe-dp", {
        "degree": 4, "math_s": 4 * 2 * EXPERT * 2**20 / 32 / C, "in_use": False,
        "comm_s": 2 * 2 * 8 * EXPERT * 3 / 4 / 400e9, "need": 4 * 2475 * 3 / 4, "rule": 4 * 2475,
        "note": "experts: E/k = 4", "verdict": "not used; would be compute-bound",
    }),
    (MIXTRAL, H100, MOE | {"pp": 2}, "moe-dp", {
        "comm_s": 2 * 8 * EXPERT * 3 / 4 / 400e9, "rule": 4 * 2475 / 2,
    }),
    (MIXTRAL, H100, {"tp": 2, "ep": 2}, "fsdp", {"degree": 1, "verdict": "not used"}),
    (MIXTRAL, H100, {"tp": 2, "ep": 2}, "tp", {"in_use": True}),
    (MIXTRAL, H100, {"tp": 2, "ep": 2}, "ep", {"in_use": True}),
    (MIXTRAL, H100, MOE | {"zero_stage": 2}, "moe-dp", {"in_use": True}),
    (MIXTRAL, H100, MOE | {"dp": 4}, "moe-dp", {"degree": 1, "verdict": "not used"}),
    (MIXTRAL, H100, {"tp": 2, "ep": 4, "etp": 2}, "moe-dp", {"degree": 1}),
    (MIXTRAL, H100, {"ep": 4, "etp": 2, "dp": 64}, "moe-dp", {"degree": 8}),
    (MIXTRAL, H100, {"ep": 2, "dp": 8}, "moe-dp", {"degree": 4, "rule": 4 * 1100}),
    (MIXTRAL, H100, MOE | {"cp": 2, "dp": 8}, "moe-dp", {
        "degree": 4, "comm_s": 2 * 2 * 8 * EXPERT * 3 / 4 / 400e9,
    }),
    (MIXTRAL, H100, MOE, "fsdp", {
        "degree": 4, "in_use": True, "math_s": 6 * 2 * EXPERT * 2**20 / 16 / 32 / C,
        "comm_s": 3 * 2 * 8 * EXPERT * 3 / 4 / 400e9, "need": 16 * 4 * 2475 * 3 / 4,
        "rule": 16 * 4 * 2475, "verdict": "communication-bound 3.63x",
        "note": "ZeRO-3, 16 micro-batches",
    }),
    (MIXTRAL, H100, {"ep": 4, "etp": 2, "dp": 64}, "fsdp", {"degree": 8, "rule": 8 * 4 * 2475}),
    (MIXTRAL, H100, {"tp": 8}, "tp", {"note": "F = 14,336 of one expert"}),
    # each token to two of eight GPUs, and back: 4 bytes an element
    (MIXTRAL, H100, MOE, "ep", {
        "degree": 8, "in_use": True, "have": 14336, "math_s": 2 * 2 * EXPERT * 2**18 / 8 / C,
        "comm_s": 2**18 * 4 * 4096 * 2 / 8 * 7 / 8 / 450e9, "need": 2200 * 4 / 6 * 7 / 8,
        "rule": 2200 * 7 / 8, "note": "inside a node", "relation": ">=",
    }),
    (MIXTRAL, H100, {"cp": 2, "pp": 2, "ep": 4, "etp": 2, "dp": 8}, "ep", {
        "degree": 4, "math_s": 2 * 2 * EXPERT * (B / 2) / 8 / C, "note": "inside a node",
        "need": 2200 * 4 / 6 * 7 / 8,
    }),
    (MIXTRAL, H100, {"dp": 2}, "ep", {
        "degree": 1, "in_use": False, "verdict": "not used; would be compute-bound",
        "note": "inside a node, at degree 8", "need": 2200 * 4 / 6 * 7 / 8,
    }),
    # over eight nodes, to four at most; the shared expert hides 2,048 / 8 of the width
    (DEEPSEEK, H800, WIDE, "ep", {
        "math_s": 2 * 3 * 7168 * 9 * 2048 * (4096 * 15360 / 2) / 64 / C, "rule": 17325.0,
        "comm_s": 4096 * 15360 / 2 * 4 * 7168 * 4 / 8 * 7 / 8 / 400e9,
        "need": 17325 * 4 / 6 / 2 - 256, "verdict": "communication-bound 2.51x",
        "note": "over 8 nodes, a token goes to 4 nodes at most",
    }),
    (DEEPSEEK, H800, {"dp": 64}, "ep", {"note": "inside a node, at degree 8"}),
    (DEEPSEEK, cut(scaleup_bytes_per_s=1e15), {"ep": 8, "dp": 8}, "ep", {"need": 0.0}),
    # the shared expert's weights are dense: attention 187,105,280 and 3 x 7,168 x 2,048
    (DEEPSEEK, H800, WIDE, "dp", {
        "math_s": 4 * (187_105_280 + 3 * 7168 * 2048) * 4096 * 15360 / 2048 / C,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("model", "cluster", "layout", "axis", "want"), ROWS)
def test_row_by_hand(model, cluster, layout, axis, want):
    given = {"seq_len": 8192, "global_batch_size": 512} | layout
    row = {row.axis: row for row in limits_board(model, cluster, Layout(**given))}[axis]
    numbers = {k: v for k, v in want.items() if isinstance(v, float | int) and v is not True}
    found = {k: getattr(row, k) for k in want}
    assert {k: v for k, v in found.items() if k not in numbers} == {
        k: v for k, v in want.items() if k not in numbers
    }
    assert {k: found[k] for k in numbers} == pytest.approx(numbers)
    assert row.ratio == pytest.approx(row.comm_s / row.math_s)


def axes(model, **layout):
    return [row.axis for row in limits_board(model, H100, Layout(8192, 512, **layout))]


def test_axes_are_those_that_a_model_has():
    assert axes(LLAMA) == ["dp", "fsdp", "tp", "pp", "cp"]
    assert axes(MIXTRAL) == ["dp", "moe-dp", "fsdp", "tp", "ep", "pp", "cp"]
    delta = load_model("qwen3-next-80b-a3b").spec.layer_groups[0].mixer  # no keys are met
    linear = LLAMA.model_validate(
        LLAMA.model_dump() | {"mixers": dict.fromkeys(LLAMA.mixers, delta)}
    )
    assert axes(linear) == ["dp", "fsdp", "tp", "pp"]


def test_exact_forms_of_few_ranks():
    """(X - 1)/X of the nodes, (Y - 1)/Y of the degree: a half of two, none of one."""
    assert limits.tp_comm_s(1e6, 1e3, 4e9, 2) == limits.tp_comm_s(1e6, 1e3, 4e9) / 2 == 0.5
    assert limits.tp_comm_s(1e6, 1e3, 4e9, 1) == 0.0
    assert limits.dp_comm_s(1e3, 1e3, 8e6, n_nodes=2) == limits.dp_comm_s(1e3, 1e3, 8e6) / 2 == 0.5
    assert limits.dp_comm_s(1e3, 1e3, 8e6, 4, 3, n_nodes=4) == 4.5  # 3/4 x 4 x 3/2
    assert limits.dp_math_s(10, 1e3, 1e3, 10, 8e6, 2) == 2.0
    assert limits.dp_limit_levels(8e12, 4e9, 16e9, 4, 5) == (1500.0, 400.0)
    assert limits.tp_max_spanning(1e3, 1e12, 1e10, 1e9, 2) == (20.0, 3.0)
    assert limits.tp_max_spanning(1e3, 1e12, 1e10, 1e9, 1)[0] == float("inf")
    assert [limits.tp_max(x, 8, (64, 24)) for x in (0.5, 1.9, 2.0, 7.9, 64.0)] == [1, 1, 2, 4, 8]
    assert limits.tp_max(64.0, 8, (12,)) == 4 and limits.tp_max(8.0, 8, (7,)) == 1


def test_experts_beside_the_routed_ones_add_work_alone():
    assert limits.ep_math_s(100, 2, 10, 30, 4, 1e3, 3, 40) == 2 * 3 * 100 * 10 * (60 + 40) / 4e3
    assert limits.ep_comm_s(100, 10, 8, 2, 1e3) == 0.0 == limits.ep_min_ffn(8, 2, 1e3, 1e3)
    fp8 = limits.ep_comm_s(100, 10, 16, 2, 1e3, dispatch_bytes=1.0)
    assert fp8 == 100 * 10 * 3 / 2 / 1e3  # half of the tokens leave, each for one of two nodes
    assert limits.ep_large_min_ffn(1e3, 1e3, 8) == 8.0


def test_transfers_of_a_pipeline():
    assert pp.hop_time_s(8.0, 1.0, 2, 0.5) == 16.0
    assert pp.transfer_time_per_layer_s(2.0, 3.0, 1, 4.0) == 1.5 * 2 * 2 * 3 / 4
    assert (pp.hops(1, 1), pp.hops(2, 1)) == (0, 1)
