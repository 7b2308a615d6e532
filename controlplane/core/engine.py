"""The engine of one job: entries of its log in, commands out.

``handle`` depends only on the entries so far. An event that is not valid raises ``EventRefused`` and changes only the
cursor. An invalid request of a user is answered with ``DeclineRequest``, an invalid message of a process with
``RejectMessage``.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from controlplane.core import (
    attached,
    changes,
    conversation,
    granting,
    iterations,
    lifecycle,
    membership,
    placing,
    recovery,
    sharing,
    state,
    supervisors,
)
from controlplane.core.choices import Resolve
from controlplane.core.commands import AnyCommand, DeclineRequest
from controlplane.core.context import Context, EventRefused, Policies
from controlplane.core.events import (
    REQUESTS,
    AlternativesPlayed,
    AutopilotRequested,
    ChangeRequested,
    ConnectionLost,
    ControlPlaneResumed,
    DrainRequested,
    EngineFailed,
    Entry,
    Event,
    ExclusionRequested,
    IncarnationBegan,
    InclusionRequested,
    JobSubmitted,
    LauncherEnded,
    PauseRequested,
    PredictorPromoted,
    PredictorTrained,
    ProcessDied,
    ResumeRequested,
    ServerMessageReceived,
    ServerRequested,
    SlotRefused,
    SlotsAssigned,
    StopRequested,
    TimePassed,
    WorkerMessageReceived,
)
from controlplane.core.state import Job, Snapshot, read_snapshot
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.spec import JobSpec, Synchronization

ENGINE_VERSION = "15"
"""Changes whenever the same entries would lead to different commands."""

HANDLERS: dict[type[Event], Callable[[Context, Any], None]] = {
    JobSubmitted: lifecycle.on_submitted,
    SlotsAssigned: lifecycle.on_slots_assigned,
    SlotRefused: lifecycle.on_slot_refused,
    WorkerMessageReceived: conversation.on_worker_message,
    ServerMessageReceived: conversation.on_server_message,
    ConnectionLost: conversation.on_connection_lost,
    ProcessDied: lifecycle.on_process_died,
    TimePassed: lifecycle.on_time_passed,
    ControlPlaneResumed: lifecycle.on_resumed,
    IncarnationBegan: conversation.on_incarnation_began,
    StopRequested: lifecycle.on_stop_requested,
    LauncherEnded: attached.on_launcher_ended,
    EngineFailed: lifecycle.on_engine_failed,
    PredictorTrained: sharing.on_predictor_outcome,
    PredictorPromoted: sharing.on_predictor_outcome,
    ChangeRequested: changes.on_change_requested,
    AutopilotRequested: supervisors.on_autopilot_requested,
    AlternativesPlayed: supervisors.on_alternatives_played,
    PauseRequested: changes.on_pause_requested,
    ResumeRequested: changes.on_resume_requested,
    ExclusionRequested: lifecycle.on_exclusion_requested,
    InclusionRequested: membership.on_inclusion_requested,
    DrainRequested: membership.on_drain_requested,
    ServerRequested: placing.on_server_requested,
}


class Engine:
    """Decides for one job. Not thread-safe; one driver holds it at a time."""

    def __init__(self, *, job: int, resolve: Resolve) -> None:
        self._job = Job(number=job)
        self._resolve = resolve
        self._policies: Policies | None = None
        self.cursor = "0-0"
        """The id of the last entry that was handled."""
        self.deadline_ms: int | None = None
        """When the driver should append ``TimePassed``, in milliseconds of the log's clock."""
        self._process_deadline_ms: int | None = None
        """The same, or earlier, without the evaluation of workers that wait at the barrier."""
        self.failure: Exception | None = None
        """An error in the engine or a policy that ended or paused the job; for the driver's log."""

    @property
    def over(self) -> bool:
        """Whether the job has ended and holds no slot: no command will follow."""
        return self._job.state in JOB_OVER and not self._job.holds_slots

    def handle(self, entry: Entry) -> list[AnyCommand]:
        """Handle ``entry`` and return the commands that follow.

        Raises:
            EventRefused: if the event is not valid now; only the cursor has moved.
        """
        self.cursor = entry.id
        event, job = entry.event, self._job
        state = job.state
        if job.spec is None and not isinstance(event, JobSubmitted):
            raise EventRefused(f"job {job.number}: {type(event).__name__} before its submission")
        try:
            if self._policies is None and isinstance(event, JobSubmitted):
                spec = event.spec
                self._policies = _policies(spec, spec.synchronization, self._resolve)
            context = Context(job, self._policies, entry.id, entry.at_ms)
            HANDLERS[type(event)](context, event)
            if job.hold.sequence is not None:
                changes.settle(context)
            if job.requests.join_at is not None and membership.admit(context):
                iterations.complete(context)
                membership.reconsider(context)
            if job.refilling.current is not None:
                recovery.advance_refill(context)
            if self._policies is not None and self._policies.pilot is not None:
                supervisors.review_autopilot(context)
            if self._policies is not None and self._policies.guard is not None:
                supervisors.review_guard(context)
            if context.fault is not None:
                self._pause(context, context.fault)
        except EventRefused as refusal:
            if not isinstance(event, REQUESTS):
                raise
            context = Context(job, self._policies, entry.id, entry.at_ms)
            context.emit(DeclineRequest, str(refusal), actor=event.actor)
        except Exception as error:
            context = self._give_up(entry, error)
        if context.has_new_deadline or job.state is not state:
            self._process_deadline_ms = lifecycle.next_deadline(job)
        elif isinstance(event, (WorkerMessageReceived, ServerMessageReceived)):
            self._process_deadline_ms = lifecycle.deadline_after(job, event, self._process_deadline_ms)
        elif not (isinstance(event, TimePassed) and event.is_look):
            self._process_deadline_ms = lifecycle.next_deadline(job)
        self.deadline_ms = self._process_deadline_ms
        if self._policies is not None and self._policies.async_barrier is not None:
            look_ms = granting.next_look_ms(job, self._policies)
            if look_ms is not None:
                self.deadline_ms = look_ms if self.deadline_ms is None else min(self.deadline_ms, look_ms)
        return context.commands

    def needs_heartbeats(self, at_ms: float) -> bool:
        """Whether ``TimePassed`` at ``at_ms`` needs the times of heartbeats; if not, it ``is_look``."""
        return self._process_deadline_ms is not None and at_ms >= self._process_deadline_ms

    def open_ledger(self) -> iterations.Ledger | None:
        """The ledger in which a driver may record reports that cause no command, until the next entry.

        None if any report may cause a command.

        ``cursor`` stays at the last entry that was handled.
        """
        return iterations.open_ledger(self._job, self._policies)

    def _give_up(self, entry: Entry, error: Exception) -> Context:
        """An error of the engine or a policy ends only the affected job, and does so in every replay."""
        self.failure = error
        if isinstance(entry.event, JobSubmitted):
            self._job.spec = entry.event.spec
        context = Context(self._job, self._policies, entry.id, entry.at_ms)
        if self._job.state not in JOB_OVER:
            what = f"{type(entry.event).__name__} could not be handled: {type(error).__name__}: {error}"
            context.end_job(JobState.FAILED, what)
        return context

    def _pause(self, context: Context, fault: Exception) -> None:
        """An error in the batching policy pauses the job until another policy is chosen."""
        self.failure = fault
        if "policy" not in self._job.pauses and self._job.state in (JobState.RUNNING, JobState.PAUSED):
            granting.pause(context, "policy", sharing.failure_sentence(context, fault))

    def snapshot(self) -> bytes:
        """Everything that later decisions depend on."""
        policies = self._policies.dump() if self._policies else {}
        snapshot = Snapshot(cursor=self.cursor, deadline_ms=self.deadline_ms, job=self._job, policies=policies)
        return msgspec.msgpack.encode(snapshot)

    @classmethod
    def restore(cls, data: bytes, *, resolve: Resolve) -> "Engine":
        """Restore the engine from a ``snapshot``.

        Raises:
            SnapshotVersionError: if this release cannot read it.
        """
        snapshot = read_snapshot(data)
        engine = cls(job=snapshot.job.number, resolve=resolve)
        engine._job = snapshot.job
        engine.cursor = snapshot.cursor
        engine.deadline_ms = engine._process_deadline_ms = snapshot.deadline_ms
        if snapshot.job.spec is not None:
            engine._policies = _policies(snapshot.job.spec, snapshot.job.synchronization, resolve)
            engine._policies.load(snapshot.policies)
        return engine

    def validate(self) -> None:
        """Assert every invariant."""
        state.check_invariants(self._job)
        if self._job.spec is not None:
            due_ms, never = lifecycle.next_deadline(self._job), float("inf")
            planned_ms = never if self.deadline_ms is None else self.deadline_ms
            late = f"job {self._job.number}: the driver waits until {planned_ms}, but {due_ms} is a deadline"
            assert planned_ms <= (never if due_ms is None else due_ms), late


def _policies(spec: JobSpec, chosen: Synchronization, resolve: Resolve) -> Policies:
    return Policies(chosen, resolve, spec.autopilot, spec.guard, attached=spec.attached)
