"""A driver over a real, empty Redis, whose enqueued tasks are only noted."""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.runtime import queue
from controlplane.runtime.redis import Client, connect
from tests.runtime.support import Driver


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    client = connect()
    yield client
    client.close()


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs for which someone enqueued a task."""
    noted: list[int] = []
    monkeypatch.setattr(queue, "enqueue", noted.append)
    return noted


@pytest.fixture
def driver(client: Client, enqueued: list[int]) -> Any:
    return Driver(client=client, enqueued=enqueued)
