"""Every engine that a test tells a story is validated when the test ends."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
