"""Extracts a run from the log of a job: the iterations of each worker, their durations, and when workers left.

Reads entries from any storage, and makes a scenario of them, so that the same job can be simulated.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from controlplane.core.events import (
    ChangeRequested,
    Entry,
    JobSubmitted,
    PredictorPromoted,
    ProcessDied,
    ServerMessageReceived,
    StopRequested,
    WorkerMessageReceived,
)
from controlplane.policies import registry
from controlplane.protocol.base import Value
from controlplane.protocol.launching import as_native
from controlplane.protocol.messages import IterationReport, RankHello, ServerHello, WorkerFinished
from controlplane.protocol.spec import JobSpec, SpecError, Stop, Synchronization, check_combination
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.learned_machine import RecordedMachine, Sample, learn_machine
from controlplane.simulator.network import Link, ServerSpec
from controlplane.simulator.scenario import Group, Happening, Scenario

WARM_UP: Final = 2
"""First iterations of a worker, which are not representative."""

LEAST: Final = 10
"""The fewest iterations of every worker that a model needs."""

MOST, MOST_UPDATES = 500, 30_000
"""The most iterations that are simulated, and updates of all workers; more take time and add little."""

RECORDED: Final = "recorded"
"""The name of the policies with which the job was submitted."""

_PREFIX: Final = "job-"
MOST_DIGITS: Final = 18

UNKNOWN: Final = RecordedMachine(
    fixed_s=0.0, each_s=1.0, level=(1.0,), cpu=(0.0,), memory=(0.0,), step_s=1.0, noise=(1.0,)
)
"""Stands for a machine without a model yet."""

OTHERS: Final = registry.compared()
"""Policies that are compared by default, if they are compatible with the rest of the job."""


class TooLittle(SimulationError):
    """A log that is too short for a model: says what is missing, and what to do."""


class Run(Value, frozen=True, kw_only=True):
    """A recorded job. Times are seconds since its first report."""

    job: int
    spec: JobSpec
    tensor_sizes: list[int]
    samples: dict[int, list[Sample]]
    """Samples by rank, in order."""
    iteration_s: dict[int, float]
    """Duration of each iteration that every worker reported, from the end of the previous one to its own."""
    left_s: dict[int, float]
    """By rank: when a worker ended and did not return."""
    changed_at: int | None
    """The first iteration after a user changed the policies: later iterations are not compared."""
    coordination_s: float
    """Median of the reported coordination times."""


def read_run(job: int, entries: Iterable[Entry]) -> Run:
    """Everything in the log that a model can be learned from.

    Raises:
        TooLittle: if a worker has reported too few iterations.
    """
    reader = _Reader()
    for entry in entries:
        reader.take(entry)
    spec = reader.spec
    if spec is None:
        raise TooLittle(f"job {job}: its log does not begin with its submission, so its spec is unknown")
    for rank in range(spec.workers):
        found = len(reader.samples.get(rank, ()))
        if found < LEAST and rank not in reader.died_s:
            raise TooLittle(
                f"job {job}: w{rank} has {found} iterations past its first {WARM_UP}, {LEAST} are needed: "
                "let the job run for longer"
            )
    gone = {rank: at_s for rank, at_s in reader.died_s.items() if reader.last_s.get(rank, -1.0) <= at_s}
    if reader.begin_ms is None or len(gone) == spec.workers or not all(reader.samples.get(rank) for rank in gone):
        raise TooLittle(f"job {job}: too little was recorded of its workers before they left")
    return Run(
        job=job,
        spec=spec,
        tensor_sizes=reader.tensor_sizes or [1],
        samples={rank: reader.samples[rank] for rank in range(spec.workers)},
        iteration_s=reader.durations(spec.workers - len(gone)),
        left_s=gone,
        changed_at=reader.changed_at,
        coordination_s=statistics.median(reader.coordination_s) if reader.coordination_s else 0.0,
    )


def as_if_begun(reports: Sequence[tuple[str, WorkerMessageReceived, IterationReport]]) -> Iterator[Entry]:
    """The reports with their entry ids, as if the job had begun with the first iteration of all workers."""
    first: dict[int, int] = {}
    for _, event, report in reports:
        first.setdefault(event.rank, report.iteration)
    begin = max(first.values(), default=0)
    for stream_id, event, report in reports:
        if report.iteration >= begin:
            counted = replace(report, iteration=report.iteration - begin)
            yield Entry(id=stream_id, event=replace(event, message=counted))


def outline_of(job: int, spec: JobSpec, done: int) -> Scenario:
    """A scenario of the job for at most its ``done`` iterations, on machines without a model yet."""
    iterations = max(LEAST, min(MOST, done, MOST_UPDATES // spec.workers))
    elastic = replace(spec.elastic, restarts=0)
    own, others = spec.synchronization, {name: other for name, other in OTHERS.items() if is_compatible(spec, other)}
    spec = replace(as_native(spec), stop=Stop(iterations=iterations), emulate=None, elastic=elastic, autopilot=None)
    return Scenario(
        name=name_of(job),
        title=f"Job {job} ({spec.name}) played again",
        story="Machines behave as its recorded events show them; nothing is known of what was not recorded. "
        f"The policies that it had ({own.batching.name}, {own.barrier.name}, {own.placement.name}, {own.data.name}) "
        f"are called {RECORDED}.",
        spec=spec,
        policies={RECORDED: own} | others,
        baseline=RECORDED,
        groups=(Group(count=spec.workers, machine=UNKNOWN, link=Link(recorded_s=(0.0,))),),
        warm_up=min(WARM_UP, iterations // 4),
    )


def scenario_of(run: Run) -> Scenario:
    """A scenario of the job, on machines that behave as recorded."""
    length_s = max(sample.at_s + sample.total_s for found in run.samples.values() for sample in found)
    done = round(statistics.median(found[-1].iteration + 1 for found in run.samples.values()))
    groups = tuple(
        Group(count=1, machine=learn_machine(found, length_s), link=_link(found))
        for _, found in sorted(run.samples.items())
    )
    return replace(
        outline_of(run.job, run.spec, done),
        groups=groups,
        tensor_sizes=tuple(run.tensor_sizes),
        control=ControlPlane(latency_s=max(0.0005, run.coordination_s / 2)),
        happenings=tuple(
            Happening(kind="leave", at_s=at_s, index=rank) for rank, at_s in run.left_s.items() if at_s < length_s
        ),
        horizon_s=100.0 * length_s + 1000.0,
    )


def name_of(job: int) -> str:
    """The scenario's name: ``job-7``."""
    return f"{_PREFIX}{job}"


