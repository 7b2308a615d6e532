"""The handling of one log entry: what handlers read, the commands that they emit, and the job's policies.

Operations that any handler may need are methods here: to change the state of the job or of a process, to raise and
close flags, and to end the job.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.core.barriers import AsyncBarrier, Barrier, PartialBarrier, QuorumBarrier, SampledByPeers
from controlplane.core.choices import (
    Batching,
    Carrying,
    ConvergenceGuard,
    DataPolicy,
    Detector,
    Finding,
    Metered,
    Observation,
    Partitioned,
    Pilot,
    PlacementPolicy,
    Rebalancing,
    Resolve,
    ServerDetector,
    Transfer,
)
from controlplane.core.commands import (
    AnyCommand,
    CloseFlag,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    ReleaseSlots,
    Restart,
    StartProcess,
    StopProcess,
)
from controlplane.core.modes import Lockstep, mode_of
from controlplane.core.state import Job
from controlplane.core.states import (
    AT_WORK,
    JOB_ARROWS,
    PROCESS_ARROWS,
    JobState,
    Process,
    ProcessState,
    Server,
    Worker,
    in_words,
    move,
)
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.guard import Guard
from controlplane.protocol.spec import CHOICES, Choice, JobSpec, Synchronization

LOOK_MS: Final = 20
"""Minimum interval between the iterations that are passed to a detector. A transient flag needs three of them: three
that last for a few milliseconds each are nothing that an operator can act on, and on machines with high variance one in
2,000 is flagged by chance (``bench stragglers``), which would be a flag in ten seconds.
"""

SLOTS_RETURN_MS: Final = 15_000
"""How long the end of a job waits for its processes before its slots are released anyway."""


class EventRefused(ValueError):
    """An event that is not valid in the job's current state; nothing has changed."""


