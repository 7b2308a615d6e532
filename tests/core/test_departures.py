"""A worker dies: the others continue."""

import pytest

from controlplane.core.commands import (
    CloseFlag,
    IssueOrders,
    IssueServerOrders,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    SetRoster,
    SetShares,
    StartProcess,
)
from controlplane.core.events import ControlPlaneResumed, TimePassed
from tests.core.story import LB_BSP, of


def test_dead_worker_leaves_the_roster_and_the_batch_stays(story):
    told = story().running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    commands = told.kill(1)
    (roster,) = of(SetRoster, commands)
    assert (roster.generation, roster.first_iteration, roster.ranks) == (2, 5, [0, 2, 3])
    assert of(SetShares, commands)[0].shares == {0: 86, 2: 85, 3: 85}
    assert [[m.rank for m in c.orders.members] for c in of(IssueServerOrders, commands)] == [[0, 2, 3]] * 2


def test_dead_worker_is_flagged_with_how_it_ended(story):
    told = story().running()
    (raised,) = of(RaiseFlag, told.kill(1, detail="connected"))
    assert (raised.rank, raised.kind, raised.reason) == (1, "lost", "w1 was ended by signal 9")


def test_members_count_from_the_first_iteration_of_their_roster(story):
    told = story().running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    told.kill(1)
    orders = told.given(IssueServerOrders)[-1].orders
    assert {member.from_iteration for member in orders.members} == {0}


def test_iteration_that_waited_only_for_the_dead_is_complete(story):
    told = story(synchronization=LB_BSP).running()
    for rank in (0, 2, 3):
        told.report(rank, 0)
    told.kill(1)
    assert {told.orders[rank].share_until for rank in (0, 2, 3)} == {1}


def test_the_next_worker_becomes_evaluator(story):
    told = story().running()
    told.kill(0)
    assert told.orders[1].evaluator


def test_last_worker_s_death_ends_the_job_where_none_is_started_again(story):
    told = story(workers=1, elastic={"restarts": 0}).running()
    assert of(MoveJob, told.kill(0))[0].reason == "w0 was ended by signal 9; no worker is left"


def test_limits_that_the_rest_cannot_meet_pause_the_job_with_the_reason(story):
    told = story(limits={"maximum": 70}).running()
    moved = of(MoveJob, told.kill(3))[0]
    assert moved.state == "paused"
    assert "256" in moved.reason
    assert "210" in moved.reason


def test_without_feasible_shares_the_others_keep_theirs_until_all_are_quiesced(story):
    told = story(limits={"maximum": 70}).running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    for rank in range(3):
        told.report(rank, 5)
    moved = of(MoveJob, told.kill(3))[0]
    assert moved.reason.startswith("no shares for generation 2")
    assert [(told.orders[rank].share, told.orders[rank].hold) for rank in range(3)] == [(64, True)] * 3
    assert told.engine.failure is None


def test_unresponsive_worker_is_declared_dead_a_quarter_of_a_second_after_four_at_the_latest(story):
    told = story().running()
    assert told.engine.deadline_ms is not None
    assert not of(SetRoster, told.tick(after_ms=4_000, silent=frozenset({2})))
    commands = told.tick(after_ms=250, silent=frozenset({2}))
    assert of(SetRoster, commands)[0].ranks == [0, 1, 3]
    assert of(RaiseFlag, commands)[0].reason.startswith("w2 sent no heartbeat for 4.")


ALONE, TOGETHER = [frozenset({1}), frozenset({1, 2})], [frozenset(), frozenset({1, 2})]
"""Which of four workers are silent at each of two checks."""


@pytest.mark.parametrize("barrier", ["bsp", "asp", "aggressive", "backup"])
def test_workers_lost_at_once_leave_in_one_generation_with_the_shares_of_one_by_one(story, barrier):
    ends = []
    for silences in (ALONE, TOGETHER):
        told = story(synchronization={"barrier": barrier}).running()
        commands = [each for silent in silences for each in told.tick(after_ms=4_500, silent=silent)]
        rosters = [(c.generation, c.ranks) for c in of(SetRoster, commands)]
        assert {(c.rank, c.reason.partition(" no heartbeat")[0]) for c in of(RaiseFlag, commands)} == {
            (1, "w1 sent"),
            (2, "w2 sent"),
        }
        ends.append((rosters, [(told.orders[rank].share, told.orders[rank].watermark) for rank in (0, 3)]))
    (one_by_one, shares), (together, same) = ends
    assert (one_by_one[-1], together) == ((3, [0, 3]), [(2, [0, 3])])
    assert shares == same


def test_a_machine_whose_processes_beat_at_different_moments_costs_few_generations(story):
    told = story(workers=100).running()
    began_ms, gone = told.now_ms, range(10, 100)
    last = {f"worker:{rank}:{told.instance('w', rank)}": began_ms + 10 * (rank - 10) for rank in gone}
    here = [f"worker:{rank}:{told.instance('w', rank)}" for rank in range(10)]
    here += [f"server:{index}:{told.instance('s', index)}" for index in range(2)]
    while told.now_ms < began_ms + 6_000:
        now_ms = max(told.now_ms + 1, told.engine.deadline_ms)
        seen = dict.fromkeys(here, now_ms) | {name: min(now_ms, last_ms) for name, last_ms in last.items()}
        told.see(TimePassed(seen=seen), after_ms=now_ms - told.now_ms)
    assert told.given(SetRoster)[-1].ranks == list(range(10))
    assert len(told.given(SetRoster)) <= 1 + 5


