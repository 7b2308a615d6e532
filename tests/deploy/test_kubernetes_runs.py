"""What deploy/kubernetes runs, as local processes: real PostgreSQL and Redis, two agents, and a job that trains."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.database.postgres import INSTALL as INSTALL_POSTGRES
from benchmarks.database.postgres import postgres_folder
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.deploy import kubernetes
from tests.deploy.engine import Engine
from tests.deploy.pods import AGENTS, admitted, invite, start_agent, trained
from tests.support.api_server import ApiServer, own_token
from tests.support.certificates import make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The cluster's API server, as far as it is asked."""
    with ApiServer(make_certificates(tmp_path_factory.mktemp("certificates"))) as server:
        yield server


@pytest.fixture(scope="module")
def engine(api: ApiServer) -> Iterator[Engine]:
    """The control plane of the small overlay with accounts, up and well."""
    if postgres_folder() is None:
        pytest.skip(INSTALL_POSTGRES)
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        pytest.skip("redis-server and redis-cli are not both installed; on Debian and Ubuntu: apt-get install redis")
    with tempfile.TemporaryDirectory(prefix="paceline-kubernetes-") as name, Supervisor(Interruption()) as supervisor:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user and looks for its data below
        engine = Engine(folder, supervisor, services=kubernetes.services("overlays/accounts"))
        for service in engine.services.values():
            if "PACELINE_KUBERNETES_API" in service.get("environment", {}):
                service["environment"]["PACELINE_KUBERNETES_API"] = api.url
        mounted = folder / "volumes" / "account"  # what the kubelet projects into the web process's pod
        mounted.mkdir(parents=True)
        (mounted / "ca.crt").write_text(api.certificates.ca.read_text())
        own_token(mounted, api.own).rename(mounted / "token")
        engine.up()
        yield engine


def test_agents_join_on_one_token_and_train_a_job(engine: Engine) -> None:
    token = invite(engine)
    for name in AGENTS:
        start_agent(engine, "agents", name, token)
    for name in AGENTS:
        engine.await_health(name)
    with admitted(engine, engine.url) as client:
        done = trained(client)
        agents = client.get("/api/v1/agents?name=agents-0").json()["results"]
        agents += client.get("/api/v1/agents?name=agents-1").json()["results"]
        (invitation,) = client.get("/api/v1/agents/enrolment-tokens").json()["results"]
    assert {agent["name"]: agent["labels"] for agent in agents} == {name: {"pool": "default"} for name in AGENTS}
    assert (invitation["uses"], invitation["used"]) == (2, 2)
    assert (done["state"], done["iteration"]) == ("succeeded", 10)


def test_an_agent_joins_by_its_service_account_with_the_labels_of_the_account(engine: Engine, api: ApiServer) -> None:
    start_agent(engine, "agents-by-account", "agents-7", api.issue("paceline", "agents", "agents-7"))
    engine.await_health("agents-7")
    with admitted(engine, engine.url) as client:
        (agent,) = client.get("/api/v1/agents?name=agents-7").json()["results"]
    assert (agent["state"], agent["labels"]) == ("online", {"pool": "default"})
    assert len(api.reviews) == 1


def test_servers_of_two_pods_write_checkpoints_to_the_folder_that_they_share(engine: Engine) -> None:
    token, names = invite(engine, pool="shared"), ("sharing-0", "sharing-1")
    for name in names:
        start_agent(engine, "overlays/agents-with-gpus", name, token)
    for name in names:
        engine.await_health(name)
    with admitted(engine, engine.url) as client:
        done = trained(client, servers=2, checkpoint={"every": 5}, labels={"pool": "shared"})
        processes = client.get(f"/api/v1/jobs/{done['id']}/processes").json()["results"]
    assert (done["state"], done["iteration"]) == ("succeeded", 10), done["reason"]
    assert {each["agent"] for each in processes if each["role"] == "server"} == set(names)
    assert any((engine.folder / "volumes" / "checkpoints").iterdir())


def test_pods_wait_until_the_tables_are_up_to_date(engine: Engine) -> None:
    (waiting,) = kubernetes.pods("overlays/small")["web"]["initContainers"]
    shell, flag, script = waiting["command"]
    assert engine.execute("web", shell, flag, script.replace("python", sys.executable)) == ""
