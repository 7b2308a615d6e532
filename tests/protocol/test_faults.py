"""What does not fit is told with its place."""

from typing import Annotated, Any

import msgspec
import pytest

from controlplane.protocol.faults import Fault, fault_of, fields_at


class Shelf(msgspec.Struct):
    rooms: list[Annotated[int, msgspec.Meta(ge=1)]] = []
    labels: dict[str, str] = {}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"rooms": [1, 0]}, Fault("rooms[1]", "`int` >= 1")),
        ({"labels": {3: "a"}}, Fault("labels", "`str`, got `int`")),
        ({"labels": {"a": 3}}, Fault("labels[...]", "`str`, got `int`")),
        (7, Fault("", "`object`, got `int`")),
    ],
)
def test_a_fault_has_its_place_and_what_would_fit(document: Any, fault: Fault) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(document, Shelf)
    assert fault_of(refused.value) == fault


class House(msgspec.Struct):
    shelves: list[Shelf | None] | None = None
    best: Shelf = msgspec.field(default_factory=Shelf)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("", ["shelves", "best"]),
        ("best", ["rooms", "labels"]),
        ("shelves[3]", ["rooms", "labels"]),
        ("best.rooms", []),
    ],
)
def test_the_fields_of_a_part_are_known_by_its_place(field: str, names: list[str]) -> None:
    assert fields_at(House, field) == names
