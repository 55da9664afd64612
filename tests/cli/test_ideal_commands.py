"""matmul-time, collective, roofline: text, JSON, refusals, exit codes."""

import csv
import io
import json
import shlex

import pytest
from running import forked

from gpuscale.cli.app import run


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def result(line, capsys):
    code, out, err = call(f"{line} --json", capsys)
    assert code in (0, 1), err
    return json.loads(out)["result"]


DOCUMENTS = [  # command, key, value: answers of the GPU chapter and its notes
    ("matmul-time b200 64 4096 8192 --dtype bf16", "time_s", 8.585216e-6),
    ("matmul-time b200 64 4096 8192", "bytes", 68681728),
    ("matmul-time b200 64 4096 8192", "intensity_flop_per_byte", 62.53435115),
    ("matmul-time b200 512 4096 8192", "time_s", 1.527099483e-5),
    ("matmul-time b200 512 4096 8192", "critical_m", 313.5440411),
    ("matmul-time h100 65536 --op add", "time_s", 2.347558209e-7),
    ("matmul-time h100 1073741824 --op add --dtype fp32", "time_s", 3.84623937e-3),
    ("collective all-gather h100 --shape 4096x65536", "time_s", 1.043915662e-3),
    ("collective all-gather h100 --shape 4096x65536", "approximate_s", 1.193046471e-3),
    ("collective reduce-scatter h100 --bytes 1e9", "time_s", 1.944444444e-3),
    ("collective all-reduce h100 --bytes 1e9", "ring_s", 3.888888889e-3),
    ("collective all-reduce h100 --bytes 1e9 --algorithm sharp", "time_s", 2.222222222e-3),
    ("collective all-to-all h100 --bytes 1e9", "time_s", 2.430555556e-4),
    ("collective all-to-all h100 --bytes 1e9 --top-k 4", "time_s", 1.215277778e-4),
    (
        "collective all-to-all h100 --bytes 1e9 --top-k 4 --routing with-replacement",
        "time_s",
        1.005808512e-4,
    ),
    ("collective all-to-all h100 --bytes 1e9 --gpus 16", "time_s", 6.25e-4),
    ("collective all-gather h100-superpod --bytes 1e9 --gpus 1024", "time_s", 2.421875e-3),
    ("collective all-gather h100-superpod --bytes 1e9 --gpus 16", "time_s", 1.944444444e-3),
    (
        "collective all-gather h100-superpod --shape 8192x32768 --gpus 256 --inner 8",
        "time_s",
        1.30023424e-3,
    ),
    (
        "collective reduce-scatter h100-superpod --bytes 1e9 --gpus 1024 --inner 16",
        "approximate_s",
        1.25e-3,
    ),
    ("roofline chip h100", "vector_lanes", 16896),
    ("roofline chip b200", "vector_lanes", 18944),
    ("roofline chip tpu-v5p", "vector_lanes", 8192),
    ("roofline chip h100", "smem_bytes", 34603008),
    ("roofline chip h100 --clock '1.98 GHz'", "vector_flop_per_s", 33454080000000),
    ("roofline chip b200 --catalogue documents", "bf16_ridge_flop_per_byte", 281.25),
]


@pytest.mark.parametrize(("line", "key", "value"), DOCUMENTS)
def test_command_gives_the_documents_value(line, key, value, capsys):
    assert result(line, capsys)[key] == pytest.approx(value, rel=1e-6, abs=0)


LIMITS = [  # command, scope, limit
    ("roofline dp h100 --catalogue documents", "node", 2200),
    ("roofline dp h100 --catalogue documents", "cluster", 2475),
    ("roofline dp b200 --catalogue documents", "cluster", 5625),
    ("roofline dp gb200-nvl72 --catalogue documents", "cluster", 625),
    ("roofline dp h100 --catalogue documents --nodes 2", "both, exact", 1925),
    ("roofline moe-dp h100 --catalogue documents --experts 128 --top-k 4", "cluster", 79200),
    ("roofline dp h100 --catalogue documents --spans 8", "cluster", 309.375),
    ("roofline tp h100 --catalogue documents --ffn 28672", "node", 13.03272727),
    ("roofline tp h100 --catalogue documents --ffn 28672", "usable", 8),
    ("roofline tp h100 --catalogue documents --ffn 28672", "nodes: inside", 14.89454545),
    ("roofline tp h100 --catalogue documents --ffn 28672", "nodes: network", 19.58464646),
    ("roofline ep h100 --catalogue documents --ep 16 --top-k 4", "ep 16, top-4", 4950),
    ("roofline ep h100 --catalogue documents --ep 8 --top-k 4", "ep 8, top-4", 1925),
    ("roofline ep h100 --catalogue documents --ep 16 --top-k 4", "any degree", 19800),
    (
        "roofline ep h100 --catalogue documents --ep 64 --top-k 8 --max-nodes 4 --dispatch-bytes 1",
        "ep 64, top-8",
        6496.875,
    ),
    ("roofline ep h100 --catalogue documents --top-k 8 --ffn 2048", "largest degree", 14.61979798),
    ("roofline cp h100 --catalogue documents", "node, full", 2200),
    ("roofline cp h100 --catalogue documents", "one GPU's NIC share, full", 19800),
]


