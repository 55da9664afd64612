"""What launch files name: GPUs in headers, selectors and options, serving engines in commands."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuscale.core.records import dataclass, field
from gpuscale.launch.found import launch_table

_NAMES = re.compile(
    r"(?i)(?:(?<![a-z0-9])|(?<=gpu))(?:\d+x)?(gb[23]00|gh200|b[23]00|h[12]00|h800|h20|a100|a800"
    r"|a10g|a40|l40s|l40|l4|v100|t4"
    r"|mi[23]\d\dx|rtx[-_ ]?\d{4}|tpu7x|v6e|v5p|v5e|v5-lite)(?!(?!x\d)[a-z0-9]\w)"
    r"(?:[-_: ]*(\d+)\s*g(?:b|ib)?\b)?"
)
_MACHINES: dict[str, str] = launch_table("words")["gpus"]["machines"]
_TPUS = {"tpu7x": "tpu-v7x", "v5-lite": "tpu-v5e"}


def gpu_named(text: str) -> str | None:
    """Name of the GPU that a label or header means, as the presets know it.

    >>> gpu_named("gpu:h100:8"), gpu_named("nvidia-a100-40gb"), gpu_named("tpu-v5-lite-podslice")
    ('h100', 'a100-40gb', 'tpu-v5e')
    >>> gpu_named("8xb200"), gpu_named("a3-ultragpu-8g"), gpu_named("ml.p4d.24xlarge")
    ('b200', 'gcp-a3-ultra', 'aws-p4d')
    >>> gpu_named("standard") is None
    True
    """
    match = _NAMES.search(text)
    if not match:
        return _machine(text)
    name = re.sub(r"[_ ]", "-", match[1].lower())
    name = _TPUS.get(name, f"tpu-{name}" if re.match(r"v[56]", name) else name)
    return f"{name}-{match[2]}gb" if match[2] and name in ("a100", "v100") else name


def _machine(text: str) -> str | None:
    for pattern, name in _MACHINES.items():
        ending = r"\.\d+xlarge" if name.startswith("aws") else r"(gpu|[-_.]|$)"
        if re.search(rf"(?i)(?<![a-z0-9]){pattern}{ending}", text):
            return name
    return None


def gpu_of_file(name: str, text: str = "") -> str | None:
    """GPU that a file's name holds, where that cannot mean another thing; that of its plan first.

    >>> gpu_of_file("configs/llama3_70b-8xb200-8k.toml"), gpu_of_file("train_l4_a10.sh")
    ('b200', None)
    >>> gpu_of_file("configs/MI355X/llama3_8B.yaml")
    'mi355x'
    >>> gpu_of_file("run.sh", "# made by: gpuscale plan llama3-8b --gpus 2 --gpu rtx-3090")
    'rtx-3090'
    """
    if made := re.search(r"(?m)^# made by: gpuscale .*--(?:gpu|cluster)[ =]([\w-]+)(?: |$)", text):
        return made[1]
    *_, folder, last = ["", "", *name.split("/")]
    found = gpu_named(last.replace("_", "-")) or (gpu_named(folder) if len(folder) < 9 else None)
    return found if found and re.search(r"\d{3}|tpu|gcp", found) else None


def number_of_file(name: str) -> int | None:
    """GPUs that a file's name says.

    >>> number_of_file("recipes/mixtral-8x7b-256gpus-a3u-bf16.yaml"), number_of_file("multi_gpu.sh")
    (256, None)
    """
    number = re.search(r"(?<![a-z\d])(\d+)[-_]?gpus?(?![a-z])", name.lower().rsplit("/", 1)[-1])
    return int(number[1]) or None if number else None


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine is started."""

    name: str
    title: str
    programs: str = ""  # pattern of a word that starts it; none: two words do (`PAIRS`), or a file
    options: Mapping[str, str] = field(default_factory=dict)  # option -> field, or what is made
    flags: Mapping[str, str] = field(default_factory=dict)  # options without a value -> likewise
    variables: str = ""  # before an option's name in a variable that says the same


def _engine(table: Mapping[str, object]) -> Engine:
    """Engine of a table whose options stand by field, several apart by spaces."""
    turned = {
        part: {option: name for name, words in given.items() for option in words.split()}
        for part in ("options", "flags")
        if isinstance(given := table.get(part), dict)
    }
    return Engine(**{**table, **turned})  # type: ignore[arg-type]


_TABLE = launch_table("engines")
ENGINES: dict[str, Engine] = {one["name"]: _engine(one) for one in _TABLE["engine"]}
"""Engine -> how it is started; the order in which a command is asked."""
PAIRS: dict[tuple[str, ...], str] = {tuple(k.split()): v for k, v in _TABLE["pairs"].items()}
"""A program and its first argument -> engine."""
IMAGES: dict[str, str] = _TABLE["images"]
"""Part of an image's name -> the program that it starts with the arguments that it is given."""
FORMATS: dict[str, str] = _TABLE["formats"]
"""An engine's word for a quantisation -> format of the weights; others leave them as published."""
DEVICES: dict[str, str] = _TABLE["devices"]
"""`--device` of the engines -> machines that no preset answers for."""


def program_of(image: str) -> str:
    """Program that an image starts by itself; empty where its arguments name one."""
    return next((program for part, program in IMAGES.items() if part in image), "")


def weights_of(word: str, engine: str) -> str | None:
    """Format of the weights that an engine's word means; None: as the checkpoint has them.

    >>> weights_of("awq_marlin", "vllm"), weights_of("bitsandbytes", "tgi"), weights_of("auto", "")
    ('awq', 'int8', None)
    """
    name = re.sub(r"[\s_]+", "-", word.strip().lower())
    if name == "bitsandbytes":  # TGI's is LLM.int8(), the others' 4 bits
        return "int8" if engine == "tgi" else "nf4"
    return FORMATS.get(name)


def cache_of(word: str) -> str | None:
    """Format of the cache that an engine's word means; None: 16 bits, or as the engine has it.

    >>> cache_of("fp8_e5m2"), cache_of("q8_0"), cache_of("auto")
    ('fp8', 'fp8', None)
    """
    name = word.strip().lower()
    return "fp8" if re.match(r"fp8|q[458]|iq4|int[48]|[48]$|nvfp4", name) else None


SERVER = tuple(launch_table("words")["engines"]["server"])
