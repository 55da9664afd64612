"""Which framework a command starts, and its reader; of those that a file tells the rest too."""

from __future__ import annotations

import re

from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import Nested, dialect, nest
from gpuscale.launch.dialects.rows import known_keys, put
from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.launch.read import (
    containers,
    keyed,
    maxtext,
    megatron,
    program,
    recipes,
    rl,
    serving,
    torchtitan,
    trainer,
)
from gpuscale.launch.read.kinds import KINDS, of_table
from gpuscale.launch.read.rl import put_trainer
from gpuscale.launch.read.together import as_flags, key_values
from gpuscale.launch.read.trainer import read_arguments

TASKS = ("sft", "pt", "rlhf")
PROGRAM = re.compile(r"(^|/)swift[/.]cli[/.](_megatron[/.])?(sft|pt|rlhf)(\.py)?$")


def is_swift(words: list[str]) -> bool:
    """Whether a command trains with ms-swift."""
    return any(
        (w.rsplit("/", 1)[-1] in ("swift", "megatron") and after in TASKS) or PROGRAM.search(w)
        for w, after in zip(words, [*words[1:], ""], strict=True)
    )


def read(words: list[str], table: Table) -> Found:
    """Read a training command of ms-swift.

    `words`: the command. `table`: its options.
    """
    before = words[: words.index("--model") if "--model" in words else 4]
    if any(re.search(r"(^|/)megatron$|_megatron[/.]", word) for word in before):
        before = [re.sub(r".*[/.](pt)(\.py)?$", r"\1", word) for word in before]
        return _over_megatron(table, "pt" in before)
    named = (table.get(key) for key in ("tuner_type", "train_type", "sft_type"))
    kind = str(next(filter(None, named), "lora"))
    kind = "lora" if "lora" in kind and kind != "dora" else kind
    bits = {"quantization_bit": table["quant_bits"]} if "quant_bits" in table else {}
    renamed = {"model_name_or_path": table.get("model"), "finetuning_type": kind, **bits}
    found = read_arguments(table | renamed, "ms-swift", "")
    found.beside += [config] if isinstance(config := table.get("config"), str) else []
    found.version = "ms-swift"
    found.not_understood = [k for k in found.not_understood if k not in ("train_type", "sft_type")]
    if str(table.get("torch_dtype", "bfloat16")) == "bfloat16":
        found.precision = found.precision or "bf16"
    found.recompute = found.recompute or "full"
    if found.method == "lora" and found.lora_rank is None:
        found.lora_rank = 8
    zero = str(table.get("deepspeed", ""))
    if stage := re.match(r"(?:default-)?zero([0-3])", zero):
        found.zero_stage = int(stage[1])
        found.offload_optimizer = found.offload_parameters = "offload" in zero
    return found


def read_yaml(table: Table) -> Found:
    """Read a YAML of `--config`: the options of a command as keys."""
    named = {key: value for key, value in table.items() if value is not None}
    degrees = ("tensor_model_parallel_size", "expert_model_parallel_size", "global_batch_size")
    start = ["megatron" if any(key in named for key in degrees) else "swift", "sft"]
    return read(start, {k: str(v).lower() if v in (True, False) else v for k, v in named.items()})


SWIFT_USUAL = {"use_distributed_optimizer": True, "recompute_granularity": "selective"}
"""What Megatron-SWIFT does where nobody says (swift/megatron/arguments/megatron_args.py)."""


def _over_megatron(table: Table, pretrains: bool) -> Found:
    """Read flags of Megatron with underscores and values: `--sequence_parallel true`."""
    truths = {"true": True, "false": False}
    said = {key: truths.get(str(v).lower(), v) for key, v in table.items()}
    words = as_flags(SWIFT_USUAL | said)
    found = megatron.read(["pretrain_gpt.py", *words], str(table.get("model", "model")))
    found.kind = "ms-swift"
    found.version = "ms-swift over Megatron-Core"
    found.not_understood.clear()  # ms-swift's own options are no list of ours
    own = known_keys("ms-swift")
    found.asked = {key: value for key, value in found.asked.items() if key not in own}
    named = table.get("model") or re.sub(r"[-_]mcore\b.*$", "", str(table.get("load") or ""))
    found.model, found.model_name = None, None
    found.precision = None if found.precision == "fp32" else found.precision
    found.seq_len, found.method = None, "pretrain" if pretrains else "full"
    put(dialect("megatron-swift"), Nested(found, said | {"model": named or None}))
    found.precision = found.precision or "bf16"
    found.lora_rank = found.lora_rank or 8 if found.method == "lora" else None
    found.beside += [config] if isinstance(config := table.get("config"), str) else []
    put_trainer(table, found)
    return found


_WORDS = launch_table("words")["commands"]
FRONTS: dict[str, tuple[str, list[str]]] = _WORDS["fronts"]
PROGRAMS: dict[str, str] = _WORDS["programs"]
USUAL: dict[str, dict[str, str]] = _WORDS["litgpt"]
LITGPT = {"lora": "finetune_lora", "full": "finetune_full", "adapter": "", "adapter_v2": ""}
"""Word behind `litgpt finetune`, as the first releases have it -> command."""
ENDINGS = (".yaml", ".yml", ".json", ".toml")

