#!/usr/bin/env python3
"""Ask frameworks of fine-tuning and RL whether they take the launches that `launch` writes.

Draw:     python tools/judges/judge_tuning.py --draw 40 > jobs.json        (with gpuscale)
Judge:    python tools/judges/judge_tuning.py jobs.json                    (with the frameworks)
Install:  pip install torch transformers trl peft accelerate datasets omegaconf hydra-core litgpt
          "jsonargparse[signatures]" numpy pillow jsonschema addict json_repair pylatexenc einops,
          and without what they need llamafactory axolotl ms-swift openrlhf verl oumi torchtune
          (CPU torch is enough; tried with the versions that their files in presets/framework name)

Each launch goes through the framework's own parser or configuration class: what `trl sft` parses,
`HfArgumentParser` over LLaMA-Factory's and ms-swift's dataclasses, Axolotl's pydantic schema,
OpenRLHF's and LitGPT's command lines, verl's Hydra configuration, oumi's
structured one, torchtune's components with their arguments. What runs a model or asks a hub is
left out; modules that are not installed are stood in for by empty ones. Prints a line a framework,
taken of written, with the reasons of what is refused; exits 1 if one is, 2 if none can be judged.
"""

import argparse
import collections
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import os
import random
import re
import runpy
import sys
import tempfile
import types

TRAINED = {
    "trl": "trl", "llama-factory": "llama-factory", "axolotl": "axolotl", "ms-swift": "ms-swift",
    "megatron-swift": "megatron-swift", "openrlhf": "openrlhf", "verl": "verl", "oumi": "hf-peft",
    "litgpt": "litgpt", "torchtune": "torchtune",
}  # fmt: skip
"""Framework -> software of the jobs that are drawn for it."""
RL = ("trl", "openrlhf", "verl")
OVER_MEGATRON = ("megatron-swift",)


def drawn(n: int, seed: int):
    """Draw launches of random jobs of each framework: its name, its files, its command."""
    from gpuscale import memory
    from gpuscale.answers.saved import launch_of
    from gpuscale.errors import GpuscaleError
    from gpuscale.launch.dialects.write import writes
    from gpuscale.launch.found import written_frameworks

    pick = random.Random(seed).choice
    for framework, software in TRAINED.items():
        if framework not in written_frameworks():
            continue
        made = tries = 0
        while made < n and tries < 20 * n:
            tries += 1
            rl = framework in RL and (framework == "verl" or pick((True, False)))
            methods = ("grpo", "dpo", "rloo", "ppo") if rl else ("full", "lora", "qlora", "dora")
            gpus = pick((1, 2, 8, 16))
            asked = {
                "model": pick(("llama3-8b", "qwen2.5-7b", "mistral-7b")),
                "software": software, "method": pick(methods), "gpus": gpus, "gpu": "h100-sxm",
                "micro_batch": pick((1, 2, 4)), "recompute": pick(("none", "full")),
                "offload": pick((None, None, "optimizer", "parameters,optimizer")),
            }  # fmt: skip
            if rl:
                asked |= {"prompts": pick((16, 128))}
                online = {"prompt": pick((512, 1024)), "max_response": pick((1024, 4096))}
                asked |= {"seq_len": 2048} if asked["method"] == "dpo" else online
            else:
                asked |= {"seq_len": pick((512, 4096, 8192)), "accumulation": pick((1, 2, 8))}
                asked |= {"loss": pick((None, "eager", "fused")), "zero": pick((None, 2, 3))}
                asked |= {"optimizer": pick((None, "adamw", "paged-adamw-8bit"))}
                if asked["method"] != "full":
                    asked |= {"rank": pick((8, 64)), "targets": pick((("all-linear",), ("q", "v")))}
                    asked |= {"base": pick((None, None, "nf4", "int8"))}
            if framework in OVER_MEGATRON:
                asked |= {"tp": pick((1, 2)), "pp": pick((1, 2))}
            try:
                job = launch_of(json.loads(json.dumps(memory(**asked).to_dict()["job"])))
                written = writes(job, framework)
            except GpuscaleError:
                continue
            made += 1
            files = {one.name: one.text for one in written.files}
            yield {"framework": framework, "files": files, "words": written.train, "gpus": gpus}


