"""Python files read statically: values of assignments and arguments of calls, nothing is executed.

A configuration that is a Python file (InternEvo, XTuner) is a table of its assignments. A training
script of the Hugging Face kind says its job in the arguments of a few calls: the model that is
loaded, its adapters, the trainer's arguments.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from gpuscale.launch.read.found import Found
from gpuscale.launch.read.nested import precision_of
from gpuscale.launch.read.pretraining import PRETRAINING, of_table
from gpuscale.launch.read.rl import put_rl
from gpuscale.launch.read.trainer import read_arguments
from gpuscale.launch.read.tuning import TUNING

MOST_NODES = 200_000
MOST_VALUES = 100_000
MOST = 1e15


class Program:
    """Assignments and calls of a Python file, as far as they are constants."""

    def __init__(self, text: str) -> None:
        self.names: dict[str, Any] = {}
        self.options: dict[str, Any] = {}  # defaults of the command line's options
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.imports: set[str] = set()
        self.sizes: dict[int, tuple[int, Any]] = {}  # values of a nested one, kept with it
        for i, node in enumerate(_in_order(ast.parse(text))):
            if i > MOST_NODES:
                break
            self._look_at(node)

    def _look_at(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            self.imports |= {str(module)} if module else {a.name for a in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self.names[target.id] = self.value(node.value)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            words = [self.value(one) for one in node.args]
            keys = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
            if name.endswith("add_argument") and words and isinstance(words[0], str):
                self.options[words[0].lstrip("-").replace("-", "_")] = keys.get("default")
            self.calls.append((name, words, keys))

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Value of an expression; None where it is no constant."""
        if depth > 50:
            return None
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return self._bounded([self.value(one, depth + 1) for one in node.elts])
        if isinstance(node, ast.Dict):
            keys = [self.value(k, depth + 1) if k else None for k in node.keys]
            pairs = zip(keys, node.values, strict=True)
            said = {k: self.value(v, depth + 1) for k, v in pairs if isinstance(k, str)}
            return self._bounded(said)
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            option = self.options.get(node.attr)
            return option if option is not None else name if name.startswith("torch.") else None
        if isinstance(node, ast.Subscript):
            table, key = self.value(node.value, depth + 1), self.value(node.slice, depth + 1)
            return table.get(key) if isinstance(table, dict) and isinstance(key, str) else None
        if isinstance(node, ast.Call):
            return self._of_call(node, depth)
        return self._number(node, depth)

    def _of_call(self, node: ast.Call, depth: int) -> Any:
        """Value of `dict(...)`, of a cast, and of a variable of the environment: its default."""
        name = dotted(node.func)
        if name == "dict":
            said = {k.arg: self.value(k.value, depth + 1) for k in node.keywords if k.arg}
            return self._bounded(said)
        if name in ("int", "float", "str") and len(node.args) == 1:
            inner = self.value(node.args[0], depth + 1)
            try:
                return {"int": int, "float": float, "str": str}[name](inner)
            except (TypeError, ValueError, OverflowError):
                return None
        if name in ("os.environ.get", "os.getenv") and len(node.args) == 2:
            return self.value(node.args[1], depth + 1)
        return None

    def _bounded(self, value: Any) -> Any:
        """Give a list or a table; None for one that names others without measure."""
        inner = value.values() if isinstance(value, dict) else value
        size = 1 + sum(self.sizes.get(id(one), (1, None))[0] for one in inner)
        self.sizes[id(value)] = (size, value)
        return value if size <= MOST_VALUES else None

    def _number(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, (int, float)) else None
        if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
            return None
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if not all(isinstance(v, (int, float)) and abs(v) < MOST for v in (left, right)):
            return None
        if isinstance(node.op, ast.Pow) and abs(right) > 40:
            return None
        try:
            return _OPERATORS[type(node.op)](left, right)
        except (ZeroDivisionError, OverflowError):
            return None


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes in the order of the text, so that names are known where they are used."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(ast.iter_child_nodes(node)))


