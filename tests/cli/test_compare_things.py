"""compare: jobs, GPUs, clusters and models side by side."""

import json
import re
import shlex

import pytest
from json_schema import problems

from gpuscale.answers.compare.differences import side_by_side, split_difference
from gpuscale.cli.app import run

JOB = """
model = "llama3-8b"
gpus = {gpus}
cluster = "{cluster}"
global_batch = 64
[layout]
tp = "{tp}"
pp = "1"
"""


def call(line, capsys):
    code = run(shlex.split(line))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def result(line, capsys):
    code, out, err = call(f"{line} --json", capsys)
    assert (code, err) == (0, "")
    return json.loads(out)["result"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, gpus, cluster, tp in (
        ("a", 16, "dgx-h100", 1),
        ("b", 16, "dgx-h100", 8),
        ("c", 16, "dgx-b200", 1),
    ):
        (tmp_path / f"{name}.toml").write_text(JOB.format(gpus=gpus, cluster=cluster, tp=tp))
    return tmp_path


def rows_of(found):
    return {row["key"]: row for row in found["rows"]}


def test_gpus_have_the_figures_of_their_data_sheets(capsys):
    """H100 SXM 3.35 TB/s, B200 8 TB/s, B200 NVLink 1.8 TB/s both ways: the vendor's sheets."""
    found = result("compare h100 b200", capsys)
    rows = rows_of(found)
    assert (found["kind"], found["names"]) == ("gpu", ["h100-sxm", "b200-sxm"])
    assert rows["hbm_bytes_per_s"]["values"] == [3.35e12, 8e12]
    assert rows["hbm_bytes_per_s"]["ratios"] == [pytest.approx(8 / 3.35)]
    assert rows["scaleup_bytes_per_s"]["values"] == [450e9, 900e9]
    assert rows["fp4_flop_per_s"]["ratios"] == [None]
    assert "scaleup_domain_gpus" not in rows
    assert "scaleup_domain_gpus" in rows_of(result("compare h100 b200 --all", capsys))


def test_text_csv_and_markdown_of_gpus(capsys):
    line = "compare h100 b200 --only hbm_bytes"
    assert call(line, capsys)[1].splitlines() == [
        "GPUs: h100-sxm -> b200-sxm",
        "",
        "         h100-sxm   b200-sxm   ratio",
        "────────────────────────────────────",
        "memory   85.90 GB   193.3 GB   2.25x",
    ]
    _, out, _ = call(f"{line} --format csv", capsys)
    head, row = out.splitlines()
    assert head == "key,h100-sxm,b200-sxm,ratio_b200-sxm"
    assert row.startswith("hbm_bytes,85899345920.0,") and row.endswith(",2.25")
    _, out, _ = call(f"{line} --format markdown", capsys)
    assert "| memory | 85.90 GB | 193.3 GB | 2.25x |" in out


def test_a_gpu_beside_a_cluster_means_its_usual_node(capsys):
    found = result("compare h100 dgx-b200 gb200-nvl72", capsys)
    rows = rows_of(found)
    assert found["names"] == ["dgx-h100", "dgx-b200", "gb200-nvl72"]
    assert rows["scaleup_domain_gpus"]["values"] == [8, 8, 72]
    assert rows["node_egress_bytes_per_s"]["ratios"][0] == 1.0
    per_gpu = result("compare h100 dgx-b200 gb200-nvl72 --all", capsys)
    assert rows_of(per_gpu)["egress_bytes_per_s_per_gpu"]["values"] == [50e9, 50e9, 50e9]


def test_models_have_the_numbers_of_the_model_command(capsys):
    rows = rows_of(result("compare llama3-8b deepseek-v3", capsys))
    for i, name in enumerate(("llama3-8b", "deepseek-v3")):
        own = result(f"model {name} --seq-len 8192", capsys)
        for key in ("params", "active_params", "training_flop_per_token", "kv_bytes_per_token"):
            assert rows[key]["values"][i] == own[key]
    assert rows["hidden_size"]["values"] == [4096, 7168]


def test_plans_say_which_part_makes_the_difference(folder, capsys):
    found = result("compare a.toml b.toml", capsys)
    assert (found["kind"], found["command"]) == ("plan", "plan")
    rows = rows_of(found)
    own = [result(f"plan --job {name}.toml", capsys) for name in "ab"]
    assert rows["step_s"]["values"] == [r["step_s"] for r in own]
    assert rows["layout.tp"]["values"] == [1, 8]
    step, memory = found["differences"]
    assert step["delta"] == pytest.approx(own[1]["step_s"] - own[0]["step_s"], rel=1e-9)
    assert memory["delta"] == pytest.approx(own[1]["peak_bytes"] - own[0]["peak_bytes"], rel=1e-9)
    assert step["main_part"] == "tp_comm_s" and step["main_delta"] > 0
    text = call("compare a.toml b.toml", capsys)[1]
    assert "b.toml is slower than a.toml, mainly by TP communication: +" in text


def test_a_saved_plan_stands_beside_a_job_and_many_plans_beside_each_other(folder, capsys):
    call("plan --job a.toml -o a.json", capsys)
    found = result("compare a.json a.toml", capsys)
    assert all(d["delta"] == 0 and d["main_part"] is None for d in found["differences"])
    assert not any(c["key"].startswith(("step", "memory", "layout")) for c in found["changes"])
    found = result("compare a.json b.toml c.toml", capsys)
    assert [d["name"] for d in found["differences"]] == ["b.toml", "b.toml", "c.toml", "c.toml"]
    assert found["inputs_changed"]["cluster"] == ["dgx-h100", "dgx-h100", "dgx-b200"]
    assert found["differences"][2]["main_part"] == "matmul_s"
    assert {c["name"] for c in found["changes"]} == {"b.toml", "c.toml"}
    assert call("compare a.json b.toml c.toml --fail-over 2%", capsys)[0] == 1
    assert call("compare a.json a.toml --only step --fail-over 0", capsys)[0] == 0


def test_more_than_two_saved_answers_key_by_key(folder, capsys):
    for m in (64, 128, 256):
        call(f"matmul-time b200 {m} 4096 8192 -o m{m}.json", capsys)
    found = result("compare m64.json m128.json m256.json --only flop", capsys)
    assert [(c["name"], c["change_frac"]) for c in found["changes"]] == [
        ("m128.json", 1.0),
        ("m256.json", 3.0),
    ]
    assert found["inputs_changed"] == {"m": [64, 128, 256]}
    _, out, _ = call("compare m64.json m128.json m256.json --only flop --format csv", capsys)
    assert out.splitlines()[1] == "flop,4294967296,8589934592,17179869184,1.0,3.0"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("h100", "compare takes 2 to 16 things, got 1"),
        ("h100 llama3-8b", "h100 is a GPU and llama3-8b a model"),
        ("a.toml h100", "a.toml is a planning job and h100 a GPU"),
        ("h100 h10", "unknown GPU, cluster, model or file `h10`"),
        ("'' h100", "unknown GPU, cluster, model or file ``"),
        ("- h100", "compare reads no standard input"),
        ("no.toml h100", "no.toml: no such file"),
        ("bad.toml bad.toml", "did you mean `gpus`?"),
        ("jobs.toml jobs.toml", "holds jobs for `gpuscale check`"),
        ("m.json m.json --set gpu.hbm_bytes=1GB", "a saved answer cannot be changed"),
        ("m.json a.toml", "m.json answers `matmul-time` and a.toml answers `plan`"),
        ("list.json list.json", "list.json: is no answer of gpuscale"),
        ("inf.json m.json", "inf.json: 1e999 is beyond any answer"),
        ("nan.json m.json", "nan.json: NaN is beyond any answer"),
        ("digits.json m.json", "is beyond any answer"),
        (" ".join(["h100"] * 17), "compare takes 2 to 16 things, got 17"),
    ],
)
def test_what_cannot_be_compared(args, message, folder, capsys):
    (folder / "jobs.toml").write_text("[[job]]\ncommand = 'quiz'\n")
    (folder / "bad.toml").write_text("model = 'gpt2'\ngpuz = 8\n")
    (folder / "list.json").write_text('{"schema": 1, "command": "x", "inputs": [], "result": 1}')
    for name, number in (("inf", "1e999"), ("nan", "NaN"), ("digits", "9" * 400)):
        text = '{"schema": 1, "command": "x", "inputs": {}, "result": {"a": %s}}'
        (folder / f"{name}.json").write_text(text % number)
    call("matmul-time b200 64 4096 8192 -o m.json", capsys)
    code, out, err = call(f"compare {args}", capsys)
    assert (code, out) == (2, "") and message in err


