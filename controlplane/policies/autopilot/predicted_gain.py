"""An autopilot that switches only if the predicted gain exceeds the prediction's error, and measures each switch.

It measures seconds per sample, by which all policies can be compared. It records some global batches, requests a
simulation of the alternatives on that record, and switches to the best of those that save time with every seed and save
more than the model's error. Shortly after the switch it measures the same number of batches again and reverts the
switch if a sample took longer than before. A reverted alternative is not tried again for a number of batches. A change
of the roster ends a comparison, since earlier measurements no longer apply. The measurement of a switch starts again
when as many workers as before the switch are there; if they do not return in time, it ends without a result.
"""

from typing import Final

from msgspec.structs import replace

from controlplane.core.choices import Judged, Mark, Measured, PlayedAlternative, RequestSimulation, Verdict
from controlplane.policies.autopilot.alternatives import alternatives
from controlplane.policies.wording import seconds
from controlplane.protocol.autopilot import Autopilot, Mode
from controlplane.protocol.base import Value
from controlplane.protocol.spec import JobSpec, Synchronization

LEAST_GAIN: Final = 0.03
"""The smallest part of the time for which policies are changed."""

SETTLE: Final = 6
"""Global batches after a switch that are not measured: the change takes effect, and shares settle."""

DRIFT: Final = 0.1
"""If a sample takes longer by this fraction than at the last simulation, the next one is early."""

PATIENCE_S: Final = 300.0
"""How long to wait for a result before the simulation is requested again."""

RARELY: Final = 16
"""Simulations without a switch become less frequent; the interval grows up to this multiple of ``learn``."""


class Offer(Value, frozen=True, kw_only=True):
    """A switch that was decided or proposed, with its expected gain."""

    name: str
    saved: float
    error: float
    before_s: float


class Trial(Value, frozen=True, kw_only=True):
    """A switch whose effect is being measured."""

    offer: Offer
    came_from: str
    at: int
    begins: Mark | None = None
    """The batch from which on it is measured."""
    workers: int = 0
    """How many there were before the switch; only with as many can the times be compared."""


class PilotState(Value, frozen=True, kw_only=True):
    """Everything that its decisions depend on."""

    mode: Mode
    looks: int = 0
    asked_s: float | None = None
    """When the outstanding simulation was requested."""
    next_look: int = 0
    block: Mark | None = None
    """Where the measurement of the present pace began."""
    pace_s: float | None = None
    """Seconds per sample when alternatives were last simulated."""
    workers: int = 0
    trial: Trial | None = None
    offer: Offer | None = None
    avoided: dict[str, int] = {}
    """By name: the batch before which these policies are not tried."""
    missed: dict[str, float] = {}
    """By name: by how much the last predicted gain exceeded the measured one."""
    rests: int = 0
    """Simulations since the last switch."""


