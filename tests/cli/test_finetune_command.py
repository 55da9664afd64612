"""`memory` and `plan` with a method, as people call them."""

import json
import re

import pytest
from running import invoke

from gpuscale.cli.app import run


def out(capsys, *args):
    code = run(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def result(capsys, *args):
    code, text, err = out(capsys, *args, "--json")
    assert text, err
    return code, json.loads(text)["result"]


def test_qlora_of_8b_fits_a_24_gb_card(capsys):
    code, text, err = out(capsys, "memory", "llama3-8b", "--gpu", "rtx-4090", "--method", "qlora")
    assert (code, err) == (0, "")
    for word in ("base weights", "logits and loss", "longest", "host memory"):
        assert word in text
    assert "experts" not in text  # it has none


def test_alibi_keeps_whole_scores_and_hopper_takes_cudnn_of_late(capsys):
    job = ("--method", "lora", "--gpu", "h100", "--seq-len", "8192", "--recompute", "none")
    job += ("--micro-batch", "1")

    def asked(model, software, *more):
        return result(capsys, "memory", model, *job, "--software", software, *more)[1]

    old, new = (asked("llama3-8b", f"trl:{day}") for day in ("2025-11", "2026-10"))
    assert new["step_s"] < 0.95 * old["step_s"]
    bloom = asked("bloom-3b", "trl:2026-10")
    assert bloom["peak_bytes"] > 30 * 32 * 8192**2 * 2  # layers, heads, scores in 16 bits alone
    sinks, flash = (asked("gpt-oss-20b", name) for name in ("trl", "axolotl"))
    assert sinks["peak_bytes"] > flash["peak_bytes"] + 24 * 64 * 8192**2 * 2
    # nor has Unsloth for Gemma 3, whatever the version
    gemma, flash = (asked("gemma3-4b", "unsloth", *x) for x in ((), ("--attention", "flash2")))
    assert gemma["step_s"] > 1.5 * flash["step_s"]
    assert gemma["peak_bytes"] > flash["peak_bytes"] + 34 * 8 * 8192**2 * 2


def test_what_does_not_fit_gets_an_ordered_list(capsys):
    code, r = result(capsys, "memory", "llama3-8b", "--gpu", "rtx-3090", "--method", "full")
    assert code == 1 and not r["fits"]
    assert r["remedies"][-1]["fits"]
    totals = [r["peak_bytes"], *(m["total_bytes"] for m in r["remedies"])]
    assert totals == sorted(totals, reverse=True)


def test_a_job_that_fits_as_taken_is_mended_by_saying_so(capsys):
    """A script around PEFT may recompute or not: 32 or 64 GB of 51."""
    ask = ("memory", "llama2-13b", "--gpu", "a6000", "--method", "lora", "--software", "hf-peft")
    code, r = result(capsys, *ask, "--seq-len", "4096", "--rank", "64", "--targets", "q,v")
    assert code == 1 and r["enough"]["words"] == "--recompute full"
    assert r["enough"]["total_bytes"] == r["peak_bytes"]
    code, r = result(capsys, *ask, "--seq-len", "4096", "--recompute", "full")
    assert code == 0 and r["enough"] is None


def test_longest_sequence_fits_and_the_next_does_not(capsys):
    ask = ("memory", "qwen2.5-7b", "--gpu", "l4", "--method", "qlora")
    code, r = result(capsys, *ask, "--max", "seq-len")
    assert code == 0 and r["fits"] and r["seq_len"] == r["longest_seq_len"]
    ask = (*ask, "--recompute", "full", "--micro-batch", "1", "--loss", "eager")
    code, more = result(capsys, *ask, "--seq-len", str(r["seq_len"] + 64))
    assert code == 1 and not more["fits"]


def test_smallest_gpu_is_named(capsys):
    _, r = result(capsys, "memory", "llama3.2-1b", "--method", "lora", "--smallest-gpu")
    sizes = [c["hbm_bytes"] for c in r["cards"]]
    assert sizes and sizes == sorted(sizes)
    assert all(c["usable_bytes"] >= r["peak_bytes"] for c in r["cards"])


def test_two_frameworks_side_by_side(capsys):
    args = ("memory", "llama2-7b", "--method", "lora", "--software", "hf-peft,unsloth")
    _, text, _ = out(capsys, *args)
    assert "hf-peft" in text and "unsloth" in text
    _, r = result(capsys, *args)
    assert list(r["against"]) == ["unsloth"]


def test_plan_answers_for_the_tokens_that_one_has(capsys):
    args = ("plan", "llama3-8b", "--method", "lora", "--gpu", "a100-80gb", "--tokens", "50M")
    code, r = result(capsys, *args)
    assert code == 0 and r["tokens"] == 50e6
    assert r["run_s"] == pytest.approx(50e6 / r["tokens_per_s"])
    assert r["cost_usd"] == pytest.approx(
        r["chosen"]["n_gpus"] * r["run_s"] / 3600 * r["chosen"]["usd_per_gpu_hour"]
    )


def test_padding_counts_the_tokens_of_the_examples(capsys):
    ask = ("plan", "llama3-8b", "--method", "qlora", "--gpu", "rtx-4090", "--gpus", "1")
    _, r = result(
        capsys,
        *ask,
        "--examples",
        "1000",
        "--mean-len",
        "100",
        "--max-len",
        "1024",
        "--epochs",
        "2",
    )
    assert r["tokens"] == 200_000


def test_cards_compared(capsys):
    args = ("plan", "llama3-8b", "--method", "qlora", "--gpu", "rtx-3090,rtx-4090", "--gpus", "1")
    _, r = result(capsys, *args)
    assert {o["gpu"] for o in r["options"]} == {"rtx-3090", "rtx-4090"}
    assert r["chosen"]["gpu"] == "rtx-4090"


def test_offloading_the_optimizer_needs_host_memory(capsys):
    ask = ("memory", "qwen2.5-7b", "--method", "full", "--gpu", "a100-80gb", "--gpus", "4")
    _, without = result(capsys, *ask, "--zero", "3")
    _, moved = result(capsys, *ask, "--zero", "3", "--offload", "optimizer")
    assert moved["peak_bytes"] < without["peak_bytes"]
    assert moved["host_bytes_per_node"] > without["host_bytes_per_node"]
    assert moved["step_s"] > without["step_s"]
    moved = (*ask, "--zero", "3", "--offload", "optimizer", "--host-memory", "16GB")
    code, text, _ = out(capsys, *moved)
    assert code == 1 and "does not fit" in text and "and have 16.0 GB" in text
    assert result(capsys, *moved)[1]["fits"] is False


@pytest.mark.parametrize("asked", ["memory full", "plan full", "plan grpo"])
def test_a_host_that_few_have_is_named(asked, capsys):
    command, method = asked.split()
    ask = (command, "llama3-405b", "--method", method, "--gpu", "h100", "--gpus", "8", "--zero")
    ask += ("3", "--offload", "optimizer,parameters,activations")
    _, text, _ = out(capsys, *ask)
    assert "GB each, where 2,048.0 GB is usual (--host-memory)" in text.splitlines()[0]
    enough, short = (out(capsys, *ask, "--host-memory", has)[1] for has in ("30TB", "2TB"))
    assert "the hosts need" not in enough and "and have 2,000.0 GB" in short


def test_a_plan_keeps_to_the_memory_of_the_host(capsys):
    ask = ("plan", "qwen2.5-7b", "--method", "full", "--gpu", "a100-80gb", "--gpus", "1")
    ask += ("--zero", "3", "--offload", "all", "--software", "hf-deepspeed", "--host-memory")
    code, text, _ = out(capsys, *ask, "60GB")
    assert code == 1 and "does not fit" in text and "and have 60.0 GB" in text
    short, enough = (result(capsys, *ask, has)[1] for has in ("60GB", "2TB"))
    assert (short["fits"], enough["fits"]) == (False, True)
    assert short["chosen"]["host_bytes_per_node"] > 60e9


def test_a_plan_of_long_sequences_offers_to_split_them(capsys):
    ask = ("plan", "qwen3-8b", "--method", "full", "--gpu", "h100", "--gpus", "8")
    code, text, _ = out(capsys, *ask, "--software", "trl", "--seq-len", "1M")
    assert code == 1 and "--cp 8  together, then" in text


def test_hints_say_what_stands_in_the_place_of_an_option(capsys):
    _, _, err = out(capsys, "plan", "qwen3-14b", "--method", "full", "--moments", "bf16")
    assert "--optimizer says how states are kept" in err
    _, _, err = out(capsys, "plan", "gpt2-xl", "--steps", "100")
    assert "--tokens is the length of the run" in err


REFUSED = [
    (("memory", "llama3-8b", "--method", "lora", "--rank", "9999"), "rank 9,999"),
    (("memory", "llama3-8b", "--method", "lora", "--targets", "q,wrong"), "`wrong`"),
    (("memory", "llama3-8b", "--method", "full", "--base", "nf4"), "cannot be trained in full"),
    (("memory", "llama3-8b", "--method", "full", "--rank", "8"), "--rank is for adapters"),
    (
        ("memory", "llama3-8b", "--method", "lora", "--freeze", "embeddings"),
        "--freeze embeddings is for --method full",
    ),
    (("memory", "llama3-8b", "--method", "qlora", "--base", "bf16"), "is --method lora"),
    (("memory", "llama3-8b", "--rank", "8"), "--rank needs --method"),
    (
        ("memory", "llama3-8b", "--method", "lora", "--recipe", "bf16-adam"),
        "--recipe has no meaning",
    ),
    (("memory", "llama3-8b", "--method", "lora", "--software", "nanotron"), "no fine-tuning"),
    (("memory", "llama3-8b", "--method", "lora", "--optimizer", "adam9"), "optimizer `adam9`"),
    (("plan", "llama3-8b", "--method", "lora", "--examples", "0"), "--examples must be"),
    (("plan", "llama3-8b", "--method", "lora", "--examples", "10"), "--examples needs --mean-len"),
    (("plan", "llama3-8b", "--examples", "10"), "--examples needs --method"),
    (("memory", "--method", "lora"), "give a model"),
]


@pytest.mark.parametrize(("args", "words"), REFUSED)
def test_what_cannot_be_is_refused(capsys, args, words):
    code, text, err = out(capsys, *args)
    assert (code, text) == (2, "")
    assert err.startswith("error: ") and words in err


def test_terms_add_up(capsys):
    ask = ("memory", "llama3-8b", "--gpu", "rtx-4090", "--method", "qlora", "--explain")
    code, text, _ = out(capsys, *ask)
    assert code == 0 and "bytes_per_linear" in text and "layers * hidden_size" in text


COLUMNS = (
    "id,model,method,rank,targets,base_precision,optimizer,gpu,n_gpus,parallel,seq_len,micro_batch,"
    "grad_accumulation,packing,checkpointing,fused_ce,offload,peak_memory_gb,memory_kind,"
    "step_time_s,mean_tokens,software,quality,compute_precision"
)
ROWS = (
    "a,llama2-7b,qlora,8,all linear,nf4 (bnb),AdamW,RTX 4090,1,none,1024,1,8,fixed length,full,no,"
    "none,7.0,reserved GiB,4.0,1024,HF Trainer + bnb,good,bf16",
    "b,llama2-7b,grpo,,,bf16,AdamW,H100,8,,1024,1,1,,,,,,,10.0,512,verl,good,bf16",
)


def test_validate_scores_or_names_every_row(capsys, tmp_path):
    (tmp_path / "runs.csv").write_text("\n".join((COLUMNS, *ROWS)))
    rows = tmp_path / "rows.csv"
    ask = ("validate", "--finetune", str(tmp_path / "runs.csv"), "--rows", str(rows))
    code, _, err = out(capsys, *ask)
    assert code == 0, err
    lines = [line.split(",") for line in rows.read_text().splitlines()]
    assert lines[0][:7] == ["id", "gpu", "quantity", "measured", "predicted", "ratio", "reason"]
    found = {(r[0], r[2]): r for r in lines[1:]}
    assert float(found["a", "peak_memory_bytes"][5]) == pytest.approx(1.0, abs=0.3)
    assert float(found["a", "step_time_s"][5]) > 0
    assert found["a", "fits"][4] == "1"
    assert found["b", "step_time_s"][4] == "" and "RL" in found["b", "step_time_s"][6]


def test_near_the_limit_it_says_so_and_fit_decides(capsys):
    job = ["plan", "qwen2.5-32b", "--method", "full", "--gpus", "8", "--gpu", "a800"]
    job += ["--seq-len", "1536", "--software", "llama-factory"]
    _, r = result(capsys, *job, "--fit", "expected")
    usable = r["chosen"]["capacity_bytes"]
    assert r["peak_bytes"] <= usable < r["peak_bytes"] * r["memory_interval_factor_80"]
    assert r["chosen"]["offload"] == []
    _, safe = result(capsys, *job, "--fit", "safe")
    assert safe["peak_bytes"] * safe["memory_interval_factor_80"] <= usable
    assert ": 77.7 GB (70.6 to 85.5) of 85.0 GB" in out(capsys, *job)[1]


def test_what_fits_only_sharded_is_sharded_and_said(capsys):
    job = ("memory", "llama2-70b", "--method", "qlora", "--gpu", "rtx-3090", "--seq-len", "512")
    job += ("--gpus", "4", "--software", "axolotl", "--recompute", "full", "--micro-batch", "1")
    code, text, _ = out(capsys, *job)
    assert code == 0 and "ZeRO 3, as stage 0 does not fit (--zero)" in text
    assert out(capsys, *job, "--zero", "0")[0] == 1
    assert (
        result(capsys, *job)[1]["peak_bytes"]
        == result(capsys, *job, "--zero", "3")[1]["peak_bytes"]
    )


def test_one_machine_less_than_the_fewest_is_too_few(capsys):
    job = ("memory", "llama3-70b", "--method", "full", "--gpu", "h100", "--seq-len", "4096")
    job = (*job, "--recompute", "full", "--micro-batch", "1", "--loss", "eager")
    n = result(capsys, *job, "--min-gpus")[1]["fewest_gpus"]
    assert n == 24  # 18 bytes a parameter over two machines are 79 GB before any activation
    assert result(capsys, *job, "--gpus", str(n), "--zero", "3")[1]["fits"]
    assert not result(capsys, *job, "--gpus", str(n - 8), "--zero", "3")[1]["fits"]


def test_a_pretraining_family_fine_tunes_as_its_sister(capsys):
    job = ["memory", "llama3-8b", "--method", "full", "--gpus", "8", "--software"]
    found = [result(capsys, *job, name)[1] for name in ("fsdp", "hf-fsdp")]
    assert [r.pop("taken")[0] for r in found] == ["adamw (--optimizer)"] * 2
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "job",
    [
        ("qwen3-8b", "--method", "lora", "--gpu", "4090", "--gpus", "2", "--seq-len", "1024"),
        ("qwen3-1.7b", "--method", "full", "--gpu", "a100", "--gpus", "8"),
        ("llama3-8b", "--method", "full", "--gpu", "h100", "--gpus", "8", "--software", "hf-fsdp"),
    ],
)
def test_no_stage_by_hand_that_fits_safely_is_faster_than_the_chosen_one(capsys, job):
    _, free = result(capsys, "plan", *job)
    for stage in ("0", "1", "2", "3"):
        run(["plan", *job, "--zero", stage, "--fit", "safe", "--json"])
        pinned = json.loads(capsys.readouterr().out)["result"]
        assert not pinned["fits"] or pinned["tokens_per_s"] <= free["tokens_per_s"] * 1.01


