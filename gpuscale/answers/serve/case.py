"""From a question to candidates: model, machine, engines, formats, layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.answers.options import too_long
from gpuscale.answers.serve import reading
from gpuscale.core.formats import number_format
from gpuscale.core.records import dataclass, field, replace
from gpuscale.core.serving import layouts
from gpuscale.core.serving.capacity import Limits
from gpuscale.core.serving.choose import Candidate, Wanted
from gpuscale.core.serving.disaggregated import PooledService, decode_worker, prefill_worker
from gpuscale.core.serving.extras import Extras, Offload
from gpuscale.core.serving.loads import Demand
from gpuscale.core.serving.records import Replica, ServingSite, ServingSoftware
from gpuscale.core.serving.service import Service, Tuning
from gpuscale.errors import GpuscaleError

if TYPE_CHECKING:
    from gpuscale.answers.serve import Serve
    from gpuscale.core.serving.maturity import EngineMaturity
    from gpuscale.io.inputs import Loaded
    from gpuscale.specs.model import ModelSpec

GGUF_BESIDE = "q8_0"
"""What files of llama.cpp keep attention and head in beside mxfp4 experts (gpt-oss, GGUF)."""


@dataclass(frozen=True, slots=True)
class ServeCase:
    """What is served, on what, under which load."""

    loaded: Loaded
    engines: tuple[str, ...]
    weights: tuple[str, ...]
    kv: str | None  # None: as the engine does it
    demand: Demand
    limits: Limits
    sites: dict[str, ServingSite]
    notes: tuple[str, ...] = ()
    own_sites: Mapping[str, ServingSite] = field(default_factory=dict)  # as they come, if tight
    ages: Mapping[str, EngineMaturity] = field(
        default_factory=dict
    )  # engine -> how new the model is
    versions: Mapping[str, str] = field(default_factory=dict)  # engine -> version asked for
    borrowed: tuple[str, ...] = ()  # engines whose figures stand for another's

    @property
    def model(self) -> ModelSpec:
        """The model."""
        return self.loaded.model

    def cache_format(self, engine: str, weights: str) -> str:
        """Format of the cache: as asked, or the engine's own."""
        return self.kv or layouts.cache_format(engine, weights)

    def engine_of(self, shown: str) -> str:
        """Engine by the name that an answer shows."""
        return next((e for e in self.engines if reading.SHOWN.get(e, e) == shown), shown)


def case_of(asked: Serve) -> ServeCase:
    """Load what a question is about, and check what goes together."""
    from gpuscale.io.inputs import load_inputs
    from gpuscale.io.serving import load_words, matured, maturity_of, serving_site

    loaded = load_inputs(asked, cluster=asked.where, model=asked.model, catalogue=asked.catalogue)
    near = load_words()["nearest"]
    named_engines = {near.get(e, e).partition(":")[0]: e.partition(":")[2] for e in asked.engine}
    meant = next(iter(named_engines), "")
    named = tuple(dict.fromkeys(reading.stored(w, meant) for w in asked.weights))
    published = loaded.model.published_format
    engines = tuple(named_engines) or (usual_engine(named or (published,), loaded.gpu.vendor),)
    weights = named or (reading.own_format(published, engines),)
    own = [name for name in ("poll", "no_deepgemm", "no_deepep") if getattr(asked, name)]
    if own and set(named_engines) != {"sglang"}:
        name = own[0].replace("_", "-")
        raise GpuscaleError(f"--{name}: an option of SGLang", "give --engine sglang")
    notes = [f"{e} was not measured: figures are {near[e]}'s" for e in asked.engine if e in near]
    if loaded.model.vision_params:
        notes.append(
            "the time of its vision or audio tower is not counted; an image's tokens are, where "
            "--input has them"
        )
    for name in weights:
        if name in ("fp8", "fp8-block", "nvfp4", "mxfp4") and not loaded.gpu.flop_per_s(name):
            notes.append(
                f"{loaded.gpu.name} does not multiply {name}: weights are read in {name} and "
                "multiplied in 16 bits"
            )
    sites, ages = {}, {}
    for engine in engines:
        version = named_engines.get(engine, "")
        day = version.replace("nightly", "")
        site = serving_site(loaded.cluster, engine, asked.calibration, version=day)
        ages[engine] = maturity_of(loaded.model, engine, version)
        sites[engine] = matured(_set_by_hand(asked, loaded.model, site), ages[engine])
    context = float(asked.context or 0)
    demand = Demand(asked.prompts, asked.output_len, asked.prefix_hit, context, asked.cold)
    notes += too_long(context or demand.mean_context, loaded.model)
    return ServeCase(
        loaded=loaded,
        engines=engines,
        weights=weights,
        kv=asked.kv.replace("fp16", "bf16") if asked.kv else None,
        demand=demand,
        limits=Limits(asked.ttft, asked.tpot),
        sites=sites,
        notes=tuple(notes),
        ages=ages,
        versions=named_engines,
        borrowed=tuple(near[e] for e in asked.engine if e in near),
    )


