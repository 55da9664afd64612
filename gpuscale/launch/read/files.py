"""Files that hold commands in their own way: notebooks, Dockerfiles, units, Modelfiles."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpuscale.errors import GpuscaleError
from gpuscale.launch.found import Found, launch_table
from gpuscale.launch.named import IMAGES, gpu_named, program_of
from gpuscale.launch.read.program_text import unwarned
from gpuscale.launch.read.together import Look, followed, last_of

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


WRITTEN = re.compile(r"%%(?:writefile|file)\s+(?:-a\s+)?[\"']?([^\s\"']+)")
CELLS = ("%%bash", "%%sh", "%%shell", "%%script")
MAGIC = re.compile(r"^(\s*)(?:[\w.,\s]+=\s*)?[!%](.*)$")
NO_BF16 = ("t4", "v100", "p100")
"""GPUs of hosted notebooks without bf16 (compute capability below 8): they train in fp16."""


def is_notebook(name: str) -> bool:
    """Whether a file is one of Jupyter's by its name."""
    return name.lower().endswith(".ipynb")


Read = Callable[[str, str, Mapping[str, Any], Look], "list[Found]"]
"""Records of a file by its name, its text, the options that it is started with, and its folder."""
NONE: Mapping[str, Any] = MappingProxyType({})


def read_notebook(name: str, text: str, near: Look, read: Read) -> list[Found]:
    """Read the parts of a notebook; where no command starts more it is one process.

    `near`: finds the files beside it. `read`: reads a part. Raises GpuscaleError if no part of it
    says a job.
    """
    parts = parts_of(name, text)
    bodies = {last_of(part): body for part, body in parts.items()}

    def within(path: str) -> tuple[str, str] | None:
        body = bodies.get(last_of(path))
        return near(path) if body is None else (path, body)

    found: list[Found] = []
    for part, body in parts.items():
        try:
            found += read(part, body, NONE, within)
        except GpuscaleError:
            continue  # it says no job
    if not found:
        why = f"{name}: its cells start no training that is known here"
        raise GpuscaleError(why, "give the script or the configuration that its job is in")
    found = followed(
        found, list(parts), within, lambda part, body, told: read(part, body, told, within)
    )
    found = [one for one in found if one.method != "serve"] or found  # what it trains comes first
    gpu = gpu_of(text)
    for one in found:
        one.gpu = one.gpu or gpu
        one.precision = "fp16" if one.gpu in NO_BF16 else one.precision
    if all(one.world_size is None and "n_gpus" not in one.unread for one in found):
        found[0].n_gpus = 1
        found[0].notes.append("one GPU, as a notebook is one process (--gpus says another number)")
    return found


def parts_of(name: str, text: str) -> dict[str, str]:
    """Files that a notebook is as good as: its program, its commands, what its cells write.

    Raises GpuscaleError if it is no notebook.
    """
    program, commands, written = [], [], {}
    for source in _cells(name, text):
        lines = source.replace("\r\n", "\n").split("\n")
        while lines and not lines[0].strip():
            lines.pop(0)
        first = lines[0] if lines else ""
        if named := WRITTEN.match(first):
            written[named[1]] = "\n".join(lines[1:])
        elif first.startswith(CELLS):
            commands += lines[1:]
        else:
            python, started = _split(lines[1:] if first.startswith("%%") else lines)
            commands += started
            program += [python] if _parses(python) else []
    parts = {f"{name}.py": "\n".join(program), f"{name}.sh": "\n".join(commands), **written}
    return {key: part for key, part in parts.items() if part.strip()}


def gpu_of(text: str) -> str | None:
    """GPU that a hosted notebook asks for, or the one that its outputs name.

    >>> gpu_of('{"metadata": {"accelerator": "GPU", "colab": {"gpuType": "T4"}}}')
    't4'
    """
    printed = r"(?:NVIDIA|Tesla) ([\w -]+)\. (?:Num GPUs|Max memory)"
    hosted = r'"(?:gpuType"\s*:\s*"|accelerator"\s*:\s*"nvidiaTesla)(\w+)"'
    named = re.search(printed, text) or re.search(hosted, text)
    word = named[1].lower() if named else ""
    gpu = gpu_named(word)
    return "a100-40gb" if gpu == "a100" and "80gb" not in word else gpu


def _cells(name: str, text: str) -> list[str]:
    """Give the sources of the cells that hold code."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GpuscaleError(f"{name}: not a notebook: {str(error)[:120]}") from None
    cells: Any = table.get("cells") if isinstance(table, dict) else None
    if not isinstance(cells, list):
        raise GpuscaleError(f"{name}: not a notebook: it has no cells")
    found = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            found.append("".join(map(str, source)) if isinstance(source, list) else str(source))
    return found


def _split(lines: list[str]) -> tuple[str, list[str]]:
    """Program of a cell, and the commands in it; where one stands the program passes."""
    program: list[str] = []
    commands: list[str] = []
    more = False
    for line in lines:
        magic = MAGIC.match(line)
        if more:
            commands[-1] += "\n" + line
        elif magic is None:
            program.append(line)
            continue
        elif magic[2].startswith("env ") and "=" in magic[2]:
            key, _, value = magic[2][4:].partition("=")
            program.append(f"{magic[1]}os.environ[{key.strip()!r}] = {value.strip()!r}")
            commands.append(f"export {key.strip()}={value.strip()}")
        else:
            program.append(f"{magic[1]}pass")
            commands.append(magic[2] if "!" in line else "")
        more = line.rstrip().endswith("\\")
    return "\n".join(program), [re.sub(r"(?<!\$)\{(\w+)\}", r"${\1}", one) for one in commands]


def _parses(source: str) -> bool:
    try:
        with unwarned():
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
