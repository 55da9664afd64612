"""The commands as functions: `gpuscale.memory("llama3-70b", tp=8, pp=8)` and its sisters.

Each takes the fields of its question (`gpuscale.answers`) and answers as the command does: the
same checks, the same numbers. A number may be given as a number in SI units or as a text with a
unit. What the command line refuses is raised as `gpuscale.GpuscaleError`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from gpuscale.answers.answer import Answer as Answer
from gpuscale.answers.calibrate import Calibrate
from gpuscale.answers.compare import Compare
from gpuscale.answers.diagnose import Diagnose
from gpuscale.answers.explain import Explain
from gpuscale.answers.parts.asked import Collective, MatmulTime, Model, Network
from gpuscale.answers.parts.roofline import Roofline
from gpuscale.answers.serve import Serve
from gpuscale.answers.study import Study
from gpuscale.answers.training.asked import Checkpoint, Memory, Timeline
from gpuscale.answers.training.plan import Plan
from gpuscale.answers.validate import Validate
from gpuscale.errors import GpuscaleError as GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.keys import asks  # the same, with the keys of each answer
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
    from gpuscale.specs.model import ModelSpec
else:
    from gpuscale.answers.answer import asks


def load_gpu(name: str, catalogue: str = "vendor") -> GpuSpec:
    """Figures of a GPU: preset name or TOML file.

    >>> load_gpu("h100").hbm_bytes_per_s
    3350000000000.0
    """
    from gpuscale.io.hardware import load_gpu as load

    return load(name, catalogue)


def load_cluster(name: str, catalogue: str = "vendor") -> ClusterSpec:
    """Figures of a cluster: preset name, GPU name (its usual node) or TOML file.

    >>> load_cluster("dgx-h100").node_egress_bytes_per_s
    400000000000.0
    """
    from gpuscale.io.hardware import load_cluster as load

    return load(name, catalogue)


def load_model(name: str) -> ModelSpec:
    """Shape of a model: preset name, TOML file or Hugging Face ``config.json``.

    What had to be assumed is told by `warnings.warn`.

    >>> load_model("llama3-70b").hidden_size
    8192
    """
    from gpuscale.io.models import load_model as load

    found = load(name)
    for text in found.warnings:
        warnings.warn(text, stacklevel=2)
    return found.spec


plan = asks(Plan)
memory = asks(Memory)
roofline = asks(Roofline)
serve = asks(Serve)
study = asks(Study)
matmul_time = asks(MatmulTime)
checkpoint = asks(Checkpoint)
collective = asks(Collective)
timeline = asks(Timeline)
network = asks(Network)
model = asks(Model)
explain = asks(Explain)
validate = asks(Validate)
compare = asks(Compare)
diagnose = asks(Diagnose)
calibrate = asks(Calibrate)