class Policies:
    """The policies of one job and their states."""

    batching: Batching
    barrier: Barrier
    placement: PlacementPolicy
    data: DataPolicy

    def __init__(
        self,
        chosen: Synchronization,
        resolve: Resolve,
        autopilot: Autopilot | None = None,
        guard: Guard | None = None,
        *,
        attached: bool = False,
    ) -> None:
        """``attached``: a launcher owns the workers."""
        self.resolve, self._attached = resolve, attached
        self.pilot: Pilot | None = resolve("autopilot", _piloting(autopilot)) if autopilot is not None else None
        self.pilot_state: Any = self.pilot.start() if self.pilot is not None else None
        self.guard: ConvergenceGuard | None = resolve("guard", _judging(guard)) if guard is not None else None
        self.guard_state: Any = self.guard.start() if self.guard is not None else None
        self.detector: Detector = resolve("stragglers", Choice(name="evidence"))
        self.batching_state: Any = None
        self.barrier_state: Any = None
        self.data_state: Any = None
        self.detector_state: Any = self.detector.start()
        self.server_detector = self.detector if isinstance(self.detector, ServerDetector) else None
        self.placement_state: Any = None
        self.adopt({question: resolve(question, getattr(chosen, question)) for question in CHOICES})

    def adopt(self, policies: Mapping[str, Any]) -> None:
        """Use these policies for these questions from now on. Compatible states are kept."""
        if "batching" in policies:
            self.batching_state = self._carried(policies["batching"])
        for question, policy in policies.items():
            setattr(self, question, policy)
        barrier: Any = self.barrier
        placement: Any = self.placement
        # Checked once, here: every report needs it, and isinstance with a protocol takes 15 µs.
        self.is_metered = isinstance(self.batching, Metered)
        """Whether shares follow energy or cost."""
        self.rebalancing = placement if isinstance(placement, Rebalancing) else None
        self._placement_state_type = self.rebalancing.state_type if self.rebalancing is not None else type(None)
        if not isinstance(self.placement_state, self._placement_state_type):
            self.placement_state = None
        self.async_barrier = barrier if isinstance(barrier, AsyncBarrier) else None
        self.peer_barrier = barrier if isinstance(barrier, SampledByPeers) else None
        self.mode = mode_of(self.async_barrier, attached=self._attached)
        self.partial_barrier = barrier if isinstance(barrier, PartialBarrier) else None
        self.quorum_barrier = barrier if isinstance(barrier, QuorumBarrier) else None
        self.is_partial = self.partial_barrier is not None or self.quorum_barrier is not None
        """Whether an iteration may be complete without the complete share of every worker."""
        deciding = self.async_barrier or self.partial_barrier or self.quorum_barrier
        self._barrier_state_type = deciding.state_type if deciding is not None else type(None)
        if not isinstance(self.barrier_state, self._barrier_state_type):
            self.barrier_state = None
        self.partitioned = self.data if isinstance(self.data, Partitioned) else None
        self._data_state_type = self.partitioned.state_type if self.partitioned is not None else type(None)
        if not isinstance(self.data_state, self._data_state_type):
            self.data_state = None

    def _carried(self, batching: Any) -> Any:
        """The state from which ``batching`` can continue; before the first policy there may be none."""
        if self.batching_state is None:
            return None
        if isinstance(batching, Carrying):
            return batching.carry(self.batching, self.batching_state)
        return self.batching_state if isinstance(self.batching_state, batching.state_type) else None

    def dump(self) -> dict[str, msgspec.Raw]:
        """The encoded states."""
        states = {
            "batching": msgspec.Raw(msgspec.msgpack.encode(self.batching_state)),
            "barrier": msgspec.Raw(msgspec.msgpack.encode(self.barrier_state)),
            "data": msgspec.Raw(msgspec.msgpack.encode(self.data_state)),
            "placement": msgspec.Raw(msgspec.msgpack.encode(self.placement_state)),
            "stragglers": msgspec.Raw(msgspec.msgpack.encode(self.detector_state)),
        }
        if self.pilot is not None:
            states["autopilot"] = msgspec.Raw(msgspec.msgpack.encode(self.pilot_state))
        if self.guard is not None:
            states["guard"] = msgspec.Raw(msgspec.msgpack.encode(self.guard_state))
        return states

    def load(self, states: dict[str, msgspec.Raw]) -> None:
        """Restore the states from the result of ``dump``."""
        self.batching_state = msgspec.msgpack.decode(states["batching"], type=self.batching.state_type | None)
        self.barrier_state = msgspec.msgpack.decode(states["barrier"], type=self._barrier_state_type | None)
        self.placement_state = msgspec.msgpack.decode(states["placement"], type=self._placement_state_type | None)
        self.data_state = msgspec.msgpack.decode(states["data"], type=self._data_state_type | None)
        self.detector_state = msgspec.msgpack.decode(states["stragglers"], type=self.detector.state_type)
        if self.pilot is not None:
            self.pilot_state = msgspec.msgpack.decode(states["autopilot"], type=self.pilot.state_type)
        if self.guard is not None:
            self.guard_state = msgspec.msgpack.decode(states["guard"], type=self.guard.state_type)


def _piloting(autopilot: Autopilot) -> Choice:
    return Choice(name="predicted-gain", parameters=msgspec.to_builtins(autopilot))


def _judging(guard: Guard) -> Choice:
    return Choice(name="loss-forecast", parameters=msgspec.to_builtins(guard))


