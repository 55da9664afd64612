#!/usr/bin/env python3
"""Ask accelerate's own launcher whether it takes a config YAML, on a CPU.

Install:  pip install torch accelerate          (CPU torch is enough; tried with accelerate 1.15.0)
          and deepspeed, to judge a `distributed_type: DEEPSPEED` file
Use:      python judge_accelerate.py config.yaml --world-size 64

Walks `accelerate launch --config_file`: reads the file, merges it with the flags, builds the
environment of the workers, and from that environment the FSDP plugin and the ParallelismConfig
as a worker would. Prints `OK {facts}` and exits 0, or `REJECT: reason` and exits 1; 2 when it
cannot judge. Keys of nested sections that no flag of `accelerate launch` knows are ignored by it;
they are listed as `ignored` (with --strict they are a rejection).
"""

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from types import SimpleNamespace

NESTED = (
    "fsdp_config",
    "fp8_config",
    "dynamo_config",
    "parallelism_config",
    "deepspeed_config",
    "megatron_lm_config",
)


def deepspeed_takes(raw: dict, ranks: int) -> None:
    """Give the resulting DeepSpeed configuration to DeepSpeed, what the trainer fills in as 1."""
    import copy

    import deepspeed.runtime.config as config

    filled = copy.deepcopy(raw)
    if filled.get("train_micro_batch_size_per_gpu") == "auto":
        filled["train_micro_batch_size_per_gpu"] = 1
    filled = {key: value for key, value in filled.items() if value != "auto"}
    for section in filled.values():
        if isinstance(section, dict):
            for key in [key for key, value in section.items() if value == "auto"]:
                del section[key]
    config.dist.get_rank = lambda group=None: 0
    config.dist.get_world_size = lambda group=None: ranks
    config.DeepSpeedConfig(filled)


def judge(path: str, world_size: int) -> dict:
    import accelerate
    import accelerate.utils.dataclasses as dataclasses
    import accelerate.utils.launch as launch
    import torch
    import yaml
    from accelerate import ParallelismConfig
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    with open(path) as handle:
        raw = yaml.safe_load(handle)
    parser = launch_command_parser()
    known = set(vars(parser.parse_args(["train.py"])))
    ignored = []
    for section in NESTED:
        for key in raw.get(section) or {}:
            prefix = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}.get(
                section, ""
            )
            name = key if key.startswith(prefix) else prefix + key
            if name not in known:
                ignored.append(f"{section}.{key}")
    args = parser.parse_args(["--config_file", path, "train.py"])
    args, defaults, from_file = _validate_launch_command(args)
    if args.num_processes != world_size:
        raise ValueError(f"num_processes is {args.num_processes}, the plan has {world_size} ranks")
    if args.num_machines and args.num_processes % args.num_machines:
        raise ValueError(
            f"num_processes {args.num_processes} is no multiple of num_machines {args.num_machines}"
        )
    before = dict(os.environ)
    if args.use_deepspeed:  # as launch_command does
        fields = list(defaults.deepspeed_config) + (["mixed_precision"] if from_file else [])
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, env = launch.prepare_deepspeed_cmd_env(args)
    elif args.num_processes > 1:
        env = launch.prepare_multi_gpu_env(args)
    else:
        _, env = launch.prepare_simple_launcher_cmd_env(args)
    new = {key: value for key, value in env.items() if before.get(key) != value}
    os.environ.update(new)
    facts = {
        "accelerate": accelerate.__version__,
        "processes": args.num_processes,
        "machines": args.num_machines,
        "mixed_precision": new.get("ACCELERATE_MIXED_PRECISION", args.mixed_precision),
    }
    is_fsdp2 = False
    if args.use_fsdp:
        # FSDP 1 asks for the worker's GPU when it synchronises states: there is none here.
        dataclasses.is_cuda_available = lambda *_, **__: True
        torch.cuda.current_device = lambda: 0
        plugin = FullyShardedDataParallelPlugin()
        is_fsdp2 = plugin.fsdp_version == 2
        facts["fsdp_version"] = plugin.fsdp_version
        facts["reshard_after_forward"] = str(plugin.reshard_after_forward)
        facts["activation_checkpointing"] = bool(plugin.activation_checkpointing)
    if args.use_deepspeed:
        plugin = DeepSpeedPlugin()
        deepspeed_takes(plugin.deepspeed_config, world_size)
        facts["zero_stage"] = plugin.zero_stage
        facts["accumulation"] = plugin.gradient_accumulation_steps
        facts["deepspeed_config_file"] = new.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
    if getattr(args, "use_parallelism_config", False):
        config = ParallelismConfig()
        stub = SimpleNamespace(
            multi_device=world_size > 1,
            num_processes=world_size,
            is_fsdp2=is_fsdp2,
            distributed_type=None,
            state=None,
        )
        config._validate_accelerator(stub)
        facts["dp_replicate"] = config.dp_replicate_size
        facts["dp_shard"] = config.dp_shard_size
        facts["tp"] = config.tp_size
        facts["cp"] = config.cp_size
        facts["sp"] = config.sp_size
    facts["ignored"] = ignored
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        import accelerate  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        print(f"CANNOT JUDGE: {error}", file=sys.stderr)
        return 2
    try:
        with redirect_stdout(open(os.devnull, "w")):
            facts = judge(args.file, args.world_size)
    except ImportError as error:
        print(f"CANNOT JUDGE: {error}", file=sys.stderr)
        return 2
    except (Exception, SystemExit) as error:
        print(f"REJECT: {type(error).__name__}: {' '.join(str(error).split())[:600]}")
        return 1
    if facts["ignored"] and args.strict:
        print(f"REJECT: keys that accelerate ignores: {', '.join(facts['ignored'])}")
        return 1
    print("OK", json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
