"""The handling of one entry: what the handlers read and where they put their commands."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.core.choices import (
    Barrier,
    Batching,
    Carrying,
    DataPolicy,
    Detector,
    Partitioned,
    PlacementPolicy,
    Rebalancing,
    Resolve,
    ServerDetector,
)
from controlplane.core.commands import AnyCommand, MoveJob, MoveProcess, Restart, StartProcess, StopProcess
from controlplane.core.gates import Cutter, Gate, Namer
from controlplane.core.records import Process, Server, Worker
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JOB_ARROWS, PROCESS_ARROWS, JobState, ProcessState, move
from controlplane.protocol.spec import CHOICES, Choice, JobSpec, Synchronization


class EventRefused(ValueError):
    """An event that has no place in the job's present state; nothing has changed."""


class Policies:
    """The policies of one job and the states that they are handed."""

    batching: Batching
    barrier: Barrier
    placement: PlacementPolicy
    data: DataPolicy

    def __init__(self, chosen: Synchronization, resolve: Resolve) -> None:
        self.resolve = resolve
        self.detector: Detector = resolve("stragglers", Choice(name="evidence"))
        self.batching_state: Any = None
        self.barrier_state: Any = None
        self.data_state: Any = None
        self.detector_state: Any = self.detector.start()
        self.server_detector = self.detector if isinstance(self.detector, ServerDetector) else None
        self.placement_state: Any = None
        self.adopt({question: resolve(question, getattr(chosen, question)) for question in CHOICES})

    def adopt(self, policies: Mapping[str, Any]) -> None:
        """Answer these questions by these policies from now on. States stay as far as they fit the new ones."""
        if "batching" in policies:
            self.batching_state = self._carried(policies["batching"])
        for question, policy in policies.items():
            setattr(self, question, policy)
        barrier: Any = self.barrier
        placement: Any = self.placement
        self.rebalancing = placement if isinstance(placement, Rebalancing) else None
        self._placement_state_type = self.rebalancing.state_type if self.rebalancing is not None else type(None)
        if not isinstance(self.placement_state, self._placement_state_type):
            self.placement_state = None
        self.gate = barrier if isinstance(barrier, Gate) else None
        self.cutter = barrier if isinstance(barrier, Cutter) else None
        self.namer = barrier if isinstance(barrier, Namer) else None
        self.is_partial = self.cutter is not None or self.namer is not None
        """Whether iterations may be made by less than everybody's whole share."""
        deciding = self.gate or self.cutter or self.namer
        self._barrier_state_type = deciding.state_type if deciding is not None else type(None)
        if not isinstance(self.barrier_state, self._barrier_state_type):
            self.barrier_state = None
        self.partitioned = self.data if isinstance(self.data, Partitioned) else None
        self._data_state_type = self.partitioned.state_type if self.partitioned is not None else type(None)
        if not isinstance(self.data_state, self._data_state_type):
            self.data_state = None

    def _carried(self, batching: Any) -> Any:
        """What ``batching`` can go on from; before it there may be none."""
        if self.batching_state is None:
            return None
        if isinstance(batching, Carrying):
            return batching.carry(self.batching, self.batching_state)
        return self.batching_state if isinstance(self.batching_state, batching.state_type) else None

    def dump(self) -> dict[str, msgspec.Raw]:
        """Their states, encoded."""
        return {
            "batching": msgspec.Raw(msgspec.msgpack.encode(self.batching_state)),
            "barrier": msgspec.Raw(msgspec.msgpack.encode(self.barrier_state)),
            "data": msgspec.Raw(msgspec.msgpack.encode(self.data_state)),
            "placement": msgspec.Raw(msgspec.msgpack.encode(self.placement_state)),
            "stragglers": msgspec.Raw(msgspec.msgpack.encode(self.detector_state)),
        }

    def load(self, states: dict[str, msgspec.Raw]) -> None:
        """Take their states from what ``dump`` gave."""
        self.batching_state = msgspec.msgpack.decode(states["batching"], type=self.batching.state_type | None)
        self.barrier_state = msgspec.msgpack.decode(states["barrier"], type=self._barrier_state_type | None)
        self.placement_state = msgspec.msgpack.decode(states["placement"], type=self._placement_state_type | None)
        self.data_state = msgspec.msgpack.decode(states["data"], type=self._data_state_type | None)
        self.detector_state = msgspec.msgpack.decode(states["stragglers"], type=self.detector.state_type)


