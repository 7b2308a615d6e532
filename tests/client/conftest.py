"""Clients of a real web server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from knox.models import AuthToken

from controlplane.jobs.roles import Role
from paceline import Client, Patience

QUICK = Patience(tries=3, first_s=0.01)


@pytest.fixture
def token(transactional_db: None) -> str:
    """Of an admin."""
    user = User.objects.create_user("ann")
    user.groups.add(Group.objects.get_or_create(name=Role.ADMIN)[0])
    return str(AuthToken.objects.create(user=user)[1])


@pytest.fixture
def client(live_server: Any, redis_url: str, token: str) -> Iterator[Client]:
    with Client(live_server.url, token, patience=QUICK) as made:
        yield made


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Each pause of a client is noted and not slept; at each, the next of these happens."""

    def happen(*events: Callable[[], object]) -> list[float]:
        left, noted = list(events), []

        def nap(seconds: float) -> None:
            noted.append(seconds)
            left.pop(0)()

        monkeypatch.setattr("paceline.client.sync.time.sleep", nap)
        return noted

    return happen
