"""Megatron-LM: the flags of `pretrain_gpt.py` in a script."""

from __future__ import annotations

import re
from itertools import takewhile

from gpuscale.core.context import CONTEXT_KINDS
from gpuscale.core.layout import layout_chunks
from gpuscale.launch.dialects.heard import Heard, says_how
from gpuscale.launch.options import known_options, launch_table
from gpuscale.launch.read.found import UNSET, Found, Values
from gpuscale.launch.read.megatron_model import model_of
from gpuscale.launch.read.megatron_settings import put_settings

CP_KIND = {k.said_as["megatron"]: k.name for k in CONTEXT_KINDS.values() if "megatron" in k.said_as}
CP_KIND["a2a+p2p"] = "ulysses"
_WORDS = launch_table("words")["megatron"]
OLD = tuple(_WORDS["old"])

FORKS: dict[str, str] = _WORDS["forks"]

OTHER_PROGRAM = (
    r"pretrain_(bert|t5|vision|ict|retro|vlm|\w*omni|\w*_vl)"
    r"|(train|run)_\w*(vlm|clip|text_gen)|evaluate"
    r"|(^|/)tasks/|ptq|trtllm|quantiz|generat|infer|merge_|retriev|(^|/)chat"
)
OTHER_OPTIONS = tuple(_WORDS["other_options"])

DEGREES = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
}
BATCH = {
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    "seq_len": "--seq-length",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
}


def is_megatron(words: list[str]) -> bool:
    """Whether a command is Megatron's."""
    if words[:1] and words[0] in ("echo", "[", "[[", "test", "printf", "cat", "cp", "mkdir"):
        return False
    shaped = "--hidden-size" in words and "--num-attention-heads" in words
    known = known_options("megatron").arity
    named = any(re.search(r"pretrain_\w+\.py$", w) for w in words)
    if named and any(w.startswith("--") for w in words):
        named = any(w.partition("=")[0] in known for w in words) or "--batch-size" in words
    return named or (
        "--num-layers" in words and (shaped or "--tensor-model-parallel-size" in words)
    )


def read(words: list[str], name: str) -> Found:
    """Read the command of a Megatron script.

    `words`: the command's words, variables put in. `name`: name for the model, which Megatron's
    flags do not give.
    """
    deepspeed = "--deepspeed" in words or any("DeepSpeed" in w for w in words[:2])
    known = known_options("megatron-deepspeed" if deepspeed else "megatron")
    found = Found("megatron", software="megatron-core", version=known.version)
    start = next((i for i, w in enumerate(words) if w.endswith(".py")), -1)
    if start < 0 and "-m" in words[:-1] and not words[words.index("-m") + 1].startswith("torch"):
        start = words.index("-m") + 1
    script = words[start] if start >= 0 else ""
    other = next((w for w in words if w.partition("=")[0] in OTHER_OPTIONS), "")
    if re.search(OTHER_PROGRAM, script) or other:
        shown = f"{script} {other}".replace(UNSET, "").strip()
        found.beyond.append(f"{shown}: not the training of a decoder-only language model")
    found.software = "megatron-deepspeed" if deepspeed else found.software
    given = Heard(_flags(words[start + 1 :], found, known.arity))
    values = Values(found, given)
    for field, flag in (DEGREES | BATCH).items():
        number = values.whole(flag, field)
        if number is not None and (number > 0 or not found.beyond):
            setattr(found, field, number)
    if "--moe-expert-model-parallelism" in values:  # of MegaBlocks: experts over the replicas
        found.places["ep"] = "as DP"
    _pipeline(values)
    _precision(values)
    _sharding(values)
    _recompute(values)
    if deepspeed:
        _deepspeed(values)
    found.sequence_parallel = "--sequence-parallel" in values
    if kind := values.text("--cp-comm-type"):
        found.cp_kind = CP_KIND.get(kind)
    found.offload_optimizer = "--optimizer-cpu-offload" in values
    if not deepspeed:
        found.overlap_tp = "--tp-comm-overlap" in values
        found.overlap_dp = "--overlap-grad-reduce" in values
    if "--no-cuda" in values:
        found.other_machine = "processors without a GPU"
    named = Heard({k[2:].replace("-", "_"): v or True for k, v in dict(given).items()})
    put_settings(named, found)
    found.model = None if found.beyond else model_of(values, name, script)
    found.model_name = name if found.model else None
    heard = {option[2:].replace("-", "_") for option in given.asked} | named.asked
    for key, said in dict(named).items():
        if key not in heard and says_how(key, " ".join(said) if said is not True else said):
            found.asked[key] = str(said)[:40]
    return found


def _flags(words: list[str], found: Found, arity: dict[str, str]) -> dict[str, list[str]]:
    """Options with their values; an option that the parser does not know is noted."""
    given: dict[str, list[str]] = {}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        name = FORKS.get(name, name)
        if name not in arity and name not in OLD and name not in FORKS.values():
            after = list(takewhile(lambda w: not w.startswith("--"), words[i:]))
            key, said = name[2:].replace("-", "_"), value or " ".join(after) or True
            if says_how(key, said):
                found.asked[key] = str(said)[:40]
            else:
                found.not_understood.append(name)
            i += len(after)
            continue
        values = [value] if equals else []
        if not equals and arity.get(name, "*") != "0":
            while i < len(words) and not words[i].startswith("--"):
                values.append(words[i])
                i += 1
            if not values and arity.get(name, "*") not in "*":
                found.wrong.append(f"{name} has no value")
        given[name] = values[:1] if arity.get(name) == "1" else values  # an unset one is nothing
    return given


