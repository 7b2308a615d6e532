"""Workers that come when the job is running."""

import pytest

from controlplane.core.commands import CloseFlag, IssueServerOrders, MoveJob, SetRoster, SetShares
from controlplane.core.events import (
    Assignment,
    ChangeRequested,
    DrainRequested,
    PauseRequested,
    ResumeRequested,
    SlotsAssigned,
)
from controlplane.policies import registry
from controlplane.protocol.messages import Evaluation, Quiesced
from controlplane.protocol.spec import Choice
from tests.core.story import of

ALL = dict.fromkeys(range(4), 1000.0)


def revive(told, rank, *, after_ms=500):
    """The worker dies, and its next life says hello."""
    told.kill(rank)
    told.tick(after_ms=after_ms)
    return told.hello(rank)


def reach(told, iteration, ranks):
    """Those workers report all up to that iteration; what the last report led to."""
    commands = []
    for rank in ranks:
        done = told.engine._job.workers[rank].done
        for each in range(done + 1, iteration + 1):
            commands = told.report(rank, each)
    return commands


def test_a_new_instance_counts_from_the_first_iteration_that_was_not_granted(story):
    told = story().running()
    told.iterate(5, speeds=ALL)
    assert not of(SetRoster, revive(told, 1))
    last = max(told.orders[rank].watermark for rank in (0, 2, 3))
    commands = reach(told, last, (0, 2, 3))
    (roster,) = of(SetRoster, commands)
    assert (roster.generation, roster.first_iteration, roster.ranks) == (3, last + 1, [0, 1, 2, 3])
    assert of(SetShares, commands)[-1].shares == dict.fromkeys(range(4), 64)
    members = {m.instance: m.from_iteration for m in of(IssueServerOrders, commands)[0].orders.members}
    assert members == {"w0.0.1": 0, "w1.0.2": last + 1, "w2.0.1": 0, "w3.0.1": 0}
    assert (told.orders[1].share_from, told.orders[1].skip_to) == (last + 1, last + 1)


def test_no_worker_is_granted_more_than_the_iteration_of_the_new_roster(story):
    told = story().running()
    told.iterate(5, speeds=ALL)
    revive(told, 1)
    last = max(told.orders[rank].watermark for rank in (0, 2, 3))
    reach(told, last - 1, (0, 2, 3))
    assert max(told.orders[rank].watermark for rank in (0, 2, 3)) == last


def test_dead_flag_is_closed_when_the_worker_counts_again(story):
    told = story().running()
    revive(told, 1)
    last = max(told.orders[rank].watermark for rank in (0, 2, 3))
    commands = reach(told, last, (0, 2, 3))
    assert of(CloseFlag, commands)[0].reason == f"w1 counts again from iteration {last + 1} on"


def test_worker_that_dies_again_before_it_counts_holds_no_one_up(story):
    told = story().running()
    revive(told, 1)
    last = max(told.orders[rank].watermark for rank in (0, 2, 3))
    told.kill(1)
    reach(told, last, (0, 2, 3))
    assert min(told.orders[rank].watermark for rank in (0, 2, 3)) > last


def test_asynchronous_worker_joins_at_once(story):
    told = story(synchronization={"barrier": {"name": "asp"}}).running()
    told.iterate(5, speeds=ALL)
    (roster,) = of(SetRoster, revive(told, 1))
    assert (roster.first_iteration, roster.ranks) == (5, [0, 1, 2, 3])
    assert told.orders[1].ranges[0].first == 5
    assert told.report(1, 5) is not None


def restart_together(story, ranks):
    """An asynchronous job of 40 workers has lost these at once, and started them again."""
    told = story(workers=40, synchronization={"barrier": "asp"}).running()
    told.tick(after_ms=4_500, silent=frozenset(ranks))
    told.tick(after_ms=500)
    return told


