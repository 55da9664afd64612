"""From a layout of a plan to a launch: which framework, and all that it must be told."""

from __future__ import annotations

from gpuscale.core.layout import Layout
from gpuscale.errors import GpuscaleError
from gpuscale.launch import wrap
from gpuscale.launch.job import TrainingLaunch, Written
from gpuscale.launch.options import launch_table, written_frameworks
from gpuscale.specs.model import ModelSpec


def framework_of(job: TrainingLaunch, asked: str | None = None) -> str:
    """Framework of a plan's software, or the one asked for.

    Raises GpuscaleError if no file can be written for the software.
    """
    of_software = launch_table("words")["plan"]["of_software"]
    name = asked or of_software.get(job.software, job.software)
    if name not in (known := written_frameworks()):
        raise GpuscaleError(
            f"no launch file is written for {job.software}", f"--framework takes {', '.join(known)}"
        )
    return name


def chunk_layers(model: ModelSpec, stage_layers: tuple[int, ...], vpp: int) -> tuple[int, ...]:
    """Layers of each chunk in model order: all stages' first chunks, then their second.

    `model`: the model; its layers are dealt. `stage_layers`: layers of each pipeline stage; empty
    where there is one. `vpp`: chunks of a stage [1].
    """
    from gpuscale.core.stages import deal

    dealt = deal(stage_layers or (model.n_layers,), vpp)
    return tuple(len(stage[chunk]) for chunk in range(vpp) for stage in dealt)


def chunks_of(model: ModelSpec, layout: Layout, stage_layers: tuple[int, ...]) -> tuple[int, ...]:
    """Layers of each chunk of a layout: as it deals them, or dealt by its stages.

    `stage_layers`: layers of each pipeline stage; empty where all hold as many.
    """
    if layout.stage_layers and len(layout.stage_layers) == layout.pp * layout.vpp:
        return layout.stage_layers
    stages = stage_layers or (model.n_layers // layout.pp,) * layout.pp
    return chunk_layers(model, stages, layout.vpp)


def launch_script(job: TrainingLaunch, framework: str, wrapper: str) -> tuple[Written, str, str]:
    """Write a launch.

    `framework`: one of `written_frameworks`. `wrapper`: a key of `gpuscale.launch.wrap.WRAPPERS`.
    Returns: what the framework is told, the usual name of the file, and its text: one file that
    holds all others as here-documents.
    """
    from gpuscale.launch.dialects.write import writes

    written = writes(job, framework)
    name, text = wrap.script(job, written, wrapper)
    return written, name, text


def estimate_lines(
    layout: Layout, peak_bytes: float, step: tuple[float, float, float] | None
) -> tuple[str, ...]:
    """Say what to expect of a step, for the head of a file.

    `step`: seconds of it, and the bounds of the interval; None where they were not asked.
    """
    time = "" if step is None else "{:.3g} s a step (80 % of such estimates: {:.3g} to {:.3g}), "
    return (
        f"expected: {time.format(*step or ())}{peak_bytes / 1e9:.1f} GB on the fullest GPU",
        f"{layout.n_gpus} GPUs, {layout.n_micro_batches} micro-batches of "
        f"{layout.micro_batch_size} a step",
    )
