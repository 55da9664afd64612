"""The answer of a command as a Python object, and the call that makes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from gpuscale.answers.ask import Question, Swept, fields_of
from gpuscale.core.records import Term, dataclass, field, fields
from gpuscale.errors import GpuscaleError, typo_of

if TYPE_CHECKING:
    from gpuscale.answers.requirements import Requirement, RequirementVerdict
    from gpuscale.render.document import Document, Point

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Mapping[str, Any]):
    """What a command answers: a mapping of its result, and its text, JSON and HTML forms.

    >>> import gpuscale
    >>> answer = gpuscale.matmul_time("b200", 64, 4096, 8192)
    >>> answer["time_s"], answer["bound"], answer.ok, "mfu" in answer
    (8.585216e-06, 'memory', True, False)
    >>> answer
    <gpuscale matmul-time: b200-sxm  [64, 4,096] x [4,096, 8,192]  bf16>
    """

    document: Document
    call: str = ""  # what gives this answer again, in Python
    _plain: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def result(self) -> Any:
        """The command's own record (a frozen dataclass or a mapping), SI units by suffix."""
        return self.document.result

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What was asked, with the defaults filled in."""
        return self.document.inputs

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about."""
        return tuple(self.document.warnings)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Formula, numbers and source of each headline number."""
        return tuple(self.document.terms)

    @property
    def ok(self) -> bool:
        """False where the answer is no: it does not fit, a limit is exceeded."""
        return not self.document.answered_no

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it, for pools of processes."""
        import gpuscale.render.portable  # noqa: F401  (says how its document is pickled)

        return Answer, (self.document, self.call)

    def __getitem__(self, key: str) -> Any:
        """Value at a dotted key of the JSON result, such as ``answer["expected.time_s"]``."""
        value: Any = self._record()
        for part in str(key).split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise KeyError(_unknown_key(str(key), value)) from None
        return value

    def __getattr__(self, name: str) -> Any:
        """Say where the figures of an answer are."""
        raise AttributeError(f"an answer has no `{name}`: its figures are keys, see list(answer)")

    def __iter__(self) -> Iterator[str]:
        """Keys of the JSON result."""
        return iter(self._record())

    def __len__(self) -> int:
        """Count them."""
        return len(self._record())

    def __bool__(self) -> bool:
        """Be true whatever the answer is: `ok` says whether it is yes."""
        return True

    def _record(self) -> dict[str, Any]:
        """Make the result as JSON has it, once for every key."""
        if not self._plain:
            from gpuscale.render.text import plain

            made = plain(self.document.result)
            self._plain.update(made if isinstance(made, dict) else {"result": made})
        return self._plain

    @property
    def summary(self) -> tuple[Point, ...]:
        """Verdict, layout, time, memory, money ...: what the command prints by default."""
        from gpuscale.render.document import points_of

        return tuple(points_of(self.document))

    def text(self, show: str = "all") -> str:
        """Return the text of details by their names, as ``--show`` prints them."""
        from gpuscale.render.document import layer, named
        from gpuscale.render.text import to_text

        return to_text(layer(self.document, named(show)))

    def to_frame(self) -> Any:
        """Return the main table as a DataFrame: of pandas, else of polars; SI units.

        An answer without a table is one row of its figures. Raises GpuscaleError if neither is
        installed.
        """
        from gpuscale.render.text import records

        rows = records(self.document)
        for name in ("pandas", "polars"):
            try:
                return import_module(name).DataFrame(rows)
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
        raise GpuscaleError("a frame needs pandas or polars", "pip install pandas")

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints, as plain dicts, lists, numbers and texts."""
        import json

        found: dict[str, Any] = json.loads(self.json())
        return found

    def json(self) -> str:
        """Return what ``--json`` prints."""
        return self._rendered("json")

    def csv(self) -> str:
        """Return the main table as CSV, SI units."""
        return self._rendered("csv")

    def markdown(self) -> str:
        """Return the answer as Markdown."""
        return self._rendered("markdown")

    def explain(self) -> str:
        """Return the formulas behind the numbers, as ``--explain`` prints them."""
        from gpuscale.render.document import to_lines

        return "\n".join(to_lines(self.document.terms))

    def check(self, *requirements: str) -> list[RequirementVerdict]:
        """Hold requirements such as ``"mfu>=0.4"`` against the numbers.

        >>> import gpuscale
        >>> answer = gpuscale.matmul_time("b200", 64, 4096, 8192)
        >>> [(v.requirement, v.met) for v in answer.check("time_s<=5us", "bound==memory")]
        [('time_s<=5us', False), ('bound==memory', True)]
        """
        from gpuscale.answers.requirements import check_all, read_requirement

        return check_all([read_requirement(r) for r in requirements], self.document.result)

    def svg(self, key: str = "") -> str:
        """Return a picture of the answer as SVG: the first, or the one of that key.

        Raises GpuscaleError if the answer has no such picture.
        """
        from gpuscale.render.draw import to_svg
        from gpuscale.render.save import chosen

        return to_svg(chosen(self.document, Path(f"picture.{key}.svg" if key else "picture.svg")))

    def save(self, path: str | Path) -> None:
        """Write the answer to a file; the ending says the format, as for ``-o``."""
        from gpuscale.render.save import check_target, file_content, save
        from gpuscale.render.text import plain

        target = check_target(str(path), "path")
        terms = {"explain": plain(self.terms)} if self.terms else {}
        save({target: file_content(self.document, target, terms, self.call)})

    def _rendered(self, format_: str) -> str:
        from gpuscale.render.save import rendered

        return rendered(self.document, format_, {})

    def __str__(self) -> str:
        """Return the text that the command prints: the summary, or as GPUSCALE_SHOW says."""
        from gpuscale.render.document import layer, usual
        from gpuscale.render.text import to_text

        return to_text(layer(self.document, usual()))

    def __repr__(self) -> str:
        """One line that says what was asked."""
        first = str(self).split("\n", 1)[0].strip()
        return f"<gpuscale {self.document.command}: {first[:120]}>"

    def _repr_html_(self) -> str:
        """Return the answer as HTML, for notebooks: summary, picture, all of it folded."""
        from gpuscale.render.notebook import to_html

        return to_html(self.document)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what a notebook may show."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}


def _unknown_key(key: str, known: Any) -> str:
    """Say what a key that is not there may have meant."""
    names = list(known) if isinstance(known, dict) else []
    close = typo_of(key.rpartition(".")[2], names)
    said = f"did you mean `{close}`?" if close else f"there are {', '.join(names[:8])} ..."
    return f"{key}: {said}" if names else key


def what_if(question: Question) -> tuple[str, ...]:
    """Sweeps of a question over keys or options, not one that is its own matter."""
    if not isinstance(question, Swept):
        return ()
    own = question.OWN_SWEEP and not any("=" in s for s in question.sweep)
    return () if own else question.sweep


def ask(question: Question, require: Sequence[Requirement] = ()) -> Document:
    """Answer a question, or every point of its sweep.

    `require`: what each point of a sweep must meet to count as a yes. Raises GpuscaleError for
    whatever cannot be answered.
    """
    question.check()
    if isinstance(question, Swept):
        if what_if(question):
            from gpuscale.answers.sweep import sweep_document

            return sweep_document(question, require)
        if question.sweep_show and not question.sweep:
            raise GpuscaleError("--sweep-show needs --sweep")
    return question.answer()


def _meant(word: str, question: type[Question]) -> str:
    """Say what an argument that a question does not have may mean."""
    from gpuscale.answers.table import called

    known = {name: field.common for name, (field, _) in fields_of(question).items()}
    if said := called(word, question):
        here = re.sub("--([a-z-]+)", lambda m: f"`{m[1].replace('-', '_')}`", said)
        return f"did you mean {here}?" if here.startswith("`") else here
    if close := typo_of(word, known):
        return f"did you mean `{close}`?"
    first = [name for name, common in known.items() if common] or list(known)
    return f"it takes {', '.join(first)} ...; help() has all of them"


def asks(question: Callable[P, Question]) -> Callable[P, Answer]:
    """Make the function of a question: its fields are the arguments.

    >>> from gpuscale.answers.parts.asked import Network
    >>> asks(Network)("h100-superpod", gpus=512)
    <gpuscale network: 512 GPUs of superpod-h100-4su in 64 nodes, InfiniBand NDR, vendor figures.>
    """
    made = cast("type[Question]", question)
    name, known = made.NAME.replace("-", "_"), tuple(fields_of(made))
    signature = _signature(made)

    def call(*args: P.args, **given: P.kwargs) -> Answer:
        for word in given:
            if word not in known:
                raise TypeError(f"{name}() has no argument `{word}`: {_meant(word, made)}")
        unnamed = [p.name for p in signature.parameters.values() if p.kind < p.KEYWORD_ONLY]
        if len(args) > len(unnamed):
            first = ", ".join(unnamed) or "nothing"
            raise TypeError(f"{name}() takes {first} without a name, all else with it, as gpus=8")
        found = ask(question(*args, **given))
        if found.files:
            from gpuscale.render.save import save

            save(found.files)
        return Answer(found, _call(name, call, args, given))

    call.__name__ = call.__qualname__ = name
    call.__module__ = "gpuscale"
    call.__doc__ = documented(made)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _signature(question: type[Question]) -> Any:
    """Arguments as the question takes them."""
    import inspect

    made = inspect.signature(question).parameters
    ordered = [made[name] for name in fields_of(question)]
    ordered.sort(key=lambda p: p.kind)
    return inspect.Signature(ordered, return_annotation="Answer")


def documented(question: type[Question]) -> str:
    """Docstring of the function: the question's own, and what each field says of itself."""
    import inspect

    parts = [inspect.cleandoc(question.__doc__ or ""), "", "Parameters", "----------"]
    kinds = {f.name: f.type for f in fields(question)}
    for name, (asked, _) in fields_of(question).items():
        kind = str(kinds[name]).partition("[")[2].removesuffix("]") or str(kinds[name])
        text = asked.help
        for other in fields_of(question):
            text = text.replace(f"--{other.replace('_', '-')} ", f"`{other}` ")
        default = "" if asked.default in (None, ..., ()) else f" [default: {asked.default}]"
        parts += [f"{name} : {kind}", f"    {text}{default}"]
    return "\n".join(parts) + "\n"


def _call(name: str, function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> str:
    """Write the call with the arguments that differ from their defaults."""
    import inspect

    parameters = inspect.signature(function).parameters
    parts = [repr(a) for a in args]
    parts += [
        f"{key}={given[key]!r}"
        for key, p in parameters.items()
        if key in given and given[key] != p.default
    ]
    return f"gpuscale.{name}({', '.join(parts)})"
