"""Training programs in Python: the model that is loaded, its adapters, the trainer's arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpuscale.core.records import dataclass, field
from gpuscale.io.text import Table
from gpuscale.launch.dialects.nested import nest
from gpuscale.launch.dialects.rows import precision_of
from gpuscale.launch.found import UNSET, Found, launch_table
from gpuscale.launch.read.kinds import of_table
from gpuscale.launch.read.program import says_the_job
from gpuscale.launch.read.program_text import Look, Program, nowhere, unwarned
from gpuscale.launch.read.recipes import read_recipe_script
from gpuscale.launch.read.rl import GRPO_KEYS
from gpuscale.launch.read.served_tables import read_servers
from gpuscale.launch.read.trainer import SWITCHES, TOLD, read_arguments, read_deepspeed


def read_python(
    text: str, given: Mapping[str, Any] = MappingProxyType({}), look: Look = nowhere
) -> Found | None:
    """Read a Python file; None where it says no job in constants.

    `given`: options that it is started with, and variables that a person gives, by name. `look`:
    finds the files that it imports and loads.
    """
    try:
        with unwarned():
            tree = ast.parse(text)
        program = Program(tree, given=given, look=look)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = _script(program)
    return found or _of_olmo_core(program) or read_recipe_script(tree) or read_servers(program)


def _of_olmo_core(program: Program) -> Found | None:
    """Job of OLMo-core, which its programs make of the framework's own classes."""
    table = {key: program.names.get(name) for name, key in SIZES.items()}
    for name, _, keys in program.calls:
        made, _, last = name.rpartition(".")
        if made == "TransformerConfig":
            table["model_factory"] = last
        for key, value in keys.items() if last in PARTS else ():
            if "(" not in str(value):  # a member of an enumeration is its word
                word = str(value).rpartition(".")[2] if UNSET in str(value) else value
                table[PARTS[last] + key] = word
    told = {key: value for key, value in program.given.items() if "." in key}
    return of_table(nest(table | told), "program")


PARTS: dict[str, str] = launch_table("words")["olmo_core"]["parts"]
SIZES: dict[str, str] = launch_table("words")["olmo_core"]["sizes"]


_WORDS = launch_table("words")["python"]
LOADED, TRL, MODEL_KEYS, PARSERS, LOADING, OF_OTHERS = (
    tuple(_WORDS[n]) for n in "loaded trl model_keys parsers loading of_others".split()
)
TRAINERS: dict[str, str] = _WORDS["trainers"]
OTHER_ADAPTERS = re.compile(_WORDS["other_adapters"], re.IGNORECASE)
OTHER_MODELS: list[tuple[str, str]] = _WORDS["other_models"]
NOT_MODELS = re.compile(r"(?i)tokeni|processor|config|peft|adapter|extractor|vae|unet|scheduler")
OTHER_TRAINERS = re.compile(r"^(KTO|Reward|PRM|GKD|PPO|XPO|NashMD|OnlineDPO|BCO|MiniLLM|GOLD)")
BITS = ("load_in_4bit", "load_in_8bit")
ARGUMENTS = {"per_device_train_batch_size", "output_dir", "num_train_epochs", "max_steps"}
NO_LM = "no language model"


