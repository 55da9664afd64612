"""One call that loads what a command works on, with the what-if overrides applied.

In the answer to a question::

    loaded = load_inputs(question, cluster=question.cluster, model=question.model)
    document = Document(..., blocks=[..., *changed(loaded)], warnings=loaded.warnings)

`loaded.cluster`, `loaded.gpu` and `loaded.model` are the specs; `loaded.changes` has one line per
``--set`` that every command prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gpuscale.core.dataclasses import dataclass, field
from gpuscale.errors import GpuscaleError
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.overrides import Setting, apply_overrides, check_consumed, parse_settings

if TYPE_CHECKING:
    from gpuscale.specs.fields import Spec
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
    from gpuscale.specs.model import ModelSpec


class HasSettings(Protocol):
    """A question about specs, as far as it matters here."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Changes, as ``KEY=VALUE``."""

    @property
    def calibration(self) -> str | None:
        """File of own constants."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a command works on; asking for a spec that was not loaded is our mistake."""

    specs: Mapping[str, Any]
    changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = field(default=(), repr=False)
    calibration: str | None = None  # overlay file of `--calibration`

    @property
    def gpu(self) -> GpuSpec:
        """The GPU, of the cluster where one was loaded."""
        spec: GpuSpec = self.specs["gpu"]
        return spec

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster."""
        spec: ClusterSpec = self.specs["cluster"]
        return spec

    @property
    def model(self) -> ModelSpec:
        """The model."""
        spec: ModelSpec = self.specs["model"]
        return spec


SHADOWED = {
    "scaleup_bytes_per_s": "scaleup_bytes_per_s",
    "scaleup_domain_gpus": "scaleup_domain_gpus",
    "peer_bytes_per_s": "scaleup_bytes_per_s",
}
"""Keys of the GPU that a cluster states too; a change of the GPU's goes to both."""

DESCRIPTIVE = {
    "cluster.fabric": "cluster.fabric_class",
    "cluster.gpu.scaleup_link": "cluster.gpu.scaleup_bytes_per_s",
    "cluster.gpu.pcie_gen": "cluster.gpu.pcie_bytes_per_s",
}
"""Keys that only describe; changing them changes no result, which is said in a warning."""


def load_inputs(
    question: HasSettings,
    *,
    gpu: str | None = None,
    cluster: str | None = None,
    model: str | None = None,
    catalogue: str = "vendor",
    others: Mapping[str, Spec] | None = None,
    wires: Callable[[ClusterSpec], tuple[list[str], list[str]]] | None = None,
) -> Loaded:
    """Load the specs that are asked for and apply `question.settings` to them.

    `question`: the question; only its settings and `calibration` are read. `gpu, cluster, model`:
    arguments as typed: preset name, alias, path, or `-` (a cluster: also a GPU's name). With a
    cluster and no `gpu`, the GPU is the cluster's, and `gpu.` in a setting is short for
    `cluster.gpu.`. `catalogue`: ``vendor`` or ``documents``, see `gpuscale.io.hardware`. `others`:
    further specs by prefix, e.g. ``{"software": profile}``; found in `Loaded.specs`. `wires`: gives
    settings and warnings of how the cluster's nodes are built instead; a setting by hand goes
    before it. Raises GpuscaleError
    for unknown names, bad files, and settings that no spec of this command takes.
    """
    if [gpu, cluster, model].count("-") > 1:
        raise GpuscaleError("only one argument can be read from standard input (`-`)")
    specs: dict[str, Any] = dict(others or {})
    warnings: list[str] = []
    if model is not None:
        from gpuscale.io.models import load_model

        loaded = load_model(model)
        specs["model"], warnings = loaded.spec, list(loaded.warnings)
    if cluster is not None:
        specs["cluster"] = load_cluster(cluster, catalogue)
    if gpu is not None:
        specs["gpu"] = load_gpu(gpu, catalogue)
    texts = question.settings
    if wires is not None and cluster is not None:
        by_hand = {text.partition("=")[0].strip() for text in texts}
        own, told = wires(specs["cluster"])
        warnings += told
        texts = (*texts, *(text for text in own if text.partition("=")[0] not in by_hand))
    settings = parse_settings(texts) if texts else ()
    if cluster is not None and gpu is None:
        settings = tuple(_of_cluster(s) for s in settings)
        settings += _shadowed(settings, specs["cluster"])
    if cluster is not None:
        settings += _ports_keep_speed(settings, specs["cluster"])
    check_consumed(settings, list(specs) + (["gpu"] if cluster and gpu is None else []))
    changes: list[str] = []
    for prefix, spec in specs.items():
        specs[prefix], lines = apply_overrides(spec, prefix, settings)
        changes += lines
    warnings += _descriptive(settings)
    if cluster is not None and gpu is None:
        specs["gpu"] = specs["cluster"].gpu
    return Loaded(specs, tuple(changes), tuple(warnings), settings, question.calibration)


def _of_cluster(setting: Setting) -> Setting:
    if setting.parts[0] != "gpu":
        return setting
    return Setting(f"cluster.{setting.key}", ("cluster", *setting.parts), setting.text)


def _shadowed(settings: tuple[Setting, ...], cluster: ClusterSpec) -> tuple[Setting, ...]:
    keys = {s.key for s in settings}
    more = []
    for setting in settings:
        name = setting.parts[-1]
        if setting.parts[:2] != ("cluster", "gpu") or name not in SHADOWED:
            continue
        name = SHADOWED[name]
        own = f"cluster.{name}"
        if own not in keys and len(setting.parts) == 3 and getattr(cluster, name) is not None:
            more.append(Setting(own, ("cluster", name), setting.text))
    return tuple(more)


def _ports_keep_speed(settings: tuple[Setting, ...], cluster: ClusterSpec) -> tuple[Setting, ...]:
    """NICs that a smaller egress of a node stands for, or the egress of another count of NICs."""
    from gpuscale.core.quantity import parse

    told = {s.parts[-1]: s.text for s in settings if s.parts[0] == "cluster" and len(s.parts) == 2}
    egress, count = told.get("node_egress_bytes_per_s"), told.get("nics_per_node")
    before, nics = cluster.node_egress_bytes_per_s, cluster.nics_per_node
    if (egress is None) == (count is None) or not before or not nics:
        return ()
    try:
        now = (
            parse(egress, "bytes_per_s") if egress is not None else before * int(str(count)) / nics
        )
    except ValueError:
        return ()  # said where the setting is applied
    left = max(1, round(nics * now / before))
    if egress is not None and left >= nics:
        return ()
    name = "nics_per_node" if egress is not None else "node_egress_bytes_per_s"
    text = str(left) if egress is not None else f"{now:.17g} B/s"
    return (Setting(f"cluster.{name}", ("cluster", name), text),)


def _descriptive(settings: tuple[Setting, ...]) -> list[str]:
    keys = {s.key for s in settings}
    return [
        f"{key} only describes and changes no result; {real} is what counts"
        for key, real in DESCRIPTIVE.items()
        if key in keys and real not in keys
    ]