def test_asynchronous_workers_that_start_together_join_together(story):
    told = restart_together(story, range(10, 40))
    rosters = [roster.ranks for rank in range(10, 40) for roster in of(SetRoster, told.hello(rank))]
    assert rosters == [list(range(40))]


def test_asynchronous_workers_wait_a_second_for_one_that_does_not_come(story):
    told = restart_together(story, (37, 38, 39))
    assert not of(SetRoster, told.hello(37))
    assert told.engine.deadline_ms == told.now_ms + 1_000
    assert not of(SetRoster, told.hello(38))
    assert not of(SetRoster, told.report(0, 0))
    commands = told.tick(after_ms=told.engine.deadline_ms - told.now_ms, silent=frozenset({39}))
    assert [roster.ranks for roster in of(SetRoster, commands)] == [list(range(39))]
    assert [roster.ranks for roster in of(SetRoster, told.hello(39))] == [list(range(40))]


def test_a_worker_leaves_at_its_boundary_while_others_wait_to_join_together(story):
    told = restart_together(story, (38, 39))
    told.hello(38)
    told.see(DrainRequested(actor="ada", role="worker", index=1))
    first = told.orders[1].watermark
    rosters = [roster.ranks for iteration in range(first + 1) for roster in of(SetRoster, told.report(1, iteration))]
    assert rosters == [[0, *range(2, 38)]]
    assert [roster.ranks for roster in of(SetRoster, told.hello(39))] == [[0, *range(2, 40)]]


def test_a_job_that_waits_for_workers_takes_each_as_it_comes(story):
    told = story(synchronization={"barrier": "asp"}, elastic={"minimum_workers": 3, "restarts": 3}).running()
    told.tick(after_ms=4_500, silent=frozenset({2, 3}))
    told.tick(after_ms=500)
    assert told.engine._job.state == "paused"
    assert [roster.ranks for roster in of(SetRoster, told.hello(2))] == [[0, 1, 2]]
    assert told.engine._job.state == "running"


def test_a_worker_that_waits_to_join_others_does_not_join_a_job_that_ends_meanwhile(story):
    told = story(synchronization={"barrier": "asp"}, stop={"iterations": 400, "accuracy": 0.5}).running()
    told.tick(after_ms=4_500, silent=frozenset({2, 3}))
    told.tick(after_ms=500)
    told.hello(2)
    score = {"iteration": 1, "loss": 1.0, "accuracy": 0.9, "samples": 10, "seconds": 0.1}
    told.say(0, Evaluation(number=told.next_number(0), **score))
    assert not of(SetRoster, told.tick(after_ms=1_100))
    for rank in (0, 1):
        told.finish(rank, told.orders[rank].stop_at, model_saved=True)
    assert told.engine._job.state == "succeeded"


def test_workers_that_wait_to_join_together_join_a_job_that_has_become_synchronous(story):
    told = story(synchronization={"barrier": "asp"}).running()
    told.tick(after_ms=4_500, silent=frozenset({2, 3}))
    told.tick(after_ms=500)
    told.report(0, 0)
    told.report(1, 0)
    told.hello(2)
    told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="bsp")}))
    for rank in (0, 1):
        fields = {"generation": told.engine._job.generation.number, "sequence": told.orders[rank].sequence}
        told.say(rank, Quiesced(number=told.next_number(rank), iteration=1, **fields))
    told.hello(3)
    for iteration in range(1, 8):
        for rank in told.engine._job.generation.roster:
            if told.engine._job.workers[rank].granted >= iteration:
                told.report(rank, iteration)
    assert told.given(SetRoster)[-1].ranks == [0, 1, 2, 3]