def test_one_kind_of_gpu_is_answered_for_the_fewest(capsys):
    """As `memory` does; the host's memory comes after more GPUs."""
    for model, method, want in (("llama3-8b", "qlora", 1), ("llama3-70b", "lora", 4)):
        assert run(["plan", model, "--method", method, "--gpu", "a100-80gb", "--json"]) == 0
        r = json.loads(capsys.readouterr().out)["result"]
        assert r["chosen"]["n_gpus"] == want and r["chosen"]["offload"] == []
        assert {o["n_gpus"] for o in r["options"]} > {want}


def test_a_million_tokens_over_eight_gpus_as_measured(capsys):
    """TRL 1.13: Qwen3-8B on one sequence of 1,048,576 tokens takes 56.2 GB of each of 8 H100."""
    job = ("--method", "full", "--seq-len", "1048576", "--cp", "8", "--loss", "chunked_nll")
    job = (*job, "--micro-batch", "1")
    where = ("--gpu", "h100", "--gpus", "8", "--software", "trl", "--offload", "activations")
    code, r = result(capsys, "memory", "qwen3-8b", *where, *job)
    assert code == 0
    assert r["peak_bytes"] == pytest.approx(56.2e9, rel=0.15)


def test_accumulation_is_a_global_batch(capsys):
    """Two GPUs, two rows each, four times: 16 sequences a step."""
    ask = ("plan", "llama3-8b", "--gpu", "rtx-4090", "--gpus", "2", "--method", "qlora")
    _, r = result(capsys, *ask, "--micro-batch", "2", "--accumulation", "4", "--steps", "10")
    _, same = result(capsys, *ask, "--micro-batch", "2", "--global-batch", "16", "--steps", "10")
    said = (one.pop("said_by")["global_batch_size"] for one in (r, same))
    assert list(said) == ["--accumulation", "--global-batch"]
    assert r == same and r["chosen"]["global_batch_size"] == 16
    code, _, err = out(capsys, *ask, "--accumulation", "4", "--global-batch", "16")
    assert code == 2 and "not both" in err


