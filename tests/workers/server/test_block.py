import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from controlplane.protocol.spec import Optimizer
from workers.server.block import Block
from workers.server.contribution import Contribution
from workers.server.quorum import Roster, Verdict
from workers.transport.errors import Stopped
from workers.transport.handshake import Peer
from workers.workloads.rules import GradientRule

A, B = Peer(0, "a"), Peer(1, "b")
BOTH = Roster(incarnation=0, generation=1, members={A: 0, B: 0})
ONLY_A = Roster(incarnation=0, generation=2, members={A: 0})


class Missing(list[tuple[int, int]]):
    def note(self, iteration: int, rank: int) -> None:
        self.append((iteration, rank))


def make_block(missing: Missing | None = None, *, momentum: float = 0.0) -> Block:
    missing = Missing() if missing is None else missing
    optimizer = Optimizer(lr=1.0, momentum=momentum)
    values = np.array([10.0, 20.0], dtype=np.float32)
    return Block(values, lambda tensor, _: GradientRule(tensor, optimizer), missing.note, lambda iteration, rank: None)


def contribution(peer: Peer, *total: float, samples: int, iteration: int = 0, generation: int = 1) -> Contribution:
    data = np.array(total, dtype=np.float32).data.cast("B")
    return Contribution(term=(0, generation), peer=peer, iteration=iteration, samples=samples, total=data)


def give(block: Block, contribution: Contribution) -> Verdict:
    verdict, _ = block.contribute(contribution)
    return verdict


def values(block: Block) -> list[float]:
    snapshot, _, _ = block.borrow(0)
    block.give_back(snapshot)
    return [float(value) for value in snapshot.values]


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Stopped as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_the_mean_over_all_samples_is_one_step_of_the_optimizer() -> None:
    block = make_block()
    block.appoint(BOTH)
    block.contribute(contribution(A, 3.0, 6.0, samples=1))
    assert (block.version, values(block)) == (0, [10.0, 20.0])
    block.contribute(contribution(B, 5.0, 2.0, samples=3))
    assert (block.version, values(block)) == (1, [10.0 - 8 / 4, 20.0 - 8 / 4])


def test_a_repeated_contribution_counts_once() -> None:
    block = make_block()
    block.appoint(BOTH)
    twice = [give(block, contribution(A, 4.0, 4.0, samples=2)) for _ in range(2)]
    block.contribute(contribution(B, 0.0, 0.0, samples=2))
    after = give(block, contribution(A, 4.0, 4.0, samples=2))
    assert (twice, after) == ([Verdict.COUNT, Verdict.REPEATED], Verdict.REPEATED)
    assert (block.version, values(block)) == (1, [9.0, 19.0])


def test_a_departure_completes_the_open_iteration_and_is_named() -> None:
    missing = Missing()
    block = make_block(missing)
    block.appoint(BOTH)
    block.contribute(contribution(A, 2.0, 2.0, samples=2))
    block.appoint(ONLY_A)
    assert (block.version, values(block), missing) == (1, [9.0, 19.0], [(0, 1)])


def test_a_member_that_left_before_any_contribution_is_named() -> None:
    missing = Missing()
    block = make_block(missing)
    block.appoint(BOTH)
    for peer in (A, B):
        block.contribute(contribution(peer, 1.0, 1.0, samples=1))
    block.appoint(ONLY_A)
    block.contribute(contribution(A, 1.0, 1.0, samples=1, iteration=1, generation=2))
    assert (block.version, missing) == (2, [(1, 1)])


def test_what_a_departed_member_had_pushed_stays() -> None:
    missing = Missing()
    block = make_block(missing)
    block.appoint(BOTH)
    block.contribute(contribution(B, 6.0, 6.0, samples=1))
    block.appoint(ONLY_A)
    block.contribute(contribution(A, 2.0, 2.0, samples=3, generation=2))
    assert (block.version, values(block), missing) == (1, [8.0, 18.0], [])


def test_nothing_to_learn_from_closes_the_iteration_without_a_step() -> None:
    block = make_block(momentum=0.9)
    block.appoint(ONLY_A)
    block.contribute(contribution(A, 0.0, 0.0, samples=0, generation=2))
    assert (block.version, values(block)) == (1, [10.0, 20.0])


def test_a_share_of_zero_counts_for_the_quorum() -> None:
    block = make_block()
    block.appoint(BOTH)
    block.contribute(contribution(B, 0.0, 0.0, samples=0))
    block.contribute(contribution(A, 8.0, 8.0, samples=4))
    assert (block.version, values(block)) == (1, [8.0, 18.0])


