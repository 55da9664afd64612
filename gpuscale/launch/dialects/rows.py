"""Rows of a framework's file walked both ways, fields and options; keys that nobody reads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpuscale.io.text import Table
from gpuscale.launch.found import UNSET, Found, known_options, launch_table, named_model

if TYPE_CHECKING:
    from gpuscale.launch.dialects.nested import Nested
    from gpuscale.specs.software import FrameworkFile, RowSpec


Fields = Mapping[str, Any]
"""What is said of a job: names of `launch.found.Found`, of its tables with a dot before."""

_WORDS = launch_table("words")["rows"]
REST: Table = _WORDS["rest"]
"""Value of a field that needs no words: what every framework does when it is not said."""


def words_of(row: RowSpec, value: Any) -> Any:
    """Word of a value; None where the framework has none.

    >>> from gpuscale.specs.software import RowSpec
    >>> row = RowSpec(field="recompute", option="x", words={"full": (True, "all"), "none": False})
    >>> words_of(row, "full"), words_of(row, "selective")
    (True, None)
    """
    if isinstance(value, (list, tuple)) and row.words:
        each = [words_of(row, one) for one in value]
        if len(each) == 1 and isinstance(each[0], Mapping):
            return each[0]
        unknown = any(one is None or isinstance(one, Mapping) for one in each)
        return None if unknown or not each else each
    if not row.words:
        return list(value) if isinstance(value, tuple) else value
    word = row.words.get(_name(value))
    return word[0] if isinstance(word, tuple) else word


def value_of(row: RowSpec, word: Any) -> Any:
    """Value that a word means; None for a word that is not known.

    >>> from gpuscale.specs.software import RowSpec
    >>> row = RowSpec(field="recompute", option="x", words={"full": (True, "all"), "none": False})
    >>> value_of(row, "True"), value_of(row, "all"), value_of(row, "some")
    ('full', 'full', None)
    """
    if row.kind == "list":
        parts = word if isinstance(word, list) else re.findall(r"[^\s,\[\]'\"]+", str(word))
        values = [_inverse(row, one) if row.words else str(one) for one in parts]
        return None if any(one is None for one in values) else tuple(values)
    if row.kind in CONVERTED:
        word = CONVERTED[row.kind](word)
        return _inverse(row, word) if row.words else word
    if row.words:
        return _inverse(row, word)
    return str(word).strip() if row.kind == "text" else number_of(word)


def whole(value: Any) -> int | None:
    """Whole number; None for anything else.

    >>> whole("4_096"), whole(2e8), whole("auto"), whole(True), whole(-1)
    (4096, 200000000, None, None, -1)
    """
    try:
        number = math.nan if isinstance(value, bool) else float(str(value).replace("_", ""))
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number % 1 == 0 else None


def number_of(word: Any) -> int | None:
    """Whole number above 0; None for anything else."""
    return number if (number := whole(word)) and number > 0 else None


def sharded(word: str) -> int:
    """ZeRO stage of a word of torch's FSDP, or of what stands in its place."""
    if "NO_SHARD" in word.upper() or "DDP" in word.upper():
        return 0
    return 2 if "GRAD_OP" in word.upper() else 3


def precision_of(word: str) -> str | None:
    """Name the number format that a framework's word for a precision means."""
    low = word.lower()
    for name, parts in PRECISIONS.items():
        if any(part in low for part in parts):
            return name
    return None


PRECISIONS: dict[str, list[str]] = _WORDS["precisions"]
"""Format -> what its words hold, in the order in which they are told apart."""


def truth(value: Any) -> bool:
    """Whether a value is true, or a table that does not turn itself off."""
    if isinstance(value, Mapping):
        return value.get("enabled", True) is not False
    return str(value).strip().lower() not in ("false", "0", "none", "no", "")


CONVERTED: dict[str, Callable[[Any], Any]] = {
    "flag": truth,
    "precision": lambda word: precision_of(str(word)),
    "sharding": lambda word: sharded(str(word)),
    "embeddings": lambda word: re.search(r"embed|lm_head|wte", str(word)) is not None,
}
"""Kind of a row -> what makes of a word what its `words` are compared with."""


def _inverse(row: RowSpec, word: Any) -> Any:
    asked = _name(word)
    for value, known in row.words.items():
        if any(_name(one) == asked for one in (known if isinstance(known, tuple) else (known,))):
            return _typed(value)
    return None


def _typed(name: str) -> Any:
    return {"true": True, "false": False}.get(name, int(name) if name.isdigit() else name)


def _name(value: Any) -> str:
    """Value as words are compared: without capitals, nothing as `null`."""
    return "null" if value is None else str(value).strip().lower()


