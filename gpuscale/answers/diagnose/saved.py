"""What was measured, as a calibration that `plan` takes: one factor of this site and stack."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.diagnose.judged import Answered

OF_STEP = ("step_time", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "steps_per_s")


def calibration_of(a: Answered) -> tuple[str, str]:
    """(text of the calibration, what it holds); runs of the file are averaged with this one.

    Raises GpuscaleError where the planner says nothing of this job's step.
    """
    from gpuscale.evidence.fit_site import SITE_RANGE
    from gpuscale.io.calibration import load_calibration
    from gpuscale.io.toml_out import table_to_toml

    assert a.asked.save is not None
    p = a.diagnosis.predicted
    if p is None or p.quantity not in OF_STEP:
        raise GpuscaleError(
            "--save needs a training step that the model covers",
            "give model, GPUs, batch and sequence length, and the step time or tokens/s",
        )
    old = load_calibration(a.asked.save) if os.path.isfile(a.asked.save) else {}
    site = old.get("site", {})
    n = int(site.get("n_rows", 0))
    before, own = float(site.get("step_time_factor", 1.0)), p.ratio * p.over_tuned
    factor = math.exp((math.log(before) * n + math.log(own)) / (n + 1))
    if not SITE_RANGE[0] <= factor <= SITE_RANGE[1]:
        raise GpuscaleError(
            f"the run takes {factor:.3g} times the expected time: that is no matter of a site",
            "mend its cause first",
        )
    table = {
        "step_time_factor": float(f"{factor:.4g}"),
        "n_rows": n + 1,
        "source": f"gpuscale diagnose: {p.by}",
    }
    said = f"{n + 1} run{'s' if n else ''}, {factor:.3g} times a tuned job's time"
    if n:
        said += f"; this one is {_off(p.ratio)} off the plan as it comes, {_off(own / before)} off "
        said += "by the runs before it"
    return table_to_toml({"made_by": "gpuscale diagnose", **old, "site": table}), said


def _off(ratio: float) -> str:
    return f"{100 * (max(ratio, 1 / ratio) - 1):.0f} %"
