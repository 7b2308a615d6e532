"""A private control plane to measure, with machines and jobs; everything ends with the block."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import psutil
import redis

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
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.supervisor import Supervisor

POOL: Final = "pool"
"""The label that keeps machines and jobs apart."""

ECHO: Final = "echo"
ECHO_READY_S: Final = 20.0
JOIN_S: Final = 60.0
POLL_S: Final = 0.1
ANSWER_S: Final = 120.0
"""Time-out of requests to the control plane, which may be slow on a busy machine."""

LOOK_ANSWER_S: Final = 10.0


class BenchCluster:
    """A running control plane with an administrator's access; ``client`` uses its REST API."""

    def __init__(
        self, plane: ControlPlane, environment: Mapping[str, str], supervisor: Supervisor, client: httpx.Client
    ) -> None:
        self.plane, self.environment, self.supervisor, self.client = plane, environment, supervisor, client
        """The environment is that of commands that join it."""
        self.more_websockets: list[str] = []
        """The addresses of further web processes."""

    @property
    def websockets(self) -> str:
        """The address of its websockets."""
        return self.plane.url.replace("http://", "ws://")

    @property
    def processes(self) -> dict[str, int]:
        """Ids of the control plane's processes."""
        return {service.name: service.process.pid for service in self.supervisor.services if service.name != ECHO}

    def running(self, name: str) -> list[psutil.Process]:
        """The service of that name, unless it has ended."""
        found = [each for each in self.supervisor.services if each.name == name and not each.is_over()]
        return [psutil.Process(each.process.pid) for each in found]

    def connect_redis(self) -> redis.Redis:
        """A connection to its Redis."""
        return redis.Redis.from_url(self.environment["REDIS_URL"], protocol=2, single_connection_client=True)

    def start_echo(self) -> tuple[str, int]:
        """Start an echo server of the same kind as the web process; its address and process id."""
        port = free_port()
        command = [
            *(sys.executable, "-m", "uvicorn", "benchmarks.live.echo:application"),
            *("--host", "127.0.0.1", "--port", str(port), "--lifespan", "off", "--no-access-log"),
            *("--log-level", "warning"),
        ]
        log = self.plane.logs / "echo.log"
        echo = start_service(ECHO, command, log=log, environment=self.environment, folder=CHECKOUT)
        self.supervisor.add(echo)
        self.supervisor.wait_until(lambda: _listens(port), what="The echo server's start", seconds=ECHO_READY_S)
        return f"ws://127.0.0.1:{port}", echo.process.pid

    def add_web(self) -> None:
        """Scale out: one more web process, at a separate port."""
        port, name = free_port(), f"web-{len(self.more_websockets) + 2}"
        command, log = web_command("127.0.0.1", port), self.plane.logs / f"{name}.log"
        service = start_service(name, command, log=log, environment=self.environment, folder=CHECKOUT)
        self.supervisor.add(service, beside_the_last=True)
        url = f"http://127.0.0.1:{port}"
        self.supervisor.wait_until(lambda: is_ready(url), what=f"The start of {name}", seconds=ECHO_READY_S)
        self.more_websockets.append(f"ws://127.0.0.1:{port}")

    def add_decisions(self) -> None:
        """Scale out: one more Celery process that decides."""
        name = f"decisions-{sum(name.startswith('decisions') for name in self.processes) + 1}"
        command = [part.replace("decisions@", f"{name}@") for part in DECISIONS]
        log = self.plane.logs / f"{name}.log"
        service = start_service(name, command, log=log, environment=self.environment, folder=CHECKOUT)
        self.supervisor.add(service, beside_the_last=True)

    def join(
        self,
        name: str,
        *,
        speeds: Sequence[float | Path],
        server_slots: int,
        pool: str = "",
        restarts: bool = True,
        url: str | None = None,
        announced: str | None = None,
        encrypts: bool = False,
    ) -> Service:
        """Start a machine with a worker slot for each speed, as ``start_agent`` has them, and wait until it is online.

        Its agent is started again whenever it ends, if ``restarts``.
        """
        token = self.ask("POST", "agents/enrolment-tokens", json={"name": name, "labels": _labels(pool)})["token"]
        start = partial(
            start_agent,
            url or self.plane.url,
            token,
            name=name,
            folder=self.plane.folder / "machines",
            speeds=speeds,
            server_slots=server_slots,
            log=self.plane.logs / f"{name}.log",
            announced=announced,
            encrypts=encrypts,
        )
        agent = start()
        self.supervisor.add(agent)
        self.supervisor.wait_until(lambda: self._is_online(name), what=f"The joining of {name}", seconds=JOIN_S)
        if restarts:
            self.supervisor.keep_running({agent.name: start})
        return agent

    def submit(self, spec: Mapping[str, Any], *, pool: str = "") -> int:
        """Submit a job for the machines of that pool; its number."""
        return int(self.ask("POST", "jobs", json=dict(spec) | {"labels": _labels(pool)})["id"])

    def look(self, job: int) -> dict[str, Any]:
        """The job's present document; empty while the control plane is unreachable."""
        self.supervisor.check()
        try:
            reply = self.client.get(f"jobs/{job}", timeout=LOOK_ANSWER_S)
            return dict(reply.json()) if reply.is_success else {}
        except (httpx.HTTPError, ValueError):
            return {}

    def wait(self, job: int, holds: Callable[[dict[str, Any]], bool], *, seconds: float) -> dict[str, Any]:
        """The job once ``holds`` is true, or its state when the time is up."""
        end, found = time.monotonic() + seconds, self.look(job)
        while time.monotonic() < end and not (found and holds(found)):
            self.supervisor.interruption.pause(POLL_S)
            found = self.look(job) or found
        return found

    def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """A request to the API.

        Raises:
            RuntimeError: if it is refused, with the reply.
        """
        reply = self.client.request(method, path, **options)
        if reply.is_error:
            raise RuntimeError(f"{method} {path}: {reply.status_code} {reply.text}")
        return dict(reply.json())

    def pages(self, path: str) -> list[dict[str, Any]]:
        """Every row of a list."""
        rows: list[dict[str, Any]] = []
        following: str | None = path
        while following:
            page = self.ask("GET", following)
            rows += page["results"]
            following = page["next"]
        return rows

    def _is_online(self, name: str) -> bool:
        agents = self.client.get("agents").json()["results"]
        return any(agent["name"] == name and agent["state"] == "online" for agent in agents)