class PredictedGain:
    """The policy. Its input marks increase."""

    name = "predicted-gain"
    state_type = PilotState

    def __init__(self, parameters: Autopilot) -> None:
        self._of = parameters
        self._found: tuple[JobSpec, dict[str, Synchronization]] | None = None

    def start(self) -> PilotState:
        """Nothing is known."""
        return PilotState(mode=self._of.mode)

    def alternatives(self, spec: JobSpec) -> dict[str, Synchronization]:
        """Policies that this job may have, by name."""
        if self._found is None or self._found[0] is not spec:
            self._found = spec, alternatives(spec, self._of)
        return self._found[1]

    def observe(
        self, mark: Mark, workers: int, state: PilotState
    ) -> tuple[PilotState, RequestSimulation | Measured | None]:
        """The job has processed another global batch, by so many workers."""
        if state.block is None or workers != state.workers:
            trial = None if state.trial is None else replace(state.trial, at=mark.batches, begins=None)
            return self._begin(replace(state, workers=workers, trial=trial, offer=None), mark), None
        if state.trial is not None:
            return self._watch(state, state.trial, mark)
        if state.asked_s is not None:
            if mark.at_s - state.asked_s <= PATIENCE_S:
                return state, None
            return self._ask(state, mark, f"no result came within {seconds(PATIENCE_S)}")
        measured = mark.batches - state.block.batches
        if measured < self._of.learn:
            return state, None
        if mark.batches >= state.next_look:
            return self._ask(state, mark, f"{measured} global batches were measured")
        slower = (state.block.pace_to(mark) or 0.0) / state.pace_s - 1.0 if state.pace_s is not None else 0.0
        if slower > DRIFT:
            return self._ask(state, mark, f"a sample takes {slower:.0%} longer than it did")
        return replace(state, block=mark), None

    def decide(
        self, look: int, present: str, played: list[PlayedAlternative], error: float, mark: Mark, state: PilotState
    ) -> tuple[PilotState, Verdict]:
        """Decide on the result of a ``RequestSimulation``.

        Raises:
            ValueError: if it is not the expected result.
        """
        if state.asked_s is None or look != state.looks or state.block is None:
            waited = f"a result of simulation {state.looks}" if state.asked_s is not None else "none"
            raise ValueError(f"a result of simulation {look} of alternatives, expected {waited}")
        before_s = state.block.pace_to(mark)
        rows = [self._judge(each, error, mark, state) for each in played if each.name != present]
        good = {row.name: row for row in rows if not row.verdict}
        best = max(good.values(), key=lambda row: (row.saved, row.name), default=None)
        rows = [_explained(row, best) for row in sorted(rows, key=lambda row: (-row.saved, row.name))]
        switches = best is not None and before_s is not None and self.switches(state)
        state = replace(state, asked_s=None, pace_s=before_s, block=mark, offer=None)
        state = self._rest(state, mark)
        if best is None or before_s is None:
            return state, Verdict(chosen="", switches=False, rows=rows, reason=_none_reason(present, rows, best))
        offer = Offer(name=best.name, saved=best.saved, error=best.error, before_s=before_s)
        reason = f"{best.name} is predicted to save {best.saved:.0%} of {present}'s time, the error is {best.error:.1%}"
        return replace(state, offer=offer), Verdict(chosen=best.name, switches=switches, rows=rows, reason=reason)

    def switched(self, came_from: str, to: str, mark: Mark, state: PilotState, *, by_itself: bool) -> PilotState:
        """Other policies take effect. After a user's change it only proposes, until a user sets it to auto again."""
        offer, after = state.offer, self._begin(replace(state, trial=None, offer=None, rests=0), mark)
        if not by_itself:
            after = replace(after, mode="suggest")
        if offer is None or offer.name != to:
            return after
        trial = Trial(offer=offer, came_from=came_from, at=mark.batches, workers=state.workers)
        return replace(after, trial=trial, avoided=self._avoid(after, came_from, mark))

    def switches(self, state: PilotState) -> bool:
        """Whether it changes policies by itself."""
        return state.mode == "auto"

    def impossible(self, name: str, mark: Mark, state: PilotState) -> PilotState:
        """The job cannot use this alternative now, or it was found harmful: do not try it again soon."""
        return replace(state, trial=None, offer=None, avoided=self._avoid(state, name, mark))

    def restarted(self, mark: Mark, state: PilotState) -> PilotState:
        """A result came when the job could not act on it: measure again, and request another simulation."""
        return self._begin(replace(state, trial=None, offer=None), mark)

    def set_mode(self, mode: Mode, mark: Mark, state: PilotState) -> PilotState:
        """A user set its mode: compare again soon."""
        return self._begin(replace(state, mode=mode, rests=0, trial=state.trial), mark)

    def _begin(self, state: PilotState, mark: Mark) -> PilotState:
        """Start a measurement; simulate when it is complete."""
        return replace(state, block=mark, pace_s=None, asked_s=None, next_look=mark.batches + self._of.learn)

    def _rest(self, state: PilotState, mark: Mark) -> PilotState:
        rests = state.rests + 1
        wait = self._of.learn * min(RARELY, 2**rests)
        return replace(state, rests=rests, next_look=mark.batches + wait)

    def _ask(self, state: PilotState, mark: Mark, reason: str) -> tuple[PilotState, RequestSimulation]:
        looks = state.looks + 1
        return replace(state, looks=looks, asked_s=mark.at_s), RequestSimulation(look=looks, reason=reason)

    def _avoid(self, state: PilotState, name: str, mark: Mark) -> dict[str, int]:
        kept = {each: until for each, until in state.avoided.items() if until > mark.batches}
        return {**kept, name: mark.batches + self._of.retry_after}

    def _permit(self, state: PilotState, trial: Trial) -> PilotState:
        """What was left for this trial may be returned to."""
        return replace(state, avoided={name: at for name, at in state.avoided.items() if name != trial.came_from})

    def _watch(self, state: PilotState, trial: Trial, mark: Mark) -> tuple[PilotState, Measured | None]:
        if trial.begins is None:
            if mark.batches < trial.at + SETTLE:
                return state, None
            if trial.workers != state.workers:
                is_over = mark.batches >= trial.at + SETTLE + self._of.learn
                return self._begin(self._permit(replace(state, trial=None), trial), mark) if is_over else state, None
            return replace(state, trial=replace(trial, begins=mark)), None
        after_s = trial.begins.pace_to(mark)
        if mark.batches < trial.begins.batches + self._of.learn or after_s is None:
            return state, None
        offer = trial.offer
        gain = 1.0 - after_s / offer.before_s
        kept = after_s <= offer.before_s
        found = f"{offer.name} was predicted to save {offer.saved:.0%} and saves {gain:.1%}"
        measured = Measured(
            name=offer.name,
            came_from=trial.came_from,
            before_s=offer.before_s,
            after_s=after_s,
            predicted=offer.saved,
            error=offer.error,
            kept=kept,
            reason=found if kept else f"{found}: {trial.came_from} was better",
        )
        state = replace(
            state,
            trial=None,
            missed={**state.missed, offer.name: max(0.0, offer.saved - gain)},
            avoided=state.avoided if kept else self._avoid(state, offer.name, mark),
        )
        state = self._rest(self._begin(state, mark), mark)
        return state if kept else self._permit(state, trial), measured

    def _judge(self, played: PlayedAlternative, error: float, mark: Mark, state: PilotState) -> Judged:
        """A row of the table; its verdict says why it is no candidate, and is empty if it is one."""
        error = max(error, state.missed.get(played.name, 0.0))
        until = state.avoided.get(played.name, 0)
        if played.unfinished:
            verdict = "did not finish"
        elif until > mark.batches:
            verdict = f"not tried again for {until - mark.batches} batches"
        elif played.low <= 0.0:
            verdict = "saves no time with some seed"
        elif played.saved <= max(LEAST_GAIN, error):
            verdict = "saves no more than the error" if error >= LEAST_GAIN else f"saves no more than {LEAST_GAIN:.0%}"
        else:
            verdict = ""
        return Judged(
            name=played.name, saved=played.saved, low=played.low, high=played.high, error=error, verdict=verdict
        )


def _explained(row: Judged, best: Judged | None) -> Judged:
    if row.verdict:
        return row
    return replace(row, verdict="saves most" if best is not None and row.name == best.name else "saves less")


def _none_reason(present: str, rows: list[Judged], best: Judged | None) -> str:
    if best is not None:
        return f"{present} stays: {best.name} saves most, but the present time per sample was not measured"
    if not rows:
        return f"{present} stays: no alternative could be simulated"
    return f"{present} stays; next best: {rows[0].name} ({rows[0].verdict})"