def test_weights_that_train_in_16_bits_are_said_where_no_software_is_named(capsys):
    ask = ("memory", "llama3.2-1b", "--gpu", "rtx-4090", "--method", "full")
    said = "weights and their states bf16"
    assert said in out(capsys, *ask)[1]
    assert said not in out(capsys, *ask, "--software", "hf-peft")[1]
    assert said not in out(capsys, *ask, "--gpus", "2")[1]  # DeepSpeed keeps fp32 copies


def test_the_fused_loss_of_megatron_keeps_its_logits(capsys):
    """35 GiB in nvidia-smi for Qwen3.5-27B at 131,072 tokens (basetenlabs/ml-cookbook, 105)."""
    ask = ("memory", "qwen3.5-27b", "--gpu", "h200", "--gpus", "8", "--tp", "8", "--method", "lora")
    ask += ("--seq-len", "128k", "--software", "megatron-swift", "--recompute", "full")
    _, r = result(capsys, *ask, "--packing", "--loss", "fused")
    assert r["peak_bytes"] == pytest.approx(37.6e9, rel=0.1)


def test_layers_that_recompute_lie_between_all_and_none(capsys):
    ask = ("memory", "qwen2.5-14b", "--gpu", "a800", "--gpus", "8", "--tp", "4", "--method", "full")
    ask = (*ask, "--seq-len", "8192", "--software", "megatron-swift")
    of = [("--recompute", "full"), ("--recompute-layers", "12"), ("--recompute", "none")]
    all_, some, none = (result(capsys, *ask, *more)[1] for more in of)
    assert all_["peak_bytes"] < some["peak_bytes"] < none["peak_bytes"]
    assert all_["step_s"] > some["step_s"] > none["step_s"]


