"""A new incarnation: everything that holds is said again, and what was published before keeps its word."""

from collections.abc import Callable

import msgspec
import pytest

from controlplane.core.commands import (
    BeginIncarnation,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    MoveProcess,
    RejectMessage,
    SetRoster,
    SetShares,
    StartProcess,
    StopProcess,
)
from controlplane.core.context import EventRefused
from controlplane.core.conversation import MOST_EARLY
from controlplane.core.events import IncarnationBegan
from controlplane.core.state import read_snapshot
from controlplane.core.states import JobState
from tests.core.story import Story, of

Tell = Callable[..., Story]


def began(incarnation: int = 1, **changes: object) -> IncarnationBegan:
    return IncarnationBegan(incarnation=incarnation, reason="Redis lost a part of the log", after="1-0", **changes)  # type: ignore[arg-type]


def test_everything_that_holds_is_sent_again_under_newer_orders(story: Tell) -> None:
    told = story(workers=2).running()
    before = dict(told.orders)
    said = told.see(began())
    assert [type(command) for command in said[:2]] == [BeginIncarnation, StartProcess]
    assert len(of(StartProcess, said)) == len(of(MoveProcess, said)) == 4
    assert [(move.state, move.reason) for move in of(MoveJob, said)] == [
        (JobState.RUNNING, "incarnation 1: Redis lost a part of the log")
    ]
    assert [len(of(kind, said)) for kind in (SetRoster, SetShares, IssuePlacement, IssueServerOrders)] == [1, 1, 2, 2]
    for rank, orders in told.orders.items():
        assert orders.rank_in_time > before[rank].rank_in_time
        assert msgspec.structs.replace(orders, incarnation=0, sequence=before[rank].sequence) == before[rank]


def test_orders_of_a_lower_incarnation_are_older_whatever_their_sequence(story: Tell) -> None:
    told = story(workers=2).running()
    lost = msgspec.structs.replace(told.orders[0], generation=9, sequence=10_000)
    told.see(began())
    assert told.orders[0].rank_in_time > lost.rank_in_time


def test_a_job_that_starts_waits_for_the_same_as_before(story: Tell) -> None:
    told = story(workers=2).starting()
    told.server_hello(0)
    awaited = told.given(MoveJob)[-1].awaited
    said = told.see(began())
    assert awaited == "hello of w0, w1, s1"
    assert [move.awaited for move in of(MoveJob, said)] == [awaited]
    assert of(IssueOrders, said) == []


def test_processes_that_are_over_are_stopped_and_not_started(story: Tell) -> None:
    told = story(workers=2).running()
    told.kill(1)
    said = told.see(began())
    assert [stop.instance for stop in of(StopProcess, said)] == ["w1.0.1"]
    assert "w1.0.1" not in {start.instance for start in of(StartProcess, said)}


def test_a_grant_by_lost_orders_is_honoured(story: Tell) -> None:
    told = story(workers=2).running()
    beyond = told.orders[0].watermark + 1
    said = told.say(0, told.a_report(0, beyond, generation=5, number=2))
    assert len(of(RejectMessage, said)) == 1
    told = story(workers=2).running()
    told.see(began(forgot=True))
    for iteration in range(beyond + 1):
        for rank in (0, 1):
            said = told.report(rank, iteration, generation=5)
            assert of(RejectMessage, said) == []
    assert told.orders[0].watermark > beyond


def test_messages_beyond_a_replayed_grant_count_once_published_orders_granted_them(story: Tell) -> None:
    told = story(workers=2).running()
    last = told.orders[0].watermark + 2
    published = {rank: msgspec.structs.replace(orders, watermark=last) for rank, orders in told.orders.items()}
    early = [command for iteration in range(last + 1) for command in told.report(0, iteration)]
    assert len(of(RejectMessage, early)) == 2
    assert of(RejectMessage, told.see(began(published=published))) == []
    for iteration in range(last + 1):
        told.report(1, iteration)
    job = read_snapshot(told.engine.snapshot()).job
    assert (job.round.completed, job.workers[0].early) == (last, [])


def test_messages_beyond_the_grant_are_kept_up_to_a_limit(story: Tell) -> None:
    told = story(workers=2).running()
    beyond = told.orders[0].watermark + 1
    for number in range(2, MOST_EARLY + 7):
        told.say(0, told.a_report(0, beyond, number=number))
    kept = read_snapshot(told.engine.snapshot()).job.workers[0].early
    assert [said.number for said in kept] == list(range(7, MOST_EARLY + 7))


def test_an_end_by_lost_orders_is_honoured(story: Tell) -> None:
    told = story(workers=2, stop={"accuracy": 0.9}).running()
    told.iterate(3, speeds={0: 100.0, 1: 100.0})
    told.see(began(forgot=True))
    told.finish(0, 3, model_saved=True)
    told.finish(1, 3)
    assert told.given(MoveJob)[-1].state is JobState.SUCCEEDED
    assert "orders that were lost" in told.given(MoveJob)[-1].reason


def test_published_shares_and_grants_override_a_replay_that_differs(story: Tell) -> None:
    told = story(workers=2).running()
    published = {
        0: msgspec.structs.replace(told.orders[0], share=100, offset=0, share_from=2, watermark=7),
        1: msgspec.structs.replace(told.orders[1], share=28, offset=100, share_from=2, watermark=6),
    }
    told.see(began(published=published))
    assert {rank: (o.share, o.offset, o.watermark) for rank, o in told.orders.items()} == {
        0: (100, 0, 7),
        1: (28, 100, 6),
    }


@pytest.mark.parametrize("changes", [{"share": 99}, {"generation": 7}, {"offset": 1}])
def test_published_orders_of_several_decisions_restore_grants_but_no_shares(
    story: Tell, changes: dict[str, int]
) -> None:
    told = story(workers=2).running()
    shares = {rank: orders.share for rank, orders in told.orders.items()}
    odd = msgspec.structs.replace(told.orders[0], watermark=9, **changes)
    told.see(began(published={0: odd, 1: told.orders[1]}))
    assert {rank: orders.share for rank, orders in told.orders.items()} == shares
    assert told.orders[0].watermark == 9


def test_an_incarnation_begins_once(story: Tell) -> None:
    told = story(workers=2).running()
    told.see(began())
    with pytest.raises(EventRefused, match="incarnation 1 began, but it is in incarnation 1"):
        told.see(began())


def test_a_job_that_is_over_has_its_processes_stopped_and_stays_as_it_ended(story: Tell) -> None:
    told = story(workers=2, elastic={"restarts": 0}).running()
    told.kill(0)
    told.kill(1)
    ended = told.given(MoveJob)[-1]
    said = told.see(began())
    assert ended.state is JobState.FAILED
    assert (of(MoveJob, said), of(StartProcess, said)) == ([], [])
    assert len(of(StopProcess, said)) == 4


def test_a_message_out_of_order_is_refused_with_the_incarnation_that_waits_for_another(story: Tell) -> None:
    told = story().running()
    told.see(began(1000))
    (refused,) = of(RejectMessage, told.say(0, told.a_report(0, 0, number=5)))
    assert (refused.rejection.number, refused.rejection.incarnation) == (2, 1000)