@dataclass
class _Reading:
    """What the calls of a program say, as they are met."""

    table: Table = field(default_factory=dict)
    told: list[tuple[str, Table]] = field(default_factory=list)  # trainers' arguments
    trains: bool = False
    adapters: bool = False
    named: str = ""  # trainer
    beyond: str = ""
    loads: bool = False  # a language model
    scorer: Table = field(default_factory=dict)  # what loads a model of another kind

    def take(self, name: str, words: list[Any], said: Table) -> None:
        """Put what a call says on the table."""
        last, table = name.rsplit(".", 1)[-1], self.table
        if last == "from_pretrained" and _loads_a_model(name):
            self.loads = self.loads or "CausalLM" in name or "Fast" in name
            why = next((w for pattern, w in OTHER_MODELS if re.search(pattern, name)), "")
            _loaded(self.scorer if why == NO_LM else table, words, said)
            self.beyond = self.beyond or (f"{name}: {why}" if why else "")
        elif last == "from_pretrained" and re.search(r"(?i)peft", name):
            self.adapters = True  # an adapter that is trained on
        elif last == "BitsAndBytesConfig":
            bits: Table = {key: said[key] for key in BITS if key in said}
            if UNSET in str(bits.get("load_in_4bit")) and "bnb_4bit_quant_type" in said:
                bits["load_in_4bit"] = True
            table |= bits
        elif last == "from_pretrained" and said.get("is_trainable") is True:
            self.adapters = True
        elif last in ADAPTS:
            self.adapters = True
            table |= {"lora_r": said["r"]} if "r" in said else {}
            table |= {"use_dora": True} if said.get("use_dora") is True else {}
            if isinstance(maps := said.get("target_modules"), (str, list)):
                table["target_modules"] = maps
            if said.get(CHECKPOINTS) in (True, False, "unsloth"):
                table["gradient_checkpointing"] = said[CHECKPOINTS]
        elif OTHER_ADAPTERS.match(last):
            self.beyond = (
                self.beyond or f"{last}: adapters other than LoRA and DoRA are not predicted"
            )
        elif last in ("gradient_checkpointing_enable", "prepare_model_for_kbit_training"):
            table.setdefault("gradient_checkpointing", said.get(CHECKPOINTS, True))
        elif last.endswith(("TrainingArguments", "Config")) and (
            ARGUMENTS & set(said) or last in (*TRL, "TrainingArguments")
        ):
            self.told.append((last, {k: v for k, v in said.items() if not isinstance(v, list)}))
            _of_loading(table, said.get("model_init_kwargs"))
        elif re.search(r"^([A-Z]\w*)?Trainer(Patch\w*|V\d)?$", last):
            self.trains, self.named = True, last if _method_of(last) else self.named or last
            table |= {k: said[k] for k in ("max_seq_length",) if k in said}
            if isinstance(model := said.get("model"), str) and UNSET not in model:
                table.setdefault("model_name_or_path", model)
            table["rl"] = table.get("rl") or _method_of(last)
        elif "max_length" in said and ({"truncation", "padding"} & set(said)):
            table.setdefault("tokenized", said["max_length"])


ADAPTS = ("LoraConfig", "get_peft_model")


def _script(program: Program) -> Found | None:
    """Job of a script that trains with a trainer of Hugging Face."""
    read = _Reading()
    only_if: dict[str, str] = {}  # what a branch says whose test is not known -> the test
    for i, (name, words, keys) in enumerate(program.calls):
        if name not in program.plain:
            model, adapters = read.table.get("model_name_or_path"), read.adapters
            read.take(name, words, {key: value for key, value in keys.items() if value is not None})
            if (test := program.only_if.get(i)) and read.adapters and not adapters:
                only_if["adapters"] = test
            elif test in (None, f"not ({only_if.get('adapters')})") and name.endswith(ADAPTS):
                only_if.pop("adapters", None)  # without it too
            loaded = str(read.table.get("model_name_or_path") or UNSET)
            if test and loaded != model and UNSET not in loaded:
                only_if[f"the model {loaded}"] = test
    table, named = read.scorer | read.table, read.named
    others = any(module.split(".")[0] in OF_OTHERS for module in program.imports)
    if not read.told and (not read.trains or others):
        return None
    of_trainers = read.trains or any(n in TRL or n.endswith("Arguments") for n, _ in read.told)
    calls = {name.rsplit(".", 1)[-1] for name, _, _ in program.calls}
    if not of_trainers and {"backward", "step"} <= calls:  # a loop of its own
        return None
    told = next((one for one in read.told if _method_of(one[0])), (read.told or [("", {})])[-1])
    arguments = told[0]
    table |= {**told[1], "rl": _method_of(arguments) or table.get("rl")}
    parsed = not calls.isdisjoint(PARSERS)
    if parsed:
        fields = {k: v for k, v in program.options.items() if k in TOLD and v is not None}
        table = {**fields, **table}
        table |= {k: v for k, v in program.given.items() if k not in ("rl", "config")}
    own = not table.get("rl") and re.search(r"[A-Z]PO", named) is not None
    if own or OTHER_TRAINERS.match(named):  # its arguments are like those of GRPO, its loss is not
        own = True
        table = {k: v for k, v in table.items() if k not in GRPO_KEYS}
    if arguments in TRL and not parsed:
        table.setdefault("gradient_checkpointing", True)
        table.setdefault("bf16", not table.get("fp16"))
    found = _found(program, table, read.adapters, parsed)
    found.notes += [f"{what} only if {test}; taken" for what, test in only_if.items()]
    found.beyond += [f"{named}: its loss and further models are not predicted"] if own else []
    scores = read.beyond.endswith(NO_LM) and (read.loads or found.rl)  # a model that gives rewards
    found.beyond += [read.beyond] if read.beyond and not scores else []
    if any(table.get(key) is True for key in BITS) and not (read.adapters or parsed or found.rl):
        found.beyond.append("quantised weights without adapters: transformers does not train them")
    if any(_method_of(name) != _method_of(arguments) for name, _ in read.told):
        found.notes.append(f"one of several trainings: {arguments} is read")
    return found


