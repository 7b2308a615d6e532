"""The engines of this process: kept between tasks, or rebuilt from snapshot and tail.

An engine belongs to one thread at a time: whoever takes it, takes it out, and puts it back only where it agrees with
what Redis holds. One that ran ahead of a refused commit is dropped.
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol, Self

import structlog

from controlplane.core.commands import AnyCommand
from controlplane.core.engine import Engine
from controlplane.core.events import EngineFailed, Entry
from controlplane.core.handling import EventRefused
from controlplane.core.state import SnapshotVersionError
from controlplane.jobs.models import Job
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.executor import Effects, JobFacts, effects_of
from controlplane.runtime.redis import Client
from controlplane.runtime.streams import after

KEPT_ENGINES: Final = 256
READ_COUNT: Final = 512
"""Entries per read: enough to be cheap, few enough to answer soon."""

logger = structlog.get_logger(__name__)


class AnyEngine(Protocol):
    """What the driver needs of an engine."""

    cursor: str
    deadline_ms: int | None
    failure: Exception | None

    @property
    def over(self) -> bool:
        """Whether nothing will follow."""

    def handle(self, entry: Entry) -> list[AnyCommand]:
        """What is to be done about ``entry``."""

    def snapshot(self) -> bytes:
        """All that later decisions depend on."""


class EngineKind(Protocol):
    """How engines are made."""

    def new(self, job: int) -> AnyEngine:
        """One that has seen nothing."""

    def restore(self, snapshot: bytes) -> AnyEngine:
        """The one that the snapshot describes; raises ``SnapshotVersionError``."""


class RealEngines:
    """The engine of this project."""

    def new(self, job: int) -> AnyEngine:
        """One that has seen nothing."""
        return Engine(job=job, resolve=resolve)

    def restore(self, snapshot: bytes) -> AnyEngine:
        """The one that the snapshot describes."""
        return Engine.restore(snapshot, resolve=resolve)


class Running:
    """One job as a coordinator has it before it: its engine, its constant facts, and what of ours went wrong."""

    __slots__ = ("engine", "facts", "fault", "told")

    def __init__(self, engine: AnyEngine, facts: JobFacts) -> None:
        self.engine, self.facts = engine, facts
        self.fault: EngineFailed | None = None
        """The first fault that the engine itself does not know of: its job is to end by it."""
        self.told = False
        """Whether the fault was appended to the log."""

    def handle(self, entry: Entry) -> list[AnyCommand]:
        """The engine's answer; an event that has no place has none."""
        known = self.engine.failure
        answer = self.replay(entry)
        failure = self.engine.failure
        if failure is not None and failure is not known:
            logger.error("a fault ends the job", job=self.facts.number, entry=entry.id, exc_info=failure)
        return answer

    def replay(self, entry: Entry) -> list[AnyCommand]:
        """As ``handle``, of an entry that was answered before: what was logged then is not logged again."""
        try:
            return self.engine.handle(entry)
        except EventRefused as refusal:
            logger.info("event refused", job=self.facts.number, entry=entry.id, why=str(refusal))
        except Exception as error:  # whatever it is, it must not stop the job's log
            self.note_fault(entry.id, error)
        return []

    def effects(self, commands: list[AnyCommand]) -> Effects:
        """What follows from the commands. Those that cannot be carried out are left out, and the job is to end."""
        try:
            return effects_of(self.facts, commands)
        except Exception:
            return effects_of(self.facts, [command for command in commands if self._can_do(command)])

    def note_fault(self, entry: str, error: Exception) -> None:
        """Log and remember the first fault; those that follow from it tell nothing new."""
        if self.fault is None:
            logger.error("a fault ends the job", job=self.facts.number, entry=entry, exc_info=error)
            self.fault = EngineFailed(entry=entry, reason=f"{type(error).__name__}: {error}")

    def _can_do(self, command: AnyCommand) -> bool:
        try:
            effects_of(self.facts, [command])
        except Exception as error:
            self.note_fault(command.cause, error)
            return False
        return True


class Engines:
    """Those that nobody holds, the least recently used first."""

    def __init__(self, kind: EngineKind, facts: Callable[[int], JobFacts]) -> None:
        self._kind, self._facts = kind, facts
        self._kept: OrderedDict[int, Running] = OrderedDict()
        self._lock = Lock()

    @classmethod
    def of_this_process(cls) -> Self:
        """With the real engine and the job table."""
        return cls(RealEngines(), job_facts)

    def take(self, client: Client, job: int, cursor: str) -> Running:
        """The job's engine as it stood at ``cursor``."""
        with self._lock:
            kept = self._kept.pop(job, None)
        if kept is not None and kept.engine.cursor == cursor:
            return kept
        facts = kept.facts if kept is not None else self._facts(job)
        return self._rebuild(client, facts, cursor)

    def keep(self, running: Running) -> None:
        """Put it back: its cursor is the one in Redis."""
        with self._lock:
            self._kept[running.facts.number] = running
            while len(self._kept) > KEPT_ENGINES:
                self._kept.popitem(last=False)

    def _rebuild(self, client: Client, facts: JobFacts, cursor: str) -> Running:
        """From snapshot and tail. What was answered up to ``cursor`` is in the command stream: it is not said again."""
        running = Running(self._restore(client, facts.number), facts)
        while after(cursor, running.engine.cursor):
            entries = log.read_entries(client, facts.number, after=running.engine.cursor, count=READ_COUNT, block_s=0)
            answered = [entry for entry in entries if not after(entry.id, cursor)]
            if not answered:
                raise LogIncomplete(f"job {facts.number}: answered up to {cursor}, log ends at {running.engine.cursor}")
            for entry in answered:
                running.replay(entry)
        return running

    def _restore(self, client: Client, job: int) -> AnyEngine:
        snapshot = client.execute_command("HGET", names.engine(job), "snapshot")
        if snapshot is None:
            return self._kind.new(job)
        try:
            return self._kind.restore(snapshot)
        except SnapshotVersionError as error:
            logger.warning("snapshot not readable, replaying the log", job=job, why=str(error))
        except Exception:  # a policy that cannot read its state any more
            logger.exception("snapshot not readable, replaying the log", job=job)
        return self._kind.new(job)


class LogIncomplete(RuntimeError):
    """Redis lost the tail of a log: its answers are ahead of it."""


def job_facts(job: int) -> JobFacts:
    """Key and spec from the job's row."""
    key, spec = Job.objects.values_list("key", "spec").get(pk=job)
    return JobFacts(number=job, key=bytes(key), spec=parse_spec(spec))
