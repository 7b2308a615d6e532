"""Progress, spread and messages of workers that sample one another by lookups in the overlay, in virtual time.

A request travels with the lookup; the node that it reaches answers the sender directly. A worker that must wait checks
again after a quarter of its own iteration (ruling 22), as live ones do: with another sample, or (``held``) with the
workers of its first sample that were behind, whose addresses it then has.
"""

import random
import statistics
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from controlplane.protocol.spec import Part
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.overlay.ring import Ring

RECHECK: Final = 0.25
"""Time until a waiting worker samples again, as a fraction of an iteration."""


class Crowd(Part, frozen=True, kw_only=True):
    """A number of workers, and how they are synchronized."""

    nodes: Annotated[int, Meta(ge=1)]
    sample: Annotated[int, Meta(ge=0)] = 4
    """Sample size; 0: no node waits (asp)."""
    staleness: Annotated[int, Meta(ge=0)] = 0
    held: bool = False
    seconds: float = 40.0
    iteration_s: float = 1.0
    """Iteration time of a usual worker; each iteration varies by a fifth."""
    slow: float = 0.25
    """Fraction of slow workers."""
    slowness: float = 2.0
    """By what factor their iterations are longer."""
    hop_s: float = 0.01
    seed: int = 1


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    done: list[int]
    """Iterations of each worker."""
    lookups: int
    hops: int
    messages: int
    """Number of hops and answers."""

    @property
    def mean(self) -> float:
        """Mean iterations of a worker."""
        return statistics.fmean(self.done)

    @property
    def spread(self) -> float:
        """Standard deviation of the iterations."""
        return statistics.pstdev(self.done)

    @property
    def hops_per_lookup(self) -> float:
        """Messages until the sampled worker has the request."""
        return self.hops / self.lookups if self.lookups else 0.0

    @property
    def messages_per_step(self) -> float:
        """Messages per worker and iteration."""
        return self.messages / max(1, sum(self.done))


class Crowding:
    """One run."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd, self._kernel = crowd, Kernel()
        self._chance = random.Random(crowd.seed)
        self._ring = Ring.drawn(crowd.nodes, crowd.seed)
        slow = set(self._chance.sample(range(crowd.nodes), int(crowd.slow * crowd.nodes)))
        self._usual_s = [crowd.iteration_s * (crowd.slowness if node in slow else 1.0) for node in range(crowd.nodes)]
        self._done = [0] * crowd.nodes
        self._lookups = self._hops = self._messages = 0

    def run(self) -> Course:
        """Run from the first iteration to the end of the time."""
        for node in range(self._crowd.nodes):
            self._compute(node)
        self._kernel.run(until_s=self._crowd.seconds)
        return Course(done=self._done, lookups=self._lookups, hops=self._hops, messages=self._messages)

    def _compute(self, node: int) -> None:
        self._kernel.after(self._usual_s[node] * self._chance.uniform(0.8, 1.2), self._finish, node)

    def _finish(self, node: int) -> None:
        self._done[node] += 1
        self._look(node)

    def _look(self, node: int) -> None:
        """Sample other workers, and continue when their answers have arrived; without a sample, immediately."""
        took_s, sampled = 0.0, []
        for _ in range(min(self._crowd.sample, self._crowd.nodes - 1)):
            peer, hops = self._other(node)
            took_s = max(took_s, (hops + 1) * self._crowd.hop_s)
            sampled.append(peer)
        self._decide(node, sampled, took_s)

    def _look_again(self, node: int, sampled: list[int]) -> None:
        """Ask the workers again that were behind, without a lookup."""
        self._messages += 2 * len(sampled)
        self._decide(node, sampled, 2 * self._crowd.hop_s)

    def _decide(self, node: int, sampled: list[int], took_s: float) -> None:
        done, allowed = self._done, self._crowd.staleness
        behind = [peer for peer in sampled if done[node] - done[peer] > allowed]
        later_s = max(took_s, RECHECK * self._usual_s[node])
        if behind and self._crowd.held:
            self._kernel.after(later_s, self._look_again, node, behind)
        elif behind:
            self._kernel.after(later_s, self._look, node)
        elif took_s:
            self._kernel.after(took_s, self._compute, node)
        else:
            self._compute(node)

    def _other(self, node: int) -> tuple[int, int]:
        """Another node than itself, and the hops to it; each attempt counts."""
        travelled = 0
        while True:
            peer, hops = self._ring.random_peer(node, self._chance)
            self._lookups += 1
            self._hops += hops
            travelled += hops
            if peer != node:
                self._messages += travelled + 1
                return peer, travelled


def course_of(crowd: Crowd) -> Course:
    """Simulate these workers."""
    return Crowding(crowd).run()


def in_lockstep(crowd: Crowd) -> float:
    """How many iterations the same workers complete if each waits for all (bsp), with messages that take no time."""
    chance, slow = random.Random(crowd.seed), int(crowd.slow * crowd.nodes)
    factors = [crowd.slowness] * slow + [1.0] * (crowd.nodes - slow)
    done, now_s = 0, 0.0
    while (now_s := now_s + crowd.iteration_s * max(each * chance.uniform(0.8, 1.2) for each in factors)) <= (
        crowd.seconds
    ):
        done += 1
    return float(done)
