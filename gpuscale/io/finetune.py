"""A cluster and a software family as the formulas of fine-tuning and RL take them."""

from __future__ import annotations

from functools import lru_cache

from gpuscale.core.finetune.method import Job
from gpuscale.core.finetune.parameters import FinetuneParameters, kept_in
from gpuscale.core.finetune.rl_estimate import RolloutEngine
from gpuscale.core.finetune.rl_step import RlCosts
from gpuscale.core.records import NamedTuple, replace
from gpuscale.core.serving.records import Replica
from gpuscale.core.step.records import Hardware, Software
from gpuscale.errors import GpuscaleError
from gpuscale.io.presets import checked, shipped
from gpuscale.io.software import load_software, software_record
from gpuscale.io.step import Calibration, load_calibration, step_hardware
from gpuscale.io.text import Table, read_toml
from gpuscale.specs.hardware import ClusterSpec
from gpuscale.specs.software import FittedValue, SoftwareSpec


class FinetuneFigures(NamedTuple):
    """Figures of one job: hardware, software, what the family keeps."""

    hw: Hardware
    sw: Software
    parameters: FinetuneParameters


def tuning_software(family: SoftwareSpec) -> SoftwareSpec:
    """Family that fine-tunes in the stead of one that pretrains; itself where it does both.

    >>> tuning_software(load_software("fsdp")).name
    'hf-fsdp'
    """
    return load_software(family.finetune_as) if family.finetune_as else family


def finetune_parameters(software: SoftwareSpec) -> FinetuneParameters:
    """Fine-tuning parameters of a family.

    Raises GpuscaleError if nobody fine-tunes with it.
    """
    if software.finetune is None:
        raise GpuscaleError(
            f"`{software.name[:60]}` is no fine-tuning software",
            "for example --software hf-peft, unsloth, torchtune, hf-deepspeed, axolotl; "
            "full training with it is `gpuscale plan` without --method",
        )
    return software.finetune


def finetune_site(
    cluster: ClusterSpec, software: SoftwareSpec, job: Job, calibration: Calibration | None = None
) -> FinetuneFigures:
    """Make the records of a job: the attention kernel and compilation are the job's own.

    Raises GpuscaleError as `finetune_parameters`.
    """
    cal = calibration or load_calibration()
    gpu = cluster.gpu
    hw = step_hardware(cluster, cal)
    if gpu.peer_bytes_per_s is not None and gpu.scaleup_bytes_per_s is None:
        hw = replace(hw, scaleup_bytes_per_s=min(hw.scaleup_bytes_per_s, gpu.peer_bytes_per_s))
    options = {
        "compiled": job.compiled,
        "attention": "unfused" if job.attention == "eager" else "flash",
        "flash_generation": {"flash2": "2", "flash1": "1"}.get(job.attention, "best"),
    }
    sw = software_record(
        software,
        gpu.architecture,
        options,
        precision=job.layout.precision,
        calibration=cal,
        gpu=gpu.name,
    )
    return FinetuneFigures(hw, sw, as_loaded(finetune_parameters(software), job))


def as_loaded(p: FinetuneParameters, job: Job) -> FinetuneParameters:
    """Parameters with the weights in the format that a job says, where it says one."""
    return kept_in(p, job.weights, full=not job.method.adapts) if job.weights else p


@lru_cache(maxsize=1)
def _fitted() -> dict[str, float]:
    path = str(shipped("run/rl.toml"))
    return {k: checked(FittedValue, v, path).value for k, v in read_toml(path).items()}


def rl_costs(software: SoftwareSpec | None = None) -> RlCosts:
    """Costs and habits of a framework; what its preset leaves open is the fit of all."""
    own: Table = dict(_fitted())
    if software is not None:
        own |= software.rl
    return RlCosts(**own)


def rl_engine(
    cluster: ClusterSpec, tp: int, weights: str = "bf16", share: float | None = None
) -> RolloutEngine:
    """Make the serving side of a rollout: vLLM with `tp` GPUs a replica.

    `weights`: their format. `share`: of a GPU's memory, where training has the rest; None: its own.
    """
    from gpuscale.io.serving import serving_site

    gpu = cluster.gpu
    usable = gpu.process_bytes
    site = serving_site(cluster, "vllm")
    if share is not None:
        memory = replace(site.software.memory, utilisation_frac=share)
        site = replace(site, software=replace(site.software, memory=memory))
    return RolloutEngine(Replica(tp=tp, ffn_format=weights, attention_format=weights), site, usable)
