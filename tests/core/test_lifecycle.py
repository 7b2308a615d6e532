"""A job from submission to its end."""

import pytest

from controlplane.core.commands import (
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    MoveProcess,
    ReleaseSlots,
    SetPlacement,
    SetRoster,
    SetShares,
    StartProcess,
    StopProcess,
)
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import (
    Assignment,
    EngineFailed,
    ProcessDied,
    ServerMessageReceived,
    SlotsAssigned,
    StopRequested,
)
from controlplane.core.states import JobState
from controlplane.policies.registry import resolve
from controlplane.policies.stragglers.evidence import Evidence
from controlplane.protocol.emulation import Emulation
from controlplane.protocol.messages import Evaluation, ServerHello, WorkerHello
from tests.core.story import Story, of


def states(commands):
    return [command.state for command in of(MoveJob, commands)]


def test_submitted_job_awaits_its_slots(story):
    told = story().submitted()
    (moved,) = told.commands
    assert (moved.state, moved.awaited) == (JobState.SUBMITTED, "4 worker slots and 2 server slots")


def test_every_process_is_started_on_its_slot(story):
    told = story().starting()
    started = [(c.role, c.index, c.instance, c.agent, c.slot) for c in told.given(StartProcess)]
    workers = [("worker", rank, f"w{rank}.0.1", 1, rank) for rank in range(4)]
    assert started == [*workers, ("server", 0, "s0.0.1", 2, 0), ("server", 1, "s1.0.1", 2, 1)]
    assert states(told.commands) == ["submitted", "scheduled", "starting"]


def test_starting_job_names_those_that_it_waits_for(story):
    told = story().starting()
    told.server_hello(0)
    told.hello(2)
    assert told.given(MoveJob)[-1].awaited == "hello of w0, w1, w3, s1"


def test_last_hello_starts_the_first_generation(story):
    told = story().starting()
    for rank in range(4):
        told.hello(rank)
    told.server_hello(0)
    commands = told.server_hello(1)
    assert states(commands) == ["running"]
    assert of(SetRoster, commands)[0].ranks == [0, 1, 2, 3]
    assert of(SetShares, commands)[0].shares == {0: 64, 1: 64, 2: 64, 3: 64}
    assert [block.server for block in of(SetPlacement, commands)[0].blocks] == [0, 1]
    assert len(of(IssuePlacement, commands)) == len(of(IssueOrders, commands)) == 4
    assert [[m.rank for m in c.orders.members] for c in of(IssueServerOrders, commands)] == [[0, 1, 2, 3]] * 2


def test_orders_partition_the_global_batch(story):
    told = story().running()
    spans = [(orders.offset, orders.share) for orders in told.orders.values()]
    assert spans == [(0, 64), (64, 64), (128, 64), (192, 64)]
    assert [orders.evaluator for orders in told.orders.values()] == [True, False, False, False]


def test_workers_of_another_workload_end_the_job(story):
    told = story().starting()
    told.server_hello(0)
    commands = told.say(0, WorkerHello(number=1, parameter_count=99, sample_count=10))
    (moved,) = of(MoveJob, commands)
    assert moved.state is JobState.FAILED
    assert moved.reason == "w0 has 99 parameters, the servers hold 650: they run different workloads"


def test_job_succeeds_when_every_worker_has_finished(story):
    told = story(stop={"iterations": 3}).running()
    told.iterate(3, speeds=dict.fromkeys(range(4), 1000.0))
    commands = [command for rank in range(4) for command in told.finish(rank, 3, model_saved=rank == 0)]
    assert states(commands) == ["finishing", "succeeded"]
    assert of(MoveJob, commands)[-1].reason == "3 iterations were requested; 3 iterations were done"
    assert [(c.role, c.index) for c in of(StopProcess, commands)] == [
        *[("worker", rank) for rank in range(4)],
        ("server", 0),
        ("server", 1),
    ]
    assert not told.engine.over


def test_success_without_saved_parameters_reports_it(story):
    told = story(workers=1, servers=1, stop={"iterations": 1}).running()
    told.report(0, 0)
    (_, succeeded) = of(MoveJob, told.finish(0, 1))
    assert "the final parameters were not saved" in succeeded.reason