def test_a_vision_tower_is_spoken_of(capsys):
    for name, word in (("qwen2-vl-7b", "tower is frozen"), ("llava-1.5-7b", "not counted")):
        _, _, err = out(capsys, "memory", name, "--gpu", "l40s", "--method", "lora")
        assert word in err


def test_plan_refuses_formats_that_memory_refuses(capsys):
    ask = ("plan", "llama3-8b", "--gpu", "l40s", "--method", "lora", "--precision", "fp32")
    code, text, err = out(capsys, *ask)
    assert (code, text) == (2, "") and "unknown precision" in err


def test_a_gptq_base_is_not_sharded(capsys):
    """LLaMA-Factory issue 6827: AWQ of Llama 3.3 70B on two L40S runs out at 2,048 tokens."""
    ask = ("memory", "llama3.3-70b", "--gpu", "l40s", "--gpus", "2", "--method", "qlora")
    ask = (*ask, "--rank", "8", "--seq-len", "2048", "--software", "llama-factory")
    ask = (*ask, "--micro-batch", "1")
    code, r = result(capsys, *ask, "--base", "awq")
    assert code == 1 and not any("--zero" in m["words"] for m in r["remedies"])
    assert result(capsys, *ask)[0] == 0  # bitsandbytes' may be


def test_packed_examples_attend_to_themselves(capsys):
    ask = ("memory", "mistral-7b", "--gpu", "l40s", "--method", "lora", "--seq-len", "8192")
    found = [
        result(capsys, *ask, "--packing", *more)[1]
        for more in (("--mean-len", "200"), ("--mean-len", "2000"), ())
    ]
    times = [r["step_s"] for r in found]
    assert times == sorted(set(times)) and len({r["peak_bytes"] for r in found}) == 1


def test_the_layout_of_a_mixture_under_rl_knows_experts():
    """A layout that is found is no slower than one that is given."""
    args = "qwen3-30b-a3b --method grpo --software nemo-rl --gpu h100 --gpus 32 --prompts 64"
    args += " --group 32 --response 2950 --max-response 4096 --rollout-tp 4 --json"
    found, given = (
        json.loads(invoke("plan", *(args + more).split()).stdout) for more in ("", " --tp 4 --ep 8")
    )
    assert found["result"]["fits"]
    assert found["result"]["step_s"] <= given["result"]["step_s"]


def test_nothing_goes_to_the_host_that_fits_without(capsys):
    args = ("plan", "llama3.1-8b", "--gpu", "rtx-pro-4500", "--gpus", "1", "--method")
    _, found = result(capsys, *args, "lora", "--software", "hf-trainer")
    assert found["chosen"]["offload"] == [] and found["chosen"]["recompute"] == "full"
    assert "optimizer" in result(capsys, *args, "full")[1]["chosen"]["offload"]


