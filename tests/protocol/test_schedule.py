"""Which orders hold for an iteration, and which samples they give it."""

from typing import Any

import pytest

from controlplane.protocol.orders import Orders, Piece, Range
from controlplane.protocol.schedule import Schedule, task_of
from tests.protocol.orders import orders

PIECES = [Piece(split=1, start=8, stop=12), Piece(split=0, start=0, stop=5)]


def given(*share_from: int) -> list[Orders]:
    """Each newer than the one before; shares tell them apart."""
    return [orders(sequence=at, share=10 + at, share_from=first) for at, first in enumerate(share_from)]


def heard(*all_orders: Orders) -> Schedule:
    schedule = Schedule()
    for each in all_orders:
        schedule.receive(each)
    return schedule


def test_an_iteration_takes_the_newest_orders_that_name_its_share() -> None:
    schedule = heard(*given(0, 2, 2, 4))
    assert [schedule.task(iteration).share for iteration in range(6)] == [10, 10, 12, 12, 13, 13]


def test_orders_of_later_iterations_only_leave_the_share_as_it_was() -> None:
    assert heard(*given(0, 9)).task(8).share == 10


def test_late_and_repeated_orders_are_not_received() -> None:
    old, new = given(0, 0)
    assert heard(new, old, new).task(0).share == 11


def test_a_look_ahead_forgets_nothing() -> None:
    schedule = heard(*given(0, 4))
    assert (schedule.coming(5).share, schedule.task(3).share, schedule.task(4).share) == (11, 10, 11)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"share": 3, "offset": 5, "origin_iteration": 2, "origin_position": 40}, (40 + 2 * 16 + 5, 3, 3)),
        ({"share": 3, "ceiling": 9, "budget_s": 0.5}, (4 * 16, 3, 9)),
        ({"share": 3, "ceiling": 2, "budget_s": 0.5}, (4 * 16, 3, 3)),
        ({"share": 3, "ranges": [Range(first=3, last=5, position=100, share=7)]}, (107, 7, 7)),
        (
            {"share": 9, "pieces_of": 4, "pieces": [Piece(split=1, start=8, stop=12), Piece(split=0, start=0, stop=5)]},
            (8, 9, 9),
        ),
        ({"share": 0, "pieces_of": 4, "pieces": []}, (0, 0, 0)),
    ],
)
def test_samples_come_from_pieces_or_a_range_or_the_common_formula(
    changes: dict[str, Any], found: tuple[int, int, int]
) -> None:
    task = task_of(orders(**changes), 4)
    assert (task.position, task.share, task.most) == found
    assert (task.iteration, task.pieces, task.budget_s) == (4, changes.get("pieces", []), changes.get("budget_s"))
