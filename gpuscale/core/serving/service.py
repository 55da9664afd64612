"""One replica as a service: its tables, its scheduler, what it delivers under a load.

Scheduler and cache of Kwon et al. 2023 (vLLM, arXiv:2309.06180), section 4.
"""

from __future__ import annotations

import functools
import math
from functools import cached_property
from typing import TYPE_CHECKING

from gpuscale.core.records import dataclass, replace
from gpuscale.core.serving.capacity import NO_END, OpenLoad, SteadyLoad, open_load
from gpuscale.core.serving.extras import Extras, freed_bytes
from gpuscale.core.serving.loads import Demand, UnderLoad
from gpuscale.core.serving.memory import CacheRoom, cache_bytes_per_sequence, cache_room
from gpuscale.core.serving.scheduler import Scheduler, Simulated
from gpuscale.core.serving.simulator import simulate
from gpuscale.core.serving.tables import StepTable, replica_table
from gpuscale.core.serving.traffic import Traffic

if TYPE_CHECKING:
    from gpuscale.core.serving.records import Replica, ServingSite
    from gpuscale.specs.model import ModelSpec

BLOCK_TOKENS = 16
"""Tokens of a cache block of vLLM and of most engines; half of one is lost a sequence."""

EDGE_FRAC = 0.03
"""Of a GPU's memory that the room for the cache may be out by: of the cache sizes that engines
print (tests/core/test_serving_physics.py) nine of ten are predicted within it."""

LEAST_OF_A_RANK = 2048.0
"""Prompt tokens of an attention rank that a launch line sets where the engine takes fewer."""

ACCEPTED_SPREAD = 0.09
"""Spread of ln(tokens a pass) from one request to another: texts are drafted well or badly. Where
drafts are used p99 of TPOT is 1.24 times its middle, else 1.03 (136 and 203 rows of SemiAnalysisAI/
InferenceX): 2.33 deviations."""

MOST_TOGETHER = 1024.0
"""First rate of the search for the highest, over one request a pass: more than schedulers run."""

HALVINGS = 60
"""Most halvings of that search."""

RATE_PRECISION = 3e-3
"""Width of its bracket at which it ends: below the spread of a simulation."""


def covering(n_ranks: int) -> float:
    """Find how many prompts come, each at any rank, until every rank has one: ``n H_n`` (Feller).

    >>> round(covering(8), 1)
    21.7
    """
    return n_ranks * math.fsum(1.0 / i for i in range(1, n_ranks + 1))


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is set by hand of an engine; None is the engine's own."""

    chunk_tokens: float | None = None
    max_sequences: float | None = None
    poll_passes: int | None = None  # see `Scheduler`
    extras: Extras | None = None  # adapters, weights on the host


