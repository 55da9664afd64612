"""A serving line: answered by `serve` for the layout that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscale.answers.launch_check.records import Checked, empty_report

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck
    from gpuscale.launch.read.found import Found
    from gpuscale.specs.model import ModelSpec

WEIGHTS = {"awq_marlin": "awq", "gptq_marlin": "gptq", "modelopt": "fp8", "modelopt_fp4": "nvfp4"}
"""`--quantization` of vLLM -> format of the weights, where the words differ."""


def served(asked: LaunchCheck, found: Found, model: ModelSpec, n_gpus: int) -> Checked:
    """Check a serving line: does it start, how long a context, at which speed for one user."""
    from gpuscale.answers.serve import Serve

    attention = found.kind == "sglang" and (found.dp or 1) > 1
    replicas = 1 if attention else found.dp or 1
    answer = Serve(
        asked.model or found.model_name or "",
        engine=found.kind,
        cluster=asked.where,
        gpus=n_gpus,
        tp=found.tp,
        pp=found.pp,
        dp_attention=found.dp if attention else None,
        ep=found.ep,
        weights=WEIGHTS.get(found.weights, found.weights) if found.weights else (),
        kv="fp8" if (found.kv or "").startswith("fp8") else None,
        context=found.seq_len,
        max_seqs=found.max_seqs,
        memory_frac=found.memory_utilization,
        concurrency=replicas,
        set=asked.settings,
        calibration=asked.calibration,
    ).answer()
    report = empty_report(found, model, n_gpus, found.kind, fits=answer.result.fits)
    return Checked(report, asked, answer.warnings, answer.blocks, answer.terms)