def dotted(node: ast.expr) -> str:
    """Name of a call as written: `FastModel.from_pretrained`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else ""])).strip(".")


def read_python(text: str) -> Found | None:
    """Read a Python file; None where it says no job in constants."""
    try:
        program = Program(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return of_table(program.names, (*PRETRAINING, *TUNING)) or _script(program)


LOADED = ("Fast", "AutoModel", "ForCausalLM", "AutoLiger")
TRAINERS = {"DPO": "dpo", "GRPO": "grpo", "ORPO": "orpo", "RLOO": "rloo", "CPO": "simpo"}
"""First letters of TRL's trainers and of their arguments -> method."""
MODEL_KEYS = ("model_name", "pretrained_model_name_or_path", "model_name_or_path")


def _script(program: Program) -> Found | None:
    """Job of a script that trains with a trainer of Hugging Face."""
    table: dict[str, Any] = {}
    trains = adapters = False
    for name, words, keys in program.calls:
        said = {key: value for key, value in keys.items() if value is not None}
        last = name.rsplit(".", 1)[-1]
        if last == "from_pretrained" and any(part in name for part in LOADED):
            first = words[0] if words and isinstance(words[0], str) else None
            model = next((said[k] for k in MODEL_KEYS if k in said), first)
            if model:  # the first that is loaded is trained, later ones try it out
                table.setdefault("model_name_or_path", model)
            fields = ("max_seq_length", "load_in_4bit", "load_in_8bit", "dtype", "torch_dtype")
            table = {key: said[key] for key in fields if key in said} | table
        elif last == "BitsAndBytesConfig":
            table |= {key: said[key] for key in ("load_in_4bit", "load_in_8bit") if key in said}
        elif last in ("LoraConfig", "get_peft_model"):
            adapters = True
            table |= {"lora_r": said["r"]} if "r" in said else {}
            table |= {"use_dora": True} if said.get("use_dora") else {}
            if said.get("use_gradient_checkpointing"):
                table["gradient_checkpointing"] = True
        elif last.endswith(("TrainingArguments", "Config")) and ARGUMENTS & set(keys):
            trains = True
            table |= {k: v for k, v in said.items() if not isinstance(v, (dict, list))}
            table.setdefault("rl", next((m for n, m in TRAINERS.items() if last.startswith(n)), ""))
        elif last.endswith("Trainer"):
            trains = True
            table |= {k: said[k] for k in ("max_seq_length",) if k in said}
            table["rl"] = table.get("rl") or next(
                (m for n, m in TRAINERS.items() if last.startswith(n)), ""
            )
    if not trains or not ({"model_name_or_path", "per_device_train_batch_size"} & set(table)):
        return None
    return _found(program, table, adapters)


ARGUMENTS = {"per_device_train_batch_size", "output_dir", "num_train_epochs", "max_steps"}


def _found(program: Program, table: dict[str, Any], adapters: bool) -> Found:
    unsloth = any(module.split(".")[0] == "unsloth" for module in program.imports)
    if unsloth and adapters:
        table.setdefault("load_in_4bit", True)  # its own default (FastLanguageModel)
        table.setdefault("gradient_checkpointing", True)
    table.setdefault("per_device_train_batch_size", 8)  # the trainer's own default
    table["use_lora"] = adapters
    method = table.pop("rl", "")
    found = read_arguments(table, "trainer", "")
    if unsloth:
        found.kind = found.software = "unsloth"
        found.n_gpus = 1
    if adapters and found.lora_rank is None:
        found.lora_rank = 16 if unsloth else 8
    word = str(table.get("dtype") or table.get("torch_dtype") or "")
    found.precision = found.precision or precision_of(word)
    if method and not found.rl:
        group = table.get("num_generations") or (8 if method == "grpo" else None)
        prompt, longest = table.get("max_prompt_length"), table.get("max_completion_length")
        rl = {"group": group, "prompt": prompt, "max_response": longest}
        put_rl(found, {"method": method} | (rl if method in ("grpo", "rloo") else {}))
    return found