def usual_engine(weights: tuple[str, ...], vendor: str) -> str:
    """Engine that runs there and reads such files: GGUF's and EXL2's mean is over a whole file."""
    gguf = all(number_format(w).edges != "bf16" for w in weights)
    return "llamacpp" if gguf or vendor == "Apple" else "vllm"


def _whole_prompts(soft: ServingSoftware, context: float) -> ServingSoftware:
    """Engine that reads a prompt in one pass, and keeps memory for the longest."""
    if context > soft.chunks_beyond:
        return replace(soft, mixed=True)
    tokens = max(soft.chunk_tokens if soft.mixed else LEAST_BATCHED, context)
    memory = replace(soft.memory, chunk_tokens=tokens, apart=True)
    return replace(soft, chunk_tokens=tokens, memory=memory)


LEAST_BATCHED = 2048.0
"""Tokens of a pass where the longest context is shorter (vLLM, `max_num_batched_tokens`)."""


def _set_by_hand(asked: Serve, model: ModelSpec, site: ServingSite) -> ServingSite:
    """Engine with the memory share, the chunk and the launches asked for, as limits allow."""
    from gpuscale.io.serving import load_words

    soft = site.software
    if soft.whole_prompts:
        promised = float(asked.context or model.max_position or 0)
        soft = _whole_prompts(soft, max(promised, asked.prompts.most + asked.output_len.most))
    if asked.memory_frac:
        soft = replace(soft, memory=replace(soft.memory, utilisation_frac=asked.memory_frac))
    if asked.chunk:
        soft = replace(soft, memory=replace(soft.memory, chunk_tokens=float(asked.chunk)))
    if asked.max_seqs:
        few = min(float(asked.max_seqs), soft.memory.sampler_sequences)
        soft = replace(soft, memory=replace(soft.memory, sampler_sequences=few))
    if asked.ttft:  # nobody lets prompts wait for each other where each has a limit
        soft = replace(soft, gather_passes=0)
    if load_words()["fused"].keys() & set(asked.engine):
        soft = replace(soft, adds_experts=False)
    if asked.draft and soft.serial_drafts:
        soft = replace(soft, serial_host=True)
    if (asked.no_deepgemm or soft.plain_blocks) and "fp8-block" in site.peaks:
        slower = site.peaks["fp8-block"] * site.kernels.plain_block_eff
        site = replace(site, peaks={**site.peaks, "fp8-block": slower})
    if asked.no_deepep:
        soft = replace(soft, joint_gpus=1 << 20)  # however many there are
    if asked.no_two_batches:
        soft = replace(soft, two_batches=False)
    if asked.eager:
        soft = replace(soft, launch_s=soft.eager_layer_s * model.n_layers)
    return replace(site, software=soft) if soft is not site.software else site


PCIE_BYTES_PER_S = 25e9
"""PCIe 4.0 x16 as it is reached, where a GPU does not say."""


def candidates(asked: Serve, case: ServeCase) -> list[Candidate]:
    """Everything that may be deployed: engines x formats x layouts, and pools where asked."""
    found: list[Candidate] = []
    drafts = reading.drafts(asked.draft, asked.accept)
    if asked.draft is not None and asked.draft.kind == "mtp" and not case.model.n_mtp_layers:
        raise GpuscaleError(
            f"--draft mtp: {case.model.name} has no layer for multi-token prediction",
            "give --draft eagle:N, a head trained beside the model",
        )
    refused = ""
    for engine in case.engines:
        for weights in case.weights:
            kv = case.cache_format(engine, weights)
            formats = replace(layouts.checkpoint_formats(case.model, weights, kv), drafts=drafts)
            if engine == "trtllm" and case.model.fp8_keeps_attention and weights == "fp8":
                formats = replace(formats, attention_format=weights)  # NVIDIA's own checkpoint
            if engine == "llamacpp" and weights in layouts.ATTENTION_KEPT:
                formats = replace(formats, attention_format=GGUF_BESIDE)
            shown = reading.SHOWN.get(engine, engine)
            if asked.disagg not in (None, "auto"):
                tuning = Tuning(asked.chunk, asked.max_seqs, asked.poll)
                pools = pools_by_hand(asked, case, engine, formats, tuning)
                found.append(Candidate(pool_text(pools), shown, weights, pools))
                continue
            for replica in _replicas(asked, case, engine, formats):
                why = layouts.refusal(case.model, replica, engine)
                if why:
                    refused = refused or why
                    continue
                tuning = _tuning(asked, case, replica, case.sites[engine])
                what = _worker(asked, case, replica, case.sites[engine], tuning)
                found.append(Candidate(layouts.layout_text(replica), shown, weights, what))
    if asked.disagg == "auto":
        found += _matched(asked, case, found)
    if not found:
        raise GpuscaleError(refused or "no layout is left", "give other degrees, or none of them")
    return found


