"""Capacity planner for training and serving large language models on GPU clusters.

As a library: `gpuscale.plan`, `gpuscale.memory`, `gpuscale.collective`, ...; see `gpuscale.api`.
"""

from __future__ import annotations

from gpuscale.version import __version__ as __version__

TYPE_CHECKING = False  # as in `typing`, which would cost start-up time

if TYPE_CHECKING:
    from typing import Any

    from gpuscale.api import *  # noqa: F403


__all__ = (
    "__version__ Answer GpuscaleError calibrate checkpoint collective compare diagnose explain "
    "load_cluster load_gpu load_model matmul_time memory model network plan roofline serve study "
    "timeline validate"
).split()


def __getattr__(name: str) -> Any:
    """Import the library when one of its names is asked for: `import gpuscale` stays light."""
    if name not in __all__ or name.startswith("__"):
        raise AttributeError(f"module `gpuscale` has no attribute `{name}`")
    from gpuscale import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Names for completion."""
    return sorted([*globals(), *__all__])
