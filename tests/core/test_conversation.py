"""Who may speak, and which message is next."""

from typing import get_args

from controlplane.core.commands import IssueOrders, IssuePlacement, MoveJob, MoveProcess, RejectMessage
from controlplane.core.events import ConnectionLost, NumberedServerMessage, NumberedWorkerMessage, StopRequested
from controlplane.core.states import JobState
from controlplane.protocol.messages import (
    Evaluation,
    Heartbeat,
    RankMessage,
    ServerMessage,
    WorkerHello,
    WorkerMessage,
)
from tests.core.story import LB_BSP, Story, of


def rejections(commands):
    return [(command.rejection.code, command.rejection.number) for command in of(RejectMessage, commands)]


def test_repeated_message_is_dropped(story):
    told = story(workers=1, synchronization=LB_BSP).running()
    told.report(0, 0)
    orders = told.orders[0]
    assert told.report(0, 0, number=2) == []
    told.report(0, 1)
    assert told.orders[0].sequence == orders.sequence + 1


def test_gap_in_message_numbers_is_reported_and_nothing_is_taken(story):
    told = story().running()
    commands = told.say(0, told.a_report(0, 0, number=5))
    assert rejections(commands) == [("out-of-order", 2)]
    assert told.report(0, 0, number=2) == []


def test_a_replaced_instance_is_notified(story):
    told = story().running()
    commands = told.say(0, told.a_report(0, 0), instance="w0.0.9")
    assert rejections(commands) == [("stale", 2)]
    assert of(RejectMessage, commands)[0].instance == "w0.0.9"


def test_message_of_an_unknown_rank_leads_to_nothing(story):
    told = story().running()
    assert told.say(9, told.a_report(0, 0), instance="w9.0.1") == []


def test_message_after_the_end_is_answered_with_the_state(story):
    told = story().running()
    told.see(StopRequested(actor="ada"))
    (rejected,) = told.report(0, 0)
    assert rejected.reason == "w0.0.1 no longer counts: the job was cancelled"


def test_report_beyond_the_watermark_is_unexpected(story):
    told = story().running()
    leave = told.orders[0].watermark
    commands = told.report(0, leave + 1)
    assert rejections(commands) == [("unexpected", 2)]


def test_report_of_a_coming_generation_is_unexpected(story):
    told = story().running()
    assert rejections(told.report(0, 0, generation=2)) == [("unexpected", 2)]


def test_finish_that_no_one_requested_is_unexpected(story):
    told = story(stop={"seconds": 60}).running()
    assert rejections(told.finish(0, 4)) == [("unexpected", 2)]


def test_finish_before_the_end_is_unexpected(story):
    told = story(stop={"iterations": 400}).running()
    assert rejections(told.finish(0, 3)) == [("unexpected", 2)]


def test_score_before_the_beginning_is_unexpected(story):
    told = story(stop={"accuracy": 0.5}).starting()
    told.server_hello(0)
    told.hello(0)
    scored = Evaluation(number=2, iteration=0, loss=1.0, accuracy=0.9, samples=10, seconds=0.1)
    assert rejections(told.say(0, scored)) == [("unexpected", 2)]


def test_repeated_hello_is_answered_with_newer_orders_and_the_placement(story):
    told = story().running()
    before = told.orders[2]
    commands = told.hello(2)
    assert [type(command) for command in commands] == [IssuePlacement, IssueOrders]
    assert told.orders[2].rank_in_time > before.rank_in_time
    assert told.orders[2].share == before.share


def test_hello_does_not_disturb_the_message_numbers(story):
    told = story(workers=1, synchronization=LB_BSP).running()
    told.report(0, 0)
    told.hello(0)
    assert rejections(told.report(0, 1)) == []
    assert rejections(told.report(0, 3, number=5)) == [("out-of-order", 4)]


def test_renewed_hello_takes_the_next_number(story):
    told = story(workers=1, synchronization=LB_BSP).running()
    told.report(0, 0)
    told.say(0, WorkerHello(number=told.next_number(0), parameter_count=650, sample_count=1437))
    assert rejections(told.report(0, 1)) == []
    assert rejections(told.report(0, 2, number=6)) == [("out-of-order", 5)]


def test_hello_after_a_gap_is_reported_and_not_answered(story):
    told = story().running()
    commands = told.say(0, WorkerHello(number=5, parameter_count=650, sample_count=1437))
    assert [type(command) for command in commands] == [RejectMessage]
    assert rejections(commands) == [("out-of-order", 2)]


def test_a_worker_whose_connection_ended_is_unreachable_until_its_next_message(story):
    told = story().running()
    lost = told.see(ConnectionLost(role="worker", index=1, instance="w1.0.1"))
    assert [command.state for command in of(MoveProcess, lost)] == ["unreachable"]
    assert [command.state for command in of(MoveProcess, told.report(1, 0))] == ["ready"]


def test_a_worker_of_another_release_ends_the_job_and_reports_what_to_do() -> None:
    story = Story().starting()
    story.say(1, WorkerHello(number=1, parameter_count=650, sample_count=1437, release="9.9.9"))
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason.startswith("w1 is of release 9.9.9, the control plane of ")
    assert ended.reason.endswith("upgrade the machine of agent 1 up to date")


def test_a_worker_whose_memory_ran_short_gets_no_more_than_it_holds() -> None:
    story = Story(synchronization=LB_BSP).running()
    for iteration in range(8):
        for rank in range(4):
            story.report(rank, iteration, compute_s=0.1 if rank else 0.01, ceiling=None if rank else 80)
    assert story.orders[0].share == 80
    assert sum(story.orders[rank].share for rank in range(4)) == 256


def test_every_message_of_processes_but_heartbeats_is_logged() -> None:
    assert set(get_args(NumberedWorkerMessage)) == {*get_args(WorkerMessage), *get_args(RankMessage)} - {Heartbeat}
    assert set(get_args(NumberedServerMessage)) == set(get_args(ServerMessage)) - {Heartbeat}
