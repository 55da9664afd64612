"""Questions as frozen records whose fields say how they are read, what they mean, how typed.

A question is the only place where its options stand: the command line, the Python function and
the reference are made from its fields::

    @dataclass
    class Network(Swept):
        '''Bandwidth of every network level, and the switches for a number of GPUs.'''

        NAME: ClassVar[str] = "network"
        EXAMPLE: ClassVar[str] = "gpuscale network h100-superpod --gpus 1024"
        cluster: Asked[str] = text("Cluster preset, GPU name, TOML file, or -.", ...)
        _: KW_ONLY
        gpus: Asked[int | None] = whole("GPUs in use.")

        def answer(self) -> Document: ...

A field takes a number in SI units or a text with a unit and keeps the number; it is set once.
Fields before `KW_ONLY` are arguments, the others options; `...` as the default means that it must
be given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from gpuscale.core.records import dataclass, fields, unchanging
from gpuscale.errors import GpuscaleError, unknown_name

if TYPE_CHECKING:
    from gpuscale.render.document import Document

T = TypeVar("T")
G = TypeVar("G")

Value = str | int | float
"""A number in SI units, or a text with a unit such as ``"800 GB/s"``."""

Settings = Mapping[str, Value] | Sequence[str]
"""What-if changes: ``{"gpu.hbm_bytes": "96 GiB"}`` or ``["gpu.hbm_bytes=96 GiB"]``."""

Sweeps = Mapping[str, str | Sequence[Value]] | Sequence[str] | str
"""Swept keys: ``{"tp": [1, 2, 4]}``, ``{"gpus": "512..4096"}`` or ``["tp=1,2,4"]``."""

LARGEST = 1e30

GROUPS = {
    "machines": "Model and machines",
    "layout": "Layout",
    "batch": "Batch and length",
    "kernels": "Kernels and formats",
    "fine-tuning": "Fine-tuning",
    "rl": "Reinforcement learning",
    "serving": "Serving",
    "money": "Money and failures",
    "search": "What is looked for",
    "show": "What is shown",
}
"""Groups of options, as ``--help GROUP`` names them -> their headings."""

TASKS = ("pretrain", "tune", "dpo", "rl", "ppo", "serve", "params")
"""What a job is: pre-training, fine-tuning, RL without rollouts, with them, with a critic, serving;
and a bare number of parameters."""
PRETRAIN = TASKS[:1]
TRAIN = TASKS[:5]
TUNE = TASKS[1:5]
RL = TASKS[2:5]
SERVE = ("serve",)


class Asked(Generic[T]):
    """A field of a question: a descriptor that reads what it is given, and what is said of it."""

    def __init__(
        self,
        help: str,
        default: Any,
        read: Callable[[Any, str], Any],
        *,
        flags: Sequence[str] = (),  # further spellings on the command line
        dim: str = "",  # of `core.quantity.UNITS`, of a number
        kind: str = "value",  # "value", "flag" (true or absent), "many" (repeatable)
        label: str = "",  # what to call it in an error
        metavar: str | None = None,
        complete: str | Callable[[str], list[str]] = "",  # words for a shell; a kind of name
        group: str = "",  # of `GROUPS`; empty: the GROUP of its class
        common: int = 0,  # place in the first help of a command, if in it
        tasks: Sequence[str] = (),  # that have it; empty: the OF_TASKS of its class, or all
        instead: str = "",  # what to give where a task does not have it
    ) -> None:
        self.help, self.default, self.read = help, default, read
        self.flags, self.dim, self.kind, self.label = tuple(flags), dim, kind, label
        self.metavar, self.complete = metavar, complete
        self.group, self.common, self.tasks, self.instead = group, common, tasks, instead
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.group = self.group or vars(owner).get("GROUP", "")
        self.tasks = tuple(self.tasks or vars(owner).get("OF_TASKS", TASKS))
        self.label = self.label or f"--{name.replace('_', '-')}"

    @overload
    def __get__(self, question: None, owner: type) -> T: ...

    @overload
    def __get__(self, question: object, owner: type) -> T: ...

    def __get__(self, question: object | None, owner: type) -> Any:
        """Value of a question; of the class, the default."""
        if question is not None:
            return vars(question)[self.name]
        if self.default is ...:
            raise AttributeError(self.name)
        return self.default

    def __set__(self, question: object, value: T | str) -> None:
        """Read a value, once: a question does not change."""
        if self.name in vars(question):
            raise unchanging(self.name)
        given = self.default if value is None else value
        vars(question)[self.name] = None if given is None else self.read(given, self.label)


class Converted(Asked[T], Generic[T, G]):
    """A field that takes other types than it keeps."""

    def __set__(self, question: object, value: T | str | G) -> None:
        super().__set__(question, value)  # type: ignore[arg-type]


# --- kinds of fields ---------------------------------------------------------------------------


@overload
def text(help: str, default: str | EllipsisType, **more: Any) -> Asked[str]: ...


@overload
def text(help: str, default: None = None, **more: Any) -> Asked[str | None]: ...


def text(
    help: str,
    default: str | EllipsisType | None = None,
    *,
    known: Collection[str] = (),
    noun: str = "",
    same: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Field of a name or a text; one of `known`, which are called `noun`, where that is given.

    `same` are other words for some of the known names.
    """

    def read(value: Any, label: str) -> str:
        if not known:
            return _written(value)
        word = _written(value).strip().lower()
        word = (same or {}).get(word, word)
        if word not in known:
            what = noun or label.strip("-").replace("-", " ")
            raise unknown_name(what, word, known, f"known: {', '.join(known)}")
        return word

    return Asked(help, default, read, **more)