class Service(UnderLoad):
    """A replica under load; everything is computed when it is first asked for.

    `replica`: layout, formats, drafts. `site`: hardware and engine. `demand`:
    lengths of the requests. `tuning`: chunk and sequences by hand. `prefilled`: prompts come with
    their cache: a worker of a decode pool.
    """

    def __init__(
        self,
        model: ModelSpec,
        replica: Replica,
        site: ServingSite,
        demand: Demand,
        tuning: Tuning | None = None,
        *,
        prefilled: bool = False,
    ) -> None:
        super().__init__(demand)
        self.model, self.replica, self.site = model, replica, site
        self.tuning, self.prefilled = tuning or Tuning(), prefilled

    @cached_property
    def room(self) -> CacheRoom:
        """Memory of one GPU."""
        room = cache_room(self.model, self.replica, self.site.software.memory, self.site.hbm_bytes)
        if self.tuning.extras is None:
            return room
        freed = freed_bytes(self.model, self.replica, self.tuning.extras)
        return replace(
            room, weights_bytes=room.weights_bytes - freed, cache_bytes=room.cache_bytes + freed
        )

    @cached_property
    def table(self) -> StepTable:
        """Times of its passes."""
        contexts, extras = self.demand.contexts, self.tuning.extras
        return replica_table(self.model, self.replica, self.site, contexts, extras)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Limits of a pass and of the cache, of all attention ranks together."""
        soft, ranks, demand = self.site.software, self.replica.dp_attention, self.demand
        low, high = demand.contexts.low, demand.contexts.high
        one = cache_bytes_per_sequence(self.model, self.replica, low)
        each = (cache_bytes_per_sequence(self.model, self.replica, high) - one) / (high - low)
        fixed = max(0.0, one - each * low)
        most = self.tuning.max_sequences or soft.max_sequences * self.replica.pp
        chunk, by_hand = self.tuning.chunk_tokens or soft.chunk_tokens, self.tuning.chunk_tokens
        if soft.joint_gpus and (by_hand or self.replica.group <= soft.joint_gpus):
            least = 1.0 if by_hand else min(chunk, LEAST_OF_A_RANK)
            chunk = max(least, chunk / ranks)
        tokens, beside = math.inf, 0.0
        free = max(0.0, self.room.cache_bytes)
        if each > 0.0:
            tokens, beside = ranks * free / each, fixed / each + BLOCK_TOKENS / 2.0
            tokens = max(0.0, tokens - demand.prefix_frac * demand.inputs.mean * ranks)
        elif fixed > 0.0:
            most = min(most, free / fixed)
        drafts, one_machine = self.replica.drafts, self.site.domain
        gathers = ranks > 1 and soft.gather_passes > 0
        poll = self.tuning.poll_passes or (soft.gather_passes if gathers else 0)
        return Scheduler(
            token_budget=int(chunk * ranks),
            max_sequences=max(1, int(most * ranks)),
            cache_tokens=tokens,
            sequence_tokens=beside,
            mixed=soft.mixed,
            splits=soft.splits,
            ranks=ranks,
            reserve_output=soft.reserve_output,
            tokens_per_pass=1.0 + (drafts.accepted if drafts else 0.0),
            pace_spread=ACCEPTED_SPREAD if drafts else 0.0,
            stages=self.replica.pp,
            request_s=0.0 if self.prefilled else soft.request_s,
            # each machine of a wide replica reads: 230 requests/s come in at four of them where one
            # reader takes 81 (lmsys.org, 2025-05-05)
            intake_s=0.0 if self.prefilled else soft.intake_s / max(1.0, self.n_gpus / one_machine),
            prefilled=self.prefilled,
            poll_passes=0 if self.prefilled else poll,
            poll_prompts=covering(ranks) if gathers else math.inf,
            cold_s=self.site.kernels.cold_s if demand.cold and not soft.compiled_s else 0.0,
            compiled_s=soft.compiled_s if demand.cold else 0.0,
            compiled_prompts=soft.compiled_prompts,
        )

    @property
    def sequences_with_room(self) -> float:
        """Sequences of mean length that the cache holds, whole replica. [1]."""
        s = self.scheduler
        each = self.demand.mean_context - self.demand.prefix_frac * self.demand.inputs.mean
        return min(float(s.max_sequences), s.cache_tokens / (each + s.sequence_tokens))

    @property
    def fits(self) -> bool:
        """Whether the weights and one whole request fit, and the longest context that is promised.

        A context that lacks no more than `EDGE_FRAC` of the memory is taken to fit.
        """
        s, d = self.scheduler, self.demand
        whole = d.inputs.mean * (1.0 - d.prefix_frac) + d.outputs.mean + 1.0 + s.sequence_tokens
        return (
            self.room.cache_bytes > 0.0
            and whole <= s.cache_tokens
            and self.context_lacks_bytes <= EDGE_FRAC * self.room.usable_bytes
        )

    @property
    def context_lacks_bytes(self) -> float:
        """Memory of a GPU that the longest context needs beyond the cache; 0 if it fits. [byte]."""
        tokens = self.demand.most_context
        if not tokens:
            return 0.0
        needed = cache_bytes_per_sequence(self.model, self.replica, tokens)
        return max(0.0, needed - self.room.cache_bytes)

    # --- formula ---------------------------------------------------------------------------

    def pass_s(self, n: float) -> float:
        """Time of a decode pass of `n` sequences at the mean context. [s]."""
        low = max(1, int(n))
        first, more = self._decode_s(low), self._decode_s(low + 1)
        return first + max(0.0, n - low) * (more - first)

    def _decode_s(self, n: int) -> float:
        base, each = self.table.decode(n)
        return base + each * n * self.demand.mean_context

    def prompt_s(self, n: float, together: int = 1) -> float:
        """Time that a prompt of mean length adds to the passes of `n` sequences. [s].

        `together` prompts share a pass: the weights are read once, and attention ranks read one
        each.
        """
        if self.prefilled:
            return 0.0
        inputs, hit = self.demand.inputs, self.demand.prefix_frac
        keys = 0.5 * inputs.mean * (1.0 + hit) * (1.0 + inputs.cv2)
        passes = self._prompt_passes
        tokens = max(1, round(together * self._prompt_tokens / passes))
        whole = passes * self.table.prompt(tokens, keys, round(n), together)
        return whole / together / self.scheduler.stages

    @property
    def _prompt_tokens(self) -> float:
        return max(1.0, self.demand.inputs.mean * (1.0 - self.demand.prefix_frac))

    @property
    def _prompt_passes(self) -> float:
        chunk = self.scheduler.token_budget / self.replica.dp_attention
        return max(1.0, math.ceil(self._prompt_tokens / chunk))

    def steady(self, rate_per_s: float) -> SteadyLoad:
        """Mean latencies by the formula, requests at random.

        As many prompts share a pass as come during one, up to the token budget.
        """
        s, demand = self.scheduler, self.demand
        load = OpenLoad(
            rate_per_s=rate_per_s,
            output_tokens=demand.outputs.mean,
            prompt_cv2=demand.inputs.cv2,
            prompt_passes=0.0 if self.prefilled else self._prompt_passes,
            request_s=s.request_s,
            tokens_per_pass=s.tokens_per_pass,
            most_sequences=self.sequences_with_room,
        )
        most = max(1, int(s.token_budget / self._prompt_tokens))
        found, together = NO_END, most
        for _ in range(4):
            new = open_load(self.pass_s, functools.partial(self.prompt_s, together=together), load)
            if not new.stable:
                break
            found = new
            length_s = max(found.tpot_s * s.tokens_per_pass, self.prompt_s(0.0, together))
            share = max(1, min(most, round(rate_per_s * length_s)))
            if share == together:
                break
            together = share
        return found

    def most_rate(self, ttft_s: float = math.inf, tpot_s: float = math.inf) -> float:
        """Highest rate at which the formula's means stay within limits. [1/s]."""

        def holds(rate: float) -> bool:
            found = self.steady(rate)
            return found.stable and found.ttft_s <= ttft_s and found.tpot_s <= tpot_s

        high = 1.0 / max(self.pass_s(1.0) / MOST_TOGETHER, 1e-9)
        low = 0.0
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high) if low else high / 4.0
            if holds(middle):
                low = middle
            else:
                high = middle
            if high < 1e-9 or (low and high < (1.0 + RATE_PRECISION) * low):
                break
        return low

    def inside(self, rate_per_s: float) -> float:
        """Sequences that decode at a time, by formula; at most those with room. [1]."""
        found, room = self.steady(rate_per_s), self.sequences_with_room
        return min(room, found.sequences) if found.stable else room

    # --- simulation ------------------------------------------------------------------------

    @property
    def n_gpus(self) -> int:
        """GPUs of it."""
        return self.replica.n_gpus

    @property
    def mixes(self) -> bool:
        """Whether prompts are read between decode passes."""
        return self.scheduler.mixed

    def simulated(self, traffic: Traffic) -> Simulated:
        """Simulate any traffic."""
        return simulate(self.table, self.scheduler, traffic)
