"""Jobs without servers: each generation is a placement, which says where its members find each other."""

from controlplane.core.commands import IssueOrders, IssuePlacement, MoveJob, SetPlacement
from controlplane.core.engine import Engine
from controlplane.core.states import JobState
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import WorkerHello
from controlplane.protocol.orders import PeerAddress
from tests.core.story import Story

ALL_REDUCE = {"communication": "all-reduce", "servers": 0, "workers": 3}


def hello(rank: int, parameters: int = 650) -> WorkerHello:
    return WorkerHello(number=1, parameter_count=parameters, sample_count=1437, host="10.0.0.1", port=5000 + rank)


def running() -> Story:
    story = Story(**ALL_REDUCE).starting()
    for rank in range(3):
        story.numbers[f"w{rank}"] = 1
        story.say(rank, hello(rank))
    return story


def peers(*ranks: int) -> list[PeerAddress]:
    return [PeerAddress(rank=rank, host="10.0.0.1", port=5000 + rank) for rank in ranks]


def test_it_runs_as_soon_as_its_workers_are_here_and_tells_each_where_the_others_are() -> None:
    story = running()
    placements = story.given(IssuePlacement)
    assert [(p.rank, p.version, p.generation, p.peers, p.blocks) for p in placements] == [
        (rank, 1, 1, peers(0, 1, 2), []) for rank in range(3)
    ]
    assert (story.given(SetPlacement), story.orders[0].placement_version) == ([], 1)
    assert story.given(MoveJob)[-1].state is JobState.RUNNING
    story.engine.validate()


def test_when_a_worker_dies_the_others_meet_in_a_new_generation() -> None:
    story = running()
    commands = story.kill(1)
    placements = [command for command in commands if isinstance(command, IssuePlacement)]
    assert [(p.rank, p.version, p.generation, p.peers) for p in placements] == [
        (rank, 2, 2, peers(0, 2)) for rank in (0, 2)
    ]
    # A worker must have the placement that its orders name, so it is told first.
    kinds = [type(command) for command in commands if isinstance(command, IssuePlacement | IssueOrders)]
    assert kinds.index(IssueOrders) == 2
    assert {command.orders.placement_version for command in commands if isinstance(command, IssueOrders)} == {2}


def test_workers_of_different_sizes_end_the_job_with_the_reason() -> None:
    story = Story(**ALL_REDUCE).starting()
    story.say(0, hello(0))
    story.say(1, hello(1, parameters=651))
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason == "w1 has 651 parameters, w0 has 650: they run different workloads"


def test_it_restores_from_its_snapshot() -> None:
    story = running()

    again = Engine.restore(story.engine.snapshot(), resolve=resolve)
    again.validate()
    assert again.snapshot() == story.engine.snapshot()


def test_when_the_last_who_had_the_parameters_dies_the_job_fails_and_says_so() -> None:
    story = running()
    for rank in (0, 1, 2):
        story.kill(rank)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason == "w2 was ended by signal 9; nobody is left who has the parameters"
