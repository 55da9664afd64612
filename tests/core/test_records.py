"""Records behave as those of the standard library, whose methods are compiled where declared."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gpuscale.core import records as ours
from gpuscale.core.layout import Layout


def _shapes(dataclass: Callable[..., Any], field: Any) -> dict[str, Any]:
    """Make the same records with a decorator and what it takes for a field."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        """Frozen, with slots."""

        a: float
        b: dict[str, float] = field(default_factory=dict, hash=False)
        c: int = field(default=3, compare=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "a", self.a + 1)

    @dataclass(frozen=True)
    class Open:
        """Frozen, without slots."""

        a: float
        _: dataclasses.KW_ONLY
        b: str = "x"

    @dataclass(slots=True, kw_only=True)
    class Changing:
        """Not frozen: no hash."""

        a: float
        b: list[int] = field(default_factory=list)
        made: int = field(default=7, init=False)
        grown: list[int] = field(default_factory=list, init=False)

    @dataclass(slots=True)
    class Child(Changing):
        """More fields than its base."""

        c: float = 0.5

    @dataclass(frozen=True)
    class Written:
        """Methods of its own are kept."""

        a: float

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, eq=False, repr=False)
    class Same:
        """Equal to itself alone."""

        a: float

    @dataclass(frozen=True)
    class Empty:
        """Without a field."""

    return {k.__name__: k for k in (Frozen, Open, Changing, Child, Written, Same, Empty)}


OURS = _shapes(ours.dataclass, ours.field)
THEIRS = _shapes(dataclasses.dataclass, dataclasses.field)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Frozen", (1.0,), {}),
    ("Frozen", (1.0, {"x": 2.0}), {"c": 4}),
    ("Frozen", (float("nan"),), {}),
    ("Frozen", (), {}),
    ("Open", (1.0,), {"b": "y"}),
    ("Open", (1.0, "y"), {}),
    ("Changing", (), {"a": 1.0, "b": [2]}),
    ("Changing", (1.0,), {}),
    ("Changing", (), {"a": 1.0, "made": 2}),
    ("Child", (0.25,), {"a": 1.0}),
    ("Child", (0.25,), {}),
    ("Written", (1.0,), {}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
]


def _done(what: Callable[[], Any]) -> Any:
    """Return what comes of it, or the kind and words of its error."""
    try:
        return what()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def test_a_signature_is_that_of_the_record_however_it_is_looked_at() -> None:
    """Python 3.14 asks a class's `__init__` for one of something that is no record."""
    kind = _shapes(ours.dataclass, ours.field)["Frozen"]
    init = vars(kind)["__init__"].__get__(object(), kind)
    assert list(inspect.signature(init).parameters) == list(inspect.signature(kind).parameters)


@pytest.mark.parametrize("often", [0, ours.OFTEN])
@pytest.mark.parametrize(("name", "args", "more"), CALLS)
def test_a_record_is_as_one_of_the_standard_library(
    name: str,
    args: tuple[Any, ...],
    more: dict[str, Any],
    often: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ours, "OFTEN", often)  # 0: compiled when the first is made
    seen = []
    fresh = _shapes(ours.dataclass, ours.field)
    for kinds, module in ((fresh, ours), (THEIRS, dataclasses)):
        kind = kinds[name]
        one = _done(lambda kind=kind: kind(*args, **more))  # type: ignore[misc]
        if isinstance(one, tuple):
            seen.append([one])
            continue
        two, other = kind(*args, **more), kinds["Same"](1.0)
        value = getattr(one, "a", None)
        seen.append(
            [
                repr(one),
                one == two,
                one == other,
                hash(one) == hash(two) if kind.__hash__ else kind.__hash__,
                str(dataclasses.asdict(one)),
                repr(_done(partial(module.replace, one, a=9.0))),
                _done(lambda one=one: setattr(one, "a", 2.0)),  # type: ignore[misc]
                _done(lambda one=one: delattr(one, "a")),  # type: ignore[misc]
                value == getattr(two, "a", None),
                list(inspect.signature(kind).parameters),
                [p.default for p in inspect.signature(kind).parameters.values()][:1],
                hasattr(one, "__dict__"),
                kind.__match_args__,
            ]
        )
    assert seen[0] == seen[1]


def test_a_record_of_identity_is_equal_to_itself_alone() -> None:
    same = OURS["Same"]
    assert same(1.0) != same(1.0) and repr(same(1.0)).startswith("<")


def test_records_are_copied_and_pickled() -> None:
    layout = Layout(seq_len=4096, global_batch_size=64, tp=2, pp=4, dp=8)
    for one in (pickle.loads(pickle.dumps(layout)), copy.copy(layout), copy.deepcopy(layout)):
        assert one == layout and hash(one) == hash(layout) and one is not layout


def test_a_frozen_record_refuses_any_name() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'pp'"):
        Layout(4096, 64).pp = 3  # type: ignore[misc]


def test_nothing_is_compiled_before_a_record_is_made_often(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def run(text: str, *spaces: dict[str, Any], compiled: Callable[..., None] = exec) -> None:
        texts.append(text)
        compiled(text, *spaces)

    monkeypatch.setattr("builtins.exec", run)

    @ours.dataclass(frozen=True)
    class Late:
        a: float
        b: float = 2.0

    made = [Late(1.0) for _ in range(ours.OFTEN)]
    assert not texts
    made += [Late(1.0), Late(b=2.0, a=1.0)]
    assert len(texts) == 1
    assert len({hash(one) for one in made}) == 1 and made == [Late(1.0, 2.0)] * len(made)


def test_the_standard_library_sees_the_fields() -> None:
    for name, kind in OURS.items():
        seen, theirs = dataclasses.fields(kind), dataclasses.fields(THEIRS[name])
        for f, other in zip(seen, theirs, strict=True):
            said = (f.name, f.type, f.init, f.compare, f.kw_only)
            assert said == (other.name, other.type, other.init, other.compare, other.kw_only)
            assert (f.default, f.default_factory) == (other.default, other.default_factory)
    assert dataclasses.replace(Layout(4096, 64), pp=2) == Layout(4096, 64, pp=2)
    for value in ({"x": 2.0}, {"x": (1, [OURS["Open"](1.0)])}):
        frozen = OURS["Frozen"](1.0, value)
        assert ours.asdict(frozen) == dataclasses.asdict(frozen)
