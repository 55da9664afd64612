"""Memory of a step against what the operators of Hugging Face transformers hold.

`tests/data/traced_memory.csv` is written by `tools/trace_memory.py`: tensors without data on a CPU,
so workspaces of kernels, the allocator's losses and the CUDA context are not in it.
"""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from gpuscale.core.finetune.memory import finetune_memory
from gpuscale.core.finetune.method import Job, Method
from gpuscale.core.finetune.states import OPTIMIZERS
from gpuscale.core.layout import Layout
from gpuscale.core.memory.facts import model_facts
from gpuscale.io.finetune import finetune_parameters
from gpuscale.io.models import load_model
from gpuscale.io.software import load_software

ROWS = list(csv.DictReader(Path("tests/data/traced_memory.csv").open()))
WITHIN = {"pass_bytes": 0.03, "step_bytes": 0.005, "evaluation_bytes": 0.02}
OF_MIXTURES = WITHIN | {"evaluation_bytes": 0.035}  # gradients of large adapters are counted there


def peaks(row):
    """Predicted peaks of a row, named as its columns."""
    family = finetune_parameters(load_software("hf-peft"))
    p = replace(family, overhead_bytes=0.0, fragmentation=1.0, context_bytes=0.0)
    each = {"fp32": 4.0, "bf16": 2.0}[row["weights"]]
    p = replace(p, full_weights_bytes=each, full_gradients_bytes=each, full_moment_bytes=each)
    targets = row["targets"].replace("_proj", "")
    meet = "merged" if row["n_layers"] else "each"  # mixtures: PEFT 0.21.2
    micro = int(row["micro_batch"])
    layout = Layout(int(row["seq_len"]), micro, micro_batch_size=micro, recompute=row["recompute"])
    job = Job(
        Method("lora", 16, tuple(targets.split(",")), on_experts=meet)
        if targets
        else Method("full"),
        replace(OPTIMIZERS["adamw"], temporaries=0.0),  # fused
        layout,
        attention="eager" if row["attention"] == "eager" else "best",
        eval_batch=micro,
        experts="grouped",
    )
    model = load_model(row["model"]).spec
    if row["n_layers"]:
        model = model.model_copy(update={"layers": f"{row['n_layers']} x full+moe"})
    found = dict(finetune_memory(model, model_facts(model), job, p).peaks)
    step, evaluation = found.pop("optimizer step"), found.pop("evaluation")
    return {"pass_bytes": max(found.values()), "step_bytes": step, "evaluation_bytes": evaluation}


@pytest.mark.parametrize("row", ROWS, ids=lambda r: "-".join(list(r.values())[:6]))
def test_a_step_holds_what_its_operators_do(row):
    for name, found in peaks(row).items():
        within = OF_MIXTURES if row["n_layers"] else WITHIN
        assert found == pytest.approx(float(row[name]), rel=within[name]), name