@overload
def whole(help: str, default: int | EllipsisType, **more: Any) -> Asked[int]: ...


@overload
def whole(help: str, default: None = None, **more: Any) -> Asked[int | None]: ...


def whole(
    help: str,
    default: int | EllipsisType | None = None,
    *,
    least: int = 1,
    most: float = 1e15,
    dim: str = "count",
    **more: Any,
) -> Any:
    """Field of a whole number; ``64k`` is 64,000 (`dim` positions: 65,536)."""

    def read(value: Any, label: str) -> int:
        from gpuscale.answers import values

        return values.whole(value, label, least=least, most=most, dim=dim)

    return Asked(help, default, read, **{"metavar": "N"} | more)


@overload
def amount(help: str, dim: str, default: float | EllipsisType, **more: Any) -> Asked[float]: ...


@overload
def amount(help: str, dim: str, default: None = None, **more: Any) -> Asked[float | None]: ...


def amount(
    help: str,
    dim: str,
    default: float | EllipsisType | None = None,
    *,
    least: float = 0.0,
    most: float = 1e24,
    zero: bool = False,
    **more: Any,
) -> Any:
    """Field of a quantity of a dimension of `core.quantity.UNITS`, kept in its SI unit."""

    def read(value: Any, label: str) -> float:
        from gpuscale.answers import values

        return values.quantity(value, dim, label, least=least, most=most, zero=zero)

    return Asked(help, default, read, dim=dim, **more)


def flag(help: str, **more: Any) -> Asked[bool]:
    """Field that is true where it is named."""
    return Asked(help, False, _truth, kind="flag", **more)


def texts(help: str, default: Any = (), **more: Any) -> Converted[tuple[str, ...], Sequence[str]]:
    """Field of several texts."""

    def read(value: Any, label: str) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else tuple(map(_written, value))

    return Converted(help, default, read, kind="many", **more)


