"""Cache of engines in this process: kept between tasks, or built from a snapshot.

An engine belongs to one thread at a time: a thread takes it out of the cache, and returns it only if it agrees with
Redis. An engine that ran ahead of a refused commit is dropped.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from types import MappingProxyType
from typing import Final, Protocol, Self

import structlog
from django.conf import settings

from controlplane.core.commands import AnyCommand
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import EngineFailed, Entry
from controlplane.core.iterations import Ledger
from controlplane.core.state import SnapshotVersionError
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import unseal
from controlplane.policies.registry import resolve
from controlplane.protocol.cleaning import clean_text
from controlplane.protocol.keys import secret_digest
from controlplane.protocol.spec import JobSpec, parse_spec
from controlplane.runtime.executor import Effects, JobFacts, checkpoint_folder, effects_of
from controlplane.runtime.lease import Lease

KEPT_ENGINES: Final = 256
READ_COUNT: Final = 512
"""Entries per read: enough for low cost per entry, few enough for a quick answer."""

logger = structlog.get_logger(__name__)


class AnyEngine(Protocol):
    """The driver's interface to an engine."""

    cursor: str
    deadline_ms: int | None
    failure: Exception | None

    @property
    def over(self) -> bool:
        """Whether the job is over."""

    def handle(self, entry: Entry) -> list[AnyCommand]:
        """Handle ``entry`` and return the commands that follow."""

    def needs_heartbeats(self, at_ms: float) -> bool:
        """Whether ``TimePassed`` at ``at_ms`` must include processes' heartbeats; if not, it is marked ``is_look``."""

    def open_ledger(self) -> Ledger | None:
        """The open iteration and what it lacks; None if a command may follow from any report."""

    def snapshot(self) -> bytes:
        """The serialized state of the engine."""


class EngineKind(Protocol):
    """Creates engines."""

    def new(self, job: int) -> AnyEngine:
        """A new engine, without any event."""

    def restore(self, snapshot: bytes) -> AnyEngine:
        """The engine with the state in the snapshot; raises ``SnapshotVersionError``."""


class RealEngines:
    """The engine of this project."""

    def new(self, job: int) -> AnyEngine:
        """A new engine, without any event."""
        return Engine(job=job, resolve=resolve)

    def restore(self, snapshot: bytes) -> AnyEngine:
        """The engine with the state in the snapshot."""
        return Engine.restore(snapshot, resolve=resolve)


class Running:
    """One job while a coordinator holds it: its engine, its constant facts, and the first internal error."""

    __slots__ = ("engine", "facts", "fault", "incarnation", "is_logged", "quiet_until")

    def __init__(self, engine: AnyEngine, facts: JobFacts, incarnation: int = 0) -> None:
        self.engine, self.facts, self.incarnation = engine, facts, incarnation
        self.quiet_until = "0-0"
        """Orders up to this entry, with which a new incarnation begins, are not sent: the incarnation sends all of
        them again."""
        self.fault: EngineFailed | None = None
        """The first fault outside the engine; its job should end because of it."""
        self.is_logged = False
        """Whether the fault was appended to the log."""

    def handle(self, entry: Entry) -> list[AnyCommand]:
        """The engine's commands; none for an event that is not valid."""
        known = self.engine.failure
        answer = self.replay(entry)
        failure = self.engine.failure
        if failure is not None and failure is not known:
            logger.error(
                "an internal error ends or pauses the job", job=self.facts.number, entry=entry.id, exc_info=failure
            )
        return answer

    def replay(self, entry: Entry) -> list[AnyCommand]:
        """As ``handle``, for an entry that was answered before: its log lines are not repeated."""
        try:
            return self.engine.handle(entry)
        except EventRefused as refusal:
            logger.info("event refused", job=self.facts.number, entry=entry.id, why=str(refusal))
        except Exception as error:  # any error: it must not stop the job's log
            self.note_fault(entry.id, error)
        return []

    def effects(self, commands: list[AnyCommand], parents: Mapping[str, str] = MappingProxyType({})) -> Effects:
        """The effects of the commands. Those that cannot be executed are skipped, and the job should end."""
        try:
            return effects_of(self.facts, commands, parents)
        except Exception:
            return effects_of(self.facts, [command for command in commands if self.can_do(command)], parents)

    def note_fault(self, entry: str, error: Exception) -> None:
        """Log and store the first fault; later ones result from it."""
        if self.fault is None:
            logger.error("an internal error ends the job", job=self.facts.number, entry=entry, exc_info=error)
            self.fault = EngineFailed(entry=entry, reason=clean_text(f"{type(error).__name__}: {error}"))

    def can_do(self, command: AnyCommand) -> bool:
        """Whether the command can be executed; if not, the job should end because of that."""
        try:
            effects_of(self.facts, [command])
        except Exception as error:
            self.note_fault(command.cause, error)
            return False
        return True