def job_of(name: str) -> int | None:
    """The recorded job that a scenario's name refers to, if any."""
    number = name.removeprefix(_PREFIX)
    return int(number) if name != number and number.isdecimal() and len(number) < MOST_DIGITS else None


def without(scenario: Scenario, rank: int) -> Scenario:
    """The same job without that worker, which leaves just after the start: the others share the same global batch."""
    leaves = Happening(kind="leave", at_s=20 * scenario.control.latency_s + 1e-3, index=rank)
    kept = tuple(happening for happening in scenario.happenings if happening.index != rank)
    return replace(scenario, happenings=(*kept, leaves))


def with_another(scenario: Scenario, rank: int) -> Scenario:
    """The same job with one more machine like that worker's, from the beginning.

    The workers share the same global batch, as far as it can be divided, and process the same number of samples.
    """
    spec, workers = scenario.spec, scenario.spec.workers + 1
    batch_size = max(1, round(spec.workers * spec.batch_size / workers))
    stop = spec.stop
    if stop.iterations is not None:
        same = max(
            scenario.warm_up + 1, round(stop.iterations * spec.workers * spec.batch_size / (workers * batch_size))
        )
        stop = replace(stop, iterations=same)
    machines = scenario.machines
    return replace(
        scenario,
        spec=replace(spec, workers=workers, batch_size=batch_size, stop=stop),
        groups=(*scenario.groups, replace(machines[rank], count=1)),
    )


def with_bandwidth(scenario: Scenario, times: float) -> Scenario:
    """The same job with the bandwidth of all links and servers multiplied by ``times``.

    Recorded exchange times are assumed to be bandwidth only, since latency cannot be separated from it: the resulting
    gain is an upper bound.
    """
    return replace(
        scenario,
        groups=tuple(replace(group, link=_wider(group.link, times)) for group in scenario.groups),
        servers=_faster(scenario.servers, times),
        odd_servers={index: _faster(server, times) for index, server in scenario.odd_servers.items()},
    )


