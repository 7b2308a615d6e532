"""Policies that change, and jobs that pause, in mid-run."""

from typing import NoReturn

import pytest

from controlplane.core.commands import ChangePolicies, IssueOrders, IssueServerOrders, MoveJob, SetRoster, SetShares
from controlplane.core.events import ChangeRequested, PauseRequested, ResumeRequested
from controlplane.policies import registry
from controlplane.policies.batching.lb_bsp_cpu import LbBspCpu
from controlplane.protocol.messages import Quiesced
from controlplane.protocol.spec import Choice
from controlplane.protocol.worker import Phase
from tests.core.motion import Motion
from tests.core.story import LB_BSP, of


def change(**choices):
    made = {
        question: Choice(name=choice) if isinstance(choice, str) else choice for question, choice in choices.items()
    }
    return ChangeRequested(actor="ada", choices=made)


def pushed_once(told: Motion) -> None:
    """No update is lost, and none counts twice: each report's update is in a closed iteration or was applied."""
    made = [(rank, k) for k, ranks in told.closed.items() for rank in ranks] + told.applied
    reported = [(rank, k) for _, rank, k, _ in told.reports]
    assert len(made) == len(set(made))
    assert sorted(reported) == sorted(made)


def test_batching_changes_with_the_iteration_after_the_open_one(story):
    told = story().running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    commands = told.see(change(batching=Choice(name="lb-bsp-cpu", parameters={"predictor": "memoryless"})))
    (changed,) = of(ChangePolicies, commands)
    assert (changed.generation, changed.first_iteration) == (2, 6)
    assert changed.reason == "batching becomes lb-bsp-cpu, requested by ada"
    assert of(SetRoster, commands)[0].first_iteration == 6
    told.iterate(4, speeds={0: 1000.0, 1: 1000.0, 2: 500.0, 3: 250.0}, start=5)
    assert told.given(SetShares)[-1].policy == "lb-bsp-cpu"
    assert told.orders[3].share == 23


def test_synchronous_job_becomes_asynchronous_at_the_next_iteration():
    told = Motion([1000.0, 1000.0, 250.0], stop={"iterations": 40})
    told.run(until_ms=1_000)
    told.tell(change(barrier="asp"))
    told.run()
    told.engine.validate()
    (changed,) = told.story.given(ChangePolicies)
    assert set(told.closed) == set(range(changed.first_iteration))
    assert all(set(made) == {0, 1, 2} for made in told.closed.values())
    assert min(k for _, k in told.applied) == changed.first_iteration
    assert told.state == "succeeded"
    pushed_once(told)


def test_asynchronous_job_becomes_synchronous_past_the_furthest_worker():
    told = Motion([1000.0, 1000.0, 250.0], synchronization={"barrier": "asp"}, stop={"iterations": 60})
    told.run(until_ms=1_500)
    told.tell(change(barrier="bsp"))
    assert told.story.given(ChangePolicies) == []
    assert told.story.given(MoveJob)[-1].awaited == "every worker's next boundary"
    told.run()
    told.engine.validate()
    (changed,) = told.story.given(ChangePolicies)
    furthest = max(k for _, k in told.applied)
    assert changed.first_iteration == furthest + 1
    assert changed.reason == "barrier becomes bsp, requested by ada: every worker has stopped"
    assert {set(made) == {0, 1, 2} for k, made in told.closed.items() if k > furthest} == {True}
    assert told.state == "succeeded"
    pushed_once(told)
    # What was dropped on the way is made up for: as many samples as were requested, and less than one batch more.
    done = sum(samples for _, _, _, samples in told.reports)
    assert 60 * 192 <= done < 61 * 192


def test_drain_takes_one_iteration_of_the_slowest():
    told = Motion([1000.0, 250.0], synchronization={"barrier": "asp"}, stop={"seconds": 60})
    told.run(until_ms=3_000)
    asked_ms = told.now_ms
    told.tell(change(barrier="bsp"))
    told.run(until_ms=300)
    assert told.story.given(ChangePolicies)[0].cause.partition("-")[0] <= str(int(asked_ms + 256 + 5))


