"""Key figures of a GPU, a cluster or a model, for `gpuscale compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscale.io.inputs import load_inputs
from gpuscale.meant import packaged

if TYPE_CHECKING:
    from gpuscale.answers.ask import WhatIf
    from gpuscale.specs.cluster import ClusterSpec


def figures(asked: WhatIf, kind: str, arg: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Name, key figures and warnings of a preset or a file, what-if changes applied."""
    if kind == "model":
        return _model(asked, arg)
    loaded = load_inputs(asked, **{kind: arg})  # type: ignore[arg-type]
    if kind == "gpu":
        known = {k: getattr(loaded.gpu, k) for k in packaged("labels.toml")[kind]}
        return loaded.gpu.name, known, loaded.warnings
    return loaded.cluster.name, _cluster(loaded.cluster), loaded.warnings


def _cluster(spec: ClusterSpec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in packaged("labels.toml")["cluster"]:
        owner = spec.gpu if key.startswith("gpu.") else spec
        found[key] = getattr(owner, key.removeprefix("gpu."))
    levels = [
        f"{v.name}" + (f" {v.oversubscription:g}:1" if v.oversubscription != 1 else "")
        for v in spec.levels
    ]
    return found | {"gpu": spec.gpu.name, "levels": ", ".join(levels) or "one, flat"}


def _model(asked: WhatIf, arg: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Take the figures from the answer of `gpuscale model`, at its default of 8,192 tokens."""
    from gpuscale.answers.model import Model
    from gpuscale.render.data import plain

    document = Model(arg, seq_len=8192, set=asked.set, calibration=asked.calibration).answer()
    result = plain(document.result)
    groups = result["groups"]
    result["mixers"] = "; ".join(dict.fromkeys(g["mixer"] for g in groups))
    result["ffns"] = "; ".join(dict.fromkeys(g["ffn"] for g in groups))
    known = {k: result[k] for k in packaged("labels.toml")["model"]}
    return result["name"], known, tuple(document.warnings)
