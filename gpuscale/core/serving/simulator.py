"""A serving engine under load, simulated from pass to pass.

First come, first served: a pass decodes one token (with drafts: some) of every running sequence and
reads prompt tokens up to the token budget, in chunks, where the scheduler mixes them; a scheduler
that does not mix reads prompts first. While no prompt can be read the passes up to the next end or
arrival differ in their context alone, so they are one event:

    k passes take  k A(n) + B(n) (k S + g n k (k-1) / 2),   S: tokens of context of the n sequences

with a pass linear in the context, `StepTimes.decode`. Pure Python, a few events a request.

Iteration-level scheduling: Yu et al. 2022 (Orca, OSDI), section 3.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from statistics import NormalDist

from gpuscale.core.serving.scheduler import Scheduler, Simulated, StepTimes, passes_until
from gpuscale.core.serving.traffic import Traffic

NEVER = math.inf
REPORT_EVERY = 4096
"""Requests between two reports of progress."""

WATERMARK_FRAC = 0.01
"""Of the cache kept free when a request is let in, so that it is not thrown out in the next pass
(vLLM, `BlockSpaceManager`, watermark)."""

NORMAL, EDGE = NormalDist(), 1e-3  # share of the worst and of the best that is left out
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Its multiples fill the unit interval evenly (Knuth 1998, volume 3, section 6.4)."""