def matches(when: Mapping[str, tuple[str, ...]], fields: Fields) -> bool:
    """Whether a job is one of those for which something is written."""
    return all(_name(fields.get(name, REST.get(name))) in among for name, among in when.items())


def write(framework: FrameworkFile, fields: Fields) -> tuple[Table, set[str]]:
    """Options of a job, and the fields that they say.

    A row whose framework has no word for the value says nothing.
    """
    table: Table = dict(framework.fixed)
    said: set[str] = set()
    for row in framework.row:
        if not row.written or row.field not in fields or not matches(row.when, fields):
            continue
        value = fields[row.field]
        if value is None or (row.rest and _name(value) == row.rest):
            said.add(row.field)
            continue
        word = words_of(row, value)
        said |= set() if word is None else {row.field}
        if word is None and (word := row.nearest.get(_name(value))) is None:
            continue
        if isinstance(word, Mapping):
            table |= {key: one[0] if isinstance(one, list) else one for key, one in word.items()}
        else:
            alone = isinstance(word, list) and row.single and len(word) == 1
            word = word[0] if alone else word
            joined = row.join.join(map(str, word)) if row.join and isinstance(word, list) else word
            table |= {row.option[0]: joined, **row.also}
    return table, said


def put(framework: FrameworkFile, at: Nested, whole: bool = True) -> None:
    """Put all that the rows of a framework read of a table on its record.

    `whole`: no other file says the rest, so that what is not said is as usual.
    """
    found = at.found
    said: set[str] = set()
    for row, option, word, value in read(framework, at):
        said |= {row.field} if value is not None or row.words or UNSET in str(word) else set()
        name = FIELDS.get(row.field, row.field)
        if name == "model_name":
            word = value = named_model(str(word).strip("'\""))
        if UNSET in str(word) or (value is None and _stands_for(row, str(word))):
            found.unread[row.field] = str(word).replace(UNSET, "")
            said.add(row.field)
        elif value is None and name == "optimizer":
            found.optimizer = str(word)
        elif value is None:
            if row.words and not isinstance(word, (float, list)):
                _put_unknown(found, row, option, str(word).strip()[:40])
        else:
            shown = value if row.kind == "number" and not row.words else word
            found.places[name] = f"{option}: {shown}"
            _assign(found, name, value)
    for row in framework.row:
        if whole and row.usual is not None and row.field not in said:
            _assign(found, FIELDS.get(row.field, row.field), row.usual)
            if row.kind == "number" and row.option and row.field in TAKEN:
                found.notes.append(f"{row.option[0]} {row.usual}, its default")


def _stands_for(row: RowSpec, word: str) -> bool:
    """Whether a word where a number belongs is left for a person to put in: `TO_BE_FILLED`."""
    blank = re.fullmatch(r"<.*>|_*[A-Z]+(_[A-Z]+)+_*|\?\?\?|x{2,}", word.strip("'\" "))
    return row.kind == "number" and not row.words and blank is not None


def _put_unknown(found: Found, row: RowSpec, option: str, word: str) -> None:
    """Ask for a word that is not known where its option says how a job runs; show another."""
    key = option.replace("-", "_").lower()
    tells = says_how(key.rpartition(".")[2], word)
    if tells is False:  # the section of a key says what its `mode` is of
        tells = says_how(key.replace(".", "_"), word) or False
    if tells:
        found.asked[option] = word
    elif tells is False and word.lower() not in NEUTRAL and row.field != "rl.method":
        found.not_understood.append(f"{option}: {word}")


TAKEN: list[str] = _WORDS["taken"]
"""Numbers of which it is said that a framework's default is taken."""
FIELDS = {"model": "model_name"}
"""Field of a row -> that of the record, where they differ."""
TUNED = ("train_embeddings", "compiled", "packing", "mean_len")


def _assign(found: Found, name: str, value: Any) -> None:
    table, dot, key = name.rpartition(".")
    if dot:
        getattr(found, table)[key] = value
    elif name in TUNED:
        found.tuning[name] = value
    elif name == "base":
        found.weights = None if value == "nf4" and found.method != "dora" else value
        found.method = "qlora" if value == "nf4" and found.method == "lora" else found.method
    elif hasattr(found, name):
        setattr(found, name, (value,) if name == "targets" and isinstance(value, str) else value)


