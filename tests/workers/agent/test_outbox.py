"""What was said is kept, in order, until it is durable."""

from typing import Any

from tests.workers.agent.values import hello, report
from workers.control.outbox import Outbox


def taken(outbox: Outbox[Any]) -> list[tuple[str, int]]:
    """What there is to send now, by kind and number."""
    found = []
    while (message := outbox.take(0.0, wanted=lambda: True)) is not None:
        found.append((type(message).__name__, message.number))
    return found


def opened(*builds: Any, renumber: bool = False) -> Outbox[Any]:
    outbox: Outbox[Any] = Outbox(renumber=renumber)
    for build in builds:
        outbox.say(build)
    outbox.reopen()
    return outbox


def test_messages_are_numbered_from_one_and_sent_once() -> None:
    outbox = opened(hello, report, report)
    assert taken(outbox) == [("WorkerHello", 1), ("IterationReport", 2), ("IterationReport", 3)]
    assert taken(outbox) == []


def test_what_is_not_durable_is_sent_again_with_its_number_and_a_fresh_hello_behind_it() -> None:
    outbox = opened(hello, report, report)
    taken(outbox)
    outbox.acknowledge(2)
    outbox.reopen()
    assert taken(outbox) == [("IterationReport", 3), ("WorkerHello", 4)]


def test_a_reconnection_with_nothing_pending_opens_with_a_hello() -> None:
    outbox = opened(hello, report)
    taken(outbox)
    outbox.acknowledge(2)
    outbox.reopen()
    assert taken(outbox) == [("WorkerHello", 3)]


def test_connections_that_break_before_anything_is_sent_do_not_pile_up_hellos() -> None:
    outbox = opened(hello, report)
    for _ in range(5):
        outbox.reopen()
    assert taken(outbox) == [("WorkerHello", 1), ("IterationReport", 2)]


def test_what_the_other_side_has_is_not_sent_again_with_what_it_missed() -> None:
    outbox = opened(hello, report, report, report)
    taken(outbox)
    outbox.acknowledge(1)
    outbox.resend(3)
    assert taken(outbox) == [("IterationReport", 3), ("IterationReport", 4)]
    outbox.resend(9)
    assert taken(outbox) == []
    outbox.resend(1)
    assert taken(outbox) == [("IterationReport", 2), ("IterationReport", 3), ("IterationReport", 4)]


def test_before_the_first_message_there_is_no_hello() -> None:
    outbox = opened()
    assert taken(outbox) == []
    assert not outbox.opened


def test_an_agent_sends_hello_first_and_renumbers_the_rest() -> None:
    outbox = opened(hello, report, report, renumber=True)
    assert taken(outbox) == [("WorkerHello", 1), ("IterationReport", 2), ("IterationReport", 3)]
    outbox.acknowledge(2)
    outbox.reopen()
    assert taken(outbox) == [("WorkerHello", 4), ("IterationReport", 5)]


def test_a_durable_number_that_was_never_sent_forgets_nothing() -> None:
    outbox = opened(hello, report)
    outbox.acknowledge(57)
    assert taken(outbox) == [("WorkerHello", 1), ("IterationReport", 2)]


def test_durable_numbers_that_come_late_or_twice_change_nothing() -> None:
    outbox = opened(hello, report, report)
    taken(outbox)
    for durable in (2, 1, 2, 0):
        outbox.acknowledge(durable)
    outbox.resend()
    assert taken(outbox) == [("IterationReport", 3)]
    assert outbox.unacknowledged == 1


def test_everything_that_is_kept_can_be_sent_again_on_demand() -> None:
    outbox = opened(hello, report)
    taken(outbox)
    outbox.resend()
    assert taken(outbox) == [("WorkerHello", 1), ("IterationReport", 2)]


def test_no_one_is_kept_waiting_for_a_connection_that_is_over() -> None:
    assert opened(hello).take(60.0, wanted=lambda: False) is None


def test_a_repeated_hello_sees_the_messages_queued_behind_it() -> None:
    seen: list[list[int]] = []
    outbox: Outbox[Any] = Outbox(renumber=True)

    def looking_hello(number: int) -> Any:
        seen.append([message.number for message in outbox.pending])
        return hello(number)

    outbox.say(looking_hello)
    outbox.reopen()
    taken(outbox)
    outbox.acknowledge(1)
    outbox.say(report)
    outbox.reopen()
    assert seen[-1] == [2]
    assert taken(outbox) == [("WorkerHello", 2), ("IterationReport", 3)]
