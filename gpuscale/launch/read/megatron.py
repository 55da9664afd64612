"""Megatron-LM: the flags of `pretrain_gpt.py` in a script."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from gpuscale.core.layout import layout_chunks
from gpuscale.core.settings import MODULES
from gpuscale.launch.dialects.megatron_model import model_of
from gpuscale.launch.dialects.nested import Nested, dialect
from gpuscale.launch.dialects.rows import put, says_how
from gpuscale.launch.found import UNSET, Found, known_options, launch_table

_WORDS = launch_table("words")["megatron"]
OLD = tuple(_WORDS["old"])

FORKS: dict[str, str] = _WORDS["forks"]

OTHER_PROGRAM = (
    r"pretrain_(bert|t5|vision|ict|retro|vlm|\w*omni|\w*_vl)"
    r"|(train|run)_\w*(vlm|clip|text_gen)|evaluate"
    r"|(^|/)tasks/|ptq|trtllm|quantiz|generat|infer|merge_|retriev|(^|/)chat"
)
OTHER_OPTIONS = tuple(_WORDS["other_options"])


def is_megatron(words: list[str]) -> bool:
    """Whether a command is Megatron's."""
    if words[:1] and words[0] in ("echo", "[", "[[", "test", "printf", "cat", "cp", "mkdir"):
        return False
    shaped = "--hidden-size" in words and "--num-attention-heads" in words
    known = known_options("megatron").arity
    named = any(re.search(r"pretrain_\w+\.py$", w) for w in words)
    named &= "--per_device_train_batch_size" not in words  # a trainer of Hugging Face
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
    given = _flags(words[start + 1 :], found, known.arity)
    told = {k[2:]: " ".join(v) if v else True for k, v in given.items()}
    at = Nested(found, told)
    put_core(at, flags=True)
    if at.has("moe-expert-model-parallelism"):  # of MegaBlocks: experts over the replicas
        found.places["ep"] = "as DP"
    if deepspeed:
        _deepspeed(at)
        at.heard.add("deepspeed")
    if len(given.get("--num-experts", ())) > 1:
        found.beyond.append("experts of another number in some layers are not predicted")
    for key in SIZES if not found.beyond else ():
        if (text := at.known(key)) and not re.fullmatch(r"\d*[1-9][\d_]*", text):
            found.wrong.append(f"--{key} {text[:40]}: no whole number above 0")
    if at.has("no-cuda"):
        found.other_machine = "processors without a GPU"
    found.model = None if found.beyond else model_of(at, name, script)
    found.model_name = name if found.model else None
    for key, said in told.items():
        if key not in at.heard and says_how(key.replace("-", "_"), said):
            found.asked[key.replace("-", "_")] = str(given[f"--{key}"] or True)[:40]
    return found


SIZES = tuple(
    "tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size "
    "expert-model-parallel-size expert-tensor-parallel-size micro-batch-size global-batch-size "
    "seq-length num-layers hidden-size num-attention-heads num-query-groups".split()
)
"""Flags that a launch cannot have other than as whole numbers."""


def put_core(at: Nested, flags: bool) -> None:
    """Put what Megatron-Core is told on the record.

    `at`: its options by their names with hyphens. `flags`: one that is not there is off; keys of a
    configuration leave it as a recipe has it.
    """
    found = at.found
    put(dialect("megatron"), at)
    found.sequence_parallel = at.true("sequence-parallel")
    found.seq_len = found.seq_len if at.has("seq-length") or not flags else None  # of its encoder
    for field, key in (("overlap_tp", "tp-comm-overlap"), ("overlap_dp", "overlap-grad-reduce")):
        if flags or at.get(key) is not None:
            setattr(found, field, at.true(key))
    _precision(at, "fp32" if flags else "bf16")
    _sharding(at, flags)
    _recompute(at, flags)
    _pipeline(at)
    settings = found.settings
    if flags and at.get("num-experts") is not None:  # arguments.py: allgather, never flex
        settings.setdefault("dispatcher", "alltoall")
    if at.true("moe-permute-fusion"):
        settings["moe_kernels"] = "2025"
    if at.text("cpu-offloading").lower() == "false":
        settings.pop("offload_layers", None)
    if "fp8" in settings.get("moments", "") and at.get("exp-avg-dtype") is None:
        settings["moments"] = "bf16"
    names = at.get("recompute-modules") or ()
    names = names.split() if isinstance(names, str) else [str(name) for name in names]
    found.not_understood += [f"--recompute-modules {n}" for n in names if n not in MODULES]
    known = tuple(n for n in names if n in MODULES)
    if found.recompute == "selective":
        settings["recompute_modules"] = known or ("core_attn",)


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


