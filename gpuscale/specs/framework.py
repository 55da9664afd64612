"""A framework as data: one file of `presets/framework`, for training and serving alike."""

from __future__ import annotations

from dataclasses import field as default
from typing import Annotated, Any, Literal

from gpuscale.core.bounds import Several
from gpuscale.core.habits import Habit
from gpuscale.specs.fields import Spec

Kind = Literal["number", "text", "list", "flag", "precision", "sharding", "embeddings"]
Word = bool | int | float | str
Names = Annotated[tuple[str, ...], Several()]
"""One name, or several of which the first is written and all are read."""


class RowSpec(Spec):
    """How a framework says one field of a job; `launch.dialects.rows` walks it both ways."""

    field: str
    option: Names = ()  # none: the words are tables of options
    words: dict[str, Word | tuple[Word, ...] | dict[str, Any]] = default(default_factory=dict)
    nearest: dict[str, Any] = default(default_factory=dict)  # words that are near, and not the same
    kind: Kind = "number"
    join: str = ""  # what stands between the words of a list that is written as one
    single: bool = False  # a list of one is written without its list
    rest: str = ""  # value for which nothing is written, as the framework does so by itself
    when: dict[str, Names] = default(default_factory=dict)  # jobs for which it is written
    written: bool = True  # else it is read alone
    read: bool = True  # else it is written alone
    usual: Word | None = None  # value of a file that does not say it
    also: dict[str, Any] = default(default_factory=dict)  # options that are written with it


class HookSpec(Spec):
    """What no row says: a pair of functions of `launch.dialects.hooks`, tested as a pair."""

    fields: tuple[str, ...]
    python: str  # NAME of read_NAME and write_NAME


class BesideSpec(Spec):
    """A second file, of another framework: DeepSpeed's JSON of a trainer."""

    framework: str
    option: str = ""  # that names it; empty: the launcher does
    when: dict[str, Names] = default(default_factory=dict)


class WritingSpec(Spec):
    """How a job of the framework is written down and started."""

    methods: Names = ()  # what it trains: pretrain, full, lora, dora, grpo, ...
    form: Literal["yaml", "json", "toml", "flags", "values", "overrides", "python"]
    file: str = ""  # name of the file; empty: all stands in the command
    launcher: Literal["torchrun", "accelerate", "tune", "ray", "python", "own"] = "torchrun"
    run: Names = ()  # what each process runs
    ends: dict[str, str] = default(default_factory=dict)  # option -> prefix of its last words
    when: dict[str, Names] = default(default_factory=dict)  # jobs that are written so
    fixed: dict[str, Any] = default(default_factory=dict)  # options that its files have
    under: str | None = None  # path before options, which have underscores then
    beside: tuple[BesideSpec, ...] = ()


class EnvironmentSpec(Spec):
    """A variable that a launch sets; of several of one name the first that is for the job."""

    name: str
    value: str
    when: dict[str, Names] = default(default_factory=dict)
    unless: dict[str, Names] = default(default_factory=dict)


class FrameworkFile(Spec):
    """What is known of one framework."""

    name: str
    title: str = ""
    package: str = ""  # on PyPI, whose classes `tools/habits.py` asks
    version: str = ""  # that was read
    like: str = ""  # framework whose habits it has where it has none of its own
    releases: dict[str, str] = default(default_factory=dict)  # version -> ISO date
    habit: tuple[Habit, ...] = ()
    rows_like: str = ""  # framework whose rows it has, below its own of the same field
    writing: tuple[WritingSpec, ...] = ()
    environment: tuple[EnvironmentSpec, ...] = ()
    fixed: dict[str, Any] = default(default_factory=dict)  # options that every file has
    names: dict[str, str] = default(default_factory=dict)  # model preset -> its name of the model
    unsaid: dict[str, str] = default(default_factory=dict)  # field -> why it cannot say it
    beyond: dict[str, str] = default(default_factory=dict)  # PATH or PATH ~ PATTERN -> what is not
    # predicted of a file that has it; `{}` is its value
    row: tuple[RowSpec, ...] = ()
    hook: tuple[HookSpec, ...] = ()

    @property
    def dates(self) -> dict[str, str]:
        """Version -> date, of releases and of habits."""
        return {**{h.since: h.date for h in self.habit if h.since and h.date}, **self.releases}