NO_TRAINING = "echo printf pip git cd export source sed cat cp mv ls mkdir chmod test grep".split()


def handed_over(words: list[str]) -> list[str]:
    """Command behind `--` that a program which submits jobs is given.

    >>> handed_over("python mason.py --gpus 8 -- torchrun --nproc_per_node=8 train.py".split())
    ['torchrun', '--nproc_per_node=8', 'train.py']
    """
    at = words.index("--") if "--" in words else 0
    submits = words[:3] == ["ray", "job", "submit"] or any(w.endswith(".py") for w in words[:at])
    if not submits or "".join(words[at + 1 : at + 2])[:1] in ("", "-"):
        return words
    return words[max(i for i, w in enumerate(words) if w in ("--", "&&")) + 1 :]


def command(words: list[str], stem: str) -> Found | None:
    """Read a command that trains or serves; None for any other."""
    if not words or words[0] in NO_TRAINING:
        return None
    if quoted := [w for w in words if "pretrain_" in w and " " in w and len(w) > 60]:
        return command(quoted[0].split(), stem)
    words = containers.started_by(words)
    if engine := serving.engine_of(words):
        return serving.read(words, engine)
    if torchtitan.is_torchtitan(words):
        return torchtitan.read_command(words)
    if rl.is_slime(words):
        return rl.read_slime(megatron.read(["train.py", *words], stem), program.options_in(words))
    if megatron.is_megatron(words):
        return megatron.read(words, stem)
    if any(re.search(r"(run_(recipe|script)|setup_experiment)\.py$", w) for w in words):
        return recipes.read_recipe(words)
    if recipes.is_nemo(words):
        return recipes.read_nemo(words)
    if (found := started(words)) is not None:
        return found
    if any(w.lstrip("+").startswith("trainer.policy.model.path=") for w in words):
        return of_table(nest(key_values(words)), "rl")
    if any("train_module.rank_microbatch_size=" in w for w in words):
        said = overrides(words)
        if "model_factory" in said:
            return KINDS["olmo-core"].found(nest(said))
        own = [w for w in words if w.endswith(".py")][:1]  # whose classes say the rest
        return Found(
            "olmo-core", software="pytorch", program="".join(own), beside=own, options=said
        )
    if keyed.is_verl(words):
        return keyed.read_verl_command(words)
    if maxtext.is_maxtext(words):
        return maxtext.read_command(words)
    table = program.options_in(words)
    if keyed.is_hydra(words):
        return keyed.read_hydra(words)
    if rl.is_openrlhf(words):
        return rl.read_openrlhf(words, table)
    if is_swift(words):
        return read(words, table)
    if trainer.is_command(table):
        return trainer.read_command(words, table)
    return None


def started(words: list[str]) -> Found | None:
    """Read a command whose job is a file: `llamafactory-cli train FILE`; None for any other."""
    names = ["primus-cli" if "primus/cli" in w else w.rsplit("/", 1)[-1] for w in words]
    at = next((i for i, name in enumerate(names) if name in FRONTS), None)
    if at is None:
        return _configured(words)
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


def _configured(words: list[str]) -> Found | None:
    """Read a command that starts a framework's program with a YAML and overrides."""
    if "litgpt" in words[:6]:
        return _litgpt(words[words.index("litgpt") + 1 :])
    kind = next((k for k, p in PROGRAMS.items() if any(re.search(p, w) for w in words)), "")
    named = [w.partition("=")[2] or w for w in words if w.endswith((".yaml", ".yml"))]
    if not named or (table := KINDS.get(kind)) is None:
        return None
    found = Found(kind, software=table.software, method=table.method)
    put(dialect(kind), Nested(found, nest(overrides(words))), whole=False)
    name = re.split("[/}]", named[0])[-1]
    found.beside.append(named[0] if UNSET not in name else "its YAML")
    return found


def overrides(words: list[str]) -> Table:
    """`--a.b=c`, `--a.b c` and `a.b=c` of a command, by their dotted keys.

    >>> overrides(["train.py", "x.yaml", "--train.lr", "1", "--model.n=2", "max_seq_len=8"])
    {'max_seq_len': '8', 'train.lr': '1', 'model.n': '2'}
    """
    return key_values(words) | program.options_in(words)


def _litgpt(words: list[str]) -> Found | None:
    """Read `litgpt finetune_lora CHECKPOINT --train.micro_batch_size 4`, with its defaults."""
    task, *rest = words or [""]
    if task == "finetune":
        task = LITGPT[rest.pop(0) if rest and rest[0] in LITGPT else "lora"]
    if task not in USUAL:
        return None
    said = overrides(rest)
    named = said.pop("config", None)
    first = rest[0] if rest and not rest[0].startswith("-") else ""
    model = {"model_name" if task == "pretrain" else "checkpoint_dir": first}
    usual = {} if named else USUAL[task]
    found = KINDS["litgpt"].found(nest(usual | (model if first else {}) | said))
    found.beside += [str(named)] if named else []
    return found