@pytest.mark.parametrize("barrier", ["bsp", "backup", "aggressive", "ssp", "pbsp", "pssp"])
def test_a_new_instance_counts_under_every_barrier(story, barrier):
    told = story(synchronization={"barrier": {"name": barrier}}, elastic={"restarts": 9}).running()
    revive(told, 1)
    for _ in range(40):
        for rank in range(4):
            done = told.engine._job.workers[rank].done
            if told.engine._job.counts(rank) and done < told.engine._job.workers[rank].watermark:
                told.report(rank, done + 1)
    assert told.given(SetRoster)[-1].ranks == [0, 1, 2, 3]
    assert told.engine._job.workers[1].reports > 0


def test_no_one_left_pauses_the_job_until_one_is_back(story):
    told = story(workers=1, servers=1).running()
    told.iterate(5, speeds={0: 1000.0})
    commands = told.kill(0)
    assert [m.reason for m in of(MoveJob, commands)] == ["no workers are available, at least 1 is needed"]
    told.tick(after_ms=500)
    told.hello(0)
    commands = told.server_report(0, highest=6)  # its last push had closed iteration 5, its report never came
    (roster,) = of(SetRoster, commands)
    assert (roster.first_iteration, roster.ranks) == (6, [0])
    assert [m.state for m in of(MoveJob, commands)] == ["running"]
    orders = told.orders[0]
    assert orders.origin_position + (6 - orders.origin_iteration) * 64 == 5 * 64
    assert told.engine._job.end.stop_at == 401


def test_job_below_its_minimum_pauses_and_resumes_by_itself(story):
    told = story(elastic={"minimum_workers": 4}).running()
    told.iterate(5, speeds=ALL)
    commands = told.kill(2)
    assert of(MoveJob, commands)[0].reason == "3 workers are available, at least 4 are needed"
    assert {told.orders[rank].hold for rank in (0, 1, 3)} == {True}
    for rank in (0, 1, 3):
        stand(told, rank)
    assert told.given(MoveJob)[-1].awaited == "more workers: w2"
    told.tick(after_ms=500)
    commands = told.hello(2)
    assert [m.state for m in of(MoveJob, commands)] == ["running"]
    assert (told.given(SetRoster)[-1].first_iteration, told.given(SetRoster)[-1].ranks) == (5, [0, 1, 2, 3])
    assert {told.orders[rank].hold for rank in range(4)} == {False}


def stand(told, rank):
    orders = told.orders[rank]
    done = told.engine._job.workers[rank].done
    held = Quiesced(number=told.next_number(rank), generation=1, iteration=done + 1, sequence=orders.sequence)
    return told.say(rank, held)


def test_someone_s_pause_outlasts_that_for_too_few_workers(story):
    told = story(elastic={"minimum_workers": 4}).running()
    told.see(PauseRequested(actor="ada"))
    told.kill(2)
    told.tick(after_ms=500)
    told.hello(2)
    assert told.given(MoveJob)[-1].state == "paused"
    assert [m.state for m in of(MoveJob, told.see(ResumeRequested(actor="ada")))] == ["running"]


def test_pause_for_too_few_workers_is_not_ended_by_hand(story):
    told = story(elastic={"minimum_workers": 4}).running()
    told.kill(2)
    reason = told.declined(ResumeRequested(actor="ada"))
    assert "3 workers are available, at least 4 are needed: it resumes by itself" in reason


def test_limits_are_met_again_when_the_worker_is_back(story):
    told = story(limits={"maximum": 70}).running()
    told.kill(3)
    told.tick(after_ms=500)
    told.hello(3)
    assert told.given(MoveJob)[-1].state == "running"


def test_scaled_batch_shrinks_and_grows_with_the_workers(story):
    told = story(elastic={"global_batch": "scale"}).running()
    told.iterate(5, speeds=ALL)
    told.kill(1)
    assert (told.given(SetShares)[-1].shares, told.orders[0].global_batch) == ({0: 64, 2: 64, 3: 64}, 192)
    assert told.orders[0].origin_position + (5 - told.orders[0].origin_iteration) * 192 == 5 * 256
    told.tick(after_ms=500)
    told.hello(1)
    reach(told, max(told.orders[rank].watermark for rank in (0, 2, 3)), (0, 2, 3))
    assert told.orders[1].global_batch == 256