class Anything:
    """What is asked of a module that is not here: it is called, derived from, asked for more."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *words, **_):
        """Give what it decorates, or more of the same."""
        return words[0] if words and callable(words[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases):
        return (object,)

    def __getitem__(self, _):
        return object

    def __or__(self, _):
        return object

    __ror__ = __or__


class Empty(types.ModuleType):
    """A module that is not installed."""

    __version__ = "9.9.9"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        kind = type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
        return kind if name[:1].isupper() else Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for modules that nothing else finds, once a framework is imported."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        """Find what is stood in for."""
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Make an empty module."""
        return Empty(spec.name)

    def exec_module(self, module):
        """Let it have modules of its own."""
        module.__path__ = []


ABSENT = {
    "openrlhf": ("deepspeed", "ray", "vllm", "flash_attn", "ring_flash_attn", "torchdata"),
    "megatron-swift": ("megatron", "mcore_bridge", "transformer_engine"),
    "torchtune": ("torchao", "torchdata", "bitsandbytes"),
    "axolotl": ("axolotl_contribs_lgpl", "axolotl_contribs_mit"),
}
"""Framework -> packages that its parser imports and does not need."""


def stand_in(framework):
    """Let imports of packages that are not here succeed."""
    for name in ABSENT.get(framework, ()):
        if name == "megatron" or importlib.util.find_spec(name) is None:
            sys.meta_path.insert(0, Finder((name,)))


def words_after(job, word):
    """Words of a command behind one."""
    words = job["words"]
    return words[next(i for i, w in enumerate(words) if w.endswith(word)) + 1 :]


def table_of(job, name=""):
    """Table of a YAML that is written; the first where none is named."""
    import yaml

    text = job["files"][name] if name else next(iter(job["files"].values()))
    return yaml.safe_load(text)


def trl(job):
    """`trl sft`, `dpo`, `grpo` ...: its parser over its dataclasses."""
    import trl.scripts.utils as utils
    from trl import DPOConfig, GRPOConfig, ModelConfig, RLOOConfig, ScriptArguments, SFTConfig

    kinds = {"sft": SFTConfig, "dpo": DPOConfig, "grpo": GRPOConfig, "rloo": RLOOConfig}
    words = job["words"]
    at = next(
        i
        for i, w in enumerate(words)
        if re.fullmatch(r"(trl\.scripts\.)?(sft|dpo|grpo|rloo)(\.py)?", w)
    )
    kind = re.search("sft|dpo|grpo|rloo", words[at])[0]
    module = importlib.import_module(f"trl.scripts.{kind}")
    own = [k for n, k in vars(module).items() if n.endswith("ScriptArguments")]
    script = own[-1] if own else ScriptArguments
    parser = utils.TrlParser((script, only_fields(kinds[kind]), ModelConfig))
    parser.parse_args_and_config(args=words[at + 1 :])


def only_fields(kind):
    """Class whose fields are parsed, with the checks of a class that need no GPU left out."""
    kind.__post_init__ = lambda self: None
    return kind


def llama_factory(job):
    """Its dataclasses, each with its own checks but the trainer's, which look for a GPU."""
    from llamafactory.hparams import parser as own
    from transformers import HfArgumentParser

    kinds = [only_fields(k) if k.__name__ == "TrainingArguments" else k for k in own._TRAIN_ARGS]
    HfArgumentParser(kinds).parse_dict(table_of(job, "train.yaml"), allow_extra_keys=False)


def axolotl(job):
    """Check a YAML by the schema of its command; a key that it does not have is refused."""
    from axolotl.utils.schemas.config import AxolotlInputConfig

    table = table_of(job)
    AxolotlInputConfig(**table)
    known = set(AxolotlInputConfig.model_fields)
    if "axolotl.integrations.liger.LigerPlugin" in table.get("plugins", ()):
        from axolotl.integrations.liger.args import LigerArgs

        known |= set(LigerArgs.model_fields)
    unknown = set(table) - known
    assert not unknown, f"unknown keys {sorted(unknown)}"


def swift(job):
    """Words of `swift sft` and `megatron sft` over its dataclasses."""
    from transformers import HfArgumentParser

    megatron = any("_megatron" in w for w in job["words"])
    if megatron:
        from swift.megatron.arguments import MegatronSftArguments as Kind
    else:
        from swift.arguments import SftArguments as Kind
    at = next(i for i, w in enumerate(job["words"]) if w.startswith("swift.cli"))
    HfArgumentParser([only_fields(Kind)]).parse_args_into_dataclasses(job["words"][at + 1 :])


class Parsed(Exception):
    """A command line was parsed."""


