"""Jobs without servers: each generation is a placement, which says where its members find each other."""

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.core.commands import (
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    KeepCheckpoint,
    MoveJob,
    RollBack,
    SetPlacement,
    SetRoster,
    SkipCheckpoint,
)
from controlplane.core.engine import Engine
from controlplane.core.events import ChangeRequested
from controlplane.core.states import JobState
from controlplane.policies.registry import resolve
from controlplane.protocol.checkpoints import FoundCheckpoint, Restore, SavedBlock
from controlplane.protocol.messages import CheckpointSaved, FolderApart, RestoreFailed, WorkerHello
from controlplane.protocol.orders import PeerAddress
from controlplane.protocol.spec import Choice
from tests.core.story import TENSOR_SIZES, Story, of

ALL_REDUCE = {"communication": "all-reduce", "servers": 0, "workers": 3}


ALL = dict.fromkeys(range(3), 1000.0)


def hello(rank: int, parameters: int = 650) -> WorkerHello:
    return WorkerHello(number=1, parameter_count=parameters, sample_count=1437, host="10.0.0.1", port=5000 + rank)


def running(**changes: Any) -> Story:
    story = Story(**ALL_REDUCE, **changes).starting()
    for rank in range(3):
        story.numbers[f"w{rank}"] = 1
        story.say(rank, hello(rank))
    return story


def peers(*ranks: int) -> list[PeerAddress]:
    return [PeerAddress(rank=rank, host="10.0.0.1", port=5000 + rank) for rank in ranks]


def test_it_runs_as_soon_as_its_workers_are_here_and_sends_each_the_addresses_of_the_others() -> None:
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


def test_workers_that_begin_with_other_parameters_end_the_job_with_the_cure() -> None:
    story = Story(**ALL_REDUCE).starting()
    story.say(0, replace(hello(0), initial="aa"))
    story.say(1, replace(hello(1), initial="bb"))
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason.startswith(
        "w1 starts with different parameters than w0: the module has different initial values there; "
    )
    assert "workload.init to seed" in ended.reason


def test_it_restores_from_its_snapshot() -> None:
    story = running()

    again = Engine.restore(story.engine.snapshot(), resolve=resolve)
    again.validate()
    assert again.snapshot() == story.engine.snapshot()


def test_when_the_last_who_had_the_parameters_dies_the_job_fails_and_reports_it() -> None:
    story = running()
    story.iterate(1, speeds=ALL)
    for rank in (0, 1, 2):
        story.kill(rank)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason == "w2 was ended by signal 9; no process is left that has the parameters"


def piece(start: int, stop: int) -> SavedBlock:
    return SavedBlock(start=start, stop=stop, steps=5, bytes=100, checksum=1)


def keeping() -> Story:
    """Seven iterations are done; w0 has written what there was before the fifth, and its manifest."""
    story = running(checkpoint={"every": 5})
    story.iterate(7, speeds=ALL)
    saved = CheckpointSaved(number=story.next_number(0), iteration=5, pieces=[piece(0, 400), piece(400, 650)])
    story.say(0, saved)
    assert [story.orders[rank].whole is not None for rank in range(3)] == [True, False, False]
    story.say(0, CheckpointSaved(number=story.next_number(0), iteration=5, is_whole=True))
    return story


def test_one_worker_keeps_checkpoints_and_everyone_knows_which() -> None:
    story = keeping()
    assert {story.orders[rank].keeper for rank in range(3)} == {"w0.0.1"}
    (kept,) = story.given(KeepCheckpoint)
    assert (kept.iteration, kept.position, kept.bytes) == (5, 5 * story.spec.global_batch, 200)


def test_when_the_keeper_dies_another_keeps() -> None:
    story = keeping()
    story.kill(0)
    assert {story.orders[rank].keeper for rank in (1, 2)} == {"w1.0.1"}


def test_checkpoint_with_a_gap_is_not_whole() -> None:
    story = running(checkpoint={"every": 5})
    story.iterate(7, speeds=ALL)
    story.say(0, CheckpointSaved(number=story.next_number(0), iteration=5, pieces=[piece(0, 400), piece(500, 650)]))
    assert {story.orders[rank].whole for rank in range(3)} == {None}


def begin_again(story: Story) -> None:
    """Everyone's next life says hello."""
    story.tick(after_ms=1_000)
    for rank in range(3):
        story.numbers[story.instance("w", rank)] = 1
        story.say(rank, hello(rank))


def test_when_all_have_died_they_begin_again_from_the_checkpoint() -> None:
    story = keeping()
    for rank in (0, 1, 2):
        story.kill(rank)
    assert story.given(RollBack)[-1].reason == (
        "w2 was ended by signal 9, the last that had the parameters; all go back to the checkpoint of iteration 5, "
        "iterations 5 to 6 are repeated"
    )
    paused = story.given(MoveJob)[-1]
    assert (paused.state, paused.awaited) == (JobState.PAUSED, "more workers: w0, w1, w2")
    begin_again(story)
    assert story.given(MoveJob)[-1].reason == "3 workers go on with iteration 5"
    assert [story.orders[rank].restore for rank in range(3)] == [Restore(iteration=5)] * 3
    assert {(o.share_from, o.origin_position) for o in story.orders.values()} == {(5, 5 * story.spec.global_batch)}
    story.iterate(2, speeds=ALL, start=5)
    assert story.engine._job.round.completed == 6