HOST_FLOP_PER_S = 1e12
"""Products of a desktop's cores on quantised weights: prior, AVX-512 of 16 cores at a third."""

SHARES = tuple(i / 32 for i in range(33))
"""Shares of the weights on the host that are tried, smallest first."""


def _tuning(asked: Serve, case: ServeCase, replica: Replica, site: ServingSite) -> Tuning:
    """Chunk and sequences by hand; adapters; as much on the host as does not fit."""
    extras = None if asked.lora is None else Extras(asked.lora)
    plain = Tuning(asked.chunk, asked.max_seqs, asked.poll, extras)
    kind, shares = _offloaded(asked, case.model)
    pcie = case.loaded.gpu.pcie_bytes_per_s or PCIE_BYTES_PER_S
    for share in shares:
        offload = Offload(kind, share, asked.host_bandwidth, HOST_FLOP_PER_S, pcie)
        tuning = replace(plain, extras=Extras(asked.lora, offload if share else None))
        if len(shares) == 1 or Service(case.model, replica, site, case.demand, tuning).fits:
            return tuning
    return plain


def _offloaded(asked: Serve, model: ModelSpec) -> tuple[str, tuple[float, ...]]:
    """Find what may be on the host, and the shares of it to be tried; none where nothing may."""
    sparse = model.n_expert_layers
    if asked.n_cpu_moe is not None:
        if not sparse:
            raise GpuscaleError(
                f"--n-cpu-moe: {model.name} has no experts", "give --ngl, the layers on the GPUs"
            )
        return "experts", (min(1.0, asked.n_cpu_moe / sparse),)
    if asked.ngl is not None:
        return "layers", (max(0.0, 1.0 - asked.ngl / model.n_layers),)
    if asked.offload == "none":
        return "", ()
    experts = asked.offload == "experts" or (asked.offload == "auto" and sparse > 0)
    return "experts" if experts else "layers", SHARES


def _worker(
    asked: Serve, case: ServeCase, replica: Replica, site: ServingSite, tuning: Tuning
) -> Service:
    """Make a replica, or a worker of the one pool that is asked for."""
    pools = {"prefill": prefill_worker, "embed": prefill_worker, "decode": decode_worker}
    return pools.get(asked.only or "", Service)(case.model, replica, site, case.demand, tuning)


def by_hand(asked: Serve) -> bool:
    """Whether the layout is given."""
    return any(v is not None for v in (asked.tp, asked.pp, asked.dp_attention, asked.ep))


def _replicas(asked: Serve, case: ServeCase, engine: str, formats: Replica) -> list[Replica]:
    """Layouts of a replica: the one asked for, or those worth trying."""
    if by_hand(asked):
        dp = asked.dp_attention or 1
        ep = asked.ep or (dp * (asked.tp or 1) if dp > 1 else 1)
        one = replace(formats, tp=asked.tp or 1, pp=asked.pp or 1, dp_attention=dp, ep=ep)
        if asked.gpus is not None and one.n_gpus > asked.gpus:
            raise GpuscaleError(
                f"a replica has {one.n_gpus} GPUs, more than --gpus {asked.gpus}",
                "give fewer, or smaller degrees",
            )
        return [one]
    cluster = case.loaded.cluster
    inside = max(cluster.scaleup_domain_gpus, cluster.gpus_per_node)
    most = asked.gpus or inside
    if cluster.scaleup_class == "pcie" or engine not in layouts.TENSOR_ENGINES:
        inside = 1  # links so slow that stages may be better anywhere
    found = _grown(asked, case, engine, formats, most, (cluster.scaleup_domain_gpus, inside))
    users = asked.concurrency or math.inf  # a rank of attention without a request helps nobody
    return [r for r in found if r.dp_attention <= users] or found