@pytest.mark.parametrize(("line", "scope", "limit"), LIMITS)
def test_limit_is_the_documents_one(line, scope, limit, capsys):
    rows = {row["scope"]: row for row in result(line, capsys)["rows"]}
    assert rows[scope]["need"] == pytest.approx(limit, rel=1e-6, abs=0)


def test_times_of_one_limit(capsys):
    line = "roofline dp h100 --catalogue documents --gpus 4096 --batch-tokens 4M --hidden 8192"
    rows = {r["scope"]: r for r in result(f"{line} --ffn 28672", capsys)["rows"]}
    assert rows["cluster"]["math_s"] == pytest.approx(1.853543434e-3, rel=1e-6)
    assert rows["cluster"]["comm_s"] == pytest.approx(4.69762048e-3, rel=1e-6)
    line = "roofline pp h100 --batch-tokens 4M --hidden 8192 --micro-batches 16 --pp 8 --layers 80"
    rows = {r["scope"]: r for r in result(line, capsys)["rows"]}
    assert rows["cluster: 22 hops"]["comm_s"] == pytest.approx(0.22528)
    assert rows["cluster: per layer"]["comm_s"] == pytest.approx(0.003072)


def test_matmul_text(capsys):
    code, out, err = call("matmul-time b200 64 4096 8192 --dtype bf16", capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "b200-sxm  [64, 4,096] x [4,096, 8,192]  bf16"
    time = next(line for line in lines if line.startswith("time"))
    assert "8.585 us" in time and time.endswith("memory-bound")
    assert any("62.53" in line and "ridge 281.2" in line for line in lines)
    assert any("M >= 314" in line for line in lines)


def test_board_of_a_model_in_a_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, '
        '"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, '
        '"vocab_size": 128256, "max_position_embeddings": 8192}'
    )
    monkeypatch.chdir(tmp_path)
    mine, known = (result(f"roofline {m} --gpus 64", capsys) for m in ("mine", "llama3-8b"))
    assert mine["rows"] == known["rows"]


def test_expected_is_never_below_the_roofline(capsys):
    for shape in ("1 1 1", "64 4096 8192", "8192 8192 8192", "100000 128 64"):
        for gpu in ("h100", "b200", "mi300x", "l4", "v100"):
            found = result(f"matmul-time {gpu} {shape}", capsys)
            expected = found["expected"]
            assert found["time_s"] <= expected["low_s"] <= expected["time_s"] <= expected["high_s"]


def test_expected_of_kinds_that_were_not_measured_has_a_wide_interval(capsys):
    for line in (
        "h100 9 --op add",
        "h100 9 --op copy",
        "h100 8 8 8 --batch 2",
        "h100 8 8 8 --groups 2",
        "h100 8 8 8 --dtypes bf16,fp8,bf16",
        "h100 8 8 8 --dtypes fp8,bf16,bf16",
    ):
        found = result(f"matmul-time {line}", capsys)
        expected = found["expected"]
        assert found["time_s"] < expected["time_s"] and not expected["measured"], line
        assert expected["high_s"] >= 1.4 * expected["time_s"], line
        assert "was not measured" in call(f"matmul-time {line}", capsys)[1]
    assert result("matmul-time h100 8 8 8", capsys)["expected"]["measured"]


