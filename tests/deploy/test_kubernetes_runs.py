"""What deploy/kubernetes runs, as local processes: real PostgreSQL and Redis, two agents, and a job that trains."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.database.postgres import INSTALL as INSTALL_POSTGRES
from benchmarks.database.postgres import postgres_folder
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.deploy import kubernetes
from tests.deploy.engine import Engine
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

AGENTS = ("agents-0", "agents-1")
JOB = {
    "name": "pods",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": 16,
    "labels": {"pool": "default"},
    "stop": {"iterations": 10},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The control plane of the small overlay, up and well."""
    if kubernetes.kubectl() is None:
        pytest.skip(kubernetes.INSTALL_KUBECTL)
    if postgres_folder() is None:
        pytest.skip(INSTALL_POSTGRES)
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        pytest.skip("redis-server and redis-cli are not both installed; on Debian and Ubuntu: apt-get install redis")
    with tempfile.TemporaryDirectory(prefix="paceline-kubernetes-") as name, Supervisor(Interruption()) as supervisor:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user and looks for its data below
        engine = Engine(folder, supervisor, services=kubernetes.services("overlays/small"))
        engine.up()
        yield engine


def test_agents_join_on_one_token_and_train_a_job(engine: Engine) -> None:
    made = json.loads(
        engine.execute(
            *("web", "python", "manage.py", "enroll", "--uses", "2", "--expires", "1h"),
            *("--label", "pool=default", "--remove-after", "1h", "--json"),
        )
    )
    (pod,) = kubernetes.pods("agents").values()
    for name in AGENTS:
        service = kubernetes.service("agents", pod)
        words = {"$(POD_NAME)": name, "$(POD_IP)": "127.0.0.1"}
        service["command"] = [words.get(word, word) for word in service["command"]]
        service["volumes"] = [volume.replace("data:", f"{name}:") for volume in service["volumes"]]
        engine.services[name] = service
        token = engine.folder / "volumes" / "enrolment" / "token"
        token.parent.mkdir(exist_ok=True)
        token.write_text(made["token"])
        engine.run(name)
    for name in AGENTS:
        engine.await_health(name)
    access = json.loads(
        engine.execute("web", "python", "manage.py", "access", "me", "--role", "admin", "--token", "--json")
    )
    headers = {"Authorization": f"Bearer {access['token']}"}
    with httpx.Client(base_url=engine.url, headers=headers, trust_env=False, timeout=20.0) as client:
        job = client.post("/api/v1/jobs", json=JOB).raise_for_status().json()["id"]
        done = eventually(
            lambda: (found := client.get(f"/api/v1/jobs/{job}").json())["is_over"] and found,
            what="the job's end",
            seconds=120,
            every=0.5,
        )
        agents = client.get("/api/v1/agents").json()["results"]
        (invitation,) = client.get("/api/v1/agents/enrolment-tokens").json()["results"]
    assert {agent["name"]: agent["labels"] for agent in agents} == {name: {"pool": "default"} for name in AGENTS}
    assert (invitation["uses"], invitation["used"]) == (2, 2)
    assert (done["state"], done["iteration"]) == ("succeeded", 10)


def test_pods_wait_until_the_tables_are_up_to_date(engine: Engine) -> None:
    (waiting,) = kubernetes.pods("overlays/small")["web"]["initContainers"]
    shell, flag, script = waiting["command"]
    assert engine.execute("web", shell, flag, script.replace("python", sys.executable)) == ""
