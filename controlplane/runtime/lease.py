"""The lease of one job: held by one thread anywhere, with a fencing token that every change is checked against."""

import time
from dataclasses import dataclass
from typing import Literal, Self

from controlplane.runtime import names
from controlplane.runtime.executor import Effects
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import COMMIT, IDLE, RENEW, TAKE, TICK

STALE = -1


class LeaseLost(RuntimeError):
    """Somebody else holds the job by now; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a commit leaves behind: how far the log is answered, and what comes next."""

    cursor: str
    deadline_ms: int | None
    over: bool


class Lease:
    """One holding of one job."""

    def __init__(self, client: Client, job: int, token: int, cursor: str, now_ms: int) -> None:
        self.job, self.token, self.cursor = job, token, cursor
        self._client = client
        self._value = f"held:{token}"
        self._state = names.state(job)
        self._events = names.events(job)
        self._commit_keys = [self._state, names.engine(job), names.commands(job)]
        self._frames = names.frames(job)
        self._clock_offset_ms = now_ms - time.monotonic() * 1000
        self._renewed = time.monotonic()

    @classmethod
    def take(cls, client: Client, job: int) -> Self | None:
        """The lease, or None where somebody holds it or the job has no log."""
        reply = TAKE.run(client, [names.state(job), names.token(job), names.engine(job)], names.HELD_MS)
        if not reply:
            return None
        token, cursor, _, now_ms = reply
        return cls(client, job, token, cursor.decode(), now_ms)

    @property
    def now_ms(self) -> float:
        """The log's clock, as far as it can be told without asking."""
        return time.monotonic() * 1000 + self._clock_offset_ms

    def renew(self) -> None:
        """Go on holding; costs a call once a second only.

        Raises:
            LeaseLost: if the token is stale.
        """
        now = time.monotonic()
        if now - self._renewed < names.RENEW_S:
            return
        if not RENEW.run(self._client, [self._state], self._value, names.HELD_MS):
            raise self._lost()
        self._renewed = now

    def commit(self, effects: Effects, position: Position, *, first: str, version: str, snapshot: bytes = b"") -> None:
        """Do all that follows from one read, in one step.

        Raises:
            LeaseLost: if the token is stale; nothing was done.
        """
        deadline = "" if position.deadline_ms is None else position.deadline_ms
        head = (self._value, names.HELD_MS, position.cursor, deadline, int(position.over))
        answer = (effects.count, effects.commands, first, version, effects.digest)
        changes = [part for change in effects.changes for part in (change.field, change.instance, change.order)]
        keys = [*self._commit_keys, *(names.agent_processes(change.agent) for change in effects.changes)]
        done = COMMIT.run_hot(self._client, keys, *head, *answer, snapshot, self._frames, effects.frames, *changes)
        if not done:
            raise self._lost()
        self.cursor = position.cursor
        self._renewed = time.monotonic()

    def tick(self, deadline_ms: int, event: bytes) -> None:
        """Append that time has passed, if the deadline has come and nothing is unread.

        Raises:
            LeaseLost: if the token is stale.
        """
        reply = TICK.run(self._client, [self._state, self._events], self._value, deadline_ms, event, self.cursor)
        if reply == STALE:
            raise self._lost()

    def release(self, to: Literal["idle", "queued"]) -> bool:
        """Let go; False where the log has moved and the job must not go idle.

        Raises:
            LeaseLost: if the token is stale.
        """
        reply = IDLE.run(self._client, [self._state, self._events], self._value, self.cursor, to, names.QUEUED_MS)
        if reply == STALE:
            raise self._lost()
        return bool(reply)

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"job {self.job}: token {self.token} is stale, somebody else holds the job")