def _pipeline(values: Values) -> None:
    found = values.found
    per_stage = values.whole("--num-layers-per-virtual-pipeline-stage")
    found.vpp = values.whole("--num-virtual-stages-per-pipeline-rank", "vpp") or 1
    layers = values.whole("--num-layers")
    if per_stage and layers and found.pp:
        padded = "--allow-padding-num-layers" in values  # of the zero-bubble fork
        if layers % (found.pp * per_stage) and not padded:
            found.wrong.append(
                f"{layers} layers do not divide into {found.pp} stages of chunks of {per_stage}"
            )
        else:
            found.vpp = -(-layers // found.pp // per_stage)
    first = values.whole("--decoder-first-pipeline-num-layers")
    last = values.whole("--decoder-last-pipeline-num-layers")
    if layers and found.pp > 1 and (first is not None or last is not None):
        found.stage_layers = _ends(found, layers, first, last)
    elif layers and found.pp > 1 and not any(name in values for name in UNEVEN):
        chunks = found.pp * (found.vpp if per_stage is None else 1)
        if layers % chunks and found.software == "megatron-core":
            found.wrong.append(
                f"{layers} layers do not divide into {chunks} stages, and no split is said: "
                "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or "
                "--pipeline-model-parallel-layout"
            )
    listed = values.text("--num-layer-list") or ""  # of MindSpeed
    if re.fullmatch(r"\d+(,\d+)+", listed):
        found.stage_layers = tuple(map(int, listed.split(",")))
    if layout := values.text("--pipeline-model-parallel-layout", "stage_layers"):
        _layout_string(found, layout, layers)
    found.schedule = "interleaved" if found.vpp > 1 else "1f1b"


UNEVEN = tuple(_WORDS["uneven"])


def _layout_string(found: Found, layout: str, layers: int | None) -> None:
    """Layers of each chunk of a layout string, which says the virtual stages too."""
    try:
        chunks = layout_chunks(layout)
    except ValueError as error:
        found.wrong.append(f"--pipeline-model-parallel-layout: {error}")
        return
    found.stage_layers = tuple(chunks)
    if found.pp and len(chunks) % found.pp == 0:
        found.vpp = len(chunks) // found.pp
    if layers is not None and sum(chunks) != layers:
        found.wrong.append(f"the layout holds {sum(chunks)} layers, --num-layers {layers}")


def _ends(found: Found, layers: int, first: int | None, last: int | None) -> tuple[int, ...] | None:
    """Layers of each stage where the first or last is given (transformer_config.py)."""
    given = (first is not None) + (last is not None)
    middle, stages = layers - (first or 0) - (last or 0), found.pp - given
    if stages <= 0 or middle < 0 or middle % stages:
        found.wrong.append(f"{middle} middle layers do not divide over {stages} stages")
        return None
    each = (middle // stages,) * stages
    return (*([first] if first is not None else []), *each, *([last] if last is not None else []))


def _precision(values: Values) -> None:
    found = values.found
    found.precision = "fp16" if "--fp16" in values else "bf16" if "--bf16" in values else "fp32"
    if "--fp8-format" in values:
        recipe = values.text("--fp8-recipe") or "delayed"
        found.precision = "mxfp8" if recipe == "mxfp8" else "fp8"
    if "--fp4-format" in values:
        found.precision = "nvfp4"
    if found.precision in ("fp8", "mxfp8", "nvfp4"):
        kept = "--fp8-param-gather" in values or "--fp4-param-gather" in values
        found.settings["fp8_param_gather"] = "on" if kept else "off"
    if "--fp8-format" in values and "--fp4-format" in values:
        found.wrong.append("--fp8-format and --fp4-format exclude each other")


def _sharding(values: Values) -> None:
    found = values.found
    found.zero_stage = 1 if "--use-distributed-optimizer" in values else 0
    if "--use-megatron-fsdp" in values or "--use-custom-fsdp" in values:
        strategy = values.text("--data-parallel-sharding-strategy") or "optim_grads_params"
        stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
        found.zero_stage = stages.get(strategy, 3)
    if "--use-torch-fsdp2" in values:
        found.zero_stage = 3
    found.dp_replicate = values.whole("--num-distributed-optimizer-instances")
    if "--overlap-param-gather" in values and found.zero_stage == 0:
        found.wrong.append("--overlap-param-gather needs --use-distributed-optimizer")
    if "--overlap-param-gather" in values and "--overlap-grad-reduce" not in values:
        found.wrong.append("--overlap-param-gather needs --overlap-grad-reduce")


def _deepspeed(values: Values) -> None:
    """Megatron-DeepSpeed: the stage is an option or in the JSON beside; 1 is the default."""
    found = values.found
    if ulysses := values.whole("--ds-sequence-parallel-size", "cp"):
        found.cp, found.cp_kind = ulysses, "ulysses" if ulysses > 1 else None
    stage = values.whole("--zero-stage", "zero_stage")
    found.ep = found.ep or values.whole("--moe-expert-parallel-size", "ep")
    named = "--deepspeed_config" in values and stage is None
    found.zero_stage = None if named else 1 if stage is None else stage
    if "--checkpoint-activations" in values:
        found.recompute = "full"


def _recompute(values: Values) -> None:
    found = values.found
    granularity = values.text("--recompute-granularity", "recompute")
    if "--recompute-activations" in values:
        granularity = "selective"
    old = ("--checkpoint-activations", "--activations-checkpoint-method")  # until 2022
    if any(name in values for name in old):
        granularity = "full"
        found.recompute = "full"
        return
    found.recompute = granularity or "none"
    if granularity == "full":
        if not values.text("--recompute-method"):
            found.wrong.append("--recompute-granularity full needs --recompute-method")
        if values.text("--recompute-method") == "block":
            found.recompute_layers = values.whole("--recompute-num-layers")
    elif granularity == "selective" and values.text("--recompute-method"):
        found.wrong.append("selective recomputation takes no --recompute-method")
