"""For whoever watches the control plane."""

from typing import Any

import pytest
from django.test import Client

from controlplane.runtime import names
from controlplane.runtime.redis import shared
from tests.api.conftest import refused

pytestmark = pytest.mark.django_db


def test_it_is_alive(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_it_is_ready_with_database_and_redis(client: Client, redis_url: str) -> None:
    assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (200, {"status": "ok"})


def test_without_redis_it_is_not_ready_and_reports_why(client: Client, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    found = refused(client.get("/readyz"))
    assert (found["status"], found["detail"].partition(":")[0]) == (503, "redis")


def test_with_the_redis_of_another_database_it_is_not_ready_and_names_the_cure(client: Client, redis_url: str) -> None:
    shared().set(names.IDENTITY, "somebody else's")
    found = refused(client.get("/readyz"))
    assert found["status"] == 503
    assert "belongs to another database" in found["detail"]
    assert "name an empty one" in found["detail"]
