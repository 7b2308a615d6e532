"""LB-BSP in GPU clusters (journal version, section 3.3, Alg. 2): the leader takes a step from the straggler.

Two phases: large steps after short observation (``fast``); then, once a former leader becomes the straggler, small
steps after long observation (``fine``). Unless ``literal``, these rulings apply:

2. no decision is made before the window is full, and leader and straggler have changed places only if the median
   over the window says so (in the paper, one noisy iteration of all history is enough);
3. if the gap stays large over a whole window in the fine phase, or the roster changes, the fast phase begins again
   (in the paper, the fine phase is permanent);
4. a straggler with no more than a step left gives what it can, then the next slowest does, and the operator is notified
   that smaller shares cannot help it (in the paper, shares no longer change from then on);
6. a worker that would exceed the memory limit *by the step* is not the leader (in the paper, one that already exceeds
it).

If the gap of a pair is large over a window, the step is three quarters of what would make the two equal, and the next
fastest and slowest pairs move theirs in the same iteration: sixteen workers whose speeds are reversed are balanced
again within about fifty iterations, for any batch. For such a gap a window of two iterations is enough at first, since
noise is small in comparison. A fine step is taken only if the receiving worker remains the faster one. Limits hold and
windows are full under ``literal`` too.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Finding, Observation, ShareDecision, ShareRequest
from controlplane.policies.batching import slower_pairs
from controlplane.policies.batching.apportion import apportion, limits_of
from controlplane.policies.batching.memory import Memory
from controlplane.policies.catalogue.batching import LbBspGpuParameters
from controlplane.policies.wording import listing, number, seconds
from controlplane.protocol.base import Value

Times = dict[int, float]

PART = 0.5
"""Fraction of a time that is assumed to depend on the share when checking whether a large step would be too large."""


class LbBspGpuState(Value, frozen=True, kw_only=True):
    """Observations under this roster, and the phase."""

    fine: bool = False
    window: tuple[Times, ...] = ()
    """Busy seconds of every rank, the latest iteration last."""
    slower: dict[int, bytes] = {}
    """With ``literal`` only: see ``slower_pairs``."""
    memory: dict[int, Memory] = {}
    hopeless: list[int] = []
    """Ranks that the operator was notified about."""


BIG = 0.75
"""With a large gap, the fraction moved of what would make two workers equal. It is below 1 because another step follows
before the effect is seen.
"""

SOON = 2
"""The window of the first steps if the gap is large in each of its iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspGpu:
    """Assumes only that time does not decrease with the share."""

    name: ClassVar[str] = "lb-bsp-gpu"
    every_iteration: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = LbBspGpuState

    parameters: LbBspGpuParameters

    def start(self, request: ShareRequest, state: Any | None) -> tuple[LbBspGpuState, ShareDecision]:
        """Begin with the present shares, in the fast phase; what is known about memory stays."""
        known = state.memory if isinstance(state, LbBspGpuState) else {}
        kept = LbBspGpuState(memory={rank: one for rank, one in known.items() if rank in request.current})
        shares = _within(request)
        reason = f"{request.total} samples over {len(shares)} workers at first, then in steps"
        return kept, ShareDecision(shares=shares, reason=reason)

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[LbBspGpuState, ShareDecision]:
        """Alg. 2, one step at most."""
        seen = {one.rank: one for one in observations if one.rank in request.current and slower_pairs.is_sound(one)}
        shares = _within(request)
        if seen.keys() != shares.keys():
            missing = len(shares) - len(seen)
            return state, ShareDecision(shares=shares, reason=f"no step: {missing} workers are not measured")
        state = self._noted(seen, state)
        return (
            self._literally(request, shares, state) if self.parameters.literal else self._step(request, shares, state)
        )

    def _noted(self, seen: Mapping[int, Observation], state: LbBspGpuState) -> LbBspGpuState:
        times = {rank: seen[rank].busy_s for rank in sorted(seen)}
        keep = max(self.parameters.window, self.parameters.fine_window)
        literal = self.parameters.literal and not state.fine
        return msgspec.structs.replace(
            state,
            window=(*state.window, times)[-keep:],
            slower=slower_pairs.noted(state.slower, times) if literal else {},
            memory={rank: state.memory.get(rank, Memory()).seen(one) for rank, one in seen.items()},
        )

    def _phase(self, state: LbBspGpuState) -> tuple[str, int, int]:
        """The phase's name, step and window."""
        if state.fine:
            return "fine-tune", self.parameters.fine_step, self.parameters.fine_window
        return "fast approach", self.parameters.step, self.parameters.window

    def _literally(
        self, request: ShareRequest, shares: dict[int, int], state: LbBspGpuState
    ) -> tuple[LbBspGpuState, ShareDecision]:
        times, (phase, step, window) = state.window[-1], self._phase(state)
        limits, past = limits_of(request), state.window[-window:]
        leaders = [
            rank
            for rank in times
            if state.memory[rank].now <= self.parameters.memory_limit and shares[rank] + step <= limits[rank][1]
        ]
        if not leaders:
            return state, ShareDecision(shares=shares, reason=self._no_leader())
        leader = min(leaders, key=lambda rank: (times[rank], rank))
        straggler = max(times, key=lambda rank: (times[rank], -rank))
        if shares[straggler] - step < limits[straggler][0]:
            state, findings = self._warn(state, {straggler: shares[straggler]}, times)
            above = f" above its lower limit of {limits[straggler][0]}" if limits[straggler][0] > 1 else ""
            reason = f"no step: w{straggler} has {shares[straggler]} samples, no more than a step of {step}{above}"
            return state, ShareDecision(shares=shares, reason=reason, findings=findings)
        is_full = len(past) == window
        if leader != straggler and is_full and all(one[leader] < one[straggler] for one in past):
            moved = shares | {leader: shares[leader] + step, straggler: shares[straggler] - step}
            return state, ShareDecision(
                shares=moved, reason=f"{phase}: {_step_sentence(leader, straggler, step, times, moved)}"
            )
        if not state.fine and slower_pairs.was_slower(state.slower, leader, straggler):
            state = msgspec.structs.replace(state, fine=True, slower={})
            return state, ShareDecision(shares=shares, reason=self._changed_places(leader, straggler))
        return state, ShareDecision(shares=shares, reason=_no_straggler(phase, leader, straggler, window))

    def _step(
        self, request: ShareRequest, shares: dict[int, int], state: LbBspGpuState
    ) -> tuple[LbBspGpuState, ShareDecision]:
        times, (phase, step, window) = _expected(state, shares), self._phase(state)
        limits = limits_of(request)
        by_time = sorted(times, key=lambda rank: (-times[rank], rank))
        slow = [rank for rank in by_time if shares[rank] > limits[rank][0]]
        stuck = {rank: shares[rank] for rank in (by_time[: by_time.index(slow[0])] if slow else by_time[:1])}
        straggler = slow[0] if slow else None
        takers = [rank for rank in times if self._may_take(rank, step, shares, limits, state)]
        leader = min(takers, key=lambda rank: (times[rank], rank), default=None)
        state, findings = self._warn(state, stuck, times)
        if straggler is None or leader is None or times[leader] >= times[straggler]:
            reason = (
                self._no_leader() if leader is None else "no step: no slower worker can give a sample to a faster one"
            )
            return state, ShareDecision(shares=shares, reason=reason, findings=findings)
        state = self._rearmed(state, shares, stuck)
        phase, step, window = self._phase(state)
        past = state.window[-window:]
        if len(past) < window and not (len(past) >= SOON and self._is_far(leader, straggler, past)):
            reason = f"{phase}: {len(past)} of {window} iterations are observed"
            return state, ShareDecision(shares=shares, reason=reason, findings=findings)
        if all(one[leader] < one[straggler] for one in past):
            if state.fine and not self._gains(leader, straggler, step, shares, times, past):
                reason = f"{phase}: w{leader} with {step} more would take as long as w{straggler} does now"
                return state, ShareDecision(shares=shares, reason=reason, findings=findings)
            pairs = self._pairs(slow, sorted(takers, key=lambda rank: (times[rank], rank)), times, past)
            moved, sentences = dict(shares), []
            for fast, slower in pairs:
                # Not below the giver's lower limit, not above the taker's upper one, and not beyond the taker's memory.
                room = min(shares[slower] - limits[slower][0], limits[fast][1] - shares[fast])
                taken = min(self._step_of(fast, slower, step, shares, times, past), room)
                while taken > step and not self._may_take(fast, taken, shares, limits, state):
                    taken = max(step, taken // 2)
                moved[fast] += taken
                moved[slower] -= taken
                sentences.append(_step_sentence(fast, slower, taken, times, moved))
            reason = f"{phase}: {listing(sentences)}"
            return state, ShareDecision(shares=moved, reason=reason, findings=findings)
        if not state.fine and _median(past, leader) > _median(past, straggler):
            state = msgspec.structs.replace(state, fine=True)
            reason = self._changed_places(leader, straggler)
            return state, ShareDecision(shares=shares, reason=reason, findings=findings)
        return state, ShareDecision(
            shares=shares, reason=_no_straggler(phase, leader, straggler, window), findings=findings
        )

    def _pairs(
        self, slow: Sequence[int], fast: Sequence[int], times: Times, past: Sequence[Times]
    ) -> list[tuple[int, int]]:
        """Leader and straggler, then the next pairs as long as their gap was large in the whole window."""
        pairs = [(fast[0], slow[0])]
        for taker, giver in zip(fast[1:], slow[1:], strict=False):
            if times[taker] >= times[giver] or not self._is_far(taker, giver, past):
                break
            pairs.append((taker, giver))
        return pairs

    def _is_far(self, taker: int, giver: int, past: Sequence[Times]) -> bool:
        """Whether the gap of the two was large over the whole window."""
        near = 1 - self.parameters.rearm_gap
        return all(one[taker] < near * one[giver] for one in past)

    def _gains(
        self, taker: int, giver: int, step: int, shares: Mapping[int, int], times: Times, past: Sequence[Times]
    ) -> bool:
        """Whether the taker is still the faster one after a fine step, if its time is proportional to its share; always
        True for a large gap. Without this check, two workers would pass one sample back and forth.
        """
        if self._is_far(taker, giver, past):
            return True
        more = 1 + step / shares[taker]
        pairs = ((times[taker], times[giver]), (_median(past, taker), _median(past, giver)))
        return all(fast * more < slow for fast, slow in pairs)

    def _step_of(
        self, taker: int, giver: int, step: int, shares: Mapping[int, int], times: Times, past: Sequence[Times]
    ) -> int:
        """The step; if the two are far apart, most of what would make them equal if time were proportional to the
        share.
        """
        if not self._is_far(taker, giver, past):
            return step
        equal = min(
            (slow - fast) / (slow / shares[giver] + fast / shares[taker])
            for fast, slow in ((times[taker], times[giver]), (_median(past, taker), _median(past, giver)))
        )
        return max(step, int(BIG * equal))

    def _may_take(
        self,
        rank: int,
        step: int,
        shares: Mapping[int, int],
        limits: Mapping[int, tuple[int, int]],
        state: LbBspGpuState,
    ) -> bool:
        return shares[rank] < limits[rank][1] and state.memory[rank].after(step) <= self.parameters.memory_limit

    def _rearmed(self, state: LbBspGpuState, shares: Mapping[int, int], stuck: Mapping[int, int]) -> LbBspGpuState:
        """Ruling 3: return to the fast phase if the gap stayed large over a whole window and a large step would not
        reverse it.
        """
        if not state.fine or len(state.window) < self.parameters.fine_window:
            return state
        gaps = [
            self._gap({rank: time for rank, time in past.items() if rank not in stuck}, shares)
            for past in state.window[-self.parameters.fine_window :]
        ]
        if statistics.median(gaps) <= self.parameters.rearm_gap:
            return state
        return msgspec.structs.replace(state, fine=False, window=state.window[-self.parameters.window :])

    def _gap(self, times: Times, shares: Mapping[int, int]) -> float:
        """Relative gap between fastest and slowest; 0 if a large step would make the fastest the slowest."""
        slow = max(times, key=lambda rank: (times[rank], -rank))
        fast = min(times, key=lambda rank: (times[rank], rank))
        step = self.parameters.step
        if times[slow] * (1 - PART * step / shares[slow]) <= times[fast] * (1 + PART * step / shares[fast]):
            return 0.0
        return 1 - times[fast] / times[slow]

    def _warn(
        self, state: LbBspGpuState, stuck: Mapping[int, int], times: Times
    ) -> tuple[LbBspGpuState, list[Finding]]:
        """Report ranks that smaller shares cannot help, and ranks that recovered."""
        others = sorted((time for rank, time in times.items() if rank not in stuck), reverse=True)
        instead = f"; without it the slowest would take {seconds(others[0])}" if others else ""
        opened = [
            Finding(
                rank=rank,
                kind="hopeless",
                open=True,
                sentence=f"remove w{rank}: with {stuck[rank]} samples it still takes {seconds(times[rank])}{instead}",
                evidence={"share": stuck[rank], "seconds": times[rank]},
            )
            for rank in sorted(stuck)
            if rank not in state.hopeless
        ]
        closed = [
            Finding(rank=rank, kind="hopeless", open=False, sentence=f"w{rank} no longer delays the others")
            for rank in state.hopeless
            if rank not in stuck
        ]
        return msgspec.structs.replace(state, hopeless=sorted(stuck)), opened + closed

    def _no_leader(self) -> str:
        limit = number(100 * self.parameters.memory_limit)
        return f"no step: no worker can take more samples within its limit and {limit} % of its memory"

    def _changed_places(self, leader: int, straggler: int) -> str:
        return (
            f"w{leader} and w{straggler} have swapped places: from now on steps of {self.parameters.fine_step} after"
            f" {self.parameters.fine_window} iterations"
        )


def _expected(state: LbBspGpuState, shares: Mapping[int, int]) -> Times:
    """The last times, scaled by the share if they do not include the last decision yet: this overestimates the effect.

    Decisions take effect one iteration later; without this a step would be taken twice before its effect is seen.
    """
    seen = state.memory
    return {rank: time * shares[rank] / seen[rank].samples for rank, time in state.window[-1].items()}


def _within(request: ShareRequest) -> dict[int, int]:
    """The present shares, moved into the limits if these have changed."""
    return apportion(request.total, request.current, limits_of(request))


def _step_sentence(leader: int, straggler: int, step: int, times: Times, shares: Mapping[int, int]) -> str:
    return (
        f"w{leader} ({seconds(times[leader])}) takes {step} from w{straggler} ({seconds(times[straggler])}): "
        f"{shares[leader]} and {shares[straggler]} samples"
    )


def _no_straggler(phase: str, leader: int, straggler: int, window: int) -> str:
    return f"{phase}: w{leader} was not faster than w{straggler} in all of the last {window} iterations"


def _median(past: Sequence[Times], rank: int) -> float:
    return statistics.median(one[rank] for one in past)
