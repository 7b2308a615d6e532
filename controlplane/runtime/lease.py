"""The lease of one job: held by one thread, with a fencing token that is checked at every write."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Literal, Self

from controlplane.runtime import liveness, names
from controlplane.runtime.executor import Effects
from controlplane.runtime.redis import Client, redis_run_id
from controlplane.runtime.scripts import BURY, COMMIT, IDLE, RECOVER, RENEW, REST, TAKE, TICK
from controlplane.runtime.streams import keys_of

STALE = -1


class LeaseLost(RuntimeError):
    """Another process holds the job by now; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The result of a commit: the last answered entry, and the next deadline."""

    cursor: str
    deadline_ms: int | None
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstored:
    """An answer of the previous incarnation that neither Redis nor the database has any more."""

    effects: Effects
    sequence: int
    first: str
    last: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The position at which a job continues in a new incarnation, and its number."""

    incarnation: int
    cursor: str
    stored_events: str
    stored_commands: str
    snapshot: bytes
    event: bytes
    sequence: int
    unstored: Sequence[Unstored] = ()


class Lease:
    """A held lease. ``whole``: whether the job's log was started or recovered in the current run of Redis."""

    def __init__(
        self,
        client: Client,
        job: int,
        *,
        token: int,
        value: str,
        cursor: str,
        now_ms: int,
        incarnation: int,
        whole: bool,
    ) -> None:
        self.job, self.token, self.cursor = job, token, cursor
        self.incarnation, self.whole = incarnation, whole
        self._client = client
        self._value = value
        self._state = names.state(job)
        self._events = names.events(job)
        self._commit_keys = [self._state, names.engine(job), names.commands(job)]
        self._frames = names.frames(job)
        self._clock_offset_ms = now_ms - time.monotonic() * 1000
        self._renewed = time.monotonic()

    @classmethod
    def take(cls, client: Client, job: int) -> Self | None:
        """The lease, or None if another process holds it; without a log here it has no cursor.

        Its value is unique even if Redis forgot which tokens it had issued.
        """
        keys = [names.state(job), names.token(job), names.engine(job)]
        mine = f"{liveness.me()}:{token_hex(8)}"
        reply = TAKE.run(client, keys, names.HELD_MS, mine, redis_run_id())
        if not reply:
            return None
        token, cursor, now_ms, incarnation, whole, value = reply
        return cls(
            client,
            job,
            token=token,
            value=value.decode(),
            cursor=cursor.decode(),
            now_ms=now_ms,
            incarnation=incarnation,
            whole=bool(whole),
        )

    @property
    def now_ms(self) -> float:
        """An estimate of the log's clock, without a request."""
        return time.monotonic() * 1000 + self._clock_offset_ms

    def renew(self) -> None:
        """Extend the lease; costs a call only once a second.

        Raises:
            LeaseLost: if the token is stale.
        """
        now = time.monotonic()
        if now - self._renewed < names.RENEW_S:
            return
        if not RENEW.run(self._client, [self._state], self._value, names.HELD_MS):
            raise self._lost()
        self._renewed = now

    def commit(
        self,
        effects: Effects,
        position: Position,
        *,
        first: str,
        version: str,
        snapshot: bytes = b"",
        then: bytes = b"",
    ) -> None:
        """Perform all effects of one read in one step. ``then`` is sent along, as by ``Script.run_hot``.

        Raises:
            LeaseLost: if the token is stale; nothing was done.
        """
        deadline = "" if position.deadline_ms is None else position.deadline_ms
        head = (self._value, names.HELD_MS, position.cursor, deadline, int(position.over))
        answer = (effects.count, effects.commands, first, version, effects.digest)
        changes = [part for change in effects.changes for part in (change.field, change.instance, change.order)]
        keys = [*self._commit_keys, *(names.agent_processes(change.agent) for change in effects.changes)]
        rest = (snapshot, self._frames, effects.frames, self.incarnation, *changes)
        done = COMMIT.run_hot(self._client, keys, *head, *answer, *rest, then=then)
        if not done:
            raise self._lost()
        self.cursor = position.cursor
        self._renewed = time.monotonic()

    def recover(self, beginning: Beginning, version: str) -> str:
        """Begin a new incarnation after the stored entries, in one step; returns the id of its event.

        Raises:
            LeaseLost: if the token is stale; nothing was done.
        """
        head = (self._value, names.HELD_MS, redis_run_id(), self.job, beginning.incarnation, beginning.cursor)
        stored = (beginning.stored_events, beginning.stored_commands)
        begin_arguments = (beginning.snapshot, beginning.event, beginning.sequence, version)
        missing = [
            part
            for answer in beginning.unstored
            for part in (
                *(answer.effects.commands, answer.sequence, answer.first, answer.last),
                *(version, answer.effects.digest, answer.incarnation),
            )
        ]
        keys = [self._state, names.engine(self.job), self._events, names.commands(self.job), names.LIVE_JOBS]
        began = RECOVER.run(self._client, keys, *head, *stored, *begin_arguments, *missing)
        if not began:
            raise self._lost()
        self.cursor, self.incarnation, self.whole = beginning.cursor, beginning.incarnation, True
        self._renewed = time.monotonic()
        return str(began.decode())

    def tick(self, deadline_ms: int, event: bytes) -> None:
        """Append that time has passed, if the deadline has expired and there are no unread entries.

        Raises:
            LeaseLost: if the token is stale.
        """
        reply = TICK.run(self._client, [self._state, self._events], self._value, deadline_ms, event, self.cursor)
        if reply == STALE:
            raise self._lost()

    def end_lost(self, agents: Sequence[int], fields: Sequence[str]) -> None:
        """Remove the finished job, and its processes from these agents' orders.

        Raises:
            LeaseLost: if the token is stale.
        """
        own = keys_of(self.job)
        keys = [*own, *(names.agent_processes(agent) for agent in agents)]
        if not BURY.run(self._client, keys, self._value, self.job, names.TOMBSTONE_S, len(own), *fields):
            raise self._lost()

    def rest(self, seconds: float) -> None:
        """Release the job and block other holders for a while.

        Raises:
            LeaseLost: if the token is stale.
        """
        if not REST.run(self._client, [self._state], self._value, int(seconds * 1000)):
            raise self._lost()

    def release(self, to: Literal["idle", "queued"]) -> bool:
        """Release the job; False if the log has moved and the job must not become idle.

        Raises:
            LeaseLost: if the token is stale.
        """
        reply = IDLE.run(self._client, [self._state, self._events], self._value, self.cursor, to, names.QUEUED_MS)
        if reply == STALE:
            raise self._lost()
        return bool(reply)

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"job {self.job}: token {self.token} is stale, another process holds the job")
