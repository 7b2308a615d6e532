"""Jobs in which each worker is let go by itself."""

import itertools

from controlplane.core.commands import HoldWorker, IssueOrders, IssueServerOrders, MoveJob, MoveProcess
from controlplane.core.events import TimePassed
from controlplane.protocol.messages import Evaluation
from controlplane.protocol.orders import Range
from tests.core.motion import Motion
from tests.core.story import of

ASP = {"barrier": "asp"}
PBSP = {"barrier": {"name": "pbsp", "sample": 1}}
SSP = {"barrier": {"name": "ssp", "staleness": 2}}


def test_samples_are_handed_out_in_the_order_of_release(story):
    told = story(workers=2, synchronization=PBSP, stop={"seconds": 60}).running()
    assert [told.orders[rank].ranges for rank in (0, 1)] == [
        [Range(first=0, last=0, position=0, share=64)],
        [Range(first=0, last=0, position=64, share=64)],
    ]
    told.report(1, 0)
    told.report(0, 0)
    assert told.orders[0].ranges == [Range(first=1, last=1, position=128, share=64)]
    assert told.orders[1].ranges == [Range(first=1, last=1, position=192, share=64)]


def test_orders_speak_plainly_of_the_last_range(story):
    told = story(workers=2, synchronization=PBSP, stop={"seconds": 60}).running()
    orders = told.orders[1]
    plain = (orders.share, orders.offset, orders.origin_iteration, orders.origin_position, orders.share_from)
    assert plain == (64, 0, 0, 64, 0)
    assert (orders.share_until, orders.watermark) == (0, 0)


def test_worker_that_waits_gets_no_orders_and_its_wait_is_explained(story):
    told = story(workers=2, synchronization=PBSP, stop={"seconds": 60}).running()
    commands = told.report(0, 0)
    assert [type(command) for command in commands] == [HoldWorker]
    assert (commands[0].rank, commands[0].iteration, commands[0].waits_for) == (0, 1, [1])
    assert commands[0].reason == "waits for w1, 1 iteration behind, among the sampled w1"
    assert [command.rank for command in of(IssueOrders, told.report(1, 0))] == [1, 0]


def test_waiting_workers_are_evaluated_again_without_reading_heartbeats(story):
    told = story(workers=12, synchronization=PBSP, stop={"seconds": 60}).running()
    assert told.engine.needs_heartbeats(told.engine.deadline_ms)
    (wait,) = of(HoldWorker, told.report(0, 0, compute_s=1.0))
    due_ms = told.engine.deadline_ms
    assert not told.engine.needs_heartbeats(due_ms)
    for rank in set(range(1, 12)) - {*wait.waits_for}:
        told.report(rank, 0)
    released: set[int] = set()
    while 0 not in released:
        after_ms = told.engine.deadline_ms - told.now_ms
        released |= {order.rank for order in of(IssueOrders, told.see(TimePassed(is_look=True), after_ms=after_ms))}
        told.engine.validate()


def test_a_look_at_waiting_workers_declares_no_one_lost(story):
    told = story(workers=12, synchronization=PBSP, stop={"seconds": 60}).running()
    told.report(0, 0, compute_s=1.0)
    assert of(MoveProcess, told.see(TimePassed(is_look=True), after_ms=60_000)) == []
    assert told.engine.needs_heartbeats(told.now_ms)
    assert "lost" in {move.state for move in of(MoveProcess, told.see(TimePassed(), after_ms=1))}


def test_leases_that_continue_without_a_gap_are_one(story):
    told = story(workers=1, synchronization=ASP, stop={"seconds": 60}).running()
    assert told.orders[0].ranges == [Range(first=0, last=3, position=0, share=64)]
    for iteration in range(2):
        told.report(0, iteration)
    assert told.orders[0].ranges == [Range(first=0, last=50, position=0, share=64)]


def test_asp_renews_a_grant_when_half_of_it_is_used(story):
    told = story(workers=2, synchronization=ASP, stop={"seconds": 600}).running()
    marks = [told.orders[0].watermark]
    for iteration in range(40):
        told.report(0, iteration)
        marks.append(told.orders[0].watermark)
    assert [mark for mark, _ in itertools.groupby(marks)] == [3, 50, 75]
    assert told.orders[1].watermark == 3


def test_long_iterations_get_shorter_leases(story):
    told = story(workers=1, synchronization=ASP, stop={"seconds": 600}).running()
    told.report(0, 0, compute_s=5.0)
    told.report(0, 1, compute_s=5.0)
    assert told.orders[0].watermark == 3
    told.report(0, 2, compute_s=5.0)
    assert told.orders[0].watermark == 2 + 3