def _wider(link: Link, times: float) -> Link:
    return replace(
        link,
        bytes_per_s=link.bytes_per_s * times if link.bytes_per_s is not None else None,
        changes=tuple(replace(change, bytes_per_s=change.bytes_per_s * times) for change in link.changes),
        recorded_s=tuple(seconds / times for seconds in link.recorded_s),
    )


def _faster(server: ServerSpec, times: float) -> ServerSpec:
    """A server with a faster network; the speed of its CPU stays."""
    if server.bytes_per_s is None:
        return server
    return replace(
        server,
        bytes_per_s=server.bytes_per_s * times,
        changes=tuple(replace(change, bytes_per_s=change.bytes_per_s * times) for change in server.changes),
    )


def is_compatible(spec: JobSpec, synchronization: Synchronization) -> bool:
    """Whether these policies are compatible with the rest of the spec."""
    other = replace(spec, synchronization=synchronization)
    try:
        check_combination(other)
    except SpecError:
        return False
    return registry.refusal(other) is None


def _link(samples: list[Sample]) -> Link:
    """A link with half of a worker's communication time each way; bandwidth and latency cannot be separated."""
    return Link(recorded_s=tuple(sample.communication_s / 2 for sample in samples))


class _Reader:
    """Reads a log entry by entry."""

    def __init__(self) -> None:
        self.spec: JobSpec | None = None
        self.tensor_sizes: list[int] = []
        self.samples: dict[int, list[Sample]] = defaultdict(list)
        self.died_s: dict[int, float] = {}
        self.last_s: dict[int, float] = {}
        self.changed_at: int | None = None
        self.coordination_s: list[float] = []
        self.begin_ms: int | None = None
        self._reports: dict[int, int] = defaultdict(int)
        self._done: dict[int, int] = {}
        self._finished: set[int] = set()
        self._stopped = False
        self._ended: dict[int, tuple[int, float]] = {}
        """By iteration: how many workers have reported it, and when the last one did."""

    def take(self, entry: Entry) -> None:
        match entry.event:
            case JobSubmitted(spec=spec):
                self.spec = spec
            case WorkerMessageReceived(message=RankHello(world=world, batch_size=batch_size)) if self.spec is not None:
                self.spec = replace(self.spec, workers=world, batch_size=batch_size)
            case ServerMessageReceived(message=ServerHello(tensor_sizes=sizes)):
                self.tensor_sizes = list(sizes)
            case WorkerMessageReceived(rank=rank, message=IterationReport() as report):
                self._report(rank, report, entry.at_ms)
            case WorkerMessageReceived(rank=rank, message=WorkerFinished()):
                self._finished.add(rank)
            case StopRequested():
                self._stopped = True
            case ProcessDied(role="worker", index=rank) if self._dies_early(rank):
                self.died_s[rank] = (entry.at_ms - (self.begin_ms or 0)) / 1000
            case ChangeRequested() | PredictorPromoted() if self.changed_at is None:
                self.changed_at = max(self._ended, default=-1) + 1
            case _:
                pass

    def _dies_early(self, rank: int) -> bool:
        """Whether the worker ended before the job's end, at which every process ends."""
        return self.begin_ms is not None and rank not in self._finished and not self._stopped

    def durations(self, workers: int) -> dict[int, float]:
        whole = {k: at_s for k, (count, at_s) in self._ended.items() if count >= workers}
        return {k: whole[k] - whole[k - 1] for k in sorted(whole) if k - 1 in whole}

    def _report(self, rank: int, report: IterationReport, at_ms: int) -> None:
        if report.iteration <= self._done.get(rank, -1):
            return  # repeated after a reconnect
        if self.begin_ms is None:
            self.begin_ms = at_ms
        at_s = (at_ms - self.begin_ms) / 1000
        self._done[rank], self.last_s[rank] = report.iteration, at_s
        count, _ = self._ended.get(report.iteration, (0, 0.0))
        self._ended[report.iteration] = count + 1, at_s
        self._reports[rank] += 1
        if self._reports[rank] <= WARM_UP or report.samples == 0 or not math.isfinite(report.compute_s):
            return
        self.coordination_s.append(report.coordination_s)
        self.samples[rank].append(
            Sample(
                iteration=report.iteration,
                at_s=max(0.0, at_s - report.push_s - report.processing_s),
                samples=report.samples,
                compute_s=report.processing_s,
                communication_s=report.push_s + report.pull_s,
                total_s=report.iteration_s,
                cpu=report.cpu,
                memory=report.memory,
            )
        )
