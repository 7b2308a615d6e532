from dataclasses import replace

import pytest

from workers.server.quorum import NO_ROSTER, Quorum, Roster, Verdict
from workers.transport.handshake import Peer

A, B, C = Peer(0, "a"), Peer(1, "b"), Peer(2, "c")


def roster(generation: int = 1, incarnation: int = 0, **members: int) -> Roster:
    named = {"a": A, "b": B, "c": C}
    return Roster(
        incarnation=incarnation,
        generation=generation,
        members={named[name]: first for name, first in members.items()},
    )


@pytest.mark.parametrize(
    ("term", "peer", "iteration", "verdict"),
    [
        pytest.param((0, 2), B, 5, Verdict.COUNT, id="a member in the open iteration"),
        pytest.param((0, 2), A, 5, Verdict.REPEATED, id="the same once more"),
        pytest.param((0, 1), A, 5, Verdict.REPEATED, id="the same once more, from before the roster changed"),
        pytest.param((1, 1), A, 5, Verdict.REPEATED, id="the same once more, in a new life of the log"),
        pytest.param((0, 2), A, 4, Verdict.REPEATED, id="one that counted in the iteration before"),
        pytest.param((0, 2), B, 4, Verdict.STALE, id="too late for the iteration before"),
        pytest.param((0, 2), A, 3, Verdict.STALE, id="long past"),
        pytest.param((0, 1), B, 5, Verdict.STALE, id="an earlier generation"),
        pytest.param((0, 3), B, 5, Verdict.EARLY, id="a later generation"),
        pytest.param((1, 0), B, 5, Verdict.EARLY, id="a later incarnation, whatever its generation"),
        pytest.param((0, 2), B, 6, Verdict.EARLY, id="an iteration that is not open yet"),
        pytest.param((0, 2), C, 5, Verdict.STALE, id="a member that counts only from iteration 6 on"),
        pytest.param((0, 2), Peer(1, "b2"), 5, Verdict.STALE, id="another life of a member"),
        pytest.param((0, 2), Peer(9, "z"), 5, Verdict.STALE, id="nobody's member"),
    ],
)
def test_verdict(term: tuple[int, int], peer: Peer, iteration: int, verdict: Verdict) -> None:
    quorum = Quorum(iteration=5, contributed={A}, before=frozenset({A}))
    assert quorum.judge(roster(2, a=0, b=0, c=6), term, peer, iteration) is verdict


@pytest.mark.parametrize(
    ("members", "contributed", "complete"),
    [
        pytest.param({"a": 0, "b": 0}, {A}, False, id="one of two"),
        pytest.param({"a": 0, "b": 0}, {A, B}, True, id="both"),
        pytest.param({"a": 0}, {A, B}, True, id="a departed member's contribution stays"),
        pytest.param({"a": 0, "c": 0}, {A, B}, False, id="as many as members, but not the members"),
        pytest.param({"a": 0, "c": 6}, {A}, True, id="an arrival does not count yet"),
        pytest.param({"a": 0, "c": 5}, {A}, False, id="an arrival counts from its iteration on"),
        pytest.param({}, set(), False, id="nobody is no quorum"),
        pytest.param({"c": 6}, {A}, False, id="nobody who counts is no quorum"),
    ],
)
def test_a_roster_completes_an_iteration_if_all_its_members_contributed(
    members: dict[str, int], contributed: set[Peer], complete: bool
) -> None:
    assert Quorum(iteration=5, contributed=contributed).appoint(roster(**members)) is complete


def test_an_expected_worker_that_left_is_missing() -> None:
    quorum = Quorum(iteration=5)
    assert not quorum.appoint(roster(1, a=0, b=0, c=0))
    assert [quorum.count(peer, roster(1, a=0, b=0, c=0)) for peer in (A, B)] == [False, False]
    assert quorum.appoint(roster(2, a=0))
    assert quorum.close(roster(2, a=0)) == {C}
    assert quorum == Quorum(iteration=6, before=frozenset({A, B}), expected={A}, missing={A})


def test_without_orders_everything_is_early() -> None:
    assert Quorum().judge(NO_ROSTER, (0, 0), A, 0) is Verdict.EARLY


def test_an_iteration_that_was_named_stays_so_when_the_next_roster_names_no_one() -> None:
    quorum = Quorum(iteration=5, contributed={A})
    lockstep = replace(roster(2, a=0, b=0, c=0), quorums={5: frozenset({0, 1})})
    assert not quorum.appoint(lockstep)
    assert quorum.judge(lockstep, (0, 2), C, 5) is Verdict.LATE
    assert quorum.count(B, lockstep)
    quorum.close(lockstep)
    assert quorum.missing == {A, B, C}