def _loads_a_model(call: str) -> bool:
    """Whether a call `X.from_pretrained` loads the model that is trained."""
    of = call.rpartition(".")[0]
    return any(part in of for part in LOADED) or ("odel" in of and not NOT_MODELS.search(of))


CHECKPOINTS = "use_gradient_checkpointing"


def _method_of(name: str) -> str:
    return next((m for n, m in TRAINERS.items() if name.startswith(n)), "")


def _loaded(table: Table, words: list[Any], said: Table) -> None:
    """Put what the loading of a model says; the first that is loaded is trained."""
    first = words[0] if words and isinstance(words[0], str) else None
    model = next((said[k] for k in MODEL_KEYS if k in said), first)
    before = table.get("model_name_or_path")
    if model and (not before or (UNSET in str(before) and UNSET not in str(model))):
        table["model_name_or_path"] = model
    _of_loading(table, said)


def _of_loading(table: Table, said: Any) -> None:
    for key in LOADING if isinstance(said, dict) else ():
        if said.get(key) is not None and UNSET not in str(said[key]):
            table.setdefault(key, said[key])


LENGTHS = ("max_seq_length", "max_length", "model_max_length", "cutoff_len", "max_seq_len")
LONGEST = r"max_?(seq(uence)?_?)?(len(gth)?|tokens)|cutoff(_len)?|(block|ctx)_size"
"""Names of a program's own that mean the longest sequence."""
MODEL = r"(base_?|hf_?|llm_?)?(model|checkpoint)(_?(name|id|path))*(_or_path)?|pretrained_model\w*"
"""Names of a program's own that mean the model that it trains."""


def _own(program: Program, called: str, meant: Callable[[Any], bool]) -> tuple[str, Any] | None:
    """Name and value of what a program calls so, of a value that can mean it."""
    pattern = re.compile(called, re.IGNORECASE)
    named = (*program.names.items(), *program.options.items())
    return next(((name, v) for name, v in named if meant(v) and pattern.fullmatch(name)), None)


def _is_hub_name(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.-]+/[\w.-]*\d[\w.-]*", value) is not None


def _found(program: Program, table: Table, adapters: bool, parsed: bool) -> Found:
    unsloth = any(module.split(".")[0] == "unsloth" for module in program.imports)
    if unsloth:
        table["vllm_mode"] = "colocate"
    if unsloth and adapters:
        table.setdefault("load_in_4bit", True)  # its own default (FastLanguageModel)
        table.setdefault("gradient_checkpointing", True)
    files = [path for path in program.beside if says_the_job(path, "")]
    if not parsed and "batch_size" not in table:  # the trainer's own default, where all is read
        unknown = UNSET + "in a file that is not here" if files else 8
        table.setdefault("per_device_train_batch_size", table.get("**", unknown))
    if UNSET in str(table.get("deepspeed")):
        del table["deepspeed"]
    told = any(table.get(key) for key in LENGTHS)
    lengths = range(16, 10**7 + 1)
    own = None
    if not told and isinstance(table.get("tokenized"), int):
        table["max_length"] = table["tokenized"]
    elif not told and not table.get("rl") and (own := _own(program, LONGEST, lengths.__contains__)):
        table["max_length"] = int(own[1])
    if not table.get("model_name_or_path") and (model := _own(program, MODEL, _is_hub_name)):
        table["model_name_or_path"] = model[1]
    if not (parsed and set(SWITCHES) & set(table)):
        table["use_lora"] = adapters
    sections = table.get("deepspeed")
    found = read_arguments(table, "trainer", "")
    if own:
        found.places["seq_len"] = f"{own[0]} = {own[1]}"
        found.notes.append(f"sequences of {own[1]:,} tokens, by the name {own[0]}")
    if isinstance(sections, dict):
        read_deepspeed(sections, found)
    if unsloth:
        found.kind = found.software = "unsloth"
        found.places.pop("recompute", None)  # its own key says it
        found.offload_activations = table.get("gradient_checkpointing") == "unsloth"
        found.n_gpus = 1
    devices = program.environment.get("CUDA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"\d+(,\s*\d+)*", devices):
        found.n_gpus = len(devices.split(","))
    if adapters and found.lora_rank is None and "lora_rank" not in found.unread:
        found.lora_rank = 16 if unsloth else 8
    word = str(table.get("dtype") or table.get("torch_dtype") or "")
    found.precision = found.precision or precision_of(word)
    found.defaults = parsed
    if set(found.unread) - {"model", "layout"} or UNSET in str(table.get("model_name_or_path")):
        found.beside += files
    if parsed and not found.model_name and not found.unread.get("model"):
        found.unread["model"] = "what its command line or YAML names"
    return found
