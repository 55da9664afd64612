"""One job has one verdict: of its plan, of the file that the plan writes, and of `memory`."""

import pytest

from gpuscale.answers.launch_check import LaunchCheck
from gpuscale.answers.training.asked import Memory
from gpuscale.answers.training.plan import Plan
from gpuscale.core.verdict import said


def checked(plan, tmp_path):
    """Check the launch file of a plan."""
    script = tmp_path / "run.sh"
    script.write_text(plan.launch("torchrun"), encoding="utf-8")
    return LaunchCheck((str(script),)).answer()


def laid_out(layout):
    """Options of `memory` that say a layout."""
    return dict(
        gpus=layout.n_gpus,
        **{name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep", "vpp", "recompute")},
        zero=layout.zero_stage,
        micro_batch=layout.micro_batch_size,
        global_batch=layout.global_batch_size,
        seq_len=layout.seq_len,
    )


@pytest.mark.parametrize(
    ("model", "gpus", "gpu"),
    [("llama3-70b", 64, "h100"), pytest.param("deepseek-v3", 2048, "h800", marks=pytest.mark.slow)],
)
def test_a_pretraining_job_has_one_verdict(model, gpus, gpu, tmp_path):
    where = {"gpu": gpu, "software": "megatron-core"}
    plan = Plan(model, gpus=gpus, **where).answer()
    p = plan.result.fits_probability
    assert 0.5 < p < 0.95  # a verdict with doubt
    assert said(p) in plan.summary[0].value
    check = checked(plan, tmp_path).result
    assert check.fits_probability == pytest.approx(p, abs=0.01)
    layout = plan.result.layout
    more = {name: getattr(layout, name) for name in ("etp", "schedule", "precision")}
    memory = Memory(model, loss="eager", **where, **more, **laid_out(layout)).answer()
    assert memory.result.fits_probability == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize(
    ("method", "gpu", "software"), [("lora", "h100", "hf-deepspeed"), ("qlora", "rtx-3090", None)]
)
def test_a_fine_tuning_job_has_one_verdict(method, gpu, software, tmp_path):
    where = {"gpu": gpu, "method": method, "software": software, "loss": "fused"}
    plan = Plan("llama3-8b", gpus=2, seq_len=4096, **where).answer()
    r = plan.result
    check = checked(plan, tmp_path).result
    assert check.peak_bytes == pytest.approx(r.peak_bytes, rel=1e-3)
    assert check.step_s == pytest.approx(r.chosen.step_s, rel=1e-3)
    assert check.fits_probability == pytest.approx(r.fits_probability, abs=0.02)
    options = {**laid_out(r.layout), "optimizer": "adamw", **where}
    memory = Memory("llama3-8b", **options).answer().result
    assert memory.fits_probability == pytest.approx(r.fits_probability, abs=0.02)


def test_qlora_without_a_framework_is_read_back_as_it_was_planned(tmp_path):
    plan = Plan("llama3-8b", gpus=2, gpu="rtx-3090", method="qlora", seq_len=4096).answer()
    check = checked(plan, tmp_path).result
    assert check.peak_bytes == pytest.approx(plan.result.peak_bytes, rel=1e-3)
    assert check.step_s == pytest.approx(plan.result.chosen.step_s, rel=1e-3)


def test_options_before_a_module_are_those_of_torchrun(tmp_path):
    where = {"gpu": "h100", "software": "hf-peft"}
    plan = Plan("llama3-8b", gpus=2, method="lora", zero=0, **where).answer()
    assert "-m trl.scripts.sft" in plan.launch("torchrun")
    assert checked(plan, tmp_path).result.not_understood == ()