def _truth(value: Any, label: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise GpuscaleError(f"{label}: true or false is wanted, got `{str(value)[:40]}`")
    return found


def _written(value: Any) -> str:
    """Text of a value as the command line would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and not -LARGEST <= value <= LARGEST:
        raise GpuscaleError(f"{value:g}: give a number of at most {LARGEST:g}")
    return repr(value) if isinstance(value, float) else str(value)


def _settings(value: Any, label: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(f"{key}={_written(v)}" for key, v in value.items())
    return tuple(value)


def read_sweeps(value: Any, label: str) -> tuple[str, ...]:
    """Read sweeps, as texts."""
    if not isinstance(value, Mapping):
        return _settings(value, label)
    return tuple(
        f"{key}={v if isinstance(v, str) else ','.join(map(_written, v))}"
        for key, v in value.items()
    )


# --- questions ---------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Question:
    """What is asked; a subclass per command."""

    NAME: ClassVar[str] = ""
    EXAMPLE: ClassVar[str] = ""
    RESULTS: ClassVar[str] = ""
    """Records that an answer may hold, for its schema: ``module:class`` below this package."""

    def check(self) -> None:
        """Read the files and names that are given: a bad one is told before anything is computed.

        And even where nothing uses it.
        """

    def answer(self) -> Document:
        """Answer this one question; `ask` also answers sweeps of it."""
        raise NotImplementedError


@dataclass(kw_only=True)
class Calibrated(Question):
    """A question whose answer has expected figures."""

    calibration: Asked[str | None] = text(
        "Constants that `gpuscale calibrate` fitted to your own measurements.",
        metavar="FILE",
        group="machines",
    )

    def check(self) -> None:
        """Read the calibration."""
        super().check()
        if self.calibration is not None:
            from gpuscale.io.calibration import load_calibration

            load_calibration(self.calibration)


@dataclass(kw_only=True)
class WhatIf(Calibrated):
    """A question about specs, any key of which may be changed."""

    set: Converted[tuple[str, ...], Settings] = Converted(
        "What-if: change any key, as gpu.hbm_bytes='96 GiB'. Repeatable.",
        (),
        _settings,
        kind="many",
        metavar="KEY=VALUE",
        group="machines",
        common=1,
    )

    @property
    def settings(self) -> tuple[str, ...]:
        """Changes, as ``KEY=VALUE``."""
        return self.set


@dataclass(kw_only=True)
class Swept(WhatIf):
    """A question whose headline numbers can be tabulated over one or two keys."""

    HEADLINES: ClassVar[str] = ""
    """Keys of the result that a sweep shows unless others are asked for."""

    OWN_SWEEP: ClassVar[bool] = False
    """Whether the question itself reads a sweep without an equals sign."""

    sweep: Converted[tuple[str, ...], Sweeps] = Converted(
        "Table over a key of --set or an option: LOW..HIGH[:N] or A,B,C. Once or twice.",
        (),
        read_sweeps,
        kind="many",
        metavar="KEY=VALUES",
        group="search",
        common=1,
    )
    sweep_show: Asked[str | None] = text(
        "Keys of the result to tabulate, comma-separated; * is any.", metavar="KEYS", group="search"
    )


def fields_of(question: type[Question]) -> dict[str, tuple[Asked[Any], bool]]:
    """(field, whether it is an argument) of a question by name, its own before the shared."""
    found: dict[str, tuple[Asked[Any], bool]] = {}
    shared: dict[str, tuple[Asked[Any], bool]] = {}
    for f in fields(question):
        owner = next(c for c in question.__mro__ if f.name in vars(c))
        group = shared if owner in (Calibrated, WhatIf, Swept) else found
        group[f.name] = (vars(owner)[f.name], not f.kw_only)
    return found | shared


def refuse_others(asked: Question, task: str, named: str = "") -> None:
    """Refuse options that a task does not have: they would silently do nothing.

    `named`: the method of fine-tuning or RL.
    """
    for name, (field, _) in fields_of(type(asked)).items():
        if task in field.tasks or getattr(asked, name) == field.default:
            continue
        flag, has, hint = f"--{name.replace('_', '-')}", set(field.tasks), field.instead
        if task == "params":
            hint = "list the models with `gpuscale presets`"
            raise GpuscaleError(f"{flag} needs a model, not a number of parameters", hint)
        if has == set(SERVE):
            said = "needs --serve" if task == "pretrain" else "has no meaning with --method"
            raise GpuscaleError(f"{flag} {said}", "" if task == "pretrain" else hint)
        if task == "pretrain":
            hint = hint or "for example --method lora; full trains all weights"
            raise GpuscaleError(f"{flag} needs --method", hint)
        if has == {"ppo"} and task in RL:
            raise GpuscaleError(
                f"{flag} is for --method ppo, which has a critic and a reward model"
            )
        if task == "dpo" and "rl" in has and "tune" not in has:
            raise GpuscaleError(f"{flag}: --method {named} has no rollout")
        if task == "tune" and has <= set(RL):
            raise GpuscaleError(f"{flag} is for RL: --method grpo, ppo, rloo or dpo")
        shown = "--serve" if task == "serve" else f"--method {named}"
        raise GpuscaleError(f"{flag} has no meaning with {shown}", hint)