def test_servers_of_different_workloads_end_the_job(story):
    told = story().starting()
    told.server_hello(0)
    hello = ServerHello(number=1, host="127.0.0.1", port=7001, tensor_sizes=[99])
    (moved,) = of(MoveJob, told.see(ServerMessageReceived(index=1, instance="s1.0.1", message=hello)))
    assert moved.reason == "s1 has 99 parameters, s0 650: they run different workloads"


def test_servers_that_begin_with_other_parameters_end_the_job_with_the_cure(story):
    told = story().starting()
    for index, initial in enumerate(("aa", "bb")):
        port = 7000 + index
        hello = ServerHello(number=1, host="127.0.0.1", port=port, tensor_sizes=[640, 10], initial=initial)
        given = told.see(ServerMessageReceived(index=index, instance=f"s{index}.0.1", message=hello))
    (moved,) = of(MoveJob, given)
    assert moved.reason.startswith(
        "s1 starts with different parameters than s0: the module has different initial values"
    )


def test_fault_of_a_detector_ends_its_job_alone_and_the_same_way_again(story, monkeypatch):
    told = story().running()
    snapshot, seen, given = told.engine.snapshot(), len(told.entries), len(told.commands)

    def throw(*_: object) -> None:
        raise ZeroDivisionError("speed of w2")

    monkeypatch.setattr(Evidence, "observe", throw)
    told.iterate(3, speeds=dict.fromkeys(range(4), 1000.0))
    moved = told.given(MoveJob)[-1]
    assert moved.state is JobState.FAILED
    assert moved.reason == "WorkerMessageReceived could not be handled: ZeroDivisionError: speed of w2"
    assert len(told.given(StopProcess)) == 6
    assert isinstance(told.engine.failure, ZeroDivisionError)
    again = Engine.restore(snapshot, resolve=resolve)
    replayed = [command for entry in told.entries[seen:] for command in again.handle(entry)]
    assert replayed == told.commands[given:]


def test_fault_of_the_driver_ends_the_job(story):
    told = story().running()
    (moved,) = of(MoveJob, told.see(EngineFailed(entry="5-0", reason="OverflowError: too large")))
    assert (moved.state, moved.reason) == ("failed", "the control plane failed at 5-0: OverflowError: too large")


def test_slots_go_back_when_the_last_process_has_ended(story):
    told = story(workers=1, servers=1, stop={"iterations": 1}).running()
    told.report(0, 0)
    told.finish(0, 1)
    assert not of(ReleaseSlots, told.kill(0, status=0))
    died = ProcessDied(role="server", index=0, instance="s0.0.1", status=0)
    assert len(of(ReleaseSlots, told.see(died))) == 1
    assert told.engine.over
    assert told.engine.deadline_ms is None


def test_slots_go_back_though_an_end_is_never_reported(story):
    told = story().running()
    told.see(StopRequested(actor="ada"))
    assert told.engine.deadline_ms == told.now_ms + 15_000
    assert len(of(ReleaseSlots, told.tick(after_ms=15_000))) == 1
    assert told.engine.over


def test_stop_cancels_at_once_and_stops_every_process(story):
    told = story().running()
    commands = told.see(StopRequested(actor="ada"))
    assert states(commands) == ["cancelled"]
    assert of(MoveJob, commands)[0].reason == "stopped by ada"
    assert len(of(StopProcess, commands)) == 6


def test_stop_of_a_waiting_job_cancels_it_and_late_slots_go_back(story):
    told = story().submitted()
    told.see(StopRequested(actor="ada"))
    assert told.engine.over
    late = told.see(SlotsAssigned(assignments=[Assignment(role="worker", index=0, agent=1, slot=0)]))
    assert [type(command) for command in late] == [ReleaseSlots]


def test_second_stop_is_refused_and_changes_nothing(story):
    told = story().submitted()
    told.see(StopRequested(actor="ada"))
    before = told.engine.snapshot()
    assert told.declined(StopRequested(actor="bob")) == "job 7: stop by bob, but it is cancelled"
    cursor = told.entries[-1].id
    assert told.engine.cursor == cursor
    assert told.engine.snapshot() == before.replace(told.entries[-2].id.encode(), cursor.encode())