def read(framework: FrameworkFile, at: Any) -> Iterator[tuple[RowSpec, str, Any, Any]]:
    """(row, option, word, value) of every row that a table says; value None: a word not known.

    `at`: values by their paths (`nested.Nested`).
    """
    for row in framework.row:
        if row.read and not row.option:
            if (value := _by_tables(row, at)) is not None:
                yield row, value[0], at.get(value[0]), _typed(value[1])
        if not row.read or not row.option:
            continue
        words = [(o, w) for o in row.option if (w := at.get(o)) is not None and w != ""]
        known = ((o, w) for o, w in words if UNSET in str(w) or value_of(row, w) is not None)
        if chosen := next(known, words[0] if words else None):
            yield row, *chosen, value_of(row, chosen[1])


def _by_tables(row: RowSpec, at: Any) -> tuple[str, str] | None:
    """(first option, value) of the first word of several keys that a table has."""
    for value, keys in row.words.items():
        pairs = list(keys.items()) if isinstance(keys, Mapping) else []
        if not pairs or at.get(pairs[0][0]) is None:
            continue
        if all((got := at.get(key)) is None or _is(got, word) for key, word in pairs):
            return pairs[0][0], value
    return None


def _is(got: Any, word: Any) -> bool:
    """Whether a value is a word, or one of a list of words that mean the same."""
    among = word if isinstance(word, list) else [word]
    return any(got == one or _name(got) == _name(one) for one in among)


def unsaid(fields: Fields, said: Iterable[str], habits: Fields) -> list[str]:
    """Fields of a job that nothing says, and that the framework's own `habits` are not."""
    known, rest = set(said), {**REST, **habits}
    if known & {"accumulation", "global_batch_size"} and "micro_batch_size" in known:
        known |= {"accumulation", "global_batch_size"}
    return [
        name
        for name, value in fields.items()
        if name not in known and value is not None and value != rest.get(name)
    ]


NEUTRAL = frozenset(launch_table("keys")["neutral"])
"""Values with which a key changes nothing."""
SIZES = frozenset(("rank", "dim", "degree", "size", "stage", "bits"))
"""Last parts of keys that say nothing without the part before."""
DEEPEST = 12


class Heard(Table):
    """A table that remembers the keys that it was asked for."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Value of a key, which is then heard."""
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        """Value of a key, which is then heard."""
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        """Whether it has a key, which is then heard."""
        self.asked.add(str(key))
        return super().__contains__(key)


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """(keys that say how a job runs, those of them without effect, paths of what is read apart)."""
    table = launch_table("keys")
    telling, idle, apart = (re.compile("|".join(table[n])) for n in ("telling", "idle", "apart"))
    return telling, idle, apart


def put_unheard(found: Found, table: Mapping[str, Any], heard: set[str], known: set[str]) -> None:
    """Put the keys that nobody read on the record.

    `heard`: those that a reader asked for, with their paths. `known`: all that the framework has;
    empty: not known. One that says parallelism, sharding, quantisation, precision, adapters,
    recomputation, offload, batch or samples is asked for, another is shown where the framework
    does not have it.
    """
    apart, launcher = _patterns()[2], known_keys("accelerate")
    for path, value in leaves(table):
        last = path.rpartition(".")[2].lower()
        idle = isinstance(value, list) or last in ("enabled", "enable") or last in launcher
        if idle or path in heard:
            continue
        last = "_".join(path.lower().split(".")[-2:]) if last in SIZES else last  # `lora.rank`
        if (tells := says_how(last, value)) is None or apart.search(path):
            continue
        if tells:
            found.asked[path] = str(value).strip()[:40]
        elif tells is False and known and path not in known and last not in known:
            found.not_understood.append(path)


def says_how(key: str, value: Any) -> bool | None:
    """Whether a key and its value say how a job runs; None for a key that is known to be idle.

    >>> says_how("hybrid_context_parallel", True), says_how("lr", 1), says_how("eval_batch_size", 4)
    (True, False, None)
    """
    telling, idle, _ = _patterns()
    text = str(value).strip().lower()
    if idle.search(key):
        return None
    if not telling.search(key):
        return False
    rest = text in NEUTRAL or re.search(rf"/|{UNSET}|^\$\{{[\w.]+\}}$", text)  # of another key
    return None if rest or (key.endswith("_dtype") and "32" in text) else True


def leaves(table: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf of a nested table, lists whole."""
    for key, value in dict(table).items():
        path = f"{before}{key}"
        if isinstance(value, Mapping) and depth < DEEPEST:
            yield from leaves(value, f"{path}.", depth + 1)
        elif not isinstance(value, Mapping):
            yield path, value


@lru_cache(maxsize=16)
def known_keys(framework: str) -> set[str]:
    """All keys that a framework has, by its own classes; empty where they are not kept here."""
    try:
        return set(known_options(framework).arity)
    except FileNotFoundError:
        return set()
