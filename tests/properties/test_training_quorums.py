"""Law: whatever arrives in whatever order, a block is what a ten-line reference says it is."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.examples import examples
from workers.server.block import Block
from workers.server.contribution import Contribution
from workers.server.quorum import Roster, Verdict
from workers.transport.handshake import Peer

PEERS = [Peer(rank, instance) for rank in range(3) for instance in ("first", "second")]
peers = st.sampled_from(PEERS)


class Reference:
    """What a block should be: contributions by sender, a step when all who count are among them."""

    def __init__(self) -> None:
        self.value, self.version, self.generation = 0.0, 0, -1
        self.members: dict[Peer, int] = {}
        self.sums: dict[Peer, tuple[float, int]] = {}

    def settle(self) -> None:
        counting = {peer for peer, first in self.members.items() if first <= self.version}
        if counting and counting <= self.sums.keys():
            total, samples = (sum(part) for part in zip(*self.sums.values(), strict=True))
            self.value += total / samples if samples else 0.0
            self.version, self.sums = self.version + 1, {}

    def push(self, peer: Peer, generation: int, iteration: int, total: float, samples: int) -> None:
        fits = generation == self.generation and iteration == self.version
        if fits and self.members.get(peer, iteration + 1) <= iteration and peer not in self.sums:
            self.sums[peer] = (total, samples)
            self.settle()


class AddMean:
    """The simplest rule: integers stay exact in float32 as long as the means are whole."""

    def __init__(self, values: Any, start: int) -> None:
        self.values = values

    def apply(self, total: Any, samples: int, scale: float = 1.0) -> None:
        self.values.add_(total.div_(samples))


class QuorumMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.missing: list[tuple[int, int]] = []
        self.late: list[tuple[int, int]] = []
        self.block = Block(
            np.zeros(2, dtype=np.float32),
            AddMean,
            lambda k, rank: self.missing.append((k, rank)),
            lambda k, rank: self.late.append((k, rank)),
        )
        self.reference = Reference()
        self.pushed: list[Contribution] = []

    @rule(members=st.dictionaries(peers, st.integers(0, 2), max_size=4))
    def change_roster(self, members: dict[Peer, int]) -> None:
        self.reference.generation += 1
        self.reference.members = {peer: self.reference.version + later for peer, later in members.items()}
        roster = Roster(incarnation=0, generation=self.reference.generation, members=self.reference.members)
        self.block.appoint(roster)
        self.reference.settle()

    @rule(
        peer=peers,
        generation_before=st.integers(-1, 1),
        iteration_before=st.integers(-1, 2),
        mean=st.integers(-8, 8),
        samples=st.integers(0, 4),
    )
    def push(self, peer: Peer, generation_before: int, iteration_before: int, mean: int, samples: int) -> None:
        self.deliver(
            Contribution(
                term=(0, self.reference.generation - generation_before),
                peer=peer,
                iteration=max(0, self.reference.version - iteration_before),
                samples=samples,
                total=np.full(2, mean * samples, dtype=np.float32).data.cast("B"),
            )
        )

    @rule(which=st.integers(0, 50))
    def push_again(self, which: int) -> None:
        if self.pushed:
            self.deliver(self.pushed[which % len(self.pushed)])

    def deliver(self, contribution: Contribution) -> None:
        self.pushed.append(contribution)
        before = self.block.version
        total = float(np.frombuffer(contribution.total, dtype=np.float32)[0])
        copied = np.frombuffer(contribution.total, dtype=np.float32).copy().data.cast("B")
        verdict, _ = self.block.contribute(replace(contribution, total=copied))
        self.reference.push(
            contribution.peer, contribution.term[1], contribution.iteration, total, contribution.samples
        )
        assert verdict is Verdict.COUNT or self.block.version == before

    @invariant()
    def block_is_what_the_reference_says(self) -> None:
        snapshot, version, held_s = self.block.borrow(self.reference.version)
        self.block.give_back(snapshot)
        assert (version, held_s, self.late) == (self.reference.version, 0.0, [])
        np.testing.assert_allclose(snapshot.values, self.reference.value, rtol=1e-5, atol=1e-5)

    @invariant()
    def nobody_is_missing_from_an_open_iteration(self) -> None:
        assert all(iteration < self.reference.version for iteration, _ in self.missing)


TestQuorums = QuorumMachine.TestCase
TestQuorums.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
