"""Commands that a file tells the rest."""

from __future__ import annotations

import re

from gpuscale.launch.read.found import Found
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.read.tables import key_values

FRONTS = {
    "primus-cli": ("megatron", ("train",)),
    "llamafactory-cli": ("llama-factory", ("train",)),
    "lmf": ("llama-factory", ("train",)),
    "axolotl": ("axolotl", ("train",)),
    "axolotl.cli.train": ("axolotl", ()),
    "oumi": ("oumi", ("train",)),
    "tune": ("torchtune", ("run",)),
}
"""Program -> kind of its files, and the words that make it train."""
ENDINGS = (".yaml", ".yml", ".json", ".toml")


def started(words: list[str]) -> Found | None:
    """Read a command of a front end that trains as a file says: `llamafactory-cli train FILE`."""
    names = ["primus-cli" if "primus/cli" in w else w.rsplit("/", 1)[-1] for w in words]
    at = next((i for i, name in enumerate(names) if name in FRONTS), None)
    if at is None:
        return None
    kind, verbs = FRONTS[names[at]]
    rest = words[at + 1 :]
    if verbs and not any(verb in rest[:8] for verb in verbs):
        return None
    after = zip(rest, [*rest[1:], ""], strict=True)
    named = next((a for w, a in after if w in ("-c", "--config")), "")
    file = named or next((w for w in rest if w.endswith(ENDINGS)), "")
    if not file:
        return None
    found = Found(kind, software=KINDS[kind].software or kind)
    found.beside.append(file)
    found.options = key_values(rest)
    if any("single_device" in w for w in rest):
        found.n_gpus = 1
    return found


def one_device(name: str, found: list[Found]) -> list[Found]:
    """Put one GPU on the recipes of torchtune that are called so."""
    for one in found:
        if one.kind == "torchtune" and re.search("single[-_]device", name.rsplit("/", 1)[-1]):
            one.n_gpus = 1
    return found