class SimulatedEngine:
    """State of the simulation; `simulate` runs it."""

    def __init__(self, times: StepTimes, scheduler: Scheduler, traffic: Traffic) -> None:
        self.times, self.s, self.traffic = times, scheduler, traffic
        n = len(traffic.inputs)
        self.prompt = list(traffic.inputs)  # tokens to read; more after a pre-emption
        self.left = [o - 1 for o in traffic.outputs]  # to decode after the first token
        self.late = [0.0] * n  # of a first token behind the other stages of a pipeline
        skip = traffic.prefix_frac
        self.hit: list[float] = [*traffic.hits] or [skip * tokens for tokens in traffic.inputs]
        self.gen, self.budget = scheduler.tokens_per_pass, scheduler.token_budget
        self.each = [self._pace(i) for i in range(n)] if scheduler.pace_spread else [self.gen] * n
        self.now = self.held = self.context = 0.0
        self.steps = self.n_arrived = self.decoded = 0
        self.waiting: deque[int] = deque()
        self.wait_until = self.read_at = 0  # step of the next look at prompts; of the last one
        self.cold = traffic.concurrency  # prompts that its first passes read
        self.compiled_s = scheduler.compiled_s if traffic.concurrency else 0.0
        self.partial = -1  # the one prompt that is read in part
        self.todo = 0  # tokens of it still to be read
        self.running: dict[int, int] = {}  # request -> step that is its last
        self.ends: list[tuple[int, int]] = []
        nan = math.nan
        closed = traffic.concurrency
        arrivals = [0.0] * min(n, closed) if closed else list(traffic.arrivals_s)
        self.out = Simulated(
            arrivals, [nan] * n, [nan] * n, list(traffic.inputs), list(traffic.outputs)
        )
        self.out.n_running = traffic.running
        self.door = 0.0  # when the server's door is free
        self.due = [0.0] * traffic.running + [self._enters(t) for t in arrivals[traffic.running :]]
        self.ended: list[int] = []  # requests answered or refused since somebody looked
        self.horizon_s = NEVER  # until when nothing comes that is not known yet
        self._begin(traffic.running)

    def _begin(self, n: int) -> None:
        """Let the first requests decode when time begins."""
        self.n_arrived = n
        self.held = math.fsum(map(self._room, range(n)))
        self.context = sum(self.prompt[:n])
        self.running = {i: math.ceil(self.left[i] / self.each[i]) for i in range(n)}
        self.ends = [(last, i) for i, last in self.running.items()]
        heapify(self.ends)
        self.out.first_s[:n] = [0.0] * n

    @property
    def next_s(self) -> float:
        """When it can do something: now, at the next arrival, or never."""
        if self.running or self.waiting or self.partial >= 0:
            return self.now
        return max(self.now, self.due[self.n_arrived]) if self.n_arrived < len(self.due) else NEVER

    @property
    def ends_s(self) -> float:
        """When the first running sequence ends, if nothing comes before; never if none runs."""
        n = len(self.running)
        if not n:
            return NEVER
        base, each = self.times.decode(n)
        k = self._passes_to_end()
        return self.now + k * (base + each * (self.context + 0.5 * n * self.gen * (k - 1)))

    def add(self, prompt: int, output: int, at_s: float) -> None:
        """Let one more request come, not before those that are known."""
        self.prompt.append(prompt)
        self.left.append(output - 1)
        self.each.append(self._pace(len(self.each)))
        self.late.append(0.0)
        self.hit.append(self.traffic.prefix_frac * prompt)
        out = self.out
        out.arrival_s.append(at_s)
        out.first_s.append(math.nan)
        out.end_s.append(math.nan)
        out.inputs.append(prompt)
        out.outputs.append(output)
        self.due.append(self._enters(at_s))

    def run(self, progress: Callable[[int], None] | None = None) -> Simulated:
        """Run to the last request: a sequence that is started over has one token less to come."""
        n, told, ends_s = len(self.prompt), REPORT_EVERY, self.traffic.ends_s
        while self.decoded < n and self.now < ends_s:
            self.step()
            if progress is not None and self.decoded >= told:
                told += REPORT_EVERY
                progress(self.decoded)
        return self.out

    def step(self) -> None:
        """Do one thing: a pass with prompts, decode passes up to the next event, or wait."""
        due = self.due
        while self.n_arrived < len(due) and due[self.n_arrived] <= self.now:
            self._arrive(self.n_arrived)
            self.n_arrived += 1
        ready = self.steps >= self.wait_until or not self._waits()
        if ready and (self.partial >= 0 or self.waiting) and self._read():
            return
        if self.running:
            self._jump()
        elif self.n_arrived < len(due):
            self.now = max(self.now, due[self.n_arrived])

    def _pace(self, i: int) -> float:
        """Tokens that a request decodes in a pass: its own text is drafted well or badly."""
        share = (i * GOLDEN) % 1.0  # even in (0, 1) whatever the number of requests
        deviation = self.s.pace_spread * NORMAL.inv_cdf(EDGE + (1.0 - 2.0 * EDGE) * share)
        return max(1.0, self.gen * math.exp(deviation))

    def _arrive(self, i: int) -> None:
        """Queue a request; one that can never fit is refused."""
        s = self.s
        if self.prompt[i] + self.left[i] + 1 + s.sequence_tokens > s.cache_tokens:
            self.out.n_refused += 1
            self._gone(i)
        else:
            if not self.waiting and s.poll_passes:
                gathers = s.poll_prompts < NEVER  # else it looks at once after a prompt's pass
                looks = max(int(gathers), -((self.read_at - self.steps) // s.poll_passes))
                self.wait_until = self.read_at + looks * s.poll_passes
            self.waiting.append(i)

    def _enters(self, at_s: float) -> float:
        """Find when a request that comes at a time reaches the scheduler. [s]."""
        self.door = max(self.door, at_s) + self.s.intake_s
        return self.door - self.s.intake_s + self.s.request_s

    def _waits(self) -> bool:
        """Whether nobody looks at the prompts yet, while others decode.

        SGLang, `scheduler_recv_skipper.py`: one look in `--scheduler-recv-interval` decode passes.
        TensorRT-LLM, `py_executor.py`, `_balance_adp_requests`: prompts wait until each attention
        rank has one, or for `timeout_iters` passes since the last were let in.
        """
        if self.steps >= self.wait_until or self.partial >= 0 or not self.running:
            return False
        return len(self.waiting) < self.s.poll_prompts

    def _gone(self, i: int) -> None:
        """One request less; in a closed loop the next one comes."""
        self.decoded += 1
        self.ended.append(i)
        out = self.out
        if self.traffic.concurrency and len(out.arrival_s) < len(self.prompt):
            out.arrival_s.append(self.now)
            self.due.append(self._enters(self.now))

    def _room(self, i: int) -> float:
        """Tokens that a request takes of the cache when it is let in."""
        own = self.prompt[i] - self.hit[i] + self.s.sequence_tokens
        return own + self.left[i] if self.s.reserve_output else own

    def _read(self) -> bool:
        """One pass with prompt tokens; False where none can be let in."""
        s = self.s
        if s.prefilled:
            self._let_in()
            return False
        n = len(self.running)
        grow = n * self.gen if s.mixed and not s.reserve_output else 0.0
        if grow and self.held + grow > s.cache_tokens and self._make_room(grow):
            return False
        along = n if s.mixed else 0
        whole = room = max(1, self.budget - int(along * self.gen))
        tokens, keys = 0, 0.0
        done: list[int] = []
        waiting, most = self.waiting, s.max_sequences
        limit = s.cache_tokens * (1.0 - WATERMARK_FRAC)
        while room > 0:
            if self.partial < 0:
                if not waiting or n + len(done) >= most:
                    break
                i = waiting[0]
                need = self._room(i)
                if self.held + need > limit and (self.running or done):
                    break
                todo = max(1, math.ceil(self.prompt[i] - self.hit[i]))
                if done and not s.splits:  # ranks in turn: the one that comes next has so much
                    taken = tokens / len(done) * (len(done) // s.ranks)
                    if taken + todo > whole / s.ranks:
                        break
                waiting.popleft()
                self.held += need
                self.partial, self.todo = i, todo
            i = self.partial
            take = self.todo if self.todo < room else room
            keys += take * (self.prompt[i] - self.todo + 0.5 * take)
            tokens += take
            room -= take
            self.todo -= take
            if self.todo == 0:
                done.append(i)
                self.partial = -1
        if tokens == 0:
            return False
        self._pass_with(tokens, keys / tokens, along, done)
        self.read_at = self.steps
        return True

    def _let_in(self) -> None:
        """Let prompts that come with their cache decode, as far as there is room."""
        s, waiting = self.s, self.waiting
        limit = s.cache_tokens * (1.0 - WATERMARK_FRAC)
        while waiting and len(self.running) < s.max_sequences:
            need = self._room(waiting[0])
            if self.held + need > limit and self.running:
                break
            self.held += need
            self._start(waiting.popleft(), 0.0)

    def _start(self, i: int, late_s: float) -> None:
        """Give a request its first token, `late_s` from now, and let it decode."""
        left = self.left
        if self.out.first_s[i] != self.out.first_s[i]:  # not a number: its first token
            self.out.first_s[i] = self.now + late_s
            self.late[i] = late_s
        else:
            left[i] -= 1
        if left[i] <= 0:
            self._finish(i, self.prompt[i])
            return
        last = self.steps + math.ceil(left[i] / self.each[i])
        self.running[i] = last
        heappush(self.ends, (last, i))
        self.context += self.prompt[i]

    def _pass_with(self, tokens: int, keys: float, along: int, done: list[int]) -> None:
        """Time a pass with prompt tokens; let those whose prompt is read decode."""
        s, out = self.s, self.out
        whole_s = self.times.prompt(tokens, keys, along, len(done) + (self.partial >= 0))
        if self.cold > 0:
            whole_s += s.cold_s * math.ceil(len(done) / s.ranks)  # each loads its own
            self.cold -= len(done)
        if self.compiled_s and len(done) > s.compiled_prompts:
            whole_s += self.compiled_s
            self.compiled_s = 0.0
        # one prompt alone goes through the stages before the next tokens, several at a time
        stages = s.stages if self.waiting or self.partial >= 0 or not along else 1
        time_s = whole_s / stages
        if along:
            base, each = self.times.decode(along)
            time_s += base + each * self.context
            self.steps += 1
            self.context += along * self.gen
            if not s.reserve_output:
                self.held += along * self.gen
        self.now += time_s
        out.busy_s += time_s
        out.n_passes += 1
        out.sequence_s += time_s * len(self.running)
        if along and self.ends[0][0] <= self.steps:
            self._end_due()
        for i in done:
            self._start(i, whole_s - whole_s / stages)
        if len(self.running) > out.most_sequences:
            out.most_sequences = len(self.running)

    def _passes_to_end(self) -> int:
        ends = self.ends
        while self.running.get(ends[0][1]) != ends[0][0]:
            heappop(ends)
        return ends[0][0] - self.steps

    def _jump(self) -> None:
        """All decode passes up to the next end, the next arrival, or the end of the room."""
        s, out = self.s, self.out
        n, gen = len(self.running), self.gen
        grow = n * gen
        if not s.reserve_output and self.held + grow > s.cache_tokens:
            self._make_room(grow)
            n = len(self.running)
            grow = n * gen
        base, each = self.times.decode(n)
        k = self._passes_to_end()
        if not s.reserve_output and self.held + k * grow > s.cache_tokens:
            k = max(1, int((s.cache_tokens - self.held) / grow))
        one, more = base + each * self.context, 0.5 * each * grow
        waits = self.steps < self.wait_until and bool(self.waiting)
        if waits:
            k = min(k, self.wait_until - self.steps)
        comes_s = NEVER
        if waits or not self.waiting:
            comes_s = self.horizon_s
            if self.n_arrived < len(self.due) and self.due[self.n_arrived] < comes_s:
                comes_s = self.due[self.n_arrived]
        if comes_s < NEVER:
            gap = comes_s - self.now
            if k * (one + more * (k - 1)) > gap:
                k = min(k, passes_until(gap, one, more))
        time_s = k * (one + more * (k - 1))
        self.now += time_s
        out.busy_s += time_s
        out.n_passes += k
        out.sequence_s += time_s * n
        if n > out.most_sequences:
            out.most_sequences = n
        self.steps += k
        self.context += k * grow
        if not s.reserve_output:
            self.held += k * grow
        if self.ends[0][0] <= self.steps:
            self._end_due()

    def _end_due(self) -> None:
        """Let the sequences go whose last token has come."""
        ends, running, steps = self.ends, self.running, self.steps
        while ends and ends[0][0] <= steps:
            last, i = heappop(ends)
            if running.get(i) == last:
                del running[i]
                grown = self.gen * math.ceil(self.left[i] / self.each[i])
                self.context -= self.prompt[i] + grown
                self._finish(i, self.prompt[i] + grown)

    def _finish(self, i: int, tokens: float) -> None:
        """Free the cache of a request that is answered."""
        s = self.s
        self.out.end_s[i] = self.now + self.late[i]
        self.held -= (
            self._room(i) if s.reserve_output else (tokens - self.hit[i] + s.sequence_tokens)
        )
        self._gone(i)

    def _make_room(self, grow: float) -> bool:
        """Pre-empt the sequences that came last until the next pass has room; they start over."""
        before = self.out.n_preempted
        while self.held + grow > self.s.cache_tokens and len(self.running) > 1:
            i, last = self.running.popitem()
            passes = math.ceil(self.left[i] / self.each[i]) - (last - self.steps)
            tokens = self.prompt[i] + passes * self.gen
            self.context -= tokens
            self.held -= tokens - self.hit[i] + self.s.sequence_tokens
            self.left[i] = max(1, self.left[i] - int(passes * self.gen))
            self.prompt[i] = int(tokens)
            self.waiting.appendleft(i)
            self.out.n_preempted += 1
            grow = len(self.running) * self.gen
        return self.out.n_preempted > before


def simulate(
    times: StepTimes,
    scheduler: Scheduler,
    traffic: Traffic,
    progress: Callable[[int], None] | None = None,
) -> Simulated:
    """Simulate one replica under a traffic, drawn beforehand: the result has no chance of its own.

    `times`: of its passes. `scheduler`: limits of a pass and of the cache. `progress`: told now and
    then how many requests are answered. Raises ValueError if lengths, arrivals and scheduler do not
    make a load: empty, unsorted, below 1.
    """
    traffic.check()
    return SimulatedEngine(times, scheduler, traffic).run(progress)
