"""Who may speak, and which message is next."""

from controlplane.core.commands import IssueOrders, IssuePlacement, IssueServerOrders, MoveProcess, RejectMessage
from controlplane.core.events import ConnectionLost, ServerHeard, StopRequested
from controlplane.protocol.messages import Evaluation, ServerReport, WorkerHello
from tests.core.story import LB_BSP, of


def rejections(commands):
    return [(command.rejection.code, command.rejection.number) for command in of(RejectMessage, commands)]


def test_repeated_message_is_dropped(story):
    told = story(workers=1, synchronization=LB_BSP).running()
    told.report(0, 0)
    orders = told.orders[0]
    assert told.report(0, 0, number=2) == []
    told.report(0, 1)
    assert told.orders[0].sequence == orders.sequence + 1


def test_gap_in_message_numbers_is_told_and_nothing_is_taken(story):
    told = story().running()
    commands = told.say(0, told.a_report(0, 0, number=5))
    assert rejections(commands) == [("out-of-order", 2)]
    assert told.report(0, 0, number=2) == []


def test_another_instance_is_told_that_it_no_longer_counts(story):
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


def test_finish_that_nobody_asked_for_is_unexpected(story):
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
    told.report(0, 1)
    assert told.orders[0].durable == 3


def test_renewed_hello_takes_the_next_number(story):
    told = story(workers=1, synchronization=LB_BSP).running()
    told.report(0, 0)
    told.say(0, WorkerHello(number=told.next_number(0), parameter_count=650, sample_count=1437))
    told.report(0, 1)
    assert told.orders[0].durable == 4


def test_hello_after_a_gap_is_told_and_not_answered(story):
    told = story().running()
    commands = told.say(0, WorkerHello(number=5, parameter_count=650, sample_count=1437))
    assert [type(command) for command in commands] == [RejectMessage]
    assert rejections(commands) == [("out-of-order", 2)]


def test_server_messages_are_acknowledged_by_repeating_its_orders(story):
    told = story(servers=1).running()
    for number in range(2, 17):
        report = ServerReport(number=number, iteration=0, bytes_in=0, bytes_out=0, busy_s=0.0)
        commands = told.see(ServerHeard(index=0, instance="s0.0.1", message=report))
        assert [command.orders.durable for command in of(IssueServerOrders, commands)] == [16] * (number == 16)


def test_worker_whose_connection_ended_is_unreachable_until_it_speaks(story):
    told = story().running()
    lost = told.see(ConnectionLost(role="worker", index=1, instance="w1.0.1"))
    assert [command.state for command in of(MoveProcess, lost)] == ["unreachable"]
    assert [command.state for command in of(MoveProcess, told.report(1, 0))] == ["ready"]
