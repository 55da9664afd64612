"""Commands that are still functions of flags: each is made a question here until it is one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from gpuscale.answers.ask import Asked, Converted, Swept, WhatIf, flag, text, texts, whole

if TYPE_CHECKING:
    from gpuscale.render.document import Document

Common = WhatIf


def command(
    app: Any, name: str, example: str, headlines: tuple[str, ...] = ()
) -> Callable[[Callable[..., Document]], Any]:
    """Make a question of a function `(common, **own) -> Document`."""

    def register(function: Callable[..., Document]) -> Any:
        signature = inspect.signature(function, eval_str=True, locals={"Document": object})
        own = [p for p in signature.parameters.values() if p.name != "common"]
        body: dict[str, Any] = {"__doc__": function.__doc__, "NAME": name, "EXAMPLE": example}
        body |= {"HEADLINES": headlines, "__module__": function.__module__}
        body["OWN_SWEEP"] = any(p.name == "sweep" for p in own)
        annotations: dict[str, Any] = {}
        for p in own:
            info = p.annotation.__metadata__[0]
            if type(info).__name__ == "OptionInfo" and "_" not in annotations:
                annotations["_"] = KW_ONLY
            body[p.name.rstrip("_")] = _field(p, info)
            annotations[p.name.rstrip("_")] = "Asked[Any]"

        def answer(self: Any) -> Document:
            given = {p.name: getattr(self, p.name.rstrip("_")) for p in own}
            lists = {k: list(v) or None for k, v in given.items() if isinstance(v, tuple)}
            return function(common=self, **given | lists)

        base = Swept if headlines else WhatIf
        body |= {"answer": answer, "__annotations__": annotations}
        title = name.title().replace("-", "")
        return dataclass()(type(title, (base,), body))

    return register


def _field(p: inspect.Parameter, info: Any) -> Asked[Any]:
    kind, default = str(p.annotation), None if p.default is p.empty else p.default
    declared = [getattr(info, "default", None), *(getattr(info, "param_decls", None) or ())]
    flags = [f for f in declared if isinstance(f, str) and f.startswith("-")]
    own = f"--{p.name.strip('_').replace('_', '-')}"
    more: dict[str, Any] = {"flags": [f for f in flags if f != own], "metavar": info.metavar}
    more["complete"] = info.autocompletion or ""
    required = ... if p.default is p.empty else default
    if "list[str]" in kind:
        return texts(info.help, ... if required is ... else (), **more)
    if "str" in kind:
        return text(info.help, required, **more)
    if "bool" in kind:
        return flag(info.help, **more)
    if "int" in kind:
        most = 1e15 if info.max is None else info.max
        return whole(info.help, required, least=info.min or 0, most=most, **more)
    return Converted(info.help, default, lambda v, label: float(v), **more)
