"""A control plane with two web processes behind a balancer and two that decide, PostgreSQL, and Redis behind TLS."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx

from controlplane.runtime.embedded.control_plane import (
    CHECKOUT,
    DECISIONS,
    ControlPlane,
    is_ready,
    start_control_plane,
    web_command,
)
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.redis_server import answers
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.support.certificates import make_certificates
from tests.support.stack import PRIVATE, USER, Stack
from tests.support.waiting import eventually

INSTALL_HAPROXY: Final = "HAProxy is not installed; on Debian and Ubuntu: apt-get install haproxy"
INSTALL_REDIS: Final = "redis-server is not installed; on Debian and Ubuntu: apt-get install redis"

REDIS = """\
port 0
bind 127.0.0.1
tls-port {port}
tls-cert-file {certificate}
tls-key-file {key}
tls-ca-cert-file {ca}
tls-auth-clients no
requirepass {password}
dir {folder}
save ""
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
"""


class Several(Stack):
    """Stack's ``url`` is the balancer's."""

    webs: tuple[str, str]
    """The addresses of the two web processes."""

    def begin(self) -> None:
        """Start all of it."""
        self.folder = self._root / "plane"
        self.folder.mkdir()
        ports, balancer = (free_port(), free_port()), free_port()
        self.url, self.webs = f"http://127.0.0.1:{balancer}", (_local(ports[0]), _local(ports[1]))
        with ExitStack() as starting:
            self.supervisor = starting.enter_context(Supervisor(Interruption()))
            redis_url = self._start_redis()
            settings = {**PRIVATE, **self._settings, "REDIS_URL": redis_url, "PACELINE_URL": self.url}
            settings["PACELINE_TRUSTED_PROXIES"] = "1"
            self.plane = ControlPlane(folder=self.folder, port=ports[0], settings=settings)
            self.password = secrets.token_urlsafe(16)
            self.environment, _ = start_control_plane(self.plane, self.supervisor)
            self.supervisor.add(self.start("web-2"), self.start("decisions-2"), self._balancer(balancer))
            for url in (*self.webs, self.url):
                self.supervisor.wait_until(lambda url=url: is_ready(url), what=f"The start of {url}", seconds=60)
            access = let_in(USER, role="admin", environment=self.environment, password=self.password)
            self.token = access.token
            headers = {"Authorization": f"Bearer {access.token}"}
            self.client = starting.enter_context(
                httpx.Client(base_url=self.url, headers=headers, timeout=60.0, trust_env=False)
            )
            self.supervisor.add(self._agent())
            self._await_machines()
            self._running = starting.pop_all()

    def start(self, name: str) -> Service:
        """The second of a service; on one machine it needs a name and a port of its own."""
        commands = {
            "web-2": web_command("127.0.0.1", int(self.webs[1].rpartition(":")[2])),
            "decisions-2": ["decisions-2@%h" if word == "decisions@%h" else word for word in DECISIONS],
        }
        log = self.plane.logs / f"{name}.log"
        return start_service(name, commands[name], log=log, environment=self.environment, folder=CHECKOUT)

    def restore(self) -> None:
        """Start what a test killed, and wait until all of it answers."""
        for service in list(self.supervisor.services):
            if service.is_over():
                self.restart(service.name)
        for url in (*self.webs, self.url):
            eventually(lambda url=url: is_ready(url), what=f"the return of {url}", seconds=60)

    def _successor(self, service: Service) -> Service:
        return self.start(service.name) if service.name.endswith("-2") else super()._successor(service)

    def _balancer(self, port: int) -> Service:
        environment = {**os.environ, "BIND": f"127.0.0.1:{port}"}
        environment |= {f"WEB_{number}": url.removeprefix("http://") for number, url in enumerate(self.webs, start=1)}
        binary = shutil.which("haproxy")
        assert binary is not None, INSTALL_HAPROXY
        command = [binary, "-db", "-f", str(CHECKOUT / "deploy" / "haproxy.cfg")]
        return start_service("haproxy", command, log=self.plane.logs / "haproxy.log", environment=environment)

    def _start_redis(self) -> str:
        """Start it with a certificate of a test's authority; its address, with the password."""
        folder = self._root / "redis"
        certificates, password, port = make_certificates(folder), secrets.token_urlsafe(24), free_port()
        config = folder / "redis.conf"
        config.write_text(
            REDIS.format(
                port=port,
                certificate=certificates.certificate,
                key=certificates.key,
                ca=certificates.ca,
                password=password,
                folder=folder,
            )
        )
        binary = shutil.which("redis-server")
        assert binary is not None, INSTALL_REDIS
        url = f"rediss://:{password}@localhost:{port}/0?ssl_ca_certs={certificates.ca}"
        self.supervisor.add(start_service("redis", [binary, str(config)], log=folder / "redis.log", folder=folder))
        self.supervisor.wait_until(lambda: answers(url), what="The start of Redis", seconds=60)
        return url


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@contextmanager
def running_several(folder: Path, database_url: str) -> Iterator[Several]:
    """Start everything in ``folder`` and wait until the machines are there."""
    several = Several(folder, {"DATABASE_URL": database_url})
    several.begin()
    try:
        yield several
    finally:
        several.end()