def openrlhf(job):
    """Its programs up to where they have parsed their words."""
    at = job["words"].index("-m") + 1
    parse = argparse.ArgumentParser.parse_args

    def parsed(self, *words):
        parse(self, *words)
        raise Parsed

    argparse.ArgumentParser.parse_args, sys.argv = parsed, ["x", *job["words"][at + 1 :]]
    try:
        runpy.run_module(job["words"][at], run_name="__main__")
    except Parsed:
        pass
    finally:
        argparse.ArgumentParser.parse_args = parse


def verl(job):
    """Its Hydra configuration with the overrides; a key that it does not have is refused."""
    import hydra

    folder = os.path.join(
        os.path.dirname(importlib.util.find_spec("verl").origin), "trainer/config"
    )
    with hydra.initialize_config_dir(folder, version_base=None):
        hydra.compose("ppo_trainer", overrides=words_after(job, "main_ppo"))


def oumi(job):
    """Its structured configuration and its own checks."""
    from oumi.core.configs import TrainingConfig

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(next(iter(job["files"].values())))
        file.flush()
        TrainingConfig.from_yaml(file.name)


def litgpt(job):
    """Its command line by jsonargparse, with the functions of its commands."""
    from jsonargparse import ActionConfigFile, ArgumentParser
    from litgpt.finetune import full, lora

    words = words_after(job, "litgpt")
    setup = {"finetune_full": full.setup, "finetune_lora": lora.setup}[words[0]]
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action=ActionConfigFile)
    parser.add_function_arguments(setup, as_positional=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.makedirs(table_of(job)["checkpoint_dir"])
        with open("litgpt.yaml", "w") as file:
            file.write(job["files"]["litgpt.yaml"])
        parser.parse_args(words[1:])


def torchtune(job):
    """Its components: each is there and has the arguments that are said; keys of its recipe."""
    from torchtune.config._utils import _get_component_from_path

    def check(table):
        for value in table.values():
            if isinstance(value, dict):
                check(value)
        if path := table.get("_component_"):
            said = {k: v for k, v in table.items() if k != "_component_"}
            takes = inspect.signature(_get_component_from_path(path)).parameters
            open_ended = any(p.kind is p.VAR_KEYWORD for p in takes.values())
            assert open_ended or set(said) <= set(takes), f"{path}: {set(said) - set(takes)}"

    check(table_of(job))


JUDGES = {
    "trl": trl, "llama-factory": llama_factory, "axolotl": axolotl, "ms-swift": swift,
    "megatron-swift": swift, "openrlhf": openrlhf, "verl": verl, "oumi": oumi, "litgpt": litgpt,
    "torchtune": torchtune,
}  # fmt: skip


def judged(job) -> str:
    """Empty where a launch is taken, else why not; ImportError where it cannot be judged."""
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            JUDGES[job["framework"]](job)
    except ImportError:
        raise
    except SystemExit:
        return " ".join(noise.getvalue().split())[-300:]
    except Exception as error:
        if os.environ.get("JUDGE_TRACE"):
            raise
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def main() -> int:
    """Draw or judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("jobs", nargs="?", help="what --draw wrote")
    parser.add_argument("--draw", type=int, help="launches of each framework")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one framework")
    asked = parser.parse_args()
    os.environ["DISABLE_VERSION_CHECK"] = "1"  # LLaMA-Factory's, of other packages
    if asked.draw:
        print(json.dumps(list(drawn(asked.draw, asked.seed))))
        return 0
    taken, every = collections.Counter(), collections.Counter()
    reasons: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    with open(asked.jobs) as file:
        jobs = [one for one in json.load(file) if asked.only in (None, one["framework"])]
    for job in jobs:
        name = job["framework"]
        if reasons[name]["cannot judge"]:
            continue
        every[name] += 1
        if every[name] == 1:
            stand_in(name)
        try:
            why = judged(job)
        except ImportError as error:
            reasons[name]["cannot judge"] += 1
            reasons[name][str(error)[:200]] += 1
            continue
        taken[name] += not why
        if why:
            reasons[name][why] += 1
    for name, n in every.items():
        if reasons[name]["cannot judge"]:
            print(f"{name}: cannot be judged: {list(reasons[name])[-1]}")
            continue
        print(f"{name}: {taken[name]} of {n} taken")
        for why, times in reasons[name].most_common(5):
            print(f"    {times} x {why}")
    judgeable = [name for name in every if not reasons[name]["cannot judge"]]
    return 2 if not judgeable else int(any(taken[n] < every[n] for n in judgeable))


if __name__ == "__main__":
    sys.exit(main())