def test_each_of_those_lost_together_has_its_own_silence_in_its_flag(story):
    told = story().running()
    began_ms = told.now_ms
    seen = {f"worker:{rank}:{told.instance('w', rank)}": began_ms + 1_000 * rank for rank in range(4)}
    seen |= {f"server:{index}:{told.instance('s', index)}": began_ms + 9_000 for index in range(2)}
    seen[f"worker:3:{told.instance('w', 3)}"] = began_ms + 9_000
    commands = told.see(TimePassed(seen=seen), after_ms=9_000)
    assert [(flag.rank, flag.reason) for flag in of(RaiseFlag, commands)] == [
        (0, "w0 sent no heartbeat for 9.0 s"),
        (1, "w1 sent no heartbeat for 8.0 s"),
        (2, "w2 sent no heartbeat for 7.0 s"),
    ]
    assert of(SetRoster, commands)[0].reason == "w0, w1, w2 sent no heartbeat"


def test_the_end_of_a_job_outlives_the_loss_of_all_that_have_not_reached_it(story):
    for silent, state in (({1, 2}, "finishing"), ({1, 2, 3}, "succeeded")):
        told = story(stop={"iterations": 1}, elastic={"restarts": 0}).running()
        told.report(0, 0)
        told.finish(0, 1)
        told.tick(after_ms=4_500, silent=frozenset(silent))
        assert told.engine._job.state == state


def test_workers_and_a_server_of_one_machine_are_lost_at_one_check(story):
    told = story(workers=40).running()
    now_ms = told.now_ms + 4_500
    seen = {f"worker:{rank}:{told.instance('w', rank)}": now_ms for rank in range(10)}
    seen[f"server:0:{told.instance('s', 0)}"] = now_ms
    commands = told.see(TimePassed(seen=seen), after_ms=4_500)
    assert [c.ranks for c in of(SetRoster, commands)][:1] == [list(range(10))]
    assert {c.index for c in of(MoveProcess, commands) if c.role == "server" and c.state == "lost"} == {1}


def test_the_loss_of_many_costs_one_set_of_orders(story):
    told = story(workers=40).running()
    commands = told.tick(after_ms=4_500, silent=frozenset(range(3, 40)))
    assert [(c.generation, c.ranks) for c in of(SetRoster, commands)] == [(2, [0, 1, 2])]
    assert of(SetRoster, commands)[0].reason.startswith("w3, w4, w5, w6, w7, w8, w9, w10 and 29 more sent no heartbeat")
    assert len(of(IssueOrders, commands)) <= 2 * 3


def test_all_workers_lost_at_once_are_restarted_and_go_on_with_the_servers_parameters(story):
    told = story().running()
    commands = told.tick(after_ms=4_500, silent=frozenset(range(4)))
    assert [c.ranks for c in of(SetRoster, commands)] == [[]]
    assert len(of(StartProcess, told.tick(after_ms=600))) == 4
    for rank in range(4):
        told.hello(rank)
    for index in range(2):
        told.server_report(index, highest=0)
    assert told.given(SetRoster)[-1].ranks == [0, 1, 2, 3]


def test_the_loss_of_too_many_at_once_ends_the_job_and_names_them(story):
    told = story(elastic={"restarts": 0, "minimum_workers": 3}).running()
    (moved,) = of(MoveJob, told.tick(after_ms=4_500, silent=frozenset({1, 2})))
    assert moved.reason == "w1, w2 sent no heartbeat; 2 workers are left, 3 are needed"


def test_an_outage_of_the_control_plane_fails_no_worker(story):
    told = story().running()
    told.see(ControlPlaneResumed(who="gateway"), after_ms=20_000)
    assert not of(SetRoster, told.tick(after_ms=4_900, silent=frozenset({2})))
    assert of(SetRoster, told.tick(after_ms=200, silent=frozenset({2})))[0].ranks == [0, 1, 3]


def test_process_that_never_sends_a_hello_is_started_again_after_a_minute(story):
    told = story(elastic={"restarts": 1}).starting()
    for rank in range(3):
        told.hello(rank)
    told.server_hello(0)
    told.server_hello(1)
    dead = of(MoveProcess, told.tick(after_ms=60_500, silent=frozenset({3})))[0]
    assert dead.reason == "did not connect within 60 s; restart 1 of 1 in 0.5 s"
    assert of(StartProcess, told.tick(after_ms=500))[0].instance == "w3.0.2"
    moved = of(MoveJob, told.tick(after_ms=60_500, silent=frozenset({3})))
    assert moved[-1].reason == "w3 did not connect within 60 s before the job had begun"


def test_departure_in_the_last_iteration_lets_the_others_finish(story):
    told = story(workers=2, stop={"iterations": 1}).running()
    told.report(0, 0)
    told.finish(0, 1)
    commands = told.kill(1)
    assert [command.state for command in of(MoveJob, commands)] == ["succeeded"]
    assert len(of(CloseFlag, commands)) == 1