class Handling:
    """One entry being handled. ``now_ms`` is its time; no other clock is read."""

    __slots__ = ("cause", "commands", "fault", "has_new_deadline", "job", "now_ms", "policies")

    def __init__(self, job: Job, policies: Policies | None, cause: str, now_ms: int) -> None:
        self.job = job
        self.policies = policies
        self.cause = cause
        self.now_ms = now_ms
        self.commands: list[AnyCommand] = []
        self.has_new_deadline = False
        """Whether something was planned, so that the next deadline must be looked for."""
        self.fault: Exception | None = None
        """What went wrong within a batching policy; the job is to pause for it."""

    @property
    def spec(self) -> JobSpec:
        """The job's spec; there is one from the first event on."""
        assert self.job.spec is not None
        return self.job.spec

    @property
    def chosen(self) -> Policies:
        """The job's policies; there are some from the first event on."""
        assert self.policies is not None
        return self.policies

    def give(self, command: type[AnyCommand], reason: str, /, **fields: Any) -> None:
        """Add a command with this entry as its cause."""
        self.commands.append(command(cause=self.cause, reason=reason, **fields))
        if command is MoveJob:
            self.job.awaited = fields.get("awaited", "")

    def start_process(self, process: Process, reason: str) -> None:
        """Have its agent run a process; one that it has begun already goes on."""
        self.give(StartProcess, reason, **_life(process), **_place(process))

    def move_job(self, state: JobState, reason: str, *, awaited: str = "") -> None:
        """Move the job along an arrow of its table, and say so."""
        job = self.job
        job.state = move(f"job {job.number}", JOB_ARROWS, job.state, state)
        job.since_ms = self.now_ms
        self.give(MoveJob, reason, state=state, awaited=awaited)

    def move_process(self, process: Process, state: ProcessState, reason: str) -> None:
        """Move a process along an arrow of its table, and say so."""
        was = process.state
        process.state = move(f"job {self.job.number}, {process.title}", PROCESS_ARROWS, was, state)
        process.since_ms = self.now_ms
        if was is ProcessState.ORDERED:
            del self.job.lives.starting[process.title]
        if isinstance(process, Worker) and was in AT_WORK and state not in AT_WORK:
            self.job.lives.at_work -= 1
        self.tell_process(process, reason)

    def add_process(self, process: Worker | Server) -> None:
        """A new life of a process, which was ordered and is to say hello."""
        job = self.job
        job.lives.starting[process.title] = None
        self.has_new_deadline = True
        if isinstance(process, Worker):
            job.workers[process.index] = process
            job.lives.at_work += 1
        else:
            job.servers[process.index] = process

    def stop_process(self, process: Process, reason: str) -> None:
        """Have its agent end a process."""
        self.give(StopProcess, reason, **_life(process), agent=process.agent)

    def tell_process(self, process: Process, reason: str) -> None:
        """Say where a process is."""
        restart = self.restart_of(process)
        self.give(MoveProcess, reason, **_life(process), state=process.state, **_place(process), restart=restart)

    def restart_of(self, process: Process) -> Restart | None:
        """The start that follows the end of this life, if one is planned."""
        revival = self.job.lives.revivals.get(process.title) if process.over else None
        if revival is None:
            return None
        allowed = max(1, self.spec.elastic.restarts)
        return Restart(number=revival.number, allowed=allowed, at_ms=revival.due_ms, wants_slot=revival.wants_slot)


def _life(process: Process) -> dict[str, Any]:
    """Which life of which process, as commands name it."""
    return {"role": process.role, "index": process.index, "instance": process.instance}


def _place(process: Process) -> dict[str, Any]:
    """Where it runs, as commands name it."""
    return {"agent": process.agent, "slot": process.slot, "emulate": process.emulate}
