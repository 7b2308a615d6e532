"""PSLD's parts by hand: the superior set (Alg. 1), the cost (Alg. 2), and what leads to a change."""

import math
import random

import pytest

from controlplane.core.choices import PlacementRequest
from controlplane.policies.placement.communication import Line
from controlplane.policies.placement.movement import moved, settle
from controlplane.policies.placement.psld import Exploit
from controlplane.policies.placement.superior import Bounds, superior_servers
from controlplane.protocol.orders import Block
from tests.policies.cluster import resolve
from tests.policies.network import MIB, Run, Server, equal_blocks, loads, start

RULED = Bounds(z=1.645, tolerance=1.5)
LITERAL = Bounds(z=1.645, literal=True)


def line(mean_s: float, error_s: float = 0.0) -> Line:
    """So many seconds per MiB, with that standard error at one MiB."""
    return Line(alpha=mean_s, beta=0.0, variance=error_s**2, measured=1.0, center=1.0)


def test_a_server_whose_lower_bound_is_above_the_upper_of_the_superior_ones_is_out() -> None:
    lines = {0: line(0.010, 0.001), 1: line(0.012, 0.001), 2: line(0.030, 0.001)}
    assert superior_servers(lines, MIB, LITERAL) == superior_servers(lines, MIB, RULED) == [0, 1]


def test_bounds_chain_as_the_threshold_rises() -> None:
    """s2's lower bound is above s0's upper one, but not above s1's."""
    lines = {0: line(0.010, 0.0006), 1: line(0.0115, 0.0006), 2: line(0.013, 0.0006)}
    assert superior_servers(lines, MIB, LITERAL) == [0, 1, 2]


def test_to_the_letter_identical_servers_collapse_to_one_and_by_ruling_12_they_do_not() -> None:
    lines = dict.fromkeys(range(8), line(0.010))
    assert superior_servers(lines, MIB, LITERAL) == [0]
    assert superior_servers(lines, MIB, RULED) == list(range(8))


def test_good_measurements_of_nearly_equal_servers_do_not_collapse_the_set() -> None:
    """Ruling 12: within 5 %, noise 0.5 %."""
    lines = {server: line(0.010 * (1 + 0.05 * server / 7), 0.00005 / math.sqrt(40)) for server in range(8)}
    assert len(superior_servers(lines, MIB, LITERAL)) <= 3
    assert superior_servers(lines, MIB, RULED) == list(range(8))


def test_the_cost_of_a_block_by_hand() -> None:
    """Alg. 2 line 8: s0 holds 2 MiB, s1 holds 1, a block of 1 is placed; theta1/theta0 = 1."""
    lines = {0: Line(alpha=0.01, beta=0.002), 1: Line(alpha=0.02, beta=0.002)}
    held = {0: 2 * MIB, 1: MIB}
    literal = Exploit(superior=[0, 1], lines=lines, theta=1.0, literal=True).costs(MIB, held)
    # The mean of both as they are is (0.022 + 0.022) / 2; 3 MiB are assigned.
    assert literal == pytest.approx({0: 0.032 / 0.022 + 3 / 3, 1: 0.042 / 0.022 + 2 / 3})
    ruled = Exploit(superior=[0, 1], lines=lines, theta=1.0).costs(MIB, held)
    # With the block: (0.032 + 0.042) / 2; 4 MiB are assigned.
    assert ruled == pytest.approx({0: 0.032 / 0.037 + 3 / 4, 1: 0.042 / 0.037 + 2 / 4})


def test_the_first_block_divides_by_nothing() -> None:
    lines = dict.fromkeys(range(2), Line(alpha=0.01, beta=0.0))
    for literal in (False, True):
        exploit = Exploit(superior=[0, 1], lines=lines, theta=1.0, literal=literal)
        assert exploit.costs(MIB, {0: 0, 1: 0}) == {0: 2.0, 1: 2.0}
        assert exploit.choose(MIB, {0: 0, 1: 0}) == (1 if literal else 0)


def test_nothing_moves_before_anything_is_measured_and_between_two_looks() -> None:
    policy = resolve("placement", "psld")
    blocks, _ = policy.place(equal_blocks(4), [0, 1])
    request = PlacementRequest(iteration=0, blocks=blocks, servers=[0, 1], initial=2)
    _, decision = policy.decide(request, [], policy.begin())
    assert (decision.blocks, decision.reason) == (None, "no server has been measured yet")
    run = start(policy, {0: Server(), 1: Server(per_mib_s=1.0)})
    _, decisions = run.train(10)
    assert [decision.reason for decision in decisions] == ["no check of the placement is due"] * 10


def test_a_straggler_loses_its_blocks_with_the_reason() -> None:
    servers = {0: Server(), 1: Server(), 2: Server(), 3: Server(per_mib_s=0.1)}
    run = start(resolve("placement", "psld", epsilon=0.0), servers, noise=0.0)
    times, decisions = run.train(12)
    (change,) = [decision for decision in decisions if decision.blocks]
    assert loads(run.blocks, servers) == {0: 34 * MIB, 1: 33 * MIB, 2: 33 * MIB, 3: 0}
    assert change.reason == (
        "superior: s0, s1, s2 of 4; speeds vary by 8.982 (above 1), predicted gain 86.4% (needed: above 0.0%); "
        "25 of 100 blocks (25 MiB) move: an exchange should take 341 ms instead of 2.5 s; "
        "s0 34 MiB, s1 33 MiB, s2 33 MiB, s3 0 MiB; left without blocks: s3"
    )
    assert times[-1] == pytest.approx(0.3405)