def test_when_all_are_lost_at_once_they_begin_again_from_the_checkpoint() -> None:
    story = keeping()
    commands = story.tick(after_ms=4_500, silent=frozenset(range(3)))
    assert [c.ranks for c in of(SetRoster, commands)] == [[2]]
    assert of(RollBack, commands)[-1].reason.startswith("w2 sent no heartbeat for 4.5 s, the last that had the para")
    begin_again(story)
    assert story.given(MoveJob)[-1].reason == "3 workers go on with iteration 5"


def test_one_more_death_while_all_begin_again_is_waited_for() -> None:
    story = keeping()
    for rank in (0, 1, 2):
        story.kill(rank)
    story.tick(after_ms=1_000)
    story.kill(1)
    assert story.given(MoveJob)[-1].state is JobState.PAUSED
    begin_again(story)
    assert story.given(MoveJob)[-1].state is JobState.RUNNING


def test_who_comes_later_gets_the_parameters_from_the_others_and_not_from_the_checkpoint() -> None:
    story = keeping()
    for rank in (0, 1, 2):
        story.kill(rank)
    begin_again(story)
    story.kill(1)
    story.tick(after_ms=1_000)
    story.numbers[story.instance("w", 1)] = 1
    story.say(1, hello(1))
    for iteration in range(5, 60):
        for rank in (0, 2):
            if story.orders[rank].watermark >= iteration:
                story.report(rank, iteration)
    assert 1 in story.engine._job.generation.roster
    assert story.orders[1].restore is None


def test_checkpoint_that_a_worker_cannot_use_is_left_out() -> None:
    story = keeping()
    for rank in (0, 1, 2):
        story.kill(rank)
    begin_again(story)
    commands = story.say(1, RestoreFailed(number=story.next_number(1), iteration=5, reason="it has no manifest"))
    (skipped,) = of(SkipCheckpoint, commands)
    assert skipped.reason == "w1 cannot use the checkpoint of iteration 5: it has no manifest"
    moved = of(MoveJob, commands)[-1]
    assert moved.state is JobState.FAILED
    assert "there is no checkpoint" in moved.reason


def test_workers_that_do_not_share_their_folder_end_the_job() -> None:
    story = running(checkpoint={"every": 5})
    commands = story.say(2, FolderApart(number=story.next_number(2), reason="its folder is not that of w0.0.1"))
    moved = of(MoveJob, commands)[-1]
    assert (moved.state, moved.reason) == (JobState.FAILED, "w2: its folder is not that of w0.0.1")


def test_it_starts_from_the_newest_checkpoint_that_every_worker_can_use() -> None:
    story = Story(**ALL_REDUCE, start_from={"job": 3}).starting()
    found = [FoundCheckpoint(iteration=each, position=each * 10) for each in (60, 40)]
    for rank, here in enumerate([found, found[1:], found]):
        story.numbers[f"w{rank}"] = 1
        story.say(rank, replace(hello(rank), found=here))
    assert story.given(SetRoster)[-1].first_iteration == 40
    assert story.orders[2].restore == Restore(iteration=40, is_start=True)
    assert story.orders[2].origin_position == 400


AGGREGATING = {"server_mode": "aggregating", "workers": 3, "servers": 1}


def aggregating(**changes: Any) -> Story:
    story = Story(**AGGREGATING, checkpoint={"every": 5}, **changes).running()
    story.iterate(7, speeds=ALL)
    size = sum(TENSOR_SIZES)
    story.say(0, CheckpointSaved(number=story.next_number(0), iteration=5, pieces=[piece(0, size)]))
    story.say(0, CheckpointSaved(number=story.next_number(0), iteration=5, is_whole=True))
    return story


def test_lost_server_that_only_adds_up_sends_all_back_to_what_the_workers_kept() -> None:
    story = aggregating()
    assert story.given(KeepCheckpoint)[-1].iteration == 5
    story.kill_server(0)
    assert story.given(RollBack)[-1].to_iteration == 5
    story.tick(after_ms=1_000)
    for rank in range(3):
        story.hello(rank)
    story.server_hello(0)
    assert {story.orders[rank].restore for rank in range(3)} == {Restore(iteration=5)}
    assert story.given(IssueServerOrders)[-1].orders.restore == Restore(iteration=5)


def test_with_servers_that_only_add_up_a_worker_returns_only_when_all_begin_anew() -> None:
    story = aggregating()
    for rank in (2, 1):
        story.kill(rank)
        assert not story.engine._job.starts.revivals
    story.kill(0)
    assert story.given(RollBack)[-1].to_iteration == 5


@pytest.mark.parametrize("barrier", ["asp", "ssp", "pbsp", "pssp", "backup"])
def test_it_is_not_changed_to_a_barrier_that_needs_servers(barrier: str) -> None:
    reason = running().declined(ChangeRequested(actor="ada", choices={"barrier": Choice(name=barrier)}))
    assert f"{barrier} needs servers that apply each worker's update separately" in reason
