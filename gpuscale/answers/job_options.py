"""Options of what a run sets beside its layout, the same in `plan`, `memory` and `timeline`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gpuscale.answers.ask import PRETRAIN, TRAIN, Asked, Converted, Question, amount, text, whole
from gpuscale.core import settings
from gpuscale.core.records import dataclass, made_of
from gpuscale.errors import unknown_name

AS_IT_COMES = "[default: as the software comes]"


def _modules(value: Any, label: str) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    names = tuple(dict.fromkeys(str(part).strip() for part in parts))
    for name in names:
        if name not in settings.MODULES:
            raise unknown_name(
                "module", name, settings.MODULES, f"known: {', '.join(settings.MODULES)}"
            )
    return names


def _recipe(value: Any, label: str) -> str:
    from gpuscale.core.memory.parameters import RECIPES

    name = str(value).strip().lower()
    if name not in RECIPES:
        raise unknown_name("recipe", str(value), RECIPES, f"known: {', '.join(RECIPES)}")
    return name


STATES = "--optimizer says how states are kept: adamw-bf16, adamw-fp32, adamw-8bit, ..."
"""What fine-tuning has in the place of --recipe and --moments."""


def recipe(default: str) -> Asked[str | None]:
    """Bytes of the states, by the name of a recipe; `default` says what is taken without one."""
    names = (
        "mixed-adam (2+2+4+8), mixed-adam-fp32-grads, mixed-adam-nomaster, mixed-adam-8bit, "
        "mixed-sgd, bf16-adam (2+2+4), adam-8bit, sgd, fp32-adam, deepseek-v3 or book-min."
    )
    return Asked(
        f"Bytes per parameter of the states: {names} [default: {default}]",
        None,
        _recipe,
        tasks=("pretrain", "params"),
        instead=STATES,
    )


FUSED_LOSSES = dict.fromkeys(
    ("liger", "chunked_nll", "chunked-nll", "cce", "cut-ce", "cut-cross-entropy", "flce", "linear"),
    "fused",
)
"""What frameworks call a head whose logits are never whole -> its name here."""


def moments() -> Asked[str | None]:
    """Field of the format of the optimizer's moments."""
    told = f"Format of the optimizer's moments: {', '.join(settings.MOMENT_BYTES)}. {AS_IT_COMES}"
    return text(told, known=tuple(settings.MOMENT_BYTES), instead=STATES)


@dataclass(kw_only=True)
class KernelOptions(Question):
    """Kernels of a job; not given, those of the software."""

    GROUP: ClassVar[str] = "kernels"
    OF_TASKS: ClassVar[tuple[str, ...]] = TRAIN
    attention: Asked[str | None] = text(
        "Attention kernel: best (of the GPU), flash2, flash1 or eager. [default: the software's]",
        known=tuple(settings.ATTENTION),
        same=settings.ATTENTION_WORDS,
    )
    loss: Asked[str | None] = text(
        "Cross entropy: eager (whole logits), chunked or fused. [default: the software's]",
        known=tuple(settings.LOSSES),
        same=FUSED_LOSSES,
    )


@dataclass(kw_only=True)
class JobOptions(KernelOptions):
    """What experts set in a launch file; not given, it is as the software comes."""

    GROUP: ClassVar[str] = "kernels"
    OF_TASKS: ClassVar[tuple[str, ...]] = PRETRAIN
    cuda_graphs: Asked[str | None] = text(
        f"CUDA graphs: none, layer (parts of a layer) or full (the iteration). {AS_IT_COMES}",
        known=settings.GRAPHS,
    )
    dispatcher: Asked[str | None] = text(
        f"Exchange of the experts' tokens: alltoall, deepep or hybridep. {AS_IT_COMES}",
        known=tuple(settings.DISPATCHERS),
    )
    overlap_ep: Asked[str | None] = text(
        "The experts' exchange beside another micro-batch: on or off.", known=("on", "off")
    )
    moe_kernels: Asked[str | None] = text(
        f"Generation of the experts' kernels: {', '.join(settings.MOE_KERNELS)}. {AS_IT_COMES}",
        known=settings.MOE_KERNELS,
    )
    recompute_modules: Converted[tuple[str, ...] | None, str | Sequence[str]] = Converted(
        f"Modules that selective recompute repeats: {', '.join(settings.MODULES)}. "
        "[default: core_attn]",
        None,
        _modules,
    )
    offload_layers: Asked[int | None] = whole(
        "Layers of a stage whose activations wait on the host.", most=1e6
    )
    moments: Asked[str | None] = moments()
    gradients: Asked[str | None] = text(
        f"Format that gradients are kept and reduced in: fp32 or bf16. {AS_IT_COMES}",
        known=tuple(settings.GRADIENT_BYTES),
    )

    fp8_param_gather: Asked[str | None] = text(
        "Weights of 8- and 4-bit linears kept and gathered in that format alone: on or off "
        f"(16 bits beside it). {AS_IT_COMES}",
        known=("on", "off"),
    )
    recipe: Asked[str | None] = recipe("the software's")
    balance: Asked[float | None] = amount(
        "MoE: tokens of the busiest rank of experts over the mean; 1 is a forced balance. "
        "[default: 1 tuned, else as routers are]",
        "count",
        least=1,
        most=1e4,
        instead="experts are loaded as in measured fine-tuning runs",
    )
    bucket_params: Asked[int | None] = whole(
        f"Parameters of one call of the gradients' exchange, e.g. 200M. {AS_IT_COMES}"
    )
    maturity: Asked[str | None] = text(
        "tuned (somebody searched layout and kernels on this stack), as-it-comes or script (own "
        "training loop). [default: as jobs of the software are]",
        known=settings.MATURITIES,
        tasks=(*PRETRAIN, "tune"),
        instead="RL is fitted to steps as they come",
    )

    @property
    def job_settings(self) -> settings.JobSettings:
        """What is set, as one record."""
        return made_of(
            settings.JobSettings,
            self,
            overlap_ep=None if self.overlap_ep is None else self.overlap_ep == "on",
            fp8_param_gather=self.fp8_param_gather and self.fp8_param_gather == "on",
        )
