"""Activations that wait on the host: their copies beside the passes of a stage."""

from __future__ import annotations

from gpuscale.core.layout import Layout
from gpuscale.core.memory.peak import KindActivations, away_frac, held_bytes
from gpuscale.core.step.overlap import exposed_s
from gpuscale.core.step.records import Hardware, Software


def offloads(sw: Software, layout: Layout) -> bool:
    """Whether activations of some layers wait on the host."""
    return layout.offload_activations or sw.offload_layers > 0


def copies_s(
    hw: Hardware,
    sw: Software,
    layout: Layout,
    layers: tuple[tuple[int, int], ...],
    acts: tuple[KindActivations, ...],
    *,
    forward_s: float,
    backward_s: float,
) -> tuple[float, float]:
    """Exposed copies of one micro-batch of a stage: (out in the forward pass, back in the other).

    The offloaded layers are spread over the stage and copied on a stream of their own, so that a
    whole pass hides them (Transformer Engine, `cpu_offload.py`: groups of layers wait for their
    copies at even intervals). [s].
    """
    n_layers = sum(n for _, n in layers)
    away = away_frac(n_layers, layout, sw.offload_layers)
    copy_s = away * held_bytes(layers, n_layers, acts, layout) / hw.host_link_bytes_per_s
    c = 0.0 if hw.arch is None else hw.form.activations_exposed_frac  # the roofline hides all
    return exposed_s(forward_s, copy_s, c), exposed_s(backward_s, copy_s, c)
