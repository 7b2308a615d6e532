"""Releases of one series (0.1.x) understand each other: what a message has, it keeps, and what it gains may be missing.

``wire.json`` describes the messages of the series' first release. A change that this refuses needs a new series: raise
the second number of ``RELEASE``, remove the file, and run this module with PACELINE_WRITE_GOLDENS=1.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.protocol import RELEASE, understands
from controlplane.protocol.codec import AgentReply, RankReply, ServerReply, WorkerReply
from controlplane.protocol.messages import AgentMessage, RankMessage, ServerMessage, WorkerMessage

GOLDEN = Path(__file__).parent / "wire.json"
SERIES = ".".join(RELEASE.split(".")[:2])
SAID = (WorkerMessage, RankMessage, ServerMessage, AgentMessage, WorkerReply, RankReply, ServerReply, AgentReply)


def described() -> dict[str, Any]:
    """Every message and value on the wire: its fields, and which of them must be there."""
    _, components = msgspec.json.schema_components(SAID)
    kept = ("properties", "required", "prefixItems", "minItems", "enum", "anyOf", "type")
    return {name: {key: found[key] for key in kept if key in found} for name, found in sorted(components.items())}


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What a process of the first release would not understand, or would leave out."""
    found = []
    for name, old in before["messages"].items():
        new = now.get(name)
        if new is None:
            found.append(f"{name} is gone")
            continue
        for field, schema in old.get("properties", {}).items():
            if new.get("properties", {}).get(field) != schema:
                found.append(f"{name}.{field} was {schema}, is {new.get('properties', {}).get(field)}")
        found += [
            f"{name}.{field} must be there now" for field in new.get("required", []) if field not in old["required"]
        ]
        old_items, new_items = old.get("prefixItems", []), new.get("prefixItems", [])
        if new_items[: len(old_items)] != old_items or new.get("minItems", 0) > old.get("minItems", 0):
            found.append(f"the items of {name} differ")
        found += [
            f"{name} has no {key} {value!r}" for key in ("enum",) for value in old.get(key, []) if value not in new[key]
        ]
    return found


def test_messages_of_a_series_are_understood_by_all_its_releases() -> None:
    now = described()
    if os.environ.get("PACELINE_WRITE_GOLDENS") and not GOLDEN.exists():
        lines = [f"{json.dumps(name)}: {json.dumps(found, sort_keys=True)}" for name, found in now.items()]
        messages = ",\n".join(lines)
        GOLDEN.write_text(f'{{"series": "{SERIES}", "messages": {{\n{messages}\n}}}}\n')
    before = json.loads(GOLDEN.read_text())
    assert before["series"] == SERIES
    assert changes(before, now) == []


def test_a_changed_a_lost_and_a_new_required_field_are_noticed() -> None:
    before = {"messages": {"Word": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}}
    a, b = {"type": "integer"}, {"type": "string"}
    assert changes(before, {"Word": {"properties": {"a": a, "b": b}, "required": ["a"]}}) == []
    assert changes(before, {"Word": {"properties": {"a": a, "b": b}, "required": ["a", "b"]}}) == [
        "Word.b must be there now"
    ]
    assert changes(before, {"Word": {"properties": {"a": b}, "required": ["a"]}}) == [f"Word.a was {a}, is {b}"]
    assert changes(before, {}) == ["Word is gone"]


@pytest.mark.parametrize(
    ("release", "holds"), [("", True), (RELEASE, True), (f"{SERIES}.99", True), (f"{SERIES}1.0", False), ("9", False)]
)
def test_releases_of_one_series_understand_each_other(release: str, holds: bool) -> None:
    assert understands(release) is holds
