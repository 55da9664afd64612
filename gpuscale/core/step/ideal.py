"""The roofline column: the same formulas with peak rates, no latency, perfect overlap."""

from __future__ import annotations

from typing import Any

from gpuscale.core.dataclasses import fields, replace
from gpuscale.core.settings import TUNED
from gpuscale.core.step.records import Hardware, Software

_SHEET = (
    "name architecture bf16_flop_per_s fp8_flop_per_s fp4_flop_per_s hbm_bytes hbm_bytes_per_s "
    "n_compute_units gpus_per_node scaleup_domain_gpus scaleup_bytes_per_s scaleout_bytes_per_s "
    "host_link_bytes_per_s fabric_class l2_bytes form in_switch_reduction"
).split()
_DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Hardware) if f.name not in _SHEET}

IDEAL_ELEMENTWISE_FACTOR = 0.4
"""Memory-bound traffic of perfectly fused kernels: activations in and out once."""


IDEAL_OPTIMIZER_BYTES = 24.0
"""Bytes of a fused Adam per parameter: master weight and two fp32 moments, read and written."""


def ideal_hardware(hw: Hardware) -> Hardware:
    """Return the data sheet alone: every efficiency 1, every latency 0."""
    return replace(
        hw,
        **_DEFAULTS
        | {"optimizer_bytes_per_param": min(IDEAL_OPTIMIZER_BYTES, hw.optimizer_bytes_per_param)},
    )


def ideal_software(sw: Software) -> Software:
    """Perfect overlap, fused attention, no launch time; the bytes moved stay the family's."""
    return replace(
        sw,
        elementwise_factor=min(IDEAL_ELEMENTWISE_FACTOR, sw.elementwise_factor),
        host_layer_s=0.0,
        host_tp_factor=0.0,
        step_host_s=0.0,
        pipeline_launch_s=0.0,
        tp_exposed_frac=0.0,
        cp_exposed_frac=0.0,
        ep_exposed_frac=0.0,
        dualpipe=False,
        dp_exposed_frac=0.0,
        dp_network_exposed_frac=0.0,
        pp_exposed_frac=0.0,
        gather_unoverlapped_frac=0.0,
        gathers_per_layer=1.0,
        attention="flash",
        flash_factor=1.0,
        fused_cross_entropy=True,
        grouped_factor=1.0,
        dispatch_factor=0.0,
        compiled=True,
        expert_imbalance=1.0,
        maturity=TUNED,
    )