def test_ssp_stops_the_fastest_at_its_staleness(story):
    told = story(workers=2, synchronization=SSP, stop={"seconds": 60}).running()
    for iteration in range(3):
        commands = told.report(0, iteration)
    assert of(HoldWorker, commands)[0].reason == (
        "waits for w1, 3 iterations behind, the slowest of all; 2 iterations allowed"
    )
    assert {c.rank: c.orders.watermark for c in of(IssueOrders, told.report(1, 0))}[0] == 3


def test_servers_apply_updates_on_arrival(story):
    told = story(synchronization=ASP, stop={"seconds": 60}).running()
    orders = told.given(IssueServerOrders)[-1].orders
    assert (orders.apply, orders.apply_from, orders.quorums, orders.named_from) == ("arrival", 0, {}, None)


def test_letter_of_the_paper_lets_updates_in_with_the_release(story):
    literal = {"barrier": {"name": "pbsp", "sample": 1, "literal": True}}
    told = story(workers=2, servers=1, synchronization=literal, stop={"seconds": 60}).running()
    assert of(IssueServerOrders, told.report(0, 0)) == []
    (told_servers,) = of(IssueServerOrders, told.report(1, 0))
    assert (told_servers.orders.apply, told_servers.orders.passed) == ("release", {0: 0, 1: 0})
    assert told_servers.reason == "the updates of w0, w1 are applied as one sum"


def test_job_ends_when_its_samples_are_handed_out_and_fast_workers_take_more(story):
    told = Motion([1000.0, 250.0], synchronization=ASP, stop={"iterations": 20}).run()
    counts = {rank: sum(s.share for s in told.starts if s.rank == rank) for rank in (0, 1)}
    assert sum(counts.values()) == 20 * 128
    assert counts[0] > 3 * counts[1]
    told_so = "samples for 20 iterations were requested and handed out; every worker got as far as iteration "
    assert told.story.given(MoveJob)[-1].reason.startswith(told_so)


def test_no_one_waits_long_for_the_last_lease_of_the_slowest(story):
    told = Motion([1000.0] * 7 + [100.0], synchronization=ASP, stop={"iterations": 100}).run()
    last = {rank: max(at for at, by, _, _ in told.reports if by == rank) for rank in range(8)}
    assert max(last.values()) - min(last.values()) <= 2 * 640 + 100


def test_target_accuracy_ends_those_who_wait_too(story):
    told = story(workers=2, synchronization=PBSP, stop={"accuracy": 0.9}).running()
    told.report(0, 0)
    scored = Evaluation(number=told.next_number(0), iteration=0, loss=0.2, accuracy=0.91, samples=360, seconds=0.01)
    told.say(0, scored)
    assert {rank: orders.stop_at for rank, orders in told.orders.items()} == {0: 1, 1: 0}
    told.finish(0, 1)
    told.report(1, 0)
    told.finish(1, 1)
    assert told.given(MoveJob)[-1].state == "succeeded"


def test_time_limit_ends_an_asynchronous_job():
    told = Motion([1000.0, 250.0], synchronization=ASP, stop={"seconds": 3}).run()
    assert told.state == "succeeded"
    assert told.now_ms < told.story.entries[0].at_ms + 3_000 + 256 + 100


def test_dead_worker_holds_no_one_and_what_it_leased_is_made_up_for(story):
    told = Motion([1000.0, 1000.0, 64.0], synchronization=SSP, stop={"iterations": 30})
    told.run(until_ms=3_500)
    assert len({wait.rank for wait in told.story.given(HoldWorker)}) == 2
    told.kill(2)
    told.run()
    done = sum(samples for _, rank, _, samples in told.reports)
    assert (told.state, done) == ("succeeded", 30 * 192)


def test_shares_follow_speed_once_per_round():
    batching = {"name": "lb-bsp-cpu", "predictor": "memoryless"}
    told = Motion(
        [1000.0, 1000.0, 500.0], synchronization={"barrier": "asp", "batching": batching}, stop={"seconds": 9}
    )
    told.run()
    assert told.engine._job.generation.shares == {0: 77, 1: 77, 2: 38}


def test_hello_is_answered_with_every_range_that_is_not_done(story):
    told = story(workers=2, synchronization=ASP, stop={"seconds": 60}).running()
    told.report(0, 0)
    told.hello(0)
    assert told.orders[0].ranges == [
        Range(first=0, last=3, position=0, share=64),
        Range(first=4, last=50, position=512, share=64),
    ]