def test_the_optimizer_keeps_its_state_between_iterations() -> None:
    block = make_block(momentum=0.5)
    block.appoint(ONLY_A)
    for iteration in range(2):
        block.contribute(contribution(A, 1.0, 0.0, samples=1, iteration=iteration, generation=2))
    reference = torch.tensor([10.0, 20.0], requires_grad=True)
    optimizer = torch.optim.SGD([reference], lr=1.0, momentum=0.5)
    reference.grad = torch.tensor([1.0, 0.0])
    optimizer.step()
    optimizer.step()
    assert values(block) == reference.tolist()


def test_a_version_in_use_does_not_change_while_it_is_read() -> None:
    block = make_block()
    block.appoint(ONLY_A)
    first, _, _ = block.borrow(0)
    for iteration in range(4):
        block.contribute(contribution(A, 1.0, 1.0, samples=1, iteration=iteration, generation=2))
    assert (first.steps, first.values.tolist()) == (0, [10.0, 20.0])
    assert values(block) == [6.0, 16.0]


def test_memory_is_exchanged_so_that_no_sum_is_written_over_while_it_grows() -> None:
    block = make_block()
    block.appoint(BOTH)
    memory = {peer: np.zeros(2, dtype=np.float32).data.cast("B") for peer in (A, B)}
    for iteration in range(3):
        for peer, value in ((A, 1.0), (B, 3.0)):
            np.frombuffer(memory[peer], dtype=np.float32)[:] = value
            given = Contribution(term=(0, 1), peer=peer, iteration=iteration, samples=1, total=memory[peer])
            _, free = block.contribute(given)
            memory[peer] = memoryview(bytearray(8)) if free is None else free
            np.frombuffer(memory[peer], dtype=np.float32)[:] = 99.0
    assert (block.version, values(block)) == (3, [4.0, 14.0])


def test_a_version_that_no_one_reads_is_changed_in_place() -> None:
    block = make_block()
    block.appoint(ONLY_A)
    seen = []
    for iteration in range(6):
        snapshot, _, _ = block.borrow(iteration)
        seen.append(snapshot.values.ctypes.data)
        block.give_back(snapshot)
        block.contribute(contribution(A, 1.0, 1.0, samples=1, iteration=iteration, generation=2))
    assert len(set(seen)) == 1


def test_after_a_slow_reader_the_optimizer_still_has_its_state() -> None:
    block, undisturbed = make_block(momentum=0.5), make_block(momentum=0.5)
    for each in (block, undisturbed):
        each.appoint(ONLY_A)
        for iteration in range(4):
            if each is block:
                each.borrow(iteration)
            each.contribute(contribution(A, 1.0, 2.0, samples=1, iteration=iteration, generation=2))
    assert values(block) == values(undisturbed)


def test_a_pull_is_held_until_its_version_exists() -> None:
    block = make_block()
    block.appoint(BOTH)
    thread, results = in_thread(lambda: block.borrow(1))
    block.contribute(contribution(A, 1.0, 1.0, samples=1))
    assert thread.is_alive()
    block.contribute(contribution(B, 1.0, 1.0, samples=1))
    thread.join(10.0)
    ((_, version, held_s),) = results
    assert (version, held_s > 0.0) == (1, True)


def test_a_contribution_of_a_later_generation_waits_for_it() -> None:
    block = make_block()
    block.appoint(BOTH)
    early = contribution(A, 2.0, 2.0, samples=1, generation=2)
    assert give(block, early) is Verdict.EARLY
    thread, results = in_thread(lambda: (block.await_term(early), give(block, early)))
    block.appoint(ONLY_A)
    thread.join(10.0)
    ((_, verdict),) = results
    assert (verdict, block.version, values(block)) == (Verdict.COUNT, 1, [8.0, 18.0])


def test_a_contribution_of_an_earlier_generation_changes_nothing() -> None:
    block = make_block()
    block.appoint(replace(BOTH, generation=2))
    assert give(block, contribution(A, 2.0, 2.0, samples=1)) is Verdict.STALE
    assert give(block, contribution(A, 4.0, 4.0, samples=1, generation=2)) is Verdict.COUNT
    assert give(block, contribution(B, 0.0, 0.0, samples=1, generation=2)) is Verdict.COUNT
    assert values(block) == [8.0, 18.0]


@pytest.mark.parametrize("wait", ["pull", "push"])
def test_the_end_of_the_server_lets_everyone_go(wait: str) -> None:
    block = make_block()
    block.appoint(BOTH)
    early = contribution(A, 2.0, 2.0, samples=1, generation=9)
    thread, results = in_thread(lambda: block.borrow(1) if wait == "pull" else block.await_term(early))
    block.stop()
    thread.join(10.0)
    assert [type(result) for result in results] == [Stopped]