def test_layers_below_the_lowest_trained_one_have_no_backward_pass(capsys):
    job = ("memory", "qwen3-0.6b", "--gpu", "m4-pro", "--method", "lora", "--seq-len", "4096")
    _, half = result(capsys, *job, "--software", "mlx")  # mlx-lm adapts the last 16 layers
    _, whole = result(capsys, *job, "--software", "mlx", "--freeze", "0")
    assert half["step_s"] < whole["step_s"]
    assert half["peak_bytes"] < whole["peak_bytes"]
    full = ("memory", "llama3-8b", "--gpu", "h100", "--method", "full", "--recompute", "none")
    steps = [result(capsys, *full, "--freeze", n)[1]["step_s"] for n in ("0", "16", "31")]
    assert steps[0] > steps[1] > steps[2] > steps[0] / 3


def test_whole_logits_go_before_the_hosts_memory_is_taken(capsys):
    line = "plan llama3.1-8b --gpu rtx-4090 --gpus 1 --method lora"
    own, told, fused = (
        result(capsys, *line.split(), *more)[1]
        for more in ((), ("--loss", "eager"), ("--loss", "fused"))
    )
    assert not own["chosen"]["offload"] and told["chosen"]["offload"]
    assert own["step_s"] < told["step_s"]
    assert "loss fused, as whole logits fit nowhere (--loss)" in own["taken"]
    assert own["fits_probability"] == fused["fits_probability"]


def test_a_name_that_says_a_stage_keeps_it(capsys):
    job = ("llama3-8b", "--gpus", "8", "--gpu", "h100", "--software", "deepspeed-zero3")
    for command, method in (("plan", "full"), ("memory", "lora"), ("plan", "lora")):
        asked = (command, *job, "--method", method)
        assert result(capsys, *asked)[1]["layout"]["zero_stage"] == 3
        assert result(capsys, *asked, "--zero", "1")[1]["layout"]["zero_stage"] == 1


def test_megatron_splits_in_a_node_before_it_gathers_weights(capsys):
    """NVIDIA's submission to MLPerf 4.0: TP 4 on 8 H100, 3.71 s for 8 sequences of 8,192."""
    job = "plan llama2-70b --gpu h100 --gpus 8 --method lora --software nemo --precision fp8"
    r = result(capsys, *job.split(), *"--seq-len 8192 --rank 16 --targets q,k,v,o".split())[1]
    assert r["layout"]["tp"] > 1 and r["layout"]["zero_stage"] == 1
    assert 3.71 * 0.9 < r["step_s"] * 8 / r["layout"]["global_batch_size"] < 3.71 * 1.35
    # experts over the ranks of a node; who says a degree keeps the others at 1
    moe = "plan qwen3-30b-a3b --gpu h100 --gpus 8 --method lora --software megatron-swift"
    assert result(capsys, *moe.split())[1]["layout"]["ep"] == 8
    said = result(capsys, *moe.split(), "--tp", "2")[1]["layout"]
    assert (said["tp"], said["ep"]) == (2, 1)
    # the Trainer's tensor parallelism is nobody's habit
    usual = "plan llama3-70b --gpu h100 --gpus 8 --method lora --software hf-deepspeed"
    assert result(capsys, *usual.split())[1]["layout"]["tp"] == 1


@pytest.mark.parametrize(
    ("n_gpus", "length", "words"),
    [
        (8, 20_000, "with gradients, optimizer, parameters on the host, not without"),
        (16, 32_768, "with --loss fused, not without"),
        (16, 4_096, ""),
    ],
)
def test_what_a_plan_switched_on_is_in_its_first_sentence(capsys, n_gpus, length, words):
    """Full training of Qwen2.5-32B by FSDP: 8 H100 ran out, 16 at 32,768 (s1, issue 13)."""
    job = f"plan qwen2.5-32b --gpu h100 --gpus {n_gpus} --method full --software hf-fsdp"
    _, text, _ = out(capsys, *job.split(), "--seq-len", str(length))
    first = text.splitlines()[0]
    assert words in first and ("not without" in first) == bool(words)


def test_mlx_keeps_whole_scores_and_its_files_defaults(capsys):
    job = ("memory", "qwen3-0.6b", "--gpu", "m4-pro", "--method", "lora", "--software")
    new, old = (result(capsys, *job, name)[1] for name in ("mlx", "mlx:2025-04"))
    assert (new["seq_len"], new["micro_batch_size"]) == (2048, 4)
    assert old["trained_params"] < new["trained_params"]  # q and v before 0.28.4
    at = ("--seq-len", "4096", "--micro-batch", "1")
    whole, flash = (
        result(capsys, *job, "mlx", *at, *x)[1]["peak_bytes"]
        for x in ((), ("--attention", "flash2"))
    )
    assert whole - flash == pytest.approx(16 * 16 * 4096**2 * 2, rel=0.1)  # layers, heads, 16 bits


def test_a_block_of_experts_is_gathered_together_where_it_is_a_leaf(capsys):
    """Qwen3-30B-A3B took 1.6 times as long as QwQ-32B (LLaMA-Factory, issue 7921)."""
    job = "--method lora --zero 3 --gpu a100-80gb --gpus 8 --software".split()

    def step(model, software):
        return result(capsys, "plan", model, *job, software)[1]

    leaf, dense = (step(m, "llama-factory:2025-05") for m in ("qwen3-30b-a3b", "qwq-32b"))
    assert 1.3 < leaf["step_s"] / dense["step_s"] < 2.0
    assert step("qwen3-30b-a3b", "hf-trainer:2025-05")["step_s"] > 4 * leaf["step_s"]
    now = step("qwen3-30b-a3b", "llama-factory")
    assert now["step_s"] < leaf["step_s"] <= now["step_high_s"] * 1.01
    assert any("one by one before" in text for text in now["taken"])


