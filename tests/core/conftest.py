"""Every engine that a test tells a story is validated when the test ends."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.core.engine import Engine
from controlplane.policies.registry import resolve
from tests.core.attached import Attached
from tests.core.story import Story


@pytest.fixture
def story() -> Iterator[Callable[..., Story]]:
    told: list[Story] = []

    def tell(**changes: Any) -> Story:
        told.append(Story(**changes))
        return told[-1]

    yield tell
    for each in told:
        each.engine.validate()


@pytest.fixture
def tell() -> Iterator[Callable[..., Attached]]:
    """Stories of attached jobs; each engine is validated and kept in a snapshot when the test ends."""
    told: list[Attached] = []

    def begin(**changes: Any) -> Attached:
        told.append(Attached(**changes))
        return told[-1]

    yield begin
    for each in told:
        each.engine.validate()
        again = Engine.restore(each.engine.snapshot(), resolve=resolve)
        assert again.snapshot() == each.engine.snapshot()
