"""Files that start servers: every wrapper starts the line that the engine's parser took."""

import json
from pathlib import Path

import pytest

from gpuscale.cli.app import run
from gpuscale.errors import GpuscaleError
from gpuscale.launch.job import SERVING_WRAPPERS, ServingLaunch, serving_script
from gpuscale.launch.read.detect import read_launch

DATA = Path(__file__).parent.parent / "data" / "launch"


def servers_of(engine, row, gpus):
    return ServingLaunch(
        row["asked"]["model"], engine, row["line"], 2, gpus, 8, "h100-sxm", "gpuscale serve ..."
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("wrapper", SERVING_WRAPPERS)
def test_what_is_written_is_read_back(engine, wrapper):
    rows = json.loads((DATA / f"{engine}.json").read_text("utf-8"))["rows"]
    for row in rows[:5]:
        said = read_launch({"serve.sh": row["line"]})
        if said.tp * said.pp > 8:
            continue
        name, text = serving_script(servers_of(engine, row, said.tp * said.pp), wrapper)
        found = read_launch({name: text})
        assert (found.kind, found.tp, found.max_seqs) == (said.kind, said.tp, said.max_seqs)


def test_a_replica_over_machines_says_rank_and_head():
    rows = json.loads((DATA / "sglang.json").read_text("utf-8"))["rows"]
    job = servers_of("sglang", rows[0], 16)
    assert "--nnodes 2 --node-rank $LWS_WORKER_INDEX" in serving_script(job, "kubernetes")[1]
    with pytest.raises(GpuscaleError, match="one machine"):
        serving_script(job, "dstack")


@pytest.mark.slow
def test_options_of_a_file_say_how_long_prompts_wait(tmp_path, capsys):
    """TensorRT-LLM, LLM API: `attention_dp_config` with `enable_balance` and `timeout_iters`."""
    asked = "serve deepseek-r1 --gpu b200 --gpus 8 --dp-attention 8 --ep 8 --engine trtllm"
    for limit, waits in (((), True), (("--ttft", "2s", "--rate", "1/s"), False)):
        way = limit or ("--concurrency", "64")
        assert run([*asked.split(), *way, "--json"]) == 0
        (tmp_path / "a.json").write_text(capsys.readouterr().out, "utf-8")
        assert run(["launch", str(tmp_path / "a.json")]) == 0
        text = capsys.readouterr().out
        assert ("timeout_iters: 60" in text) == waits
        assert "--tp 1 --pp 1 --dp-attention 8 --ep 8" in text  # asks for what is started
