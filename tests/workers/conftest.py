"""What every test of workers and agents leaves as it found it."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()
    ours = logging.getLogger("workers")
    ours.handlers, ours.propagate = [], True
    ours.setLevel(logging.NOTSET)
