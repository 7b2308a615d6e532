"""Iterations that are cut short, or made by the first few."""

from controlplane.core.commands import CutIteration, IssueOrders, IssueServerOrders, NameQuorum, NoteUpdates
from controlplane.protocol.messages import Computed, ProgressReport
from tests.core.motion import Motion
from tests.core.story import of

ABSP = {"barrier": {"name": "aggressive", "ratio": 0.5}}
BACKUP = {"barrier": {"name": "backup", "backups": 1}}


def progress(told, rank, samples, iteration=0):
    message = ProgressReport(number=told.next_number(rank), generation=1, iteration=iteration, samples_done=samples)
    return told.say(rank, message)


def computed(told, rank, iteration=0):
    return told.say(rank, Computed(number=told.next_number(rank), generation=1, iteration=iteration, samples=64))


def test_example_of_figure_5_of_a_bsp_stops_the_other_two(story):
    told = story(workers=3, batch_size=1000, synchronization=ABSP).running()
    for rank, samples in ((1, 450), (2, 350)):
        assert progress(told, rank, samples) == []
    commands = progress(told, 0, 1000)
    assert [(c.iteration, c.processed, c.total) for c in of(CutIteration, commands)] == [(0, 1800, 3000)]
    assert {c.rank: c.orders.cut for c in of(IssueOrders, commands)} == {0: 0, 1: 0, 2: 0}


def test_report_of_the_fastest_is_a_request_too(story):
    told = story(workers=2, synchronization=ABSP).running()
    progress(told, 1, 10)
    commands = told.report(0, 0)
    assert {c.rank: c.orders.cut for c in of(IssueOrders, commands)} == {1: 0}


def test_iteration_is_cut_once(story):
    told = story(workers=3, synchronization=ABSP).running()
    told.report(0, 0)
    assert len(of(CutIteration, progress(told, 1, 32))) == 1
    assert progress(told, 2, 60) == []


def test_an_iteration_lacks_the_shares_that_workers_lost_at_once_had_in_it(story):
    told = story(synchronization=ABSP).running()
    assert progress(told, 0, 64) == []
    (cut,) = of(CutIteration, told.tick(after_ms=4_500, silent=frozenset({1, 2})))
    assert (cut.iteration, cut.processed, cut.total) == (0, 64, 256 - 2 * 64)


def test_progress_is_requested_eight_times_per_iteration_or_each_second(story):
    told = story(workers=1, synchronization=ABSP).running()
    assert told.orders[0].progress_s == 1.0
    for iteration in range(4):
        told.now_ms += 400
        told.report(0, iteration)
    assert 0.04 < told.orders[0].progress_s < 0.06


def test_cut_iterations_end_together_and_count_the_processed_samples():
    told = Motion([1000.0, 1000.0, 250.0], synchronization=ABSP, stop={"iterations": 20}).run()
    samples = {k: sum(n for _, _, i, n in told.reports if i == k) for k in range(20)}
    assert all(0.5 * 192 <= count < 192 for count in samples.values())
    assert told.now_ms - told.story.entries[0].at_ms < 20 * 100


def test_progress_beyond_the_grant_is_unexpected(story):
    told = story(workers=1, synchronization=ABSP).running()
    (rejected,) = progress(told, 0, 1, iteration=300)
    assert rejected.rejection.code == "unexpected"


def test_first_n_are_named_to_the_servers_and_the_others_drop_the_iteration(story):
    told = story(workers=3, servers=2, synchronization=BACKUP).running()
    assert told.orders[0].announce
    assert computed(told, 2) == []
    commands = computed(told, 0)
    assert [(c.iteration, c.ranks) for c in of(NameQuorum, commands)] == [(0, [0, 2])]
    assert {c.rank: c.orders.skip_to for c in of(IssueOrders, commands)} == {1: 1}
    assert [c.orders.quorums for c in of(IssueServerOrders, commands)] == [{0: [0, 2]}] * 2
    assert {c.orders.named_from for c in of(IssueServerOrders, commands)} == {0}


def test_server_orders_that_name_a_quorum_are_newer_than_those_before(story):
    told = story(workers=1, servers=1, synchronization={"barrier": {"name": "backup", "backups": 0}}).running()
    before = told.given(IssueServerOrders)[-1].orders
    computed(told, 0)
    assert told.given(IssueServerOrders)[-1].orders.rank_in_time > before.rank_in_time


def test_report_of_one_who_came_late_changes_nothing(story):
    told = story(workers=3, synchronization=BACKUP).running()
    computed(told, 2)
    computed(told, 0)
    late = told.a_report(1, 0)
    assert told.say(1, late) == []


def test_naming_the_next_iteration_completes_one_that_waited_only_for_a_report(story):
    told = story(workers=3, servers=1, synchronization=BACKUP).running()
    computed(told, 2)
    computed(told, 0)
    told.report(0, 0)
    computed(told, 0, iteration=1)
    # Worker 2 has pushed iteration 0, but its report is slower than what the others do next.
    computed(told, 1, iteration=1)
    assert told.engine._job.round.completed == 0


def test_named_worker_that_dies_is_not_waited_for(story):
    told = story(workers=3, servers=1, synchronization=BACKUP).running()
    computed(told, 2)
    computed(told, 0)
    told.report(0, 0)
    told.kill(2)
    assert told.engine._job.round.completed == 0


def test_backup_job_goes_at_the_pace_of_the_first_n():
    told = Motion([1000.0, 1000.0, 100.0], synchronization=BACKUP, stop={"iterations": 30}).run()
    assert told.now_ms - told.story.entries[0].at_ms < 30 * 75
    assert all(set(made) == {0, 1} for made in told.closed.values())
    assert len(told.closed) == 30


def test_late_updates_are_counted_once_whichever_server_reports_them(story):
    told = story(synchronization=BACKUP).running()
    (noted,) = of(NoteUpdates, told.server_report(0, highest=2, late=[(0, 3), (1, 3), (1, 2)]))
    assert noted.late == {2: 1, 3: 2}
    assert noted.reason == "3 updates of w2, w3 came when others had made their iterations"
    (noted,) = of(NoteUpdates, told.server_report(1, highest=3, late=[(0, 3), (1, 3), (1, 2), (2, 3)]))
    assert noted.late == {2: 1, 3: 3}
    assert told.server_report(1, highest=3) == []


def test_worker_that_left_within_an_iteration_is_named(story):
    told = story().running()
    (noted,) = of(NoteUpdates, told.server_report(0, highest=5, missing=[(4, 2)]))
    assert (noted.late, noted.missing) == ({}, [(4, 2)])
    assert (
        noted.reason
        == "not all blocks have an update of w2 in iteration 4, which it left: each divides by its own samples"
    )
    assert told.server_report(1, highest=5, missing=[(4, 2)]) == []
