"""A barrier without the control plane: one worker samples its peers, requests their progress and decides (PSP section
3.2).

Before iteration ``k`` a worker must know that each worker in its sample has finished iteration ``k - 1 - s``. Pure: a
driver sends requests, passes on responses, and owns the clock::

    barrier.enlist(peers, version)             # a newer roster replaces an older one
    match barrier.examine(k, sampling, now_s):
        case Passing.BEGIN: ...   # the iteration may begin
        case Passing.ASK:  ...   # ask ``barrier.asks``; then ``answered`` or ``silent`` for each
        case Passing.WAIT: ...   # until an answer, a newer roster, or ``barrier.wake_at_s``

Progress only increases during the life of a process. So late and repeated responses are harmless, and a response stays
valid: a peer that is known to be far enough gets no further request. A response of another instance than the roster's
is ignored.

A peer that does not respond is replaced by another one, drawn from the remaining ones. If none remains, the worker
waits until the unresponsive ones have been silent for ``GONE_S``; from then on they do not count, and are tried again
every ``RETRY_S``. At least one response is always required: a worker that reaches no other is most likely disconnected
itself.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from controlplane.protocol.chance import draw, key
from controlplane.protocol.drawing import PeerSampling, any_others, chance_of, first_others, fixed_order
from controlplane.protocol.orders import PeerAddress

LEAST_RECHECK_S: Final = 0.01
"""Minimum interval between requests of a waiting worker, regardless of its iteration time."""

GONE_S: Final = 4.0
"""After this long without a response a peer does not count; the control plane declares a process lost after the same
time.
"""

FORGOTTEN_S: Final = 60.0
"""A missing response does not count together with one this long before: in between nobody may have asked."""

RETRY_S: Final = 10.0
"""Interval of requests to a peer that does not count."""

SMOOTHING: Final = 0.2
"""Weight of the newest iteration in a worker's time per iteration."""

_INSTEAD: Final = 4
"""The purpose of replacement draws, in addition to those of ``drawing`` and of the policies."""

Version = tuple[int, int]
"""Version of a roster: incarnation and generation."""


NO_ROSTER: Final = (-1, -1)

ROSTER_S: Final = 0.1
"""Interval of checks for the first roster."""


class Passing(Enum):
    """Whether a worker may begin its next iteration."""

    BEGIN = "begin"
    ASK = "ask"
    WAIT = "wait"


