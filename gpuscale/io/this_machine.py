"""What is in this machine: its GPUs by the driver's tools, and models in the local hub cache."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from gpuscale.core.records import NamedTuple
from gpuscale.errors import GpuscaleError

AUTO = "auto"
WAIT_S = 10.0
"""Longest wait for a driver's tool; nvidia-smi takes seconds where the driver sleeps."""

NOISE = (
    r"\b(nvidia|geforce|tesla|amd|instinct|radeon|generation|blackwell|edition|graphics|oam|ac)\b"
)
FORMS = {
    "h100-hbm3": "h100-sxm",
    "h100-80gb-hbm3": "h100-sxm",
    "h100-80gb-hbm2e": "h100-pcie",
    "h800-hbm3": "h800-sxm",
    "a100-80gb-pcie": "a100-pcie-80gb",
    "gh200-480gb": "gh200-96gb",
    "gh200-120gb": "gh200-96gb",
}
"""Driver's name, tidied -> preset, where no rule makes the one of the other."""


class FoundGpus(NamedTuple):
    """GPUs of one kind in this machine."""

    name: str  # as the driver says it
    n: int


@lru_cache(maxsize=1)
def gpus_here() -> FoundGpus:
    """GPUs of this machine, by nvidia-smi, rocm-smi or PyTorch.

    Raises GpuscaleError if there are none, or of more than one kind.
    """
    for ask in (_nvidia, _amd, _torch):
        names = ask()
        if names:
            kinds = sorted(set(names))
            if len(kinds) > 1:
                raise GpuscaleError(
                    f"this machine has GPUs of {len(kinds)} kinds: {', '.join(kinds)}",
                    "name the one that is meant with --gpu",
                )
            return FoundGpus(kinds[0], len(names))
    raise GpuscaleError(
        "no GPU was found in this machine (nvidia-smi, rocm-smi, PyTorch)",
        "name one, e.g. --gpu rtx-4090; `gpuscale presets --kind gpu` lists them",
    )


def _run(*words: str) -> str:
    """Output of a tool; empty where it is not there or fails."""
    import shutil

    if shutil.which(words[0]) is None:
        return ""
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _nvidia() -> list[str]:
    out = _run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return [line.strip() for line in out.splitlines() if line.strip()]


def _amd() -> list[str]:
    import json

    out = _run("rocm-smi", "--showproductname", "--json")
    try:
        cards = json.loads(out) if out else {}
    except json.JSONDecodeError:
        return []
    wanted = ("Card Series", "Card series", "Card Model", "Card SKU")
    return [
        str(next((card[k] for k in wanted if k in card), ""))
        for name, card in cards.items()
        if name.startswith("card") and isinstance(card, dict)
    ]


def _torch() -> list[str]:
    """Ask PyTorch in a process of its own: importing it here takes a second and its memory."""
    import sys
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return []
    code = (
        "import torch as t;[print(t.cuda.get_device_name(i))for i in range(t.cuda.device_count())]"
    )
    return [line for line in _run(sys.executable, "-c", code).splitlines() if line]


def preset_of(name: str) -> str:
    """Preset of a GPU as its driver names it.

    Raises GpuscaleError if there is none.

    >>> preset_of("NVIDIA H100 80GB HBM3"), preset_of("NVIDIA A100-SXM4-40GB")
    ('h100-sxm', 'a100-sxm-40gb')
    >>> preset_of("NVIDIA GeForce RTX 3090 Ti"), preset_of("AMD Instinct MI300X OAM")
    ('rtx-3090-ti', 'mi300x')
    """
    from gpuscale.io.presets import find_preset

    words = re.sub(NOISE, " ", name.lower().replace("(tm)", "")).replace("_", " ")
    tidy = re.sub(r"-+", "-", re.sub(r"[\s]+", "-", words.strip())).strip("-")
    tidy = re.sub(r"sxm[3-9]", "sxm", tidy)
    without_size = re.sub(r"-?\d+gb", "", tidy)
    for candidate in (FORMS.get(tidy, tidy), f"{tidy}-sxm", without_size, f"{without_size}-sxm"):
        path = find_preset("gpu", FORMS.get(candidate, candidate))
        if path is not None:
            return path.stem
    raise GpuscaleError(
        f"this machine's GPU `{name}` has no preset",
        "give its figures: a TOML file as in `gpuscale presets show rtx-4090`, or the nearest GPU "
        "with --set gpu.hbm_bytes=... and the like",
    )


def said_by_driver(name: str) -> Path | None:
    """Preset of a GPU that somebody copied from a driver's tool; None of any other name.

    >>> said_by_driver("NVIDIA A100-SXM4-40GB").stem, said_by_driver("RTX 4090 48GB")
    ('a100-sxm-40gb', None)
    """
    from gpuscale.io.presets import preset_path
    from gpuscale.io.text import read_toml

    try:
        path = preset_path("gpu", preset_of(name))
    except GpuscaleError:
        return None
    size = re.search(r"(\d+)\s?gb", name.lower())
    held = str(read_toml(path)["hbm_bytes"]).split()[0]
    return path if size is None or size[1] == held else None


def cached_config(hub_id: str) -> Path | None:
    """`config.json` of a model in the local Hugging Face cache; None where it is not there.

    Looks in ``$HF_HUB_CACHE``, ``$HF_HOME/hub`` and ``~/.cache/huggingface/hub``; nothing is
    fetched.
    """
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    root = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    folder = root / ("models--" + hub_id.replace("/", "--"))
    try:
        reference = folder / "refs" / "main"
        if reference.is_file():
            file = folder / "snapshots" / reference.read_text("utf-8").strip() / "config.json"
            if file.is_file():
                return file
        found = list(folder.glob("snapshots/*/config.json"))
        return max(found, key=lambda f: f.stat().st_mtime, default=None)
    except (OSError, ValueError):
        return None