def test_a_step_of_rl_of_no_length_is_open(capsys):
    job = "plan llama2-13b --method grpo --gpu a800 --gpus 8 --software trl:2025-02 --zero 3"
    job += " --micro-batch 1 --group 7 --prompts 4"
    bare, said = (result(capsys, *job.split(), *x)[1] for x in ((), ("--response", "512")))
    assert bare["step_s"] == said["step_s"] and "--response" in bare["decides"]
    assert (
        bare["step_low_s"] < said["step_low_s"] / 2 < said["step_high_s"] * 2 < bare["step_high_s"]
    )


def test_verl_with_megatron_recomputes_experts_alone(capsys):
    job = ("--method", "grpo", "--software", "verl", "--gpu", "h100", "--tp", "2")
    dense = result(capsys, "memory", "qwen3-8b", *job, "--gpus", "8")[1]
    moe = result(capsys, "memory", "qwen3-30b-a3b", *job, "--gpus", "32", "--ep", "8")[1]
    fsdp = result(capsys, "memory", "qwen3-8b", *job[:-2], "--gpus", "8")[1]
    assert [r["layout"]["recompute"] for r in (dense, moe, fsdp)] == ["none", "full", "full"]


def test_fsdp_shards_all_unless_another_stage_is_asked_for(capsys):
    job = "plan llama2-7b --method lora --gpu a10 --gpus 4 --software hf-fsdp".split()
    own, said = result(capsys, *job)[1], result(capsys, *job, "--zero", "2")[1]
    assert (own["layout"]["zero_stage"], said["layout"]["zero_stage"]) == (3, 2)
    before = "plan llama3-8b --gpu h100 --gpus 8 --software hf-fsdp".split()
    assert result(capsys, *before)[1]["layout"]["zero_stage"] == 3


def test_what_is_said_of_vllm_says_that_it_is_used(capsys):
    job = "memory qwen2.5-7b --method grpo --software trl --gpu h100 --gpus 8".split()
    others = ((), ("--rollout-tp", "2"), ("--engine-share", "0.5"), ("--engine", "hf"))
    asked = (json.loads(out(capsys, *job, *more, "--json")[1]) for more in others)
    engines = [answer["inputs"]["engine"] for answer in asked]
    assert engines == ["hf", "colocated", "colocated", "hf"]


def test_axolotl_quantises_the_experts_of_llama4():
    job = "memory llama4-scout --method qlora --gpu h100 --seq-len 4096 --json --software "
    whole, linear = (
        json.loads(invoke(*(job + name).split()).stdout)["result"]["peak_bytes"]
        for name in ("hf-peft:2025-04", "axolotl:2025-04")
    )
    # axolotl examples/llama-4/scout-qlora-single-h100.yaml: runs on one of 80 GB
    assert linear < 90e9 < 200e9 < whole