class PeerBarrier:
    """What one worker knows about its peers.

    Args:
        rank: its own.
    """

    __slots__ = (
        "_answered",
        "_asked_at_s",
        "_attempt",
        "_began_s",
        "_busy_s",
        "_iteration",
        "_next",
        "_order",
        "_outstanding",
        "_passed",
        "_peers",
        "_rank",
        "_retry_at_s",
        "_sample",
        "_silent",
        "_silent_since_s",
        "_silent_until_s",
        "_version",
        "asks",
        "questions",
        "sampled",
        "wake_at_s",
    )

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._version: Version = NO_ROSTER
        self._peers: dict[int, PeerAddress] = {}
        self._order: list[int] = []
        self._next: dict[int, int] = {}
        """The current iteration of each peer as far as known: it has finished the previous ones."""
        self._silent_since_s: dict[int, float] = {}
        self._silent_until_s: dict[int, float] = {}
        self._retry_at_s: dict[int, float] = {}
        self._iteration, self._attempt, self._passed = -1, 0, -1
        self._sample: list[int] | None = None
        self._outstanding: set[int] = set()
        self._answered: set[int] = set()
        self._silent: set[int] = set()
        self._asked_at_s = 0.0
        self._began_s: float | None = None
        self._busy_s = 0.0
        self.asks: list[PeerAddress] = []
        """The peers to send requests to, after ``ASK``."""
        self.wake_at_s: float | None = None
        """When to call ``examine`` again, after ``WAIT``; None: when the outstanding responses have arrived."""
        self.sampled: dict[int, int] = {}
        """The peers sampled at the last pass, and how many iterations each had finished as far as known."""
        self.questions = 0
        """Number of requests before the last pass."""

    @property
    def gone(self) -> list[int]:
        """Peers that do not respond and do not count."""
        return sorted(self._retry_at_s)

    def passed_by(self, iteration: int) -> tuple[dict[int, int], int]:
        """The peers sampled before ``iteration`` with their progress, and the number of requests."""
        return (self.sampled, self.questions) if self._passed == iteration else ({}, 0)

    def unanswered(self, iteration: int) -> list[int]:
        """The unresponsive peers that were ignored before ``iteration``."""
        return self.gone if self._passed == iteration else []

    def enlist(self, peers: Iterable[PeerAddress], version: Version) -> None:
        """Set the members of the job, including itself; a roster older than the current one is ignored."""
        if version <= self._version:
            return
        self._version = version
        before, self._peers = self._peers, {peer.rank: peer for peer in peers if peer.rank != self._rank}
        for rank in before:
            if rank not in self._peers or self._peers[rank].instance != before[rank].instance:
                self._forget(rank)
        for rank, peer in self._peers.items():
            self._next[rank] = max(self._next.get(rank, 0), peer.from_iteration)
        self._order = sorted(self._peers)
        self._sample = None

    def answered(self, rank: int, instance: str, iteration: int, now_s: float) -> None:
        """The peer is in ``iteration`` or later; it has finished all previous ones."""
        if not self._is(rank, instance):
            return
        self._outstanding.discard(rank)
        self._silent_since_s.pop(rank, None)
        self._retry_at_s.pop(rank, None)
        self._silent.discard(rank)
        self._answered.add(rank)
        self._next[rank] = max(self._next.get(rank, 0), iteration)

    def silent(self, rank: int, instance: str, now_s: float) -> None:
        """The peer did not respond in time or cannot be reached."""
        if not self._is(rank, instance) or rank not in self._outstanding:
            return
        self._outstanding.discard(rank)
        self._silent.add(rank)
        if now_s - self._silent_until_s.get(rank, now_s) >= FORGOTTEN_S:
            self._silent_since_s.pop(rank, None)
        self._silent_until_s[rank] = now_s
        if now_s - self._silent_since_s.setdefault(rank, now_s) >= GONE_S:
            self._retry_at_s[rank] = now_s + RETRY_S

    def examine(self, iteration: int, sampling: PeerSampling, now_s: float) -> Passing:
        """Whether ``iteration`` may begin."""
        if self._passed == iteration:
            return Passing.BEGIN
        if iteration != self._iteration:
            self._begin(iteration, now_s)
        if self._version == NO_ROSTER:
            return self._wait(now_s + ROSTER_S)
        if self._outstanding:
            return self._wait(None)
        need = iteration - sampling.staleness
        while True:
            sample = self._drawn(sampling, now_s)
            known = [rank for rank in sample if self._next[rank] >= need]
            behind = [rank for rank in sample if self._next[rank] < need and rank not in self._silent]
            if unknown := [rank for rank in behind if rank not in self._answered]:
                return self._ask(unknown, now_s)
            if not behind and len(known) >= self._required(sampling):
                return self._pass({rank: self._next[rank] for rank in known}, now_s)
            due_s = self._asked_at_s + max(LEAST_RECHECK_S, sampling.recheck * self._busy_s)
            if now_s < due_s:
                return self._wait(due_s)
            self._try_again(sampling, now_s)

    # -- one boundary

    def _begin(self, iteration: int, now_s: float) -> None:
        if self._began_s is not None:
            busy_s = now_s - self._began_s
            self._busy_s += (busy_s - self._busy_s) * (SMOOTHING if self._busy_s else 1.0)
        self._iteration, self._attempt, self._passed, self._began_s = iteration, 0, -1, None
        self._sample = None
        self._answered.clear()
        self._silent.clear()
        self._asked_at_s, self.questions = now_s, 0

    def _ask(self, ranks: list[int], now_s: float) -> Passing:
        self._outstanding.update(ranks)
        self._asked_at_s = now_s
        self.questions += len(ranks)
        self.asks = [self._peers[rank] for rank in ranks]
        self.wake_at_s = None
        return Passing.ASK

    def _wait(self, until_s: float | None) -> Passing:
        self.wake_at_s = until_s
        return Passing.WAIT

    def _pass(self, sampled: dict[int, int], now_s: float) -> Passing:
        self._passed, self._began_s = self._iteration, now_s
        self.sampled, self.wake_at_s = sampled, None
        return Passing.BEGIN

    def _try_again(self, sampling: PeerSampling, now_s: float) -> None:
        """Repeat the requests to those it waits for, or draw another sample."""
        self._asked_at_s = now_s
        self._answered.clear()
        self._silent.clear()
        if not (sampling.fixed or sampling.held):
            self._attempt += 1
            self._sample = None

    # -- the sample

    def _drawn(self, sampling: PeerSampling, now_s: float) -> list[int]:
        """The current sample, with replacements for unresponsive peers, as far as there are any."""
        here = self._here(now_s)
        count = min(sampling.sample, len(here))
        if self._sample is None:
            self._sample = self._first(sampling, here, count)
        sample = self._sample
        while sum(rank not in self._silent for rank in sample) < count:
            left = [rank for rank in here if rank not in sample]
            if not left:
                break
            chance = key(chance_of(sampling.seed, self._rank, self._iteration, self._attempt), _INSTEAD, len(sample))
            sample.append(left[draw(chance, len(left), 1)[0]])
        return sample

    def _first(self, sampling: PeerSampling, here: list[int], count: int) -> list[int]:
        """The same draw as the control plane's."""
        if count == len(here):
            return list(here)
        ranks = sorted([*here, self._rank])
        if sampling.fixed:
            return first_others(fixed_order(ranks, sampling.seed), self._rank, count)
        chance = chance_of(sampling.seed, self._rank, self._iteration, self._attempt)
        return any_others(ranks, ranks.index(self._rank), count, chance)

    def _here(self, now_s: float) -> list[int]:
        """Peers that may be sampled."""
        retry_at_s = self._retry_at_s
        if not retry_at_s:
            return self._order
        return [rank for rank in self._order if rank not in retry_at_s or retry_at_s[rank] <= now_s]

    def _required(self, sampling: PeerSampling) -> int:
        """How many must be known to be far enough."""
        if not self._peers or not sampling.sample:
            return 0
        return max(1, min(sampling.sample, len(self._peers) - len(self._retry_at_s)))

    def _is(self, rank: int, instance: str) -> bool:
        return rank in self._peers and self._peers[rank].instance == instance

    def _forget(self, rank: int) -> None:
        """Another process, or none, has this rank now."""
        for known in (self._next, self._silent_since_s, self._silent_until_s, self._retry_at_s):
            known.pop(rank, None)
        for ranks in (self._outstanding, self._answered, self._silent):
            ranks.discard(rank)