def test_change_between_asynchronous_barriers_begins_at_each_worker_s_next_boundary():
    told = Motion([1000.0, 250.0], synchronization={"barrier": "asp"}, stop={"seconds": 20})
    told.run(until_ms=3_000)
    told.tell(change(barrier=Choice(name="ssp", parameters={"staleness": 1})))
    ahead = told.machines[0].protocol.iteration
    told.run(until_ms=400)
    assert told.machines[0].protocol.iteration <= ahead + 1
    told.run()
    pushed_once(told)
    assert told.state == "succeeded"


@pytest.mark.parametrize("before", registry.names("barrier"))
@pytest.mark.parametrize("after", registry.names("barrier"))
@pytest.mark.parametrize("when_ms", [0, 137, 900])
def test_any_barrier_follows_any_other_and_no_update_is_lost(before, after, when_ms):
    told = Motion([1000.0, 900.0, 500.0, 250.0], synchronization={"barrier": before}, stop={"iterations": 30})
    told.run(until_ms=when_ms)
    if before != after:
        told.tell(change(barrier=after))
    told.run()
    told.engine.validate()
    assert told.state == "succeeded"
    pushed_once(told)
    begun = [(start.rank, start.iteration) for start in told.starts]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize(
    ("question", "name"), [("barrier", "aggressive"), ("batching", "deadline"), ("data", "rotation")]
)
def test_a_federation_does_not_change_to_policies_that_it_cannot_have(story, question, name):
    told = story(federated={"local_steps": 2}).running()
    refused = told.declined(change(**{question: name}))
    assert ("complete local steps" in refused) == (question != "data")
    assert ("divides the samples itself" in refused) == (question == "data")


def test_a_worker_that_dies_during_a_pause_is_not_waited_for():
    told = Motion([1000.0, 1000.0, 64.0], synchronization={"barrier": "asp"}, stop={"iterations": 60})
    told.run(until_ms=1_200)
    told.tell(change(barrier="bsp"))
    told.run(until_ms=80)
    assert told.story.given(ChangePolicies) == []
    told.kill(2)
    assert len(told.story.given(ChangePolicies)) == 1
    assert told.run().state == "succeeded"
    pushed_once(told)


def test_change_that_is_pending_can_be_withdrawn():
    told = Motion([1000.0, 250.0], synchronization={"barrier": "asp"}, stop={"iterations": 60})
    told.run(until_ms=1_200)
    told.tell(change(barrier="bsp"))
    told.tell(change(barrier="asp"))
    assert told.run().state == "succeeded"
    assert told.story.given(ChangePolicies) == []