@contextmanager
def running_cluster() -> Iterator[BenchCluster]:
    """Start everything in a temporary folder, with an append-only file; everything ends with the block."""
    with TemporaryDirectory(prefix="paceline-bench-") as folder, Interruption() as stop, Supervisor(stop) as supervisor:
        plane = ControlPlane(folder=Path(folder), port=free_port(), settings={"REDIS_URL": "", "DATABASE_URL": ""})
        environment, _ = start_control_plane(plane, supervisor)
        access = let_in("bench", role="admin", environment=environment)
        headers, address = {"Authorization": f"Bearer {access.token}"}, f"{plane.url}/api/v1/"
        with httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, trust_env=False) as client:
            cluster = BenchCluster(plane, environment, supervisor, client)
            with closing(cluster.connect_redis()) as connection:
                _append_to_a_file(connection)
            yield cluster


def _labels(pool: str) -> dict[str, str]:
    return {POOL: pool} if pool else {}


def _append_to_a_file(client: redis.Redis) -> None:
    """Append to a file, as in production: fsynced every second."""
    client.config_set("appendfsync", "everysec")
    client.config_set("appendonly", "yes")


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=1.0, trust_env=False)
    except httpx.TransportError as error:
        return not isinstance(error, httpx.ConnectError)
    return True
