r"""Programs whose output a script itself says: `echo`, `wc`, `tr`, `cut`, `expr`, `seq` and kin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpuscale.launch.read.bash.sums import NotKnown, total
from gpuscale.launch.read.found import UNSET

MACHINES = {"scontrol": ("SLURM_NNODES",), "nvidia-smi": ("SLURM_GPUS_ON_NODE", "GPUS_PER_NODE")}
"""What lists nodes or GPUs, a line each -> the variables that say how many there are."""
Variables = Mapping[str, "str | list[str]"]


def _machines(words: list[str], variables: Variables) -> str | None:
    """List as many lines as a job has nodes, or a node GPUs."""
    program = words[0].rsplit("/", 1)[-1]
    if program == "scontrol" and not any(w.startswith("hostname") for w in words):
        return None
    counts = [str(variables.get(name)) for name in MACHINES.get(program, ())]
    count = next((int(n) for n in counts if n.isdigit() and int(n) <= 10_000), None)
    return None if count is None else "".join(f"{program}-{i}\n" for i in range(count))


def output(words: list[str], stdin: str, variables: Variables) -> str | None:
    r"""Output of a program with its arguments; None where the machine is needed.

    Examples
    --------
    >>> output(["expr", "16", "/", "8"], "", {}), output(["wc", "-w"], "a b\n", {})
    ('2\n', '2\n')
    >>> output(["nvidia-smi", "-L"], "", {"GPUS_PER_NODE": "2"}), output(["date"], "", {})
    ('nvidia-smi-0\nnvidia-smi-1\n', None)
    """
    name, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if (listed := _machines(words, variables)) is not None:
        return listed
    does = PROGRAMS.get(name)
    if does is None or (name not in PASSING and UNSET in " ".join([*rest, stdin])):
        return None
    try:
        return does(rest, stdin)
    except (NotKnown, ValueError, IndexError):
        return None


def _echo(words: list[str], _stdin: str) -> str:
    ends = "" if words[:1] == ["-n"] else "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        if "e" in words[0]:
            words = [w.replace("\\n", "\n").replace("\\t", "\t") for w in words]
        words = words[1:]
    return " ".join(words) + ends


def _printf(words: list[str], _stdin: str) -> str:
    form, *given = [w for w in words if w != "--"]
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    holes = len(re.findall(r"%(?!%)[-0-9.]*[a-z]", form))
    made = []
    for at in range(0, max(len(given), 1), holes or max(len(given), 1)):
        parts = iter(given[at : at + holes])
        made.append(re.sub(r"%([-0-9.]*)([a-z%])", lambda m: _put(m, next(parts, "")), form))  # noqa: B023
    return "".join(made)


def _put(hole: re.Match[str], text: str) -> str:
    if hole[2] == "%" or len(hole[1]) > 3:
        return "%"
    if hole[2] in "di" and text.lstrip("-").isdigit():
        return f"%{hole[1]}d" % int(text)
    return text


def _cat(words: list[str], stdin: str) -> str:
    if any(not w.startswith("-") for w in words):
        raise NotKnown  # a file
    return stdin


def _wc(words: list[str], stdin: str) -> str:
    flags = "".join(words)
    n = len(stdin.split()) if "w" in flags else stdin.count("\n") if "l" in flags else len(stdin)
    return f"{n}\n"


def _tr(words: list[str], stdin: str) -> str:
    flags = [w for w in words if w.startswith("-")]
    sets = [_set(w) for w in words if not w.startswith("-")]
    if "-d" in flags:
        return "".join(c for c in stdin if c not in sets[0])
    if len(sets) < 2:
        squeezed = re.escape(sets[0])
        return re.sub(f"([{squeezed}])\\1+", r"\1", stdin)
    last = sets[1][-1:]
    table = {ord(a): sets[1][i : i + 1] or last for i, a in enumerate(sets[0])}
    return stdin.translate(table)


def _set(text: str) -> str:
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    text = (
        text.replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:space:]", " \n\t")
    )
    if len(text) > 200:
        raise NotKnown
    span = r"([A-Za-z0-9])-([A-Za-z0-9])"
    return re.sub(span, lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), text)


def _cut(words: list[str], stdin: str) -> str:
    said = " ".join(words)
    between = re.search(r"-d\s*(.)", said)
    field = re.search(r"-f\s*(\d+)(-?)(\d*)", said)
    if not field:
        raise NotKnown
    first, last = int(field[1]) - 1, int(field[3] or (0 if field[2] else field[1])) or None
    sign = between[1] if between else "\t"
    return "".join(sign.join(line.split(sign)[first:last]) + "\n" for line in stdin.splitlines())


def _head(words: list[str], stdin: str) -> str:
    n = int(re.sub(r"\D", "", "".join(words)) or 10)
    return "".join(stdin.splitlines(keepends=True)[:n])


def _basename(words: list[str], _stdin: str) -> str:
    name = words[0].rstrip("/").rsplit("/", 1)[-1]
    return name.removesuffix(words[1] if len(words) > 1 else "") + "\n"


def _dirname(words: list[str], _stdin: str) -> str:
    return (words[0].rstrip("/").rpartition("/")[0] or ".") + "\n"


def _expr(words: list[str], _stdin: str) -> str:
    return f"{_value(' '.join(words))}\n"


def _value(text: str) -> int:
    return total(text, lambda _: None, lambda _n, _v: None)


def _seq(words: list[str], _stdin: str) -> str:
    numbers = [int(w) for w in words if re.fullmatch(r"-?\d+", w)]
    first, last = (numbers[0], numbers[-1]) if len(numbers) > 1 else (1, numbers[0])
    step = numbers[1] if len(numbers) > 2 else 1
    if step == 0 or abs(last - first) > 10_000:
        raise NotKnown
    between = words[words.index("-s") + 1] if "-s" in words else "\n"
    return between.join(map(str, range(first, last + (1 if step > 0 else -1), step))) + "\n"


def _sed(words: list[str], stdin: str) -> str:
    for program in [w for w in words if not w.startswith("-")]:
        match = re.fullmatch(r"s([/|,#:])(.*?)\1(.*?)\1(g?)", program)
        if not match or not re.fullmatch(r"[\w\s.,:/=^$-]*((\*|\\?\+)[\w\s.,:/=$-]*)?", match[2]):
            raise NotKnown
        pattern = match[2].replace("\\+", "+")
        once = 0 if match[4] else 1
        new = match[3].replace("\\", "")
        lines = [re.sub(pattern, lambda _: new, one, count=once) for one in stdin.splitlines()]  # noqa: B023
        stdin = "".join(one + "\n" for one in lines)
    return stdin


SHOWING = frozenset(("echo", "printf", "cat"))
PASSING = SHOWING | {"tr", "sed", "xargs", "head"}
"""Programs that hand on what is not known, as it stands in their text."""
PROGRAMS: dict[str, Callable[[list[str], str], str]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "wc": _wc,
    "tr": _tr,
    "cut": _cut,
    "head": _head,
    "basename": _basename,
    "dirname": _dirname,
    "which": lambda words, _stdin: f"{words[-1]}\n" if words else "",
    "expr": _expr,
    "seq": _seq,
    "sed": _sed,
    "xargs": lambda _words, stdin: " ".join(stdin.split()) + "\n",
}