def test_expected_of_a_product_is_that_of_its_shape(capsys):
    """(m, k) @ (k, n) and its transpose differ in tiles; which is which must not be mixed up."""
    from products import expected_matmul_time_s

    from gpuscale.io.calibration import load_arch
    from gpuscale.io.hardware import load_gpu

    b200 = load_gpu("b200")
    want = expected_matmul_time_s(
        64,
        8192,
        4096,
        "bf16",
        load_arch(b200),
        b200.bf16_flop_per_s,
        b200.hbm_bytes_per_s,
        n_units=b200.n_compute_units,
        l2_bytes=b200.l2_bytes,
    )
    found = result("matmul-time b200 64 4096 8192", capsys)["expected"]["time_s"]
    assert found == pytest.approx(want, rel=1e-9)


def test_vector_add_as_measured(capsys):
    # How to Scale Your Model, GPU chapter, quiz 1 question 7: about 1.5 us and 4.1 ms on an H100
    for n, measured_s in ((65536, 1.5e-6), (2**30, 4.1e-3)):
        expected = result(f"matmul-time h100 {n} --op add --dtype fp32", capsys)["expected"]
        assert expected["low_s"] <= measured_s <= expected["high_s"]


def test_board_of_llama3_70b_on_4096_h100(capsys):
    line = "roofline llama3-70b --cluster dgx-h100 --gpus 4096 --batch-tokens 4M"
    code, out, err = call(f"{line} --catalogue documents", capsys)
    assert (code, err) == (1, "")
    assert "976.6 per GPU, 7,812.5 per DP rank" in out
    assert "communication-bound 2.53x" in out and "over the limit: dp 2.53x" in out
    code, out, _ = call(f"{line} --pp 8", capsys)
    assert code == 0 and "compute-bound along every parallelism in use" in out


def test_board_as_json_has_every_row(capsys):
    rows = result("roofline deepseek-v3 --cluster h800 --gpus 2048 --ep 64 --pp 16", capsys)["rows"]
    assert [r["axis"] for r in rows] == ["dp", "moe-dp", "fsdp", "tp", "ep", "pp", "cp"]


def test_sweep_is_a_table_with_raw_values_in_csv(capsys):
    line = "collective all-reduce h100 --algorithm ring --sweep 1KiB:1GiB --hop-latency '1 us'"
    _, out, _ = call(f"{line} --format csv", capsys)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[0]["array_bytes"]) == 1024 and float(rows[-1]["array_bytes"]) == 2**30
    times = [float(r["time_s"]) for r in rows]
    assert times == sorted(times) and times[0] == pytest.approx(14e-6, rel=0.01)
    assert all(float(r["busbw_bytes_per_s"]) <= 450e9 for r in rows)


def test_per_gpu_counts_one_buffer(capsys):
    one = result("collective all-to-all h100 --bytes 1GB --per-gpu", capsys)
    assert one["nccl_size_bytes"] == 1e9 and one["array_bytes"] == 8e9
    assert one["busbw_bytes_per_s"] == pytest.approx(450e9)


def test_switch_bytes(capsys):
    line = "collective all-gather h100-superpod --bytes 1e9 --gpus 256 --switch-bytes"
    assert result(line, capsys)["switch_bytes"]["node_out_gpus_bytes"] == 7968750000
    line = "collective all-reduce h100 --bytes 1e9 --algorithm sharp --switch-bytes"
    assert result(line, capsys)["switch_bytes"]["in_bytes"] == 8e9


def test_what_if_is_applied_and_said(capsys):
    line = "collective all-gather h100 --bytes 1e9 --set cluster.scaleup_bytes_per_s='900 GB/s'"
    assert result(line, capsys)["time_s"] == pytest.approx(9.72222e-4, rel=1e-5)
    assert "changed: cluster.scaleup_bytes_per_s: 450 GB/s -> 900 GB/s" in call(line, capsys)[1]


def test_the_default_all_reduce_is_bounded_by_the_algorithm_in_use(capsys):
    found = result("collective all-reduce h100 --bytes 10GB", capsys)
    assert found["time_s"] <= found["expected"]["time_s"] < found["ring_s"]
    ring = result("collective all-reduce h100 --bytes 10GB --algorithm ring", capsys)
    assert ring["time_s"] == pytest.approx(found["ring_s"]) and ring["ring_s"] is None
    assert ring["time_s"] <= ring["expected"]["time_s"]