def _grown(
    asked: Serve, case: ServeCase, engine: str, formats: Replica, most: int, domain: tuple[int, int]
) -> list[Replica]:
    """Layouts up to a size, doubled where the weights do not fit and the size is open."""
    while True:
        found = layouts.replica_layouts(case.model, formats, most, domain, engine)
        if asked.gpus is not None or most >= 512 or not found:
            return found
        site = case.sites[engine]
        last = Service(case.model, found[-1], site, case.demand)
        if last.fits or any(
            Service(case.model, r, site, case.demand).fits for r in reversed(found)
        ):
            return found
        most *= 2


def pools_by_hand(
    asked: Serve, case: ServeCase, engine: str, formats: Replica, tuning: Tuning
) -> PooledService:
    """Pools as typed."""
    first, second = reading.pools(asked.disagg, "--disagg")
    made = []
    for text in (first, second):
        replica = replace(formats, tp=text.tp, pp=text.pp, dp_attention=text.dp, ep=text.ep)
        why = layouts.refusal(case.model, replica, engine)
        if why:
            raise GpuscaleError(f"--disagg: {why}", "give other degrees")
        made.append(replica)
    site, reads = case.sites[engine], replace(tuning, max_sequences=None)
    return PooledService(
        prefill_worker(case.model, made[0], site, case.demand, reads),
        first.workers,
        decode_worker(case.model, made[1], site, case.demand, tuning),
        second.workers,
    )


def pool_workers(case: ServeCase, replicas: list[Service]) -> tuple[list[Service], list[Service]]:
    """Workers of a prefill and of a decode pool of the layouts of some replicas."""
    reads, makes = [], []
    for one in replicas:
        parts = (case.model, one.replica, one.site, case.demand, one.tuning)
        reads.append(prefill_worker(*parts))
        makes.append(decode_worker(*parts))
    return reads, makes


def _matched(asked: Serve, case: ServeCase, found: list[Candidate]) -> list[Candidate]:
    """Pools of the layouts that were found, matched by rate."""
    from gpuscale.core.serving.matching import matched

    groups: dict[tuple[str, str], list[Service]] = {}
    for c in found:
        if isinstance(c.what, Service):
            groups.setdefault((c.engine, c.weights), []).append(c.what)
    made = []
    for (engine, weights), replicas in groups.items():
        reads, makes = pool_workers(case, replicas)
        for pools in matched(reads, makes, case.limits, asked.gpus, asked.rate):
            made.append(Candidate(pool_text(pools), engine, weights, pools))
    return made


def pool_text(pools: PooledService) -> str:
    """Pools in words: ``4 x TP 2 read, 1 x DPA 16 x EP 16 decode``."""
    one, two = (layouts.layout_text(s.replica) for s in (pools.prefill, pools.decode))
    return f"{pools.n_prefill} x ({one}) read + {pools.n_decode} x ({two}) decode"


def wanted_of(asked: Serve, case: ServeCase, found: list[Candidate]) -> Wanted:
    """Say what is to be solved for; without GPUs and load the smallest replica that fits.

    A closed loop without limits on a layout or engine set by hand is a benchmark of one replica.
    """
    gpus, concurrency = asked.gpus, asked.concurrency
    load = asked.rate or concurrency or asked.burst
    own = (asked.ngl, asked.n_cpu_moe, asked.max_seqs, asked.memory_frac, asked.chunk)
    pools, away = asked.disagg not in (None, "auto"), asked.offload != "none"
    set_by_hand = by_hand(asked) or pools or away or any(v is not None for v in own)
    benchmark = asked.rate is None and set_by_hand and case.limits == Limits()
    if gpus is None and (load is None or benchmark):
        fitting = [c.what.n_gpus for c in found if c.what.fits]
        gpus = min(fitting, default=None)
    local = case.engines == ("llamacpp",) and case.limits == Limits()
    if local and not load and not asked.trace:
        concurrency = 1
    if asked.requests is not None and concurrency is None:
        raise GpuscaleError(
            "--requests is of a closed loop", "give --concurrency too; --burst counts its own"
        )
    return Wanted(
        case.limits, asked.rate, gpus, concurrency, asked.burst, n_requests=asked.requests
    )
