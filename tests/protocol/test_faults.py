"""Validation errors name the place of the value and what is allowed there."""

from enum import Enum
from typing import Annotated, Any, Literal

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


class Wood(Enum):
    OAK = "oak"
    PINE = "pine"


class House(msgspec.Struct):
    shelves: list[Shelf | None] | None = None
    best: Shelf = msgspec.field(default_factory=Shelf)
    wood: Wood | None = None
    colours: list[Literal["red", "blue"]] = []


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"wood": "oka"}, Fault("wood", "one of oak, pine")),
        ({"colours": ["red", "bleu"]}, Fault("colours[1]", "one of blue, red")),
    ],
)
def test_a_wrong_value_of_an_enumeration_is_answered_with_the_allowed_ones(document: Any, fault: Fault) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(document, House)
    assert fault_of(refused.value, House) == fault


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("", ["shelves", "best", "wood", "colours"]),
        ("best", ["rooms", "labels"]),
        ("shelves[3]", ["rooms", "labels"]),
        ("best.rooms", []),
    ],
)
def test_the_fields_of_a_part_are_known_by_its_place(field: str, names: list[str]) -> None:
    assert fields_at(House, field) == names
