"""GPUs that launch files name: in Slurm's headers, a manifest's selectors, a recipe's options."""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"(?i)(?<![a-z0-9])(gb[23]00|gh200|b[23]00|h[12]00|h800|h20|a100|a800|a10g|l40s|l40|l4|v100|t4"
    r"|mi[23]\d\dx|rtx[-_ ]?\d{4}|tpu7x|v6e|v5p|v5e|v5-lite)(?![a-z0-9]\w)"
    r"(?:[-_: ]*(\d+)\s*g(?:b|ib)?\b)?"
)
_TPUS = {"tpu7x": "tpu-v7x", "v5-lite": "tpu-v5e"}


def gpu_named(text: str) -> str | None:
    """Name of the GPU that a label or header means, as the presets know it.

    Examples
    --------
    >>> gpu_named("gpu:h100:8"), gpu_named("nvidia-a100-40gb"), gpu_named("tpu-v5-lite-podslice")
    ('h100', 'a100-40gb', 'tpu-v5e')
    >>> gpu_named("standard") is None
    True
    """
    match = _NAMES.search(text)
    if not match:
        return None
    name = re.sub(r"[_ ]", "-", match[1].lower())
    name = _TPUS.get(name, f"tpu-{name}" if re.match(r"v[56]", name) else name)
    return f"{name}-{match[2]}gb" if match[2] and name in ("a100", "v100") else name