REFUSED = [  # command, words of the error
    ("matmul-time v100 64 64 64 --dtype bf16", "v100-sxm2-32gb has no bf16 matrix rate"),
    ("matmul-time h100 64 64", "M, K and N are wanted"),
    ("matmul-time h100 0 1 1", "M must be between 1"),
    ("matmul-time h100 1.5 1 1", "must be a whole number"),
    ("matmul-time h100 nan 1 1", "M: "),
    ("matmul-time h100 1e300 1 1", "M: "),
    ("matmul-time h100 1 1 1 --dtype fp12", "unknown dtype `fp12`"),
    ("matmul-time h100 1 1 1 --dtypes bf16,fp8", "three formats"),
    ("matmul-time h100 1 1 1 --dtype bf16 --dtypes bf16,fp8,bf16", "not both"),
    ("matmul-time h100 1 1 1 --groups 2", "more than the 1 rows"),
    ("matmul-time h100 1 --op ad", "unknown operation `ad`"),
    ("matmul-time h100 1 --op add --batch 2", "no meaning"),
    ("matmul-time h100 1 1 1 --efficiency 1.5", "--efficiency"),
    ("matmul-time hundred 1 1 1", "unknown GPU preset"),
    ("collective gather h100 --bytes 1", "unknown collective `gather`"),
    ("collective all-gather h100", "give one of --bytes, --shape and --sweep"),
    ("collective all-gather h100 --bytes 1 --shape 2x2", "give one of"),
    ("collective all-gather h100 --bytes 0", "--bytes must be above 0"),
    ("collective all-gather h100 --bytes 5s", "--bytes: "),
    ("collective all-gather h100 --shape 4x0", "--shape"),
    ("collective all-gather h100 --bytes 1 --gpus 12 --inner 5", "does not divide"),
    ("collective broadcast h100 --bytes 1 --inner 2", "no meaning for broadcast"),
    ("collective all-gather h100 --bytes 1 --algorithm tree", "is for all-reduce"),
    ("collective all-reduce h100 --bytes 1 --algorithm star", "unknown algorithm"),
    ("collective all-reduce a100 --bytes 1 --algorithm sharp", "do not reduce"),
    ("collective all-gather h100 --bytes 1 --top-k 2", "for all-to-all"),
    ("collective all-to-all h100 --bytes 1 --top-k 4 --routing without-replacement", "--experts"),
    ("collective all-gather h100 --bytes 1 --per-gpu", "--per-gpu is for all-to-all"),
    ("collective all-gather lambda-h100 --bytes 1 --gpus 16", "at most 8 GPUs"),
    ("collective all-gather h100 --sweep 1GB", "--sweep"),
    ("collective all-gather h100 --sweep 2GB:1GB", "larger than the second"),
    ("collective broadcast h100 --bytes 1 --switch-bytes", "does not cover"),
    ("roofline chip", "chip wants a GPU"),
    ("roofline network h100", "command of their own"),
    ("roofline llama-3-7b", "unknown model or word"),
    ("roofline llama3-70b --gpus 100", "does not divide 100 GPUs"),
    ("roofline llama3-70b --tp 3 --gpus 96", "does not divide 64 heads"),
    ("roofline llama3-70b --pp 128", "more than 80 layers"),
    ("roofline llama3-70b --dtype fp4", "has no fp4 matrix rate"),
    ("roofline llama3-70b --hidden 8192", "--hidden goes with one limit"),
    ("roofline llama3-70b h100 --cluster b200", "given twice"),
    ("roofline dp h100 --compare b200", "go with `roofline chip`"),
    ("roofline tp h100", "wants --ffn"),
    ("roofline moe-dp h100", "wants --experts"),
    ("roofline pp h100 --pp 4", "wants --batch-tokens"),
    ("roofline dp h100 --scope rack", "unknown scope"),
    ("roofline deepseek-v3 --ep 7 --gpus 2048", "ep=7 does not divide"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_bad_input_is_one_clear_error(line, words, capsys):
    code, out, err = call(line, capsys)
    assert (code, out) == (2, ""), out
    first = err.splitlines()[0]
    assert first.startswith("error: ") and words in first


@pytest.mark.parametrize(
    "line",
    [
        "matmul-time h100 8192 8192 8192",
        "collective all-reduce h100 --sweep 1KiB:1GiB --gpus 64",
        "roofline llama3-70b --gpus 4096",
        "roofline chip h100 --compare tpu-v5p",
    ],
)
def test_a_pipe_is_never_wrapped_and_columns_do_not_matter(line):
    narrow, wide = (forked(*line.split(), COLUMNS=columns).stdout for columns in ("60", "200"))
    assert narrow == wide != ""


def test_every_json_number_is_finite(capsys):
    for line, *_ in DOCUMENTS + LIMITS:
        _, out, _ = call(f"{line} --json", capsys)
        assert "NaN" not in out and "Infinity" not in out


def test_gpu_against_tpu(capsys):
    """GPU chapter, chip comparison: 128 MB VMEM against 33 MB of shared memory, 2.06 lanes."""
    found = result("roofline chip h100 --compare tpu-v5p", capsys)
    other = found["compared_with"]
    assert other["smem_bytes"] == 128 * 2**20 and other["register_bytes"] == 256 * 1024
    both = found["smem_bytes"] + found["register_bytes"]
    assert other["smem_bytes"] / both == pytest.approx(1.939393939)
    assert found["vector_lanes"] / other["vector_lanes"] == 2.0625
    assert found["max_warps_per_unit"] == 64
    ratio = other["fast_cache_bytes_per_s"] / found["fast_cache_bytes_per_s"]
    assert ratio == pytest.approx(40 / 5.5)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [  # the level that the job really uses decides
        ("roofline tp h100 --ffn 28672 --tp 8", 0, "compute-bound"),
        ("roofline tp h100 --ffn 28672 --tp 16", 1, "communication-bound 1.07x"),
        ("roofline tp h100 --ffn 2048 --tp 2", 1, "communication-bound"),
        ("roofline dp h100 --gpus 8 --batch-tokens 19k", 0, "compute-bound"),
        ("roofline dp h100 --gpus 16 --batch-tokens 38k", 1, "communication-bound 1.04x"),
        ("roofline dp h100 --gpus 16 --batch-tokens 32k --nodes 2", 0, "both, exact"),
        ("roofline ep h100 --ep 8 --top-k 4 --ffn 2048", 0, "compute-bound"),
        ("roofline ep h100 --ep 16 --top-k 4 --ffn 2048", 1, "communication-bound 2.42x"),
        ("roofline cp h100 --cp 8 --seq-len 64k", 0, "compute-bound"),
        ("roofline cp h100 --cp 16 --seq-len 64000", 1, "communication-bound 9.89x"),
    ],
)
def test_exit_code_tells_the_verdict(line, code, words, capsys):
    got, out, err = call(line, capsys)
    assert (got, err) == (code, "") and words in out


@pytest.mark.parametrize("cluster", ["h100", "dgx1-v100", "lambda-h100", "gh200-144gb-1", "mi300x"])
@pytest.mark.parametrize("op", ["all-gather", "all-reduce", "all-to-all", "broadcast"])
def test_expected_collective_is_never_below_the_ideal(cluster, op, capsys):
    for size in ("1KiB", "16MiB", "4GiB"):
        found = result(f"collective {op} {cluster} --bytes {size} --gpus 8", capsys)
        ideal = found["time_s"]
        expected = found["expected"]
        assert ideal * (1 - 1e-12) <= expected["low_s"] <= expected["time_s"] <= expected["high_s"]


def test_roofline_says_which_options_do_not_enter(capsys):
    code, out, err = call("roofline tp h100 --ffn 28672 --experts 8 --gpus 64", capsys)
    assert (code, out) == call("roofline tp h100 --ffn 28672", capsys)[:2]
    assert err == (
        "warning: --gpus does not enter `roofline tp`\n"
        "warning: --experts does not enter `roofline tp`\n"
    )


def test_expert_parallel_degree_follows_the_gpus(capsys):
    whole, given = (f"roofline ep h100 --top-k 8 --{option} 64" for option in ("gpus", "ep"))
    assert result(whole, capsys)["rows"] == result(given, capsys)["rows"]


def test_pipeline_bubble_has_both_names(capsys):
    # three stages, four micro-batches: 33.3 % of the step, 50 % over the ideal time
    rows = result(
        "roofline pp h100 --batch-tokens 4M --hidden 8192 --pp 3 --micro-batches 4", capsys
    )
    said = " ".join(r["verdict"] for r in rows["rows"])
    assert "33.3 % of the step" in said and "50.0 % over its ideal time" in said
