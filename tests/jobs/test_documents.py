"""What a document may hold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.documents import check_plain, shown
from controlplane.protocol.spec import SpecError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("document", "field", "found", "expected"),
    [
        ({"a": [1, float("inf")]}, "a[1]", "inf", "a finite number"),
        ({"a": {3: 1}}, "a", 3, "text as the name of every field"),
        (
            {"a": {"b": {1}}},
            "a.b",
            "{1}",
            "text, a number, true, false, null, a list or a mapping; quote what is meant",
        ),
        ({"a": "\ud800"}, "a", "\\ud800", "text that UTF-8 can carry"),
        ({"a": "x" * 10_001}, "a", "x" * 197 + "...", "at most 10000 characters"),
    ],
)
def test_the_first_field_at_fault_is_named(document: object, field: str, found: object, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_plain(document)
    assert (caught.value.field, caught.value.found) == (field, found)
    assert caught.value.expected.startswith(expected)


def test_depth_is_limited() -> None:
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(SpecError, match="at most 16 levels of nesting"):
        check_plain(deep)


@given(ANYTHING)
def test_what_is_accepted_survives_json(document: object) -> None:
    try:
        check_plain(document)
    except SpecError:
        return
    assert json.loads(json.dumps(document, allow_nan=False).encode()) == document


@given(ANYTHING)
def test_whatever_was_found_can_be_shown(found: object) -> None:
    text = json.dumps(shown(found), allow_nan=False, ensure_ascii=False).encode()
    assert len(text) < 2500
