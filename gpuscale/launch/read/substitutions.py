"""Command substitutions whose value a script itself says: counts of nodes and GPUs, `expr`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuscale.launch.read.found import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTED = (
    (r"scontrol\s+show\s+host\w*.*wc\s+-l", "SLURM_NNODES"),
    (r"nvidia-smi.*wc\s+-l", "SLURM_GPUS_ON_NODE"),
    (r"nvidia-smi.*wc\s+-l", "GPUS_PER_NODE"),
)
"""What counts machines -> the variable that says the same number."""


def value_of(command: str, variables: Mapping[str, str | list[str]]) -> str | None:
    r"""Value of a command whose variables are put in; None where the machine is needed.

    `command`: what stands between the brackets. `variables`: those of the script [-].

    Examples
    --------
    >>> value_of("expr 32 / 8 / 2", {}), value_of("echo 0,1,2 | tr ',' '\\n' | wc -l", {})
    ('2', '3')
    >>> value_of("nvidia-smi -L | wc -l", {"SLURM_GPUS_ON_NODE": "4"}), value_of("date", {})
    ('4', None)
    """
    for pattern, name in COUNTED:
        value = variables.get(name)
        if isinstance(value, str) and value.isdigit() and re.search(pattern, command, re.DOTALL):
            return value
    lines = re.match(r"\s*echo\s+\"([^\"]*)\"\s*\|\s*tr\s+\S*\\n\S*\s+['\"] ['\"]", command)
    if lines:
        return " ".join(lines[1].split())
    devices = variables.get("CUDA_VISIBLE_DEVICES")
    if isinstance(devices, str) and re.search(r"CUDA_VISIBLE_DEVICES.*count", command):
        return str(len(devices.split(",")))
    if UNSET in command:
        return None
    while sum_ := re.match(r"\s*expr\s+(\d{1,12})\s*\\?([-+*/])\s*(\d{1,12})\b\s*(.*)", command):
        a, b = int(sum_[1]), int(sum_[3])
        total = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sum_[2]]
        if not sum_[4]:
            return str(total)
        command = f"expr {total} {sum_[4]}"  # from the left
    listed = re.match(r"\s*echo\s+[\"']?([\d,]+)[\"']?\s*\|", command)
    if listed and re.search(r"wc\s+-[lw]|print NF", command):
        return str(len(listed[1].strip(",").split(",")))
    if named := re.fullmatch(r"\s*(?:basename|echo)\s+[\"']?([^\s\"'|;<>&]+)[\"']?\s*", command):
        return named[1].rstrip("/").rsplit("/", 1)[-1] if "basename" in command else named[1]
    return None
