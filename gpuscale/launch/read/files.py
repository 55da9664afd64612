"""Files that hold commands in their own way: Dockerfiles, units, Modelfiles."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import Found
from gpuscale.launch.options import launch_table
from gpuscale.launch.read.engines import IMAGES, program_of

PAGES = (".md", ".markdown", ".mdx", ".rst", ".txt", ".html")
FENCE = re.compile(r"^```\w*$", re.MULTILINE)
PYTHON = re.compile(r"^(import|from) \w+", re.MULTILINE)
NO_PYTHON = re.compile(r"\.(sh|bash|zsh|sbatch|slurm|bat|cmd|ps1|service)$|(docker|container)file")
"""Names of files that are no Python, though they may hold some."""
BLOCK = re.compile(r"(?ms)^[ \t]*(?:```|~~~)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)[ \t]*$")
LANGUAGES = {"yaml": ".yaml", "yml": ".yaml", "dockerfile": ".dockerfile"}
"""Language of a page's block -> ending of a file of it; those of a shell are scripts."""
SHELLS = ("", "bash", "sh", "shell", "console", "zsh", "shellsession", "text")


def is_page(name: str, text: str) -> bool:
    """Whether a file is a page or notes, by its ending or its fences."""
    fenced = not name.endswith(".py") and FENCE.search(text) is not None
    return name.lower().endswith(PAGES) or fenced


def is_python(name: str, text: str) -> bool:
    """Whether a file is a Python program."""
    other = text.lstrip().startswith("#!") or NO_PYTHON.search(name.lower())
    return name.endswith(".py") or (PYTHON.search(text) is not None and not other)


def commands_of_page(text: str) -> list[tuple[str, str]]:
    r"""Blocks of a page in Markdown that hold commands or manifests, as files.

    >>> commands_of_page("Run:\n```bash\n$ vllm serve a/b\n```\n")
    [('block.sh', 'vllm serve a/b\n')]
    """
    blocks = [(word.lower(), inner) for word, inner in BLOCK.findall(text.replace("\r\n", "\n"))]
    return [
        (f"block{LANGUAGES.get(word, '.sh')}", re.sub(r"(?m)^\s*[$>] ", "", inner))
        for word, inner in blocks
        if word in SHELLS or word in LANGUAGES
    ]


def as_script(name: str, text: str) -> str:
    r"""Give the shell script that says what a file says; the text itself where it is one.

    >>> as_script("Dockerfile", "FROM vllm/vllm-openai\nENV M=a/b\nCMD --model $M")
    'M=a/b\nvllm serve --model $M'
    """
    base = name.rsplit("/", 1)[-1].lower()
    if base.endswith((".bat", ".cmd", ".ps1")):
        raise GpuscaleError(
            f"{name}: a script of Windows, which is not read",
            "give its command as a script of a shell",
        )
    if base.endswith((".service", ".container")):
        text = re.sub(r"\\\n", " ", text)
        kept = re.findall(r"(?m)^(?:ExecStart=[-@:+!]*|Environment=|Exec=)(.*)$", text)
        return "\n".join(re.sub(r'^"(\w+=[^"]*)"$', r"\1", line) for line in kept)
    if re.search(r"(^|\.)(docker|container)file", base):
        return _dockerfile(text)
    return text


def _dockerfile(text: str) -> str:
    """Variables of a Dockerfile, and the command that its image starts."""
    text = re.sub(r"\\\s*\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text.replace("\r\n", "\n")))
    lines, entry, command = [], "", ""
    for word, rest in re.findall(r"(?mi)^\s*(FROM|ENV|ARG|CMD|ENTRYPOINT)\s+(.*)$", text):
        if word.upper() == "FROM":
            entry, command = program_of(rest), ""
        elif word.upper() in ("ENV", "ARG"):
            pairs = re.findall(r'(\w+)=("[^"]*"|\S+)', rest) or re.findall(r"^(\w+)\s+(.+)", rest)
            lines += [f"{name}={value}" for name, value in pairs]
        elif word.upper() == "CMD":
            command = _exec(rest)
        else:
            entry = _exec(rest)
    if re.match(r"\S*(vllm|python3?|bash|sh|llama-server|sglang)\b", command):  # names its own
        entry = "" if entry in IMAGES.values() else entry
    whole = f"{entry} {command}".strip()
    return "\n".join([*lines, whole])


def _exec(text: str) -> str:
    """Command of a Dockerfile, in its exec form or as a shell's."""
    try:
        words = json.loads(text)
    except ValueError:
        return text
    if isinstance(words, list) and len(words) > 2 and words[1] in ("-c", "-lc"):
        return str(words[2])
    return " ".join(json.dumps(str(w)) if " " in str(w) else str(w) for w in words)


_WORDS = launch_table("words")["files"]
LATEST: dict[str, str] = _WORDS["latest"]


def read_modelfile(text: str) -> Found | None:
    """Read an Ollama Modelfile: a model of its library or a GGUF file, and its parameters."""
    base = re.search(r"(?mi)^\s*FROM\s+(\S+)", text)
    if base is None or re.search(r"(?mi)^\s*(RUN|COPY|CMD|ENTRYPOINT|WORKDIR)\s", text):
        return None
    found = Found("ollama", software="ollama", method="serve", n_gpus=1)
    name = base[1].strip("'\"")
    hosted = re.sub(r"^(hf\.co|huggingface\.co)/", "", name)
    model, _, tag = hosted.partition(":")
    if name.lower().endswith(".gguf") or hosted != name:
        found.model_name = re.sub(r"(?i)\.gguf$", "", hosted.rsplit("/", 1)[-1]).replace(":", "-")
    else:
        model = model.rsplit("/", 1)[-1]
        tag = LATEST.get(model, "") if tag in ("", "latest") else tag
        found.model_name = "-".join(part for part in (model, tag) if part)
        quantised = re.search(r"(?i)(^|-)(i?q\d|fp16|f16|bf16|mxfp4)", tag) or model == "gpt-oss"
        found.weights = None if quantised else "q4_k_m"
    parameters = dict(re.findall(r"(?mi)^\s*PARAMETER\s+(\w+)\s+(\S+)", text))
    length, layers = parameters.get("num_ctx", ""), parameters.get("num_gpu", "")
    found.seq_len = int(length) if length.isdigit() else None
    if layers.isdigit():
        found.serves["ngl"] = int(layers)
    if re.search(r"(?mi)^\s*ADAPTER\s", text):
        found.notes.append("its adapter, whose rank is not here")
    return found


STARTS = re.compile(
    r"(?:^|[;&|\s'\"])(?:source|\.|bash|sh|sbatch)\s+(?:-\w+\s+)*[\"']?[^\s\"';|&]*?(?<![\w$.-])((?:[\w.-]+/)*[\w.-]+\.(?:sh|env|slurm|sbatch|bash))\b"
)


def started_by(text: str, among: Mapping[str, str] | None = None, itself: str = "") -> list[str]:
    """Paths of the scripts that a script starts or sources; names, those of `among` if given."""
    lines = (line for line in text.split("\n") if not re.match(r"\s*(#|echo\b|printf\b)", line))
    known = [n for line in lines for n in STARTS.findall(line)]
    if among is None:
        return list(dict.fromkeys(known))
    names = dict.fromkeys(n.rsplit("/", 1)[-1] for n in known)
    return [n for n in names if n != itself and n in among]
