"""A log as a launch file: the arguments that a program prints resolved, as a command."""

from __future__ import annotations

import ast
import json
import re
import shlex

from gpuscale.io.text import Table
from gpuscale.launch.found import launch_table
from gpuscale.launch.read.together import as_flags

_DUMPED = re.compile(r"^\W{0,40}([a-z][a-z0-9_]+) \.{2,}[ \t]?([^\n]*)$", re.MULTILINE)
_VLLM = re.compile(r"non-default args: (\{[^\n]{1,20000}\})")
_SGLANG = re.compile(r"server_args=ServerArgs\(([^\n]{1,40000})\)")
_TRAINER = re.compile(r"\b(?:\w*TrainingArguments|(?:SFT|DPO|GRPO|ORPO)Config)\(([^()]{200,20000})")
_DEEPSPEED = re.compile(
    r":print_user_config\]\s+json = (?=\{)|DeepSpeed config(?:uration)?: (?=\{)"
)
_TORCHTITAN = re.compile(r"Running with (?:args|configs?): (?=\{)")
_NAMED = re.compile(r'"_name_or_path": "([^"\n]{1,200})"|models--([\w.-]{1,60}?)--([\w.-]{1,90})/')
_TOTAL = re.compile(r"Total train batch size [^=\n]{0,60}= (\d{1,9})")
_PAIR = re.compile(r"(\w+)=('[^']*'|[^,()]+)")
OF_TRAINER, OF_SGLANG, PROGRAM = launch_table("words")["dump"].values()
MOST_OBJECT = 40_000
LEAST = 8
"""Arguments that make a dump: a message may have a line of dots."""
PER_STAGE = "num_layers_per_virtual_pipeline_stage"
GPUS_OF_NODE = 8


def launch_of_log(text: str) -> str | None:
    """Make the command whose resolved arguments a log prints; None where it prints none.

    >>> launch_of_log("x non-default args: {'model': 'a/b', 'tensor_parallel_size': 4}")
    'vllm serve a/b --tensor-parallel-size 4'
    >>> launch_of_log("step 1 loss 2")
    """
    pairs = dict(_DUMPED.findall(text))
    if len(pairs) >= LEAST:
        return _megatron({k: v.strip() for k, v in pairs.items()})
    if table := _object(_TORCHTITAN, text):
        return _toml(table)
    deepspeed = _object(_DEEPSPEED, text)
    if hit := _TRAINER.search(text):
        return _trainer(dict(_PAIR.findall(hit[1])), deepspeed, text)
    if deepspeed:
        return json.dumps(deepspeed)
    if hit := _VLLM.search(text):
        try:
            given = ast.literal_eval(hit[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        model = given.pop("model_tag", None) or given.pop("model", None) or ""
        given.pop("model", None)
        return " ".join(["vllm serve", shlex.quote(str(model)), *_options(given)])
    if hit := _SGLANG.search(text):
        found = {k: v.strip(" '") for k, v in _PAIR.findall(hit[1]) if k in OF_SGLANG}
        return " ".join(["python -m sglang.launch_server", *_options(found)])
    return None


def _object(start: re.Pattern[str], text: str) -> Table:
    """Read the JSON object behind a mark, each line perhaps behind the prefix of a rank."""
    if (hit := start.search(text)) is None:
        return {}
    body = text[hit.end() : hit.end() + MOST_OBJECT]
    for plain in (body, re.sub(r"(?m)^(?:\[?\w[^\s{}\"]{0,40}[:\]] ?)+(?=\s|[{}\"])", "", body)):
        try:
            table = json.JSONDecoder().raw_decode(plain)[0]
        except (ValueError, RecursionError):
            continue
        return table if isinstance(table, dict) else {}
    return {}


def _toml(table: Table) -> str:
    lines = []
    for section, values in table.items():
        if isinstance(values, dict):
            flat = {k: v for k, v in values.items() if isinstance(v, (str, int, float, bool))}
            lines += [f"[{section}]", *(f"{k} = {json.dumps(v)}" for k, v in flat.items())]
    return "\n".join(lines)


def _trainer(given: dict[str, str], deepspeed: Table, text: str) -> str:
    """Command of a trainer: its arguments, the model and the ranks that other lines say."""
    options = _options({k: given[k].strip().strip("'") for k in OF_TRAINER if k in given})
    if name := _NAMED.search(text):
        options += ["--model_name_or_path", shlex.quote(name[1] or f"{name[2]}/{name[3]}")]
    each = [given.get(k, "1").strip() for k in OF_TRAINER[:2]]
    total = _TOTAL.search(text)
    ranks = int(total[1]) // max(1, int(each[0]) * int(each[1])) if total and all(
        map(str.isdigit, each)) else 1  # fmt: skip
    start = f"torchrun --nproc-per-node {max(1, ranks)} train.py"
    if deepspeed:
        options += ["--deepspeed", "ds_config.json"]
        start = f"cat > ds_config.json <<'END'\n{json.dumps(deepspeed)}\nEND\n{start}"
    return " ".join(
        [start, *(re.sub(r"(?<=\w)-", "_", o) if o[:2] == "--" else o for o in options)]
    )


def _megatron(given: dict[str, str]) -> str:
    world = given.get("world_size", "")
    n = int(world) if re.fullmatch(r"\d{1,7}", world) else 1
    each = GPUS_OF_NODE if n % GPUS_OF_NODE == 0 else n
    options = _options({k: v for k, v in given.items() if k not in PROGRAM})
    if "vocab_size" not in given or given["vocab_size"] == "None":
        options += _options({"vocab_size": given.get("padded_vocab_size", "None")})
    if given.get(PER_STAGE, "None") == "None":  # of whichever option it was made
        chunks = given.get("virtual_pipeline_model_parallel_size", "None")
        options += _options({"num_virtual_stages_per_pipeline_rank": chunks})
    start = f"torchrun --nproc-per-node {each} --nnodes {max(1, n // each)} pretrain_gpt.py"
    return " ".join([start, *options])


def _options(given: dict[str, object]) -> list[str]:
    said = {key: IDLE.get(str(value), shlex.quote(str(value))) for key, value in given.items()}
    if said.get("add_bias_linear") is False:
        said["disable_bias_linear"] = True
    return as_flags(said)


IDLE = {**dict.fromkeys(("None", "False", "", "[]", "{}"), False), "True": True}
"""Values as printed that stand as no word of their own -> whether their flag does."""