class Context:
    """The handling of one entry. ``now_ms`` is its time; no other clock is read."""

    __slots__ = ("cause", "commands", "fault", "has_new_deadline", "job", "now_ms", "policies")

    def __init__(self, job: Job, policies: Policies | None, cause: str, now_ms: int) -> None:
        self.job = job
        self.policies = policies
        self.cause = cause
        self.now_ms = now_ms
        self.commands: list[AnyCommand] = []
        self.has_new_deadline = False
        """Whether the next deadline must be computed again."""
        self.fault: Exception | None = None
        """An error raised by a batching policy; it pauses the job."""

    @property
    def spec(self) -> JobSpec:
        """The job's spec; set from the first event on."""
        assert self.job.spec is not None
        return self.job.spec

    @property
    def chosen(self) -> Policies:
        """The job's policies; set from the first event on."""
        assert self.policies is not None
        return self.policies

    @property
    def mode(self) -> Lockstep:
        """How workers are synchronized; also set if the job's policies could not be created."""
        if self.policies is None:
            return mode_of(None, attached=self.spec.attached)
        return self.policies.mode

    def emit(self, command: type[AnyCommand], reason: str, /, **fields: Any) -> None:
        """Add a command with this entry as its cause."""
        self.commands.append(command(cause=self.cause, reason=reason, **fields))
        if command is MoveJob:
            self.job.awaited = fields.get("awaited", "")

    def start_process(self, process: Process, reason: str) -> None:
        """Start a process through its agent; one that already runs continues. Ranks of a launcher have no agent."""
        if self.mode.owns_processes:
            self.emit(StartProcess, reason, **_instance_of(process), **_place(process))

    def move_job(self, state: JobState, reason: str, *, awaited: str = "") -> None:
        """Change the job's state along an arrow of its table, and emit the change."""
        job = self.job
        job.state = move(f"job {job.number}", JOB_ARROWS, job.state, state)
        job.since_ms = self.now_ms
        self.emit(MoveJob, reason, state=state, awaited=awaited)

    def move_process(self, process: Process, state: ProcessState, reason: str) -> None:
        """Change a process's state along an arrow of its table, and emit the change."""
        was = process.state
        process.state = move(f"job {self.job.number}, {process.title}", PROCESS_ARROWS, was, state)
        process.since_ms = self.now_ms
        if was is ProcessState.ORDERED:
            del self.job.starts.starting[process.title]
        if isinstance(process, Worker) and was in AT_WORK and state not in AT_WORK:
            self.job.starts.at_work -= 1
        self.report_process(process, reason)

    def add_process(self, process: Worker | Server) -> None:
        """Add a new instance of a process, which was ordered and should send a hello."""
        job = self.job
        job.starts.starting[process.title] = None
        self.has_new_deadline = True
        if isinstance(process, Worker):
            job.workers[process.index] = process
            job.starts.at_work += 1
        else:
            job.servers[process.index] = process

    def stop_process(self, process: Process, reason: str) -> None:
        """End a process through its agent. A launcher's process has no agent; it only stops to count."""
        if not self.mode.owns_processes:
            if not process.over:
                self.move_process(process, ProcessState.STOPPED, reason)
            return
        self.emit(StopProcess, reason, **_instance_of(process), agent=process.agent)

    def stop_script(self, rank: int, reason: str) -> None:
        """End the process of one rank of a script through its agent."""
        process = self.job.scripts.processes[rank]
        self.emit(StopProcess, reason, role="worker", index=rank, instance=process.instance, agent=process.agent)

    def report_process(self, process: Process, reason: str) -> None:
        """Emit the state and slot of a process."""
        restart = self.restart_of(process)
        environment = process.environment if isinstance(process, Worker) else {}
        place = _place(process)
        self.emit(
            MoveProcess,
            reason,
            **_instance_of(process),
            state=process.state,
            **place,
            restart=restart,
            environment=environment,
        )

    def restart_of(self, process: Process) -> Restart | None:
        """The restart that follows the end of this instance, if one is planned."""
        revival = self.job.starts.revivals.get(process.title) if process.over else None
        if revival is None:
            return None
        allowed = max(1, self.spec.elastic.restarts)
        return Restart(number=revival.number, allowed=allowed, at_ms=revival.due_ms, wants_slot=revival.wants_slot)

    def end_job(self, state: JobState, reason: str) -> None:
        """End the job: stop running processes; slots are released when they have ended."""
        self.move_job(state, reason)
        job = self.job
        job.starts.revivals.clear()
        job.pauses.clear()
        for process in job.live_processes:
            self.stop_process(process, f"the job {in_words(state)}")
        for rank in job.scripts.running:
            self.stop_script(rank, f"the job {in_words(state)}")
        self.close_flags(f"the job {in_words(state)}")
        self.return_slots()

    def return_slots(self, *, late: bool = False) -> None:
        """Release the slots once no process uses them, or it is ``late``."""
        job = self.job
        running, scripts = job.live_processes, job.scripts.running.values()
        if not job.holds_slots or ((running or scripts) and not late):
            return
        for script in scripts:
            script.runs = False
        for process in running:
            self.move_process(
                process, ProcessState.STOPPED, f"its end was not reported within {SLOTS_RETURN_MS / 1000:g} s"
            )
        job.holds_slots = False
        self.emit(
            ReleaseSlots, "the deadline for its processes to end has passed" if late else "all processes have ended"
        )

    def look(self, observations: list[Observation], transfers: list[Transfer]) -> None:
        """Pass the complete iterations to the detector, unless the last ones were passed a moment ago."""
        flags, policies = self.job.flags, self.chosen
        if self.now_ms - flags.shown_ms < LOOK_MS:
            return
        flags.shown_ms = self.now_ms
        policies.detector_state, findings = policies.detector.observe(observations, policies.detector_state)
        self.record_findings(findings)
        if policies.server_detector is not None:
            policies.detector_state, findings = policies.server_detector.observe_servers(
                transfers, policies.detector_state
            )
            self.record_findings(findings)

    def record_findings(self, findings: list[Finding]) -> None:
        """Raise or close the findings of a policy."""
        for finding in findings:
            if finding.open:
                self._open_flag(finding)
                continue
            name = self.job.flags.open.pop(flag_key(finding.kind, finding.subject, finding.rank), None)
            if name is not None:
                self.emit(CloseFlag, finding.sentence, flag=name, escalated=finding.escalated)

    def open_flag(self, rank: int, kind: str, persistence: str, sentence: str, evidence: dict[str, Any]) -> None:
        """Raise a worker's flag, unless one of that kind is open."""
        self._open_flag(
            Finding(rank=rank, kind=kind, open=True, sentence=sentence, persistence=persistence, evidence=evidence)
        )

    def close_flag(self, rank: int, kind: str, reason: str, *, subject: str = "worker") -> None:
        """Close the flag of that kind of that worker or server, if it is open."""
        name = self.job.flags.open.pop(flag_key(kind, subject, rank), None)
        if name is not None:
            self.emit(CloseFlag, reason, flag=name)

    def close_flags(self, reason: str, *, rank: int | None = None) -> None:
        """Close every open flag, or every one of a worker."""
        for key, name in list(self.job.flags.open.items()):
            if rank is None or key.endswith(f":worker:{rank}"):
                del self.job.flags.open[key]
                self.emit(CloseFlag, reason, flag=name)

    def _open_flag(self, finding: Finding) -> None:
        flags, key = self.job.flags, flag_key(finding.kind, finding.subject, finding.rank)
        if key in flags.open:
            return
        flags.count += 1
        name = f"{finding.kind}-{finding.subject[0]}{finding.rank}-{self.job.incarnation}.{flags.count}"
        flags.open[key] = name
        self.emit(
            RaiseFlag,
            finding.sentence,
            flag=name,
            rank=finding.rank,
            kind=finding.kind,
            persistence=finding.persistence,
            evidence=finding.evidence,
            subject=finding.subject,
        )


def number_of(number: int, noun: str) -> str:
    """``1 worker``, ``no workers``, ``3 workers``."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


NAMED: Final = 8
"""How many processes a sentence names."""


def named(titles: Sequence[str]) -> str:
    """``w0, w1 and 3 more``: the first titles, and how many follow."""
    more = len(titles) - NAMED
    return ", ".join(titles[:NAMED]) + (f" and {more} more" if more > 0 else "")


def being(number: int) -> str:
    """The verb for this number."""
    return "is" if number == 1 else "are"


def flag_key(kind: str, subject: str, rank: int) -> str:
    """Key of a flag: only one per key can be open."""
    return f"{kind}:{subject}:{rank}"


def _instance_of(process: Process) -> dict[str, Any]:
    """The process and its instance, as in commands."""
    return {"role": process.role, "index": process.index, "instance": process.instance}


def _place(process: Process) -> dict[str, Any]:
    """Its slot, as in commands."""
    return {"agent": process.agent, "slot": process.slot, "emulate": process.emulate}