def test_what_if_holds_for_all(capsys):
    found = result("compare h100 b200 --set gpu.hbm_bytes_per_s=1TB/s", capsys)
    assert "hbm_bytes_per_s" not in rows_of(found)
    out = call("compare h100 b200 --set gpu.hbm_bytes_per_s=1TB/s", capsys)[1]
    assert "changed in all: gpu.hbm_bytes_per_s=1TB/s" in out


@pytest.mark.parametrize(
    "args", ["h100 b200", "llama3-8b gpt2", "dgx-h100 pod-tpu-v4", "a.toml b.toml"]
)
def test_answers_fit_the_schema(args, folder, capsys):
    _, out, _ = call(f"compare {args} --json", capsys)
    _, schema, _ = call("schema compare", capsys)
    assert problems(json.loads(out), json.loads(schema)) == []


def test_the_parts_of_a_difference():
    found = split_difference({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 2.0, "c": 0.25})
    assert found.delta == -0.25 and found.main.key == "a" and found.against.key == "c"
    assert split_difference({"a": 1.0}, {"a": 1.0}).main is None
    aside = split_difference({"a": 1.0, "x": 0.0}, {"a": 2.0, "x": 5.0}, aside=("x",))
    assert aside.main.key == "a" and aside.delta == 6.0


def test_ratios_to_zero_and_text_are_left_out():
    rows = side_by_side([{"a": 0, "b": "x", "c": True}, {"a": 2, "b": "y", "c": True}])
    assert [r.ratios for r in rows] == [(None,)] * 3
    assert [r.differs for r in rows] == [True, True, False]


def test_of_equal_plans_no_table_is_empty(folder, capsys):
    code, out, _ = call("compare a.toml a.toml", capsys)
    assert code == 0
    for part in ("step", "memory"):
        assert re.search(f"Parts of the {part}:\n\n\\S+ and \\S+: no difference", out)
    assert "─" not in out
