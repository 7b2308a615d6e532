"""What reports lead to."""

from controlplane.core.commands import IssueOrders, MoveJob, RaiseFlag, SetShares
from controlplane.core.iterations import WARM_UP_REPORTS
from controlplane.core.state import Job
from controlplane.core.states import JobState
from tests.core.story import LB_BSP, of

SPEEDS = {0: 1000.0, 1: 1000.0, 2: 500.0, 3: 250.0}


def test_lb_bsp_gives_shares_in_proportion_to_speed(story):
    told = story(synchronization=LB_BSP).running()
    told.iterate(WARM_UP_REPORTS + 1, speeds=SPEEDS)
    assert {rank: orders.share for rank, orders in told.orders.items()} == {0: 93, 1: 93, 2: 47, 3: 23}
    decision = told.given(SetShares)[-1]
    assert (decision.iteration, decision.policy) == (WARM_UP_REPORTS + 1, "lb-bsp-cpu")


def test_warm_up_moves_no_share(story):
    told = story(synchronization=LB_BSP).running()
    told.iterate(WARM_UP_REPORTS, speeds=SPEEDS)
    assert {orders.share for orders in told.orders.values()} == {64}


def test_blocking_share_is_ordered_for_each_iteration_once_all_have_reported(story):
    told = story(synchronization=LB_BSP).running()
    for rank in range(3):
        assert told.report(rank, 0) == []
    commands = told.report(3, 0)
    assert [(c.rank, c.orders.share_until) for c in of(IssueOrders, commands)] == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_non_blocking_shares_change_while_no_one_waits_for_a_decision(story):
    told = story(synchronization={"batching": {"name": "lb-bsp-gpu"}}).running()
    for iteration in range(20):
        told.iterate(1, speeds=SPEEDS, start=iteration)
        for orders in told.orders.values():
            assert orders.share_until == orders.watermark > iteration + 1
    changes = [shares for shares in told.given(SetShares) if shares.policy == "lb-bsp-gpu"][1:]
    assert len(changes) > 2
    assert told.orders[0].share > 64 > told.orders[3].share


def test_uniform_job_gets_new_orders_only_when_half_of_its_lead_is_used(story):
    told = story().running()
    marks = [told.orders[0].watermark]
    for iteration in range(60):
        told.iterate(1, speeds=dict.fromkeys(range(4), 1000.0), start=iteration)
        marks.append(told.orders[0].watermark)
    assert list(dict.fromkeys(marks)) == [3, 51, 76, 101]
    assert told.orders[0].share_until == told.orders[0].watermark


def test_grants_never_exceed_the_stop(story):
    told = story(stop={"iterations": 10}).running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    assert {orders.watermark for orders in told.orders.values()} == {9}


def test_long_iterations_are_granted_fewer_ahead(story):
    told = story(workers=1, servers=1, synchronization=LB_BSP).running()
    for iteration in range(4):
        told.now_ms += 3_500
        told.report(0, iteration)
    assert told.orders[0].watermark == 3 + 4


def test_worker_without_samples_enters_no_prediction(story):
    told = story(synchronization=LB_BSP, workers=2, limits={"minimum": 1}).running()
    for iteration in range(4):
        told.report(0, iteration, compute_s=0.1)
        told.report(1, iteration, samples=0, compute_s=0.0)
    assert sum(orders.share for orders in told.orders.values()) == 128


def test_iteration_in_which_no_one_processed_anything_is_an_error(story):
    told = story(workers=2).running()
    told.report(0, 0, samples=0)
    (moved,) = of(MoveJob, told.report(1, 0, samples=0))
    assert moved.state is JobState.FAILED
    assert moved.reason == "iteration 0: the updates of w0, w1 contain 0 samples in total, expected at least 1"


def test_share_of_nothing_is_legal_where_someone_processed_something(story):
    told = story(workers=2).running()
    told.report(0, 0, samples=0)
    assert of(MoveJob, told.report(1, 0, samples=3)) == []


def test_shares_slower_than_equal_ones_are_a_finding(story):
    """Speeds are redrawn every iteration: yesterday's shares are today's mistake (ruling 11)."""
    told = story(synchronization=LB_BSP, workers=3).running()
    for iteration in range(WARM_UP_REPORTS + 60):
        for rank in range(3):
            speed = 4000.0 if (iteration + rank) % 3 == 0 else 1000.0
            told.report(rank, iteration, compute_s=told.orders[rank].share / speed)
    (raised,) = [flag for flag in told.given(RaiseFlag) if flag.subject == "job"]
    assert raised.reason.startswith("shares make the job slower: ")
    assert raised.flag.startswith("shares-j0-")


def test_beginning_a_job_goes_through_its_roster_as_often_with_many_workers_as_with_few(story, monkeypatch):
    def times(workers: int) -> int:
        seen = []
        of_roster = Job.counting.fget
        with monkeypatch.context() as patch:
            patch.setattr(Job, "counting", property(lambda job: seen.append(job) or of_roster(job)))
            story(workers=workers).running()
        return len(seen)

    assert times(4) == times(16)