def test_process_that_dies_before_the_beginning_ends_the_job_with_its_last_line(story):
    told = story().starting()
    commands = told.kill(1, status=1, detail="Traceback ...\nKeyError: 'digits'\n")
    assert of(MoveJob, commands)[0].reason == "w1 ended with status 1 (KeyError: 'digits') before the job had begun"
    assert states(commands) == ["failed"]


def test_the_error_of_a_process_is_shown_without_the_module_of_its_class(story):
    told = story().starting()
    commands = told.kill(1, status=1, detail="controlplane.protocol.parts.SpecError: workload.name: found 'x.y: z'")
    assert of(MoveJob, commands)[0].reason.startswith(
        "w1 ended with status 1 (SpecError: workload.name: found 'x.y: z')"
    )


def test_dead_server_ends_the_job_where_none_is_started_again(story):
    told = story(elastic={"restarts": 0}).running()
    commands = told.kill_server(1)
    assert of(MoveJob, commands)[0].reason == "s1 was ended by signal 9; the parameters it held are lost"


def test_a_server_killed_for_lack_of_memory_is_reported_as_such(story):
    told = story(elastic={"restarts": 0}).running()
    died = ProcessDied(role="server", index=1, instance="s1.0.1", status=-9, out_of_memory=True)
    assert of(MoveJob, told.see(died))[0].reason == (
        "s1 was ended by signal 9: its machine had run out of memory; the parameters it held are lost"
    )


def test_slots_for_the_wrong_number_of_processes_are_refused(story):
    told = story().submitted()
    with pytest.raises(EventRefused, match="slots for 1 processes, expected one for each of 4 workers and 2 servers"):
        told.see(SlotsAssigned(assignments=[Assignment(role="worker", index=0, agent=1, slot=0)]))
    assert told.given(StartProcess) == []


def test_target_accuracy_ends_the_job_after_the_last_granted_iteration(story):
    told = story(stop={"accuracy": 0.9}).running()
    told.iterate(1, speeds=dict.fromkeys(range(4), 1000.0))
    leave = told.orders[0].watermark
    scored = Evaluation(number=told.next_number(0), iteration=1, loss=0.2, accuracy=0.91, samples=360, seconds=0.01)
    told.say(0, scored)
    assert {orders.stop_at for orders in told.orders.values()} == {leave + 1}
    reason = told.given(IssueOrders)[-1].reason
    assert reason == f"stop before iteration {leave + 1}: accuracy 0.9100 after iteration 1, asked for 0.9"


def test_accuracy_below_the_target_changes_nothing(story):
    told = story(stop={"accuracy": 0.9}).running()
    scored = Evaluation(number=told.next_number(0), iteration=0, loss=2.3, accuracy=0.1, samples=360, seconds=0.01)
    assert told.say(0, scored) == []


def test_time_limit_ends_the_job(story):
    told = story(stop={"seconds": 3}).running()
    assert told.engine.deadline_ms == told.now_ms + 3_000
    told.tick(after_ms=3_000)
    assert told.orders[0].stop_at == told.orders[0].watermark + 1


def test_process_states_follow_their_table(story):
    told = story(workers=1, servers=1, stop={"iterations": 1}).running()
    told.report(0, 0)
    told.finish(0, 1)
    told.kill(0, status=0)
    moves = [(command.instance, command.state) for command in told.given(MoveProcess)]
    worker = [state for instance, state in moves if instance == "w0.0.1"]
    assert worker == ["ordered", "ready", "finished", "stopped"]


def test_a_job_may_declare_its_workers_machines() -> None:
    story = Story(workers=2, servers=1, emulate=[{"slower": 3}, None])
    story.submitted()
    offered = Emulation(samples_per_second=5.0)
    slots = [Assignment(role="worker", index=rank, agent=1, slot=rank, emulate=offered) for rank in (0, 1)]
    story.see(SlotsAssigned(assignments=[*slots, Assignment(role="server", index=0, agent=1, slot=0)]))
    machines = {(start.role, start.index): start.emulate for start in story.given(StartProcess)}
    assert machines == {("worker", 0): Emulation(slower=3.0), ("worker", 1): offered, ("server", 0): None}