_MAKING: Final = Lock()
"""Held while an engine is created. msgspec builds a decoder at first use, and lets other threads use the incomplete
one: two threads that restored the first engines of a process at once crashed it."""


class Engines:
    """The cache of engines that are not in use, the least recently used first."""

    def __init__(self, kind: EngineKind, facts: Callable[[int], JobFacts]) -> None:
        self._kind, self._facts = kind, facts
        self._kept: OrderedDict[int, Running] = OrderedDict()
        self._lock = Lock()

    @classmethod
    def of_this_process(cls) -> Self:
        """The cache with the real engine and the job table."""
        return cls(RealEngines(), job_facts)

    def kept(self, lease: Lease) -> Running | None:
        """The job's engine at the lease's cursor, if this process has it; it is removed from the cache."""
        with self._lock:
            kept = self._kept.pop(lease.job, None)
        if kept is None or not lease.whole:
            return None
        fits = (kept.engine.cursor, kept.incarnation) == (lease.cursor, lease.incarnation)
        return kept if fits else None

    def restored(self, job: int, snapshot: bytes | None, incarnation: int) -> tuple[Running, str]:
        """An engine from the snapshot, otherwise a new one with the reason why the snapshot was not usable."""
        facts = self._facts(job)
        with _MAKING:
            engine, why = self._made(job, snapshot)
        return Running(engine, facts, incarnation), why

    def _made(self, job: int, snapshot: bytes | None) -> tuple[AnyEngine, str]:
        if snapshot is None:
            return self._kind.new(job), ""
        try:
            return self._kind.restore(snapshot), ""
        except SnapshotVersionError as error:
            logger.warning("snapshot not readable, replaying the log", job=job, why=str(error))
            why = str(error)
        except Exception as error:  # a policy that can no longer read its state
            logger.exception("snapshot not readable, replaying the log", job=job)
            why = f"{type(error).__name__}: {error}"
        return self._kind.new(job), why

    def keep(self, running: Running) -> None:
        """Return it to the cache; its cursor equals the one in Redis."""
        with self._lock:
            self._kept[running.facts.number] = running
            while len(self._kept) > KEPT_ENGINES:
                self._kept.popitem(last=False)


def job_facts(job: int) -> JobFacts:
    """The key and spec in the job's row."""
    key, spec = Job.objects.values_list("key", "spec").get(pk=job)
    parsed = parse_spec(spec)
    offset = int(secret_digest(settings.SECRET_KEY)[:8], 16)
    return JobFacts(number=job, key=unseal(key), spec=parsed, start_folder=_start_folder(parsed), port_offset=offset)


def _start_folder(spec: JobSpec) -> str:
    """The folder of the checkpoints that a job should start from."""
    origin = spec.start_from
    if origin is None:
        return ""
    if origin.job is None:
        return origin.folder or ""
    key = Job.objects.values_list("key", flat=True).filter(pk=origin.job).first()
    return checkpoint_folder(origin.job, unseal(key)) if key is not None else f"job-{origin.job}"