@pytest.mark.parametrize("name", ["psld", "psld-lpt"])
def test_a_few_milliseconds_are_no_reason_to_move_blocks_however_much_speeds_vary(name: str) -> None:
    servers = {0: Server(per_mib_s=1e-4), 1: Server(per_mib_s=1e-4), 2: Server(per_mib_s=4e-4)}
    tolerant = start(resolve("placement", name), servers, blocks=30, noise=0.0)
    _, decisions = tolerant.train(12)
    assert not any(decision.blocks for decision in decisions)
    assert "of an exchange (needed: above 5 ms)" in decisions[-2].reason
    eager = start(resolve("placement", name, least_gain_s=0.0), servers, blocks=30, noise=0.0)
    assert any(decision.blocks for decision in eager.train(12)[1])


def test_every_block_that_need_not_move_stays() -> None:
    servers = {0: Server(), 1: Server(), 2: Server(per_mib_s=0.1)}
    run = start(resolve("placement", "psld", epsilon=0.0), servers, blocks=90)
    before = run.blocks
    run.train(12)
    assert {block.server for block in moved(run.blocks, before)} == {2}


def test_minimal_movement_keeps_equal_blocks_where_they_are_and_others_where_that_costs_nothing() -> None:
    lines = dict.fromkeys(range(3), Line(alpha=0.01, beta=0.0))
    before = [Block(index=i, start=i * 10, stop=i * 10 + 10, server=i % 3) for i in range(6)]
    shuffled = [Block(index=i, start=i * 10, stop=i * 10 + 10, server=(i + 1) % 3) for i in range(6)]
    assert settle(before, shuffled, lines, homes=lines) == before


def test_scale_out_is_requested_when_fewer_than_half_of_the_initial_servers_are_superior_and_it_helps() -> None:
    """Fig. 17: 6 of 8 become slow."""

    def slow_down(run: Run) -> None:
        run.servers |= dict.fromkeys(range(6), Server(per_mib_s=0.04))

    run = start(resolve("placement", "psld"), dict.fromkeys(range(8), Server()), spare=1)
    _, decisions = run.train(60, events={20: slow_down})
    assert not any(decision.add for decision in decisions[:20])
    (asked,) = {decision.add for decision in decisions[20:] if decision.add}
    sentence = next(decision.reason for decision in decisions if decision.add)
    assert asked == 1
    assert "2 superior servers are fewer than 4: one more is requested" in sentence


def test_scale_out_continues_until_half_of_the_initial_servers_are_superior() -> None:
    """A new server is predicted by the mean speed, so that slow ones do not make it look useless: Fig. 17's boost."""
    servers = dict.fromkeys(range(16), Server(per_mib_s=0.1)) | {0: Server(), 1: Server()}
    run = start(resolve("placement", "psld"), servers, spare=14)
    run.initial = 16
    asked = 0
    while any(decision.add for decision in run.train(30)[1]):
        asked += 1
        run.servers[max(run.servers) + 1] = Server()
    assert asked == 6


def test_scale_out_is_not_requested_where_an_average_server_would_not_help() -> None:
    """Two blocks are on the two fast servers: an average one would only be slower."""
    servers = dict.fromkeys(range(8), Server(per_mib_s=5.0)) | {0: Server(), 1: Server()}
    _, decisions = start(resolve("placement", "psld"), servers, blocks=2, spare=1).train(40)
    assert not any(decision.add for decision in decisions)
    assert any("but one more would take it from" in decision.reason for decision in decisions)


@pytest.mark.parametrize("name", ["psld", "psld-lpt"])
def test_a_server_without_blocks_is_given_back_after_a_while_if_asked(name: str) -> None:
    servers = {0: Server(), 1: Server(), 2: Server(per_mib_s=10.0)}
    _, decisions = start(resolve("placement", name, retire_after=30), servers).train(60)
    retired = [index for index, decision in enumerate(decisions) if decision.retire == [2]]
    assert retired[0] == 41
    _, decisions = start(resolve("placement", name), servers).train(60)
    assert not any(decision.retire for decision in decisions)


@pytest.mark.parametrize("name", ["proportional", "psld", "psld-lpt"])
def test_blocks_leave_a_server_that_is_gone(name: str) -> None:
    policy = resolve("placement", name)
    run = start(policy, dict.fromkeys(range(3), Server()))
    request = PlacementRequest(iteration=5, blocks=run.blocks, servers=[0, 1, 2], initial=3)
    state, _ = policy.decide(request, run.exchange(5, {}, random.Random(1)), policy.begin())
    request = PlacementRequest(iteration=6, blocks=run.blocks, servers=[0, 2], initial=3)
    _, decision = policy.decide(request, [], state)
    assert {block.server for block in decision.blocks} == {0, 2}


def test_a_less_sure_server_behind_the_first_that_is_out_is_judged_by_itself() -> None:
    best, out = line(0.010), line(0.020)
    lines = {0: best, 1: out, 2: line(0.025, 0.010)}
    assert superior_servers(lines, MIB, RULED) == [0, 2]
    assert superior_servers(lines, MIB, LITERAL) == [0]
