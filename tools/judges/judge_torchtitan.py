#!/usr/bin/env python3
r"""Ask torchtitan itself whether it takes a set of overrides, on a CPU.

Install:  pip install torch torchtitan triton     (CPU torch is enough; tried with torchtitan 0.3.0)
Use:      python judge_torchtitan.py --world-size 64 -- --module llama3 --config llama3_8b \
              --parallelism.tensor_parallel_degree 4
      or  python judge_torchtitan.py --world-size 64 --file run.sh      (the arguments of the train
          command in a script, or a file with the arguments alone)

Parses with ConfigManager, builds the mesh on torch's fake process group, updates and builds the
model on the meta device, and makes the Trainer's own checks of batch, sequence and stages. Prints
`OK {facts}` and exits 0, or `REJECT: reason` and exits 1; 2 when it cannot judge.
"""

import argparse
import json
import math
import os
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout


def arguments_of(path: str) -> list[str]:
    """Arguments from `--module` on: of a shell script, or of a file that has nothing else."""
    text = open(path).read().replace("\\\n", " ")
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = shlex.split(text, comments=True)
    starts = [i for i, word in enumerate(words) if word.split("=")[0] in ("--module", "--config")]
    if not starts:
        raise ValueError(f"no --module or --config in {path}")
    keep, wants_value = [], False
    for word in words[starts[0] :]:
        if word.startswith("--"):
            keep.append(word)
            wants_value = "=" not in word
        elif wants_value or (keep and not re.search(r"[|;&<>]", word)):
            keep.append(word)
            wants_value = False
        else:
            break
    return keep


def judge(words: list[str], world_size: int) -> dict:
    os.environ.update(WORLD_SIZE=str(world_size), RANK="0", LOCAL_RANK="0", NGPU=str(world_size))
    from importlib.metadata import version

    import torch
    import torch.distributed as dist
    import torchtitan.components.quantization.float8 as float8
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims

    float8.has_cuda_capability = lambda *_: True  # the target's, not this machine's

    config = ConfigManager().parse_args(words)
    p, t = config.parallelism, config.training
    dims = ParallelDims.from_config(p, world_size)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    import torchtitan.distributed.parallel_dims as module

    module.device_type = "cpu"
    dims.build_mesh()
    divisor = (dims.tp if p.enable_sequence_parallel else 1) * (2 * dims.cp if dims.cp > 1 else 1)
    if t.seq_len % divisor:  # Trainer.__init__
        raise ValueError(f"sequence length {t.seq_len} must be a multiple of {divisor}")
    degree = dims.dp_replicate * dims.dp_shard
    batch = t.global_batch_size if t.global_batch_size > 0 else t.local_batch_size * degree
    if batch % (t.local_batch_size * degree):
        raise ValueError(f"global batch {batch} is no multiple of {t.local_batch_size} x {degree}")
    model_config = config.model_spec.model
    model_config.update_from_config(config=config)
    with torch.device("meta"):
        model = model_config.build()
    layers = getattr(model_config, "n_layers", None) or len(
        getattr(model_config, "layers", []) or []
    )
    facts = {
        "torchtitan": version("torchtitan"),
        "parameters": sum(x.numel() for x in model.parameters()),
        "layers": layers,
        "dp_replicate": dims.dp_replicate,
        "dp_shard": dims.dp_shard,
        "tp": dims.tp,
        "pp": dims.pp,
        "cp": dims.cp,
        "ep": dims.ep,
        "global_batch": batch,
        "local_batch": t.local_batch_size,
        "seq_len": t.seq_len,
        "accumulation": batch // (t.local_batch_size * degree),
    }
    if dims.pp > 1:  # distributed/pipeline_parallel.py, pipeline_llm
        size = getattr(p, "pipeline_parallel_microbatch_size", None)
        if size and t.local_batch_size % size:
            raise ValueError(
                f"local batch {t.local_batch_size} is no multiple of the micro-batch {size}"
            )
        facts["micro_batch"] = size
        facts["schedule"] = p.pipeline_parallel_schedule
        per_stage = getattr(p, "pipeline_parallel_layers_per_stage", None)
        first = getattr(p, "pipeline_parallel_first_stage_less_layers", 0)
        last = getattr(p, "pipeline_parallel_last_stage_less_layers", 0)
        from torch.distributed.pipelining.schedules import (
            PipelineScheduleSingle,
            get_schedule_class,
        )

        looped = not issubclass(
            get_schedule_class(p.pipeline_parallel_schedule), PipelineScheduleSingle
        )
        if per_stage and layers:
            stages = math.ceil((layers + first + last) / per_stage)
            if stages % dims.pp:
                raise ValueError(f"{stages} stages are no multiple of {dims.pp} ranks")
            if looped and stages // dims.pp < 2:
                raise ValueError("a looped schedule wants two stages or more of a rank")
            if not looped and stages // dims.pp != 1:
                raise ValueError("this schedule wants one stage of a rank")
            facts["stages"] = stages
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--file")
    parser.add_argument("words", nargs="*", help="after --: what comes after the train command")
    args = parser.parse_args()
    noise = tempfile.TemporaryFile("w+")  # some libraries want a real file
    try:
        words = arguments_of(args.file) if args.file else args.words
        with redirect_stdout(noise), redirect_stderr(noise):
            facts = judge(words, args.world_size)
    except ImportError as error:
        if "config_registry" in str(error):
            print(f"REJECT: {error}")
            return 1
        print(f"CANNOT JUDGE: {error}", file=sys.stderr)
        return 2
    except SystemExit:
        noise.seek(0)
        reason = re.sub(r"[│╭╮╰╯─]+", " ", noise.read())
        marks = (
            "Error parsing",
            "Parsing error",
            "Unrecognized",
            "Required options",
            "Value error",
        )
        reason = reason[max(0, *(reason.rfind(mark) for mark in marks)) :].split(
            "For full helptext"
        )[0]
        reason = re.sub(r"-{5,}", " ", reason)
        print(f"REJECT: {' '.join(reason.split())[:600] or 'the parser refused'}")
        return 1
    except (Exception, AssertionError) as error:
        print(f"REJECT: {type(error).__name__}: {' '.join(str(error).split())[:600]}")
        return 1
    print("OK", json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
