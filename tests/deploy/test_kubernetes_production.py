"""What overlays/production runs, as local processes: stores of its own user's, three web processes, and an ingress."""

import re
import secrets
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from benchmarks.database.postgres import INSTALL as INSTALL_POSTGRES
from benchmarks.database.postgres import postgres_folder, running_postgres
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.redis_server import answers, redis_binary, start_redis
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.conftest import INSTALL_REDIS
from tests.deploy import kubernetes
from tests.deploy.engine import Engine
from tests.deploy.pods import AGENTS, admitted, invite, start_agent, trained
from tests.support.certificates import make_certificates
from tests.support.several import INSTALL_HAPROXY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

OVERLAY = "overlays/production"
HOST = "paceline.example.org"
PORT = "8000"

INGRESS = """\
defaults
    mode http
    timeout connect 3s
    timeout client 75s
    timeout server 75s
    timeout tunnel {seconds}s
    option forwardfor
frontend ingress
    bind 127.0.0.1:{port} ssl crt {chain}
    http-request set-header X-Forwarded-Proto https
    use_backend web if {{ hdr(host),field(1,:) -m str localhost }}
backend web
    balance roundrobin
{servers}
"""


class Production(NamedTuple):
    """Where it is, and whom its clients trust."""

    engine: Engine
    url: str
    authority: Path
    webs: list[str]
    """The replicas of the web process, by name."""

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


@pytest.fixture(scope="module")
def production() -> Iterator[Production]:
    """All of it, up and well: the host name becomes this machine's, the secret names stores that are here already."""
    binaries = postgres_folder()
    if binaries is None:
        pytest.skip(INSTALL_POSTGRES)
    if redis_binary() is None:
        pytest.skip(INSTALL_REDIS)
    if shutil.which("haproxy") is None:
        pytest.skip(INSTALL_HAPROXY)
    with (
        running_postgres(binaries) as database,
        tempfile.TemporaryDirectory(prefix="paceline-kubernetes-") as name,
        Supervisor(Interruption()) as supervisor,
    ):
        folder, port = Path(name), free_port()
        redis = start_redis(folder, log=folder / "redis.log")
        supervisor.add(redis.service)
        supervisor.wait_until(lambda: answers(redis.url), what="The start of Redis", seconds=60)
        engine = Engine(folder, supervisor, services=kubernetes.services(OVERLAY))
        url, webs = f"https://localhost:{port}", replicate(engine)
        for service in engine.services.values():
            service["environment"] = {
                key: value.replace(f"https://{HOST}", url).replace(HOST, "localhost")
                for key, value in service["environment"].items()
            }
            if "ALLOWED_HOSTS" in service["environment"]:
                service["environment"]["ALLOWED_HOSTS"] += ",127.0.0.1"  # what `web` is here
        certificates = make_certificates(folder / "certificates")
        supervisor.add(start_ingress(engine, port, certificates.chain, [*webs.values()]))
        own = {"DATABASE_URL": database, "REDIS_URL": redis.url, "SECRET_KEY": secrets.token_urlsafe(50)}
        engine.up({"controlplane.env": own})
        yield Production(engine, url, certificates.ca, [*webs])


def replicate(engine: Engine) -> dict[str, int]:
    """As many web processes as the overlay has replicas, each at a port of its own; the ports by name."""
    replicas = kubernetes.named(OVERLAY, "Deployment")["web"]["spec"]["replicas"]
    ports = {"web": engine.ports[int(PORT)]} | {f"web-{number}": free_port() for number in range(1, replicas)}
    for name in list(ports)[1:]:
        web = engine.services["web"]
        check = [word.replace(f":{PORT}", f":{ports[name]}") for word in web["healthcheck"]["test"]]
        command = [str(ports[name]) if word == PORT else word for word in web["command"]]
        engine.services[name] = web | {"command": command, "healthcheck": {"test": check}}
    return ports


def start_ingress(engine: Engine, port: int, chain: Path, webs: list[int]) -> Service:
    """HAProxy, which does what the overlay's Ingress asks of a controller."""
    ingress = kubernetes.named(OVERLAY, "Ingress")["web"]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    asked = path["backend"]["service"]
    (offered,) = kubernetes.named(OVERLAY, "Service")[asked["name"]]["spec"]["ports"]
    assert (rule["host"], ingress["spec"]["tls"][0]["hosts"]) == (HOST, [HOST])
    assert (path["path"], path["pathType"], asked["port"]["name"]) == ("/", "Prefix", offered["name"])
    seconds = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"]
    servers = "\n".join(f"    server web-{number} 127.0.0.1:{each}" for number, each in enumerate(webs))
    config = engine.folder / "ingress.cfg"
    config.write_text(INGRESS.format(seconds=seconds, port=port, chain=chain, servers=servers))
    command = [shutil.which("haproxy") or "haproxy", "-db", "-f", str(config)]
    return start_service("ingress", command, log=engine.folder / "ingress.log")


def test_agents_join_within_the_cluster_and_train_a_job(production: Production) -> None:
    engine, token = production.engine, invite(production.engine)
    for name in AGENTS:
        start_agent(engine, "agents", name, token)
    for name in AGENTS:
        engine.await_health(name)
    with admitted(engine, production.url, verify=production.tls) as client:
        done = trained(client)
        processes = client.get(f"/api/v1/jobs/{done['id']}/processes").json()["results"]
    assert (done["state"], done["iteration"]) == ("succeeded", 10)
    assert {each["agent"] for each in processes} == set(AGENTS)


def test_each_web_process_serves_pages_to_the_same_sign_in(production: Production) -> None:
    assert len(production.webs) == 3
    signed_in = {"username": "ada", "password": secrets.token_urlsafe(16)}
    access = ("python", "manage.py", "access", "ada", "--role", "viewer", "--password-stdin")
    production.engine.execute("web", *access, typed=f"{signed_in['password']}\n")
    with httpx.Client(verify=production.tls, trust_env=False, follow_redirects=True, timeout=60.0) as client:
        page = client.get(f"{production.url}/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None
        form = signed_in | {"csrfmiddlewaretoken": token[1]}
        reply = client.post(page.url, data=form, headers={"Referer": f"{page.url}", "Origin": production.url})
        assert reply.status_code == 200
        assert "max-age=31536000" in reply.headers["Strict-Transport-Security"]
        (session,) = (each for each in client.cookies.jar if each.name == "sessionid")
        assert session.secure
        for _ in production.webs:  # in turn
            reply = client.get(f"{production.url}/jobs/")
            assert (reply.status_code, reply.url.path) == (200, "/jobs/")


def test_web_processes_refuse_hosts_that_they_were_not_given(production: Production) -> None:
    direct = f"http://127.0.0.1:{production.engine.ports[int(PORT)]}/readyz"
    reply = httpx.get(direct, headers={"Host": "other.example.org"}, trust_env=False, timeout=60.0)
    assert reply.status_code == 400