def _pipeline(at: Nested) -> None:
    found = at.found
    per_stage = at.number("num-layers-per-virtual-pipeline-stage")
    layers = at.number("num-layers")
    if per_stage and layers and found.pp:
        padded = at.true("allow-padding-num-layers")  # of the zero-bubble fork
        if layers % (found.pp * per_stage) and not padded:
            found.wrong.append(
                f"{layers} layers do not divide into {found.pp} stages of chunks of {per_stage}"
            )
        else:
            found.vpp = -(-layers // found.pp // per_stage)
    first, last = (at.text(f"decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if layers and found.pp > 1 and (first.isdigit() or last.isdigit()):
        ends = [int(end) if end.isdigit() else None for end in (first, last)]
        found.stage_layers = _ends(found, layers, *ends)
    elif layers and found.pp > 1 and not any(at.get(name[2:]) is not None for name in UNEVEN):
        chunks = found.pp * (found.vpp if per_stage is None else 1)
        if layers % chunks and found.kind == "megatron" and found.software == "megatron-core":
            found.wrong.append(
                f"{layers} layers do not divide into {chunks} stages, and no split is said: "
                "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or "
                "--pipeline-model-parallel-layout"
            )
    listed = at.text("num-layer-list")  # of MindSpeed
    if re.fullmatch(r"\d+(,\d+)+", listed):
        found.stage_layers = tuple(map(int, listed.split(",")))
    if layout := at.get("pipeline-model-parallel-layout"):
        _put_layout(found, layout, layers)
    found.schedule = "interleaved" if found.vpp > 1 else "1f1b"


UNEVEN = tuple(_WORDS["uneven"])


def _put_layout(found: Found, layout: Any, layers: int | None) -> None:
    """Put the layers of each chunk: of a layout string, or of lists of the words of each chunk."""
    if isinstance(layout, list):
        chunks = [list(one).count("decoder") if isinstance(one, list) else 0 for one in layout]
    elif UNSET in layout:
        found.unread["stage_layers"] = layout.replace(UNSET, "")
        return
    else:
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


def _precision(at: Nested, usual: str) -> None:
    """Format of the products: by flags, or by the name of a record of Bridge or NeMo."""
    found, word = at.found, at.text("precision", "mixed-precision")
    half = at.true("fp16") or word.startswith(("16", "fp16"))
    found.precision = "fp16" if half else "bf16" if at.true("bf16") else usual
    narrow = at.true("fp8-format") or at.true("fp8") or "fp8" in word
    if narrow:
        mx = "mx" in word + at.text("fp8-recipe")
        found.precision = "mxfp8" if mx else "fp8"
    if at.true("fp4-format"):
        found.precision = "nvfp4"
        if narrow:
            found.wrong.append("--fp8-format and --fp4-format exclude each other")
    if usual == "fp32" and found.precision in ("fp8", "mxfp8", "nvfp4"):
        found.settings.setdefault("fp8_param_gather", "off")


STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def _sharding(at: Nested, flags: bool) -> None:
    found = at.found
    found.zero_stage = int(at.true("use-distributed-optimizer", default=not flags))
    if at.true("use-megatron-fsdp", "use-custom-fsdp"):
        found.zero_stage = STAGES.get(at.text("data-parallel-sharding-strategy"), 3)
    if at.true("use-torch-fsdp2"):
        found.zero_stage = 3
    gathers = flags and at.true("overlap-param-gather")
    if gathers and found.zero_stage == 0:
        found.wrong.append("--overlap-param-gather needs --use-distributed-optimizer")
    if gathers and not at.true("overlap-grad-reduce"):
        found.wrong.append("--overlap-param-gather needs --overlap-grad-reduce")


def _deepspeed(at: Nested) -> None:
    """Megatron-DeepSpeed: the stage is an option or in the JSON beside; 1 is the default."""
    found = at.found
    at.put({"cp": "ds-sequence-parallel-size"})
    found.cp_kind = "ulysses" if found.cp > 1 else None
    if found.ep is None:
        at.put({"ep": "moe-expert-parallel-size"})
    stage = at.text("zero-stage")
    named = at.get("deepspeed_config") is not None and not stage
    found.zero_stage = None if named else int(stage) if stage.isdigit() else 1
    found.overlap_tp = found.overlap_dp = None


def _recompute(at: Nested, flags: bool) -> None:
    found, method = at.found, at.text("recompute-method")
    found.recompute = found.recompute if found.recompute not in (None, "null", "None") else "none"
    if flags and at.get("checkpoint-activations", "activations-checkpoint-method") is not None:
        found.recompute = "full"  # options until 2022
    elif found.recompute == "full":
        if flags and not method:
            found.wrong.append("--recompute-granularity full needs --recompute-method")
        if method == "block":
            layers = at.text("recompute-num-layers")
            found.recompute_layers = int(layers) if layers.isdigit() else None
    elif flags and found.recompute == "selective" and method:
        found.wrong.append("selective recomputation takes no --recompute-method")
