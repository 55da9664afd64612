"""One call that loads what a command works on, with the what-if overrides applied.

In the answer to a question::

    loaded = load_inputs(question, cluster=question.cluster, model=question.model)
    document = Document(..., blocks=[..., *changed(loaded)], warnings=loaded.warnings)

`loaded.cluster`, `loaded.gpu` and `loaded.model` are the specs; `loaded.changes` has one line per
``--set`` that every command prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from gpuscale.core.records import dataclass, field
from gpuscale.errors import GpuscaleError, typo_of, unknown_name
from gpuscale.io.hardware import load_cluster, load_gpu
from gpuscale.io.presets import spec_error
from gpuscale.io.text import Table, parse_toml

if TYPE_CHECKING:
    from gpuscale.specs.fields import Spec
    from gpuscale.specs.hardware import ClusterSpec, GpuSpec
    from gpuscale.specs.model import ModelSpec


S = TypeVar("S", bound="Spec")

WHAT_IF = "what-if: changed on the command line"
MAX_SETTINGS = 200


class Setting(NamedTuple):
    """One `--set`: the dotted key as typed, its parts, and the text of the value."""

    key: str
    parts: tuple[str, ...]
    text: str


def parse_settings(settings: Sequence[str]) -> tuple[Setting, ...]:
    """Split `KEY=VALUE` texts.

    Raises GpuscaleError if one has no key or no value, or a key is given twice.
    """
    if len(settings) > MAX_SETTINGS:
        raise GpuscaleError(f"--set: more than {MAX_SETTINGS} changes")
    parsed: dict[str, Setting] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        key = key.strip()
        parts = tuple(p.strip() for p in key.split("."))
        if not equals or not value.strip() or not all(parts) or len(parts) < 2:
            raise GpuscaleError(
                f"--set {_shown(text)}: not KEY=VALUE",
                "for example --set cluster.node_egress_bytes_per_s='800 GB/s'",
            )
        if key in parsed:
            raise GpuscaleError(f"--set {_shown(key)}: given twice")
        parsed[key] = Setting(key, parts, value.strip())
    return tuple(parsed.values())


def check_consumed(settings: Sequence[Setting], prefixes: Sequence[str]) -> None:
    """Refuse settings of specs that the command does not use; none is ever ignored."""
    for setting in settings:
        if setting.parts[0] not in prefixes:
            known = ", ".join(f"{p}." for p in prefixes) or "nothing"
            raise unknown_name("--set key", setting.key, [], f"this command can change {known}")


def apply_overrides(
    spec: S, prefix: str, settings: Sequence[Setting | str]
) -> tuple[S, tuple[str, ...]]:
    """Rebuild a spec with the settings whose key begins with `prefix.`.

    `spec`: any frozen spec; the result is validated like a file. `prefix`: ``gpu``, ``cluster``,
    ``model``, ... `settings`: settings of other prefixes are left to others (see `check_consumed`).
    Returns: the new spec, and one line per change for the output, such as
    ``cluster.node_egress_bytes_per_s: 400 GB/s -> 800 GB/s (what-if)``. Raises GpuscaleError for a
    key that does not exist (with the closest one) or a value that is not valid.

    >>> from gpuscale.io.hardware import load_gpu
    >>> gpu, lines = apply_overrides(load_gpu("h100"), "gpu", ["gpu.hbm_bytes=96 GiB"])
    >>> gpu.hbm_bytes, lines
    (103079215104.0, ('gpu.hbm_bytes: 85.9 GB -> 103.1 GB (what-if)',))
    """
    texts = [s for s in settings if isinstance(s, str)]
    given = [*(s for s in settings if isinstance(s, Setting)), *parse_settings(texts)]
    mine = [s for s in given if s.parts[0] == prefix]
    if not mine:
        return spec, ()
    table = spec.model_dump()
    paths = [_put(table, _layer_count(spec, s)) for s in mine]
    new, old = _rebuild(spec, prefix, table), spec.model_dump()
    sizes = [path[:-1] for path in paths if path[-1] == "hbm_bytes"]
    for gpu in sizes:  # a process has the same share of another memory, where nobody says else
        usable, at = "usable_hbm_bytes", _at(table, gpu)
        if at[usable] and (*gpu, usable) not in paths:
            at[usable] *= _at(new.model_dump(), gpu)["hbm_bytes"] / _at(old, gpu)["hbm_bytes"]
    new = _rebuild(spec, prefix, table) if sizes else new
    dump = new.model_dump()
    lines = tuple(
        f"{'.'.join((prefix, *map(str, path)))}: {_text(path, _at(old, path))} -> "
        f"{_text(path, _at(dump, path))} (what-if)"
        for path in paths
    )
    return new, lines


def _layer_count(spec: Spec, setting: Setting) -> Setting:
    """Read `model.n_layers=N` as a pattern of N equal layers, where all layers are equal."""
    if setting.parts[1:] != ("n_layers",) or not hasattr(spec, "layer_sequence"):
        return setting
    kinds = set(spec.layer_sequence)
    if len(kinds) != 1:
        raise GpuscaleError(
            f"--set {setting.key}: the layers differ",
            f"set model.layers, now '{spec.layers}'",  # type: ignore[attr-defined]
        )
    if not setting.text.isdecimal():
        raise GpuscaleError(f"--set {setting.key}: {_shown(setting.text)} is not a whole number")
    mixer, ffn = kinds.pop()
    return Setting(setting.key, ("model", "layers"), f"{setting.text[:9]} x {mixer}+{ffn}")


def _put(table: Table, setting: Setting) -> tuple[str | int, ...]:
    """Set one value in nested tables; list items are named by index or by their `name`."""
    path: list[str | int] = []
    at: Any = table
    *folders, last = setting.parts[1:]
    for part in folders:
        key = _key(at, part, setting, path)
        if at[key] is None or not isinstance(at[key], (dict, list, tuple)):
            raise GpuscaleError(f"--set {_shown(setting.key)}: {part} has no keys below it")
        if isinstance(at[key], tuple):
            at[key] = list(at[key])
        path.append(key)
        at = at[key]
    key = _key(at, last, setting, path)
    at[key] = _value(setting)
    if isinstance(at, dict) and isinstance(at.get("sources"), dict) and key != "sources":
        at["sources"] = at["sources"] | {key: WHAT_IF}
    return (*path, key)


def _key(at: Any, part: str, setting: Setting, path: Sequence[str | int]) -> str | int:
    if isinstance(at, list):
        names = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in at]
        if part in names:
            return names.index(part)
        if part.isdecimal() and int(part[:9]) < len(at):
            return int(part[:9])
        known = [n for n in names if n]
    elif part in at:
        return part
    else:
        known = [str(k) for k in at]
    before = ".".join((setting.parts[0], *map(str, path)))
    close = _closest(part, known)
    hint = f"did you mean `{before}.{close}`?" if close else f"keys: {', '.join(known)}"
    raise unknown_name("--set key", f"{before}.{part}", [], hint)


def _closest(part: str, known: Sequence[str]) -> str:
    """Key that begins with or contains what was typed, else the most similar one."""
    wanted = part.lower()
    starts = [k for k in known if k.startswith(wanted)] or [k for k in known if wanted in k]
    return next(iter(starts), "") or typo_of(wanted, known)


def _value(setting: Setting) -> Any:
    text = setting.text
    if text.lower() in ("none", "null"):
        return None
    if text[0] not in "[{":
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] in "\"'" else text
    return parse_toml(f"value = {text}", f"--set {_shown(setting.key)}").get("value")


def _rebuild(spec: S, prefix: str, table: Table) -> S:
    import pydantic

    if isinstance(table.get("gpu"), str):
        from gpuscale.io.hardware import load_gpu

        table["gpu"] = load_gpu(table["gpu"]).model_dump()
    try:
        return type(spec).model_validate(table)
    except pydantic.ValidationError as error:
        told = spec_error(f"--set {prefix}", error, list(spec.model_dump()))
        if error.errors(include_url=False)[0]["loc"]:
            start = f"--set {prefix}"
            told.message = start + "." + told.message[len(start) + 2 :]
        raise GpuscaleError(told.message, told.hint) from None


def _at(table: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        table = table[key]
    return table


def _text(path: Sequence[str | int], value: Any) -> str:
    from gpuscale.core.quantity import dimension_of, format_si

    if value is None:
        return "none"
    if isinstance(value, dict):
        return str(value.get("name", "a table"))
    if isinstance(value, (list, tuple)):
        return f"{len(value)} items"
    if isinstance(value, float):
        dim = dimension_of(str(path[-1]).removesuffix("_per_unit").replace("_gpu_", "_"))
        if dim in ("", "count", "tokens"):
            return f"{value:g}"
        number, _, unit = format_si(value, dim).partition(" ")
        number = number.rstrip("0").rstrip(".") if "." in number else number
        return f"{number} {unit}".strip()
    return _shown(str(value))


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


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

    def inputs(self, **more: object) -> dict[str, object]:
        """Return the inputs of an answer: names of the specs, what else was asked, changes."""
        named = {kind: spec.name for kind, spec in self.specs.items()}
        return {**named, **more, "changed": list(self.changes)}

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
    if ":" in (dated := str(getattr(question, "software", None))):
        from gpuscale.io.software import without_dates

        warnings += without_dates(dated)
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
