"""A cluster preset and the fitted parameters to the flat record of the step model."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from gpuscale.core.network.expected import reduces_in_switch
from gpuscale.core.records import made_of
from gpuscale.core.step.form import StepForm
from gpuscale.core.step.records import Hardware
from gpuscale.io.calibration import load_arch, load_fabric
from gpuscale.io.step_calibration import Calibration, load_calibration

if TYPE_CHECKING:
    from pathlib import Path

    from gpuscale.specs.cluster import ClusterSpec
    from gpuscale.specs.gpu import GpuSpec

UNITS_DEFAULT = 148
"""Compute units where the data sheet does not say."""


def step_hardware(
    cluster: ClusterSpec, calibration: Calibration | None = None, overlay: str | Path | None = None
) -> Hardware:
    """Hardware record of a cluster.

    `cluster`: GPU, node and network. `calibration`: parameters of a step; default: those shipped.
    `overlay`: a person's own measurements of products and collectives, as `gpuscale calibrate`
    wrote them; they change the step through the same functions as `matmul-time` and `collective`.
    """
    gpu, cal, domain = cluster.gpu, calibration or load_calibration(), cluster.scaleup_domain_gpus
    fabric_class = cluster.fabric_class
    arch = gpu.architecture
    named = (f.name for f in fields(Hardware))
    kernels = {name: cal[f"kernels.{name}"] for name in named if f"kernels.{name}" in cal}
    kernels_alone = load_arch(arch, overlay)  # a step has a power factor of its own, below
    fabric = load_fabric(cluster, overlay)
    power = _power_factor(gpu, cal)
    bf16 = gpu.bf16_flop_per_s or gpu.fp16_flop_per_s or gpu.fp32_flop_per_s or 1e13
    aqt = gpu.int8_flop_per_s if arch.startswith("tpu") else None  # takes the place of fp8
    return made_of(
        Hardware,
        cluster,
        gpu,
        bf16_flop_per_s=bf16,
        fp8_flop_per_s=max(gpu.fp8_flop_per_s or 0.0, aqt or 0.0),
        fp4_flop_per_s=gpu.fp4_flop_per_s or 0.0,
        n_compute_units=gpu.n_compute_units or UNITS_DEFAULT,
        scaleup_bytes_per_s=cluster.scaleup_bytes_per_s or gpu.scaleup_bytes_per_s or 25e9,
        scaleout_bytes_per_s=cluster.egress_bytes_per_s_per_gpu or 12.5e9,
        host_link_bytes_per_s=gpu.c2c_bytes_per_s or gpu.pcie_bytes_per_s or 25e9,
        form=StepForm(**{f.name: cal[f"form.{f.name}"] for f in fields(StepForm)}),
        l2_bytes=max(gpu.l2_bytes or 0.0, gpu.last_level_cache_bytes or 0.0),
        in_switch_reduction=reduces_in_switch(fabric, domain),
        arch=kernels_alone,
        fabric=fabric,
        hbm_eff=kernels_alone.for_dtype("bf16").memory_eff_frac * cal["kernels.stream_frac"],
        product_bf16_frac=cal.arch(arch, "product_bf16_frac", gpu.name) * power,
        product_fp8_frac=cal.arch(arch, "product_fp8_frac", gpu.name) * power,
        product_fp4_frac=cal.arch(arch, "product_fp4_frac", gpu.name) * power,
        attention_ramp_tokens=cal.arch(arch, "attention_ramp_tokens", gpu.name),
        attention_eff=cal.arch(arch, "attention_eff", gpu.name) * power,
        scaleup_frac=cal.arch(arch, "scaleup_frac", gpu.name),
        scaleout_frac=cal.fabric(fabric_class, "scaleout_frac"),
        scaleout_latency_factor=cal.fabric(fabric_class, "latency_factor"),
        **kernels,
    )


def _power_factor(gpu: GpuSpec, cal: Calibration) -> float:
    """Share of the rates that a board keeps with less power than that of the measurements. [1]."""
    reference = cal.arch(gpu.architecture, "reference_tdp_w", gpu.name)
    if not gpu.tdp_w or reference <= 10.0:
        return 1.0
    return float(min(1.0, gpu.tdp_w / reference) ** cal["kernels.power_exponent"])