def answered(command):
    done = invoke(*command.split(), "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["result"]


@pytest.mark.parametrize(
    "job",
    [
        "llama1-13b --method lora --base int8 --gpu rtx-3080",
        "llama2-70b --method qlora --gpu rtx-3090 --software axolotl:2023-12",
    ],
)
def test_a_base_that_nothing_shards_is_not_sharded_where_typed(job):
    """Bits of bitsandbytes: 4 are sharded since 2024-03, 8 never."""
    done = invoke("memory", *job.split(), "--gpus", "4", "--seq-len", "512", "--zero", "3")
    assert done.returncode == 2 and not done.stdout
    assert "whole" in done.stderr and "--zero 2" in done.stderr


def test_bitsandbytes_is_sharded_in_4_bits_since_2024_and_in_8_never():
    job = (
        "memory llama2-70b --method qlora --gpu rtx-3090 --gpus 4 --seq-len 512 --software axolotl"
    )
    assert answered(job)["layout"]["zero_stage"] == 3
    before = answered(f"{job}:2023-12")
    assert before["layout"]["zero_stage"] < 3 and before["peak_bytes"] > before["capacity_bytes"]
    eight = answered("memory llama1-13b --method lora --base int8 --gpu rtx-3080 --gpus 4")
    assert eight["layout"]["zero_stage"] < 3 and not eight["fits"]


def test_weights_in_fp32_are_said_by_the_option_that_decides():
    job = "memory qwen3-1.7b --method full --gpu h100 --seq-len 512 --micro-batch 1 --software"
    bf16, fp32 = (answered(f"{job} hf-trainer --base {kind}") for kind in ("bf16", "fp32"))
    kept = [sum(r["expected"][f"{n}_bytes"] for n in ("base", "optimizer")) for r in (bf16, fp32)]
    assert kept[1] == pytest.approx(2 * kept[0])
    old = answered(f"{job} hf-trainer:2023-06 --base bf16")  # adamw_hf: one parameter at a time
    new = answered(f"{job} hf-trainer:2024-02 --base bf16")
    steps = [r["expected"]["peaks"]["optimizer step"] for r in (old, new)]
    assert steps[1] - steps[0] == pytest.approx(2 * bf16["trained_params"], rel=0.05)


def test_the_first_grpo_of_trl_takes_a_micro_batch_of_prompts():
    job = "memory qwen2.5-7b --method grpo --gpu h100 --gpus 8 --zero 3 --micro-batch 1 --group 4"
    first, later = (answered(f"{job} --software trl:{version}") for version in ("0.14", "0.15"))
    assert first["peak_bytes"] > 1.5 * later["peak_bytes"]


def test_rows_may_be_shorter_than_where_a_framework_cuts_them():
    job = "memory llama3-8b --method lora --gpu h100 --software llama-factory"
    cut, said = answered(job), answered(f"{job} --seq-len 2048")
    assert cut["step_s"] == said["step_s"] and cut["step_low_s"] < said["step_low_s"] / 1.5
    assert any("full rows, low end: 0.2 of that (--mean-len)" in line for line in cut["taken"])


def test_the_trainer_splits_no_layer_unasked_and_a_plan_tells_its_batch():
    plan = "plan llama2-13b --gpus 16 --gpu a100 --software hf-trainer"
    assert answered(plan)["layout"]["tp"] == 1
    assert answered(f"{plan} --tp 2")["layout"]["tp"] == 2
    tuned = answered("plan llama3-8b --method lora --gpu h100 --gpus 1")
    assert "steps of 16 sequences (--global-batch)" in tuned["taken"]


def test_a_plan_names_what_it_chose_and_memory_leaves_open(capsys):
    """The interval that it names without them is that of `memory`."""
    ask = ("llama3-8b", "--method", "qlora", "--gpu", "rtx-4090", "--gpus", "1")
    open_ = result(capsys, "memory", *ask)[1]
    ends = (f"{open_[f'peak_{end}_bytes'] / 1e9:,.1f}" for end in ("low", "high"))
    shown = out(capsys, "plan", *ask, "--show", "all")[1]
    chosen = next(line for line in shown.splitlines() if "chosen" in line)
    assert "--recompute full --micro-batch 1" in chosen
    assert f"left to the framework: {' to '.join(ends)} GB" in chosen
    pinned = (*ask, "--recompute", "full", "--micro-batch", "1")
    same = [result(capsys, command, *pinned)[1] for command in ("memory", "plan")]
    assert same[0]["peak_high_bytes"] == same[1]["peak_high_bytes"]
    assert "chosen" not in out(capsys, "plan", *pinned, "--show", "all")[1]


def test_a_job_at_the_edge_gets_the_setting_with_which_it_surely_fits(capsys):
    ask = ("llama3-8b", "--method", "full", "--gpu", "h100", "--gpus", "1")
    _, r = result(capsys, "memory", *ask)
    assert r["fits"] and r["fits_probability"] < 2 / 3
    assert r["enough"]["words"] == "--optimizer adamw-8bit"
    _, then = result(capsys, "memory", *ask, "--optimizer", "adamw-8bit")
    assert then["peak_bytes"] == r["enough"]["total_bytes"]
    assert then["fits_probability"] == r["enough"]["fits_probability"] > r["fits_probability"] + 0.1


def test_what_is_said_to_make_it_fit_is_what_the_verdict_says_so_of():
    """Fused logits fit by the expected memory, with 39 %: the verdict names another change."""
    ask = "memory qwen2.5-32b --method full --gpu h100 --gpus 8 --max-len 8192".split()
    words, gb = re.search(r"fits with (.+) \((\S+ GB), ", text := invoke(*ask).stdout).groups()
    assert [
        line.split(None, 2)[2] for line in text.splitlines() if line.startswith("would fit")
    ] == [f"{words}  then {gb} a GPU"]
    unlikely = invoke(*"memory llama3-8b --method qlora --gpu t4".split()).stdout
    assert "fits with" not in unlikely and "\nmay fit " in unlikely and "would fit" not in unlikely


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("memory qwen2.5-7b --method lora --gpu h100", "for what nobody said"),
        ("plan qwen2.5-7b --method lora --gpu h100 --seq-len 2048", "for what nobody said"),
        ("plan llama3-8b --method dpo --gpu h100 --gpus 8", "for what nobody said"),
        (
            "memory llama3-405b --method full --gpu h100 --gpus 8 --host-memory 6TB --recompute "
            "full --offload activations,parameters,optimizer",
            "of the hosts' memory",
        ),
    ],
)
def test_a_doubt_beyond_the_interval_is_explained(capsys, line, cause):
    """An interval below the limit beside a probability below 90 %: the memory's line says why."""
    _, r = result(capsys, *line.split())
    assert r["peak_high_bytes"] < r["capacity_bytes"] and r["fits_probability"] < 0.9
    share = re.fullmatch(rf"yet (\d+) % run out {cause}", r["beyond"])
    assert share and 3 <= int(share[1]) <= 100.5 * (1.0 - r["fits_probability"]) + 0.5
    shown = out(capsys, *line.split())[1].splitlines()
    assert next(row for row in shown if row.startswith("memory")).endswith(f"; {r['beyond']}")


def test_an_interval_that_says_the_doubt_stands_alone(capsys):
    for more in (
        ("--gpu", "rtx-4090"),
        ("--gpu", "h200", "--recompute", "full", "--loss", "fused"),
    ):
        _, r = result(capsys, "memory", "qwen2.5-7b", "--method", "qlora", *more)
        assert r["peak_high_bytes"] > r["capacity_bytes"] or r["fits_probability"] >= 0.9
        assert r["beyond"] == ""


