"""Questions of strangers in public: one command each, whose interval holds what was measured.

Those that were answered wrongly are kept too, and expected to be.
"""

import csv
import json
import shlex
from pathlib import Path

import pytest
from running import invoke

ASKED = Path(__file__).parent.parent / "data" / "questions.csv"


WITHOUT_INTERVAL = 0.2
"""Error that a figure without an interval may have, as the questions of rates are scored."""


def asked():
    """Rows; one that was answered wrongly (`wrong`: what is said) must still be so to be kept."""
    for row in csv.DictReader(ASKED.open()):
        known = pytest.mark.xfail(strict=True, reason=f"says {row['wrong']}")
        yield pytest.param(row, id=row["command"], marks=[known] if row["wrong"] else [])


def interval(result, quantity):
    """Ends of what is said."""
    if quantity in ("mfu", "tokens_per_s"):  # a rate, by the interval of the step
        per_step = result[quantity] * result["step_s"]
        return per_step / result["step_high_s"], per_step / result["step_low_s"]
    what, unit = quantity.rsplit("_", 1)
    if f"{what}_low_{unit}" in result:
        return result[f"{what}_low_{unit}"], result[f"{what}_high_{unit}"]
    return result[quantity] / (1 + WITHOUT_INTERVAL), result[quantity] / (1 - WITHOUT_INTERVAL)


@pytest.mark.slow
@pytest.mark.parametrize("row", list(asked()))
def test_the_first_command_that_a_person_types_is_right(row):
    done = invoke(*shlex.split(row["command"]), "--json")
    result = json.loads(done.stdout)["result"]
    result |= {
        f"time_{end}_s": result.get("expected", {}).get(f"{end}_s") for end in ("low", "high")
    }
    if row["quantity"] == "fits":
        assert result["fits"] is (row["measured"] == "yes")
        return
    low, high = interval(result, row["quantity"])
    assert low <= float(row["measured"]) <= high


def test_the_line_that_starts_it_is_of_the_engine_that_was_asked_for():
    said = invoke("serve", "qwen3-8b", "--gpu", "m4-max", "--engine", "mlx", "--show", "launch")
    assert said.stdout.startswith("mlx_lm.server --model ./qwen3-8b-")
    assert "mlx_lm.benchmark" in said.stdout and "llama" not in said.stdout


@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("plan olmo-3-32b --gpu h100 --gpus 8 --show money", "--show figures"),
        ("plan llama3-8b --gpu a10 --method dpo,lora", "--method dpo --rank 16"),
        ("plan llama3-8b --gpu a10 --method dpo --adapter lora", "--rank (of adapters"),
        ("plan --params 2.15B --gpu h100", "--set model.n_layers=24"),
        (
            "plan gemma3-12b --gpu tpu-v6e --gpus 512 --seq-len 32768",
            "raise it with --set cluster.n_gpus=512 --set cluster.n_nodes=64",
        ),
        ("serve qwen3-8b --gpu h100 --cache fp8", "--kv (format of the cache)"),
        ("plan qwen3-8b --method grpo --max-prompt 512", "--prompt (its mean tokens)"),
        (
            "plan qwen3.5-2b --gpu dgx-spark --method lora",
            "of qwen3.5 there are qwen3.5-27b, qwen3.5-9b",
        ),
    ],
)
def test_what_cannot_be_asked_so_leads_to_the_way(command, way):
    done = invoke(*shlex.split(command))
    assert done.returncode == 2 and not done.stdout and way in done.stderr
