"""Simulates the alternatives of a job's autopilot on machines learned from its workers' reports.

The job's present policies are simulated on the same machines; the deviation from the recorded pace is the model's
error. Every alternative is simulated with the same seeds. Policies are compared by time per sample, since under some
barriers fast workers process more samples.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from controlplane.core.choices import PlayedAlternative
from controlplane.core.commands import PlayAlternatives
from controlplane.core.events import (
    AlternativesPlayed,
    Entry,
    JobSubmitted,
    ServerMessageReceived,
    WorkerMessageReceived,
)
from controlplane.core.states import JobState
from controlplane.protocol.messages import IterationReport, ServerHello
from controlplane.protocol.spec import JobSpec, Stop, Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.outcome import Lengths, Outcome, judge, lengths_of, outcome_of
from controlplane.simulator.recorded_run import TooLittle, as_if_begun, read_run, scenario_of
from controlplane.simulator.scenario import Scenario, check

SEEDS: Final = 3
ITERATIONS: Final = 60
"""Iterations simulated of each alternative at least: policies that learn need some before their shares settle."""

RECENT: Final = 150
"""The most reports of each worker that the model uses: machines change."""

LEARNT: Final = 1 / 4
"""Fraction of the iterations that are simulated but not counted."""


class Seen:
    """The part of a job's log that a simulation needs, kept while the job runs."""

    def __init__(self) -> None:
        self._begin: list[Entry] = []
        self._reports: dict[int, deque[Entry]] = {}
        self._spec: JobSpec | None = None

    def add(self, entry: Entry) -> None:
        """One entry of the log."""
        match entry.event:
            case JobSubmitted(spec=spec):
                self._spec = spec
            case ServerMessageReceived(message=ServerHello()):
                self._begin.append(entry)
            case WorkerMessageReceived(rank=rank, message=IterationReport()):
                self._reports.setdefault(rank, deque(maxlen=RECENT)).append(entry)
            case _:
                pass

    def answer(self, job: int, command: PlayAlternatives) -> AlternativesPlayed:
        """The result that the command requests."""
        assert self._spec is not None
        reports = sorted((entry for kept in self._reports.values() for entry in kept), key=_order)
        return play_alternatives(job, self._spec, [*self._begin, *reports], command)


def play_alternatives(
    job: int, spec: JobSpec, entries: Iterable[Entry], command: PlayAlternatives, *, seeds: int = SEEDS
) -> AlternativesPlayed:
    """The event with the result of ``command``; for alternatives that cannot be simulated it has a reason."""
    present = command.alternatives[command.present]
    spec = replace(spec, synchronization=present, autopilot=None)
    try:
        run = read_run(job, _begun(spec, entries, command.since))
    except TooLittle as error:
        return AlternativesPlayed(look=command.look, reason=str(error))
    scenario = _longer(scenario_of(run))
    try:
        check(scenario)
        base = [_play(scenario, present, seed) for seed in range(seeds)]
        fit = judge(run, [lengths for _, lengths in base])
        paces = [_pace(scenario, *each) for each in base]
        found = [
            _compare(name, other, scenario, paces)
            for name, other in command.alternatives.items()
            if name != command.present
        ]
    except SimulationError as error:
        return AlternativesPlayed(look=command.look, reason=str(error))
    spread = statistics.pstdev(paces) / statistics.fmean(paces)
    return AlternativesPlayed(look=command.look, error=fit.error_of_mean + spread, played=found)


def _begun(spec: JobSpec, entries: Iterable[Entry], since: int) -> Iterator[Entry]:
    """The job as if it had begun with the present policies."""
    yield Entry(id="0-0", event=JobSubmitted(spec=spec))
    reports = []
    for entry in entries:
        event = entry.event
        if isinstance(event, JobSubmitted):
            continue
        if not isinstance(event, WorkerMessageReceived) or not isinstance(event.message, IterationReport):
            yield entry
        elif event.message.iteration >= since:
            reports.append((entry.id, event, event.message))
    yield from as_if_begun(reports)


def _longer(scenario: Scenario) -> Scenario:
    """The scenario, long enough for policies that learn; the iterations until then are not counted."""
    iterations = max(ITERATIONS, min(RECENT, scenario.spec.stop.iterations or 0))
    spec = replace(scenario.spec, stop=Stop(iterations=iterations))
    return replace(scenario, spec=spec, warm_up=round(iterations * LEARNT))


def _play(scenario: Scenario, synchronization: Synchronization, seed: int) -> tuple[Outcome, Lengths]:
    cluster = Cluster(scenario, synchronization, seed=seed)
    cluster.run()
    return outcome_of(cluster, "", seed, None), lengths_of(cluster)


def _pace(scenario: Scenario, outcome: Outcome, lengths: Lengths) -> float:
    """Seconds per sample: in lockstep over the iterations that count, else over the whole run."""
    spans = lengths.spans[scenario.warm_up :]
    if len(spans) < scenario.warm_up:
        return outcome.seconds / max(1, outcome.samples)
    return statistics.fmean(spans) / scenario.spec.global_batch


def _compare(
    name: str, synchronization: Synchronization, scenario: Scenario, base: Sequence[float]
) -> PlayedAlternative:
    played = [_play(scenario, synchronization, seed) for seed in range(len(base))]
    saved = [1.0 - _pace(scenario, *mine) / its for mine, its in zip(played, base, strict=True)]
    return PlayedAlternative(
        name=name,
        saved=statistics.fmean(saved),
        low=min(saved),
        high=max(saved),
        unfinished=any(outcome.state != JobState.SUCCEEDED for outcome, _ in played),
    )


def _order(entry: Entry) -> tuple[int, int]:
    milliseconds, _, within = entry.id.partition("-")
    return int(milliseconds), int(within)