def test_job_may_begin_with_fewer_and_take_the_others_as_they_come(story):
    told = story(servers=1, elastic={"minimum_workers": 2}).submitted()
    workers = [Assignment(role="worker", index=rank, agent=1, slot=rank) for rank in range(3)]
    told.see(SlotsAssigned(assignments=[*workers, Assignment(role="server", index=0, agent=2, slot=0)]))
    told.server_hello(0)
    told.hello(0)
    told.hello(1)
    assert told.given(MoveJob)[-1].state == "starting"
    told.tick(after_ms=5_000)
    assert told.given(MoveJob)[-1].reason == "2 of 4 workers and 1 server are ready"
    assert told.given(SetRoster)[-1].ranks == [0, 1]
    told.see(SlotsAssigned(assignments=[Assignment(role="worker", index=3, agent=5, slot=0)]))
    told.hello(3)
    told.hello(2)
    reach(told, max(told.orders[rank].watermark for rank in (0, 1)), (0, 1))
    assert told.given(SetRoster)[-1].ranks == [0, 1, 2, 3]


def test_worker_that_comes_when_the_job_ends_is_sent_away(story):
    told = story(stop={"iterations": 3}).running()
    told.kill(1)
    told.tick(after_ms=500)
    told.hello(1)
    told.iterate(3, speeds={0: 1e3, 2: 1e3, 3: 1e3})
    for rank in (0, 2, 3):
        told.finish(rank, 3, model_saved=rank == 0)
    assert told.given(MoveJob)[-1].state == "succeeded"


def test_worker_that_came_too_late_to_count_continues_where_the_others_are_lost(story):
    told = story(workers=2, servers=1, stop={"iterations": 30}, elastic={"restarts": 1}).running()
    told.iterate(5, speeds={0: 1e3, 1: 1e3})
    assert not of(SetRoster, revive(told, 1))
    assert told.engine._job.requests.join_at is None  # w0 has leave to the end
    told.kill(0)
    (roster,) = of(SetRoster, told.server_report(0, highest=5))
    assert (roster.first_iteration, roster.ranks) == (5, [1])
    assert told.orders[1].watermark > 5


@pytest.mark.parametrize("barrier", registry.names("barrier"))
def test_death_of_the_last_worker_is_survived_under_every_barrier(story, barrier):
    told = story(workers=1, servers=1, synchronization={"barrier": {"name": barrier}}).running()
    told.report(0, 0)
    told.kill(0)
    told.tick(after_ms=500)
    told.hello(0)
    told.server_report(0, highest=1)
    assert told.given(MoveJob)[-1].state == "running"
    assert told.given(SetRoster)[-1].ranks == [0]


def test_workers_that_all_died_at_the_end_come_back_for_the_end(story):
    told = story(workers=2, stop={"iterations": 2}).running()
    told.iterate(2, speeds={0: 1000.0, 1: 1000.0})
    told.kill(0)
    told.kill(1)
    told.tick(after_ms=1000)
    for index in range(2):
        told.server_report(index, highest=2)
    told.hello(0)
    assert told.orders[0].stop_at == 2
    told.finish(0, 2, model_saved=True)
    assert told.given(MoveJob)[-1].state == "succeeded"


def test_worker_that_comes_when_all_samples_are_handed_out_does_not_keep_the_job_from_its_end(story):
    told = story(workers=2, stop={"iterations": 2}, synchronization={"barrier": "asp"}).running()
    told.kill(1)
    for iteration in range(3):
        if told.orders[0].stop_at is None:
            told.report(0, iteration)
    told.tick(after_ms=1000)
    told.hello(1)
    told.report(0, told.orders[0].watermark)
    told.finish(0, told.orders[0].stop_at, model_saved=True)
    assert told.given(MoveJob)[-1].state == "succeeded"