def test_hosts_decide_as_the_gpu_does(capsys):
    ask = ("llama3-405b", "--method", "full", "--gpu", "h100", "--gpus", "8")
    ask += ("--offload", "activations,parameters,optimizer")
    for command in ("memory", "plan"):
        code, r = result(capsys, command, *ask)
        assert code == 1 and r["fits_probability"] < 0.01 and r["peak_bytes"] < r["capacity_bytes"]
        code, r = result(capsys, command, *ask, "--host-memory", "30TB", "--recompute", "full")
        assert code == 0 and r["fits_probability"] > 0.5


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (
            "plan llama3-8b --method full --gpu h100 --gpus 8 --seq-len 8192 --global-batch 16",
            ["--loss"],
        ),
        (
            "plan gemma3-12b --method lora --gpu a100-40gb --gpus 1 --software llama-factory",
            ["--mean-len"],
        ),
        (
            "plan gemma3-12b --method lora --gpu a100-40gb --gpus 1 --software llama-factory "
            "--seq-len 2048 --loss eager",
            [],
        ),
    ],
)
def test_a_plan_asks_for_what_nobody_said_that_makes_a_step_much_shorter(line, asks):
    r = json.loads(invoke(*line.split(), "--json").stdout)["result"]
    told = [part for part in r["decides"].split("; ") if " s with " in part]
    assert [part.split(":")[0] for part in told] == asks
    for part in told:  # as taken, which is the step that is printed, and otherwise
        taken, other = (float(word) for word in re.findall(r"([\d.]+) s with", part))
        assert taken == pytest.approx(r["step_s"], rel=0.01) and taken > 1.25 * other


def test_fused_attention_is_named_where_a_framework_of_then_had_none():
    long = "memory {} --method full --gpu a100-80gb --gpus 8 --zero 3 --micro-batch 1"
    long += " --recompute full --software hf-deepspeed:2023-09 --seq-len {}"
    held = invoke(*long.format("llama2-7b", 65536).split())
    assert held.returncode == 1 and "fits with --attention flash2 (" in held.stdout
    fused = invoke(*long.format("llama2-7b", 65536).split(), "--attention", "flash2", "--json")
    gb = json.loads(fused.stdout)["result"]["peak_bytes"] / 1e9
    assert f"({gb:.1f} GB" in held.stdout
    assert "--attention" not in invoke(*long.format("bloom-7b1", 65536).split()).stdout  # ALiBi


def test_a_micro_batch_of_prompts_is_printed_as_the_rows_that_it_counts():
    line = "memory qwen2.5-0.5b --method grpo --software trl:2025-01 --gpu h100 --gpus 1".split()
    for group in (4, 8):
        said = invoke(*line, "--micro-batch", "2", "--group", str(group)).stdout
        assert f"micro-batch {2 * group} x" in said
    today = invoke(*line[:5], "trl:2026-01", *line[6:], "--micro-batch", "2").stdout
    assert "micro-batch 2 x" in today


def test_nemo_rl_packs_the_samples_of_a_batch(capsys):
    ask = ("plan", "llama3.1-8b", "--method", "full", "--software", "nemo-rl", "--gpu", "h100")
    ask += ("--gpus", "8", "--seq-len", "8192", "--packing", "--global-batch", "128")
    _, open_ = result(capsys, *ask)
    assert open_["decides"].endswith("with 1,638 tokens") and "--mean-len" in open_["decides"]
    _, said = result(capsys, *ask, "--mean-len", "2048")
    assert said["layout"]["global_batch_size"] == 128 * 2048 / 8192
    assert open_["step_low_s"] < said["step_s"] < open_["step_s"]
    assert "--mean-len" not in said["decides"]
    _, rows = result(capsys, *(w.replace("nemo-rl", "megatron-bridge") for w in ask))
    assert rows["layout"]["global_batch_size"] == 128 and "--mean-len" not in rows["decides"]


@pytest.mark.parametrize(("software", "row"), [("axolotl", 2048), ("trl", 1024), ("", 1536)])
def test_a_pair_is_cut_to_the_row_of_its_framework(software, row, capsys):
    named = ("--software", software) if software else ()
    ask = ("memory", "llama3-8b", "--gpu", "h100", "--method", "dpo", *named)
    assert result(capsys, *ask)[1]["layout"]["seq_len"] == row
    longer = result(capsys, *ask, "--max-len", "4096")[1]
    assert longer["layout"]["seq_len"] == 4096


def test_what_a_framework_refuses_is_not_asked_for(capsys):
    """LLaMA-Factory turns Liger's loss off where a stage needs logits."""
    ask = ("memory", "llama3-8b", "--gpu", "a10", "--rank", "8", "--max-len", "1024")
    ask += ("--micro-batch", "4", "--recompute", "full")
    said = {
        (method, software): out(capsys, *ask, "--method", method, "--software", software)[1]
        for method in ("dpo", "lora")
        for software in ("llama-factory", "hf-peft")
    }
    assert "--loss" not in said.pop(("dpo", "llama-factory"))
    assert all("--loss" in text for text in said.values())


@pytest.mark.parametrize(("stage", "loss"), [("dpo", "eager"), ("sft", "fused")])
def test_a_file_with_liger_has_its_loss_in_supervised_training_alone(stage, loss, tmp_path, capsys):
    path = tmp_path / "train.yaml"
    path.write_text(
        f"model_name_or_path: Qwen/Qwen2.5-7B\nstage: {stage}\ndo_train: true\ntemplate: qwen\n"
        "finetuning_type: lora\ndataset: x\ncutoff_len: 2048\nenable_liger_kernel: true\n"
        "output_dir: out\nper_device_train_batch_size: 1\nbf16: true\n"
    )
    code, text, _ = out(
        capsys, "launch-check", str(path), "--gpu", "h100", "--gpus", "1", "--show", "all"
    )
    assert code == 0 and f"{loss} loss" in text
