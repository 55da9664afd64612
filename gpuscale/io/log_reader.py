"""Reading a log of any length in constant memory: lines told by what they hold, facts kept.

A line's shape (its bytes without digits and signs) decides once which tables apply; of a shape
that comes very often every eighth line is read, then every 64th. Nothing is executed, no line is
longer than `LONGEST`, all that is kept has a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import IO, Any

from gpuscale.core.diagnosis.series import UNITS, Fact, Log, StepSeries, Track
from gpuscale.core.records import dataclass, field
from gpuscale.io.log_pairs import Heading, pairs_of, value_of, with_spans
from gpuscale.io.log_patterns import LinePattern, Patterns, TablePattern, load_patterns

_BITS = 20
_FACTOR = 2654435761


class Screen:
    """The rarest four bytes of every literal, as a table of hashes."""

    def __init__(self, literals: Collection[bytes], sample: bytes) -> None:
        import numpy

        self.np = numpy
        found = numpy.bincount(self._hashes(sample), minlength=1 << _BITS)
        self.table = numpy.zeros(1 << _BITS, dtype=bool)
        for literal in literals:
            grams = self._hashes(literal)
            self.table[min(grams, key=lambda h: int(found[h]))] = True

    def _hashes(self, piece: bytes) -> Any:
        np, n = self.np, len(piece)
        parts = []
        for k in range(min(4, n - 3)):
            words = np.frombuffer(piece, dtype="<u4", offset=k, count=(n - k) // 4)
            parts.append((words * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS))
        return np.concatenate(parts)

    def lines(self, piece: bytes) -> list[int]:
        """Indexes of the lines that may hold a literal, in order."""
        np, n = self.np, len(piece)
        hits = []
        for k in range(min(4, n - 3)):
            words = np.frombuffer(piece, dtype="<u4", offset=k, count=(n - k) // 4)
            found = self.table[(words * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS)]
            hits.append(np.flatnonzero(found) * 4 + k)
        ends = np.flatnonzero(np.frombuffer(piece, dtype=np.uint8) == 10)
        rows = np.unique(np.searchsorted(ends, np.concatenate(hits)))
        return [int(r) for r in rows]


CHUNK = 1 << 20
LONGEST = 4_000
MOST_SHAPES = 20_000
MOST_KEPT = 4_000
MOST_TRACKS = 2_000
MANY, VERY_MANY = 2_000, 20_000
LEARNT = 64
"""Lines of a shape after which only what was found on them is looked for."""
DENSE = 16
"""Pieces that are read as they are behind one of which most lines were worth it."""
LARGE = 2 << 20
"""Bytes from which on lines without a literal are passed over at once."""
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]{0,200}\x07")
_SIGNS = b"0123456789.,+-:%()[] "
_PAIR = re.compile(
    rb"[A-Za-z)\]%'\"\x80-\xff]\d{0,3} {0,60}(?:[:=>]|\xe2\x94\x82) {0,60}['\"]?[-+]?\d"
    rb"|[/_(][A-Za-z]+\)? {1,4}\d|\.\. \d|\): ?\[?\d|: ?\[\d"
    rb"|\d\)? ?(?:[A-Za-z%]+[-/]s|[GM]i?B\b|TFLOPS|Gbps|(?:[smuM][sHW]?z?|seconds?)(?:[,;.) \n]|$))"
)
_TIMED = re.compile(
    rb"\d,\d\d (?:ms|s|%|tok)|\d ?m(?:in\w*|s)? ?\d+(?:\.\d+)? ?u?s"
    rb"|(?:time|duration|elapsed)\W{1,40}(?:\d+ days?, )?\d+:\d\d:\d\d"
)
_STEP = re.compile(
    r"\b(?:global_?)?(?:step|iter(?:ation)?|batch)s?\W{1,4}(\d{1,12})\b", re.IGNORECASE
)
GRAM = 4
"""First bytes of a literal by which it is looked up."""
LAST = ("general", "small-trainers")
"""Tables whose words other programs print too."""
MOST_PAIRED = 2_000
"""Lines read by their keys: of no table, so only for logs of programs that none knows."""
_OTHER = LinePattern("other", (), ())
_RANK = re.compile(
    r"^\W{0,3}(?:rank\W?(\d{1,6})\]?|default(\d{1,6})\]|Rank (\d{1,6})\]|(\d{1,6}): )"
    r"|\[[Rr]ank (\d{1,6})\]|^\((?:Worker_?|RayWorker\w*\W?)(?:PP\d+_)?TP(\d{1,4})"
)


def read_log(
    stream: IO[bytes], name: str = "", progress: Callable[[int], None] | None = None
) -> Log:
    """Read a log.

    Parameters
    ----------
    stream : binary file
        Read in pieces to its end.
    name : str
        Name of the file, for what is said of it.
    progress : callable, optional
        Told the bytes read so far after every piece.
    """
    reader = _Reader(Log(name), load_patterns())
    tail = b""
    while piece := stream.read(CHUNK):
        reader.log.bytes_ += len(piece)
        whole = tail + piece
        if b"\0" in whole[:CHUNK]:
            whole = whole.replace(b"\0", b"")  # UTF-16 logs of PowerShell, and holes of NFS
        if b"\x1b" in whole:
            whole = _COLOUR.sub(b"", whole)
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        whole, newline, tail = whole.rpartition(b"\n")
        if len(tail) > CHUNK:
            tail = tail[:LONGEST]
        if newline:
            reader.take(whole)
        if progress is not None:
            progress(reader.log.bytes_)
    if tail:
        reader.take(tail)
    return reader.log


@dataclass(slots=True)
class _Shape:
    """What applies to lines of one shape."""

    kinds: list[LinePattern | TablePattern]
    starts: bool
    dumps: bool
    remark: bool
    count: int = 0
    pairs: bool = False  # it may say figures by a key
    live: dict[int, set[int]] = field(default_factory=dict)  # kind -> finds that matched


class _Reader:
    """State of one reading."""

    def __init__(self, log: Log, patterns: Patterns) -> None:
        self.log, self.patterns = log, patterns
        self.shapes: dict[bytes, _Shape | None] = {}
        self.screen: Screen | None = None
        self.plain = False  # without numpy every line is looked at
        self.dense = 0  # pieces that are not screened: most of their lines say something
        self.read = self.paired = 0
        self.rank: int | None = None  # of the line
        self.at = 0.0  # last step that a line said
        self.seen: set[str] = set()  # facts of the line
        self.told: set[str] = set()  # numbers of the line that a table knows
        self.grid = Heading(patterns.same)
        kinds: list[LinePattern | TablePattern] = [*patterns.lines, *patterns.tables]
        kinds.sort(key=lambda kind: kind.program in LAST)
        self.index: dict[bytes, list[tuple[int, bytes, LinePattern | TablePattern]]] = {}
        for k, kind in enumerate(kinds):
            for has in map(str.encode, kind.has):
                self.index.setdefault(has[:GRAM], []).append((k, has, kind))
        self.dumps = [(h.encode(), search) for h, search in patterns.arguments]
        self.starts = [s.encode() for s in patterns.starts]
        self.sections = {h.encode(): end for h, end in patterns.sections.items()}
        self.section = ""  # what names end with below a heading
        self.last_step: dict[tuple[int | None, str], float] = {}
        self.run, self.pending, self.measured = 0, False, False

    def take(self, whole: bytes) -> None:
        """Read whole lines; of a large log only those that may say something."""
        first = self.log.lines + 1
        worth = self._worth(whole)
        if worth is None:
            for k, line in enumerate(whole.split(b"\n")):
                self._one(line, first + k)
        elif worth:
            lines = whole.split(b"\n")
            for k in worth:
                self._one(lines[k], first + k)
        self.log.lines += whole.count(b"\n") + 1

    def _worth(self, whole: bytes) -> list[int] | None:
        """Lines that may say something; None for all."""
        if whole.isspace():
            return []
        if self.log.bytes_ < LARGE or len(whole) < 64:
            return None
        if self.screen is None and not self.plain:
            try:
                known = {has for some in self.index.values() for _, has, _ in some}
                known.update((h for h, _ in self.dumps), self.starts, self.sections)
                self.screen = Screen(known, whole)
            except ImportError:
                self.plain = True
        if self.screen is None or self.dense:
            self.dense = max(0, self.dense - 1)
            return None
        found = self.screen.lines(whole)
        if 2 * len(found) > whole.count(b"\n"):
            self.dense = DENSE
        return found

    def _one(self, raw: bytes, number: int) -> None:
        """Read a line."""
        self.read = number
        shape = raw[:LONGEST].translate(None, _SIGNS)
        found = self.shapes[shape] if shape in self.shapes else self._shape(shape, raw)
        if found is None:
            if (heading := raw.strip()) in self.sections:
                self.section = self.sections[heading]
            elif self.log.bytes_ < LARGE and self.paired < MOST_PAIRED:
                self._cells(raw[:LONGEST].decode("utf-8", "replace"))
            return
        found.count += 1
        count = found.count
        if count > MANY and count % (8 if count < VERY_MANY else 64):
            self.log.thinned = max(self.log.thinned, 8 if count < VERY_MANY else 64)
            return
        text = raw[:LONGEST].decode("utf-8", "replace")
        self._line(with_spans(text) if _TIMED.search(raw) else text, found)

    def _shape(self, shape: bytes, raw: bytes) -> _Shape | None:
        """Tables for a shape of line that was not met before; None where none applies."""
        if len(self.shapes) >= MOST_SHAPES:
            self.shapes.clear()
        head = raw[:LONGEST]
        grams = {head[k : k + GRAM] for k in range(len(head) - GRAM + 1)} & self.index.keys()
        met = {k: kind for g in grams for k, has, kind in self.index[g] if has in head}
        kinds = [met[k] for k in sorted(met)]
        starts = any(s in head for s in self.starts)
        dumps = any(h in head for h, _ in self.dumps)
        remark = head.startswith(b"(") and head.rstrip().endswith(b")")
        found = _Shape(kinds, starts or remark, dumps, remark)
        found.pairs = self.log.bytes_ < LARGE and bool(_PAIR.search(head[:1_000]))
        kept = found if kinds or starts or dumps or remark or found.pairs else None
        if len(head) < 2_000:
            self.shapes[shape] = kept
        return kept

    def _line(self, text: str, shape: _Shape) -> None:
        if shape.starts and self.measured:
            self.pending = True
        for has, search in self.patterns.arguments if shape.dumps else ():
            hit = search(text) if has in text else None
            if hit and len(self.log.arguments) < MOST_KEPT:
                self.log.arguments[hit[1]] = hit[2].strip()[:200]
        hit = _RANK.search(text[:200])
        rank = next((int(g) for g in hit.groups() if g), None) if hit else None
        self.seen.clear()
        self.told.clear()
        for kind in shape.kinds:
            self.rank = rank
            if isinstance(kind, TablePattern):
                if self._row(kind, text):
                    return
            elif not kind.context or shape.remark:
                self._facts(kind, text, shape)
        self.rank = rank
        if self.log.bytes_ >= LARGE or self.paired >= MOST_PAIRED:
            return
        more = shape.pairs and (shape.count <= LEARNT or not self.told)
        if (self.told or not self._cells(text)) and more:
            self._pairs(text)

    def _cells(self, text: str) -> bool:
        """Whether a line is of a table of no known program."""
        found = self.grid.take(text)
        if found:
            cells = {n: (n, v, UNITS[u][0], f"{printed} {u}".strip()) for n, v, u, printed in found}
            self._keep("other", {name: self._fact(*cell) for name, cell in cells.items()})
        return found is not None

    def _pairs(self, text: str) -> None:
        """Read what the line says by keys and no table knows."""
        self.paired += 1
        hit = _STEP.search(text[:400])
        step = float(hit[1]) if hit else None
        for known, value, unit, printed in pairs_of(text, self.patterns.same, self.grid.under):
            si = UNITS[unit][0]
            name = f"{known}_2" if known in self.seen else known
            if name not in self.seen and printed not in self.told and (value >= 0 or not si):
                self.seen.add(name)
                self._number(name, value, unit=unit, si=si, step=step, kind=_OTHER)

    def _facts(self, kind: LinePattern, text: str, shape: _Shape) -> None:
        step_at, rank_at = kind.places
        if rank_at is not None and (own := rank_at.search(text)):
            self.rank = int(own[1])
        live = shape.live.setdefault(id(kind), set())
        found = []
        for k, find in enumerate(kind.find):
            if shape.count > LEARNT and k not in live:
                continue
            if made := find.made(text):
                if not isinstance(made[0], str):
                    self.told.add(made[2].partition(" ")[0])
                found.append((find.name, made))
                live.add(k)
        if not found:
            return
        hit = step_at.search(text) if step_at is not None else None
        step = float(hit[1]) if hit else None
        if step is not None:
            self._restart(step, kind.program)
        programs = self.log.programs
        if any(made[0] != "" for _, made in found):
            programs[kind.program] = programs.get(kind.program, 0) + 1
        for name, (value, unit, _, si) in found:
            if name in self.seen:
                continue
            self.seen.add(name)
            if name.startswith("event_"):
                if len(self.log.events) < MOST_KEPT:
                    self.log.events.append((str(value), step or self.at, self.read))
            elif isinstance(value, str):
                self._text(self._fact(name, value, si="", printed=value, program=kind.program))
            else:
                self._number(name, value, unit=unit, si=si, step=step, kind=kind)

    def _fact(
        self, name: str, value: float | str, si: str, printed: str, program: str = "other"
    ) -> Fact:
        run, rank = self.run, self.rank
        return Fact(name, value, si, printed, self.read, program, run=run, rank=rank)

    def _restart(self, step: float, program: str) -> None:
        """Tell a new run: the steps of a rank begin again."""
        key = (self.rank, program)
        last = self.last_step.get(key)
        again = last is not None and (step < last - 2 if self.rank is None else step <= last)
        if self.pending or again:
            self.run += 1
            self.log.runs = self.run + 1
            self.last_step = {}
        self.pending, self.measured = False, True
        self.last_step[key] = step

    def _text(self, fact: Fact) -> None:
        log = self.log
        if not fact.value:  # what was said before is so no longer
            log.texts.pop((fact.run, fact.name), None)
            return
        if len(log.texts) < MOST_KEPT or (fact.run, fact.name) in log.texts:
            log.texts[fact.run, fact.name] = fact
        key = (fact.name, str(fact.value))
        if key not in log.firsts and len(log.firsts) < MOST_KEPT:
            log.firsts[key] = fact

    def _number(
        self, name: str, value: float, unit: str, si: str, step: float | None, kind: LinePattern
    ) -> None:
        name += self.section
        log = self.log
        key = (self.run, self.rank, name)
        track = log.tracks.get(key)
        if track is None:
            if len(log.tracks) >= MOST_TRACKS:
                return
            track = Track(StepSeries(kind.skip), si, unit, kind.program)
            log.tracks[key] = track
        self.at = self.at if step is None else step
        track.series.add(step, value, self.read)

    def _row(self, table: TablePattern, text: str) -> bool:
        """Whether a line is a row of a table of a known program."""
        hit = table.row.match(text)
        if hit is None:
            return False
        row = {}
        for name, unit, source in table.columns:
            if text := hit[source]:
                si, factor = UNITS[unit]
                value = text if unit == "" else value_of(text) * factor
                row[name] = self._fact(name, value, si, f"{text} {unit}".strip(), table.program)
        self.log.programs[table.program] = self.log.programs.get(table.program, 0) + 1
        self._keep(table.name, row)
        return True

    def _keep(self, table: str, row: dict[str, Fact]) -> None:
        rows = self.log.tables.setdefault(table, [])
        if len(rows) < MOST_KEPT:
            rows.append(row)
