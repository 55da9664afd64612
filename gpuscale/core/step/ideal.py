"""Around the expected step: its roofline (peak rates, perfect overlap) and its 80 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuscale.core.records import fields, replace
from gpuscale.core.settings import TUNED
from gpuscale.core.step.records import Hardware, Software

if TYPE_CHECKING:
    from gpuscale.core.layout import Layout
    from gpuscale.specs.model import ModelSpec


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


USUAL_DOMAIN = 8
"""GPUs of a node: tensor parallelism over more is a class of its own, but in a rack."""

RACK_DOMAIN = 64
"""GPUs from which a scale-up domain is a rack (NVL72): wide tensor parallelism is usual there."""


def interval_classes(
    model: ModelSpec, hw: Hardware, family: str, layout: Layout
) -> tuple[str, ...]:
    """Classes that a step belongs to; the widest known one counts.

    Dense or mixture of experts is a class of its own whether or not the stack (family and
    architecture) was measured: a new site errs as much on one that others measured as on one that
    nobody did (docs/accuracy.md). So is tensor parallelism beyond the scale-up domain, and an
    architecture that no measurement was fitted on. `family`: name of the software preset.
    """
    kind = "moe" if model.has_experts else "dense"
    classes = [f"family/{family}", kind]
    if layout.tp > hw.scaleup_domain_gpus or (
        layout.tp > USUAL_DOMAIN and hw.scaleup_domain_gpus < RACK_DOMAIN
    ):
        classes.insert(0, "wide-tp")
    if not all(m.measured for m in model.mixers.values()):
        classes.insert(0, "linear-attention")
    return (f"hardware/{hw.architecture}", *classes)


def interval(
    expected_s: float,
    classes: tuple[str, ...],
    widths: Mapping[str, float],
    site_measured: bool = False,
) -> tuple[float, float]:
    """(low, high) of the 80 % interval: the expected time divided and multiplied by ``exp(w)``.

    Of the classes that `widths` knows, the widest counts. Steps measured at the site (`gpuscale
    calibrate`) narrow it by the class ``site``.

    >>> low, high = interval(1.0, ("family/x", "dense"), {"dense": 0.1})
    >>> round(low, 3), round(high, 3)
    (0.905, 1.105)
    """
    found = [widths[c] for c in classes if c in widths and not c.startswith(HARDWARE)]
    width = max(found) if found else widths["unknown"]
    if site_measured:
        width *= widths.get("site", 1.0)
    return expected_s * math.exp(-width), expected_s * math.exp(width)


HARDWARE = "hardware/"
"""Begin of the classes of machines."""


def beyond_measured(
    low_s: float,
    expected_s: float,
    high_s: float,
    classes: tuple[str, ...],
    widths: Mapping[str, float],
) -> tuple[float, float]:
    """Interval of a step on an architecture that no run was fitted on: errors apart add as squares.

    >>> widths = {"hardware/unknown": 0.3, "hardware/hopper": 0.0}
    >>> beyond_measured(0.5, 1.0, 2.0, ("hardware/hopper", "dense"), widths)
    (0.5, 2.0)
    >>> [round(x, 2) for x in beyond_measured(0.5, 1.0, 2.0, ("hardware/volta",), widths)]
    [0.47, 2.13]
    """
    unknown = widths.get(f"{HARDWARE}unknown", 0.0)
    width = max((widths.get(c, unknown) for c in classes if c.startswith(HARDWARE)), default=0.0)
    if not width:
        return low_s, high_s
    below, above = (math.log(b / a) for a, b in ((low_s, expected_s), (expected_s, high_s)))
    return (
        expected_s / math.exp(math.hypot(below, width)),
        expected_s * math.exp(math.hypot(above, width)),
    )


NEAR_FULL_FRAC = 0.9
"""Share of the HBM from which measured steps of sharded data parallelism are slower than expected,
by 10 to 24 %: the allocator gives blocks back and asks again (fully specified FSDP rows)."""
