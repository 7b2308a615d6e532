"""An iteration that does not end names who has not come to the sum, what that rank is doing, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.core.commands import CloseFlag, RaiseFlag
from controlplane.protocol.messages import Stalled
from tests.core.attached import Attached
from tests.core.story import of

Tell = Callable[..., Attached]


def stalls(story: Attached, rank: int, place: Any, *, open_s: float = 34.0, iteration: int = 2) -> list[Any]:
    number = story.next_number(rank)
    return story.say(rank, Stalled(number=number, iteration=iteration, place=place, open_s=open_s, usual_s=0.5))


@pytest.fixture
def story(tell: Tell) -> Attached:
    told = tell(workers=3).running()
    told.iterate_at(2, 100.0, 100.0, 100.0)
    return told


@pytest.mark.parametrize(
    ("place", "doing"),
    [
        ("compute", "w1 has been computing for 34 s"),
        ("data", "w1 has been waiting for its next batch for 34 s"),
        ("outside", "w1 has been between two iterations (evaluation, checkpoint) for 34 s"),
    ],
)
def test_the_rank_that_has_not_come_to_the_sum_is_named(story: Attached, place: str, doing: str) -> None:
    assert of(RaiseFlag, stalls(story, 0, "sum")) == []
    (flag,) = of(RaiseFlag, stalls(story, 1, place))
    assert (flag.rank, flag.kind, flag.subject) == (1, "hang", "worker")
    assert flag.reason == (
        f"iteration 2 does not end: {doing}, and the other ranks wait for it; an iteration usually takes 0.5 s. Inspect"
        " its stack on gpu-1 (py-spy dump --pid 101), or have its launcher start it again"
    )
    assert of(RaiseFlag, stalls(story, 2, "sum")) == []


def test_a_rank_that_sends_nothing_is_named_once_the_others_have_reported_it_again(story: Attached) -> None:
    for rank in (0, 2):
        assert of(RaiseFlag, stalls(story, rank, "sum")) == []
    (flag,) = of(RaiseFlag, stalls(story, 0, "sum", open_s=51.0))
    assert flag.rank == 1
    assert "w1 sends nothing, and the other ranks wait for it" in flag.reason


def test_where_all_wait_in_the_sum_no_one_is_blamed(story: Attached) -> None:
    for rank in (0, 1, 2):
        assert of(RaiseFlag, stalls(story, rank, "sum")) == []
    (flag,) = of(RaiseFlag, stalls(story, 2, "sum", open_s=51.0))
    assert (flag.subject, flag.kind) == ("job", "hang")
    assert "no rank is known to be late, and all have waited for 51 s" in flag.reason


def test_where_no_rank_can_tell_computing_from_waiting_no_one_is_blamed(story: Attached) -> None:
    for rank in (0, 1, 2):
        assert of(RaiseFlag, stalls(story, rank, "compute")) == []
    (flag,) = of(RaiseFlag, stalls(story, 2, "compute", open_s=51.0))
    assert flag.subject == "job"


def test_it_is_over_when_the_iteration_ends(story: Attached) -> None:
    stalls(story, 0, "sum")
    (flag,) = of(RaiseFlag, stalls(story, 1, "compute"))
    (closed,) = of(CloseFlag, story.report(0, 2))
    assert (closed.flag, closed.reason) == (flag.flag, "iteration 2 has ended")
    assert of(CloseFlag, story.report(1, 2)) == []


def test_it_is_over_when_the_ranks_begin_again(story: Attached) -> None:
    stalls(story, 0, "sum")
    (flag,) = of(RaiseFlag, stalls(story, 1, "compute"))
    closed = [command for rank in range(3) for command in of(CloseFlag, story.comes(rank))]
    assert [each.flag for each in closed] == [flag.flag]


def test_message_of_an_iteration_that_has_ended_changes_nothing(story: Attached) -> None:
    story.report(1, 2)
    assert of(RaiseFlag, stalls(story, 1, "compute")) == []


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 1, 2), (2, 0, 1)])
def test_a_rank_that_hangs_after_its_sum_is_named_though_the_others_are_an_iteration_ahead(
    story: Attached, order: tuple[int, ...]
) -> None:
    for rank in (0, 2):
        story.report(rank, 2)
    said = [stalls(story, rank, "compute" if rank == 1 else "sum", iteration=2 if rank == 1 else 3) for rank in order]
    flags = [flag for commands in said for flag in of(RaiseFlag, commands)]
    assert {flag.rank for flag in flags} == {1}
    assert (
        "w1 has been between the all-reduce and the end of iteration 2 (optimizer, checkpoint before paceline.step)"
        in flags[0].reason
    )
    assert of(CloseFlag, stalls(story, 1, "compute", open_s=51.0)) == []
    assert of(CloseFlag, story.report(0, 3))


def test_ranks_that_moved_on_begin_anew(story: Attached) -> None:
    for rank in (0, 2):
        stalls(story, rank, "sum")
    assert of(RaiseFlag, stalls(story, 0, "sum", iteration=3)) == []
    assert of(RaiseFlag, stalls(story, 2, "sum", iteration=3)) == []