def test_change_before_the_start_holds_from_the_first_iteration(story):
    told = story().submitted()
    (changed,) = of(ChangePolicies, told.see(change(barrier="asp")))
    assert (changed.generation, changed.first_iteration) == (0, 0)


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (change(barrier="bsp"), "job 7: change by ada, but it already runs with these policies"),
        (change(weather="fair"), "job 7: change by ada: there is no weather policy, only batching, barrier"),
        (change(barrier="none"), "job 7: change by ada: synchronization.barrier.name: found 'none'"),
        (change(placement=Choice(name="round-robin", parameters={"x": 1})), "synchronization.placement.x: found 'x'"),
        (ResumeRequested(actor="ada"), "job 7: resumption by ada, but it is running"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(story, event, sentence):
    told = story().running()
    before = told.engine.snapshot()
    assert sentence in told.declined(event)
    assert told.engine.snapshot() == before.replace(told.entries[-2].id.encode(), told.entries[-1].id.encode())


def test_change_after_the_last_iteration_is_refused(story):
    told = story(stop={"iterations": 5}).running()
    told.iterate(4, speeds=dict.fromkeys(range(4), 1000.0))
    reason = told.declined(change(barrier="asp"))
    assert "would begin with iteration 5, but it ends before iteration 5" in reason


def test_paused_job_holds_every_worker_at_its_next_boundary_and_continues():
    told = Motion([1000.0, 1000.0, 250.0], stop={"iterations": 40})
    told.run(until_ms=1_000)
    told.tell(PauseRequested(actor="ada"))
    assert told.story.given(MoveJob)[-1].reason == "paused by ada"
    told.run(until_ms=10_000)
    assert told.story.given(MoveJob)[-1].awaited == "an operator to resume it"
    standing = {rank: machine.protocol.iteration for rank, machine in told.machines.items()}
    assert all(machine.protocol.phase is Phase.BOUNDARY for machine in told.machines.values())
    told.run(until_ms=10_000)
    assert {rank: machine.protocol.iteration for rank, machine in told.machines.items()} == standing
    told.tell(ResumeRequested(actor="bob"))
    assert told.run().state == "succeeded"
    assert set(told.closed) == set(range(40))
    pushed_once(told)


@pytest.mark.parametrize("barrier", ["asp", "ssp", "pssp", "aggressive", "backup"])
def test_any_job_can_pause_and_resume_twice(barrier):
    told = Motion([1000.0, 1000.0, 250.0], synchronization={"barrier": barrier}, stop={"iterations": 40})
    for wait_ms in (400, 30):
        told.run(until_ms=wait_ms)
        told.tell(PauseRequested(actor="ada"))
        told.run(until_ms=wait_ms)
        told.tell(ResumeRequested(actor="ada"))
    assert told.run().state == "succeeded"
    told.engine.validate()
    pushed_once(told)


def test_time_while_paused_does_not_count_as_running():
    told = Motion([1000.0], stop={"seconds": 3})
    told.run(until_ms=1_000)
    told.tell(PauseRequested(actor="ada"))
    told.run(until_ms=60_000)
    told.tell(ResumeRequested(actor="ada"))
    told.run()
    ran_ms = told.now_ms - told.story.entries[0].at_ms
    assert ran_ms > 63_000


def test_change_requested_while_paused_takes_effect_then_and_the_job_stays_paused():
    told = Motion([1000.0, 250.0], synchronization={"barrier": "asp"}, stop={"iterations": 60})
    told.run(until_ms=1_000)
    told.tell(PauseRequested(actor="ada"))
    told.run(until_ms=1_000)
    told.tell(change(barrier="bsp"))
    assert len(told.story.given(ChangePolicies)) == 1
    assert told.state == "paused"
    assert all(command.orders.hold for command in told.story.given(IssueOrders)[-2:])
    told.tell(ResumeRequested(actor="ada"))
    assert told.run().state == "succeeded"
    pushed_once(told)


def test_message_of_an_older_hold_does_not_count(story):
    told = story(workers=1, synchronization={"barrier": "asp"}).running()
    told.see(PauseRequested(actor="ada"))
    first = told.orders[0].sequence
    told.see(ResumeRequested(actor="ada"))
    told.see(PauseRequested(actor="ada"))
    told.say(0, Quiesced(number=told.next_number(0), generation=1, iteration=0, sequence=first))
    assert not told.engine._job.workers[0].is_stopped
    told.say(0, Quiesced(number=told.next_number(0), generation=1, iteration=0, sequence=told.orders[0].sequence))
    assert told.engine._job.hold.is_quiesced


def test_quorums_that_were_named_still_hold_after_a_change_from_backup(story):
    told = story(workers=3, servers=1, synchronization={"barrier": {"name": "backup", "backups": 1}}).running()
    told.report(0, 0)
    told.report(1, 0)
    told.report(0, 1)
    told.report(2, 1)
    told.see(change(barrier="bsp"))
    orders = told.given(IssueServerOrders)[-1].orders
    assert (orders.quorums[1], orders.named_from) == ([0, 2], None)


def failing(*_: object) -> NoReturn:
    raise KeyError("w9")


FAULT = (
    "batching lb-bsp-cpu failed: KeyError: 'w9'; choose another batching policy or other parameters, or resume to "
    "restart it"
)


@pytest.mark.parametrize("barrier", ["bsp", "asp", "backup"])
def test_batching_policy_that_fails_pauses_the_job_by_its_name_and_another_one_frees_it(barrier, monkeypatch):
    told = Motion([1000.0, 250.0], synchronization=LB_BSP | {"barrier": barrier}, stop={"iterations": 60})
    told.run(until_ms=900)
    with monkeypatch.context() as broken:
        broken.setattr(LbBspCpu, "decide", failing)
        told.run(until_ms=2_000)
    paused = told.story.given(MoveJob)[-1]
    assert told.engine._job.pauses == {"policy": FAULT}
    assert (paused.state, paused.awaited) == ("paused", "another batching policy, or an operator to resume it")
    told.tell(change(batching="uniform"))
    assert told.run().state == "succeeded"
    pushed_once(told)
    told.engine.validate()


def test_batching_policy_that_fails_begins_anew_when_the_job_is_resumed(monkeypatch):
    told = Motion([1000.0, 250.0], synchronization=LB_BSP, stop={"iterations": 60})
    told.run(until_ms=900)
    with monkeypatch.context() as broken:
        broken.setattr(LbBspCpu, "decide", failing)
        told.run(until_ms=1_000)
        broken.setattr(LbBspCpu, "start", failing)
        told.tell(ResumeRequested(actor="ada"))
        told.run(until_ms=1_000)
        assert told.engine._job.pauses["policy"].endswith(FAULT)
    told.tell(ResumeRequested(actor="ada"))
    assert told.engine._job.pauses == {}
    assert told.run().state == "succeeded"
    assert told.story.given(SetShares)[-1].shares == {0: 102, 1: 26}


def test_what_is_no_fault_of_limits_is_not_called_one(monkeypatch):
    told = Motion([1000.0, 250.0], synchronization=LB_BSP, stop={"iterations": 60})
    told.run(until_ms=900)
    with monkeypatch.context() as broken:
        broken.setattr(LbBspCpu, "start", failing)
        told.tell(change(batching=Choice(name="lb-bsp-cpu", parameters={"predictor": "ema"})))
    job = told.engine._job
    assert job.pauses == {"policy": f"no shares for generation {job.generation.number}: {FAULT}"}
    told.tell(change(batching="uniform"))
    assert told.run().state == "succeeded"


@pytest.mark.parametrize(
    ("optimizer", "sentence"),
    [
        ({"clip": {"norm": 1.0}}, "optimizer.clip.norm is 1.0, expected none with barrier asp"),
        ({"name": "mine:optimizer"}, "synchronization.barrier.step_scale is auto, expected mean, average, paper"),
    ],
)
def test_change_to_a_barrier_that_the_optimizer_does_not_go_with_is_refused(story, optimizer, sentence):
    told = story(optimizer=optimizer).running()
    assert sentence in told.declined(change(barrier="asp"))


def test_orders_of_an_asynchronous_job_have_how_many_updates_make_a_step(story):
    told = story(optimizer={"name": "adam"}, synchronization={"barrier": "asp"}).running()
    orders = [command.orders for command in told.given(IssueServerOrders)][-1]
    assert (orders.scale, orders.gather) == (1.0, 4)


def test_servers_that_clip_by_norm_know_all_others(story):
    told = story(optimizer={"clip": {"norm": 1.0}}, servers=3).running()
    newest = {command.index: sorted(command.receivers) for command in told.given(IssueServerOrders)}
    assert newest == {0: [1, 2], 1: [0, 2], 2: [0, 1]}
