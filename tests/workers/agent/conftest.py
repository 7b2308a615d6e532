"""What every test of agents leaves as it found it."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    ours = logging.getLogger("workers")
    ours.handlers, ours.propagate = [], True
    ours.setLevel(logging.NOTSET)
