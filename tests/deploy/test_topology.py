"""The whole of docker-compose.yml runs, with real PostgreSQL and real Redis, and trains a job on its machines."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.database.postgres import INSTALL as INSTALL_POSTGRES
from benchmarks.database.postgres import postgres_folder
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.deploy.engine import Engine
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

INSTALL_REDIS = "redis-server and redis-cli are not both installed; on Debian and Ubuntu: apt-get install redis"
JOB = {
    "name": "containers",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 4,
    "servers": 2,
    "batch_size": 16,
    "synchronization": {"batching": {"name": "lb-bsp-cpu", "predictor": "ema"}},
    "stop": {"iterations": 20},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Everything up and well."""
    if postgres_folder() is None:
        pytest.skip(INSTALL_POSTGRES)
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        pytest.skip(INSTALL_REDIS)
    with tempfile.TemporaryDirectory(prefix="paceline-compose-") as name, Supervisor(Interruption()) as supervisor:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user and looks for its data below
        engine = Engine(folder, supervisor)
        engine.up()
        yield engine


def test_every_service_is_well_and_a_job_trains_on_its_machines(engine: Engine) -> None:
    access = json.loads(
        engine.execute("web", "python", "manage.py", "access", "me", "--role", "admin", "--token", "--json")
    )
    headers = {"Authorization": f"Bearer {access['token']}"}
    with httpx.Client(base_url=engine.url, headers=headers, trust_env=False, timeout=60.0) as client:
        agents = client.get("/api/v1/agents").raise_for_status().json()["results"]
        job = client.post("/api/v1/jobs", json=JOB).raise_for_status().json()["id"]
        done = eventually(
            lambda: (found := client.get(f"/api/v1/jobs/{job}").json())["is_over"] and found,
            what="the job's end",
            seconds=120,
            every=0.5,
        )
    assert {agent["name"] for agent in agents if agent["state"] == "online"} == {
        *("fast-1", "fast-2", "medium", "slow", "servers")
    }
    assert (done["state"], done["iteration"], done["samples"]) == ("succeeded", 20, 20 * 64)


def test_its_history_is_in_postgresql(engine: Engine) -> None:
    program = "from django.db import connection; print(connection.vendor)"
    assert engine.execute("history", "python", "manage.py", "shell", "-v", "0", "-c", program).strip() == "postgresql"


def test_it_serves_pages_and_hashed_files_as_the_image_does(engine: Engine) -> None:
    page = httpx.get(f"{engine.url}/login/", trust_env=False)
    assert page.status_code == 200
    path = next(word.split('"')[0] for word in page.text.split('href="') if word.startswith("/static/"))
    served = httpx.get(engine.url + path, trust_env=False)
    assert (served.status_code, "immutable" in served.headers["cache-control"]) == (200, True)


def test_a_machine_with_an_expired_credential_joins_again_with_another_token(engine: Engine) -> None:
    program = (
        "from controlplane.fleet.models import Agent; from django.utils import timezone; "
        "Agent.objects.filter(name='slow').update(credential_expires_at=timezone.now())"
    )
    engine.execute("web", "python", "manage.py", "shell", "-v", "0", "-c", program)
    [slow] = [service for service in engine.supervisor.services if service.name == "slow"]
    eventually(slow.is_over, what="the end of a machine with an expired credential", seconds=60)
    assert "expired at" in (engine.folder / "slow.log").read_text()
    again = ("python", "manage.py", "enroll_machines", "/enrolment", "slow", "--again")
    assert engine.execute("enrolment", *again).startswith("1 token in ")
    engine.restart("slow")
    engine.await_health("slow")


def test_a_machine_that_is_named_again_gets_no_second_token(engine: Engine) -> None:
    said = engine.execute("enrolment", "python", "manage.py", "enroll_machines", "/enrolment", "fast-1", "new")
    tokens = {path.parent.name for path in (engine.folder / "volumes" / "enrolment").glob("*/token")}
    assert said.startswith("1 token in ")
    assert "new" in tokens
